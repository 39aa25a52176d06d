"""What the demo checks: that everything written is delivered, in order for each order, whatever fails on the way."""

from __future__ import annotations

import threading

import attrs

__all__ = ["Checker", "Position", "Verdict"]

Position = tuple[int, bytes]
"""What ``EventID.key`` gives: a place in the stream that can be compared."""


@attrs.frozen
class Verdict:
    """The sum of a demo; ``ok`` if nothing was lost and order held.

    ``delivered`` counts distinct changes, ``duplicates`` their repeats; ``strangers`` were delivered, never written.
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
    """Compares what is written with what is delivered. Thread-safe.

    Each change is known by its key (an order) and its number in the sequence of that key, which starts at 1 and has no
    gaps. Order is broken by a delivery that

    - is not above the last one of its key in the same attempt (one attempt never repeats anything),
    - is new although a later change of its key was delivered before,
    - or lies at or before the cursor that the attempt started from.
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
        """Note that the database has confirmed a change."""
        with self._lock:
            self._written.add((key, number))

    def started(self, cursor: Position | None) -> None:
        """Note that a consumer starts, right after *cursor*; None: at the oldest event."""
        with self._lock:
            self._attempts += 1
            self._last.clear()
            self._start = cursor

    def delivered(self, key: int, number: int, position: Position) -> None:
        """Note that the consumer was given a change, which lies at *position* of the stream."""
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
        """Return the sum as it is now; ``lost`` is what is still missing."""
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
