"""``LetterCounts``: counts dead letters in a separate thread, so that no scrape and no page waits for a query."""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Mapping
from itertools import chain, islice

from .._letters import DeadLetter
from ..abc import DeadLetterAdmin
from ..clock import Clock, Stop
from ..errors import RscyllaError

__all__ = ["LetterCounts"]

log = logging.getLogger("rscylla.service")

EVERY_S = 30.0
"""Seconds between counts, at least."""

IDLE = 50
"""The pause after a count is at least this many times its duration, so counting takes at most 2 % of the time."""


NEWEST = 10
"""How many of the newest letters are kept."""

LISTED = 1_000
"""The newest letters are looked for among this many, which are listed by consumer and by time of the event."""


class LetterCounts:
    """Counts the dead letters of a store repeatedly until ``stop``. The longer a count takes, the rarer they are.

    Args:
        counted: called with the result of each count: the number of dead letters by consumer.
        shown: whether a page shows the letters of a consumer. They are listed when their number has changed.
    """

    def __init__(
        self,
        letters: DeadLetterAdmin,
        clock: Clock,
        counted: Callable[[Mapping[str, int]], None],
        shown: Callable[[str], bool] = lambda consumer: False,
    ) -> None:
        self._letters = letters
        self._clock = clock
        self._counted = counted
        self._shown = shown
        self._stop = Stop()
        self._listed: Mapping[str, int] = {}
        self.counts: Mapping[str, int] | None = None
        """By consumer, how many letters were dead at the last count; None if that is not known."""
        self.shown_counts: Mapping[str, int] | None = None
        """The same, of the shown consumers alone."""
        self.newest: tuple[DeadLetter, ...] = ()
        """The letters of the shown consumers that failed last, newest first."""
        self.listed_all = True
        """Whether ``newest`` are those of all letters, and not of the first ``LISTED`` ones."""

    def of(self, consumer: str) -> int | None:
        """Return how many letters of *consumer* were dead at the last count; None if that is not known."""
        counts = self.counts
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
                self.counts = counts = self._letters.count_letters()
                self._counted(counts)
                self.shown_counts = shown = {name: count for name, count in counts.items() if self._shown(name)}
                self._list(shown)
            except Exception as error:
                self.counts = self.shown_counts = None
                log.warning(
                    "dead letters cannot be counted: %s",
                    error if isinstance(error, RscyllaError) else type(error).__name__,
                )
                log.debug("dead letters cannot be counted", exc_info=True)
            self._clock.wait(self._stop, max(EVERY_S, IDLE * (self._clock.monotonic() - began)))

    def _list(self, counts: Mapping[str, int]) -> None:
        """Find the newest letters of the consumers in *counts*, if the numbers are not those of the last time."""
        if counts == self._listed:
            return
        found = islice(chain.from_iterable(map(self._letters.list_letters, sorted(counts))), LISTED)
        self.newest = tuple(heapq.nlargest(NEWEST, found, key=lambda letter: letter.failed_at))
        self.listed_all = sum(counts.values()) <= LISTED
        self._listed = counts
