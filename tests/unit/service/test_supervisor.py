"""``Service``: lanes side by side, restarts, how it ends, signals, leases, health. No test waits for time to pass."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from cursorstore import BufferedCursorStore, IntCursorCodec
from rscylla._timeuuid import datetime_of
from rscylla.abc import StreamStatus
from rscylla.clock import InnerStop, Stop
from rscylla.errors import (
    ConfigError,
    ConnectionFailed,
    CursorExpired,
    LeaseLost,
    QueryFailed,
    RunError,
    ServiceFailed,
    Stopped,
)
from rscylla.event import SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import Backoff, Consumer, LaneFilter, Spec, concurrent, run
from rscylla.service import Restarts, Service
from rscylla.service.lease import LeasedStop
from rscylla.service.letter_counts import LetterCounts
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer
from tests.support.drivenclock import DrivenClock, until

START_US = 1_790_000_000_000_000
EVENTS = [SimpleEvent(f"e{number}", timestamp=datetime_of(START_US - 1)) for number in range(1, 5)]
DOWN = ConnectionFailed("no node answers; start one")
QUICK = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=8), jitter=0)
PATIENCE_S = 60.0


class Bench:
    """Specs over fakes, on one driven clock and registry."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_US)
        self.registry = CollectorRegistry()
        self.store = FakeCursorStore(buffered=True)
        self.streams: dict[str, FakeStream] = {}
        self.consumers: dict[str, RecordingConsumer] = {}

    def spec(self, name: str = "billing", *options: Any, consumer: Any = None, events: list[Any] | None = None) -> Spec:
        stream = self.streams[name] = FakeStream(EVENTS if events is None else events, clock=self.clock)
        if consumer is None:
            consumer = self.consumers[name] = RecordingConsumer(name)
        return Spec(stream, self.store, consumer, *options, clock=self.clock, registry=self.registry)

    def service(self, *specs: Spec, **more: Any) -> Service:
        return Service(specs, registry=self.registry, **more)

    def scrape(self) -> dict[tuple[str, ...], float]:
        from prometheus_client import generate_latest

        return samples(generate_latest(self.registry).decode())


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return the values by name and label values, in the order of label names."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def sigterm_is_harmless() -> Iterator[list[int]]:
    """Signals that a service does not take end up here, and not with the test run."""
    missed: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda n, _: missed.append(n)) for number in numbers}
    yield missed
    for number, handler in before.items():
        signal.signal(number, handler)


# ---------------------------------------------------------------- the ends of a service


def test_it_ends_when_all_lanes_reached_the_head_they_were_asked_for(bench: Bench) -> None:
    service = bench.service(bench.spec("billing", StreamToHead()), bench.spec("mailing", StreamToHead()))
    assert service.run() == 0
    assert bench.store.durable == {"billing": "e4", "mailing": "e4"}
    assert service.failure is None


def test_specs_that_belong_together_may_be_one_item(bench: Bench) -> None:
    pair = (bench.spec("billing[0/2]", StreamToHead()), bench.spec("billing[1/2]", StreamToHead()))
    service = Service([pair, bench.spec("mailing", StreamToHead())], registry=bench.registry)
    assert service.run() == 0
    assert [lane.consumer for lane in service.facts().lanes] == ["billing[0/2]", "billing[1/2]", "mailing"]


def test_stop_ends_it_and_what_was_consumed_is_saved(bench: Bench) -> None:
    with bench.service(bench.spec("billing"), bench.spec("mailing")) as service:
        until(lambda: all(len(one.ids) == 4 for one in bench.consumers.values()), "all events consumed")
    assert bench.store.durable == {"billing": "e4", "mailing": "e4"}
    assert service.exit_code == 0
    assert [stream.closed for stream in bench.streams.values()] == [1, 1]


def test_a_consumer_may_stop_the_service_it_runs_in(bench: Bench) -> None:
    seen: list[str] = []

    def fn(event: Any, fate: Any) -> None:
        seen.append(event.id)
        if event.id == "e2":
            service.stop()

    service = bench.service(bench.spec(consumer=Consumer("billing", fn, registry=bench.registry)))
    assert service.run() == 0
    assert seen[:2] == ["e1", "e2"]
    assert bench.store.durable["billing"] == seen[-1]


def test_it_runs_once(bench: Bench) -> None:
    service = bench.service(bench.spec("billing", StreamToHead()))
    service.run()
    with pytest.raises(ConfigError, match="create another one"):
        service.run()


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_current_event_saves_and_ends(
    bench: Bench, sigterm_is_harmless: list[int], number: signal.Signals
) -> None:
    """The signal arrives while the consumer works: what it works on is finished, nothing more is begun."""
    took = threading.Event()
    done: list[str] = []

    def fn(event: Any, fate: Any) -> None:
        if event.id == "e2":
            os.kill(os.getpid(), number)
            until(lambda: service.facts().stopping, "the service stops")
            took.set()
        done.append(event.id)

    service = bench.service(bench.spec(consumer=Consumer("billing", fn, registry=bench.registry)))
    assert service.run() == 0
    assert took.is_set()
    assert done == ["e1", "e2"]
    assert bench.store.durable == {"billing": "e2"}
    assert sigterm_is_harmless == []


def test_afterwards_signals_are_handled_as_before(bench: Bench, sigterm_is_harmless: list[int]) -> None:
    bench.service(bench.spec("billing", StreamToHead())).run()
    signal.raise_signal(signal.SIGTERM)
    assert sigterm_is_harmless == [signal.SIGTERM]


def test_a_second_signal_ends_it_at_once(bench: Bench, sigterm_is_harmless: list[int]) -> None:
    release = threading.Event()

    def fn(event: Any, fate: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: service.facts().stopping, "the service stops")
        os.kill(os.getpid(), signal.SIGINT)
        release.wait(PATIENCE_S)

    service = bench.service(
        bench.spec(consumer=Consumer("billing", fn, registry=bench.registry)), stop_timeout=timedelta(days=1)
    )
    try:
        assert service.run() == 128 + signal.SIGINT
    finally:
        release.set()
    assert sigterm_is_harmless == []


def test_off_the_main_thread_signals_are_left_alone(bench: Bench, sigterm_is_harmless: list[int]) -> None:
    codes: list[int] = []
    service = bench.service(bench.spec())
    thread = threading.Thread(target=lambda: codes.append(service.run()))
    thread.start()
    until(lambda: len(bench.consumers["billing"].ids) == 4, "all events consumed")
    signal.raise_signal(signal.SIGTERM)
    assert sigterm_is_harmless == [signal.SIGTERM]
    assert codes == []
    service.stop()
    thread.join(PATIENCE_S)
    assert codes == [0]


def test_a_consumer_that_hangs_is_named_and_left(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    release, hangs = threading.Event(), threading.Event()

    def fn(event: Any, fate: Any) -> None:
        hangs.set()
        release.wait(PATIENCE_S)

    service = bench.service(
        bench.spec("mailing", StreamToHead()),
        bench.spec("billing", consumer=Consumer("billing", fn, registry=bench.registry)),
        stop_timeout=timedelta(milliseconds=50),
    )
    service.start()
    assert hangs.wait(PATIENCE_S)
    until(lambda: service.facts().lanes[0].state == "done" and not service._workers[0].alive, "the other has ended")
    service.stop()
    assert service.wait(timedelta(seconds=PATIENCE_S))
    release.set()
    assert service.exit_code == 3
    assert 'lane "billing" did not end in time and is left behind, at event e1' in caplog.text
    assert 'lane "mailing" has not' not in caplog.text
    assert bench.store.durable["mailing"] == "e4"


HANGS = """
import os, signal, sys, threading
from datetime import timedelta
import rscylla
from rscylla.testing import FakeCursorStore, FakeStream

def fn(event, fate):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()

stream = FakeStream([rscylla.SimpleEvent("e1")])
spec = rscylla.Spec(stream, FakeCursorStore(), rscylla.Consumer("billing", fn))
sys.exit(rscylla.Service([spec], stop_timeout=timedelta(milliseconds=10)).run())
"""


def test_a_process_ends_though_its_consumer_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (3, "")


# ---------------------------------------------------------------- restarts


def test_a_lane_that_fails_runs_again_after_a_pause_and_the_others_do_not_notice(bench: Bench) -> None:
    errors: list[tuple[str, Exception]] = []
    billing, mailing = bench.spec("billing", StreamToHead()), bench.spec("mailing", StreamToHead())
    bench.streams["billing"].fail("recv", DOWN, index=2, times=3)
    service = bench.service(
        billing, mailing, restarts=Restarts(backoff=QUICK), on_error=lambda name, error: errors.append((name, error))
    )
    assert service.run() == 0
    assert bench.store.durable == {"billing": "e4", "mailing": "e4"}
    assert bench.clock.waits == [1, 2, 4]
    assert [name for name, _ in errors] == ["billing"] * 3
    assert all(isinstance(error, RunError) and error.__cause__ is DOWN for _, error in errors)
    assert bench.scrape()["rscylla_lane_restarts_total", "billing"] == 3
    assert bench.scrape()["rscylla_lane_restarts_total", "mailing"] == 0
    assert len(bench.streams["mailing"].opened) == 1


def test_one_failure_too_many_ends_the_service_with_the_cause(bench: Bench) -> None:
    """The other lanes are stopped, and what they did is saved."""
    spec, other = bench.spec("billing"), bench.spec("mailing")
    bench.streams["billing"].fail("recv", DOWN, times=100)
    service = bench.service(spec, other, restarts=Restarts(most=2, backoff=QUICK))
    assert service.run() == 1
    assert bench.clock.waits == [1, 2]
    assert isinstance(service.failure, ServiceFailed)
    assert service.failure.consumer == "billing"
    assert 'lane "billing" failed more than 2 times in 600 s' in str(service.failure)
    cause = service.failure.__cause__
    assert isinstance(cause, RunError)
    assert cause.__cause__ is DOWN
    assert bench.store.durable.get("mailing", "") == bench.store.get_cursor("mailing")
    assert bench.streams["mailing"].closed == len(bench.streams["mailing"].opened)


def test_failures_that_are_long_ago_do_not_count(bench: Bench) -> None:
    spec = bench.spec("billing", StreamToHead())
    bench.streams["billing"].fail("recv", DOWN, times=7)
    slow = Backoff(initial=timedelta(minutes=6), maximum=timedelta(minutes=6), jitter=0)
    restarts = Restarts(most=2, within=timedelta(minutes=10), backoff=slow)
    assert bench.service(spec, restarts=restarts).run() == 0
    assert len(bench.clock.waits) == 7


def test_failures_between_which_events_were_handled_do_not_count(bench: Bench) -> None:
    events = [SimpleEvent(f"e{number}", timestamp=datetime_of(START_US - 1)) for number in range(1, 14)]
    consumer = RecordingConsumer("billing", fail={event.id: ValueError() for event in events})
    spec = bench.spec("billing", StreamToHead(), events=events, consumer=consumer)
    assert bench.service(spec, restarts=Restarts(most=1, backoff=QUICK)).run() == 0
    assert bench.clock.waits == [1] * 13


def test_without_a_budget_it_never_gives_up(bench: Bench) -> None:
    spec = bench.spec("billing", StreamToHead())
    bench.streams["billing"].fail("recv", DOWN, times=50)
    assert bench.service(spec, restarts=Restarts(most=None, backoff=QUICK)).run() == 0
    assert bench.scrape()["rscylla_lane_restarts_total", "billing"] == 50


def expired() -> CursorExpired:
    gap = datetime_of(START_US)
    return CursorExpired("the cursor is older than the log", gap_from=gap, gap_to=gap)


def test_an_error_that_a_retry_cannot_fix_ends_the_service_at_once(bench: Bench) -> None:
    error = expired()
    spec = bench.spec("billing")
    bench.streams["billing"].fail("open", error)
    service = bench.service(spec)
    assert service.run() == 1
    assert bench.clock.waits == []
    assert service.failure is not None
    assert service.failure.__cause__ is not None
    assert service.failure.__cause__.__cause__ is error


def test_a_parked_lane_stays_down_and_the_others_continue(bench: Bench) -> None:
    spec, other = bench.spec("billing"), bench.spec("mailing")
    bench.streams["billing"].fail("open", expired())
    service = bench.service(spec, other, restarts={"billing": Restarts(fatal="park")})
    service.start()
    until(lambda: service.facts().lanes[0].state == "parked", "the lane is parked")
    bench.streams["mailing"].append(SimpleEvent("e5", timestamp=datetime_of(START_US)))
    until(lambda: bench.consumers["mailing"].ids[-1:] == ["e5"], "the other lane goes on")
    body = service.ready()
    assert body["status"] == "failed"
    assert [check["check"] for check in body["checks"] if not check["ok"]] == ['lane "billing"']
    assert "the cursor is older than the log" in next(check["why"] for check in body["checks"] if not check["ok"])
    assert service.alive()["status"] == "ok"
    service.stop()
    assert service.wait(timedelta(seconds=PATIENCE_S))
    assert service.exit_code == 0


def test_a_parked_lane_runs_again_when_it_is_told_to_and_its_failure_is_wanted(bench: Bench) -> None:
    spec, other = bench.spec("billing"), bench.spec("mailing")
    bench.streams["billing"].fail("open", expired())
    service = bench.service(spec, other, restarts={"billing": Restarts(fatal="park")})
    service.start()
    until(lambda: service.facts().lanes[0].state == "parked", "the lane is parked")
    asked: list[str] = []

    def wanted(failure: ServiceFailed) -> bool:
        asked.append(failure.consumer)
        return len(asked) > 1

    service.retry_parked(wanted)
    until(lambda: bool(asked), "the failure is looked at")
    assert service.facts().lanes[0].state == "parked"

    def goes_on() -> bool:
        service.retry_parked(wanted)
        return bench.consumers["billing"].ids == ["e1", "e2", "e3", "e4"]

    until(goes_on, "the lane runs again")
    assert service.ready()["status"] == "ok"
    assert set(asked) == {"billing"}
    service.stop()
    assert service.wait(timedelta(seconds=PATIENCE_S))
    assert (service.exit_code, service.failure) == (0, None)


def test_with_nothing_left_but_parked_lanes_the_service_ends(bench: Bench) -> None:
    spec, other = bench.spec("billing"), bench.spec("mailing", StreamToHead())
    bench.streams["billing"].fail("recv", DOWN, times=100)
    service = bench.service(spec, other, restarts=Restarts(most=1, backoff=QUICK, give_up="park"))
    assert service.run() == 1
    assert service.failure is not None
    assert service.failure.consumer == "billing"
    assert bench.store.durable["mailing"] == "e4"


def test_leaving_a_failed_service_raises_why(bench: Bench) -> None:
    spec = bench.spec("billing")
    bench.streams["billing"].fail("open", expired())
    service = bench.service(spec)
    with pytest.raises(ServiceFailed, match="the cursor is older"), service:
        assert service.wait(timedelta(seconds=PATIENCE_S))


def test_an_interrupt_in_a_consumer_is_never_parked(bench: Bench) -> None:
    def fn(event: Any, fate: Any) -> None:
        raise KeyboardInterrupt

    spec = bench.spec(consumer=Consumer("billing", fn, registry=bench.registry))
    service = bench.service(spec, bench.spec("mailing"), restarts=Restarts(give_up="park"))
    assert service.run() == 1
    assert bench.store.get_cursor("billing") == ""


def test_an_error_during_a_stop_is_logged_and_is_not_a_failure(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with bench.service(bench.spec("billing")) as service:
        until(lambda: len(bench.consumers["billing"].ids) == 4, "all events consumed")
        bench.store.fail("flush", QueryFailed("the cursor table is gone"))
    assert service.exit_code == 0
    assert "the lane was being stopped" in caplog.text


def test_what_is_logged_between_two_runs_names_the_lane_too(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(LaneFilter())
    spec = bench.spec("billing", StreamToHead())
    bench.streams["billing"].fail("recv", DOWN)
    assert bench.service(spec, restarts=Restarts(backoff=QUICK)).run() == 0
    told = [record for record in caplog.records if "it runs again" in record.message]
    assert [record.__dict__["consumer"] for record in told] == ["billing"]


# ---------------------------------------------------------------- leases


class FakeLease:
    """A lease that is handed out and taken away by the test."""

    name = "orders"
    owner = "here"
    renew_every = 0.002

    def __init__(self, *, free: bool = True) -> None:
        self.free = free
        self.mine = False
        self.epoch = 0
        self.renewals = 0
        self.released = 0
        self.error: Exception | None = None

    def held(self) -> bool:
        return self.mine

    def try_acquire(self) -> bool:
        if not self.mine and self.free:
            self.mine = True
            self.epoch += 1
        return self.mine

    def acquire(self, stop: Stop | None = None) -> int:
        stop = stop or Stop()
        while not self.try_acquire():
            stop.check()
            if self.error is not None:
                raise self.error
            stop.wait(0.002)
        return self.epoch

    def renew(self) -> None:
        self.renewals += 1
        if not self.mine:
            raise LeaseLost('the lease "orders" is held by another')
        if self.error is not None:
            raise self.error

    def release(self) -> None:
        self.mine = False
        self.released += 1

    def lose(self) -> None:
        """Another owner has it from now on."""
        self.free = self.mine = False


def test_it_stands_by_until_it_holds_the_lease(bench: Bench) -> None:
    lease = FakeLease(free=False)
    with bench.service(bench.spec(), lease=lease) as service:
        until(lambda: service.facts().lanes[0].state == "standby", "it stands by")
        assert service.ready()["status"] == service.alive()["status"] == "ok"
        facts = service.facts()
        assert (facts.lease, facts.held, facts.epoch) == ("orders", False, 0)
        assert bench.scrape()["rscylla_lease_held", "orders"] == 0
        assert bench.streams["billing"].opened == []
        lease.free = True
        until(lambda: len(bench.consumers["billing"].ids) == 4, "all events consumed")
        assert bench.scrape()["rscylla_lease_held", "orders"] == 1
        assert bench.scrape()["rscylla_lease_epoch", "orders"] == 1
    assert lease.released == 1
    assert bench.store.durable == {"billing": "e4"}


def test_a_lease_is_not_released_while_a_consumer_that_hangs_may_still_act_under_it(bench: Bench) -> None:
    lease, release, hangs = FakeLease(), threading.Event(), threading.Event()

    def fn(event: Any, fate: Any) -> None:
        hangs.set()
        release.wait(PATIENCE_S)

    consumer = Consumer("billing", fn, registry=bench.registry)
    service = bench.service(bench.spec(consumer=consumer), lease=lease, stop_timeout=timedelta(milliseconds=50))
    service.start()
    assert hangs.wait(PATIENCE_S)
    service.stop()
    assert service.wait(timedelta(seconds=PATIENCE_S))
    assert service._lease_keeper is not None
    assert service._lease_keeper.join(PATIENCE_S)
    assert lease.released == 0
    release.set()
    assert service.exit_code == 3


def test_a_lost_lease_stops_the_lanes_and_it_stands_by_again(bench: Bench) -> None:
    lease = FakeLease()
    with bench.service(bench.spec(), lease=lease) as service:
        until(lambda: len(bench.consumers["billing"].ids) == 4, "all events consumed")
        lease.lose()
        until(lambda: service.facts().lanes[0].state == "standby", "it stands by")
        assert bench.streams["billing"].closed == 1
        bench.streams["billing"].append(SimpleEvent("e5", timestamp=datetime_of(START_US)))
        assert bench.consumers["billing"].ids[-1] == "e4"
        lease.free = True
        until(lambda: bench.consumers["billing"].ids[-1] == "e5", "it goes on where it was")
        assert service.facts().epoch == 2
    assert service.exit_code == 0
    assert bench.consumers["billing"].ids == ["e1", "e2", "e3", "e4", "e5"]


def test_no_event_starts_after_the_lease_expires_even_before_the_keeper_notices(bench: Bench) -> None:
    """As after a pause of the whole process: the lane asks the lease itself before each event."""
    lease = FakeLease()
    lease.renew_every = PATIENCE_S
    seen: list[str] = []

    def fn(event: Any, fate: Any) -> None:
        seen.append(event.id)
        if event.id == "e2":
            lease.lose()

    spec = bench.spec(consumer=Consumer("billing", fn, registry=bench.registry))
    with bench.service(spec, lease=lease) as service:
        until(lambda: service.facts().lanes[0].state == "stopped", "the lane stopped by itself")
    assert seen == ["e1", "e2"]


def test_a_run_asks_the_lease_once_for_each_event_right_before_it(bench: Bench) -> None:
    asked: list[str] = []

    class Asked:
        def held(self) -> bool:
            asked.append("held")
            return asked.count("e") < 3

    consumer = Consumer("billing", lambda event, run: asked.append("e"), registry=bench.registry)
    stream = FakeStream(EVENTS, clock=bench.clock)
    # Without the signal of the run, which this stream would ask, too.
    spec = Spec(lambda cursor, *options, stop=None: stream(cursor, *options), bench.store, consumer)
    with pytest.raises(Stopped):
        run(spec, stop=LeasedStop(Asked()))
    assert asked[asked.index("e") - 1 :] == ["held", "e"] * 3 + ["held"]


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("cause", ["expired", "lapsed", "set", "inner"])
def test_a_checker_asks_all_that_ends_a_run_under_a_lease(cause: str, depth: int) -> None:
    class Asked:
        here = True

        def held(self) -> bool:
            return self.here

    lease = Asked()
    outer = LeasedStop(lease)
    stop: Stop = outer
    for _ in range(depth):
        stop = InnerStop(stop)
    check = stop.checker()
    check()
    if cause == "expired":
        lease.here = False
    elif cause == "lapsed":
        outer.lapsed = True
    elif cause == "set":
        outer._set = True  # its callbacks did not run yet
    else:
        stop.set()
    for _ in range(2):
        with pytest.raises(Stopped, match="^the lease is over$" if cause in ("expired", "lapsed") else "^stopped$"):
            check()
        lease.here = True
    assert outer.lapsed is (cause in ("expired", "lapsed"))


def test_a_renewal_under_way_does_not_bring_back_a_tenure_that_lanes_have_left(bench: Bench) -> None:
    """As after a pause, with the answer to a renewal waiting in the socket: the lease is over, and then it is not."""
    asked, answered = threading.Event(), threading.Event()

    class Slow(FakeLease):
        def renew(self) -> None:
            if not asked.is_set():
                asked.set()
                assert answered.wait(PATIENCE_S)
                self.mine = True

    lease = Slow()
    with bench.service(bench.spec(), lease=lease) as service:
        until(lambda: len(bench.consumers["billing"].ids) == 4, "all events consumed")
        assert asked.wait(PATIENCE_S)
        lease.mine = False
        bench.streams["billing"].append(SimpleEvent("e5", timestamp=datetime_of(START_US)))
        until(lambda: service.facts().lanes[0].state == "stopped", "the lane stopped by itself")
        answered.set()
        until(lambda: bench.consumers["billing"].ids[-1] == "e5", "it works again")
    assert bench.consumers["billing"].ids == ["e1", "e2", "e3", "e4", "e5"]
    assert service.exit_code == 0


def test_threads_of_a_consumer_begin_nothing_after_the_lease_is_over(bench: Bench) -> None:
    """The lanes are handling events that they took while the lease was held."""
    lease, taken, lost = FakeLease(), threading.Event(), threading.Event()
    lease.renew_every = PATIENCE_S
    seen: list[str] = []

    def fn(event: Any, fate: Any) -> None:
        seen.append(event.id)
        taken.set()
        assert lost.wait(PATIENCE_S)

    consumer = concurrent(Consumer("billing", fn, registry=bench.registry), workers=1)
    with bench.service(bench.spec(consumer=consumer), lease=lease) as service:
        assert taken.wait(PATIENCE_S)
        until(lambda: bench.scrape()["rscylla_unfinished_events", "billing"] == 4, "all are taken")
        lease.lose()
        lost.set()
        until(lambda: bench.scrape()["rscylla_unfinished_events", "billing"] == 3, "the first is done")
        bench.streams["billing"].append(SimpleEvent("e5", timestamp=datetime_of(START_US)))
        until(lambda: service.facts().lanes[0].state == "stopped", "the lane stopped by itself")
    assert seen == ["e1"]


def test_renewals_that_fail_or_are_slow_are_followed_sooner_by_the_next(bench: Bench) -> None:
    """Else one that takes as long as a driver's time-out would cost the lease."""
    waits: list[float] = []
    fifth = threading.Event()

    class Noting(ManualClock):
        def wait(self, stop: Stop, seconds: float) -> bool:
            waits.append(seconds)
            if len(waits) == 5:
                fifth.set()
                return stop.wait()
            return stop.is_set()

    clock = Noting(START_US)

    class Slow(FakeLease):
        renew_every = 8.0

        def renew(self) -> None:
            self.renewals += 1
            if self.renewals == 2:
                raise DOWN
            if self.renewals == 3:
                clock.advance(5)
            if self.renewals == 4:
                clock.advance(9)

    with bench.service(bench.spec(), lease=Slow(), clock=clock):
        assert fifth.wait(PATIENCE_S)
    assert waits == [8.0, 8.0, 2.0, 3.0, 0.0]


def test_a_renewal_that_fails_is_tried_again_while_the_lease_is_held(bench: Bench) -> None:
    lease = FakeLease()
    with bench.service(bench.spec(), lease=lease) as service:
        until(lambda: len(bench.consumers["billing"].ids) == 4, "all events consumed")
        lease.error, before = DOWN, lease.renewals
        until(lambda: lease.renewals > before + 3, "some renewals fail")
        assert service.facts().lanes[0].state == "streaming"
        lease.error = None
    assert len(bench.streams["billing"].opened) == 1


def test_a_consumer_that_continues_without_the_lease_ends_the_process(bench: Bench) -> None:
    lease, release, hangs = FakeLease(), threading.Event(), threading.Event()

    def fn(event: Any, fate: Any) -> None:
        hangs.set()
        release.wait(PATIENCE_S)

    spec = bench.spec(consumer=Consumer("billing", fn, registry=bench.registry))
    service = bench.service(spec, lease=lease, stop_timeout=timedelta(milliseconds=50))
    service.start()
    assert hangs.wait(PATIENCE_S)
    lease.lose()
    assert service.wait(timedelta(seconds=PATIENCE_S))
    release.set()
    assert service.exit_code == 1
    assert 'lane "billing" went on for 0.05 s after the lease was lost' in str(service.failure)
    assert lease.released == 0, "it may still act"


def test_a_second_signal_does_not_wait_for_the_release_of_the_lease(
    bench: Bench, sigterm_is_harmless: list[int]
) -> None:
    giving_back, answered = threading.Event(), threading.Event()

    class Silent(FakeLease):
        def release(self) -> None:
            giving_back.set()
            answered.wait()

    service = bench.service(bench.spec(), lease=Silent(), stop_timeout=timedelta(days=1))

    def ask_twice() -> None:
        until(lambda: len(bench.consumers["billing"].ids) == 4, "all events consumed")
        os.kill(os.getpid(), signal.SIGTERM)
        assert giving_back.wait(PATIENCE_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ask_twice, daemon=True).start()
    try:
        assert service.run() == 0
    finally:
        answered.set()
    assert sigterm_is_harmless == []


def test_a_replica_that_stands_by_again_raises_no_alarm(bench: Bench) -> None:
    """What failed here, and how far behind this was, is the next holder's affair."""
    lease, failed = FakeLease(), threading.Event()

    def fn(event: Any, fate: Any) -> None:
        failed.set()
        raise ValueError("poison")

    spec = bench.spec(consumer=Consumer("billing", fn, registry=bench.registry, clock=bench.clock))
    with bench.service(spec, lease=lease, restarts=Restarts(most=None, backoff=QUICK)) as service:
        assert failed.wait(PATIENCE_S)
        until(lambda: bench.scrape()["rscylla_failing_event_attempts", "billing"] >= 5, "the alarm is due")
        bench.store.fail("flush", QueryFailed("the cursor table is gone"), times=1_000_000)
        lease.lose()
        until(lambda: service.facts().lanes[0].state == "standby", "it stands by")
        assert bench.scrape()["rscylla_failing_event_attempts", "billing"] == 0
        assert ("rscylla_watermark_lag_seconds", "billing") not in bench.scrape()


def test_a_lease_that_cannot_be_had_ends_the_service(bench: Bench) -> None:
    lease = FakeLease(free=False)
    lease.error = QueryFailed("no such table")
    service = bench.service(bench.spec(), lease=lease)
    assert service.run() == 1
    assert service.failure is not None
    assert service.failure.__cause__ is lease.error


def test_a_lane_that_finds_the_lease_lost_is_not_charged_for_it(bench: Bench) -> None:
    lease = FakeLease()
    lease.renew_every = PATIENCE_S

    def fn(event: Any, fate: Any) -> None:
        if event.id == "e2":
            lease.lose()
            bench.store.fail("set_cursor", LeaseLost("the cursor belongs to another"))

    spec = bench.spec(consumer=Consumer("billing", fn, registry=bench.registry))
    with bench.service(spec, lease=lease, restarts=Restarts(most=0, backoff=QUICK)) as service:
        until(lambda: service.facts().lanes[0].state == "stopped", "the lane stopped by itself")
    assert service.failure is None
    assert bench.store.durable == {"billing": "e1"}
    assert bench.scrape()["rscylla_lane_restarts_total", "billing"] == 0


def test_a_store_with_another_lease_than_the_service_is_an_error_like_any_other(bench: Bench) -> None:
    bench.store.fail("set_cursor", LeaseLost("lease 'other' is not held"), times=100)
    service = bench.service(bench.spec(), lease=FakeLease(), restarts=Restarts(most=3, backoff=QUICK))
    assert service.run() == 1
    assert "lease 'other' is not held" in str(service.failure)


def test_lanes_that_are_done_stay_done_in_the_next_tenure(bench: Bench) -> None:
    lease = FakeLease()
    with bench.service(bench.spec("billing", StreamToHead()), bench.spec("mailing"), lease=lease) as service:
        until(lambda: service.facts().lanes[0].state == "done", "one lane is done")
        until(lambda: len(bench.consumers["mailing"].ids) == 4, "the other has read all")
        lease.lose()
        until(lambda: service.facts().lanes[1].state == "standby", "the other stands by")
        lease.free = True
        until(lambda: len(bench.streams["mailing"].opened) == 2, "the other runs again")
    assert len(bench.streams["billing"].opened) == 1


# ---------------------------------------------------------------- health


def get(service: Service, path: str, **headers: str) -> tuple[int, str, str]:
    """Return status, content type and body of a page."""
    assert service.address is not None
    host, port = service.address
    assert host == "127.0.0.1"
    request = urllib.request.Request(f"http://{host}:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, answer.headers["Content-Type"], answer.read().decode()


def test_the_pages_of_a_service_that_is_well(bench: Bench) -> None:
    with bench.service(bench.spec(), port=0) as service:
        until(lambda: len(bench.consumers["billing"].ids) == 4, "all events consumed")
        for path in ("/healthz", "/readyz", "/readyz?verbose"):
            status, kind, body = get(service, path)
            assert (status, kind) == (200, "application/json")
            assert json.loads(body)["status"] == "ok"
        checks = [{"check": "service", "ok": True}, {"check": 'lane "billing"', "ok": True}]
        assert json.loads(body) == {"status": "ok", "checks": checks}
        status, kind, body = get(service, "/metrics")
        assert status == 200
        assert kind.startswith("text/plain")
        assert samples(body)["rscylla_lane_state", "billing", "streaming"] == 1
        assert samples(body)["rscylla_lane_state", "billing", "parked"] == 0
        assert get(service, "/metrics", Accept="application/openmetrics-text")[1].startswith(
            "application/openmetrics-text"
        )
        status, _, body = get(service, "/secrets")
        assert (status, json.loads(body)["pages"]) == (404, ["/", "/healthz", "/metrics", "/readyz", "/status"])
        address = service.address
    assert address is not None
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://{address[0]}:{address[1]}/healthz", timeout=PATIENCE_S)


def test_a_consumer_that_hangs_fails_both_health_checks(bench: Bench) -> None:
    release, hangs = threading.Event(), threading.Event()

    def fn(event: Any, fate: Any) -> None:
        hangs.set()
        release.wait(PATIENCE_S)

    spec = bench.spec(consumer=Consumer("billing", fn, registry=bench.registry))
    with bench.service(spec, port=0, stuck_after=timedelta(minutes=5)) as service:
        assert hangs.wait(PATIENCE_S)
        bench.clock.advance(300)
        assert get(service, "/healthz")[0] == 200
        bench.clock.advance(1)
        status, _, body = get(service, "/healthz")
        assert status == 503
        failed = [check for check in json.loads(body)["checks"] if not check["ok"]]
        assert failed == [
            {"check": 'consumer of lane "billing"', "ok": False, "why": "has been working on event e1 for 301 s"}
        ]
        status, _, body = get(service, "/readyz")
        assert (status, json.loads(body)["checks"][-1]["why"]) == (503, "has been working on event e1 for 301 s")
        release.set()


def test_a_source_that_does_not_answer_fails_readiness_only(bench: Bench) -> None:
    """Killing the process would not make the cluster come back."""

    class Client:
        def __init__(self, stop: Stop) -> None:
            self.stop = stop

        def recv(self) -> Any:
            self.stop.wait()
            raise Stopped

        def status(self) -> StreamStatus:
            return StreamStatus(poll_age_s=200.0)

        def close(self) -> None: ...

    class Stream:
        source = "shop.orders"

        def __call__(self, after: str, *options: Any, stop: Stop | None = None) -> Any:
            assert stop is not None
            return Client(stop)

    spec = Spec(Stream(), bench.store, RecordingConsumer("billing"), registry=bench.registry)
    with bench.service(spec) as service:
        until(lambda: service.facts().lanes[0].state == "streaming", "the stream is open")
        assert service.alive()["status"] == "ok"
        body = service.ready()
        assert body["checks"][-1]["why"] == "has had no answer from shop.orders for 200 s"


def test_a_lane_between_two_runs_is_not_ready(bench: Bench) -> None:
    waits = threading.Event()
    release = threading.Event()

    def hold(seconds: float) -> None:
        waits.set()
        release.wait(PATIENCE_S)

    bench.clock.on_wait = hold
    spec = bench.spec("billing", StreamToHead())
    bench.streams["billing"].fail("recv", DOWN)
    with bench.service(spec, restarts=Restarts(backoff=QUICK)) as service:
        assert waits.wait(PATIENCE_S)
        why = service.ready()["checks"][-1]["why"]
        assert why == 'is restarting: consumer "billing": recv failed: no node answers; start one'
        release.set()
        assert service.wait(timedelta(seconds=PATIENCE_S))


@pytest.mark.parametrize("step", ["consume", "set_cursor"])
def test_a_lane_that_fails_again_and_again_is_not_ready_while_it_runs_either(bench: Bench, step: str) -> None:
    """Its stream opens each time, and it begins an event."""
    seen: list[tuple[str, str]] = []
    failures = [DOWN] * 4

    def fn(event: Any, run: Any) -> None:
        seen.append((event.id, service.ready()["checks"][-1].get("why", "")))
        if failures and event.id == "e2":
            error = failures.pop()
            if step == "consume":
                raise error
            bench.store.fail("set_cursor", error)

    consumer = Consumer("billing", fn, registry=bench.registry, clock=bench.clock)
    service = bench.service(bench.spec(consumer=consumer), restarts=Restarts(most=None, backoff=QUICK))
    with service:
        until(lambda: len(seen) == 8, "all events")
        until(lambda: service.ready()["status"] == "ok", "it is ready again")
    assert [event for event, _ in seen] == ["e1", *["e2"] * 5, "e3", "e4"]
    whys = [why for _, why in seen]
    assert whys[:2] == whys[6:] == ["", ""]
    assert all(why.startswith("has failed, and its cursor has not moved since: ") for why in whys[2:6])


def test_a_stream_without_events_is_ready_some_time_after_a_failure(bench: Bench) -> None:
    consumer = Consumer("billing", lambda event, run: None, registry=bench.registry, clock=bench.clock)
    spec = bench.spec(consumer=consumer, events=[])
    bench.streams["billing"].fail("recv", DOWN)
    with bench.service(spec, restarts=Restarts(backoff=QUICK)) as service:
        until(lambda: service.facts().lanes[0].restarts == 1, "it has failed")
        until(lambda: [lane.state for lane in service.facts().lanes] == ["streaming"], "it reads again")
        assert "cursor has not moved since" in service.ready()["checks"][-1]["why"]
        assert bench.scrape()["rscylla_service_ready",] == 0
        bench.clock.advance(120)
        assert service.ready()["status"] == "ok"
        assert bench.scrape()["rscylla_service_ready",] == 1
    assert bench.scrape()["rscylla_service_ready",] == 0


def test_a_standby_of_a_lease_that_nobody_may_hold_is_not_ready(bench: Bench) -> None:
    lease = FakeLease(free=False)
    with bench.service(bench.spec(), lease=lease) as service:
        until(lambda: service.facts().lanes[0].state == "standby", "it stands by")
        assert service.ready()["status"] == "ok"
        lease.trouble = "nobody holds it, as far as known: no node answers"  # type: ignore[attr-defined]
        failed = [check for check in service.ready()["checks"] if not check["ok"]]
        assert failed == [{"check": 'lease "orders"', "ok": False, "why": lease.trouble}]  # type: ignore[attr-defined]


def test_a_lane_whose_store_hangs_in_its_writes_is_not_ready(bench: Bench) -> None:
    release, hangs = threading.Event(), threading.Event()

    class Hanging(FakeCursorStore):
        def set_cursor(self, consumer: str, cursor: str) -> None:
            hangs.set()
            release.wait(PATIENCE_S)
            super().set_cursor(consumer, cursor)

    clock = DrivenClock(START_US)
    store = BufferedCursorStore(Hanging(), interval=timedelta(seconds=5), codec=IntCursorCodec(), clock=clock)
    events = [SimpleEvent(str(number), timestamp=datetime_of(START_US - 1)) for number in range(1, 5)]
    spec = attrs.evolve(bench.spec(events=events), store=store)
    with bench.service(spec) as service:
        until(lambda: len(bench.consumers["billing"].ids) == 4, "all events")
        until(hangs.is_set, "it writes", lambda: clock.advance(1))
        clock.advance(store._flushed + 125 - clock.monotonic())
        assert service.ready()["status"] == "ok"
        clock.advance(1)
        assert service.ready()["checks"][-1]["why"] == "has saved no cursor for 121 s"
        assert service.alive()["status"] == "ok"
        release.set()
        until(lambda: service.ready()["status"] == "ok", "it is saved", lambda: clock.advance(1))
    store.close()


def test_a_service_that_has_not_started_or_has_ended_says_so(bench: Bench) -> None:
    service = bench.service(bench.spec("billing", StreamToHead()))
    assert service.alive()["status"] == service.ready()["status"] == "failed"
    service.run()
    assert "no supervisor runs" in service.alive()["checks"][0]["why"]
    assert ("rscylla_lane_state", "billing", "streaming") not in bench.scrape()


class Letters:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked = 0

    def count_letters(self, consumer: str | None = None) -> dict[str, int]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return {"billing": 3, "somebody else": 9}


def test_dead_letters_are_counted_in_the_background(bench: Bench) -> None:
    with bench.service(bench.spec("billing"), bench.spec("mailing"), dead_letters=Letters()) as service:
        until(lambda: service.facts().lanes[0].dead_letters is not None, "they were counted")
        assert [lane.dead_letters for lane in service.facts().lanes] == [3, 0]
        assert bench.scrape()["rscylla_dead_letters", "billing"] == 3
        assert bench.scrape()["rscylla_dead_letters", "mailing"] == 0
        assert ("rscylla_dead_letters", "somebody else") not in bench.scrape()


def test_slow_counts_of_dead_letters_are_less_frequent() -> None:
    clock, letters, spans = ManualClock(), Letters(), [0.1, 2.0, 0.0]
    letters.count_letters = lambda: clock.advance(spans[len(clock.waits)]) or {}  # type: ignore[assignment, func-returns-value]
    depth = LetterCounts(letters, clock, lambda counts: None)  # type: ignore[arg-type]
    clock.on_wait = lambda seconds: depth.stop() if len(clock.waits) == len(spans) else None
    depth.start()
    until(lambda: len(clock.waits) == len(spans), "it was counted")
    assert clock.waits == [30, 100, 30]


def test_dead_letters_that_cannot_be_counted_break_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    letters = Letters()
    letters.error = QueryFailed("no such table")
    with bench.service(bench.spec("billing"), dead_letters=letters) as service:
        until(lambda: "dead letters cannot be counted: no such table" in caplog.text, "it was told")
        assert service.facts().lanes[0].dead_letters is None


# ---------------------------------------------------------------- wrong use


def test_two_lanes_of_one_name_are_refused(bench: Bench) -> None:
    with pytest.raises(ConfigError, match='several specs are named "billing"'):
        bench.service(bench.spec("billing"), bench.spec("billing"))


def test_a_service_without_lanes_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one Spec"):
        Service([])


def test_a_policy_for_a_lane_that_is_not_there_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="does not have: biling"):
        bench.service(bench.spec("billing"), restarts={"biling": Restarts()})


def test_a_port_in_use_is_reported_before_anything_runs(bench: Bench) -> None:
    with bench.service(bench.spec("billing"), port=0) as first:
        assert first.address is not None
        second = bench.service(bench.spec("mailing"), port=first.address[1])
        with pytest.raises(ConfigError, match="choose another host or port"):
            second.run()
    assert bench.streams["mailing"].opened == []


@pytest.mark.parametrize(
    ("field", "value"), [("most", -1), ("within", timedelta()), ("give_up", "shrug"), ("fatal", "shrug")]
)
def test_restarts_check_what_they_are_given(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match="Restarts: "):
        Restarts(**{field: value})


@pytest.mark.parametrize("field", ["stop_timeout", "stuck_after", "poll_timeout"])
def test_spans_must_be_positive(bench: Bench, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        bench.service(bench.spec(), **{field: timedelta()})


def test_the_loggers_are_quiet_without_trouble(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    bench.service(bench.spec("billing", StreamToHead()), port=0).run()
    assert caplog.records == []
