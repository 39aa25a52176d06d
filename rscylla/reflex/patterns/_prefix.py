"""``Prefix``: which events are done, and the cursor up to which all are; for consumers that finish events later."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable

import attrs

from ...abc import Run
from ...clock import Stop
from ...errors import ConfigError
from ...event import Event

__all__ = ["Entry", "Prefix", "positive", "wait_until"]

LOOK_AGAIN_S = 1.0
"""A signal handler may set a stop between a look and the wait that follows it; so no wait is without an end."""


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
    """A cursor that may be committed once what it stands for is done. ``since`` is when it was added."""

    cursor: str
    event: Event | None
    since: float
    done: bool = False


class Prefix:
    """The events of one run in order of arrival. Thread-safe.

    Cursors are opaque: their order is that in which they were added. The cursor that is committed is the last one
    before the first that is not done, so what is committed only grows, and nothing unfinished lies before it. One
    thread commits at a time, and no other waits for it. A commit that fails ends the run.

    Args:
        limit: How many events there may be that are not committed, done or not; ``add`` waits for room. None: any.
    """

    def __init__(self, run: Run, limit: int | None = None) -> None:
        self._run = run
        self._limit = sys.maxsize if limit is None else limit
        self._changed = threading.Condition()  # re-entered when a signal handler sets the stop
        self._entries: deque[Entry] = deque()
        self._events = 0
        self._unfinished = 0
        self._committing = False
        self._closed = False
        run.stop.on_set(self._wake)
        run.show("unfinished", lambda: float(self._unfinished))
        run.show("oldest", self._oldest)

    def add(self, event: Event) -> Entry:
        """Add *event*, not done yet, once there is room.

        Raises:
            Stopped: the run ended first.
        """
        entry = Entry(event.id, event, self._run.clock.monotonic())
        with self._changed:
            wait_until(self._changed, lambda: self._events < self._limit, self._run.stop)
            self._entries.append(entry)
            self._events += 1
            self._unfinished += 1
        return entry

    def progress(self, cursor: str) -> None:
        """Add a cursor with nothing to do for it."""
        with self._changed:
            if self._entries and self._entries[-1].done:
                self._entries[-1].cursor = cursor  # stands for both
            else:
                self._entries.append(Entry(cursor, None, 0.0, done=True))
        self._commit()

    def done(self, *entries: Entry) -> None:
        """Note that *entries* are done, and commit what that allows. What is done already, or too late, is ignored."""
        with self._changed:
            for entry in entries:
                if not entry.done:
                    entry.done = True
                    self._unfinished -= 1
        self._commit()

    def settle(self) -> None:
        """Wait until what is done now is committed, by whichever thread, or cannot be."""
        while True:
            self._commit()
            with self._changed:
                if self._committing:
                    self._changed.wait(LOOK_AGAIN_S)
                elif self._closed or not (self._entries and self._entries[0].done):
                    return

    def drain(self) -> None:
        """Wait until everything is done and committed.

        Raises:
            Stopped: the run ended first.
        """
        with self._changed:
            wait_until(self._changed, lambda: not self._entries and not self._committing, self._run.stop)

    def close(self) -> None:
        """Let nothing more be committed; a commit under way is waited for."""
        with self._changed:
            self._closed = True
            while self._committing:
                self._changed.wait(LOOK_AGAIN_S)
        self._run.show("unfinished", None)
        self._run.show("oldest", None)

    def _commit(self) -> None:
        while True:
            ready: Entry | None = None
            try:
                with self._changed:
                    if not self._committing and not self._closed:
                        while self._entries and self._entries[0].done:
                            ready = self._entries.popleft()
                            self._committing = True
                            self._events -= ready.event is not None
                if ready is None:
                    return
                self._run.commit(ready.cursor)
            except Exception as error:  # noqa: BLE001 - ends the run, whichever thread this is
                self._closed = True
                self._run.fail(error, event=None if ready is None else ready.event, stage="set_cursor")
            finally:
                if ready is not None:  # also after an interrupt: else ``close`` would wait forever
                    with self._changed:
                        self._committing = False
                        self._changed.notify_all()

    def _oldest(self) -> float:
        """Return for how many seconds the first unfinished event has been so."""
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
