"""What the threads of a consumer are at: on which event since when, or why they wait. Read by metrics and health."""

from __future__ import annotations

import threading

import attrs

from ..clock import Clock
from ..event import Event

__all__ = ["Activity"]


@attrs.define
class _Work:
    """``since`` by the clock's ``monotonic``; None while the thread waits on purpose, for the reason *why*."""

    clock: Clock | None
    event: Event | None
    since: float | None
    why: str = ""


class Activity:
    """Each thread tells of itself: ``begin`` and ``end`` around an event, ``pause`` and ``resume`` in between.

    Any thread may read. Nothing is locked: a thread writes its own entry only.
    """

    def __init__(self) -> None:
        self._threads: dict[int, _Work] = {}

    def begin(self, clock: Clock, event: Event) -> None:
        """This thread works on *event* from now on."""
        self._threads[threading.get_ident()] = _Work(clock, event, clock.monotonic())

    def end(self) -> None:
        """This thread is done with its event, well or not."""
        self._threads.pop(threading.get_ident(), None)

    def pause(self, why: str) -> None:
        """This thread waits on purpose, so that it does not seem to hang."""
        work = self._threads.setdefault(threading.get_ident(), _Work(None, None, None))
        work.since, work.why = None, why

    def resume(self) -> None:
        """This thread goes on with what it was at."""
        work = self._threads.get(threading.get_ident())
        if work is None:
            return
        if work.clock is None:
            self.end()
        else:
            work.since, work.why = work.clock.monotonic(), ""

    def clear(self) -> None:
        """Nothing is going on any more."""
        self._threads.clear()

    def longest(self) -> tuple[float, Event | None]:
        """Return for how many seconds a thread has been working on one event at most, and which; (0, None) if none."""
        longest, event = 0.0, None
        for work in list(self._threads.values()):
            since = work.since
            if work.clock is not None and since is not None:
                seconds = max(0.0, work.clock.monotonic() - since)
                if event is None or seconds > longest:
                    longest, event = seconds, work.event
        return longest, event

    def why(self) -> str:
        """Return why a thread waits on purpose, "" if none does or says."""
        return next((work.why for work in list(self._threads.values()) if work.why), "")
