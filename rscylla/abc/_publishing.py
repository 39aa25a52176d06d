"""Publishers of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = ["JointPublisher", "Message", "Participant", "PublishDone", "Publisher"]


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


class Participant(AbstractContextManager[None], Protocol):
    """A run that publishes in the transactions of a ``JointPublisher``. Used by the thread of the run.

    Inside of the ``with`` block, no transaction ends; it is entered for the records of one or more events, all of which
    the run publishes inside, or the transaction is aborted. It waits while a transaction ends.
    """

    def leave(self) -> None:
        """End the participation: the run is over. If a cursor could not be saved, the transaction is aborted."""


@runtime_checkable
class JointPublisher(Publisher, Protocol):
    """A ``Publisher`` that makes records and cursors visible together: both, or neither.

    A record counts as acknowledged when it is in the transaction, and the cursor that follows from that is saved in a
    store that belongs to the same transactions.
    """

    def join(self, settle: Callable[[], bool], /) -> Participant:
        """Return what a run publishes in. Called at the start of each run.

        *settle* is called before each commit, by any thread: it saves the cursor of all records that are acknowledged,
        and returns whether that worked; if not, the transaction is aborted.
        """
