"""Rows, changes and events of a log as Arrow record batches; importing it imports ``pyarrow``."""
