"""The token ring: its bounds, its ranges, the slices of processes that read one table together, and stream ids.

The key of a change alone says which slice it is of, so a key always has the same slice, whatever happens to nodes,
generations, and tablets.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import pairwise
from typing import Self

import attrs

from .errors import ConfigError

__all__ = [
    "FAST",
    "LAST",
    "LEAST",
    "MOST",
    "SNAPSHOT",
    "Slice",
    "TokenRange",
    "slice_at",
    "slice_named",
    "slices_text",
    "token_of",
    "vnode_of",
]

LEAST, LAST = -(2**63), 2**63 - 1
"""The ends of the ring. No key has the least token, and no stream of a log the last."""

MOST = 1_000_000
"""How many slices there are at most."""

_TAIL = re.compile(r"\[(0|[1-9]\d{0,6})/([1-9]\d{0,6})\]\Z", re.ASCII)
"""The end of the name of a slice. Where names are compared, the number of slices or the consumer is known."""

FAST = "[fast]"
"""The end of the name of a fast lane, after that of its consumer or slice."""

SNAPSHOT = "/snapshot"
"""The end of the name under which the progress of a consumer's snapshot is kept, before that of its slice."""


@attrs.frozen
class TokenRange:
    """The tokens above ``low`` and not above ``high``; by default all, as no key has the least one.

    >>> TokenRange().split(2)
    [TokenRange(low=-9223372036854775808, high=-1), TokenRange(low=-1, high=9223372036854775807)]
    """

    low: int = LEAST
    high: int = LAST

    def __attrs_post_init__(self) -> None:
        if not LEAST <= self.low <= self.high <= LAST:
            raise ConfigError(f"the range of tokens from {self.low} to {self.high} is none; low must not be above high")

    def split(self, parts: int) -> list[TokenRange]:
        """Return *parts* ranges that cover this one, in order."""
        if parts < 1:
            raise ConfigError(f"a range cannot be split into {parts} parts; use 1 or more")
        cuts = [self.low + (self.high - self.low) * n // parts for n in range(parts + 1)]
        return [TokenRange(low, high) for low, high in pairwise(cuts)]


@attrs.frozen
class Slice:
    """The slice *index* of *count* equal ones, ``index`` from 0."""

    index: int
    count: int

    @classmethod
    def of(cls, given: tuple[int, int]) -> Self:
        """Return the slice that a pair ``(m, n)`` means.

        Raises:
            ConfigError: it is no such pair.
        """
        try:
            index, count = given
        except (TypeError, ValueError):
            index = count = -1
        if type(index) is not int or type(count) is not int or not 0 <= index < count <= MOST:
            raise ConfigError(f"slice must be (m, n), two ints with 0 <= m < n, not {given!r}")
        return cls(index, count)

    def name(self, consumer: str) -> str:
        """Return the name under which this slice of *consumer* keeps its cursor: ``billing[0/4]``; whole, its own.

        >>> Slice(0, 4).name("billing"), Slice(0, 1).name("billing")
        ('billing[0/4]', 'billing')
        """
        return consumer if self.count == 1 else f"{consumer}[{self.index}/{self.count}]"

    def whole(self, name: str) -> str | None:
        """Return the consumer whose slice has *name*, None if *name* is not named after this slice.

        >>> Slice(0, 4).whole("billing[eu][0/4]"), Slice(0, 4).whole("billing[1/4]"), Slice(0, 1).whole("billing[1/4]")
        ('billing[eu]', None, 'billing[1/4]')
        """
        found = name.removesuffix(self.name(""))
        return found if self.count == 1 or found != name else None

    @classmethod
    def named(cls, name: str, consumer: str) -> Self | None:
        """Return the slice of *consumer* that has *name*; itself is whole. None: another consumer has that name.

        >>> Slice.named("billing[0/4]", "billing"), Slice.named("billing[eu]", "billing")
        (Slice(index=0, count=4), None)
        """
        if name == consumer:
            return cls(0, 1)
        match = _TAIL.fullmatch(name.removeprefix(consumer)) if name.startswith(consumer) else None
        found = match and (int(match[1]), int(match[2]))
        return cls(*found) if found and found[0] < found[1] > 1 else None

    def overlaps(self, other: Slice) -> bool:
        """Whether some key is in both, of whatever numbers of slices."""
        return self.index * other.count < (other.index + 1) * self.count and (
            other.index * self.count < (self.index + 1) * other.count
        )

    def meets(self, start: int, end: int) -> bool:
        """Whether the slice has a token of the span from after *start* to *end*, which may pass the end of the ring.

        A span whose ends are equal is the whole ring.
        """
        if start >= end:
            return start == end or (start < LAST and self.meets(start, LAST)) or self._meets(LEAST, end)
        return self._meets(start + 1, end)

    @property
    def tokens(self) -> TokenRange:
        """The tokens of the keys of the slice."""
        low, high = (-(-(n << 64) // self.count) + LEAST - 1 for n in (self.index, self.index + 1))
        return TokenRange(max(low, LEAST), high)

    def _meets(self, first: int, last: int) -> bool:
        return slice_at(first, self.count) <= self.index <= slice_at(last, self.count)


def slice_at(token: int, count: int) -> int:
    """Return the index of the slice, of *count*, that *token* is in.

    >>> [slice_at(t, 4) for t in (-(2**63), -1, 0, 2**63 - 1)]
    [0, 1, 2, 3]
    """
    return (token - LEAST) * count >> 64


def slice_named(name: str, counts: Collection[int]) -> Slice | None:
    """Return the slice, of *counts* slices, that *name* is named after; None if it is named after none.

    A name tells its slice only to those who know the number of slices: a consumer may be named like a slice of another.
    A whole consumer has any name.

    >>> slice_named("billing[0/4]", {4}), slice_named("billing[0/4]", {1}), slice_named("billing[0/4]", {8})
    (Slice(index=0, count=4), Slice(index=0, count=1), None)
    """
    match = _TAIL.search(name)
    if match is not None:
        index, count = int(match[1]), int(match[2])
        if index < count > 1 and count in counts:
            return Slice(index, count)
    return Slice(0, 1) if 1 in counts else None


def slices_text(indexes: Collection[int]) -> str:
    """Return the slices as text.

    >>> slices_text({5}), slices_text([7, 0, 1, 2, 3])
    ('slice 5', 'slices 0-3, 7')
    """
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    spans = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"slice{'s' if len(indexes) > 1 else ''} {', '.join(spans)}"


# A stream id, big-endian: 8 bytes signed token; then an unsigned 64-bit value of which bits 0-3 are the version, bits
# 4-25 the index of the vnode, the rest random. Source: Scylla ``cdc/generation.cc``.


def token_of(stream_id: bytes) -> int:
    """Return the token of a stream, a signed 64-bit integer."""
    return int.from_bytes(stream_id[:8], "big", signed=True)


def vnode_of(stream_id: bytes) -> int | None:
    """Return the rank of the vnode that owns the stream, or None for ids made before they carried one."""
    low = int.from_bytes(stream_id[8:], "big")
    if low & 0xF != 1:
        return None
    return (low >> 4) & 0x3FFFFF
