"""``run``: the order of its steps, what each failure becomes, and what is saved."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import rscylla.embedded
from cursorstore import BufferedCursorStore, IntCursorCodec, MemoryCursorStore
from rscylla._timeuuid import datetime_of
from rscylla.abc import CursorStore, EventTuple, Fate, StreamStatus
from rscylla.clock import Stop
from rscylla.errors import (
    ConfigError,
    ConnectionFailed,
    CursorExpired,
    CursorRegression,
    FateError,
    HeadReached,
    InvalidCursor,
    LeaseLost,
    MissingLag,
    QueryFailed,
    RscyllaError,
    RunError,
    Stopped,
)
from rscylla.event import Event, Progress, SimpleEvent
from rscylla.options import StreamFromHead, StreamLag, StreamToHead, StreamUntil
from rscylla.reflex import Consumer, Run, Spec, concurrent, run
from rscylla.reflex import Fate as RealFate
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer, ScriptedFate
from rscylla.testing.fakes import FakeStreamClient

NAME = "recording"


def event(number: int, at_us: int = 0) -> SimpleEvent:
    return SimpleEvent(f"e{number}", foreign_id=f'{{"pk":{number}}}', timestamp=datetime_of(at_us))


def events(count: int) -> list[SimpleEvent]:
    return [event(number) for number in range(1, count + 1)]


def spec(
    stream: Any,
    store: CursorStore | None = None,
    consumer: Any = None,
    *options: Any,
    registry: CollectorRegistry | None = None,
    **more: Any,
) -> Spec:
    return Spec(
        stream,
        store or FakeCursorStore(),
        consumer or RecordingConsumer(),
        *(options or (StreamToHead(),)),
        registry=registry or CollectorRegistry(),
        **more,
    )


class Diary:
    """A stream, a store and a consumer in one, which writes down each call."""

    name = "diary"

    def __init__(self, *items: Event | Progress, end: BaseException | None = None) -> None:
        self.lines: list[str] = []
        self.items = list(items)
        self.end = end or HeadReached()
        self.broken: dict[str, BaseException] = {}

    def note(self, line: str) -> None:
        self.lines.append(line)
        if line in self.broken:
            raise self.broken[line]

    def reset(self) -> None:
        self.note("reset")

    def stop(self) -> None:
        self.note("stop")

    def get_cursor(self, consumer: str) -> str:
        self.note(f"get_cursor {consumer}")
        return "e0"

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self.note(f"set_cursor {cursor}")

    def flush(self) -> None:
        self.note("flush")

    def __call__(self, after: str, *options: Any, stop: Stop | None = None) -> Diary:
        self.note(f"stream {after}")
        return self

    def recv(self) -> Event | Progress:
        self.note("recv")
        if not self.items:
            raise self.end
        return self.items.pop(0)

    def status(self) -> StreamStatus:
        return StreamStatus()

    def consume(self, event: Event, fate: Fate) -> None:
        self.note(f"consume {event.id}")

    def close(self) -> None:
        self.note("close")


ORDER = [
    "reset",
    "get_cursor diary",
    "stream e0",
    "recv",
    "consume e1",
    "set_cursor e1",
    "recv",
    "stop",
    "close",
    "flush",
]


def test_steps_come_in_order() -> None:
    diary = Diary(event(1))
    with pytest.raises(HeadReached):
        run(spec(diary, diary, diary))
    assert diary.lines == ORDER


def test_reset_comes_before_the_cursor_is_read() -> None:
    """A consumer whose reset drains and flushes old work must not restart from the cursor before that work."""
    store = FakeCursorStore({NAME: "e1"})

    class Draining(RecordingConsumer):
        def reset(self) -> None:
            store.set_cursor(NAME, "e2")

    consumer = Draining()
    with pytest.raises(HeadReached):
        run(spec(FakeStream(events(3)), store, consumer))
    assert consumer.ids == ["e3"]


FAILURES = [
    ("reset", "reset", "", ["reset", "stop", "flush"]),
    ("get_cursor diary", "get_cursor", "", [*ORDER[:2], "stop", "flush"]),
    ("stream e0", "stream", "", [*ORDER[:3], "stop", "flush"]),
    ("recv", "recv", "", [*ORDER[:4], "stop", "close", "flush"]),
    ("consume e1", "consume", "e1", [*ORDER[:5], "stop", "close", "flush"]),
    ("set_cursor e1", "set_cursor", "e1", [*ORDER[:6], "stop", "close", "flush"]),
]


@pytest.mark.parametrize(("step", "stage", "event_id", "lines"), FAILURES)
def test_each_stage_failing_is_a_run_error(step: str, stage: str, event_id: str, lines: list[str]) -> None:
    diary = Diary(event(1))
    cause = ConnectionFailed("no node answers; start one")
    diary.broken[step] = cause
    with pytest.raises(RunError) as caught:
        run(spec(diary, diary, diary))
    error = caught.value
    assert (error.stage, error.consumer, error.event_id) == (stage, "diary", event_id)
    assert error.event_fid == ('{"pk":1}' if event_id else "")
    assert error.__cause__ is cause
    assert error.resumable
    at = " at event e1" if event_id else ""
    assert str(error) == f'consumer "diary": {stage} failed{at}: no node answers; start one'
    assert diary.lines == lines


@pytest.mark.parametrize("step", ["stop", "close", "flush"])
def test_what_fails_at_the_end_is_a_note_and_never_hides_the_first_error(step: str) -> None:
    diary = Diary(event(1))
    first = ValueError("wrong order")
    diary.broken["consume e1"] = first
    diary.broken[step] = QueryFailed("table gone; create it")
    with pytest.raises(RunError) as caught:
        run(spec(diary, diary, diary))
    assert caught.value.stage == "consume"
    assert caught.value.__cause__ is first
    assert caught.value.__notes__ == [f"then {step} failed too: table gone; create it"]
    assert diary.lines[-3:] == ["stop", "close", "flush"]


@pytest.mark.parametrize("step", ["stop", "close", "flush"])
@pytest.mark.parametrize("end", [HeadReached(), Stopped()])
def test_a_good_end_that_cannot_be_saved_is_a_run_error(step: str, end: RscyllaError) -> None:
    diary = Diary(end=end)
    cause = ConnectionFailed("gone")
    diary.broken[step] = cause
    with pytest.raises(RunError) as caught:
        run(spec(diary, diary, diary))
    assert (caught.value.stage, caught.value.__cause__) == (step, cause)
    assert caught.value.__notes__ == [f"the run itself ended with {type(end).__name__}"]


@pytest.mark.parametrize("step", ["stop", "close", "flush"])
def test_stopped_from_the_end_of_a_run_does_not_pass_for_a_clean_stop(step: str) -> None:
    diary = Diary(end=HeadReached())
    diary.broken[step] = Stopped("some other signal")
    with pytest.raises(RunError) as caught:
        run(spec(diary, diary, diary))
    assert caught.value.stage == step


def test_a_flush_failure_is_counted() -> None:
    registry = CollectorRegistry()
    store = FakeCursorStore()
    store.fail("flush", ConnectionFailed("gone"))
    with pytest.raises(RunError):
        run(spec(FakeStream(), store, registry=registry))
    assert registry.get_sample_value("rscylla_flush_failures_total", {"consumer_name": NAME}) == 1
    assert registry.get_sample_value("rscylla_run_errors_total", {"consumer_name": NAME, "stage": "flush"}) == 1


def test_a_run_ends_well_though_the_cursor_of_another_consumer_cannot_be_saved() -> None:
    """The lanes of a service share a buffered store; one may have lost its slice."""

    class Losing(MemoryCursorStore):
        def set_cursor(self, consumer: str, cursor: str) -> None:
            if consumer == "other":
                raise LeaseLost("the slice has moved")
            super().set_cursor(consumer, cursor)

    inner = Losing(codec=IntCursorCodec())
    store = BufferedCursorStore(inner, codec=IntCursorCodec(), background=False)
    store.set_cursor("other", "1")
    with pytest.raises(HeadReached):
        run(spec(FakeStream([SimpleEvent("2")]), store))
    assert inner.get_cursor(NAME) == "2"


def test_a_flush_that_hangs_is_given_up() -> None:
    release = threading.Event()

    class Hanging(FakeCursorStore):
        def flush(self) -> None:
            release.wait(30)

    try:
        with pytest.raises(RunError) as caught:
            run(spec(FakeStream(), Hanging(), flush_timeout=timedelta(milliseconds=20)))
    finally:
        release.set()
    assert caught.value.stage == "flush"
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert str(caught.value.__cause__) == "the cursor store did not flush within 0.02 s"


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("step", ["reset", "get_cursor diary", "stream e0", "recv", "consume e1", "set_cursor e1"])
def test_interrupts_close_flush_and_pass_through(step: str, interrupt: type[BaseException]) -> None:
    diary = Diary(event(1))
    cause = interrupt()
    diary.broken[step] = cause
    with pytest.raises(interrupt) as caught:
        run(spec(diary, diary, diary))
    assert caught.value is cause
    opened = step in ("recv", "consume e1", "set_cursor e1")
    assert diary.lines[-3:] == ["stop", "close", "flush"] if opened else ["stop", "flush"]


def test_a_second_interrupt_while_stopping_still_closes_and_flushes() -> None:
    diary = Diary(event(1))
    diary.broken["consume e1"] = KeyboardInterrupt("first")
    diary.broken["stop"] = KeyboardInterrupt("second")
    stop = Stop()
    with pytest.raises(KeyboardInterrupt, match="second"):
        run(spec(diary, diary, diary), stop=stop)
    assert diary.lines[-3:] == ["stop", "close", "flush"]
    assert not stop._callbacks, "the run lets go of the signal"


def test_an_interrupt_does_not_move_the_cursor() -> None:
    store = FakeCursorStore(buffered=True)
    consumer = RecordingConsumer(fail={"e2": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        run(spec(FakeStream(events(3)), store, consumer))
    assert store.durable == {NAME: "e1"}


def test_head_reached_and_stopped_are_raised_as_they_are() -> None:
    for end in (HeadReached(cursor="e9"), Stopped("server is going down")):
        with pytest.raises(type(end)) as caught:
            run(spec(FakeStream(end=end)))
        assert caught.value is end


def test_a_consumers_own_head_reached_is_a_failure() -> None:
    """It is some other stream's head: taken for ours, the event would be lost from sight and the loop would end."""
    with pytest.raises(RunError) as caught:
        run(spec(FakeStream(events(1)), None, RecordingConsumer(fail={"e1": HeadReached()})))
    assert caught.value.stage == "consume"


def test_a_consumers_time_out_is_a_failure_not_an_expected_stop() -> None:
    with pytest.raises(RunError) as caught:
        run(spec(FakeStream(events(1)), None, RecordingConsumer(fail={"e1": TimeoutError("row 4711")})))
    assert caught.value.resumable
    assert "4711" not in str(caught.value)


def test_values_of_foreign_errors_stay_out_of_the_message() -> None:
    with pytest.raises(RunError) as caught:
        run(spec(FakeStream(events(1)), None, RecordingConsumer(fail={"e1": ValueError("secret of a row")})))
    assert str(caught.value) == 'consumer "recording": consume failed at event e1: ValueError'
    assert str(caught.value.__cause__) == "secret of a row"


def test_a_stream_that_returns_none_is_an_error() -> None:
    class Client:
        closed = False
        status = StreamStatus

        def recv(self) -> Any:
            return None

        def close(self) -> None:
            self.closed = True

    client = Client()
    with pytest.raises(RunError, match="the stream returned NoneType") as caught:
        run(spec(lambda after, *options, stop=None: client))
    assert caught.value.stage == "recv"
    assert client.closed


def test_an_event_that_cannot_be_named_does_not_hide_the_error() -> None:
    class Broken(Event):
        id, type, timestamp = "e1", 0, NOON

        @property
        def foreign_id(self) -> str:
            raise RuntimeError("no key")

    broken = Broken()
    consumer = RecordingConsumer(fail={"e1": ValueError("first")})
    with pytest.raises(RunError) as caught:
        run(spec(Diary(broken), None, consumer))
    assert (caught.value.event_id, caught.value.event_fid) == ("e1", "")
    assert isinstance(caught.value.__cause__, ValueError)


# --- cursors -------------------------------------------------------------------------------------------------------


def test_the_cursor_follows_each_consumed_event() -> None:
    store, consumer = FakeCursorStore(), RecordingConsumer()
    with pytest.raises(HeadReached):
        run(spec(FakeStream(events(3)), store, consumer))
    assert consumer.ids == ["e1", "e2", "e3"]
    assert store.writes == [(NAME, "e1"), (NAME, "e2"), (NAME, "e3")]


def test_a_failed_event_does_not_move_the_cursor_and_is_delivered_first_again() -> None:
    stream, store = FakeStream(events(3)), FakeCursorStore()
    consumer = RecordingConsumer(fail={"e2": ValueError()})
    with pytest.raises(RunError):
        run(spec(stream, store, consumer))
    assert store.durable == {NAME: "e1"}
    with pytest.raises(HeadReached):
        run(spec(stream, store, consumer))
    assert consumer.seen == ["e1", "e2", "e2", "e3"]
    assert stream.opened[1][0] == "e1"
    assert stream.closed == 2


def test_events_whose_cursor_was_not_flushed_are_delivered_again() -> None:
    stream, consumer = FakeStream(events(2)), RecordingConsumer()
    store = FakeCursorStore(buffered=True)
    store.fail("flush", ConnectionFailed("gone"))
    with pytest.raises(RunError):
        run(spec(stream, store, consumer))
    store.crash()
    with pytest.raises(HeadReached):
        run(spec(stream, store, consumer))
    assert consumer.ids == ["e1", "e2", "e1", "e2"]
    assert store.durable == {NAME: "e2"}


def test_progress_is_saved_without_the_consumer() -> None:
    """An idle stream still moves the cursor."""
    registry = CollectorRegistry()
    store, consumer = FakeCursorStore(), RecordingConsumer()
    items: list[Event | Progress] = [event(1), Progress("p1", 10), Progress("p2", 20)]
    with pytest.raises(HeadReached):
        run(spec(FakeStream(items), store, consumer, registry=registry))
    assert consumer.seen == ["e1"]
    assert store.durable == {NAME: "p2"}
    assert registry.get_sample_value("rscylla_progress_total", {"consumer_name": NAME}) == 2


def test_a_failing_save_of_progress_names_no_event() -> None:
    store = FakeCursorStore()
    store.fail("set_cursor", ConnectionFailed("gone"))
    with pytest.raises(RunError) as caught:
        run(spec(FakeStream([Progress("p1", 10)]), store))
    assert (caught.value.stage, caught.value.event_id) == ("set_cursor", "")


def test_a_lower_cursor_is_a_permanent_error() -> None:
    store = FakeCursorStore({NAME: "e5"}, order=lambda cursor: int(cursor[1:]))
    stream = FakeStream(events(5))
    with pytest.raises(RunError) as caught:
        run(spec(lambda after, *options, stop=None: stream("", *options, stop=stop), store))
    assert isinstance(caught.value.__cause__, CursorRegression)
    assert not caught.value.resumable
    assert store.durable == {NAME: "e5"}


# --- stop ----------------------------------------------------------------------------------------------------------


def test_stop_is_checked_between_events() -> None:
    stop, store = Stop(), FakeCursorStore(buffered=True)

    class Stopping(RecordingConsumer):
        def consume(self, event: Event, fate: Fate) -> None:
            super().consume(event, fate)
            if event.id == "e2":
                stop.set()

    consumer = Stopping()
    with pytest.raises(Stopped):
        run(spec(FakeStream(events(4)), store, consumer), stop=stop)
    assert consumer.ids == ["e1", "e2"]
    assert store.durable == {NAME: "e2"}


def test_stop_is_checked_even_if_the_stream_does_not() -> None:
    stop = Stop()
    diary = Diary(*events(3))
    diary.consume = lambda event, fate: stop.set()  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        run(spec(diary, diary, diary), stop=stop)
    assert diary.lines[-5:] == ["recv", "set_cursor e1", "stop", "close", "flush"]


@pytest.mark.parametrize("kind", ["plain", "committing"])
def test_an_event_that_comes_with_the_stop_is_not_begun(kind: str) -> None:
    """The stop is set while the stream is on its way with an event."""
    ends, store, inner = Stop(), FakeCursorStore(), RecordingConsumer()
    stream = FakeStream(events(2))

    def opened(after: str, *options: Any, stop: Stop | None = None) -> Any:
        client = stream(after, *options, stop=stop)
        recv = client.recv

        def ending() -> Any:
            item = recv()
            ends.set()
            return item

        client.recv = ending  # type: ignore[method-assign]
        return client

    consumer: Any = concurrent(inner) if kind == "committing" else inner
    with pytest.raises(Stopped):
        run(spec(opened, store, consumer), stop=ends)
    assert (inner.seen, store.durable, stream.closed) == ([], {}, 1)


def test_stop_ends_a_stream_that_waits() -> None:
    stop, stream = Stop(), FakeStream(events(1))
    seen = threading.Event()

    class Telling(RecordingConsumer):
        def consume(self, event: Event, fate: Fate) -> None:
            seen.set()

    def setter() -> None:
        seen.wait(30)
        stop.set()

    thread = threading.Thread(target=setter)
    thread.start()
    with pytest.raises(Stopped):
        run(spec(stream, None, Telling(), StreamLag(seconds=30), clock=ManualClock()), stop=stop)
    thread.join()
    assert stream.closed == 1


def test_stop_set_before_the_run_consumes_nothing() -> None:
    stop, consumer = Stop(), RecordingConsumer()
    stop.set()
    with pytest.raises(Stopped):
        run(spec(FakeStream(events(1)), None, consumer), stop=stop)
    assert (consumer.seen, consumer.stops) == ([], 1)


# --- options and lag -----------------------------------------------------------------------------------------------

NOON_US = 1_790_000_000_000_000


def test_lag_reaches_the_source_through_run() -> None:
    clock = ManualClock(NOON_US)
    stream = FakeStream([event(1, NOON_US - 10_000_000)], supports_lag=True, clock=clock, end=HeadReached())
    with pytest.raises(HeadReached):
        run(spec(stream, None, None, StreamLag(seconds=45), clock=clock))
    assert stream.opened[0][1].lag == timedelta(seconds=45)
    assert clock.waits == [35.0], "the source waits, and run does not wait again"


def test_a_source_that_supports_the_lag_is_not_second_guessed() -> None:
    """It goes by the nodes' clocks too; ours may differ."""
    clock = ManualClock(NOON_US)

    class Supporting(Diary):
        supports_lag = True

    with pytest.raises(HeadReached):
        run(spec(Supporting(event(1, NOON_US)), None, None, StreamLag(seconds=30), clock=clock))
    assert clock.waits == []


def test_all_options_reach_the_source() -> None:
    stream = FakeStream(supports_lag=True)
    until = datetime(2026, 11, 21, tzinfo=UTC)
    with pytest.raises(HeadReached):
        run(spec(stream, None, None, StreamLag(seconds=1), StreamFromHead(), StreamToHead(), StreamUntil(until)))
    options = stream.opened[0][1]
    assert (options.lag, options.from_head, options.to_head, options.until) == (timedelta(seconds=1), True, True, until)


def test_lag_is_applied_at_the_destination_where_the_source_does_not() -> None:
    clock = ManualClock(NOON_US)
    ages: list[float] = []

    class Ageing(RecordingConsumer):
        def consume(self, event: Event, fate: Fate) -> None:
            ages.append((clock.now_us() - event.timestamp_us) / 1e6)

    items = [event(1, NOON_US - 60_000_000), event(2, NOON_US - 10_000_000), event(3, NOON_US)]
    with pytest.raises(HeadReached):
        run(spec(FakeStream(items, end=HeadReached()), None, Ageing(), StreamLag(seconds=30), clock=clock))
    assert ages == [60.0, 30.0, 30.0]


def test_stop_ends_the_wait_for_the_lag_without_consuming() -> None:
    clock, stop, consumer = ManualClock(NOON_US), Stop(), RecordingConsumer()
    clock.on_wait = lambda seconds: stop.set()
    store = FakeCursorStore()
    with pytest.raises(Stopped):
        run(spec(FakeStream([event(1, NOON_US)]), store, consumer, StreamLag(seconds=30), clock=clock), stop=stop)
    assert (consumer.seen, store.writes) == ([], [])


def test_a_missing_lag_is_one_clear_line() -> None:
    with pytest.raises(RunError) as caught:
        run(spec(FakeStream(supports_lag=True)))
    error = caught.value
    assert (error.stage, error.resumable) == ("stream", False)
    assert isinstance(error.__cause__, MissingLag)
    assert str(error).startswith('consumer "recording": stream failed: the fake stream has no StreamLag; pass ')
    assert "\n" not in str(error)


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "cause",
    [
        ConfigError("lag is wrong"),
        InvalidCursor("not ours"),
        CursorExpired("gone", gap_from=NOON, gap_to=NOON),
    ],
)
def test_errors_of_opening_are_final_and_leave_the_cursor(cause: RscyllaError) -> None:
    stream, store = FakeStream(events(1)), FakeCursorStore({NAME: "e1"})
    stream.fail("open", cause)
    with pytest.raises(RunError) as caught:
        run(spec(stream, store))
    assert (caught.value.stage, caught.value.__cause__, caught.value.resumable) == ("stream", cause, False)
    assert (store.durable, store.writes) == ({NAME: "e1"}, [])


def test_a_spec_refuses_what_is_not_an_option() -> None:
    with pytest.raises(ConfigError, match="is not a stream option"):
        spec(FakeStream(), None, None, None)
    with pytest.raises(ConfigError, match="flush_timeout"):
        spec(FakeStream(), flush_timeout=timedelta())


def test_a_clock_that_cannot_wait_is_refused_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"SystemClock.* cannot drive a run.*rscylla.SystemClock"):
        spec(FakeStream(), clock=rscylla.embedded.SystemClock())


# --- fate ----------------------------------------------------------------------------------------------------------

POINTS: list[tuple[str, str, str, list[str], dict[str, str]]] = [
    # point, stage, event id of the error, ids consumed in the first run, durable cursor after it
    ("after_recv", "recv", "", [], {}),
    ("consume", "consume", "e1", [], {}),
    ("after_consume", "consume", "e1", ["e1"], {}),
    ("before_set_cursor", "set_cursor", "e1", ["e1"], {}),
    ("before_flush", "flush", "", ["e1", "e2"], {}),
]


@pytest.mark.parametrize(("point", "stage", "event_id", "consumed", "durable"), POINTS)
def test_fate_at_each_point_loses_nothing(
    point: str, stage: str, event_id: str, consumed: list[str], durable: dict[str, str]
) -> None:
    stream, consumer, store = FakeStream(events(2)), RecordingConsumer(), FakeCursorStore(buffered=True)
    fate = ScriptedFate(at={point: FateError("struck")})
    with pytest.raises(RunError) as caught:
        run(spec(stream, store, consumer, fate=fate))
    assert (caught.value.stage, caught.value.event_id, caught.value.resumable) == (stage, event_id, True)
    assert consumer.ids == consumed
    store.crash()
    assert store.durable == durable
    with pytest.raises(HeadReached):
        run(spec(stream, store, consumer, fate=fate))
    assert sorted(set(consumer.ids)) == ["e1", "e2"]
    assert store.durable == {NAME: "e2"}


def test_fate_is_tempted_at_all_points_in_order() -> None:
    fate = ScriptedFate()
    with pytest.raises(HeadReached):
        run(spec(FakeStream([event(1), Progress("p", 1)]), fate=fate))
    assert fate.points == [
        "after_recv",
        "consume",
        "after_consume",
        "before_set_cursor",
        "after_recv",
        "before_set_cursor",
        "before_flush",
    ]


@pytest.mark.parametrize("seed", range(5))
def test_under_any_fate_no_event_is_lost_and_only_unsaved_events_repeat(seed: int) -> None:
    stream, consumer, store = FakeStream(events(50)), RecordingConsumer(), FakeCursorStore()
    fate = RealFate(0.05, seed=seed, enabled=True)
    runs, ended = 0, None
    while not isinstance(ended, HeadReached):
        runs += 1
        with pytest.raises(RscyllaError) as caught:
            run(spec(stream, store, consumer, fate=fate))
        ended = caught.value
        assert isinstance(ended, HeadReached) or isinstance(ended.__cause__, FateError)
    assert runs > 1
    assert sorted(set(consumer.ids), key=lambda one: int(one[1:])) == [one.id for one in events(50)]
    assert len(consumer.ids) <= 50 + runs - 1


def test_the_first_error_that_a_consumer_reports_ends_the_run() -> None:
    first, second = ConnectionFailed("the warehouse is down"), ValueError("its worker was interrupted by that")

    class Reporting(RecordingConsumer):
        def begin(self, scope: Any) -> None:
            self.scope = scope

        def progress(self, cursor: str) -> None: ...

        def drain(self) -> None: ...

        def consume(self, event: Event, fate: Any) -> None:
            self.scope.fail(first, event=event)
            self.scope.fail(second, stage="set_cursor")

    with pytest.raises(RunError) as caught:
        run(spec(FakeStream(events(2)), None, Reporting()))
    assert (caught.value.stage, caught.value.event_id, caught.value.__cause__) == ("consume", "e1", first)


# --- what the consumer is handed -----------------------------------------------------------------------------------


def test_a_consumer_is_handed_the_run_that_it_is_in() -> None:
    stream, clock = FakeStream(events(1)), ManualClock()
    stream.source = "shop.orders"  # type: ignore[attr-defined]
    handed: list[Run] = []

    class Looking(RecordingConsumer):
        def consume(self, event: Event, run: Any) -> None:
            assert run.event is event
            assert not run.stop.is_set()
            handed.append(run)

    with pytest.raises(HeadReached):
        run(spec(stream, None, Looking(), clock=clock))
    (its,) = handed
    assert (its.consumer, its.source, its.clock) == (NAME, "shop.orders", clock)
    assert its.stop.is_set(), "nothing waits for a run that is over"


def test_a_consumer_that_pauses_is_seen_waiting_and_ends_with_the_stop() -> None:
    stop, clock, seen = Stop(), ManualClock(), []

    class Pausing(RecordingConsumer):
        def consume(self, event: Event, run: Any) -> None:
            clock.on_wait = lambda seconds: (
                seen.append((run.series.activity.why(), run.series.activity.longest()[0])),
                stop.set(),
            )
            run.pause(60, "the warehouse is closed")

    store = FakeCursorStore()
    with pytest.raises(Stopped):
        run(spec(FakeStream(events(1)), store, Pausing(), clock=clock), stop=stop)
    assert seen == [("the warehouse is closed", 0)]
    assert store.durable == {}, "the event comes again"


def test_fate_looks_at_the_module_that_tempts_it_through_the_run() -> None:
    fate = RealFate(0.0, per_module={__name__: 1.0}, enabled=True)
    with pytest.raises(FateError):
        Run(NAME, fate=fate).tempt()
    assert fate.tempted == fate.struck == 1


def test_a_run_of_no_spec_saves_nothing_and_stops_nothing() -> None:
    alone = Run(NAME)
    alone.commit("e1")
    alone.pause(0.0)
    with alone.handling(event(1)) as its:
        assert its.event == event(1)
        its.fail(ConnectionFailed("gone"))
    assert alone.failure is not None, "what one thread reports is the failure of the run"
    assert alone.stop.is_set()


def test_an_error_of_the_stream_names_no_event_that_came_before() -> None:
    diary = Diary(event(1), end=ConnectionFailed("gone"))
    with pytest.raises(RunError) as caught:
        run(spec(diary, diary, diary))
    assert (caught.value.stage, caught.value.event_id) == ("recv", "")


@pytest.mark.parametrize("error", [ConnectionFailed("gone"), HeadReached()])
def test_a_consumer_that_cannot_finish_at_the_head_fails_at_consuming(error: Exception) -> None:
    """Its own ``HeadReached`` is of some other stream, and must not pass for a good end of this one."""

    class Unfinished(RecordingConsumer):
        def begin(self, run: Any) -> None: ...

        def progress(self, cursor: str) -> None: ...

        def drain(self) -> None:
            raise error

    with pytest.raises(RunError) as caught:
        run(spec(FakeStream(events(1)), None, Unfinished()))
    assert (caught.value.stage, caught.value.__cause__) == ("consume", error)


def test_a_consumer_that_hangs_after_a_pause_is_noticed() -> None:
    clock = ManualClock()
    handled = Run(NAME, clock=clock)
    with handled.handling(event(1)) as its:
        its.pause(60)
        clock.advance(42)
        assert handled.series.activity.longest() == (42, event(1))
    assert handled.series.activity.longest() == (0, None)


class Taken(FakeStreamClient):
    """Returns all events that are there at once."""

    def take(self) -> EventTuple | Progress:
        return EventTuple([FakeStreamClient.recv(self) for _ in range(2)])  # type: ignore[misc]

    def recv(self) -> Event | Progress:
        raise AssertionError("the client has chunks")


def test_the_events_of_a_chunk_are_consumed_and_saved_one_by_one() -> None:
    def opened(after: str, *options: Any, stop: Stop | None = None) -> Any:
        client: Any = FakeStream(events(4), end=HeadReached())(after, *options, stop=stop)
        client.__class__ = Taken
        return client

    store, consumer = FakeCursorStore(), RecordingConsumer()
    with pytest.raises(HeadReached):
        run(spec(opened, store, consumer))
    assert consumer.seen == ["e1", "e2", "e3", "e4"]
    assert [cursor for _, cursor in store.writes] == consumer.seen


def test_a_stop_ends_a_run_between_two_events_of_a_chunk() -> None:
    stop, store, seen = Stop(), FakeCursorStore(), []

    def work(event: Event, run: Any) -> None:
        seen.append(event.id)
        stop.set()

    client: Any = FakeStream(events(2))("")
    client.__class__ = Taken
    with pytest.raises(Stopped):
        run(spec(lambda *_, **__: client, store, Consumer(NAME, work, registry=CollectorRegistry())), stop=stop)
    assert seen == ["e1"]
    assert store.durable == {NAME: "e1"}


@pytest.mark.parametrize("clock", ["own", "of the run"])
def test_a_consumer_is_measured_by_its_own_clock(clock: str) -> None:
    ours, registry = ManualClock(), CollectorRegistry()
    theirs = ours if clock == "of the run" else ManualClock()
    theirs.advance(100)
    seen = []

    def work(event: Event, run: Any) -> None:
        theirs.advance(2)
        seen.append((consumer.series.active(), consumer.series.activity.longest()[0]))

    consumer = Consumer("own", work, clock=theirs, registry=registry, activity_ttl=timedelta(seconds=3))
    with pytest.raises(HeadReached):
        run(spec(FakeStream(events(3)), None, consumer, registry=registry, clock=ours))
    assert seen == [(1.0, 2.0 if theirs is ours else 0.0)] * 3
    assert consumer.series.samples("latency")[1] == 6.0


@pytest.mark.parametrize("where", ["class", "object"])
def test_a_consume_that_is_overridden_is_not_bypassed(where: str) -> None:
    class Mine(Consumer):
        def consume(self, event: Event, run: Any) -> None:
            seen.append(f"mine {event.id}")
            super().consume(event, run)

    seen: list[str] = []
    kind = Mine if where == "class" else Consumer
    consumer = kind("mine", lambda event, run: seen.append(event.id), registry=CollectorRegistry())
    if where == "object":
        consumer.consume = lambda event, run: seen.append(f"mine {event.id}")  # type: ignore[method-assign]
    with pytest.raises(HeadReached):
        run(spec(FakeStream(events(1)), None, consumer))
    assert seen == ["mine e1", "e1"][: 2 if where == "class" else 1]
