"""Walks along a log: each step reads one window and returns its changes in order."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import attrs

from ..._tokens import Slice
from ...clock import Stop
from ...errors import HeadReached
from ...event import EventID
from ...options import StreamOptions
from ..log import (
    End,
    Generation,
    LogWindow,
    Source,
    StreamGroup,
    Switch,
    Wait,
    Walk,
    Width,
    group_streams,
    naming_dropped_log,
)
from ..rows import (
    NO_EVENTS,
    Counters,
    EventContext,
    Events,
    Layouts,
    LogRows,
    changes_of,
    leave_out_lost_keys,
    lowest_position,
    new_rows,
    rows_as_events,
    token_of_key,
)
from .drive import Drive
from .follow import Follower
from .scan import LogScan
from .settings import StreamSettings
from .slices import part_of

__all__ = ["Reader", "Resume", "Step"]

log = logging.getLogger("rscylla")

CLOCK_BACK_US = 1_000_000
"""A clock that is further behind the time already read causes a warning."""


@attrs.frozen
class Resume:
    """Where a consumer resumes: which rows it still has to get, beyond the position of its reader.

    ``done``: the last cursor. ``after``: rows of *generation* up to this position were delivered. ``floor_us``: rows
    before it are not wanted, whatever their generation. ``promised_us``: later rows must not be lost.
    """

    done: EventID
    generation: int
    after: bytes
    floor_us: int
    promised_us: int

    def left_out(self, generation: int) -> bytes:
        """Return the position up to which rows of *generation* are left out."""
        after = self.after if generation == self.generation else b""
        return max(after, lowest_position(self.floor_us)) if self.floor_us else after


@attrs.frozen
class Step:
    """The events of one window, in order and created on demand; ``done`` is the cursor after the last of them.

    ``must_save``: save ``done`` even if the last cursor was saved just now. ``rows``: the rows of the events, if there
    are any, of which those up to the position ``after`` are left out. ``joined``: an event is a change, not a row.
    """

    events: Events
    done: EventID
    must_save: bool = False
    rows: LogRows | None = None
    after: bytes = b""
    joined: bool = True


class Reader:
    """Reads one window for each ``step``. Used by one thread at a time.

    Args:
        start: where to begin; rows up to and including a row cursor are left out.
        options: ``lag`` is set.
        promised: *start* is the cursor of a consumer, so it is an error if rows after it expire unread.
    """

    def __init__(
        self,
        source: Source,
        start: EventID,
        options: StreamOptions,
        settings: StreamSettings,
        stop: Stop,
        *,
        promised: bool = True,
    ) -> None:
        self._source = source
        self._settings = settings
        self._options = options
        self._stop = stop
        limits, table = settings.limits, source.table
        self._follower = Follower(
            source,
            start,
            options,
            Width.within(limits.window_rows, limits.window_bytes),
            settings.on_expired,
            promised=promised,
        )
        self._poll_s = min(settings.poll.total_seconds(), max(0.05, self._follower.lag_us / 10_000_000))
        self._not_before = 0.0
        self._scan = LogScan(source.session, table.keyspace, table.name, clock=source.clock, limits=limits, stop=stop)
        self._layouts = Layouts(lambda: source.reread_table(retrying=True))
        self._skip = start.position if start.is_row else b""
        self._start = self._done = start
        self._warned_ahead = False
        self.counters = Counters()
        self._slices: tuple[Slice, ...] = (Slice.of(settings.key_slice),)
        self._has_entered = False  # the streams of the slices in the current generation
        self._enter(start.generation)

    def _enter(self, generation: int) -> None:
        self._context = EventContext(generation, self._settings.event_type, self.counters)
        self._has_entered = True
        streams = self._source.streams(Generation(generation))
        self._part = part_of(streams, self._slices, self._source.topology.ranges)
        self._groups = group_streams(
            self._part.streams,
            limit=self._settings.streams_per_query,
            replicas_of=self._source.session.replicas_of(self._source.table.keyspace),
        )

    @property
    def _walk(self) -> Walk:
        return self._follower.walk

    @property
    def done(self) -> EventID:
        """The cursor before which everything was read."""
        walk = self._walk
        if walk.at_us == self._start.exact_us and walk.generation.time == self._start.generation:
            return self._start  # nothing was read yet, and a progress cursor would be before the row of the start
        if (self._done.generation, self._done.time) != (walk.generation.time, walk.at_us):
            # Created once per position: the known TTL of the log may change, but a cursor that was returned must not.
            self._done = self._follower.point(walk)
        return self._done

    def step(self) -> Step:
        """Return the events of the next window, possibly none. Waits at the head, up to one poll.

        Raises: as for ``step_now``.
        """
        wait = self.pause_s
        if wait > 0:
            self._source.clock.wait(self._stop, wait)
        return self.step_now()

    def step_now(self, halt_us: int | None = None) -> Step:
        """Return the events of the next window, possibly none, although it may not be time to poll the head again.

        Args:
            halt_us: a time after the position, which the step does not pass.

        Raises:
            HeadReached: the head, or the asked end, was reached.
            Stopped: the stop signal was set.
            CursorExpired: the reader fell behind what the log keeps.
            SourceError, MetadataError: reading failed.
        """
        self._stop.check()
        step, rows, delta = self._follower.next(halt_us), new_rows(), self._source.table.delta
        if isinstance(step, End):
            raise self._head_reached()
        drive = Drive(self._walk, self._scan, self._groups_of)
        with naming_dropped_log(self._source.reread_table):
            for page in drive.take(step):
                rows = rows.add(page, self._layouts.of(page, self._source.table))
        if isinstance(step, Switch):
            return self._switched(drive.walk)
        if isinstance(step, Wait):
            self._warn_if_ahead()
        elif drive.walk.at_us > self._walk.at_us:
            return self._move(drive.walk, self._own(rows, step.window), delta)
        return self._advance(drive.walk)

    def _head_reached(self) -> HeadReached:
        end_us = self._walk.end_us
        if end_us is not None and self._walk.at_us >= end_us:
            return HeadReached("everything before the asked time was delivered", cursor=str(self.done))
        return HeadReached(cursor=str(self.done))

    @property
    def pause_s(self) -> float:
        """How long to wait until the next poll of the head, or until the rows read so far are within ``rows_per_s``."""
        if self._walk.is_done:
            return 0.0
        wait = self._not_before - self._source.clock.monotonic()
        if self._walk.at_head:
            wait = max(wait, self._poll_s, len(self._groups) / self._settings.limits.head_queries_per_s)
        return wait

    def _slow_down(self, rows: int) -> None:
        rate = self._settings.limits.rows_per_s
        if rate is not None:
            self._not_before = max(self._not_before, self._source.clock.monotonic()) + rows / rate

    def _warn_if_ahead(self) -> None:
        """Warn once if the stream waits because a clock stepped back or is behind."""
        ahead_us = self._walk.at_us - self._follower.watermark_us - self._follower.lag_us
        if ahead_us < CLOCK_BACK_US:
            self._warned_ahead = self._warned_ahead and ahead_us > 0
        elif not self._warned_ahead:
            self._warned_ahead = True
            log.warning(
                "the cursor of %s is %.1f s ahead of the slowest clock of this machine and the nodes; reading pauses "
                "until that clock reaches the cursor. Unless you chose a start in the future, check the clocks",
                self._source.table.full_name,
                ahead_us / 1e6,
            )

    # ------------------------------------------------------------ several slices

    @property
    def at(self) -> tuple[int, int]:
        """The position: a generation, and a time in microseconds."""
        return self._walk.generation.time, self._walk.at_us

    @property
    def width_us(self) -> int:
        """How long the next window is at most."""
        return self._walk.width.us

    def reads_as(self, other: Reader) -> bool:
        """Whether the two differ in nothing but their slices and positions."""
        return self._reads == other._reads

    @property
    def _reads(self) -> tuple[object, ...]:
        options = self._options
        # A reader that was opened before the table was created again has yet to find that out, and to say so.
        return options.lag, options.to_head, options.until, self._slices[0].count, self._source.table.log_id

    def read_for(self, slices: Iterable[Slice]) -> None:
        """Read *slices* from now on, at least one, all of the same number of slices."""
        self._slices = tuple(dict.fromkeys(slices))
        self._has_entered = False

    def take_over(self, other: Reader) -> None:
        """Continue for *other*, too, which is at the same position and reads no more; its slices are not read yet."""
        mine, its = self._follower, other._follower
        walk, width = its.walk, mine.walk.width
        mine.walk = attrs.evolve(
            mine.walk,
            # Windows that each had enough rows have too many together.
            width=attrs.evolve(width, us=max(1, width.us * walk.width.us // (width.us + walk.width.us))),
            floor_us=min(mine.walk.floor_us, walk.floor_us),
            at_head=mine.walk.at_head and walk.at_head,
            was_empty=mine.walk.was_empty and walk.was_empty,
        )
        mine.promised_us = min(mine.promised_us, its.promised_us)
        self._skip = min(self._skip, other._skip)
        self._not_before = max(self._not_before, other._not_before)

    def alone(self, source: Source, settings: StreamSettings, stop: Stop, resume: Resume) -> Reader:
        """Return a reader of the slice of *settings*, which continues here, for a consumer that resumes at *resume*."""
        reader = Reader(source, resume.done, self._options, settings, stop)
        mine, its = self._follower, reader._follower
        its.walk = attrs.evolve(mine.walk, floor_us=resume.floor_us)
        its.promised_us = max(mine.promised_us, resume.promised_us)
        its.told = set(mine.told)
        reader._skip = resume.after if self.at[0] == resume.generation else b""
        reader._not_before = self._not_before
        return reader

    @property
    def resume(self) -> Resume:
        """Where the consumer of the only slice resumes, whoever reads on for it."""
        return Resume(self.done, self.at[0], self._skip, self._walk.floor_us, self._follower.promised_us)

    def divided(self, step: Step) -> Mapping[int, LogRows]:
        """Return the rows of *step*, the last one, by slice."""
        return {} if step.rows is None else self._part.divided(step.rows, token_of_key)

    def step_of(self, rows: LogRows, resume: Resume, counters: Counters) -> Step:
        """Return the step of one consumer, with *rows*, its part of those of the last step."""
        generation = self.at[0]
        context = EventContext(generation, self._settings.event_type, counters)
        return self._built(rows, context, resume.left_out(generation))

    # ------------------------------------------------------------ steps

    def _own(self, rows: LogRows, window: LogWindow) -> LogRows:
        """Return *rows*, all of *window*, without those of other slices, and in order."""
        self._slow_down(len(rows))
        if rows:
            self._source.confirm(window.end_us, with_rows=True)
        if leave_out_lost_keys(rows, self._source.table, window.start_us, self._skip):
            self._follower.report_lost_keys(self._source.table, window.end_us)
        if len(self._slices) == 1:
            self._part.keep_own(rows, token_of_key)
        rows.sort()
        return rows

    def _switched(self, walk: Walk) -> Step:
        """Continue with the streams of the next generation."""
        log.info("%s: CDC generation of %s", self._source.table.full_name, walk.generation)
        self._enter(walk.generation.time)
        self._skip = b""
        return attrs.evolve(self._advance(walk), must_save=True)

    def _advance(self, walk: Walk, rows: LogRows | None = None) -> Step:
        """Go to *walk* and return the events of *rows*, which lie before it."""
        self._follower.walk = walk
        if not rows:
            return Step(NO_EVENTS, self.done)
        after, self._skip = self._skip, b""
        return self._built(rows, self._context, after)

    def _built(self, rows: LogRows, context: EventContext, after: bytes) -> Step:
        joined = self._settings.granularity != "row"
        build = changes_of if joined else rows_as_events
        return Step(build(rows, context, after=after), self.done, rows=rows, after=after, joined=joined)

    def _move(self, walk: Walk, rows: LogRows, delta: str) -> Step:
        """Go to *walk*, unless promised rows have expired by now, as retries may take long, or may not be in the log.

        The next step reports them, or reads the rows again if they may have been logged in another way.

        Args:
            delta: the option of the log before they were read.
        """
        if self._follower.has_lost(self._walk.at_us, walk.at_us):
            return self._advance(self._walk)
        self._source.confirm(walk.at_us)
        if self._follower.blank_until(walk.at_us) or self._source.table.delta != delta:
            return self._advance(self._walk)
        return self._advance(walk, rows)

    def _groups_of(self, generation: int) -> tuple[StreamGroup, ...]:
        if generation != self._context.generation or not self._has_entered:
            self._enter(generation)
        return self._groups
