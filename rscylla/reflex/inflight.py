"""``InFlight``: which events are done, and the cursor before which all are, for consumers that finish events later."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable

import attrs

from ..abc import Run
from ..clock import Stop
from ..errors import ConfigError
from ..event import Event

__all__ = ["Entry", "InFlight", "positive", "wait_until"]

LOOK_AGAIN_S = 1.0
"""Waits check their condition at least this often: a signal handler may set the stop just before a wait begins."""


def wait_until(changed: threading.Condition, ready: Callable[[], bool], stop: Stop) -> None:
    """Wait until *ready*; *changed* is held by the caller, and notified after each change.

    Raises:
        Stopped: *stop* was set first.
    """
    while not ready():
        stop.check()
        changed.wait(LOOK_AGAIN_S)


@attrs.define(eq=False)
class Entry:
    """A cursor that can be committed once ``event`` is done. As ``cursor``, an event stands for the one right after it.

    ``since`` is when it was added, by the run's clock; ``events`` is how many events it stands for, and ``size`` how
    many bytes they hold.
    """

    cursor: str | Event
    event: Event | None
    since: float
    done: bool = False
    events: int = 1
    size: int = 0


class InFlight:
    """The events of one run in order of arrival. Thread-safe.

    Cursors are opaque: their order is the order in which they were added. The committed cursor is the last one before
    the first unfinished event, so it only moves forward, and no unfinished event lies before it. One thread commits at
    a time, and the others do not wait for it. A commit that fails ends the run.

    Args:
        limit: How many uncommitted events there may be, done or not; ``add`` waits for room. None: any number.
        max_bytes: How many bytes they may hold, as ``add`` is told; more only in one entry alone. None: any number.
    """

    def __init__(self, run: Run, limit: int | None = None, max_bytes: int | None = None) -> None:
        self._run = run
        self._limit = sys.maxsize if limit is None else limit
        self._max_bytes = sys.maxsize if max_bytes is None else max_bytes
        self._changed = threading.Condition()  # re-entered when a signal handler sets the stop
        self._entries: deque[Entry] = deque()
        self._events = self._bytes = 0
        self._committing = False
        self._closed = False
        self._failed = False
        run.stop.on_set(self._wake)
        run.show("unfinished", self._unfinished)
        run.show("oldest", self._oldest)

    def add(self, event: Event, events: int = 1, size: int = 0) -> Entry:
        """Add an entry that is not done: *events*, of which *event* is the last, with *size* bytes. Waits for room.

        Raises:
            Stopped: the run ends first.
        """
        entry = Entry(event, event, self._run.clock.monotonic(), events=events, size=size)
        with self._changed:
            wait_until(self._changed, lambda: self._has_room(events, size), self._run.stop)
            self._entries.append(entry)
            self._events += events
            self._bytes += size
        return entry

    def has_room(self, events: int = 1, size: int = 0) -> bool:
        """Return whether ``add`` would not wait now."""
        with self._changed:
            return self._has_room(events, size)

    def _has_room(self, events: int, size: int) -> bool:
        fits = self._events + events <= self._limit and self._bytes + size <= self._max_bytes
        return fits or not self._events  # what is more than all room goes alone

    def extend(self, entry: Entry, event: Event, events: int = 1) -> None:
        """Let *entry*, the last one, stand for *events* more, of which *event* is the last.

        No other thread may mark it as done meanwhile.
        """
        entry.cursor = entry.event = event
        entry.events += events
        with self._changed:
            self._events += events

    def progress(self, cursor: str | Event) -> None:
        """Add a cursor, or the one right after an event, that waits for nothing but what was added before it."""
        with self._changed:
            if self._entries and self._entries[-1].done:
                # One entry stands for both, so that an idle stream does not add entries while a commit hangs.
                self._entries[-1].cursor = cursor
            else:
                self._entries.append(Entry(cursor, None, 0.0, done=True))
        self._commit()

    def done(self, *entries: Entry) -> None:
        """Mark *entries* as done, and commit the cursor if it can move. Entries that are already done are ignored."""
        with self._changed:
            for entry in entries:
                entry.done = True
        self._commit()

    def settle(self) -> bool:
        """Wait until the cursor of the events done so far is committed, by any thread, or cannot be; return which."""
        while True:
            self._commit()
            with self._changed:
                if self._committing:
                    self._changed.wait(LOOK_AGAIN_S)
                elif self._closed or not (self._entries and self._entries[0].done):
                    return not self._failed

    def drain(self) -> None:
        """Wait until everything is done and committed.

        Raises:
            Stopped: the run ended first.
        """
        with self._changed:
            wait_until(self._changed, lambda: not self._entries and not self._committing, self._run.stop)

    def close(self) -> None:
        """Commit no more cursors. Waits for a commit in progress, which may still move the cursor."""
        with self._changed:
            self._closed = True
            while self._committing:
                self._changed.wait(LOOK_AGAIN_S)
        self._run.show("unfinished", None)
        self._run.show("oldest", None)

    def _commit(self) -> None:
        while True:
            ready: Entry | None = None
            is_committed = False
            try:
                with self._changed:
                    if not self._committing and not self._closed:
                        # Only the last cursor is written, however many events were finished during the last commit.
                        while self._entries and self._entries[0].done:
                            ready = self._entries.popleft()
                            # Set inside the loop: an interrupt may come right after it, and ``finally`` below resets
                            # this only if an entry was taken.
                            self._committing = True
                            if ready.event is not None:
                                self._events -= ready.events
                                self._bytes -= ready.size
                if ready is None:
                    return
                self._run.commit(ready.cursor)
                is_committed = True
            except Exception as error:  # noqa: BLE001 - ends the run, in whichever thread it occurs
                self._closed = True
                self._run.fail(error, event=None if ready is None else ready.event, stage="set_cursor")
            finally:
                if ready is not None:  # also after an interrupt; otherwise, ``close`` would wait forever
                    with self._changed:
                        self._failed = self._failed or not is_committed
                        self._committing = False
                        self._changed.notify_all()

    def _unfinished(self) -> float:
        """Return how many events were added and are not done."""
        with self._changed:
            return float(sum(entry.events for entry in self._entries if not entry.done))

    def _oldest(self) -> float:
        """Return how many seconds ago the first unfinished event was added."""
        with self._changed:
            since = next((entry.since for entry in self._entries if not entry.done), None)
        return 0.0 if since is None else max(0.0, self._run.clock.monotonic() - since)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def positive(what: str, name: str, value: int) -> int:
    """Return *value*; raise ``ConfigError`` unless it is a whole number above zero."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f'consumer "{name}": {what} is {value!r}; it must be 1 or more')
    return value
