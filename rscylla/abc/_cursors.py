"""Stores of cursors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Protocol, cast, runtime_checkable

import attrs

from .._tokens import Slice, slice_named
from ..event import Event

__all__ = [
    "BufferingCursorStore",
    "CoalescingCursorStore",
    "CursorAdmin",
    "CursorRecord",
    "CursorStore",
    "EventSaver",
    "FencedCursorStore",
    "FlushableCursorStore",
    "LastEvent",
    "fence_name",
    "flush_cursor",
    "last_event_of",
    "unsaved_s",
]


class CursorStore(Protocol):
    """Keeps one cursor per consumer. All methods may be called from several threads.

    An error of ``get_cursor`` or ``set_cursor`` ends the run; events after the saved cursor are delivered again. All
    methods also raise the errors of the database.
    """

    def get_cursor(self, consumer: str) -> str:
        """Return the consumer's cursor, including buffered writes; "" if there is none.

        Called once at the start of each run, before the stream is opened. From then on, ``set_cursor`` saves to the
        epoch of this cursor; after a ``CursorConflict`` or ``LeaseLost``, the next run calls it again.

        Raises:
            ConfigError: *consumer* is empty.
            LeaseLost: the store works under a lease that is not held.
        """

    def set_cursor(self, consumer: str, cursor: str) -> None:
        """Save *cursor*. Called after each consumed event; may buffer until ``flush``. Saving the same one is a no-op.

        A store that buffers may raise the errors of an earlier cursor here.

        Raises:
            CursorRegression: *cursor* is lower than the saved one, which stays.
            CursorConflict: the cursor was reset since ``get_cursor`` returned it; nothing is saved until it is read
                again.
            LeaseLost: the store works under a lease that is not held, or was lost since ``get_cursor``.
            InvalidCursor: *cursor* is not a cursor; the saved one stays.
            ConfigError: *consumer* is empty, or the store is closed.
        """

    def flush(self) -> None:
        """Make all cursors durable. A cursor that cannot be written stays buffered; the others are still written.

        Called at the end of each run, also after an error, from a thread of its own, for at most ``flush_timeout`` of
        the ``Spec``; a ``FlushableCursorStore`` only gets ``flush_cursor``. Safe to repeat. If it raises, the run does
        not count as complete: it ends with a ``RunError`` instead of ``HeadReached`` or ``Stopped``. If the run failed
        before, the error is added to the first as a note.

        Raises:
            CursorError: as for ``set_cursor``; the refused cursor is dropped.
        """

    def close(self) -> None:
        """Flush and stop background work. The session belongs to the caller and stays open. Safe to repeat.

        Called by the owner of the store after its last run; ``run`` does not call it. Background work also stops if the
        flush raises, and cursors that were not saved are then lost with the store.
        """


@runtime_checkable
class FlushableCursorStore(CursorStore, Protocol):
    """A ``CursorStore`` that can make the cursor of one consumer durable by itself.

    A store that buffers should be one: with it, the end of a run neither writes the cursors of other consumers nor
    fails because of them.
    """

    def flush_cursor(self, consumer: str) -> None:
        """Make the cursor of *consumer* durable. ``run`` calls it instead of ``flush``; it raises what that raises.

        A subclass that overrides ``flush``, and not this, gets its ``flush`` called.
        """


@runtime_checkable
class FencedCursorStore(CursorStore, Protocol):
    """A ``CursorStore`` that asks a fence before it reads or saves a cursor, if it was given one."""

    def fence_name(self, consumer: str) -> str | None:
        """Return the name of the fence of *consumer*'s cursor; "" if it has none, None if that is not known.

        Sends no query. A ``Service`` with a group calls it before it starts a lane.

        Raises:
            ConfigError: the fences of the store are for other consumers.
        """


@attrs.define(eq=False)
class LastEvent:
    """Where a run leaves the last event that its consumer is done with, for the store to find.

    ``event`` is set by the run, and ``is_open`` by the store. Each is one assignment, which needs no lock.
    """

    event: Event | None = None
    is_open: bool = False


@runtime_checkable
class CoalescingCursorStore(CursorStore, Protocol):
    """A ``CursorStore`` that keeps cursors in memory, or writes few of those that it gets.

    Most stores need not be one: rendering the id of an event, and parsing it to compare it with the saved cursor, cost
    several times what leaving the event costs.
    """

    def last_event_of(self, consumer: str) -> LastEvent:
        """Return where to leave the last event of *consumer*. Called by a run after it saved its first cursor.

        While it is open, the run leaves each consumed event there, in the order of their cursors, instead of calling
        ``set_cursor``. The store takes the event whenever it writes, or is asked for the cursor, and saves its id as
        ``set_cursor`` would, maybe in another thread. It closes the place when the run must know of an error, which the
        next ``set_cursor`` then raises. A subclass that overrides ``set_cursor``, and not this, gets each cursor.
        """


@runtime_checkable
class BufferingCursorStore(CursorStore, Protocol):
    """A ``CursorStore`` that writes later, and tells if it does not."""

    def unsaved_s(self, consumer: str) -> float:
        """Return for how long the cursor of *consumer* should have been written by now, in seconds; 0 if it is not due.

        Called by health checks, from any thread; sends no query, and does not wait for a write.
        """


class EventSaver:
    """Saves the cursors after events of *consumer* in *store*, as a run does. Used by one thread at a time."""

    def __init__(self, store: CursorStore, consumer: str) -> None:
        self.last = LastEvent()
        """Where to leave the next event; if it is closed, call this object with the event."""
        self._store = store
        self._consumer = consumer
        self._asked = False

    def __call__(self, event: Event) -> None:
        """Save the cursor that continues right after *event*. Raises the errors of ``set_cursor``."""
        if self.last.is_open:
            self.last.event = event
            return
        self._store.set_cursor(self._consumer, event.id)
        if not self._asked:
            self.last, self._asked = last_event_of(self._store, self._consumer), True


def flush_cursor(store: CursorStore, consumer: str) -> None:
    """Make the cursor of *consumer* durable, and those of others only if *store* cannot do otherwise."""
    flush = _shortcut(store, "flush_cursor", "flush")
    store.flush() if flush is None else flush(store, consumer)


def fence_name(store: CursorStore, consumer: str) -> str | None:
    """Return what ``FencedCursorStore.fence_name`` returns; None if *store* is none."""
    return store.fence_name(consumer) if isinstance(store, FencedCursorStore) else None


def unsaved_s(store: CursorStore, consumer: str) -> float:
    """Return what ``BufferingCursorStore.unsaved_s`` returns; 0 if *store* is none."""
    return store.unsaved_s(consumer) if isinstance(store, BufferingCursorStore) else 0.0


def last_event_of(store: CursorStore, consumer: str) -> LastEvent:
    """Return where to leave the last event of *consumer* for *store*; closed for ever if the store has no place."""
    found = _shortcut(store, "last_event_of", "set_cursor")
    return LastEvent() if found is None else cast("LastEvent", found(store, consumer))


def _shortcut(store: CursorStore, name: str, whole: str) -> Callable[..., Any] | None:
    """Return the method *name* of a store, which spares the calls of *whole*; None if it has none.

    A subclass, or an object, that overrides *whole* alone gets its calls. The method is of the class: a store around
    another may pass on all methods that it lacks, and still gets its own calls.
    """
    kind = type(store)
    first = next((each for each in kind.__mro__ if name in vars(each) or whole in vars(each)), object)
    is_own = name in vars(first) and whole not in getattr(store, "__dict__", ())
    return getattr(kind, name) if is_own else None


@attrs.frozen
class CursorRecord:
    """A saved cursor as ``CursorAdmin`` returns it: the last one of an epoch of a consumer.

    ``updated_at`` is aware UTC, or None if not known. ``reason`` says why the epoch was opened, "" for the first one.
    With ``takeover``, it names the new lease holder, which continued at the previous cursor; otherwise, it is the
    reason of a reset. ``lease`` is the name of the fence under which the cursor was last read for work, "" if none: of
    a lease, or of a slice of a group.
    """

    consumer: str
    cursor: str
    epoch: int = 0
    updated_at: datetime | None = None
    reason: str = ""
    takeover: bool = False
    lease: str = ""

    def slice_of(self, consumer: str) -> tuple[int, int] | None:
        """Return the slice of *consumer*, ``(m, n)``, whose cursor it is; ``(0, 1)`` if it is its own; else None.

        The cursors of fast lanes are those of no slice.
        """
        part = Slice.named(self.consumer, consumer)
        return None if part is None else (part.index, part.count)

    def group_of(self, consumer: str) -> str | None:
        """Return the group, or the lease, under which the cursor of *consumer*, or of a slice of it, was read."""
        part = Slice.named(self.consumer, consumer)
        return part.whole(self.lease) if part is not None and self.lease else None

    def member_of(self, group: str, count: int) -> tuple[str, int] | None:
        """Return the consumer, and its slice of *count*, if the cursor was read under that slice of *group*."""
        part = slice_named(self.lease, {count}) if self.lease else None
        if part is None or part.name(group) != self.lease:
            return None
        consumer = part.whole(self.consumer)
        return None if consumer is None else (consumer, part.index)


class CursorAdmin(Protocol):
    """Operations on cursors for operators, not for consumers. Thread-safe; they need no lease.

    Each method raises the errors of the database. Buffered cursors count as saved.
    """

    def find_cursor(self, consumer: str) -> CursorRecord | None:
        """Return the record of *consumer*; None if it never had a cursor. A cursor reset to "" has a record.

        Raises:
            ConfigError: *consumer* is empty.
        """

    def list_cursors(self) -> Iterable[CursorRecord]:
        """Return the records of all consumers, as ``find_cursor`` returns them, sorted by consumer."""

    def cursor_history(self, consumer: str) -> Iterable[CursorRecord]:
        """Return the last cursor of each epoch of *consumer*, the newest first: the audit trail of resets.

        Empty for a consumer without a cursor. A store may delete old epochs, and may leave out buffered cursors.

        Raises:
            ConfigError: *consumer* is empty.
        """

    def reset_cursor(self, consumer: str, cursor: str, *, reason: str) -> None:
        """Set *cursor* whatever the saved cursor is, even backward or to "", and save *reason* for the audit trail.

        A reset opens a new epoch. A process that read the cursor earlier gets ``CursorConflict`` from ``set_cursor``
        until it reads the cursor again; this process gets it from the next call. Cursors of the old epoch that are
        saved later have no effect.

        Raises:
            ConfigError: *consumer* is empty, or *reason* is blank.
            InvalidCursor: *cursor* is not a cursor.
        """
