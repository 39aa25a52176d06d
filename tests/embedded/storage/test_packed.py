"""Partitions of a log as finished bytes."""

from __future__ import annotations

import marshal
import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storagebox import NOW_S, int_bytes, make_store, make_table

from rscylla.embedded.schema.tables import Column, TableSchema
from rscylla.embedded.storage.mutation import (
    Cell,
    CollectionCells,
    Marker,
    PartitionMutation,
    PlainRow,
    RowMutation,
    columns_of,
)
from rscylla.embedded.storage.packed import PackedPartition, Stamp, cut_row, join_row
from rscylla.embedded.storage.partitions import Partition, TableStore
from rscylla.embedded.storage.positions import HIGH, position_maker
from rscylla.embedded.storage.rowpacking import pack_row, row_state, shape_of, unpack_row
from rscylla.embedded.storage.tokens import key_bytes
from rscylla.embedded.types import BLOB, INT, TEXT, TIMEUUID


def insert(key: int, timestamp: int, **cells: bytes) -> PartitionMutation:
    row = RowMutation(Marker(timestamp), {name: Cell(value, timestamp) for name, value in cells.items()})
    return PartitionMutation(make_table(), (int_bytes(1),), rows={(int_bytes(key),): row})


def log_table(*regular: str, dropped: dict[str, Any] | None = None) -> TableSchema:
    columns = (
        Column("cdc$stream_id", BLOB, "partition_key", 0),
        Column("cdc$time", TIMEUUID, "clustering", 0),
        Column("cdc$batch_seq_no", INT, "clustering", 1),
        *(Column(name, TEXT, "regular") for name in regular),
    )
    return TableSchema("ks", "log", uuid.UUID(int=3), uuid.uuid4(), columns, is_cdc_log=True, dropped=dropped or {})


STREAM = b"s" * 16


def log_key(ticks: int, seq: int = 0) -> tuple[bytes, bytes]:
    return uuid.UUID(fields=(ticks, 0, 0x1000, 0x80, 0, 0)).bytes, int_bytes(seq)


def log_wire(
    store: TableStore, key: tuple[bytes, ...], clustering: tuple[bytes, ...], values: dict[str, bytes]
) -> bytes:
    cells = [values.get(column.name) for column in store.table.regular_columns]
    return join_row([*key, *clustering, *cells])


def append(
    store: TableStore, key: tuple[bytes, ...], clustering: tuple[bytes, ...], values: dict[str, bytes], stamp: Stamp
) -> None:
    store.append_log(key, clustering, log_wire(store, key, clustering, values), stamp)


def packed(store: TableStore) -> PackedPartition:
    partition = store.get((STREAM,))
    assert isinstance(partition, PackedPartition)
    return partition


def wires(store: TableStore) -> list[bytes]:
    partition = packed(store)
    return partition.wires(0, len(partition))


def test_rows_cut_and_join_back() -> None:
    cells = [b"", None, b"abc", None, b"\x00" * 300]
    assert cells == cut_row(join_row(cells))


def test_log_rows_are_kept_in_time_order_as_finished_bytes() -> None:
    store = make_store(log_table("v"))
    for ticks in (3, 1, 2):
        append(store, (STREAM,), log_key(ticks), {"v": b"%d" % ticks}, (ticks, 0, None))
    assert [cut_row(wire)[3] for wire in wires(store)] == [b"1", b"2", b"3"]


def test_log_rows_follow_a_change_of_columns() -> None:
    store = make_store(log_table("a", "b"))
    append(store, (STREAM,), log_key(1), {"a": b"1", "b": b"2"}, (10, 0, None))
    store.set_table(log_table("b", "c"))
    assert [cut_row(wire)[3:] for wire in wires(store)] == [[b"2", None]]
    store.set_table(log_table("a", "b", dropped={"a": (TEXT, 20)}))
    assert [cut_row(wire)[3:] for wire in wires(store)] == [[None, b"2"]]


def test_a_log_column_that_is_added_again_at_once_does_not_show_dropped_values() -> None:
    """Also when nothing was read or written between the two changes."""
    store = make_store(log_table("a"))
    append(store, (STREAM,), log_key(1), {"a": b"1"}, (10, 0, None))
    store.set_table(log_table())
    store.set_table(log_table("a", dropped={"a": (TEXT, 20)}))
    assert [cut_row(wire)[3:] for wire in wires(store)] == [[None]]


def test_expired_log_rows_are_let_go() -> None:
    store = make_store(log_table("v"))
    append(store, (STREAM,), log_key(1), {"v": b"a"}, (1, 5, 100))
    append(store, (STREAM,), log_key(2), {"v": b"b"}, (2, 9, 200))
    store.forget(100)
    assert [cut_row(wire)[3] for wire in wires(store)] == [b"b"]
    store.forget(200)
    assert store.get((STREAM,)) is None


def test_the_same_log_row_again_changes_nothing() -> None:
    store = make_store(log_table("v"))
    for _ in range(2):
        append(store, (STREAM,), log_key(1), {"v": b"a"}, (1, 0, None))
    assert [cut_row(wire)[3] for wire in wires(store)] == [b"a"]


def test_editing_the_log_by_hand_keeps_its_rows() -> None:
    store = make_store(log_table("v"))
    append(store, (STREAM,), log_key(1), {"v": b"a"}, (1, 0, None))
    edit = RowMutation(cells={"v": Cell(b"edited", 2)})
    store.apply(PartitionMutation(store.table, (STREAM,), rows={log_key(1): edit}))
    append(store, (STREAM,), log_key(2), {"v": b"b"}, (3, 0, None))
    partition = store.get((STREAM,))
    assert isinstance(partition, Partition)
    assert [{"v": Cell(b"edited", 2)}, {"v": Cell(b"b", 3)}] == [row.cells for _, row in partition.entries()]


LOG_ROWS = st.lists(
    st.tuples(
        st.integers(0, 40),  # ticks
        st.integers(0, 2),  # seq
        st.binary(max_size=12),
        st.sampled_from([(0, None), (5, 100), (9, 200)]),
    ),
    max_size=60,
    unique_by=lambda row: row[:2],
)


PLACES = st.tuples(st.integers(0, 41), st.integers(0, 2), st.booleans())


@given(st.lists(st.tuples(st.integers(0, 9), st.lists(st.binary(max_size=3), min_size=1, max_size=5)), max_size=8))
def test_the_rows_of_a_record_are_added_as_each_of_them_is(records: list[tuple[int, list[bytes]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rscylla.embedded.storage.packed._BLOCK_ROWS", 3)
        stores = [make_store(log_table("v")) for _ in range(2)]
        seen: set[int] = set()
        for ticks, values in records:
            # A record that comes again is the same.
            rows = values if ticks not in seen else []
            seen.add(ticks)
            wires = [join_row([STREAM, *log_key(ticks, seq), value]) for seq, value in enumerate(rows)]
            stamp = (ticks * 3, 5, 100 + ticks)
            if wires:
                stores[0].append_record((STREAM,), log_key(ticks)[0], wires, stamp)
                stores[0].append_record((STREAM,), log_key(ticks)[0], wires, stamp)
            for seq, wire in enumerate(wires):
                stores[1].append_log((STREAM,), log_key(ticks, seq), wire, stamp)
        if records:
            one, other = map(packed, stores)
            count = len(other)
            assert list(one.entries(0, count)) == list(other.entries(0, count))
            assert [one.position(at) for at in range(len(one))] == [other.position(at) for at in range(count)]
            for now_s in range(100, 111):
                assert one.has_expired(now_s) == other.has_expired(now_s)


@given(LOG_ROWS, st.lists(PLACES, min_size=2, max_size=2), st.integers(1, 400), st.sampled_from([50, 100, 200]))
def test_blocks_of_log_rows_are_like_one_list_of_them(
    rows: list[Any], places: list[Any], room: int, now_s: int
) -> None:
    """In whatever order rows come, and however small the blocks are."""
    position = position_maker(log_table("v"))
    expected = sorted(
        (
            (position(log_key(ticks, seq)), join_row([STREAM, *log_key(ticks, seq), value]), (ticks * 3, *life))
            for ticks, seq, value, life in rows
        ),
        key=lambda row: row[0],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rscylla.embedded.storage.packed._BLOCK_ROWS", 3)
        store = make_store(log_table("v"))
        for ticks, seq, value, life in rows:
            append(store, (STREAM,), log_key(ticks, seq), {"v": value}, (ticks * 3, *life))
        store.forget(now_s)
        expected = [row for row in expected if row[2][2] is None or row[2][2] > now_s]
        partition = store.get((STREAM,))
        if not expected:
            assert partition is None
            return
        assert isinstance(partition, PackedPartition)
        # After a change of the columns, and one back, they are the same bytes.
        store.set_table(log_table("u", "v"))
        store.get((STREAM,))
        store.set_table(log_table("v"))
        store.get((STREAM,))
    bounds = sorted((*position(log_key(ticks, seq)), *[HIGH] * above) for ticks, seq, above in places)
    low, high = (sum(row[0] < bound for row in expected) for bound in bounds)
    wires = [row[1] for row in expected]
    assert [(row[1], row[2]) for row in expected] == list(partition.entries(0, len(partition)))
    assert [low, high] == [partition.find(bound) for bound in bounds]
    assert [at + 1 for at in range(len(expected))] == [partition.find_after(row[0]) for row in expected]
    assert [row[0] for row in expected] == [partition.position(at) for at in range(len(partition))]
    assert wires[low:high] == partition.wires(low, high)
    assert b"".join(wires[low:high]) == b"".join(partition.joined(low, high))
    fitting = partition.fitting(low, high, room)
    assert sum(map(len, wires[low : max(low, fitting - 1)])) < room
    assert fitting == high or sum(map(len, wires[low:fitting])) >= room
    assert not partition.append(*expected[0])


# Few values, so that often all parts of a row were written alike, or all but one.
WRITTEN = (st.integers(1, 2), st.sampled_from([0, 7]), st.sampled_from([None, 900]))


LIKE_CELLS = st.builds(Cell, st.sampled_from([None, b"a"]), *WRITTEN)


COLLECTIONS = st.builds(CollectionCells, st.none() | st.integers(1, 2), st.dictionaries(st.binary(), LIKE_CELLS))


NAMES = st.sampled_from(["v", "w"])


PACKED_ROWS = st.builds(
    RowMutation,
    marker=st.none() | st.builds(Marker, *WRITTEN),
    cells=st.dictionaries(NAMES, LIKE_CELLS) | st.dictionaries(NAMES, LIKE_CELLS | COLLECTIONS),
    tombstone=st.sampled_from([None, None, 1]),
)


@given(st.lists(st.binary(max_size=4), max_size=3).map(tuple), PACKED_ROWS)
def test_a_row_is_unpacked_as_it_was_packed(key: tuple[bytes, ...], row: RowMutation) -> None:
    found, unpacked = unpack_row(*pack_row(key, row))
    assert (found, row_state(unpacked)) == (key, row_state(row))
    assert [Partition.is_live(each, 900) for each in (unpacked, row)] == [Partition.is_live(row, 900)] * 2
    assert (found, as_cells(unpacked)) == (key, row)


def as_cells(row: RowMutation) -> RowMutation:
    """Return a row that is not plain."""
    return RowMutation(row.marker, row.cells, row.tombstone)


PLAIN_ROWS = st.builds(
    PlainRow,
    st.builds(lambda has_marker, names: shape_of(has_marker, *names), st.booleans(), st.lists(NAMES, unique=True)),
    st.integers(1, 2),
    st.just(0),
    st.none(),
    st.lists(st.sampled_from([None, b"a"]), min_size=2, max_size=2),
)


@given(PLAIN_ROWS)
def test_a_plain_row_is_packed_as_its_cells_are(row: PlainRow) -> None:
    assert row.shape is not None
    has_marker, names = row.shape
    row.values = row.values[: len(names)]
    packed = pack_row((b"k",), row)
    shown = (list(columns_of(row)), row_state(row), Partition.is_live(row, NOW_S))
    assert row.shape is not None
    cells = as_cells(row)
    assert row.shape is None
    assert (cells.marker is not None, list(cells.cells)) == (has_marker, list(names))
    assert shown == (list(columns_of(cells)), row_state(cells), Partition.is_live(cells, NOW_S))
    if has_marker or names:
        assert packed == pack_row((b"k",), cells)


def test_a_large_collection_is_not_packed_anew_with_each_write(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []

    def counting(value: Any, version: int) -> bytes:
        data = marshal.dumps(value, version)
        packed.append(len(data))
        return data

    monkeypatch.setattr("rscylla.embedded.storage.rowpacking.dumps", counting)
    store = make_store(make_table())
    for i in range(500):
        element = CollectionCells(None, {int_bytes(i): Cell(b"a", i)})
        row = RowMutation(cells={"w": element} if i % 2 else {"w": element, "v": Cell(int_bytes(i), i)})
        store.apply(PartitionMutation(make_table(), (int_bytes(1),), rows={(int_bytes(1),): row}))
    partition = store.get((int_bytes(1),))
    assert isinstance(partition, Partition)
    [(_, stored)] = partition.entries()
    assert stored.cells["w"] == CollectionCells(None, {int_bytes(i): Cell(b"a", i) for i in range(500)})
    assert stored.cells["v"] == Cell(int_bytes(498), 498)
    assert sum(packed) < 500 * 1_000, "bytes"


@pytest.mark.slow
def test_a_log_row_takes_little_more_memory_than_its_bytes() -> None:
    """A hundred rows a second, each written at a time of its own, for ten hours of TTL."""
    store = make_store(log_table("v"))
    tracemalloc.start()
    try:
        size = 0
        for i in range(20_000):
            key, values = log_key(10 * i), {"v": b"%016d" % i}
            size += len(log_wire(store, (STREAM,), key, values))
            append(store, (STREAM,), key, values, (i, 36_000, 36_000 + i // 100))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(packed(store)) == 20_000
    assert taken < size + 20_000 * 40


def test_a_row_takes_little_more_memory_than_its_bytes() -> None:
    store = make_store(make_table())
    tracemalloc.start()
    try:
        for i in range(10_000):
            store.apply(insert(i, 1_000_000 + i, v=b"%032d" % i))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 10_000 * 300


def test_partitions_come_in_token_order_and_a_log_by_its_first_bytes_signed() -> None:
    store = make_store(log_table("v"))
    low, high = b"\x80" + b"\x00" * 15, b"\x7f" + b"\x00" * 15
    for stream in (high, low):
        append(store, (stream,), log_key(1), {}, (1, 0, None))
    assert [low, high] == [partition.key[0] for partition in store.scan()]


def test_composite_partition_keys_carry_lengths() -> None:
    assert key_bytes((b"a", b"bc")) == b"\x00\x01a\x00\x00\x02bc\x00"
    assert key_bytes((b"a",)) == b"a"
