"""What two lanes of one consumer know of each other: which events the fast one is done with, and how far it is."""

from __future__ import annotations

import enum
import logging
import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from typing import Any

from ...clock import Clock, Stop
from ...errors import HeadReached
from ._prefix import LOOK_AGAIN_S

__all__ = ["Ledger", "Verdict"]

logger = logging.getLogger("rscylla.reflex")

SAMPLE_EVERY_S = 1.0
"""How closely it is remembered when the fast lane passed a place."""

SAMPLES = 4096


class Verdict(enum.Enum):
    """What is known of an event that the sweep came to, which the fast lane has passed."""

    DELIVERED = "delivered"  # the fast lane handed it out, and the consumer was done with it
    MISSED = "missed"  # the fast lane did not see it
    UNPROVEN = "unproven"  # it lies before all that is known


class Ledger:
    """The events that the fast lane handed out and the sweep has not passed for good. Thread-safe.

    Three places, in the order of events: all up to the *floor* is done or forgotten, and nothing is known of single
    events there; between it and the *frontier* the consumer is done with each event that is listed; what lies behind
    the frontier the fast lane hands out, again if need be. It outlives the runs of both lanes.

    Args:
        order: gives the key by which cursors compare.
        limit: how many events are listed at most; the oldest are forgotten first.
    """

    def __init__(self, name: str, order: Callable[[str], Any], limit: int, clock: Clock) -> None:
        self._name = name
        self._order = order
        self._limit = limit
        self._clock = clock
        self._changed = threading.Condition()
        self._done: list[Any] = []  # ascending; the first _gone of them are no longer listed
        self._gone = 0
        self._handed: tuple[str, Any] = ("", None)
        self._floor: Any = None
        self._swept: Any = None
        self._tried: Any = None
        self._was_reset = False
        self._frontier: Any = None
        self._cursor = ""
        self._at_end = False
        self._told = False
        self._found: Any = None  # the last that the sweep handed out; only its thread looks
        self._samples: deque[tuple[Any, float]] = deque(maxlen=SAMPLES)
        self.forgotten = 0

    # ------------------------------------------------------------ the fast lane's side

    def open_fast(self, swept: str) -> str:
        """Return where a run of the fast lane begins; *swept* is the sweep's cursor.

        It goes on where its last run stopped. The first run begins where the sweep is: all before that is done, and
        of nothing behind it that can be shown. So does one that finds the sweep ahead of it, which then was moved on
        purpose or by another process.

        What was handed out behind the frontier, the consumer was not done with: it is no longer listed, because the
        new run may not see it again, as when it asks another replica.
        """
        key = self._order(swept)
        with self._changed:
            self._at_end = False
            if self._frontier is None or key > self._frontier:
                self._done, self._gone = [], 0
                self._floor, self._frontier, self._cursor = key, key, swept
            del self._done[bisect_right(self._done, self._frontier, lo=self._gone) :]
            self._changed.notify_all()
            return self._cursor

    def hand(self, cursor: str, key: Any) -> None:
        """Note that the event of *cursor*, which is at *key*, is handed to the consumer now."""
        with self._changed:
            self._handed = cursor, key
            self._list(key)

    def commit(self, cursor: str) -> None:
        """Note that the consumer is done with all events that were handed to it, up to *cursor*."""
        with self._changed:
            handed, key = self._handed
            if handed != cursor:
                key = self._order(cursor)
            if self._frontier is None or key > self._frontier:
                self._frontier, self._cursor = key, cursor
                self._sample(key)
            self._changed.notify_all()

    def end_fast(self) -> None:
        """Note that the fast lane reached the end it was asked for, and will not go on by itself."""
        with self._changed:
            self._at_end = True
            self._changed.notify_all()

    def _sample(self, key: Any) -> None:
        """Remember when the frontier came to *key*; what it passes within a second counts as passed at its start."""
        now = self._clock.monotonic()
        if self._samples and now - self._samples[-1][1] < SAMPLE_EVERY_S:
            now = self._samples.pop()[1]
        self._samples.append((key, now))

    def _list(self, key: Any) -> None:
        if key <= self._floor:
            return
        # In the order of the stream; what a run repeats is behind the frontier, and was removed as it opened.
        if len(self._done) == self._gone or key > self._done[-1]:
            self._done.append(key)
        if len(self._done) - self._gone > self._limit:
            self._forget_up_to(self._done[self._gone])
            self.forgotten += 1
            if not self._told:
                self._told = True
                logger.warning(
                    'consumer "%s": more than %d events between its fast lane and its sweep; the sweep will hand out '
                    "the oldest of them again. Is it slow or down? Else raise remember=",
                    self._name,
                    self._limit,
                )

    # ------------------------------------------------------------ the sweep's side

    def passed(self, key: Any) -> bool:
        """Whether the fast lane has passed the place *key*."""
        with self._changed:
            return self._frontier is not None and key <= self._frontier

    def judge(self, key: Any, stop: Stop) -> Verdict:
        """Return what is known of the event at *key*; waits until the fast lane has passed its place.

        Raises:
            Stopped: *stop* was set.
            HeadReached: the fast lane ended before that place.
        """
        with self._changed:
            if self._frontier is None or key > self._frontier:
                self._await_passing(key, stop)
            if self._index(key) is not None:
                return Verdict.DELIVERED
            return Verdict.UNPROVEN if key <= self._floor else Verdict.MISSED

    def _await_passing(self, key: Any, stop: Stop) -> None:
        logger.debug('consumer "%s": the sweep waits for the fast lane', self._name)
        forget = stop.on_set(self._wake)
        try:
            while self._frontier is None or key > self._frontier:
                stop.check()
                if self._at_end:
                    raise HeadReached("the sweep is where the fast lane ended")
                self._changed.wait(LOOK_AGAIN_S)
        finally:
            forget()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def open_sweep(self, cursor: str) -> None:
        """Note that a run of the sweep begins at *cursor*.

        If that is not where the sweep left it, somebody moved it, to get all that follows again: what the fast lane
        is done with is forgotten.
        """
        key = self._order(cursor)
        with self._changed:
            moved = self._swept is not None and key not in (self._swept, self._tried)
            if (moved or self._was_reset) and self._frontier is not None and self._frontier > self._floor:
                self._forget_up_to(self._frontier)
            self._swept = self._tried = key
            self._was_reset = False

    def reset_sweep(self) -> None:
        """Note that the sweep's cursor was reset while it was at work; its next run begins where it was reset to."""
        with self._changed:
            self._was_reset = True

    def try_sweep(self, cursor: str) -> None:
        """Note that the sweep's own cursor is about to be *cursor*; if saving it fails, it may be there or not."""
        with self._changed:
            self._tried = self._order(cursor)

    def sweep(self, cursor: str) -> None:
        """Note that all up to *cursor* is done for good: the sweep's own cursor is there."""
        key = self._order(cursor)
        with self._changed:
            self._swept = key
            if self._floor is not None and key > self._floor:
                self._forget_up_to(key)

    def find(self, key: Any) -> bool:
        """Note that the sweep hands out the event at *key*; return whether that is the first time in a row."""
        first, self._found = bool(key != self._found), key
        return first

    def passed_for(self, key: Any) -> float:
        """Return for how many seconds, to about one, the fast lane has been past the place *key*."""
        with self._changed:
            at = next((at for place, at in self._samples if place >= key), None)
            return 0.0 if at is None else max(0.0, self._clock.monotonic() - at)

    def __len__(self) -> int:
        """Return how many events are listed."""
        with self._changed:
            return len(self._done) - self._gone

    # ------------------------------------------------------------ inside

    def _index(self, key: Any) -> int | None:
        i = bisect_left(self._done, key, lo=self._gone)
        return i if i < len(self._done) and self._done[i] == key else None

    def _forget_up_to(self, key: Any) -> None:
        gone = bisect_right(self._done, key, lo=self._gone)
        self._done[self._gone : gone] = [None] * (gone - self._gone)  # what takes memory goes at once
        self._floor, self._gone = key, gone
        if self._gone > 1024 and self._gone * 2 > len(self._done):
            del self._done[: self._gone]  # seldom, so that each key is moved about once
            self._gone = 0
