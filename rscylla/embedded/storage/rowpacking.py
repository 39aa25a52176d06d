"""Rows with their cells as bytes, which take a small part of the memory that the objects do.

``marshal`` makes bytes of plain values faster than anything else in the standard library. What it makes does not leave
the process: its format is that of one Python version.
"""

from __future__ import annotations

import functools
from marshal import dumps, loads
from typing import Any, Final

from .mutation import Cell, CollectionCells, Key, Marker, PlainRow, RowMutation, Shape

__all__ = ["pack_plain", "pack_row", "packed_time", "row_of", "row_state", "shape_of", "unpack_row"]

State = Any  # plain values: None, int, str, bytes and tuples, lists, dicts of them

# A row as bytes, or as it is where packing it anew with each write would cost more than its memory is worth.
Packed = bytes | tuple[Key, RowMutation]

_MOST_ELEMENTS: Final = 64  # of a collection in a row that is packed
_VERSION: Final = 2  # without references between equal objects, the search for which takes longer than all else


@functools.lru_cache(maxsize=4096)
def shape_of(has_marker: bool, *names: str) -> Shape:
    """Return one object for all equal shapes of about the same time."""
    return has_marker, names


def pack_row(key: Key, row: RowMutation) -> tuple[Shape | None, Packed]:
    """Return a row and its clustering key as its shape and bytes.

    A row without a shape takes more bytes. One with a large collection is returned as it is.
    """
    plain = pack_plain(key, row)
    if plain is not None:
        return plain
    for cell in row.cells.values():
        if isinstance(cell, CollectionCells) and len(cell.cells) > _MOST_ELEMENTS:
            return None, (key, row)
    return None, dumps((key, row_state(row)), _VERSION)


def pack_plain(key: Key, row: RowMutation) -> tuple[Shape, bytes] | None:
    """Return what ``pack_row`` does of a row that has a shape, None for another one.

    Only a row whose parts were all written alike (time, TTL, expiry) has a shape: most do.
    """
    if row.tombstone is not None:
        return None
    if isinstance(row, PlainRow) and row.shape is not None:
        return row.shape, dumps((row.timestamp, row.ttl, row.expiry, *key, *row.values), _VERSION)
    first: Marker | Cell | None = row.marker
    values: list[bytes | None] = []
    for cell in row.cells.values():
        if not isinstance(cell, Cell):
            return None
        if first is None:
            first = cell
        elif cell.timestamp != first.timestamp or cell.expiry != first.expiry or cell.ttl != first.ttl:
            return None
        values.append(cell.value)
    if first is None:
        return None
    written = (first.timestamp, first.ttl, first.expiry)
    return shape_of(row.marker is not None, *row.cells), dumps((*written, *key, *values), _VERSION)


def unpack_row(shape: Shape | None, data: Packed) -> tuple[Key, RowMutation]:
    """Return what ``pack_row`` was given: the clustering key and the row, which is the same object if it is large."""
    if isinstance(data, tuple):
        return data
    if shape is None:
        key, state = loads(data)
        return key, row_of(state)
    parts = loads(data)
    depth = len(parts) - len(shape[1])
    # Plain, so that who reads a row makes cells of what he looks at only.
    return parts[3:depth], PlainRow(shape, parts[0], parts[1], parts[2], parts[depth:])


def packed_time(data: Packed) -> int:
    """Return the write timestamp of a row that has a shape."""
    assert isinstance(data, bytes)
    return loads(data)[0]  # type: ignore[no-any-return]


# ---------------------------------------------------------------- any row as plain values


def row_state(row: RowMutation) -> State:
    """Return a row as plain values."""
    if isinstance(row, PlainRow) and row.shape is not None:
        stamp = (row.timestamp, row.ttl, row.expiry)
        has_marker, names = row.shape
        cells = {name: (value, *stamp) for name, value in zip(names, row.values, strict=True)}
        return (stamp if has_marker else None, cells, row.tombstone)
    marker = row.marker
    return (
        None if marker is None else (marker.timestamp, marker.ttl, marker.expiry),
        {name: _cell_state(cell) for name, cell in row.cells.items()},
        row.tombstone,
    )


def row_of(state: State) -> RowMutation:
    """Return the row that ``row_state`` was given."""
    marker, cells, tombstone = state
    return RowMutation(
        None if marker is None else Marker(*marker), {name: _cell_of(cell) for name, cell in cells.items()}, tombstone
    )


def _cell_state(cell: Cell | CollectionCells) -> State:
    if isinstance(cell, Cell):
        return (cell.value, cell.timestamp, cell.ttl, cell.expiry)
    cells = {key: (c.value, c.timestamp, c.ttl, c.expiry) for key, c in cell.cells.items()}
    return [cell.tombstone, cells]


def _cell_of(state: State) -> Cell | CollectionCells:
    # A cell is a tuple, a collection a list.
    if type(state) is tuple:
        return Cell(*state)
    tombstone, cells = state
    return CollectionCells(tombstone, {key: Cell(*cell) for key, cell in cells.items()})
