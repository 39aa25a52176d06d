"""Change data capture for ScyllaDB, as cursor streams of events."""
