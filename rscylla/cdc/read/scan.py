"""Runs scan tasks: concurrent queries under one limit, page by page. Retries temporary errors of a page."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue

import attrs

from ..._retry import Backoff
from ..._timeuuid import ticks_of, ticks_to_us
from ...clock import Clock, Stop
from ...driver import Column, Page, RawRead, ReadSession, ReadStatement, took_too_long, translate
from ...errors import ConfigError, QueryTimeout
from ..log import LogWindow, ScanTask, StreamGroup, first_row_cql, scan_cql, scan_values, tasks_for

__all__ = ["Limits", "LogScan", "Scanner", "TooMuch", "TooSlow"]

log = logging.getLogger("rscylla")


_RETRY = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=10))
_EARLY = 1e-6
"""Seconds: a page is due this much before its time, because clocks count in microseconds, and a wait may end early."""


@attrs.frozen
class Limits:
    """Limits the load that one stream puts on the cluster, and its memory. For figures and advice see docs/streams.md.

    ``in_flight``: concurrent queries. ``page_size``: rows per page. ``window_rows`` and ``window_bytes``: the most that
    a window may hold; larger ones are read as narrower windows. ``attempts``: attempts per page. ``backoff``: pauses
    between attempts. ``head_queries_per_s``: at the head, each poll costs one query per group of streams, so with very
    many streams the stream polls less often than ``poll``. ``rows_per_s``: average rate of rows read; None: no limit.
    """

    in_flight: int = 16
    page_size: int = 5_000
    window_rows: int = 100_000
    window_bytes: int = 64 * 1024 * 1024
    attempts: int = 8
    backoff: Backoff = _RETRY
    head_queries_per_s: int = 200
    rows_per_s: int | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("in_flight", "page_size", "window_rows", "window_bytes", "attempts", "head_queries_per_s"):
            if getattr(self, name) < 1:
                raise ConfigError(f"Limits: {name} must be at least 1, not {getattr(self, name)}")
        if self.rows_per_s is not None and self.rows_per_s < 1:
            raise ConfigError(f"Limits: rows_per_s must be at least 1, or None, not {self.rows_per_s}")


class TooMuch(Exception):
    """A window held more than the limits allow, or its queries timed out; a narrower one may do.

    Args:
        fitting_us: how wide a window may be that fits; None: unknown.
    """

    def __init__(self, fitting_us: int | None = None) -> None:
        super().__init__()
        self.fitting_us = fitting_us


class TooSlow(TooMuch):
    """Queries of a window timed out."""


@attrs.define(eq=False)
class _Reading:
    """One call of ``Scanner.pages``; its arguments. The driver's thread changes it too, under the lock of the scanner.

    ``missing``: tasks whose last page has not come. ``waiting``: pages to request as soon as the limit allows.
    ``delayed``: those to request again after a pause. ``rows`` and ``size``: of all pages so far. ``columns``: those of
    the last page that the reading thread got.
    """

    statement: ReadStatement
    missing: int
    may_give_up: bool
    whole: bool
    most: int
    waiting: deque[_Fetch] = attrs.field(factory=deque)
    delayed: list[_Fetch] = attrs.field(factory=list)
    rows: int = 0
    size: int = 0
    columns: tuple[Column, ...] | None = None


@attrs.define(eq=False)
class _Fetch:
    """The next page of one task, for ``reading``. It is not sent before ``due``, in seconds of the monotonic clock."""

    task: ScanTask
    reading: _Reading
    read: RawRead | None = None
    state: bytes | None = None
    failures: int = 0
    due: float = 0.0


class Scanner:
    """Reads all pages of some tasks. Used by one thread at a time; answers arrive on the driver's thread.

    Most queries of an idle log find nothing. The driver's thread counts such answers and sends the next query, without
    waking the reading thread, because a switch between threads costs more than the query.
    """

    def __init__(self, session: ReadSession, *, clock: Clock, limits: Limits) -> None:
        self._session = session
        self._clock = clock
        self._limits = limits
        # Kept across reads: queries of a read that was given up count as in flight until they are answered.
        self._answers: SimpleQueue[tuple[_Fetch, Page | BaseException] | None] = SimpleQueue()
        self._arrived = Stop()  # set by the next answer, to end a wait for delayed pages
        self._lock = threading.Lock()
        self._in_flight = 0
        self._reading: _Reading | None = None
        self._thread = threading.local()

    def pages(
        self,
        statement: ReadStatement,
        tasks: Sequence[ScanTask],
        stop: Stop,
        *,
        may_give_up: bool = True,
        whole: bool = True,
        most: int | None = None,
    ) -> Generator[Page, None, None]:
        """Yield each page of *tasks* that has rows; tasks are in no order. Blocks.

        The next page of a task is requested before the current one is yielded. Of pages without rows, some are
        yielded: at least one of each set of columns. Exhaust or close the iterator before the next read.

        Args:
            may_give_up: raise ``TooMuch`` when the limits of a window are exceeded or a page times out repeatedly;
                otherwise continue to read.
            whole: the caller drops the pages that it has if the rest is given up. Otherwise, nothing is given up after
                the first row, and limits of a window do not apply.
            most: the most rows; None for the limit of a window.

        Raises:
            Stopped: *stop* was set.
            SourceError: a page failed with a permanent error, or at each of its attempts.
            TooMuch: see *may_give_up*.
        """
        forget = stop.on_set(lambda: self._answer(None))
        limit = self._limits.window_rows if most is None else most
        self._reading = reading = _Reading(statement, len(tasks), may_give_up, whole, limit)
        reading.waiting.extend(_Fetch(t, reading) for t in tasks)
        try:
            while True:
                stop.check()
                self._wake(reading)
                self._send_waiting(reading)
                with self._lock:
                    is_done, is_idle = not reading.missing, not self._in_flight and not reading.waiting
                if is_done:
                    return
                if is_idle:
                    self._pause(stop, reading.delayed)
                elif (answer := self._next_answer(reading.delayed)) is not None:
                    page = self._accepted(reading, *answer)
                    if page is not None:
                        yield page
        finally:
            with self._lock:
                self._reading = None
            forget()

    def _accepted(self, reading: _Reading, fetch: _Fetch, got: Page | BaseException) -> Page | None:
        """Return the page for *reading* that *got* is, if any, and ask for what follows; see ``pages`` for errors."""
        if fetch.reading is not reading:
            self._free_slot()
            return None
        if isinstance(got, BaseException):
            self._free_slot()
            reading.delayed.append(self._after_failure(fetch, got))
            return None
        reading.rows += got.row_count
        reading.size += got.size
        is_limited = reading.may_give_up and reading.whole
        if is_limited and (reading.rows > reading.most or reading.size > self._limits.window_bytes):
            self._free_slot()
            raise TooMuch
        if got.state is not None:  # in the same slot
            self._send(_Fetch(fetch.task, reading, fetch.read, got.state))
        else:
            self._free_slot(reading)
            self._send_waiting(reading)
        return got

    def _answer(self, answer: tuple[_Fetch, Page | BaseException] | None) -> None:
        """Pass an answer to the thread that reads. Thread-safe."""
        self._answers.put(answer)
        self._arrived.set()

    def _free_slot(self, reading: _Reading | None = None) -> None:
        """Count a query as answered; with *reading*, it was the last of its task."""
        with self._lock:
            self._in_flight -= 1
            if reading is not None:
                reading.missing -= 1

    def _on_page(self, fetch: _Fetch, page: Page) -> None:
        """Take an answer on the driver's thread. It must not raise, or the answer would be lost."""
        reading = fetch.reading
        if page.row_count or page.state is not None or page.columns is not reading.columns:
            reading.columns = page.columns
            self._answer((fetch, page))
            return
        with self._lock:
            is_read = self._reading is reading
            if is_read:
                self._in_flight -= 1
                reading.missing -= 1
            is_last = not reading.missing
        if not is_read:
            self._answer((fetch, page))
        elif is_last:
            self._answer(None)
        else:
            self._send_waiting(reading)

    def _next_answer(self, delayed: list[_Fetch]) -> tuple[_Fetch, Page | BaseException] | None:
        """Wait for an answer; return None when the stop signal is set or the first delayed page is due."""
        if not delayed:
            return self._answers.get()
        self._arrived = Stop()
        if self._answers.empty():  # an answer that arrives from now on sets the new signal
            self._pause(self._arrived, delayed)
        try:
            return self._answers.get_nowait()
        except Empty:
            return None

    def _send_waiting(self, reading: _Reading) -> None:
        """Send the waiting queries that the limit allows. Thread-safe."""
        # An answer may come while its query is being sent, in the same thread. The loop that sends then goes on: a
        # call for each such answer within the last would nest without limit.
        if getattr(self._thread, "sends", False):
            return
        self._thread.sends = True
        try:
            while (fetch := self._next_to_send(reading)) is not None:
                self._send(fetch)
        finally:
            self._thread.sends = False

    def _next_to_send(self, reading: _Reading) -> _Fetch | None:
        with self._lock:
            if self._reading is not reading or not reading.waiting or self._in_flight >= self._limits.in_flight:
                return None
            self._in_flight += 1
            return reading.waiting.popleft()

    def _send(self, fetch: _Fetch) -> None:
        on_error = partial(self._on_error, fetch)
        try:
            if fetch.read is None:
                # After a failure, the driver chooses among all nodes: the owner may hang and look as if it were up.
                routing_key = None if fetch.failures else fetch.task.streams.routing_key
                fetch.read = fetch.reading.statement.bind_raw(scan_values(fetch.task), routing_key)
            self._session.send(fetch.read, fetch.state, on_page=partial(self._on_page, fetch), on_error=on_error)
        except Exception as e:  # noqa: BLE001 - raised by ``read``; on the driver's thread it would be lost
            on_error(e)

    def _on_error(self, fetch: _Fetch, error: BaseException) -> None:
        self._answer((fetch, error))

    def _pause(self, signal: Stop, delayed: list[_Fetch]) -> None:
        """Wait until the first delayed page is due, or *signal* is set."""
        due = min(f.due for f in delayed)
        # At least 1 ms, because a wait may end early by more than _EARLY where the clock is coarse.
        self._clock.wait(signal, max(0.001, due - self._clock.monotonic()))

    def _wake(self, reading: _Reading) -> None:
        """Move the delayed pages that are due to those that wait to be sent."""
        if reading.delayed:
            now = self._clock.monotonic() + _EARLY
            with self._lock:
                reading.waiting.extend(f for f in reading.delayed if f.due <= now)
            reading.delayed = [f for f in reading.delayed if f.due > now]

    def _after_failure(self, fetch: _Fetch, error: BaseException) -> _Fetch:
        """Return the fetch for the next attempt, or raise the error that ends the scan."""
        # Does not use ``retry``, which blocks for one call: here one thread waits for many pages, each with its pause.
        task, reading = fetch.task, fetch.reading
        ours = translate(error, f"reading the CDC log of {task.keyspace}.{task.table}")
        failures = fetch.failures + 1
        if not ours.resumable or failures >= self._limits.attempts:
            raise ours from error
        # A node may cause one or two time-outs. After the third, a narrower window is tried while attempts are left.
        can_give_up = reading.may_give_up and (reading.whole or not reading.rows)
        if can_give_up and took_too_long(error) and failures >= 3:
            raise TooSlow from error
        delay = self._limits.backoff.seconds(failures)
        log.info("%s; trying again in %.1f s (attempt %d of %d)", ours, delay, failures + 1, self._limits.attempts)
        return _Fetch(task, reading, None, fetch.state, failures, self._clock.monotonic() + delay)


class LogScan:
    """Reads windows of one table's log, by groups of streams. One thread at a time; all methods block.

    Args:
        cql: returns the text that reads the rows of a window.

    Raises (all methods):
        Stopped, SourceError: as for ``Scanner.pages``.
    """

    def __init__(
        self,
        session: ReadSession,
        keyspace: str,
        table: str,
        *,
        clock: Clock,
        limits: Limits,
        stop: Stop,
        cql: Callable[[str, str], str] = scan_cql,
    ) -> None:
        self._table = (keyspace, table)
        self._stop = stop
        self._scanner = Scanner(session, clock=clock, limits=limits)
        doing = f"preparing to read the log of {keyspace}.{table}"
        self._rows, self._first_row = (
            session.prepare_once(text(keyspace, table), page_size=limits.page_size, doing=doing)
            for text in (cql, first_row_cql)
        )

    def pages(
        self, window: LogWindow, groups: Sequence[StreamGroup], *, whole: bool = True, most: int | None = None
    ) -> Generator[Page, None, None]:
        """Yield each page of *window*, in no order.

        Args:
            whole, most: see ``Scanner.pages``.

        Raises:
            TooMuch: the window holds more than the limits allow, or takes too long, and can be narrower. Unless
                *whole*, only before the first row.
        """
        tasks, can_narrow = self._tasks(window, groups), window.can_narrow
        return self._scanner.pages(self._rows, tasks, self._stop, may_give_up=can_narrow, whole=whole, most=most)

    def first_us(self, window: LogWindow, groups: Sequence[StreamGroup]) -> int | None:
        """Return the time of the first row in *window*; None if there is none.

        If the search takes too long, return the start of the window: reading from there finds the row, too.
        """
        name, tasks = ".".join(self._table), self._tasks(window, groups)
        try:
            found = [
                ticks_of(time)
                for page in self._scanner.pages(self._first_row, tasks, self._stop, may_give_up=False)
                for (time,) in page.cells(name, is_log=True)
                if time is not None
            ]
        except QueryTimeout as e:
            log.info("%s; walking the empty time instead", e)
            return window.start_us
        return ticks_to_us(min(found)) if found else None

    def _tasks(self, window: LogWindow, groups: Sequence[StreamGroup]) -> tuple[ScanTask, ...]:
        keyspace, table = self._table
        return tasks_for(window, groups, keyspace=keyspace, table=table)
