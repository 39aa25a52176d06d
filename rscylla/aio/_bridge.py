"""``Bridge``: a consumer whose events are handled by an event loop, while ``rscylla.run`` drives it in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ..abc import Resetter, Run, Stopper
from ..event import Event
from ..reflex.metrics import ConsumerSeries
from ..reflex.patterns._prefix import LOOK_AGAIN_S, Entry, Prefix

__all__ = ["Bridge"]

BUFFER = 1000
"""How many events may be read ahead of the loop, or done and not saved yet."""

GIVE_WAY_EVERY = 100
"""After this many events, other tasks of the loop run, even if the consumer never awaits anything that blocks."""


class _Work:
    """The events of one run on their way to the loop. The run puts, the loop takes, a third thread saves cursors."""

    def __init__(self, run: Run, limit: int, wake: Callable[[], None], flush: Callable[[], None]) -> None:
        self.prefix = Prefix(run, limit)
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
        entry = self.prefix.add(event)
        with self._changed:
            self._ready.append(entry)
        self._wake()

    def close(self) -> None:
        """Wait until the loop is done with what was read, after a stop only with its event; save what is done."""
        with self._changed:
            # No wait is without an end: a stop may be set between the look and the wait.
            while self._hand is not None or (self._ready and not self.run.stop.is_set()):
                self._changed.wait(LOOK_AGAIN_S)
            self._closed = True
            self._ready.clear()
            self._last = True
            self._changed.notify_all()
            saver = self._saver
        if saver is not None:
            saver.join()
        self.prefix.close()

    # ------------------------------------------------------------ the loop's thread; nothing here blocks

    def take(self) -> Entry | None:
        """Return the next event, which is then in the loop's hand; None if there is none now."""
        with self._changed:
            if self._closed or not self._ready or self.run.stop.is_set():
                return None
            self._hand = self._ready.popleft()
            return self._hand

    def release(self, *, done: bool) -> None:
        """Record that the loop has finished its event, or leaves it to a later run."""
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
        """Let *call* be called by another thread once all that is done now is saved and flushed, or cannot be."""
        with self._changed:
            if not self._last:
                self._asked.append(call)
                self._save_soon()
                return
        call()

    def _save_soon(self) -> None:
        if self._saver is None:
            # Only once something is done: a run that reads nothing needs no thread.
            self._saver = threading.Thread(target=self._save, name="rscylla-aio-saver", daemon=True)
            self._saver.start()
        self._changed.notify_all()

    # ------------------------------------------------------------ the saver's thread

    def _save(self) -> None:
        while True:
            with self._changed:
                while not (self._done or self._asked or self._last):
                    self._changed.wait()
                # All at once: while one cursor is written, many events get done, and only the last of them has to be
                # saved.
                done, self._done = self._done, []
                asked, self._asked = self._asked, []
                ended = self._last and not done
            self.prefix.done(*done)  # saves the last of them only; a failure ends the run
            if asked:
                self.prefix.settle()  # the run's thread may be committing at this moment, for its progress
                try:
                    self._flush()
                except Exception as error:  # noqa: BLE001 - ends the run
                    self.run.fail(error, stage="flush")
                for call in asked:
                    call()
            if ended:
                return


class Bridge:
    """Takes events from the thread of a run, and hands them to one task of an event loop, one at a time.

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

    def reset(self) -> None:
        if isinstance(self._inner, Resetter):
            self._inner.reset()

    def consume(self, event: Event, run: Run) -> None:
        assert self._work is not None
        self._work.put(event)

    def progress(self, cursor: str) -> None:
        assert self._work is not None
        self._work.prefix.progress(cursor)

    def drain(self) -> None:
        assert self._work is not None
        self._work.prefix.drain()

    def stop(self) -> None:
        if self._work is not None:
            self._work.close()
            self._work = None
        if isinstance(self._inner, Stopper):
            self._inner.stop()

    def end(self, error: BaseException | None) -> None:
        """Note that there will be no run any more; *error* is what the last one ended with."""
        self.error = error
        self._ended = True
        self._wake()
        if self._loop is not None and self._over is not None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                # An event of asyncio may be set in its own loop only.
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
        """Raise ``RuntimeError`` if the running loop is not the one that this belongs to, and that it would wake."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("the events belong to the event loop where they were opened; open new ones in this loop")

    @property
    def run(self) -> Run:
        """The run that the event in hand came by."""
        assert self._taken is not None
        return self._taken.run

    async def next(self) -> Event | None:
        """Return the next event, None when there will be none any more. Being cancelled here loses nothing."""
        assert self._loop is not None
        # A consumer that never waits would keep the loop from running anything else.
        self._delivered += 1
        if self._delivered % GIVE_WAY_EVERY == 0:
            await asyncio.sleep(0)
        while True:
            with self._lock:
                # Before the look, so that what comes between the look and the wait is not missed.
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
        """The event in hand, if there is one, is done."""
        taken, self._taken = self._taken, None
        if taken is not None:
            taken.release(done=True)

    def failed(self, event: Event, error: Exception) -> None:
        """The event in hand failed: end the run with *error*."""
        taken, self._taken = self._taken, None
        if taken is not None:
            taken.run.fail(error, event=event)
            taken.release(done=False)

    def abandon(self) -> None:
        """Leave the event in hand to a later run. Any thread may call it."""
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
        """Wait until the thread of the runs has ended."""
        assert self._over is not None
        self.check_loop()
        await self._over.wait()


def _resolve(waiter: asyncio.Future[None]) -> None:
    # The task that waited may have been cancelled meanwhile.
    if not waiter.done():
        waiter.set_result(None)
