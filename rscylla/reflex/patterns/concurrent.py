"""``concurrent``: several events at a time, those of one key one after the other."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import nullcontext

import attrs

from ...abc import Consumer, Fate, Partitioned, RunScope
from ...event import Event
from .._lane import current_lane, entered
from ._finishing import Finishing
from ._prefix import Entry, Prefix, positive

__all__ = ["concurrent", "partition_of"]


def partition_of(event: Event) -> Hashable:
    """Return what keeps events in order: the partition key of a change, else the event's foreign id.

    A delete of a partition or of a range of rows has to wait for the rows it deletes, so the key of the row is too
    little.
    """
    return tuple(event.raw_partition_key().items()) if isinstance(event, Partitioned) else event.foreign_id


class _Crew:
    """The threads of one run and what they have to do. Any of its methods may be called by any thread."""

    def __init__(self, inner: Consumer, scope: RunScope, workers: int, limit: int) -> None:
        self.prefix = Prefix(scope, limit)
        self._inner = inner
        self._scope = scope
        self._lane = current_lane()
        self._changed = threading.Condition()
        self._queues: dict[Hashable, deque[Entry]] = {}
        self._ready: deque[Hashable] = deque()  # keys with something to do of which nothing is being done
        self._closed = False
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
        except BaseException:  # no more threads are to be had; those that started must not wait for ever
            self.close()
            raise

    def put(self, event: Event, key: Hashable) -> None:
        """Have *event* consumed after those of the same key. Waits for room."""
        entry = self.prefix.add(event)
        with self._changed:
            queue = self._queues.setdefault(key, deque())
            queue.append(entry)
            if len(queue) == 1:
                self._ready.append(key)
                self._changed.notify()

    def drain(self) -> None:
        self.prefix.drain()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        try:
            for thread in self._threads:
                if thread.ident is not None:
                    thread.join()
        finally:  # also after an interrupt, as what is left behind must not move the cursor of a later run
            self.prefix.close()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            key, entry = taken
            assert entry.event is not None
            try:
                self._consume(entry.event)
                self._release(key)
                self.prefix.done(entry)
            except BaseException as error:  # noqa: BLE001 - the run ends with it
                self._scope.fail(error, event=entry.event)
                return

    def _consume(self, event: Event) -> None:
        with nullcontext() if self._lane is None else entered(attrs.evolve(self._lane, event=event)):
            self._inner.consume(event, self._scope.fate)
        self._scope.fate.tempt("after_consume")

    def _take(self) -> tuple[Hashable, Entry] | None:
        """Return the next event that may begin; None when nothing may any more."""
        with self._changed:
            while not self._ready and not self._closed:
                self._changed.wait()
            if self._closed or self._scope.stop.is_set():
                return None
            key = self._ready.popleft()
            return key, self._queues[key][0]

    def _release(self, key: Hashable) -> None:
        """Let the next event of *key* begin."""
        with self._changed:
            queue = self._queues[key]
            queue.popleft()
            if queue:
                self._ready.append(key)
                self._changed.notify()
            else:
                del self._queues[key]


class _Concurrent(Finishing[_Crew]):
    def __init__(
        self, inner: Consumer, workers: int, max_in_flight: int | None, key: Callable[[Event], Hashable]
    ) -> None:
        super().__init__(inner)
        self._workers = positive("workers", inner.name, workers)
        self._limit = positive("max_in_flight", inner.name, workers * 16 if max_in_flight is None else max_in_flight)
        self._key = key

    def open(self, scope: RunScope) -> _Crew:
        return _Crew(self._inner, scope, self._workers, self._limit)

    def consume(self, event: Event, fate: Fate) -> None:
        self.work.put(event, self._key(event))


def concurrent(
    consumer: Consumer,
    *,
    workers: int = 8,
    max_in_flight: int | None = None,
    key: Callable[[Event], Hashable] = partition_of,
) -> Consumer:
    """Return *consumer* so that it works on up to *workers* events at a time, each in a thread.

    Delivery: at least once. Events of one *key* are consumed one after the other, in their order; the cursor moves to
    the last event before which all are done, so that after a crash up to *max_in_flight* events come again. The first
    error ends the run at once, also while the stream is idle; what is being done then is waited for, and nothing more
    begun. At the head all is finished first.

    *consumer*, its function, filters and ``recover`` are called by several threads at once: they must be thread-safe,
    as ``dead_letter`` and ``best_effort`` are. Threads start with each run and end before it does. Events are handed
    to them by this one, so threads help where consuming waits for something, not where it computes.

    Args:
        consumer: What to wrap; its name, metrics, ``reset`` and ``stop`` stay.
        workers: How many threads.
        max_in_flight: How many events may be taken from the stream and not be committed yet, 16 for each worker unless
            given. The stream is not read further until there is room.
        key: What of an event decides on its order; the partition key, or the foreign id of events that have none.

    Raises:
        ConfigError: a number is below 1, or *consumer* finishes events later itself.
    """
    return _Concurrent(consumer, workers, max_in_flight, key)
