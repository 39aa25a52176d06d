"""Partitions of a CDC log: rows kept as their final wire bytes, many of them in one string.

A log row is written once and never edited, so its ``SELECT *`` bytes are made at write time and a page is a few slices.
Beside them a row takes 20 bytes: where it ends, its rank, and a pointer to what it shares with the rows around it. Not
thread-safe.
"""

from __future__ import annotations

import functools
import itertools
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ..schema.tables import TableSchema
from .mutation import Cell, Key, RowMutation
from .positions import HIGH, Position
from .reconcile import NEVER

__all__ = ["PackedPartition", "Stamp", "cut_row", "join_row"]

_INT = struct.Struct(">i")
_NULL = _INT.pack(-1)

# What all log rows of one record share: (write timestamp us, ttl s, expiry s or None).
Stamp = tuple[int, int, int | None]

_BLOCK_ROWS: Final = 512  # a row that comes late moves no more than this many, twice at most
_BLOCK_BYTES: Final = 128 * 1024
_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1


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


def _rank(position: Position) -> int:
    """Return a 64-bit number that grows with the position, or stays: what a search compares first.

    Of a log row it is the time of ``cdc$time`` in ticks, less 2**63.
    """
    if not position:
        return _LOWEST
    key = position[0]
    if type(key) is bytes:
        return int.from_bytes(key[:8].ljust(8, b"\0"), "big") + _LOWEST
    # Integers come with infinities, see ``positions.py``. Keys of other kinds are all alike here.
    if type(key) is int or type(key) is float:
        return int(min(max(key, _LOWEST), _HIGHEST))
    return _HIGHEST if key is HIGH else 0


# How a row was written, in a form that rows written in the same second share: ten times its write timestamp less its
# rank, which for log rows is a constant; its TTL; its expiry.
_Life = tuple[int, int, int | None]


@functools.lru_cache(maxsize=1024)
def _shared(lead: int, ttl: int, expiry: int | None) -> _Life:
    """Return one object for all equal lives of about the same time."""
    return lead, ttl, expiry


class _Block:
    """Rows that follow each other. ``ends``, ``ranks`` and ``lives`` have an entry for each.

    ``data`` can be appended to until the block is sealed. ``next_expiry`` is the earliest of any row here, in seconds.
    """

    __slots__ = ("data", "ends", "lives", "next_expiry", "ranks")

    def __init__(self) -> None:
        self.data: bytes | bytearray = bytearray()
        self.ends = array("Q")
        self.ranks = array("q")
        self.lives: list[_Life] = []
        self.next_expiry: int | None = None

    def has_reached(self, times: int) -> bool:
        """Tell whether the block has so many times the rows or bytes of a full one."""
        return len(self.ends) >= times * _BLOCK_ROWS or len(self.data) >= times * _BLOCK_BYTES

    def start(self, at: int) -> int:
        return self.ends[at - 1] if at else 0

    def cut(self, low: int, high: int) -> bytes:
        """Return the rows from ``low`` to before ``high`` as one string."""
        return bytes(self.data[self.start(low) : self.ends[high - 1]])

    def stamp(self, at: int) -> Stamp:
        lead, ttl, expiry = self.lives[at]
        return (self.ranks[at] + lead) // 10, ttl, expiry

    def append(self, wire: bytes, rank: int, life: _Life) -> None:
        self.data += wire
        self.ends.append(len(self.data))
        self.ranks.append(rank)
        self.lives.append(life)
        self._expect(life[2])

    def insert(self, at: int, wire: bytes, rank: int, life: _Life) -> None:
        start, size = self.start(at), len(wire)
        self.data = self.data[:start] + wire + self.data[start:]
        self.ends[at:] = array("Q", [start + size, *[end + size for end in self.ends[at:]]])
        self.ranks.insert(at, rank)
        self.lives.insert(at, life)
        self._expect(life[2])

    def _expect(self, expiry: int | None) -> None:
        if expiry is not None and (self.next_expiry is None or expiry < self.next_expiry):
            self.next_expiry = expiry

    def halves(self) -> list[_Block]:
        """Return two blocks that have these rows."""
        middle = len(self.ends) // 2
        out: list[_Block] = []
        for low, high in ((0, middle), (middle, len(self.ends))):
            half = _Block()
            for at in range(low, high):
                half.append(self.cut(at, at + 1), self.ranks[at], self.lives[at])
            out.append(half)
        out[0].seal()
        return out

    def seal(self) -> None:
        """Give back the room kept for rows to come."""
        self.data = bytes(self.data)
        self.ends = self.ends[:]
        self.ranks = self.ranks[:]
        self.lives = self.lives[:]


class PackedPartition:
    """Log rows of one stream as finished bytes. Rows are counted from 0 in clustering order.

    ``position`` makes places of the clustering keys of ``layout``.
    """

    __slots__ = (
        "_blocks",
        "_count",
        "_firsts",
        "_last",
        "_next_expiry",
        "_position",
        "_starts",
        "key",
        "layout",
        "place",
    )

    def __init__(
        self, key: Key, place: tuple[int, bytes], layout: TableSchema, position: Callable[[Key], Position]
    ) -> None:
        self.key = key
        self.place = place
        self.layout = layout
        self._position = position
        self._blocks: list[_Block] = []
        # In step with the blocks: the place of their first row, and how many rows there are before it.
        self._firsts: list[Position] = []
        self._starts: list[int] = []
        self._count = 0
        self._last: Position = ()  # the place of the last row
        self._next_expiry: int | None = None  # the earliest of any row here, seconds

    def __len__(self) -> int:
        return self._count

    # ------------------------------------------------------------ writing

    def append(self, position: Position, wire: bytes, stamp: Stamp) -> bool:
        """Add a row at its place. Returns False, with nothing changed, when a row is there already."""
        rank = _rank(position)
        life = _shared(stamp[0] * 10 - rank, stamp[1], stamp[2])
        # Most rows come in order, and need no search.
        if not self._count or self._last < position:
            block = self._blocks[-1] if self._blocks else None
            if block is None or block.has_reached(1):
                block = self._new_block(position)
            block.append(wire, rank, life)
            self._last = position
            self._count += 1
        else:
            at = self.find(position)
            # There is one at this place or after it: the last position is not below the new one.
            if self.position(at) == position:
                return False
            self._insert(position, wire, rank, life)
        self._expect(stamp)
        return True

    def append_record(self, lead: Position, wires: Sequence[bytes], stamp: Stamp) -> bool:
        """Add rows at the places that are *lead* and a number from 0 on, behind all others.

        Returns False, with nothing changed, when they do not belong there.
        """
        if self._count and not self._last < (*lead, 0):
            return False
        rank = _rank(lead)
        life = _shared(stamp[0] * 10 - rank, stamp[1], stamp[2])
        block = self._blocks[-1] if self._blocks else None
        for seq, wire in enumerate(wires):
            if block is None or len(block.ends) >= _BLOCK_ROWS or len(block.data) >= _BLOCK_BYTES:
                block = self._new_block((*lead, seq))
            block.append(wire, rank, life)
            self._count += 1
        self._last = (*lead, len(wires) - 1)
        self._expect(stamp)
        return True

    def _new_block(self, first: Position) -> _Block:
        """Begin a block behind the others."""
        if self._blocks:
            self._blocks[-1].seal()
        block = _Block()
        self._blocks.append(block)
        self._firsts.append(first)
        self._starts.append(self._count)
        return block

    def _expect(self, stamp: Stamp) -> None:
        if stamp[2] is not None and (self._next_expiry is None or stamp[2] < self._next_expiry):
            self._next_expiry = stamp[2]

    def _insert(self, position: Position, wire: bytes, rank: int, life: _Life) -> None:
        index, at = self._search(position, after=False)
        block = self._blocks[index]
        block.insert(at, wire, rank, life)
        self._count += 1
        self._starts[index + 1 :] = [start + 1 for start in self._starts[index + 1 :]]
        if not at:
            self._firsts[index] = position
        # A single row may be longer than a block.
        if block.has_reached(2) and len(block.ends) > 1:
            self._blocks[index : index + 1] = halves = block.halves()
            self._firsts.insert(index + 1, self._place(halves[1], 0))
            self._starts.insert(index + 1, self._starts[index] + len(halves[0].ends))

    def holds(self, position: Position, wire: bytes, stamp: Stamp) -> bool:
        """Tell whether exactly this row is here."""
        at = self.find(position)
        return (wire, stamp) in self.entries(at, at + 1)

    def size(self) -> int:
        """Return how many bytes the rows take."""
        return sum([len(block.data) for block in self._blocks])

    def has_expired(self, now_s: int) -> bool:
        """Tell whether any row here has expired."""
        return self._next_expiry is not None and self._next_expiry <= now_s

    def forget(self, now_s: int) -> None:
        """Drop expired rows. Log rows have gc_grace 0 and no marker, so nothing of them stays."""
        if not self.has_expired(now_s):
            return
        blocks: list[_Block] = []
        for block in self._blocks:
            if block.next_expiry is not None and block.next_expiry <= now_s:
                block = _remade(block, lambda wire, stamp: wire if stamp[2] is None or stamp[2] > now_s else None)
            blocks.append(block)
        self._take(blocks)

    def remove(self, low: int, high: int) -> None:
        """Remove the rows from ``low`` to before ``high``."""
        numbers = itertools.count()
        self._take([_remade(b, lambda wire, _: None if low <= next(numbers) < high else wire) for b in self._blocks])

    def _take(self, blocks: Iterable[_Block]) -> None:
        """Consist of *blocks*, some of which may be empty."""
        self._blocks = blocks = [block for block in blocks if block.ends]
        counts = [0, *itertools.accumulate([len(block.ends) for block in blocks])]
        self._count = counts.pop()
        self._starts = counts
        self._firsts = [self._place(block, 0) for block in blocks]
        self._last = self.position(self._count - 1) if self._count else ()
        self._next_expiry = min((b.next_expiry for b in blocks if b.next_expiry is not None), default=None)

    def adopt(self, table: TableSchema, position: Callable[[Key], Position]) -> None:
        """Re-write rows after the log's columns changed, so that they have ``table``'s layout."""
        before = {column.name: at for at, column in enumerate(self.layout.columns)}
        moves: list[tuple[int | None, int]] = []
        for column in table.columns:
            dropped = table.dropped.get(column.name)
            moves.append((before.get(column.name), dropped[1] if dropped else NEVER))

        def moved(wire: bytes, stamp: Stamp) -> bytes:
            cells = cut_row(wire)
            # A column that was dropped and added again must not show what was written before the drop.
            return join_row([None if at is None or stamp[0] <= lost else cells[at] for at, lost in moves])

        self._blocks = [_remade(block, moved) for block in self._blocks]
        self.layout = table
        self._position = position

    # ------------------------------------------------------------ searching

    def find(self, place: Position) -> int:
        """Return how many rows lie before *place*."""
        index, at = self._search(place, after=False)
        return self._starts[index] + at if self._starts else 0

    def find_after(self, place: Position) -> int:
        """Return how many rows lie before *place* or at it."""
        index, at = self._search(place, after=True)
        return self._starts[index] + at if self._starts else 0

    def _search(self, place: Position, *, after: bool) -> tuple[int, int]:
        """Return the block and the row in it, or its end, where *place* is; after a row at this very place or not."""
        if not self._blocks:
            return 0, 0
        index = max((bisect_right if after else bisect_left)(self._firsts, place) - 1, 0)
        block = self._blocks[index]
        rank = _rank(place)
        low = bisect_left(block.ranks, rank)
        high = bisect_right(block.ranks, rank, low)
        # Ranks leave few rows to look at: those of one record.
        while low < high:
            middle = (low + high) // 2
            found = self._place(block, middle)
            if found < place or (after and found == place):
                low = middle + 1
            else:
                high = middle
        return index, low

    def _at(self, row: int) -> tuple[_Block, int]:
        index = bisect_right(self._starts, row) - 1
        return self._blocks[index], row - self._starts[index]

    def _spans(self, low: int, high: int) -> Iterator[tuple[_Block, int, int]]:
        """Yield the blocks of the rows from ``low`` to before ``high``, each with the part of it that is meant."""
        high = min(high, self._count)
        index = bisect_right(self._starts, low) - 1
        while low < high:
            block, start = self._blocks[index], self._starts[index]
            end = min(high, start + len(block.ends))
            yield block, low - start, end - start
            low = end
            index += 1

    # ------------------------------------------------------------ reading

    def wires(self, low: int, high: int) -> list[bytes]:
        """Return the rows from ``low`` to before ``high``, each by itself."""
        return [block.cut(at, at + 1) for block, first, end in self._spans(low, high) for at in range(first, end)]

    def joined(self, low: int, high: int) -> list[bytes]:
        """Return the same in a few pieces of many rows."""
        return [block.cut(first, end) for block, first, end in self._spans(low, high)]

    def fitting(self, low: int, high: int, room: int) -> int:
        """Return the end of the rows from ``low`` on that fit: the last one fills *room* bytes, or ends at ``high``."""
        if room <= 0:
            return low
        for block, first, end in self._spans(low, high):
            start = block.start(first)
            at = bisect_left(block.ends, start + room, first, end)
            if at < end:
                return low + at - first + 1
            room -= block.ends[end - 1] - start
            low += end - first
        return high

    def entries(self, low: int, high: int) -> Iterator[tuple[bytes, Stamp]]:
        """Yield rows with how they were written."""
        for block, first, end in self._spans(low, high):
            for at in range(first, end):
                yield block.cut(at, at + 1), block.stamp(at)

    def is_live(self, at: int, now_s: int) -> bool:
        block, at = self._at(at)
        expiry = block.lives[at][2]
        return expiry is None or expiry > now_s

    def clustering_key(self, at: int) -> Key:
        """Return the encoded clustering key of row ``at``."""
        return self._key(*self._at(at))

    def position(self, at: int) -> Position:
        """Return the place of row ``at``."""
        return self._place(*self._at(at))

    def _key(self, block: _Block, at: int) -> Key:
        data, offset = block.data, block.start(at)
        # A wire row begins with its keys, in the order of SELECT *.
        for _ in self.layout.partition_key:
            offset += 4 + max(_INT.unpack_from(data, offset)[0], 0)
        parts: list[bytes] = []
        for _ in self.layout.clustering_key:
            size = max(_INT.unpack_from(data, offset)[0], 0)
            offset += 4
            parts.append(bytes(data[offset : offset + size]))
            offset += size
        return tuple(parts)

    def _place(self, block: _Block, at: int) -> Position:
        return self._position(self._key(block, at))

    def row(self, at: int) -> RowMutation:
        """Return row ``at`` as cells, for reads that look inside (functions, filters, writetime)."""
        block, at = self._at(at)
        timestamp, ttl, expiry = block.stamp(at)
        columns = self.layout.columns
        first = len(self.layout.partition_key) + len(self.layout.clustering_key)
        cells = cut_row(block.cut(at, at + 1))
        return RowMutation(
            cells={
                columns[i].name: Cell(value, timestamp, ttl, expiry)
                for i, value in enumerate(cells)
                if i >= first and value is not None
            }
        )


def _remade(block: _Block, change: Callable[[bytes, Stamp], bytes | None]) -> _Block:
    """Return a block of what *change* makes of each row; None drops the row."""
    out = _Block()
    for at in range(len(block.ends)):
        wire = change(block.cut(at, at + 1), block.stamp(at))
        if wire is not None:
            out.append(wire, block.ranks[at], block.lives[at])
    if isinstance(block.data, bytes):
        out.seal()
    return out
