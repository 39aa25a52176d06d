"""Which streams a slice of a table has to read, and which of their rows it then delivers. Pure.

A key belongs to one slice by its own token, and to one stream a generation by the range of tokens that the stream
serves. Where a range lies inside of a slice, the whole stream is the slice's. The few ranges that lie across the edge
of two slices are read by both, and each keeps the rows of its own keys. So a key is read by one process only, in every
generation: the order of its changes holds across a switch without processes that wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from .._slices import Slice, slice_at
from .rows import Cells, Layout, LogRows
from .topology import Range

__all__ = ["Part", "part_of", "routing_key"]

TokenOf = Callable[[bytes], int]
"""Gives the token of a serialized partition key."""


@attrs.frozen(eq=False)
class Part:
    """What one slice reads of a generation.

    ``streams``: in the given order. ``shared``: those that other slices read too, and the slices that do.
    """

    key_slice: Slice
    streams: tuple[bytes, ...]
    shared: Mapping[bytes, tuple[int, ...]]

    def keep_own(self, rows: LogRows, token: TokenOf) -> None:
        """Take from *rows* those of keys of other slices. Each row of a stream is kept by exactly one reader of it."""
        if not self.shared:
            return
        owners: dict[Cells, int] = {}

        def is_own(layout: Layout, cells: Cells) -> bool:
            readers = self.shared.get(cells[layout.stream_id])  # type: ignore[arg-type]
            if readers is None:
                return True
            key = layout.raw_partition_key(cells)
            owner = owners.get(key)
            if owner is None:
                owner = owners[key] = slice_at(token(routing_key(key)), self.key_slice.count)
            # A key that a stream should not hold is kept: better out of order than lost.
            return (owner if owner in readers else readers[0]) == self.key_slice.index

        kept = [i for i, cells in enumerate(rows.cells) if is_own(rows.layout_at(i), cells)]
        if len(kept) < len(rows):
            rows.take(kept)


def part_of(streams: Sequence[bytes], key_slice: Slice, ranges: Callable[[Sequence[bytes]], Iterable[Range]]) -> Part:
    """Return the part of *key_slice* of a generation's *streams*, which are in ascending order of token.

    Args:
        ranges: gives the tokens of their keys; see ``Topology.ranges``.
    """
    if key_slice.count == 1:
        return Part(key_slice, tuple(streams), {})
    mine: list[bytes] = []
    shared: dict[bytes, tuple[int, ...]] = {}
    for members, start, end in ranges(streams):
        readers = tuple(i for i in _near(start, end, key_slice.count) if Slice(i, key_slice.count).meets(start, end))
        if key_slice.index in readers:
            mine += members
            if len(readers) > 1:
                shared.update(dict.fromkeys(members, readers))
    order = {stream: i for i, stream in enumerate(streams)}
    return Part(key_slice, tuple(sorted(mine, key=order.__getitem__)), shared)


def routing_key(key: Iterable[bytes | None]) -> bytes:
    """Return a partition key as the database hashes it: one column as it is, several each with length and a zero."""
    cells = [cell or b"" for cell in key]
    if len(cells) == 1:
        return cells[0]
    return b"".join(len(cell).to_bytes(2, "big") + cell + b"\x00" for cell in cells)


def _near(start: int, end: int, count: int) -> Iterable[int]:
    """Return the indices of slices that may have tokens of a span, ascending; ranges are short, counts may be large."""
    if start >= end:
        return range(count)
    return range(slice_at(start, count), slice_at(end, count) + 1)
