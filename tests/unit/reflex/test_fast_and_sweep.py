"""Tests of ``fast_and_sweep``: each event once, what is late by the sweep, and after crashes repeats but no misses."""

from __future__ import annotations

import random
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latelog import LateLog, Row
from prometheus_client import CollectorRegistry

from rscylla import (
    Backoff,
    ConfigError,
    Consumer,
    CursorConflict,
    Event,
    Fate,
    HeadReached,
    RunError,
    SimpleEvent,
    Stop,
    StreamFromHead,
    StreamLag,
    StreamToHead,
    StreamUntil,
    fast_and_sweep,
    parallel,
    run,
)
from rscylla._timeuuid import datetime_of
from rscylla.abc import CursorRecord, EventTuple, StreamStatus, taker_of
from rscylla.event import Progress
from rscylla.options import StreamOption, StreamOptions
from rscylla.reflex import Lanes, fast_lane_name
from rscylla.reflex.patterns.lanes.ledger import Ledger, Verdict
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer
from rscylla.testing.fakes import FakeStreamClient


class Killed(BaseException):
    """The process is gone."""


def cursor_text(cursor: str) -> str:
    return cursor


class Store(FakeCursorStore):
    """A store whose cursors can be reset, as the real ones: who is at work then has to read its cursor again."""

    def __init__(self, *, buffered: bool = False) -> None:
        super().__init__(order=cursor_text, buffered=buffered)
        self._epochs = Counter[str]()
        self._read: dict[str, int] = {}

    def reset_cursor(self, consumer: str, cursor: str) -> None:
        self._epochs[consumer] += 1
        self.buffer.pop(consumer, None)
        self.durable[consumer] = cursor

    def find_cursor(self, consumer: str) -> CursorRecord | None:
        cursor = super().get_cursor(consumer)
        return CursorRecord(consumer, cursor) if cursor else None

    def get_cursor(self, consumer: str) -> str:
        cursor = super().get_cursor(consumer)
        self._read[consumer] = self._epochs[consumer]
        return cursor

    def set_cursor(self, consumer: str, cursor: str) -> None:
        if self._read[consumer] != self._epochs[consumer]:
            raise CursorConflict("the cursor was reset while it was in use; read it again")
        super().set_cursor(consumer, cursor)


class Bench:
    """A log with late rows, a store, and a process with two lanes that reads to the head on request."""

    def __init__(self, *, remember: int = 1_000_000, buffered: bool = False) -> None:
        self.clock = ManualClock()
        self.log = LateLog(self.clock)
        self.store = Store(buffered=buffered)
        self.registry = CollectorRegistry()
        self.remember = remember
        self.got: list[tuple[str, bool]] = []
        self.fail_in: int | None = None
        self.failure: BaseException = ValueError("no")
        self.start()

    def start(self) -> None:
        """Start a new process: nothing of the old one is left but the store."""
        consumer = Consumer("billing", self.consume, registry=self.registry, clock=self.clock)
        self.lanes = fast_and_sweep(
            self.log,
            self.store,
            consumer,
            StreamToHead(),
            remember=self.remember,
            order=cursor_text,
            clock=self.clock,
        )

    def consume(self, event: Event, fate: Fate) -> None:
        if self.fail_in is not None:
            self.fail_in -= 1
            if self.fail_in < 0:
                self.fail_in = None
                raise self.failure
        self.got.append((event.id, event.late))

    def fast(self) -> None:
        with pytest.raises(HeadReached):
            run(self.lanes.fast)

    def sweep(self) -> None:
        with pytest.raises(HeadReached):
            run(self.lanes.sweep)

    def value(self, name: str, consumer: str = "billing", **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"consumer_name": consumer, **labels})


def ids(rows: list[Row]) -> list[tuple[str, bool]]:
    return [(row.id, False) for row in rows]


def test_the_sweep_delivers_only_events_that_the_fast_lane_missed() -> None:
    bench = Bench()
    first = bench.log.write()
    late = bench.log.write(arrives_after=20)
    last = bench.log.write()
    bench.clock.advance(2)
    bench.fast()
    assert bench.got == ids([first, last])
    bench.clock.advance(60)
    bench.fast()
    bench.sweep()
    assert bench.got == [*ids([first, last]), (late.id, True)]
    assert bench.value("rscylla_late_events_total") == 1
    assert bench.value("rscylla_late_by_seconds_sum") == pytest.approx(60, abs=1.5)
    assert bench.value("rscylla_unproven_events_total") == 0
    bench.clock.advance(600)
    bench.fast()
    bench.sweep()
    assert len(bench.got) == 3
    assert bench.lanes.remembered == 0


def test_the_sweep_reads_again_and_later() -> None:
    """A sweep that only hands out later, but reads as early as the fast lane, would find nothing."""
    bench = Bench()
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    assert [options.lag for _, options in bench.log.opened] == [timedelta(seconds=1), timedelta(seconds=60)]
    assert bench.log.reads == 2


def test_the_sweep_never_overtakes_the_fast_lane() -> None:
    bench = Bench()
    rows = [bench.log.write() for _ in range(3)]
    bench.clock.advance(2)
    bench.fast()
    bench.clock.advance(100)
    rows.append(bench.log.write())
    bench.clock.advance(100)
    bench.sweep()  # all is old enough, but the fast lane has not been there
    assert bench.got == ids(rows[:3])
    assert bench.store.durable["billing"] < rows[3].id
    bench.fast()
    bench.sweep()
    assert bench.got == ids(rows)


class Waiting(Exception):
    """A sweep is about to wait for its fast lane."""


class NoWait(Stop):
    """The stop signal of a sweep that must not wait."""

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        if getattr(callback, "__name__", "") == "_wake":
            raise Waiting
        return super().on_set(callback)


def lanes_over(*events: SimpleEvent) -> tuple[Lanes, FakeCursorStore]:
    """Return two lanes over a stream that reports no progress of its own, and their store."""
    store = FakeCursorStore(order=cursor_text)
    consumer = RecordingConsumer("billing")
    stream = FakeStream(events, supports_lag=True, clock=ManualClock())
    return fast_and_sweep(stream, store, consumer, StreamToHead(), order=cursor_text, clock=stream.clock), store


def test_a_sweep_says_how_far_it_is_before_it_waits_for_the_fast_lane() -> None:
    """The wait may be long, and what it has passed by then need not be repeated after a crash."""
    lanes, _ = lanes_over(*(SimpleEvent(f"e{n}") for n in (1, 2, 3)))
    fast, cursor = taker_of(lanes.fast.stream("", *lanes.fast.options)), lanes.fast.store
    assert cursor.get_cursor(lanes.fast.name) == lanes.sweep.store.get_cursor("billing") == ""
    for event_id in ("e1", "e2"):
        taken = fast()
        assert not isinstance(taken, Progress)
        assert [event.id for event in taken] == [event_id]
        cursor.set_cursor(lanes.fast.name, event_id)
    sweep = taker_of(lanes.sweep.stream("", *lanes.sweep.options, stop=NoWait()))
    assert sweep().cursor == "e2"
    with pytest.raises(Waiting):
        sweep()


class AtOnce(FakeStream):
    """A fake stream that returns all of its events as one chunk."""

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> Any:
        return AtOnceClient(super().__call__(after, *options, stop=stop))


@attrs.define
class AtOnceClient:
    client: FakeStreamClient

    def take(self) -> EventTuple:
        events = []
        try:
            while isinstance(item := self.client.recv(), Event):
                events.append(item)
        except HeadReached:
            if not events:
                raise
        return EventTuple(events)

    def status(self) -> StreamStatus:
        return self.client.status()

    def close(self) -> None:
        self.client.close()


def test_of_a_chunk_the_ledger_lists_what_the_consumer_got() -> None:
    """The others of the chunk come again, and a sweep that found them listed would deliver them never."""
    events = [SimpleEvent(f"e{n}") for n in (1, 2, 3)]
    stream = AtOnce(events, supports_lag=True, clock=ManualClock())
    consumer = RecordingConsumer("billing", fail={"e2": ValueError("once")})
    store = FakeCursorStore(order=cursor_text)
    lanes = fast_and_sweep(stream, store, consumer, StreamToHead(), order=cursor_text, clock=stream.clock)
    with pytest.raises(RunError):
        run(lanes.fast)
    assert lanes.remembered == 2, "the one that is done, and the one in work"
    with pytest.raises(HeadReached):
        run(lanes.fast)
    assert consumer.seen == ["e1", "e2", "e2", "e3"]
    assert lanes.remembered == 3


def test_a_sweep_that_ends_has_saved_how_far_it_was() -> None:
    """A new process repeats nothing after a good end."""
    lanes, store = lanes_over(*(SimpleEvent(f"e{n}") for n in (1, 2, 3)))
    for lane in lanes:
        with pytest.raises(HeadReached):
            run(lane)
    assert store.durable["billing"] == "e3"


def test_a_sweep_alone_waits_until_it_is_stopped() -> None:
    bench = Bench()
    bench.log.write()
    bench.clock.advance(100)
    stop, ended = Stop(), list[BaseException]()

    def drive() -> None:
        try:
            run(bench.lanes.sweep, stop=stop)
        except BaseException as error:  # noqa: BLE001 - looked at below
            ended.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert [type(error).__name__ for error in ended] == ["Stopped"]
    assert bench.got == []


def test_after_a_kill_the_lanes_begin_at_the_sweeps_cursor_and_repeat_in_order() -> None:
    bench = Bench()
    old = bench.log.write()
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    rows = [bench.log.write(), bench.log.write()]
    late = bench.log.write(arrives_after=10)
    bench.clock.advance(2)
    bench.fast()
    assert bench.got == ids([old, *rows])
    bench.start()
    bench.clock.advance(20)
    bench.fast()
    assert bench.got[3:] == ids([*rows, late])  # the fast lane saw it at its second try: in order, and not late
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    assert len(bench.got) == 6


def test_a_lane_that_fails_continues_where_it_was_while_the_process_lives() -> None:
    bench = Bench()
    rows = [bench.log.write() for _ in range(4)]
    late = bench.log.write(arrives_after=10)
    bench.clock.advance(5)
    bench.fail_in = 2
    with pytest.raises(RunError):
        run(bench.lanes.fast)
    bench.fast()
    bench.clock.advance(100)
    bench.fast()
    bench.fail_in = 0
    with pytest.raises(RunError):
        run(bench.lanes.sweep)
    bench.sweep()
    assert bench.got == [*ids(rows), (late.id, True)]


def test_an_event_that_failed_and_that_the_fast_lane_no_longer_reads_is_delivered_by_the_sweep() -> None:
    """Two reads may use different replicas, so an unfinished event may be absent the second time."""
    bench = Bench()
    first, unlucky, last = (bench.log.write() for _ in range(3))
    bench.clock.advance(2)
    bench.fail_in = 1
    with pytest.raises(RunError):
        run(bench.lanes.fast)
    bench.log.rows.remove(unlucky)
    bench.fast()
    bench.log.rows.append(unlucky)
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    assert bench.got == [*ids([first, last]), (unlucky.id, True)]


def test_a_late_event_is_counted_once_however_often_the_consumer_fails_on_it() -> None:
    bench = Bench()
    bench.log.write(arrives_after=20)
    bench.clock.advance(5)
    bench.fast()
    bench.clock.advance(100)
    for _ in range(3):
        bench.fail_in = 0
        with pytest.raises(RunError):
            run(bench.lanes.sweep)
    bench.sweep()
    assert len(bench.got) == 1
    assert bench.value("rscylla_late_events_total") == 1
    assert bench.value("rscylla_late_by_seconds_count") == 1


def test_a_sweep_that_failed_before_it_saved_its_cursor_still_knows_what_was_delivered() -> None:
    bench = Bench()
    rows = [bench.log.write() for _ in range(4)]
    bench.clock.advance(100)
    bench.fast()
    for _ in range(2):
        bench.store.fail("set_cursor", OSError("down"))
        with pytest.raises(RunError):
            run(bench.lanes.sweep)
    bench.sweep()
    assert bench.got == ids(rows)


def test_a_save_of_the_sweeps_cursor_that_failed_although_it_was_made_brings_nothing_again() -> None:
    """The next run finds the cursor ahead of the last one that is known to be saved, although no operator moved it."""
    bench = Bench()
    old = [bench.log.write() for _ in range(2)]
    bench.clock.advance(100)
    rows = [bench.log.write() for _ in range(3)]
    bench.clock.advance(2)
    bench.fast()
    save = bench.store.set_cursor

    def save_and_fail(consumer: str, cursor: str) -> None:
        save(consumer, cursor)
        if consumer == "billing":
            raise OSError("the answer was lost")

    bench.store.set_cursor = save_and_fail  # type: ignore[method-assign]
    with pytest.raises(RunError):
        run(bench.lanes.sweep)
    bench.store.set_cursor = save  # type: ignore[method-assign]
    assert bench.store.durable["billing"] >= old[-1].id
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    assert bench.got == ids([*old, *rows])


def test_forgotten_events_are_delivered_again_and_none_is_missed(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(remember=3)
    rows = [bench.log.write() for _ in range(5)]
    late = bench.log.write(arrives_after=10)
    bench.clock.advance(5)
    bench.fast()
    assert bench.lanes.remembered == 3
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    assert bench.got == [*ids(rows), *((row.id, True) for row in rows[:2]), (late.id, True)]
    assert bench.value("rscylla_unproven_events_total") == 2
    assert bench.value("rscylla_late_events_total") == 1  # whether the other two were late cannot be known
    assert bench.value("rscylla_late_by_seconds_count") == 1
    assert caplog.text.count("the sweep delivers the oldest of them again") == 1


def test_what_is_forgotten_takes_no_memory() -> None:
    @attrs.frozen(order=True)
    class Key:
        number: int

    watched = weakref.WeakSet[Key]()
    ledger = Ledger("billing", lambda cursor: Key(int(cursor or 0)), 2000, ManualClock())
    ledger.open_fast("")
    for number in range(1, 10_001):
        key = Key(number)
        watched.add(key)
        ledger.hand(str(number), key)
        ledger.commit(str(number))
    del key
    assert (len(ledger), ledger.forgotten) == (2000, 8000)
    assert len(watched) <= 2000 + 10  # and what the last of them was handed as
    verdicts = [ledger.judge(Key(number), Stop()) for number in (1, 8000, 8001, 10_000)]
    assert verdicts == [*[Verdict.UNPROVEN] * 2, *[Verdict.DELIVERED] * 2]
    ledger.sweep("9999")
    assert len(ledger) == 1
    assert ledger.judge(Key(10_000), Stop()) is Verdict.DELIVERED


def test_the_cursor_of_a_plain_consumer_is_taken_over_and_back() -> None:
    bench = Bench()
    rows = [bench.log.write() for _ in range(2)]
    bench.store.durable["billing"] = rows[0].id
    bench.clock.advance(2)
    bench.fast()
    assert bench.got == ids(rows[1:])
    assert bench.store.durable["billing"] == rows[0].id  # a plain run would repeat the second, and miss nothing


def test_lanes_that_find_the_sweep_ahead_of_them_go_there() -> None:
    """This happens if another process held the lease in the meantime, or an operator moved the cursor."""
    bench = Bench()
    bench.log.write()
    bench.clock.advance(2)
    bench.fast()
    done = bench.log.write()
    bench.store.durable["billing"] = done.id
    last = bench.log.write()
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    assert [event_id for event_id, _ in bench.got[1:]] == [last.id]


def test_a_cursor_that_is_moved_back_while_the_process_lives_brings_all_since_then_again() -> None:
    bench = Bench()
    rows = [bench.log.write() for _ in range(3)]
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    rows.append(bench.log.write())
    bench.clock.advance(2)
    bench.fast()
    assert bench.got == ids(rows)
    bench.store.durable["billing"] = rows[0].id
    bench.clock.advance(100)
    bench.fast()
    for _ in range(2):  # only once
        bench.sweep()
        assert bench.got[4:] == [(row.id, True) for row in rows[1:]]
    assert bench.value("rscylla_unproven_events_total") == 3
    assert bench.value("rscylla_late_events_total") == 0


def test_a_reset_of_a_running_sweep_counts_although_the_fast_lane_starts_again_before_the_sweep_saves() -> None:
    bench = Bench()
    rows = [bench.log.write() for _ in range(3)]
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    late = bench.log.write(arrives_after=20)
    bench.clock.advance(2)
    bench.fast()
    bench.clock.advance(100)
    bench.fast()

    def meanwhile(options: StreamOptions) -> None:
        bench.log.meanwhile = lambda _: None
        bench.store.reset_cursor("billing", rows[0].id)
        bench.fast()

    bench.log.meanwhile = meanwhile
    with pytest.raises(RunError) as caught:
        run(bench.lanes.sweep)
    assert isinstance(caught.value.__cause__, CursorConflict)
    assert caught.value.resumable
    assert bench.store.durable["billing"] == rows[0].id
    del bench.got[:]
    bench.sweep()
    assert bench.got == [(row.id, True) for row in (*rows[1:], late)]


@pytest.mark.parametrize(("running", "to"), [(False, "first row"), (True, "first row"), (True, "where it is")])
def test_a_reset_to_a_position_between_the_lanes_repeats_the_events_after_it(running: bool, to: str) -> None:
    bench = Bench()
    bench.log.write()
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    rows = []
    for _ in range(3):
        rows.append(bench.log.write())
        bench.clock.advance(10)
    bench.fast()
    target = rows[0].id if to == "first row" else bench.store.durable["billing"]
    if running:

        def meanwhile(options: StreamOptions) -> None:
            bench.log.meanwhile = lambda _: None
            bench.store.reset_cursor("billing", target)

        bench.log.meanwhile = meanwhile
        bench.clock.advance(40)  # the sweep has something to save, and is behind all three
        with pytest.raises(RunError):
            run(bench.lanes.sweep)
    else:
        bench.store.reset_cursor("billing", target)
    del bench.got[:]
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    assert bench.got == [(row.id, True) for row in rows if row.id > target]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_reset_to_the_cursor_there_is_counts_between_two_runs_of_the_sweep_only_for_a_new_process(
    restarted: bool,
) -> None:
    bench = Bench()
    bench.log.write()
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    row = bench.log.write()
    bench.clock.advance(10)
    bench.fast()
    bench.store.reset_cursor("billing", bench.store.durable["billing"])
    if restarted:
        bench.start()
    del bench.got[:]
    bench.clock.advance(100)
    bench.fast()
    bench.sweep()
    assert bench.got == (ids([row]) if restarted else [])


def test_the_fast_lanes_cursor_is_saved_now_and_then_and_at_the_end() -> None:
    bench = Bench()
    for _ in range(10):
        bench.log.write()
    bench.clock.advance(5)
    bench.fast()
    assert fast_lane_name("billing") in bench.store.durable
    assert len(bench.store.writes) <= 2
    bench.start()
    bench.fast()  # from the sweep's cursor, below what is saved
    assert len(bench.got) == 20


def test_a_fast_lane_that_begins_again_never_saves_a_lower_cursor() -> None:
    bench = Bench()
    for _ in range(3):
        bench.log.write()
    bench.clock.advance(100)
    bench.fast()
    consume = bench.consume

    def slowly(event: Event, fate: Fate) -> None:
        bench.clock.advance(2)  # so that each cursor is due to be saved
        consume(event, fate)

    bench.consume = slowly  # type: ignore[method-assign]
    bench.start()
    bench.fast()
    assert len(bench.got) == 6


def test_the_metrics_of_the_fast_lane_stand_beside_the_consumers() -> None:
    bench = Bench()
    bench.log.write()
    bench.clock.advance(3)
    bench.fast()
    fast = fast_lane_name("billing")
    assert bench.value("reflex_consumer_event_age_seconds_sum", fast) == pytest.approx(3)
    assert bench.value("rscylla_unsafe_lag", fast) == 0  # what it misses, the sweep finds
    assert bench.value("rscylla_consumed_events_total") == 1


def test_a_consumer_that_works_beside_its_events_is_told_of_the_runs_of_both_lanes() -> None:
    clock, told = ManualClock(), list[str]()

    class Aware(RecordingConsumer):
        def run_begins(self, run: Any) -> None:
            told.append(run.consumer)

    lanes = fast_and_sweep(
        LateLog(clock),
        FakeCursorStore(order=cursor_text),
        Aware("aware"),
        StreamToHead(),
        order=cursor_text,
        clock=clock,
        registry=CollectorRegistry(),
    )
    for lane in (lanes.fast, lanes.sweep):
        with pytest.raises(HeadReached):
            run(lane)
    assert told == [lanes.fast.name, lanes.sweep.name]


def test_the_consumer_gets_one_event_at_a_time_and_is_reset_and_stopped_once() -> None:
    clock = ManualClock()
    log = LateLog(clock)
    late = [log.write(arrives_after=0.0 if i % 3 else 10.0) for i in range(60)]
    clock.advance(5)
    busy = threading.Lock()
    got: list[str] = []

    class Careful(RecordingConsumer):
        def consume(self, event: Event, fate: Fate) -> None:
            assert busy.acquire(blocking=False), "two events at once"
            got.append(event.id)
            busy.release()

    consumer = Careful("careful")
    lanes = fast_and_sweep(
        log,
        FakeCursorStore(order=cursor_text),
        consumer,
        StreamToHead(),
        order=cursor_text,
        clock=clock,
        registry=CollectorRegistry(),
    )
    with pytest.raises(HeadReached):
        run(lanes.fast)
    clock.advance(100)
    parallel(lanes)
    assert sorted(got) == sorted(row.id for row in late)
    assert (consumer.resets, consumer.stops) == (consumer.resets, consumer.resets)
    assert consumer.resets in (2, 3)  # the first run, then both lanes: together, or one after the other


@pytest.mark.parametrize("seed", range(3))
def test_both_lanes_together_deliver_each_event_once_whatever_fails(seed: int) -> None:
    """In two threads that move one clock by their waits: rows have their times and arrivals from the start."""
    dice, clock = random.Random(seed), ManualClock()
    log, start_us = LateLog(clock), clock.now_us()
    for i in range(400):
        time_us = start_us + i * 500_000
        log.rows.append(Row(time_us, i, time_us + dice.choice([0, 0, 300_000, 5_000_000, 50_000_000]), i % 5))
    bad = {row.id: dice.randrange(3) for row in dice.sample(log.rows, 40)}
    got: list[tuple[str, bool]] = []

    def consume(event: Event, fate: Fate) -> None:
        if bad.get(event.id):
            bad[event.id] -= 1
            raise ValueError("not yet")
        got.append((event.id, event.late))

    lanes = fast_and_sweep(
        log,
        FakeCursorStore(order=cursor_text),
        Consumer("billing", consume, registry=CollectorRegistry(), clock=clock),
        StreamUntil(datetime_of(start_us + 210_000_000)),
        order=cursor_text,
        clock=clock,
    )
    parallel(lanes, backoff=Backoff(initial=timedelta(milliseconds=10), maximum=timedelta(milliseconds=20)))
    assert sorted(event_id for event_id, _ in got) == [row.id for row in log.rows]
    in_time = [event_id for event_id, late in got if not late]
    assert in_time == sorted(in_time)
    assert 0 < len(in_time) < len(got)


def test_a_permanent_error_stops_both_lanes() -> None:
    bench = Bench()
    bench.log.write()
    bench.clock.advance(100)
    bench.fail_in, bench.failure = 0, ConfigError("wrong")
    with pytest.raises(RunError, match="wrong"):
        parallel(bench.lanes)


def test_late_is_a_flag_on_the_same_event() -> None:
    @attrs.frozen
    class Own(SimpleEvent):
        extra: int = 7

    event = Own("e1", 2, '{"id":1}')
    late = event.as_late()
    assert (late.late, event.late, late.as_late()) == (True, False, late)
    assert (late.id, late.type, late.key, late.change, late.timestamp) == ("e1", 2, {"id": 1}, None, event.timestamp)
    assert late.extra == 7  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        late.other  # type: ignore[attr-defined]  # noqa: B018


class OwnCursor(RecordingConsumer):
    def begin(self, scope: Any) -> None: ...

    def progress(self, cursor: str) -> None: ...

    def drain(self) -> None: ...


def refused(make: Callable[[], Lanes], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


def test_what_cannot_work_is_refused() -> None:
    log, store, consumer = LateLog(ManualClock()), FakeCursorStore(), RecordingConsumer()
    lag = StreamLag
    refused(lambda: fast_and_sweep(FakeStream(), store, consumer), "does not apply the lag, so")
    refused(lambda: fast_and_sweep(log, store, OwnCursor()), "moves the cursor of its run and cannot")
    refused(lambda: fast_and_sweep(log, store, consumer, lag(seconds=3)), "fast= and sweep=")
    refused(lambda: fast_and_sweep(log, store, consumer, StreamFromHead()), "head_cursor")
    refused(lambda: fast_and_sweep(log, store, consumer, fast=lag(seconds=5), sweep=lag(seconds=5)), "longer lag")
    refused(lambda: fast_and_sweep(log, store, consumer, fast=lag(seconds=9), sweep=lag(seconds=38)), "force=True")
    refused(lambda: fast_and_sweep(log, store, consumer, sweep=lag(seconds=25)), "force=True")
    refused(lambda: fast_and_sweep(log, store, consumer, remember=0), "remember")
    fast_and_sweep(log, store, consumer, sweep=lag(seconds=5), force=True, registry=CollectorRegistry())


# ---------------------------------------------------------------- any schedule

STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([0.0, 0.0, 0.5, 3.0, 20.0, 59.0])),
    st.tuples(st.just("pass"), st.sampled_from([0.1, 1.0, 7.0, 30.0, 70.0])),
    st.tuples(st.just("fast"), st.none()),
    st.tuples(st.just("sweep"), st.none()),
    st.tuples(st.sampled_from(["fast fails", "sweep fails", "fast dies", "sweep dies"]), st.integers(0, 4)),
    st.tuples(st.sampled_from(["store fails", "process dies"]), st.none()),
    st.tuples(st.sampled_from(["reset", "sweep meets reset"]), st.integers(0, 4)),
)


class Schedule:
    """Runs the steps of one schedule and compares the delivered events with the written ones."""

    def __init__(self, *, buffered: bool, remember: int) -> None:
        self.bench = Bench(buffered=buffered, remember=remember)
        self.rows: list[Row] = []
        self.crashes = 0
        self.resets: list[tuple[str, int]] = []  # where to, and how many events had been delivered
        self.left_out = ""  # a reset ahead of the sweep leaves out what is late before it

    def step(self, what: str, how: Any) -> None:
        bench = self.bench
        if what == "write":
            self.rows.append(bench.log.write(arrives_after=how))
        elif what == "pass":
            bench.clock.advance(how)
        elif what == "process dies":
            self.die()
        elif what == "store fails":
            bench.store.fail("set_cursor", OSError("down"))
        elif what == "reset":
            self.reset(how)
        elif what == "sweep meets reset":
            self.meet(how)
        else:
            lane, _, ends = what.partition(" ")
            bench.fail_in = how if ends else None
            bench.failure = ValueError("no") if ends == "fails" else Killed()
            self.run(bench.lanes.fast if lane == "fast" else bench.lanes.sweep)
            bench.fail_in = None
        self.check_cursor()

    def run(self, spec: Any) -> None:
        if spec is self.bench.lanes.sweep:
            self.bench.lanes._ledger.end_fast()  # it does not run, so the sweep ends instead of waiting for it
        try:
            run(spec)
        except (HeadReached, RunError):
            pass
        except Killed:
            self.die()

    def reset(self, back: int) -> None:
        """Move the sweep's cursor to a place that one of the lanes has passed, as an operator does."""
        got = {event_id for event_id, _ in self.bench.got}
        passed = [row.id for row in self.rows if row.id in got]
        target = passed[-1 - back] if back < len(passed) else ""
        cursor = self.bench.store.get_cursor("billing")
        if target != cursor:
            self.bench.store.reset_cursor("billing", target)
            self.left_out = max(self.left_out, target if target > cursor else "")
            self.resets.append((target, len(self.bench.got)))

    def meet(self, after: int) -> None:
        """Run the sweep and move its cursor back during the run; the fast lane starts again at once."""
        bench = self.bench

        def meanwhile(options: StreamOptions) -> None:
            nonlocal after
            after -= 1
            if after < 0:
                bench.log.meanwhile = lambda _: None
                self.reset(after % 3)
                self.run(bench.lanes.fast)

        bench.log.meanwhile = meanwhile
        self.run(bench.lanes.sweep)
        bench.log.meanwhile = lambda _: None

    def die(self) -> None:
        self.crashes += 1
        self.bench.store.crash()
        self.bench.start()

    def check_cursor(self) -> None:
        """The sweep's cursor, durable or not, passes no row that was not delivered."""
        cursor = self.bench.store.get_cursor("billing")
        got = {event_id for event_id, _ in self.bench.got}
        assert [row for row in self.rows if self.left_out < row.id <= cursor and row.id not in got] == []

    def finish(self) -> None:
        self.bench.fail_in = None
        for _ in range(3):
            self.bench.clock.advance(200)
            self.run(self.bench.lanes.fast)
            self.run(self.bench.lanes.sweep)
        got = Counter(event_id for event_id, _ in self.bench.got)
        assert [row.id for row in self.rows if row.id > self.left_out and row.id not in got] == []
        for place, (_, delivered) in enumerate(self.resets):
            behind = max(other for other, _ in self.resets[place:])  # a later reset may have left out some
            again = {event_id for event_id, _ in self.bench.got[delivered:]}
            assert [row.id for row in self.rows if row.id > behind and row.id not in again] == []


@settings(max_examples=100)
@given(steps=st.lists(STEPS, max_size=40), buffered=st.booleans(), remember=st.sampled_from([1, 3, 1_000_000]))
def test_no_schedule_of_late_rows_and_crashes_misses_one(
    steps: list[tuple[str, Any]], buffered: bool, remember: int
) -> None:
    schedule = Schedule(buffered=buffered, remember=remember)
    for what, how in steps:
        schedule.step(what, how)
    schedule.finish()


@pytest.mark.parametrize("remember", [1, 1_000_000])
def test_a_reset_before_the_first_run_of_the_sweep_delivers_again_what_the_fast_lane_delivered(remember: int) -> None:
    schedule = Schedule(buffered=False, remember=remember)
    for what, how in (("write", 0.0), ("write", 0.0), ("pass", 7.0), ("fast", None), ("reset", 1)):
        schedule.step(what, how)
    schedule.finish()


CALM = STEPS.filter(lambda step: step[0] in ("write", "pass", "fast", "sweep", "fast fails", "sweep fails"))


@settings(max_examples=100)
@given(steps=st.lists(CALM, max_size=40))
def test_while_the_process_lives_no_event_comes_twice_and_late_means_missed(steps: list[tuple[str, Any]]) -> None:
    """Lanes fail and run again: the ledger outlives that."""
    schedule = Schedule(buffered=False, remember=1_000_000)
    for what, how in steps:
        schedule.step(what, how)
    schedule.finish()
    got = schedule.bench.got
    assert sorted(event_id for event_id, _ in got) == sorted(row.id for row in schedule.rows)
    highest = ""
    for event_id, late in got:
        assert late or event_id > highest
        highest = max(highest, event_id)
