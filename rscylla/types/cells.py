"""The cells within a value: splits collections, tuples, UDTs, and vectors, and assembles them.

Source: native protocol v4, section 6; of vectors, Cassandra's ``VectorType``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import cast

__all__ = [
    "NOT_SO_MANY",
    "collection_cells",
    "collection_of",
    "sized_cells",
    "sized_of",
    "unsigned_vint",
    "vector_cells",
    "vector_of",
]

_INT = struct.Struct(">i")
_TOO_LONG = "a value is longer than the cell that holds it"
NOT_SO_MANY = "a vector has another number of elements than its type"


def collection_cells(raw: bytes, parts: int = 1) -> list[bytes | None]:
    """Return the cells of a collection. Empty bytes are an empty collection.

    Args:
        parts: how many cells an element has: 2 for a map, whose keys and values alternate.

    Raises:
        ValueError: *raw* is not a collection.
    """
    cells = sized_cells(raw, 4)
    if raw and len(cells) != parts * _size_at(raw, 0):
        raise ValueError("a collection holds another number of elements than it says")
    return cells


def collection_of(cells: Iterable[bytes | None], count: int) -> bytes:
    """Return a collection of *count* elements; see ``collection_cells``."""
    return _INT.pack(count) + sized_of(cells)


def sized_cells(raw: bytes, at: int = 0) -> list[bytes | None]:
    """Return the cells in *raw* from *at* on, each preceded by its size; a negative size is null.

    Raises:
        ValueError: the last of them does not end with *raw*.
    """
    cells: list[bytes | None] = []
    end = len(raw)
    while at < end:
        size = _size_at(raw, at)
        at += 4
        if size < 0:
            cells.append(None)
            continue
        if at + size > end:
            raise ValueError(_TOO_LONG)
        cells.append(raw[at : at + size])
        at += size
    return cells


def _size_at(raw: bytes, at: int) -> int:
    if at + 4 > len(raw):
        raise ValueError(_TOO_LONG)
    return cast("int", _INT.unpack_from(raw, at)[0])


def sized_of(cells: Iterable[bytes | None]) -> bytes:
    """Return *cells* in sequence, each preceded by its size: a tuple or UDT."""
    return b"".join([b"\xff\xff\xff\xff" if c is None else _INT.pack(len(c)) + c for c in cells])


def vector_cells(width: int | None, size: int) -> Callable[[bytes], list[bytes | None]]:
    """Return the function that splits a vector of *size* elements of *width* bytes; None: its size precedes each.

    Empty bytes are an empty value, as of a collection.

    Raises (the function):
        ValueError: the bytes are no vector of so many elements.
    """

    def split(raw: bytes) -> list[bytes | None]:
        if width is not None:
            if raw and len(raw) != size * width:
                raise ValueError(NOT_SO_MANY)
            return [raw[at : at + width] for at in range(0, len(raw), width)]
        cells = _vector_cells(raw)
        if raw and len(cells) != size:
            raise ValueError(NOT_SO_MANY)
        return cells

    return split


def _vector_cells(raw: bytes) -> list[bytes | None]:
    cells: list[bytes | None] = []
    at = 0
    while at < len(raw):
        more = 8 - (raw[at] ^ 0xFF).bit_length()  # leading ones count the bytes that follow
        bits = 8 * more + max(0, 7 - more)
        size = int.from_bytes(raw[at : at + more + 1], "big") & ((1 << bits) - 1)
        at += more + 1
        if at + size > len(raw):
            raise ValueError(_TOO_LONG)
        cells.append(raw[at : at + size])
        at += size
    return cells


def vector_of(cells: Iterable[bytes], width: int | None) -> bytes:
    """Return a vector of *cells*; see ``vector_cells``."""
    return b"".join([c if width is not None else unsigned_vint(len(c)) + c for c in cells])


def unsigned_vint(value: int) -> bytes:
    """Return a number of up to 64 bits in 1 to 9 bytes, with a leading one bit for each byte after the first."""
    more = min(8, (value.bit_length() - 1) // 7 if value else 0)
    lead = (0xFF << (8 - more)) & 0xFF
    if more == 8:
        return bytes([lead]) + value.to_bytes(8, "big")
    return (value | lead << 8 * more).to_bytes(more + 1, "big")
