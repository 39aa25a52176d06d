"""What the running thread works on: the lane that ``run`` is in, for logs, traces, and waits that a stop has to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import attrs

from ..clock import Clock, Stop
from ..event import Event
from .metrics import ConsumerSeries

__all__ = ["Lane", "current_lane", "entered"]


@attrs.define(eq=False)
class Lane:
    """One run of a spec, as ``current_lane`` returns it to consumers and their wrappers.

    ``stop`` is the run's own signal: long-running code inside a consumer can check it, or wait on it with ``clock``.
    ``source`` names the table, such as ``shop.orders``, or "" if the stream does not name one. ``event`` is
    the event that is being consumed, None between events.
    """

    consumer: str
    source: str
    stop: Stop
    clock: Clock
    series: ConsumerSeries
    event: Event | None = None


_current: ContextVar[Lane | None] = ContextVar("rscylla_lane", default=None)


def current_lane() -> Lane | None:
    """Return the lane of the surrounding ``run``, or None outside a run.

    The lane belongs to the context: a thread that a consumer starts has it only if it runs in
    ``contextvars.copy_context()``.
    """
    return _current.get()


@contextmanager
def entered(lane: Lane) -> Iterator[Lane]:
    """Make *lane* the current one, and with it its event, if it has one, what this thread is known to work on."""
    token = _current.set(lane)
    activity = lane.series.activity if lane.event is not None else None
    if activity is not None and lane.event is not None:
        activity.begin(lane.clock, lane.event)
    try:
        yield lane
    finally:
        if activity is not None:
            activity.end()
        _current.reset(token)
