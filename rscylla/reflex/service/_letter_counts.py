"""``LetterCounts``: the numbers of dead letters, counted by a separate thread so that no scrape waits for a query."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from ...abc import DeadLetterAdmin
from ...clock import Clock, Stop
from ...errors import RscyllaError

__all__ = ["LetterCounts"]

log = logging.getLogger("rscylla.service")

EVERY_S = 30.0

IDLE = 50
"""After a count, the next one waits for this many times its duration, so counting takes 2 % of the time at most."""


class LetterCounts:
    """Counts the dead letters of a store again and again, until ``stop``; the longer it takes, the more seldom.

    Args:
        counted: called with each answer: how many are dead, by consumer.
    """

    def __init__(self, letters: DeadLetterAdmin, clock: Clock, counted: Callable[[Mapping[str, int]], None]) -> None:
        self._letters = letters
        self._clock = clock
        self._counted = counted
        self._stop = Stop()
        self._counts: Mapping[str, int] | None = None

    def of(self, consumer: str) -> int | None:
        """Return how many letters of *consumer* are dead, as of the last look; None if that is not known."""
        counts = self._counts
        return None if counts is None else counts.get(consumer, 0)

    def start(self) -> None:
        """Begin to count."""
        threading.Thread(target=self._work, name="rscylla-dead-letters", daemon=True).start()

    def stop(self) -> None:
        """Count no more. A look that is under way is left to itself."""
        self._stop.set()

    def _work(self) -> None:
        while not self._stop.is_set():
            began = self._clock.monotonic()
            try:
                self._counts = self._letters.count_letters()
                self._counted(self._counts)
            except Exception as error:
                self._counts = None
                log.warning(
                    "dead letters cannot be counted: %s",
                    error if isinstance(error, RscyllaError) else type(error).__name__,
                )
                log.debug("dead letters cannot be counted", exc_info=True)
            self._clock.wait(self._stop, max(EVERY_S, IDLE * (self._clock.monotonic() - began)))
