"""The pages of a service: metrics, liveness, readiness. No test waits for time to pass."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

import attrs
import pytest
from servicebench import DOWN, PATIENCE_S, QUICK, START_US, Bench, FakeLease, samples

from cursorstore import BufferedCursorStore, IntCursorCodec
from rscylla._timeuuid import datetime_of
from rscylla.abc import StreamStatus
from rscylla.clock import Stop
from rscylla.errors import (
    QueryFailed,
    Stopped,
)
from rscylla.event import SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import Consumer, Spec
from rscylla.service import Restarts, Service
from rscylla.service.letter_counts import LetterCounts
from rscylla.testing import FakeCursorStore, ManualClock, RecordingConsumer
from tests.support.drivenclock import DrivenClock, until


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
