"""Stores of events, snapshots and keys: in ScyllaDB."""
