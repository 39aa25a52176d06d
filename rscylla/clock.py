"""Time and stopping: the only place of the library that reads a clock or sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from .errors import Stopped

__all__ = ["Clock", "Stop", "SystemClock"]


class Stop:
    """A stop signal that can be waited on. Thread-safe; once set it stays set."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.RLock()  # re-entered when a signal handler calls set() inside on_set()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next = 0

    def set(self) -> None:
        """Ask everything that waits on this signal to stop. May be called from a signal handler, and repeatedly."""
        with self._lock:
            self._event.set()
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the signal is set, at most *seconds* of real time; return whether it is set."""
        return self._event.wait(seconds)

    def check(self) -> None:
        """Raise ``Stopped`` if the signal is set."""
        if self._event.is_set():
            raise Stopped

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call *callback* once when the signal is set (at once if it is); return a function that takes that back."""
        with self._lock:
            if not self._event.is_set():
                token = self._next
                self._next += 1
                self._callbacks[token] = callback
                return lambda: self._forget(token)
        callback()
        return lambda: None

    def _forget(self, token: int) -> None:
        with self._lock:
            self._callbacks.pop(token, None)


@runtime_checkable
class Clock(Protocol):
    """Where time comes from. Implementations must be thread-safe."""

    def now_us(self) -> int:
        """Return the wall clock, microseconds since the epoch (UTC)."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never steps back, for measuring spans."""

    def wait(self, stop: Stop, seconds: float) -> bool:
        """Wait *seconds* of this clock, or less if *stop* is set; return whether it is set."""


class SystemClock:
    """The machine's own clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, stop: Stop, seconds: float) -> bool:
        return stop.wait(max(0.0, seconds))
