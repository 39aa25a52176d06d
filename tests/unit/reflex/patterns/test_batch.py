"""``batch``: several events in one call, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from deferring import LONG_S, NAME, START_US, Batches, Bench, Pool, events, failure, soon
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from cursorstore import MemoryDeadLetters
from rscylla._timeuuid import datetime_of
from rscylla.clock import Stop
from rscylla.errors import ConfigError, FateError, HeadReached, RunError, Stopped
from rscylla.event import Event, Progress, SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import batch, concurrent, dead_letter
from rscylla.reflex.telemetry.series import ConsumerSeries
from rscylla.testing import RecordingConsumer, ScriptedFate

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def test_batches_are_of_the_size_and_the_rest_comes_at_the_head() -> None:
    bench, batches = Bench(events(7)), Batches()
    assert isinstance(bench.run(batches.consumer(bench, size=3)), HeadReached)
    assert batches.got == [["e1", "e2", "e3"], ["e4", "e5", "e6"], ["e7"]]
    assert [cursor for _, cursor in bench.store.writes] == ["e3", "e6", "e7"]
    assert bench.sample("rscylla_consumed_events_total") == 7
    assert len(batches.threads) == 1


COUNTED = (
    "rscylla_consumed_events_total",
    "reflex_consumer_event_age_seconds_count",
    "reflex_consumer_event_age_seconds_sum",
    "reflex_consumer_latency_seconds_count",
)


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 7), st.none() | st.integers(1, 30))
def test_events_that_come_together_are_batched_as_those_that_come_one_by_one(
    are_events: list[bool], size: int, fails: int | None
) -> None:
    """Same batches, same cursor, same error, same counts; *fails*: the event at which the function raises."""
    items = [
        event if is_event else Progress(f"p{event.id}", START_US)
        for event, is_event in zip(events(len(are_events)), are_events, strict=True)
    ]
    outcomes: list[Any] = []
    for bulk in (False, True):
        bench, batches = Bench(items, bulk=bulk), Batches(f"e{fails}")
        error = bench.run(batches.consumer(bench, size=size))
        counted = [bench.sample(name) for name in COUNTED]
        assert None not in counted
        if isinstance(error, RunError):  # by then, more or less of the events after the batch have come
            outcomes.append((batches.got, failure(error)[:2]))
        else:
            outcomes.append((batches.got, bench.cursor, counted))
    assert outcomes[0] == outcomes[1]


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events were passed to a consumer at once, each time."""
    found: list[int] = []
    collecting = ConsumerSeries.collecting

    def noting(series: ConsumerSeries, given: Any) -> Any:
        found.append(len(given))
        return collecting(series, given)

    monkeypatch.setattr(ConsumerSeries, "collecting", noting)
    return found


def test_events_that_are_there_are_batched_without_a_step_for_each(together: list[int]) -> None:
    bench, batches = Bench(events(1000), bulk=True), Batches()
    assert isinstance(bench.run(batches.consumer(bench, size=100)), HeadReached)
    assert [len(ids) for ids in batches.got] == [100] * 10
    assert sum(together) == 1000
    assert len(together) <= 20
    assert max(together) <= 100


@pytest.mark.parametrize(
    "options",
    [{"filter_types": [1]}, {"event_filter": lambda event: True}, {"max_bytes": 1000}],
    ids=lambda options: next(iter(options)),
)
def test_filters_and_limits_of_bytes_see_single_events(options: Any, together: list[int]) -> None:
    bench, batches = Bench(events(7), bulk=True), Batches()
    assert isinstance(bench.run(batches.consumer(bench, size=3, **options)), HeadReached)
    assert [len(ids) for ids in batches.got] == [3, 3, 1]
    assert together == []


def test_a_fate_sees_single_events(together: list[int]) -> None:
    bench, batches = Bench(events(7), bulk=True), Batches()
    assert isinstance(bench.run(batches.consumer(bench, size=3), fate=ScriptedFate()), HeadReached)
    assert together == []


def test_batches_are_bounded_by_bytes_too() -> None:
    bench, batches = Bench(events(5)), Batches()
    bench.run(batches.consumer(bench, size=100, max_bytes=20))  # an event has 10 of metadata and 8 of its key
    assert batches.got == [["e1", "e2"], ["e3", "e4"], ["e5"]]


def test_the_period_counts_from_arrival_not_from_the_time_of_the_event() -> None:
    """After downtime all events are old; their batches must not be tiny."""
    bench, batches = Bench(to_head=False), Batches()
    waiting = threading.Event()
    bench.clock.on_wait = lambda seconds: waiting.set()
    old = [SimpleEvent(f"e{n}", timestamp=datetime_of(START_US - 3_600_000_000 + n)) for n in range(3)]
    bench.start(batches.consumer(bench, size=3, period=timedelta(seconds=5)))
    bench.stream.append(old[0])
    assert waiting.wait(LONG_S)
    assert bench.clock.waits[0] == 5
    soon(lambda: batches.got == [["e0"]])  # the driven clock has passed those five seconds at once
    assert bench.clock.now_us() >= START_US + 5_000_000
    bench.stop.set()
    bench.end()


def test_each_batch_has_a_period_of_its_own_and_between_two_nothing_is_waited_for() -> None:
    bench, batches = Bench(to_head=False), Batches()
    bench.start(batches.consumer(bench, size=3, period=timedelta(seconds=5)))
    for event in events(3):
        bench.stream.append(event)
        soon(lambda last=event.id: bench.cursor == last)  # type: ignore[misc]
    bench.stop.set()
    bench.end()
    assert batches.got == [["e1"], ["e2"], ["e3"]]
    assert bench.clock.waits == [5, 5, 5]


def test_an_error_on_an_idle_stream_surfaces_at_once_with_its_cause() -> None:
    bench, batches = Bench(events(1), to_head=False), Batches("e1")
    error = bench.run(batches.consumer(bench, period=timedelta(seconds=5)))
    assert failure(error) == ("consume", "e1", batches.cause)
    assert bench.cursor == ""
    assert bench.sample("reflex_consumer_error_count") == 1


def test_the_run_joins_the_worker_before_it_ends() -> None:
    gate = threading.Event()
    bench, batches = Bench(events(1), to_head=False), Batches(gate=gate)
    bench.start(batches.consumer(bench, size=1))
    soon(lambda: bool(batches.threads))
    bench.stop.set()
    assert bench.error is None
    gate.set()
    assert isinstance(bench.end(), Stopped)
    assert (batches.got, bench.cursor) == ([["e1"]], "e1")


def test_events_left_out_move_the_cursor() -> None:
    bench, batches = Bench(events(4)), Batches()
    bench.run(batches.consumer(bench, size=2, event_filter=lambda event: event.id == "e2"))
    assert (batches.got, bench.cursor) == ([["e2"]], "e4")
    assert bench.sample("reflex_consumer_skipped_events_count") == 3


def test_a_batch_that_makes_no_sense_is_refused_before_the_first_event() -> None:
    for options in ({"size": 0}, {"size": True}, {"max_bytes": 0}, {"period": timedelta(0)}):
        with pytest.raises(ConfigError):
            batch(NAME, lambda events, fate: None, registry=CollectorRegistry(), **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="fn is not callable"):
        batch(NAME, None, registry=CollectorRegistry())  # type: ignore[arg-type]


def test_progress_waits_for_the_batch_before_it() -> None:
    first, second = events(2)
    bench, batches = Bench([Progress("p0", 1), first, Progress("p1", 2)], to_head=False), Batches()
    bench.start(batches.consumer(bench, size=2))
    soon(lambda: bench.cursor == "p0")
    bench.stream.append(second)
    soon(lambda: bench.cursor == "e2")
    bench.stop.set()
    bench.end()
    assert [cursor for _, cursor in bench.store.writes] == ["p0", "e2"]


@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("last", ["event", "left out", "progress"])
def test_what_is_left_out_between_the_events_of_a_batch_moves_the_cursor_with_it(last: str, size: int) -> None:
    given: list[Event | Progress] = list(events(7))
    if last == "event":
        given.pop()
    elif last == "progress":
        given.append(Progress("p8", START_US))
    bench, batches = Bench(given), Batches()
    consumer = batches.consumer(bench, size=size, event_filter=lambda event: event.id not in ("e2", "e3", "e5", "e7"))
    assert isinstance(bench.run(consumer), HeadReached)
    assert batches.got == [["e1", "e4", "e6"]]
    assert bench.cursor == {"event": "e6", "left out": "e7", "progress": "p8"}[last]


def test_a_stop_drops_the_unstarted_batch_which_is_delivered_again() -> None:
    bench, batches = Bench(events(5), to_head=False), Batches()
    consumer = batches.consumer(bench, size=3)
    bench.start(consumer)
    soon(lambda: bench.cursor == "e3" and bench.sample("reflex_rpatterns_batch_consumer_buffer_length") == 2)
    bench.stop.set()
    assert isinstance(bench.end(), Stopped)
    bench.stop, bench.options = Stop(), (StreamToHead(),)
    assert isinstance(bench.run(consumer), HeadReached)
    assert batches.got == [["e1", "e2", "e3"], ["e4", "e5"]]


def test_the_stream_waits_while_one_batch_is_worked_on_and_the_next_is_full() -> None:
    gate = threading.Event()
    bench, batches = Bench(events(9), to_head=False), Batches(gate=gate)
    bench.start(batches.consumer(bench, size=2))
    soon(lambda: bench.sample("rscylla_unfinished_events") == 4)
    assert bench.sample("reflex_rpatterns_batch_consumer_buffer_length") == 2
    gate.set()
    soon(lambda: bench.cursor == "e8")
    bench.stop.set()
    bench.end()


def test_a_stop_ends_the_wait_for_room() -> None:
    gate = threading.Event()
    bench, batches = Bench(events(9), to_head=False), Batches(gate=gate)
    bench.start(batches.consumer(bench, size=2))
    soon(lambda: bench.sample("rscylla_unfinished_events") == 4)
    bench.stop.set()
    gate.set()
    assert isinstance(bench.end(), Stopped)
    assert batches.got == [["e1", "e2"]]


def test_poison_in_a_batch_becomes_a_letter_by_the_fallback_and_the_rest_is_consumed() -> None:
    bench, batches, letters = Bench(events(4)), Batches("e3"), MemoryDeadLetters()
    single = RecordingConsumer(fail={"e3": ValueError()}, times=9)
    bench.run(batches.consumer(bench, size=4, fallback=dead_letter(single, letters, retries=0)))
    assert batches.got == [["e1", "e2", "e3", "e4"]]
    assert single.ids == ["e1", "e2", "e4"]
    assert [letter.event.id for letter in letters.list_letters()] == ["e3"]
    assert bench.cursor == "e4"


@pytest.mark.parametrize("consume", [list.clear, list.pop, list.reverse])
def test_a_function_may_consume_its_list_and_the_fallback_still_gets_all(consume: Callable[[list[Event]], Any]) -> None:
    bench, single = Bench(events(3)), RecordingConsumer()

    def work(batch: Sequence[Event], fate: Any) -> None:
        assert isinstance(batch, list)
        consume(batch)
        raise ValueError("halfway")

    assert isinstance(bench.run(batch(NAME, work, size=3, fallback=single, registry=bench.registry)), HeadReached)
    assert (single.ids, bench.cursor) == (["e1", "e2", "e3"], "e3")
    assert bench.sample("reflex_consumer_error_count") == 3


def test_a_function_that_consumes_its_list_is_counted_and_named_by_what_it_was_given() -> None:
    bench = Bench(events(3))

    def work(batch: Sequence[Event], fate: Any) -> None:
        assert isinstance(batch, list)
        batch.clear()

    assert isinstance(bench.run(batch(NAME, work, size=3, registry=bench.registry)), HeadReached)
    assert (bench.cursor, bench.sample("rscylla_consumed_events_total")) == ("e3", 3)


def test_a_failing_fallback_names_its_event() -> None:
    bench, batches = Bench(events(4)), Batches("e3")
    cause = ValueError()
    error = bench.run(batches.consumer(bench, size=4, fallback=RecordingConsumer(fail={"e2": cause})))
    assert failure(error) == ("consume", "e2", cause)


def test_a_stop_while_a_batch_is_taken_one_by_one_leaves_the_rest_for_the_next_run() -> None:
    bench, batches = Bench(events(4)), Batches("e1")

    class Single(RecordingConsumer):
        def consume(self, event: Event, fate: Any) -> None:
            super().consume(event, fate)
            bench.stop.set()

    single = Single()
    ended = bench.run(batches.consumer(bench, size=4, fallback=single))
    assert (type(ended), single.ids, bench.cursor) == (Stopped, ["e1"], "")


def test_the_fallback_is_reset_and_stopped_with_the_run() -> None:
    bench, single = Bench(events(1)), RecordingConsumer()
    bench.run(Batches().consumer(bench, fallback=single))
    assert (single.resets, single.stops) == (1, 1)


def test_a_fallback_that_cannot_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match="finishes events later"):
        batch(NAME, Batches(), fallback=concurrent(Pool()))
    with pytest.raises(ConfigError, match="is not a consumer"):
        batch(NAME, Batches(), fallback=Batches())  # type: ignore[arg-type]


def test_recovery_is_refused_and_not_ignored() -> None:
    with pytest.raises(ConfigError, match="fallback"):
        batch(NAME, Batches(), recover=lambda *_: None)


def test_an_error_of_fate_after_a_batch_repeats_the_batch() -> None:
    bench, batches = Bench(events(2)), Batches()
    consumer = batches.consumer(bench, size=2)
    struck = FateError("struck")
    assert failure(bench.run(consumer, fate=ScriptedFate(at={"after_consume": struck})))[2] is struck
    assert bench.cursor == ""
    bench.run(consumer)
    assert (batches.got, bench.cursor) == ([["e1", "e2"]] * 2, "e2")
