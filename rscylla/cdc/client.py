"""The open stream: returns the events that a reader finds; a separate thread reads ahead."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

import attrs

from .._timeuuid import ticks_to_us
from ..abc import StreamStatus
from ..clock import Clock, Stop
from ..errors import HeadReached, Stopped
from ..event import Progress
from .log import Source
from .read import Reader, Step, StreamSettings
from .rows import NO_EVENTS, ChangeEvent, Counters
from .window import Begun, EventChunk

__all__ = ["Client", "Direct", "Feed", "ReadAhead"]

T = TypeVar("T")

CLOSE_TIMEOUT_S = 5.0
"""How long ``close`` waits for the thread: a query in progress cannot be cancelled, only answered or timed out."""

PROGRESS_S = 30.0
"""How often each of several clients that read together saves its progress at least, if one alone does so more often."""


class Feed(Protocol):
    """Where a client gets its steps from."""

    @property
    def source(self) -> Source:
        """What is read, for ``status``."""

    @property
    def counters(self) -> Counters: ...

    @property
    def gaps(self) -> int:
        """How often changes that may be lost were skipped."""

    @property
    def since(self) -> float | None:
        """Since when the current step has run, by the clock's ``monotonic``; None between steps."""

    @property
    def reached_us(self) -> int:
        """A time before which everything was taken, or there was nothing; 0 if only the steps say so."""

    @property
    def together(self) -> int:
        """How many clients get what is read."""

    def take(self, quiet_until: float = 0.0) -> Step:
        """Return the next step. Blocks.

        Args:
            quiet_until: before that time, by the clock's ``monotonic``, steps without rows may be kept back.

        Raises: Stopped, and as for ``Reader.step``.
        """

    def close(self) -> None:
        """Wait for the thread that reads, but only briefly; the stop signal is set."""


class Client:
    """An open stream of a CDC log; see ``rscylla.abc.ChunkClient``. ``take`` is for one thread, ``close`` for any.

    Args:
        stop: ends reading; set by ``close`` and when the client is dropped without it.
        first: returned before anything is read.
    """

    def __init__(self, feed: Feed, settings: StreamSettings, stop: Stop, first: Step) -> None:
        self._feed = feed
        self._clock = clock = settings.clock
        self._stop = stop
        self._progress_every_s = settings.progress_every.total_seconds()
        self._step = first
        self._finished = first.done
        self._reported = None if first.must_save else first.done
        self._reported_at = clock.monotonic()
        self._error: BaseException | None = None
        self._finalizer = weakref.finalize(self, stop.set)
        self._finalizer.atexit = False

    def status(self) -> StreamStatus:
        """Return the stream's position, and facts about the log and the cluster. Thread-safe."""
        # The watermark is the end of the finished step, or the last event of the current one. The two are read in the
        # opposite order of being set, so that the watermark does not appear to step back.
        feed, step = self._feed, self._step
        position, asked_at = step.events.position, feed.since
        return StreamStatus(
            watermark_us=max(self._finished.exact_us, _us_of(position) if position else 0, feed.reached_us),
            incomplete_records=feed.counters.incomplete_records,
            expired_gaps=feed.gaps,
            poll_age_s=0.0 if asked_at is None else max(0.0, self._clock.monotonic() - asked_at),
            log_ttl_s=feed.source.table.ttl_s,
            clock_skew_us=max(feed.source.node_clocks.skew_us.values(), key=abs, default=0),
            generation_us=step.done.generation * 1000 or None,
            cdc_enabled=feed.source.table.enabled,
        )

    def take(self) -> EventChunk | Progress:
        """Return the events of the next window, or the rest of this one, or a ``Progress`` with a cursor to save."""
        return self._next(self._chunk)

    def _chunk(self, event: ChangeEvent, step: Step, before: bytes) -> EventChunk:
        self._step = step = attrs.evolve(step, events=Begun(event, step.events, before))
        return EventChunk(event, step, before or step.after)

    def recv(self) -> ChangeEvent | Progress:
        """Return the next event, or a ``Progress``; see ``StreamClient.recv``. May be mixed with ``take``."""
        return self._next(lambda event, _step, _before: event)

    def __iter__(self) -> Iterator[ChangeEvent | Progress]:
        """Return an iterator over what ``recv`` returns, which raises what ``recv`` raises. The two may be mixed."""
        # A call or a generator for each event would cost as much as to make it.
        return chain.from_iterable(map(_items_of, iter(self.take, None)))

    def _next(self, found: Callable[[ChangeEvent, Step, bytes], T]) -> T | Progress:
        """Return *found* of the next event, its step, and the position before it there, or a ``Progress``."""
        while True:
            step = self._step
            before = step.events.position
            try:
                for event in step.events:
                    return found(event, step, before)
            except BaseException as e:
                # Raised instead of the rest of the events, of which one may be lost; else the step looks finished.
                self._step = attrs.evolve(step, events=_Broken(e, step.events.position))
                raise
            self._finished = step.done
            progress = self._progress()
            if progress is not None:
                return progress
            self._advance()

    def _progress(self) -> Progress | None:
        """Return the end of the finished step as a cursor, if it is time to save one."""
        done, now = self._step.done, self._clock.monotonic()
        if self._step.events.position:
            # The consumer saved the last event, which moved the cursor nearly as far, so the interval starts again.
            self._reported, self._reported_at = None, now
            self._step = attrs.evolve(self._step, events=NO_EVENTS, rows=None)  # not again, and the memory is freed
        if done == self._reported:
            return None
        due = now >= self._due_at
        if not (due or self._step.must_save or isinstance(self._error, HeadReached)):
            return None
        self._reported, self._reported_at = done, now
        return Progress(str(done), done.exact_us)

    @property
    def _due_at(self) -> float:
        """When progress is to be saved although nothing else happens, by the clock's ``monotonic``."""
        every_s = self._progress_every_s
        return self._reported_at + max(every_s, min(self._feed.together * every_s, PROGRESS_S))

    def _advance(self) -> None:
        """Take the next step, or raise the error that ended the reading. The head is saved before it is raised."""
        if self._error is not None:
            raise self._error
        self._stop.check()
        self._step = attrs.evolve(self._step, events=NO_EVENTS, rows=None)  # freed while the next one is awaited
        try:
            # One assignment for the events and the end of the step: an interrupt between two would mix two steps.
            self._step = self._feed.take(self._due_at)
        except BaseException as e:
            self._error = e
            if not isinstance(e, HeadReached):
                raise

    def close(self) -> None:
        """Stop reading and wait for the thread, but only briefly for a node that hangs. Safe to repeat."""
        self._stop.set()
        self._feed.close()


def _items_of(taken: Any) -> Iterable[ChangeEvent | Progress]:
    return (taken,) if isinstance(taken, Progress) else taken


def _us_of(position: bytes) -> int:
    """Return the time of a row by its position, in microseconds since the epoch."""
    return ticks_to_us(int.from_bytes(position[:8], "big"))


class _Broken:
    """Events that could not be created: raises the same error each time."""

    def __init__(self, error: BaseException, position: bytes) -> None:
        self._error = error
        self.position = position

    def __iter__(self) -> Iterator[ChangeEvent]:
        raise self._error


class Direct:
    """Reads in the thread that calls ``take``."""

    reached_us = 0
    together = 1

    def __init__(self, reader: Reader, source: Source) -> None:
        self._timed = _TimedReader(reader, source.clock)
        self.source = source
        self.counters = reader.counters

    @property
    def gaps(self) -> int:
        return self.source.gaps

    @property
    def since(self) -> float | None:
        return self._timed.since

    def take(self, quiet_until: float = 0.0) -> Step:
        return self._timed.step()

    def close(self) -> None:
        pass


class ReadAhead(Direct):
    """Reads in a thread of its own, up to *windows* ahead."""

    def __init__(self, reader: Reader, source: Source, stop: Stop, windows: int) -> None:
        super().__init__(reader, source)
        self._ready: SimpleQueue[Step | BaseException] = SimpleQueue()
        # A SimpleQueue, not a semaphore, because its put is reentrant: the finalizer may run in the reader's thread
        # while that thread is inside the queue.
        self._slots: SimpleQueue[None] = SimpleQueue()
        for _ in range(windows):
            self._slots.put(None)
        self._thread = threading.Thread(
            target=_read_ahead,  # not a method: a reference from the thread would keep a dropped client alive
            args=(self._timed, self._ready, self._slots, stop),
            name="rscylla-reader",
            daemon=True,
        )
        self._thread.start()
        # Ends take at once, even while the reader waits for a node that does not answer.
        ready = self._ready
        stop.on_set(lambda: ready.put(Stopped()))

    def take(self, quiet_until: float = 0.0) -> Step:
        got = self._ready.get()
        self._slots.put(None)
        if isinstance(got, BaseException):
            raise got
        return got

    def close(self) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_TIMEOUT_S)


class _TimedReader:
    """A reader that shows since when its step has run, by the clock's ``monotonic``; None between steps."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self.since: float | None = None

    def step(self) -> Step:
        self.since = self._clock.monotonic()
        try:
            return self._reader.step()
        finally:
            self.since = None


def _read_ahead(
    reader: _TimedReader, ready: SimpleQueue[Step | BaseException], slots: SimpleQueue[None], stop: Stop
) -> None:
    """Read a window for each free slot, until an error; the error is put last."""
    forget = stop.on_set(lambda: slots.put(None))
    try:
        while True:
            slots.get()
            ready.put(reader.step())
    except BaseException as e:  # noqa: BLE001 - raised by recv, in the consumer's thread
        ready.put(e)
    finally:
        forget()
