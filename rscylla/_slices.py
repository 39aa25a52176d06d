"""Slices of a table's keys, for processes that read one table together.

A slice is a span of the token ring: the key of a change alone says which slice it is of, so a key always
has the same slice, whatever happens to nodes, generations, and tablets.
"""

from __future__ import annotations

import re
from typing import Self

import attrs

from .errors import ConfigError

__all__ = ["Slice", "split_lane", "split_name"]

TOKENS = 1 << 64
"""How many tokens the ring has; the lowest is ``-TOKENS // 2``."""

_LANE = re.compile(r"(.*\])\[[^\[\]/]*\]", re.DOTALL)

_NAME = re.compile(r"(.*)\[(\d{1,9})/(\d{1,9})\]", re.DOTALL)


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
        if type(index) is not int or type(count) is not int or not 0 <= index < count <= 1_000_000:
            raise ConfigError(f"slice must be (m, n), two ints with 0 <= m < n, not {given!r}")
        return cls(index, count)

    def name(self, consumer: str) -> str:
        """Return the name under which this slice of *consumer* keeps its cursor: ``billing[0/4]``; whole, its own.

        >>> Slice(0, 4).name("billing"), Slice(0, 1).name("billing")
        ('billing[0/4]', 'billing')
        """
        return consumer if self.count == 1 else f"{consumer}[{self.index}/{self.count}]"

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
            lowest, highest = -(TOKENS // 2), TOKENS // 2 - 1
            return start == end or (start < highest and self.meets(start, highest)) or self._meets(lowest, end)
        return self._meets(start + 1, end)

    def _meets(self, first: int, last: int) -> bool:
        return slice_at(first, self.count) <= self.index <= slice_at(last, self.count)


def slice_at(token: int, count: int) -> int:
    """Return the index of the slice, of *count*, that *token* is in.

    >>> [slice_at(t, 4) for t in (-(2**63), -1, 0, 2**63 - 1)]
    [0, 1, 2, 3]
    """
    return (token + TOKENS // 2) * count >> 64


def split_name(name: str) -> tuple[str, Slice] | None:
    """Return the consumer and slice that *name* is of, None if it is of a whole consumer.

    >>> split_name("billing[0/4]"), split_name("billing")
    (('billing', Slice(index=0, count=4)), None)
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    index, count = int(match[2]), int(match[3])
    return (match[1], Slice(index, count)) if index < count and count > 1 else None


def split_lane(name: str) -> tuple[str, Slice] | None:
    """Return the consumer and slice that *name* is of, also as a lane of a slice, None if it is of a whole consumer.

    >>> split_lane("billing[0/4][fast]"), split_lane("billing[fast]")
    (('billing', Slice(index=0, count=4)), None)
    """
    lane = _LANE.fullmatch(name)
    return split_name(name) or (split_name(lane[1]) if lane else None)
