"""``Ledger``: which events the fast lane of a consumer has delivered, so that its sweep delivers only the others."""

from __future__ import annotations

import enum
import logging
import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from typing import Any

from ....clock import Clock, Stop
from ....errors import HeadReached
from ...inflight import LOOK_AGAIN_S

__all__ = ["Ledger", "Verdict"]

logger = logging.getLogger("rscylla.reflex")

SAMPLE_EVERY_S = 1.0
"""Resolution of the times at which the fast lane passed a position, for the metric of how late an event is."""

SAMPLES = 4096
"""How many of these times are kept: more than an hour of them."""


class Verdict(enum.Enum):
    """What the ledger knows about an event that the sweep reads and the fast lane has passed."""

    DELIVERED = "delivered"  # by the fast lane, and the consumer returned
    MISSED = "missed"  # the fast lane did not read it
    UNPROVEN = "unproven"  # it is before the floor, where the ledger does not list events


class Ledger:
    """The events that the fast lane has delivered and the sweep has not passed. Thread-safe; outlives runs.

    Two positions divide the events. Up to the *floor*, events are finished or forgotten, and none is listed. From there
    to the *frontier*, exactly the listed events were delivered by the fast lane. Later events are still to be delivered
    by the fast lane, some of them perhaps again.

    Args:
        order: returns the key by which cursors compare.
        limit: the maximum number of listed events; the oldest are forgotten first.
    """

    def __init__(self, name: str, order: Callable[[str], Any], limit: int, clock: Clock) -> None:
        self._name = name
        self._order = order
        self._limit = limit
        self._clock = clock
        self._changed = threading.Condition()
        self._done: list[Any] = []  # ascending; the first _gone of them are no longer listed
        self._gone = 0
        self._delivered: tuple[str, Any] = ("", None)
        self._floor: Any = None
        self._swept: Any = None
        self._tried: Any = None
        self._was_reset = False
        self._frontier: Any = None
        self._cursor = ""
        self._at_end = False
        self._warned = False
        self._found: Any = None  # the last event that the sweep delivered; used by its thread only
        self._samples: deque[tuple[Any, float]] = deque(maxlen=SAMPLES)
        self.forgotten = 0

    # ------------------------------------------------------------ the fast lane's side

    def open_fast(self, swept: str) -> str:
        """Return the cursor from which a run of the fast lane starts; *swept* is the sweep's cursor.

        A run continues where the last one stopped. The first run starts at the sweep's cursor, because all earlier
        events are finished, and the ledger knows of no later one. So does a run that finds the sweep ahead: the sweep
        was then moved by an operator or by another process.

        Events beyond the frontier are removed from the list. The consumer has not finished them, and the new run may
        not read them again, for example from another replica.
        """
        key = self._order(swept)
        with self._changed:
            self._at_end = False
            if self._frontier is None or key > self._frontier:
                self._done, self._gone = [], 0
                self._floor, self._frontier, self._cursor = key, key, swept
                # Where the sweep starts unless an operator moves its cursor before it runs; ``open_sweep`` compares.
                self._swept = self._tried = key
            del self._done[bisect_right(self._done, self._frontier, lo=self._gone) :]
            self._changed.notify_all()
            return self._cursor

    def hand(self, cursor: str, key: Any) -> None:
        """Record that the consumer now receives the event of *cursor*, with the key *key*."""
        with self._changed:
            self._delivered = cursor, key
            self._list(key)

    def commit(self, cursor: str) -> None:
        """Record that the consumer has finished all events that it received, up to *cursor*."""
        with self._changed:
            delivered, key = self._delivered
            if delivered != cursor:
                key = self._order(cursor)
            if self._frontier is None or key > self._frontier:
                self._frontier, self._cursor = key, cursor
                self._sample(key)
            self._changed.notify_all()

    def end_fast(self) -> None:
        """Record that the fast lane reached its end. A sweep that waits for it then also ends."""
        with self._changed:
            self._at_end = True
            self._changed.notify_all()

    def _sample(self, key: Any) -> None:
        """Save the time at which the frontier reached *key*; one sample stands for all positions of its second."""
        now = self._clock.monotonic()
        if self._samples and now - self._samples[-1][1] < SAMPLE_EVERY_S:
            now = self._samples.pop()[1]
        self._samples.append((key, now))

    def _list(self, key: Any) -> None:
        if key <= self._floor:
            return
        # Keys arrive in the order of the stream. A run repeats only events beyond the frontier, and open_fast removed
        # those from the list.
        if len(self._done) == self._gone or key > self._done[-1]:
            self._done.append(key)
        if len(self._done) - self._gone > self._limit:
            self._forget_up_to(self._done[self._gone])
            self.forgotten += 1
            if not self._warned:
                self._warned = True
                logger.warning(
                    'consumer "%s": more than %d events are between its fast lane and its sweep; the sweep delivers '
                    "the oldest of them again. Check that the sweep runs and keeps up, or raise remember=",
                    self._name,
                    self._limit,
                )

    # ------------------------------------------------------------ the sweep's side

    def passed(self, key: Any) -> bool:
        """Return whether the fast lane has passed *key*."""
        with self._changed:
            return self._frontier is not None and key <= self._frontier

    def judge(self, key: Any, stop: Stop) -> Verdict:
        """Return what the ledger knows about the event with *key*. Waits until the fast lane has passed it.

        Raises:
            Stopped: *stop* was set.
            HeadReached: the fast lane ended before *key*.
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
        """Record that a run of the sweep starts at *cursor*.

        If the last run left another cursor, an operator moved it in order to get all later events again. The ledger
        then forgets what the fast lane has delivered.
        """
        key = self._order(cursor)
        with self._changed:
            moved = self._swept is not None and key not in (self._swept, self._tried)
            if (moved or self._was_reset) and self._frontier is not None and self._frontier > self._floor:
                self._forget_up_to(self._frontier)
            self._swept = self._tried = key
            self._was_reset = False

    def reset_sweep(self) -> None:
        """Record that the sweep's cursor was reset during a run; the next run starts at the new one."""
        with self._changed:
            self._was_reset = True

    def try_sweep(self, cursor: str) -> None:
        """Record that the sweep starts to save *cursor*. Even if the save fails, the cursor may have been written."""
        with self._changed:
            self._tried = self._order(cursor)

    def sweep(self, cursor: str) -> None:
        """Record that the sweep has saved *cursor*: earlier events are finished for good."""
        key = self._order(cursor)
        with self._changed:
            self._swept = key
            if self._floor is not None and key > self._floor:
                self._forget_up_to(key)

    def find(self, key: Any) -> bool:
        """Record that the sweep delivers the event with *key*; return false if that was also the last one."""
        first, self._found = bool(key != self._found), key
        return first

    def passed_for(self, key: Any) -> float:
        """Return how many seconds ago, to about one second, the fast lane passed *key*."""
        with self._changed:
            at = next((at for passed, at in self._samples if passed >= key), None)
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
        self._done[self._gone : gone] = [None] * (gone - self._gone)  # frees the keys, which take most of the memory
        self._floor, self._gone = key, gone
        if self._gone > 1024 and self._gone * 2 > len(self._done):
            del self._done[: self._gone]  # rarely, because it moves all later keys
            self._gone = 0
