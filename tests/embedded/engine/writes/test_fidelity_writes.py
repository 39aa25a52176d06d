"""What writes put into the log, from CQL text to log rows: forms and quirks of Scylla that other tests leave out."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import CqlError, InvalidRequest
from rscylla.embedded.result import UNSET

UNIX_TICKS = 0x01B21DD213814000
MIRROR_US = 1_262_304_000_000_000  # 2010-01-01
WIDE = """CREATE TABLE t (
    pk int, ck int, a int, b int, v int, s int STATIC, m map<int, int>, st set<int>, l list<int>, u pair,
    PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true"""
KEY = "WHERE pk = 1 AND ck = 2"
U_NULL = {"x": None, "y": None}

Rows = list[dict[str, Any]]


def wide(options: str = "") -> EngineBox:
    box = EngineBox()
    box.run("CREATE TYPE pair (x int, y text)")
    box.run(f"{WIDE}{options}}}")
    return box


@pytest.fixture
def box() -> EngineBox:
    return wide()


def short(rows: Rows) -> Rows:
    return [{n: v for n, v in row.items() if n not in ("pk", "end_of_batch")} for row in rows]


def written(box: EngineBox, *statements: str, values: Any = ()) -> Rows:
    """The rows that the statements add to the log."""
    before = len(box.log())
    for statement in statements:
        box.run(statement, values)
    return short(box.log()[before:])


def batch(*statements: str, using: str = "") -> str:
    return f"BEGIN BATCH {using} {'; '.join(statements)}; APPLY BATCH"


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("statement", "values", "rows"),
    [
        ("INSERT INTO t (pk, ck, v, a) VALUES (1, 2, ?, ?)", [UNSET, 3], [{"operation": 2, "ck": 2, "a": 3}]),
        ("INSERT INTO t (pk, ck, v) VALUES (1, 2, ?)", [UNSET], [{"operation": 2, "ck": 2}]),
        ("INSERT INTO t (pk, ck, v) VALUES (1, 2, ?)", [None], [{"operation": 2, "ck": 2, "deleted_v": True}]),
        ("INSERT INTO t (pk, ck, m) VALUES (1, 2, ?)", [UNSET], [{"operation": 2, "ck": 2}]),
        ("INSERT INTO t (pk, ck, m) VALUES (1, 2, ?)", [None], [{"operation": 2, "ck": 2, "deleted_m": True}]),
        ("INSERT INTO t (pk, ck, m) VALUES (1, 2, ?)", [{}], [{"operation": 2, "ck": 2, "deleted_m": True}]),
        (f"UPDATE t SET v = ?, a = 1 {KEY}", [UNSET], [{"operation": 1, "ck": 2, "a": 1}]),
        (f"UPDATE t SET v = ? {KEY}", [UNSET], []),
        (f"UPDATE t SET m = m + ? {KEY}", [UNSET], []),
        (f"UPDATE t SET m = m + ? {KEY}", [None], []),
        (f"UPDATE t SET m = m - ? {KEY}", [set()], []),
        (f"UPDATE t SET l = l + ? {KEY}", [[]], []),
        (f"UPDATE t SET u.x = ? {KEY}", [UNSET], []),
        (f"UPDATE t USING TTL ? SET v = 1 {KEY}", [UNSET], [{"operation": 1, "ck": 2, "v": 1}]),
        (f"UPDATE t USING TTL ? SET v = 1 {KEY}", [9], [{"operation": 1, "ck": 2, "v": 1, "ttl": 9}]),
        ("DELETE FROM t WHERE pk = 1 AND ck IN ?", [[]], []),
        ("DELETE FROM t WHERE pk IN ?", [[3, 3]], [{"operation": 4}]),
    ],
)
def test_bound_values(box: EngineBox, statement: str, values: list[Any], rows: Rows) -> None:
    assert written(box, statement, values=values) == rows


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("INSERT INTO t (pk, ck, u) VALUES (1, 2, null)", [{"operation": 2, "ck": 2, "u": U_NULL, "deleted_u": True}]),
        (
            f"UPDATE t USING TTL 5 SET u = {{x: 1}} {KEY}",
            [
                {"operation": 1, "ck": 2, "u": U_NULL, "deleted_u": True},
                {"operation": 1, "ck": 2, "u": {"x": 1, "y": None}, "ttl": 5},
            ],
        ),
        (f"DELETE u.x FROM t {KEY}", [{"operation": 1, "ck": 2, "u": U_NULL, "deleted_elements_u": frozenset({0})}]),
        (
            f"UPDATE t SET m = m + {{1: 1}}, m = m - {{2}} {KEY}",
            [{"operation": 1, "ck": 2, "m": {1: 1}, "deleted_elements_m": frozenset({2})}],
        ),
        (
            f"DELETE m[1], st[2] FROM t {KEY}",
            [{"operation": 1, "ck": 2, "deleted_elements_m": frozenset({1}), "deleted_elements_st": frozenset({2})}],
        ),
        ("INSERT INTO t (pk, s) VALUES (1, null)", [{"operation": 1, "deleted_s": True}]),
        ("INSERT INTO t (pk, ck, s) VALUES (1, 2, 3)", [{"operation": 1, "s": 3}, {"operation": 2, "ck": 2}]),
        ("DELETE s FROM t WHERE pk = 1", [{"operation": 1, "deleted_s": True}]),
        # The end of one range and the start of the next, where equal times overlap or touch, are one.
        (
            batch(
                "DELETE FROM t WHERE pk = 1 AND ck >= 1 AND ck < 5", "DELETE FROM t WHERE pk = 1 AND ck > 3 AND ck <= 8"
            ),
            [{"operation": 5, "ck": 1}, {"operation": 7, "ck": 8}],
        ),
        (
            batch(
                "DELETE FROM t WHERE pk = 1 AND ck >= 5 AND ck < 8", "DELETE FROM t WHERE pk = 1 AND ck > 1 AND ck < 5"
            ),
            [{"operation": 6, "ck": 1}, {"operation": 8, "ck": 8}],
        ),
        (
            batch("DELETE FROM t WHERE pk = 1 AND ck < 3", "DELETE FROM t WHERE pk = 1 AND ck > 5"),
            [{"operation": 5}, {"operation": 8, "ck": 3}, {"operation": 6, "ck": 5}, {"operation": 7}],
        ),
        # Equal times, several TTLs on one row: no TTL first, with the dead cells, then ascending.
        (
            batch(
                f"UPDATE t USING TTL 7 SET a = 1 {KEY}",
                f"UPDATE t USING TTL 5 SET b = 2 {KEY}",
                f"UPDATE t SET v = 3 {KEY}",
                f"UPDATE t USING TTL 6 SET m[1] = 4, st = st - {{9}} {KEY}",
            ),
            [
                {"operation": 1, "ck": 2, "v": 3, "deleted_elements_st": frozenset({9})},
                {"operation": 1, "ck": 2, "b": 2, "ttl": 5},
                {"operation": 1, "ck": 2, "m": {1: 4}, "ttl": 6},
                {"operation": 1, "ck": 2, "a": 1, "ttl": 7},
            ],
        ),
        # Equal times: which cell wins is a matter of its value, not of the order of statements.
        (batch(f"UPDATE t SET v = 9 {KEY}", f"UPDATE t SET v = 5 {KEY}"), [{"operation": 1, "ck": 2, "v": 9}]),
        (
            batch(f"UPDATE t SET v = null {KEY}", f"UPDATE t SET v = 5 {KEY}"),
            [{"operation": 1, "ck": 2, "deleted_v": True}],
        ),
        (
            batch(f"UPDATE t SET v = 9 {KEY}", f"UPDATE t USING TTL 5 SET v = 1 {KEY}"),
            [{"operation": 1, "ck": 2, "v": 1, "ttl": 5}],
        ),
        (
            batch("INSERT INTO t (pk, ck) VALUES (1, 2)", "INSERT INTO t (pk, ck) VALUES (1, 2) USING TTL 5"),
            [{"operation": 2, "ck": 2, "ttl": 5}],
        ),
        # A clear at T-1 does not touch what is added at T.
        (
            batch(f"UPDATE t SET m = {{1: 1}} {KEY}", f"UPDATE t SET m = m + {{2: 2}} {KEY}"),
            [{"operation": 1, "ck": 2, "m": {1: 1, 2: 2}, "deleted_m": True}],
        ),
        # DELETE clears at T, and so takes it along.
        (
            batch(f"DELETE m FROM t {KEY}", f"UPDATE t SET m = m + {{2: 2}} {KEY}"),
            [{"operation": 1, "ck": 2, "deleted_m": True}],
        ),
        (
            batch("DELETE FROM t WHERE pk = 1 AND ck = 1", f"UPDATE t SET v = 1 {KEY}"),
            [{"operation": 3, "ck": 1}, {"operation": 1, "ck": 2, "v": 1}],
        ),
        (
            batch("UPDATE t SET v = 1 WHERE pk = 1 AND ck = 1", "DELETE FROM t WHERE pk = 1 AND ck = 2"),
            [{"operation": 1, "ck": 1, "v": 1}, {"operation": 3, "ck": 2}],
        ),
        (
            batch(
                "DELETE FROM t WHERE pk = 1 AND ck = 1",
                f"UPDATE t SET v = 1 {KEY}",
                "DELETE FROM t WHERE pk = 1 AND ck > 6",
            ),
            [{"operation": 1, "ck": 2, "v": 1}, {"operation": 3, "ck": 1}, {"operation": 6, "ck": 6}, {"operation": 7}],
        ),
        (
            batch(
                "DELETE FROM t WHERE pk = 1",
                "DELETE FROM t WHERE pk = 1 AND ck = 3",
                "INSERT INTO t (pk, s) VALUES (1, 5)",
            ),
            [{"operation": 1, "s": 5}, {"operation": 3, "ck": 3}, {"operation": 4}],
        ),
    ],
)
def test_statements_and_batches(box: EngineBox, statement: str, rows: Rows) -> None:
    found = written(box, statement)
    # A record ends once: what DELETE of a collection adds comes a microsecond later, in a record of its own.
    assert found == rows


def test_a_batch_timestamp_is_that_of_its_record(box: EngineBox) -> None:
    stamp = box.clock.now_us() - 7
    box.run(batch(f"UPDATE t SET v = 1 {KEY}", f"UPDATE t SET a = 2 {KEY}", using=f"USING TIMESTAMP {stamp}"))
    assert box.column('SELECT writetime("cdc$operation") FROM t_scylla_cdc_log') == [stamp]


def test_a_named_variable_may_stand_twice(box: EngineBox) -> None:
    prepared = box.engine.prepare("INSERT INTO t (pk, ck, v) VALUES (:n, :n, :n)", "ks")
    assert [spec.name for spec in prepared.variables] == ["n"]
    assert written(box, "INSERT INTO t (pk, ck, v) VALUES (:n, :n, :n)", values=[3]) == [
        {"operation": 2, "ck": 3, "v": 3}
    ]
    with pytest.raises(InvalidRequest, match="variable n has type"):
        box.run("INSERT INTO t (pk, ck, m) VALUES (:n, 1, :n)", [1])


# ---------------------------------------------------------------- lists


def key_parts(key: uuid.UUID) -> tuple[int, int]:
    """Return (microsecond, counter) of a list key: the counter's low 14 bits are the clock sequence, bit 7 flipped."""
    micros, ticks = divmod(key.time - UNIX_TICKS, 10)
    return micros, ticks << 14 | key.clock_seq ^ 0x80


def test_keys_of_appended_elements_count_up_from_the_write_time(box: EngineBox) -> None:
    stamp = box.clock.now_us() - 5
    box.run(
        batch(
            f"UPDATE t SET l = l + [1, 2] {KEY}",
            "UPDATE t SET l = [3] WHERE pk = 1 AND ck = 3",
            f"UPDATE t SET l = l + [4] {KEY}",
            using=f"USING TIMESTAMP {stamp}",
        )
    )
    first, second = box.log()
    keys = [*first["l"], *second["l"]]
    assert [key_parts(key) for key in keys] == [(stamp, 0), (stamp, 1), (stamp, 3), (stamp, 2)]
    assert len({key.node for key in keys}) == 1
    assert all(key.version == 1 and key.variant == uuid.RFC_4122 for key in keys)


def test_keys_of_prepended_elements_lie_in_the_time_mirrored_around_2010(box: EngineBox) -> None:
    stamp = box.clock.now_us() - 5
    box.run(f"UPDATE t USING TIMESTAMP {stamp} SET l = [1, 2] + l {KEY}")
    box.run(f"UPDATE t USING TIMESTAMP {stamp} SET l = [0] + l {KEY}")
    one, two = sorted((row["l"] for row in box.log()), key=len)  # of one time, so in any order
    assert [key_parts(key) for key in two] == [(2 * MIRROR_US - stamp, (1 << 17) - n) for n in (2, 1)]
    assert [key_parts(key)[0] for key in one] == [2 * MIRROR_US - stamp]


def test_elements_cannot_be_prepended_before_2010(box: EngineBox) -> None:
    box.run("CREATE TABLE plain (pk int PRIMARY KEY, l list<int>)")
    for stamp in (1, MIRROR_US):
        with pytest.raises(InvalidRequest, match="greater than Jan 1 2010"):
            box.run(f"UPDATE plain USING TIMESTAMP {stamp} SET l = [1] + l WHERE pk = 1")
    box.run(f"UPDATE plain USING TIMESTAMP {MIRROR_US + 1} SET l = [1] + l WHERE pk = 1")
    assert box.column("SELECT l FROM plain") == [[1]]


def test_more_elements_than_a_clock_sequence_has_values_keep_their_order(box: EngineBox) -> None:
    items = list(range((1 << 14) + 3))
    box.run(f"UPDATE t SET l = l + ? {KEY}", [items])
    assert box.column("SELECT l FROM t") == [items]
    keys = list(box.log()[0]["l"])
    assert [key_parts(key)[1] for key in keys] == items


def test_a_log_replays_a_list_with_its_keys(box: EngineBox) -> None:
    """As consumers that copy a table do: each element is written under the key that the log names."""
    box.run("CREATE TABLE copy (pk int, ck int, l list<int>, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    for change in ("l = [1, 2, 3]", "l = [0] + l", "l[1] = 7", "l = l - [3]"):
        box.run(f"UPDATE t SET {change} {KEY}")
    for row in box.log():
        changed = row.get("l", {}) | dict.fromkeys(row.get("deleted_elements_l", ()))
        for key, value in changed.items():
            box.run(f"UPDATE copy SET l[SCYLLA_TIMEUUID_LIST_INDEX(?)] = ? {KEY}", [key, value])
    assert box.column("SELECT l FROM copy") == box.column("SELECT l FROM t") == [[0, 7, 2]]
    assert {key for row in box.log("copy") for key in row.get("l", {})} == {
        key for row in box.log() for key in row.get("l", {})
    }
    with pytest.raises(InvalidRequest, match="null or unset key"):
        box.run(f"UPDATE copy SET l[SCYLLA_TIMEUUID_LIST_INDEX(?)] = 1 {KEY}", [None])


# ---------------------------------------------------------------- clustering bounds


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("(a, b) > SCYLLA_CLUSTERING_BOUND (1, 1)", [(1, 0), (2, 2), (2, 1), (2, 0)]),
        ("(a, b) >= SCYLLA_CLUSTERING_BOUND (1, 1)", [(1, 1), (1, 0), (2, 2), (2, 1), (2, 0)]),
        ("(a, b) < SCYLLA_CLUSTERING_BOUND (0, 1)", [(0, 2)]),
        ("(a) <= SCYLLA_CLUSTERING_BOUND (0)", [(0, 2), (0, 1), (0, 0)]),
        (
            "(a, b) > SCYLLA_CLUSTERING_BOUND (0, 0) AND (a, b) <= SCYLLA_CLUSTERING_BOUND (2, 2)",
            [(1, 2), (1, 1), (1, 0), (2, 2)],
        ),
    ],
)
def test_clustering_bounds_compare_in_declared_order(where: str, found: list[tuple[int, int]]) -> None:
    box = EngineBox()
    box.run(
        "CREATE TABLE t (pk int, a int, b int, PRIMARY KEY (pk, a, b)) WITH CLUSTERING ORDER BY (a ASC, b DESC)"
        " AND cdc = {'enabled': true}"
    )
    for a in range(3):
        for b in range(3):
            box.run("INSERT INTO t (pk, a, b) VALUES (1, ?, ?)", [a, b])
    assert [(r["a"], r["b"]) for r in box.rows(f"SELECT a, b FROM t WHERE pk = 1 AND {where}")] == found
    rows = written(box, f"DELETE FROM t WHERE pk = 1 AND {where}")
    assert len(rows) == 2
    assert len(box.rows("SELECT a FROM t")) == 9 - len(found)
    if where == "(a, b) > SCYLLA_CLUSTERING_BOUND (1, 1)":
        assert rows == [{"operation": 6, "a": 1, "b": 1}, {"operation": 7}]


@pytest.mark.parametrize("operator", ["=", "IN"])
def test_a_bound_is_for_slices_only(operator: str) -> None:
    box = EngineBox()
    box.run("CREATE TABLE t (pk int, a int, PRIMARY KEY (pk, a))")
    with pytest.raises(CqlError):
        box.run(f"SELECT * FROM t WHERE pk = 1 AND (a) {operator} SCYLLA_CLUSTERING_BOUND (1)")


# ---------------------------------------------------------------- images, from CQL

NULLS = {f"deleted_{name}": True for name in ("a", "b", "l", "m", "st", "u", "v")}


def without(*names: str) -> dict[str, bool]:
    return {key: value for key, value in NULLS.items() if key.removeprefix("deleted_") not in names}


def image_rows(options: str, before: list[str], statement: str) -> Rows:
    box = wide(options)
    for each in before:
        box.run(each)
    return written(box, statement)


PRE, FULL, POST = ", 'preimage': true", ", 'preimage': 'full'", ", 'postimage': true"
FILLED = "INSERT INTO t (pk, ck, v, a) VALUES (1, 2, 3, 4)"


@pytest.mark.parametrize(
    ("options", "before", "statement", "rows"),
    [
        (
            PRE,
            [FILLED],
            f"UPDATE t SET v = 5 {KEY}",
            [{"operation": 0, "ck": 2, "v": 3}, {"operation": 1, "ck": 2, "v": 5}],
        ),
        (
            PRE,
            [FILLED],
            f"UPDATE t USING TTL 9 SET v = 5 {KEY}",
            [{"operation": 0, "ck": 2, "v": 3}, {"operation": 1, "ck": 2, "v": 5, "ttl": 9}],
        ),
        (PRE, [FILLED], "INSERT INTO t (pk, ck) VALUES (1, 2)", [{"operation": 0, "ck": 2}, {"operation": 2, "ck": 2}]),
        (
            PRE,
            [FILLED],
            f"DELETE FROM t {KEY}",
            [{"operation": 0, "ck": 2, "v": 3, "a": 4} | without("v", "a"), {"operation": 3, "ck": 2}],
        ),
        (
            FULL,
            [FILLED],
            f"UPDATE t SET b = 5 {KEY}",
            [{"operation": 0, "ck": 2, "v": 3, "a": 4} | without("v", "a"), {"operation": 1, "ck": 2, "b": 5}],
        ),
        (PRE, [], f"UPDATE t SET v = 5 {KEY}", [{"operation": 1, "ck": 2, "v": 5}]),
        (PRE, [FILLED], "DELETE FROM t WHERE pk = 1", [{"operation": 4}]),
        (PRE, [FILLED], "DELETE FROM t WHERE pk = 1 AND ck > 0", [{"operation": 6, "ck": 0}, {"operation": 7}]),
        # Only a static value was there: the clustering row was not.
        (
            PRE,
            ["INSERT INTO t (pk, s) VALUES (1, 8)"],
            f"UPDATE t SET v = 5 {KEY}",
            [{"operation": 1, "ck": 2, "v": 5}],
        ),
        # Collections come whole, lists with their keys, and the last element gone leaves an empty value.
        (
            POST,
            [f"UPDATE t SET m = {{1: 1}}, st = {{2}} {KEY}"],
            f"UPDATE t SET m = m - {{1}}, st = {{}} {KEY}",
            [
                {"operation": 1, "ck": 2, "deleted_elements_m": frozenset({1}), "deleted_st": True},
                {"operation": 9, "ck": 2, "m": {}},
            ],
        ),
        (
            POST,
            [f"UPDATE t SET u = {{x: 1}} {KEY}"],
            f"UPDATE t SET u = null {KEY}",
            [{"operation": 1, "ck": 2, "u": U_NULL, "deleted_u": True}, {"operation": 9, "ck": 2, "u": U_NULL}],
        ),
        (
            POST,
            [],
            f"UPDATE t SET v = null {KEY}",
            [{"operation": 1, "ck": 2, "deleted_v": True}, {"operation": 9, "ck": 2}],
        ),
        (
            POST,
            [FILLED],
            f"UPDATE t SET v = null {KEY}",
            [{"operation": 1, "ck": 2, "deleted_v": True}, {"operation": 9, "ck": 2, "a": 4}],
        ),
        (
            POST,
            [FILLED],
            batch(f"UPDATE t SET v = 5 {KEY}", f"DELETE FROM t {KEY}"),
            [{"operation": 1, "ck": 2, "v": 5}, {"operation": 3, "ck": 2}],
        ),
        (
            POST,
            [FILLED],
            batch(f"UPDATE t SET v = 5 {KEY}", "DELETE FROM t WHERE pk = 1"),
            [{"operation": 1, "ck": 2, "v": 5}, {"operation": 4}],
        ),
        # A quirk: the preimage's read names the columns of the first row only.
        (
            PRE,
            [FILLED, "INSERT INTO t (pk, ck, v, a) VALUES (1, 3, 30, 40)"],
            batch(f"UPDATE t SET v = 5 {KEY}", "UPDATE t SET a = 6 WHERE pk = 1 AND ck = 3"),
            [
                {"operation": 0, "ck": 2, "v": 3},
                {"operation": 0, "ck": 3, "deleted_a": True},
                {"operation": 1, "ck": 2, "v": 5},
                {"operation": 1, "ck": 3, "a": 6},
            ],
        ),
    ],
)
def test_images(options: str, before: list[str], statement: str, rows: Rows) -> None:
    assert image_rows(options, before, statement) == rows


def test_a_list_in_an_image_is_a_map_by_its_keys() -> None:
    first, change = image_rows(PRE, [f"UPDATE t SET l = [5, 6] {KEY}"], f"UPDATE t SET l = l + [7] {KEY}")
    assert list(first["l"].values()) == [5, 6]
    assert list(change["l"].values()) == [7]
    assert all(isinstance(key, uuid.UUID) for key in first["l"])


def test_an_old_write_has_a_postimage_that_never_was() -> None:
    """A quirk of Scylla: images ignore write timestamps, although the base table keeps the newer value."""
    box = wide(POST)
    box.run(f"UPDATE t SET v = 5 {KEY}")
    old = box.clock.now_us() - 30_000_000
    box.run(f"UPDATE t USING TIMESTAMP {old} SET v = 1 {KEY}")
    assert short(box.log())[:2] == [{"operation": 1, "ck": 2, "v": 1}, {"operation": 9, "ck": 2, "v": 1}]
    assert box.column("SELECT v FROM t") == [5]


def test_later_records_of_a_batch_see_the_earlier_ones() -> None:
    box = wide(PRE + POST)
    now = box.clock.now_us()
    rows = written(
        box,
        batch(
            f"UPDATE t USING TIMESTAMP {now} SET v = 1 {KEY}",
            f"UPDATE t USING TIMESTAMP {now + 1} SET a = 2 {KEY}",
            f"DELETE FROM t USING TIMESTAMP {now + 2} {KEY}",
        ),
    )
    assert rows == [
        {"operation": 1, "ck": 2, "v": 1},
        {"operation": 9, "ck": 2, "v": 1},
        {"operation": 0, "ck": 2, "deleted_a": True},
        {"operation": 1, "ck": 2, "a": 2},
        {"operation": 9, "ck": 2, "v": 1, "a": 2},
        {"operation": 0, "ck": 2, "v": 1, "a": 2} | without("v", "a"),
        {"operation": 3, "ck": 2},
    ]


def test_delta_keys_leaves_images_and_shape() -> None:
    rows = image_rows(PRE + POST + ", 'delta': 'keys'", [FILLED], f"UPDATE t USING TTL 9 SET v = 5, b = null {KEY}")
    assert rows == [
        {"operation": 0, "ck": 2, "v": 3, "deleted_b": True},
        {"operation": 1, "ck": 2},
        {"operation": 1, "ck": 2, "ttl": 9},
        {"operation": 9, "ck": 2, "v": 5, "a": 4},
    ]


# ---------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("statement", "applied", "rows"),
    [
        (f"UPDATE t SET v = 9 {KEY} IF v = 3", True, [{"operation": 1, "ck": 2, "v": 9}]),
        (f"UPDATE t SET v = 9 {KEY} IF v = 4", False, []),
        (f"DELETE FROM t {KEY} IF EXISTS", True, [{"operation": 3, "ck": 2}]),
        ("INSERT INTO t (pk, ck) VALUES (1, 2) IF NOT EXISTS", False, []),
        (
            "INSERT INTO t (pk, ck, v) VALUES (1, 3, 1) IF NOT EXISTS USING TTL 5",
            True,
            [{"operation": 2, "ck": 3, "v": 1, "ttl": 5}],
        ),
        (
            batch(f"UPDATE t SET v = 9 {KEY} IF v = 3", "INSERT INTO t (pk, ck) VALUES (1, 3)"),
            True,
            [{"operation": 1, "ck": 2, "v": 9}, {"operation": 2, "ck": 3}],
        ),
        (batch(f"UPDATE t SET v = 9 {KEY} IF v = 4", "INSERT INTO t (pk, ck) VALUES (1, 3)"), False, []),
    ],
)
def test_conditional_writes(box: EngineBox, statement: str, applied: bool, rows: Rows) -> None:
    box.run(FILLED)
    before = len(box.log())
    assert box.rows(statement)[0]["[applied]"] is applied
    assert short(box.log()[before:]) == rows


def test_a_conditional_write_takes_no_timestamp(box: EngineBox) -> None:
    with pytest.raises(InvalidRequest, match="Cannot provide custom timestamp for conditional updates"):
        box.run(f"UPDATE t USING TIMESTAMP 1 SET v = 1 {KEY} IF EXISTS")
