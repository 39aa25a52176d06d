"""Keys that wait behind a dead letter, and the replay of letters in order."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import timedelta

import pytest

from cursorstore import MemoryDeadLetters
from rscylla._timeuuid import datetime_of
from rscylla.errors import ConfigError
from rscylla.event import Event, SimpleEvent
from rscylla.reflex import Backoff, Consumer, Run, dead_letter, replay_letters

QUICK = Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=2))


def event(number: int, key: str) -> SimpleEvent:
    return SimpleEvent(f"e{number}", 2, f'{{"pk":"{key}"}}', datetime_of(1_790_000_000_000_000 + number))


def key_of(event: Event) -> Hashable:
    return event.foreign_id


class Worker:
    """A process with a consumer that fails on some events. *letters* outlive it."""

    def __init__(self, letters: MemoryDeadLetters, *failing: str) -> None:
        self.letters = letters
        self.failing = set(failing)
        self.done: list[str] = []
        self.consumer = dead_letter(Consumer("c", self.handle), letters, retries=0, backoff=QUICK, park=key_of)

    def handle(self, event: Event, run: object = None) -> None:
        if event.id in self.failing:
            raise ValueError(event.id)
        self.done.append(event.id)

    def consume(self, *events: SimpleEvent) -> None:
        for one in events:
            self.consumer.consume(one, Run("c"))

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


def test_letters_that_cannot_be_listed_park_nothing() -> None:
    with pytest.raises(ConfigError, match="listed"):
        dead_letter(Consumer("c", lambda e, r: None), object(), park=key_of)  # type: ignore[arg-type]
