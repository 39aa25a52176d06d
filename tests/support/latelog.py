"""A log for tests of lanes: rows have a time and become visible later, and streams read them with a lag."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rscylla import HeadReached, SimpleEvent, Stop, Stopped
from rscylla._timeuuid import datetime_of, us_of
from rscylla.abc import StreamClient, StreamStatus
from rscylla.errors import MissingLag
from rscylla.event import Event, Progress
from rscylla.options import StreamOption, StreamOptions, resolve
from rscylla.testing import ManualClock

SECOND = 1_000_000


@attrs.frozen
class Row:
    """A row of the key *key*: its place in the order is (time, number)."""

    time_us: int
    number: int
    visible_us: int
    key: int = 0

    @property
    def id(self) -> str:
        return f"{self.time_us:020d}.{self.number:06d}"

    def event(self) -> Event:
        return SimpleEvent(self.id, 2, f'{{"key":{self.key}}}', datetime_of(self.time_us))


class LateLog:
    """A stream function over rows that arrive late. Cursors compare as text; a point has no number."""

    supports_lag = True
    source = "test.late"

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.rows: list[Row] = []
        self.opened: list[tuple[str, StreamOptions]] = []
        self.reads = 0
        self.meanwhile: Callable[[StreamOptions], None] = lambda options: None
        """Called before each answer of a stream, with the stream's options: the world goes on while it is read."""

    def write(self, *, arrives_after: float = 0.0, key: int = 0) -> Row:
        """Add a row of this moment that can be read only later."""
        now = self.clock.now_us()
        row = Row(now, len(self.rows), now + round(arrives_after * SECOND), key)
        self.rows.append(row)
        return row

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> StreamClient:
        chosen = resolve(options)
        if chosen.lag is None:
            raise MissingLag("the late log")
        self.opened.append((after, chosen))
        return _Client(self, after, chosen, stop or Stop())


class _Client:
    def __init__(self, log: LateLog, after: str, options: StreamOptions, stop: Stop) -> None:
        assert options.lag is not None
        self._log, self._after, self._options, self._stop = log, after, options, stop
        self._lag_us = round(options.lag.total_seconds() * SECOND)
        self._batch: list[Row] = []
        self._point = ""
        self._closed = False

    def status(self) -> StreamStatus:
        return StreamStatus(watermark_us=int(self._after[:20] or 0))

    def recv(self) -> Event | Progress:
        assert not self._closed
        self._log.meanwhile(self._options)
        while True:
            self._stop.check()
            if self._batch:
                row = self._batch.pop(0)
                self._after = row.id
                return row.event()
            if self._point > self._after:
                self._after = self._point
                return Progress(self._after, int(self._point[:20]))
            self._read()

    def _read(self) -> None:
        """Read one window, as a whole and at once: what arrives later behind it is missed."""
        now = self._log.clock.now_us()
        reach_us = now - self._lag_us
        if self._options.until is not None:
            reach_us = min(reach_us, us_of(self._options.until))
        reach = f"{reach_us:020d}"
        if reach <= self._after:
            if self._options.to_head or (self._options.until is not None and reach_us == us_of(self._options.until)):
                raise HeadReached(cursor=self._after)
            if self._log.clock.wait(self._stop, 0.1):
                raise Stopped
            return
        self._log.reads += 1
        seen = (row for row in self._log.rows if row.visible_us <= now and self._after < row.id < reach)
        self._batch = sorted(seen, key=lambda row: row.id)
        self._point = reach

    def close(self) -> None:
        self._closed = True
