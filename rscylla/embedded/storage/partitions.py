"""Where rows live: partitions in token order, rows in clustering order.

A table's partitions are of two sorts. ``Partition`` keeps cells and reconciles writes. ``PackedPartition`` is what the
CDC log uses. A write to a log that is not an append turns the partition into the general sort. Not thread-safe.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Any

from sortedcontainers import SortedDict  # type: ignore[import-untyped]

from ..schema.tables import TableSchema
from ..types import has_grown_from
from .mutation import Cell, CollectionCells, Key, PartitionMutation, PlainRow, RowMutation, Shape
from .packed import PackedPartition, Stamp, cut_row
from .positions import HIGH, Position, RangeTombstones, bound_end, bound_start, position_maker
from .reconcile import NEVER, drop_covered, is_live_cell, merge_row
from .rowpacking import Packed, pack_plain, pack_row, packed_time, unpack_row
from .tokens import key_bytes

__all__ = ["AnyPartition", "Partition", "TableStore", "unpacked"]

_ALL_TIMES = (1 << 63) - 1
_ROW_BYTES = 4096  # of a large collection, for an estimate


class Partition:
    """Rows with cells, in clustering order. ``positions``, ``_shapes`` and ``_rows`` run in step; see ``rowpacking``.

    Deletions are applied to what is there when they arrive, and remembered for older writes that arrive later; so a
    stored cell is either current, dead or expired, and reading never looks at tombstones.
    """

    __slots__ = (
        "_may_have_garbage",
        "_rows",
        "_shapes",
        "key",
        "place",
        "positions",
        "ranges",
        "static",
        "tombstone",
    )

    def __init__(self, key: Key, place: tuple[int, bytes], position: Callable[[Key], Position]) -> None:
        self.key = key
        self.place = place
        self.tombstone = NEVER
        # Lets forget() pass by partitions in which nothing can expire.
        self._may_have_garbage = False  # something here was deleted or has a TTL
        self.static: RowMutation | None = None
        self.ranges = RangeTombstones(position)
        self.positions: list[Position] = []
        self._shapes: list[Shape | None] = []
        self._rows: list[Packed] = []

    def apply(self, mutation: PartitionMutation) -> None:
        position = self.ranges.position
        if mutation.partition_tombstone is not None and mutation.partition_tombstone > self.tombstone:
            self.tombstone = mutation.partition_tombstone
            self._cover(0, len(self), self.tombstone)
            if self.static is not None:
                drop_covered(self.static, self.tombstone)
        for tombstone in mutation.range_tombstones:
            self.ranges.add(tombstone)
            low = bisect_left(self.positions, bound_start(tombstone.start, position))
            high = bisect_left(self.positions, bound_end(tombstone.end, position))
            self._cover(low, high, tombstone.timestamp)
        if mutation.static_row is not None:
            if self.static is None:
                self.static = RowMutation()
            merge_row(self.static, mutation.static_row, self.tombstone)
        for key, edit in mutation.rows.items():
            self._apply_row(key, position(key), edit)

    def _apply_row(self, key: Key, place: Position, edit: RowMutation) -> None:
        positions = self.positions
        if not self._may_have_garbage:
            self._may_have_garbage = _is_mortal(edit)
        # Most writes come in clustering order, and need no search.
        if not positions or positions[-1] < place:
            at = len(positions)
        else:
            at = bisect_left(positions, place)
        floor = self.tombstone
        if self.ranges.spans:
            floor = max(floor, self.ranges.covering(place) or NEVER)
        if at < len(positions) and positions[at] == place:
            self._replace(at, edit, floor)
            return
        packed: tuple[Shape | None, Packed] | None = pack_plain(key, edit)
        # A row that has a shape was written at one time, so all of it stays or nothing.
        if packed is None or (floor > NEVER and packed_time(packed[1]) <= floor):
            row = RowMutation()
            merge_row(row, edit, floor)
            # What a deletion covers wholly leaves no row behind.
            if not _is_something(row):
                return
            packed = pack_row(key, row)
        positions.insert(at, place)
        self._shapes.insert(at, packed[0])
        self._rows.insert(at, packed[1])

    def _replace(self, at: int, edit: RowMutation, floor: int) -> None:
        """Merge an edit into row ``at``, whose key stays as it was first written: 1.0 for a later 1.00."""
        key, row = self.entry(at)
        packed: tuple[Shape | None, Packed] | None = pack_plain(key, edit)
        # Most updates write the same columns at a later time: nothing is left of the row as it was.
        if (
            packed is None
            or packed[0] != self._shapes[at]
            or packed_time(packed[1]) <= max(packed_time(self._rows[at]), floor)
        ):
            merge_row(row, edit, floor)
            packed = pack_row(key, row)
        self._shapes[at], self._rows[at] = packed

    def _cover(self, low: int, high: int, timestamp: int) -> None:
        keep: list[bool] = []
        for at in range(low, high):
            if self._shapes[at] is not None:
                keep.append(packed_time(self._rows[at]) > timestamp)
                continue
            row = self._edit(at, lambda row: drop_covered(row, timestamp))
            keep.append(_is_something(row))
        if not all(keep):
            self.positions[low:high] = compress(self.positions[low:high], keep)
            self._shapes[low:high] = compress(self._shapes[low:high], keep)
            self._rows[low:high] = compress(self._rows[low:high], keep)

    def _edit(self, at: int, change: Callable[[RowMutation], None]) -> RowMutation:
        """Let *change* change row ``at``; return the row."""
        key, row = self.entry(at)
        change(row)
        self._shapes[at], self._rows[at] = pack_row(key, row)
        return row

    def before(self, mutation: PartitionMutation) -> Callable[[], None]:
        """Return what makes the partition as it is at present, after *mutation* was applied in whole or in part."""
        tombstone, spans = self.tombstone, self.ranges.spans
        static = None if self.static is None else _copied(self.static)
        position = self.ranges.position
        places = [position(key) for key in mutation.rows]
        for deleted in mutation.range_tombstones:
            low = bisect_left(self.positions, bound_start(deleted.start, position))
            places += self.positions[low : bisect_left(self.positions, bound_end(deleted.end, position))]
        if mutation.partition_tombstone is not None:
            places += self.positions
        kept = [(place, self._packed_at(place)) for place in places]

        def put_back() -> None:
            self.tombstone, self.static, self.ranges.spans = tombstone, static, spans
            for place, packed in kept:
                self._put_back(place, packed)

        return put_back

    def _packed_at(self, place: Position) -> tuple[Shape | None, Packed] | None:
        at = self.find(place)
        if at == len(self) or self.positions[at] != place:
            return None
        packed = self._rows[at]
        # A row that is not bytes is changed in its place.
        return self._shapes[at], (packed[0], _copied(packed[1])) if isinstance(packed, tuple) else packed

    def _put_back(self, place: Position, packed: tuple[Shape | None, Packed] | None) -> None:
        at = self.find(place)
        end = at + (at < len(self) and self.positions[at] == place)
        self.positions[at:end] = [] if packed is None else [place]
        self._shapes[at:end] = [] if packed is None else [packed[0]]
        self._rows[at:end] = [] if packed is None else [packed[1]]

    def append(self, key: Key, row: RowMutation) -> None:
        """Put in a row as it is, behind all others."""
        shape, packed = pack_row(key, row)
        self.positions.append(self.ranges.position(key))
        self._shapes.append(shape)
        self._rows.append(packed)
        self._may_have_garbage = self._may_have_garbage or _is_mortal(row)

    # ------------------------------------------------------------ reading

    @property
    def lives_on(self) -> bool:
        """Whether all rows are live, at any time: nothing was deleted, and nothing expires."""
        return not self._may_have_garbage

    def __len__(self) -> int:
        return len(self.positions)

    def find(self, place: Position) -> int:
        """Return how many rows lie before *place*."""
        return bisect_left(self.positions, place)

    def find_after(self, place: Position) -> int:
        """Return how many rows lie before *place* or at it."""
        return bisect_right(self.positions, place)

    def position(self, at: int) -> Position:
        """Return the place of row ``at``."""
        return self.positions[at]

    def entry(self, at: int) -> tuple[Key, RowMutation]:
        """Return the clustering key and the cells of row ``at``. Do not change them."""
        return unpack_row(self._shapes[at], self._rows[at])

    def row(self, at: int) -> RowMutation:
        return self.entry(at)[1]

    def row_at(self, place: Position) -> RowMutation | None:
        at = bisect_left(self.positions, place)
        return self.row(at) if at < len(self.positions) and self.positions[at] == place else None

    def entries(self, low: int = 0, high: int | None = None) -> Iterator[tuple[Key, RowMutation]]:
        """Yield the clustering keys and the cells of the rows from ``low`` to before ``high``."""
        return map(unpack_row, self._shapes[low:high], self._rows[low:high])

    def as_mutation(self, table: TableSchema) -> PartitionMutation:
        """Return the write that makes this partition out of nothing. It may share rows with it: do not change them."""
        tombstone = None if self.tombstone == NEVER else self.tombstone
        return PartitionMutation(table, self.key, tombstone, self.static, dict(self.entries()), self.ranges.as_list())

    # ------------------------------------------------------------ forgetting

    def drop_column(self, name: str, timestamp: int) -> None:
        """Forget what was written to a column up to ``timestamp``, as ALTER TABLE DROP does."""
        # A row may be left of which nothing lives.
        self._may_have_garbage = True
        for at, shape in enumerate(self._shapes):
            if shape is None or name in shape[1]:
                self._edit(at, lambda row: _leave_out(row, name, timestamp))
        if self.static is not None:
            _leave_out(self.static, name, timestamp)

    def forget(self, now_s: int, gc_grace_s: int) -> None:
        """Drop rows of which nothing is left but deletions and expired cells older than ``gc_grace_s``."""
        if not self._may_have_garbage:
            return
        oldest = (now_s - gc_grace_s) * 1_000_000
        keep = [not _is_garbage(row, now_s - gc_grace_s, oldest) for _, row in self.entries()]
        if not all(keep):
            self.positions = list(compress(self.positions, keep))
            self._shapes = list(compress(self._shapes, keep))
            self._rows = list(compress(self._rows, keep))

    def remove(self, low: int, high: int) -> None:
        """Remove the rows from ``low`` to before ``high`` without a trace."""
        del self.positions[low:high], self._shapes[low:high], self._rows[low:high]

    def size(self) -> int:
        """Return how many bytes the rows take, about."""
        return sum([len(row) if isinstance(row, bytes) else len(row[1].cells) * _ROW_BYTES for row in self._rows])

    @staticmethod
    def is_live(row: RowMutation, now_s: int) -> bool:
        """Tell whether the row exists: a live marker or any live cell."""
        if isinstance(row, PlainRow) and row.shape is not None:
            if row.expiry is not None and row.expiry <= now_s:
                return False
            return row.shape[0] or any(value is not None for value in row.values)
        if row.marker is not None and (row.marker.expiry is None or row.marker.expiry > now_s):
            return True
        return any(is_live_cell(cell, now_s) for cell in row.cells.values())


def _copied(row: RowMutation) -> RowMutation:
    """Return a row that does not change with *row*. Its cells are shared: a merge puts others in their places."""
    return RowMutation(row.marker, {**row.cells}, row.tombstone)


def _is_something(row: RowMutation) -> bool:
    return row.marker is not None or bool(row.cells) or row.tombstone is not None


def _leave_out(row: RowMutation, name: str, timestamp: int) -> None:
    """Take out of *row* what was written to the column *name* up to *timestamp*, when it was dropped."""
    cell = row.cells.pop(name, None)
    if isinstance(cell, CollectionCells):
        kept = {k: c for k, c in cell.cells.items() if c.timestamp > timestamp}
        tombstone = cell.tombstone if cell.tombstone is not None and cell.tombstone > timestamp else None
        if kept or tombstone is not None:
            row.cells[name] = CollectionCells(tombstone, kept)
    elif cell is not None and cell.timestamp > timestamp:
        row.cells[name] = cell


def _is_mortal(edit: RowMutation) -> bool:
    """Tell whether an edit deletes something or writes something that expires."""
    if isinstance(edit, PlainRow) and edit.shape is not None:
        return edit.tombstone is not None or edit.expiry is not None or None in edit.values
    if edit.tombstone is not None or (edit.marker is not None and edit.marker.expiry is not None):
        return True
    for cell in edit.cells.values():
        if isinstance(cell, CollectionCells) or cell.value is None or cell.expiry is not None:
            return True
    return False


def _is_garbage(row: RowMutation, before_s: int, before_us: int) -> bool:
    if row.tombstone is not None and row.tombstone >= before_us:
        return False
    marker = row.marker
    if marker is not None and (marker.expiry is None or marker.expiry > before_s):
        return False
    for cell in row.cells.values():
        if isinstance(cell, CollectionCells):
            if cell.tombstone is not None and cell.tombstone >= before_us:
                return False
            if any(not _is_old(c, before_s, before_us) for c in cell.cells.values()):
                return False
        elif not _is_old(cell, before_s, before_us):
            return False
    return True


def _is_old(cell: Cell, before_s: int, before_us: int) -> bool:
    if cell.value is None:
        return cell.timestamp < before_us
    return cell.expiry is not None and cell.expiry <= before_s


AnyPartition = Partition | PackedPartition


def unpacked(packed: PackedPartition, position: Callable[[Key], Position]) -> Partition:
    """Return the same rows as a general partition."""
    out = Partition(packed.key, packed.place, position)
    for at in range(len(packed)):
        out.append(packed.clustering_key(at), packed.row(at))
    return out


class TableStore:
    """The data of one table. ``token`` gives the partitioner's token of a partition key."""

    def __init__(self, table: TableSchema, token: Callable[[Key], int]) -> None:
        self.token = token
        self.partitions: dict[Key, AnyPartition] = {}
        self.order: Any = SortedDict()  # (token, key bytes) -> partition
        self.set_table(table)

    def set_table(self, table: TableSchema) -> None:
        """Follow a schema change. Cells of columns dropped since are forgotten."""
        # Only what this change dropped: earlier drops were carried out when they happened.
        previous: TableSchema | None = getattr(self, "table", None)
        self.table = table
        self.position = position_maker(table)
        if previous is not None and previous.clustering_key != table.clustering_key:
            # A type has a new field, which does not change the places of rows that lack it.
            for partition in self.partitions.values():
                if isinstance(partition, Partition):
                    partition.ranges.position = self.position
        dropped = dict(table.dropped if previous is None else table.dropped.items() - previous.dropped.items())
        lost = {name: timestamp for name, (_, timestamp) in dropped.items()}
        # DROP ... USING TIMESTAMP may keep cells, which are no values if the column then comes back with another type.
        for name in table.by_name.keys() & table.dropped.keys() - (previous or table).by_name.keys():
            if not has_grown_from(table.dropped[name][0], table.by_name[name].type):
                lost[name] = _ALL_TIMES
        for name, timestamp in lost.items():
            for partition in self.partitions.values():
                if isinstance(partition, Partition):
                    partition.drop_column(name, timestamp)

    def apply(self, mutation: PartitionMutation) -> None:
        """Apply one partition's edits. An empty mutation makes no partition."""
        if not (
            mutation.rows
            or mutation.static_row is not None
            or mutation.range_tombstones
            or mutation.partition_tombstone is not None
        ):
            return
        if self.table.dropped:
            self._leave_out_dropped(mutation)
        partition = self.partitions.get(mutation.key)
        if partition is None:
            partition = Partition(mutation.key, (self.token(mutation.key), key_bytes(mutation.key)), self.position)
            self.add(partition)
        elif isinstance(partition, PackedPartition):
            # A write to a log by hand, which Scylla allows: from here on its cells have to be reconciled.
            partition = unpacked(self._current(partition), self.position)
            self.add(partition)
        partition.apply(mutation)

    def before(self, mutation: PartitionMutation) -> Callable[[], None]:
        """Return what makes a partition as it is at present, after *mutation* was applied in whole or in part."""
        partition = self.partitions.get(mutation.key)
        if partition is None:
            return lambda: self._remove(mutation.key)
        # Log rows stay as they are: an edit is applied to a copy of theirs.
        return partition.before(mutation) if isinstance(partition, Partition) else lambda: self.add(partition)

    def append_log(self, key: Key, clustering: Key, wire: bytes, stamp: Stamp) -> None:
        """Add one CDC log row, its cells as they are sent, in the present columns; the same again changes nothing."""
        table = self.table
        partition = self._log_partition(key)
        if isinstance(partition, PackedPartition):
            position = self.position(clustering)
            if partition.append(position, wire, stamp) or partition.holds(position, wire, stamp):
                return
        cells = cut_row(wire)[len(key) + len(clustering) :]
        row = RowMutation(
            cells={
                column.name: Cell(value, *stamp)
                for column, value in zip(table.regular_columns, cells, strict=True)
                if value is not None
            }
        )
        self.apply(PartitionMutation(table, key, rows={clustering: row}))

    def append_record(self, key: Key, time: bytes, wires: Sequence[bytes], stamp: Stamp) -> None:
        """Add the CDC log rows of one record: those of one ``cdc$time``, by ``cdc$batch_seq_no`` from 0."""
        partition = self._log_partition(key)
        if isinstance(partition, PackedPartition) and partition.append_record(self.position((time,)), wires, stamp):
            return
        for seq, wire in enumerate(wires):
            self.append_log(key, (time, seq.to_bytes(4, "big")), wire, stamp)

    def take_back_record(self, key: Key, time: bytes) -> None:
        """Remove the CDC log rows of one ``cdc$time``, if there are any."""
        partition = self.partitions.get(key)
        if partition is not None:
            place = self.position((time,))
            partition.remove(partition.find(place), partition.find((*place, HIGH)))
            if not len(partition):
                self._remove(key)

    def _remove(self, key: Key) -> None:
        partition = self.partitions.pop(key, None)
        if partition is not None:
            del self.order[partition.place]

    def _log_partition(self, key: Key) -> AnyPartition:
        partition = self.partitions.get(key)
        if partition is None:
            partition = PackedPartition(key, (self.token(key), key_bytes(key)), self.table, self.position)
            self.add(partition)
        # Log partitions follow a schema change when they are next used, not all at once.
        return self._current(partition) if isinstance(partition, PackedPartition) else partition

    def get(self, key: Key) -> AnyPartition | None:
        partition = self.partitions.get(key)
        return self._current(partition) if isinstance(partition, PackedPartition) else partition

    def scan(self, start: tuple[int, bytes] | None = None, *, inclusive: bool = True) -> Iterator[AnyPartition]:
        """Yield partitions in (token, key bytes) order from ``start`` on. Do not write while iterating."""
        for partition in self.order.irange(start, None, (inclusive, True)):
            found = self.order[partition]
            yield self._current(found) if isinstance(found, PackedPartition) else found

    def truncate(self) -> None:
        self.partitions.clear()
        self.order.clear()

    def forget(self, now_s: int) -> None:
        """Drop what has expired or was deleted longer than gc_grace ago, and log partitions left empty."""
        # Tombstones stay for gc_grace, as in Scylla: a write with an older timestamp may still arrive.
        gc_grace = int(self.table.options.get("gc_grace_seconds", 864000))
        empty: list[AnyPartition] = []
        for partition in self.partitions.values():
            if isinstance(partition, PackedPartition):
                partition.forget(now_s)
                if not len(partition):
                    empty.append(partition)
            else:
                # It is kept when empty: its tombstones of ranges and of the whole partition cover older writes.
                partition.forget(now_s, gc_grace)
        for partition in empty:
            self._remove(partition.key)

    def add(self, partition: AnyPartition) -> None:
        """Put a partition at its place, instead of one of the same key."""
        self.partitions[partition.key] = partition
        self.order[partition.place] = partition

    def _current(self, partition: PackedPartition) -> PackedPartition:
        if partition.layout is not self.table:
            partition.adopt(self.table, self.position)
        return partition

    def _leave_out_dropped(self, mutation: PartitionMutation) -> None:
        """Take out of *mutation* what is older than the drop of a column that was added again since."""
        rows = [*mutation.rows.values()]
        if mutation.static_row is not None:
            rows.append(mutation.static_row)
        for row in rows:
            for name, (_, timestamp) in self.table.dropped.items():
                _leave_out(row, name, timestamp)
