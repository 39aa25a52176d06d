"""Durable timers: what has to happen at a time fires at that time, or later.

A runner claims a timer, fires it, and marks it as fired. If the runner dies in between, its claim expires, and another
one fires the timer again. So what a timer does has to be idempotent, as a command with the id of ``firing_id`` is.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from ... import _timeuuid as tu
from ...abc import Consumer as ConsumerLike
from ...abc import Run, StreamClient, StreamStatus
from ...clock import Clock, Stop, SystemClock
from ...errors import ConfigError
from ...event import Event, Progress
from ...options import StreamOption
from ...reflex import Consumer, Spec, Wrapper, concurrent
from ..abc import Timer, TimerStore

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["firing_id", "timer_of", "timer_spec"]

_FIRINGS: Final = uuid.UUID("1f0cc1de-56a0-4d0d-9c0e-3a1d6a3dcb52")


def firing_id(timer: Timer) -> uuid.UUID:
    """Return the id of the firing of *timer*: the same each time, so that commands can be told to be the same."""
    return uuid.uuid5(_FIRINGS, f"{timer.id}\0{tu.us_of(timer.due)}")


class TimerEvent(Event):
    """A timer that is due, as an event: its time is when it is due, its ``foreign_id`` the id of the timer."""

    __slots__ = ("timer",)

    def __init__(self, timer: Timer) -> None:
        self.timer = timer

    type = 0
    id = property(lambda self: f"{self.timer.id}@{tu.us_of(self.timer.due)}")
    foreign_id = property(lambda self: self.timer.id)
    timestamp = property(lambda self: self.timer.due)
    metadata = property(lambda self: self.timer.data.encode())


def timer_of(event: Event) -> Timer:
    """Return the timer of an event of ``timer_spec``, which may come from a dead letter."""
    if isinstance(event, TimerEvent):
        return event.timer
    return Timer(event.foreign_id, event.timestamp, event.metadata.decode())


class _DueClient:
    """The timers that are due. A cursor has no meaning: what has fired is gone."""

    LIMIT: Final = 500

    def __init__(self, store: TimerStore, clock: Clock, every: timedelta, again: timedelta, stop: Stop) -> None:
        self._store = store
        self._clock = clock
        self._every_s = every.total_seconds()
        self._again_s = again.total_seconds()
        self._stop = stop
        self._ready: deque[Timer] = deque()
        self._seen: dict[str, float] = {}  # when each was returned: it is being fired, here or elsewhere
        self._looked_us = 0
        self._asked_at: float | None = None  # while the store is asked
        self._pause = False

    def recv(self) -> Event | Progress:
        self._stop.check()
        while not self._ready:
            if self._pause and self._clock.wait(self._stop, self._every_s):
                self._stop.check()
            self._pause = True
            if not self._look():
                return Progress("", self._looked_us)
        return TimerEvent(self._ready.popleft())

    def _look(self) -> bool:
        """Ask for timers that are due; return whether there are new ones."""
        now, now_us = self._clock.monotonic(), self._clock.now_us()
        self._seen = {id_: since for id_, since in self._seen.items() if now - since < self._again_s}
        limit = self.LIMIT + len(self._seen)
        self._asked_at = now
        found = self._store.due(tu.datetime_of(now_us), limit)
        self._asked_at = None
        self._pause = len(found) < limit
        self._ready.extend(timer for timer in found if timer.id not in self._seen)
        self._seen |= {timer.id: now for timer in self._ready}
        self._looked_us = now_us
        return bool(self._ready)

    def status(self) -> StreamStatus:
        since = self._asked_at
        age_s = None if since is None else self._clock.monotonic() - since
        return StreamStatus(watermark_us=self._looked_us, poll_age_s=age_s)

    def close(self) -> None:
        """Do nothing: nothing is open."""


class _NoCursors:
    """A cursor store for a stream without cursors."""

    def get_cursor(self, consumer: str) -> str:
        return ""

    def set_cursor(self, consumer: str, cursor: str) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Claiming(Wrapper):
    """Claims a timer, lets *inner* fire it, and marks it as fired. Thread-safe if *inner* is."""

    def __init__(self, inner: ConsumerLike, store: TimerStore, duration: timedelta) -> None:
        super().__init__(inner)
        self._store = store
        self._duration = duration
        self._owner = str(uuid.uuid4())

    def consume(self, event: Event, run: Run) -> None:
        timer = timer_of(event)
        if self._store.claim(timer, self._owner, self._duration):
            self._inner.consume(event, run)
            self._store.finish(timer)


def timer_spec(
    name: str,
    store: TimerStore,
    fire: Callable[[Timer, Any], None],
    *,
    wrap: Callable[[ConsumerLike], ConsumerLike] = lambda consumer: consumer,
    every: timedelta = timedelta(seconds=1),
    claim: timedelta = timedelta(minutes=1),
    workers: int = 1,
    clock: Clock | None = None,
    registry: CollectorRegistry | None = None,
) -> Spec:
    """Return a spec that fires timers when they are due: a lane of a ``Service``, in any number of processes.

    A timer fires at least once, and as a rule once: a process claims it, calls *fire*, and marks it as fired. If the
    process dies, or *fire* raises, the timer fires again, elsewhere after *claim*. So *fire* has to be idempotent: a
    command with the id ``firing_id`` is done once. A timer fires late rather than never, by *every* at least.

    Args:
        name: The name of the consumer, for metrics and dead letters.
        fire: Called with the timer and the run.
        wrap: Returns its argument in a wrapper, such as ``lambda c: dead_letter(c, letters)``. A timer that has become
            a letter counts as fired; ``timer_of`` returns the timer of the letter's event.
        every: How often to look for timers that are due.
        claim: How long others leave a timer to the process that claimed it; longer than *fire* takes.
        workers: How many timers are fired at the same time, each in a thread; 1: one after the other.

    Raises:
        ConfigError: an argument is invalid.
    """
    if every <= timedelta() or claim < timedelta(seconds=1):
        raise ConfigError("timer_spec: every must be more than zero, and claim a second or more")
    if not callable(fire):
        raise ConfigError(f'consumer "{name}": fire is not callable; pass a function')
    chosen = clock or SystemClock()

    def stream(after: str, *options: StreamOption, stop: Stop | None = None) -> StreamClient:
        return _DueClient(store, chosen, every, claim, stop or Stop())

    inner = Consumer(name, lambda event, run: fire(timer_of(event), run), registry=registry, clock=chosen)
    consumer: ConsumerLike = _Claiming(wrap(inner), store, claim)
    if workers != 1:
        consumer = concurrent(consumer, workers=workers, key=lambda event: event.foreign_id)
    return Spec(stream, _NoCursors(), consumer, clock=chosen, registry=registry)
