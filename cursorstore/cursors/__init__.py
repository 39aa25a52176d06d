"""Stores of cursors: in a Scylla table, in memory, with a buffer, or from an old store."""
