"""The log rows of mutations."""

from __future__ import annotations

from typing import Any

import pytest
from cdc_mutations import T, Write, cks, compound, log_of, log_rows, logged, single, table, wide

from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.storage.mutation import Bound, PartitionMutation

WIDE = wide()


# ---------------------------------------------------------------- one statement, one partition


U_NULL = {"x": None, "y": None}


ONE_RECORD: dict[str, tuple[Write, list[dict[str, Any]]]] = {
    "INSERT (keys, v)": (Write(WIDE).insert(1, v=5), [{"op": 2, "ck": 1, "v": 5}]),
    "INSERT (keys) only": (Write(WIDE).insert(1), [{"op": 2, "ck": 1}]),
    "INSERT v = null": (Write(WIDE).insert(1, v=None), [{"op": 2, "ck": 1, "deleted_v": True}]),
    "INSERT USING TTL, all live": (
        Write(WIDE).using(ttl=60).insert(1, v=5, a=6),
        [{"op": 2, "ck": 1, "v": 5, "a": 6, "ttl": 60}],
    ),
    "INSERT USING TTL, keys only": (Write(WIDE).using(ttl=60).insert(1), [{"op": 2, "ck": 1, "ttl": 60}]),
    "INSERT USING TTL, some null": (
        Write(WIDE).using(ttl=60).insert(1, v=5, a=None, b=None),
        [
            {"op": 2, "ck": 1, "v": 5, "ttl": 60},
            {"op": 1, "ck": 1, "deleted_a": True, "deleted_b": True},
        ],
    ),
    "INSERT collections, no TTL": (
        Write(WIDE).insert(1, v=5, m={2: 3, 1: 4}, st={7, 6}, l={0: 8, 1: 9}, u={"x": 1, "y": "z"}),
        [
            {
                "op": 2,
                "ck": 1,
                "v": 5,
                "m": {1: 4, 2: 3},
                "deleted_m": True,
                "st": frozenset({6, 7}),
                "deleted_st": True,
                "l": {0: 8, 1: 9},
                "deleted_l": True,
                "u": {"x": 1, "y": "z"},
                "deleted_u": True,
            }
        ],
    ),
    "INSERT collections USING TTL": (
        Write(WIDE).using(ttl=60).insert(1, v=5, m={1: 1}, n={2: 2}),
        [
            {"op": 2, "ck": 1, "v": 5, "ttl": 60},
            {"op": 1, "ck": 1, "deleted_m": True, "deleted_n": True},
            {"op": 1, "ck": 1, "m": {1: 1}, "n": {2: 2}, "ttl": 60},
        ],
    ),
    "INSERT collection null or empty": (
        Write(WIDE).insert(1, m=None, st=set()),
        [{"op": 2, "ck": 1, "deleted_m": True, "deleted_st": True}],
    ),
    "INSERT static + regular": (
        Write(WIDE).static(s=9).insert(1, v=5),
        [{"op": 1, "s": 9}, {"op": 2, "ck": 1, "v": 5}],
    ),
    "INSERT (pk, s) only static": (Write(WIDE).static(s=9), [{"op": 1, "s": 9}]),
    "UPDATE v": (Write(WIDE).update(1, v=5), [{"op": 1, "ck": 1, "v": 5}]),
    "UPDATE v = null, DELETE v": (Write(WIDE).update(1, v=None), [{"op": 1, "ck": 1, "deleted_v": True}]),
    "DELETE s": (Write(WIDE).static(s=None), [{"op": 1, "deleted_s": True}]),
    "UPDATE a = 1, b = null": (
        Write(WIDE).update(1, a=1, b=None),
        [{"op": 1, "ck": 1, "a": 1, "deleted_b": True}],
    ),
    "UPDATE a = 1, b = null USING TTL": (
        Write(WIDE).using(ttl=60).update(1, a=1, b=None),
        [{"op": 1, "ck": 1, "deleted_b": True}, {"op": 1, "ck": 1, "a": 1, "ttl": 60}],
    ),
    "UPDATE static + regular": (
        Write(WIDE).static(s=9).update(1, v=5),
        [{"op": 1, "s": 9}, {"op": 1, "ck": 1, "v": 5}],
    ),
    "UPDATE static USING TTL, one null": (
        Write(WIDE).using(ttl=60).static(s=9, sm=None),
        [{"op": 1, "deleted_sm": True}, {"op": 1, "s": 9, "ttl": 60}],
    ),
    "m = m + {..}": (Write(WIDE).edit(1, column="m", add={1: 2}), [{"op": 1, "ck": 1, "m": {1: 2}}]),
    "m = m + {..} USING TTL": (
        Write(WIDE).using(ttl=60).edit(1, column="m", add={1: 2}),
        [{"op": 1, "ck": 1, "m": {1: 2}, "ttl": 60}],
    ),
    "s = s + {..}": (Write(WIDE).edit(1, column="st", add={3, 1}), [{"op": 1, "ck": 1, "st": frozenset({1, 3})}]),
    "sm = sm + {..} - {..} on a static map": (
        Write(WIDE).edit(column="sm", add={1: 2}, remove=[3]),
        [{"op": 1, "sm": {1: 2}, "deleted_elements_sm": frozenset({3})}],
    ),
    "m = m - {..}": (
        Write(WIDE).edit(1, column="m", remove=[2, 1]),
        [{"op": 1, "ck": 1, "deleted_elements_m": frozenset({1, 2})}],
    ),
    "s = s - {..}": (
        Write(WIDE).edit(1, column="st", remove=[4]),
        [{"op": 1, "ck": 1, "deleted_elements_st": frozenset({4})}],
    ),
    "add and remove in one UPDATE": (
        Write(WIDE).edit(1, column="m", add={1: 2}, remove=[3]),
        [{"op": 1, "ck": 1, "m": {1: 2}, "deleted_elements_m": frozenset({3})}],
    ),
    "c = {..} overwrite": (
        Write(WIDE).update(1, m={1: 2}),
        [{"op": 1, "ck": 1, "m": {1: 2}, "deleted_m": True}],
    ),
    "c = {..} overwrite USING TTL": (
        Write(WIDE).using(ttl=60).update(1, m={1: 2}),
        [{"op": 1, "ck": 1, "deleted_m": True}, {"op": 1, "ck": 1, "m": {1: 2}, "ttl": 60}],
    ),
    "c = null, c = {}": (Write(WIDE).update(1, m={}), [{"op": 1, "ck": 1, "deleted_m": True}]),
    "list append": (Write(WIDE).edit(1, column="l", add={5: 7}), [{"op": 1, "ck": 1, "l": {5: 7}}]),
    "l = l - [x], DELETE l[i]": (
        Write(WIDE).edit(1, column="l", remove=[5]),
        [{"op": 1, "ck": 1, "deleted_elements_l": frozenset({5})}],
    ),
    "u.f = 1": (
        Write(WIDE).edit(1, column="u", add={"x": 1}),
        [{"op": 1, "ck": 1, "u": {"x": 1, "y": None}}],
    ),
    "u.f = null": (
        Write(WIDE).edit(1, column="u", remove=["y"]),
        [{"op": 1, "ck": 1, "u": U_NULL, "deleted_elements_u": frozenset({1})}],
    ),
    "u = null": (Write(WIDE).update(1, u=None), [{"op": 1, "ck": 1, "u": U_NULL, "deleted_u": True}]),
    "DELETE full key": (Write(WIDE).delete_row(1), [{"op": 3, "ck": 1}]),
    "DELETE by pk, table with CK": (Write(WIDE).delete_partition(), [{"op": 4}]),
    "DELETE by pk, table without CK": (Write(single()).delete_partition(), [{"op": 4}]),
    "INSERT, table without CK": (Write(single()).insert(v=5), [{"op": 2, "v": 5}]),
    "COMPACT STORAGE dense INSERT": (Write(compound()).update(1, 2, v=5), [{"op": 1, "ck1": 1, "ck2": 2, "v": 5}]),
    "BATCH, rows of one partition in clustering order": (
        Write(WIDE).insert(3, v=3).update(1, v=1).insert(2, v=2),
        [{"op": 1, "ck": 1, "v": 1}, {"op": 2, "ck": 2, "v": 2}, {"op": 2, "ck": 3, "v": 3}],
    ),
    "BATCH in a table ordered DESC": (
        Write(wide(descending=True)).insert(1, v=1).insert(2, v=2),
        [{"op": 2, "ck": 2, "v": 2}, {"op": 2, "ck": 1, "v": 1}],
    ),
    "BATCH UPDATE row; DELETE row": (
        Write(WIDE).update(1, v=5).delete_row(1),
        [{"op": 1, "ck": 1, "v": 5}, {"op": 3, "ck": 1}],
    ),
    "BATCH DELETE ck=1; UPDATE ck=2 is not split": (
        Write(WIDE).delete_row(1).update(2, v=5),
        [{"op": 3, "ck": 1}, {"op": 1, "ck": 2, "v": 5}],
    ),
    "BATCH UPDATE ck=1; DELETE ck=2 is split": (
        Write(WIDE).delete_row(2).update(1, v=5),
        [{"op": 1, "ck": 1, "v": 5}, {"op": 3, "ck": 2}],
    ),
    "BATCH DELETE ck=1; UPDATE ck=2; DELETE range is split and so reordered": (
        Write(WIDE).delete_row(1).update(2, v=5).delete_range(Bound(cks(5)), Bound(cks(9))),
        [{"op": 1, "ck": 2, "v": 5}, {"op": 3, "ck": 1}, {"op": 5, "ck": 5}, {"op": 7, "ck": 9}],
    ),
    "BATCH INSERT row; DELETE range": (
        Write(WIDE).insert(1, v=5).delete_range(Bound(cks(0)), Bound(cks(9))),
        [{"op": 2, "ck": 1, "v": 5}, {"op": 5, "ck": 0}, {"op": 7, "ck": 9}],
    ),
    "BATCH INSERT row; DELETE partition": (
        Write(WIDE).insert(1, v=5).delete_partition(),
        [{"op": 2, "ck": 1, "v": 5}, {"op": 4}],
    ),
    "BATCH static; DELETE partition": (
        Write(WIDE).static(s=1).delete_partition(),
        [{"op": 1, "s": 1}, {"op": 4}],
    ),
    "BATCH with TTLs 5, 6, 7 and none on one row": (
        Write(WIDE)
        .using(ttl=6)
        .update(1, b=2)
        .using(ttl=5)
        .update(1, a=1)
        .using(ttl=7)
        .update(1, v=3)
        .using()
        .edit(1, column="m", add={1: 1})
        .using(ttl=5)
        .update(1, u=None),
        [
            {"op": 1, "ck": 1, "m": {1: 1}, "u": U_NULL, "deleted_u": True},
            {"op": 1, "ck": 1, "a": 1, "ttl": 5},
            {"op": 1, "ck": 1, "b": 2, "ttl": 6},
            {"op": 1, "ck": 1, "v": 3, "ttl": 7},
        ],
    ),
    "BATCH updates of several rows and TTLs: clustering order, then TTL": (
        Write(WIDE).using(ttl=9).update(2, a=1).update(1, a=1).using(ttl=4).update(2, b=1),
        [
            {"op": 1, "ck": 1, "a": 1, "ttl": 9},
            {"op": 1, "ck": 2, "b": 1, "ttl": 4},
            {"op": 1, "ck": 2, "a": 1, "ttl": 9},
        ],
    ),
    "BATCH inserts come before updates when split": (
        Write(WIDE).using(ttl=4).update(1, v=1).using().insert(2, v=2).static(s=3),
        [{"op": 1, "s": 3}, {"op": 2, "ck": 2, "v": 2}, {"op": 1, "ck": 1, "v": 1, "ttl": 4}],
    ),
    "INSERT of one row, added elements of another: split, each as it is": (
        Write(WIDE).insert(1, v=1).edit(2, column="m", add={1: 1}),
        [{"op": 2, "ck": 1, "v": 1}, {"op": 1, "ck": 2, "m": {1: 1}}],
    ),
    "INSERT ck=1; add elements to ck=2; INSERT ck=3 is split and so reordered": (
        Write(WIDE).insert(1, v=1).edit(2, column="m", add={1: 1}).insert(3, v=3),
        [{"op": 2, "ck": 1, "v": 1}, {"op": 2, "ck": 3, "v": 3}, {"op": 1, "ck": 2, "m": {1: 1}}],
    ),
    "UPDATE ck=1; DELETE ck=2; UPDATE ck=3 is split and so reordered": (
        Write(WIDE).update(1, v=1).delete_row(2).update(3, v=3),
        [{"op": 1, "ck": 1, "v": 1}, {"op": 1, "ck": 3, "v": 3}, {"op": 3, "ck": 2}],
    ),
    "static; UPDATE ck=1; INSERT ck=2 is split and so reordered": (
        Write(WIDE).static(s=9).update(1, v=1).insert(2, v=2),
        [{"op": 1, "s": 9}, {"op": 2, "ck": 2, "v": 2}, {"op": 1, "ck": 1, "v": 1}],
    ),
    "INSERT a row and add elements to it: an insert cannot add": (
        Write(WIDE).insert(1, v=1).edit(1, column="m", add={1: 1}).edit(1, column="n", add={2: 2}, remove=[3]),
        [
            {"op": 2, "ck": 1, "v": 1},
            {"op": 1, "ck": 1, "m": {1: 1}, "n": {2: 2}, "deleted_elements_n": frozenset({3})},
        ],
    ),
    "INSERT a row and only remove elements: one insert": (
        Write(WIDE).insert(1, v=1).edit(1, column="m", remove=[3]),
        [{"op": 2, "ck": 1, "v": 1, "deleted_elements_m": frozenset({3})}],
    ),
    "m = m + {} beside a change: the untouched row is not logged": (
        Write(WIDE).edit(1, column="m").update(2, v=1),
        [{"op": 1, "ck": 2, "v": 1}],
    ),
    "DELETE IN: one row delete for each key": (
        Write(WIDE).delete_row(2).delete_row(1),
        [{"op": 3, "ck": 1}, {"op": 3, "ck": 2}],
    ),
}


@pytest.mark.parametrize("statement", ONE_RECORD)
def test_rows_of_a_statement(statement: str) -> None:
    write, rows = ONE_RECORD[statement]
    assert logged(write) == ([(0, rows)] if rows else [])


@pytest.mark.parametrize("column", ["m", "u"])
def test_a_collection_that_is_left_as_it_is_shows_nothing(column: str) -> None:
    """Not even the all-null value by which an edited UDT is shown."""
    assert logged(Write(WIDE).edit(1, column=column).update(1, v=5)) == [(0, [{"op": 1, "ck": 1, "v": 5}])]


# ---------------------------------------------------------------- several timestamps


SEVERAL_RECORDS: dict[str, tuple[Write, list[tuple[int, list[dict[str, Any]]]]]] = {
    "DELETE c is logged at T+1": (
        Write(WIDE).delete_collection(1, column="m"),
        [(1, [{"op": 1, "ck": 1, "deleted_m": True}])],
    ),
    "DELETE c, v is two records": (
        Write(WIDE).delete_collection(1, column="m").update(1, v=None),
        [(0, [{"op": 1, "ck": 1, "deleted_v": True}]), (1, [{"op": 1, "ck": 1, "deleted_m": True}])],
    ),
    "two INSERTs of one row: the marker moves to the later": (
        Write(WIDE).insert(1, a=1).using(T + 10).insert(1, b=2),
        [(0, [{"op": 1, "ck": 1, "a": 1}]), (10, [{"op": 2, "ck": 1, "b": 2}])],
    ),
    "statements given newest first come oldest first": (
        Write(WIDE).using(T + 10).update(1, a=1).using(T).update(2, a=2).using(T + 5).delete_row(3),
        [(0, [{"op": 1, "ck": 2, "a": 2}]), (5, [{"op": 3, "ck": 3}]), (10, [{"op": 1, "ck": 1, "a": 1}])],
    ),
    "every kind at each of two timestamps": (
        Write(WIDE)
        .static(s=1)
        .insert(1, v=1)
        .update(2, v=2)
        .delete_row(3)
        .using(T + 1)
        .delete_range(Bound(cks(4)), Bound(cks(6), inclusive=False))
        .delete_partition()
        .update(4, v=4),
        [
            (0, [{"op": 1, "s": 1}, {"op": 2, "ck": 1, "v": 1}, {"op": 1, "ck": 2, "v": 2}, {"op": 3, "ck": 3}]),
            (1, [{"op": 1, "ck": 4, "v": 4}, {"op": 5, "ck": 4}, {"op": 8, "ck": 6}, {"op": 4}]),
        ],
    ),
    "INSERT with a collection and TTL beside DELETE of another collection": (
        Write(WIDE).using(ttl=60).insert(1, m={1: 1}).delete_collection(1, column="n"),
        [
            (
                0,
                [
                    {"op": 2, "ck": 1, "ttl": 60},
                    {"op": 1, "ck": 1, "deleted_m": True},
                    {"op": 1, "ck": 1, "m": {1: 1}, "ttl": 60},
                ],
            ),
            (1, [{"op": 1, "ck": 1, "deleted_n": True}]),
        ],
    ),
}


@pytest.mark.parametrize("case", SEVERAL_RECORDS)
def test_records_of_several_timestamps(case: str) -> None:
    write, records = SEVERAL_RECORDS[case]
    assert logged(write) == records


def test_each_record_asks_for_its_own_stream() -> None:
    """On both sides of a switch of generations one mutation's records lie in different streams."""
    write = Write(WIDE).update(1, a=1).using(T + 10).update(1, b=2)
    asked: list[int] = []

    def stream_for(timestamp: int) -> bytes:
        asked.append(timestamp)
        return bytes([timestamp - T] * 16)

    rows = log_rows(write.mutation, log_of(WIDE), stream_for, lambda: 1, None)
    assert asked == [T, T + 10]
    assert [row.stream_id[0] for row in rows] == [0, 10]


def test_a_refused_timestamp_refuses_the_write() -> None:
    def refuse(_: int) -> bytes:
        raise InvalidRequest("from the past")

    with pytest.raises(InvalidRequest):
        log_rows(Write(WIDE).update(1, a=1).mutation, log_of(WIDE), refuse, lambda: 1, None)


# ---------------------------------------------------------------- what logs nothing


def test_an_empty_mutation_logs_nothing() -> None:
    assert logged(Write(WIDE)) == []


@pytest.mark.parametrize("column", ["m", "st", "l"])
def test_an_edit_without_elements_logs_nothing(column: str) -> None:
    assert logged(Write(WIDE).edit(1, column=column)) == []


def test_an_empty_range_logs_nothing() -> None:
    write = Write(WIDE).delete_range(Bound(cks(2), inclusive=False), Bound(cks(1), inclusive=False))
    assert logged(write) == []


# ---------------------------------------------------------------- delta: keys


@pytest.mark.parametrize("statement", ONE_RECORD)
def test_delta_keys_keeps_the_rows_and_only_their_keys(statement: str) -> None:
    write, rows = ONE_RECORD[statement]
    columns = write.base.columns
    base = table(*columns, delta="keys")
    short = Write(base)
    short.mutation = PartitionMutation(
        base,
        write.mutation.key,
        write.mutation.partition_tombstone,
        write.mutation.static_row,
        write.mutation.rows,
        write.mutation.range_tombstones,
    )
    kept = {"op", "ttl", *(c.name for c in base.clustering_key)}
    expected = [{name: value for name, value in row.items() if name in kept} for row in rows]
    assert logged(short) == ([(0, expected)] if rows else [])


# ---------------------------------------------------------------- ranges


OPEN = Bound()


def above(*key: int) -> Bound:
    return Bound(cks(*key), inclusive=False)


def at(*key: int) -> Bound:
    return Bound(cks(*key))


RANGES: dict[str, tuple[Write, list[dict[str, Any]]]] = {
    "ck > 1 AND ck < 5": (Write(WIDE).delete_range(above(1), above(5)), [{"op": 6, "ck": 1}, {"op": 8, "ck": 5}]),
    "ck >= 1 AND ck <= 5": (Write(WIDE).delete_range(at(1), at(5)), [{"op": 5, "ck": 1}, {"op": 7, "ck": 5}]),
    "ck < 3": (Write(WIDE).delete_range(OPEN, above(3)), [{"op": 5}, {"op": 8, "ck": 3}]),
    "ck >= 3": (Write(WIDE).delete_range(at(3), OPEN), [{"op": 5, "ck": 3}, {"op": 7}]),
    "ck1 = 0": (
        Write(compound()).delete_range(at(0), at(0)),
        [{"op": 5, "ck1": 0}, {"op": 7, "ck1": 0}],
    ),
    "ck1 = 0 AND ck2 > 0 AND ck2 < 3": (
        Write(compound()).delete_range(above(0, 0), above(0, 3)),
        [{"op": 6, "ck1": 0, "ck2": 0}, {"op": 8, "ck1": 0, "ck2": 3}],
    ),
    "ck1 = 0 AND ck2 > 0": (
        Write(compound()).delete_range(above(0, 0), at(0)),
        [{"op": 6, "ck1": 0, "ck2": 0}, {"op": 7, "ck1": 0}],
    ),
    "ck1 = 0 AND ck2 <= 3": (
        Write(compound()).delete_range(at(0), at(0, 3)),
        [{"op": 5, "ck1": 0}, {"op": 7, "ck1": 0, "ck2": 3}],
    ),
    "ck DESC, ck > 1 AND ck < 5": (
        Write(wide(descending=True)).delete_range(above(5), above(1)),
        [{"op": 6, "ck": 5}, {"op": 8, "ck": 1}],
    ),
    "two ranges, by position": (
        Write(WIDE).delete_range(at(7), at(9)).delete_range(at(1), at(3)),
        [{"op": 5, "ck": 1}, {"op": 7, "ck": 3}, {"op": 5, "ck": 7}, {"op": 7, "ck": 9}],
    ),
    "two ranges that overlap are one": (
        Write(WIDE).delete_range(at(1), at(5)).delete_range(above(3), at(9)),
        [{"op": 5, "ck": 1}, {"op": 7, "ck": 9}],
    ),
    "two ranges that touch are one": (
        Write(WIDE).delete_range(at(5), at(9)).delete_range(at(1), above(5)),
        [{"op": 5, "ck": 1}, {"op": 7, "ck": 9}],
    ),
}


@pytest.mark.parametrize("where", RANGES)
def test_rows_of_a_range_delete(where: str) -> None:
    write, rows = RANGES[where]
    assert logged(write) == [(0, rows)]


def test_a_newer_range_cuts_an_older_one() -> None:
    write = Write(WIDE).delete_range(at(1), at(9)).using(T + 1).delete_range(at(4), at(6))
    assert logged(write) == [
        (0, [{"op": 5, "ck": 1}, {"op": 8, "ck": 4}, {"op": 6, "ck": 6}, {"op": 7, "ck": 9}]),
        (1, [{"op": 5, "ck": 4}, {"op": 7, "ck": 6}]),
    ]
