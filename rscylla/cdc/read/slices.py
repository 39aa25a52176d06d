"""Decides which streams the slices of a table read, and whose each of their rows is. Pure.

The token of a key decides its slice, and in each generation also its stream, because a stream serves a range of tokens.
If the range is inside a slice, the whole stream belongs to the slice. The few ranges that cross the edge of a slice are
read by both slices, and each keeps the rows of its own keys. Only one process therefore delivers the changes of a key,
in every generation, and their order holds across a switch without coordination between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from ..._tokens import Slice, slice_at
from ..log import Range
from ..rows import LogRows

__all__ = ["Part", "part_of"]

TokenOf = Callable[[bytes], int]
"""Returns the token of a serialized partition key."""


@attrs.frozen(eq=False)
class Part:
    """The streams of a generation that some slices of *count* read together, usually one.

    ``streams``: in the given order. ``shared``: those that more than one slice reads, with the indexes of all readers.
    ``only``: the slice of each other stream.
    """

    count: int
    indexes: tuple[int, ...]
    streams: tuple[bytes, ...]
    shared: Mapping[bytes, tuple[int, ...]]
    only: Mapping[bytes, int]

    def keep_own(self, rows: LogRows, token: TokenOf) -> None:
        """Remove the rows of other slices from *rows*. Exactly one reader of a stream keeps each of its rows."""
        if not self.shared or not len(rows):
            return
        kept = [i for i, owner in enumerate(self._owners(rows, token)) if owner in self.indexes]
        if len(kept) < len(rows):
            rows.take(kept)

    def divided(self, rows: LogRows, token: TokenOf) -> Mapping[int, LogRows]:
        """Return the rows of each slice that has some, in the order of *rows*. They are rows of their own."""
        if len(self.indexes) == 1:
            return {self.indexes[0]: rows} if len(rows) else {}
        return rows.divided(self._owners(rows, token), self.indexes)

    def _owners(self, rows: LogRows, token: TokenOf) -> Sequence[int]:
        return rows.owners(token, self.count, self.shared, self.only)


def part_of(
    streams: Sequence[bytes], slices: Sequence[Slice], ranges: Callable[[Sequence[bytes]], Iterable[Range]]
) -> Part:
    """Return the part of *slices* of a generation's *streams*, which are in ascending order of token.

    Args:
        slices: at least one, all of the same number of slices.
        ranges: returns the tokens of their keys; see ``Topology.ranges``.
    """
    count, indexes = slices[0].count, tuple(sorted({each.index for each in slices}))
    if count == 1:
        return Part(1, indexes, tuple(streams), {}, {})
    mine: list[bytes] = []
    shared: dict[bytes, tuple[int, ...]] = {}
    only: dict[bytes, int] = {}
    for members, start, end in ranges(streams):
        readers = tuple(i for i in _near(start, end, count) if Slice(i, count).meets(start, end))
        if any(index in readers for index in indexes):
            mine += members
            if len(readers) > 1:
                shared.update(dict.fromkeys(members, readers))
            else:
                only.update(dict.fromkeys(members, readers[0]))
    order = {stream: i for i, stream in enumerate(streams)}
    return Part(count, indexes, tuple(sorted(mine, key=order.__getitem__)), shared, only)


def _near(start: int, end: int, count: int) -> Iterable[int]:
    """Return the indexes of slices that may have tokens of a span, ascending.

    A shortcut before the exact check, because spans are short and there may be many slices.
    """
    if start >= end:
        return range(count)
    return range(slice_at(start, count), slice_at(end, count) + 1)
