"""CDC generations of the vnode model: stream ids, the shard that a token belongs to, and which stream a token uses.

Pure: randomness and times come in as arguments.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import attrs

__all__ = ["Generation", "Owner", "StreamRange", "first_token_of_shard", "make_generation", "shard_of", "stream_id"]

_TWO_63: Final = 1 << 63
_TWO_64: Final = 1 << 64
_MAX_TOKEN: Final = _TWO_63 - 1

_VERSION: Final = 1
_INDEX_SHIFT: Final = 4
_INDEX_BITS: Final = 22
_RANDOM_SHIFT: Final = _INDEX_SHIFT + _INDEX_BITS
_RANDOM_BITS: Final = 38

_STREAM_ID = struct.Struct(">qQ")


class Owner(Protocol):
    """What a generation needs to know of a token's owner."""

    @property
    def shards(self) -> int: ...

    @property
    def ignore_msb(self) -> int: ...


def stream_id(token: int, index: int, random_bits: int) -> bytes:
    """Return the 16 bytes of a stream id: the token, then 38 random bits, a 22-bit vnode index and the version.

    Source: Scylla ``cdc/generation.cc``.
    """
    low = (random_bits & ((1 << _RANDOM_BITS) - 1)) << _RANDOM_SHIFT
    low |= (index & ((1 << _INDEX_BITS) - 1)) << _INDEX_SHIFT
    return _STREAM_ID.pack(token, low | _VERSION)


def shard_of(token: int, shards: int, ignore_msb: int) -> int:
    """Return the shard, from 0, that owns ``token``. Source: Scylla ``dht/token.cc``, biased-token-round-robin."""
    return ((((token + _TWO_63) << ignore_msb) % _TWO_64) * shards) >> 64


def _next_token_of_shard(token: int, shard: int, shards: int, ignore_msb: int) -> int:
    """Return the first token after ``token`` where a stretch of ``shard`` begins, or the largest token if none."""
    # Shards repeat with a period of 2^(64 - ignore_msb) tokens; inside one, shard s starts at ceil(s * period / n).
    period = _TWO_64 >> ignore_msb
    offset = -(-shard * period // shards)
    biased = token + _TWO_63
    start = biased - biased % period + offset
    if start <= biased:
        start += period
    return min(start - _TWO_63, _MAX_TOKEN)


def _first_token_in(start: int, end: int, shard: int, shards: int, ignore_msb: int) -> int:
    """Return the first token of ``shard`` in ``(start, end]``, or ``end`` if there is none; start < end."""
    token = start + 1
    if shard_of(token, shards, ignore_msb) != shard:
        token = _next_token_of_shard(token, shard, shards, ignore_msb)
    return min(token, end)


def first_token_of_shard(start: int, end: int, shard: int, shards: int, ignore_msb: int) -> int:
    """Return the first token of ``shard`` in the ring range ``(start, end]``, or ``end`` if the shard owns none there.

    A range with ``start >= end`` wraps around the ring. Source: Scylla ``dht/i_partitioner.cc``.
    """
    if start < end:
        return _first_token_in(start, end, shard, shards, ignore_msb)
    if start < _MAX_TOKEN:
        token = _first_token_in(start, _MAX_TOKEN, shard, shards, ignore_msb)
        # The largest token may stand for "none here"; then the shard is looked for beyond the wrap.
        if token != _MAX_TOKEN:
            return token
    return _first_token_in(-_TWO_63, end, shard, shards, ignore_msb)


@attrs.frozen
class StreamRange:
    """The streams of one vnode. ``range_end`` is its last token; ``streams`` are in ascending byte order."""

    range_end: int
    streams: tuple[bytes, ...]
    ignore_msb: int


@attrs.frozen
class Generation:
    """A set of streams, in use from ``time_ms`` (since the epoch) on. ``entries`` ascend by ``range_end``."""

    time_ms: int
    entries: tuple[StreamRange, ...]
    _ends: tuple[int, ...] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_ends", tuple(entry.range_end for entry in self.entries))

    @property
    def time_us(self) -> int:
        return self.time_ms * 1000

    @property
    def streams(self) -> tuple[bytes, ...]:
        """All stream ids, vnode by vnode."""
        return tuple(stream for entry in self.entries for stream in entry.streams)

    def stream_of(self, token: int) -> bytes:
        """Return the id of the stream that writes with this base token go to. Source: Scylla ``cdc/metadata.cc``."""
        at = bisect_left(self._ends, token)
        # Beyond the last vnode's end the ring starts over.
        entry = self.entries[at if at < len(self._ends) else 0]
        return entry.streams[shard_of(token, len(entry.streams), entry.ignore_msb)]


def make_generation(time_ms: int, owners: Iterable[tuple[int, Owner]], random_bits: Callable[[], int]) -> Generation:
    """Return a generation for a ring of ``(token, owner)``: one stream for each vnode and shard of its owner.

    ``random_bits`` is called once for each stream and gives at least 38 random bits.
    """
    ring = sorted(owners, key=lambda pair: pair[0])
    entries: list[StreamRange] = []
    for index, (end, owner) in enumerate(ring):
        start = ring[index - 1][0]  # of the first vnode: the largest token, for it wraps around
        ids = [
            stream_id(first_token_of_shard(start, end, shard, owner.shards, owner.ignore_msb), index, random_bits())
            for shard in range(owner.shards)
        ]
        # Scylla stores the ids as a set and finds a shard's stream by its place in that, so they are sorted as bytes.
        entries.append(StreamRange(end, tuple(sorted(ids)), owner.ignore_msb))
    return Generation(time_ms, tuple(entries))
