"""The contracts between the parts of rscylla, as Protocols.

Each method documents when and from which threads it is called, what it returns for nothing, and what an error does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import attrs

from ._groups import NOBODY, GroupMember, GroupSlice, GroupView
from ._letters import DEAD, DeadLetter
from .clock import Clock, Stop
from .event import ChangeLike, Event, Progress
from .options import StreamOption

__all__ = [
    "NOBODY",
    "BulkConsumer",
    "BulkStreamClient",
    "ChangeLike",
    "CoalescingCursorStore",
    "Committing",
    "Consumer",
    "CursorAdmin",
    "CursorRecord",
    "CursorStore",
    "DeadLetterAdmin",
    "DeadLetters",
    "Fate",
    "Fence",
    "Fencing",
    "FlushableCursorStore",
    "GroupMember",
    "GroupSlice",
    "GroupView",
    "IterableStreamClient",
    "LastEvent",
    "LazyCursorStore",
    "Lease",
    "Membership",
    "Message",
    "Partitioned",
    "PublishDone",
    "Publisher",
    "Resetter",
    "Run",
    "Stopper",
    "StreamClient",
    "StreamFunc",
    "StreamStatus",
    "Window",
    "WindowConsumer",
    "WindowedStreamClient",
    "bulk_of",
    "flush_cursor",
    "last_event_of",
    "receiver_of",
    "saver_of",
]


class StreamClient(Protocol):
    """An open stream. Used by one thread at a time; ``close`` may come from any."""

    def recv(self) -> Event | Progress:
        """Return the next event, or a ``Progress``, which moves the cursor without an event. Blocks until there is one.

        Raises:
            HeadReached: every event up to the requested end was delivered.
            Stopped: the stop signal was set.
            RscyllaError: any other error. The stream cannot be used any more: further calls raise the same error.
        """

    def status(self) -> StreamStatus:
        """Return what the stream reports now. Called by scrapes and health checks, from any thread; must not block."""

    def close(self) -> None:
        """Release threads and queries. Called once at the end of each run, also after an error; safe to repeat."""


@runtime_checkable
class IterableStreamClient(StreamClient, Protocol):
    """A ``StreamClient`` that can also be iterated over, which costs less than a call for each event."""

    def __iter__(self) -> Iterator[Event | Progress]:
        """Return an iterator over what ``recv`` would return, which raises what ``recv`` would raise and never ends.

        Called at most once at the start of each run, which then does not call ``recv``. Used by the thread that would
        call it.
        """


class BulkStreamClient(StreamClient, Protocol):
    """A ``StreamClient`` that also returns several events at once, as far as they are there."""

    def recv_many(self, limit: int, /) -> Sequence[Event] | Progress:
        """Return at least one event and at most *limit*, or a ``Progress``: what so many calls of ``recv`` return.

        Raises what ``recv`` would raise, and waits only where the first of those calls would.
        """


class BulkConsumer(Protocol):
    """A ``Committing`` consumer to which several events can be passed at once, instead of one by one to ``consume``."""

    def room(self) -> int:
        """Return how many events may be passed next, at least one; 0 if they must be passed one by one.

        Called by the thread of the run before each call of ``consume_many``. Once it is 0, it stays 0 for the run.
        """

    def consume_many(self, events: Sequence[Event], run: Run, /) -> None:
        """Do as ``consume`` for each of *events*, of which there are no more than ``room`` returned."""


class Window(Protocol):
    """The events of one window of a stream, in order: at least one. Used by one thread at a time.

    Their number is limited by the ``Limits`` of the stream. Parts of an event are decoded when they are read.
    """

    @property
    def cursor(self) -> str:
        """The cursor that continues right after the window."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Event]: ...
    def __getitem__(self, index: int, /) -> Event: ...

    def to_arrow(self, mode: Literal["changes", "log", "events"] = "changes") -> Any:
        """Return the window as a ``pyarrow.Table``; docs/spark.md has the columns of each mode.

        Raises:
            ConfigError: pyarrow or numpy is not installed, or two columns would have the same name.
        """


@runtime_checkable
class WindowedStreamClient(StreamClient, Protocol):
    """A ``StreamClient`` that also returns whole windows."""

    def recv_window(self) -> Window | Progress:
        """Return the events up to the end of the next window that has any, or a ``Progress``.

        Called instead of ``recv`` for consumers of windows, and raises the same. The next call means that the consumer
        is done with the window, and that its cursor was saved.
        """


@runtime_checkable
class WindowConsumer(Protocol):
    """A ``Consumer`` that handles whole windows. Must be idempotent."""

    def consume_window(self, window: Window, run: Run, /) -> None:
        """Handle the events of one window; called instead of ``consume``, by one thread, in order.

        The cursor after the window is saved when this returns. An error ends *run*, and the window is delivered again.
        """


def receiver_of(client: StreamClient) -> Callable[[], Event | Progress]:
    """Return the function that returns the next item of *client*: of its iterator if it has one, else ``recv``.

    A ``recv`` that a subclass or an object overrides is not bypassed.
    """
    if _overriding(client, "__iter__", "recv"):
        return iter(cast("IterableStreamClient", client)).__next__
    return client.recv


def bulk_of(client: StreamClient, consumer: Consumer) -> tuple[BulkStreamClient, BulkConsumer] | None:
    """Return both if several events can be passed from one to the other at once; otherwise None.

    A ``recv`` or ``consume`` that a subclass or an object overrides is not bypassed.
    """
    if not (_overriding(client, "recv_many", "recv") and _overriding(consumer, "consume_many", "consume")):
        return None
    return cast("BulkStreamClient", client), cast("BulkConsumer", consumer)


@attrs.frozen
class StreamStatus:
    """What an open stream reports about itself and its source. Values that it does not know keep their defaults."""

    watermark_us: int = 0
    """Time up to which everything was delivered, microseconds since the epoch; 0 if it is not known yet."""
    incomplete_records: int = 0
    """How many records were read with rows missing, usually because the rows were expiring. Never decreases."""
    expired_gaps: int = 0
    """How often the stream skipped an expired gap instead of raising ``CursorExpired``. Never decreases."""
    poll_age_s: float | None = None
    """How long the source has left a query unanswered, in seconds; 0 while the stream waits for its consumer."""
    log_ttl_s: int | None = None
    """How long the source keeps changes, in seconds; 0: forever."""
    clock_skew_us: int | None = None
    """Time of the source's clock that is furthest off, minus time of the client's clock, in microseconds."""
    generation_us: int | None = None
    """Start of the generation of CDC streams that the watermark is in, in microseconds since the epoch."""


class StreamFunc(Protocol):
    """Opens streams.

    A function whose streams apply ``StreamLag`` themselves has a true attribute ``supports_lag``. If what it reads has
    a name, such as ``shop.orders``, its attribute ``source`` is that name, for logs and traces.
    """

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> StreamClient:
        """Open a stream that continues right after the cursor *after*; "" starts at the oldest event.

        Called once at the start of each run. *stop* ends blocking calls of the client with ``Stopped``.
        """


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
        """Make the cursor of *consumer* durable. ``run`` calls it instead of ``flush``; it raises what that raises."""


@runtime_checkable
class LazyCursorStore(CursorStore, Protocol):
    """A ``CursorStore`` that also takes events, and renders the id of one only if it needs the text.

    Most stores need not be one. It pays for a store that keeps cursors in memory, or writes one for many events:
    rendering an id, and parsing it to compare it with the saved cursor, cost several times what a call costs.
    """

    def set_cursor_after(self, consumer: str, event: Event) -> None:
        """Save the cursor that continues right after *event*: the same as ``set_cursor(consumer, event.id)``.

        ``run`` calls it instead of ``set_cursor`` after each consumed event; ``set_cursor`` still gets cursors without
        an event. It raises what ``set_cursor`` raises. The store may keep the event, which is immutable, and render its
        id later in another thread.
        """


@attrs.define(eq=False)
class LastEvent:
    """Where a run leaves the last event that its consumer is done with, for the store to find.

    ``event`` is set by the run, and ``is_open`` by the store. Each is one assignment, which needs no lock.
    """

    event: Event | None = None
    is_open: bool = False


@runtime_checkable
class CoalescingCursorStore(LazyCursorStore, Protocol):
    """A ``LazyCursorStore`` that writes few of the cursors that it gets, and so need not be called for each event."""

    def last_event_of(self, consumer: str) -> LastEvent:
        """Return where to leave the last event of *consumer*. Called by a run after it saved its first cursor.

        While it is open, the run leaves each consumed event there, in the order of their cursors, instead of calling
        ``set_cursor_after``. The store takes the event whenever it writes, or is asked for the cursor. It closes the
        place when the run must know of an error, which the next ``set_cursor_after`` then raises.
        """


def saver_of(store: CursorStore) -> Callable[[str, Event], None]:
    """Return the function that saves the cursor after an event in *store*: its own, or ``set_cursor`` with the id.

    A ``set_cursor`` that a subclass or an object overrides is not bypassed.
    """
    if _overriding(store, "set_cursor_after", "set_cursor"):
        return cast("LazyCursorStore", store).set_cursor_after
    return lambda consumer, event: store.set_cursor(consumer, event.id)


def flush_cursor(store: CursorStore, consumer: str) -> None:
    """Make the cursor of *consumer* durable, and those of others only if *store* cannot do otherwise.

    A ``flush`` that a subclass or an object overrides is not bypassed.
    """
    if _overriding(store, "flush_cursor", "flush"):
        cast("FlushableCursorStore", store).flush_cursor(consumer)
    else:
        store.flush()


def last_event_of(store: CursorStore, consumer: str) -> LastEvent:
    """Return where a run leaves the last event of *consumer* for *store*; closed for ever if the store has no place.

    A ``set_cursor`` or ``set_cursor_after`` that a subclass or an object overrides is not bypassed.
    """
    if all(_overriding(store, "last_event_of", method) for method in ("set_cursor", "set_cursor_after")):
        return cast("CoalescingCursorStore", store).last_event_of(consumer)
    return LastEvent()


def _overriding(owner: object, optional: str, method: str) -> bool:
    """Return whether *owner* has the method *optional*, and does not override *method* below it."""
    if method in getattr(owner, "__dict__", ()):
        return False
    for kind in type(owner).__mro__:
        if optional in vars(kind):
            return True
        if method in vars(kind):
            break
    return False


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


class Fence(Protocol):
    """What a cursor store asks before it reads or saves a cursor. A ``Lease`` is one, for all cursors. Thread-safe."""

    @property
    def name(self) -> str:
        """What the epochs belong to: only fences of one name are compared."""

    @property
    def owner(self) -> str:
        """The name of this owner, for people."""

    @property
    def epoch(self) -> int:
        """The epoch of this owner, 0 before the first. Each new holder gets a higher one."""

    def held(self) -> bool:
        """Return whether this owner may act now. Sends no query; turns false before another owner can begin."""


@runtime_checkable
class Fencing(Protocol):
    """Gives each consumer a fence of its own. A ``Membership`` does, by the slice in its name. Thread-safe."""

    def fence_of(self, consumer: str) -> Fence:
        """Return the fence of *consumer*, always the same while the process lives.

        Raises:
            ConfigError: the name is not that of a slice of the group.
        """


class Membership(Fencing, Protocol):
    """The membership of a process in a group that shares slices. Thread-safe. One object is one process.

    It decides nothing: the process joins, renews every ``renew_every`` seconds, looks every ``look_every`` seconds, and
    takes and gives slices as it finds right. Conditional writes see to it that each slice has one holder, and that a
    process whose membership has ended takes nothing and gives nothing. Who holds a slice may act on it while the
    ``held()`` of its fence is true.

    All methods but ``held`` and ``fence_of`` send queries, and raise ``SourceError`` if the store does not answer; the
    next ``look`` then finds out whether the call had its effect. Until then, slices that the call would have given are
    not held.
    """

    @property
    def name(self) -> str:
        """The name of the group."""

    @property
    def owner(self) -> str:
        """The name of this process, for people."""

    @property
    def token(self) -> str:
        """What the group knows this member by; ``NOBODY`` once its time is over. Each ``join`` makes a new one.

        Sends no query.
        """

    @property
    def renew_every(self) -> float:
        """Seconds from one ``renew`` to the next; short enough that some renewals may fail."""

    @property
    def look_every(self) -> float:
        """Seconds from one ``look`` to the next."""

    def join(self) -> None:
        """Become a member, without slices. The first member stores its number of slices, and the others use that.

        Raises:
            ConfigError: the group is new, and this process was given no number of slices.
            LeaseLost: the answer arrived after the time of the membership had ended; join again.
            SourceError: the store did not answer.
        """

    def renew(self) -> None:
        """Extend the membership: its full duration starts again.

        Raises:
            LeaseLost: it had ended; nothing is held, and the process must join again.
            SourceError: the store did not answer; the membership lasts until it expires, so try again.
        """

    def drain(self) -> None:
        """Tell the others that this member is about to leave: views show it as one that drains, and it gets no slices.

        Raises:
            SourceError: the store did not answer; slices may come until this member has left.
        """

    def leave(self) -> None:
        """End the membership, so that others can take at once what this member has not given. Nothing is held then."""

    def look(self) -> GroupView:
        """Return the group, and begin to hold the slices that other members gave to this one.

        Slices whose hand-over failed are held again, in a new epoch.
        Slices that the view shows in the hands of others are no longer held.
        """

    def take(self, view: GroupView, indexes: Collection[int]) -> frozenset[int]:
        """Take slices that *view* shows as free, or with a holder that is not there; return those that are held now.

        Raises:
            LeaseLost: the membership has ended.
            SourceError: the store did not answer.
        """

    def give(self, index: int, to: str) -> bool:
        """Hand slice *index* to the member *to*, or to ``NOBODY``; return whether it was still this member's to give.

        The work on the slice must have ended, with its cursors saved: from the call on, it is not held.

        Raises:
            LeaseLost: the membership has ended.
            SourceError: the store did not answer.
        """

    def held(self) -> frozenset[int]:
        """Return the slices that this process may work on now. Sends no query."""


class Lease(Fence, Protocol):
    """Permission to work under a name, for one owner at a time, until it expires. Thread-safe.

    One object is one owner. It does not renew itself: the owner that acquired it calls ``renew`` every
    ``renew_every`` seconds, and stops working when ``held`` is false.
    """

    @property
    def name(self) -> str:
        """The name of the lease."""

    @property
    def owner(self) -> str:
        """The name of this owner, for people."""

    @property
    def epoch(self) -> int:
        """Fencing epoch of this owner's last acquisition, 0 before the first. Each new holder gets a higher one."""

    @property
    def renew_every(self) -> float:
        """Seconds from one ``renew`` to the next; short enough that some renewals may fail."""

    def held(self) -> bool:
        """Return whether this owner may act now. Sends no query; turns false before another owner can acquire."""

    def try_acquire(self) -> bool:
        """Acquire the lease if it is free or expired, with a new epoch; return whether this owner holds it now.

        Raises:
            SourceError: the store did not answer. A later call finds out the result of this one.
        """

    def acquire(self, stop: Stop | None = None) -> int:
        """Stand by until the lease is acquired, and return its epoch. Temporary errors are retried.

        Raises:
            Stopped: *stop* was set first.
            RscyllaError: an error that a retry cannot fix.
        """

    def renew(self) -> None:
        """Extend the lease: its full duration starts again. Called by its holder.

        Raises:
            LeaseLost: the lease is no longer held, and must be acquired again.
            SourceError: the store did not answer; the lease is held until it expires, so try again.
        """

    def release(self) -> None:
        """Release the lease if it is held, so that others can acquire it at once. This owner no longer holds it.

        Raises:
            SourceError: the store did not answer; the lease expires by itself.
        """


class Fate(Protocol):
    """Raises ``FateError`` now and then, to expose code that is not idempotent."""

    def tempt(self, point: str = "") -> None:
        """Maybe raise ``FateError``. *point* names the call for the message, and for a probability of its own."""


class Run(Fate, Protocol):
    """One run of a consumer, which receives it with each event. It is also the ``Fate`` of the run. Thread-safe.

    A consumer uses it during the run to wait, to notice a stop, and, if it finishes events later, to commit them and
    to report failures.
    """

    @property
    def consumer(self) -> str:
        """The name of the spec's consumer."""

    @property
    def source(self) -> str:
        """What the stream reads, such as ``shop.orders``; "" if it does not say."""

    @property
    def event(self) -> Event | None:
        """The event that is being handled; None between events."""

    @property
    def stop(self) -> Stop:
        """Set when the run must end, for any reason. A consumer that waits for something else must also watch this."""

    @property
    def clock(self) -> Clock:
        """The clock of the run."""

    def commit(self, cursor: str | Event) -> None:
        """Save *cursor*; an event stands for the cursor right after it. Raises the errors of the store.

        Call it in cursor order, one at a time. With an event, the store renders the id only if it needs the text.
        """

    def fail(self, error: BaseException, *, event: Event | None = None, stage: str = "consume") -> None:
        """End the run with *error*, at once, even while it waits for events. The first error wins."""

    def handling(self, event: Event) -> AbstractContextManager[Run]:
        """Return a context manager for a thread of the consumer that handles *event*. It yields the run to pass on.

        Inside it, logs name the event, and health checks notice if the thread hangs.
        """

    def waiting(self, why: str = "") -> AbstractContextManager[None]:
        """Return a context manager for a deliberate wait. Health checks do not report it as a hang; they show *why*."""

    def pause(self, seconds: float, why: str = "") -> None:
        """Wait *seconds* by the run's clock; health checks show *why*.

        Raises:
            Stopped: the run must end.
        """

    def count(self, what: str, times: int = 1) -> None:
        """Add to a counter of the consumer's metrics, such as ``dead_lettered``."""

    def attempt_failed(self, event: Event) -> None:
        """Count a failed attempt at *event* that is followed by another attempt."""

    def show(self, what: str, value: Callable[[], float] | None) -> None:
        """Show a gauge in the consumer's metrics, such as ``unfinished``; None removes it. Any thread calls *value*."""


class Consumer(Protocol):
    """A function with a name. Must be idempotent: after an error or a restart, events are delivered again."""

    @property
    def name(self) -> str:
        """Key of the cursor and label of the metrics. Keep it stable across releases."""

    def consume(self, event: Event, run: Run, /) -> None:
        """Handle one event. Called by one thread, in order. An error ends *run*; the event is delivered again."""


@runtime_checkable
class Resetter(Protocol):
    """A consumer that is reset at the start of each run."""

    def reset(self) -> None:
        """Drop or finish the work that an earlier run left. Called before the cursor is read."""


@runtime_checkable
class Stopper(Protocol):
    """A consumer with work in the background."""

    def stop(self) -> None:
        """Finish or drop background work and wait for it. Called at the end of each run, before the final flush."""


@runtime_checkable
class Committing(Protocol):
    """A consumer that finishes an event after ``consume`` returns, and moves the cursor itself.

    It calls ``Run.commit`` with the cursor up to which everything is done. After an error or a stop, uncommitted
    events are delivered again. Its ``stop`` waits for the work in progress.
    """

    def begin(self, run: Run, /) -> None:
        """Called at the start of each run, before the consumer is reset and the cursor read.

        If it raises, the run ends, but the consumer is not stopped: it may be active in another run.
        """

    def progress(self, cursor: str) -> None:
        """Commit *cursor* once all events before it are done. Called by the thread of the run."""

    def drain(self) -> None:
        """Finish everything that was consumed, and commit it. Called when the head is reached, before ``stop``.

        Raises:
            Stopped: the run's stop was set during the call.
        """


@runtime_checkable
class Partitioned(Protocol):
    """An event that knows its partition. The changes of one partition are totally ordered."""

    def raw_partition_key(self) -> Mapping[str, bytes]:
        """Return the undecoded partition key by column."""


class Message(NamedTuple):
    """A record as bytes, on its way to a topic. ``partition``: None leaves it to the publisher."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


PublishDone = Callable[[Exception | None], None]
"""Called once for each call of ``Publisher.publish``, with None if all of its records are acknowledged."""


class Publisher(Protocol):
    """Sends records to a broker, a file, or another sink. Thread-safe: the lanes of a service share one.

    A record is acknowledged when it survives a crash of this process, and of the sink as far as the sink promises it.
    Records with the same topic and key become visible in the order in which they were passed, except that a retry after
    an error may repeat some, in order.
    """

    def publish(self, messages: Sequence[Message], done: PublishDone, /) -> None:
        """Take *messages* in order, and return before they are acknowledged; wait while the publisher has no room.

        *done* is called once all of them are settled: by any thread, also by the caller's before this returns, and not
        in the order of the calls. It may block for a moment, must not raise, and publishes at most a few records. Its
        argument is None; ``PublishRejected`` if records can never be published, while the others are acknowledged;
        or another error, after which any of them may be missing. A sink that is down is no error: the records wait.

        Raises:
            PublishRejected: the record at ``index`` can never be published. Those before it were taken: *done* is
                called for them, unless there are none. Those after it were not taken, so that order is kept.
            PublishFailed: nothing more can be taken now; *done* is called for what was taken, if anything.
            ConfigError: the publisher is closed.
        """

    def flush(self, timeout_s: float, /) -> bool:
        """Wait until all records that were taken are settled, at most *timeout_s* seconds; return whether they are."""

    def abandon(self) -> None:
        """Drop what is not settled yet; each ``done`` is called with an error. The publisher can still be used.

        Called if a lane ends while the sink is down: what it passed must not come after what its successor publishes.
        """

    def trouble(self) -> str:
        """Return why records wait, such as "all brokers are down"; "" if nothing is known to be wrong. Any thread."""

    def close(self) -> None:
        """Release connections and threads; call ``flush`` first. What is not settled is dropped. Safe to repeat."""


class DeadLetters(Protocol):
    """Stores the dead letters of consumers. All methods may be called from several threads.

    Each method raises the errors of the database; the event is then delivered again, and nothing is lost.
    """

    def tries(self, consumer: str, event: Event) -> int:
        """Return how often *consumer* is known to have failed on *event*.

        Called when *event* first fails in a run, and before each of the first events of a process.
        """

    def set_tries(self, consumer: str, event: Event, tries: int) -> None:
        """Durably save how often *consumer* failed on *event*; 0 deletes the count after a success.

        Called after each failure, and for the first events of a process before each attempt.
        """

    def put(self, letter: DeadLetter) -> None:
        """Save *letter* as dead; it is durable when this returns. A letter of the same event replaces it."""


class DeadLetterAdmin(Protocol):
    """Operations on dead letters for operators, not for consumers. A consumer's letters include those of its slices.

    All methods may be called from several threads, also while consumers store letters. Each raises the errors of the
    database; calling it again is safe.
    """

    def list_letters(self, consumer: str | None = None, *, status: str | None = DEAD) -> Iterable[DeadLetter]:
        """Yield the letters of *consumer* (None: of all) with *status* (None: with any), by consumer and event time.

        The iterator may query while it is consumed, and then raises the errors of the database.
        """

    def find_letter(self, consumer: str, event_id: str) -> DeadLetter | None:
        """Return the letter of an event, from *consumer* itself or else from a slice of it; None if there is none.

        Raises:
            ConfigError: *consumer* is empty.
        """

    def resolve_letter(self, letter: DeadLetter, status: str, *, reason: str) -> None:
        """Set the status of *letter* to replayed or discarded, and save *reason* for the audit trail.

        Raises:
            ConfigError: *status* is neither of the two, or *reason* is blank; the letter does not change.
        """

    def count_letters(self, consumer: str | None = None) -> Mapping[str, int]:
        """Return how many letters are dead, by consumer and slice; those without any are left out.

        ``Service`` calls it every half minute in a thread of its own, so its cost must not grow with the number of
        resolved letters.
        """
