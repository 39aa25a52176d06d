"""``LetterCounts``: counts dead letters in a separate thread, so that no scrape waits for a query."""

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
"""Seconds between counts, at least."""

IDLE = 50
"""The pause after a count is at least this many times its duration, so counting takes at most 2 % of the time."""


class LetterCounts:
    """Counts the dead letters of a store repeatedly until ``stop``. The longer a count takes, the rarer they are.

    Args:
        counted: called with the result of each count: the number of dead letters by consumer.
    """

    def __init__(self, letters: DeadLetterAdmin, clock: Clock, counted: Callable[[Mapping[str, int]], None]) -> None:
        self._letters = letters
        self._clock = clock
        self._counted = counted
        self._stop = Stop()
        self._counts: Mapping[str, int] | None = None

    def of(self, consumer: str) -> int | None:
        """Return how many letters of *consumer* were dead at the last count; None if that is not known."""
        counts = self._counts
        return None if counts is None else counts.get(consumer, 0)

    def start(self) -> None:
        """Begin to count."""
        threading.Thread(target=self._work, name="rscylla-dead-letters", daemon=True).start()

    def stop(self) -> None:
        """Start no further count. Does not wait for a count in progress."""
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
