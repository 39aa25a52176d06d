"""Metrics as a scrape sees them: rendered, and read back with the client library's own parser."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import DuplicateTimeseries

from rscylla._timeuuid import datetime_of
from rscylla.abc import Run, StreamStatus
from rscylla.errors import ConnectionFailed, CursorExpired, HeadReached, RunError
from rscylla.event import Event, Progress, SimpleEvent
from rscylla.options import StreamLag, StreamToHead
from rscylla.reflex import NO_FATE, Consumer, Spec, metrics_for, run, run_forever
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer

START_US = 1_790_000_000_000_000


def event(number: int, at_us: int) -> SimpleEvent:
    return SimpleEvent(f"e{number}", 1, timestamp=datetime_of(at_us))


class Scrape(dict[tuple[str, ...], float]):
    """Sample values by (name, label values in the order of label names)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self.types: dict[str, str] = {}
        rendered = generate_latest(registry).decode()
        for family in text_string_to_metric_families(rendered):
            self.types[family.name] = family.type
            for sample in family.samples:
                key = (sample.name, *(sample.labels[name] for name in sorted(sample.labels)))
                assert key not in self, "one series twice"
                self[key] = sample.value


class Bench:
    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock(START_US)
        self.registry = CollectorRegistry()
        self.consumer = Consumer(
            "billing", lambda event, fate: None, registry=self.registry, clock=self.clock, **options
        )

    def scrape(self) -> Scrape:
        return Scrape(self.registry)

    def run(self, *items: Any, options: tuple[Any, ...] = (StreamToHead(),), stream: FakeStream | None = None) -> None:
        with pytest.raises((HeadReached, RunError)):
            run(self.spec(*items, options=options, stream=stream))

    def spec(self, *items: Any, options: tuple[Any, ...], stream: FakeStream | None = None) -> Spec:
        stream = stream or FakeStream(items, clock=self.clock, supports_lag=True)
        stream.supports_lag = any(isinstance(option, StreamLag) for option in options)
        return Spec(stream, FakeCursorStore(), self.consumer, *options, clock=self.clock)


NAMES = {
    "reflex_consumer_lag_seconds": "gauge",
    "reflex_consumer_lag_alert": "gauge",
    "reflex_consumer_active": "gauge",
    "reflex_consumer_event_age_seconds": "histogram",
    "reflex_consumer_latency_seconds": "histogram",
    "reflex_consumer_error_count": "unknown",
    "reflex_consumer_skipped_events_count": "unknown",
    "reflex_consumer_dead_lettered_events_count": "unknown",
    "rscylla_watermark_lag_seconds": "gauge",
    "rscylla_last_event_age_seconds": "gauge",
    "rscylla_unsafe_lag": "gauge",
    "rscylla_poll_age_seconds": "gauge",
    "rscylla_cdc_enabled": "gauge",
    "rscylla_log_ttl_seconds": "gauge",
    "rscylla_clock_skew_seconds": "gauge",
    "rscylla_busy_seconds": "gauge",
    "rscylla_failing_event_attempts": "gauge",
    "rscylla_consumed_events": "counter",
    "rscylla_recovered_events": "counter",
    "reflex_rpatterns_batch_consumer_buffer_length": "gauge",
    "rscylla_unfinished_events": "gauge",
    "rscylla_oldest_unfinished_seconds": "gauge",
    "rscylla_given_up_events": "counter",
    "rscylla_late_events": "counter",
    "rscylla_late_by_seconds": "histogram",
    "rscylla_unproven_events": "counter",
    "rscylla_version_gaps": "counter",
    "rscylla_cursor_expired": "counter",
    "rscylla_incomplete_records": "counter",
    "rscylla_progress": "counter",
    "rscylla_flush_failures": "counter",
    "rscylla_run_errors": "counter",
}


def test_the_names_and_kinds_are_these() -> None:
    assert Bench().scrape().types == NAMES


def test_both_text_formats_can_be_parsed() -> None:
    bench = Bench()
    bench.run(event(1, START_US - 1_000_000))
    rendered = generate_openmetrics(bench.registry).decode()  # type: ignore[no-untyped-call]
    families = {family.name for family in parse_openmetrics(rendered)}  # type: ignore[no-untyped-call]
    assert families == set(NAMES)


def test_the_buckets_are_those_of_reflex() -> None:
    scrape = Bench().scrape()
    bounds: dict[str, list[float]] = {}
    for name, *labels in scrape:
        if name.endswith("_bucket"):
            bounds.setdefault(name, []).append(float(labels[-1]))
    assert bounds == {
        "reflex_consumer_event_age_seconds_bucket": [
            *(0.1, 0.5, 1, 5, 10, 50, 100, 500, 1e3, 1e4, 5e4, 1e5),
            float("inf"),
        ],
        "reflex_consumer_latency_seconds_bucket": [0.01, 0.1, 1, 5, 10, 60, 300, float("inf")],
        "rscylla_late_by_seconds_bucket": [1, 5, 10, 30, 60, 120, 300, 600, float("inf")],
    }


def test_histograms_are_cumulative_and_bounds_are_inclusive() -> None:
    bench = Bench()
    for age_us in (100_000, 100_001, 7_000_000, 200_000_000_000):
        bench.consumer.consume(event(1, START_US - age_us), NO_FATE)
    scrape = bench.scrape()

    def upto(bound: str) -> float:
        return scrape["reflex_consumer_event_age_seconds_bucket", "billing", bound]

    assert [upto(bound) for bound in ("0.1", "0.5", "5.0", "10.0", "100000.0", "+Inf")] == [1, 2, 2, 3, 3, 4]
    assert scrape["reflex_consumer_event_age_seconds_count", "billing"] == 4
    assert scrape["reflex_consumer_event_age_seconds_sum", "billing"] == pytest.approx(200_007.200001)


def test_the_lag_is_worked_out_when_it_is_read_from_the_watermark() -> None:
    """A consumer that is stuck, or idle, does not show a frozen lag."""
    bench = Bench()
    bench.run(event(1, START_US - 40_000_000), Progress("p1", START_US - 35_000_000))
    assert bench.scrape()["rscylla_watermark_lag_seconds", "billing"] == 35
    assert bench.scrape()["reflex_consumer_lag_seconds", "billing"] == 35
    bench.clock.advance(100)
    assert bench.scrape()["reflex_consumer_lag_seconds", "billing"] == 135
    assert bench.scrape()["rscylla_last_event_age_seconds", "billing"] == 140


def test_while_it_runs_the_open_streams_watermark_counts() -> None:
    bench = Bench()
    seen: list[float] = []

    def fn(event: Any, fate: Any) -> None:
        seen.append(bench.scrape()["rscylla_watermark_lag_seconds", "billing"])

    consumer = Consumer("billing", fn, registry=bench.registry, clock=bench.clock)
    items = [event(1, START_US - 9_000_000), event(2, START_US - 4_000_000)]
    with pytest.raises(HeadReached):
        run(Spec(FakeStream(items), FakeCursorStore(), consumer, StreamToHead(), clock=bench.clock))
    assert seen == [9, 4]


def test_a_new_stream_keeps_the_last_watermark_until_it_knows_its_own() -> None:
    bench = Bench()
    bench.run(event(1, START_US - 5_000_000))
    broken = FakeStream(clock=bench.clock)
    broken.fail("recv", ConnectionFailed("gone"))
    bench.clock.advance(60)
    bench.run(stream=broken)
    assert bench.scrape()["rscylla_watermark_lag_seconds", "billing"] == 65


def test_incomplete_records_are_counted_over_all_streams_of_a_consumer() -> None:
    bench = Bench()
    seen: list[float] = []

    class Client:
        def status(self) -> StreamStatus:
            return StreamStatus(incomplete_records=3)

        def recv(self) -> Any:
            seen.append(bench.scrape()["rscylla_incomplete_records_total", "billing"])
            raise HeadReached

        def close(self) -> None: ...

    def stream(after: str, *options: Any, stop: Any = None) -> Any:
        return Client()

    for _ in range(2):
        with pytest.raises(HeadReached):
            run(Spec(stream, FakeCursorStore(), bench.consumer, StreamToHead(), clock=bench.clock))
    assert seen == [3, 6]
    bench.run()  # a stream that counts nothing
    assert bench.scrape()["rscylla_incomplete_records_total", "billing"] == 6


def test_a_stream_without_watermark_shows_the_lag_of_the_last_event_as_it_came() -> None:
    bench = Bench()
    bench.consumer.consume(event(1, START_US - 5_000_000), NO_FATE)
    bench.clock.advance(60)
    scrape = bench.scrape()
    assert scrape["reflex_consumer_lag_seconds", "billing"] == 5
    assert ("rscylla_watermark_lag_seconds", "billing") not in scrape
    assert scrape["rscylla_last_event_age_seconds", "billing"] == 65


def test_before_anything_happened_there_is_no_lag_and_no_alert() -> None:
    scrape = Bench().scrape()
    assert ("reflex_consumer_lag_seconds", "billing") not in scrape
    assert ("rscylla_last_event_age_seconds", "billing") not in scrape
    assert scrape["reflex_consumer_lag_alert", "billing"] == 0


def test_the_alert_follows_the_lag_even_when_no_event_comes() -> None:
    bench = Bench(lag_alert=timedelta(minutes=1))
    bench.run(event(1, START_US - 30_000_000))
    assert bench.scrape()["reflex_consumer_lag_alert", "billing"] == 0
    bench.clock.advance(30)
    assert bench.scrape()["reflex_consumer_lag_alert", "billing"] == 0, "equal is not above"
    bench.clock.advance(0.001)
    assert bench.scrape()["reflex_consumer_lag_alert", "billing"] == 1


def test_without_an_alert_the_gauge_exists_and_stays_zero() -> None:
    bench = Bench(lag_alert=None)
    bench.run(event(1, START_US - 10**12))
    assert bench.scrape()["reflex_consumer_lag_alert", "billing"] == 0


def test_a_new_consumer_is_not_active_before_its_first_event() -> None:
    bench = Bench(activity_ttl=timedelta(minutes=1))
    assert bench.scrape()["reflex_consumer_active", "billing"] == 0
    bench.consumer.consume(event(1, START_US), NO_FATE)
    bench.clock.advance(60)
    assert bench.scrape()["reflex_consumer_active", "billing"] == 1
    bench.clock.advance(0.001)
    assert bench.scrape()["reflex_consumer_active", "billing"] == 0


def test_without_a_ttl_there_is_no_activity() -> None:
    assert ("reflex_consumer_active", "billing") not in Bench(activity_ttl=None).scrape()


@pytest.mark.parametrize(("seconds", "unsafe"), [(29.999, 1), (30, 0), (60, 0)])
def test_a_lag_below_thirty_seconds_shows_as_unsafe(seconds: float, unsafe: int) -> None:
    bench = Bench()
    bench.run(options=(StreamLag(seconds=seconds), StreamToHead()))
    assert bench.scrape()["rscylla_unsafe_lag", "billing"] == unsafe


def test_streams_without_a_lag_say_nothing_about_its_safety() -> None:
    bench = Bench()
    bench.run(event(1, START_US))
    assert ("rscylla_unsafe_lag", "billing") not in bench.scrape()


def test_run_errors_are_counted_by_stage() -> None:
    bench = Bench()
    for step in ("open", "recv", "recv"):
        stream = FakeStream(clock=bench.clock)
        stream.fail(step, ConnectionFailed("gone"))
        bench.run(stream=stream)
    scrape = bench.scrape()
    assert scrape["rscylla_run_errors_total", "billing", "stream"] == 1
    assert scrape["rscylla_run_errors_total", "billing", "recv"] == 2


def test_a_consumer_that_ended_well_has_no_lag_any_more_and_gets_it_back() -> None:
    bench = Bench()
    items = [event(1, START_US - 5_000_000)]
    run_forever(bench.spec(*items, options=(StreamToHead(),)))
    assert ("reflex_consumer_lag_seconds", "billing") not in bench.scrape()
    bench.run(*items)
    assert bench.scrape()["reflex_consumer_lag_seconds", "billing"] == 5


def test_a_consumer_between_two_runs_shows_its_lag() -> None:
    """The pause after a failure is when people look."""
    bench = Bench()
    stream = FakeStream([event(1, START_US - 5_000_000)], clock=bench.clock)
    stream.fail("recv", ConnectionFailed("gone"), index=1)
    seen: list[float] = []
    bench.clock.on_wait = lambda seconds: seen.append(bench.scrape()["reflex_consumer_lag_seconds", "billing"])
    run_forever(bench.spec(options=(StreamToHead(),), stream=stream))
    assert seen == [5]


def test_two_consumers_of_one_name_share_their_series() -> None:
    bench = Bench()
    twin = Consumer("billing", lambda event, fate: None, registry=bench.registry, clock=bench.clock)
    other = Consumer("mailing", lambda event, fate: None, registry=bench.registry, clock=bench.clock)
    for consumer in (bench.consumer, twin, other):
        consumer.consume(event(1, START_US), NO_FATE)
    scrape = bench.scrape()
    assert scrape["rscylla_consumed_events_total", "billing"] == 2
    assert scrape["rscylla_consumed_events_total", "mailing"] == 1


def test_any_consumer_gets_the_numbers_of_its_runs() -> None:
    registry = CollectorRegistry()
    spec = Spec(
        FakeStream([Progress("p", START_US)]), FakeCursorStore(), RecordingConsumer(), StreamToHead(), registry=registry
    )
    with pytest.raises(HeadReached):
        run(spec)
    assert Scrape(registry)["rscylla_progress_total", "recording"] == 1


def test_a_registry_gets_one_collector() -> None:
    registry = CollectorRegistry()
    assert metrics_for(registry) is metrics_for(registry)
    assert metrics_for(registry) is not metrics_for(CollectorRegistry())
    assert metrics_for() is metrics_for(REGISTRY)


def test_a_name_that_is_taken_is_noticed() -> None:
    registry = CollectorRegistry()
    Counter("rscylla_progress", "somebody else's", registry=registry)
    with pytest.raises(DuplicateTimeseries):
        metrics_for(registry)


def test_label_values_are_escaped() -> None:
    registry = CollectorRegistry()
    Consumer('odd "name"\n\\', lambda event, fate: None, registry=registry)
    assert Scrape(registry)["reflex_consumer_lag_alert", 'odd "name"\n\\'] == 0


def test_nothing_is_registered_on_import() -> None:
    program = (
        "import prometheus_client as p, rscylla.reflex\n"
        "names = [f.name for f in p.REGISTRY.collect()]\n"
        "assert not [n for n in names if n.startswith(('reflex_', 'rscylla_'))], names\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_the_source_reports_is_shown_while_its_stream_is_open() -> None:
    bench = Bench()
    seen: list[Scrape] = []

    class Client:
        def status(self) -> StreamStatus:
            return StreamStatus(poll_age_s=2.5, log_ttl_s=86_400, clock_skew_us=-1_500_000, expired_gaps=2)

        def recv(self) -> Any:
            seen.append(bench.scrape())
            raise HeadReached

        def close(self) -> None: ...

    with pytest.raises(HeadReached):
        run(Spec(lambda *_, **__: Client(), FakeCursorStore(), bench.consumer, StreamToHead(), clock=bench.clock))
    assert seen[0]["rscylla_poll_age_seconds", "billing"] == 2.5
    assert seen[0]["rscylla_log_ttl_seconds", "billing"] == 86_400
    assert seen[0]["rscylla_clock_skew_seconds", "billing"] == -1.5
    assert seen[0]["rscylla_cursor_expired_total", "billing"] == 2
    assert bench.scrape()["rscylla_cursor_expired_total", "billing"] == 2
    assert ("rscylla_poll_age_seconds", "billing") not in bench.scrape(), "nothing is asked between two runs"
    assert ("rscylla_clock_skew_seconds", "billing") not in bench.scrape()
    assert bench.scrape()["rscylla_log_ttl_seconds", "billing"] == 86_400, "to compare the lag with"
    with pytest.raises(HeadReached):
        run(Spec(lambda *_, **__: Client(), FakeCursorStore(), bench.consumer, StreamToHead(), clock=bench.clock))
    assert [one["rscylla_cursor_expired_total", "billing"] for one in seen] == [2, 4], "of all streams so far"


def test_a_consumer_that_hangs_shows_for_how_long() -> None:
    bench = Bench()
    seen: list[float] = []

    def fn(event: Any, fate: Any) -> None:
        bench.clock.advance(42)
        seen.append(bench.scrape()["rscylla_busy_seconds", "billing"])

    consumer = Consumer("billing", fn, registry=bench.registry, clock=bench.clock)
    with pytest.raises(HeadReached):
        run(Spec(FakeStream([event(1, START_US)]), FakeCursorStore(), consumer, StreamToHead(), clock=bench.clock))
    assert seen == [42]
    assert bench.scrape()["rscylla_busy_seconds", "billing"] == 0


def test_a_consumer_that_waits_for_the_next_event_does_not_seem_to_hang() -> None:
    bench = Bench()
    seen: list[float] = []
    items = iter([event(1, START_US), event(2, START_US)])

    class Client:
        status = StreamStatus

        def recv(self) -> Any:
            bench.clock.advance(42)
            seen.append(bench.scrape()["rscylla_busy_seconds", "billing"])
            try:
                return next(items)
            except StopIteration:
                raise HeadReached from None

        def close(self) -> None: ...

    with pytest.raises(HeadReached):
        run(Spec(lambda *_, **__: Client(), FakeCursorStore(), bench.consumer, StreamToHead(), clock=bench.clock))
    assert seen == [0, 0, 0]


def test_a_poison_event_shows_how_often_it_has_failed_until_it_is_consumed() -> None:
    bench = Bench()
    consumer = RecordingConsumer("billing", fail={"e2": ValueError("no")}, times=3)
    store = FakeCursorStore()
    attempts: list[float] = []
    for _ in range(4):
        stream = FakeStream([event(1, START_US), event(2, START_US)])
        with pytest.raises((RunError, HeadReached)):
            run(Spec(stream, store, consumer, StreamToHead(), registry=bench.registry))
        attempts.append(bench.scrape()["rscylla_failing_event_attempts", "billing"])
    assert attempts == [1, 2, 3, 0]


def test_the_failures_of_one_event_are_not_counted_to_another() -> None:
    bench = Bench()
    seen: list[tuple[str, int]] = []
    for failed in ("e1", "e1", "e2", "e1"):
        stream = FakeStream([event(int(failed[1]), START_US)])  # alone, so that no other one is consumed in between
        consumer = RecordingConsumer("billing", fail={failed: ValueError("no")})
        with pytest.raises(RunError):
            run(Spec(stream, FakeCursorStore(), consumer, StreamToHead(), registry=bench.registry))
        seen.append(metrics_for(bench.registry).consumer("billing").failing())
    assert seen == [("e1", 1), ("e1", 2), ("e2", 1), ("e1", 1)]


def test_an_expired_cursor_is_counted() -> None:
    bench = Bench()
    stream = FakeStream(clock=bench.clock)
    gap = datetime_of(START_US)
    stream.fail("open", CursorExpired("the cursor is older than the log", gap_from=gap, gap_to=gap))
    bench.run(stream=stream)
    assert bench.scrape()["rscylla_cursor_expired_total", "billing"] == 1


def test_a_consumer_that_failed_does_not_seem_to_hang_while_it_is_stopped() -> None:
    bench = Bench()
    seen: list[float] = []

    class Slow(RecordingConsumer):
        def stop(self) -> None:
            bench.clock.advance(42)
            seen.append(bench.scrape()["rscylla_busy_seconds", "billing"])

    consumer = Slow("billing", fail={"e1": ValueError("no")})
    with pytest.raises(RunError):
        run(
            Spec(
                FakeStream([event(1, START_US)]),
                FakeCursorStore(),
                consumer,
                StreamToHead(),
                clock=bench.clock,
                registry=bench.registry,
            )
        )
    assert seen == [0]


def test_a_scrape_within_an_event_shows_exactly_the_events_before_it() -> None:
    """A consumer may take minutes for an event, so what was consumed before it cannot wait for the next one."""
    bench = Bench()
    ages_us = [(0, 700_000, 700_001, 90_000_000)[number % 4] for number in range(1_400)]
    took_s = [(0.001, 0.02, 2.0)[number // 3 % 3] for number in range(1_400)]
    done = 0

    def consume(_event: Event, _run: Run) -> None:
        nonlocal done
        if done in (0, 1, 511, 512, 513, 1_023, 1_024, 1_025, 1_399):
            check()
        bench.clock.advance(took_s[done])
        done += 1

    def check() -> None:
        scrape = bench.scrape()
        assert scrape["rscylla_consumed_events_total", "billing"] == done
        for what, values in (("event_age", [age / 1e6 for age in ages_us[:done]]), ("latency", took_s[:done])):
            name = f"reflex_consumer_{what}_seconds"
            assert scrape[f"{name}_count", "billing"] == done
            assert scrape[f"{name}_sum", "billing"] == pytest.approx(sum(values))
            for key, count in scrape.items():
                if key[0] == f"{name}_bucket":
                    assert count == sum(value <= float(key[2]) for value in values), key

    bench.consumer = Consumer("billing", consume, registry=bench.registry, clock=bench.clock)
    for number, age_us in enumerate(ages_us):
        bench.consumer.consume(event(number, bench.clock.now_us() - age_us), NO_FATE)
    check()


def test_events_of_several_threads_are_all_counted() -> None:
    bench = Bench()
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for number in range(2_000):
            bench.consumer.consume(event(number, START_US), NO_FATE)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    barrier.wait()
    while any(thread.is_alive() for thread in threads):
        counts = bench.consumer.series.counts
        assert counts["consumed"] <= bench.consumer.series.samples("age")[0][-1][1]
    for thread in threads:
        thread.join()
    assert bench.scrape()["rscylla_consumed_events_total", "billing"] == 6_000
    assert bench.scrape()["reflex_consumer_latency_seconds_count", "billing"] == 6_000


def test_a_reader_that_stands_still_is_noticed() -> None:
    bench = Bench()
    series = bench.consumer.series
    status = [StreamStatus(watermark_us=START_US - 30_000_000, poll_age_s=0.0)]
    series.opened(Fixed(lambda: status[0]), None)
    assert series.still_s() == 0
    bench.clock.advance(60)
    assert series.still_s() == 60
    series.count("progress")
    assert series.still_s() == 0
    bench.clock.advance(60)
    status[0] = attrs.evolve(status[0], watermark_us=START_US)
    assert series.still_s() == 0
    bench.clock.advance(60)
    assert (series.still_s(), series.open_s()) == (60, 180)
    for quiet in (
        StreamStatus(),  # it tells nothing
        StreamStatus(watermark_us=START_US),  # nor whether its source answers
        StreamStatus(watermark_us=START_US + 3_600_000_000, poll_age_s=0.0),  # a start in the future
    ):
        status[0] = quiet
        bench.clock.advance(60)
        assert series.still_s() == 0
    series.closed()
    assert series.open_s() == 0


@attrs.frozen
class Fixed:
    """An open stream of which only the status is asked."""

    status: Callable[[], StreamStatus]

    def recv(self) -> Any:
        raise AssertionError("not asked")

    def close(self) -> None: ...
