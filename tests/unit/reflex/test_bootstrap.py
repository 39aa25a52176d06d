"""``bootstrap`` and ``await_event``: what begins at the head of a stream."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from cursorstore import MemoryCursorStore
from rscylla._timeuuid import datetime_of
from rscylla.clock import Stop
from rscylla.errors import ConfigError, ConnectionFailed, HeadReached, MissingLag, QueryFailed, RunError, Stopped
from rscylla.event import EventID, SimpleEvent
from rscylla.options import StreamFromHead, StreamLag, StreamOptions, StreamToHead
from rscylla.reflex import Spec, await_event, bootstrap, run
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer

START_US = 1_790_000_000_000_000


def event(n: int, **parts: Any) -> SimpleEvent:
    return SimpleEvent(f"e{n}", timestamp=datetime_of(0), **parts)


class HeadedStream(FakeStream):
    """Returns the cursor of its last event as its head. ``lags`` records the requested lags."""

    source = "shop.orders"

    def __init__(self, *items: SimpleEvent, **options: Any) -> None:
        super().__init__(items, **options)
        self.lags: list[timedelta] = []

    def head_cursor(self, lag: timedelta) -> str:
        self.lags.append(lag)
        return self.items[-1].id  # type: ignore[union-attr]


def spec(stream: Any, store: Any, *options: Any) -> Spec:
    given = options or (StreamToHead(),)
    return Spec(stream, store, RecordingConsumer(), *given, clock=ManualClock(), registry=CollectorRegistry())


def ids(of: Spec) -> list[str]:
    consumer = of.consumer
    assert isinstance(consumer, RecordingConsumer)
    return consumer.ids


# ---------------------------------------------------------------- bootstrap


def test_a_new_consumer_starts_at_the_head_and_a_known_one_continues() -> None:
    for known, wanted in (({}, []), ({"recording": "e1"}, ["e2"])):
        one = bootstrap(spec(HeadedStream(event(1), event(2)), FakeCursorStore(known)))
        with pytest.raises(HeadReached):
            run(one)
        assert ids(one) == wanted


def test_the_head_is_durable_before_the_stream_is_opened() -> None:
    """A run that ends before its first event is followed by one that starts at the same head, not at a newer one."""
    stream, store = HeadedStream(event(1)), FakeCursorStore(buffered=True)
    stream.fail("open", ConnectionFailed("no node answers; start one"))
    one = bootstrap(spec(stream, store))
    with pytest.raises(RunError):
        run(one)
    store.crash()
    assert store.durable == {"recording": "e1"}
    stream.append(event(2))
    with pytest.raises(HeadReached):
        run(one)
    assert ids(one) == ["e2"]


def test_a_head_that_cannot_be_saved_opens_nothing() -> None:
    stream, store = HeadedStream(event(1)), FakeCursorStore(buffered=True)
    store.fail("flush", ConnectionFailed("no node answers; start one"), times=2)
    with pytest.raises(RunError) as caught:
        run(bootstrap(spec(stream, store)))
    assert (caught.value.stage, stream.opened) == ("stream", [])


def test_a_cursor_that_was_reset_to_the_oldest_stays_there() -> None:
    cursor = str(EventID(1_790_000_000_000, START_US))
    store = MemoryCursorStore(cursors={"recording": cursor})
    store.reset_cursor("recording", "", reason="all again")
    stream = HeadedStream()
    with pytest.raises(HeadReached):
        run(bootstrap(spec(stream, store)))
    assert (stream.opened[0][0], stream.lags) == ("", [])


def test_the_lag_counts_and_is_required_where_the_stream_needs_it() -> None:
    stream = HeadedStream(event(1), supports_lag=True, clock=ManualClock(START_US))
    with pytest.raises(RunError) as caught:
        run(bootstrap(spec(stream, store := FakeCursorStore())))
    assert isinstance(caught.value.__cause__, MissingLag)
    assert store.durable == {}
    with pytest.raises(HeadReached):
        run(bootstrap(spec(stream, store, StreamLag(seconds=30), StreamToHead())))
    assert stream.lags == [timedelta(seconds=30)]


def test_the_stream_inside_is_seen_through() -> None:
    one = bootstrap(spec(HeadedStream(event(1), supports_lag=True), FakeCursorStore()))
    assert getattr(one.stream, "supports_lag", None) is True
    assert one.source == "shop.orders"


def test_an_option_that_skips_to_the_head_at_each_restart_is_refused() -> None:
    with pytest.raises(ConfigError, match="omit it"):
        bootstrap(spec(HeadedStream(event(1)), FakeCursorStore(), StreamFromHead()))


def test_a_stream_without_head_cursor_is_refused() -> None:
    with pytest.raises(ConfigError, match="no head_cursor"):
        bootstrap(spec(FakeStream(), FakeCursorStore()))


# ---------------------------------------------------------------- await_event


class Wait:
    """A call of ``await_event`` with what it needs; *polls* are what ``poll`` returns or raises, then False."""

    def __init__(self, *polls: Any, stream: FakeStream | None = None) -> None:
        self.clock = ManualClock(START_US)
        self.stream = stream or FakeStream([event(0)], clock=self.clock)
        self.polls = list(polls)
        self.polled = 0
        self.stop = Stop()

    def poll(self) -> bool:
        self.polled += 1
        result = self.polls.pop(0) if self.polls else False
        if callable(result):
            result = result()
        if isinstance(result, BaseException):
            raise result
        return bool(result)

    def __call__(self, **options: Any) -> Any:
        given = {"timeout": timedelta(seconds=10), **options}
        return await_event(self.stream, self.poll, clock=self.clock, stop=self.stop, **given)


def appearing(wait: Wait, *items: SimpleEvent) -> Any:
    """Return a poll that finds nothing, although *items* are on their way by then."""

    def poll() -> bool:
        wait.stream.append(*items)
        return False

    return poll


def test_the_poll_that_says_yes_ends_it() -> None:
    wait = Wait(False, False, True)
    assert wait() is None
    assert (wait.polled, wait.clock.waits) == (3, [1, 1])
    assert wait.stream.closed == 1


def listening(wait: Wait) -> None:
    """Make the clock wait for the listener, however long that takes, so that it is the one that decides."""

    class Waiting(ManualClock):
        def wait(self, stop: Stop, seconds: float) -> bool:
            self.waits.append(seconds)
            return stop.wait(60)

    wait.clock = Waiting(START_US)
    wait.stream.clock = wait.clock


def test_an_event_ends_it_and_is_returned() -> None:
    wait = Wait()
    listening(wait)
    wait.polls = [appearing(wait, event(1), event(2))]
    assert wait().id == "e1"
    assert wait.polled == 1


def test_the_listener_is_positioned_before_the_first_poll() -> None:
    """The listener sees events during the first poll, but not earlier ones."""
    wait = Wait()
    listening(wait)

    def poll() -> bool:
        assert wait.stream.opened == [("", StreamOptions(from_head=True))]
        wait.stream.append(event(1))
        return False

    wait.polls = [poll]
    assert wait().id == "e1"


def test_which_event_is_wanted() -> None:
    wait = Wait()
    listening(wait)
    others = [event(1, foreign_id="a", type=1), event(2, foreign_id="b", type=2), event(3, foreign_id="b", type=1)]
    wait.polls = [appearing(wait, *others, event(4, foreign_id="b", type=1))]
    found = wait(foreign_id="b", types=[1], event_filter=lambda e: e.id != "e3")
    assert found.id == "e4"


def test_without_types_any_event_matches() -> None:
    wait = Wait()
    listening(wait)
    wait.polls = [appearing(wait, event(1, type=77))]
    assert wait().id == "e1"


@pytest.mark.parametrize("step", ["open", "recv"])
def test_a_listener_that_fails_hides_no_poll_that_succeeds(step: str) -> None:
    wait = Wait(False, False, False, False, True)
    wait.stream.fail(step, ConnectionFailed("no node answers; start one"))
    assert wait() is None


def test_a_poll_that_fails_hides_no_event() -> None:
    wait = Wait()
    listening(wait)

    def poll() -> bool:
        wait.stream.append(event(1))
        raise QueryFailed("no such table")

    wait.polls = [poll]
    assert wait().id == "e1"


def test_await_event_fails_when_both_listener_and_poll_failed() -> None:
    wait = Wait(QueryFailed("no such table"))
    cause = ConnectionFailed("no node answers; start one")
    wait.stream.fail("open", cause)
    with pytest.raises(QueryFailed) as caught:
        wait()
    assert caught.value.__cause__ is cause


def test_it_times_out_and_names_the_failure() -> None:
    wait = Wait()
    with pytest.raises(TimeoutError, match="within 10 s"):
        wait()
    assert (sum(wait.clock.waits), wait.stream.closed) == (10, 1)
    wait = Wait(QueryFailed("no such table"))
    with pytest.raises(TimeoutError) as caught:
        wait()
    assert caught.value.__notes__ == ["polling had failed: QueryFailed"]
    assert wait.clock.waits == [10]


def test_a_stop_ends_the_wait_between_polls() -> None:
    wait = Wait()
    wait.clock.on_wait = lambda _: wait.stop.set()
    with pytest.raises(Stopped):
        wait()
    assert (wait.polled, wait.stream.closed) == (1, 1)


def test_a_stop_that_is_set_already_polls_nothing() -> None:
    wait = Wait()
    wait.stop.set()
    with pytest.raises(Stopped):
        wait()
    assert wait.polled == 0


def test_an_interrupt_of_the_poll_closes_the_stream() -> None:
    wait = Wait(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        wait()
    assert wait.stream.closed == 1


@pytest.mark.parametrize("interrupt", [SystemExit(3), KeyboardInterrupt()])
def test_an_interrupt_of_the_filter_is_raised_by_the_wait(interrupt: BaseException) -> None:
    wait = Wait()
    listening(wait)
    wait.polls = [appearing(wait, event(1)), *[False] * 10, GeneratorExit("it polls without a pause")]

    def exit_(_: Any) -> bool:
        raise interrupt

    with pytest.raises(type(interrupt)) as caught:
        wait(event_filter=exit_)
    assert caught.value is interrupt
    assert wait.stream.closed == 1


def test_a_listener_without_a_thread_to_be_had_closes_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    wait = Wait(False, True)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert wait() is None
    assert wait.stream.closed == 1


@pytest.mark.parametrize("options", [{"timeout": timedelta(0)}, {"every": timedelta(0)}])
def test_times_must_make_sense(options: Any) -> None:
    with pytest.raises(ConfigError, match="more than zero"):
        Wait()(**options)


def test_the_stream_gets_the_options_too() -> None:
    wait = Wait(True)
    await_event(
        wait.stream, wait.poll, StreamLag(seconds=1), StreamFromHead(), timeout=timedelta(seconds=1), clock=wait.clock
    )
    assert wait.stream.opened == [("", StreamOptions(lag=timedelta(seconds=1), from_head=True))]
