"""The options that say how many tablets a table has."""

from .model import done, rejected, statement

KEYSPACE = (
    "CREATE KEYSPACE tab WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    " AND tablets = {'enabled': true}"
)
TABLE = "CREATE TABLE tab.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}"
STREAMS = "SELECT stream_state, count(*) FROM system.cdc_streams WHERE keyspace_name = 'tab' AND table_name = 't'"
LATEST = (
    "SELECT tablet_count FROM system.tablets WHERE keyspace_name = 'tab' AND table_name = 't' LIMIT 1 ALLOW FILTERING"
)
HINTS = "SELECT tablets FROM system_schema.scylla_tables WHERE keyspace_name = 'tab' AND table_name = 't'"
INITIAL = "SELECT initial_tablets FROM system_schema.scylla_keyspaces WHERE keyspace_name = 'k'"

CLAUSES = (
    *statement(
        "CREATE KEYSPACE",
        done(
            "tablets = {'enabled': …, 'initial': …}",
            KEYSPACE.replace("KEYSPACE tab", "KEYSPACE k").replace("true}", "true, 'initial': 4}"),
            [(4,)],
            shown=INITIAL,
        ),
    ),
    *statement(
        "ALTER KEYSPACE",
        done(
            "tablets = {'initial': …}, also for its tables",
            "ALTER KEYSPACE tab WITH tablets = {'initial': 16}",
            [(16,)],
            shown=LATEST,
            given=(KEYSPACE, TABLE),
        ),
        rejected(
            "from tablets to vnodes",
            "ALTER KEYSPACE tab WITH tablets = {'enabled': false}",
            "InvalidRequest",
            "Cannot alter replication strategy vnode/tablets flavor",
            given=(KEYSPACE,),
        ),
    ),
    *statement(
        "CREATE TABLE",
        done(
            "tablets = {'min_tablet_count': …}",
            f"{TABLE} AND tablets = {{'min_tablet_count': 5}}",
            [(8,)],
            shown=LATEST,
            given=(KEYSPACE,),
        ),
        done(
            "tablets = {'max_tablet_count': …, 'pow2_count': true}",
            f"{TABLE} AND tablets = {{'max_tablet_count': 1, 'pow2_count': true}}",
            [({"max_tablet_count": "1", "pow2_count": "true"},)],
            shown=HINTS,
            given=(KEYSPACE,),
        ),
        done(
            "tablets = {'expected_data_size_in_gb': …}",
            f"{TABLE} AND tablets = {{'expected_data_size_in_gb': 100}}",
            [(32,)],
            shown=LATEST,
            given=(KEYSPACE,),
        ),
        done(
            "tablets = {'min_per_shard_tablet_count': …}",
            f"{TABLE} AND tablets = {{'min_per_shard_tablet_count': 8}}",
            [(16,)],
            shown=LATEST,
            given=(KEYSPACE,),
        ),
        rejected(
            "tablets in a keyspace of vnodes",
            "CREATE TABLE x (pk int PRIMARY KEY) WITH tablets = {'min_tablet_count': 5}",
            "ConfigError",
            "tablet options cannot be used when tablets are disabled for the keyspace",
        ),
        rejected(
            "tablets = {'pow2_count': false}",
            f"{TABLE} AND tablets = {{'pow2_count': false}}",
            "ConfigError",
            "pow2_count cannot be set to false",
            given=(KEYSPACE,),
        ),
    ),
    *statement(
        "ALTER TABLE",
        done(
            "tablets, which splits and merges it",
            "ALTER TABLE tab.t WITH tablets = {'min_tablet_count': 4}",
            [(0, 2), (2, 2), (0, 4), (1, 2), (2, 4)],
            shown=f"{STREAMS} GROUP BY timestamp, stream_state",
            given=(KEYSPACE, TABLE),
        ),
    ),
)
