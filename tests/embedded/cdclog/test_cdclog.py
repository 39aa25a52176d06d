"""The log rows of each write: a case for every form of statement and every kind of range bound."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import attrs
import pytest
from cdc_mutations import UDT, LogRow, T, Write, cks, compound, log_of, log_rows, logged, single, table, wide
from hypothesis import example, given
from hypothesis import strategies as st

from rscylla.embedded.cdclog import log as cdclog
from rscylla.embedded.cdclog.log import (
    altered_cdc_options,
    cdc_options,
    extension_bytes,
    log_columns,
    log_options,
    option_map,
)
from rscylla.embedded.errors import ConfigError, CqlError, InvalidRequest, ServerError
from rscylla.embedded.schema.tables import CdcOptions, Column
from rscylla.embedded.storage.mutation import Bound, Cell, PartitionMutation, PlainRow, RowMutation
from rscylla.embedded.storage.rowpacking import shape_of
from rscylla.embedded.types import DURATION, INT, TEXT, ListType, SetType, parse_type

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


# ---------------------------------------------------------------- nothing is lost


def atoms_of_mutation(write: Write) -> set[tuple[Any, ...]]:
    """Everything a mutation of the wide table says, one fact at a time: (row, fact, timestamp, ttl)."""
    out: set[tuple[Any, ...]] = set()
    rows = [(("ck", INT.decode(key[0])), row) for key, row in write.mutation.rows.items()]
    if write.mutation.static_row is not None:
        rows.append((("static", None), write.mutation.static_row))
    for where, row in rows:
        if row.marker is not None:
            out.add((where, "marker", row.marker.timestamp, row.marker.ttl))
        if row.tombstone is not None:
            out.add((where, "deleted", row.tombstone, 0))
        for name, cell in row.cells.items():
            if isinstance(cell, Cell):
                what = "null" if cell.value is None else INT.decode(cell.value)
                out.add((where, name, what, cell.timestamp, cell.ttl))
                continue
            if cell.tombstone is not None:
                out.add((where, name, "cleared", cell.tombstone + 1, 0))
            for key, element in cell.cells.items():
                what = "null" if element.value is None else element.value
                out.add((where, name, key, what, element.timestamp, element.ttl))
    if write.mutation.partition_tombstone is not None:
        out.add(("partition", write.mutation.partition_tombstone))
    return out


def atoms_of_log(rows: list[LogRow]) -> list[tuple[Any, ...]]:
    """The same facts, read back from log rows."""
    log = log_of(WIDE)
    out: list[tuple[Any, ...]] = []
    for row in rows:
        stamp = row.timestamp
        values = row.values
        [operation] = values["cdc$operation"]
        ttl = struct.unpack(">q", values["cdc$ttl"])[0] if "cdc$ttl" in values else 0
        if operation == 4:
            out.append(("partition", stamp))
            continue
        where = ("ck", INT.decode(values["ck"])) if "ck" in values else ("static", None)
        if operation == 2:
            out.append((where, "marker", stamp, ttl))
        if operation == 3:
            out.append((where, "deleted", stamp, 0))
        for column in (*WIDE.static_columns, *WIDE.regular_columns):
            name = column.name
            value = values.get(name)
            if not column.type.is_multicell:
                if value is not None:
                    out.append((where, name, INT.decode(value), stamp, ttl))
                if "cdc$deleted_" + name in values:
                    out.append((where, name, "null", stamp, 0))
                continue
            if "cdc$deleted_" + name in values:
                out.append((where, name, "cleared", stamp, 0))
            gone = values.get("cdc$deleted_elements_" + name)
            if gone is not None:
                keys = log.by_name["cdc$deleted_elements_" + name].type
                assert isinstance(keys, SetType)
                out += [(where, name, key, "null", stamp, 0) for key in keys.split(gone)]
            if value is None:
                continue
            kind = log.by_name[name].type
            if kind.name == "frozen<pair>":
                fields = enumerate(kind.split(value))  # type: ignore[attr-defined]
                out += [(where, name, n.to_bytes(2, "big"), f, stamp, ttl) for n, f in fields if f is not None]
            elif isinstance(kind, SetType):
                out += [(where, name, key, b"", stamp, ttl) for key in kind.split(value)]
            else:
                out += [(where, name, *pair, stamp, ttl) for pair in kind.split(value)]  # type: ignore[attr-defined]
    return out


small = st.integers(0, 2)
maps = st.one_of(st.none(), st.dictionaries(small, small, max_size=2))
assignments = st.fixed_dictionaries(
    {},
    optional={
        "a": st.one_of(st.none(), small),
        "v": st.one_of(st.none(), small),
        "m": maps,
        "l": maps,
        "st": st.one_of(st.none(), st.sets(small)),
        "u": st.one_of(st.none(), st.fixed_dictionaries({}, optional={"x": st.one_of(st.none(), small)})),
    },
)
statements = st.one_of(
    st.tuples(st.just("insert"), small, assignments),
    st.tuples(st.just("update"), small, assignments),
    st.tuples(st.just("edit"), small, st.sampled_from(["m", "st", "l"]), st.sets(small), st.sets(small)),
    st.tuples(st.just("static"), st.one_of(st.none(), small), maps),
    st.tuples(st.just("delete_row"), small),
    st.tuples(st.just("delete_collection"), small, st.sampled_from(["m", "l", "u"])),
    st.tuples(st.just("delete_partition")),
)
stamps = st.tuples(st.sampled_from([0, 0, 0, 1, 7]), st.sampled_from([0, 0, 60, 90]))


def apply(write: Write, statement: tuple[Any, ...]) -> None:
    kind, *rest = statement
    if kind in ("insert", "update"):
        getattr(write, kind)(rest[0], **rest[1])
    elif kind == "edit":
        ck, column, add, remove = rest
        added = add if column == "st" else dict.fromkeys(add, 1)
        write.edit(ck, column=column, add=added, remove=remove - add)
    elif kind == "static":
        write.static(s=rest[0], sm=rest[1])
    elif kind == "delete_collection":
        write.delete_collection(rest[0], column=rest[1])
    else:
        getattr(write, kind)(*rest)


@given(st.lists(st.tuples(stamps, statements), max_size=6))
def test_every_fact_of_a_mutation_is_logged_once_and_nothing_else(batch: list[Any]) -> None:
    write = Write(WIDE)
    for (offset, ttl), statement in batch:
        apply(write.using(T + offset, ttl), statement)
    seeds = iter(range(1000))
    rows = log_rows(write.mutation, log_of(WIDE), lambda _: bytes(16), lambda: next(seeds), None)
    found = atoms_of_log(rows)
    assert len(found) == len(set(found))
    assert set(found) == atoms_of_mutation(write)
    records = {row.time: row.timestamp for row in rows}
    assert sorted(set(records.values())) == list(records.values()), "a record for each timestamp, ascending"
    logged(write)


# ---------------------------------------------------------------- the log table


def test_columns_of_the_log() -> None:
    """Key columns first, then all others by name; collections as frozen values with their sets of removed keys."""
    found = [(c.name, c.type.name, c.kind) for c in log_columns(WIDE)]
    assert found[:3] == [
        ("cdc$stream_id", "blob", "partition_key"),
        ("cdc$time", "timeuuid", "clustering"),
        ("cdc$batch_seq_no", "int", "clustering"),
    ]
    assert {kind for _, _, kind in found[3:]} == {"regular"}
    assert [name for name, _, _ in found[3:]] == sorted(name for name, _, _ in found[3:])
    assert {name: text for name, text, _ in found[3:]} == {
        "cdc$operation": "tinyint",
        "cdc$ttl": "bigint",
        "cdc$end_of_batch": "boolean",
        "pk": "int",
        "ck": "int",
        **dict.fromkeys(("a", "b", "s", "v"), "int"),
        **{f"cdc$deleted_{n}": "boolean" for n in ("a", "b", "l", "m", "n", "s", "sm", "st", "u", "v")},
        "l": "frozen<map<timeuuid, int>>",
        "m": "frozen<map<int, int>>",
        "n": "frozen<map<int, int>>",
        "sm": "frozen<map<int, int>>",
        "st": "frozen<set<int>>",
        "u": "frozen<pair>",
        "cdc$deleted_elements_l": "frozen<set<timeuuid>>",
        "cdc$deleted_elements_m": "frozen<set<int>>",
        "cdc$deleted_elements_n": "frozen<set<int>>",
        "cdc$deleted_elements_sm": "frozen<set<int>>",
        "cdc$deleted_elements_st": "frozen<set<int>>",
        "cdc$deleted_elements_u": "frozen<set<smallint>>",
    }


def test_atomic_columns_keep_their_type() -> None:
    kinds = [
        ListType(INT, frozen=True),
        UDT.freeze(),
        DURATION,
        parse_type("tuple<int, text>", lambda name: UDT),
        parse_type("vector<float, 3>", lambda name: UDT),
    ]
    columns = [Column(f"c{n}", kind, "regular") for n, kind in enumerate(kinds)]
    made = log_columns(table(Column("pk", TEXT, "partition_key", 0), *columns))
    assert [c.type for c in made if c.name.startswith("c") and "$" not in c.name] == kinds
    assert not [c.name for c in made if c.name.startswith("cdc$deleted_elements")]


def test_a_base_column_named_as_the_log_names_its_own_is_refused() -> None:
    base = table(Column("pk", INT, "partition_key", 0), Column("cdc$time", INT, "regular"))
    with pytest.raises(InvalidRequest, match=r"cdc\$time"):
        log_columns(base)


@pytest.mark.parametrize(
    ("ttl", "minutes", "frequency"),
    [(86400, "60", "1800"), (1, "1", "1"), (100, "1", "2"), (3600, "3", "75"), (172800, "120", "3600")],
)
def test_compaction_of_the_log_follows_the_ttl(ttl: int, minutes: str, frequency: str) -> None:
    options = log_options(wide(ttl=ttl))
    assert options["compaction"] == {
        "class": "TimeWindowCompactionStrategy",
        "compaction_window_size": minutes,
        "compaction_window_unit": "MINUTES",
        "expired_sstable_check_frequency_seconds": frequency,
    }
    assert options["gc_grace_seconds"] == 0


def test_a_log_that_keeps_its_rows_has_plain_compaction_and_grace() -> None:
    options = log_options(wide(ttl=0))
    assert options["compaction"] == {"class": "TimeWindowCompactionStrategy"}
    assert options["gc_grace_seconds"] == 864000
    assert options["comment"] == "CDC log for ks.t"


# ---------------------------------------------------------------- the cdc option


def test_defaults_of_the_option() -> None:
    assert cdc_options({}) == CdcOptions()
    assert cdc_options({"enabled": "true"}) == CdcOptions(enabled=True, ttl=86400, delta="full")


@pytest.mark.parametrize(
    ("given_map", "expected"),
    [
        ({"ENABLED": "TRUE"}, CdcOptions(enabled=True)),
        ({"enabled": "1", "preimage": "0", "postimage": "1"}, CdcOptions(enabled=True, postimage=True)),
        ({"preimage": "Full"}, CdcOptions(preimage="full")),
        ({"preimage": "true"}, CdcOptions(preimage="true")),
        ({"delta": "keys"}, CdcOptions(delta="keys")),
        ({"ttl": "0"}, CdcOptions(ttl=0)),
        ({"ttl": "+60x"}, CdcOptions(ttl=60)),
        ({"ttl": "2147483647"}, CdcOptions(ttl=2147483647)),
        ({"enable_requested": "true"}, CdcOptions()),
    ],
)
def test_accepted_options(given_map: dict[str, str], expected: CdcOptions) -> None:
    assert cdc_options(given_map) == expected


@pytest.mark.parametrize(
    ("given_map", "message"),
    [
        ({"enabled": "yes"}, 'Invalid value for CDC option "enabled": yes'),
        ({"enabled": "full"}, 'Invalid value for CDC option "enabled": full'),
        ({"preimage": "some"}, 'Invalid value for CDC option "preimage": some'),
        ({"postimage": "full"}, 'Invalid value for CDC option "postimage": full'),
        ({"delta": "none"}, 'Invalid value for CDC option "delta": none'),
        ({"ttl": "soon"}, 'Invalid value for CDC option "ttl": soon'),
        ({"ttl": ""}, 'Invalid value for CDC option "ttl": '),
        ({"ttl": "2147483648"}, "Invalid CDC option: ttl too large"),
        ({"ttl": "9" * 5000}, "Invalid CDC option: ttl too large"),
        ({"ttl": "-1"}, "Invalid CDC option: ttl must be >= 0"),
        ({"enable_requested": "maybe"}, 'Invalid value for CDC option "enable_requested": maybe'),
        ({"speed": "high"}, "Invalid CDC option: speed"),
    ],
)
def test_refused_options(given_map: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cdc_options(given_map)
    assert (caught.value.code, caught.value.message) == (0x2300, message)


def test_an_option_that_is_not_a_map_is_a_server_error() -> None:
    with pytest.raises(ServerError):
        cdc_options("x")


def test_alter_must_name_enabled() -> None:
    with pytest.raises(CqlError) as caught:
        altered_cdc_options({"ttl": "5"})
    assert caught.value.code == 0x2200
    assert caught.value.message == 'Altering CDC options requires specifying "enabled" flag'
    assert altered_cdc_options({"Enabled": "false"}) == CdcOptions()


def test_the_stored_form_has_all_five_keys_in_order() -> None:
    """Read back the way the driver-side reader does: counts and lengths are little-endian."""
    raw = extension_bytes(option_map(CdcOptions(enabled=True, preimage="full", delta="keys", ttl=7)))
    (count,) = struct.unpack_from("<I", raw)
    texts, offset = [], 4
    for _ in range(2 * count):
        (size,) = struct.unpack_from("<I", raw, offset)
        texts.append(raw[offset + 4 : offset + 4 + size].decode())
        offset += 4 + size
    assert offset == len(raw)
    assert texts == ["delta", "keys", "enabled", "true", "postimage", "false", "preimage", "full", "ttl", "7"]


def test_the_time_of_a_record_is_exact_and_random_below() -> None:
    first, second = (uuid.UUID(bytes=cdclog.record_time(T + 3, bits)) for bits in (0, (1 << 64) - 1))
    assert [(u.time - 0x01B21DD213814000) / 10 for u in (first, second)] == [T + 3, T + 3]
    assert (first.bytes[8:].hex(), second.bytes[8:].hex()) == ("8000000000000000", "bfffffffffffffff")


def test_a_table_without_cdc_has_no_log_rows() -> None:
    base = table(*WIDE.columns)
    off = type(base)(base.keyspace, base.name, base.id, base.version, base.columns)
    with pytest.raises(ValueError, match="no CDC"):
        log_rows(PartitionMutation(off, cks(1)), log_of(WIDE), lambda _: b"", lambda: 0, None)


# ---------------------------------------------------------------- plain rows

PLAIN_OF_WIDE = st.tuples(
    st.booleans(),
    st.sampled_from([("v",), ("a", "v"), ("v", "b", "a"), ()]),
    st.lists(st.none() | st.integers(0, 9).map(INT.encode), min_size=3, max_size=3),
    st.sampled_from([7, 7, 8]),
    st.sampled_from([0, 0, 60]),
)


@given(
    rows=st.dictionaries(st.integers(0, 5), PLAIN_OF_WIDE, min_size=1, max_size=4),
    delta=st.sampled_from(["full", "keys"]),
    images=st.booleans(),
)
@example(  # inserts come first where there are several TTLs
    rows={0: (False, ("v",), [b"\0\0\0\1"] * 3, 7, 60), 1: (True, ("v",), [b"\0\0\0\1"] * 3, 7, 0)},
    delta="full",
    images=False,
)
def test_plain_rows_are_logged_as_their_cells_are(
    rows: dict[int, tuple[bool, tuple[str, ...], list[bytes | None], int, int]], delta: str, images: bool
) -> None:
    options = CdcOptions(enabled=True, delta=delta, preimage="full" if images else "false", postimage=images)
    base = attrs.evolve(WIDE, cdc=options)

    def write(*, plain: bool) -> PartitionMutation:
        out = PartitionMutation(base, (INT.encode(1),))
        for ck, (has_marker, names, values, time, ttl) in rows.items():
            written = [b"\0\0\0\1" if ttl and value is None else value for value in values[: len(names)]]
            row = PlainRow(shape_of(has_marker or not names, *names), time, ttl, 60 + ttl if ttl else None, written)
            out.rows[INT.encode(ck),] = row if plain else RowMutation(row.marker, row.cells)
        return out

    class Before:
        def row(self, key: Any) -> dict[str, bytes]:
            return {"v": b"\0\0\0\5"}

        def static_row(self) -> None:
            return None

    log = log_of(base)
    found = [
        [
            (record.stream_id, record.time, record.timestamp, record.wires)
            for record in cdclog.LogWriter(base, log).records(
                write(plain=plain), lambda _: b"s" * 16, lambda _: 5, Before() if images else None
            )
        ]
        for plain in (True, False)
    ]
    assert found[0] == found[1]
    assert found[0]
