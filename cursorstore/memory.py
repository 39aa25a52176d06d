"""A cursor store in memory, for tests and for consumers that may start again from the beginning.

It rejects the same calls as the stores in a database, so that a test with it proves something about them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import attrs

from rscylla import _timeuuid as tu
from rscylla.abc import CursorRecord
from rscylla.clock import Clock, SystemClock
from rscylla.event import Event

from ._checks import check_consumer, check_reason, conflict, moves
from .codec import CursorCodec, EventCursorCodec, EventOrder

__all__ = ["MemoryCursorStore"]


@attrs.define(eq=False)
class _Entry:
    """The highest cursor of one epoch of one consumer, and when it was set.

    ``last`` is its position, or the event that it is right after; ``order`` is the order key of that event.
    """

    epoch: int
    last: str | Event
    updated_us: int
    reason: str = ""
    order: tuple[int, bytes] | None = None

    def position(self, codec: CursorCodec) -> str:
        return self.last if isinstance(self.last, str) else codec.encode(self.last.id)


class MemoryCursorStore:
    """Cursors that live as long as this object. Thread-safe.

    *cursors* are the initial cursors. After ``reset_cursor``, a consumer that has read or set its cursor before must
    read it again: until then, ``set_cursor`` raises ``CursorConflict``, as in ``ScyllaCursorStore``.
    """

    def __init__(
        self,
        *,
        codec: CursorCodec | None = None,
        cursors: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._codec = codec or EventCursorCodec()
        self._order = EventOrder(self._codec)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._epochs: dict[str, list[_Entry]] = {}
        self._used: dict[str, int] = {}  # by consumer, the epoch that it works in
        for consumer, cursor in (cursors or {}).items():
            check_consumer(consumer)
            self._epochs[consumer] = [_Entry(0, self._codec.encode(cursor), self._clock.now_us())]

    def get_cursor(self, consumer: str) -> str:
        check_consumer(consumer)
        with self._lock:
            last = self._last(consumer)
            self._used[consumer] = last.epoch
            return self._codec.decode(last.position(self._codec))

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self._set(consumer, cursor, None)

    def set_cursor_after(self, consumer: str, event: Event) -> None:
        order = event.order_key if type(event) is self._order.known else self._order.of(event)
        if order is not None:
            with self._lock:
                entries = self._epochs.get(consumer)
                last = entries[-1] if entries else None
                # An order is of the epoch that the consumer works in: a reset begins another one, with no order.
                if last is not None and last.order is not None and order > last.order:
                    last.last, last.order, last.updated_us = event, order, self._clock.now_us()
                    return
        self._set(consumer, event.id, order)

    def _set(self, consumer: str, cursor: str, order: tuple[int, bytes] | None) -> None:
        check_consumer(consumer)
        given = self._codec.encode(cursor)
        with self._lock:
            last = self._last(consumer)
            if self._used.setdefault(consumer, last.epoch) != last.epoch:
                raise conflict(consumer)
            if moves(consumer, self._codec, last.position(self._codec), given):
                moved = _Entry(last.epoch, given, self._clock.now_us(), last.reason, order)
                self._epochs.setdefault(consumer, [moved])[-1] = moved

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Do nothing: there is no background work."""

    def find_cursor(self, consumer: str) -> CursorRecord | None:
        """Return the record of *consumer*; None if it never had a cursor."""
        check_consumer(consumer)
        with self._lock:
            return self._record(consumer, self._last(consumer)) if consumer in self._epochs else None

    def list_cursors(self) -> list[CursorRecord]:
        with self._lock:
            return [self._record(consumer, entries[-1]) for consumer, entries in sorted(self._epochs.items())]

    def cursor_history(self, consumer: str) -> list[CursorRecord]:
        """Return the last cursor of each epoch of *consumer*, the newest epoch first: the audit trail of resets."""
        check_consumer(consumer)
        with self._lock:
            return [self._record(consumer, entry) for entry in reversed(self._epochs.get(consumer, []))]

    def reset_cursor(self, consumer: str, cursor: str, *, reason: str) -> None:
        check_consumer(consumer)
        check_reason(reason)
        start = self._codec.encode(cursor)
        with self._lock:
            entry = _Entry(self._last(consumer).epoch + 1, start, self._clock.now_us(), reason)
            self._epochs.setdefault(consumer, []).append(entry)

    def _last(self, consumer: str) -> _Entry:
        return self._epochs[consumer][-1] if consumer in self._epochs else _Entry(0, "", 0)

    def _record(self, consumer: str, entry: _Entry) -> CursorRecord:
        cursor, moment = self._codec.decode(entry.position(self._codec)), tu.datetime_of(entry.updated_us)
        return CursorRecord(consumer, cursor, entry.epoch, moment, entry.reason)
