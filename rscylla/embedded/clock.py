"""The only place of the embedded server that reads time: a real clock, a driven one, and one for each node."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Protocol

__all__ = ["Clock", "ManualClock", "NodeClock", "SystemClock"]


class Clock(Protocol):
    """Tells the time. Called from the server's loop thread, and from any thread that owns the server."""

    def now_us(self) -> int:
        """Return microseconds since the epoch, UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000


class ManualClock:
    """A clock that moves only when told to. Thread-safe.

    >>> clock = ManualClock(1_700_000_000_000_000)
    >>> clock.advance(1.5)
    >>> clock.now_us()
    1700000001500000
    """

    def __init__(self, start_us: int) -> None:
        self._now_us = start_us
        self._lock = threading.Lock()

    def now_us(self) -> int:
        return self._now_us

    def advance(self, by: float | timedelta) -> None:
        """Move on by ``by`` (seconds or a timedelta), zero or more; going back raises ValueError."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError("a clock cannot be advanced by a negative time; use set_us to jump")
        with self._lock:
            self._now_us += step // timedelta(microseconds=1)

    def set_us(self, now_us: int) -> None:
        """Jump to ``now_us``, also backwards."""
        with self._lock:
            self._now_us = now_us


class NodeClock:
    """One node's view of a clock: ``skew_us`` is added, and may be changed at any time."""

    def __init__(self, base: Clock, skew_us: int = 0) -> None:
        self._base = base
        self.skew_us = skew_us

    def now_us(self) -> int:
        return self._base.now_us() + self.skew_us
