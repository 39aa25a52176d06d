"""``Scope``: what one run lends to a consumer that works in other threads, and how such a consumer ends the run."""

from __future__ import annotations

import threading
from collections.abc import Callable

import attrs

from ..abc import CursorStore, Fate
from ..clock import Clock, Stop
from ..event import Event

__all__ = ["Failure", "Scope"]


@attrs.frozen
class Failure:
    """What a consumer said ended the run."""

    error: BaseException
    stage: str
    event: Event | None


class _RunStop(Stop):
    """Set by itself, or as soon as *outer* says that it is: a lease's signal may know better than its callbacks."""

    def __init__(self, outer: Stop) -> None:
        super().__init__()
        self._outer = outer

    def is_set(self) -> bool:
        return super().is_set() or self._outer.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        return super().wait(seconds) or self._outer.is_set()

    def check(self) -> None:
        self._outer.check()
        super().check()


class Scope:
    """One run as its consumer sees it; see ``rscylla.abc.RunScope``. Thread-safe.

    Its stop signal is one of its own: set with that of the caller, by ``fail``, and at the end of the run. *moved* is
    called whenever the cursor was saved.
    """

    def __init__(
        self, name: str, store: CursorStore, clock: Clock, fate: Fate, stop: Stop, *, moved: Callable[[], None]
    ) -> None:
        self.stop = _RunStop(stop)
        self.clock = clock
        self.fate = fate
        self._name = name
        self._moved = moved
        self._store = store
        self._lock = threading.Lock()
        self._failure: Failure | None = None
        self._forget = stop.on_set(self.stop.set)

    def check(self) -> None:
        """Raise ``Stopped`` if the run is to end."""
        self.stop.check()

    @property
    def failure(self) -> Failure | None:
        """What the consumer said went wrong first."""
        return self._failure

    def commit(self, cursor: str) -> None:
        """Save *cursor*, with the fate of ``run`` before it."""
        self.fate.tempt("before_set_cursor")
        self._store.set_cursor(self._name, cursor)
        self._moved()

    def fail(self, error: BaseException, *, event: Event | None = None, stage: str = "consume") -> None:
        """End the run with *error*; the first one counts."""
        with self._lock:
            if self._failure is None:
                self._failure = Failure(error, stage, event)
        self.stop.set()

    def end(self) -> None:
        """Let go of the caller's signal, and set the own one: nothing may wait for this run any more."""
        self._forget()
        self.stop.set()
