"""Places in a partition's clustering order, as plain tuples that compare the way the table declares.

A row's position is the tuple of its clustering values' sort keys. The place just before every row that starts with a
prefix is the prefix's own tuple; the place just after them is that tuple with ``HIGH`` at its end. Every clustering
range is then a half-open interval ``[start, end)`` of tuples, and bisecting a list of positions finds its rows.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final

import attrs

from ..schema.tables import Column, TableSchema
from .mutation import Bound, Key, RangeTombstone

__all__ = ["HIGH", "Descending", "Position", "RangeTombstones", "bound_end", "bound_start", "position_maker"]

Position = tuple[Any, ...]


class _High:
    """Greater than every sort key."""

    __slots__ = ()

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return other is self

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __ge__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "HIGH"


HIGH: Final = _High()


class Descending:
    """A sort key of a column declared DESC: compares the other way round."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and bool(self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Any) -> Any:
        return other.key < self.key if isinstance(other, Descending) else NotImplemented

    def __le__(self, other: Any) -> Any:
        return other.key <= self.key if isinstance(other, Descending) else NotImplemented

    def __gt__(self, other: Any) -> Any:
        return other.key > self.key if isinstance(other, Descending) else NotImplemented

    def __ge__(self, other: Any) -> Any:
        return other.key >= self.key if isinstance(other, Descending) else NotImplemented

    def __repr__(self) -> str:
        return f"Descending({self.key!r})"


def _token_key(stream_id: bytes) -> Any:
    return (bytes((stream_id[0] ^ 0x80,)) + stream_id[1:]) if stream_id else stream_id


def _column_key(column: Column) -> Callable[[bytes], Any]:
    sort_key = _token_key if column.by_token else column.type.sort_key
    if not column.descending:
        return sort_key

    def descending(value: bytes) -> Any:
        key = sort_key(value)
        # A negated number is smaller and faster to compare than a wrapper object. Keys that are integers are mixed
        # with infinities, for empty values and NaN.
        return -key if type(key) in (int, float) else Descending(key)

    return descending


@functools.lru_cache(maxsize=1024)
def _position_maker(columns: tuple[Column, ...]) -> Callable[[Key], Position]:
    keys = [_column_key(column) for column in columns]
    # One and two columns have functions of their own: this runs for each row that is written, and logs have two.
    if len(keys) == 1:
        only = keys[0]
        return lambda parts: tuple([only(part) for part in parts])
    if len(keys) == 2:
        first, second = keys

        def pair(parts: Key) -> Position:
            if len(parts) == 2:
                return (first(parts[0]), second(parts[1]))
            return (first(parts[0]),) if parts else ()

        return pair
    return lambda parts: tuple([key(part) for key, part in zip(keys, parts, strict=False)])


def position_maker(table: TableSchema) -> Callable[[Key], Position]:
    """Return the function from a clustering key (or a prefix of one) to its position in ``table``."""
    return _position_maker(table.clustering_key)


def bound_start(bound: Bound, position: Callable[[Key], Position]) -> Position:
    """Return the position where a range with this start begins."""
    return position(bound.prefix) if bound.inclusive else (*position(bound.prefix), HIGH)


def bound_end(bound: Bound, position: Callable[[Key], Position]) -> Position:
    """Return the position where a range with this end stops (exclusive)."""
    return (*position(bound.prefix), HIGH) if bound.inclusive else position(bound.prefix)


@attrs.define
class _Span:
    start: Position
    end: Position
    tombstone: RangeTombstone


@attrs.define
class RangeTombstones:
    """Deleted ranges, disjoint and in clustering order.

    Where two overlap the newer one cuts the older; equal timestamps that overlap or touch become one range.
    """

    position: Callable[[Key], Position]
    spans: list[_Span] = attrs.field(factory=list)

    def __bool__(self) -> bool:
        return bool(self.spans)

    def as_list(self) -> list[RangeTombstone]:
        return [span.tombstone for span in self.spans]

    def covering(self, position: Position) -> int | None:
        """Return the timestamp of the tombstone that covers the row at ``position``, or None."""
        at = bisect_right(self.spans, position, key=lambda span: span.start)
        if at and position < self.spans[at - 1].end:
            return self.spans[at - 1].tombstone.timestamp
        return None

    def add(self, tombstone: RangeTombstone) -> None:
        start = bound_start(tombstone.start, self.position)
        end = bound_end(tombstone.end, self.position)
        # DELETE ... WHERE ck < 1 AND ck > 2 deletes nothing, and leaves nothing in the log either.
        if not start < end:
            return
        kept: list[_Span] = []
        pieces = [_Span(start, end, tombstone)]
        for old in self.spans:
            if old.end <= start or end <= old.start:
                kept.append(old)
            # Of equal ones the old range stays whole; _joined makes one of it and what is left of the new one.
            elif old.tombstone.timestamp >= tombstone.timestamp:
                pieces = [part for piece in pieces for part in _cut(piece, old)]
                kept.append(old)
            else:
                kept.extend(_cut(old, _Span(start, end, tombstone)))
        self.spans = _joined(sorted([*kept, *pieces], key=lambda span: span.start))


def _cut(span: _Span, by: _Span) -> list[_Span]:
    """Return what is left of ``span`` outside ``by``."""
    if by.end <= span.start or span.end <= by.start:
        return [span]
    left: list[_Span] = []
    timestamp = span.tombstone.timestamp
    if span.start < by.start:
        # The cut-off start of one range is the end of the other: inclusive becomes exclusive.
        end = attrs.evolve(by.tombstone.start, inclusive=not by.tombstone.start.inclusive)
        left.append(_Span(span.start, by.start, RangeTombstone(span.tombstone.start, end, timestamp)))
    if by.end < span.end:
        start = attrs.evolve(by.tombstone.end, inclusive=not by.tombstone.end.inclusive)
        left.append(_Span(by.end, span.end, RangeTombstone(start, span.tombstone.end, timestamp)))
    return left


def _joined(spans: list[_Span]) -> list[_Span]:
    """Merge neighbours that touch and carry the same timestamp."""
    out: list[_Span] = []
    for span in spans:
        last = out[-1] if out else None
        if last and last.end == span.start and last.tombstone.timestamp == span.tombstone.timestamp:
            merged = RangeTombstone(last.tombstone.start, span.tombstone.end, span.tombstone.timestamp)
            out[-1] = _Span(last.start, span.end, merged)
        else:
            out.append(span)
    return out
