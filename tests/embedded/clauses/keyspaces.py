"""CREATE, ALTER and DROP KEYSPACE, and USE."""

from .model import done, rejected, statement

CLAUSES = (
    *statement(
        "CREATE KEYSPACE",
        done(
            "replication with NetworkTopologyStrategy",
            "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
            [("k", True)],
            shown="SELECT keyspace_name, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = 'k'",
        ),
        done(
            "IF NOT EXISTS",
            "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
            [({"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "1"},)],
            shown="SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'ks'",
        ),
        rejected(
            "a keyspace that exists",
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "AlreadyExists",
            "ks",
        ),
    ),
)
