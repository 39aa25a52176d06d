"""System tables and DESCRIBE: what drivers and cqlsh read when they connect."""

from __future__ import annotations

import json
import struct
from typing import get_args

import pytest
from enginebox import EngineBox

from rscylla.embedded.cql import ast
from rscylla.embedded.engine.ddl import DdlStatement
from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.system.definitions import KEYSPACES


@pytest.fixture(scope="module")
def box() -> EngineBox:
    made = EngineBox(nodes=3)
    made.run("CREATE TYPE addr (street text, zip int)")
    made.run(
        "CREATE TABLE t (pk int, c1 text, c2 timestamp, s int static, v frozen<addr>, m map<text, int>,"
        " PRIMARY KEY (pk, c1, c2)) WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC) AND comment = 'it''s'"
        " AND cdc = {'enabled': true, 'ttl': 3600}"
    )
    made.run("CREATE TABLE plain (pk int PRIMARY KEY, gone int)")
    made.run("ALTER TABLE plain DROP gone")
    return made


# ---------------------------------------------------------------- nodes


def test_each_node_shows_itself_in_local_and_the_others_in_peers(box: EngineBox) -> None:
    everyone = {node.address for node in box.cluster.nodes}
    for node in box.cluster.nodes:
        local = box.row("SELECT * FROM system.local WHERE key = 'local'", node=node.index)
        assert local["host_id"] == node.host_id
        assert str(local["rpc_address"]) == node.address
        assert local["tokens"] == {str(token) for token in node.tokens}
        assert local["release_version"] == "3.0.8"
        assert local["schema_version"] == box.engine.schema.version
        peers = box.column("SELECT peer FROM system.peers", node=node.index)
        assert {str(peer) for peer in peers} == everyone - {node.address}


def test_what_drivers_select_when_they_connect(box: EngineBox) -> None:
    shared = "data_center, host_id, rack, release_version, rpc_address, schema_version, tokens"
    for query in (
        f"SELECT peer, {shared} FROM system.peers USING TIMEOUT 2000ms",
        f"SELECT broadcast_address, cluster_name, partitioner, {shared} FROM system.local WHERE key='local'",
        "SELECT peer, host_id, rpc_address, schema_version FROM system.peers",
    ):
        for row in box.rows(query):
            assert None not in row.values()
    assert box.row("SELECT * FROM system.versions WHERE key = 'local'")["version"]
    for table in ("cdc_local", "cdc_timestamps", "cdc_streams"):
        assert box.rows(f"SELECT * FROM system.{table}") == []
    assert box.rows("SELECT * FROM system.scylla_local")
    assert box.rows("SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = 'ks'") == []
    for table in ("functions", "aggregates", "indexes", "views", "triggers", "view_virtual_columns"):
        assert box.rows(f"SELECT * FROM system_schema.{table} WHERE keyspace_name = 'ks'") == []
    with pytest.raises(InvalidRequest):
        box.run("SELECT * FROM system.peers_v2")


def test_a_new_node_shows_up(box: EngineBox) -> None:
    fresh = EngineBox()
    assert fresh.rows("SELECT * FROM system.peers") == []
    node = fresh.cluster.add_node()
    assert [str(peer) for peer in fresh.column("SELECT peer FROM system.peers")] == [node.address]
    assert fresh.row("SELECT host_id FROM system.local", node=node.index) == {"host_id": node.host_id}


# ---------------------------------------------------------------- schema


def test_the_system_tables_describe_themselves(box: EngineBox) -> None:
    assert set(box.column("SELECT keyspace_name FROM system_schema.keyspaces")) == {*KEYSPACES, "ks"}
    described = {
        (row["keyspace_name"], row["table_name"], row["column_name"]): row["type"]
        for row in box.rows("SELECT * FROM system_schema.columns")
    }
    for keyspace in box.engine.schema.keyspaces.values():
        for table in keyspace.tables.values():
            for column in table.columns:
                assert described.pop((keyspace.name, table.name, column.name)) == column.type.name
    assert described == {}


def test_columns_of_a_table(box: EngineBox) -> None:
    query = "SELECT * FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't'"
    rows = {r["column_name"]: (r["kind"], r["position"], r["clustering_order"], r["type"]) for r in box.rows(query)}
    assert rows == {
        "pk": ("partition_key", 0, "none", "int"),
        "c1": ("clustering", 0, "asc", "text"),
        "c2": ("clustering", 1, "desc", "timestamp"),
        "s": ("static", -1, "none", "int"),
        "v": ("regular", -1, "none", "frozen<addr>"),
        "m": ("regular", -1, "none", "map<text, int>"),
    }


def test_cdc_options_are_in_the_extensions_of_the_base(box: EngineBox) -> None:
    tables = {r["table_name"]: r for r in box.rows("SELECT * FROM system_schema.tables WHERE keyspace_name = 'ks'")}
    raw = tables["t"]["extensions"]["cdc"]
    count, found, at = struct.unpack_from("<I", raw)[0], [], 4
    while at < len(raw):
        (size,) = struct.unpack_from("<I", raw, at)
        found.append(raw[at + 4 : at + 4 + size].decode())
        at += 4 + size
    assert count == 5
    assert found == ["delta", "full", "enabled", "true", "postimage", "false", "preimage", "false", "ttl", "3600"]
    assert tables["t_scylla_cdc_log"]["extensions"] == tables["plain"]["extensions"] == {}
    assert tables["t_scylla_cdc_log"]["comment"] == "CDC log for ks.t"
    assert tables["t"]["id"] != tables["t_scylla_cdc_log"]["id"]


def test_partitioners_distinguish_logs_from_other_tables(box: EngineBox) -> None:
    query = "SELECT table_name, partitioner FROM system_schema.scylla_tables WHERE keyspace_name = 'ks'"
    assert {r["table_name"]: r["partitioner"] for r in box.rows(query)} == {
        "t": None,
        "plain": None,
        "t_scylla_cdc_log": "com.scylladb.dht.CDCPartitioner",
    }


def test_types_and_dropped_columns(box: EngineBox) -> None:
    assert box.row("SELECT field_names, field_types FROM system_schema.types WHERE keyspace_name = 'ks'") == {
        "field_names": ["street", "zip"],
        "field_types": ["text", "int"],
    }
    dropped = "SELECT column_name, toUnixTimestamp(dropped_time) AS time FROM system_schema.dropped_columns"
    assert box.row(dropped) == {"column_name": "gone", "time": box.clock.now_us()}, "Scylla puts microseconds there"


# ---------------------------------------------------------------- generations


def test_generations_are_listed_newest_first_with_all_their_streams() -> None:
    box = EngineBox(nodes=2)
    box.cluster.new_generation()
    times = [generation.time_ms for generation in box.cluster.generations]
    query = "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
    assert box.column(query) == times[::-1]
    assert box.column(f"{query} AND time <= ? ORDER BY time DESC LIMIT 1", [times[0] + 1]) == [times[0]]
    assert box.column(f"{query} AND time > ? ORDER BY time ASC LIMIT 1", [times[0]]) == [times[1]]
    assert box.column(query.replace("SELECT time", "SELECT min(time)") + " AND time > ?", [times[0]]) == [times[1]]
    for generation in box.cluster.generations:
        rows = box.rows(
            "SELECT * FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?", [generation.time_ms]
        )
        assert [row["range_end"] for row in rows] == [entry.range_end for entry in generation.entries]
        assert {s for row in rows for s in row["streams"]} == set(generation.streams)


# ---------------------------------------------------------------- DESCRIBE


def test_describe_table_can_be_executed_to_make_the_same_table(box: EngineBox) -> None:
    rows = box.rows("DESCRIBE TABLE t")
    assert [(row["keyspace_name"], row["type"], row["name"]) for row in rows] == [
        ("ks", "table", "t"),
        ("ks", "table", "t_scylla_cdc_log"),
    ]
    copy = EngineBox()
    for row in box.rows("DESCRIBE TYPE addr") + rows:
        copy.run(row["create_statement"])
    assert copy.rows("DESCRIBE TABLE t") == rows
    assert copy.engine.schema.keyspaces["ks"].tables["t"].columns == (
        box.engine.schema.keyspaces["ks"].tables["t"].columns
    )


def test_describe_schema_can_be_executed_as_a_whole(box: EngineBox) -> None:
    rows = box.rows("DESCRIBE SCHEMA")
    assert rows[0]["create_statement"].startswith("CREATE KEYSPACE ks WITH replication = {")
    copy = EngineBox()
    copy.run("DROP KEYSPACE ks")
    for row in rows:
        copy.run(row["create_statement"])
    assert copy.rows("DESCRIBE SCHEMA") == rows
    assert {row["keyspace_name"] for row in box.rows("DESCRIBE FULL SCHEMA")} == {*KEYSPACES, "ks"}


def test_describe_log_is_for_reading_only(box: EngineBox) -> None:
    (row,) = box.rows("DESCRIBE TABLE t_scylla_cdc_log")
    text = row["create_statement"]
    assert text.startswith("/*")
    assert text.endswith("*/")
    assert '"cdc$stream_id" blob' in text
    assert 'PRIMARY KEY ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no")' in text


def test_describe_lists(box: EngineBox) -> None:
    assert box.rows("DESCRIBE TABLES") == [
        {"keyspace_name": "ks", "type": "table", "name": "plain"},
        {"keyspace_name": "ks", "type": "table", "name": "t"},
    ]
    assert [row["name"] for row in box.rows("DESCRIBE KEYSPACES")] == sorted({*KEYSPACES, "ks"})
    assert [row["name"] for row in box.rows("DESCRIBE TYPES")] == ["addr"]
    assert box.rows("DESCRIBE FUNCTIONS") == []


def test_describe_cluster_and_bare_names(box: EngineBox) -> None:
    row = box.row("DESCRIBE CLUSTER")
    assert row["partitioner"] == "org.apache.cassandra.dht.Murmur3Partitioner"
    assert len(row["range_ownership"]) == sum(len(node.tokens) for node in box.cluster.nodes)
    assert box.rows("DESCRIBE t") == box.rows("DESCRIBE TABLE ks.t")
    assert box.rows("DESCRIBE ks") == box.rows("DESCRIBE KEYSPACE ks") == box.rows("DESCRIBE KEYSPACE")


def test_describe_with_internals_shows_the_id_and_dropped_columns(box: EngineBox) -> None:
    text = box.rows("DESCRIBE TABLE plain WITH INTERNALS")[0]["create_statement"]
    assert f"WITH ID = {box.engine.schema.keyspaces['ks'].tables['plain'].id}" in text
    assert "    gone int" in text
    assert "ALTER TABLE ks.plain DROP gone USING TIMESTAMP " in text
    assert "gone" not in box.rows("DESCRIBE TABLE plain")[0]["create_statement"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DESCRIBE TABLE nothere", "Table 'nothere' not found in keyspace 'ks'"),
        ("DESCRIBE KEYSPACE nothere", "'nothere' not found in keyspaces"),
        ("DESCRIBE TYPE nothere", "Type 'nothere' not found in keyspace 'ks'"),
        ("DESCRIBE nothere.t", "'t' not found in keyspaces"),
        ("DESCRIBE ks.nothere", "'nothere' not found in keyspace 'ks'"),
        ("DESCRIBE INDEX nothere", "Table for existing index 'nothere' not found in 'ks'"),
        ("DESCRIBE MATERIALIZED VIEW nothere", "Materialized view 'nothere' not found in keyspace 'ks'"),
        ("DESCRIBE FUNCTION nothere", "Function 'nothere' not found in keyspace 'ks'"),
        ("DESCRIBE AGGREGATE nothere", "Aggregate 'nothere' not found in keyspace 'ks'"),
        ("DESCRIBE TABLE t WITH INTERNALS AND PASSWORDS", "Option WITH PASSWORDS is only allowed with DESC SCHEMA"),
    ],
)
def test_describe_of_a_missing_object_fails(box: EngineBox, statement: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        box.run(statement)


def test_every_statement_that_is_parsed_is_executed_or_refused_by_name(box: EngineBox) -> None:
    planned = {ast.Select, ast.Insert, ast.Update, ast.Delete, ast.Batch}
    of_the_schema = set(get_args(DdlStatement))
    assert set(get_args(ast.Statement)) - planned - of_the_schema == box.engine._others.keys()


def test_the_history_of_the_schema_has_each_statement_that_changed_it(box: EngineBox) -> None:
    before = len(box.rows("SELECT * FROM system.group0_history"))
    statements = ["CREATE TABLE h (pk int PRIMARY KEY)", "ALTER TABLE h WITH comment = ''", "DROP TABLE h"]
    for statement in (*statements, "DROP TABLE IF EXISTS h"):
        box.run(statement)
    rows = box.rows("SELECT description, state_id FROM system.group0_history WHERE key = 'history'")
    assert [row["description"] for row in rows[:-before]] == [
        f'CQL DDL statement: "{each}"' for each in reversed(statements)
    ]
    ids = [row["state_id"].time for row in rows]
    assert ids == sorted(set(ids), reverse=True)


# ---------------------------------------------------------------- settings, roles, the ring


def test_settings_are_json(box: EngineBox) -> None:
    rows = box.rows("SELECT * FROM system.config")
    assert {row["source"] for row in rows} == {"default"}
    values = {row["name"]: json.loads(row["value"]) for row in rows}
    assert values["num_tokens"] == len(box.cluster.nodes[0].tokens)
    assert values["restrict_dtcs"] == "true"
    assert values["experimental_features"] == []


def test_users_are_roles() -> None:
    engine = EngineBox(users={"carol": "secret", "alice": "hidden"})
    rows = engine.rows("LIST ROLES")
    assert rows == [{"role": name, "super": True, "login": True, "options": {}} for name in ("alice", "carol")]
    assert engine.column("LIST USERS") == engine.column("LIST ROLES")
    assert engine.column("LIST ROLES OF 'carol'") == ["carol"]
    roles = engine.rows("SELECT role, can_login, is_superuser, salted_hash FROM system.roles")
    assert sorted(row["role"] for row in roles) == ["alice", "carol"]
    assert {row["salted_hash"] for row in roles} == {None}


@pytest.mark.parametrize(("factor", "owners"), [(1, 1), (2, 2), (5, 3)])
def test_the_ring_of_a_keyspace_with_vnodes(factor: int, owners: int) -> None:
    box = EngineBox(3)
    box.run(f"CREATE KEYSPACE k WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {factor}}}")
    rows = box.rows("SELECT * FROM system.token_ring WHERE keyspace_name = 'k'")
    tokens = sorted(token for node in box.cluster.nodes for token in node.tokens)
    ends = {(int(row["start_token"]), int(row["end_token"])) for row in rows}
    assert ends == {(tokens[at - 1], token) for at, token in enumerate(tokens)}
    assert len(rows) == owners * len(tokens)
    assert {row["table_name"] for row in rows} == {"<ALL>"}
    if factor == 1:
        assert {int(r["end_token"]): str(r["endpoint"]) for r in rows} == {
            token: node.address for node in box.cluster.nodes for token in node.tokens
        }


def test_the_ring_of_a_table_with_tablets() -> None:
    box = EngineBox(2)
    box.run("CREATE KEYSPACE k WITH tablets = {'initial': 4}")
    box.run("CREATE TABLE k.t (pk int PRIMARY KEY)")
    rows = box.rows("SELECT * FROM system.token_ring WHERE keyspace_name = 'k' AND table_name = 't'")
    tablets = box.rows("SELECT last_token FROM system.tablets WHERE keyspace_name = 'k' ALLOW FILTERING")
    assert {row["end_token"] for row in rows} == {str(row["last_token"]) for row in tablets}


def test_nodes_are_listed(box: EngineBox) -> None:
    rows = box.rows("SELECT peer, status, up FROM system.cluster_status")
    assert sorted(str(row["peer"]) for row in rows) == [f"127.0.0.{n}" for n in (1, 2, 3)]
    assert {(row["status"], row["up"]) for row in rows} == {("NORMAL", True)}
