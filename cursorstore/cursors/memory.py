"""A cursor store in memory, for tests and for consumers that may start again from the beginning.

It rejects the same calls as the stores in a database, so that a test with it proves something about them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import attrs

from rscylla import _timeuuid as tu
from rscylla.abc import CursorRecord, LastEvent
from rscylla.clock import Clock, SystemClock
from rscylla.event import Event

from ..checks import check_consumer, check_reason, conflict, moves
from .codec import CursorCodec, EventCursorCodec

__all__ = ["MemoryCursorStore"]


@attrs.define(eq=False)
class _Entry:
    """The position of the highest cursor of one epoch of one consumer, and when it was set."""

    epoch: int
    position: str
    updated_us: int
    reason: str = ""


@attrs.define(eq=False)
class _Cursors:
    """What is known of one consumer. ``used``: the epoch that it works in; None before it reads or sets its cursor.

    ``left`` is where its run leaves events, ``taken`` the last one that was taken from there, and ``error`` why that
    was refused, until it is raised.

    Each has a lock of its own: with one for all, consumers in several threads would wait for it at each event, and
    each wait is two switches of threads, which cost several times what saving the cursor does.
    """

    lock: threading.Lock = attrs.field(factory=threading.Lock)
    epochs: list[_Entry] = attrs.field(factory=list)
    used: int | None = None
    left: LastEvent = attrs.field(factory=LastEvent)
    taken: Event | None = None
    error: Exception | None = None

    @property
    def last(self) -> _Entry:
        return self.epochs[-1] if self.epochs else _Entry(0, "", 0)


class MemoryCursorStore:
    """Cursors that live as long as this object. Thread-safe.

    *cursors* are the initial cursors; *history* has those of stores that keep their epochs, in any order. After
    ``reset_cursor``, a consumer that has read or set its cursor before must read it again: until then, ``set_cursor``
    raises ``CursorConflict``, as in ``ScyllaCursorStore``.
    """

    def __init__(
        self,
        *,
        codec: CursorCodec | None = None,
        cursors: Mapping[str, str] | None = None,
        history: Iterable[CursorRecord] = (),
        clock: Clock | None = None,
    ) -> None:
        self._codec = codec or EventCursorCodec()
        self._clock = clock or SystemClock()
        self._consumers: dict[str, _Cursors] = {}
        for consumer, cursor in (cursors or {}).items():
            first = _Entry(0, self._codec.encode(cursor), self._clock.now_us())
            self._of(consumer).epochs.append(first)
        for record in sorted(history, key=lambda record: record.epoch):
            at = self._clock.now_us() if record.updated_at is None else tu.us_of(record.updated_at)
            entry = _Entry(record.epoch, self._codec.encode(record.cursor), at, record.reason)
            self._of(record.consumer).epochs.append(entry)

    def get_cursor(self, consumer: str) -> str:
        known = self._of(consumer)
        with known.lock:
            self._take(consumer, known)
            known.used, known.error = known.last.epoch, None
            return self._codec.decode(known.last.position)

    def set_cursor(self, consumer: str, cursor: str) -> None:
        known = self._of(consumer)
        given = self._codec.encode(cursor)
        with known.lock:
            self._take(consumer, known)
            known.left.is_open = False
            self._raise_error(known)
            self._move(consumer, known, given)
            known.left.is_open = True

    def last_event_of(self, consumer: str) -> LastEvent:
        known = self._of(consumer)
        with known.lock:
            self._take(consumer, known)
            is_open, known.left.is_open = known.left.is_open, False
            known.left, known.taken = LastEvent(is_open=is_open), None
            return known.left

    def _take(self, consumer: str, known: _Cursors) -> None:
        """Save the event that the run left last. Called with the lock held."""
        event = known.left.event
        if event is None or event is known.taken:
            return
        known.taken = event
        try:
            self._move(consumer, known, self._codec.encode(event.id))
        except Exception as e:  # noqa: BLE001  its id may be anybody's code
            known.error, known.left.is_open = e, False  # so that the run comes, and hears of it

    def _move(self, consumer: str, known: _Cursors, given: str) -> None:
        last = known.last
        if known.used is None:
            known.used = last.epoch
        if known.used != last.epoch:
            raise conflict(consumer)
        if moves(consumer, self._codec, last.position, given):
            known.epochs[-1:] = [_Entry(last.epoch, given, self._clock.now_us(), last.reason)]

    @staticmethod
    def _raise_error(known: _Cursors) -> None:
        error, known.error = known.error, None
        if error is not None:
            raise error

    def flush(self) -> None:
        """Raise the error of an event that a run left, and that could not be saved. Nothing else is buffered."""
        for consumer in self._consumers.copy():
            self._flush(consumer)

    def flush_cursor(self, consumer: str) -> None:
        self._flush(consumer)

    def _flush(self, consumer: str) -> None:
        known = self._of(consumer)
        with known.lock:
            self._take(consumer, known)
            self._raise_error(known)

    def close(self) -> None:
        """Do nothing: there is no background work."""

    def find_cursor(self, consumer: str) -> CursorRecord | None:
        """Return the record of *consumer*; None if it never had a cursor."""
        known = self._known(consumer)
        if known is None:
            return None
        with known.lock:
            self._take(consumer, known)
            return self._record(consumer, known.epochs[-1]) if known.epochs else None

    def list_cursors(self) -> list[CursorRecord]:
        newest = (self.find_cursor(consumer) for consumer in sorted(self._consumers.copy()))
        return [record for record in newest if record is not None]

    def cursor_history(self, consumer: str) -> list[CursorRecord]:
        """Return the last cursor of each epoch of *consumer*, the newest epoch first: the audit trail of resets."""
        known = self._known(consumer)
        if known is None:
            return []
        with known.lock:
            self._take(consumer, known)
            return [self._record(consumer, entry) for entry in reversed(known.epochs)]

    def reset_cursor(self, consumer: str, cursor: str, *, reason: str) -> None:
        known = self._of(consumer)
        check_reason(reason)
        start = self._codec.encode(cursor)
        with known.lock:
            self._take(consumer, known)
            known.left.is_open = False
            known.epochs.append(_Entry(known.last.epoch + 1, start, self._clock.now_us(), reason))

    def _known(self, consumer: str) -> _Cursors | None:
        known = self._consumers.get(consumer)
        if known is None:
            check_consumer(consumer)
        return known

    def _of(self, consumer: str) -> _Cursors:
        return self._known(consumer) or self._consumers.setdefault(consumer, _Cursors())

    def _record(self, consumer: str, entry: _Entry) -> CursorRecord:
        cursor, moment = self._codec.decode(entry.position), tu.datetime_of(entry.updated_us)
        return CursorRecord(consumer, cursor, entry.epoch, moment, entry.reason)
