"""Consumers that finish events later, all kinds: what is done, and up to where; two runs; how they end."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from deferring import LONG_S, NAME, Bench, events, failure, soon
from hypothesis import given, settings
from hypothesis import strategies as st

from rscylla.errors import ConfigError, ConnectionFailed, HeadReached, RscyllaError, Stopped
from rscylla.reflex import Consumer, Run, ack, batch, concurrent
from rscylla.reflex.fate import NO_FATE
from rscylla.reflex.inflight import InFlight
from rscylla.testing import FakeCursorStore, ManualClock

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


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
