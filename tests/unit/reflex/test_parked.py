"""Keys that wait behind a dead letter, and the replay of letters in order."""

from __future__ import annotations

import dataclasses
import enum
import math
import threading
import uuid
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from prometheus_client import CollectorRegistry

from cursorstore import MemoryDeadLetters
from rscylla._letters import DeadLetter
from rscylla._timeuuid import datetime_of
from rscylla.errors import ConfigError, HeadReached, LetterClaimed, Stopped
from rscylla.event import Event, SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import (
    Backoff,
    Consumer,
    Run,
    Spec,
    batch,
    concurrent,
    dead_letter,
    replay_letters,
    run,
    slice_name,
    slice_specs,
)
from rscylla.reflex.patterns.letters.marks import mark_of
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock

QUICK = Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=2))


def event(number: int, key: str) -> SimpleEvent:
    return SimpleEvent(f"e{number}", 2, f'{{"pk":"{key}"}}', datetime_of(1_790_000_000_000_000 + number))


class TypedEvent(SimpleEvent):
    """An event of a stream: its key is a value of Python, and not of JSON as that of a letter."""

    @property
    def key(self) -> Mapping[str, Any]:
        return {"pk": uuid.UUID(super().key["pk"])}


def key_of(event: Event) -> Hashable:
    return event.foreign_id


class Worker:
    """A process with a consumer that fails on some events. *letters* outlive it."""

    def __init__(
        self,
        letters: MemoryDeadLetters,
        *failing: str,
        part: tuple[int, int] = (0, 1),
        park: Callable[[Event], Hashable] = key_of,
    ) -> None:
        self.letters = letters
        self.failing = set(failing)
        self.done: list[str] = []
        self.name = slice_name("c", *part)
        self.consumer = dead_letter(Consumer(self.name, self.handle), letters, retries=0, backoff=QUICK, park=park)

    def handle(self, event: Event, run: object = None) -> None:
        if event.id in self.failing:
            raise ValueError(event.id)
        self.done.append(event.id)

    def consume(self, *events: SimpleEvent) -> None:
        for one in events:
            self.consumer.consume(one, Run(self.name, whole="c"))

    def dead(self) -> list[str]:
        return [letter.event.id for letter in self.letters.list_letters("c")]


def test_later_events_of_a_parked_key_wait_and_others_do_not() -> None:
    worker = Worker(MemoryDeadLetters(), "e1")
    worker.consume(event(1, "a"), event(2, "b"), event(3, "a"))
    assert (worker.done, worker.dead()) == (["e2"], ["e1", "e3"])
    [first, second] = worker.letters.list_letters("c")
    assert (first.error, second.error, second.attempts) == ("ValueError", "rscylla.errors.KeyParked", 0)


def test_a_key_is_parked_over_restarts_and_until_its_letters_are_resolved() -> None:
    letters = MemoryDeadLetters()
    Worker(letters, "e1").consume(event(1, "a"))
    worker = Worker(letters)
    worker.consume(event(2, "a"))
    assert (worker.done, worker.dead()) == ([], ["e1", "e2"])
    assert replay_letters(letters, "c", worker.handle) == (2, 0)
    worker.consume(event(3, "a"))
    assert (worker.done, worker.dead()) == (["e1", "e2", "e3"], [])


def test_a_letter_that_was_discarded_holds_nothing_back() -> None:
    worker = Worker(MemoryDeadLetters(), "e1")
    worker.consume(event(1, "a"))
    [letter] = worker.letters.list_letters("c")
    worker.letters.resolve_letter(letter, "discarded", reason="known")
    worker.consume(event(2, "a"))
    assert (worker.done, worker.dead()) == (["e2"], [])


def test_a_replay_leaves_the_later_letters_of_a_key_that_fails_again() -> None:
    worker = Worker(MemoryDeadLetters(), "e1", "e2")
    worker.consume(event(1, "a"), event(2, "b"), event(3, "a"), event(4, "b"))
    worker.failing = {"e1"}
    assert replay_letters(worker.letters, "c", worker.handle, key=key_of) == (2, 2)
    assert (worker.done, worker.dead()) == (["e2", "e4"], ["e1", "e3"])


def test_what_is_parked_during_a_replay_is_replayed_too() -> None:
    worker = Worker(MemoryDeadLetters(), "e1")
    worker.consume(event(1, "a"))
    worker.failing.clear()

    def handle(one: Event) -> None:
        worker.handle(one)
        if one.id == "e1":
            worker.consume(event(2, "a"))

    assert replay_letters(worker.letters, "c", handle) == (2, 0)
    assert (worker.done, worker.dead()) == (["e1", "e2"], [])


def test_an_event_that_is_parked_just_after_the_replay_has_ended_is_consumed() -> None:
    class Racing(MemoryDeadLetters):
        racing = False

        def put(self, letter: object) -> None:
            if self.racing:
                self.racing = False
                [first] = self.list_letters("c")
                self.resolve_letter(first, "replayed", reason="replayed")
            super().put(letter)  # type: ignore[arg-type]

    letters = Racing()
    worker = Worker(letters, "e1")
    worker.consume(event(1, "a"))
    letters.racing = True
    worker.consume(event(2, "a"))
    assert (worker.done, worker.dead()) == (["e2"], [])


def test_events_without_a_key_do_not_wait() -> None:
    letters = MemoryDeadLetters()
    failing = Consumer("c", Worker(letters, "e1").handle)
    consumer = dead_letter(failing, letters, retries=0, backoff=QUICK, park=lambda e: None)
    for n in (1, 2):
        consumer.consume(event(n, "a"), Run("c"))
    assert [letter.event.id for letter in letters.list_letters("c")] == ["e1"]


PARTS = [(0, 1), (0, 2), (3, 4), (0, 2), (5, 7)]


def test_a_key_stays_parked_whatever_slices_the_consumer_is_cut_into() -> None:
    letters = MemoryDeadLetters()
    Worker(letters, "e1", part=(1, 3)).consume(event(1, "a"))
    for number, part in enumerate(PARTS, 2):
        worker = Worker(letters, part=part)
        worker.consume(event(number, "a"), event(100 + number, "b"))
        assert worker.done == [f"e{100 + number}"]
    worker = Worker(letters, part=(0, 5))
    assert worker.dead() == ["e1", "e2", "e3", "e4", "e5", "e6"]
    assert replay_letters(letters, "c", worker.handle) == (6, 0)
    worker.consume(event(7, "a"))
    assert worker.done == ["e1", "e2", "e3", "e4", "e5", "e6", "e7"]


def test_attempts_count_whatever_slices_the_consumer_is_cut_into() -> None:
    letters, left = MemoryDeadLetters(), [1, 1]  # attempts until each process ends

    for part in ((1, 3), (0, 2)):

        def handle(one: Event, run: Run) -> None:
            if not left[-1]:
                left.pop()
                raise KeyboardInterrupt
            left[-1] -= 1
            raise ValueError(one.id)

        name = slice_name("c", *part)
        consumer = dead_letter(Consumer(name, handle), letters, retries=5, backoff=QUICK)
        with pytest.raises(KeyboardInterrupt):
            consumer.consume(event(1, "a"), Run(name, whole="c"))
    assert letters.tries("c", event(1, "a")) == 2


def test_a_run_tells_what_it_reads_a_slice_of() -> None:
    class Sliced(FakeStream):
        def sliced(self, index: int, count: int) -> FakeStream:
            return FakeStream([event(1, "a")])

    told = []

    def make(name: str) -> Consumer:
        return Consumer(name, lambda e, r: told.append((r.consumer, r.whole)), registry=CollectorRegistry())

    for name, count in (("c", 1), ("c[eu]", 2), ("c[0/2]", 1), ("c[0/2]", 2)):
        specs = slice_specs(name, count, Sliced([]), FakeCursorStore(), make, StreamToHead(), only=[0])
        with pytest.raises(HeadReached):
            run(specs[0])
    assert told == [("c", "c"), ("c[eu][0/2]", "c[eu]"), ("c[0/2]", "c[0/2]"), ("c[0/2][0/2]", "c[0/2]")]


def test_an_event_of_a_letter_that_is_delivered_again_waits_for_its_replay() -> None:
    """A restart, a reslice, or a reset may deliver it again while somebody replays it."""
    worker = Worker(MemoryDeadLetters(), "e1")
    worker.consume(event(1, "a"), event(2, "a"))
    before = list(worker.letters.list_letters("c"))
    again = Worker(worker.letters)
    again.consume(event(1, "a"), event(2, "a"), event(3, "a"))
    assert (again.done, again.dead()) == ([], ["e1", "e2", "e3"])
    assert list(worker.letters.list_letters("c"))[:2] == before


@pytest.mark.parametrize(
    "park",
    [
        lambda event: event.key["pk"],
        lambda event: event.key["pk"].bytes,  # fails with the key of a letter, which is text
        lambda event: (event.key["pk"], frozenset({"a", 1, event.foreign_id})),
    ],
)
def test_keys_of_values_that_letters_keep_as_text_stay_parked_over_restarts(park: Callable[[Event], Hashable]) -> None:
    letters, key = MemoryDeadLetters(), str(uuid.uuid4())
    first, second = (TypedEvent(**attrs.asdict(event(n, key))) for n in (1, 2))
    Worker(letters, "e1", park=park).consume(first)
    worker = Worker(letters, park=park)
    worker.consume(second)
    assert (worker.done, worker.dead()) == ([], ["e1", "e2"])
    assert key not in "".join(letter.park for letter in letters.list_letters())


def test_a_letter_without_a_key_of_its_own_parks_by_its_event() -> None:
    letters = MemoryDeadLetters()
    dead_letter(Consumer("c", Worker(letters, "e1").handle), letters, retries=0).consume(event(1, "a"), Run("c"))
    worker = Worker(letters)
    worker.consume(event(2, "a"))
    assert (worker.done, worker.dead()) == ([], ["e1", "e2"])


@attrs.frozen
class Place:
    """Its text would show the elements in the order of the set."""

    parts: Any
    seen: int = attrs.field(default=0, eq=False)


@dataclasses.dataclass
class Spot:
    parts: Any


@pytest.mark.parametrize(
    ("one", "equal"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({0, 8}, {8, 0}),
        (frozenset({0, 8}), {8, 0}),
        ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
        (({"x": {0, 8}, "y": 1},), ({"y": 1, "x": {8, 0}},)),
        (Place({0, 8}), Place({8, 0}, seen=3)),
        (Spot({"a": {0, 8}, "b": 1}), Spot({"b": 1, "a": {8, 0}})),
        ({"a": 1, "b": 2}.keys(), {"b": 2, "a": 1}.keys()),
    ],
    ids=["dict", "set", "frozenset", "list", "nested", "attrs", "dataclass", "keys"],
)
def test_equal_keys_park_each_other_whatever_their_order(one: Any, equal: Any) -> None:
    assert one == equal
    assert repr(one) != repr(equal)
    letters = MemoryDeadLetters()
    Worker(letters, "e1", park=lambda event: one).consume(event(1, "a"))
    worker = Worker(letters, park=lambda found: {"e1": one, "e2": equal}.get(found.id, "another"))
    worker.consume(event(2, "a"), event(3, "a"))
    assert (worker.done, worker.dead()) == (["e3"], ["e1", "e2"])


class Ticket(uuid.UUID):
    pass


class Pause(timedelta):
    pass


class Size(enum.IntEnum):
    LARGE = 3


class Colour(enum.StrEnum):
    RED = "red"


@attrs.frozen
class Name:
    """Its letters are compared whatever their case."""

    text: str = attrs.field(eq=str.lower)


BERLIN = timezone(timedelta(hours=2))
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "equal"),
    [
        (Decimal("1.0"), Decimal("1.00")),
        (1, 1.0),
        (1, Decimal("1.000")),
        (True, 1),
        (0, Decimal("-0.00")),
        (0.5, Fraction(1, 2)),
        (-1200, Decimal("-1.2E+3")),
        (10**5000, Decimal("1E+5000")),
        (Decimal("1E+2000000000"), Decimal("10E+1999999999")),
        (2.5, 2.5 + 0j),
        (2j, complex(-0.0, 2)),
        (math.inf, Decimal("Infinity")),
        (3, Size.LARGE),
        ("red", Colour.RED),
        (b"a", bytearray(b"a")),
        (NOON, NOON.astimezone(BERLIN)),
        (datetime(2026, 10, 25, 2, 30), datetime(2026, 10, 25, 2, 30, fold=1)),
        (datetime.min.replace(tzinfo=BERLIN), datetime.min.replace(tzinfo=timezone(timedelta(minutes=120)))),
        (time(12, tzinfo=UTC), time(14, tzinfo=BERLIN)),
        (("a", 1), ("a", Decimal("1.0"))),
        ({"a": [1, NOON]}, {"a": [1.0, NOON.astimezone(BERLIN)]}),
        (frozenset({1, 2}), frozenset({1.0, Decimal(2)})),
        ({1: "a"}, {Decimal("1.0"): "a"}),
        (Place(1), Place(1.0)),
        (Spot(NOON), Spot(NOON.astimezone(BERLIN))),
        (Name("Ada"), Name("ADA")),
        (uuid.UUID(int=7), Ticket(int=7)),
        (timedelta(seconds=3), Pause(seconds=3)),
    ],
    ids=lambda key: type(key).__name__,
)
def test_equal_keys_of_unlike_classes_are_one_key(one: Any, equal: Any) -> None:
    assert one == equal
    assert mark_of(one) == mark_of(equal)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 10),
        (1, -1),
        (-1, -2),
        (0.1, Decimal("0.1")),
        (Fraction(1, 3), Fraction(1, 6)),
        (1, "1"),
        ("a", b"a"),
        (NOON, NOON.replace(tzinfo=BERLIN)),
        (NOON, NOON.replace(tzinfo=None)),
        (NOON.date(), datetime(2026, 11, 21)),
        (time(12), time(12, tzinfo=UTC)),
        (Size.LARGE, Size.LARGE + 1),
        (frozenset(), MappingProxyType({})),
        (uuid.UUID(int=7), 7),
    ],
    ids=lambda key: type(key).__name__,
)
def test_unlike_values_are_two_keys(one: Any, other: Any) -> None:
    assert one != other
    assert mark_of(one) != mark_of(other)


@pytest.mark.parametrize(("one", "other"), [({"a": 1}, {"a": 2}), ({1}, {"1"}), ([1, 2], [2, 1]), ({}, {"a": None})])
def test_other_keys_are_not_parked(one: Any, other: Any) -> None:
    letters = MemoryDeadLetters()
    Worker(letters, "e1", park=lambda event: one).consume(event(1, "a"))
    worker = Worker(letters, park=lambda event: other if event.id == "e2" else one)
    worker.consume(event(2, "a"))
    assert worker.done == ["e2"]


@pytest.mark.parametrize("make", [lambda: print.__call__, lambda: lambda: 1, lambda: {"a": memoryview(b"a")}])
def test_a_key_whose_text_has_an_address_is_refused(make: Any) -> None:
    worker = Worker(MemoryDeadLetters(), "e1", park=lambda event: make())
    with pytest.raises(ConfigError, match="which no later process can recognize"):
        worker.consume(event(1, "a"))


def test_a_text_that_looks_like_an_address_is_a_key() -> None:
    worker = Worker(MemoryDeadLetters(), "e1", park=lambda event: "lost at 0x7f00")
    worker.consume(event(1, "a"), event(2, "a"))
    assert worker.dead() == ["e1", "e2"]


def test_a_key_that_no_later_process_can_recognize_is_refused() -> None:
    worker = Worker(MemoryDeadLetters(), "e1", park=lambda event: ("a", object()))
    with pytest.raises(ConfigError, match="park= returned a object, which no later process can recognize"):
        worker.consume(event(1, "a"))


def run_of(consumer: Any, *events: Event) -> None:
    spec = Spec(FakeStream(events), FakeCursorStore(), consumer, StreamToHead(), registry=CollectorRegistry())
    with pytest.raises(HeadReached):
        run(spec)


def test_no_batch_has_an_event_of_a_parked_key() -> None:
    worker, batches = Worker(MemoryDeadLetters(), "e1"), []

    def fn(events: Any, run: object) -> None:
        batches.append([event.id for event in events])
        if "e1" in batches[-1]:
            raise ValueError("the batch")

    consumer = batch("c", fn, size=2, fallback=worker.consumer, registry=CollectorRegistry())
    events = [event(n, "ab"[n % 2 == 0]) for n in range(1, 9)]
    run_of(consumer, *events)
    assert batches == [["e1", "e2"], ["e4"], ["e6"], ["e8"]]
    assert (worker.done, worker.dead()) == (["e2"], ["e1", "e3", "e5", "e7"])


def test_workers_that_run_side_by_side_do_not_pass_a_failing_event_of_their_key() -> None:
    """The parked key is wider than the key by which events stay in order."""
    letters, started, done = MemoryDeadLetters(), threading.Event(), list[str]()

    def handle(one: Event, run: object) -> None:
        if one.id == "e1":
            started.wait(0.2)  # where e2 can begin, it does
            raise ValueError(one.id)
        started.set()
        done.append(one.id)

    inner = dead_letter(Consumer("c", handle), letters, retries=0, backoff=QUICK, park=lambda e: e.key["pk"][0])
    run_of(concurrent(inner, workers=4), event(1, "a1"), event(2, "a2"), event(3, "b"), event(4, "a1"))
    assert done == ["e3"]
    assert [letter.event.id for letter in letters.list_letters("c")] == ["e1", "e2", "e4"]


def test_a_process_that_has_lost_its_slice_puts_no_letter() -> None:
    """The next holder has handled the event and later ones: a letter of it now would bring an old value back."""
    letters = MemoryDeadLetters()
    one = Run("c")
    event_one = event(1, "a")
    letters.set_tries("c", event_one, 5)  # it has ended the process again and again
    one.stop.set()
    with pytest.raises(Stopped):
        dead_letter(Consumer("c", lambda e, r: None), letters, retries=0, park=key_of).consume(event_one, one)
    assert list(letters.list_letters("c")) == []


def test_two_replays_at_a_time_handle_each_event_once_and_in_order() -> None:
    worker = Worker(MemoryDeadLetters(), "e1")
    worker.consume(event(1, "a"), event(2, "a"), event(3, "b"))
    others: list[tuple[int, int]] = []
    handled: list[tuple[str, str]] = []

    def handle(one: Event) -> None:
        if one.id == "e1":
            others.append(replay_letters(worker.letters, "c", lambda e: handled.append(("other", e.id))))
        handled.append(("first", one.id))

    worker.letters.put(DeadLetter.of("c", event(3, "b"), ValueError(), attempts=1, failed_at=datetime_of(0)))
    assert replay_letters(worker.letters, "c", handle) == (2, 0)
    assert others == [(1, 2)]
    assert handled == [("other", "e3"), ("first", "e1"), ("first", "e2")]


def test_what_was_resolved_since_it_was_listed_is_not_handled() -> None:
    worker = Worker(MemoryDeadLetters(), "e1")
    worker.consume(event(1, "a"), event(2, "a"), event(3, "a"))

    def handle(one: Event) -> None:
        worker.handle(one)
        for letter in worker.letters.list_letters("c"):
            if letter.event.id == "e2":
                worker.letters.resolve_letter(letter, "discarded", reason="known")

    worker.failing.clear()
    assert replay_letters(worker.letters, "c", handle) == (2, 0)
    assert worker.done == ["e1", "e3"]


def test_nobody_discards_what_is_being_replayed() -> None:
    worker = Worker(MemoryDeadLetters(), "e1")
    worker.consume(event(1, "a"))

    def handle(one: Event) -> None:
        [letter] = worker.letters.list_letters("c")
        with pytest.raises(LetterClaimed, match="being replayed or resolved since"):
            worker.letters.resolve_letter(letter, "discarded", reason="known")

    assert replay_letters(worker.letters, "c", handle) == (1, 0)


def test_an_event_that_a_replay_has_found_is_not_consumed_as_well() -> None:
    """It became a letter just before the replay of those before it ended, and the replay goes on with it."""

    class Racing(MemoryDeadLetters):
        racing = False

        def put(self, letter: DeadLetter) -> None:
            super().put(letter)
            if self.racing:
                [first, second] = self.list_letters("c")
                self.resolve_letter(first, "replayed", reason="replayed")
                self.claim_letter(second, "the replay")

    letters = Racing()
    worker = Worker(letters, "e1")
    worker.consume(event(1, "a"))
    letters.racing = True
    worker.consume(event(2, "a"))
    assert (worker.done, worker.dead()) == ([], ["e2"])


def test_a_replay_that_died_holds_its_letter_for_a_while() -> None:
    clock = ManualClock(1_790_000_000_000_000)
    letters = MemoryDeadLetters(clock=clock)
    worker = Worker(letters, "e1")
    worker.consume(event(1, "a"))
    [letter] = letters.list_letters("c")
    letters.claim_letter(letter, "the one that died")
    assert replay_letters(letters, "c", lambda e: None) == (0, 1)
    clock.advance(31)
    assert replay_letters(letters, "c", lambda e: None) == (1, 0)


def test_a_replay_of_some_letters_tells_which_it_left_out() -> None:
    worker = Worker(MemoryDeadLetters(), "e1", "e2")
    worker.consume(event(1, "a"), event(2, "b"), event(3, "a"), event(4, "b"))
    told: list[tuple[str, str]] = []

    def tell(letter: DeadLetter, error: Exception | None) -> None:
        told.append((letter.event.id, type(error).__name__))

    worker.failing.clear()
    found = replay_letters(worker.letters, "c", worker.handle, only={"e2", "e3", "e4"}, told=tell)
    assert (found, worker.done, worker.dead()) == ((2, 1), ["e2", "e4"], ["e1", "e3"])
    assert told == [("e2", "NoneType"), ("e4", "NoneType"), ("e3", "KeyParked")]


def test_letters_that_cannot_be_listed_park_nothing() -> None:
    with pytest.raises(ConfigError, match="listed"):
        dead_letter(Consumer("c", lambda e, r: None), object(), park=key_of)  # type: ignore[arg-type]
