"""What a reader has read for one slice of a table, until the slice's client takes it."""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import Any, Protocol

import attrs

from ..._tokens import Slice
from ...clock import Stop
from ..log import Source
from ..rows import Counters
from .merge_policy import Backlog
from .reader import Reader, Resume, Step
from .settings import StreamSettings

__all__ = ["SliceFeed"]

CLOSE_TIMEOUT_S = 5.0
"""How long ``close`` waits for the thread of a reader that nobody else needs."""


class Feeder(Protocol):
    """What a feed needs of the ``SharedReader`` that reads for it."""

    reader: Reader
    source: Source
    thread: threading.Thread

    @property
    def since(self) -> float | None: ...
    @property
    def width(self) -> int: ...
    @property
    def is_dismissed(self) -> bool: ...
    def makes_room(self, feed: SliceFeed) -> None: ...
    def is_asked(self) -> None: ...
    def dismiss(self) -> None: ...


class Feeders(Protocol):
    """What a feed needs of the ``SharedReaders`` of its table."""

    lock: Any
    calls: deque[SliceFeed]

    def call(self) -> None: ...


class SliceFeed:
    """One slice's part of a reader. ``take`` is for one thread; see ``Feed``."""

    def __init__(self, readers: Feeders, settings: StreamSettings, resume: Resume, stop: Stop) -> None:
        self._readers = readers
        self._stop = stop
        self.settings = settings
        self.key_slice = Slice.of(settings.key_slice)
        self.resume = resume
        self.shared: Feeder
        self.counters = Counters()
        self.gaps_before = 0
        self.has_left = False
        self.error: BaseException | None = None
        self._steps: deque[Step] = deque()
        self._idle_since: float | None = None
        self._quiet_until = 0.0
        self._signal: SimpleQueue[None] = SimpleQueue()
        self.reached_us = 0

    @property
    def source(self) -> Source:
        return self.shared.source

    @property
    def gaps(self) -> int:
        return self.gaps_before + self.shared.source.gaps

    @property
    def since(self) -> float | None:
        return self.shared.since

    @property
    def together(self) -> int:
        return self.shared.width

    def take(self, quiet_until: float = 0.0) -> Step:
        """Return the next step; wait for it.

        Raises: Stopped, or what the reader raised.
        """
        while True:
            with self._readers.lock:
                if self._steps:
                    self._idle_since = None
                    step = self._steps.popleft()
                    self.shared.makes_room(self)
                    return step
                if self.error is not None:
                    raise self.error
                if self._idle_since is None:
                    self._idle_since = self.settings.clock.monotonic()
                    self._quiet_until = quiet_until
                    self.shared.is_asked()
            self._stop.check()
            try:
                self._signal.get()
            finally:  # also after an interrupt
                self._readers.call()

    def put(self, step: Step) -> None:
        """Add a step. Called with the lock."""
        last = self._steps[-1] if self._steps else None
        if last is not None and last.rows is None:  # it says nothing that this one does not say
            self._steps[-1] = step = attrs.evolve(step, must_save=step.must_save or last.must_save)
        else:
            self._steps.append(step)
        self.resume = attrs.evolve(self.resume, done=step.done)
        if self._idle_since is None:
            return
        now = self.settings.clock.monotonic()
        if step.rows is None and not step.must_save and now < self._quiet_until:
            self._idle_since = now
            self.reached_us = step.done.exact_us
            return
        self._idle_since = None
        self._readers.calls.append(self)

    def is_woken(self) -> bool:
        """Wake the thread that waits for a step; return whether it will call the next feed. Takes no lock."""
        self._signal.put(None)
        return not self.has_left  # otherwise, it may have called before

    def fail(self, error: BaseException) -> None:
        """Raise *error* once the steps were taken. Called with the lock."""
        self.error = error
        self._signal.put(None)

    def backlog(self, now: float) -> Backlog:
        return Backlog(self.is_full, None if self._idle_since is None else now - self._idle_since)

    @property
    def is_full(self) -> bool:
        return sum(step.rows is not None for step in self._steps) >= self.settings.prefetch

    @property
    def has_room(self) -> bool:
        return self._idle_since is not None or len(self._steps) < self.settings.prefetch

    def leave(self) -> None:
        """Take no more. Takes no lock."""
        self.has_left = True
        self._signal.put(None)
        self._readers.call()  # this feed may have been called, and will not take
        self.shared.dismiss()

    def close(self) -> None:
        self._stop.set()
        shared = self.shared
        if shared.is_dismissed and shared.thread is not threading.current_thread():
            shared.thread.join(CLOSE_TIMEOUT_S)
