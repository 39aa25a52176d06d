"""``Activity``: which event each thread of a consumer works on, since when, or why it waits; read by health checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from ...clock import Clock
from ...event import Event

__all__ = ["Activity", "Work"]


Work = tuple[Clock | None, Event | None, float | None, str]
"""The clock, the event, since when by the clock's monotonic (None while the thread waits on purpose), why it waits.

A plain tuple, because one is made for each event.
"""


class Activity:
    """Each thread reports its own work: ``working`` around an event, ``waiting`` inside of it.

    Any thread may read. No lock is needed, because a thread writes only its own entry.
    """

    def __init__(self) -> None:
        self.threads: dict[int, Work] = {}
        """By thread, what it works on; for a loop over events, which sets and deletes its own entry."""

    @contextmanager
    def working(self, clock: Clock, event: Event) -> Iterator[None]:
        """Report that this thread works on *event* in the block."""
        self.threads[get_ident()] = clock, event, clock.monotonic(), ""
        try:
            yield
        finally:
            self.threads.pop(get_ident(), None)

    @contextmanager
    def waiting(self, why: str) -> Iterator[None]:
        """Report that this thread waits on purpose; afterwards, it works on its event again."""
        clock, event, _, _ = self.threads.get(get_ident(), (None, None, None, ""))
        self.threads[get_ident()] = clock, event, None, why
        yield
        # Not in a finally: an error ends the work on the event.
        if clock is None:
            self.threads.pop(get_ident(), None)
        else:
            self.threads[get_ident()] = clock, event, clock.monotonic(), ""

    def longest(self) -> tuple[float, Event | None]:
        """Return the longest time, in seconds, that a thread has worked on its event, and the event; else (0, None)."""
        longest, found = 0.0, None
        for clock, event, since, _ in list(self.threads.values()):
            if clock is not None and since is not None:
                seconds = max(0.0, clock.monotonic() - since)
                if found is None or seconds > longest:
                    longest, found = seconds, event
        return longest, found

    def why(self) -> str:
        """Return why a thread waits on purpose; "" if no thread does, or none gives a reason."""
        return next((why for *_, why in list(self.threads.values()) if why), "")
