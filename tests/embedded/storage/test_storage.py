"""Reconciliation, range tombstones and the two sorts of partitions."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storagebox import NOW_S, int_bytes, make_store, make_table

from rscylla.embedded.schema.tables import TableSchema
from rscylla.embedded.storage.mutation import (
    Bound,
    Cell,
    CollectionCells,
    Marker,
    PartitionMutation,
    RangeTombstone,
    RowMutation,
)
from rscylla.embedded.storage.partitions import Partition
from rscylla.embedded.storage.positions import HIGH, Descending, RangeTombstones, position_maker
from rscylla.embedded.storage.reconcile import merge_cell, merge_marker
from rscylla.embedded.types import TEXT

# ---------------------------------------------------------------- cells


PLAIN = Cell(b"a", 10)


@pytest.mark.parametrize(
    ("loser", "winner"),
    [
        (PLAIN, Cell(b"", 11)),
        (PLAIN, Cell(None, 11)),
        (PLAIN, Cell(None, 10)),
        (PLAIN, Cell(b"", 10, 5, 100)),
        (Cell(b"z", 10, 5, 100), Cell(b"a", 10, 6, 101)),
        (Cell(b"z", 10, 6, 100), Cell(b"a", 10, 5, 100)),
        (PLAIN, Cell(b"b", 10)),
        (PLAIN, Cell(b"\xff", 10)),
    ],
)
def test_the_same_cell_wins_in_either_order(loser: Cell, winner: Cell) -> None:
    assert winner == merge_cell(loser, winner)
    assert winner == merge_cell(winner, loser)


def test_row_marker_that_expires_later_wins_a_tie() -> None:
    sooner, later, plain = Marker(10, 5, 100), Marker(10, 6, 101), Marker(10)
    assert later == merge_marker(sooner, later) == merge_marker(later, sooner)
    assert sooner == merge_marker(plain, sooner) == merge_marker(sooner, plain)


# ---------------------------------------------------------------- order of arrival does not matter


CELLS = st.builds(
    lambda value, timestamp, expiry: Cell(value, timestamp, 7 if expiry and value else 0, expiry if value else None),
    st.sampled_from([None, b"a", b"b"]),
    st.integers(1, 4),
    st.sampled_from([None, 900, 1100]),
)


ROWS = st.builds(
    RowMutation,
    marker=st.none() | st.builds(Marker, st.integers(1, 4)),
    cells=st.dictionaries(st.sampled_from(["v", "w"]), CELLS, max_size=2),
    tombstone=st.none() | st.integers(1, 4),
)


KEYS = st.integers(0, 4).map(lambda number: (int_bytes(number),))


BOUNDS = st.builds(Bound, st.just(()) | KEYS, st.booleans())


MUTATIONS = st.builds(
    lambda rows, ranges, tombstone: PartitionMutation(
        make_table(), (int_bytes(1),), tombstone, None, rows, [RangeTombstone(*r) for r in ranges]
    ),
    st.dictionaries(KEYS, ROWS, max_size=3),
    st.lists(st.tuples(BOUNDS, BOUNDS, st.integers(1, 4)), max_size=2),
    st.sampled_from([None, None, None, 1, 2, 3]),
)


def live_state(mutations: Any) -> dict[Any, Any]:
    store = make_store(make_table())
    for mutation in mutations:
        store.apply(mutation)
    partition = store.get((int_bytes(1),))
    if partition is None:
        return {}
    assert isinstance(partition, Partition)
    return {
        key: {
            name: cell
            for name, cell in row.cells.items()
            if isinstance(cell, Cell) and cell.value is not None and (cell.expiry is None or cell.expiry > NOW_S)
        }
        | ({"marker": row.marker} if row.marker else {})
        for key, row in partition.entries()
        if Partition.is_live(row, NOW_S)
    }


@given(st.lists(MUTATIONS, min_size=2, max_size=3))
def test_mutations_commute(mutations: list[PartitionMutation]) -> None:
    """Whatever the order in which writes arrive, the same data is live in the end."""
    expected = live_state(mutations)
    for order in itertools.permutations(mutations):
        assert expected == live_state(order)


@given(st.lists(MUTATIONS, min_size=1, max_size=3))
def test_mutations_are_idempotent(mutations: list[PartitionMutation]) -> None:
    assert live_state(mutations) == live_state([*mutations, *mutations])


# ---------------------------------------------------------------- range tombstones


def covers(tombstone: RangeTombstone, number: int) -> bool:
    """The plain meaning of bounds on one ascending int column."""
    start, end = tombstone.start, tombstone.end
    if start.prefix:
        low = int.from_bytes(start.prefix[0], "big")
        if number < low or (number == low and not start.inclusive):
            return False
    if end.prefix:
        high = int.from_bytes(end.prefix[0], "big")
        if number > high or (number == high and not end.inclusive):
            return False
    return True


SOUND_BOUNDS = st.just(Bound()) | st.builds(Bound, KEYS, st.booleans())


@given(st.lists(st.builds(RangeTombstone, SOUND_BOUNDS, SOUND_BOUNDS, st.integers(1, 3)), max_size=5))
def test_range_tombstones_are_disjoint_and_keep_the_newest(given_ranges: list[RangeTombstone]) -> None:
    ranges = RangeTombstones(position_maker(make_table()))
    for tombstone in given_ranges:
        ranges.add(tombstone)
    for number in range(-1, 7):
        expected = max((t.timestamp for t in given_ranges if covers(t, number)), default=None)
        assert expected == ranges.covering((number,))
        # The tombstones handed to the CDC log say the same as the intervals used for reading.
        stored = [t.timestamp for t in ranges.as_list() if covers(t, number)]
        assert stored == ([] if expected is None else [expected])


def test_touching_ranges_of_one_time_become_one() -> None:
    ranges = RangeTombstones(position_maker(make_table()))
    ranges.add(RangeTombstone(Bound((int_bytes(1),)), Bound((int_bytes(3),), inclusive=False), 5))
    ranges.add(RangeTombstone(Bound((int_bytes(3),)), Bound((int_bytes(6),)), 5))
    assert [RangeTombstone(Bound((int_bytes(1),)), Bound((int_bytes(6),)), 5)] == ranges.as_list()


def test_prefix_bounds_surround_all_rows_of_the_prefix() -> None:
    position = position_maker(make_table(depth=2))
    row = position((int_bytes(1), int_bytes(9)))
    assert position((int_bytes(1),)) < row < (*position((int_bytes(1),)), HIGH)


def test_descending_keys_compare_the_other_way_round() -> None:
    assert Descending("b") < Descending("a")
    assert Descending("a") <= Descending("a")
    assert min(Descending("a"), Descending("c")).key == "c"
    assert Descending("a") < HIGH
    position = position_maker(make_table(descending=True))
    assert position((int_bytes(2),)) < position((int_bytes(1),))


# ---------------------------------------------------------------- deletions


def insert(key: int, timestamp: int, **cells: bytes) -> PartitionMutation:
    row = RowMutation(Marker(timestamp), {name: Cell(value, timestamp) for name, value in cells.items()})
    return PartitionMutation(make_table(), (int_bytes(1),), rows={(int_bytes(key),): row})


def test_an_older_write_does_not_bring_deleted_rows_back() -> None:
    store = make_store(make_table())
    deletion = RangeTombstone(Bound((int_bytes(1),)), Bound((int_bytes(3),)), 10)
    store.apply(PartitionMutation(make_table(), (int_bytes(1),), range_tombstones=[deletion]))
    store.apply(insert(2, 9, v=b"old"))
    store.apply(insert(3, 11, v=b"new"))
    partition = store.get((int_bytes(1),))
    assert isinstance(partition, Partition)
    assert [(int_bytes(3),)] == [key for key, row in partition.entries() if Partition.is_live(row, NOW_S)]


def test_a_column_dropped_and_added_again_is_empty() -> None:
    table = make_table()
    store = make_store(table)
    store.apply(insert(1, 10, v=b"old"))
    store.set_table(TableSchema("ks", "t", table.id, uuid.uuid4(), table.columns, dropped={"v": (TEXT, 20)}))
    store.apply(insert(1, 15, v=b"late"))
    store.apply(insert(2, 30, v=b"new"))
    partition = store.get((int_bytes(1),))
    assert isinstance(partition, Partition)
    assert [{}, {"v": Cell(b"new", 30)}] == [row.cells for _, row in partition.entries()]


def test_garbage_is_let_go_after_gc_grace() -> None:
    store = make_store(make_table())
    store.apply(PartitionMutation(make_table(), (int_bytes(1),), rows={(int_bytes(1),): RowMutation(tombstone=5)}))
    store.forget(864_000)
    partition = store.get((int_bytes(1),))
    assert partition is not None
    assert len(partition.positions) == 1
    store.forget(864_001)
    assert not partition.positions


def test_expired_rows_are_let_go_after_gc_grace() -> None:
    store = make_store(make_table())
    row = RowMutation(Marker(1, 5, 100), {"v": Cell(b"x", 1, 5, 100)})
    store.apply(PartitionMutation(make_table(), (int_bytes(1),), rows={(int_bytes(1),): row}))
    store.apply(insert(2, 1, v=b"stays"))
    store.forget(864_100)
    partition = store.get((int_bytes(1),))
    assert isinstance(partition, Partition)
    assert [key for key, _ in partition.entries()] == [(int_bytes(2),)]


def test_dead_elements_do_not_make_a_row_live() -> None:
    row = RowMutation(cells={"m": CollectionCells(5, {b"k": Cell(None, 6)})})
    assert not Partition.is_live(row, NOW_S)
    row.cells["m"] = CollectionCells(5, {b"k": Cell(b"x", 6, 1, NOW_S)})
    assert not Partition.is_live(row, NOW_S)
    row.cells["m"] = CollectionCells(5, {b"k": Cell(b"x", 6, 1, NOW_S + 1)})
    assert Partition.is_live(row, NOW_S)
