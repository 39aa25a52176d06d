"""Partitions of a CDC log: rows kept as their final wire bytes.

A log row is written once and never edited, so its ``SELECT *`` bytes are made at write time and a page is a slice of a
list. Not thread-safe.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from itertools import compress

from ..schema.tables import TableSchema
from .mutation import Cell, Key, RowMutation
from .positions import Position
from .reconcile import NEVER

__all__ = ["PackedPartition", "Stamp", "cut_row", "join_row"]

_INT = struct.Struct(">i")
_NULL = _INT.pack(-1)

# What all log rows of one record share: (write timestamp us, ttl s, expiry s or None).
Stamp = tuple[int, int, int | None]


def join_row(values: Iterable[bytes | None]) -> bytes:
    """Return cells in result order as one wire row: each an int32 length (-1 for null) and its bytes."""
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(_INT.pack(len(value)))
            parts.append(value)
    return b"".join(parts)


def cut_row(wire: bytes) -> list[bytes | None]:
    """Return the cells of a wire row; the inverse of ``join_row``."""
    out: list[bytes | None] = []
    at, end = 0, len(wire)
    while at < end:
        size = _INT.unpack_from(wire, at)[0]
        at += 4
        if size < 0:
            out.append(None)
        else:
            out.append(wire[at : at + size])
            at += size
    return out


class PackedPartition:
    """Log rows of one stream as finished bytes. ``positions``, ``wires`` and ``stamps`` run in step."""

    __slots__ = ("key", "layout", "longest", "next_expiry", "place", "positions", "stamps", "wires")

    def __init__(self, key: Key, place: tuple[int, bytes], layout: TableSchema) -> None:
        self.key = key
        self.place = place
        self.layout = layout
        self.positions: list[Position] = []
        self.wires: list[bytes] = []
        self.stamps: list[Stamp] = []
        self.next_expiry: int | None = None  # the earliest expiry of any row here, seconds
        self.longest = 0  # bytes of the longest row

    def append(self, position: Position, wire: bytes, stamp: Stamp) -> bool:
        """Add a row at its place. Returns False, with nothing changed, when a row is there already."""
        positions = self.positions
        if not positions or positions[-1] < position:
            positions.append(position)
            self.wires.append(wire)
            self.stamps.append(stamp)
        else:
            at = bisect_left(positions, position)
            # There is one at this place: the last position is not below the new one.
            if positions[at] == position:
                return False
            positions.insert(at, position)
            self.wires.insert(at, wire)
            self.stamps.insert(at, stamp)
        expiry = stamp[2]
        if expiry is not None and (self.next_expiry is None or expiry < self.next_expiry):
            self.next_expiry = expiry
        if len(wire) > self.longest:
            self.longest = len(wire)
        return True

    def holds(self, position: Position, wire: bytes, stamp: Stamp) -> bool:
        """Tell whether exactly this row is here."""
        at = bisect_left(self.positions, position)
        found = at < len(self.positions) and self.positions[at] == position
        return found and self.wires[at] == wire and self.stamps[at] == stamp

    def has_expired(self, now_s: int) -> bool:
        return self.next_expiry is not None and self.next_expiry <= now_s

    def forget(self, now_s: int) -> None:
        """Drop expired rows. Log rows have gc_grace 0 and no marker, so nothing of them stays."""
        if not self.has_expired(now_s):
            return
        keep = [stamp[2] is None or stamp[2] > now_s for stamp in self.stamps]
        self.positions = list(compress(self.positions, keep))
        self.wires = list(compress(self.wires, keep))
        self.stamps = list(compress(self.stamps, keep))
        self.next_expiry = min((s[2] for s in self.stamps if s[2] is not None), default=None)

    def clustering_key(self, at: int) -> Key:
        """Return the encoded clustering key of row ``at``."""
        cells = cut_row(self.wires[at])
        # A wire row begins with its keys, in the order of SELECT *.
        first = len(self.layout.partition_key)
        return tuple(cell or b"" for cell in cells[first : first + len(self.layout.clustering_key)])

    def adopt(self, table: TableSchema) -> None:
        """Re-write rows after the log's columns changed, so that they have ``table``'s layout."""
        before = {column.name: at for at, column in enumerate(self.layout.columns)}
        moves: list[tuple[int | None, int]] = []
        for column in table.columns:
            dropped = table.dropped.get(column.name)
            moves.append((before.get(column.name), dropped[1] if dropped else NEVER))
        wires: list[bytes] = []
        for wire, stamp in zip(self.wires, self.stamps, strict=True):
            cells = cut_row(wire)
            # A column that was dropped and added again must not show what was written before the drop.
            wires.append(join_row([None if at is None or stamp[0] <= lost else cells[at] for at, lost in moves]))
        self.wires = wires
        self.longest = max(map(len, wires), default=0)
        self.layout = table

    def row(self, at: int) -> RowMutation:
        """Return row ``at`` as cells, for reads that look inside (functions, filters, writetime)."""
        timestamp, ttl, expiry = self.stamps[at]
        columns = self.layout.columns
        first = len(self.layout.partition_key) + len(self.layout.clustering_key)
        cells = cut_row(self.wires[at])
        return RowMutation(
            cells={
                columns[i].name: Cell(value, timestamp, ttl, expiry)
                for i, value in enumerate(cells)
                if i >= first and value is not None
            }
        )
