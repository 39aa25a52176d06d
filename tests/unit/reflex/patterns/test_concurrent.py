"""``concurrent``: events of different keys at the same time."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from deferring import LONG_S, Bench, Pool, events, failure, soon

from cursorstore import MemoryDeadLetters
from rscylla.errors import ConfigError, ConnectionFailed, FateError, HeadReached, Stopped
from rscylla.event import Event, SimpleEvent
from rscylla.reflex import best_effort, concurrent, dead_letter
from rscylla.testing import ScriptedFate

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


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
