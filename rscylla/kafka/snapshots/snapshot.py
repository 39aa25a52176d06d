"""Snapshots: the rows of a base table as records with op ``r``, before or while its changes are published.

A snapshot is a stream like another: its events are rows, its cursor is the token up to which all partitions are done.
So what publishes changes publishes rows, too: pipelined, bounded in bytes, with dead letters, and with a cursor that
moves after the acknowledgement. A snapshot that was interrupted continues at the partition where it was.

The cursor is kept under a name of its own, ``<consumer>/snapshot``, and moves to other slices with the consumer's.
It has the form of the id of a log row, which any cursor store takes: its stream id holds the token, and its sequence
number says which kind of snapshot it is.

    initial       the cursor of the changes is taken and saved first, then all rows are published, then the changes from
                  the cursor on. What was written in between is in the rows, and comes again as changes: a key's records
                  end with its newest state.
    incremental   rows are published while changes are. A row is published before any change that was written after the
                  row was read (see ``Fresh``), so its state is never newer than what follows.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal

import attrs

from ... import _timeuuid as tu
from ..._tokens import LAST, Slice
from ...abc import CursorStore, EventTuple, JointPublisher, Message, Publisher, StreamFunc, StreamStatus
from ...base import pages, select_range, token_of
from ...cdc import Stream
from ...cdc.log import NodeClocks, Table, read_base_table
from ...cdc.rows import Cells
from ...clock import Clock, Stop
from ...debezium import Emitter, Record, RowReader, Settings
from ...debezium import Snapshot as Mark
from ...driver import Page, ReadSession, ReadStatement, consistency_named
from ...errors import ConfigError, CursorExpired, HeadReached, QueryFailed, TableChanged, TableNotFound
from ...event import Event, Operation, Progress
from ...options import StreamOption
from ...publish import DebeziumMessages, publishing
from ...reflex import Spec, meters_for, run_forever, slice_name
from ...types import quote_name
from ..cursors.positions import (
    INCREMENTAL,
    INITIAL,
    Position,
    admin_of,
    position_of,
    snapshot_name,
)
from .beside import Accompanied, Fresh, FreshJoint, RowMessage, Turns

__all__ = ["MODES", "Mode", "Position", "Snapshot", "Snapshots", "request", "snapshot_name"]

log = logging.getLogger("rscylla.kafka")

Mode = Literal["initial", "initial_only", "never", "when_needed"]
MODES: Final[tuple[Mode, ...]] = ("initial", "initial_only", "never", "when_needed")

PAGE_ROWS: Final = 1000
TOGETHER: Final = 256
"""How many rows are published, and committed, together at most: ``publishing`` passes on no more at once."""
RANGES: Final = 64
"""Queries of a snapshot; the schema is read again before each."""

CLOCKS_EVERY_S: Final = 15.0
"""How often nodes are asked for their time."""

LOG_EVERY_S: Final = 30.0


# ---------------------------------------------------------------- the stream of rows


class SnapshotRow(Event):
    """A row of a base table, as a record. Its id is the cursor before its partition, or after it for the last row.

    ``read_at``: a time on the monotonic clock before the row was read. ``is_end``: whether it is the last row.
    """

    __slots__ = ("_id", "_us", "is_end", "read_at", "record")

    def __init__(self, record: Record, cursor: str, us: int, read_at: float, *, is_end: bool) -> None:
        self.record = record
        self.read_at = read_at
        self.is_end = is_end
        self._id = cursor
        self._us = us

    id = property(lambda self: self._id)
    type = property(lambda self: Operation.POSTIMAGE)
    foreign_id = property(lambda self: "")
    timestamp = property(lambda self: tu.datetime_of(self._us))
    timestamp_us = property(lambda self: self._us)


@attrs.define(eq=False)
class Snapshot:
    """Opens streams of the rows of a table: a ``StreamFunc``. Thread-safe; each stream is for one thread.

    Args:
        stream: of the changes of the table: its session, consistency, slice, and clock are used.
        settings: of the records.
        rows_per_s: at most so many rows a second, about; None: as fast as they are published.
        together: how many rows a chunk may have, and so a transaction.
        on_progress: called with the part of the token ring that is done, 0 to 1, and the rows of this run; by the
            thread of the run.
    """

    stream: Stream
    settings: Settings
    rows_per_s: float | None = None
    page_rows: int = PAGE_ROWS
    together: int = TOGETHER
    on_progress: Callable[[float, int], None] | None = None

    @property
    def source(self) -> str:
        return str(self.stream)

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> _Rows:
        """Open a stream of the rows after the saved position *after*.

        Raises:
            InvalidCursor: it is not the position of a snapshot.
            TableNotFound: there is no such table.
        """
        return _Rows(self, Position.parse(after), stop or Stop())


@attrs.frozen
class _Held:
    """A row of a page. ``read``: a time before it was read, on the monotonic clock and in microseconds."""

    reader: RowReader
    cells: Cells
    is_static: bool
    token: int
    read: tuple[float, int]


class _Rows:
    """The rows of a table from a position on, in the order of their tokens; see ``ChunkClient``."""

    def __init__(self, snapshot: Snapshot, position: Position, stop: Stop) -> None:
        self._snapshot = snapshot
        self._position = position
        self._stop = stop
        stream = snapshot.stream
        self._clock: Clock = stream.clock
        self._session = ReadSession(stream.session, consistency=consistency_named(stream.consistency)).until(stop)
        self._clocks = NodeClocks(self._session, self._clock)
        self._clocks.sample()
        self._sampled = self._clock.monotonic()
        self._emitter = Emitter(snapshot.settings)
        self._span = Slice.of(stream.key_slice).tokens
        self._table = self._read_table()
        rate = snapshot.rows_per_s
        # A page is read ahead, so it must not wait long for its turn.
        self._page_rows = snapshot.page_rows if rate is None else max(1, min(snapshot.page_rows, int(rate)))
        self._ready: deque[SnapshotRow] = deque()
        self._ended = False
        self._over = False
        self._count = 0
        self._logged = self._clock.monotonic()
        self._partition: tuple[bytes | None, ...] | None = None  # that of the last row
        self._batches = self._walk()

    # ------------------------------------------------------------ as a stream

    def take(self) -> EventTuple | Progress:
        if self._over:
            raise HeadReached("the snapshot is complete", cursor=self._position.at(LAST))
        limit = self._snapshot.together
        while not self._ended and len(self._ready) < limit and not self._whole(limit):
            self._stop.check()
            batch = next(self._batches, None)
            if batch is None:
                self._ended = True
            else:
                self._ready.extend(batch)
        if not self._ready:
            self._over = True
            self._report(LAST, is_end=True)
            return Progress(self._position.at(LAST), self._clock.now_us())
        count = self._whole(limit) or min(limit, len(self._ready))
        return EventTuple(self._ready.popleft() for _ in range(count))

    def _whole(self, limit: int) -> int:
        """Return how many of the next *limit* rows are of partitions that end there: what commits together."""
        last = min(limit, len(self._ready))
        return next((count for count in range(last, 0, -1) if self._ready[count - 1].is_end), 0)

    def status(self) -> StreamStatus:
        return StreamStatus()

    def close(self) -> None:
        self._batches.close()

    # ------------------------------------------------------------ reading

    def _walk(self) -> Generator[list[SnapshotRow]]:
        """Yield the events of page after page. The last row is held back until it is known whether another follows."""
        low, high = self._span.low, self._span.high
        done = max(low, self._position.token)
        is_first = done == low
        held: _Held | None = None
        incremental = self._position.kind == INCREMENTAL
        for reader, rows, read in self._pages(done, high):
            found = []
            for cells, is_static, token in rows:
                if held is not None:
                    mark: Mark = "incremental" if incremental else "first" if is_first else "true"
                    found.append(self._event(held, mark, is_end=held.token != token))
                    is_first = False
                held = _Held(reader, cells, is_static, token, read)
            yield [event for event in found if event is not None]
        if held is not None:
            last = self._event(held, "incremental" if incremental else "last", is_end=True)
            yield [last] if last is not None else []

    def _event(self, row: _Held, mark: Mark, *, is_end: bool) -> SnapshotRow | None:
        read_at, read_us = row.read
        now_ns = self._clock.now_us() * 1000
        record = row.reader.record(row.cells, at_us=read_us, now_ns=now_ns, snapshot=mark, static=row.is_static)
        if record is None:
            return None
        is_end = is_end and row.token != LAST  # which says that all is done
        return SnapshotRow(record, self._position.at(row.token - (not is_end)), read_us, read_at, is_end=is_end)

    def _pages(
        self, done: int, high: int
    ) -> Iterator[tuple[RowReader, list[tuple[Cells, bool, int]], tuple[float, int]]]:
        """Yield for each page what makes its records, its rows, and a time before which they were not read."""
        step = max(1, (high - done) // RANGES)
        while done < high:
            until = high if high - done < 2 * step else done + step
            last = done
            reader: RowReader | None = None
            columns: Any = None  # those of the page before
            self._partition = None
            try:
                statement = self._prepare()
                began = self._now()
                found = pages(
                    self._session, statement, (done, until), doing=self._doing, clock=self._clock, stop=self._stop
                )
                while True:
                    asked = self._now()  # before the next page is requested
                    page = next(found, None)
                    if page is None:
                        break
                    if page.columns is not columns:
                        columns = page.columns
                        reader = self._emitter.reader(self._table, columns)
                    assert reader is not None
                    rows = self._rows_of(page)
                    yield reader, rows, began
                    began = asked
                    if rows:
                        last = max(last, rows[-1][2] - 1)
                        self._count += page.row_count
                        self._report(rows[-1][2])
                    self._pause(page.row_count)
            except QueryFailed:
                before, self._table = self._table, self._read_table()
                if before == self._table:
                    raise
                done = last  # a column is gone: the partition is read again, with those that are there
                continue
            done = until

    def _now(self) -> tuple[float, int]:
        """Return the monotonic time, and that of the slowest clock: by which writes may be stamped."""
        now = self._clock.monotonic()
        if now - self._sampled >= CLOCKS_EVERY_S or self._clocks.has_stepped():
            self._clocks.sample()
            self._sampled = now
        return now, self._clocks.slowest_us()

    def _prepare(self) -> ReadStatement:
        self._table = self._read_table()
        expressions = [token_of(self._table), *(quote_name(c.name) for c in self._table.columns)]
        return self._session.prepare(
            select_range(self._table, expressions), page_size=self._page_rows, doing=self._doing
        )

    def _rows_of(self, page: Page) -> list[tuple[Cells, bool, int]]:
        """Return the rows of a page, each with whether it is of the static row, and its token.

        The static row of a partition comes first, if it has a value; the query has it in each row of the partition, and
        in a row with null clustering columns if there is none.
        """
        table = self._table
        key = len(table.partition_key)
        clustering = range(1 + key, 1 + len(table.key))
        static = range(clustering.stop, clustering.stop + len(table.of_kind("static")))
        found: list[tuple[Cells, bool, int]] = []
        for cells in page.cells(table.full_name):
            token = int.from_bytes(cells[0] or b"", "big", signed=True)
            if static:
                here = cells[1 : 1 + key]
                if here != self._partition and any(cells[i] is not None for i in static):
                    found.append((cells, True, token))
                self._partition = here
            if not clustering or any(cells[i] is not None for i in clustering):
                found.append((cells, False, token))
        return found

    def _read_table(self) -> Table:
        stream = self._snapshot.stream
        found = read_base_table(self._session, stream.keyspace, stream.table)
        if found is None:
            raise TableNotFound(f"there is no table {stream}; it may have been dropped")
        return found

    @property
    def _doing(self) -> str:
        return f"reading the rows of {self._table.full_name}"

    def _pause(self, rows: int) -> None:
        rate = self._snapshot.rows_per_s
        if rate is not None and rows:
            self._clock.wait(self._stop, rows / rate)
            self._stop.check()

    def _report(self, token: int, *, is_end: bool = False) -> None:
        low, high = self._span.low, self._span.high
        part = 1.0 if is_end else (token - low) / (high - low)
        if self._snapshot.on_progress is not None:
            self._snapshot.on_progress(part, self._count)
        now = self._clock.monotonic()
        if is_end or now - self._logged >= LOG_EVERY_S:
            self._logged = now
            log.info("snapshot of %s: %d rows, %.1f %% of the tokens", self._snapshot.source, self._count, 100 * part)


# ---------------------------------------------------------------- snapshots of a connector


@attrs.define(eq=False)
class Snapshots:
    """Takes the snapshots of a connector. Thread-safe, each table for itself.

    Args:
        properties: of the connector, by its names; they decide what records look like.
        publisher: where records go; for snapshots beside changes, the one that the changes of the table go to.
        mode: the property ``snapshot.mode``.
        lag: of the streams of changes.
        rows_per_s: at most so many rows a second of each table; None: as fast as they are published.
        poll: how often to look for requests.
        on_progress: called with the table (of a slice, such as ``shop.orders[0/4]``), the part of the token ring that
            is done, 0 to 1, and the rows of this run.
        options: of ``publishing``: dead letters, bounds, registry.
    """

    properties: Mapping[str, str]
    publisher: Publisher
    mode: Mode = "never"
    lag: timedelta = timedelta(seconds=30)
    rows_per_s: float | None = None
    page_rows: int = PAGE_ROWS
    poll: timedelta = timedelta(seconds=5)
    on_progress: Callable[[str, float, int], None] | None = None
    options: Mapping[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"snapshot.mode is {self.mode!r}; it can be {', '.join(MODES)}")
        if self.rows_per_s is not None and self.rows_per_s < 1:
            raise ConfigError("a snapshot reads at least one row a second")

    def before(self, stream: Stream, store: CursorStore, consumer: str, stop: Stop) -> bool:
        """Take the snapshot that the mode asks for, if it is not complete; return whether changes are to follow.

        The cursor of *consumer* is set to the head when the snapshot begins, and left alone then. Blocks until all rows
        are acknowledged, or *stop* is set; a later call continues. Errors that a retry may fix are retried.

        Raises:
            CursorExpired: the snapshot, with its interruptions, took longer than the log keeps changes.
            RunError: as ``run_forever``.
        """
        if self.mode == "never":
            return True
        admin, name = admin_of(store), snapshot_name(consumer, stream.key_slice)
        saved, record = admin.find_cursor(consumer), admin.find_cursor(name)
        position = position_of(record)
        # Without a position: one of the slices that this one was made of had not begun.
        is_open = record is not None and (position is None or (position.kind == INITIAL and not position.is_done))
        is_kept = self.mode != "when_needed" or saved is None or not self._is_lost(stream, saved.cursor)
        if saved is not None and not is_open and is_kept:  # it has run before, with a snapshot or without one
            return self.mode != "initial_only"
        begins = "an initial snapshot begins"
        if saved is None or not is_open:
            head = stream.head_cursor(self.lag)
            # In this order: a cursor without a snapshot would mean that none is missing.
            admin.reset_cursor(name, str(Position(INITIAL)), reason=begins)
            admin.reset_cursor(consumer, head, reason=begins)
        elif position is None:
            admin.reset_cursor(name, str(Position(INITIAL)), reason=begins)
        run_forever(self._spec(stream, store, consumer, self.publisher), stop=stop)
        return self.mode != "initial_only" and not stop.is_set()

    def follow(self, stream: Stream, store: CursorStore, consumer: str, stop: Stop, turns: Turns | None = None) -> None:
        """Take the snapshots that are requested, while the changes of the table are published. Blocks until *stop*.

        Args:
            turns: of the rows, for which changes wait; None: rows that took long to publish are read again.

        Raises:
            RunError: as ``run_forever``.
        """
        admin, name = admin_of(store), snapshot_name(consumer, stream.key_slice)
        clock = stream.clock
        while not stop.is_set():
            position = position_of(admin.find_cursor(name))
            if position is not None and position.kind == INCREMENTAL and not position.is_done:
                kind = FreshJoint if isinstance(self.publisher, JointPublisher) else Fresh
                run_forever(
                    self._spec(stream, store, consumer, kind(self.publisher, clock, self.lag / 2, turns)), stop=stop
                )
            clock.wait(stop, self.poll.total_seconds())

    def lane(self, stream: Stream, store: CursorStore, consumer: str, begin: Callable[[], str] = str) -> StreamFunc:
        """Return the stream of a lane: the changes of *stream*, after the snapshot of the mode, beside those requested.

        A lane whose mode is ``initial_only`` reaches its head when all rows are published. If *consumer* has no cursor,
        *begin* may save one; it returns that, or "".
        """
        return _Lane(self, stream, store, consumer, begin)

    def _is_lost(self, stream: Stream, cursor: str) -> bool:
        """Return whether the stream cannot continue after *cursor*, because changes have expired."""
        try:
            stream.describe().resume(cursor, "raise")
        except (CursorExpired, TableChanged) as e:
            log.warning("%s: %s; a new snapshot begins", stream, e)
            return True
        return False

    def _spec(self, stream: Stream, store: CursorStore, consumer: str, publisher: Publisher) -> Spec:
        messages = DebeziumMessages(self.properties, clock=stream.clock)
        told, source, name = self.on_progress, str(stream), snapshot_name(consumer, stream.key_slice)
        source = slice_name(source, *stream.key_slice)
        done = meters_for(self.options.get("registry")).snapshot_done.labels(name)

        def progress(part: float, count: int) -> None:
            done.set(part)
            if told is not None:
                told(source, part, count)

        together = min(TOGETHER, self.options.get("max_unacknowledged", TOGETHER))
        rows = Snapshot(stream, Settings.of(self.properties), self.rows_per_s, self.page_rows, together, progress)

        def make(event: Event) -> list[Message]:
            assert isinstance(event, SnapshotRow)
            return [RowMessage.of(message, event.read_at) for message in messages.of_records([event.record])]

        made = publishing(name, make, publisher, **self.options)
        return Spec(rows, store, made, clock=stream.clock)


@attrs.frozen(eq=False)
class _Lane:
    """The stream of ``Snapshots.lane``."""

    supports_lag = True

    snapshots: Snapshots
    stream: Stream
    store: CursorStore
    consumer: str
    begin: Callable[[], str]

    @property
    def source(self) -> str:
        return str(self.stream)

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> Accompanied:
        after, ends = after or self.begin(), stop or Stop()
        if not self.snapshots.before(self.stream, self.store, self.consumer, ends):
            ends.check()
            raise HeadReached("the initial snapshot is complete, and no changes follow it", cursor=after)
        # The snapshot has set the cursor since the run read it.
        client = self.stream(self.store.get_cursor(self.consumer), *options, stop=stop)
        follow, clock = partial(self.snapshots.follow, self.stream, self.store, self.consumer), self.stream.clock
        return Accompanied(client, self.source, follow, self.snapshots.poll.total_seconds(), clock, ends)


def request(stream: Stream, store: CursorStore, consumer: str, *, reason: str) -> list[str]:
    """Ask the processes that publish the changes of a table for its rows; return the names of the snapshots.

    A snapshot that runs begins again. Blocks on small queries.

    Raises:
        ConfigError: *consumer* has no cursor, so no process has published changes for it, or *reason* is blank; or an
            initial snapshot is not complete.
        Others: as for opening the stream.
    """
    admin = admin_of(store)
    of_it = [(r.consumer, part) for r in admin.list_cursors() if (part := r.slice_of(consumer)) is not None]
    working = [each for each in of_it if each[1][1] > 1] or of_it
    if not working:
        raise ConfigError(f"the consumer {consumer!r} has no cursor yet, so there is nobody to ask; check its name")
    wanted = [snapshot_name(name, part) for name, part in working]
    for name in wanted:
        position = position_of(admin.find_cursor(name))
        if position is not None and position.kind == INITIAL and not position.is_done:
            raise ConfigError(f"the initial snapshot {name!r} is not complete; wait for its end")
    stream.describe()
    for name in wanted:
        admin.reset_cursor(name, str(Position(INCREMENTAL)), reason=reason)
    return wanted
