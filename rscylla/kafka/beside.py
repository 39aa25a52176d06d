"""Rows of a snapshot beside changes: a thread that publishes them, and how they stay behind no newer change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import cast

from ..abc import JointPublisher, Message, Participant, PublishDone, Publisher, StreamStatus
from ..cdc.client import Client
from ..clock import Clock, Stop
from ..errors import PublishFailed
from ..event import Event, Progress

__all__ = ["Accompanied", "Fresh", "FreshJoint"]

log = logging.getLogger("rscylla.kafka")


class Accompanied:
    """A client of a stream of changes, beside which a thread takes the snapshots that are requested.

    Args:
        follow: takes them until its argument is set. If it fails, it is called again after *pause_s*.
    """

    def __init__(
        self, client: Client, source: str, follow: Callable[[Stop], None], pause_s: float, clock: Clock, stop: Stop
    ) -> None:
        self._client = client
        self._source = source
        self._follow = follow
        self._pause_s = pause_s
        self._clock = clock
        self._ended = Stop()
        self._forget = stop.on_set(self._ended.set)
        self._thread = threading.Thread(target=self._work, name=f"rscylla-snapshots-{source}", daemon=True)
        self._thread.start()

    # Methods of the class, as the client has them: a run would take attributes of the object for a ``recv`` of a user,
    # and go event by event.

    def recv(self) -> Event | Progress:
        return self._client.recv()

    def recv_many(self, limit: int) -> Sequence[Event] | Progress:
        return self._client.recv_many(limit)

    def status(self) -> StreamStatus:
        return self._client.status()

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                self._follow(self._ended)
            except Exception as error:  # noqa: BLE001 - the changes go on
                log.error("%s: the snapshot on request failed; it is tried again: %s", self._source, error)
                self._clock.wait(self._ended, self._pause_s)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._forget()
        self._client.close()


class Fresh:
    """A publisher that refuses rows that were read too long ago, so that they are read again.

    The stream delivers a change no earlier than the lag after it was written. A row that is published within the lag
    after it was read is therefore published before all changes that were written after it was read.
    """

    def __init__(self, publisher: Publisher, clock: Clock, most: timedelta) -> None:
        self._publisher = publisher
        self._clock = clock
        self._most_s = most.total_seconds()
        self._oldest: float | None = None

    def note(self, read_at: float) -> None:
        """Note when a row was read whose record is published next, by the same thread."""
        self._oldest = read_at if self._oldest is None else min(self._oldest, read_at)

    def publish(self, messages: Sequence[Message], done: PublishDone) -> None:
        oldest, self._oldest = self._oldest, None
        age_s = 0.0 if oldest is None else self._clock.monotonic() - oldest
        if age_s > self._most_s:
            raise PublishFailed(
                f"rows of a snapshot waited {age_s:.0f} s after they were read, so newer changes may be published; "
                "they are read again"
            )
        self._publisher.publish(messages, done)

    def flush(self, timeout_s: float) -> bool:
        return self._publisher.flush(timeout_s)

    def abandon(self) -> None:
        """Leave what was taken: the changes of the table go to the same publisher, and the rows are in order."""

    def trouble(self) -> str:
        return self._publisher.trouble()

    def close(self) -> None:
        """Leave the publisher open: it is of the changes, too."""


class FreshJoint(Fresh):
    """The same for a publisher of transactions."""

    def join(self, settle: Callable[[], bool]) -> Participant:
        return cast("JointPublisher", self._publisher).join(settle)
