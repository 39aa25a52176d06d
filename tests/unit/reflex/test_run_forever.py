"""``run_forever``: when it tries again, how long it waits, and when it returns. No test waits: the clock is driven."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from rscylla._timeuuid import datetime_of
from rscylla.clock import Stop
from rscylla.errors import (
    ConfigError,
    ConnectionFailed,
    CursorExpired,
    InvalidCursor,
    QueryFailed,
    RscyllaError,
    RunError,
    Stopped,
)
from rscylla.event import SimpleEvent
from rscylla.options import StreamLag, StreamToHead
from rscylla.reflex import Backoff, Fate, Spec, run_forever
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer

START_US = 1_790_000_000_000_000
EVEN = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=10), factor=2, jitter=0)
EVENTS = [SimpleEvent(f"e{number}", timestamp=datetime_of(START_US - 1)) for number in range(1, 5)]
DOWN = ConnectionFailed("no node answers; start one")


class Bench:
    def __init__(self, *, stream: FakeStream | None = None, consumer: RecordingConsumer | None = None) -> None:
        self.clock = ManualClock(START_US)
        self.stream = stream or FakeStream(EVENTS, clock=self.clock)
        self.consumer = consumer or RecordingConsumer()
        self.store = FakeCursorStore(buffered=True)
        self.registry = CollectorRegistry()
        self.stop = Stop()

    def run(self, *options: Any, backoff: Backoff = EVEN, **more: Any) -> None:
        spec = Spec(
            self.stream,
            self.store,
            self.consumer,
            *(options or (StreamToHead(),)),
            clock=self.clock,
            registry=self.registry,
            fate=more.pop("fate", None),
        )
        run_forever(spec, stop=self.stop, backoff=backoff, **more)


def test_run_forever_returns_when_the_head_is_reached() -> None:
    bench = Bench()
    bench.run()
    assert bench.consumer.ids == ["e1", "e2", "e3", "e4"]
    assert bench.store.durable == {"recording": "e4"}
    assert bench.clock.waits == []


def test_run_forever_returns_when_it_is_stopped() -> None:
    bench = Bench()
    thread = threading.Thread(target=bench.run, args=(StreamLag(seconds=0.000001),))
    thread.start()
    bench.stop.set()
    thread.join(30)
    assert not thread.is_alive()
    assert bench.clock.waits == []
    assert bench.stream.closed == len(bench.stream.opened)


def test_a_stop_that_is_set_already_runs_nothing() -> None:
    bench = Bench()
    bench.stop.set()
    bench.run()
    assert bench.stream.opened == []


def test_failures_are_retried_from_the_saved_cursor() -> None:
    bench = Bench(consumer=RecordingConsumer(fail={"e3": ValueError()}, times=2))
    bench.run()
    assert bench.consumer.seen == ["e1", "e2", "e3", "e3", "e3", "e4"]
    assert [cursor for cursor, _ in bench.stream.opened] == ["", "e2", "e2"]
    assert bench.stream.closed == 3


def test_the_pauses_grow_to_a_maximum() -> None:
    bench = Bench()
    bench.stream.fail("open", DOWN, times=6)
    bench.run()
    assert bench.clock.waits == [1, 2, 4, 8, 10, 10]


def test_the_pauses_start_again_where_events_were_handled_in_between() -> None:
    bench = Bench(consumer=RecordingConsumer(fail={f"e{n}": ValueError() for n in range(1, 5)}))
    bench.run()
    assert bench.consumer.seen == ["e1", "e1", "e2", "e2", "e3", "e3", "e4", "e4"]
    assert bench.clock.waits == [1] * 4


def test_the_pauses_grow_though_events_are_handled_again_that_cannot_be_saved() -> None:
    bench = Bench()
    bench.store.fail("flush", DOWN, times=4)
    bench.run()
    assert bench.clock.waits == [1, 2, 4, 8]


def test_the_pauses_start_again_after_a_healthy_time() -> None:
    bench = Bench()
    bench.stream.fail("open", DOWN, times=3)

    class Slow(RecordingConsumer):
        def consume(self, event: Any, fate: Any) -> None:
            if event.id == "e1":
                bench.clock.advance(60)  # this run is healthy for a minute, and fails then
            super().consume(event, fate)

    bench.consumer = Slow(fail={"e2": ValueError()}, times=3)
    bench.run()
    assert bench.clock.waits == [1, 2, 4, 1, 2, 4]


def test_jitter_only_shortens_the_pause() -> None:
    backoff = Backoff(initial=timedelta(seconds=4), maximum=timedelta(seconds=10), factor=2, jitter=0.5)
    assert [backoff.seconds(n, 0.0) for n in (1, 2, 3)] == [4, 8, 10]
    assert [backoff.seconds(n, 1.0) for n in (1, 2, 3)] == [2, 4, 5]
    bench = Bench()
    bench.stream.fail("open", DOWN, times=200)
    bench.run(backoff=backoff)
    assert len(bench.clock.waits) == 200
    assert all(5 <= wait <= 10 for wait in bench.clock.waits[2:])
    assert len(set(bench.clock.waits)) > 100


def test_a_long_row_of_failures_does_not_overflow() -> None:
    backoff = Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(minutes=1), factor=10, jitter=0)
    assert backoff.seconds(10**9, 0.0) == 60
    assert Backoff(factor=1, jitter=0).seconds(10**9, 0.0) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"initial": timedelta()}, "initial"),
        ({"initial": timedelta(minutes=2)}, "initial"),
        ({"factor": 0.5}, "factor"),
        ({"factor": float("nan")}, "factor"),
        ({"jitter": 1.5}, "jitter"),
        ({"reset_after": timedelta()}, "reset_after"),
    ],
)
def test_a_backoff_must_make_sense(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Backoff(**options)


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "final",
    [
        InvalidCursor("not ours; reset it"),
        CursorExpired("gone; reset it", gap_from=NOON, gap_to=NOON),
        QueryFailed("refused; look at the table"),
        ConfigError("wrong; mend it"),
    ],
)
def test_an_error_that_a_retry_cannot_fix_ends_run_forever_at_once(final: RscyllaError) -> None:
    bench = Bench()
    bench.stream.fail("open", final)
    with pytest.raises(RunError) as caught:
        bench.run()
    assert caught.value.__cause__ is final
    assert (bench.clock.waits, len(bench.stream.opened)) == ([], 1)


def test_a_missing_lag_is_raised_at_once() -> None:
    bench = Bench(stream=FakeStream(EVENTS, supports_lag=True))
    with pytest.raises(RunError, match="has no StreamLag"):
        bench.run()


def test_interrupts_pass_through() -> None:
    bench = Bench(consumer=RecordingConsumer(fail={"e3": KeyboardInterrupt()}))
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert bench.store.durable == {"recording": "e2"}


def test_stop_ends_a_pause_at_once() -> None:
    bench = Bench()
    bench.stream.fail("open", DOWN, times=5)
    bench.clock.on_wait = lambda seconds: bench.stop.set() if len(bench.clock.waits) == 2 else None
    bench.run()
    assert bench.clock.waits == [1, 2]
    assert bench.clock.monotonic() == 1, "the second pause was cut"
    assert len(bench.stream.opened) == 2


def test_a_stop_of_another_signal_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    """A Stopped that a server raises during its shutdown is retried, because the run's own stop is not set."""
    bench = Bench()
    bench.stream.fail("recv", Stopped("server is going down"), index=2)
    bench.run()
    assert bench.consumer.ids == ["e1", "e2", "e3", "e4"]
    assert bench.clock.waits == [1]
    assert caplog.messages == ['consumer "recording": server is going down; it runs again in 1 s']


def test_on_error_hears_of_each_failure_before_the_pause() -> None:
    bench = Bench()
    bench.stream.fail("open", DOWN, times=2)
    heard: list[tuple[Exception | None, int]] = []
    bench.run(on_error=lambda error: heard.append((error.__cause__, len(bench.clock.waits))))
    assert heard == [(DOWN, 0), (DOWN, 1)]


def test_on_error_may_end_it_all() -> None:
    bench = Bench()
    bench.stream.fail("open", DOWN)

    class GiveUp(Exception):
        pass

    def give_up(error: Exception) -> None:
        raise GiveUp from error

    with pytest.raises(GiveUp):
        bench.run(on_error=give_up)
    assert len(bench.stream.opened) == 1


def test_a_failure_to_save_during_a_stop_is_reported_and_run_forever_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.store.fail("flush", DOWN)
    heard: list[Exception] = []

    bench.consumer = StoppingConsumer(bench.stop)
    bench.run(on_error=heard.append)
    assert len(heard) == 1
    assert "flush failed: no node answers; start one; it was stopped" in caplog.text
    assert bench.store.durable == {}


class StoppingConsumer(RecordingConsumer):
    """Stops the run at its first event."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._stop = stop

    def consume(self, event: Any, fate: Any) -> None:
        super().consume(event, fate)
        self._stop.set()


def test_a_permanent_error_is_raised_even_during_a_stop() -> None:
    bench = Bench()
    bench.consumer = StoppingConsumer(bench.stop)
    bench.store.fail("flush", QueryFailed("no such table; create it"))
    with pytest.raises(RunError, match="no such table"):
        bench.run()


def test_a_clean_stop_is_reported_as_no_error(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.consumer = StoppingConsumer(bench.stop)
    heard: list[Exception] = []
    bench.run(on_error=heard.append)
    assert (heard, caplog.text) == ([], "")
    assert bench.store.durable == {"recording": "e1"}


def test_a_failure_to_save_at_the_head_is_retried_until_it_is_saved() -> None:
    bench = Bench()
    bench.store.fail("flush", DOWN, times=2)
    bench.run()
    assert bench.store.durable == {"recording": "e4"}
    assert bench.clock.waits == [1, 2]


def test_failures_are_logged_in_one_line_without_values(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="rscylla")
    bench = Bench(consumer=RecordingConsumer(fail={"e2": ValueError("row 4711")}))
    bench.run()
    assert caplog.messages == ['consumer "recording": consume failed at event e2: ValueError; it runs again in 1 s']


def test_failures_are_logged_whole_at_level_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="rscylla")
    bench = Bench(consumer=RecordingConsumer(fail={"e2": ValueError("row 4711")}))
    bench.run()
    assert "Traceback" in caplog.text
    assert "ValueError: row 4711" in caplog.text


@pytest.mark.parametrize("seed", range(10))
def test_with_fate_every_event_is_delivered_in_order(seed: int) -> None:
    events = [SimpleEvent(f"e{number}") for number in range(100)]
    bench = Bench(stream=FakeStream(events))
    bench.run(fate=Fate(0.05, seed=seed, enabled=True))
    first_seen = list(dict.fromkeys(bench.consumer.ids))
    assert first_seen == [event.id for event in events]
    assert bench.store.durable == {"recording": "e99"}
    assert bench.clock.waits, "fate struck"


def test_without_arguments_it_makes_its_own_stop_and_backoff() -> None:
    bench = Bench()
    bench.stream.fail("open", DOWN)
    run_forever(Spec(bench.stream, bench.store, bench.consumer, StreamToHead(), clock=bench.clock))
    assert len(bench.clock.waits) == 1
    assert 0.5 <= bench.clock.waits[0] <= 1
