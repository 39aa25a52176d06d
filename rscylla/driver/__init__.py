"""The only door to ``cassandra`` (scylla-driver): sessions, log reads, undecoded pages, and translated errors."""
