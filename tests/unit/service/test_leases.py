"""A service under a lease: it stands by, and no event starts after it was lost. No test waits for time to pass."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta
from typing import Any

import pytest
from servicebench import DOWN, EVENTS, PATIENCE_S, QUICK, START_US, Bench, FakeLease

from rscylla._timeuuid import datetime_of
from rscylla.clock import InnerStop, Stop
from rscylla.errors import (
    LeaseLost,
    QueryFailed,
    Stopped,
)
from rscylla.event import SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import Consumer, Spec, concurrent, run
from rscylla.service import Restarts
from rscylla.service.lease import LeasedStop
from rscylla.testing import FakeStream, ManualClock
from tests.support.drivenclock import until


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
