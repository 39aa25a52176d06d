"""``Bridge``: a consumer that passes its events to an event loop, while ``rscylla.run`` runs it in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ..abc import Resetter, Run, RunAware, Stopper
from ..event import Event
from ..reflex import LOOK_AGAIN_S, ConsumerSeries, Entry, InFlight

__all__ = ["Bridge"]

BUFFER = 1000
"""Maximum number of events that are read ahead of the loop, or done but not saved yet."""

GIVE_WAY_EVERY = 100
"""After this many events, other tasks of the loop run, even if the consumer never awaits anything that blocks."""


class _Work:
    """The events of one run on their way to the loop. The run's thread adds, the loop takes, a third saves cursors."""

    def __init__(self, run: Run, limit: int, wake: Callable[[], None], flush: Callable[[], None]) -> None:
        self.in_flight = InFlight(run, limit)
        self.run = run
        self._wake = wake
        self._flush = flush
        self._changed = threading.Condition()
        self._ready: deque[Entry] = deque()
        self._hand: Entry | None = None
        self._done: list[Entry] = []
        self._asked: list[Callable[[], None]] = []
        self._closed = False
        self._last = False
        self._saver: threading.Thread | None = None
        run.stop.on_set(self._notify)

    # ------------------------------------------------------------ the run's thread

    def put(self, event: Event) -> None:
        # Outside the lock: it waits for room, which only the loop and the saver make.
        entry = self.in_flight.add(event)
        with self._changed:
            self._ready.append(entry)
        self._wake()

    def close(self) -> None:
        """Wait until the loop is done with all events, or, after a stop, with its current one; save the cursor."""
        with self._changed:
            # Each wait has a time limit, because a stop may be set between the check and the wait.
            while self._hand is not None or (self._ready and not self.run.stop.is_set()):
                self._changed.wait(LOOK_AGAIN_S)
            self._closed = True
            self._ready.clear()
            self._last = True
            self._changed.notify_all()
            saver = self._saver
        if saver is not None:
            saver.join()
        self.in_flight.close()

    # ------------------------------------------------------------ the loop's thread; nothing here blocks

    def take(self) -> Entry | None:
        """Return the next event, which becomes the loop's current event; None if there is none now."""
        with self._changed:
            if self._closed or not self._ready or self.run.stop.is_set():
                return None
            self._hand = self._ready.popleft()
            return self._hand

    def release(self, *, done: bool) -> None:
        """Record that the loop has finished its current event, or leaves it to a later run."""
        with self._changed:
            entry, self._hand = self._hand, None
            if entry is not None and done:
                self._done.append(entry)
                self._save_soon()
            self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def when_saved(self, call: Callable[[], None]) -> None:
        """Have another thread call *call* once the events done so far are saved and flushed, or cannot be."""
        with self._changed:
            if not self._last:
                self._asked.append(call)
                self._save_soon()
                return
        call()

    def _save_soon(self) -> None:
        if self._saver is None:
            # Started with the first event that is done, because a run without events needs no thread.
            self._saver = threading.Thread(target=self._save, name="rscylla-aio-saver", daemon=True)
            self._saver.start()
        self._changed.notify_all()

    # ------------------------------------------------------------ the saver's thread

    def _save(self) -> None:
        while True:
            with self._changed:
                while not (self._done or self._asked or self._last):
                    self._changed.wait()
                # All at once: many events finish while one cursor is written, and only the last of them must be saved.
                done, self._done = self._done, []
                asked, self._asked = self._asked, []
                ended = self._last and not done
            self.in_flight.done(*done)  # saves the last of them only; a failure ends the run
            if asked:
                self.in_flight.settle()  # the run's thread may be committing at this moment, for its progress
                try:
                    self._flush()
                except Exception as error:  # noqa: BLE001 - ends the run
                    self.run.fail(error, stage="flush")
                for call in asked:
                    call()
            if ended:
                return


class Bridge:
    """Passes events from the thread of a run to one task of an event loop, one at a time.

    The loop's side is ``next``, ``done``, ``failed``, ``abandon``; the run's is that of a committing consumer. It
    serves one run after the other, as ``run_forever`` makes them.
    """

    def __init__(
        self, name: str, series: ConsumerSeries, inner: object, flush: Callable[[], None], buffer: int = BUFFER
    ) -> None:
        self._name = name
        self.series = series
        self._inner = inner
        self._flush = flush
        self._buffer = buffer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._work: _Work | None = None
        self._taken: _Work | None = None
        self._news = False
        self._waiter: asyncio.Future[None] | None = None
        self._over: asyncio.Event | None = None
        self._delivered = 0
        self._ended = False
        self.error: BaseException | None = None

    # ------------------------------------------------------------ the run's thread

    @property
    def name(self) -> str:
        return self._name

    def begin(self, run: Run) -> None:
        self._work = _Work(run, self._buffer, self._wake, self._flush)

    def run_begins(self, run: Run) -> None:
        if isinstance(self._inner, RunAware):
            self._inner.run_begins(run)

    def reset(self) -> None:
        if isinstance(self._inner, Resetter):
            self._inner.reset()

    def consume(self, event: Event, run: Run) -> None:
        assert self._work is not None
        self._work.put(event)

    def progress(self, cursor: str) -> None:
        assert self._work is not None
        self._work.in_flight.progress(cursor)

    def drain(self) -> None:
        assert self._work is not None
        self._work.in_flight.drain()

    def stop(self) -> None:
        if self._work is not None:
            self._work.close()
            self._work = None
        if isinstance(self._inner, Stopper):
            self._inner.stop()

    def end(self, error: BaseException | None) -> None:
        """Record that no further run follows; *error* is the error that ended the last one."""
        self.error = error
        self._ended = True
        self._wake()
        if self._loop is not None and self._over is not None:
            with suppress(RuntimeError):  # the loop may be closed already
                # An asyncio event may only be set in its own loop.
                self._loop.call_soon_threadsafe(self._over.set)

    def _wake(self) -> None:
        with self._lock:
            self._news = True
            waiter, self._waiter = self._waiter, None
        if waiter is not None and self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_resolve, waiter)

    # ------------------------------------------------------------ the loop's thread

    def attach(self) -> None:
        """Bind this to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()

    def check_loop(self) -> None:
        """Raise ``RuntimeError`` if the running loop is not the bound one, which is the only one that this wakes."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("the events belong to the event loop where they were opened; open new ones in this loop")

    @property
    def run(self) -> Run:
        """The run of the current event."""
        assert self._taken is not None
        return self._taken.run

    async def next(self) -> Event | None:
        """Return the next event; None at the end. A cancellation here loses no event."""
        assert self._loop is not None
        # A consumer that never waits would block all other tasks of the loop.
        self._delivered += 1
        if self._delivered % GIVE_WAY_EVERY == 0:
            await asyncio.sleep(0)
        while True:
            with self._lock:
                # Cleared before the check, so that an event between the check and the wait is not missed.
                self._news = False
            work = self._work
            entry = work.take() if work is not None else None
            if entry is not None:
                self._taken = work
                return entry.event
            if self._ended:
                return None
            with self._lock:
                if self._news:
                    continue
                waiter = self._waiter = self._loop.create_future()
            await waiter

    def done(self) -> None:
        """Mark the current event, if there is one, as done."""
        taken, self._taken = self._taken, None
        if taken is not None:
            taken.release(done=True)

    def failed(self, event: Event, error: Exception) -> None:
        """End the run with *error*, because the current event failed."""
        taken, self._taken = self._taken, None
        if taken is not None:
            taken.run.fail(error, event=event)
            taken.release(done=False)

    def abandon(self) -> None:
        """Leave the current event to a later run. Thread-safe."""
        taken, self._taken = self._taken, None
        if taken is not None:
            taken.release(done=False)

    async def saved(self) -> bool:
        """Wait until all finished events are saved and flushed, or cannot be; return whether the run continues."""
        work, loop = self._work, self._loop
        if work is None or loop is None:
            return False
        saved = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, saved)

        work.when_saved(wake)
        await saved
        return not work.run.stop.is_set()

    async def over(self) -> None:
        """Wait until the thread of the runs has ended, which takes a limited time once its stop is set.

        A cancellation meanwhile is raised after that: what is done is saved first.
        """
        assert self._over is not None
        self.check_loop()
        cancelled: asyncio.CancelledError | None = None
        while not self._over.is_set():
            try:
                await self._over.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled


def _resolve(waiter: asyncio.Future[None]) -> None:
    # The waiting task may have been cancelled in the meantime.
    if not waiter.done():
        waiter.set_result(None)
