"""``batch``: delivers events in lists, limited by number, bytes, or the time since the first of them arrived."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import attrs

from ...abc import Consumer as ConsumerLike
from ...abc import Run
from ...clock import Stop
from ...errors import ConfigError, is_expected
from ...event import Event
from ..deferred import Collecting
from ..inflight import Entry, InFlight, positive, wait_until
from ..wrapper import Wrapper

__all__ = ["BatchFunc", "batch"]

BatchFunc = Callable[[Sequence[Event], Any], None]
"""Handles the events of a batch, which are in order, or raises. Also receives the run. Must be idempotent."""


@attrs.frozen
class _Limits:
    size: int
    period_s: float | None
    max_bytes: int | None


class _Batches:
    """The batches of one run: the run fills one while the thread delivers the previous one."""

    def __init__(self, deliver: Callable[[list[Event], Run], None], run: Run, limits: _Limits, name: str) -> None:
        self.in_flight = InFlight(run)
        self._deliver = deliver
        self._run = run
        self._limits = limits
        self._lock = threading.RLock()  # re-entered when a signal handler sets the stop
        self._changed = threading.Condition(self._lock)
        self._buffer: list[Event] = []
        self._entry: Entry | None = None  # stands for the events of the buffer
        self._bytes = 0
        self._due: float | None = None
        self._draining = self._closed = False
        self._wake = Stop()  # not the condition, because the thread waits by the run's clock, and a condition cannot
        run.stop.on_set(self._look_again)
        run.show("buffered", lambda: float(len(self._buffer)))
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._work,), name=f"rscylla-{name}-batch", daemon=True
        )
        self._thread.start()

    def _add(self, event: Event) -> None:
        """Add *event* to the batch. Waits while the batch is full and the previous one is not done.

        Raises:
            Stopped: the run ended first.
        """
        limits = self._limits
        size = 0 if limits.max_bytes is None else len(event.metadata) + len(event.foreign_id)
        with self._lock:
            if self._full():
                wait_until(self._changed, lambda: not self._full(), self._run.stop)
            buffer, entry = self._buffer, self._entry
            buffer.append(event)
            self._bytes += size
            if entry is not None:
                self.in_flight.extend(entry, event)
            else:
                self._entry = entry = self.in_flight.add(event)
                self._due = None if limits.period_s is None else entry.since + limits.period_s
                self._wake.set()
            if self._full():
                self._wake.set()

    @property
    def room(self) -> int:
        """How many events fit into the batch."""
        return self._limits.size - len(self._buffer)

    def put(self, events: Sequence[Event]) -> None:
        """Add *events* to the batch: one, or as many as fit if batches have no limit of bytes."""
        first, *others = events
        with self._lock:
            self._add(first)
            if others:
                assert self._entry is not None, "no batch is taken while the lock is held"
                self._buffer += others
                self.in_flight.extend(self._entry, others[-1], len(others))
                if self._full():
                    self._wake.set()

    def progress(self, cursor: str | Event) -> None:
        """Save *cursor* with the batch that waits, or at once if there is none."""
        with self._lock:
            if self._entry is not None:
                self._entry.cursor = cursor
                return
        self.in_flight.progress(cursor)

    def drain(self) -> None:
        """Deliver the last batch even if it is not full, and wait until everything is done."""
        with self._changed:
            self._draining = True
            self._wake.set()
        self.in_flight.drain()

    def close(self) -> None:
        """Drop the batch that is not delivered yet, and wait for the one in delivery."""
        with self._changed:
            self._closed = True
            self._wake.set()
        try:
            self._thread.join()
        finally:  # also after an interrupt: a thread left behind must not move the cursor of a later run
            self.in_flight.close()
        self._run.show("buffered", None)

    def _look_again(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _full(self) -> bool:
        limits = self._limits
        return len(self._buffer) >= limits.size or (limits.max_bytes is not None and self._bytes >= limits.max_bytes)

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            entry, events = taken
            try:
                with self._run.handling(events[0]) as run:
                    self._deliver(events, run)
                self._run.tempt("after_consume")
                self.in_flight.done(entry)
            except BaseException as error:  # noqa: BLE001 - the run ends with it
                self._run.fail(error, event=events[0])
                return

    def _take(self) -> tuple[Entry, list[Event]] | None:
        """Wait for a batch that is full or due, and return it, with what stands for it; None at the end of the run."""
        clock = self._run.clock
        while True:
            with self._changed:
                if self._closed or self._run.stop.is_set():
                    return None
                left = None if self._due is None else self._due - clock.monotonic()
                entry = self._entry
                if entry is not None and (self._full() or self._draining or (left is not None and left <= 0)):
                    taken, self._buffer, self._entry = self._buffer, [], None
                    self._bytes, self._due = 0, None
                    self._changed.notify_all()
                    return entry, taken
                self._wake = wake = Stop()
            if left is None:
                wake.wait()
            else:
                clock.wait(wake, left)


class _Batch(Collecting[_Batches]):
    def __init__(
        self, name: str, fn: BatchFunc, limits: _Limits, fallback: ConsumerLike | None, options: dict[str, Any]
    ) -> None:
        super().__init__(name, options)
        if not callable(fn):
            raise ConfigError(f'consumer "{name}": fn is not callable; pass a function')
        self._fn = fn
        self._limits = limits
        # Wrapped for the checks of ``Wrapper``: a fallback must be done with an event when it returns.
        self._fallback = None if fallback is None else Wrapper(fallback)

    def open(self, run: Run) -> _Batches:
        return _Batches(self._deliver, run, self._limits, self.name)

    def run_begins(self, run: Run) -> None:
        super().run_begins(run)
        if self._fallback is not None:
            self._fallback.run_begins(run)

    def reset(self) -> None:
        super().reset()
        if self._fallback is not None:
            self._fallback.reset()

    def stop(self) -> None:
        super().stop()
        if self._fallback is not None:
            self._fallback.stop()

    def room(self) -> int:
        if self._limits.max_bytes is not None or not self._collector.takes_all:
            return 0
        return max(1, self.work.room)

    def progress(self, cursor: str | Event) -> None:
        self.work.progress(cursor)

    def _deliver(self, events: list[Event], run: Run) -> None:
        series = self.series
        if self._fallback is not None:  # what waits behind a dead letter must not reach fn, either
            events = [event for event in events if not self._fallback.takes(event, run)]
            if not events:
                return
        try:
            self._fn(list(events), run)  # a copy, because the function may change the list
        except Exception as error:
            if is_expected(error):
                raise
            series.count("errors", len(events))
            if self._fallback is None:
                raise
            self._one_by_one(self._fallback, events, run)
        else:
            series.count("consumed", len(events))

    def _one_by_one(self, fallback: ConsumerLike, events: list[Event], run: Run) -> None:
        for event in events:
            run.stop.check()  # between events, as a batch may be large; the rest is delivered again
            try:
                with run.handling(event) as handled:
                    fallback.consume(event, handled)
            except BaseException as error:
                run.fail(error, event=event)  # here, where the event is known
                raise


def batch(
    name: str,
    fn: BatchFunc,
    *,
    size: int = 1000,
    period: timedelta | None = timedelta(seconds=1),
    max_bytes: int | None = None,
    fallback: ConsumerLike | None = None,
    **options: Any,
) -> ConsumerLike:
    """Return a consumer that passes events to *fn* in lists.

    A batch is delivered when it has *size* events or *max_bytes*, when *period* has passed since its first event
    arrived here (whatever the age of the event), and, at the head, at once. While *fn* runs, the next batch fills; when
    that is full, the stream waits.

    Delivery: at least once. The cursor moves to the last event of a batch when *fn* returns. After a crash, all events
    of a batch are delivered again, but possibly in different batches. An error in *fn* ends the run at once, even while
    the stream is idle. When the run stops, a batch that was not delivered yet is dropped, and delivered again later.

    One thread of the run calls *fn*. It ends before the run does.

    Args:
        size: Maximum number of events in a batch.
        period: None: a batch waits until it is full.
        max_bytes: Maximum size of the events' JSON (``metadata`` and ``foreign_id``), which is computed to measure it.
        fallback: A consumer that gets the events of a batch one by one after *fn* failed; with ``dead_letter``
            around it, one poison event does not block the others, and with its ``park=``, later events of a parked key
            are in no batch. Give it the same *name*, because metrics go under its name. It is reset and stopped with
            each run.
        options: As for ``rscylla.Consumer``: filters, alerts, registry, clock. Filtered events are in no batch.

    Raises:
        ConfigError: an argument is invalid.
    """
    if "recover" in options:
        raise ConfigError(f'consumer "{name}": recover= is for single events; use fallback= for failed batches')
    if period is not None and period <= timedelta():
        raise ConfigError(f'consumer "{name}": period must be more than zero; None waits until a batch is full')
    limits = _Limits(
        positive("size", name, size),
        None if period is None else period.total_seconds(),
        None if max_bytes is None else positive("max_bytes", name, max_bytes),
    )
    return _Batch(name, fn, limits, fallback, options)
