"""Rows of a snapshot beside changes: a thread that publishes them, and how they stay behind no newer change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Final, Self, cast

from ...abc import Chunk, JointPublisher, Message, Participant, PublishDone, Publisher, StreamStatus
from ...cdc import Client
from ...clock import Clock, InnerStop, Stop
from ...errors import PublishFailed
from ...event import Progress

__all__ = ["Accompanied", "Fresh", "FreshJoint", "RowMessage", "Turns"]

log = logging.getLogger("rscylla.kafka")

LOOK_S: Final = 0.1


class Accompanied:
    """A client of a stream of changes, beside which a thread takes the snapshots that are requested.

    Args:
        follow: takes them until its first argument is set; the rows have turns of the second. If it fails, it is called
            again after *pause_s*.
    """

    def __init__(
        self,
        client: Client,
        source: str,
        follow: Callable[[Stop, Turns], None],
        pause_s: float,
        clock: Clock,
        stop: Stop,
    ) -> None:
        self._client = client
        self._source = source
        self._follow = follow
        self._pause_s = pause_s
        self._clock = clock
        self._stop = stop
        self._turns = Turns()
        self._ended = InnerStop(stop)  # it asks the lease, too, before each row
        self._thread = threading.Thread(target=self._work, name=f"rscylla-snapshots-{source}", daemon=True)
        self._thread.start()

    def take(self) -> Chunk | Progress:
        taken = self._client.take()
        if not isinstance(taken, Progress):
            self._turns.wait(self._stop)
        return taken

    def status(self) -> StreamStatus:
        return self._client.status()

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                self._follow(self._ended, self._turns)
            except Exception as error:  # noqa: BLE001 - the changes go on
                log.error("%s: the snapshot on request failed; it is tried again: %s", self._source, error)
                self._clock.wait(self._ended, self._pause_s)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._ended.forget()
        self._client.close()


class Turns:
    """Lets changes wait for the rows that are on their way to the publisher, such as into its queue, which is full.

    Changes that were received before rows are passed on need not wait: they are older than the rows, which are fresh.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._number = 0
        self._is_taken = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Pass rows on in the block. One thread at a time."""
        with self._changed:
            self._number += 1
            self._is_taken = True
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()

    def wait(self, stop: Stop) -> None:
        """Wait for the turn that is taken now, if one is. Raises ``Stopped`` if *stop* is set first."""
        with self._changed:
            number = self._number
            while self._is_taken and self._number == number:
                stop.check()
                self._changed.wait(LOOK_S)


class RowMessage(Message):
    """A record of a row. ``read_at``: a time before the row was read, on the monotonic clock; None in a dead letter."""

    read_at: float | None = None

    @classmethod
    def of(cls, message: Message, read_at: float) -> Self:
        made = cls(*message)
        made.read_at = read_at
        return made


class Fresh:
    """A publisher that refuses rows that were read too long ago, so that they are read again.

    The stream delivers a change no earlier than the lag after it was written. A row that is published within the lag
    after it was read is therefore published before all changes that were written after it was read. That holds when the
    rows are passed on; while this takes long, *turns* hold the changes back that are received meanwhile. Without them,
    rows that took too long are published, and read again.
    """

    def __init__(self, publisher: Publisher, clock: Clock, most: timedelta, turns: Turns | None = None) -> None:
        self._publisher = publisher
        self._clock = clock
        self._most_s = most.total_seconds()
        self._turns = turns
        self._is_passing = False

    def publish(self, messages: Sequence[Message], done: PublishDone) -> None:
        times = [m.read_at for m in messages if isinstance(m, RowMessage) and m.read_at is not None]
        if not times:  # dead letters; they may come while rows are passed on
            self._publisher.publish(messages, done)
            return
        with nullcontext() if self._turns is None else self._turns.taken():
            self._check(min(times))
            self._is_passing = True
            try:
                self._publisher.publish(messages, done)
            finally:
                self._is_passing = False
        if self._turns is None:
            self._check(min(times))

    def _check(self, read_at: float) -> None:
        age_s = self._clock.monotonic() - read_at
        if age_s > self._most_s:
            raise PublishFailed(
                f"rows of a snapshot waited {age_s:.0f} s after they were read, so newer changes may be published; "
                "they are read again"
            )

    def flush(self, timeout_s: float) -> bool:
        return self._publisher.flush(timeout_s)

    def abandon(self) -> None:
        """End a call that waits for room. What was taken is left: it is in order with the changes after it."""
        if self._is_passing:
            self._publisher.abandon()

    def trouble(self) -> str:
        return self._publisher.trouble()

    def close(self) -> None:
        """Leave the publisher open: it is of the changes, too."""


class FreshJoint(Fresh):
    """The same for a publisher of transactions."""

    def join(self, settle: Callable[[], bool]) -> Participant:
        return cast("JointPublisher", self._publisher).join(settle)
