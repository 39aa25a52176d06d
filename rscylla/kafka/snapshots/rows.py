"""``Snapshot``: a stream of the rows of a table, in the order of their tokens."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

import attrs

from ... import _timeuuid as tu
from ..._tokens import LAST, Slice
from ...abc import EventTuple, StreamStatus
from ...base import pages, select_range, token_of
from ...cdc import Stream
from ...cdc.log import NodeClocks, Table, read_base_table
from ...cdc.rows import Cells
from ...clock import Clock, Stop
from ...debezium import Emitter, Record, RowReader, Settings
from ...debezium import Snapshot as Mark
from ...driver import Page, ReadSession, ReadStatement, consistency_named
from ...errors import HeadReached, QueryFailed, TableNotFound
from ...event import Event, Operation, Progress
from ...options import StreamOption
from ...types import quote_name
from ..cursors.positions import INCREMENTAL, Position

__all__ = ["PAGE_ROWS", "TOGETHER", "Snapshot", "SnapshotRow"]

log = logging.getLogger("rscylla.kafka")

PAGE_ROWS: Final = 1000
TOGETHER: Final = 256
"""How many rows are published, and committed, together at most: ``publishing`` passes on no more at once."""
RANGES: Final = 64
"""Queries of a snapshot; the schema is read again before each."""

CLOCKS_EVERY_S: Final = 15.0
"""How often nodes are asked for their time."""

LOG_EVERY_S: Final = 30.0


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
