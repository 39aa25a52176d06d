"""Reads of stored partitions: which rows, in what order, from where to continue. Knows no select list."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import attrs

from ...storage.mutation import Key, RowMutation
from ...storage.packed import PackedPartition
from ...storage.partitions import AnyPartition, Partition, TableStore
from ...storage.reconcile import is_live_cell
from ...storage.tokens import key_bytes
from ..rows import RowView
from ..where.ranges import Range

__all__ = ["StoreReader", "Wires"]


@attrs.define
class Wires:
    """Finished rows in strings of one or more, with their number and size, and the index of the last one.

    ``has_more``: there are further rows in the partition.
    """

    pieces: list[bytes] = attrs.field(factory=list)
    count: int = 0
    size: int = 0
    last: int = -1
    has_more: bool = False

    def add(self, pieces: list[bytes], count: int, last: int) -> None:
        self.pieces += pieces
        self.count += count
        self.size += sum(map(len, pieces))
        self.last = last


_COUNTED_AT_ONCE = 10_000  # rows of a partition; those of a larger one are given one by one, with their places


@attrs.define
class StoreReader:
    """One read of a table: partitions by key or token range, clustering ranges, direction, and where to resume.

    ``keys`` None reads ``tokens`` (inclusive) instead. ``resume`` is the (key, clustering key) of the last row given
    before; clustering key None when its partition is done. ``statics`` lets a partition that has only static columns
    give one row. ``now_s`` decides what has expired. ``counts``: nobody looks at the rows, so ``views``
    may give one in place of any other.
    """

    store: TableStore
    now_s: int
    ranges: Sequence[Range]
    keys: list[Key] | None = None
    tokens: tuple[int, int] | None = None
    reverse: bool = False
    statics: bool = True
    resume: tuple[Key, Key | None] | None = None
    counts: bool = False

    def partitions(self) -> Iterator[AnyPartition]:
        """Yield the partitions in the order of the keys, or of the tokens, from the resumed one on."""
        first: tuple[int, bytes] | None = None
        include = True
        if self.keys is not None:
            keys: Iterable[Key] = self.keys
            if self.resume is not None:
                key, ck = self.resume
                at = self.keys.index(key) if key in self.keys else 0
                keys = self.keys[at + (ck is None) :]
            yield from (p for p in map(self.store.get, keys) if p is not None)
            return
        if self.resume is not None:
            key, ck = self.resume
            first, include = (self.store.token(key), key_bytes(key)), ck is not None
        if self.tokens is not None:
            low, high = self.tokens
            if first is None or first[0] < low:
                # No key is smaller than the empty one, so this is where the token begins.
                first, include = (low, b""), True
            for partition in self.store.scan(first, inclusive=include):
                if partition.place[0] > high:
                    return
                yield partition

    def slices(self, partition: AnyPartition) -> list[tuple[int, int]]:
        """Return the index ranges of the rows to read, in reading order."""
        out = [(partition.find(r.low), partition.find(r.high)) for r in self.ranges]
        resume = self.resume
        if resume is not None and resume[1] is not None and resume[0] == partition.key:
            place = self.store.position(resume[1])
            if self.reverse:
                stop = partition.find(place)
                out = [(low, min(high, stop)) for low, high in out]
            else:
                start = partition.find_after(place)
                out = [(max(low, start), high) for low, high in out]
        out = [(low, high) for low, high in out if low < high]
        return out[::-1] if self.reverse else out

    def views(self, partition: AnyPartition) -> Iterator[RowView]:
        """Yield the live rows of a partition."""
        if isinstance(partition, PackedPartition):
            yield from self._packed(partition)
            return
        now_s = self.now_s
        static = self.live_static(partition)
        found = False
        for low, high in self.slices(partition):
            if self.counts and partition.lives_on and len(partition) <= _COUNTED_AT_ONCE:
                found = True
                yield from itertools.repeat(RowView(partition.key, (), None, static, now_s), high - low)
                continue
            indexes = range(high - 1, low - 1, -1) if self.reverse else range(low, high)
            for at in indexes:
                ck, row = partition.entry(at)
                if Partition.is_live(row, now_s):
                    found = True
                    yield RowView(partition.key, ck, row, static, now_s)
        # A partition that is resumed has given a row on an earlier page.
        resumed = self.resume is not None and self.resume[0] == partition.key
        if static is not None and not found and self.statics and not resumed:
            yield RowView(partition.key, None, None, static, now_s)

    def live_static(self, partition: Partition) -> RowMutation | None:
        """Return the static row if any of its cells is live."""
        row = partition.static
        if row is not None and any(is_live_cell(cell, self.now_s) for cell in row.cells.values()):
            return row
        return None

    def _packed(self, partition: PackedPartition) -> Iterator[RowView]:
        now_s = self.now_s
        any_row = RowView(partition.key, (), None, None, now_s) if len(partition) <= _COUNTED_AT_ONCE else None
        for low, high in self.slices(partition):
            indexes = range(high - 1, low - 1, -1) if self.reverse else range(low, high)
            for at in indexes:
                if not partition.is_live(at, now_s):
                    continue
                if self.counts and any_row is not None:
                    yield any_row
                else:
                    yield RowView(partition.key, partition.clustering_key(at), partition.row(at), None, now_s)

    def wires(self, partition: PackedPartition, most: int, room: int, *, single: bool) -> Wires:
        """Return up to ``most`` finished rows, or up to the one that fills ``room`` bytes. ``single``: one a piece."""
        out = Wires()
        # One look for the whole partition decides which of the two ways is taken.
        if self.reverse or partition.has_expired(self.now_s):
            for low, high in self.slices(partition):
                for at in range(high - 1, low - 1, -1) if self.reverse else range(low, high):
                    if partition.is_live(at, self.now_s):
                        if out.count >= most or out.size >= room:
                            out.has_more = True
                            return out
                        out.add(partition.wires(at, at + 1), 1, at)
            return out
        cut = partition.wires if single else partition.joined
        for low, high in self.slices(partition):
            # Whole slices, without a look at any row: this is what reading a log costs.
            end = partition.fitting(low, min(high, low + most - out.count), room - out.size)
            if low < end:
                out.add(cut(low, end), end - low, end - 1)
            if end < high:
                out.has_more = True
                break
        return out
