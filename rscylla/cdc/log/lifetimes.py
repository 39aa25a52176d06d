"""The TTLs of the rows of a log, by their write time, and therefore which rows have expired. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from ..._timeuuid import datetime_of
from ...event import EventID
from .table import DEFAULT_TTL_S, LoggedTable
from .walk import Gap

__all__ = ["EARLY_US", "NEVER_US", "Lifetimes", "Promise"]

NEVER_US = 2**63

EARLY_US = 1_000_000
"""A row may expire so much before its TTL is over: nodes count whole seconds, from the start of the one of the write.

Source: Scylla ``gc_clock.hh``.
"""


@attrs.frozen
class Lifetimes:
    """The TTLs with which rows were written: ``spans`` has start times and seconds; 0: no TTL, None: not known.

    The TTL of a row is the table's option at the time of the write. A later change of the option does not affect it.
    ``assumed_until_us``: the TTL of rows written before that time is an assumption; 0 if none is.
    """

    spans: tuple[tuple[int, int | None], ...]
    assumed_until_us: int = 0

    @classmethod
    def of(cls, table: LoggedTable) -> Lifetimes:
        """Return the lifetimes that the schema shows: the current option, and the time since which it applies."""
        if table.altered_us is None:
            return cls(((0, table.ttl_s),))
        return cls(((0, None), (table.altered_us, _written_with(table))))

    def knowing(self, ttl_s: int) -> Lifetimes:
        """Return a copy with *ttl_s* as the TTL of the oldest rows if that was not known."""
        return attrs.evolve(self, spans=((0, ttl_s), *self.spans[1:])) if self.spans[0][1] is None else self

    def assuming(self, ttl_s: int) -> Lifetimes:
        """Return a copy with *ttl_s* as the TTL of the oldest rows if that is not known."""
        until_us = self.unknown_until_us()
        return attrs.evolve(self.knowing(ttl_s), assumed_until_us=until_us) if until_us else self

    def doubting(self, ttl_s: int) -> Lifetimes:
        """Return a copy with the longest TTL that is likely as the unknown one: a day, or *ttl_s* if that is longer.

        Args:
            ttl_s: the current option of the table, 0 for no TTL.
        """
        return self.assuming(max(DEFAULT_TTL_S, ttl_s) if ttl_s else 0)

    def needs_row(self, cursor: EventID) -> bool:
        """Return whether only the row of *cursor* contains the TTL of rows written at that time."""
        return cursor.is_row and cursor.exact_us < self.unknown_until_us()

    def known_from(self, cursor: EventID, now_us: int, left_s: Sequence[int | None] | None) -> Lifetimes | None:
        """Return the lifetimes with the TTL from before the table was altered; None if the row of *cursor* has expired.

        A progress cursor contains the TTL, and the row of a row cursor has its remaining TTL. For other cursors, the
        TTL stays unknown.

        Args:
            left_s: if ``needs_row``, the result of ``row_left_s``: the remaining TTL of the row in seconds, or None for
                a row without a TTL; empty if the row is gone. None if the row was not looked up.
        """
        if not self.needs_row(cursor):
            known_s = None if cursor.mark is None else cursor.mark.ttl_s
            return self if known_s is None or cursor.exact_us >= self.unknown_until_us() else self.knowing(known_s)
        if left_s is None:
            return self
        if not left_s:
            return None
        age_s = max(0, now_us - cursor.exact_us) // 1_000_000 + 1
        return self.knowing(0 if left_s[0] is None else age_s + left_s[0])

    def is_unknown_at(self, cursor: EventID) -> bool:
        """Return whether rows that were unread when *cursor* was saved may have expired with an unknown TTL."""
        is_start = cursor.mark is not None and cursor.mark.is_start
        return cursor.exact_us < self.unknown_until_us() and not is_start

    def altered(self, table: LoggedTable, now_us: int) -> Lifetimes:
        """Return the lifetimes with the current TTL of *table* added."""
        ttl_s = _written_with(table)
        if ttl_s == self.spans[-1][1]:
            return self
        since_us = now_us if table.altered_us is None else table.altered_us
        return attrs.evolve(self, spans=(*self.spans, (max(since_us, self.spans[-1][0]), ttl_s)))

    def ttl_at(self, time_us: int) -> int | None:
        """Return the TTL of rows that were written at *time_us*."""
        return next(ttl_s for since_us, ttl_s in reversed(self.spans) if since_us <= max(0, time_us))

    def unknown_until_us(self) -> int:
        """Return the time from which the TTLs are known."""
        return self.spans[1][0] if self.spans[0][1] is None else 0

    def gaps_after(self, at_us: int, now_us: int) -> Iterator[Gap]:
        """Yield the spans from *at_us* on of which all rows have expired at *now_us*, in order of time."""
        for start_us, end_us, ttl_s in self._bounded():
            if ttl_s:
                start_us, end_us = max(start_us, at_us), min(end_us, now_us - ttl_s * 1_000_000)
                if start_us < end_us:
                    yield Gap(start_us, end_us, ttl_s)

    def missing(self, at_us: int, now_us: int, first_us: int) -> tuple[Gap, ...]:
        """Return ``gaps_after`` and the time before *first_us*, the start of the first generation."""
        expired = tuple(self.gaps_after(max(at_us, first_us), now_us))
        if at_us >= first_us:
            return expired
        if expired and expired[0].start_us == first_us:
            return attrs.evolve(expired[0], start_us=at_us), *expired[1:]
        return Gap(at_us, first_us), *expired

    def oldest_us(self, now_us: int) -> int:
        """Return the time from which rows may exist. Rows with an unknown TTL may all exist."""
        for start_us, end_us, ttl_s in self._bounded():
            oldest_us = max(start_us, now_us - ttl_s * 1_000_000) if ttl_s else start_us
            if oldest_us < end_us:
                return oldest_us
        raise AssertionError("the last span has no end")

    def _bounded(self) -> Iterator[tuple[int, int, int | None]]:
        ends = [*(since_us for since_us, _ in self.spans[1:]), NEVER_US]
        for (start_us, ttl_s), end_us in zip(self.spans, ends, strict=True):
            yield start_us, end_us, ttl_s


@attrs.frozen
class Promise:
    """Which rows a reader must not miss: those written from ``from_us`` on that had not expired by ``since_us``.

    ``lifetimes`` has their TTLs. ``ahead_us``: how far the fastest clock of nodes was ahead of the slowest one.
    """

    lifetimes: Lifetimes
    from_us: int = 0
    since_us: int = 0
    ahead_us: int = 0

    def lost(self, start_us: int, end_us: int, now_us: int, first_us: int = 0) -> Gap | None:
        """Return the first span of promised rows from *start_us* to *end_us* that have expired at *now_us*, or None.

        It may end after *end_us*. *first_us*: the start of the first generation; rows from before it are gone, too.
        """
        lifetimes = self.lifetimes
        for gap in lifetimes.missing(max(start_us, self.from_us), now_us + EARLY_US, first_us):
            lost_us = gap.start_us
            gone = next(lifetimes.gaps_after(lost_us, self.since_us), None)
            if gone is not None and gone.start_us <= lost_us:
                lost_us = gone.end_us
            if lost_us < min(gap.end_us, end_us):
                return attrs.evolve(gap, start_us=lost_us)
        return None

    def message(self, table: LoggedTable, lost: Gap) -> str:
        """Return the message about *lost*, a result of ``lost`` for the log of *table*."""
        if lost.ttl_s is None:
            kept = "no longer has streams of that time"
        elif lost.start_us < self.lifetimes.assumed_until_us:
            kept = f"keeps {lost.ttl_s} s (assumed, because the table was altered since)"
        else:
            kept = f"keeps {lost.ttl_s} s"
        start, end = (f"{datetime_of(us):%Y-%m-%d %H:%M:%S}" for us in (lost.start_us, lost.end_us + 999_999))
        return f"the log of {table.full_name} {kept}: changes from {start} to {end} UTC may be lost"


def _written_with(table: LoggedTable) -> int:
    return table.ttl_s if table.enabled else 0  # nothing is written, so nothing expires
