"""Schema statements: tables, keyspaces, and what is refused of them."""

from __future__ import annotations

import re

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import (
    AlreadyExists,
    ConfigError,
    InvalidRequest,
    SyntaxException,
    Unauthorized,
)
from rscylla.embedded.result import SchemaChange, VoidResult

CDC = "WITH cdc = {'enabled': true}"


@pytest.fixture
def box() -> EngineBox:
    return EngineBox()


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
        ("CREATE KEYSPACE k WITH consistency = 'local'", ConfigError, "strongly_consistent_tables feature must be"),
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
