"""``Service``: lanes side by side, restarts, how it ends, signals. No test waits for time to pass."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from servicebench import DOWN, PATIENCE_S, QUICK, START_US, Bench

from rscylla._timeuuid import datetime_of
from rscylla.errors import (
    ConfigError,
    CursorExpired,
    QueryFailed,
    RunError,
    ServiceFailed,
)
from rscylla.event import SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import Backoff, Consumer, LaneFilter
from rscylla.service import Restarts, Service
from rscylla.testing import RecordingConsumer
from tests.support.drivenclock import until

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
