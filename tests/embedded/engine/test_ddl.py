"""Schema statements: what they make and refuse, and how CDC logs follow their tables."""

from __future__ import annotations

import re
from typing import Any

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import (
    AlreadyExists,
    ConfigError,
    InvalidRequest,
    SyntaxException,
    Unauthorized,
    Unprepared,
)
from rscylla.embedded.result import QueryParams, SchemaChange, VoidResult

CDC = "WITH cdc = {'enabled': true}"


@pytest.fixture
def box() -> EngineBox:
    return EngineBox()


def log_names(box: EngineBox, table: str = "t") -> set[str]:
    found = box.engine.schema.keyspaces["ks"].tables[f"{table}_scylla_cdc_log"]
    return {column.name for column in found.regular_columns}


def events(box: EngineBox) -> list[tuple[str, str]]:
    found = [(event.change, event.name) for event in box.events]
    box.events.clear()
    return found


# ---------------------------------------------------------------- tables


def test_creating_a_cdc_table_notifies_of_base_and_log(box: EngineBox) -> None:
    result = box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    assert result == SchemaChange("CREATED", "TABLE", "ks", "t")
    assert events(box) == [("CREATED", "t"), ("CREATED", "t_scylla_cdc_log")]
    assert box.run("CREATE TABLE IF NOT EXISTS t (x int PRIMARY KEY)") == VoidResult()
    box.run("ALTER TABLE t ADD w int")
    box.run("DROP TABLE t")
    assert events(box) == [
        ("UPDATED", "t"),
        ("UPDATED", "t_scylla_cdc_log"),
        ("DROPPED", "t"),
        ("DROPPED", "t_scylla_cdc_log"),
    ]


def test_every_change_creates_a_new_schema_version(box: EngineBox) -> None:
    versions = {box.engine.schema.version}
    for statement in ("CREATE TABLE t (pk int PRIMARY KEY)", "ALTER TABLE t ADD v int", "DROP TABLE t"):
        box.run(statement)
        versions.add(box.engine.schema.version)
    assert len(versions) == 4
    box.run("DROP TABLE IF EXISTS t")
    assert box.engine.schema.version in versions


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE x (a int)", "No PRIMARY KEY specified"),
        ("CREATE TABLE x (a int, PRIMARY KEY (b))", "Unknown definition b referenced in PRIMARY KEY"),
        ("CREATE TABLE x (a int, a text, PRIMARY KEY (a))", "Multiple definition of identifier a"),
        ("CREATE TABLE x (a int PRIMARY KEY, s int static)", "Static columns are only useful"),
        ("CREATE TABLE x (a list<int> PRIMARY KEY)", "Invalid non-frozen collection type"),
        ("CREATE TABLE x (a duration PRIMARY KEY)", "duration type is not supported for PRIMARY KEY part a"),
        ("CREATE TABLE x (a counter PRIMARY KEY)", "counter type is not supported for PRIMARY KEY part a"),
        ("CREATE TABLE x (a int PRIMARY KEY, c counter)", "counter tables are not supported"),
        (f"CREATE TABLE x (a int PRIMARY KEY, c counter) {CDC}", "Counter support not implemented"),
        ("CREATE TABLE x (a int PRIMARY KEY, b nosuch)", "Unknown type ks.nosuch"),
        ("CREATE TABLE x (a int PRIMARY KEY) WITH COMPACT STORAGE", "COMPACT STORAGE tables are not supported"),
        (
            "CREATE TABLE x (a int, b int, c int, PRIMARY KEY (a, b, c)) WITH CLUSTERING ORDER BY (c ASC, b ASC)",
            "The order of columns in the CLUSTERING ORDER directive",
        ),
        (
            "CREATE TABLE x (a int, b int, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (a ASC)",
            "Missing CLUSTERING ORDER for column b",
        ),
        (
            "CREATE TABLE x (a int, b int, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (b ASC, a ASC)",
            "Only clustering key columns can be defined in CLUSTERING ORDER directive",
        ),
        (f"CREATE TABLE {'x' * 193} (a int PRIMARY KEY)", "Table names shouldn't be more than 192 characters long"),
        ('CREATE TABLE "x!y" (a int PRIMARY KEY)', "is not a valid table name"),
        (
            "CREATE TABLE x (a frozen<list<duration>> PRIMARY KEY)",
            "duration type is not supported for PRIMARY KEY part a",
        ),
        (
            "CREATE TABLE x (a int, b frozen<map<int, list<tuple<int, duration>>>>, PRIMARY KEY (a, b))",
            "PRIMARY KEY part b",
        ),
        ("CREATE TABLE x (a frozen<int> PRIMARY KEY)", "frozen<> is only allowed on collections"),
        ("CREATE TABLE nokeyspace.x (a int PRIMARY KEY)", "Keyspace 'nokeyspace' does not exist"),
        ("DROP TABLE nothere", "unconfigured table nothere"),
        ("ALTER TABLE nothere ADD x int", "unconfigured table nothere"),
    ],
)
def test_refused_tables(box: EngineBox, statement: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        box.run(statement)
    assert events(box) == []


def test_existing_names(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY)")
    with pytest.raises(AlreadyExists) as caught:
        box.run("CREATE TABLE t (pk int PRIMARY KEY)")
    assert (caught.value.keyspace, caught.value.table) == ("ks", "t")
    with pytest.raises(AlreadyExists):
        box.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")


@pytest.mark.parametrize(
    "definition",
    [
        "(a int PRIMARY KEY,)",
        "(a int, PRIMARY KEY (a),)",
        "(a int,, PRIMARY KEY (a))",
        "(a int PRIMARY KEY, b int,,,)",
    ],
)
def test_commas_too_many_are_skipped(box: EngineBox, definition: str) -> None:
    box.run(f"CREATE TABLE t {definition}")
    assert "a" in box.column("SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'ks'")
    box.run("CREATE TYPE u (x int,, y text,)")
    assert box.column("SELECT field_names FROM system_schema.types WHERE keyspace_name = 'ks'") == [["x", "y"]]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (, a int PRIMARY KEY)",
        "CREATE TYPE int (a int)",
        "CREATE TYPE ks.byte (a int)",
        "CREATE TABLE t (a int, b int, PRIMARY KEY (a, b,))",
        "CREATE TABLE t (a int, b int, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (b)",
        "CREATE TABLE t (a int static ttl PRIMARY KEY)",
        "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1, 'datacenter1': 2}",
        "CREATE TABLE t (a int PRIMARY KEY) WITH caching = {'keys': ALL}",
        "ALTER TABLE IF EXISTS t ADD v int",
        "ALTER TABLE t ADD IF NOT EXISTS v int",
        "ALTER TABLE t ADD v int, w int",
        "ALTER TABLE t DROP IF EXISTS v",
        "ALTER TYPE IF EXISTS u ADD v int",
        "ALTER KEYSPACE IF EXISTS ks WITH durable_writes = false",
        "ALTER KEYSPACE ks",
    ],
)
def test_what_the_grammar_does_not_have(box: EngineBox, statement: str) -> None:
    with pytest.raises(SyntaxException):
        box.run(statement)


def test_drop_if_exists_in_a_keyspace_that_is_not_there(box: EngineBox) -> None:
    for what in ("TABLE", "TYPE"):
        assert box.run(f"DROP {what} IF EXISTS nowhere.x") == VoidResult()
        with pytest.raises(InvalidRequest, match="nowhere"):
            box.run(f"DROP {what} nowhere.x")
    assert events(box) == []


def test_a_column_is_dropped_at_the_time_of_a_marker(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, v int)")
    for at in range(5):
        box.run("INSERT INTO t (pk, v) VALUES (?, ?) USING TIMESTAMP ?", [at, at, 10_000 * at])
    statement = "ALTER TABLE t DROP v USING TIMESTAMP ?"
    (variable,) = box.engine.prepare(statement, "ks").variables
    assert (variable.name, variable.type.name) == ("[timestamp]", "bigint")
    with pytest.raises(InvalidRequest, match="Invalid null"):
        box.run(statement, [None])
    box.run(statement, [20_000])
    box.run("ALTER TABLE t ADD v int")
    rows = box.rows("SELECT pk, v FROM t")
    assert {row["pk"]: row["v"] for row in rows} == {0: None, 1: None, 2: None, 3: 3, 4: 4}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("nosuch = 1", SyntaxException, "Unknown property 'nosuch'"),
        ("gc_grace_seconds = 'x'", SyntaxException, "Invalid integer value x for 'gc_grace_seconds'"),
        ("id = 'x'", ConfigError, "Invalid table id x"),
        ("cdc = {'nosuch': 1}", ConfigError, "Invalid CDC option: nosuch"),
    ],
)
def test_refused_options(box: EngineBox, options: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        box.run(f"CREATE TABLE t (pk int PRIMARY KEY) WITH {options}")


def test_table_ids_are_given_once(box: EngineBox) -> None:
    identity = "11111111-1111-1111-1111-111111111111"
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY) WITH id = {identity}")
    assert str(box.engine.schema.keyspaces["ks"].tables["t"].id) == identity
    with pytest.raises(InvalidRequest, match=f"Table with id {identity} already exists"):
        box.run(f"CREATE TABLE u (pk int PRIMARY KEY) WITH id = {identity}")
    with pytest.raises(ConfigError, match="Cannot alter table id"):
        box.run("ALTER TABLE t WITH id = 22222222-1111-1111-1111-111111111111")


def test_keyspaces(box: EngineBox) -> None:
    with pytest.raises(ConfigError, match="SimpleStrategy requires a replication_factor"):
        box.run("CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy'}")
    box.run(
        "CREATE KEYSPACE k2 WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
        " AND tablets = {'enabled': false} AND durable_writes = false"
    )
    row = box.row("SELECT * FROM system_schema.keyspaces WHERE keyspace_name = 'k2'")
    assert row["durable_writes"] is False
    assert row["replication"] == {
        "class": "org.apache.cassandra.locator.NetworkTopologyStrategy",
        "datacenter1": "1",
    }
    box.run("CREATE TABLE k2.t (pk int PRIMARY KEY)")
    box.run("DROP KEYSPACE k2")
    with pytest.raises(InvalidRequest, match="Keyspace k2 does not exist"):
        box.run("SELECT * FROM k2.t")
    with pytest.raises(ConfigError, match="Cannot drop non existing keyspace 'k2'"):
        box.run("DROP KEYSPACE k2")
    for keyspace in ("system", "system_schema", "system_distributed"):
        with pytest.raises(Unauthorized, match="is not user-modifiable"):
            box.run(f"DROP KEYSPACE {keyspace}")
    with pytest.raises(Unauthorized):
        box.run("DROP TABLE system_distributed.cdc_generation_timestamps")


@pytest.mark.parametrize(
    ("options", "replication"),
    [
        ("", {"class": "NetworkTopologyStrategy", "datacenter1": "1"}),
        ("WITH replication = {}", {"class": "NetworkTopologyStrategy", "datacenter1": "1"}),
        ("WITH replication = {'datacenter1': 3}", {"class": "NetworkTopologyStrategy", "datacenter1": "3"}),
        ("WITH replication = {'replication_factor': 2}", {"class": "NetworkTopologyStrategy", "datacenter1": "2"}),
        ("WITH durable_writes = 1", {"class": "NetworkTopologyStrategy", "datacenter1": "1"}),
        ("WITH storage = {'type': 'LOCAL'}", {"class": "NetworkTopologyStrategy", "datacenter1": "1"}),
        ("WITH consistency = 'eventual'", {"class": "NetworkTopologyStrategy", "datacenter1": "1"}),
    ],
)
def test_replication_has_defaults(box: EngineBox, options: str, replication: dict[str, str]) -> None:
    box.run(f"CREATE KEYSPACE k {options}")
    row = box.row("SELECT replication, replication_v2 FROM system_schema.keyspaces WHERE keyspace_name = 'k'")
    found = row["replication"]
    assert {**found, "class": found["class"].removeprefix("org.apache.cassandra.locator.")} == replication
    assert row["replication_v2"] is None


def test_lists_of_racks(box: EngineBox) -> None:
    def shown() -> list[dict[str, str]]:
        (row,) = box.rows("SELECT replication, replication_v2 FROM system_schema.keyspaces WHERE keyspace_name = 'k'")
        return [
            {k: v for k, v in (row[name] or {}).items() if k != "class"} for name in ("replication", "replication_v2")
        ]

    network = "replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': %s}"
    create = f"CREATE KEYSPACE k WITH {network} AND tablets = {{'enabled': %s}}"
    alter = f"ALTER KEYSPACE k WITH {network}"
    for racks, message in (("['rack9']", "Unrecognized rack name 'rack9'"), ("['rack1', 'rack1']", "a rack twice")):
        with pytest.raises(ConfigError, match=message):
            box.run(create % (racks, "true"))
    with pytest.raises(ConfigError, match="only supported for keyspaces that use tablets"):
        box.run(create % ("['rack1']", "false"))
    box.run(create % ("['rack1']", "true"))
    assert shown() == [{"datacenter1": "1"}, {"datacenter1:0": "rack1"}]
    (text,) = (row["create_statement"] for row in box.rows("DESCRIBE ONLY KEYSPACE k"))
    assert "'datacenter1': ['rack1']" in text
    box.run(text.replace("KEYSPACE k ", "KEYSPACE k2 "))
    box.run(alter % "1")
    assert shown() == [{"datacenter1": "1"}, {"datacenter1:0": "rack1"}]
    with pytest.raises(ConfigError, match="Cannot change the rack list"):
        box.run(alter % "2")
    box.run(alter % "[]")
    assert shown() == [{"datacenter1": "0"}, {"datacenter1:-1": ""}]


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("CREATE KEYSPACE k WITH replication = {'class': 'LocalStrategy'}", ConfigError, "reserved for internal use"),
        (
            "CREATE KEYSPACE k WITH replication = {'class': 'x.SimpleStrategy'}",
            ConfigError,
            "Unable to find replication",
        ),
        ("CREATE KEYSPACE k WITH replication = {'Replication_factor': 1}", ConfigError, "{Replication_factor}"),
        ("CREATE KEYSPACE k WITH replication = {'replication_factor': -1}", ConfigError, "must be numeric"),
        ("CREATE KEYSPACE k WITH replication = 1", SyntaxException, "It should be a map"),
        (f"CREATE KEYSPACE {'k' * 193}", InvalidRequest, "Keyspace names shouldn't be more than 192 characters long"),
        ('CREATE KEYSPACE "k!1"', InvalidRequest, '"k!1" is not a valid keyspace name'),
        ("CREATE KEYSPACE k WITH storage = {'type': 'S4', 'bucket': '42'}", InvalidRequest, "Unknown storage type: S4"),
        ("CREATE KEYSPACE k WITH storage = {'type': 'LOCAL', 'superfluous': 'x'}", InvalidRequest, "superfluous"),
        ("CREATE KEYSPACE k WITH storage = {'type': 'S3', 'bucket': '42'}", InvalidRequest, "endpoint"),
        (
            "CREATE KEYSPACE k WITH storage = {'type': 'S3', 'bucket': '42', 'endpoint': 'x'}",
            InvalidRequest,
            "not supported by the embedded server",
        ),
        (
            "ALTER KEYSPACE ks WITH storage = {'type': 'S3', 'bucket': 'b', 'endpoint': 'x'}",
            InvalidRequest,
            "Cannot alter storage options",
        ),
        ("CREATE KEYSPACE k WITH consistency = 'local'", InvalidRequest, "not supported by the embedded server"),
        ("CREATE KEYSPACE k WITH consistency = 'strict'", ConfigError, "consistency"),
        ("ALTER KEYSPACE net WITH replication = {'class': 'NetworkTopologyStrategy'}", ConfigError, "requires"),
        ("ALTER KEYSPACE tab WITH replication = {'datacenter1': 3}", InvalidRequest, "not by more than 1"),
        ("ALTER KEYSPACE tab WITH replication = {'replication_factor': 2}", InvalidRequest, "tag is not allowed"),
    ],
)
def test_refused_keyspaces(box: EngineBox, statement: str, error: type[Exception], message: str) -> None:
    box.run("CREATE KEYSPACE net")
    box.run("CREATE KEYSPACE tab WITH tablets = {'enabled': true}")
    with pytest.raises(error, match=re.escape(message)):
        box.run(statement)


def test_the_replication_factor_applies_to_each_datacenter(box: EngineBox) -> None:
    def replication() -> dict[str, str]:
        found = box.row("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'k2'")["replication"]
        assert isinstance(found, dict)
        return {name: value.rpartition(".")[2] for name, value in found.items()}

    box.run("CREATE KEYSPACE k2 WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
    assert replication() == {"class": "NetworkTopologyStrategy", "datacenter1": "1"}
    box.run("ALTER KEYSPACE k2 WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 2}")
    assert replication()["datacenter1"] == "1", "what a datacenter had stays"
    box.run("ALTER KEYSPACE k2 WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}")
    assert replication()["datacenter1"] == "3"
    box.run("ALTER KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}")
    box.run("ALTER KEYSPACE k2 WITH replication = {'class': 'NetworkTopologyStrategy'}")
    assert replication() == {"class": "NetworkTopologyStrategy", "datacenter1": "2"}
    with pytest.raises(ConfigError, match=r"Unrecognized strategy option \{nosuchdc\} passed to Network"):
        box.run("ALTER KEYSPACE k2 WITH replication = {'class': 'NetworkTopologyStrategy', 'nosuchdc': 1}")


# ---------------------------------------------------------------- columns


def test_columns_added_dropped_and_added_again(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, v int)")
    box.run("INSERT INTO t (pk, v) VALUES (1, 1)")
    box.run("ALTER TABLE t ADD w text")
    assert box.rows("SELECT * FROM t") == [{"pk": 1, "v": 1, "w": None}]
    box.clock.advance(1)
    box.run("ALTER TABLE t DROP v")
    box.clock.advance(1)
    box.run("ALTER TABLE t ADD v int")
    assert box.column("SELECT v FROM t") == [None]
    box.run("INSERT INTO t (pk, v) VALUES (1, 2)")
    assert box.column("SELECT v FROM t") == [2]


@pytest.mark.parametrize(
    ("former", "value", "later", "other"),
    [
        ("int", "1", "text", "'a'"),
        ("text", "'a'", "int", "1"),
        ("int", "1", "set<int>", "{1}"),
        ("set<int>", "{1}", "int", "1"),
        ("frozen<set<int>>", "{1}", "set<text>", "{'a'}"),
        ("set<int>", "{1}", "frozen<set<text>>", "{'a'}"),
        ("addr", "{a: 1}", "list<int>", "[1]"),
        ("addr", "{a: 1}", "other", "{b: 'a'}"),
        ("set<ascii>", "{'a'}", "set<text>", "{'b'}"),
        ("map<int, frozen<tuple<int>>>", "{1: (1)}", "map<int, frozen<tuple<int, int>>>", "{1: (1, 2)}"),
    ],
)
def test_a_dropped_column_may_come_back_with_another_type(
    box: EngineBox, former: str, value: str, later: str, other: str
) -> None:
    box.run("CREATE TYPE addr (a int)")
    box.run("CREATE TYPE other (b text)")
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v {former}) WITH cdc = {{'enabled': true}}")
    box.run(f"INSERT INTO t (pk, v) VALUES (1, {value})")
    box.run("ALTER TABLE t DROP v")
    box.clock.advance(10)
    box.run(f"ALTER TABLE t ADD v {later}")
    assert box.column("SELECT v FROM t") == [None]
    box.run(f"INSERT INTO t (pk, v) VALUES (1, {other})")
    assert box.column("SELECT v FROM t") != [None]
    assert [v is None for v in box.column("SELECT v FROM t_scylla_cdc_log")] == [True, False]


@pytest.mark.parametrize(
    ("former", "value", "later", "found"),
    [
        ("set<int>", "{1}", "int", None),
        ("int", "1", "set<int>", None),
        ("int", "1", "text", None),
        ("int", "1", "int", 1),
        ("set<int>", "{1}", "set<int>", frozenset({1})),
        ("ascii", "'a'", "text", "a"),
    ],
)
def test_what_a_drop_with_a_timestamp_keeps_comes_back_with_a_type_that_can_hold_it(
    box: EngineBox, former: str, value: str, later: str, found: object
) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v {former})")
    box.run(f"INSERT INTO t (pk, v) VALUES (1, {value})")
    box.run("ALTER TABLE t DROP v USING TIMESTAMP 5")
    box.run(f"ALTER TABLE t ADD v {later}")
    assert box.column("SELECT v FROM t") == [found]


def test_columns_of_a_type_that_has_grown_may_come_back(box: EngineBox) -> None:
    box.run("CREATE TYPE addr (a int)")
    columns = {"u": "addr", "l": "list<frozen<addr>>", "m": "map<int, frozen<addr>>", "f": "frozen<addr>"}
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, {', '.join(f'{n} {t}' for n, t in columns.items())})")
    box.run("ALTER TABLE t DROP (u, l, m, f)")
    box.clock.advance(1)
    box.run("ALTER TYPE addr ADD b int")
    for name, kind in columns.items():
        box.run(f"ALTER TABLE t ADD {name} {kind}")
    box.run("INSERT INTO t (pk, u, l, m, f) VALUES (1, {a: 1, b: 2}, [{b: 2}], {1: {b: 2}}, {b: 2})")
    assert box.row("SELECT u FROM t") == {"u": {"a": 1, "b": 2}}


@pytest.mark.parametrize(
    ("former", "later"),
    [
        ("set<int>", "set<text>"),
        ("set<int>", "list<int>"),
        ("map<int, int>", "map<int, text>"),
        ("map<int, int>", "map<text, int>"),
        ("list<frozen<tuple<int, int>>>", "list<frozen<tuple<int>>>"),
    ],
)
def test_the_elements_of_a_dropped_collection_allow_no_other_type(box: EngineBox, former: str, later: str) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v {former})")
    box.run("ALTER TABLE t DROP v")
    box.clock.advance(1)
    message = "Cannot add a collection with the name v because a collection with the same name and a different type has"
    with pytest.raises(InvalidRequest, match=message):
        box.run(f"ALTER TABLE t ADD v {later}")
    box.run(f"ALTER TABLE t ADD v {former}")


@pytest.mark.parametrize(
    ("kind", "assignment"),
    [("int", "v = 5"), ("set<int>", "v = v + {5}"), ("set<int>", "v = {5}"), ("map<int, int>", "v[5] = 5")],
)
def test_writes_from_before_a_drop_do_not_reach_the_column_that_was_added_again(
    box: EngineBox, kind: str, assignment: str
) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, w int, v {kind})")
    before = box.clock.now_us()
    box.clock.advance(1)
    box.run("ALTER TABLE t DROP v")
    box.clock.advance(1)
    box.run(f"ALTER TABLE t ADD v {kind}")
    box.run("INSERT INTO t (pk, w) VALUES (1, 1)")
    box.run(f"UPDATE t USING TIMESTAMP {before} SET {assignment} WHERE pk = 1")
    assert box.column("SELECT v FROM t") == [None]
    box.run(f"UPDATE t SET {assignment} WHERE pk = 1")
    assert box.column("SELECT v FROM t") != [None]


def test_a_counter_is_added_to_no_table_of_other_columns(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    with pytest.raises(ConfigError, match=r"Cannot add a counter column \(c\) in a non counter column family"):
        box.run("ALTER TABLE t ADD c counter")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ADD v int", "Invalid column name v because it conflicts with an existing column"),
        ("ADD s int static", "Static columns are only useful"),
        ("DROP nothere", "Column nothere was not found in table t"),
        ("DROP pk", "Cannot drop PRIMARY KEY part pk"),
        ("RENAME v TO w", "Cannot rename non PRIMARY KEY part v"),
        ("RENAME x TO w", "Cannot rename unknown column x in table t"),
        ("RENAME pk TO v", "another column of that name already exist"),
        ("ALTER nothere TYPE text", "Column nothere was not found in table t"),
    ],
)
def test_refused_column_changes(box: EngineBox, change: str, message: str) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, v int)")
    with pytest.raises(InvalidRequest, match=message):
        box.run(f"ALTER TABLE t {change}")


def test_key_columns_are_renamed_with_their_data(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) {CDC}")
    box.run("INSERT INTO t (pk, ck, v) VALUES (1, 2, 3)")
    box.run("ALTER TABLE t RENAME pk TO p AND ck TO c")
    assert box.rows("SELECT * FROM t WHERE p = 1 AND c = 2") == [{"p": 1, "c": 2, "v": 3}]
    # The log has new, empty columns under the new names.
    assert box.log() == [{"operation": 2, "end_of_batch": True, "v": 3}]
    box.run("INSERT INTO t (p, c, v) VALUES (1, 2, 4)")
    assert box.log()[1] == {"operation": 2, "end_of_batch": True, "p": 1, "c": 2, "v": 4}


# ---------------------------------------------------------------- the log follows


def test_the_log_follows_its_table(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    first = box.engine.schema.keyspaces["ks"].tables["t_scylla_cdc_log"]
    box.run("INSERT INTO t (pk, v) VALUES (1, 1)")
    box.run("ALTER TABLE t ADD w int")
    assert log_names(box) >= {"w", "cdc$deleted_w"}
    box.run("ALTER TABLE t DROP v")
    assert not log_names(box) & {"v", "cdc$deleted_v"}
    after = box.engine.schema.keyspaces["ks"].tables["t_scylla_cdc_log"]
    assert (after.id, after.options) == (first.id, first.options)
    assert box.log() == [{"operation": 2, "end_of_batch": True, "pk": 1}]


def test_a_dropped_log_column_cannot_come_back_at_once(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    box.run("INSERT INTO t (pk, v) VALUES (1, 1)")
    box.run("ALTER TABLE t DROP v")
    box.clock.advance(2)
    message = "with the same name was dropped too recently. Please retry after 3 seconds"
    with pytest.raises(InvalidRequest, match=message):
        box.run("ALTER TABLE t ADD v int")
    assert "v" not in box.engine.schema.keyspaces["ks"].tables["t"].by_name
    box.clock.advance(3)
    box.run("ALTER TABLE t ADD v int")
    assert box.log() == [{"operation": 2, "end_of_batch": True, "pk": 1}]
    box.run("INSERT INTO t (pk, v) VALUES (1, 2)")
    assert box.log()[1]["v"] == 2


def test_switching_off_keeps_the_log_and_on_again_takes_it_back(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    identity = box.engine.schema.keyspaces["ks"].tables["t_scylla_cdc_log"].id
    box.run("INSERT INTO t (pk, v) VALUES (1, 1)")
    box.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    box.run("INSERT INTO t (pk, v) VALUES (1, 2)")
    box.run("ALTER TABLE t ADD w int")
    assert [row["v"] for row in box.log()] == [1]
    assert "w" not in log_names(box)
    box.run("ALTER TABLE t WITH cdc = {'enabled': true}")
    assert "w" in log_names(box)
    assert box.engine.schema.keyspaces["ks"].tables["t_scylla_cdc_log"].id == identity
    box.run("INSERT INTO t (pk, w) VALUES (1, 3)")
    assert [row.get("w") for row in box.log()] == [None, 3]


def test_dropping_a_detached_log_by_hand(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    with pytest.raises(Unauthorized, match="Cannot DROP cdc log table t_scylla_cdc_log"):
        box.run("DROP TABLE t_scylla_cdc_log")
    box.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    box.run("DROP TABLE t_scylla_cdc_log")
    events(box)
    box.run("ALTER TABLE t WITH cdc = {'enabled': true}")
    assert events(box) == [("UPDATED", "t"), ("CREATED", "t_scylla_cdc_log")]


def test_dropping_the_base_takes_a_detached_log_along(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    box.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    box.run("DROP TABLE t")
    assert box.engine.schema.keyspaces["ks"].tables == {}


@pytest.mark.parametrize(
    ("statements", "error", "message"),
    [
        (["ALTER TABLE t WITH cdc = {'ttl': 1}"], InvalidRequest, 'requires specifying "enabled" flag'),
        (
            ["CREATE TABLE u_scylla_cdc_log (a int PRIMARY KEY)", f"CREATE TABLE u (a int PRIMARY KEY) {CDC}"],
            InvalidRequest,
            "Cannot create CDC log table for table ks.u because a table of name ks.u_scylla_cdc_log already exists",
        ),
        (
            [f"ALTER TABLE t_scylla_cdc_log {CDC}"],
            InvalidRequest,
            "creating nested CDC logs is not allowed",
        ),
        (
            ["ALTER TABLE t_scylla_cdc_log ADD x int"],
            InvalidRequest,
            "You cannot modify the set of columns of a CDC log table directly. Modify the base table instead.",
        ),
        (
            ["ALTER TABLE t WITH cdc = {'enabled': false}", "ALTER TABLE t_scylla_cdc_log DROP v"],
            InvalidRequest,
            "Although the base table has deactivated CDC, this table will continue being a CDC log table",
        ),
        (
            ['ALTER TABLE t_scylla_cdc_log RENAME "cdc$stream_id" TO c'],
            InvalidRequest,
            "Cannot rename a column of a CDC log table.",
        ),
        (
            ["ALTER TABLE t_scylla_cdc_log WITH tombstone_gc = {'mode': 'repair'}"],
            InvalidRequest,
            "The 'repair' mode for tombstone_gc is not allowed on CDC log tables.",
        ),
    ],
)
def test_refusals_around_the_log(box: EngineBox, statements: list[str], error: type[Exception], message: str) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    *before, last = statements
    for statement in before:
        box.run(statement)
    known = dict(box.engine.schema.keyspaces["ks"].tables)
    with pytest.raises(error, match=message):
        box.run(last)
    assert box.engine.schema.keyspaces["ks"].tables == known


def test_a_table_that_is_only_named_like_a_log_is_an_ordinary_one(box: EngineBox) -> None:
    box.run("CREATE TABLE t_scylla_cdc_log (a int PRIMARY KEY)")
    box.run("ALTER TABLE t_scylla_cdc_log ADD b int")
    box.run("CREATE TABLE t (pk int PRIMARY KEY)")
    box.run("DROP TABLE t")
    box.run("DROP TABLE t_scylla_cdc_log")


def test_a_log_may_be_edited_and_its_properties_altered(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    box.run("INSERT INTO t (pk, v) VALUES (1, 1)")
    box.run("ALTER TABLE t_scylla_cdc_log WITH comment = 'mine'")
    (row,) = box.rows("SELECT * FROM t_scylla_cdc_log")
    where = '"cdc$stream_id" = ? AND "cdc$time" = ? AND "cdc$batch_seq_no" = 0'
    key = [row["cdc$stream_id"], row["cdc$time"]]
    box.run(f"UPDATE t_scylla_cdc_log SET v = 7 WHERE {where}", key)
    box.run("INSERT INTO t (pk, v) VALUES (1, 2)")
    assert [row["v"] for row in box.log()] == [7, 2]
    box.run(f"DELETE FROM t_scylla_cdc_log WHERE {where}", key)
    assert [row["v"] for row in box.log()] == [2]
    box.run("TRUNCATE t_scylla_cdc_log")
    assert box.log() == []
    box.run("ALTER TABLE t ADD w int")
    assert box.engine.schema.keyspaces["ks"].tables["t_scylla_cdc_log"].options["comment"] == "mine"


# ---------------------------------------------------------------- types


def test_user_types_change_the_columns_made_of_them(box: EngineBox) -> None:
    box.run("CREATE TYPE inner_type (a int)")
    box.run("CREATE TYPE outer_type (i frozen<inner_type>)")
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, u inner_type, f frozen<outer_type>) {CDC}")
    box.run("INSERT INTO t (pk, u, f) VALUES (1, {a: 1}, {i: {a: 2}})")
    box.run("ALTER TYPE inner_type ADD b text")
    assert box.row("SELECT u, f FROM t") == {"u": {"a": 1, "b": None}, "f": {"i": {"a": 2, "b": None}}}
    box.run("UPDATE t SET u.b = 'x' WHERE pk = 1")
    assert box.row("SELECT u.b FROM t") == {"u.b": "x"}
    assert [row.get("u") for row in box.log()] == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    box.run("ALTER TYPE inner_type RENAME a TO c")
    assert box.row("SELECT u.c FROM t") == {"u.c": 1}
    with pytest.raises(InvalidRequest, match="still used by user type outer_type"):
        box.run("DROP TYPE inner_type")
    with pytest.raises(InvalidRequest, match=r"still used by table ks\.t"):
        box.run("DROP TYPE outer_type")
    box.run("DROP TABLE t")
    box.run("DROP TYPE outer_type")
    box.run("DROP TYPE inner_type")
    with pytest.raises(InvalidRequest, match=r"No user type named ks\.inner_type exists"):
        box.run("DROP TYPE inner_type")


# ---------------------------------------------------------------- prepared statements


def prepared_ids(box: EngineBox, *texts: str) -> list[bytes]:
    return [box.engine.prepare(text, "ks").id for text in texts]


def test_a_schema_change_makes_clients_prepare_again(box: EngineBox) -> None:
    """Otherwise they would read the new columns with the old ones' names."""
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    box.run("CREATE TABLE other (pk int PRIMARY KEY)")
    base, log, other = prepared_ids(box, "SELECT * FROM t", "SELECT * FROM ks.t_scylla_cdc_log", "SELECT * FROM other")
    box.run("ALTER TABLE t ADD w int")
    for identity in (base, log):
        with pytest.raises(Unprepared):
            box.engine.get(identity)
    assert box.engine.get(other).text == "SELECT * FROM other"
    box.run("DROP KEYSPACE ks")
    with pytest.raises(Unprepared):
        box.engine.get(other)


def test_ids_differ_by_keyspace_and_text(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY)")
    first = box.engine.prepare("SELECT * FROM ks.t", None).id
    assert first != box.engine.prepare("SELECT * FROM ks.t", "ks").id
    assert first == box.engine.prepare("SELECT * FROM ks.t", None).id


def test_bind_variables_are_named_and_typed(box: EngineBox) -> None:
    box.run("CREATE TABLE t (a int, b int, c text, v int, PRIMARY KEY ((a, b), c))")

    def variables(text: str) -> tuple[list[tuple[str, str]], tuple[int, ...]]:
        prepared = box.engine.prepare(text, "ks")
        return [(spec.name, spec.type.name) for spec in prepared.variables], prepared.pk_indexes

    assert variables("INSERT INTO t (v, b, a, c) VALUES (?, ?, ?, :name) USING TTL ? AND TIMESTAMP ?") == (
        [("v", "int"), ("b", "int"), ("a", "int"), ("name", "text"), ("[ttl]", "int"), ("[timestamp]", "bigint")],
        (2, 1),
    )
    assert variables("SELECT * FROM t WHERE a = ? AND b IN ? AND c > ? LIMIT ?") == (
        [("a", "int"), ("IN(b)", "frozen<list<int>>"), ("c", "text"), ("[limit]", "int")],
        (),
    )
    assert variables("SELECT * FROM t WHERE a = ? AND b = ? USING TIMEOUT ?") == (
        [("a", "int"), ("b", "int"), ("[timeout]", "duration")],
        (0, 1),
    )
    assert variables(
        "BEGIN BATCH USING TIMESTAMP ? AND TIMEOUT ? DELETE FROM t USING TIMEOUT ? WHERE a = ? AND b = 1 APPLY BATCH"
    ) == ([("[timestamp]", "bigint"), ("[timeout]", "duration"), ("[timeout]", "duration"), ("a", "int")], ())
    assert variables("SELECT * FROM t WHERE token(a, b) > ?") == ([("partition key token", "bigint")], ())


def test_values_by_name(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, v int)")
    one: dict[str, Any] = {"k": b"\x00\x00\x00\x01", "val": b"\x00\x00\x00\x02"}
    box.engine.query("INSERT INTO t (pk, v) VALUES (:k, :val)", one, QueryParams(keyspace="ks"))
    assert box.rows("SELECT * FROM t") == [{"pk": 1, "v": 2}]
    with pytest.raises(InvalidRequest, match="Missing value for bind variable val"):
        box.engine.query("INSERT INTO t (pk, v) VALUES (:k, :val)", {"k": one["k"]}, QueryParams(keyspace="ks"))


def test_no_keyspace_in_use(box: EngineBox) -> None:
    with pytest.raises(InvalidRequest, match="No keyspace has been specified"):
        box.engine.query("SELECT * FROM t", (), QueryParams())


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TYPE x (a u)", "A user type cannot contain non-frozen user type fields"),
        ("CREATE TYPE x (a counter)", "A user type cannot contain counters"),
        ("CREATE TYPE x (a int, a text)", "Duplicate field name a in type x"),
        ("CREATE TYPE u (a int)", "A user type of name ks.u already exists"),
        ("CREATE TYPE x (a frozen<other.w>)", "Statement on keyspace ks cannot refer to a user type in keyspace other"),
        ("CREATE TABLE x (a int PRIMARY KEY, b frozen<other.w>)", "cannot refer to a user type in keyspace other"),
        ("CREATE TABLE x (a int PRIMARY KEY, b open)", "Non-frozen UDTs with nested non-frozen collections"),
        ("ALTER TABLE t ADD b open", "Non-frozen UDTs with nested non-frozen collections"),
        ("CREATE TABLE x (a u PRIMARY KEY)", "Invalid non-frozen user-defined type for PRIMARY KEY component a"),
        ("ALTER TYPE nothere ADD b int", "No user type named ks.nothere exists."),
        ("ALTER TYPE u ADD a int", "Cannot add new field a to type ks.u: a field of the same name already exists"),
        ("ALTER TYPE u ADD b frozen<outer>", "to type ks.u as this would create a circular reference"),
        ("ALTER TYPE u RENAME z TO y", "Unknown field z in type ks.u"),
        ("ALTER TYPE two RENAME a TO b", "Duplicate field name b in type two"),
        (
            "ALTER TYPE pk ADD b int",
            "Cannot add new field to type ks.pk because it is used in the partition key column p of",
        ),
        ("ALTER TYPE pk RENAME a TO b", "because it is used in the partition key column p of table ks.keyed"),
        ("ALTER TYPE ck ADD b duration", "clustering key column c of table ks.keyed where durations are not allowed"),
        ("ALTER TYPE ck ADD b frozen<list<duration>>", "where durations are not allowed"),
        ("DROP TYPE u", "Cannot drop user type ks.u as it is still used by"),
        ("ALTER TABLE keyed ADD p int", "because it conflicts with a PRIMARY KEY part"),
        ("ALTER TABLE keyed ADD c int", "because it conflicts with an existing column"),
    ],
)
def test_refused_types(box: EngineBox, statement: str, message: str) -> None:
    box.run("CREATE KEYSPACE other")
    for name in (
        "u (a int)",
        "open (l list<int>)",
        "two (a int, b int)",
        "pk (a int)",
        "ck (a int)",
        "other.w (a int)",
    ):
        box.run(f"CREATE TYPE {name}")
    box.run("CREATE TYPE outer (a frozen<u>)")
    box.run("CREATE TABLE t (a int PRIMARY KEY)")
    box.run("CREATE TABLE keyed (p frozen<list<frozen<pk>>>, c frozen<ck>, v u, PRIMARY KEY (p, c))")
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        box.run(statement)


def test_fields_swap_their_names(box: EngineBox) -> None:
    box.run("CREATE TYPE u (a int, b text)")
    box.run("ALTER TYPE u RENAME a TO b AND b TO a")
    row = box.row("SELECT field_names, field_types FROM system_schema.types WHERE keyspace_name = 'ks'")
    assert row == {"field_names": ["b", "a"], "field_types": ["int", "text"]}


@pytest.mark.parametrize(
    ("column", "kind", "error", "message"),
    [
        ("v", "text", ConfigError, "Cannot change v from type int to type text: types are incompatible."),
        ("p", "bigint", ConfigError, "Cannot change p from type int to type bigint: types are incompatible."),
        ("c", "blob", ConfigError, "Cannot change c from type int to type blob: types are not order-compatible."),
        ("l", "blob", ConfigError, "Cannot change l from type list<int> to type blob: types are incompatible."),
        ("a", "text", InvalidRequest, "of a clustering column is not supported by the embedded server"),
        ("v", "varint", InvalidRequest, "ALTER TABLE ... TYPE is not supported by the embedded server"),
    ],
)
def test_types_that_cannot_replace_each_other(
    box: EngineBox, column: str, kind: str, error: type[Exception], message: str
) -> None:
    box.run("CREATE TABLE t (p int, c int, a ascii, v int, l list<int>, PRIMARY KEY (p, c, a))")
    with pytest.raises(error, match=re.escape(message)):
        box.run(f"ALTER TABLE t ALTER {column} TYPE {kind}")


def test_a_column_gets_a_wider_type(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (p ascii PRIMARY KEY, a ascii, i int, u timeuuid) {CDC}")
    box.run("INSERT INTO t (p, a, i, u) VALUES ('k', 'old', 1, 854de828-e6b0-11f1-b659-332c5218b1f7)")
    for change in ("p TYPE text", "a TYPE text", "i TYPE blob", "u TYPE uuid", "i TYPE blob"):
        box.run(f"ALTER TABLE t ALTER {change}")
    box.run("UPDATE t SET a = 'né' WHERE p = 'k'")
    assert box.rows("SELECT p, a, i FROM t WHERE p = 'k'") == [{"p": "k", "a": "né", "i": b"\0\0\0\1"}]
    columns = box.rows(
        "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't'"
    )
    assert {row["column_name"]: row["type"] for row in columns} == {"p": "text", "a": "text", "i": "blob", "u": "uuid"}
    assert box.column("SELECT a FROM t_scylla_cdc_log") == ["old", "né"]


def test_fields_keep_their_types(box: EngineBox) -> None:
    box.run("CREATE TYPE u (a int, b ascii)")
    box.run("ALTER TYPE u ALTER a TYPE int")
    for change, message in (
        ("ALTER z TYPE int", "Unknown field z in type ks.u"),
        ("ALTER a TYPE bigint", "Type bigint in incompatible with previous type int of field a in user type ks.u"),
        ("ALTER b TYPE text", "is not supported by the embedded server"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            box.run(f"ALTER TYPE u {change}")
