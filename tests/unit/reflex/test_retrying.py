"""``dead_letter`` and ``best_effort``: what they try again, what they let go, and what they never swallow."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from cursorstore import MemoryDeadLetters
from rscylla._timeuuid import datetime_of
from rscylla.abc import Consumer as AnyConsumer
from rscylla.clock import Stop
from rscylla.errors import ConfigError, ConnectionFailed, FateError, HeadReached, QueryTimeout, RunError, Stopped
from rscylla.event import Event, SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import Backoff, Consumer, Run, Spec, batch, best_effort, concurrent, dead_letter, run, run_forever
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer

START_US = 1_790_000_000_000_000
EVEN = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=10), jitter=0)
EVENTS = [
    SimpleEvent(f"e{n}", 2, f'{{"pk":{n}}}', datetime_of(START_US + n), b'{"operation":"UPDATE"}') for n in range(1, 5)
]


class Bench:
    """A process: its consumer, stream and clock. *cursors* and *letters* outlive it."""

    def __init__(self, *, cursors: FakeCursorStore | None = None, letters: MemoryDeadLetters | None = None) -> None:
        self.clock = ManualClock(START_US)
        self.cursors = cursors or FakeCursorStore()
        self.letters = letters or MemoryDeadLetters(clock=self.clock)
        self.stream = FakeStream(EVENTS, clock=self.clock)
        self.stop = Stop()
        self.registry = CollectorRegistry()

    def spec(self, consumer: AnyConsumer) -> Spec:
        return Spec(
            self.stream, self.cursors, consumer, StreamToHead(), clock=self.clock, registry=self.registry, fate=None
        )

    def run(self, consumer: AnyConsumer) -> None:
        with pytest.raises(HeadReached):
            run(self.spec(consumer), stop=self.stop)

    def dead(self, inner: AnyConsumer, **options: Any) -> AnyConsumer:
        return dead_letter(inner, self.letters, **{"backoff": EVEN, **options})

    def dead_ids(self) -> list[str]:
        return [letter.event.id for letter in self.letters.list_letters()]

    def sample(self, name: str) -> float | None:
        return self.registry.get_sample_value(name, {"consumer_name": "recording"})


def failing(*ids: str, times: int = 100, error: BaseException | None = None) -> RecordingConsumer:
    return RecordingConsumer(fail={i: error or ValueError("row 4711 is bad") for i in ids}, times=times)


def both(bench: Bench, inner: AnyConsumer, kind: str, **options: Any) -> AnyConsumer:
    return bench.dead(inner, **options) if kind == "dead_letter" else best_effort(inner, backoff=EVEN, **options)


BOTH = pytest.mark.parametrize("kind", ["dead_letter", "best_effort"])


# ---------------------------------------------------------------- both


@BOTH
def test_a_poison_event_is_tried_in_place_and_left_behind(kind: str) -> None:
    bench, inner = Bench(), failing("e2")
    bench.run(both(bench, inner, kind, retries=3))
    assert inner.seen == ["e1", "e2", "e2", "e2", "e2", "e3", "e4"]
    assert bench.clock.waits == [1, 2, 4]
    assert bench.cursors.durable == {"recording": "e4"}
    assert len(bench.stream.opened) == 1


@BOTH
def test_an_event_that_works_the_second_time_is_just_consumed(kind: str) -> None:
    bench, inner = Bench(), failing("e2", "e3", times=1)
    bench.run(both(bench, inner, kind, retries=1))
    assert inner.ids == ["e1", "e2", "e3", "e4"]
    assert bench.dead_ids() == []


@BOTH
def test_success_of_another_event_does_not_reset_the_count(kind: str) -> None:
    """In reflex each retry is a whole run: events before the poison one succeed again and reset its count."""
    bench, inner = Bench(), failing("e1", "e3")
    bench.run(both(bench, inner, kind, retries=2))
    assert inner.seen == [*["e1"] * 3, "e2", *["e3"] * 3, "e4"]


@BOTH
@pytest.mark.parametrize("retries", [0, 3])
def test_a_stop_during_consume_is_neither_counted_nor_swallowed(kind: str, retries: int) -> None:
    bench = Bench()

    class Interrupted(RecordingConsumer):
        def consume(self, event: Event, fate: Any) -> None:
            self.seen.append(event.id)
            bench.stop.set()
            raise Stopped

    inner = Interrupted()
    with pytest.raises(Stopped):
        run(bench.spec(both(bench, inner, kind, retries=retries)), stop=bench.stop)
    assert inner.seen == ["e1"]
    assert (bench.cursors.durable, bench.dead_ids(), bench.letters.tries("recording", EVENTS[0])) == ({}, [], 0)


@BOTH
@pytest.mark.parametrize("attempt", [1, 3])
def test_an_error_that_comes_with_a_stop_is_neither_counted_nor_swallowed(kind: str, attempt: int) -> None:
    """Whoever stops the run may have closed what the consumer uses."""
    bench = Bench()

    class Closed(RecordingConsumer):
        def consume(self, event: Event, fate: Any) -> None:
            self.seen.append(event.id)
            if len(self.seen) == attempt:
                bench.stop.set()
            raise RuntimeError("cannot schedule new futures after shutdown")

    inner = Closed()
    with pytest.raises(Stopped) as caught:
        run(bench.spec(both(bench, inner, kind, retries=attempt - 1)), stop=bench.stop)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert inner.seen == ["e1"] * attempt
    assert (bench.cursors.durable, bench.dead_ids()) == ({}, [])
    assert bench.letters.tries("recording", EVENTS[0]) == (attempt - 1 if kind == "dead_letter" else 0)


@BOTH
def test_an_interrupt_is_neither_counted_nor_swallowed(kind: str) -> None:
    bench = Bench()
    with pytest.raises(KeyboardInterrupt):
        run(bench.spec(both(bench, failing("e1", error=KeyboardInterrupt()), kind, retries=0)))
    assert (bench.cursors.durable, bench.dead_ids(), bench.letters.tries("recording", EVENTS[0])) == ({}, [], 0)


@BOTH
def test_a_stop_ends_the_pause_and_the_event_is_delivered_again(kind: str) -> None:
    bench, inner = Bench(), failing("e2", times=2)
    bench.clock.on_wait = lambda _: bench.stop.set()
    with pytest.raises(Stopped):
        run(bench.spec(both(bench, inner, kind, retries=3)), stop=bench.stop)
    assert inner.seen == ["e1", "e2"]
    assert bench.cursors.durable == {"recording": "e1"}
    bench.clock.on_wait = None
    bench.stop = Stop()
    bench.run(both(bench, inner, kind, retries=3))
    assert inner.ids == ["e1", "e2", "e3", "e4"]


@BOTH
@pytest.mark.parametrize(
    "error", [ConnectionFailed("no node answers; start one"), ConnectionRefusedError(), FateError("struck")]
)
def test_an_outage_ends_the_run_and_skips_no_event(kind: str, error: Exception) -> None:
    bench = Bench()
    with pytest.raises(RunError) as caught:
        run(bench.spec(both(bench, failing("e2", error=error), kind, retries=0)))
    assert (caught.value.stage, caught.value.event_id, caught.value.__cause__) == ("consume", "e2", error)
    assert (bench.cursors.durable, bench.dead_ids()) == ({"recording": "e1"}, [])


@BOTH
def test_which_errors_count_is_a_choice(kind: str) -> None:
    bench = Bench()
    consumer = both(bench, failing("e2", error=QueryTimeout("late")), kind, retries=0, counts=lambda e: False)
    with pytest.raises(RunError):
        run(bench.spec(consumer))
    bench.run(both(bench, failing("e2", error=FateError("struck")), kind, retries=0, counts=lambda e: True))
    assert bench.cursors.durable == {"recording": "e4"}


@BOTH
def test_a_time_out_of_the_consumer_counts_like_any_error(kind: str) -> None:
    bench = Bench()
    bench.run(both(bench, failing("e2", error=TimeoutError()), kind, retries=1))
    assert bench.clock.waits == [1]


@BOTH
def test_name_metrics_reset_and_stop_are_those_of_the_inner_consumer(kind: str) -> None:
    bench, inner = Bench(), failing()
    consumer = both(bench, inner, kind, retries=1)
    bench.run(consumer)
    assert (consumer.name, inner.resets, inner.stops) == ("recording", 1, 1)
    real = Consumer("billing", lambda event, fate: None, registry=bench.registry)
    assert both(bench, real, kind).series is real.series  # type: ignore[attr-defined]
    assert Spec(bench.stream, bench.cursors, both(bench, real, kind)).series is real.series


@BOTH
@pytest.mark.parametrize("retries", [-1, True, "3"])
def test_retries_must_make_sense(kind: str, retries: Any) -> None:
    with pytest.raises(ConfigError, match="retries is"):
        both(Bench(), failing(), kind, retries=retries)


@BOTH
def test_what_finishes_later_cannot_be_wrapped(kind: str) -> None:
    later = batch("billing", lambda events, fate: None, registry=CollectorRegistry())
    with pytest.raises(ConfigError, match="must be outermost"):
        both(Bench(), later, kind)
    with pytest.raises(ConfigError, match="is not a consumer"):
        both(Bench(), print, kind)  # type: ignore[arg-type]


@BOTH
def test_outside_of_a_run_it_works_too(kind: str) -> None:
    bench, inner = Bench(), failing("e1", times=1)
    quick = Backoff(initial=timedelta(microseconds=1), maximum=timedelta(microseconds=1))
    consumer = (
        dead_letter(inner, bench.letters, backoff=quick) if kind == "dead_letter" else best_effort(inner, backoff=quick)
    )
    consumer.consume(EVENTS[0], Run("billing", clock=bench.clock))
    assert inner.ids == ["e1"]


# ---------------------------------------------------------------- best effort


def test_what_is_let_go_is_counted_and_logged_without_row_values(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.WARNING, logger="rscylla"):
        bench.run(best_effort(failing("e2"), retries=1, backoff=EVEN))
    assert bench.sample("rscylla_given_up_events_total") == 1
    [line] = [record.getMessage() for record in caplog.records]
    assert line == 'consumer "recording": event e2 is skipped after 2 attempts (ValueError)'


# ---------------------------------------------------------------- dead letters


def test_the_letter_has_the_whole_event_and_why() -> None:
    bench = Bench()
    bench.run(bench.dead(failing("e2"), retries=2))
    [letter] = bench.letters.list_letters()
    event = EVENTS[1]
    kept = letter.event
    assert (kept.id, kept.type, kept.foreign_id, kept.timestamp, kept.metadata, kept.late) == (
        event.id,
        event.type,
        event.foreign_id,
        event.timestamp,
        event.metadata,
        False,
    )
    assert (letter.consumer, letter.attempts, letter.error) == ("recording", 3, "ValueError")
    assert "row 4711 is bad" in letter.traceback
    assert "in consume" in letter.traceback
    assert letter.failed_at == datetime_of(START_US + 3_000_000)
    assert bench.sample("reflex_consumer_dead_lettered_events_count") == 1


def test_the_log_line_has_no_row_values(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.INFO, logger="rscylla"):
        bench.run(bench.dead(failing("e2"), retries=0))
    assert not any("4711" in record.getMessage() for record in caplog.records)
    assert any("event e2 is a dead letter after 1 attempts" in record.getMessage() for record in caplog.records)


GROWING = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=60), factor=2, jitter=0)


@BOTH
def test_the_event_that_is_tried_again_is_shown_with_its_failures_so_far(kind: str) -> None:
    bench = Bench()
    shown: list[float | None] = []
    bench.clock.on_wait = lambda seconds: shown.append(bench.sample("rscylla_failing_event_attempts"))
    bench.run(both(bench, failing("e2", times=2), kind, retries=3))
    assert shown == [1, 2]
    assert bench.sample("rscylla_failing_event_attempts") == 0


def test_attempts_of_earlier_processes_count_for_the_pauses() -> None:
    bench = Bench()
    bench.letters.set_tries("recording", EVENTS[1], 2)
    bench.run(bench.dead(failing("e2"), retries=4, backoff=GROWING))
    assert bench.clock.waits == [4, 8], "those after the third and the fourth attempt"


def test_an_event_that_failed_more_often_than_it_may_by_now_is_tried_once_and_keeps_its_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer of the last release had more retries."""
    module = sys.modules[dead_letter.__module__]
    monkeypatch.setattr(module, "FIRST_EVENTS", 0)
    monkeypatch.setattr(module, "FIRST_S", 0.0)
    bench, inner = Bench(), failing("e2")
    bench.letters.set_tries("recording", EVENTS[1], 5)
    bench.run(bench.dead(inner, retries=3, backoff=GROWING))
    [letter] = bench.letters.list_letters()
    assert (inner.seen.count("e2"), letter.attempts, bench.clock.waits) == (1, 6, [])


def test_attempts_are_kept_over_restarts() -> None:
    """Each process dies after one failed attempt; the event is a letter after retries + 1 of them all the same."""
    first = Bench()
    seen: list[str] = []
    for _ in range(4):
        bench = Bench(cursors=first.cursors, letters=first.letters)
        inner = failing("e2")

        def die(_: float, stop: Stop = bench.stop) -> None:
            stop.set()

        bench.clock.on_wait = die
        with pytest.raises((Stopped, HeadReached)):
            run(bench.spec(bench.dead(inner, retries=3)), stop=bench.stop)
        seen += inner.seen
    assert seen == ["e1", "e2", "e2", "e2", "e2", "e3", "e4"]
    [letter] = first.letters.list_letters()
    assert letter.attempts == 4


def test_attempts_are_forgotten_after_a_success() -> None:
    bench = Bench()
    bench.run(bench.dead(failing("e2", times=2), retries=3))
    assert bench.letters.tries("recording", EVENTS[1]) == 0


class Asked(MemoryDeadLetters):
    """Notes of which events it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def tries(self, consumer: str, event: Event) -> int:
        self.asked.append(f"tries {event.id}")
        return super().tries(consumer, event)

    def set_tries(self, consumer: str, event: Event, tries: int) -> None:
        self.asked.append(f"{tries} of {event.id}")
        super().set_tries(consumer, event, tries)


@pytest.mark.parametrize(("apart_s", "noted"), [(1.0, 100), (0.01, 500), (0.0625, 100), (0.049, 103)])
def test_a_healthy_event_costs_no_query_once_the_process_has_run_for_a_while(apart_s: float, noted: int) -> None:
    """The first 100 events are noted, and those of the first five seconds."""
    letters = Asked()
    bench = Bench(letters=letters)
    bench.stream.items[:] = [SimpleEvent(f"e{n}", timestamp=datetime_of(START_US)) for n in range(600)]
    inner = Consumer("recording", lambda event, fate: bench.clock.advance(apart_s), registry=bench.registry)
    bench.run(bench.dead(inner))
    assert letters.asked == [what for n in range(noted) for what in (f"tries e{n}", f"1 of e{n}", f"0 of e{n}")]


class Killed(BaseException):
    """The process is gone."""


class Outliving(MemoryDeadLetters):
    """Letters that a process which was killed can no longer reach."""

    killed = False

    def set_tries(self, consumer: str, event: Event, tries: int) -> None:
        if self.killed:
            raise Killed
        super().set_tries(consumer, event, tries)


class Deadly(RecordingConsumer):
    """Takes its process down at some events."""

    def __init__(self, letters: Outliving, *ids: str) -> None:
        super().__init__()
        self.letters = letters
        self.ids_ = ids

    def consume(self, event: Event, fate: Any) -> None:
        super().consume(event, fate)
        if event.id in self.ids_:
            self.letters.killed = True
            raise Killed


def restarted(bench: Bench, wrap: Callable[[AnyConsumer], AnyConsumer], *deadly: str) -> list[str]:
    """Start one process after the other until one lives to the head; return what they were handed."""
    seen: list[str] = []
    assert isinstance(bench.letters, Outliving)
    for _ in range(30):
        bench.letters.killed = False
        inner = Deadly(bench.letters, *deadly)
        try:
            with pytest.raises(HeadReached):
                run(bench.spec(wrap(inner)))
        except Killed:
            seen += inner.seen
        else:
            return seen + inner.seen
    raise AssertionError("the processes went on dying")


@pytest.mark.parametrize(("retries", "deaths"), [(0, 2), (1, 2), (2, 3), (3, 4)])
def test_an_event_that_kills_the_process_is_a_letter_after_so_many_deaths(retries: int, deaths: int) -> None:
    bench = Bench(letters=Outliving())
    seen = restarted(bench, lambda inner: bench.dead(inner, retries=retries), "e2")
    assert seen == ["e1", *["e2"] * deaths, "e3", "e4"]
    [letter] = bench.letters.list_letters()
    assert (letter.event.id, letter.attempts, letter.error) == ("e2", deaths, "rscylla.errors.ProcessDied")
    assert bench.cursors.durable == {"recording": "e4"}
    assert bench.sample("reflex_consumer_dead_lettered_events_count") == 1


def test_a_letter_whose_event_is_delivered_again_gets_another_attempt() -> None:
    """After a reset, when the cause of the failure has been fixed."""
    bench = Bench(letters=Outliving())
    restarted(bench, lambda inner: bench.dead(inner, retries=3), "e2")
    bench.cursors.durable.clear()
    bench.cursors.crash()
    mended = RecordingConsumer()
    bench.run(bench.dead(mended))
    assert mended.ids == ["e1", "e2", "e3", "e4"]
    assert bench.letters.tries("recording", EVENTS[1]) == 0


def test_a_death_counts_only_against_the_current_event() -> None:
    """Also where several were: those that lived through it once are cleared."""
    bench = Bench(letters=Outliving())
    seen = restarted(bench, lambda inner: concurrent(bench.dead(inner, retries=1), workers=4), "e3")
    assert bench.dead_ids() == ["e3"]
    assert {"e1", "e2", "e4"} <= set(seen)
    assert [bench.letters.tries("recording", event) for event in EVENTS if event.id != "e3"] == [0, 0, 0]


def test_events_under_suspicion_are_consumed_one_at_a_time() -> None:
    """If the process dies, the current event is the cause."""
    bench, steps, waits = Bench(), list[tuple[str, str]](), threading.Event()
    for event in EVENTS[:2]:
        bench.letters.set_tries("recording", event, 1)

    class Watched:
        """A lock that signals when a thread has to wait for it."""

        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            if not self._lock.acquire(blocking=False):
                waits.set()
                self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    def fn(event: Event, fate: Any) -> None:
        steps.append(("begins", event.id))
        if len(steps) > 1:
            waits.set()
        assert waits.wait(60)  # until the other one waits for its turn, or has come in
        steps.append(("ends", event.id))

    consumer: Any = bench.dead(Consumer("recording", fn, registry=bench.registry))
    consumer._suspects = Watched()
    bench.stream.items = list(EVENTS[:2])
    bench.run(concurrent(consumer, workers=2))
    assert [step for step, _ in steps] == ["begins", "ends"] * 2
    assert [bench.letters.tries("recording", event) for event in EVENTS[:2]] == [0, 0]


@pytest.mark.parametrize(
    "end", [Stopped(), KeyboardInterrupt(), ConnectionFailed("no node answers; start one"), FateError("struck")]
)
def test_an_attempt_that_ends_without_a_failure_of_the_event_is_not_counted(end: BaseException) -> None:
    bench = Bench()
    bench.letters.set_tries("recording", EVENTS[1], 1)
    with pytest.raises((Stopped, KeyboardInterrupt, RunError)) as caught:
        run(bench.spec(bench.dead(failing("e2", error=end))))
    assert end in (caught.value, caught.value.__cause__)
    assert [bench.letters.tries("recording", event) for event in EVENTS] == [0, 1, 0, 0]


def test_what_cannot_be_taken_back_hides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    letters = Broken("set_tries")
    letters.method = ""
    bench = Bench(letters=letters)
    cause = ConnectionFailed("the warehouse is down")

    def fn(event: Event, fate: Any) -> None:
        if event.id == "e2":
            letters.method = "set_tries"
            raise cause

    with pytest.raises(RunError) as caught:
        run(bench.spec(bench.dead(Consumer("recording", fn, registry=bench.registry))))
    assert caught.value.__cause__ is cause
    assert "is counted though it did not fail" in caplog.text


class Broken(MemoryDeadLetters):
    """Fails at one of its methods."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def _strike(self, method: str, event_id: str) -> None:
        if method == self.method and event_id != "e1":
            raise ConnectionFailed("no node answers; start one")

    def tries(self, *arguments: Any) -> int:
        self._strike("tries", arguments[1].id)
        return super().tries(*arguments)

    def set_tries(self, *arguments: Any) -> None:
        self._strike("set_tries", arguments[1].id)
        super().set_tries(*arguments)

    def put(self, *arguments: Any) -> None:
        self._strike("put", arguments[0].event.id)
        super().put(*arguments)


@pytest.mark.parametrize("method", ["tries", "set_tries", "put"])
def test_a_failing_write_keeps_the_event_and_the_cursor(method: str) -> None:
    letters = Broken(method)
    bench = Bench(letters=letters)
    with pytest.raises(RunError) as caught:
        run(bench.spec(bench.dead(failing("e2"), retries=1)))
    assert isinstance(caught.value.__cause__, ConnectionFailed)
    assert (caught.value.event_id, caught.value.resumable) == ("e2", True)
    assert bench.cursors.durable == {"recording": "e1"}
    assert bench.dead_ids() == []
    letters.method = ""
    bench.run(bench.dead(failing("e2"), retries=1))
    assert (bench.dead_ids(), bench.cursors.durable) == (["e2"], {"recording": "e4"})


def test_the_letter_is_durable_before_the_cursor_moves() -> None:
    bench = Bench()
    order: list[str] = []

    class Noting(MemoryDeadLetters):
        def put(self, letter: Any) -> None:
            order.append(f"letter {letter.event.id}")
            super().put(letter)

    class NotingCursors(FakeCursorStore):
        def set_cursor(self, consumer: str, cursor: str) -> None:
            order.append(f"cursor {cursor}")
            super().set_cursor(consumer, cursor)

    bench.letters, bench.cursors = Noting(), NotingCursors()
    bench.run(bench.dead(failing("e2"), retries=0))
    assert order == ["cursor e1", "letter e2", "cursor e2", "cursor e3", "cursor e4"]


def test_a_crash_between_letter_and_cursor_leaves_one_letter() -> None:
    bench = Bench()
    bench.cursors.fail("set_cursor", ConnectionFailed("gone"), times=1)
    consumer = bench.dead(failing("e1"), retries=0)
    run_forever(bench.spec(consumer), backoff=EVEN)
    assert (bench.dead_ids(), bench.cursors.durable) == (["e1"], {"recording": "e4"})


def test_several_threads_may_share_it() -> None:
    bench = Bench()
    inner = failing(*(f"p{n}" for n in range(40)), times=1000)
    consumer = bench.dead(inner, retries=0)
    events = [SimpleEvent(f"p{n}") for n in range(40)]

    def work(mine: list[SimpleEvent]) -> None:
        for event in mine:
            consumer.consume(event, Run("billing", clock=bench.clock))

    threads = [threading.Thread(target=work, args=(events[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(bench.dead_ids()) == sorted(event.id for event in events)


def test_an_event_whose_metadata_cannot_be_made_is_kept_all_the_same() -> None:
    class Torn(Event):
        id = "torn"  # type: ignore[assignment]
        timestamp = datetime_of(START_US)  # type: ignore[assignment]

        @property
        def type(self) -> int:
            raise ValueError("no type")

        @property
        def foreign_id(self) -> str:
            raise ValueError("no key")

        @property
        def metadata(self) -> bytes:
            raise ValueError("no JSON")

    bench = Bench()
    bench.stream.items[:] = [Torn(), EVENTS[3]]
    with pytest.raises(HeadReached):
        run(bench.spec(bench.dead(failing("torn"), retries=0)))
    [letter] = bench.letters.list_letters()
    assert (letter.event.id, letter.event.type, letter.event.foreign_id, letter.event.metadata) == ("torn", 0, "", b"")
