"""``Consumer``: filters, recovery, counting."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge

from rscylla._timeuuid import datetime_of
from rscylla.abc import Fate
from rscylla.clock import Stop
from rscylla.errors import ConfigError, DeserializationError, FilterError, HeadReached, RunError, Stopped
from rscylla.event import Event, SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import NO_FATE, Consumer, Spec, metadata_event_filter, run
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock

NOW_US = 1_790_000_000_000_000
EVENT = SimpleEvent("e1", 2, '{"pk":1}', datetime_of(NOW_US - 5_000_000))


class Bench:
    """A consumer with a registry and a clock of its own."""

    def __init__(self, fn: Callable[[Event, Fate], None] | None = None, **options: Any) -> None:
        self.clock = ManualClock(NOW_US)
        self.registry = CollectorRegistry()
        self.got: list[str] = []
        self.consumer = Consumer(
            "billing", fn or self.record, registry=self.registry, clock=options.pop("clock", self.clock), **options
        )

    def record(self, event: Event, fate: Fate) -> None:
        self.got.append(event.id)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"consumer_name": "billing", **labels})

    def counts(self) -> dict[str, float | None]:
        names = {
            "consumed": "rscylla_consumed_events_total",
            "skipped": "reflex_consumer_skipped_events_count",
            "errors": "reflex_consumer_error_count",
            "recovered": "rscylla_recovered_events_total",
        }
        found = {short: self.value(name) for short, name in names.items()}
        return {short: value for short, value in found.items() if value}


def failing(error: BaseException) -> Callable[[Event, Fate], None]:
    def fn(event: Event, fate: Fate) -> None:
        raise error

    return fn


def test_a_consumed_event_is_counted_and_timed() -> None:
    bench = Bench()
    bench.consumer.consume(EVENT, NO_FATE)
    assert bench.got == ["e1"]
    assert bench.counts() == {"consumed": 1}
    assert bench.value("reflex_consumer_latency_seconds_count") == 1
    assert bench.value("reflex_consumer_event_age_seconds_sum") == 5.0


def test_the_function_gets_the_runs_fate() -> None:
    fates: list[Fate] = []
    Bench(lambda event, fate: fates.append(fate)).consumer.consume(EVENT, NO_FATE)
    assert fates == [NO_FATE]


def test_types_that_are_not_included_are_skipped_and_timed() -> None:
    bench = Bench(filter_types=[1, 3])
    bench.consumer.consume(EVENT, NO_FATE)
    assert (bench.got, bench.counts()) == ([], {"skipped": 1})
    assert bench.value("reflex_consumer_latency_seconds_count") == 1


def test_types_come_before_the_filter() -> None:
    asked: list[str] = []

    def wanted(event: Event) -> bool:
        asked.append(event.id)
        return False

    bench = Bench(filter_types=[1], event_filter=wanted)
    bench.consumer.consume(EVENT, NO_FATE)
    assert asked == []
    bench = Bench(filter_types=[2], event_filter=wanted)
    bench.consumer.consume(EVENT, NO_FATE)
    assert (asked, bench.got, bench.counts()) == (["e1"], [], {"skipped": 1})


def test_skipped_events_move_the_cursor() -> None:
    bench, store = Bench(filter_types=[99]), FakeCursorStore()
    with pytest.raises(HeadReached):
        run(Spec(FakeStream([EVENT]), store, bench.consumer, StreamToHead()))
    assert store.durable == {"billing": "e1"}


def test_recovery_never_sees_errors_of_filters() -> None:
    recovered: list[Exception] = []

    def recover(event: Event, consumer: Consumer, error: Exception) -> None:
        recovered.append(error)

    cause = KeyError("field")

    def broken(event: Event) -> bool:
        raise cause

    bench = Bench(event_filter=broken, recover=recover)
    with pytest.raises(FilterError) as caught:
        bench.consumer.consume(EVENT, NO_FATE)
    assert caught.value.__cause__ is cause
    assert (recovered, bench.got, bench.counts()) == ([], [], {"errors": 1})


def test_a_deserialization_error_keeps_its_type() -> None:
    def decode(data: bytes) -> int:
        raise ValueError

    bench = Bench(event_filter=metadata_event_filter(decode, lambda data: True))
    with pytest.raises(DeserializationError):
        bench.consumer.consume(EVENT, NO_FATE)


def test_recovery_may_swallow_replace_or_keep_the_error() -> None:
    error, other = ValueError("a"), KeyError("b")
    calls: list[tuple[str, str, Exception]] = []

    def recover_with(outcome: Exception | None) -> Callable[[Event, Consumer, Exception], Exception | None]:
        def recover(event: Event, consumer: Consumer, seen: Exception) -> Exception | None:
            calls.append((event.id, consumer.name, seen))
            return outcome

        return recover

    bench = Bench(failing(error), recover=recover_with(None))
    bench.consumer.consume(EVENT, NO_FATE)
    assert (calls, bench.counts()) == ([("e1", "billing", error)], {"recovered": 1})

    bench = Bench(failing(error), recover=recover_with(other))
    with pytest.raises(KeyError) as caught:
        bench.consumer.consume(EVENT, NO_FATE)
    assert (caught.value.__cause__, bench.counts()) == (error, {"errors": 1})

    bench = Bench(failing(error), recover=recover_with(error))
    with pytest.raises(ValueError, match="a") as kept:
        bench.consumer.consume(EVENT, NO_FATE)
    assert (kept.value, bench.counts()) == (error, {"errors": 1})


def test_an_error_that_recovery_turns_into_stopped_is_not_counted() -> None:
    bench = Bench(failing(ValueError()), recover=lambda event, consumer, error: Stopped())
    with pytest.raises(Stopped):
        bench.consumer.consume(EVENT, NO_FATE)
    assert bench.counts() == {}


def test_stopped_is_expected_neither_recovered_nor_counted() -> None:
    bench = Bench(failing(Stopped()), recover=lambda event, consumer, error: None)
    with pytest.raises(Stopped):
        bench.consumer.consume(EVENT, NO_FATE)
    assert bench.counts() == {}


def test_a_time_out_inside_the_consumer_is_recovered_and_counted_as_any_error() -> None:
    seen: list[Exception] = []

    def recover(event: Event, consumer: Consumer, error: Exception) -> Exception:
        seen.append(error)
        return error

    bench = Bench(failing(TimeoutError()), recover=recover)
    with pytest.raises(TimeoutError):
        bench.consumer.consume(EVENT, NO_FATE)
    assert (len(seen), bench.counts()) == (1, {"errors": 1})


def test_interrupts_are_neither_recovered_nor_counted() -> None:
    bench = Bench(failing(KeyboardInterrupt()), recover=lambda event, consumer, error: None)
    with pytest.raises(KeyboardInterrupt):
        bench.consumer.consume(EVENT, NO_FATE)
    assert bench.counts() == {}


def test_a_stop_during_consume_does_not_move_the_cursor() -> None:
    """An interrupted event is neither swallowed nor taken for done, whatever recovery would say."""
    store, stop = FakeCursorStore(), Stop()

    def fn(event: Event, fate: Fate) -> None:
        stop.set()
        stop.check()

    bench = Bench(fn, recover=lambda event, consumer, error: None)
    with pytest.raises(Stopped):
        run(Spec(FakeStream([EVENT]), store, bench.consumer, StreamToHead()), stop=stop)
    assert store.writes == []


def test_a_late_event_is_counted_by_the_sweep_that_found_it_and_not_at_each_attempt() -> None:
    class Late(SimpleEvent):
        late = True

    bench = Bench()
    bench.consumer.consume(Late("e1"), NO_FATE)
    bench.consumer.series.found_late(7, unproven=False)
    assert bench.value("rscylla_late_events_total") == 1


def test_the_latency_is_that_of_the_function() -> None:
    clock = ManualClock(NOW_US)
    bench = Bench(lambda event, fate: clock.advance(7.0), clock=clock)
    bench.consumer.consume(EVENT, NO_FATE)
    assert bench.value("reflex_consumer_latency_seconds_sum") == 7.0
    assert bench.value("reflex_consumer_latency_seconds_bucket", le="5.0") == 0
    assert bench.value("reflex_consumer_latency_seconds_bucket", le="10.0") == 1


def test_the_activity_ttl_may_be_a_function_called_once() -> None:
    calls: list[int] = []

    def ttl() -> timedelta:
        calls.append(1)
        return timedelta(minutes=1)

    bench = Bench(activity_ttl=ttl)
    bench.consumer.consume(EVENT, NO_FATE)
    bench.clock.advance(61)
    assert (bench.value("reflex_consumer_active"), calls) == (0, [1])


def test_an_own_gauge_shows_the_alert() -> None:
    gauge = Gauge("late", "", registry=CollectorRegistry())
    bench = Bench(lag_alert=timedelta(seconds=1), lag_alert_gauge=gauge)
    bench.consumer.consume(EVENT, NO_FATE)
    assert [sample.value for family in gauge.collect() for sample in family.samples] == [1.0]


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("", print), {}, "name"),
        ((None, print), {}, "name"),
        (("billing", None), {}, "fn is not callable"),
        (("billing", print), {"event_filter": 3}, "event_filter is not callable"),
        (("billing", print), {"recover": "yes"}, "recover is not callable"),
        (("billing", print), {"lag_alert": timedelta()}, "lag_alert must be more than zero"),
        (("billing", print), {"activity_ttl": timedelta(seconds=-1)}, "activity_ttl must be more than zero"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...], options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Consumer(*arguments, registry=CollectorRegistry(), **options)


def test_a_filter_error_ends_the_run_and_leaves_the_cursor() -> None:
    store = FakeCursorStore()
    bench = Bench(event_filter=lambda event: event.key["missing"])
    with pytest.raises(RunError) as caught:
        run(Spec(FakeStream([EVENT]), store, bench.consumer, StreamToHead()))
    assert (caught.value.stage, store.writes) == ("consume", [])
    assert caught.value.resumable
