"""How one partition's mutation becomes CDC records: one for each timestamp, each an ordered list of changes.

A mutation that has one timestamp, one TTL and no mix that a record cannot express is one record in the order it is
walked. Any other is taken apart by timestamp, then kind, then TTL. Source: Scylla ``cdc/split.cc`` and
``cdc/change_visitor.hh``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import attrs

from ..storage.mutation import (
    Cell,
    CollectionCells,
    Key,
    Marker,
    PartitionMutation,
    PlainRow,
    RangeTombstone,
    RowMutation,
)
from ..storage.positions import Position, RangeTombstones

__all__ = ["Change", "Record", "plain_rows", "records_of"]

ChangeKind = Literal["static", "upsert", "row_delete", "range_delete", "partition_delete"]

# The order of a split record: ``cdc$batch_seq_no`` counts along it. Partition deletes come last.
_PLACES: dict[str, int] = {"static": 0, "insert": 1, "upsert": 2, "row_delete": 3, "range_delete": 4}
_LAST_PLACE = 5

_Stamp = tuple[int, int]  # (timestamp in us, TTL in s)


@attrs.define
class Change:
    """One delta row in the making; a range delete makes two.

    ``row`` is set for static and upsert changes: its cells share one TTL, and a marker makes it an insert. ``key`` is
    the clustering key of upserts and row deletes. ``range`` is set for range deletes.
    """

    kind: ChangeKind
    timestamp: int
    key: Key = ()
    row: RowMutation | None = None
    range: RangeTombstone | None = None


@attrs.define
class Record:
    """Changes of one timestamp in the order in which they are logged."""

    timestamp: int
    changes: list[Change]


def records_of(mutation: PartitionMutation, position: Callable[[Key], Position]) -> list[Record]:
    """Return the records of a mutation by ascending timestamp; none if it changes nothing.

    ``position`` gives the place of a clustering key in the table.
    """
    plain = _plain_record(mutation)
    if plain is not None:
        return [plain]
    changes = _walk(mutation, position)
    timestamp = _only_timestamp(changes)
    if timestamp is not None:
        return [Record(timestamp, changes)]
    return _split(changes)


def plain_rows(mutation: PartitionMutation) -> dict[Key, PlainRow] | None:
    """Return the rows of a mutation that only sets columns of rows, all with one stamp; None for any other.

    They are one record, a row of the log each, by clustering key.
    """
    if mutation.static_row is not None or mutation.range_tombstones or mutation.partition_tombstone is not None:
        return None
    stamp: _Stamp | None = None
    for row in mutation.rows.values():
        if not isinstance(row, PlainRow) or row.shape is None or row.tombstone is not None:
            return None
        if stamp is None:
            stamp = (row.timestamp, row.ttl)
        elif row.timestamp != stamp[0] or row.ttl != stamp[1]:
            return None
    return None if stamp is None else mutation.rows  # type: ignore[return-value]  # as was just seen


def _plain_record(mutation: PartitionMutation) -> Record | None:
    """Return the record of a mutation that upserts one row, all with one stamp; None for any other.

    It is what the general way makes of it. Nearly every write is one, and the general way takes three times as long.
    """
    rows = mutation.rows
    if (
        len(rows) != 1
        or mutation.static_row is not None
        or mutation.range_tombstones
        or mutation.partition_tombstone is not None
    ):
        return None
    [(key, row)] = rows.items()
    if row.tombstone is not None:
        return None
    if isinstance(row, PlainRow) and row.shape is not None:
        return Record(row.timestamp, [Change("upsert", 0, key, row)])
    stamp = _only_stamp(row, had_marker=row.marker is not None)
    return None if stamp is None else Record(stamp[0], [Change("upsert", 0, key, row)])


def has_content(row: RowMutation) -> bool:
    """Tell whether a row is written at all: ``SET m = m + {}`` leaves one that is not."""
    if row.marker is not None:
        return True
    return any(isinstance(cell, Cell) or cell.tombstone is not None or cell.cells for cell in row.cells.values())


def _walk(mutation: PartitionMutation, position: Callable[[Key], Position]) -> list[Change]:
    """Return everything the mutation does, in Scylla's order: static row, rows, ranges, partition.

    Timestamps of upserts are filled in later; those here are of deletes.
    """
    out: list[Change] = []
    if mutation.static_row is not None and has_content(mutation.static_row):
        out.append(Change("static", 0, row=mutation.static_row))
    rows = mutation.rows
    # A request may name rows in any order; the log has them in that of the table.
    for key in sorted(rows, key=position) if len(rows) > 1 else rows:
        row = rows[key]
        if has_content(row):
            out.append(Change("upsert", 0, key, row))
        if row.tombstone is not None:
            out.append(Change("row_delete", row.tombstone, key))
    if mutation.range_tombstones:
        ranges = RangeTombstones(position)
        for tombstone in mutation.range_tombstones:
            ranges.add(tombstone)
        out += [Change("range_delete", r.timestamp, range=r) for r in ranges.as_list()]
    if mutation.partition_tombstone is not None:
        out.append(Change("partition_delete", mutation.partition_tombstone))
    return out


def _only_timestamp(changes: list[Change]) -> int | None:
    """Return the timestamp of a mutation that is logged unsplit, None for one that must be split.

    A partition delete always splits: alone it is a record of its own, and it may follow nothing.
    """
    only: _Stamp | None = None
    seen: set[ChangeKind] = set()
    had_marker = False
    for change in changes:
        kind = change.kind
        if kind == "partition_delete":
            return None
        if "static" in seen or (kind == "row_delete" and "upsert" in seen):
            return None
        if kind == "range_delete" and ("upsert" in seen or "row_delete" in seen):
            return None
        if change.row is None:
            # A tombstone has no TTL, which counts as 0.
            stamp: _Stamp | None = (change.timestamp, 0)
        else:
            had_marker = had_marker or change.row.marker is not None
            stamp = _only_stamp(change.row, had_marker=had_marker)
        if stamp is None or (only is not None and stamp != only):
            return None
        only = stamp
        seen.add(kind)
    return None if only is None else only[0]


def _only_stamp(row: RowMutation, *, had_marker: bool) -> _Stamp | None:
    """Return the one stamp of all that a row holds; None if there are several, or it must be split anyway.

    ``had_marker``: this row or an earlier one is inserted.
    """
    # No insert can add elements. The marker of an earlier row counts, too.
    edits = [cell for cell in row.cells.values() if isinstance(cell, CollectionCells)]
    if had_marker and any(element.value is not None for edit in edits for element in edit.cells.values()):
        return None
    stamps = set(_stamps(row))
    return stamps.pop() if len(stamps) == 1 else None


def _stamps(row: RowMutation) -> Iterator[_Stamp]:
    """Yield the stamp of each part of a row."""
    if row.marker is not None:
        yield (row.marker.timestamp, row.marker.ttl)
    for cell in row.cells.values():
        if isinstance(cell, Cell):
            yield _stamp(cell)
            continue
        if cell.tombstone is not None:
            yield (cell.tombstone + 1, 0)
        yield from map(_stamp, cell.cells.values())


def _stamp(cell: Cell) -> _Stamp:
    return (cell.timestamp, 0 if cell.value is None else cell.ttl)


def _split(changes: list[Change]) -> list[Record]:
    """Return one record for each timestamp, its changes by kind, then clustering order, then TTL."""
    records: dict[int, list[list[Change]]] = {}

    def put(place: int, change: Change) -> None:
        places = records.get(change.timestamp)
        if places is None:
            places = records[change.timestamp] = [[] for _ in range(_LAST_PLACE + 1)]
        places[place].append(change)

    for change in changes:
        row = change.row
        if row is None:
            put(_PLACES.get(change.kind, _LAST_PLACE), change)
            continue
        for piece in _pieces(change, row):
            inserts = piece.row is not None and piece.row.marker is not None
            put(_PLACES["insert" if inserts else change.kind], piece)
    return [Record(ts, [c for place in places for c in place]) for ts, places in sorted(records.items())]


def _pieces(change: Change, row: RowMutation) -> list[Change]:
    """Return a row's changes by timestamp and TTL, ascending. No TTL counts as 0, so tombstones come first.

    The order matters to images: a collection is cleared before its new elements are added.
    """
    buckets: dict[_Stamp, dict[str, Cell | CollectionCells]] = {}
    marker = row.marker
    inserted: _Stamp | None = None
    if marker is not None:
        inserted = (marker.timestamp, marker.ttl)
        buckets[inserted] = {}
    for name, cell in row.cells.items():
        if isinstance(cell, Cell):
            buckets.setdefault(_stamp(cell), {})[name] = cell
            continue
        # A collection that is assigned is cleared at T-1 and filled at T; one more shows both at T. A tombstone of
        # DELETE carries T itself, and so is logged at T+1.
        if cell.tombstone is not None:
            _entry(buckets.setdefault((cell.tombstone + 1, 0), {}), name).tombstone = cell.tombstone
        for key, element in cell.cells.items():
            _entry(buckets.setdefault(_stamp(element), {}), name).cells[key] = element
    out: list[Change] = []
    for stamp, cells in sorted(buckets.items(), key=lambda item: item[0]):
        if stamp == inserted:
            out += _insert_pieces(change, stamp, marker, cells)
        else:
            out.append(Change(change.kind, stamp[0], change.key, RowMutation(cells=cells)))
    return out


def _insert_pieces(
    change: Change, stamp: _Stamp, marker: Marker | None, cells: dict[str, Cell | CollectionCells]
) -> list[Change]:
    """Return the insert, and an update with the collections that only gain elements, which no INSERT can say."""
    added = {name: cell for name, cell in cells.items() if isinstance(cell, CollectionCells) and cell.tombstone is None}
    kept = {name: cell for name, cell in cells.items() if name not in added}
    out = [Change(change.kind, stamp[0], change.key, RowMutation(marker=marker, cells=kept))]
    if added:
        out.append(Change(change.kind, stamp[0], change.key, RowMutation(cells=dict(added))))
    return out


def _entry(cells: dict[str, Cell | CollectionCells], name: str) -> CollectionCells:
    entry = cells.get(name)
    if not isinstance(entry, CollectionCells):
        entry = cells[name] = CollectionCells()
    return entry
