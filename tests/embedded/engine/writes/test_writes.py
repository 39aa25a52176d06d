"""INSERT, UPDATE, DELETE and BATCH: what is there to read afterwards, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from enginebox import START_US, EngineBox

from rscylla.embedded.errors import InvalidRequest, Unauthorized
from rscylla.embedded.result import UNSET, QueryParams, VoidResult


@pytest.fixture
def box() -> EngineBox:
    made = EngineBox()
    made.run("CREATE TYPE u (a int, b text)")
    made.run(
        "CREATE TABLE t (pk int, c1 int, c2 int, s int static, v int, w text, m map<text, int>, st set<int>,"
        " l list<int>, u u, PRIMARY KEY (pk, c1, c2)) WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC)"
    )
    made.run("CREATE TABLE k (pk int PRIMARY KEY, v int, w int)")
    return made


def fill(box: EngineBox) -> None:
    for c1 in (1, 2):
        for c2 in (1, 2, 3):
            box.run("INSERT INTO t (pk, c1, c2, v) VALUES (0, ?, ?, ?)", [c1, c2, 10 * c1 + c2])


def values(box: EngineBox) -> list[int]:
    return box.column("SELECT v FROM t WHERE pk = 0")


# ---------------------------------------------------------------- rows


def test_rows_come_back_in_declared_order(box: EngineBox) -> None:
    fill(box)
    assert values(box) == [13, 12, 11, 23, 22, 21]


def test_unset_leaves_a_value_and_null_clears_it(box: EngineBox) -> None:
    box.run("INSERT INTO k (pk, v, w) VALUES (1, 2, 3)")
    box.run("INSERT INTO k (pk, v, w) VALUES (1, ?, ?)", [UNSET, None])
    assert box.rows("SELECT * FROM k") == [{"pk": 1, "v": 2, "w": None}]


def test_a_row_made_by_update_goes_with_its_last_value(box: EngineBox) -> None:
    """UPDATE writes no row marker, INSERT does."""
    box.run("UPDATE k SET v = 1 WHERE pk = 1")
    box.run("INSERT INTO k (pk, v) VALUES (2, 1)")
    for key in (1, 2):
        box.run("DELETE v FROM k WHERE pk = ?", [key])
    assert box.column("SELECT pk FROM k") == [2]


def test_static_columns_belong_to_the_partition(box: EngineBox) -> None:
    box.run("INSERT INTO t (pk, s) VALUES (0, 7)")
    assert box.row("SELECT pk, c1, s FROM t") == {"pk": 0, "c1": None, "s": 7}
    fill(box)
    assert box.column("SELECT s FROM t WHERE pk = 0") == [7] * 6
    box.run("UPDATE t SET s = 8 WHERE pk = 0")
    assert box.column("SELECT DISTINCT s FROM t WHERE pk = 0") == [8]


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("pk = 0", []),
        ("pk = 0 AND c1 = 1", [23, 22, 21]),
        ("pk = 0 AND c1 = 1 AND c2 = 2", [13, 11, 23, 22, 21]),
        ("pk = 0 AND c1 = 1 AND c2 IN (1, 3)", [12, 23, 22, 21]),
        ("pk = 0 AND c1 IN (1, 2)", []),
        ("pk = 0 AND c1 = 1 AND c2 > 1", [11, 23, 22, 21]),
        ("pk = 0 AND c1 = 1 AND c2 >= 2 AND c2 < 3", [13, 11, 23, 22, 21]),
        ("pk = 0 AND c1 > 1", [13, 12, 11]),
        ("pk = 0 AND c1 < 1", [13, 12, 11, 23, 22, 21]),
        ("pk = 0 AND c1 > 2 AND c1 < 1", [13, 12, 11, 23, 22, 21]),
        ("pk = 0 AND (c1, c2) > (1, 2)", [12, 11]),
        ("pk = 0 AND (c1, c2) <= (1, 2)", [13, 23, 22, 21]),
        ("pk = 0 AND (c1, c2) IN ((1, 1), (2, 2))", [13, 12, 23, 21]),
        ("pk IN (0, 1)", []),
    ],
)
def test_delete_takes_exactly_the_rows_named(box: EngineBox, where: str, left: list[int]) -> None:
    fill(box)
    box.run(f"DELETE FROM t WHERE {where}")
    assert values(box) == left


def test_the_newest_timestamp_wins_not_the_last_write(box: EngineBox) -> None:
    box.run("INSERT INTO k (pk, v) VALUES (1, 1) USING TIMESTAMP 100")
    box.run("UPDATE k USING TIMESTAMP 99 SET v = 2 WHERE pk = 1")
    assert box.column("SELECT v FROM k") == [1]
    box.run("DELETE FROM k USING TIMESTAMP 100 WHERE pk = 1")
    assert box.rows("SELECT * FROM k") == []
    box.run("INSERT INTO k (pk, v) VALUES (1, 3) USING TIMESTAMP 100")
    assert box.rows("SELECT * FROM k") == []


def test_client_timestamps_are_used_and_server_ones_never_repeat(box: EngineBox) -> None:
    box.run("INSERT INTO k (pk, v) VALUES (1, 1)", default_timestamp=55)
    assert box.column("SELECT writetime(v) FROM k WHERE pk = 1") == [55]
    box.run("INSERT INTO k (pk, v) VALUES (2, 1)")
    box.run("INSERT INTO k (pk, v) VALUES (3, 1)")
    first, second = box.column("SELECT writetime(v) FROM k WHERE pk IN (2, 3)")
    assert first != second
    assert min(first, second) >= START_US


def test_null_and_unset_keys_are_refused(box: EngineBox) -> None:
    with pytest.raises(InvalidRequest, match="Invalid null value in condition for column pk"):
        box.run("INSERT INTO k (pk, v) VALUES (?, 1)", [None])
    with pytest.raises(InvalidRequest, match="Invalid unset value for column pk"):
        box.run("UPDATE k SET v = 1 WHERE pk = ?", [UNSET])


# ---------------------------------------------------------------- ttl


def test_values_expire_on_the_servers_clock(box: EngineBox) -> None:
    box.run("INSERT INTO k (pk, v) VALUES (1, 1) USING TTL 10")
    box.run("UPDATE k USING TTL 5 SET w = 2 WHERE pk = 1")
    box.clock.advance(4)
    assert box.row("SELECT v, w, ttl(v), ttl(w) FROM k") == {"v": 1, "w": 2, "ttl(v)": 6, "ttl(w)": 1}
    box.clock.advance(1)
    assert box.row("SELECT v, w, ttl(w) FROM k") == {"v": 1, "w": None, "ttl(w)": None}
    box.clock.advance(5)
    assert box.rows("SELECT * FROM k") == []


def test_default_ttl_of_the_table_and_ttl_zero(box: EngineBox) -> None:
    box.run("CREATE TABLE d (pk int PRIMARY KEY, v int) WITH default_time_to_live = 10")
    box.run("INSERT INTO d (pk, v) VALUES (1, 1)")
    box.run("INSERT INTO d (pk, v) VALUES (2, 1) USING TTL 0")
    box.clock.advance(10)
    assert box.column("SELECT pk FROM d") == [2]


@pytest.mark.parametrize(("ttl", "message"), [(-1, "greater or equal to 0"), (2**31 - 1, "ttl is too large")])
def test_ttl_bounds(box: EngineBox, ttl: int, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        box.run("INSERT INTO k (pk, v) VALUES (1, 1) USING TTL ?", [ttl])


# ---------------------------------------------------------------- collections


def edit(box: EngineBox, change: str, bound: list[Any] | None = None) -> None:
    box.run(f"UPDATE t SET {change} WHERE pk = 0 AND c1 = 0 AND c2 = 0", bound or [])


def read(box: EngineBox, column: str) -> Any:
    found = box.column(f"SELECT {column} FROM t WHERE pk = 0 AND c1 = 0 AND c2 = 0")
    return found[0] if found else None


@pytest.mark.parametrize(
    ("column", "changes", "expected"),
    [
        ("m", ["m = {'a': 1, 'b': 2}"], {"a": 1, "b": 2}),
        ("m", ["m = {'a': 1}", "m = {'b': 2}"], {"b": 2}),
        ("m", ["m = {'a': 1}", "m = m + {'b': 2}", "m['c'] = 3"], {"a": 1, "b": 2, "c": 3}),
        ("m", ["m = {'a': 1, 'b': 2}", "m = m - {'a'}"], {"b": 2}),
        ("m", ["m = {'a': 1, 'b': 2}", "m['a'] = null"], {"b": 2}),
        ("m", ["m = {'a': 1}", "m = null"], None),
        ("m", ["m = {'a': 1}", "m = {}"], None),
        ("st", ["st = {3, 1, 2}"], {1, 2, 3}),
        ("st", ["st = {1}", "st = st + {2}", "st = st - {1}"], {2}),
        ("l", ["l = [3, 1, 3]"], [3, 1, 3]),
        ("l", ["l = [1]", "l = l + [2, 3]"], [1, 2, 3]),
        ("l", ["l = [1]", "l = [2, 3] + l", "l = [4] + l"], [4, 2, 3, 1]),
        ("l", ["l = [1, 2, 3]", "l[1] = 9"], [1, 9, 3]),
        ("l", ["l = [1, 2, 3]", "l[1] = null"], [1, 3]),
        ("l", ["l = [1, 2, 1]", "l = l - [1]"], [2]),
        ("u", ["u = {a: 1, b: 'x'}"], {"a": 1, "b": "x"}),
        ("u", ["u = {a: 1, b: 'x'}", "u.a = 2"], {"a": 2, "b": "x"}),
        ("u", ["u = {a: 1, b: 'x'}", "u = {b: 'y'}"], {"a": None, "b": "y"}),
        ("u", ["u = {a: 1}", "u.a = null"], None),
    ],
)
def test_collection_edits(box: EngineBox, column: str, changes: list[str], expected: Any) -> None:
    for change in changes:
        edit(box, change)
    assert read(box, column) == expected


def test_delete_of_elements(box: EngineBox) -> None:
    edit(box, "m = {'a': 1, 'b': 2}, st = {1, 2}, l = [1, 2], u = {a: 1, b: 'x'}")
    box.run("DELETE m['a'], st[1], l[0], u.a FROM t WHERE pk = 0 AND c1 = 0 AND c2 = 0")
    assert box.row("SELECT m, st, l, u FROM t WHERE pk = 0") == {
        "m": {"b": 2},
        "st": {2},
        "l": [2],
        "u": {"a": None, "b": "x"},
    }


def test_many_appends_in_one_batch_keep_their_order(box: EngineBox) -> None:
    statements = "".join(f"UPDATE t SET l = l + [{n}] WHERE pk = 0 AND c1 = 0 AND c2 = 0; " for n in range(300))
    box.run(f"BEGIN BATCH {statements} APPLY BATCH")
    assert read(box, "l") == list(range(300))


def test_list_index_out_of_bounds(box: EngineBox) -> None:
    with pytest.raises(InvalidRequest, match="Attempted to set an element on a list which is null"):
        edit(box, "l[0] = 1")
    edit(box, "l = [1]")
    with pytest.raises(InvalidRequest, match="List index 1 out of bound, list has size 1"):
        edit(box, "l[1] = 1")


def test_markers_inside_collections(box: EngineBox) -> None:
    edit(box, "m = {'a': ?, ?: 2}, st = st + {?}", [1, "b", 5])
    assert read(box, "m") == {"a": 1, "b": 2}
    assert read(box, "st") == {5}


# ---------------------------------------------------------------- batches


def test_batch_writes_all_its_statements(box: EngineBox) -> None:
    box.run(
        "BEGIN UNLOGGED BATCH USING TIMESTAMP ? INSERT INTO k (pk, v) VALUES (?, 1); UPDATE k SET v = 2 WHERE pk = 2;"
        " DELETE FROM k WHERE pk = 3 APPLY BATCH",
        [77, 1],
    )
    assert {r["pk"]: r["writetime(v)"] for r in box.rows("SELECT pk, writetime(v) FROM k")} == {1: 77, 2: 77}


def test_protocol_batch_binds_each_statement(box: EngineBox) -> None:
    prepared = box.engine.prepare("INSERT INTO k (pk, v) VALUES (?, ?)", "ks")
    params = box.engine.batch(
        "logged",
        [(prepared, [b"\x00\x00\x00\x01", b"\x00\x00\x00\x02"]), ("INSERT INTO ks.k (pk, v) VALUES (5, 6)", [])],
        QueryParams(keyspace="ks"),
    )
    assert params == VoidResult()
    assert {r["pk"]: r["v"] for r in box.rows("SELECT pk, v FROM k")} == {1: 2, 5: 6}


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO k (v) VALUES (1)", "Missing mandatory PRIMARY KEY part pk"),
        ("INSERT INTO t (pk, c1, v) VALUES (1, 1, 1)", "Missing mandatory PRIMARY KEY part c2"),
        ("INSERT INTO t (pk, v) VALUES (1, 1)", "Missing mandatory PRIMARY KEY part c1"),
        ("INSERT INTO k (pk, x) VALUES (1, 1)", "Unknown identifier x"),
        ("INSERT INTO k (pk, pk) VALUES (1, 1)", "Multiple definitions found for column pk"),
        ("INSERT INTO k (pk, v) VALUES (1, 'x')", "Invalid STRING constant"),
        ("INSERT INTO nothere (pk) VALUES (1)", "unconfigured table nothere"),
        ("INSERT INTO nokeyspace.k (pk) VALUES (1)", "Keyspace nokeyspace does not exist"),
        ("UPDATE k SET pk = 1 WHERE pk = 1", "PRIMARY KEY part pk found in SET part"),
        ("UPDATE k SET v = 1 WHERE pk > 1", "Only EQ and IN relation are supported on the partition key"),
        ("UPDATE k SET v = 1 WHERE pk = 1 AND w = 2", "Invalid where clause contains non PRIMARY KEY columns: w"),
        ("UPDATE k SET v = v + 1 WHERE pk = 1", "Invalid operation"),
        ("UPDATE t SET v = 1 WHERE pk = 1 AND c1 = 1", "Missing mandatory PRIMARY KEY part c2"),
        ("UPDATE t SET v = 1 WHERE pk = 1 AND c1 = 1 AND c2 > 1", "Invalid operator in where clause"),
        ("UPDATE t SET s = 1 WHERE pk = 1 AND c1 = 1 AND c2 = 1", "the UPDATE statement modifies only static columns"),
        ("DELETE v FROM t WHERE pk = 1", "Primary key column 'c1' must be specified in order to modify column 'v'"),
        ("DELETE v FROM t WHERE pk = 1 AND c1 > 1", "Range deletions are not supported for specific columns"),
        ("DELETE pk FROM k WHERE pk = 1", "should not be a PRIMARY KEY part"),
        ("DELETE FROM t WHERE pk = 1 AND c2 = 1", 'as preceding column "c1" is not restricted'),
        ("DELETE FROM t WHERE token(pk) = 1", "The token function cannot be used in WHERE clauses"),
        ("INSERT INTO k JSON '{}'", "Missing mandatory PRIMARY KEY part"),
        ("INSERT INTO k (pk) VALUES (1) USING TTL ? AND TTL ?", "a bind marker has no type"),
        (
            "BEGIN COUNTER BATCH UPDATE k SET v = 1 WHERE pk = 1 APPLY BATCH",
            "Cannot include non-counter statement in a counter batch",
        ),
        ("CREATE INDEX ON k (v)", "CREATE INDEX is not supported by the embedded server"),
        (
            "BEGIN BATCH USING TIMESTAMP 1 INSERT INTO k (pk) VALUES (1) USING TIMESTAMP 2 APPLY BATCH",
            "Timestamp must be set either on BATCH or individual statements",
        ),
    ],
)
def test_refusals(box: EngineBox, statement: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        box.run(statement)


def test_system_tables_are_read_only(box: EngineBox) -> None:
    with pytest.raises(Unauthorized):
        box.run("INSERT INTO system.local (key) VALUES ('x')")
    with pytest.raises(Unauthorized):
        box.run("TRUNCATE system.local")


def test_truncate(box: EngineBox) -> None:
    fill(box)
    box.run("TRUNCATE t")
    assert box.rows("SELECT * FROM t") == []
