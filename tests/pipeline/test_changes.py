"""What each CQL statement is as changes, end to end: a table of statements and what a consumer sees of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import frozen
from draining import changes_of

import rscylla
from rscylla import Change
from rscylla.cdc.rows import Bound, ColumnState
from rscylla.embedded import EmbeddedScylla
from rscylla.types import quote_name

LAG = rscylla.StreamLag(milliseconds=100)

Said = tuple[Any, ...]


def collect(stream: rscylla.Stream) -> list[rscylla.ChangeEvent]:
    """Return the events of all changes so far, whose records must be complete."""
    events, incomplete = read(stream)
    assert incomplete == 0
    return events


def read(stream: rscylla.Stream) -> tuple[list[rscylla.ChangeEvent], int]:
    """Return the events of all changes so far, and the number of incomplete records."""
    until = rscylla.StreamUntil(datetime.now(UTC) + timedelta(milliseconds=1))
    client = stream("", LAG, until)
    try:
        return changes_of(client), client.status().incomplete_records
    finally:
        client.close()


def said(change: Change) -> Said:
    """Return (operation, key but for the partition's, columns) and, where there is one, the ttl."""
    key = {name: value for name, value in change.key.items() if name != "pk"}
    columns = {name: brief(column) for name, column in change.columns.items()}
    return (change.operation.name, key, columns, *([change.ttl] if change.ttl is not None else []))


def brief(column: rscylla.cdc.rows.ColumnChange) -> Any:
    """Return a column's state and parts; elements of lists without the timeuuids, which no test can foretell."""
    added, removed = column.added, column.removed
    if column.kind == "list":
        assert all(isinstance(k, uuid.UUID) for k in (*(added or ()), *(removed or ())))
        added = list(added.values()) if added is not None else None
        removed = len(removed) if removed is not None else None
    match column.state:
        case ColumnState.SET:
            return column.value
        case ColumnState.NULL:
            return "null"
        case ColumnState.OVERWRITTEN:
            assert column.kind != "list" or added == column.value
            return ("=", column.value)
        case ColumnState.EDITED:
            return ("+", added, "-", removed)
    raise AssertionError(column)


@frozen
class Case:
    """Statements on partition %pk% of one table, and the changes they are."""

    name: str
    cql: str
    changes: list[Said]
    table: str = "t"


K = {"ck": 1}
N = "null"
INSERT, UPDATE, ROW = "INSERT", "UPDATE", "ROW_DELETE"
WHERE = "WHERE pk = %pk% AND ck = 1"

CASES = [
    Case("insert", "INSERT INTO t (pk, ck, v) VALUES (%pk%, 1, 7)", [(INSERT, K, {"v": 7})]),
    Case("insert of the key", "INSERT INTO t (pk, ck) VALUES (%pk%, 1)", [(INSERT, K, {})]),
    Case("insert of null", "INSERT INTO t (pk, ck, v) VALUES (%pk%, 1, null)", [(INSERT, K, {"v": N})]),
    Case(
        "insert with ttl", "INSERT INTO t (pk, ck, v) VALUES (%pk%, 1, 7) USING TTL 100", [(INSERT, K, {"v": 7}, 100)]
    ),
    Case(
        "insert with ttl and null",
        "INSERT INTO t (pk, ck, v, w) VALUES (%pk%, 1, 7, null) USING TTL 100",
        [(INSERT, K, {"v": 7}, 100), (UPDATE, K, {"w": N})],
    ),
    Case(
        "insert of collections",
        "INSERT INTO t (pk, ck, v, m, st, l, u) VALUES (%pk%, 1, 7, {1: 'a'}, {'x', 'y'}, [3, 3], {a: 1, b: 'z'})",
        [
            (
                INSERT,
                K,
                {
                    "l": ("=", [3, 3]),
                    "m": ("=", {1: "a"}),
                    "st": ("=", {"x", "y"}),
                    "u": ("=", {"a": 1, "b": "z"}),
                    "v": 7,
                },
            )
        ],
    ),
    Case(
        "insert of collections with ttl",
        "INSERT INTO t (pk, ck, v, st) VALUES (%pk%, 1, 7, {'x'}) USING TTL 100",
        [(INSERT, K, {"v": 7}, 100), (UPDATE, K, {"st": N}), (UPDATE, K, {"st": ("+", {"x"}, "-", None)}, 100)],
    ),
    Case(
        "insert of empty and null collections",
        "INSERT INTO t (pk, ck, m, st, l, u) VALUES (%pk%, 1, {}, null, [], null)",
        [(INSERT, K, {"l": N, "m": N, "st": N, "u": N})],
    ),
    Case(
        "insert of static and regular",
        "INSERT INTO t (pk, ck, s, v) VALUES (%pk%, 1, 5, 7)",
        [(UPDATE, {}, {"s": 5}), (INSERT, K, {"v": 7})],
    ),
    Case("insert of static only", "INSERT INTO t (pk, s) VALUES (%pk%, 5)", [(UPDATE, {}, {"s": 5})]),
    Case("update", f"UPDATE t SET v = 1 {WHERE}", [(UPDATE, K, {"v": 1})]),
    Case("update to null", f"UPDATE t SET v = null {WHERE}", [(UPDATE, K, {"v": N})]),
    Case("delete of a column", f"DELETE v FROM t {WHERE}", [(UPDATE, K, {"v": N})]),
    Case("delete of a static column", "DELETE s FROM t WHERE pk = %pk%", [(UPDATE, {}, {"s": N})]),
    Case("update and null", f"UPDATE t SET v = 1, w = null {WHERE}", [(UPDATE, K, {"v": 1, "w": N})]),
    Case(
        "update and null with ttl",
        f"UPDATE t USING TTL 100 SET v = 1, w = null {WHERE}",
        [(UPDATE, K, {"w": N}), (UPDATE, K, {"v": 1}, 100)],
    ),
    Case(
        "update of static and regular",
        f"UPDATE t SET s = 5, v = 1 {WHERE}",
        [(UPDATE, {}, {"s": 5}), (UPDATE, K, {"v": 1})],
    ),
    Case("map, add", f"UPDATE t SET m = m + {{1: 'a'}} {WHERE}", [(UPDATE, K, {"m": ("+", {1: "a"}, "-", None)})]),
    Case("map, put", f"UPDATE t SET m[2] = 'b' {WHERE}", [(UPDATE, K, {"m": ("+", {2: "b"}, "-", None)})]),
    Case("map, take", f"UPDATE t SET m = m - {{1, 2}} {WHERE}", [(UPDATE, K, {"m": ("+", None, "-", {1, 2})})]),
    Case("map, put null", f"UPDATE t SET m[2] = null {WHERE}", [(UPDATE, K, {"m": ("+", None, "-", {2})})]),
    Case("map, delete one", f"DELETE m[2] FROM t {WHERE}", [(UPDATE, K, {"m": ("+", None, "-", {2})})]),
    Case(
        "map, add and take",
        f"UPDATE t SET m = m + {{1: 'a'}}, m[2] = null {WHERE}",
        [(UPDATE, K, {"m": ("+", {1: "a"}, "-", {2})})],
    ),
    Case("set, add", f"UPDATE t SET st = st + {{'x'}} {WHERE}", [(UPDATE, K, {"st": ("+", {"x"}, "-", None)})]),
    Case("set, take", f"UPDATE t SET st = st - {{'x'}} {WHERE}", [(UPDATE, K, {"st": ("+", None, "-", {"x"})})]),
    Case("overwrite", f"UPDATE t SET st = {{'x'}} {WHERE}", [(UPDATE, K, {"st": ("=", {"x"})})]),
    Case(
        "overwrite with ttl",
        f"UPDATE t USING TTL 100 SET st = {{'x'}} {WHERE}",
        [(UPDATE, K, {"st": N}), (UPDATE, K, {"st": ("+", {"x"}, "-", None)}, 100)],
    ),
    Case("collection to null", f"UPDATE t SET st = null {WHERE}", [(UPDATE, K, {"st": N})]),
    Case("collection to empty", f"UPDATE t SET st = {{}} {WHERE}", [(UPDATE, K, {"st": N})]),
    Case("delete of a collection", f"DELETE st FROM t {WHERE}", [(UPDATE, K, {"st": N})]),
    Case(
        "delete of a collection and a value",
        f"DELETE st, v FROM t {WHERE}",
        [(UPDATE, K, {"v": N}), (UPDATE, K, {"st": N})],
    ),
    Case("list, append", f"UPDATE t SET l = l + [3, 4] {WHERE}", [(UPDATE, K, {"l": ("+", [3, 4], "-", None)})]),
    Case("list, prepend", f"UPDATE t SET l = [3] + l {WHERE}", [(UPDATE, K, {"l": ("+", [3], "-", None)})]),
    Case(
        "list, put",
        f"UPDATE t SET l = [3, 4] {WHERE}; UPDATE t SET l[1] = 5 {WHERE}",
        [(UPDATE, K, {"l": ("=", [3, 4])}), (UPDATE, K, {"l": ("+", [5], "-", None)})],
    ),
    Case(
        "list, take and delete",
        f"UPDATE t SET l = [3, 4, 3] {WHERE}; UPDATE t SET l = l - [3] {WHERE}; DELETE l[0] FROM t {WHERE}",
        [
            (UPDATE, K, {"l": ("=", [3, 4, 3])}),
            (UPDATE, K, {"l": ("+", None, "-", 2)}),
            (UPDATE, K, {"l": ("+", None, "-", 1)}),
        ],
    ),
    Case("list, take what is not there", f"UPDATE t SET l = l - [3] {WHERE}", []),
    Case("udt, a field", f"UPDATE t SET u.a = 1 {WHERE}", [(UPDATE, K, {"u": ("+", {"a": 1}, "-", None)})]),
    Case("udt, a field to null", f"UPDATE t SET u.b = null {WHERE}", [(UPDATE, K, {"u": ("+", None, "-", {"b"})})]),
    Case("udt to null", f"UPDATE t SET u = null {WHERE}", [(UPDATE, K, {"u": N})]),
    Case("udt, overwrite", f"UPDATE t SET u = {{a: 1}} {WHERE}", [(UPDATE, K, {"u": ("=", {"a": 1, "b": None})})]),
    Case("frozen, empty is not null", f"UPDATE t SET fl = [] {WHERE}", [(UPDATE, K, {"fl": []})]),
    Case("text, empty is not null", f"UPDATE t SET w = '' {WHERE}", [(UPDATE, K, {"w": ""})]),
    Case("frozen to null", f"UPDATE t SET fl = null {WHERE}", [(UPDATE, K, {"fl": N})]),
    Case("delete of a row", f"DELETE FROM t {WHERE}", [(ROW, K, {})]),
    Case("delete of a partition", "DELETE FROM t WHERE pk = %pk%", [("PARTITION_DELETE", {}, {})]),
    Case("delete of the only row", "DELETE FROM o WHERE pk = %pk%", [("PARTITION_DELETE", {}, {})], "o"),
    Case(
        "batch of rows",
        "BEGIN BATCH INSERT INTO t (pk, ck, v) VALUES (%pk%, 2, 8); UPDATE t SET v = 7 WHERE pk = %pk% AND ck = 1; "
        "DELETE FROM t WHERE pk = %pk% AND ck = 0; APPLY BATCH",
        [(ROW, {"ck": 0}, {}), (UPDATE, {"ck": 1}, {"v": 7}), (INSERT, {"ck": 2}, {"v": 8})],
    ),
    Case(
        "batch, update and delete of one row",
        f"BEGIN BATCH UPDATE t SET v = 1 {WHERE}; DELETE FROM t {WHERE}; APPLY BATCH",
        [(UPDATE, K, {"v": 1}), (ROW, K, {})],
    ),
    Case(
        "batch, insert and delete of the partition",
        "BEGIN BATCH INSERT INTO t (pk, ck, v) VALUES (%pk%, 1, 8); DELETE FROM t WHERE pk = %pk%; APPLY BATCH",
        [(INSERT, K, {"v": 8}), ("PARTITION_DELETE", {}, {})],
    ),
    Case(
        "applied condition",
        "INSERT INTO t (pk, ck, v) VALUES (%pk%, 1, 8) IF NOT EXISTS; "
        "INSERT INTO t (pk, ck, v) VALUES (%pk%, 1, 9) IF NOT EXISTS",
        [(INSERT, K, {"v": 8})],
    ),
]


def bound(inclusive: bool, **key: int) -> Bound:
    return Bound(key, inclusive)


RANGES = [
    ("t", "ck > 1 AND ck < 5", bound(False, ck=1), bound(False, ck=5)),
    ("t", "ck >= 1 AND ck <= 5", bound(True, ck=1), bound(True, ck=5)),
    ("t", "ck < 3", bound(True), bound(False, ck=3)),
    ("t", "ck >= 3", bound(True, ck=3), bound(True)),
    ("r", "ck1 = 0", bound(True, ck1=0), bound(True, ck1=0)),
    ("r", "ck1 = 0 AND ck2 > 0 AND ck2 < 3", bound(False, ck1=0, ck2=0), bound(False, ck1=0, ck2=3)),
    ("r", "ck1 = 0 AND ck2 > 0", bound(False, ck1=0, ck2=0), bound(True, ck1=0)),
    ("d", "ck > 1 AND ck < 5", bound(False, ck=5), bound(False, ck=1)),
]

TABLES = {
    "t": "pk int, ck int, v int, w text, s int static, m map<int, text>, st set<text>, l list<int>, u u, "
    "fl frozen<list<int>>, PRIMARY KEY (pk, ck)",
    "o": "pk int PRIMARY KEY, v int",
    "r": "pk int, ck1 int, ck2 int, v int, PRIMARY KEY (pk, ck1, ck2)",
    "d": "pk int, ck int, v int, PRIMARY KEY (pk, ck)",
}


@pytest.fixture(scope="module")
def module_keyspace(session: rscylla.Session) -> Iterator[str]:
    name = f"rscylla_test_{uuid.uuid4().hex[:12]}"
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}} "
        "AND tablets = {'enabled': false}"
    )
    session.execute(f"CREATE TYPE {name}.u (a int, b text)")
    yield name
    session.execute(f"DROP KEYSPACE {name}")


def run_cql(session: rscylla.Session, keyspace: str, cql: str, pk: int) -> None:
    session.set_keyspace(keyspace)
    text = cql.replace("%pk%", str(pk))
    for statement in [text] if text.startswith("BEGIN") else text.split(";"):
        session.execute(statement)


@pytest.fixture(scope="module")
def changes(session: rscylla.Session, module_keyspace: str) -> dict[tuple[str, int], list[Change]]:
    """Run all cases, each on a partition of its own, and return the changes by table and partition."""
    found: dict[tuple[str, int], list[Change]] = {}
    for table, columns in TABLES.items():
        order = " AND CLUSTERING ORDER BY (ck DESC)" if table == "d" else ""
        session.execute(f"CREATE TABLE {module_keyspace}.{table} ({columns}) WITH cdc = {{'enabled': true}}{order}")
    for pk, case in enumerate(CASES):
        run_cql(session, module_keyspace, case.cql, pk)
    for pk, (table, where, *_) in enumerate(RANGES):
        run_cql(session, module_keyspace, f"DELETE FROM {table} WHERE pk = %pk% AND {where}", 1000 + pk)
    for table in TABLES:
        for event in collect(rscylla.NewStream(session, module_keyspace, table)):
            assert json.loads(event.metadata)["operation"] == event.change.operation.name
            found.setdefault((table, event.key["pk"]), []).append(event.change)
    return found


@pytest.mark.parametrize("pk", range(len(CASES)), ids=[c.name for c in CASES])
def test_a_statement_is_these_changes(changes: dict[tuple[str, int], list[Change]], pk: int) -> None:
    case = CASES[pk]
    got = changes.get((case.table, pk), [])
    assert [said(c) for c in got] == case.changes
    batches: dict[uuid.UUID, list[Change]] = {}
    for change in got:
        batches.setdefault(change.batch.time, []).append(change)
    for members in batches.values():
        assert [c.batch_index for c in members] == list(range(members[0].batch.size))
        assert [c.batch_end for c in members] == [False] * (len(members) - 1) + [True]
        assert {c.batch.complete for c in members} == {True}
        assert [said(c) for c in members[0].batch.changes] == [said(c) for c in members]


@pytest.mark.parametrize("at", range(len(RANGES)), ids=[f"{r[0]} {r[1]}" for r in RANGES])
def test_a_range_delete_is_one_change_with_its_bounds(changes: dict[tuple[str, int], list[Change]], at: int) -> None:
    table, _, start, end = RANGES[at]
    (change,) = changes[table, 1000 + at]
    assert change.range == (start, end)
    assert (change.range.start, change.range.end) == (start, end)
    assert (dict(change.key), change.is_delete, change.static) == ({"pk": 1000 + at}, True, False)
    assert (change.before, change.after, dict(change.columns)) == (None, None, {})


# ---------------------------------------------------------------- images

BEFORE = {"v": 1, "w": "a", "m": {1: "x"}, "st": {"p"}, "l": [1, 2]}
SEED = "INSERT INTO i (pk, ck, v, w, m, st, l) VALUES (%pk%, 1, 1, 'a', {1: 'x'}, {'p'}, [1, 2])"
IMAGES: list[tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]] = [
    # statement, preimage (full), postimage
    (f"UPDATE i SET v = 2 {WHERE}", BEFORE, {**BEFORE, "v": 2}),
    (f"UPDATE i SET v = null {WHERE}", BEFORE, {**BEFORE, "v": None}),
    (f"UPDATE i SET st = st + {{'q'}}, m = m - {{1}} {WHERE}", BEFORE, {**BEFORE, "st": {"p", "q"}, "m": {}}),
    (f"UPDATE i SET l = l + [3], m[2] = 'y' {WHERE}", BEFORE, {**BEFORE, "l": [1, 2, 3], "m": {1: "x", 2: "y"}}),
    (f"UPDATE i SET st = {{'z'}}, l = null {WHERE}", BEFORE, {**BEFORE, "st": {"z"}, "l": None}),
    ("INSERT INTO i (pk, ck) VALUES (%pk%, 1)", BEFORE, BEFORE),
    (f"DELETE FROM i {WHERE}", BEFORE, None),
    ("DELETE FROM i WHERE pk = %pk%", None, None),
    ("DELETE FROM i WHERE pk = %pk% AND ck > 0", None, None),
]


@pytest.mark.parametrize("post", [True, False], ids=["with postimages", "without"])
@pytest.mark.parametrize("pre", ["full", "true", "false"])
def test_images_are_joined_to_their_change(session: rscylla.Session, keyspace: str, pre: str, post: bool) -> None:
    session.execute(
        f"CREATE TABLE {keyspace}.i (pk int, ck int, v int, w text, m map<int, text>, st set<text>, l list<int>, "
        f"PRIMARY KEY (pk, ck)) WITH cdc = {{'enabled': true, 'preimage': '{pre}', 'postimage': '{str(post).lower()}'}}"
    )
    for pk, (cql, _, _) in enumerate(IMAGES):
        run_cql(session, keyspace, SEED, pk)
        run_cql(session, keyspace, cql, pk)
    found: dict[int, list[Change]] = {}
    for event in collect(rscylla.NewStream(session, keyspace, "i")):
        found.setdefault(event.key["pk"], []).append(event.change)
    for pk, (cql, before, after) in enumerate(IMAGES):
        first, change = found[pk]
        assert (first.before, first.after) == (None, BEFORE), cql
        touched = set(change.columns) if change.operation.name != ROW else set(BEFORE)
        expected = None if before is None or pre == "false" else before
        if expected is not None and pre == "true":
            expected = {n: v for n, v in expected.items() if n in touched}
        assert change.before == expected, cql
        if post:
            assert change.after == after, cql
            for name, column in change.columns.items():
                if column.kind != "list" and pre == "full":
                    assert before is not None
                    assert column.apply(before[name]) == ((after or {})[name] or None), (cql, name)
        elif change.is_delete:
            assert change.after is None
        else:
            assert change.after == {n: c.value for n, c in change.columns.items() if c.known}, cql


def test_images_of_a_batch_and_of_several_deltas_of_a_row(session: rscylla.Session, keyspace: str) -> None:
    session.execute(
        f"CREATE TABLE {keyspace}.b (pk int, ck int, v int, w int, s int static, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}"
    )
    for ck in (1, 2, 3):
        run_cql(session, keyspace, f"INSERT INTO b (pk, ck, v, w) VALUES (%pk%, {ck}, {ck}, 0)", 1)
    batch = (
        "BEGIN BATCH UPDATE b SET v = 20 WHERE pk = %pk% AND ck = 2; UPDATE b USING TTL 50 SET v = 10 "
        "WHERE pk = %pk% AND ck = 1; UPDATE b SET w = null WHERE pk = %pk% AND ck = 1; UPDATE b SET s = 5 "
        "WHERE pk = %pk%; DELETE FROM b WHERE pk = %pk% AND ck = 3; APPLY BATCH"
    )
    run_cql(session, keyspace, batch, 1)
    events = collect(rscylla.NewStream(session, keyspace, "b"))[3:]
    assert [(e.change.operation.name, e.change.key.get("ck"), e.change.before, e.change.after) for e in events] == [
        (UPDATE, None, None, {"s": 5}),
        (UPDATE, 1, {"v": 1, "w": 0}, {"v": 10, "w": None}),
        (UPDATE, 1, {"v": 1, "w": 0}, {"v": 10, "w": None}),
        (UPDATE, 2, {"v": 2, "w": 0}, {"v": 20, "w": 0}),
        (ROW, 3, {"v": 3, "w": 0}, None),
    ]
    assert [said(e.change)[2:] for e in events[1:3]] == [({"w": N},), ({"v": 10}, 50)]
    assert events[0].change.static
    assert len({id(e.change.batch) for e in events}) == 1
    assert (events[0].change.batch.size, events[0].change.batch.complete) == (5, True)
    assert [e.change.batch_end for e in events] == [False] * 4 + [True]


def test_only_keys_are_logged_if_the_table_says_so(session: rscylla.Session, keyspace: str) -> None:
    session.execute(
        f"CREATE TABLE {keyspace}.k (pk int, ck int, v int, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'delta': 'keys', 'postimage': true}"
    )
    run_cql(session, keyspace, "INSERT INTO k (pk, ck, v) VALUES (%pk%, 1, 2)", 1)
    (event,) = collect(rscylla.NewStream(session, keyspace, "k"))
    assert (said(event.change), event.change.after) == ((INSERT, K, {}), {"v": 2})


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_record_that_lacks_a_row_is_delivered_and_counted(session: rscylla.Session, keyspace: str, gone: int) -> None:
    session.set_keyspace(keyspace)
    session.execute("CREATE TABLE e (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    inserts = "".join(f"INSERT INTO e (pk, ck, v) VALUES (1, {ck}, 0); " for ck in range(3))
    session.execute(f"BEGIN BATCH {inserts} APPLY BATCH")
    row = session.execute("SELECT * FROM e_scylla_cdc_log LIMIT 1").one()
    session.execute(
        'DELETE FROM e_scylla_cdc_log WHERE "cdc$stream_id" = %s AND "cdc$time" = %s AND "cdc$batch_seq_no" = %s',
        (row[0], row[1], gone),
    )
    events, incomplete = read(rscylla.NewStream(session, keyspace, "e"))
    assert [e.key["ck"] for e in events] == [ck for ck in range(3) if ck != gone]
    assert [e.change.batch.complete for e in events] == [False, False]
    assert incomplete == 1


def test_rows_whose_time_has_come_are_deleted_by_the_server() -> None:
    """Operations -3 and -4, which Scylla's expiration service writes; it cannot be made to run at once on a cluster."""
    with EmbeddedScylla() as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE x WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        cdc = "WITH cdc = {'enabled': true, 'preimage': 'full'}"
        session.execute(f"CREATE TABLE x.w (pk int, ck int, v int, gone int TTL, PRIMARY KEY (pk, ck)) {cdc}")
        session.execute(f"CREATE TABLE x.o (pk int PRIMARY KEY, v int, gone int TTL) {cdc}")
        gone = int(datetime.now(UTC).timestamp())
        session.execute("INSERT INTO x.w (pk, ck, v, gone) VALUES (1, 2, 3, %s)", (gone,))
        session.execute("INSERT INTO x.o (pk, v, gone) VALUES (1, 3, %s)", (gone,))
        assert scylla.expire_rows() == 2
        for table, name, key in (
            ("w", "SERVICE_ROW_DELETE", {"pk": 1, "ck": 2}),
            ("o", "SERVICE_PARTITION_DELETE", {"pk": 1}),
        ):
            insert, delete = collect(rscylla.NewStream(session, "x", table))
            change = delete.change
            assert (insert.change.expired, change.expired, change.is_delete) == (False, True, True)
            assert (change.operation.name, dict(change.key), change.after) == (name, key, None)
            assert change.before == {"v": 3, "gone": gone}
            assert json.loads(delete.metadata)["operation"] == name


# ---------------------------------------------------------------- names

NAMES = ["order", "Select", "MiXed", 'a"b', "cdc$time2", "cdc$deleted_x", "ttl", "with space", "naïve"]


def test_odd_names_work_everywhere(session: rscylla.Session, keyspace: str) -> None:
    q = [quote_name(n) for n in NAMES]
    session.execute(
        f'CREATE TABLE {keyspace}."MyTable" ({q[0]} int, {q[1]} int, {q[2]} int, {q[3]} set<int>, {q[4]} text, '
        f"{q[5]} text, {q[6]} int static, {q[7]} int, {q[8]} int, PRIMARY KEY (({q[0]}, {q[1]}), {q[2]})) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )
    names = ", ".join(q)
    session.execute(f"INSERT INTO {keyspace}.\"MyTable\" ({names}) VALUES (1, 2, 3, {{4}}, '5', '6', 7, null, 9)")
    stream = rscylla.NewStream(session, keyspace, "MyTable")
    static, row = collect(stream)
    assert (dict(static.key), static.change.after) == ({"order": 1, "Select": 2}, {"ttl": 7})
    assert dict(row.key) == {"order": 1, "Select": 2, "MiXed": 3}
    values = {'a"b': {4}, "cdc$time2": "5", "cdc$deleted_x": "6", "with space": None, "naïve": 9}
    assert row.change.after == values
    assert {n: c.state.value for n, c in row.change.columns.items()} == {
        'a"b': "overwritten",
        "cdc$time2": "set",
        "cdc$deleted_x": "set",
        "with space": "null",
        "naïve": "set",
    }
    whole = {**row.key, **values, "ttl": 7}
    assert stream.lookup(row) == stream.lookup(row.foreign_id) == whole
    assert stream.lookup(static) == {"order": 1, "Select": 2, "ttl": 7}


# ---------------------------------------------------------------- looking up base rows

KEYS: dict[str, tuple[str, ...]] = {
    "ascii": ("'a'",),
    "bigint": ("-9223372036854775808", "1"),
    "blob": ("0x", "0x00ff"),
    "boolean": ("true", "false"),
    "date": ("'2026-11-21'", "0", "4294967295"),
    "decimal": ("1.50", "-1E+30", "0", f"-0.{'9' * 5000}"),
    "double": ("0.1", "-1e300"),
    "float": ("0.1", "16777217"),
    "inet": ("'10.0.0.1'", "'::1'"),
    "int": ("-1", "2147483647"),
    "smallint": ("-32768",),
    "text": ("''", "'naïve \"x\"'"),
    "time": ("'23:59:59.999999999'",),
    "timestamp": ("'2026-11-21 10:00:00.123+0000'", "253402300800000"),
    "timeuuid": ("1b4d1b60-e5b0-11f1-910c-90e62f676a1b",),
    "tinyint": ("-128",),
    "uuid": ("00000000-0000-0000-0000-000000000001",),
    "varint": ("-129", "123456789012345678901234567890", "9" * 5000),
    "frozen<list<int>>": ("[]", "[2, 1]"),
    "frozen<set<text>>": ("{'b', 'a'}",),
    "frozen<map<int, text>>": ("{2: 'b', 1: 'a'}", "{}"),
    "frozen<map<text, int>>": ("{'z': 1, 'b': 2}",),
    "frozen<tuple<int, text>>": ("(1, 'a')", "(2, null)"),
    "frozen<u>": ("{a: 1, b: 'x'}", "{a: 2}"),
    "frozen<map<frozen<u>, frozen<set<int>>>>": ("{{a: 1, b: 'x'}: {3, 1}}",),
    "frozen<set<frozen<list<int>>>>": ("{[2], [1, 5]}",),
}


@pytest.fixture(scope="module")
def keyed(session: rscylla.Session, module_keyspace: str) -> Callable[[str], rscylla.Stream]:
    session.set_keyspace(module_keyspace)

    def make(type_: str) -> rscylla.Stream:
        table = f"key_{list(KEYS).index(type_)}"
        session.execute(
            f"CREATE TABLE {table} (a int, k {type_}, v text, PRIMARY KEY (a, k)) WITH cdc = {{'enabled': true}}"
        )
        for number, literal in enumerate(KEYS[type_]):
            session.execute(f"INSERT INTO {table} (a, k, v) VALUES ({number}, {literal}, 'value {number}')")
        return rscylla.NewStream(session, module_keyspace, table)

    return make


@pytest.mark.parametrize("type_", KEYS)
def test_a_base_row_is_found_by_event_and_by_foreign_id(keyed: Callable[[str], rscylla.Stream], type_: str) -> None:
    stream = keyed(type_)
    events = collect(stream)
    assert len(events) == len(KEYS[type_])
    for event in events:
        expected = {**event.key, "v": f"value {event.key['a']}"}
        assert stream.lookup(event) == expected
        assert stream.lookup(event.foreign_id) == expected
        simple = rscylla.SimpleEvent(id="x", foreign_id=event.foreign_id)
        assert stream.lookup(simple) == expected


def test_a_missing_row_is_none_and_nulls_are_returned(session: rscylla.Session, keyspace: str) -> None:
    session.set_keyspace(keyspace)
    session.execute(
        "CREATE TABLE g (pk int, ck int, v int, s set<int>, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}"
    )
    run_cql(session, keyspace, "INSERT INTO g (pk, ck, v) VALUES (1, 1, 5); DELETE FROM g WHERE pk = 1 AND ck = 1", 1)
    run_cql(session, keyspace, "INSERT INTO g (pk, ck, v) VALUES (1, 2, null)", 1)
    stream = rscylla.NewStream(session, keyspace, "g")
    insert, delete, other = collect(stream)
    assert (stream.lookup(insert), stream.lookup(delete)) == (None, None)
    assert stream.lookup(other) == {"pk": 1, "ck": 2, "v": None, "s": None}


def test_keys_that_name_no_single_row_are_refused(session: rscylla.Session, keyspace: str) -> None:
    session.set_keyspace(keyspace)
    session.execute("CREATE TABLE n (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    session.execute("CREATE TABLE n2 (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    run_cql(session, keyspace, "DELETE FROM n WHERE pk = 1 AND ck > 2; DELETE FROM n WHERE pk = 1", 1)
    stream, other = rscylla.NewStream(session, keyspace, "n"), rscylla.NewStream(session, keyspace, "n2")
    for event in collect(stream):
        for what in (event, event.foreign_id):
            with pytest.raises(rscylla.errors.IncompleteKey) as told:
                stream.lookup(what)
            assert isinstance(told.value, LookupError)
    run_cql(session, keyspace, "INSERT INTO n2 (pk, v) VALUES (1, 1); DELETE FROM n2 WHERE pk = 1", 1)
    events = collect(other)
    assert [other.lookup(e) for e in events] == [None, None]  # here a partition is a row
    with pytest.raises(rscylla.ConfigError, match=r"is of .*n2, not of"):
        stream.lookup(events[0])
    with pytest.raises(rscylla.ConfigError, match=r"is of .*n2, not of elsewhere\.n2"):
        rscylla.NewStream(session, "elsewhere", "n2").lookup(events[0])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "not a foreign id"),
        pytest.param("[" * 100_000, "not a foreign id", id="nested too deeply"),
        ("[1]", "a JSON object"),
        ('{"pk":1,"other":2}', "'other'.* not in the primary key"),
        ('{"pk":1}', "lacks 'ck'"),
        ('{"pk":1,"ck":"secret"}', "'ck' is not a value of its column"),
        ('{"pk":1,"ck":5000000000}', "out of range"),
        ('{"pk":1,"ck":true}', "not a whole number"),
    ],
)
def test_texts_that_are_not_a_foreign_id_are_reported(
    session: rscylla.Session, module_keyspace: str, changes: Any, text: str, error: str
) -> None:
    stream = rscylla.NewStream(session, module_keyspace, "t")
    with pytest.raises(rscylla.ConfigError, match=error) as told:
        stream.lookup(text)
    assert "secret" not in str(told.value)


def test_a_foreign_id_with_a_wrong_decimal_is_reported(session: rscylla.Session, keyspace: str) -> None:
    session.execute(f"CREATE TABLE {keyspace}.d (pk decimal PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    with pytest.raises(rscylla.ConfigError, match="'pk' is not a value of its column"):
        rscylla.NewStream(session, keyspace, "d").lookup('{"pk":"x"}')


def test_lookup_prepares_once(session: rscylla.Session, module_keyspace: str, changes: Any) -> None:
    stream = rscylla.NewStream(session, module_keyspace, "o")
    prepared: list[str] = []
    real = session.prepare

    def prepare(text: str, *more: Any, **named: Any) -> Any:
        prepared.append(text)
        return real(text, *more, **named)

    session.prepare = prepare
    try:
        run_cql(session, module_keyspace, "INSERT INTO o (pk, v) VALUES (%pk%, 3)", 77)
        assert [stream.lookup('{"pk":77}') for _ in range(3)] == [{"pk": 77, "v": 3}] * 3
    finally:
        del session.prepare
    assert len(prepared) == 1
