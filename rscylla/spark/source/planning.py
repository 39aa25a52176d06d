"""Plans reads of a table's log: decides where they start and end, and splits them into spans for the executors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from itertools import chain, pairwise

import attrs

from ..._timeuuid import datetime_of, format_time
from ...cdc.arrow import ChangeView, EventView, LogView, statement_of, view_for
from ...cdc.log import (
    Blank,
    Generation,
    LogWindow,
    OnExpired,
    Promise,
    Source,
    by_replicas,
    generation_at,
    naming_dropped_log,
    windows_between,
)
from ...cdc.read import RowCounter, Span, SpanShare, share_of
from ...cdc.rows import Layout
from ...clock import Stop, SystemClock
from ...errors import CDCDisabled, ConfigError, CursorExpired, NoStreams, SchemaChanged
from ...event import EventID
from ..session.session import session_for
from .offsets import Offset
from .options import MOST_CPUS, Options, Position

__all__ = ["MAX_PARTITIONS", "Plan", "Start", "open_source", "view_of"]

log = logging.getLogger("rscylla")

MAX_PARTITIONS = 100_000

CLOCKS_DIFFER_US = 2_000_000
"""An end that is complete by one sample of the nodes' clocks may be complete only so much later by another: by as long
as a node may take to tell its time. A batch waits for it.
"""

MOST_STREAMS = 500_000
"""A plan contains at most about so many stream ids, of 20 bytes each; executors look the others up."""

MANY = 8
"""In more generations than this, a generation is divided into fewer parts."""


def open_source(options: Options) -> Source:
    """Return the current state of the table's log. Blocks on a few small queries."""
    return Source(session_for(options.connection), options.keyspace, options.table, SystemClock(), Stop())


def view_of(source: Source, options: Options) -> tuple[Layout, LogView | ChangeView | EventView]:
    """Return the layout of the log's columns, and their view for the mode of *options*. Blocks on one statement.

    Raises:
        ConfigError: two columns would have the same name.
        TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
    """
    table = source.table
    with naming_dropped_log(source.reread_table):
        statement = statement_of(source.session, table, options.page_size)
    layout = Layout.of(statement.columns, table)
    return layout, view_for(options.mode, layout, keep_dollar=options.keep_dollar, digits=options.digits)


@attrs.frozen
class Start:
    """Where a read starts, and whether the loss of rows after it is an error."""

    at: EventID
    promised: bool = True


class Plan:
    """Plans the read of one table by its options. Used by one thread at a time; may block on small queries.

    Args:
        delta: the option of the log when the DataFrame was made, "" if that is not known.
    """

    def __init__(self, options: Options, delta: str = "") -> None:
        self.options = options
        self.delta = delta
        self.source = open_source(options)
        self._policy: OnExpired = "raise" if options.fail_on_data_loss else "oldest"
        self.source.check_lag(options.lag_us, self._policy)
        self._counter: RowCounter | None = None
        self._near: tuple[tuple[bytes, ...], tuple[bytes, ...]] = (), ()

    @property
    def log_id(self) -> str:
        return self.source.table.log_id.hex

    def watermark_us(self) -> int:
        """Return the time before which the log is complete. Queries the cluster at most every 15 seconds.

        Raises:
            TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
        """
        self.source.refresh_metadata()
        return self.source.watermark_us(self.options.lag_us)

    def start(self, position: Position) -> Start:
        """Return where a read from *position* starts.

        Raises:
            InvalidCursor, CursorExpired, TableChanged: the cursor cannot be continued.
            TableNotFound, CDCDisabled: the log no longer exists.
        """
        if position.name == "latest":
            return Start(self.source.at(self.watermark_us()))
        if position.time_us is not None:
            at = self.source.begin_at(position.time_us)
            self._check_kept(position.time_us, at.exact_us, self._promise(0))
            return Start(at)
        with naming_dropped_log(self.source.reread_table):
            return Start(*self.source.begin(position.cursor or None, self._policy))

    def generation_before(self, end_us: int) -> int:
        """Return the generation of the rows right before *end_us*, in milliseconds since the epoch."""
        generations = self.source.generations_until(end_us, self.options.lag_us)
        return generations[max(generation_at(generations, end_us - 1), 0)].time

    def batch_end_us(self) -> int:
        """Return where a batch ends.

        Raises:
            ConfigError: the requested time is not complete yet.
        """
        complete_us = self.watermark_us()
        end_us = self.options.end.time_us
        if end_us is None:
            return complete_us
        most_us = CLOCKS_DIFFER_US
        while 0 < (left_us := end_us - complete_us) <= most_us:
            SystemClock().wait(Stop(), left_us / 1e6)
            most_us -= left_us
            complete_us = self.watermark_us()
        if end_us > complete_us:
            raise ConfigError(
                f"option {self.options.end.option} is {(end_us - complete_us) / 1e6:.3f} s after the complete part of "
                "the log, by the option lag and the nodes' clocks; ask for latest, or later"
            )
        return end_us

    def check_start(self, end_us: int) -> None:
        """Check where a batch starts that ends at *end_us*; log a warning if it cannot have rows yet.

        Raises:
            ConfigError: it starts at a time in the future.
        """
        start = self.options.start
        at_us = EventID.parse(start.cursor).exact_us if start.cursor else start.time_us
        if at_us is None or at_us <= end_us:
            return
        # A cursor or a time of just now is what a job gives that goes on where another one ended.
        if start.time_us is not None and start.time_us > self.source.latest_us():
            raise ConfigError(
                f"option {start.option} ({format_time(at_us)}) is in the future, by the nodes' clocks, so a batch is "
                "empty; start earlier, or use readStream, which waits"
            )
        log.warning(
            "option %s is %.3f s after the complete part of the log, by the option lag and the nodes' clocks, so the "
            "batch is empty",
            start.option,
            (at_us - end_us) / 1e6,
        )

    def end_within(self, start_us: int, end_us: int, rows: int) -> int:
        """Return *end_us*, or an earlier time if the log has more than *rows* rows until then; see ``RowCounter``.

        Raises:
            TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
        """
        with naming_dropped_log(self.source.reread_table):
            if self._counter is None:
                self._counter = RowCounter(self.source, page_size=self.options.page_size, stop=Stop())
            self.source.generations_until(end_us, self.options.lag_us)
            return self._counter.reach_us(start_us, end_us, rows)

    def spans(
        self,
        start_us: int,
        end_us: int,
        *,
        after: bytes = b"",
        promised: bool = True,
        since_us: int = 0,
        most_us: int | None = None,
    ) -> list[Span | SpanShare]:
        """Return spans that contain all rows from *start_us* to *end_us*, each exactly once.

        Args:
            after: if not empty, the position of the row after which to start.
            promised: whether the loss of rows is an error, except for those that had expired by *since_us*.
            most_us: the longest span; None for any.

        Raises:
            CursorExpired: rows that were promised may be gone or not logged, and ``failOnDataLoss`` is true.
            TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
        """
        plan = partial(self._spans, start_us, end_us, after, promised=promised, since_us=since_us, most_us=most_us)
        try:
            return plan()
        except NoStreams:
            first = self.source.generations[0]
            self.source.refresh_generations()
            if self.source.generations[0] == first:
                raise
            return plan()  # tablets had forgotten streams whose rows have expired

    def _spans(
        self, start_us: int, end_us: int, after: bytes, *, promised: bool, since_us: int, most_us: int | None
    ) -> list[Span | SpanShare]:
        source, options = self.source, self.options
        self.confirm(end_us)
        generations = source.generations_until(end_us, options.lag_us)
        promise = self._promise(since_us) if promised else None
        remaining_us = source.remaining_us(start_us)  # before the check: more rows expire between the two
        if promise is not None:
            self._check_kept(start_us, end_us, promise)
        if not options.fail_on_data_loss:
            promise = None
        elif promise is not None:  # an executor asks one node for its time
            promise = attrs.evolve(promise, ahead_us=source.latest_us() - source.now_us())
        windows = windows_between(generations, remaining_us, end_us)
        spans: list[Span | SpanShare] = []
        shipped = 0
        for window in windows:
            streams = None
            if shipped < MOST_STREAMS or options.streams_per_partition is not None:
                with naming_dropped_log(source.reread_table):
                    streams = source.streams(Generation(window.generation))
            count = None if streams is None else len(streams)
            parts, pieces = _division(window, count, len(windows), options, most_us)
            # Checked inside the loop, so that a mistyped windowSpan does not fill the memory first.
            if len(spans) + parts * pieces > MAX_PARTITIONS:
                raise ConfigError(
                    f"the options would make more than {MAX_PARTITIONS:,} partitions; {_fewer_by(options, most_us)}"
                )
            shipped += pieces * (count or 0)
            shares: list[SpanShare] = []
            for piece in _cut(window, pieces):
                shares += (SpanShare(source.table, piece, part, parts, after, promise) for part in range(parts))
            if streams is None or shipped > MOST_STREAMS:
                spans += shares
            else:
                near = self._neighbors(streams)
                groups = [share_of(near, part, parts) for part in range(parts)]
                spans += (Span(s.table, s.window, groups[s.part], s.after, s.promise) for s in shares)
        return spans

    def _neighbors(self, streams: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return the streams with those of the same replicas together, so that few nodes serve most of a partition.

        Only for streams that are part of the plan: an executor that finds its share alone may know another ring.
        """
        known, near = self._near
        if known is not streams:  # each micro-batch would ask for the replicas of each vnode again
            replicas_of = self.source.session.replicas_of(self.source.table.keyspace)
            near = streams if replicas_of is None else tuple(chain.from_iterable(by_replicas(streams, replicas_of)))
            self._near = streams, near
        return near

    def learn(self, at: Offset) -> None:
        """Use what *at*, where a batch starts, has of the table that the schema does not show any more."""
        source = self.source
        source.blanks = source.blanks.since(at.cursor(), source.table)
        if at.ttl_s is not None:
            source.lifetimes = source.lifetimes.knowing(at.ttl_s)
        else:
            source.assumed_ttl_s = at.assumed_ttl_s

    def seen_at(self, time_us: int) -> str:
        """Return what was seen of the table by *time_us*; see ``LogMark``."""
        return self.source.blanks.seen_at(time_us, self.source.table)

    def confirm(self, until_us: int) -> None:
        """Check that changes until *until_us* were logged as the DataFrame has them. Blocks on a query at most.

        Raises:
            SchemaChanged: the log had only the keys of changes then, or has them now, but not both.
            TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
        """
        self.source.confirm(until_us)
        now = self.source.table.delta
        if self.delta not in ("", now):
            raise SchemaChanged(
                f"the log of {self.source.table.full_name} has delta {now!r} now, and had {self.delta!r} when the "
                "DataFrame was made; start the query again, or load the DataFrame again"
            )

    def before_blank(self, start_us: int, end_us: int) -> int:
        """Return *end_us*, or the time before it from which changes after *start_us* may not have been logged.

        Blocks on a query if the table was not looked at since *end_us*.

        Raises:
            CDCDisabled, CursorExpired: it is *start_us*, and ``failOnDataLoss`` is true.
            TableChanged, TableNotFound: the log no longer exists.
        """
        self.confirm(end_us)
        blank = self.source.blanks.first(start_us, end_us)
        if blank is None or not self.options.fail_on_data_loss:
            return end_us
        if blank.start_us <= start_us:
            self._report_blank(blank)
        return blank.start_us

    def _report_blank(self, blank: Blank) -> None:
        text = blank.message(self.source.table)
        if not self.options.fail_on_data_loss:
            log.error("%s; continuing with the rows that there are because failOnDataLoss is false", text)
            return
        text = (
            f"{text}; start later (a query: with a new checkpoint, after a repair of the data that it wrote), or set "
            "the option failOnDataLoss to false to read the rows that there are"
        )
        if blank.is_open:
            raise CDCDisabled(text)
        raise CursorExpired(text, gap_from=datetime_of(blank.start_us), gap_to=datetime_of(blank.end_us))

    def ttls_at(self, time_us: int) -> tuple[int | None, int | None]:
        """Return the TTL of rows written at *time_us*, None if it is not known, and what is then assumed of it."""
        ttl_s = self.source.lifetimes.ttl_at(time_us)
        return ttl_s, self.source.assumed_ttl_s if ttl_s is None else None

    def _promise(self, since_us: int) -> Promise:
        """Return the promise of all rows, except for those that had expired by *since_us*."""
        return Promise(self.source.assumed_lifetimes(), self.source.born_us(), since_us)

    def _check_kept(self, start_us: int, end_us: int, promise: Promise) -> None:
        """Report it if promised rows between the two times may have expired, or may not have been logged.

        Raises:
            CursorExpired, CDCDisabled: they may, and ``failOnDataLoss`` is true.
        """
        blank = self.source.blanks.first(start_us, end_us)
        if blank is not None:
            self._report_blank(blank)
        lost = self.source.missed(start_us, end_us, promise)
        if lost is None:
            return
        text = promise.message(self.source.table, lost)
        if self.options.fail_on_data_loss:
            raise CursorExpired(
                f"{text}; start later (a query: with a new checkpoint, after a repair of the data that it wrote), or "
                "set the option failOnDataLoss to false to read the remaining rows",
                gap_from=datetime_of(lost.start_us),
                gap_to=datetime_of(lost.end_us),
            )
        log.error("%s; continuing with the remaining rows because failOnDataLoss is false", text)


def _division(
    window: LogWindow, streams: int | None, windows: int, options: Options, most_us: int | None
) -> tuple[int, int]:
    """Return into how many parts by streams, and into how many by time, *window* is divided.

    It is divided by time, too, if there are too few streams to keep all executors busy.

    Args:
        streams: how many there are; None: unknown.
        windows: in how many generations the read is.
        most_us: the longest part.
    """
    pieces = 1 if most_us is None else -(-window.span_us // most_us)
    if options.streams_per_partition is not None and streams is not None:
        return -(-streams // options.streams_per_partition), pieces
    # Rows may all be in one generation, so each is for all executors, unless they are very many.
    wanted = min(options.parallelism, max(1, -(-MANY * options.parallelism // windows)))
    parts = wanted if streams is None else min(wanted, streams)
    return parts, min(max(pieces, -(-wanted // parts)), window.span_us)


def _fewer_by(options: Options, most_us: int | None) -> str:
    """Return how a read gets fewer partitions, by the options that were given and that count."""
    ways = ["increase windowSpan"] if most_us is not None else []
    if options.streams_per_partition is not None:
        ways.append("increase streamsPerPartition")
    elif options.parallelism > MOST_CPUS:
        ways.append("decrease parallelism")
    return " or ".join(ways) or "start later"


def _cut(window: LogWindow, pieces: int) -> Iterator[LogWindow]:
    """Yield *window* in so many equal parts."""
    edges = [window.start_us + window.span_us * i // pieces for i in range(pieces + 1)]
    for start_us, end_us in pairwise(edges):
        yield LogWindow(window.generation, start_us, end_us)
