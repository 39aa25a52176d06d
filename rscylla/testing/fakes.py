"""Fakes for tests of consumers and of the engine: a stream, a consumer, a cursor store, a fate, and ``await_cursor``.

The fakes check their arguments: a call that a real part would reject also fails in a test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import attrs

from .._timeuuid import us_of
from ..abc import CursorStore, Run, StreamStatus
from ..clock import Clock, Stop, SystemClock
from ..errors import ConfigError, CursorRegression, HeadReached, InvalidCursor, MissingLag, Stopped
from ..event import Event, Progress, cursor_key
from ..options import StreamOption, StreamOptions, resolve

__all__ = [
    "FakeCursorStore",
    "FakeStream",
    "FakeStreamClient",
    "RecordingConsumer",
    "ScriptedFate",
    "await_cursor",
]


@attrs.define
class _Fault:
    step: str
    error: BaseException
    index: int | None
    times: int


class FakeStream:
    """A stream over a list of events and ``Progress`` items, with all options and with injected faults.

    Cursors are the ids of the items, in any form; the stream continues right after the item with that id. At the end of
    the list, it raises *end* if given, raises ``HeadReached`` if the options say so, and otherwise waits for ``append``
    or the stop signal. With ``supports_lag``, it requires a ``StreamLag`` and applies the lag, as CDC streams do.

    ``opened`` lists the cursor and the options of each call, and ``closed`` counts closed clients.
    """

    def __init__(
        self,
        items: Iterable[Event | Progress] = (),
        *,
        end: BaseException | None = None,
        supports_lag: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.items: list[Event | Progress] = list(items)
        self.end = end
        self.supports_lag = supports_lag
        self.clock: Clock = clock or SystemClock()
        self.opened: list[tuple[str, StreamOptions]] = []
        self.closed = 0
        self.changed = threading.Condition()
        self._faults: list[_Fault] = []

    def append(self, *items: Event | Progress) -> None:
        """Append items, and wake waiting clients."""
        with self.changed:
            self.items.extend(items)
            self.changed.notify_all()

    def fail(self, step: str, error: BaseException, *, index: int | None = None, times: int = 1) -> None:
        """Raise *error* at *step*: open, recv, or close. With *index*, only before the item at that index."""
        if step not in ("open", "recv", "close"):
            raise ConfigError(f"a FakeStream cannot fail at {step!r}; use open, recv, or close")
        self._faults.append(_Fault(step, error, index, times))

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> FakeStreamClient:
        if not isinstance(after, str):
            raise TypeError(f"the cursor is {type(after).__name__}, not str")
        folded = resolve(options)
        self.opened.append((after, folded))
        self.strike("open")
        if self.supports_lag and folded.lag is None:
            raise MissingLag("the fake stream")
        return FakeStreamClient(self, self._start(after, folded), folded, stop or Stop())

    def _start(self, after: str, options: StreamOptions) -> int:
        if options.from_head:
            return len(self.items)
        if not after:
            return 0
        for index, item in enumerate(self.items):
            if cursor_of(item) == after:
                return index + 1
        raise InvalidCursor("the fake stream has no item with this cursor")

    def strike(self, step: str, index: int | None = None) -> None:
        """Raise the fault that is due at *step*, if there is one."""
        for fault in self._faults:
            if fault.step == step and fault.times > 0 and fault.index in (None, index):
                fault.times -= 1
                raise fault.error


def cursor_of(item: Event | Progress) -> str:
    """Return the cursor to save when *item* is done."""
    return item.cursor if isinstance(item, Progress) else item.id


class FakeStreamClient:
    """An open ``FakeStream``. Rejects calls by two threads at once, and after ``close``."""

    def __init__(self, stream: FakeStream, index: int, options: StreamOptions, stop: Stop) -> None:
        self._stream = stream
        self._index = index
        self._options = options
        self._stop = stop
        self._busy = threading.Lock()
        self._broken: BaseException | None = None
        self._closed = False
        self._watermark_us = 0

    def status(self) -> StreamStatus:
        return StreamStatus(watermark_us=self._watermark_us)

    def recv(self) -> Event | Progress:
        if not self._busy.acquire(blocking=False):
            raise AssertionError("recv was called by two threads at once")
        try:
            if self._closed:
                raise AssertionError("recv was called after close")
            if self._broken is not None:
                raise self._broken
            return self._next()
        except BaseException as error:
            # The contract of StreamClient: after an error, further calls raise the same error.
            self._broken = error
            raise
        finally:
            self._busy.release()

    def _next(self) -> Event | Progress:
        self._stop.check()
        self._stream.strike("recv", self._index)
        item = self._peek()
        if item is None:
            item = self._at_the_end()
        time_us = item.time_us if isinstance(item, Progress) else item.timestamp_us
        until = self._options.until
        if until is not None and time_us >= us_of(until):
            raise HeadReached
        if self._stream.supports_lag and self._options.lag is not None and isinstance(item, Event):
            self._hold(time_us + self._options.lag // timedelta(microseconds=1))
        self._index += 1
        self._watermark_us = max(self._watermark_us, time_us)
        return item

    def _peek(self) -> Event | Progress | None:
        items = self._stream.items
        return items[self._index] if self._index < len(items) else None

    def _at_the_end(self) -> Event | Progress:
        """Raise the error for the end of the list, or wait for another item."""
        if self._stream.end is not None:
            raise self._stream.end
        lag = self._options.lag or timedelta()
        head_us = self._stream.clock.now_us() - lag // timedelta(microseconds=1)
        until = self._options.until
        if self._options.to_head or (until is not None and head_us >= us_of(until)):
            raise HeadReached
        changed = self._stream.changed
        take_back = self._stop.on_set(lambda: _notify(changed))
        try:
            with changed:
                while (item := self._peek()) is None:
                    if self._stop.is_set():
                        raise Stopped
                    changed.wait()
                return item
        finally:
            take_back()

    def _hold(self, due_us: int) -> None:
        early_us = due_us - self._stream.clock.now_us()
        if early_us <= 0:
            return
        # An event younger than the lag is beyond the head.
        if self._options.to_head:
            raise HeadReached
        if self._stream.clock.wait(self._stop, early_us / 1e6):
            raise Stopped

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stream.closed += 1
        self._stream.strike("close")


def _notify(changed: threading.Condition) -> None:
    with changed:
        changed.notify_all()


class RecordingConsumer:
    """A consumer that records its events, and fails on request.

    ``events`` are the events consumed without an error, and ``seen`` all event ids that it was called with. *fail* maps
    event ids to errors to raise; each error is raised *times* times.
    """

    def __init__(
        self, name: str = "recording", *, fail: Mapping[str, BaseException] | None = None, times: int = 1
    ) -> None:
        self._name = name
        self._fail = {event_id: [error] * times for event_id, error in (fail or {}).items()}
        self.events: list[Event] = []
        self.seen: list[str] = []
        self.resets = 0
        self.stops = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def ids(self) -> list[str]:
        """The ids of the consumed events."""
        return [event.id for event in self.events]

    def reset(self) -> None:
        self.resets += 1

    def stop(self) -> None:
        self.stops += 1

    def consume(self, event: Event, run: Run) -> None:
        self.seen.append(event.id)
        if self._fail.get(event.id):
            raise self._fail[event.id].pop()
        run.tempt("consume")
        self.events.append(event)


class FakeCursorStore:
    """A cursor store that separates buffered from durable cursors, and fails on request.

    With ``buffered``, ``flush`` makes cursors durable, and ``crash`` discards the others. ``order`` returns the sort
    key of a cursor, by which the store rejects lower cursors; without it, the store rejects only cursors that it has
    saved before.
    """

    def __init__(
        self,
        cursors: Mapping[str, str] | None = None,
        *,
        buffered: bool = False,
        order: Callable[[str], Any] | None = None,
    ) -> None:
        self.durable: dict[str, str] = dict(cursors or {})
        self.buffer: dict[str, str] = {}
        self.buffered = buffered
        self.writes: list[tuple[str, str]] = []
        self.flushes = 0
        self._past: set[tuple[str, str]] = set()
        self._order = order
        self._faults: list[tuple[str, BaseException]] = []
        self._lock = threading.Lock()

    def fail(self, step: str, error: BaseException, *, times: int = 1) -> None:
        """Raise *error* from the next calls of *step*: get_cursor, set_cursor, or flush."""
        if step not in ("get_cursor", "set_cursor", "flush"):
            raise ConfigError(f"a FakeCursorStore cannot fail at {step!r}; use get_cursor, set_cursor, or flush")
        self._faults.extend([(step, error)] * times)

    def _strike(self, step: str) -> None:
        for index, (at, error) in enumerate(self._faults):
            if at == step:
                del self._faults[index]
                raise error

    def get_cursor(self, consumer: str) -> str:
        with self._lock:
            self._strike("get_cursor")
            return self.buffer.get(consumer) or self.durable.get(consumer, "")

    def set_cursor(self, consumer: str, cursor: str) -> None:
        if not isinstance(cursor, str) or not cursor:
            raise TypeError("a cursor must be a non-empty str")
        with self._lock:
            self._strike("set_cursor")
            stored = self.buffer.get(consumer) or self.durable.get(consumer, "")
            if stored == cursor:
                return
            if stored and self._is_lower(consumer, cursor, stored):
                raise CursorRegression(
                    f'consumer "{consumer}": the cursor is lower than the saved one; reset it to move it back on '
                    "purpose",
                    consumer=consumer,
                    stored=stored,
                    given=cursor,
                )
            self.writes.append((consumer, cursor))
            self._past.add((consumer, cursor))
            (self.buffer if self.buffered else self.durable)[consumer] = cursor

    def _is_lower(self, consumer: str, cursor: str, stored: str) -> bool:
        if self._order is not None:
            return bool(self._order(cursor) < self._order(stored))
        return (consumer, cursor) in self._past

    def flush(self) -> None:
        with self._lock:
            self.flushes += 1
            self._strike("flush")
            self.durable.update(self.buffer)
            self.buffer.clear()

    def close(self) -> None:
        self.flush()

    def crash(self) -> None:
        """Discard cursors that are not durable, as when a process is killed."""
        with self._lock:
            self.buffer.clear()
            # A new process does not know what an earlier one saved, so only *order*, if given, rejects lower cursors.
            self._past.clear()


class ScriptedFate:
    """A fate with given outcomes: an error or None for each call in order, and then always *default*. Thread-safe.

    ``points`` lists the names of the calls. Errors of *at*, by point, come first and are raised once each.
    """

    def __init__(
        self,
        *outcomes: BaseException | None,
        default: BaseException | None = None,
        at: Mapping[str, BaseException] | None = None,
    ) -> None:
        self.points: list[str] = []
        self._outcomes = list(outcomes)
        self._default = default
        self._at = dict(at or {})
        self._lock = threading.Lock()

    def tempt(self, point: str = "") -> None:
        with self._lock:
            self.points.append(point)
            error = self._at.pop(point, None)
            if error is None:
                error = self._outcomes.pop(0) if self._outcomes else self._default
        if error is not None:
            raise error


def await_cursor(
    store: CursorStore,
    consumer: str,
    cursor: str,
    *,
    timeout: timedelta = timedelta(seconds=10),
    clock: Clock | None = None,
) -> None:
    """Wait until the consumer's saved cursor is *cursor* or, if both are event ids, a later one.

    Raises:
        AssertionError: *timeout* has passed. The message contains the saved cursor.
    """
    clock = clock or SystemClock()
    never = Stop()
    deadline = clock.monotonic() + timeout.total_seconds()
    while not _reached(saved := store.get_cursor(consumer), cursor):
        if clock.monotonic() >= deadline:
            raise AssertionError(
                f'consumer "{consumer}" did not reach the cursor within {timeout.total_seconds():g} s; '
                f"wanted {cursor}, saved is {saved or 'nothing'}"
            )
        clock.wait(never, 0.005)  # seconds; short enough not to slow a test


def _reached(saved: str, wanted: str) -> bool:
    if saved == wanted:
        return True
    try:
        return bool(saved) and cursor_key(saved) >= cursor_key(wanted)
    except InvalidCursor:
        return False
