"""Follows a log that is still written: asks the walk for its next step, given the current state of the log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import attrs

from ..._timeuuid import us_of
from ...errors import TableChanged
from ...event import EventID
from ...options import StreamOptions
from ..log import (
    LOG_DROP_AHEAD_US,
    NEVER_US,
    PROBE_FROM_US,
    Blank,
    End,
    Gap,
    Generation,
    LoggedTable,
    OnExpired,
    Probe,
    Promise,
    Read,
    Skip,
    Source,
    Switch,
    Wait,
    Walk,
    Width,
)

__all__ = ["Follower"]


class Follower:
    """A walk along a log that keeps its knowledge of the log up to date and skips expired rows.

    Used by one thread at a time. The owner takes the steps, and replaces ``walk`` with the walk after each step.

    Args:
        start: where to begin.
        options: ``lag`` is set.
        promised: *start* is the cursor of a consumer, so it is an error if rows after it expire unread.
        least_us, probe_from_us: as for ``Walk``.

    Raises:
        ConfigError: the log keeps rows for less than the lag; see ``Source.check_lag``.
    """

    def __init__(
        self,
        source: Source,
        start: EventID,
        options: StreamOptions,
        width: Width,
        on_expired: OnExpired,
        *,
        promised: bool,
        least_us: int = 0,
        probe_from_us: int | None = PROBE_FROM_US,
    ) -> None:
        self._source = source
        self._on_expired: OnExpired = on_expired
        assert options.lag is not None
        self.lag_us = options.lag // timedelta(microseconds=1)
        source.check_lag(self.lag_us, on_expired)
        # No row before a start is delivered, even if a generation that is not known yet begins before it.
        is_start = start.mark is not None and start.mark.is_start
        is_ahead = start.mark is None and not start.is_row and start.exact_us > source.now_us()
        self.walk = Walk(
            Generation(start.generation),
            start.exact_us,
            width,
            floor_us=start.exact_us if is_start or is_ahead else 0,
            end_us=None if options.until is None else us_of(options.until),
            to_head=options.to_head,
            least_us=least_us,
            probe_from_us=probe_from_us,
        )
        self.promised_us = start.exact_us if promised else source.now_us()
        """Time from which rows must not be missed: the start if it is promised, otherwise the current time."""
        if source.gaps:  # the skipped gap was reported, and grows while rows expire
            self.promised_us = max(self.promised_us, source.safe_start_us())
        self.told: set[int] = set()  # the starts of the spans that were reported
        self.watermark_us = 0
        """All rows before it had arrived when the last step was planned."""

    def next(self, halt_us: int | None = None) -> Read | Probe | Switch | Wait | End:
        """Return the next step; for *halt_us* see ``Walk.next``. Blocks on small queries.

        Raises:
            CursorExpired: promised rows have expired unread, or may not have been logged, and the policy is to raise.
            CDCDisabled: CDC is off since the position, and the policy is to raise; or the log no longer exists.
            TableChanged, TableNotFound: the log no longer exists.
            SourceError, MetadataError: the metadata cannot be read.
        """
        if self.walk.is_done:
            return End()
        source = self._source
        self.watermark_us = source.watermark_us(self.lag_us)
        source.refresh_metadata()
        gaps = source.gaps_after(self.walk.at_us)  # read once, because more rows expire during the loop
        while True:
            halt_us = self._before_blank(halt_us)
            generations = source.generations_until(self.walk.horizon_us(self.watermark_us), self.lag_us)
            step = self.walk.next(generations, self.watermark_us, gaps, halt_us)
            if isinstance(step, Switch):
                # Each tablets table has its own streams, so the next set may belong to a log that was created again.
                source.reread_table(retrying=True)
            if not isinstance(step, Skip):
                return step
            gaps = tuple(gap for gap in gaps if gap != step.gap)
            self._pass_over(step.gap, generations)

    def blank_until(self, time_us: int) -> bool:
        """Return whether changes until *time_us* may not have been logged; the next step says so."""
        return self._blank(time_us) is not None

    def _blank(self, until_us: int = NEVER_US) -> Blank | None:
        from_us = max(self.walk.at_us, self.promised_us)
        blank = self._source.blanks.first(from_us, until_us) if from_us < until_us else None
        return None if blank is None or blank.start_us in self.told else blank

    def _before_blank(self, halt_us: int | None) -> int | None:
        """Return *halt_us*, or the time before it from which changes may not have been logged; report that when there.

        Raises:
            CDCDisabled, CursorExpired: it is here, and the policy is to raise.
        """
        while (blank := self._blank()) is not None:
            at_us = max(blank.start_us, self.promised_us)
            if at_us > self.walk.at_us:
                is_before = halt_us is not None and self.walk.at_us < halt_us < at_us
                return halt_us if is_before else at_us
            self._source.report_blank(blank, self._on_expired)
            self.told.add(blank.start_us)
        return halt_us

    def point(self, walk: Walk) -> EventID:
        """Return the position of *walk* as a cursor."""
        is_start = walk.at_us == walk.floor_us
        return (self._source.start if is_start else self._source.read_until)(walk.generation, walk.at_us)

    @property
    def promise(self) -> Promise:
        """The rows that must not be missed, by what is known now."""
        return Promise(self._source.lifetimes, self.promised_us)

    def has_lost(self, since_us: int, until_us: int) -> bool:
        """Return whether promised rows between the two times have expired by now."""
        return self._source.missed(since_us, until_us, self.promise) is not None

    def report_lost_keys(self, table: LoggedTable, end_us: int) -> None:
        """Report that rows before *end_us* were left out because *table* no longer has their keys, if promised.

        Raises:
            TableChanged: they were promised, and the policy is to raise.
        """
        if end_us <= self.promised_us:
            return
        if self._on_expired == "raise":
            raise TableChanged(
                f"{table.lost_keys}; repair the consumer's data, then reset its cursor to that time or later, or "
                "open the stream with on_expired='oldest'"
            )
        self._source.skip_gap(table.lost_keys)
        assert table.renamed_us is not None
        # Reported once until this time is reached.
        self.promised_us = max(self.promised_us, table.renamed_us + LOG_DROP_AHEAD_US)

    def check_kept(self, lost: Gap | None, end_us: int) -> None:
        """Check the rows up to *end_us* that were read just now; report *lost*, the promised ones that had expired.

        Raises:
            CursorExpired: some had, and the policy is to raise.
            TableChanged, TableNotFound, CDCDisabled, SourceError: what was read may be of another log; see
                ``Source.confirm``.
        """
        if lost is not None:
            self._source.pass_over(lost, self._on_expired, promised=True)
        # The rows may be read long after the window was planned: at any time until now, they are to be of this log.
        self._source.confirm(max(end_us, self._source.node_clocks.slowest_us()))

    def _pass_over(self, gap: Gap, generations: Sequence[Generation]) -> None:
        """Report what was promised of *gap*, and continue at the first rows after it that a node may still return."""
        at_us = self.walk.at_us
        # Rows after the watermark are not due, although they may have expired: by the clock of a node that is far
        # ahead, or because the log keeps them for less than the lag. They are reported once they are due.
        remaining_us = min(self._source.remaining_us(at_us), self.watermark_us)
        # The gap may begin before the promise and end after it, when rows expire while the reader is open.
        start_us = max(at_us, self.promised_us)
        end_us = min(max(gap.end_us, remaining_us), self.watermark_us)
        promised = start_us < end_us
        if promised:
            gap = attrs.evolve(gap, start_us=start_us, end_us=end_us)
        if promised or remaining_us > at_us:
            self._source.pass_over(gap, self._on_expired, promised=promised)
        if promised:
            self.promised_us = self._source.now_us()  # reported once until this time is reached
        if remaining_us > at_us:
            self.walk = self.walk.skipped(Skip(Gap(at_us, remaining_us)), generations)
