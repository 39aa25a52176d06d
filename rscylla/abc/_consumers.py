"""Consumers, and the runs that call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from ..clock import Clock, Stop
from ..event import Event

__all__ = [
    "ChunkConsumer",
    "Committing",
    "Consumer",
    "Fate",
    "Partitioned",
    "Resetter",
    "Run",
    "RunAware",
    "Stopper",
]


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
    def whole(self) -> str:
        """The name of the consumer without its slice: ``billing``, of which the run may read ``billing[0/4]``."""

    @property
    def key_slice(self) -> tuple[int, int]:
        """The slice of the keys that the stream reads: ``(m, n)``."""

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
class ChunkConsumer(Protocol):
    """A ``Consumer`` to which several events can be passed at once. Must be idempotent."""

    def room(self) -> int | None:
        """Return how many events may be passed next at most; None: whole chunks; 0: all one by one, to ``consume``.

        Called by the thread of the run before each call of ``consume_chunk``, and returns 0 for a whole run or never.
        """

    def consume_chunk(self, events: Any, run: Run, /) -> None:
        """Handle *events*, at least one, in order: a list, or the whole ``Chunk`` as the stream returned it.

        Unless the consumer is ``Committing``, the cursor after them is saved when this returns. An error ends *run*,
        and all of them are delivered again.
        """


@runtime_checkable
class RunAware(Protocol):
    """A consumer that works beside its events, such as in a thread of its own, and so has to know its run.

    A consumer that wraps another passes ``run_begins`` on to it, as ``reset`` and ``stop``.
    """

    def run_begins(self, run: Run, /) -> None:
        """Called at the start of each run, before ``reset``. Work beside the events has to check the run's ``stop``.

        ``Stop.check`` asks the lease, too, if there is one: call it right before each write, so that a process that was
        paused, and has lost its lease, writes nothing any more. If this raises, the run ends.
        """


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
