"""Which streams a slice of a table has to read, and which of their rows it then delivers. Pure.

A key belongs to one slice by its own token, and to one stream a generation by the range of tokens that the stream
serves. Where a range lies inside of a slice, the whole stream is the slice's. The few ranges that lie across the edge
of two slices are read by both, and each keeps the rows of its own keys. So a key is read by one process only, in every
generation: the order of its changes holds across a switch without processes that wait for each other.

The token of a stream is not that of its keys. With vnodes it is the first token that one of a node's shards has
somewhere in the vnode, so all streams of a vnode are taken to serve all of it; and the ids do not tell where a vnode
begins, so up to the last stream token of the vnode before, the keys may be its own. With tablets the token of a stream
is the last of its tablet, and the range is exact.
Source: Scylla ``cdc/generation.cc``, ``docs/dev/cdc.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import attrs

from .._slices import Slice, slice_at
from .._streamid import token_of, vnode_of
from .rows import Cells, Layout, LogRows
from .topology import Model

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
            # A key that a stream should not hold is still somebody's: rather out of order than lost.
            return (owner if owner in readers else readers[0]) == self.key_slice.index

        kept = [i for i, cells in enumerate(rows.cells) if is_own(rows.layout_at(i), cells)]
        if len(kept) < len(rows):
            rows.take(kept)


def part_of(streams: Sequence[bytes], key_slice: Slice, model: Model) -> Part:
    """Return the part of *key_slice* of a generation's *streams*, which are in ascending order of token."""
    if key_slice.count == 1:
        return Part(key_slice, tuple(streams), {})
    mine: list[bytes] = []
    shared: dict[bytes, tuple[int, ...]] = {}
    for members, start, end in _ranges(streams, model):
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


def _ranges(streams: Sequence[bytes], model: Model) -> Iterable[tuple[Sequence[bytes], int, int]]:
    """Yield groups of streams with the span of tokens, after the first to the second, that their keys may have."""
    if model == "tablets":
        # The keys after the last tablet, of which there are none, would go to the first.
        for at, stream in enumerate(streams):
            yield [stream], token_of(streams[at - 1]), token_of(stream)
        return
    vnodes: dict[int | None, list[bytes]] = {}
    for stream in streams:
        vnodes.setdefault(vnode_of(stream), []).append(stream)
    spans = _in_turn(vnodes)
    if spans is None:
        yield streams, 0, 0  # an early form of ids, which does not tell the vnode: any key may be in any
        return
    for at, (members, _, _) in enumerate(spans):
        _, _, last_before = spans[at - 1]
        _, first_after, _ = spans[(at + 1) % len(spans)]
        yield members, last_before, first_after - 1


def _in_turn(vnodes: Mapping[int | None, Sequence[bytes]]) -> list[tuple[Sequence[bytes], int, int]] | None:
    """Return each vnode's streams with their first and last token, in the order of the ring; None if there is no order.

    The first vnode is that which passes the end of the ring, so some of its tokens may be above all others.
    """
    if None in vnodes or len(vnodes) < 2:
        return None
    ranked = [vnodes[v] for v in sorted(v for v in vnodes if v is not None)]
    second = token_of(ranked[1][0])
    first = ranked[0]
    above = [s for s in first if token_of(s) >= second]
    ordered = [*above, *(s for s in first if token_of(s) < second)]
    spans = [(s, token_of(s[0]), token_of(s[-1])) for s in (ordered, *ranked[1:])]
    inner = spans[1:]
    rising = all(a[2] < b[1] for a, b in pairwise(inner))
    outside = all(token_of(s) < second for s in ordered[len(above) :]) and all(
        token_of(s) > inner[-1][2] for s in above
    )
    return spans if rising and outside else None
