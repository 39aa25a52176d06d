"""Cursors of a connector.

store       ``KafkaCursorStore``: in a compacted topic; records: what its records say
scylla      in ScyllaDB, a store for each keyspace
positions   how far snapshots are
offsets     the offsets of the Java connector, as cursors
"""
