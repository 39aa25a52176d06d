"""CDC logs in Spark: the data source ``scylla-cdc``, windows with a cursor, and pipeline helpers."""
