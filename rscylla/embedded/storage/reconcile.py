"""How two writes to the same cell, marker or row become one: the rules by which replicas agree.

The same rules merge the statements of a batch into one mutation and a mutation into what is stored. Source: Scylla
``mutation/`` (compare_atomic_cell_for_merge, row_marker, collection_mutation).
"""

from __future__ import annotations

import functools
import itertools
from typing import Final

from ..schema.tables import Column
from ..types import has_spellings
from .mutation import Cell, CollectionCells, Key, Marker, PartitionMutation, RangeTombstone, RowMutation
from .positions import RangeTombstones, position_maker

__all__ = [
    "NEVER",
    "MutationBuilder",
    "is_live_cell",
    "join_spellings",
    "live_value",
    "merge_cell",
    "merge_collection",
    "merge_marker",
    "merge_row",
]

NEVER: Final = -(1 << 63)  # a deletion time that deletes nothing


def merge_cell(old: Cell, new: Cell) -> Cell:
    """Return the cell that wins: newer; then dead, expiring, later expiry, smaller TTL, larger value."""
    if new.timestamp != old.timestamp:
        return new if new.timestamp > old.timestamp else old
    if new.value is None or old.value is None:
        return old if old.value is None else new
    if new.expiry != old.expiry:
        if new.expiry is None or old.expiry is None:
            return old if new.expiry is None else new
        return new if new.expiry > old.expiry else old
    if new.ttl != old.ttl:
        return new if new.ttl < old.ttl else old
    return new if new.value > old.value else old


def merge_marker(old: Marker | None, new: Marker) -> Marker:
    """Return the row marker that wins: newer; then expiring, later expiry, smaller TTL."""
    # There is no dead marker: a row is deleted with a tombstone.
    if old is None or new.timestamp != old.timestamp:
        return new if old is None or new.timestamp > old.timestamp else old
    if new.expiry != old.expiry:
        if new.expiry is None or old.expiry is None:
            return old if new.expiry is None else new
        return new if new.expiry > old.expiry else old
    return new if new.ttl < old.ttl else old


def merge_collection(old: CollectionCells | None, new: CollectionCells, floor: int) -> CollectionCells:
    """Return the collection after an edit; what is not newer than ``floor`` or the tombstone is gone."""
    tombstone = new.tombstone
    if old is not None and old.tombstone is not None and (tombstone is None or old.tombstone > tombstone):
        tombstone = old.tombstone
    limit = floor if tombstone is None else max(floor, tombstone)
    cells = {k: c for k, c in old.cells.items() if c.timestamp > limit} if old is not None else {}
    for key, cell in new.cells.items():
        if cell.timestamp > limit:
            known = cells.get(key)
            cells[key] = cell if known is None else merge_cell(known, cell)
    return CollectionCells(tombstone, cells)


def merge_row(row: RowMutation, edit: RowMutation, floor: int) -> None:
    """Apply ``edit`` to the stored ``row``; ``floor`` is the newest deletion from outside the row."""
    # The edit's own deletion counts for its own cells, too: only newer ones stay.
    if edit.tombstone is not None and (row.tombstone is None or edit.tombstone > row.tombstone):
        row.tombstone = edit.tombstone
        drop_covered(row, edit.tombstone)
    if row.tombstone is not None and row.tombstone > floor:
        floor = row.tombstone
    if edit.marker is not None and edit.marker.timestamp > floor:
        row.marker = merge_marker(row.marker, edit.marker)
    cells = row.cells
    for name, new in edit.cells.items():
        old = cells.get(name)
        if isinstance(new, Cell):
            if new.timestamp > floor:
                cells[name] = merge_cell(old, new) if isinstance(old, Cell) else new
        else:
            cells[name] = merge_collection(old if isinstance(old, CollectionCells) else None, new, floor)


def drop_covered(row: RowMutation, deleted_at: int) -> None:
    """Take out of ``row`` all that a deletion at ``deleted_at`` covers (equal timestamps: the deletion wins)."""
    if row.marker is not None and row.marker.timestamp <= deleted_at:
        row.marker = None
    kept: dict[str, Cell | CollectionCells] = {}
    for name, cell in row.cells.items():
        if isinstance(cell, Cell):
            if cell.timestamp > deleted_at:
                kept[name] = cell
            continue
        cells = {k: c for k, c in cell.cells.items() if c.timestamp > deleted_at}
        tombstone = cell.tombstone if cell.tombstone is not None and cell.tombstone > deleted_at else None
        if cells or tombstone is not None:
            kept[name] = CollectionCells(tombstone, cells)
    row.cells = kept


def live_value(cell: Cell, now_s: int) -> bytes | None:
    """Return the cell's value, or None when it is dead or expired at ``now_s`` (seconds of the server's clock)."""
    return None if cell.expiry is not None and cell.expiry <= now_s else cell.value


def is_live_cell(cell: Cell | CollectionCells, now_s: int) -> bool:
    if isinstance(cell, Cell):
        return live_value(cell, now_s) is not None
    return any(live_value(c, now_s) is not None for c in cell.cells.values())


class MutationBuilder:
    """Collects the edits of one request to one partition, merged by the rules above but with nothing erased.

    A row or partition tombstone does not take out cells of the same mutation: the CDC log shows both.
    """

    def __init__(self, mutation: PartitionMutation) -> None:
        self.mutation = mutation
        self._ranges: RangeTombstones | None = None

    def delete_partition(self, timestamp: int) -> None:
        known = self.mutation.partition_tombstone
        self.mutation.partition_tombstone = timestamp if known is None else max(known, timestamp)

    def delete_range(self, tombstone: RangeTombstone) -> None:
        if self._ranges is None:
            self._ranges = RangeTombstones(position_maker(self.mutation.table))
        self._ranges.add(tombstone)
        self.mutation.range_tombstones = self._ranges.as_list()

    def static_row(self) -> RowMutation:
        if self.mutation.static_row is None:
            self.mutation.static_row = RowMutation()
        return self.mutation.static_row

    def row(self, key: Key) -> RowMutation:
        row = self.mutation.rows.get(key)
        if row is None:
            row = self.mutation.rows[key] = RowMutation()
        return row


@functools.lru_cache(maxsize=1024)
def _any_spellings(columns: tuple[Column, ...]) -> bool:
    return any(has_spellings(column.type) for column in columns)


def join_spellings(mutation: PartitionMutation) -> None:
    """Make one row of rows whose keys are equal and differ in bytes, as 1.0 and 1.00 do; its key is the first one."""
    if len(mutation.rows) < 2 or not _any_spellings(mutation.table.clustering_key):
        return
    position = position_maker(mutation.table)
    placed = sorted([(position(key), at, key) for at, key in enumerate(mutation.rows)], key=lambda row: row[:2])
    for _, same in itertools.groupby(placed, key=lambda row: row[0]):
        (_, _, first), *others = same
        for _, _, key in others:
            _put_row(mutation.rows[first], mutation.rows.pop(key))


def _put_row(row: RowMutation, edit: RowMutation) -> None:
    if edit.tombstone is not None:
        delete_row(row, edit.tombstone)
    if edit.marker is not None:
        put_marker(row, edit.marker)
    for name, cell in edit.cells.items():
        if isinstance(cell, Cell):
            put_cell(row, name, cell)
        else:
            put_collection(row, name, cell)


def put_cell(row: RowMutation, name: str, cell: Cell) -> None:
    old = row.cells.get(name)
    row.cells[name] = merge_cell(old, cell) if isinstance(old, Cell) else cell


def put_collection(row: RowMutation, name: str, edit: CollectionCells) -> None:
    """Merge a collection edit into a mutation. The tombstone erases older entries of the same mutation only."""
    old = row.cells.get(name)
    row.cells[name] = merge_collection(old, edit, NEVER) if isinstance(old, CollectionCells) else edit


def put_marker(row: RowMutation, marker: Marker) -> None:
    row.marker = merge_marker(row.marker, marker)


def delete_row(row: RowMutation, timestamp: int) -> None:
    row.tombstone = timestamp if row.tombstone is None else max(row.tombstone, timestamp)
