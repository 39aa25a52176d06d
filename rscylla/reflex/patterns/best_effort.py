"""``best_effort``: an event that keeps failing is let go."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..._retry import Backoff
from ...abc import Consumer
from ...event import Event
from .._lane import current_lane
from ._in_place import InPlace

__all__ = ["best_effort"]

logger = logging.getLogger("rscylla.reflex")


class _BestEffort(InPlace):
    def _give_up(self, event: Event, error: Exception, tries: int) -> None:
        logger.warning(
            'consumer "%s": event %s is let go after %d attempts (%s)',
            self.name,
            event.id,
            tries,
            type(error).__name__,
        )
        logger.debug('consumer "%s": the last error', self.name, exc_info=error)
        lane = current_lane()
        if lane is not None:
            lane.series.count("given_up")


def best_effort(
    consumer: Consumer,
    *,
    retries: int = 3,
    backoff: Backoff | None = None,
    counts: Callable[[Exception], bool] | None = None,
) -> Consumer:
    """Return *consumer* so that it tries an event again in place, *retries* times, and then lets it go.

    Delivery: at least once, but an event may be lost that failed ``retries + 1`` times in a row; it is logged and
    counted (``rscylla_given_up_events_total``). Attempts are not kept over restarts: an event that takes the process
    down is tried for ever. To lose nothing use ``dead_letter``.

    A stop ends the pauses at once, and the event comes again: neither ``Stopped`` nor an interrupt is ever counted or
    swallowed, nor is an error that comes while the run is being stopped. May be used by several threads if *consumer*
    may, as inside of ``concurrent``.

    Args:
        consumer: What to wrap; its name, metrics, ``reset`` and ``stop`` stay.
        backoff: The pauses between attempts: 0.1 to 10 s with jitter unless given.
        counts: Whether an error may be the event's fault; any other ends the run. Unless given: all are, but lost
            connections and errors of ``Fate``.

    Raises:
        ConfigError: *retries* is negative, or *consumer* finishes events later and must be the outermost.
    """
    return _BestEffort(consumer, retries=retries, backoff=backoff, counts=counts)
