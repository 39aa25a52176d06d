"""Rows with their cells as bytes, which take a small part of the memory that the objects do.

``marshal`` makes bytes of plain values faster than anything else in the standard library. What it makes does not leave
the process: its format is that of one Python version.
"""

from __future__ import annotations

import functools
from marshal import dumps, loads
from typing import Any, Final

from .mutation import Cell, CollectionCells, Key, Marker, RowMutation

__all__ = ["Shape", "pack_row", "packed_time", "row_of", "row_state", "unpack_row"]

State = Any  # plain values: None, int, str, bytes and tuples, lists, dicts of them

# Whether the row has a marker, and the names of its columns: what rows written by one statement share.
Shape = tuple[bool, tuple[str, ...]]

# A row as bytes, or as it is where packing it anew with each write would cost more than its memory is worth.
Packed = bytes | tuple[Key, RowMutation]

_MOST_ELEMENTS: Final = 64  # of a collection in a row that is packed
_VERSION: Final = 2  # without references between equal objects, the search for which takes longer than all else


@functools.lru_cache(maxsize=4096)
def _shape(has_marker: bool, *names: str) -> Shape:
    """Return one object for all equal shapes of about the same time."""
    return has_marker, names


def pack_row(key: Key, row: RowMutation) -> tuple[Shape | None, Packed]:
    """Return a row and its clustering key as its shape and bytes.

    Only a row whose parts were all written alike (time, TTL, expiry) has a shape: most do. Others take more bytes. One
    with a large collection is returned as it is.
    """
    if row.tombstone is None:
        first: Marker | Cell | None = row.marker
        values: list[bytes | None] = []
        for cell in row.cells.values():
            if not isinstance(cell, Cell):
                break
            if first is None:
                first = cell
            elif cell.timestamp != first.timestamp or cell.expiry != first.expiry or cell.ttl != first.ttl:
                break
            values.append(cell.value)
        else:
            if first is not None:
                written = (first.timestamp, first.ttl, first.expiry)
                return _shape(row.marker is not None, *row.cells), dumps((*written, *key, *values), _VERSION)
    for cell in row.cells.values():
        if isinstance(cell, CollectionCells) and len(cell.cells) > _MOST_ELEMENTS:
            return None, (key, row)
    return None, dumps((key, row_state(row)), _VERSION)


def unpack_row(shape: Shape | None, data: Packed) -> tuple[Key, RowMutation]:
    """Return what ``pack_row`` was given: the clustering key and the row, which is the same object if it is large."""
    if isinstance(data, tuple):
        return data
    if shape is None:
        key, state = loads(data)
        return key, row_of(state)
    has_marker, names = shape
    timestamp, ttl, expiry, *parts = loads(data)
    depth = len(parts) - len(names)
    cells: dict[str, Cell | CollectionCells] = {
        name: Cell(value, timestamp, ttl, expiry) for name, value in zip(names, parts[depth:], strict=True)
    }
    return tuple(parts[:depth]), RowMutation(Marker(timestamp, ttl, expiry) if has_marker else None, cells)


def packed_time(data: Packed) -> int:
    """Return the write timestamp of a row that has a shape."""
    assert isinstance(data, bytes)
    return loads(data)[0]  # type: ignore[no-any-return]


# ---------------------------------------------------------------- any row as plain values


def row_state(row: RowMutation) -> State:
    """Return a row as plain values."""
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
