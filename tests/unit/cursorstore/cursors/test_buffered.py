"""The buffered store: no cursor is lost, no caller waits for a write, and failures are raised."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorstore import BufferedCursorStore, IntCursorCodec, MemoryCursorStore
from rscylla.abc import EventSaver, flush_cursor, last_event_of
from rscylla.clock import Stop
from rscylla.errors import (
    ConfigError,
    ConnectionFailed,
    CursorConflict,
    CursorRegression,
    LeaseLost,
    QueryFailed,
    QueryTimeout,
)
from rscylla.event import Event, EventID

INTS = IntCursorCodec()
STREAM = bytes.fromhex("ced00000000000009663c8dc500005a1")
WAIT_S = 60.0
"""How long a test waits for another thread before it fails."""


class Inner(MemoryCursorStore):
    """A store in memory that a test can make fail or stall, consumer by consumer."""

    def __init__(self) -> None:
        super().__init__(codec=INTS)
        self.failing: dict[str, Exception] = {}
        self.writes: list[tuple[str, str]] = []
        self.flushed = 0
        self.closed = 0
        self.on_write: Callable[[str], None] = lambda consumer: None

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self.on_write(consumer)
        if consumer in self.failing:
            raise self.failing[consumer]
        super().set_cursor(consumer, cursor)
        self.writes.append((consumer, cursor))

    def flush(self) -> None:
        self.flushed += 1

    def close(self) -> None:
        self.closed += 1


class TickClock:
    """A clock whose ``wait`` lasts until the test ticks, and which signals when a thread waits."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.waited: list[float] = []
        self._ticks = threading.Semaphore(0)
        self._waiting = threading.Semaphore(0)

    def now_us(self) -> int:
        return int(self.time * 1e6)

    def monotonic(self) -> float:
        return self.time

    def wait(self, stop: Stop, seconds: float) -> bool:
        self.waited.append(seconds)
        take_back = stop.on_set(self._ticks.release)
        self._waiting.release()
        self._ticks.acquire()
        take_back()
        self.time += seconds
        return stop.is_set()

    def await_waiter(self) -> None:
        assert self._waiting.acquire(timeout=WAIT_S), "nobody waits"

    def tick(self) -> None:
        """Let the background thread, which must be waiting, do its round and wait again."""
        self._ticks.release()
        self.await_waiter()


@pytest.fixture
def inner() -> Inner:
    return Inner()


@pytest.fixture
def clock() -> TickClock:
    return TickClock()


def shown(store: BufferedCursorStore, consumer: str) -> str:
    """Return the cursor that operators see: what is buffered counts, and nothing is written."""
    record = store.find_cursor(consumer)
    return record.cursor if record else ""


def by_hand(inner: Inner) -> BufferedCursorStore:
    """Return a store that writes only on request."""
    return BufferedCursorStore(inner, codec=INTS, background=False, interval=timedelta(days=1))


def test_only_the_last_cursor_of_each_consumer_is_written(inner: Inner) -> None:
    store = by_hand(inner)
    for value in range(1, 100):
        store.set_cursor("a", str(value))
        store.set_cursor("b", str(value * 2))
    assert inner.writes == []
    assert store.get_cursor("a") == "99"
    store.flush()
    store.flush()
    assert inner.writes == [("a", "99"), ("b", "198")]
    assert inner.flushed == 2


def test_one_consumer_is_flushed_without_the_others(inner: Inner) -> None:
    store = by_hand(inner)
    for consumer in ("a", "b"):
        store.get_cursor(consumer)
        store.set_cursor(consumer, "1")
    inner.failing["b"] = LeaseLost("the slice has moved")
    flush_cursor(store, "a")
    assert inner.writes == [("a", "1")]
    assert inner.flushed == 1
    assert shown(store, "b") == "1"
    with pytest.raises(LeaseLost):
        flush_cursor(store, "b")
    flush_cursor(store, "b")  # the refused cursor was dropped


def test_an_error_of_another_consumer_is_kept_for_it(inner: Inner) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "1")
    store.set_cursor("b", "1")
    inner.failing["b"] = QueryTimeout("slow")
    store.write_quietly()
    store.flush_cursor("a")
    with pytest.raises(QueryTimeout):
        store.set_cursor("b", "2")


def test_a_consumer_that_writes_for_all_gets_no_error_of_another(inner: Inner, clock: TickClock) -> None:
    store = BufferedCursorStore(inner, codec=INTS, interval=timedelta(seconds=5), clock=clock, background=False)
    for consumer in ("a", "b"):
        store.set_cursor(consumer, "1")
    inner.failing["b"] = LeaseLost("the slice has moved")
    clock.time += 5
    store.set_cursor("a", "2")
    assert inner.writes == [("a", "2")]
    with pytest.raises(LeaseLost):
        store.set_cursor("b", "2")


class OfAUser(MemoryCursorStore):
    """A store that has both methods, as a user writes one."""

    def flush(self) -> None:
        raise AssertionError

    def flush_cursor(self, consumer: str) -> None:
        self.flushed = [consumer]


@pytest.mark.parametrize("kind", [MemoryCursorStore, BufferedCursorStore, OfAUser])
def test_a_flush_that_a_subclass_overrides_is_not_bypassed(inner: Inner, kind: Any) -> None:
    class Own(kind):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1

    store: Any = Own(*[inner] * (kind is BufferedCursorStore))
    flush_cursor(store, "a")
    assert store.flushes == 1
    store.close()


def test_a_flush_that_is_replaced_on_an_object_is_not_bypassed() -> None:
    store, flushes = MemoryCursorStore(), list[int]()
    store.flush = lambda: flushes.append(1)  # type: ignore[method-assign]
    flush_cursor(store, "a")
    assert flushes == [1]


def test_a_cursor_is_flushed_alone_by_the_store_that_says_how() -> None:
    class Below(OfAUser):
        pass

    for store in (OfAUser(), Below()):
        flush_cursor(store, "a")
        assert store.flushed == ["a"]


def test_background_thread_writes_every_interval(inner: Inner, clock: TickClock) -> None:
    store = BufferedCursorStore(inner, codec=INTS, interval=timedelta(seconds=5), clock=clock)
    store.set_cursor("a", "1")
    clock.await_waiter()
    assert inner.writes == []
    clock.tick()
    assert inner.writes == [("a", "1")]
    clock.tick()
    assert inner.writes == [("a", "1")]
    store.set_cursor("a", "2")
    clock.tick()
    assert inner.writes == [("a", "1"), ("a", "2")]
    assert set(clock.waited) == {5.0}
    store.close()


def test_without_a_thread_a_set_after_the_interval_writes(inner: Inner) -> None:
    clock = TickClock()
    store = BufferedCursorStore(inner, codec=INTS, interval=timedelta(seconds=5), clock=clock, background=False)
    store.set_cursor("a", "1")
    clock.time += 4.9
    store.set_cursor("a", "2")
    assert inner.writes == []
    clock.time += 0.1
    store.set_cursor("b", "1")
    assert inner.writes == [("a", "2"), ("b", "1")]
    assert clock.waited == []


def test_one_failing_consumer_does_not_lose_the_cursors_of_others(inner: Inner) -> None:
    store = by_hand(inner)
    for consumer in ("a", "b", "c"):
        store.set_cursor(consumer, "7")
    inner.failing["a"] = QueryTimeout("slow")
    with pytest.raises(QueryTimeout):
        store.flush()
    assert inner.writes == [("b", "7"), ("c", "7")]
    assert shown(store, "a") == "7"
    inner.failing.clear()
    store.flush()
    assert inner.writes[2:] == [("a", "7")]


def test_the_same_cursor_again_is_not_written_again(inner: Inner) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "7")
    store.flush()
    store.set_cursor("a", "7")
    store.flush()
    assert inner.writes == [("a", "7")]


def test_the_thread_ends_with_close(inner: Inner, clock: TickClock) -> None:
    store = BufferedCursorStore(inner, codec=INTS, clock=clock)
    before = set(threading.enumerate())
    store.set_cursor("a", "1")
    [thread] = set(threading.enumerate()) - before
    clock.await_waiter()
    store.close()
    assert not thread.is_alive()
    assert inner.writes == [("a", "1")]
    assert inner.closed == 1
    store.close()
    assert inner.closed == 1


def test_the_thread_ends_when_the_store_is_forgotten(inner: Inner, clock: TickClock) -> None:
    store = BufferedCursorStore(inner, codec=INTS, clock=clock)
    before = set(threading.enumerate())
    store.set_cursor("a", "1")
    [thread] = set(threading.enumerate()) - before
    clock.await_waiter()
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_no_thread_before_the_first_set_nor_when_switched_off(inner: Inner) -> None:
    before = threading.active_count()
    idle = BufferedCursorStore(inner, codec=INTS)
    idle.get_cursor("a")
    idle.flush()
    by_hand(inner).set_cursor("a", "1")
    assert threading.active_count() == before
    idle.close()


def test_set_never_waits_for_flushes_that_overlap(inner: Inner) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "1")
    store.set_cursor("b", "1")
    stalled, release = threading.Event(), threading.Event()

    def stall(consumer: str) -> None:
        stalled.set()
        assert release.wait(WAIT_S)

    inner.on_write = stall
    flushes = [threading.Thread(target=store.flush) for _ in range(2)]
    for thread in flushes:
        thread.start()
    assert stalled.wait(WAIT_S)
    setter = threading.Thread(target=lambda: [store.set_cursor(c, "2") for c in ("a", "b")])
    setter.start()
    setter.join(WAIT_S)
    was_quick = not setter.is_alive()
    assert shown(store, "a") == "2"
    release.set()
    for thread in [*flushes, setter]:
        thread.join(WAIT_S)
    assert was_quick
    store.flush()
    assert inner.get_cursor("a") == inner.get_cursor("b") == "2"


@pytest.mark.parametrize(
    "then", [BufferedCursorStore.flush, lambda store: store.get_cursor("a")], ids=["flush", "read"]
)
def test_writes_of_one_consumer_do_not_overtake_each_other(
    inner: Inner, then: Callable[[BufferedCursorStore], object]
) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "1")
    stalled, release = threading.Event(), threading.Event()

    class Watched:
        """A lock that signals when a thread has to wait for it."""

        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            if not self._lock.acquire(blocking=False):
                release.set()
                self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    def stall(consumer: str) -> None:
        if not stalled.is_set():
            stalled.set()
            assert release.wait(WAIT_S)

    inner.on_write = stall
    store._slots["a"].writing = Watched()  # type: ignore[assignment]
    first = threading.Thread(target=store.flush)
    first.start()
    assert stalled.wait(WAIT_S)
    store.set_cursor("a", "2")

    def work() -> None:
        then(store)
        release.set()  # also if it did not have to wait

    second = threading.Thread(target=work)
    second.start()
    for thread in (first, second):
        thread.join(WAIT_S)
    store.flush()
    assert inner.writes == [("a", "1"), ("a", "2")]


def test_cursor_that_is_set_while_the_inner_store_is_read_counts(inner: Inner) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "5")
    read = inner.get_cursor

    def read_slowly(consumer: str) -> str:
        saved = read(consumer)
        store.set_cursor("a", "7")
        return saved

    inner.get_cursor = read_slowly  # type: ignore[method-assign]
    assert store.get_cursor("a") == "7"
    inner.get_cursor = read  # type: ignore[method-assign]
    with pytest.raises(CursorRegression):
        store.set_cursor("a", "6")
    store.flush()
    assert inner.get_cursor("a") == "7"


# Failures


def test_failure_in_the_background_is_raised_once_by_the_next_set_and_nothing_is_lost(
    inner: Inner, clock: TickClock
) -> None:
    store = BufferedCursorStore(inner, codec=INTS, clock=clock)
    store.set_cursor("a", "1")
    clock.await_waiter()
    inner.failing["a"] = ConnectionFailed("down")
    clock.tick()
    with pytest.raises(ConnectionFailed):
        store.set_cursor("a", "2")
    store.set_cursor("a", "3")
    assert shown(store, "a") == "3"
    inner.failing.clear()
    clock.tick()
    assert inner.writes == [("a", "3")]
    store.close()


def test_failure_that_a_retry_fixed_is_not_raised(inner: Inner, clock: TickClock) -> None:
    store = BufferedCursorStore(inner, codec=INTS, clock=clock)
    store.set_cursor("a", "1")
    clock.await_waiter()
    inner.failing["a"] = ConnectionFailed("down")
    clock.tick()
    inner.failing.clear()
    clock.tick()
    assert inner.writes == [("a", "1")]
    store.set_cursor("a", "2")
    store.close()


def test_failure_is_raised_only_to_its_own_consumer(inner: Inner) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "1")
    store.set_cursor("b", "1")
    inner.failing["a"] = QueryTimeout("slow")
    store.write_quietly()
    store.set_cursor("b", "2")
    with pytest.raises(QueryTimeout):
        store.set_cursor("a", "2")


def test_flush_raises_the_permanent_failure_and_notes_the_others(inner: Inner) -> None:
    store = by_hand(inner)
    for consumer in ("a", "b", "c"):
        store.set_cursor(consumer, "1")
    inner.failing = {"a": QueryTimeout("slow"), "b": QueryFailed("refused")}
    with pytest.raises(QueryFailed) as caught:
        store.flush()
    assert caught.value.__notes__ == ["also not saved: the cursor of consumer 'a' (QueryTimeout)"]
    assert inner.writes == [("c", "1")]


def test_failed_flush_of_the_inner_store_is_raised_and_survived_in_the_background(inner: Inner) -> None:
    def fail() -> None:
        raise QueryTimeout("slow")

    store = by_hand(inner)
    inner.flush = fail  # type: ignore[method-assign]
    store.write_quietly()
    with pytest.raises(QueryTimeout):
        store.flush()


def test_errors_that_are_not_ours_are_kept_as_well(inner: Inner) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "1")
    inner.failing["a"] = OSError("disk full")
    store.write_quietly()
    with pytest.raises(OSError, match="disk full"):
        store.flush()
    inner.failing.clear()
    store.flush()
    assert inner.writes == [("a", "1")]


def test_close_closes_the_inner_store_although_the_flush_fails(inner: Inner) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "1")
    inner.failing["a"] = QueryTimeout("slow")
    with pytest.raises(QueryTimeout):
        store.close()
    assert inner.closed == 1


def test_closed_store_takes_no_more_cursors(inner: Inner) -> None:
    store = by_hand(inner)
    store.close()
    with pytest.raises(ConfigError, match="closed"):
        store.set_cursor("a", "1")


# Going back, resets, other processes


def test_regression_is_detected_at_once_against_the_buffer_and_what_is_saved(inner: Inner) -> None:
    inner.set_cursor("saved", "5")
    store = by_hand(inner)
    with pytest.raises(CursorRegression):
        store.set_cursor("saved", "4")
    store.set_cursor("a", "5")
    with pytest.raises(CursorRegression):
        store.set_cursor("a", "4")


def test_conflict_drops_the_buffer_so_that_the_reset_counts(inner: Inner) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "5")
    store.flush()
    store.set_cursor("a", "6")
    inner.reset_cursor("a", "2", reason="by another process")
    with pytest.raises(CursorConflict):
        store.flush()
    for _ in range(2):
        with pytest.raises(CursorConflict):
            store.set_cursor("a", "7")
    store.flush()
    assert store.get_cursor("a") == "2"
    store.set_cursor("a", "3")
    store.flush()
    assert inner.get_cursor("a") == "3"


def test_process_that_was_overtaken_adopts_the_higher_cursor(inner: Inner) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "5")
    inner.set_cursor("a", "9")  # another process
    with pytest.raises(CursorRegression):
        store.flush()
    assert store.get_cursor("a") == "9"
    store.set_cursor("a", "10")
    store.flush()
    assert inner.get_cursor("a") == "10"


def test_reset_writes_what_is_buffered_into_the_history_first(inner: Inner) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "5")
    store.reset_cursor("a", "2", reason="replay")
    assert [(r.epoch, r.cursor) for r in store.cursor_history("a")] == [(1, "2"), (0, "5")]


def test_reset_goes_through_although_the_buffer_cannot_be_written(inner: Inner) -> None:
    store = by_hand(inner)
    store.set_cursor("a", "5")
    inner.failing["a"] = QueryTimeout("slow")
    store.reset_cursor("a", "2", reason="replay")
    inner.failing.clear()
    store.flush()
    assert store.get_cursor("a") == inner.get_cursor("a") == "2"


def test_read_writes_what_is_buffered_first_and_raises_if_it_cannot(inner: Inner) -> None:
    """Whether the buffered cursor still counts is for the inner store to say."""
    store = BufferedCursorStore(inner, codec=INTS, background=False)
    store.set_cursor("c", "1")
    store.set_cursor("c", "2")
    inner.failing["c"] = QueryTimeout("late")
    with pytest.raises(QueryTimeout):
        store.get_cursor("c")
    store.set_cursor("c", "3")  # the error has been raised
    inner.failing.clear()
    assert store.get_cursor("c") == "3"
    assert inner.writes == [("c", "3")]


def test_read_after_another_process_went_further_returns_its_cursor(inner: Inner) -> None:
    store, other = (BufferedCursorStore(inner, codec=INTS, background=False) for _ in range(2))
    store.set_cursor("c", "1")
    store.flush()
    store.set_cursor("c", "2")
    other.set_cursor("c", "9")
    other.flush()
    assert store.get_cursor("c") == "9"
    store.set_cursor("c", "10")
    store.flush()
    assert inner.get_cursor("c") == "10"


def test_find_shows_what_is_buffered(inner: Inner) -> None:
    store = by_hand(inner)
    assert store.find_cursor("a") is None
    store.set_cursor("a", "5")
    record = store.find_cursor("a")
    assert record is not None
    assert record.cursor == "5"
    assert inner.find_cursor("a") is None


class Bare:
    """A store with nothing but what ``CursorStore`` asks for."""

    def __init__(self) -> None:
        self.cursors: dict[str, str] = {}

    def get_cursor(self, consumer: str) -> str:
        return self.cursors.get(consumer, "")

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self.cursors[consumer] = cursor

    def flush(self) -> None: ...

    def close(self) -> None: ...


def test_store_that_operators_cannot_use_is_said_to_be_one() -> None:
    store = BufferedCursorStore(Bare(), codec=INTS, background=False)
    store.set_cursor("a", "1")
    assert store.find_cursor("a") is not None
    for call in (
        store.list_cursors,
        lambda: store.cursor_history("a"),
        lambda: store.reset_cursor("a", "0", reason="replay"),
    ):
        with pytest.raises(ConfigError, match="Bare"):
            call()


@pytest.mark.parametrize("seconds", [0, -1])
def test_interval_must_be_positive(inner: Inner, seconds: int) -> None:
    with pytest.raises(ConfigError, match="interval"):
        BufferedCursorStore(inner, interval=timedelta(seconds=seconds))


actions = st.lists(
    st.tuples(st.sampled_from(["set", "set", "set", "flush", "quiet", "fail", "mend", "get"]), st.sampled_from("ab")),
    max_size=40,
)


@given(actions, st.data())
@settings(max_examples=100, deadline=None)
def test_no_accepted_cursor_is_ever_lost(steps: list[tuple[str, str]], data: st.DataObject) -> None:
    inner = Inner()
    store = by_hand(inner)
    accepted = {"a": 0, "b": 0}
    for what, who in steps:
        if what == "set":
            accepted[who] += data.draw(st.integers(0, 3))
            try:
                store.set_cursor(who, str(accepted[who]))
            except QueryTimeout:
                assert who in inner.failing
        elif what == "flush":
            try:
                store.flush()
            except QueryTimeout:
                assert inner.failing
            for name in set(accepted) - set(inner.failing):
                assert int(inner.get_cursor(name) or 0) == accepted[name]
        elif what == "quiet":
            store.write_quietly()
        elif what == "fail":
            inner.failing[who] = QueryTimeout("slow")
        elif what == "mend":
            inner.failing.pop(who, None)
            store.write_quietly()
        elif who not in inner.failing:
            assert int(store.get_cursor(who) or 0) == accepted[who]
        assert int(shown(store, who) or 0) == accepted[who]
    inner.failing.clear()
    store.write_quietly()
    assert [int(inner.get_cursor(name) or 0) for name in "ab"] == list(accepted.values())


# Memory


def test_memory_refuses_what_real_stores_refuse() -> None:
    store = MemoryCursorStore(codec=INTS, cursors={"a": "5"})
    with pytest.raises(CursorRegression):
        store.set_cursor("a", "4")
    assert [(r.epoch, r.cursor) for r in store.cursor_history("a")] == [(0, "5")]
    assert store.cursor_history("b") == []


class Counted(Event):
    """An event of a CDC log that counts how often its id is rendered."""

    type = 0
    foreign_id = ""
    timestamp = datetime(2026, 11, 21, tzinfo=UTC)

    def __init__(self, seq: int) -> None:
        self._id = EventID.row(1_795_251_600_000, STREAM, bytes.fromhex("6ab09becc68e11f19f5897e6fb4c9b47"), seq)
        self.rendered = 0

    @property
    def id(self) -> str:
        self.rendered += 1
        return str(self._id)

    @property
    def order_key(self) -> tuple[int, bytes]:
        return self._id.key


def test_only_the_ids_that_are_written_are_rendered() -> None:
    written = MemoryCursorStore()
    store = BufferedCursorStore(written, interval=timedelta(hours=1))
    events = [Counted(seq) for seq in range(100)]
    save = EventSaver(store, "billing")
    for event in events:
        save(event)
    assert sum(event.rendered for event in events) == 1, "the first one, whose store knows no cursor yet"
    store.flush()
    assert written.get_cursor("billing") == events[-1].id
    assert sum(event.rendered for event in events[1:-1]) == 0
    store.close()


def test_an_event_that_a_run_left_is_written_at_the_next_interval(clock: TickClock) -> None:
    inner = Faulty()
    store = BufferedCursorStore(inner, clock=clock)
    events = [Counted(seq) for seq in range(5)]
    store.set_cursor("a", events[0].id)
    clock.await_waiter()
    last = last_event_of(store, "a")
    assert last.is_open
    for event in events[1:4]:
        last.event = event
    assert shown(store, "a") == events[3].id
    clock.tick()
    assert inner.get_cursor("a") == events[3].id
    inner.fails = True
    last.event = events[4]
    clock.tick()
    assert not last.is_open, "the run must come and hear of the error"
    with pytest.raises(QueryTimeout):
        store.set_cursor("a", events[4].id)
    inner.fails = False
    store.close()
    assert inner.get_cursor("a") == events[4].id
    with pytest.raises(ConfigError):
        store.set_cursor("a", Counted(9).id)


def test_a_run_hears_of_an_error_although_it_left_an_event_during_the_write() -> None:
    inner = Faulty()
    store = BufferedCursorStore(inner, interval=timedelta(hours=1))
    store.set_cursor("a", Counted(1).id)
    last = last_event_of(store, "a")
    last.event = Counted(2)
    inner.meanwhile = lambda: setattr(last, "event", Counted(3))
    inner.fails = True
    store.write_quietly()
    assert not last.is_open
    with pytest.raises(QueryTimeout):
        store.set_cursor("a", Counted(4).id)
    assert last.is_open
    inner.fails = False
    store.close()
    assert inner.get_cursor("a") == Counted(4).id


def test_a_run_hears_that_the_store_was_closed_although_it_left_an_event() -> None:
    inner = MemoryCursorStore()
    store = BufferedCursorStore(inner, interval=timedelta(hours=1))
    store.set_cursor("a", Counted(1).id)
    last = last_event_of(store, "a")
    last.event = Counted(2)
    store.close()
    assert inner.get_cursor("a") == Counted(2).id
    assert not last.is_open
    with pytest.raises(ConfigError, match="closed"):
        store.set_cursor("a", Counted(3).id)


def test_an_event_that_a_run_left_behind_the_cursor_is_refused() -> None:
    store = BufferedCursorStore(MemoryCursorStore(), interval=timedelta(hours=1))
    store.set_cursor("a", Counted(5).id)
    last = last_event_of(store, "a")
    last.event = Counted(4)
    with pytest.raises(CursorRegression):
        store.flush()
    assert not last.is_open
    assert store.get_cursor("a") == Counted(5).id
    store.close()


class Nameless:
    """An event of a user's stream whose id cannot be made."""

    @property
    def id(self) -> str:
        raise KeyError("id")


@pytest.mark.parametrize("buffered", [True, False])
def test_an_event_without_an_id_is_the_error_of_its_consumer_alone(*, buffered: bool) -> None:
    store: Any = MemoryCursorStore()
    if buffered:
        store = BufferedCursorStore(store, interval=timedelta(hours=1))
    left: dict[str, Any] = {}
    for consumer in ("a", "b"):
        store.set_cursor(consumer, Counted(1).id)
        left[consumer] = last_event_of(store, consumer)
    left["a"].event, left["b"].event = Nameless(), Counted(2)
    flush_cursor(store, "b")
    assert store.get_cursor("b") == Counted(2).id
    with pytest.raises(KeyError):
        store.flush()
    assert not left["a"].is_open
    store.close()


def test_only_the_last_run_of_a_consumer_leaves_events() -> None:
    store = BufferedCursorStore(MemoryCursorStore(), interval=timedelta(hours=1))
    store.set_cursor("a", Counted(1).id)
    former = last_event_of(store, "a")
    former.event = Counted(2)
    last = last_event_of(store, "a")
    assert (former.is_open, last.is_open) == (False, True)
    assert shown(store, "a") == Counted(2).id
    last.event = Counted(3)
    assert store.get_cursor("a") == Counted(3).id
    store.close()


@pytest.mark.parametrize("kind", [MemoryCursorStore, BufferedCursorStore])
def test_nothing_is_left_for_a_store_that_does_more_with_each_cursor(kind: Any) -> None:
    class Mine(kind):
        def set_cursor(self, consumer: str, cursor: str) -> None:
            super().set_cursor(consumer, cursor)

    store: Any = Mine(*[MemoryCursorStore()] * (kind is BufferedCursorStore))
    store.set_cursor("a", Counted(1).id)
    assert not last_event_of(store, "a").is_open
    store.close()


class Noting(MemoryCursorStore):
    """A user's store that does more with each cursor."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self.noted.append(cursor)
        super().set_cursor(consumer, cursor)


def test_a_set_cursor_that_a_subclass_overrides_gets_each_cursor_as_text() -> None:
    store, event = Noting(), Counted(1)
    EventSaver(store, "billing")(event)
    assert store.noted == [event.id] == [store.get_cursor("billing")]


def test_a_set_cursor_that_is_replaced_on_an_object_gets_each_cursor_as_text() -> None:
    store, event, noted = MemoryCursorStore(), Counted(1), list[str]()
    store.set_cursor = lambda consumer, cursor: noted.append(cursor)  # type: ignore[method-assign]
    EventSaver(store, "billing")(event)
    assert noted == [event.id]


class Passing:
    """A store around another, which passes on what it does not know."""

    def __init__(self, inner: MemoryCursorStore) -> None:
        self.inner = inner
        self.noted: list[str] = []

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self.noted.append(cursor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_a_store_around_another_gets_each_cursor_as_text() -> None:
    store, event = Passing(MemoryCursorStore()), Counted(1)
    EventSaver(store, "billing")(event)  # type: ignore[arg-type]
    assert store.noted == [event.id]


class World:
    """A store that gets events as such, left for it, or as text, with its operator, its faults, and another process."""

    def __init__(self, kind: str, way: str) -> None:
        self.inner = Faulty()
        self.buffered = BufferedCursorStore(self.inner, background=way == "left", interval=timedelta(days=1))
        self.store = {
            "memory": MemoryCursorStore(),
            "buffered": self.buffered,
        }[kind]
        self.saver, self.highest = EventSaver(self.store, "a"), (0, b"")
        as_text = lambda event: self.store.set_cursor("a", event.id)  # noqa: E731
        self.save = {"texts": as_text, "left": self.leave}[way]

    def leave(self, event: Event) -> None:
        """Save *event* as a run does, whose events come in order: others are saved one by one."""
        comes_in_order = event.order_key > self.highest
        if not self.saver.last.is_open or not comes_in_order:
            self.highest = max(self.highest, event.order_key)  # it may be buffered, and raise
        if self.saver.last.is_open and not comes_in_order:
            self.store.set_cursor("a", event.id)
        else:
            self.saver(event)
        self.highest = event.order_key

    def do(self, what: str, number: int) -> object:
        """Return what somebody sees of it: the result, or the error."""
        try:
            return self._do(what, number)
        except (CursorRegression, CursorConflict, QueryTimeout, ConfigError) as e:
            return type(e), str(e), vars(e)

    def _do(self, what: str, number: int) -> object:
        cursor = Counted(number).id
        if what == "event":
            self.save(Counted(number))
        elif what == "text":
            self.highest = max(self.highest, Counted(number).order_key)
            self.store.set_cursor("a", cursor)
        elif what == "get":
            return self.store.get_cursor("a")
        elif what == "flush":
            self.store.flush()
        elif what == "reset":
            self.store.reset_cursor("a", cursor, reason="replay")
        elif what == "reset elsewhere":
            self.inner.reset_cursor("a", cursor, reason="replay")
        elif what == "close":
            self.store.close()
        else:
            self.inner.fails = what == "fail"
            self.buffered.write_quietly()
        found = self.store.find_cursor("a")
        history = self.store.cursor_history("a")
        return [(r.cursor, r.epoch, r.reason) for r in (found, *history) if r]


class Faulty(MemoryCursorStore):
    fails = False
    meanwhile: Callable[[], None] = staticmethod(lambda: None)
    """Called during each write."""

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self.meanwhile()
        if self.fails:
            raise QueryTimeout("slow")
        super().set_cursor(consumer, cursor)


@pytest.mark.parametrize("kind", ["memory", "buffered"])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                [*["event"] * 6, "text", "get", "flush", "fail", "mend", "close", "reset", "reset elsewhere"]
            ),
            st.sampled_from([1, 1, 2, 0, -1]),
        ),
        max_size=40,
    )
)
@settings(max_examples=100, deadline=None)
def test_nobody_can_tell_whether_a_store_got_events_or_texts(kind: str, steps: list[tuple[str, int]]) -> None:
    events, texts = World(kind, "left"), World(kind, "texts")
    number = 5
    for what, further in steps:
        number += further
        assert events.do(what, abs(number)) == texts.do(what, abs(number)), what
