"""The fakes for users' tests: they do what real parts do, and refuse what real parts refuse."""

from __future__ import annotations

import queue
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rscylla.embedded
from rscylla._timeuuid import datetime_of
from rscylla.abc import CursorStore, StreamClient, StreamFunc, StreamStatus
from rscylla.clock import Clock, Stop
from rscylla.errors import ConfigError, CursorRegression, HeadReached, InvalidCursor, MissingLag, QueryTimeout, Stopped
from rscylla.event import EventID, Progress, SimpleEvent
from rscylla.options import StreamFromHead, StreamLag, StreamToHead, StreamUntil
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, await_cursor

START_US = 1_790_000_000_000_000
EVENTS = [SimpleEvent(name, timestamp=datetime_of(START_US + at * 1_000_000)) for at, name in enumerate("abc")]


def drain(client: Any) -> list[str]:
    """Return the ids up to the head."""
    found = []
    while True:
        try:
            found.append(client.recv().id)
        except HeadReached:
            return found


def test_the_fakes_keep_the_contracts() -> None:
    stream: StreamFunc = FakeStream(EVENTS)
    client: StreamClient = stream("", StreamToHead())
    store: CursorStore = FakeCursorStore()
    assert client.status() == StreamStatus()
    assert isinstance(ManualClock(), Clock)
    assert store.get_cursor("nobody") == ""


@pytest.mark.parametrize(("after", "ids"), [("", "abc"), ("a", "bc"), ("c", "")])
def test_a_stream_continues_right_after_any_id(after: str, ids: str) -> None:
    assert drain(FakeStream(EVENTS)(after, StreamToHead())) == list(ids)


def test_a_stream_refuses_a_cursor_it_never_gave() -> None:
    with pytest.raises(InvalidCursor):
        FakeStream(EVENTS)("x", StreamToHead())
    wrong: Any = 7
    with pytest.raises(TypeError):
        FakeStream(EVENTS)(wrong)
    with pytest.raises(ConfigError):
        FakeStream(EVENTS)("", wrong)


def test_from_head_skips_what_is_there() -> None:
    stream = FakeStream(EVENTS)
    client = stream("a", StreamFromHead(), StreamToHead())
    stream.append(SimpleEvent("d"))
    assert drain(client) == ["d"]


def test_until_ends_before_its_time() -> None:
    assert drain(FakeStream(EVENTS)("", StreamUntil(datetime_of(START_US + 1_000_000)))) == ["a"]


def test_until_ends_an_idle_stream_once_its_time_has_passed() -> None:
    clock = ManualClock(START_US + 60_000_000)
    client = FakeStream(EVENTS, clock=clock)("", StreamUntil(datetime_of(START_US + 30_000_000)))
    assert drain(client) == ["a", "b", "c"]


def test_a_stream_that_supports_lag_demands_it_and_holds_events_back() -> None:
    clock = ManualClock(START_US)
    stream = FakeStream(EVENTS, supports_lag=True, clock=clock)
    with pytest.raises(MissingLag):
        stream("")
    client = stream("", StreamLag(seconds=30))
    assert [client.recv(), client.recv()] == EVENTS[:2]
    assert clock.waits == [30, 1]


def test_to_head_leaves_events_that_are_too_young() -> None:
    clock = ManualClock(START_US + 31_000_000)
    client = FakeStream(EVENTS, supports_lag=True, clock=clock)("", StreamLag(seconds=30), StreamToHead())
    assert drain(client) == ["a", "b"]
    assert clock.waits == []


def test_a_waiting_stream_wakes_for_an_event_and_for_the_stop() -> None:
    stop, stream = Stop(), FakeStream()
    client = stream("", stop=stop)
    got: queue.Queue[Any] = queue.Queue()

    def reader() -> None:
        got.put(client.recv())
        try:
            client.recv()
        except Stopped as error:
            got.put(error)

    thread = threading.Thread(target=reader)
    thread.start()
    stream.append(EVENTS[0])
    assert got.get(timeout=30) is EVENTS[0]
    stop.set()
    assert isinstance(got.get(timeout=30), Stopped)
    thread.join(30)


def test_faults_come_where_and_as_often_as_asked_and_stick_to_their_client() -> None:
    stream = FakeStream(EVENTS)
    lost = QueryTimeout("too slow")
    stream.fail("open", lost)
    stream.fail("recv", lost, index=1)
    stream.fail("close", lost)
    with pytest.raises(QueryTimeout):
        stream("")
    client = stream("", StreamToHead())
    assert client.recv() is EVENTS[0]
    for _ in range(2):
        with pytest.raises(QueryTimeout):
            client.recv()
    with pytest.raises(QueryTimeout):
        client.close()
    client.close()
    assert stream.closed == 1
    assert drain(stream("a", StreamToHead())) == ["b", "c"]
    with pytest.raises(ConfigError):
        stream.fail("somewhere", lost)


def test_a_client_refuses_to_be_used_after_close() -> None:
    client = FakeStream(EVENTS)("")
    client.close()
    with pytest.raises(AssertionError, match="after close"):
        client.recv()


def test_the_watermark_follows_what_was_handed_out() -> None:
    client = FakeStream([EVENTS[0], Progress("p", START_US + 5)])("", StreamToHead())
    marks = [client.status().watermark_us]
    for _ in range(2):
        client.recv()
        marks.append(client.status().watermark_us)
    assert marks == [0, START_US, START_US + 5]


def test_a_manual_clock_moves_by_advance_and_by_waits() -> None:
    clock = ManualClock(datetime(2026, 11, 21, tzinfo=UTC))
    start = clock.now_us()
    clock.advance(timedelta(seconds=1.5))
    assert not clock.wait(Stop(), 0.25)
    assert clock.now_us() - start == 1_750_000
    assert (clock.monotonic(), clock.waits) == (1.75, [0.25])
    with pytest.raises(ValueError, match="negative"):
        clock.advance(-1)


def test_the_manual_clock_of_the_server_is_the_same_one() -> None:
    assert rscylla.embedded.ManualClock is ManualClock


def test_a_manual_clock_that_jumps_measures_spans_as_before() -> None:
    clock = ManualClock(START_US)
    clock.advance(2)
    clock.set_us(START_US - 1_000_000)
    clock.advance(3)
    assert (clock.now_us() - START_US, clock.monotonic()) == (2_000_000, 5)


def test_a_manual_clock_does_not_move_when_stopped() -> None:
    clock, stop = ManualClock(), Stop()
    clock.on_wait = lambda seconds: stop.set()
    assert clock.wait(stop, 5)
    assert clock.wait(stop, 5)
    assert (clock.monotonic(), clock.waits) == (0, [5])


def test_the_store_refuses_to_go_back() -> None:
    store = FakeCursorStore(order=int)
    store.set_cursor("c", "10")
    store.set_cursor("c", "10")
    with pytest.raises(CursorRegression):
        store.set_cursor("c", "9")
    plain = FakeCursorStore()
    plain.set_cursor("c", "x")
    plain.set_cursor("c", "y")
    with pytest.raises(CursorRegression):
        plain.set_cursor("c", "x")
    assert (store.durable, plain.durable) == ({"c": "10"}, {"c": "y"})


def test_the_buffered_store_loses_on_a_crash_what_was_not_flushed() -> None:
    store = FakeCursorStore(buffered=True)
    store.set_cursor("c", "a")
    store.flush()
    store.set_cursor("c", "b")
    assert store.get_cursor("c") == "b"
    store.crash()
    assert store.get_cursor("c") == "a"


def cursor(second: int) -> str:
    return str(EventID(0, START_US + second * 1_000_000))


def test_await_cursor_fails_when_time_is_up() -> None:
    store, clock = FakeCursorStore({"c": "a"}), ManualClock()
    with pytest.raises(AssertionError, match='"c" did not reach the cursor within 2 s; wanted z, saved is a'):
        await_cursor(store, "c", "z", timeout=timedelta(seconds=2), clock=clock)
    assert clock.monotonic() == pytest.approx(2, abs=0.01)


def test_await_cursor_returns_when_it_is_reached_or_passed() -> None:
    clock = ManualClock()
    store = FakeCursorStore({"c": cursor(1)})
    clock.on_wait = lambda seconds: store.set_cursor("c", cursor(1 + len(clock.waits)))
    await_cursor(store, "c", cursor(4), clock=clock)
    assert len(clock.waits) == 3
    await_cursor(store, "c", cursor(2), clock=clock)
    assert len(clock.waits) == 3
    await_cursor(FakeCursorStore({"c": "opaque"}), "c", "opaque")
