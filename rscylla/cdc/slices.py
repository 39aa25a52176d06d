"""Decides which streams a slice of a table reads, and which of their rows it delivers. Pure.

The token of a key decides its slice, and in each generation also its stream, because a stream serves a range of tokens.
If the range is inside a slice, the whole stream belongs to the slice. The few ranges that cross the edge of a slice are
read by both slices, and each keeps the rows of its own keys. Only one process therefore delivers the changes of a key,
in every generation, and their order holds across a switch without coordination between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from .._slices import Slice, slice_at
from .rows import Cells, LogRows
from .topology import Range

__all__ = ["Part", "part_of", "routing_key"]

TokenOf = Callable[[bytes], int]
"""Returns the token of a serialized partition key."""


@attrs.frozen(eq=False)
class Part:
    """The streams of a generation that one slice reads.

    ``streams``: in the given order. ``shared``: those that other slices also read, with the indexes of all readers.
    """

    key_slice: Slice
    streams: tuple[bytes, ...]
    shared: Mapping[bytes, tuple[int, ...]]

    def keep_own(self, rows: LogRows, token: TokenOf) -> None:
        """Remove the rows of other slices from *rows*. Exactly one reader of a stream keeps each of its rows."""
        if not self.shared or not len(rows):
            return
        doubtful = [i for i, stream in enumerate(_streams_of(rows)) if stream in self.shared]
        foreign = {
            i
            for i, owner in zip(doubtful, self._owners(rows, doubtful, token), strict=True)
            if owner != self.key_slice.index
        }
        if foreign:
            rows.take([i for i in range(len(rows)) if i not in foreign])

    def _owners(self, rows: LogRows, numbers: Sequence[int], token: TokenOf) -> Iterable[int]:
        """Return the slices that keep the rows of shared streams at *numbers*. A key is hashed once."""
        keys = list(_keys_of(rows, numbers))
        owners = {}
        for stream_key in set(keys):
            stream, *key = stream_key
            readers = self.shared[stream or b""]
            owner = slice_at(token(routing_key(key)), self.key_slice.count)
            # If no reader owns the key, the stream should not contain it. The first reader keeps it: a change out of
            # order is better than a lost one.
            owners[stream_key] = owner if owner in readers else readers[0]
        return map(owners.__getitem__, keys)


def part_of(streams: Sequence[bytes], key_slice: Slice, ranges: Callable[[Sequence[bytes]], Iterable[Range]]) -> Part:
    """Return the part of *key_slice* of a generation's *streams*, which are in ascending order of token.

    Args:
        ranges: returns the tokens of their keys; see ``Topology.ranges``.
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
    """Return the bytes of a partition key that the database hashes: the column, or several with lengths and zeros."""
    cells = [cell or b"" for cell in key]
    if len(cells) == 1:
        return cells[0]
    return b"".join(len(cell).to_bytes(2, "big") + cell + b"\x00" for cell in cells)


def _streams_of(rows: LogRows) -> Iterable[bytes | None]:
    """Return the stream of each row."""
    if rows.is_mixed:
        return [rows.cells[i][rows.layout_at(i).stream_id] for i in range(len(rows))]
    return rows.column(rows.layouts[0].stream_id)


def _keys_of(rows: LogRows, numbers: Sequence[int]) -> Iterable[Cells]:
    """Return the stream and the undecoded partition key of the rows at *numbers*."""
    if rows.is_mixed:
        of = ((rows.layout_at(i), rows.cells[i]) for i in numbers)
        return [(cells[layout.stream_id], *layout.raw_partition_key(cells)) for layout, cells in of]
    layout = rows.layouts[0]
    key = layout.keys[: len(layout.table.partition_key)]
    return zip(*(rows.column(index, numbers) for index in (layout.stream_id, *(c.index for c in key))), strict=True)


def _near(start: int, end: int, count: int) -> Iterable[int]:
    """Return the indexes of slices that may have tokens of a span, ascending.

    A shortcut before the exact check, because spans are short and there may be many slices.
    """
    if start >= end:
        return range(count)
    return range(slice_at(start, count), slice_at(end, count) + 1)
