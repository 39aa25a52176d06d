"""Walks a log window by window: each step reads one and returns its changes in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Literal

import attrs

from .._slices import Slice
from .._timeuuid import datetime_of, ticks_of, ticks_to_us, us_of
from ..clock import Stop
from ..errors import CursorExpired, HeadReached, QueryFailed, QueryTimeout, TableChanged
from ..event import EventID
from ..options import StreamOptions
from .changes import Change
from .driver import LogStatement, token_of_key
from .pages import Page
from .plan import ScanTask, Width, Window, group_streams, next_window, tasks_for
from .query import first_row_cql, scan_cql
from .records import ChangeEvent, Context, Counters, changes_of, rows_as_events
from .rows import Layouts, LogRows
from .scan import Limits, Scanner, TooMuch, TooSlow
from .slices import part_of
from .source import OnExpired, Source
from .table import LOG_DROP_AHEAD_US
from .topology import Generation, generation_at

__all__ = ["Batch", "Granularity", "Reader", "Settings"]

log = logging.getLogger("rscylla")

Granularity = Literal["change", "row"]

PROBE_FROM_US = 10_000_000
"""Empty time longer than this is not walked but jumped over, by asking each stream for its first row."""

CLOCK_BACK_US = 1_000_000
"""A clock further than this behind what was read already is worth a warning."""


@attrs.frozen
class Settings:
    """How a stream reads, as ``NewStream`` was told."""

    granularity: Granularity = "change"
    event_type: Callable[[Change], int] | None = None
    on_expired: OnExpired = "raise"
    streams_per_query: int = 100
    limits: Limits = attrs.field(factory=Limits)
    poll: timedelta = timedelta(seconds=1)
    progress_every: timedelta = timedelta(seconds=10)
    prefetch: int = 1
    key_slice: Slice = attrs.field(default=Slice(0, 1))

    def __attrs_post_init__(self) -> None:
        group_streams((), limit=self.streams_per_query)  # refused where it is given, not when the stream is opened


@attrs.frozen
class Batch:
    """The events of one window in order, made as they are taken, and the point before which everything is then done.

    ``must_save``: the point is worth saving even if the last one was saved just now. ``rows``: how many log rows the
    events come from.
    """

    events: Iterator[ChangeEvent]
    done: EventID
    must_save: bool = False
    rows: int = 0


class Reader:
    """Reads the next window each time it is asked. Used by one thread at a time.

    Args:
        start: where to begin; rows up to and including a row cursor are left out.
        options: ``lag`` is set.
        promised: *start* is somebody's cursor, so it is an error if rows after it expire unread.
    """

    def __init__(
        self,
        source: Source,
        start: EventID,
        options: StreamOptions,
        settings: Settings,
        stop: Stop,
        *,
        promised: bool = True,
    ) -> None:
        self._source = source
        self._settings = settings
        self._stop = stop
        self._to_head = options.to_head
        self._until_us = None if options.until is None else us_of(options.until)
        lag = options.lag or timedelta()
        self._lag_us = lag // timedelta(microseconds=1)
        # A generation that starts before a window ends must be in the list by the time the window is read: the list
        # may be this much older than the window is.
        self._list_margin_us = min(self._lag_us // 2, 15_000_000)
        self._poll_s = min(settings.poll.total_seconds(), max(0.05, lag.total_seconds() / 10))
        self._not_before = 0.0
        self._scanner = Scanner(source.session, clock=source.clock, limits=settings.limits)
        self._scan = self._prepare(scan_cql)
        self._first_row = self._prepare(first_row_cql)
        limits = settings.limits
        self._width = Width(target=max(1, limits.window_rows // 5), target_bytes=max(1, limits.window_bytes // 5))
        self._layouts = Layouts(lambda: source.reread_table(patiently=True))
        self._at_us = start.exact_us
        self._skip = start.position if start.is_row else b""
        self._start = self._done = start
        # Time before a start is nobody's, also where a generation begins in it that was not known yet.
        is_start = start.mark is not None and start.mark.is_start
        is_ahead = start.mark is None and not start.is_row and start.exact_us > source.now_us()
        self._floor_us = start.exact_us if is_start or is_ahead else 0
        # Rows after a cursor must not be missed; for a start at whatever is oldest that holds from now on.
        self._promised_us = start.exact_us if promised else source.now_us()
        self._at_head = False
        self._told_ahead = False
        self.counters = Counters()
        self._generation = Generation(start.generation)
        self._enter(self._generation)

    def _prepare(self, cql: Callable[[str, str], str]) -> LogStatement:
        table = self._source.table
        return self._source.session.prepare(
            cql(table.keyspace, table.name),
            page_size=self._settings.limits.page_size,
            doing=f"preparing to read the log of {table.full_name}",
        )

    def _enter(self, generation: Generation) -> None:
        self._generation = generation
        self._context = Context(generation.time, self._settings.event_type, self.counters)
        self._part = part_of(self._source.streams(generation), self._settings.key_slice, self._source.topology.model)
        self._groups = group_streams(self._part.streams, limit=self._settings.streams_per_query)

    @property
    def done(self) -> EventID:
        """The point before which everything was read."""
        if self._at_us == self._start.exact_us and self._generation.time == self._start.generation:
            return self._start  # nothing was read: a point of this time would lie before the row that was resumed at
        if (self._done.generation, self._done.time) != (self._generation.time, self._at_us):
            # Made once for each point: what is known of the log's TTL may change, and a cursor that was told may not.
            is_start = self._at_us == self._floor_us
            point = self._source.start if is_start else self._source.read_until
            self._done = point(self._generation, self._at_us)
        return self._done

    def step(self) -> Batch:
        """Return the events of the next window, possibly none. Waits at the head, up to one poll.

        Raises:
            HeadReached: the head, or the asked end, was reached.
            Stopped: the stop signal was set.
            CursorExpired: the reader fell behind what the log keeps.
            SourceError, MetadataError: reading failed.
        """
        source = self._source
        if self._at_head:
            self._end_if_asked()
        self._pause()
        self._stop.check()
        watermark_us = source.watermark_us(self._lag_us)
        reach_us = watermark_us if self._until_us is None else min(watermark_us, self._until_us)
        self._keep_fresh(reach_us)
        hole_us = self._stay_within_ttl()
        boundary = self._next_generation()
        if boundary is not None and boundary.start_us <= min(self._at_us, watermark_us):
            return self._switch_to(boundary)
        window = next_window(
            self._generation.time,
            self._at_us,
            watermark_us=reach_us,
            boundary_us=self._limit_us(boundary, hole_us),
            width_us=self._width.us,
        )
        if window is None:
            self._tell_if_ahead(watermark_us)
            self._at_head = True
            return Batch(iter(()), self.done)
        rows = self._read(window)
        if rows is None:
            self._at_head = False
            return Batch(iter(()), self.done)  # too much at once: the next step takes a narrower window
        self._at_us = window.end_us
        if not rows:
            self._refresh_before(reach_us)  # a jump may pass what the list of generations was known for
            limit_us = self._limit_us(self._next_generation(), hole_us)
            self._jump(reach_us if limit_us is None else min(reach_us, limit_us))
        if self._has_expired_since(window.start_us):
            self._at_us = window.start_us
            return Batch(iter(()), self.done)  # the next step tells it
        self._at_head = self._at_us >= reach_us
        self._source.confirm(self._at_us)
        return Batch(self._events(rows), self.done, rows=len(rows))

    @staticmethod
    def _limit_us(boundary: Generation | None, hole_us: int | None) -> int | None:
        """Return the time that no window may pass: the next generation's start, or that of what has expired."""
        limits = [us for us in (None if boundary is None else boundary.start_us, hole_us) if us is not None]
        return min(limits, default=None)

    def _pause(self) -> None:
        """Wait until the next look at the head is due, or until the rows read so far are within their rate."""
        clock = self._source.clock
        wait = max(self._poll_s, len(self._groups) / self._settings.limits.head_queries_per_s) if self._at_head else 0.0
        wait = max(wait, self._not_before - clock.monotonic())
        if wait > 0:
            clock.wait(self._stop, wait)

    def _slow_down(self, rows: int) -> None:
        rate = self._settings.limits.rows_per_s
        if rate is not None:
            self._not_before = max(self._not_before, self._source.clock.monotonic()) + rows / rate

    # ------------------------------------------------------------ where and how far

    def _end_if_asked(self) -> None:
        """Raise at the head if the stream was asked to end there. A head that moves on meanwhile is the next run's."""
        if self._until_us is not None and self._at_us >= self._until_us:
            raise HeadReached("everything before the asked time was delivered", cursor=str(self.done))
        if self._to_head:
            raise HeadReached(cursor=str(self.done))

    def _keep_fresh(self, reach_us: int) -> None:
        self._refresh_before(min(self._at_us + self._width.us, reach_us))
        self._source.refresh_metadata()

    def _refresh_before(self, end_us: int) -> None:
        """Read the list of generations again if it is too old to be sure of all that start before *end_us*."""
        if end_us > self._source.known_at_us - self._list_margin_us:
            self._source.refresh_generations()

    def _stay_within_ttl(self) -> int | None:
        """Skip what has expired before anything was promised about it; raise if it was promised.

        Return the time from which rows ahead have expired, None if there are none such.
        """
        source = self._source
        hole = source.hole(self._at_us)
        if hole is None or hole.start_us > self._at_us:
            return None if hole is None else hole.start_us
        # The stream sets of tablets go with their table: a gap may be that of a log that was dropped.
        source.reread_table(patiently=True)
        if self._at_us >= self._promised_us:
            kept = "" if hole.ttl_s is None else f" ({hole.ttl_s} s)"
            text = (
                f"the reader of {source.table.full_name} fell behind what the log keeps{kept}; changes may be lost, "
                "make the consumer faster or the TTL longer"
            )
            if self._settings.on_expired == "raise":
                raise CursorExpired(text, gap_from=datetime_of(self._at_us), gap_to=datetime_of(hole.end_us))
            source.skip_gap(text)
            self._promised_us = source.now_us()  # told once until that is reached
        at = source.at(hole.end_us)
        self._at_us = at.exact_us
        if at.generation != self._generation.time:
            self._enter(Generation(at.generation))
        following = source.hole(self._at_us)
        return None if following is None or following.start_us <= self._at_us else following.start_us

    def _has_expired_since(self, start_us: int) -> bool:
        """Return whether promised rows from *start_us* on have expired while they were read: retries may take long."""
        hole = self._source.hole(start_us)
        return hole is not None and hole.start_us < self._at_us and start_us >= self._promised_us

    def _tell_if_ahead(self, watermark_us: int) -> None:
        """Warn, once, if a clock that stepped back, or is behind, keeps the stream waiting."""
        ahead_us = self._at_us - watermark_us - self._lag_us
        if ahead_us < CLOCK_BACK_US:
            self._told_ahead = self._told_ahead and ahead_us > 0
        elif not self._told_ahead:
            self._told_ahead = True
            log.warning(
                "the cursor of %s is %.1f s ahead of the slowest clock of this machine and the nodes; nothing is read "
                "until that has passed it. If the cursor is no start in the future, a clock was set back: check it",
                self._source.table.full_name,
                ahead_us / 1e6,
            )

    def _next_generation(self) -> Generation | None:
        """Return the true successor of the current generation, None if it is the newest."""
        generations = self._source.generations
        i = generation_at(generations, self._generation.start_us)
        return generations[i + 1] if i + 1 < len(generations) else None

    def _switch_to(self, generation: Generation) -> Batch:
        """Go on with the next generation, from its very start, however long ago that was, unless a start is later."""
        log.info("%s: CDC generation of %s", self._source.table.full_name, datetime_of(generation.start_us))
        # The streams of tablets are the table's own: the next set may be that of a log that was created again.
        self._source.reread_table(patiently=True)
        self._enter(generation)
        self._at_us = max(generation.start_us, self._floor_us)
        self._skip = b""
        self._at_head = False
        return Batch(iter(()), self.done, must_save=True)

    # ------------------------------------------------------------ reading

    def _read(self, window: Window) -> LogRows | None:
        """Return the rows of *window*, sorted by position; None when they were too many for one window."""
        table = self._source.table
        tasks = tasks_for(window, self._groups, keyspace=table.keyspace, table=table.name)
        rows = LogRows()
        size = 0

        def collect(page: Page) -> None:
            nonlocal size
            rows.add(page, self._layouts.of(page, self._source.table))
            size += page.size

        try:
            self._ask(self._scan, tasks, collect, may_give_up=self._width.can_narrow(window))
        except TooMuch as e:
            self._width = self._width.narrower(window, slow=isinstance(e, TooSlow))
            return None
        self._slow_down(len(rows))
        self._width = self._width.after(window, len(rows), size)
        self._leave_out_lost_keys(rows, window)
        self._part.keep_own(rows, token_of_key)
        rows.sort()
        return rows

    def _ask(
        self, statement: LogStatement, tasks: Sequence[ScanTask], collect: Callable[[Page], None], *, may_give_up: bool
    ) -> None:
        try:
            self._scanner.read(statement, tasks, self._stop, collect, may_give_up=may_give_up)
        except QueryFailed:
            self._source.reread_table()  # if the table has gone, or is another by now, that is what is to be told
            raise

    def _leave_out_lost_keys(self, rows: LogRows, window: Window) -> None:
        """Drop rows whose key went with a renamed column if nobody was promised them, or minds; raise otherwise."""
        table = self._source.table
        if table.renamed_us is None or not table.may_lack_keys(window.start_us):
            return
        lost = rows.lost_keys(table.renamed_us)
        if not lost:
            return
        unread = any(rows.positions[i] > self._skip for i in lost)
        if unread and window.end_us > self._promised_us:
            if self._settings.on_expired == "raise":
                raise TableChanged(
                    f"{table.lost_keys}; repair the consumer's data, then reset its cursor to that time or later, or "
                    "open the stream with on_expired='oldest'"
                )
            self._source.skip_gap(table.lost_keys)
            self._promised_us = max(self._promised_us, table.renamed_us + LOG_DROP_AHEAD_US)  # told once
        rows.take([i for i in range(len(rows)) if i not in lost])

    def _jump(self, limit_us: int) -> None:
        """After an empty window: go to the first row before *limit_us*, or to there if there is none."""
        if limit_us - self._at_us < max(PROBE_FROM_US, 2 * self._width.us):
            return
        table = self._source.table
        window = Window(self._generation.time, self._at_us, limit_us)
        tasks = tasks_for(window, self._groups, keyspace=table.keyspace, table=table.name)
        first: list[int] = []

        def collect(page: Page) -> None:
            first.extend(ticks_of(time) for (time,) in page.cells() if time is not None)

        try:
            self._ask(self._first_row, tasks, collect, may_give_up=False)
        except QueryTimeout as e:
            log.info("%s; walking the empty time instead", e)
            return
        self._at_us = min(limit_us, max(self._at_us, ticks_to_us(min(first)))) if first else limit_us

    def _events(self, rows: LogRows) -> Iterator[ChangeEvent]:
        build = rows_as_events if self._settings.granularity == "row" else changes_of
        events = build(rows, self._context)
        skip = self._skip
        if skip and rows:
            events = (e for e in events if e.position > skip)
        if rows:
            self._skip = b""
        return events
