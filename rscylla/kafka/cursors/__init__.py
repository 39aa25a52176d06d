"""Cursors of a connector: in a topic, in ScyllaDB, and those of the Java connector."""
