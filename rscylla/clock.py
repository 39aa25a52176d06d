"""Time and stopping: the only place of the library that reads a clock or sleeps."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar, runtime_checkable

from .errors import Stopped

__all__ = [
    "LOOK_S",
    "Clock",
    "InnerStop",
    "Stop",
    "SystemClock",
    "bounded",
    "check_fence",
    "fenced",
    "monotonic_of",
    "wall_ns_of",
]

T = TypeVar("T")

LOOK_S = 0.5
"""How often a wait of the main thread looks for signals.

Python runs signal handlers in the main thread only. A signal that comes just before that thread blocks on a lock, or
that the system delivers to another thread, does not wake it.
"""


class Stop:
    """A stop signal that code can wait on. Thread-safe; once set, it stays set.

    It has no lock, because a signal handler that sets it may interrupt any line of this class in its own thread.
    Instead, ``set`` raises the flag first, ``on_set`` reads it last, and the caller that removes a callback calls it.
    """

    def __init__(self) -> None:
        self._set = False
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()

    def set(self) -> None:
        """Set the signal. Can be called from a signal handler, and repeatedly."""
        self._set = True
        for number in list(self._callbacks):
            callback = self._callbacks.pop(number, None)
            if callback is not None:
                callback()

    def is_set(self) -> bool:
        return self._set

    def is_over(self) -> bool:
        """Return whether nothing may be written any more for what the signal stops: its lease was lost."""
        return False

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the signal is set, at most *seconds* of real time; return whether it is set."""
        if not self._set:
            blocked = threading.Lock()
            blocked.acquire()
            forget = self.on_set(blocked.release)
            left = math.inf if seconds is None else seconds
            longest = LOOK_S if threading.current_thread() is threading.main_thread() else threading.TIMEOUT_MAX
            try:
                while left > 0 and not blocked.acquire(timeout=min(left, longest)):
                    left -= longest
            finally:
                forget()
        return self._set

    def check(self) -> None:
        """Raise ``Stopped`` if the signal is set."""
        if self._set:
            raise Stopped

    def check_flag(self) -> None:
        """Raise ``Stopped`` if the signal was set, but do not ask what else may end it, such as a lease."""
        if self._set:
            raise Stopped

    def checker(self, inner: Stop | None = None) -> Callable[[], None]:
        """Return a function that does what ``check`` does, for who calls it before each event; with *inner*, for both.

        It costs one call, and one more for what else may end the signal.
        """
        if type(self).check is not Stop.check:
            return self.check if inner is None else _both(self.check, inner)
        mine, inner = self, inner or self

        def check() -> None:
            if inner._set or mine._set:  # noqa: SLF001 - as in ``InnerStop.check``
                raise Stopped

        return check

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call *callback* once when the signal is set (at once if it is); return a function that unregisters it."""
        number = next(self._numbers)
        self._callbacks[number] = callback
        if self._set and self._callbacks.pop(number, None) is not None:
            callback()
        return lambda: self._forget(number)

    def _forget(self, number: int) -> None:
        self._callbacks.pop(number, None)


class InnerStop(Stop):
    """A stop signal within another one, None if there is none: set with *outer*, and by itself, which leaves *outer*.

    ``forget`` detaches it from *outer*, which outlives it and would otherwise keep it in memory.
    """

    def __init__(self, outer: Stop | None) -> None:
        super().__init__()
        self._outer = outer or Stop()
        # A lease's signal asks its lease, besides its flag.
        self._ask = self._outer.checker() if type(self._outer) is not Stop else None
        self.forget = self._outer.on_set(self.set)

    def is_set(self) -> bool:
        return self._set or self._outer.is_set()  # asked, because a lease's signal knows before it calls back

    def is_over(self) -> bool:
        return self._outer.is_over()

    def wait(self, seconds: float | None = None) -> bool:
        return super().wait(seconds) or self._outer.is_set()

    def check(self) -> None:
        if self._ask is not None:
            self._ask()
        if self._set or self._outer._set:  # noqa: SLF001 - read here, because a run checks before each event
            raise Stopped

    def checker(self, inner: Stop | None = None) -> Callable[[], None]:
        check = self._outer.checker(self)
        return check if inner is None else _both(check, inner)


def _both(outer: Callable[[], None], inner: Stop) -> Callable[[], None]:
    def check() -> None:
        outer()
        inner.check_flag()

    return check


_fence: ContextVar[Stop | None] = ContextVar("rscylla_fence", default=None)


@contextmanager
def fenced(stop: Stop) -> Iterator[None]:
    """Let ``check_fence`` ask *stop* in this context, and in copies of it."""
    token = _fence.set(stop)
    try:
        yield
    finally:
        _fence.reset(token)


def check_fence() -> None:
    """Raise ``Stopped`` if this context works for a run whose lease was lost. Called before each request to a database.

    So a process that was paused writes nothing for an event that others have taken over, even if it is in the middle of
    it. A stop alone is no reason: the event in progress is finished.
    """
    stop = _fence.get()
    if stop is not None and stop.is_over():
        raise Stopped("the lease is over")


def bounded(
    call: Callable[[], T], *, seconds: float | None = None, stop: Stop | None = None, late: str = "no answer"
) -> T:
    """Return what *call* returns, which runs in a thread of its own; it goes on there if it is left behind.

    For calls of other libraries, which may not return.

    Raises:
        Stopped: *stop* was set first.
        TimeoutError: *seconds* were over first; *late* says what did not happen.
        BaseException: what *call* raises.
    """
    answers: list[T] = []
    errors: list[BaseException] = []
    done = InnerStop(stop)

    def work() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            errors.append(error)
        finally:
            done.set()

    try:
        done.check()
        threading.Thread(target=work, name="rscylla-call", daemon=True).start()
        if not done.wait(seconds):
            raise TimeoutError(f"{late} within {seconds:g} s")
    finally:
        done.forget()
    if errors:
        raise errors[0]
    if not answers:
        done.check()
    return answers[0]


@runtime_checkable
class Clock(Protocol):
    """Where time comes from. Implementations must be thread-safe."""

    def now_us(self) -> int:
        """Return the wall clock, microseconds since the epoch (UTC)."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never steps back, to measure time spans."""

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


def monotonic_of(clock: Clock) -> Callable[[], float]:
    """Return ``clock.monotonic``, as a function that costs as little as possible. Ask for it where the work starts.

    The function of the system is looked up now, and not on import, so that a test may have replaced it.
    """
    return time.monotonic if type(clock) is SystemClock else clock.monotonic


def wall_ns_of(clock: Clock) -> Callable[[], int]:
    """Return a function that returns ``clock.now_us`` in nanoseconds; as ``monotonic_of``."""
    return time.time_ns if type(clock) is SystemClock else lambda: clock.now_us() * 1000
