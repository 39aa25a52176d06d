"""What changes are written to: one file a sink."""
