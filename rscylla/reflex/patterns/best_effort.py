"""``best_effort``: skips an event that keeps failing."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..._retry import Backoff
from ...abc import Consumer, Run
from ...event import Event
from .letters.retrying import Retrying

__all__ = ["best_effort"]

logger = logging.getLogger("rscylla.reflex")


class _BestEffort(Retrying):
    def _give_up(self, event: Event, run: Run, error: Exception, tries: int) -> None:
        logger.warning(
            'consumer "%s": event %s is skipped after %d attempts (%s)',
            self.name,
            event.id,
            tries,
            type(error).__name__,
        )
        logger.debug('consumer "%s": the last error', self.name, exc_info=error)
        run.count("given_up")


def best_effort(
    consumer: Consumer,
    *,
    retries: int = 3,
    backoff: Backoff | None = None,
    counts: Callable[[Exception], bool] | None = None,
) -> Consumer:
    """Return *consumer*, wrapped so that it retries an event in place, *retries* times, and then skips it.

    Delivery: at least once, except that an event is skipped after it failed ``retries + 1`` times in a row; the event
    is logged and counted (``rscylla_given_up_events_total``). Attempts are not saved across restarts, so an event that
    ends the process is retried forever. To lose no event, use ``dead_letter``.

    A stop ends the pauses at once, and the event is delivered again: ``Stopped``, interrupts, and errors that occur
    while the run is being stopped are never counted or swallowed. Thread-safe if *consumer* is, as needed inside
    ``concurrent``.

    Args:
        consumer: The consumer to wrap; its name, metrics, ``reset``, and ``stop`` are kept.
        backoff: The pauses between attempts; default: 0.1 to 10 s with jitter.
        counts: Whether an error may be the event's fault; any other error ends the run. Default: all errors except lost
            connections and errors of ``Fate``.

    Raises:
        ConfigError: *retries* is negative, or *consumer* finishes events later and must be outermost.
    """

    return _BestEffort(consumer, retries=retries, backoff=backoff, counts=counts)
