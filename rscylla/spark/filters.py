"""Filters of a batch that Spark pushes down, as bounds of what is read. Pure.

A filter that is not understood narrows nothing: Spark applies all of them once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import attrs
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from .._timeuuid import us_of
from ..cdc.span import Span
from .reading import Scan

__all__ = ["Narrowing"]


@attrs.frozen
class Narrowing:
    """What filters leave to read: a half-open span of time, some streams, some operations. None: no bound."""

    start_us: int | None = None
    end_us: int | None = None
    streams: frozenset[bytes] | None = None
    operations: frozenset[str] | None = None

    @classmethod
    def of(cls, filters: Iterable[Any]) -> Narrowing:
        """Return what *filters*, all of which hold, leave."""
        found = cls()
        for one in filters:
            found = found.with_filter(one)
        return found

    def with_filter(self, one: Any) -> Narrowing:
        name = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else ""
        values = [one.value] if isinstance(one, EqualTo) else list(one.value) if isinstance(one, In) else None
        if name in ("cdc_timestamp", "timestamp", "cdc$timestamp"):
            return self._with_time(one)
        if values is None or any(v is None for v in values):
            return self
        if name in ("cdc_stream_id", "cdc$stream_id"):
            return attrs.evolve(self, streams=_both(self.streams, frozenset(map(bytes, values))))
        if name in ("cdc_operation", "type") and all(isinstance(v, str) for v in values):
            return attrs.evolve(self, operations=_both(self.operations, frozenset(values)))
        return self

    def _with_time(self, one: Any) -> Narrowing:
        moment = getattr(one, "value", None)
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            return self
        us = us_of(moment)
        if isinstance(one, GreaterThan | GreaterThanOrEqual | EqualTo):
            from_us = us + isinstance(one, GreaterThan)
            self = attrs.evolve(self, start_us=max(from_us, from_us if self.start_us is None else self.start_us))
        if isinstance(one, LessThan | LessThanOrEqual | EqualTo):
            to_us = us + (not isinstance(one, LessThan))
            self = attrs.evolve(self, end_us=min(to_us, to_us if self.end_us is None else self.end_us))
        return self

    def bounds(self, start_us: int, end_us: int) -> tuple[int, int]:
        """Return a span of time with the bounds applied."""
        start_us = start_us if self.start_us is None else max(start_us, self.start_us)
        return start_us, end_us if self.end_us is None else min(end_us, self.end_us)

    def spans(self, spans: Iterable[Span]) -> list[Span]:
        """Return *spans* without the streams that are not wanted, and without those that then have none."""
        if self.streams is None:
            return list(spans)
        wanted = self.streams
        kept = (attrs.evolve(s, streams=tuple(i for i in s.streams if i in wanted)) for s in spans)
        return [span for span in kept if span.streams]

    def scan(self, scan: Scan) -> Scan:
        """Return *scan* for the operations that are wanted. The log's own are numbers, which are left to Spark."""
        return scan if self.operations is None else attrs.evolve(scan, operations=self.operations)


def _both(known: frozenset[Any] | None, more: frozenset[Any]) -> frozenset[Any]:
    return more if known is None else known & more
