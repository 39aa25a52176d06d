"""``dead_letter``: an event that keeps failing is kept whole in a place of its own, and the consumer goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ... import _timeuuid as tu
from ..._letters import DeadLetter
from ..._retry import Backoff
from ...abc import Consumer, DeadLetters
from ...clock import SystemClock
from ...event import Event
from .._lane import current_lane
from ._in_place import InPlace

__all__ = ["dead_letter"]

logger = logging.getLogger("rscylla.reflex")


class _DeadLetter(InPlace):
    def __init__(
        self,
        inner: Consumer,
        letters: DeadLetters,
        *,
        retries: int,
        backoff: Backoff | None,
        counts: Callable[[Exception], bool] | None,
    ) -> None:
        super().__init__(inner, retries=retries, backoff=backoff, counts=counts)
        self._letters = letters

    def _known(self, event: Event) -> int:
        return self._letters.tries(self.name, event)

    def _failed(self, event: Event, tries: int) -> None:
        self._letters.set_tries(self.name, event, tries)

    def _succeeded(self, event: Event) -> None:
        self._letters.set_tries(self.name, event, 0)

    def _give_up(self, event: Event, error: Exception, tries: int) -> None:
        lane = current_lane()
        clock = lane.clock if lane is not None else SystemClock()
        failed_at = tu.datetime_of(clock.now_us())
        letter = DeadLetter.of(self.name, event, error, attempts=tries, failed_at=failed_at)
        self._letters.put(letter)
        if lane is not None:
            lane.series.count("dead_lettered")
        logger.warning(
            'consumer "%s": event %s is a dead letter after %d attempts (%s)', self.name, event.id, tries, letter.error
        )


def dead_letter(
    consumer: Consumer,
    letters: DeadLetters,
    *,
    retries: int = 3,
    backoff: Backoff | None = None,
    counts: Callable[[Exception], bool] | None = None,
) -> Consumer:
    """Return *consumer* so that it tries an event again in place, *retries* times, and then puts it aside in *letters*.

    Delivery: at least once, and nothing is lost: the letter, with the whole event, the attempts and the traceback, is
    durable before the cursor moves. If it cannot be written, the run ends with that error and the event comes again.
    Attempts are kept in *letters* too, by consumer and event id, so that restarts do not start the count anew; an event
    that takes the whole process down while it is consumed is not counted.

    Later events of the same key go on: a consumer that cannot have that refuses them itself, or does without dead
    letters. ``rscylla deadletter`` lists, shows, replays and discards letters.

    A stop ends the pauses at once, and the event comes again: neither ``Stopped`` nor an interrupt is ever counted or
    swallowed, nor is an error that comes while the run is being stopped. May be used by several threads if *consumer*
    may, as inside of ``concurrent``.

    Args:
        consumer: What to wrap; its name, metrics, ``reset`` and ``stop`` stay.
        letters: Such as ``cursorstore.ScyllaDeadLetters``.
        backoff: The pauses between attempts: 0.1 to 10 s with jitter unless given.
        counts: Whether an error may be the event's fault; any other ends the run, and ``run_forever`` tries again
            later. Unless given: all are, but lost connections and errors of ``Fate``, so that an outage of what is
            behind the consumer pauses it and does not drain the stream.

    Raises:
        ConfigError: *retries* is negative, or *consumer* finishes events later and must be the outermost.
    """
    return _DeadLetter(consumer, letters, retries=retries, backoff=backoff, counts=counts)
