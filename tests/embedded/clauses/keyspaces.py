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
        done(
            "AND durable_writes",
            "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor':"
            " 1} AND durable_writes = false",
            [(False,)],
            shown="SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = 'k'",
        ),
        done(
            "AND tablets",
            "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor':"
            " 1} AND tablets = {'enabled': true, 'initial': 4}",
            [(4,)],
            shown="SELECT initial_tablets FROM system_schema.scylla_keyspaces WHERE keyspace_name = 'k'",
        ),
        rejected(
            "an unknown property",
            "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor':"
            " 1} AND nothing = 1",
            "SyntaxException",
            "Unknown property 'nothing'",
        ),
        rejected(
            "an unknown class",
            "CREATE KEYSPACE k WITH replication = {'class': 'Nothing', 'replication_factor': 1}",
            "ConfigError",
            "Nothing",
        ),
    ),
    *statement(
        "ALTER KEYSPACE",
        done(
            "replication",
            "ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
            [("org.apache.cassandra.locator.NetworkTopologyStrategy",)],
            given=[],
            shown="SELECT replication['class'] FROM system_schema.keyspaces WHERE keyspace_name = 'ks'",
        ),
        done(
            "durable_writes",
            "ALTER KEYSPACE ks WITH durable_writes = false",
            [(False,)],
            shown="SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = 'ks'",
        ),
        rejected("a keyspace that is not there", "ALTER KEYSPACE o WITH durable_writes = false", "InvalidRequest", "o"),
    ),
    *statement(
        "DROP KEYSPACE",
        done(
            "the statement",
            "DROP KEYSPACE ks",
            [(0,)],
            shown="SELECT count(*) FROM system_schema.keyspaces WHERE keyspace_name = 'ks'",
        ),
        done(
            "IF EXISTS",
            "DROP KEYSPACE IF EXISTS o",
            [("ks",)],
            shown="SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'ks'",
        ),
        rejected("a keyspace that is not there", "DROP KEYSPACE o", "ConfigError", "o"),
        rejected(
            "a system keyspace", "DROP KEYSPACE system", "Unauthorized", "system keyspace is not user-modifiable."
        ),
    ),
    *statement(
        "USE",
        rejected("a keyspace that is not there", "USE o", "InvalidRequest", "Keyspace 'o' does not exist"),
    ),
)
