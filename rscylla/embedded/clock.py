"""The only place of the embedded server that reads time: a real clock, a driven one, and one for each node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

__all__ = ["Clock", "ManualClock", "NodeClock", "SystemClock", "checked_seconds", "milliseconds"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_LONGEST_S: Final = 10**9
"""Longest span that a command may give, about 32 years: times that are made with it are dates of four digits."""


def milliseconds(duration: timedelta) -> int:
    """Return the whole milliseconds of *duration*."""
    return duration // timedelta(milliseconds=1)


def checked_seconds(value: Any, unit_s: float, name: str, *, least: float = -_LONGEST_S) -> float:
    """Return *value* units of *unit_s* in seconds. ValueError unless it is a number from *least* to 10⁹ seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, not {value!r}")
    if not least / unit_s <= value <= _LONGEST_S / unit_s:
        raise ValueError(f"{name} must be from {least / unit_s:g} to {_LONGEST_S / unit_s:g}")
    return value * unit_s


class Clock(Protocol):
    """Tells the time. Called from the server's loop thread, and from any thread that owns the server."""

    def now_us(self) -> int:
        """Return microseconds since the epoch, UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000


class Signal(Protocol):
    """What ends a wait early."""

    def is_set(self) -> bool: ...


class ManualClock:
    """A clock that stands still until it is told to move, or until somebody waits: a wait moves it by its length.

    For servers, streams, consumers and stores alike; one clock may serve all of a test. Thread-safe. ``waits`` lists
    the seconds of all waits. ``on_wait``, if set, is called with the seconds before the clock moves; it may set the
    stop signal, which cuts the wait to nothing.

    Args:
        start: An aware datetime, or microseconds since the epoch.

    >>> clock = ManualClock(1_700_000_000_000_000)
    >>> clock.advance(1.5)
    >>> clock.now_us(), clock.monotonic()
    (1700000001500000, 1.5)
    """

    def __init__(self, start: datetime | int = 1_763_719_200_000_000) -> None:  # 2025-11-21 10:00 UTC
        self._now_us = start if isinstance(start, int) else (start - _EPOCH) // timedelta(microseconds=1)
        self._passed_us = 0
        self._lock = threading.Lock()
        self.waits: list[float] = []
        self.on_wait: Callable[[float], None] | None = None
        self._told: dict[object, Callable[[], None]] = {}

    def now_us(self) -> int:
        with self._lock:
            return self._now_us

    def on_change(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call *told* after each change of the time, in the thread that changes it; return a function that ends it."""
        token = object()
        with self._lock:
            self._told[token] = told
        return lambda: self._forget(token)

    def _forget(self, token: object) -> None:
        with self._lock:
            self._told.pop(token, None)

    def _tell(self) -> None:
        with self._lock:
            told = list(self._told.values())
        for each in told:
            each()

    def monotonic(self) -> float:
        """Return the seconds that have passed since the clock was made; jumps do not count."""
        with self._lock:
            return self._passed_us / 1e6

    def advance(self, by: float | timedelta) -> None:
        """Move on by *by* (seconds or a timedelta), zero or more; going back raises ValueError."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if seconds < 0:
            raise ValueError("a ManualClock is not advanced by a negative time; set_us jumps back")
        with self._lock:
            self._now_us += round(seconds * 1e6)
            self._passed_us += round(seconds * 1e6)
        self._tell()

    def set_us(self, now_us: int) -> None:
        """Jump to *now_us*, also backwards, as a wall clock does that is set anew."""
        with self._lock:
            self._now_us = now_us
        self._tell()

    def wait(self, stop: Signal, seconds: float) -> bool:
        """Move on by *seconds*, unless *stop* is set; return whether it is set."""
        if stop.is_set():
            return True
        self.waits.append(seconds)
        if self.on_wait is not None:
            self.on_wait(seconds)
        if stop.is_set():
            return True
        self.advance(max(0.0, seconds))
        return False


class NodeClock:
    """One node's view of a clock: ``skew_us`` is added, and may be changed at any time."""

    def __init__(self, base: Clock, skew_us: int = 0) -> None:
        self._base = base
        self.skew_us = skew_us

    def now_us(self) -> int:
        return self._base.now_us() + self.skew_us
