"""``BufferedCursorStore``: saves the cursors of many events with one write, in the background.

If the process dies, the events of at most the last interval are delivered again.
"""

from __future__ import annotations

import logging
import threading
import weakref
from datetime import timedelta

import attrs

from rscylla.abc import CursorAdmin, CursorRecord, CursorStore, LastEvent, fence_name, flush_cursor
from rscylla.clock import Clock, Stop, SystemClock
from rscylla.errors import ConfigError, CursorError, is_resumable
from rscylla.event import Event

from ..checks import admin_of, check_consumer, conflict, find, moves
from .codec import CursorCodec, EventCursorCodec

__all__ = ["BufferedCursorStore"]

_log = logging.getLogger("rscylla.cursorstore")

_JOIN_S = 30.0
"""How long ``close`` waits for a background write in progress. After that, it leaves the daemon thread behind."""


@attrs.define(eq=False)
class _Slot:
    """The buffer of one consumer. ``writing`` is held during a write, so that writes stay in order."""

    writing: threading.Lock = attrs.field(factory=threading.Lock)
    known: str | None = None  # highest position that was set or read; None until read
    pending: str | None = None  # cursor to write
    error: Exception | None = None  # of the last write, until it is raised
    blocked: CursorError | None = None  # why set_cursor fails until the cursor is read again
    last: LastEvent | None = None  # where the run leaves its events
    is_open: bool = False  # whether the last cursor was saved without an error, so that the run may leave the next
    taken: Event | None = None  # the event that was taken from there last

    def may_leave(self, is_open: bool) -> None:
        """Let the run leave later events; or not, so that the next one goes through ``set_cursor``."""
        self.is_open = is_open
        if self.last is not None:
            self.last.is_open = is_open


class BufferedCursorStore:
    """Buffers ``set_cursor`` and writes to *inner* every *interval*, in ``flush`` and in ``close``. Thread-safe.

    Only the last cursor of each consumer is written. A failed write is retried at the next interval. Its error is kept
    and raised once, by the consumer's next ``set_cursor`` (after it has buffered) or by ``flush``; the cursors of other
    consumers are written regardless. After ``CursorConflict`` and ``CursorRegression``, which a retry cannot fix, the
    buffered cursor is dropped, and the consumer must read its cursor again. ``set_cursor`` does not wait for a write
    (only its first call reads), and rejects a cursor that is too low at once. A run leaves its events where
    ``last_event_of`` says, so of them only those that are taken for a write are compared. ``get_cursor`` writes the
    buffered cursor of its consumer before it reads, and raises the error if that fails: a cursor that was buffered
    before a reset, or before the lease was lost and acquired again, is no longer valid.

    Args:
        inner: Where cursors go. It is closed together with this store.
        interval: Time between background writes, by *clock*.
        codec: The kind of the cursors; must be that of *inner*.
        background: Whether a thread writes. It starts with the first ``set_cursor`` and ends with ``close`` or when
            the store is no longer referenced. Without it, a ``set_cursor`` call *interval* after the last write
            flushes before it returns.
    """

    def __init__(
        self,
        inner: CursorStore,
        *,
        interval: timedelta = timedelta(seconds=5),
        codec: CursorCodec | None = None,
        background: bool = True,
        clock: Clock | None = None,
    ) -> None:
        if interval <= timedelta():
            raise ConfigError("the interval of a buffered cursor store must be greater than zero")
        self._inner = inner
        self._interval = interval.total_seconds()
        self._codec = codec or EventCursorCodec()
        self._background = background
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # guards the slots' fields; never held over a call of the inner store
        self._slots: dict[str, _Slot] = {}
        self._flushed = self._clock.monotonic()
        self._thread: threading.Thread | None = None
        self._stop = Stop()
        weakref.finalize(self, self._stop.set)

    def get_cursor(self, consumer: str) -> str:
        slot = self._slot(consumer)
        with slot.writing:
            # The buffered cursor may be from before a reset, or from before the lease was lost and acquired again. Only
            # the inner store knows, so it gets the cursor, and accepts or refuses it, before it is read.
            if error := self._write(consumer, slot):
                slot.error = None  # raised by this call
                raise error
            known = self._load(consumer, slot)
        return self._codec.decode(known)

    def set_cursor(self, consumer: str, cursor: str) -> None:
        given = self._codec.encode(cursor)
        slot = self._slot(consumer)
        self._require_usable(slot)
        if slot.known is None:
            with slot.writing:
                if slot.known is None:
                    self._load(consumer, slot)
        with self._lock:
            self._take_last(consumer, slot)
            self._require_usable(slot)
            self._buffer(consumer, slot, cursor, given)
            slot.may_leave(True)
            self._start_thread()
            error, slot.error = slot.error, None
        if error:
            raise error
        if not self._background:
            self._flush_if_due(consumer)

    def last_event_of(self, consumer: str) -> LastEvent:
        slot = self._slot(consumer)
        if not self._background:  # each call may have to write
            return LastEvent()
        with self._lock:
            self._take_last(consumer, slot)
            if slot.last is not None:
                slot.last.is_open = False
            slot.last, slot.taken = LastEvent(), None
            slot.may_leave(slot.is_open)
            return slot.last

    def _buffer(self, consumer: str, slot: _Slot, cursor: str, given: str) -> None:
        """Buffer *cursor*, whose position is *given*, unless it is lower, or the same. Called with the lock held."""
        if moves(consumer, self._codec, slot.known or "", given):
            slot.known, slot.pending = given, cursor

    def _take_last(self, consumer: str, slot: _Slot) -> None:
        """Buffer the event that the run left last, as if it were set now. Called with the lock held."""
        event = None if slot.last is None else slot.last.event
        if event is None or event is slot.taken:
            return
        slot.taken = event
        if slot.blocked:
            return
        try:
            cursor = event.id
            self._buffer(consumer, slot, cursor, self._codec.encode(cursor))
        except Exception as e:  # noqa: BLE001  its id may be anybody's code
            slot.error = e
            slot.may_leave(False)  # raised by the next set_cursor

    def _flush_if_due(self, consumer: str) -> None:
        """Write all buffered cursors if it is time. Raises the error of *consumer*; others get theirs by themselves."""
        if self._clock.monotonic() - self._flushed >= self._interval:
            self._write_all()
            self._inner.flush()
            self._raise_error_of(self._slot(consumer))

    def flush(self) -> None:
        self._write_all()
        self._inner.flush()
        with self._lock:
            failed = [(name, slot.error) for name, slot in self._slots.items() if slot.error]
            for slot in self._slots.values():
                slot.error = None
        if not failed:
            return
        # An error that a retry cannot fix comes first, so that the caller does not retry because of another one.
        failed.sort(key=lambda pair: is_resumable(pair[1]))
        first = failed[0][1]
        for name, error in failed[1:]:
            first.add_note(f"also not saved: the cursor of consumer {name!r} ({type(error).__name__})")
        raise first

    def flush_cursor(self, consumer: str) -> None:
        slot = self._slot(consumer)
        with slot.writing:
            self._write(consumer, slot)
        flush_cursor(self._inner, consumer)
        self._raise_error_of(slot)

    def _raise_error_of(self, slot: _Slot) -> None:
        with self._lock:
            error, slot.error = slot.error, None
        if error:
            raise error

    def fence_name(self, consumer: str) -> str | None:
        return fence_name(self._inner, consumer)

    def unsaved_s(self, consumer: str) -> float:
        """Return for how many seconds the cursor of *consumer* is overdue to be written; 0 if it is not."""
        # The thread writes the cursors of all consumers, one after the other, and may hang in a write.
        hangs = self._thread is not None and consumer in self._slots
        return max(0.0, self._clock.monotonic() - self._flushed - self._interval) if hangs else 0.0

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            closed = self._stop.is_set()
            self._stop.set()
            for slot in self._slots.values():
                slot.may_leave(False)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)
        if closed:
            return
        try:
            self.flush()
        finally:
            self._inner.close()

    def find_cursor(self, consumer: str) -> CursorRecord | None:
        """Return the saved or buffered record of *consumer*; None if it never had a cursor."""
        slot = self._slot(consumer)
        return self._overlaid(consumer, slot, find(self._inner, consumer))

    def list_cursors(self) -> list[CursorRecord]:
        found = {record.consumer: record for record in admin_of(self._inner).list_cursors()}
        with self._lock:
            slots = dict(self._slots)
        overlaid = (self._overlaid(name, slots.get(name), found.get(name)) for name in sorted({*found, *slots}))
        return [record for record in overlaid if record]

    def cursor_history(self, consumer: str) -> list[CursorRecord]:
        """Return the saved cursors of all epochs of *consumer*, the newest epoch first."""
        return list(admin_of(self._inner).cursor_history(consumer))

    def reset_cursor(self, consumer: str, cursor: str, *, reason: str) -> None:
        admin: CursorAdmin = admin_of(self._inner)
        self._codec.encode(cursor)
        slot = self._slot(consumer)
        with slot.writing:
            # Written first, so that the history shows how far the consumer had come before the reset.
            self._write(consumer, slot)
            admin.reset_cursor(consumer, cursor, reason=reason)
            with self._lock:
                if slot.known is not None:
                    slot.blocked = conflict(consumer)
                slot.pending = slot.error = None
                slot.taken = None if slot.last is None else slot.last.event
                slot.known = None
                slot.may_leave(False)

    def _slot(self, consumer: str) -> _Slot:
        check_consumer(consumer)
        with self._lock:
            return self._slots.setdefault(consumer, _Slot())

    def _load(self, consumer: str, slot: _Slot) -> str:
        """Read from the inner store and return the highest position known. Called with ``slot.writing`` held."""
        position = self._codec.encode(self._inner.get_cursor(consumer))
        with self._lock:
            slot.blocked = None
            if slot.pending is None or slot.known is None:
                slot.known = position
                slot.may_leave(False)
                slot.error = None  # of a dropped cursor: reading again is what it asks for
            return slot.known

    def write_quietly(self) -> None:
        """Write all buffered cursors; log errors, and keep them for the consumers. For the background thread."""
        self._write_all()
        try:
            self._inner.flush()
        except Exception as e:  # noqa: BLE001  the next flush() asks again and raises
            _log.warning("flushing cursors failed: %s", type(e).__name__)

    def _write_all(self) -> None:
        with self._lock:
            slots = list(self._slots.items())
        # Before the writes: the next interval starts with them, however long they take.
        self._flushed = self._clock.monotonic()
        for consumer, slot in slots:
            with slot.writing:
                self._write(consumer, slot)

    def _write(self, consumer: str, slot: _Slot) -> Exception | None:
        """Write the pending cursor. Called with ``slot.writing`` held.

        An error is kept for the consumer. It is also returned if the cursor is still pending.
        """
        with self._lock:
            earlier = slot.error
            self._take_last(consumer, slot)
            cursor = slot.pending
        if cursor is None:
            return None
        try:
            self._inner.set_cursor(consumer, cursor)
        except CursorError as e:
            with self._lock:
                # A retry would be refused again, so the consumer must read its cursor.
                slot.pending = None
                slot.known = None
                slot.may_leave(False)
                slot.error = slot.blocked = e
        except Exception as e:  # noqa: BLE001  kept for the consumer, whose next call raises it
            _log.warning("the cursor of consumer %r was not saved and stays buffered: %s", consumer, type(e).__name__)
            with self._lock:
                slot.error = e
                slot.may_leave(False)
            return e
        else:
            with self._lock:
                if slot.error is earlier and not isinstance(earlier, CursorError):  # of a write that failed
                    slot.error = None
                if slot.pending is cursor:  # otherwise, a later one was buffered during the write
                    slot.pending = None
        return None

    def _overlaid(self, consumer: str, slot: _Slot | None, record: CursorRecord | None) -> CursorRecord | None:
        if slot is None:
            return record
        with self._lock:
            self._take_last(consumer, slot)
            known = None if slot.pending is None else slot.known
        if known is None:
            return record
        return attrs.evolve(record or CursorRecord(consumer, ""), cursor=self._codec.decode(known))

    def _require_usable(self, slot: _Slot) -> None:
        if self._stop.is_set():
            raise ConfigError("the buffered cursor store is closed; create a new one")
        if slot.blocked:
            slot.error = None  # raised by this call
            raise slot.blocked.with_traceback(None)

    def _start_thread(self) -> None:
        if self._background and self._thread is None:
            args = weakref.ref(self), self._stop, self._clock, self._interval
            self._thread = threading.Thread(target=_write_now_and_then, args=args, name="rscylla-cursors", daemon=True)
            self._thread.start()


def _write_now_and_then(ref: weakref.ref[BufferedCursorStore], stop: Stop, clock: Clock, interval: float) -> None:
    """Body of the background thread. It holds no reference to the store while it waits, so that the store can die."""
    while not clock.wait(stop, interval):
        store = ref()
        if store is None:
            return
        store.write_quietly()
        del store
