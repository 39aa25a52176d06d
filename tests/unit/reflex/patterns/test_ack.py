"""``ack``: the cursor follows acknowledgements, from any thread."""

from __future__ import annotations

from typing import Any

import pytest
from deferring import NAME, START_US, Acks, Bench, events, failure, soon

from rscylla.clock import Stop
from rscylla.errors import ConnectionFailed, HeadReached, Stopped
from rscylla.event import Event, Progress
from rscylla.reflex import Ack, ack

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


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
