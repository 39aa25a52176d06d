"""Rows of a snapshot beside changes: which wait for which, and how a stop ends what waits."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from waiting import eventually

from rscylla.abc import Message, PublishDone, StreamStatus
from rscylla.clock import Stop
from rscylla.errors import PublishFailed, Stopped
from rscylla.event import Progress, SimpleEvent
from rscylla.kafka.snapshots.beside import Accompanied, Fresh, RowMessage, Turns
from rscylla.service.lease import LeasedStop
from rscylla.testing import ManualClock

LONG_S = 60.0
ROW, CHANGE = Message("t", b"k", b"row"), Message("t", b"k", b"change")


class Full:
    """A publisher whose queue is full for rows, until it has room or is abandoned."""

    def __init__(self) -> None:
        self.taken: list[bytes | None] = []
        self.waits, self.goes_on = threading.Event(), threading.Event()
        self.is_abandoned = False

    def publish(self, messages: Sequence[Message], done: PublishDone) -> None:
        if messages[0][:3] == ROW[:3]:
            self.waits.set()
            assert self.goes_on.wait(LONG_S)
            if self.is_abandoned:
                raise PublishFailed("abandoned")
        self.taken += [message.value for message in messages]
        done(None)

    def abandon(self) -> None:
        self.is_abandoned = True
        self.goes_on.set()

    def flush(self, timeout_s: float) -> bool:
        return True

    def trouble(self) -> str:
        return ""

    def close(self) -> None: ...


class Client:
    """A stream of changes: each call has what the test gives."""

    def __init__(self, *found: list[SimpleEvent] | Progress) -> None:
        self.found = [*found]
        self.closed = False

    def take(self) -> Any:
        return self.found.pop(0)

    def status(self) -> StreamStatus:
        return StreamStatus()

    def close(self) -> None:
        self.closed = True


class Beside:
    """Rows that one thread passes to *publisher*, and changes that another one receives and publishes."""

    def __init__(self, publisher: Full, client: Client) -> None:
        self.publisher, self.client = publisher, client
        self.clock, self.stop = ManualClock(), Stop()
        self.read_at = self.clock.monotonic()
        self.failed: list[Exception] = []
        self.accompanied = Accompanied(client, "ks.t", self.follow, 1.0, self.clock, self.stop)  # type: ignore[arg-type]

    def follow(self, stop: Stop, turns: Turns) -> None:
        fresh = Fresh(self.publisher, self.clock, timedelta(seconds=15), turns)  # type: ignore[arg-type]
        forget = stop.on_set(fresh.abandon)
        try:
            fresh.publish([RowMessage.of(ROW, self.read_at)], lambda error: None)
        except PublishFailed as error:
            self.failed.append(error)
        stop.wait(LONG_S)
        forget()

    def receive(self, how: Callable[[], Any]) -> threading.Thread:
        def work() -> None:
            try:
                if not isinstance(how(), Progress):
                    self.publisher.publish([CHANGE], lambda error: None)
            except Stopped:
                self.publisher.taken.append(b"stopped")

        thread = threading.Thread(target=work)
        thread.start()
        return thread


def is_in(thread: threading.Thread, function: str) -> bool:
    """Return whether *thread* is in a function of that name now."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


def changes() -> list[SimpleEvent]:
    return [SimpleEvent("e1", 1, "k")]


def test_a_row_that_waits_for_room_is_before_the_changes_that_come_meanwhile() -> None:
    """The queue of the publisher is full for longer than the lag, as it is while Kafka is down."""
    beside = Beside(Full(), Client(Progress("p", 0), changes()))
    assert beside.publisher.waits.wait(LONG_S)
    assert isinstance(beside.accompanied.take(), Progress)  # it has no records, and waits for none
    thread = beside.receive(beside.accompanied.take)
    eventually(lambda: is_in(thread, "wait") or beside.publisher.taken, LONG_S)
    beside.publisher.goes_on.set()
    thread.join(LONG_S)
    assert beside.publisher.taken == [b"row", b"change"]
    beside.accompanied.close()
    assert beside.client.closed


def test_a_stop_ends_both_the_row_that_waits_for_room_and_the_changes_that_wait_for_it() -> None:
    beside = Beside(Full(), Client(changes()))
    assert beside.publisher.waits.wait(LONG_S)
    thread = beside.receive(beside.accompanied.take)
    eventually(lambda: is_in(thread, "wait"), LONG_S)
    beside.stop.set()
    thread.join(LONG_S)
    beside.accompanied.close()
    assert [str(error) for error in beside.failed] == ["abandoned"]
    assert set(beside.publisher.taken) <= {b"stopped", b"change"}


def test_changes_do_not_wait_for_rows_that_were_passed_on_after_them() -> None:
    turns, waited = Turns(), threading.Event()

    def wait() -> None:
        turns.wait(Stop())
        waited.set()

    with turns.taken():
        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: is_in(thread, "wait"), LONG_S)
    with turns.taken():  # at once, perhaps before the other thread wakes up
        assert waited.wait(LONG_S)
    thread.join(LONG_S)


def test_a_row_that_is_too_old_when_its_turn_comes_is_not_passed_on() -> None:
    clock, publisher = ManualClock(), Full()
    fresh = Fresh(publisher, clock, timedelta(seconds=15), Turns())  # type: ignore[arg-type]
    read_at = clock.monotonic()
    clock.advance(16)
    with pytest.raises(PublishFailed, match="rows of a snapshot waited 16 s"):
        fresh.publish([CHANGE, RowMessage.of(ROW, read_at)], lambda error: None)
    fresh.publish([RowMessage.of(ROW, read_at)._replace(topic="dead", value=b"letter")], lambda error: None)
    assert publisher.taken == [b"letter"]


def test_the_end_of_a_run_abandons_nothing_that_rows_did_not_wait_for() -> None:
    publisher = Full()
    Fresh(publisher, ManualClock(), timedelta(seconds=15)).abandon()  # type: ignore[arg-type]
    assert not publisher.is_abandoned


def test_rows_end_with_the_lease_though_no_one_has_set_the_stop_yet() -> None:
    """As in a process that was paused, and has lost its slice."""

    class Lease:
        lost = False

        def held(self) -> bool:
            return not self.lost

    lease, ends = Lease(), list[Stop]()

    def follow(stop: Stop, turns: Turns) -> None:
        ends.append(stop)
        stop.wait(LONG_S)

    stop = LeasedStop(lease)
    accompanied = Accompanied(Client(changes()), "ks.t", follow, 1.0, ManualClock(), stop)  # type: ignore[arg-type]
    eventually(lambda: ends, LONG_S)
    ends[0].check()
    lease.lost = True
    with pytest.raises(Stopped):
        ends[0].check()
    accompanied.close()
    assert len(ends) == 1
