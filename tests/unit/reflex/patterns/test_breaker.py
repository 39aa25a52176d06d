"""``CircuitBreaker``: an outage pauses consumers, on a driven clock; other errors pass through."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from rscylla._timeuuid import datetime_of
from rscylla.clock import Stop
from rscylla.errors import ConfigError, FateError, HeadReached, RunError, Stopped
from rscylla.event import SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import Backoff, Consumer, Run, Spec, concurrent, run
from rscylla.reflex.patterns.breaker import CircuitBreaker
from rscylla.reflex.patterns.lanes.consumers import SharedConsumer
from rscylla.reflex.telemetry.series import ConsumerSeries
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer

START_US = 1_790_000_000_000_000
EVENTS = [SimpleEvent(f"e{number}", timestamp=datetime_of(START_US - 1)) for number in range(1, 4)]
EVEN = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=1), jitter=0)


class Warehouse:
    """What the consumer calls; it is down until the clock says otherwise."""

    def __init__(self, clock: ManualClock, down_s: float) -> None:
        self.clock = clock
        self.up_at = down_s
        self.calls: list[tuple[str, float]] = []

    def call(self, event: Any, fate: Any) -> None:
        self.calls.append((event.id, self.clock.monotonic()))
        if self.clock.monotonic() < self.up_at:
            raise ConnectionError("refused")


class Bench:
    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock(START_US)
        self.registry = CollectorRegistry()
        self.store = FakeCursorStore()
        self.stop = Stop()
        given: dict[str, Any] = {"outage": ConnectionError, "failures": 3, "backoff": EVEN} | options
        self.breaker = CircuitBreaker("warehouse", clock=self.clock, registry=self.registry, **given)

    def run(self, fn: Callable[[Any, Any], None]) -> BaseException:
        """Run over all events and return what ended that."""
        consumer = self.breaker.guard(Consumer("billing", fn, registry=self.registry, clock=self.clock))
        stream = FakeStream(EVENTS, clock=self.clock)
        with pytest.raises((HeadReached, RunError, Stopped)) as caught:
            run(Spec(stream, self.store, consumer, StreamToHead(), clock=self.clock), stop=self.stop)
        return caught.value

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def test_an_outage_pauses_the_run_and_every_event_is_consumed_once_it_is_over() -> None:
    """Three failures open it; after half a minute a probe fails, after another one works."""
    bench = Bench()
    warehouse = Warehouse(bench.clock, down_s=50)
    assert isinstance(bench.run(warehouse.call), HeadReached)
    at = {"e1": [0.0, 1.0, 2.0, 32.0, 62.0], "e2": [62.0], "e3": [62.0]}
    assert warehouse.calls == [(event, time) for event, times in at.items() for time in times]
    assert bench.store.durable == {"billing": "e3"}
    assert bench.breaker.state == "closed"
    assert bench.value("rscylla_run_errors_total", consumer_name="billing", stage="consume") is None


def test_while_it_is_closed_the_pauses_of_one_call_grow() -> None:
    growing = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=60), jitter=0)
    bench = Bench(failures=9, backoff=growing)
    warehouse = Warehouse(bench.clock, down_s=5)
    assert isinstance(bench.run(warehouse.call), HeadReached)
    assert bench.clock.waits == [1, 2, 4]


def test_a_success_in_between_restarts_the_count() -> None:
    bench = Bench()
    failing = iter([True, True, False, True, True, False, True, True, False])

    def fn(event: Any, fate: Any) -> None:
        if next(failing):
            raise ConnectionError

    assert isinstance(bench.run(fn), HeadReached)
    assert bench.value("rscylla_circuit_breaker_changes_total", breaker="warehouse", to="open") is None


def test_its_state_and_changes_are_metrics() -> None:
    bench = Bench()
    seen: list[float | None] = []
    warehouse = Warehouse(bench.clock, down_s=40)

    def fn(event: Any, fate: Any) -> None:
        seen.append(bench.value("rscylla_circuit_breaker_state", breaker="warehouse"))
        warehouse.call(event, fate)

    assert bench.value("rscylla_circuit_breaker_state", breaker="warehouse") == 0
    bench.clock.on_wait = lambda seconds: seen.append(bench.value("rscylla_circuit_breaker_state", breaker="warehouse"))
    bench.run(fn)
    assert seen == [0, 0, 0, 0, 0, 1, 2, 1, 2, 0, 0]
    changes = {
        to: bench.value("rscylla_circuit_breaker_changes_total", breaker="warehouse", to=to)
        for to in ("open", "half-open", "closed")
    }
    assert changes == {"open": 2, "half-open": 2, "closed": 1}


def test_other_errors_pass_through_and_say_nothing_about_it() -> None:
    """Neither do they close a half-open breaker: the thing behind it may not have been reached at all."""
    bench = Bench(failures=1)
    errors: list[Exception] = [ConnectionError("down"), ValueError("a bad order"), FateError("struck")]

    def fn(event: Any, fate: Any) -> None:
        if errors:
            raise errors.pop(0)

    failure = bench.run(fn)
    assert isinstance(failure, RunError)
    assert isinstance(failure.__cause__, ValueError)
    assert bench.breaker.state == "half-open"
    failure = bench.run(fn)
    assert isinstance(failure.__cause__, FateError)
    assert bench.breaker.state == "half-open"
    assert isinstance(bench.run(fn), HeadReached)
    assert bench.breaker.state == "closed"


def test_several_successes_may_be_asked_for() -> None:
    bench = Bench(failures=1, successes=2)
    states: list[str] = []

    def fn(event: Any, fate: Any) -> None:
        states.append(bench.breaker.state)
        if len(states) == 1:
            raise ConnectionError

    bench.run(fn)
    assert states == ["closed", "half-open", "half-open", "closed"]


def test_a_stop_ends_the_pause_at_once_and_the_event_is_delivered_again() -> None:
    bench = Bench(failures=1)
    warehouse = Warehouse(bench.clock, down_s=1e9)
    bench.clock.on_wait = lambda seconds: bench.stop.set()
    assert isinstance(bench.run(warehouse.call), Stopped)
    assert bench.store.durable == {}
    assert len(warehouse.calls) == 1


def test_a_stop_also_ends_the_short_pauses_of_a_closed_one() -> None:
    bench = Bench()
    warehouse = Warehouse(bench.clock, down_s=1e9)
    bench.clock.on_wait = lambda seconds: bench.stop.set()
    assert isinstance(bench.run(warehouse.call), Stopped)
    assert bench.breaker.state == "closed"


def test_while_it_pauses_the_consumer_does_not_seem_to_hang_and_says_why() -> None:
    bench = Bench(failures=1)
    warehouse = Warehouse(bench.clock, down_s=29)
    consumer = Consumer("billing", warehouse.call, registry=bench.registry, clock=bench.clock)
    shown: list[tuple[float, str]] = []
    bench.clock.on_wait = lambda seconds: shown.append(
        (consumer.series.activity.longest()[0], consumer.series.activity.why())
    )
    spec = Spec(FakeStream(EVENTS), bench.store, bench.breaker.guard(consumer), StreamToHead(), clock=bench.clock)
    with pytest.raises(HeadReached):
        run(spec)
    assert shown == [(0, 'circuit breaker "warehouse" is open')]
    assert consumer.series.activity.why() == ""


def test_one_lane_opens_it_for_all_and_only_one_probes() -> None:
    """Three threads share the breaker; while it is half-open, one call is under way at most."""
    bench = Bench(failures=1, reset_after=timedelta(seconds=1))
    lock = threading.Lock()
    under_way, most, tries = 0, 0, 0

    def fn() -> None:
        nonlocal under_way, most, tries
        with lock:
            probing = bench.breaker.state == "half-open"
            under_way += 1
            tries += 1
            most = max(most, under_way) if probing else most
            down = tries < 40
        try:
            if down:
                raise ConnectionError
        finally:
            with lock:
                under_way -= 1

    threads = [threading.Thread(target=bench.breaker.call, args=(fn,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert most == 1
    assert bench.breaker.state == "closed"


@pytest.mark.parametrize("outcome", [None, ConnectionError("down")])
def test_a_call_begun_before_it_opened_says_nothing_while_it_is_half_open(outcome: Exception | None) -> None:
    bench = Bench(failures=1)
    begun, probing, told = threading.Event(), threading.Event(), threading.Event()
    calls: list[str] = []

    def old_call() -> None:
        calls.append("old")
        begun.set()
        assert probing.wait(60)
        if calls.count("old") == 1 and outcome is not None:
            raise outcome

    class Waiting(Run):
        def waiting(self, why: str = "") -> Any:
            told.set()
            return super().waiting(why)

    def work() -> None:
        bench.breaker.call(old_call, run=Waiting("billing"))
        told.set()

    def probe() -> None:
        calls.append("new")
        if calls.count("new") == 1:
            raise ConnectionError
        assert bench.breaker.state == "half-open"
        probing.set()
        assert told.wait(60)
        assert bench.breaker.state == "half-open"

    old = threading.Thread(target=work, daemon=True)
    old.start()
    assert begun.wait(60)
    bench.breaker.call(probe)
    assert bench.breaker.state == "closed"
    old.join(60)
    assert not old.is_alive()
    changes = bench.value("rscylla_circuit_breaker_changes_total", breaker="warehouse", to="open")
    assert changes == 1


def test_a_call_that_hangs_holds_up_no_other_consumer() -> None:
    bench = Bench()
    entered, release = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        release.wait(60)

    thread = threading.Thread(target=bench.breaker.call, args=(hang,))
    thread.start()
    assert entered.wait(60)
    done: list[int] = []
    bench.breaker.call(lambda: done.append(1))
    assert done == [1]
    release.set()
    thread.join(60)


def test_it_guards_any_code() -> None:
    assert Bench().breaker.call(lambda: 7) == 7


def test_a_function_may_decide_what_is_an_outage() -> None:
    bench = Bench(outage=lambda error: "busy" in str(error), failures=1)
    answers = iter(["busy", "busy", "fine"])

    def fn(event: Any, fate: Any) -> None:
        answer = next(answers, "fine")
        if answer != "fine":
            raise RuntimeError(answer)

    assert isinstance(bench.run(fn), HeadReached)


def test_a_stop_is_never_an_outage() -> None:
    bench = Bench(outage=Exception, failures=1)
    ends = iter([Stopped(), None])

    def fn(event: Any, fate: Any) -> None:
        if (end := next(ends, None)) is not None:
            raise end

    assert isinstance(bench.run(fn), Stopped)
    assert bench.breaker.state == "closed"
    assert bench.clock.waits == []


def test_the_guarded_consumer_keeps_name_metrics_reset_and_stop() -> None:
    inner = RecordingConsumer("billing")
    guarded = Bench().breaker.guard(inner)
    assert guarded.name == "billing"
    with pytest.raises(HeadReached):
        run(Spec(FakeStream(EVENTS), FakeCursorStore(), guarded, StreamToHead(), registry=CollectorRegistry()))
    assert (inner.resets, inner.stops, inner.ids) == (1, 1, ["e1", "e2", "e3"])


def test_outside_of_a_run_it_waits_by_its_own_clock() -> None:
    bench = Bench(failures=1)
    warehouse = Warehouse(bench.clock, down_s=25)
    bench.breaker.guard(Consumer("billing", warehouse.call, registry=bench.registry)).consume(EVENTS[0], Run("billing"))
    assert bench.clock.waits == [30]


@pytest.mark.parametrize(
    "wrong",
    [
        {"failures": 0},
        {"successes": 0},
        {"reset_after": timedelta()},
        {"outage": ()},
        {"outage": "ConnectionError"},
        {"outage": (ConnectionError, "x")},
        {"outage": int},
    ],
    ids=str,
)
def test_arguments_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Bench(**wrong)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    importing = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name == "pybreaker":
            raise ImportError(name)
        return importing(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"rscylla\[service\]"):
        Bench()


def test_workers_of_a_concurrent_consumer_pause_alike_and_none_seems_to_hang_afterwards() -> None:
    bench = Bench(failures=1)
    warehouse = Warehouse(bench.clock, down_s=29)
    inner = Consumer("billing", warehouse.call, registry=bench.registry, clock=bench.clock)
    consumer = concurrent(bench.breaker.guard(inner), max_in_flight=2)
    spec = Spec(FakeStream(EVENTS), bench.store, consumer, StreamToHead(), clock=bench.clock)
    with pytest.raises(HeadReached):
        run(spec)
    assert sorted({event for event, _ in warehouse.calls}) == ["e1", "e2", "e3"]
    assert bench.store.durable == {"billing": "e3"}
    bench.clock.advance(3600)
    assert inner.series.activity.longest()[0] == 0


def test_a_lane_whose_sweep_is_held_up_by_a_breaker_does_not_seem_to_hang() -> None:
    """The two lanes of ``fast_and_sweep`` take turns, so one waits as long as the other."""
    clock = ManualClock(START_US)
    entered_first, release = threading.Event(), threading.Event()

    def hold(event: Any, fate: Any) -> None:
        if event.id == "e1":
            entered_first.set()
            release.wait(60)

    turn = SharedConsumer(Consumer("billing", hold, registry=CollectorRegistry()))
    sweep = threading.Thread(target=turn.consume, args=(EVENTS[0], Run("billing")))
    sweep.start()
    assert entered_first.wait(60)
    series = ConsumerSeries("billing[fast]")
    waits, pauses = threading.Event(), threading.Event()

    class Watched(Run):
        @contextmanager
        def waiting(self, why: str = "") -> Iterator[None]:
            with super().waiting(why):
                pauses.set()
                yield

    def fast() -> None:
        with Watched("billing[fast]", clock=clock, series=series).handling(EVENTS[1]) as fast_run:
            turn.consume(EVENTS[1], fast_run)
            waits.set()
            release.wait(60)

    thread = threading.Thread(target=fast)
    thread.start()
    assert pauses.wait(60)
    clock.advance(3600)
    assert series.activity.longest()[0] == 0
    assert not waits.is_set()
    release.set()
    sweep.join(60)
    thread.join(60)
    assert waits.is_set()
