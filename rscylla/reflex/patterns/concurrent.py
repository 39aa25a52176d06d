"""``concurrent``: handles several events at a time, and those of one key in order."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Hashable

import attrs

from ...abc import Consumer, Partitioned, Run
from ...event import Event
from ..deferred import Deferred
from ..inflight import Entry, InFlight, positive
from ..wrapper import Wrapper

__all__ = ["concurrent", "partition_of"]


def partition_of(event: Event) -> Hashable:
    """Return the key whose events stay in order: the partition key of a change, or else the event's foreign id.

    The primary key of the row would not do: a delete of a partition or of a range must stay in order with the rows that
    it deletes.
    """
    return tuple(event.raw_partition_key().items()) if isinstance(event, Partitioned) else event.foreign_id


@attrs.define(eq=False)
class _Queued:
    """An event, and the number of its keys for which others are before it."""

    entry: Entry
    keys: frozenset[Hashable]
    behind: int = 0


class _Workers:
    """The worker threads of one run, and the queues of their events by key. Thread-safe.

    An event may have several keys, and begins when it is the first of each.
    """

    def __init__(self, inner: Consumer, run: Run, workers: int, limit: int) -> None:
        self.in_flight = InFlight(run, limit)
        self._inner = inner
        self._run = run
        self._changed = threading.Condition()
        self._queues: dict[Hashable, deque[_Queued]] = {}
        self._ready: deque[_Queued] = deque()  # events that are the first of all of their keys, and not begun
        self._closed = False
        # In copies of the context, so that the consumer sees the caller's context variables in these threads.
        self._threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._work,),
                name=f"rscylla-{inner.name}-{number}",
                daemon=True,
            )
            for number in range(workers)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # the system may be out of threads; those that have started must end
            self.close()
            raise

    def put(self, event: Event, keys: frozenset[Hashable]) -> None:
        """Queue *event* after the events of the same keys. Waits for room."""
        queued = _Queued(self.in_flight.add(event), keys)
        with self._changed:
            for key in keys:
                queue = self._queues.setdefault(key, deque())
                queued.behind += bool(queue)
                queue.append(queued)
            if not queued.behind:
                self._ready.append(queued)
                self._changed.notify()

    def drain(self) -> None:
        self.in_flight.drain()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        try:
            for thread in self._threads:
                if thread.ident is not None:
                    thread.join()
        finally:  # also after an interrupt: a thread left behind must not move the cursor of a later run
            self.in_flight.close()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            entry = taken.entry
            assert entry.event is not None
            try:
                self._consume(entry.event)
                self._release(taken)  # before ``done``, which may wait for the store while the next event can start
                self.in_flight.done(entry)
            except BaseException as error:  # noqa: BLE001 - the run ends with it
                self._run.fail(error, event=entry.event)
                return

    def _consume(self, event: Event) -> None:
        with self._run.handling(event) as run:
            self._inner.consume(event, run)
        self._run.tempt("after_consume")

    def _take(self) -> _Queued | None:
        """Return the next event that may start; None once no further event may."""
        with self._changed:
            while not self._ready and not self._closed:
                self._changed.wait()
            # The stop is checked, too: after a lost lease, no event may start while the run has not called close yet.
            if self._closed or self._run.stop.is_set():
                return None
            return self._ready.popleft()

    def _release(self, done: _Queued) -> None:
        """Let the next events of the keys of an event start."""
        with self._changed:
            for key in done.keys:
                queue = self._queues[key]
                queue.popleft()
                if not queue:
                    del self._queues[key]
                    continue
                queue[0].behind -= 1
                if not queue[0].behind:
                    self._ready.append(queue[0])
                    self._changed.notify()


class _Concurrent(Deferred[_Workers]):
    def __init__(
        self, inner: Consumer, workers: int, max_in_flight: int | None, key: Callable[[Event], Hashable]
    ) -> None:
        super().__init__(inner)
        self._workers = positive("workers", inner.name, workers)
        self._limit = positive("max_in_flight", inner.name, workers * 16 if max_in_flight is None else max_in_flight)
        self._key = key
        self._waits_for = inner.waits_for if isinstance(inner, Wrapper) else lambda event: ()

    def open(self, run: Run) -> _Workers:
        return _Workers(self._inner, run, self._workers, self._limit)

    def consume(self, event: Event, run: Run) -> None:
        # What parks keys inside has to know of a failed event before a later one of its key begins.
        parks = (("park", key) for key in self._waits_for(event))
        self.work.put(event, frozenset({("key", self._key(event)), *parks}))


def concurrent(
    consumer: Consumer,
    *,
    workers: int = 8,
    max_in_flight: int | None = None,
    key: Callable[[Event], Hashable] = partition_of,
) -> Consumer:
    """Return *consumer*, wrapped so that it handles up to *workers* events at the same time, each in a thread.

    Delivery: at least once. Events of one *key* are consumed one after the other, in order, and so are those of one
    ``park=`` key of a ``dead_letter`` inside. The cursor moves to
    the last event before which all events are done, so a crash repeats up to *max_in_flight* events. The first
    error ends the run at once, even while the stream is idle: events in progress finish, and no further event begins.
    At the head, all events finish before the run ends.

    Several threads call *consumer*, its function, filters, and ``recover`` at the same time: they must be thread-safe,
    as ``dead_letter`` and ``best_effort`` are. The threads start with each run and end before it does. They speed up
    consumers that wait for other systems, not consumers that compute.

    Args:
        consumer: The consumer to wrap; its name, metrics, ``reset``, and ``stop`` are kept.
        workers: The number of threads.
        max_in_flight: How many events taken from the stream may be uncommitted; default: 16 for each worker. The stream
            waits until there is room.
        key: Returns the key whose events stay in order; default: the partition key, or the foreign id of events
            without one.

    Raises:
        ConfigError: a number is below 1, or *consumer* finishes events later itself.
    """
    return _Concurrent(consumer, workers, max_in_flight, key)
