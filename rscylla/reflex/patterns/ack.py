"""``ack``: the application acknowledges events when it is done with them, from any thread and in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...abc import Consumer as ConsumerLike
from ...abc import Run
from ...errors import ConfigError
from ...event import Event
from ..consumer import Consumer
from ..deferred import Deferred
from ..inflight import Entry, InFlight, positive

__all__ = ["Ack", "AckFunc", "ack"]


class Ack:
    """Marks an event as done when called. Thread-safe and safe to repeat; without effect after the end of the run.

    A call saves the cursor if it can move, and blocks while the store writes: do not call it in the thread of an event
    loop. A failure to save ends the run; it is not raised here.
    """

    __slots__ = ("_entry", "_in_flight", "_run")

    def __init__(self, in_flight: InFlight, entry: Entry, run: Run) -> None:
        self._in_flight = in_flight
        self._entry = entry
        self._run = run

    def __call__(self) -> None:
        self._in_flight.done(self._entry)

    def fail(self, error: BaseException) -> None:
        """End the run with *error*; the event is delivered again."""
        self._run.fail(error, event=self._entry.event)


AckFunc = Callable[[Event, Any, Ack], None]
"""Receives the event, the run, and the ``Ack`` to call once the event is done."""


class _Unacked:
    """The events of one run that are not acknowledged yet."""

    def __init__(self, run: Run, limit: int) -> None:
        self.in_flight = InFlight(run, limit)
        self._run = run

    def take(self, event: Event) -> Ack:
        return Ack(self.in_flight, self.in_flight.add(event), self._run)

    def drain(self) -> None:
        self.in_flight.drain()

    def close(self) -> None:
        self.in_flight.close()


class _Acknowledged(Deferred[_Unacked]):
    _handle: Ack

    def __init__(self, name: str, fn: AckFunc, max_unacked: int, **options: Any) -> None:
        super().__init__(Consumer(name, self._hand, **options))
        if not callable(fn):
            raise ConfigError(f'consumer "{name}": fn is not callable; pass a function')
        self._fn = fn
        self._limit = positive("max_unacked", name, max_unacked)
        self._delivered = self._returned = False

    def open(self, run: Run) -> _Unacked:
        return _Unacked(run, self._limit)

    def consume(self, event: Event, run: Run) -> None:
        self._delivered = self._returned = False
        self._inner.consume(event, run)
        if not self._delivered:  # filtered out: the cursor still moves past it
            self.progress(event)
        elif not self._returned:  # recover= swallowed the error of the function, which may have lost the Ack
            self._handle()

    def _hand(self, event: Event, run: Run) -> None:
        self._handle = self.work.take(event)
        self._delivered = True
        with run.handling(event) as handled:  # only now: ``take`` waits for acknowledgements, not for this event
            self._fn(event, handled, self._handle)
        self._returned = True


def ack(name: str, fn: AckFunc, *, max_unacked: int = 10_000, **options: Any) -> ConsumerLike:
    """Return a consumer whose events are done when *fn*'s third argument is called, not when *fn* returns.

    For work that finishes elsewhere: a broker that confirms later, a pool, a write that is flushed periodically.

    Delivery: at least once. Acknowledgements may arrive from any thread and in any order. The cursor moves to the last
    event before which all events are acknowledged, so a crash repeats the first unacknowledged event and all later
    ones. Events that are not acknowledged when the run ends are delivered again; late acknowledgements have no effect.
    At the head, the run waits for the remaining acknowledgements. Metrics: ``rscylla_unfinished_events``,
    ``rscylla_oldest_unfinished_seconds``.

    The thread of the run calls *fn*. An error in *fn* ends the run, unless ``recover`` swallows it: then the event is
    done.

    Args:
        max_unacked: How many delivered events may be uncommitted; then the stream waits.
        options: As for ``rscylla.Consumer``: filters, recovery, alerts, registry, clock. Filtered events need no
            acknowledgement.

    Raises:
        ConfigError: an argument is invalid.
    """

    return _Acknowledged(name, fn, max_unacked, **options)
