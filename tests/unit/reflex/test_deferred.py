"""Consumers that finish events later: ``ack``, ``batch``, ``concurrent``. Cursors, errors, the head, stops, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from bulkstream import BulkStream
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from cursorstore import MemoryDeadLetters
from rscylla._timeuuid import datetime_of
from rscylla.clock import Stop
from rscylla.errors import ConfigError, ConnectionFailed, FateError, HeadReached, RscyllaError, RunError, Stopped
from rscylla.event import Event, Progress, SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import Ack, Consumer, Run, Spec, ack, batch, best_effort, concurrent, dead_letter, run
from rscylla.reflex.fate import NO_FATE
from rscylla.reflex.inflight import InFlight
from rscylla.reflex.telemetry.series import ConsumerSeries
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer, ScriptedFate

NAME = "recording"
START_US = 1_790_000_000_000_000
LONG_S = 60
"""Nothing here takes long; what does not come in this time never comes."""


def events(count: int, keys: int = 1000) -> list[SimpleEvent]:
    return [
        SimpleEvent(f"e{n}", 1, f'{{"pk":{n % keys}}}', datetime_of(START_US - 1), b"0123456789")
        for n in range(1, count + 1)
    ]


class Bench:
    """One run in a thread of its own, over a stream that waits at its end unless *to_head*."""

    def __init__(self, items: Sequence[Event | Progress] = (), *, to_head: bool = True, bulk: bool = False) -> None:
        self.clock = ManualClock(START_US)
        self.stream = (BulkStream if bulk else FakeStream)(items, clock=self.clock)
        self.store = FakeCursorStore()
        self.stop = Stop()
        self.options = (StreamToHead(),) if to_head else ()
        self.registry = CollectorRegistry()
        self.error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def run(self, consumer: Any, fate: Any = None) -> BaseException:
        """Run until an error ends the run, and return the error."""
        self.start(consumer, fate)
        return self.end()

    def start(self, consumer: Any, fate: Any = None) -> None:
        spec = Spec(
            self.stream, self.store, consumer, *self.options, clock=self.clock, registry=self.registry, fate=fate
        )

        def work() -> None:
            try:
                run(spec, stop=self.stop)
            except BaseException as error:  # noqa: BLE001 - looked at by the test
                self.error = error

        self.error = None
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def end(self) -> BaseException:
        assert self._thread is not None
        self._thread.join(LONG_S)
        assert not self._thread.is_alive(), "the run did not end"
        assert self.error is not None
        return self.error

    @property
    def cursor(self) -> str:
        return self.store.durable.get(NAME, "")

    def sample(self, name: str) -> float | None:
        return self.registry.get_sample_value(name, {"consumer_name": NAME})


def soon(what: Callable[[], bool]) -> None:
    """Wait until *what* is true."""
    never = threading.Event()
    for _ in range(LONG_S * 200):
        if what():
            return
        never.wait(0.005)
    raise AssertionError("it did not become true")


def failure(error: BaseException) -> tuple[str, str, BaseException | None]:
    assert isinstance(error, RunError), error
    return error.stage, error.event_id, error.__cause__


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG_S)
        assert not thread.is_alive(), thread.name


# ---------------------------------------------------------------- what is done, and up to where


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)))
@settings(max_examples=200)
def test_in_whatever_order_events_are_done_all_before_the_cursor_are(order: list[int], told: set[int]) -> None:
    """*told*: the events after which the stream returns a Progress."""
    store = FakeCursorStore()
    of_run = Run(NAME, clock=ManualClock(), store=store)
    in_flight = InFlight(of_run)
    places: dict[str, int] = {}
    entries = []
    for n, event in enumerate(events(12)):
        entries.append(in_flight.add(event))
        places[event.id] = n
        if n in told:
            in_flight.progress(f"p{n}")
            places[f"p{n}"] = n
    done: set[int] = set()
    last = -1
    for n in order:
        in_flight.done(entries[n])
        done.add(n)
        upto = next((i for i in range(12) if i not in done), 12) - 1
        cursor = store.durable.get(NAME)
        assert (places[cursor] if cursor else -1) == upto >= last
        last = upto
    assert store.durable[NAME] == ("p11" if 11 in told else "e12")


def test_cursors_are_saved_one_at_a_time_and_never_back() -> None:
    """Many threads are done at once; the store refuses to go back, and that would fail the run."""
    numbers = {f"e{n}": n for n in range(1, 401)}
    of_run = Run(NAME, clock=ManualClock(), store=(store := FakeCursorStore(order=lambda c: numbers[c])))
    in_flight = InFlight(of_run)
    entries = [in_flight.add(event) for event in events(400)]
    threads = [threading.Thread(target=lambda i=i: [in_flight.done(e) for e in entries[i::8]]) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert of_run.failure is None
    assert store.durable == {NAME: "e400"}
    written = [numbers[cursor] for _, cursor in store.writes]
    assert written == sorted(set(written))


def test_an_interrupt_before_a_cursor_is_saved_does_not_hold_up_the_end() -> None:
    class Interrupted(threading.Condition):
        strikes = 1

        def __exit__(self, *what: Any) -> None:
            super().__exit__(*what)
            if self.strikes:
                self.strikes = 0
                raise KeyboardInterrupt

    store = FakeCursorStore()
    in_flight = InFlight(Run(NAME, clock=ManualClock(), store=store))
    in_flight._changed = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        in_flight.progress("p1")
    closing = threading.Thread(target=in_flight.close, daemon=True)
    closing.start()
    closing.join(LONG_S)
    assert not closing.is_alive()
    assert store.durable == {}


def test_what_another_thread_commits_is_waited_for() -> None:
    committing, let = threading.Event(), threading.Event()

    class Slow(FakeCursorStore):
        def set_cursor(self, consumer: str, cursor: str) -> None:
            committing.set()
            assert let.wait(LONG_S)
            super().set_cursor(consumer, cursor)

    in_flight = InFlight(Run(NAME, clock=ManualClock(), store=(store := Slow())))
    first, second = (in_flight.add(event) for event in events(2))
    other = threading.Thread(target=in_flight.done, args=(first,))
    other.start()
    assert committing.wait(LONG_S)
    in_flight.done(second)  # leaves it to the other one
    threading.Timer(0.01, let.set).start()
    in_flight.settle()
    assert store.durable == {NAME: "e2"}
    other.join(LONG_S)


def test_the_end_waits_for_a_cursor_that_is_being_saved() -> None:
    """Else a later run could read the cursor before it, and this one would save it behind that one's back."""
    saving, let = threading.Event(), threading.Event()
    order: list[str] = []

    class Slow(FakeCursorStore):
        def set_cursor(self, consumer: str, cursor: str) -> None:
            saving.set()
            assert let.wait(LONG_S)
            order.append("saved")
            super().set_cursor(consumer, cursor)

    class Watched(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            let.set()  # the save finishes only if a thread waits for it
            return super().wait(timeout)

    in_flight = InFlight(Run(NAME, clock=ManualClock(), store=(store := Slow())))
    in_flight._changed = Watched()
    other = threading.Thread(target=in_flight.done, args=(in_flight.add(events(1)[0]),))
    other.start()
    assert saving.wait(LONG_S)
    in_flight.close()
    order.append("closed")
    let.set()
    other.join(LONG_S)
    assert order == ["saved", "closed"]
    assert store.durable == {NAME: "e1"}


def test_after_a_cursor_could_not_be_saved_no_later_one_is() -> None:
    """The run ends, and its cursor may be another run's already."""
    of_run = Run(NAME, clock=ManualClock(), store=(store := FakeCursorStore()))
    in_flight = InFlight(of_run)
    first, second = (in_flight.add(event) for event in events(2))
    store.fail("set_cursor", cause := ConnectionFailed("no node answers; start one"))
    in_flight.done(first)
    in_flight.done(second)
    assert store.durable == {}
    assert of_run.failure is not None
    assert of_run.failure.error is cause


def test_after_the_end_nothing_is_committed() -> None:
    of_run = Run(NAME, clock=ManualClock(), store=(store := FakeCursorStore()))
    in_flight = InFlight(of_run)
    entry = in_flight.add(events(1)[0])
    in_flight.close()
    in_flight.done(entry)
    assert store.durable == {}


# ---------------------------------------------------------------- ack


class Acks:
    """Keeps what acknowledges, by event id."""

    def __init__(self) -> None:
        self.handed: dict[str, Ack] = {}

    def __call__(self, event: Event, fate: Any, done: Ack) -> None:
        self.handed[event.id] = done

    def consumer(self, bench: Bench, **options: Any) -> Any:
        return ack(NAME, self, registry=bench.registry, clock=bench.clock, **options)


def test_the_cursor_follows_the_acknowledgements_not_the_function() -> None:
    bench, acks = Bench(events(3), to_head=False), Acks()
    bench.start(acks.consumer(bench))
    soon(lambda: len(acks.handed) == 3)
    assert bench.cursor == ""
    acks.handed["e1"]()
    assert bench.cursor == "e1"
    bench.stop.set()
    assert isinstance(bench.end(), Stopped)
    assert bench.cursor == "e1"


def test_acknowledgements_out_of_order_move_the_cursor_only_over_what_is_done() -> None:
    bench, acks = Bench(events(3), to_head=False), Acks()
    bench.start(acks.consumer(bench))
    soon(lambda: len(acks.handed) == 3)
    for event_id, cursor in (("e3", ""), ("e2", ""), ("e2", ""), ("e1", "e3"), ("e1", "e3")):
        acks.handed[event_id]()
        assert bench.cursor == cursor
    bench.stop.set()
    bench.end()


def test_a_late_acknowledgement_cannot_touch_the_next_run() -> None:
    bench, acks = Bench(events(2), to_head=False), Acks()
    consumer = acks.consumer(bench)
    bench.start(consumer)
    soon(lambda: len(acks.handed) == 2)
    late = dict(acks.handed)
    bench.stop.set()
    bench.end()
    acks.handed.clear()
    bench.stop = Stop()
    bench.start(consumer)
    soon(lambda: len(acks.handed) == 2)
    late["e1"]()
    late["e2"]()
    assert bench.cursor == ""
    acks.handed["e1"]()
    assert bench.cursor == "e1"
    bench.stop.set()
    bench.end()


def test_what_is_never_acknowledged_shows_in_the_metrics() -> None:
    bench, acks = Bench(events(3), to_head=False), Acks()
    bench.start(acks.consumer(bench))
    soon(lambda: len(acks.handed) == 3)
    acks.handed["e1"]()
    acks.handed["e3"]()
    bench.clock.advance(90)
    assert bench.sample("rscylla_unfinished_events") == 1
    assert bench.sample("rscylla_oldest_unfinished_seconds") == 90
    bench.stop.set()
    bench.end()
    assert bench.sample("rscylla_unfinished_events") is None


def test_the_head_waits_for_the_last_acknowledgement() -> None:
    bench, acks = Bench(events(2)), Acks()
    bench.start(acks.consumer(bench))
    soon(lambda: len(acks.handed) == 2)
    acks.handed["e2"]()
    acks.handed["e1"]()
    assert isinstance(bench.end(), HeadReached)
    assert bench.cursor == "e2"


def test_a_stop_ends_the_wait_for_acknowledgements() -> None:
    bench, acks = Bench(events(2)), Acks()
    bench.start(acks.consumer(bench))
    soon(lambda: len(acks.handed) == 2)
    bench.stop.set()
    assert isinstance(bench.end(), Stopped)


def test_an_acknowledgement_can_say_that_it_failed() -> None:
    bench, acks = Bench(events(2), to_head=False), Acks()
    bench.start(acks.consumer(bench))
    soon(lambda: len(acks.handed) == 2)
    cause = ValueError("refused by the broker")
    acks.handed["e2"].fail(cause)
    assert failure(bench.end()) == ("consume", "e2", cause)


def test_no_more_is_handed_out_than_may_be_unacknowledged() -> None:
    bench, acks = Bench(events(5), to_head=False), Acks()
    bench.start(acks.consumer(bench, max_unacked=2))
    soon(lambda: len(acks.handed) == 2)
    acks.handed["e2"]()  # done, but not committed
    assert len(acks.handed) == 2
    acks.handed["e1"]()
    soon(lambda: len(acks.handed) == 4)
    bench.stop.set()
    bench.end()


def test_events_left_out_and_progress_wait_for_those_before_them() -> None:
    first, second, third = events(3)
    bench, acks = Bench([first, second, Progress("p", START_US), third], to_head=False), Acks()
    bench.start(acks.consumer(bench, event_filter=lambda event: event.id != "e2"))
    soon(lambda: len(acks.handed) == 2)
    assert bench.cursor == ""
    acks.handed["e1"]()
    assert bench.cursor == "p"
    acks.handed["e3"]()
    assert bench.cursor == "e3"
    bench.stop.set()
    bench.end()


def test_a_cursor_that_cannot_be_saved_ends_the_run_and_not_the_thread_that_acknowledged() -> None:
    bench, acks = Bench(events(1), to_head=False), Acks()
    cause = ConnectionFailed("no node answers; start one")
    bench.store.fail("set_cursor", cause)
    bench.start(acks.consumer(bench))
    soon(lambda: len(acks.handed) == 1)
    acks.handed["e1"]()
    assert failure(bench.end()) == ("set_cursor", "e1", cause)


def test_what_the_function_raises_ends_the_run() -> None:
    def refuse(event: Event, fate: Any, done: Ack) -> None:
        raise cause

    cause = ValueError()
    bench = Bench(events(1))
    assert failure(bench.run(ack(NAME, refuse, registry=bench.registry))) == ("consume", "e1", cause)


def test_a_hanging_function_is_noticed_and_waiting_for_acknowledgements_is_not_hanging() -> None:
    bench, busy = Bench(events(3), to_head=False), list[float | None]()

    def work(event: Event, fate: Any, done: Ack) -> None:
        bench.clock.advance(7)
        busy.append(bench.sample("rscylla_busy_seconds"))

    bench.start(ack(NAME, work, max_unacked=2, registry=bench.registry))
    soon(lambda: len(busy) == 2)
    soon(lambda: bench.sample("rscylla_busy_seconds") == 0)
    bench.stop.set()
    bench.end()
    assert busy == [7, 7]


def test_what_recovery_swallows_needs_no_acknowledgement() -> None:
    bench = Bench(events(3))

    def work(event: Event, fate: Any, done: Ack) -> None:
        if event.id == "e2":
            raise ValueError("no")
        done()

    ended = bench.run(ack(NAME, work, recover=lambda *_: None, registry=bench.registry))
    assert (type(ended), bench.cursor) == (HeadReached, "e3")


# ---------------------------------------------------------------- batch


class Batches:
    """Keeps the batches it got, and fails at those that hold an event of *fail*. Waits for *gate* if there is one."""

    def __init__(self, *fail: str, gate: threading.Event | None = None) -> None:
        self.got: list[list[str]] = []
        self.threads: set[str] = set()
        self.fail = set(fail)
        self.gate = gate
        self.cause = ValueError("bad batch")

    def __call__(self, batch: Sequence[Event], fate: Any) -> None:
        self.threads.add(threading.current_thread().name)
        if self.gate is not None:
            assert self.gate.wait(LONG_S)
        self.got.append([event.id for event in batch])
        if self.fail & {event.id for event in batch}:
            raise self.cause

    def consumer(self, bench: Bench, **options: Any) -> Any:
        return batch(NAME, self, registry=bench.registry, clock=bench.clock, **{"period": None, **options})


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


# ---------------------------------------------------------------- concurrent


class Pool(RecordingConsumer):
    """Consumes with several threads: events of *slow* wait for the gate of that name."""

    def __init__(self, *slow: str, **options: Any) -> None:
        super().__init__(**options)
        self.gates = {event_id: threading.Event() for event_id in slow}
        self.begun: list[str] = []
        self.most = self.at_once = 0
        self.handed: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def consume(self, event: Event, fate: Any) -> None:
        with self._lock:
            self.begun.append(event.id)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.handed.append((event.id, fate.event.id))
        try:
            if event.id in self.gates:
                assert self.gates[event.id].wait(LONG_S)
            super().consume(event, fate)
        finally:
            with self._lock:
                self.at_once -= 1

    def release(self) -> None:
        for gate in self.gates.values():
            gate.set()


def test_all_are_consumed_and_the_cursor_is_the_last() -> None:
    bench, pool = Bench(events(200)), Pool()
    assert isinstance(bench.run(concurrent(pool, workers=4)), HeadReached)
    assert sorted(pool.ids) == sorted(event.id for event in events(200))
    assert bench.cursor == "e200"
    assert (pool.resets, pool.stops) == (1, 1)
    assert all(event_id == shown for event_id, shown in pool.handed)


def test_the_cursor_is_opaque_and_moves_over_what_is_done_only() -> None:
    bench, pool = Bench(events(3), to_head=False), Pool("e1")
    bench.start(concurrent(pool, workers=2))
    soon(lambda: set(pool.ids) == {"e2", "e3"})
    assert bench.cursor == ""
    pool.release()
    soon(lambda: bench.cursor == "e3")
    bench.stop.set()
    bench.end()


def test_events_of_one_key_stay_in_order() -> None:
    bench, pool = Bench(events(300, keys=3)), Pool()
    bench.run(concurrent(pool, workers=8))
    for key in range(3):
        numbers = [int(event.id[1:]) for event in pool.events if event.key["pk"] == key]
        assert numbers == sorted(numbers)
        assert len(numbers) == 100


def test_events_of_one_key_are_never_worked_on_at_once() -> None:
    bench, pool = Bench(events(4, keys=1), to_head=False), Pool("e1")
    bench.start(concurrent(pool, workers=4))
    soon(lambda: bench.sample("rscylla_unfinished_events") == 4 and bool(pool.begun))
    assert pool.begun == ["e1"]
    pool.release()
    soon(lambda: bench.cursor == "e4")
    assert pool.most == 1
    bench.stop.set()
    bench.end()


def test_a_slow_key_does_not_hold_up_the_others() -> None:
    slow, *others = events(5)
    bench, pool = Bench([slow, *others], to_head=False), Pool("e1")
    bench.start(concurrent(pool, workers=2))
    soon(lambda: pool.ids == ["e2", "e3", "e4", "e5"])
    pool.release()
    soon(lambda: bench.cursor == "e5")
    bench.stop.set()
    bench.end()


def test_no_more_events_are_taken_than_may_be_in_flight() -> None:
    bench, pool = Bench(events(20), to_head=False), Pool("e1")
    bench.start(concurrent(pool, workers=2, max_in_flight=5))
    soon(lambda: len(pool.ids) == 4 and len(pool.begun) == 5)
    assert set(pool.begun) == {"e1", "e2", "e3", "e4", "e5"}
    pool.release()
    soon(lambda: bench.cursor == "e20")
    assert pool.most <= 2
    bench.stop.set()
    bench.end()


def test_an_error_on_an_idle_stream_ends_the_run_at_once() -> None:
    cause = ValueError("bad")
    bench, pool = Bench(events(3), to_head=False), Pool(fail={"e2": cause})
    error = bench.run(concurrent(pool, workers=3))
    assert failure(error) == ("consume", "e2", cause)
    assert bench.cursor in ("", "e1")


def test_after_an_error_no_event_starts_and_events_in_progress_finish() -> None:
    cause = ValueError("bad")
    bench, pool = Bench(events(4), to_head=False), Pool("e1", "e2", fail={"e2": cause})
    bench.start(concurrent(pool, workers=2))
    soon(lambda: set(pool.begun) == {"e1", "e2"})
    pool.gates["e2"].set()
    soon(lambda: pool.at_once == 1)
    pool.gates["e1"].set()
    assert failure(bench.end()) == ("consume", "e2", cause)
    assert set(pool.begun) == {"e1", "e2"}
    assert (pool.ids, bench.cursor) == (["e1"], "e1")


def test_the_wait_for_room_ends_with_a_stop() -> None:
    bench, pool = Bench(events(9), to_head=False), Pool("e1", "e2")
    bench.start(concurrent(pool, workers=2, max_in_flight=2))
    soon(lambda: len(pool.begun) == 2)
    bench.stop.set()
    pool.release()
    assert isinstance(bench.end(), Stopped)
    assert bench.cursor == "e2"


def test_a_cursor_that_cannot_be_saved_ends_the_run() -> None:
    bench, pool = Bench(events(3), to_head=False), Pool()
    cause = ConnectionFailed("no node answers; start one")
    bench.store.fail("set_cursor", cause, times=9)
    stage, event_id, found = failure(bench.run(concurrent(pool, workers=2)))
    assert (stage, found) == ("set_cursor", cause)
    assert event_id in ("e1", "e2", "e3")
    assert bench.cursor == ""


def test_after_an_error_the_next_run_starts_from_what_was_done() -> None:
    bench, pool = Bench(events(50, keys=7)), Pool(fail={"e25": ValueError()})
    consumer = concurrent(pool, workers=4)
    assert failure(bench.run(consumer))[1] == "e25"
    done = int(bench.cursor[1:] or 0)
    assert done < 25
    assert isinstance(bench.run(consumer), HeadReached)
    assert set(pool.ids) == {f"e{n}" for n in range(1, 51)}
    assert bench.stream.opened[1][0] == bench.cursor or bench.stream.opened[1][0] == (f"e{done}" if done else "")


def test_poison_events_become_letters_in_the_middle_of_others() -> None:
    letters = MemoryDeadLetters()
    bench, pool = Bench(events(60, keys=5)), Pool(fail={f"e{n}": ValueError() for n in (7, 31)}, times=9)
    assert isinstance(bench.run(concurrent(dead_letter(pool, letters, retries=0), workers=4)), HeadReached)
    assert sorted(letter.event.id for letter in letters.list_letters()) == ["e31", "e7"]
    assert bench.cursor == "e60"
    assert bench.sample("reflex_consumer_dead_lettered_events_count") == 2


def test_a_pause_inside_ends_with_the_stop() -> None:
    """The worker waits for its next attempt; the clock advances only with waits."""
    bench, pool = Bench(events(1), to_head=False), Pool(fail={"e1": ValueError()}, times=9)
    bench.clock.on_wait = lambda _: bench.stop.set()
    bench.start(concurrent(best_effort(pool, retries=5), workers=2))
    assert isinstance(bench.end(), Stopped)
    assert (pool.seen, bench.cursor) == (["e1"], "")


def test_an_error_of_fate_after_an_event_repeats_the_event() -> None:
    bench, pool = Bench(events(1)), Pool()
    consumer = concurrent(pool, workers=2)
    struck = FateError("struck")
    assert failure(bench.run(consumer, fate=ScriptedFate(at={"after_consume": struck})))[2] is struck
    assert bench.cursor == ""
    bench.run(consumer)
    assert (pool.ids, bench.cursor) == (["e1", "e1"], "e1")


def test_the_key_is_the_partition_where_the_event_knows_it() -> None:
    """A delete of a partition is ordered with the rows in it, though its foreign id is another."""

    class InPartition(SimpleEvent):
        __slots__ = ()

        def raw_partition_key(self) -> dict[str, bytes]:
            return {"pk": b"\x01"}

    items = [InPartition("e1", foreign_id='{"ck":1,"pk":1}'), InPartition("e2", foreign_id='{"pk":1}')]
    bench, pool = Bench(items, to_head=False), Pool("e1")
    bench.start(concurrent(pool, workers=4))
    soon(lambda: bench.sample("rscylla_unfinished_events") == 2 and bool(pool.begun))
    assert pool.begun == ["e1"]
    pool.release()
    soon(lambda: bench.cursor == "e2")
    bench.stop.set()
    bench.end()


def test_a_key_function_that_fails_ends_the_run() -> None:
    cause = KeyError("region")

    def key(event: Event) -> str:
        raise cause

    bench = Bench(events(1))
    assert failure(bench.run(concurrent(Pool(), key=key))) == ("consume", "e1", cause)


def test_threads_that_cannot_be_had_leave_no_others_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def sparing(thread: threading.Thread) -> None:
        if thread.name.startswith("rscylla-"):
            if len(started) == 2:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    bench = Bench(events(1))
    monkeypatch.setattr(threading.Thread, "start", sparing)
    assert failure(bench.run(concurrent(Pool(), workers=4)))[0] == "reset"
    for thread in started:
        thread.join(LONG_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("options", [{"workers": 0}, {"max_in_flight": 0}, {"workers": True}])
def test_numbers_must_make_sense(options: Any) -> None:
    with pytest.raises(ConfigError, match="must be 1 or more"):
        concurrent(Pool(), **options)


# ---------------------------------------------------------------- all of them


def later(kind: str, bench: Bench) -> Any:
    if kind == "ack":
        return ack(NAME, lambda event, fate, done: done(), registry=bench.registry)
    if kind == "batch":
        return batch(NAME, lambda events, fate: None, registry=bench.registry, period=None)
    return concurrent(Consumer(NAME, lambda event, fate: None, registry=bench.registry))


ALL = pytest.mark.parametrize("kind", ["ack", "batch", "concurrent"])


@ALL
def test_a_deferred_consumer_without_its_run_raises_a_clear_error(kind: str) -> None:
    consumer = later(kind, Bench())
    with pytest.raises(ConfigError, match="must be the consumer of the Spec; put"):
        consumer.consume(events(1)[0], NO_FATE)


@ALL
def test_two_runs_at_once_are_refused_and_nothing_unfinished_is_passed(kind: str) -> None:
    first, second = Bench(events(2), to_head=False), Bench(events(2))
    consumer = later(kind, first)
    first.start(consumer)
    soon(lambda: first.stream.opened != [])
    error = second.run(consumer)
    assert isinstance(failure(error)[2], ConfigError)
    assert "create a consumer for each run" in str(error)
    assert second.cursor == ""
    first.stop.set()
    first.end()


@ALL
def test_a_second_run_that_is_refused_leaves_the_first_at_work(kind: str) -> None:
    first, second = Bench(events(2), to_head=False), Bench(events(2))
    consumer = batch(NAME, lambda events, fate: None, size=1) if kind == "batch" else later(kind, first)
    first.start(consumer)
    soon(lambda: first.cursor == "e2")
    assert isinstance(failure(second.run(consumer))[2], ConfigError)
    first.stream.append(*events(4)[2:])
    soon(lambda: first.cursor == "e4")
    first.stop.set()
    assert isinstance(first.end(), Stopped)


@ALL
def test_of_two_runs_that_begin_at_the_same_time_one_is_refused(kind: str) -> None:
    bench = Bench()
    consumer = later(kind, bench)
    both, opens, ends = threading.Barrier(2), consumer.open, list[object]()

    def open_with_the_other(run: Run) -> object:
        with suppress(threading.BrokenBarrierError):  # where runs begin one after the other, nobody comes
            both.wait(0.2)
        return opens(run)

    consumer.open = open_with_the_other

    def begin() -> None:
        try:
            ends.append(consumer.begin(Run(NAME)))
        except ConfigError as error:
            ends.append(error)

    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    consumer.stop()
    [refused] = filter(None, ends)
    assert "already in a run" in str(refused)


@ALL
@pytest.mark.parametrize("step", ["get_cursor", "open", "recv"])
def test_a_run_that_fails_early_leaves_nothing_behind(kind: str, step: str) -> None:
    bench = Bench(events(2))
    cause = ConnectionFailed("no node answers; start one")
    (bench.store if step == "get_cursor" else bench.stream).fail(step, cause)
    error = bench.run(later(kind, bench))
    assert failure(error) == ({"open": "stream"}.get(step, step), "", cause)
    assert isinstance(bench.run(later(kind, bench)), HeadReached)
    assert bench.cursor == "e2"


@ALL
def test_a_flush_that_fails_at_the_head_is_an_error(kind: str) -> None:
    bench = Bench(events(2))
    cause: RscyllaError = ConnectionFailed("no node answers; start one")
    bench.store.fail("flush", cause)
    assert failure(bench.run(later(kind, bench))) == ("flush", "", cause)


@ALL
def test_an_interrupt_of_the_run_stops_the_threads(kind: str) -> None:
    bench = Bench(events(2))
    bench.stream.fail("recv", KeyboardInterrupt(), index=1)
    assert isinstance(bench.run(later(kind, bench)), KeyboardInterrupt)
