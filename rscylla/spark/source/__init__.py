"""The data source ``scylla-cdc``: options, offsets, plans, and reads."""
