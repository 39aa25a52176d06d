"""What the threads of a consumer are at: on which event since when, or why they wait. Read by metrics and health."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from ..clock import Clock
from ..event import Event

__all__ = ["Activity"]


# The clock, the event, since when by the clock's monotonic (None while the thread waits on purpose), and why it waits.
# A plain tuple, because one is made for each event.
_Work = tuple[Clock | None, Event | None, float | None, str]


class Activity:
    """Each thread says what it does: ``begin`` and ``end`` around an event, ``waiting`` in between.

    Any thread may read. Nothing is locked: a thread writes its own entry only.
    """

    def __init__(self) -> None:
        self._threads: dict[int, _Work] = {}

    def begin(self, clock: Clock, event: Event) -> None:
        """This thread works on *event* from now on."""
        self._threads[get_ident()] = clock, event, clock.monotonic(), ""

    def end(self) -> None:
        """This thread is done with its event, well or not."""
        self._threads.pop(get_ident(), None)

    @contextmanager
    def waiting(self, why: str) -> Iterator[None]:
        """This thread waits on purpose, so that it does not seem to hang; then it goes on with its event."""
        clock, event, _, _ = self._threads.get(get_ident(), (None, None, None, ""))
        self._threads[get_ident()] = clock, event, None, why
        yield
        # Not after an error, which ends the work on the event.
        if clock is None or event is None:
            self.end()
        else:
            self.begin(clock, event)

    def clear(self) -> None:
        """Nothing is going on any more."""
        self._threads.clear()

    def longest(self) -> tuple[float, Event | None]:
        """Return for how many seconds a thread has been working on one event at most, and which; (0, None) if none."""
        longest, found = 0.0, None
        for clock, event, since, _ in list(self._threads.values()):
            if clock is not None and since is not None:
                seconds = max(0.0, clock.monotonic() - since)
                if found is None or seconds > longest:
                    longest, found = seconds, event
        return longest, found

    def why(self) -> str:
        """Return why a thread waits on purpose, "" if none does or says."""
        return next((why for *_, why in list(self._threads.values()) if why), "")
