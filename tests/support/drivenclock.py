"""A clock on which threads of services wait until the test moves it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from rscylla.clock import Stop, SystemClock
from rscylla.testing import ManualClock

PATIENCE_S = 60.0
LOOK_S = 0.002


def until(condition: Callable[[], bool], what: str, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Wait until *condition* holds, and call *meanwhile* again and again; only a minute without it is a failure."""
    clock, never = SystemClock(), Stop()
    deadline = clock.monotonic() + PATIENCE_S
    while not condition():
        assert clock.monotonic() < deadline, f"a minute passed without: {what}"
        meanwhile()
        clock.wait(never, LOOK_S)


class DrivenClock(ManualClock):
    """A wait lasts until ``advance`` has moved the clock far enough, or the stop signal is set."""

    def __init__(self, *args: int) -> None:
        super().__init__(*args)
        self._waiting: dict[int, float] = {}

    def wait(self, stop: Stop, seconds: float) -> bool:  # type: ignore[override]
        due = self.monotonic() + seconds
        changed = threading.Event()
        forget, unstop = self.on_change(changed.set), stop.on_set(changed.set)
        try:
            while not stop.is_set() and self.monotonic() < due:
                self._waiting[threading.get_ident()] = due
                changed.wait(PATIENCE_S)
                changed.clear()
        finally:
            self._waiting.pop(threading.get_ident(), None)
            forget()
            unstop()
        return stop.is_set()

    def step(self, seconds: float, threads: Collection[str], patience_s: float = 0.25) -> None:
        """Advance, and let the threads with these names do what is due, until all wait again."""
        self.advance(seconds)
        real, never = SystemClock(), Stop()
        deadline = real.monotonic() + patience_s
        while real.monotonic() < deadline:
            now, waiting = self.monotonic(), dict(self._waiting)
            if all(waiting.get(one.ident or 0, 0.0) > now for one in threading.enumerate() if one.name in threads):
                return
            real.wait(never, LOOK_S / 4)
