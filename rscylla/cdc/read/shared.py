"""Reads the slices of a table that are open in one process together, while they are at about the same point.

    SharedReaders  those of the slices of one ``Stream``; starts, joins and splits them     (merge_policy)
    SharedReader   a thread that reads windows for some slices                              (reader)
    SliceFeed      what it has read for one slice, until the slice's client takes it        (feed, client)

Locks: that of ``SharedReaders`` guards all three, and is never held during a query. What a stop signal calls takes no
lock, because a signal handler or a finalizer may set it at any line, in any thread.

A window is for many threads, and to wake them costs more than to read a narrow row. So a feed whose window is empty is
not woken before its progress is to be saved, and those that have got rows call each other, one by one.
"""

from __future__ import annotations

import copy
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import attrs

from ...clock import Stop
from ...errors import HeadReached, Stopped, is_resumable
from ..log import Source
from ..rows import NO_EVENTS
from .feed import SliceFeed
from .merge_policy import FREE, PATIENCE_S, RECENT_S, Place, Stage, blocked_s, halt_of, is_awaited, meet
from .reader import Reader, Step
from .settings import StreamSettings

__all__ = ["SharedReaders"]

CALL_S = 0.2
"""After this time, all feeds that have got a step are woken: one that was called may have been interrupted, or many
work for long."""

FRESH_S = 1.0
"""Slices that are opened within this time of each other read the metadata of the table once."""


class SharedReaders:
    """The readers of the slices of one table and one set of options. Thread-safe."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.running: list[SharedReader] = []
        self.opening = 0
        self.calls: deque[SliceFeed] = deque()
        """Shares that wait for a step that they have got; see ``call``."""
        self._making: threading.Event | None = None  # set when whoever makes a source is done
        self._made: tuple[float, Source] | None = None

    @contextmanager
    def opens(self) -> Iterator[None]:
        """Within it, a slice is being opened, and readers that have not begun wait for it."""
        with self.lock:
            self.opening += 1
        try:
            yield
        finally:
            with self.lock:
                self.opening -= 1
                self.tell()

    def source(self, make: Callable[[], Source], stop: Stop) -> Source:
        """Return a description of the table that is at most ``FRESH_S`` old, and ends with *stop*.

        Raises: what *make* raises; Stopped.
        """
        mine = threading.Event()
        try:  # around all: an interrupt may come at any call, and must not leave the others to wait for this thread
            while True:
                with self.lock:
                    if self._making is None:
                        self._making = mine
                    making = self._making
                if making is mine:
                    break
                making.wait(0.05)
                stop.check()
            source = self._source(make, stop)
        finally:
            if self._making is mine:
                self._making = None
            mine.set()
        return source

    def doubt(self) -> None:
        """Let the next ``source`` be made anew: what is known of the table may be why a reader failed."""
        self._made = None

    def _source(self, make: Callable[[], Source], stop: Stop) -> Source:
        if (made := self._made) is not None:
            at, known = made
            if 0 <= known.clock.monotonic() - at < FRESH_S:
                return known.until(stop)
        source = make()
        self._made = source.clock.monotonic(), source.until(Stop())
        return source

    def begin(self, reader: Reader, source: Source, settings: StreamSettings, stop: Stop, reading: Stop) -> SliceFeed:
        """Start a reader for one slice, and return its feed.

        Args:
            stop: ends the feed. ``reading``: the stop signal of *reader*.
        """
        feed = SliceFeed(self, settings, reader.resume, stop)
        with self.lock:
            self._start(reader, source, reading, feed)
        stop.on_set(feed.leave)
        return feed

    def _start(self, reader: Reader, source: Source, stop: Stop, feed: SliceFeed, *, doubts: bool = False) -> None:
        shared = SharedReader(self, reader, source, stop, feed, doubts=doubts)
        shared.thread.start()  # may fail; waits for the lock, which the caller has
        feed.shared = shared
        self.running.append(shared)

    def split(self, feed: SliceFeed, *, doubts: bool = False) -> None:
        """Let *feed* go on in a reader of its own; see there for *doubts*. Called with the lock."""
        shared, stop = feed.shared, Stop()
        source = shared.source.until(stop)
        if doubts:
            source.doubt()
        reader = shared.reader.alone(source, feed.settings, stop, feed.resume)
        feed.gaps_before = feed.gaps - source.gaps
        self._start(reader, source, stop, feed, doubts=doubts)

    def others(self, shared: SharedReader) -> list[SharedReader]:
        return [other for other in self.running if other is not shared and other.reader.reads_as(shared.reader)]

    def call(self) -> None:
        """Wake the next feed that has got a step; it then calls the next one. Takes no lock.

        If the threads of all feeds woke up at once, most would wait for the interpreter, and look again every 5 ms.
        """
        with suppress(IndexError):
            while not self.calls.popleft().is_woken():
                pass

    def call_all(self) -> None:
        """Wake all feeds that have got a step. Takes no lock."""
        while self.calls:
            self.call()

    def tell(self) -> None:
        """Wake the readers that wait for another one. Called with the lock."""
        for shared in self.running:
            if shared.stage is Stage.HELD:
                shared.wake.set()


class SharedReader:
    """Reads for some feeds, in a thread of its own.

    Args:
        doubts: a reader for several feeds failed here, perhaps because of another feed. Until the first step that
            succeeds, the reader reads for *feed* alone: together, they would fail again.
    """

    def __init__(
        self,
        readers: SharedReaders,
        reader: Reader,
        source: Source,
        stop: Stop,
        feed: SliceFeed,
        *,
        doubts: bool = False,
    ) -> None:
        self._readers = readers
        self._clock = source.clock
        self._stop = stop
        self._feeds: tuple[SliceFeed, ...] = (feed,)
        self._is_fresh = True
        self._doubts = doubts
        self._began = self._clock.monotonic()
        self._held_since: float | None = None
        self._slow: set[SliceFeed] = set()  # those that block the reader
        self._waits_long = False  # until somebody asks for more
        self._due = 0.0
        self._halt_us: int | None = None
        self._from = reader.at  # where the step began
        self.reader = reader
        self.source = source
        self.stage = Stage.HELD
        self.wake = Stop()
        self.thread = threading.Thread(target=self._run, name="rscylla-reader", daemon=True)

    @property
    def since(self) -> float | None:
        return self._began if self.stage is Stage.READS else None

    @property
    def width(self) -> int:
        """For how many feeds the reader reads."""
        return len(self._feeds)

    @property
    def is_dismissed(self) -> bool:
        """Whether nobody needs the reader."""
        return all(feed.has_left for feed in self._feeds)

    def dismiss(self) -> None:
        """End the reader if nobody needs it. Takes no lock."""
        if self.is_dismissed:
            self._stop.set()
        self.wake.set()

    def makes_room(self, feed: SliceFeed) -> None:
        """*feed* has taken a step. Called with the lock."""
        if feed in self._slow and not feed.is_full:
            self._slow.discard(feed)
            if not self._slow:
                self.wake.set()
        elif self._waits_long:
            self.wake.set()

    def is_asked(self) -> None:
        """A feed has nothing left. Called with the lock."""
        if self._waits_long:
            self.wake.set()

    def place(self) -> Place:
        stage = self.stage
        # A step counts once it is delivered: only then can the reader be taken over.
        generation, at_us = self._from if stage is Stage.READS else self.reader.at
        if stage is Stage.HELD and any(feed.is_full for feed in self._feeds):
            stage = Stage.BLOCKED  # it has not looked since its last step
        elif self._doubts and stage in FREE:
            stage = Stage.BLOCKED
        return Place(generation, at_us, self.reader.width_us, stage, self._clock.monotonic() - self._began)

    def _run(self) -> None:
        try:
            while self._await_turn():
                self._deliver(self.reader.step_now(self._halt_us))
        except BaseException as e:  # noqa: BLE001 - raised by take, in the consumers' threads
            self._fail(e)

    # ------------------------------------------------------------ between steps

    def _await_turn(self) -> bool:
        """Wait until the next window is to be read; return whether there is one."""
        while True:
            self.wake = wake = Stop()  # before the look: what changes from now on ends the wait
            with self._readers.lock:
                was, wait_s = self.stage, self._look()
                self._waits_long = wait_s == math.inf
                if was is not self.stage and self.stage is not Stage.READS:
                    self._readers.tell()
            if self.stage is Stage.ENDED:
                return False
            if wait_s is None:
                return True
            if not self._wait(wake, wait_s):
                self._readers.call_all()

    def _wait(self, wake: Stop, seconds: float) -> bool:
        """Wait for *wake*, but not long if feeds are to be called; return whether it is set."""
        if seconds == math.inf:
            return wake.wait(CALL_S if self._readers.calls else None)
        return self._clock.wait(wake, min(seconds, CALL_S) if self._readers.calls else seconds)

    def _look(self) -> float | None:
        """Decide what to do now: return None to read, or the seconds to wait, in ``stage``. Has the lock."""
        if any(feed.has_left for feed in self._feeds):
            self._read_for([feed for feed in self._feeds if not feed.has_left])
        if self.stage is not Stage.ENDED and not self._feeds:
            self._end()
        if self.stage is Stage.ENDED:
            return 0.0
        now = self._clock.monotonic()
        left_s = self._blocked_s(now)
        if left_s is not None:
            self.stage = Stage.BLOCKED
            return left_s
        if not self._doubts:
            self._meet()
        if not any(feed.has_room for feed in self._feeds):
            self.stage = Stage.IDLE
            return math.inf
        place, others = self.place(), [shared.place() for shared in self._readers.others(self)]
        left_s = self._held_s(now, place, others)
        if left_s > 0:
            self.stage = Stage.HELD
            return min(left_s, RECENT_S)
        if self._due > now:
            self.stage = Stage.POLLS
            return self._due - now
        self.stage = Stage.READS
        self._from = self.reader.at
        self._began, self._held_since = now, None
        self._halt_us = halt_of(place, others)
        return None

    def _blocked_s(self, now: float) -> float | None:
        """Return how long to wait for slow consumers, or None; those that are waited for no longer are left behind."""
        backlogs = [feed.backlog(now) for feed in self._feeds]
        self._slow = slow = {feed for feed, b in zip(self._feeds, backlogs, strict=True) if b.is_full}
        if not slow:
            return None
        left_s = blocked_s(backlogs)
        if left_s is None or left_s > 0:
            return math.inf if left_s is None else left_s
        self._read_for([feed for feed in self._feeds if feed not in slow])
        for feed in slow:
            self._let_go(feed)
        return None

    def _held_s(self, now: float, place: Place, others: Sequence[Place]) -> float:
        """Return how long to wait for readers that come from near behind, or are being opened; 0 for none."""
        if not (self._is_fresh and self._readers.opening) and not is_awaited(place, others):
            return 0.0
        self._held_since = now if self._held_since is None else self._held_since
        return self._held_since + PATIENCE_S - now

    def _meet(self) -> None:
        """Take over the readers that are at the same point."""
        place = self.place()
        for other in self._readers.others(self):
            if meet(place, other.place()):
                self.reader.take_over(other.reader)
                joined = other.give_up()
                for feed in joined:
                    feed.gaps_before = feed.gaps - self.source.gaps
                    feed.shared = self
                self._read_for([*self._feeds, *joined])

    def give_up(self) -> tuple[SliceFeed, ...]:
        """End, and return the feeds. Called with the lock, between two steps."""
        feeds, self._feeds = self._feeds, ()
        self._end()
        return feeds

    def _read_for(self, feeds: list[SliceFeed]) -> None:
        self._feeds = tuple(feeds)
        if feeds:
            self.reader.read_for(feed.key_slice for feed in feeds)

    def _end(self) -> None:
        self.stage = Stage.ENDED
        self._readers.running.remove(self)
        self._readers.tell()
        self.wake.set()

    # ------------------------------------------------------------ after steps

    def _deliver(self, step: Step) -> None:
        """Give each feed its part of *step*, the last one.

        If the position is still the same, the feeds may have other cursors for it than the step: that of a row.
        """
        feeds = self._feeds
        if self.reader.at != self._from:
            parts = self.reader.divided(step)
            empty = attrs.evolve(step, events=NO_EVENTS, rows=None, after=b"")
            new = [
                empty if part is None else self.reader.step_of(part, feed.resume, feed.counters)
                for feed in feeds
                for part in [parts.get(feed.key_slice.index)]
            ]
            with self._readers.lock:
                self._doubts = False
                for feed, its in zip(feeds, new, strict=True):
                    feed.put(its)
            self._readers.call()
        with self._readers.lock:
            self._is_fresh = False
            self.stage = Stage.HELD  # until the next look: another reader may be here, too, and take over
            self._due = self._clock.monotonic() + self.reader.pause_s
            self._readers.tell()

    def _fail(self, error: BaseException) -> None:
        self._readers.doubt()
        with self._readers.lock:
            feeds = [feed for feed in self._feeds if not feed.has_left]
            for feed in feeds:
                if isinstance(error, HeadReached):
                    feed.fail(HeadReached(*error.args, cursor=str(feed.resume.done)))
                elif isinstance(error, Stopped):  # those for which the reader was stopped have left
                    self._let_go(feed)
                elif not is_resumable(error) and not self._doubts:
                    # Each finds out by itself whether this concerns it: another feed may have been promised more, or
                    # read the streams with malformed data.
                    self._let_go(feed, doubts=True)
                else:
                    feed.fail(error if len(feeds) == 1 else _copied(error))
            self._feeds = ()
            if self.stage is not Stage.ENDED:
                self._end()

    def _let_go(self, feed: SliceFeed, *, doubts: bool = False) -> None:
        """Let *feed* go on in a reader of its own; if that fails, so does the feed."""
        try:
            self._readers.split(feed, doubts=doubts)
        except Exception as e:  # noqa: BLE001 - raised by take
            feed.fail(e)


def _copied(error: BaseException) -> BaseException:
    """Return an equal error, because each thread that raises one adds to it."""
    try:
        found = copy.copy(error)
    except Exception:  # noqa: BLE001 - an error of somebody else's class
        return error
    found.__cause__ = error.__cause__
    return found
