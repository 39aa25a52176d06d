"""The check of the demo: every write is delivered, in sequence for each order, despite all failures."""

from __future__ import annotations

import threading

import attrs

__all__ = ["Checker", "Position", "Verdict"]

Position = tuple[int, bytes]
"""The type of ``EventID.key``: a comparable position in the stream."""


@attrs.frozen
class Verdict:
    """The result of a demo; ``ok`` if no change was lost and all changes were in order.

    ``delivered`` counts distinct changes, ``duplicates`` repeats, and ``strangers`` changes that were never written.
    """

    written: int
    delivered: int
    lost: int
    duplicates: int
    out_of_order: int
    generations: int
    restarts: int
    strangers: int = 0

    @property
    def ok(self) -> bool:
        return self.lost == self.out_of_order == self.strangers == 0 and self.written > 0


class Checker:
    """Compares the written changes with the delivered ones. Thread-safe.

    A change is identified by its key (an order) and its number in the sequence of that key, which starts at 1 and has
    no gaps. A delivery is out of order if its change

    - is not above the last change of its key in the same attempt (one attempt never repeats a change),
    - is new although a later change of its key was delivered before,
    - or is at or before the cursor that the attempt started from.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: set[tuple[int, int]] = set()
        self._delivered: set[tuple[int, int]] = set()
        self._highest: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._start: Position | None = None
        self._generations: set[int] = set()
        self._attempts = 0
        self._duplicates = 0
        self._out_of_order = 0

    def written(self, key: int, number: int) -> None:
        """Record that the database has confirmed a change."""
        with self._lock:
            self._written.add((key, number))

    def started(self, cursor: Position | None) -> None:
        """Record that a consumer starts right after *cursor*; None: at the oldest event."""
        with self._lock:
            self._attempts += 1
            self._last.clear()
            self._start = cursor

    def delivered(self, key: int, number: int, position: Position) -> None:
        """Record that the consumer got the change at *position* of the stream."""
        with self._lock:
            change = key, number
            new = change not in self._delivered
            repeated = number <= self._last.get(key, 0)
            overtaken = new and number < self._highest.get(key, 0)
            too_early = self._start is not None and position <= self._start
            self._out_of_order += repeated or overtaken or too_early
            self._duplicates += not new
            self._delivered.add(change)
            self._last[key] = number
            self._highest[key] = max(number, self._highest.get(key, 0))
            self._generations.add(position[0])

    def verdict(self) -> Verdict:
        """Return the current result; ``lost`` counts the changes that are not delivered yet."""
        with self._lock:
            return Verdict(
                written=len(self._written),
                delivered=len(self._delivered),
                lost=len(self._written - self._delivered),
                duplicates=self._duplicates,
                out_of_order=self._out_of_order,
                generations=len(self._generations),
                restarts=max(0, self._attempts - 1),
                strangers=len(self._delivered - self._written),
            )
