"""ALTER TABLE of columns: added, dropped, added again, renamed, retyped."""

from __future__ import annotations

import re

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import (
    ConfigError,
    InvalidRequest,
)

CDC = "WITH cdc = {'enabled': true}"


@pytest.fixture
def box() -> EngineBox:
    return EngineBox()


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
