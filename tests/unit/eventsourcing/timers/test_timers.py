"""The runner of timers, and process managers, on memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from eventcounters import TYPES, Added, Shop, change_of, counter
from eventmemory import MemoryTimers
from waiting import eventually

import rscylla
from cursorstore import MemoryDeadLetters
from rscylla.clock import Stop
from rscylla.errors import ConfigError, Stopped
from rscylla.eventsourcing import (
    Action,
    AggregateID,
    CancelTimer,
    Envelope,
    Processes,
    Send,
    SetTimer,
    Timer,
    firing_id,
    timer_of,
    timer_spec,
)
from rscylla.testing import ManualClock

SOON = timedelta(milliseconds=2)
PAST = datetime(2026, 1, 1, tzinfo=UTC)


def until_stopped(*specs: rscylla.Spec) -> Any:
    stop = Stop()
    pauses = rscylla.Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=5))
    threads = [
        threading.Thread(target=rscylla.run_forever, args=(s,), kwargs={"stop": stop, "backoff": pauses}) for s in specs
    ]
    for thread in threads:
        thread.start()

    def end() -> None:
        stop.set()
        for thread in threads:
            thread.join()

    return end


@pytest.mark.parametrize("workers", [1, 4])
def test_timers_fire_once_with_two_runners(workers: int) -> None:
    store, fired, lock = MemoryTimers(), list[str](), threading.Lock()

    def fire(timer: Timer, run: Any) -> None:
        with lock:
            fired.append(timer.id)

    for n in range(50):
        store.schedule(Timer(f"t{n}", PAST + timedelta(seconds=n), str(n)))
    end = until_stopped(*(timer_spec(f"timers-{n}", store, fire, every=SOON, workers=workers) for n in range(2)))
    try:
        eventually(lambda: not store.waiting())
        assert store.schedule(Timer("later", PAST))
        eventually(lambda: not store.waiting())
    finally:
        end()
    assert sorted(fired) == sorted([*(f"t{n}" for n in range(50)), "later"])


def test_a_timer_that_fails_fires_again_with_the_same_id() -> None:
    store, tries = MemoryTimers(), list[Any]()

    def fire(timer: Timer, run: Any) -> None:
        tries.append(firing_id(timer))
        if len(tries) < 3:
            raise ValueError("not yet")

    store.schedule(Timer("t", PAST))
    end = until_stopped(timer_spec("timers", store, fire, every=SOON))
    try:
        eventually(lambda: not store.waiting())
    finally:
        end()
    assert len(tries) == 3
    assert len(set(tries)) == 1
    assert firing_id(Timer("t", PAST + timedelta(seconds=1))) != tries[0]


def test_a_timer_that_keeps_failing_becomes_a_letter() -> None:
    store, letters, healthy = MemoryTimers(), MemoryDeadLetters(), list[str]()

    def fire(timer: Timer, run: Any) -> None:
        if timer.id == "bad":
            raise ValueError("never")
        healthy.append(timer.id)

    def wrap(consumer: Any) -> Any:
        pauses = rscylla.Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=2))
        return rscylla.dead_letter(consumer, letters, retries=1, backoff=pauses)

    bad = Timer("bad", PAST, "data")
    store.schedule(bad)
    store.schedule(Timer("good", PAST + timedelta(seconds=1)))
    end = until_stopped(timer_spec("timers", store, fire, wrap=wrap, every=SOON))
    try:
        eventually(lambda: not store.waiting())
    finally:
        end()
    [letter] = letters.list_letters("timers")
    assert timer_of(letter.event) == bad
    assert healthy == ["good"]


def test_a_timer_of_a_runner_that_died_fires_when_its_claim_has_expired() -> None:
    clock = ManualClock()
    store, fired, timer = MemoryTimers(clock=clock), list[str](), Timer("t", PAST)
    store.schedule(timer)
    assert store.claim(timer, "dead", timedelta(seconds=60))
    spec = timer_spec("timers", store, lambda t, run: fired.append(t.id), every=SOON, claim=timedelta(seconds=1))
    end = until_stopped(spec)
    try:
        with pytest.raises(AssertionError):
            eventually(lambda: fired, 0.1)
        clock.advance(61)
        eventually(lambda: not store.waiting())
    finally:
        end()
    assert fired == ["t"]


def test_a_store_that_does_not_answer_is_seen_in_the_status() -> None:
    clock = ManualClock()
    asked: list[datetime] = []
    ages: list[float | None] = []

    class Slow(MemoryTimers):
        def due(self, now: datetime, limit: int) -> Sequence[Timer]:
            clock.advance(200)
            ages.append(client.status().poll_age_s)
            asked.append(now)
            return super().due(now, limit)

    stream = timer_spec("timers", Slow(), lambda timer, run: None, clock=clock).stream
    client = stream("")
    assert client.status().poll_age_s is None
    client.recv()
    assert (len(asked), ages, client.status().poll_age_s) == (1, [200.0], None)


def test_arguments_of_the_runner_are_checked() -> None:
    with pytest.raises(ConfigError, match="every"):
        timer_spec("t", MemoryTimers(), lambda t, run: None, every=timedelta())
    with pytest.raises(ConfigError, match="not callable"):
        timer_spec("t", MemoryTimers(), None)  # type: ignore[arg-type]


class Reminders:
    """After a first event, a timer; a second event cancels it; a timer that fires adds to another counter."""

    name = "reminders"

    def react(self, envelope: Envelope[Any]) -> Iterable[Action]:
        if envelope.version == 1:
            yield SetTimer(envelope.aggregate.id, envelope.at + timedelta(hours=1), "why")
            yield Send(counter("started"), Added(envelope.event.amount))
        else:
            yield CancelTimer(envelope.aggregate.id)

    def fire(self, timer: Timer) -> Iterable[Action]:
        yield Send(counter("reminded"), (timer.id, timer.data))


class TooLate(Exception):
    pass


class Sent:
    def __init__(self) -> None:
        self.commands: dict[str, tuple[AggregateID, Any, str]] = {}
        self.calls = 0
        self.error: Exception | None = None

    def __call__(self, to: AggregateID, command: Any, *, command_id: str, correlation_id: str) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        known = self.commands.setdefault(command_id, (to, command, correlation_id))
        assert known == (to, command, correlation_id)


def test_a_process_manager_does_what_follows_once_however_often_events_come() -> None:
    shop, timers, sent = Shop(), MemoryTimers(), Sent()
    shop.add("a", 7)
    shop.add("b", 8)
    shop.add("b", 9)
    processes = Processes(Reminders(), sent, timers, TYPES.decode)
    consumer, run = processes.consumer(), rscylla.Run("reminders")
    for _ in range(3):
        for event in shop.stream.items:
            consumer.consume(event, run)  # type: ignore[arg-type]
    assert sorted(command.amount for _, command, _ in sent.commands.values()) == [7, 8]
    assert {correlation for _, _, correlation in sent.commands.values()} == {"c"}
    [timer] = timers.waiting()
    assert (timer.id, timer.data) == ("reminders/a", "why")
    processes.fire(timer)
    processes.fire(timer)
    assert [command for to, command, _ in sent.commands.values() if to == counter("reminded")] == [("a", "why")]


def test_a_refused_command_is_passed_over_if_it_may_be() -> None:
    shop, sent = Shop(), Sent()
    shop.add("a", 7)
    sent.error = TooLate()
    [event] = [e for e in shop.stream.items if "version" in e.key]  # type: ignore[union-attr]
    strict = Processes(Reminders(), sent, MemoryTimers(), TYPES.decode)
    with pytest.raises(TooLate):
        strict.consumer().consume(event, rscylla.Run("reminders"))  # type: ignore[arg-type]
    lenient = Processes(Reminders(), sent, MemoryTimers(), TYPES.decode, refused=TooLate)
    lenient.consumer().consume(event, rscylla.Run("reminders"))  # type: ignore[arg-type]
    assert sent.calls == 2


def test_timers_of_others_and_unknown_actions_are_refused() -> None:
    class Wrong(Reminders):
        def react(self, envelope: Envelope[Any]) -> Iterable[Any]:
            return ["send"]

    shop = Shop()
    shop.add("a", 7)
    [record] = shop.store.read(counter("a"))
    processes = Processes(Wrong(), Sent(), MemoryTimers(), TYPES.decode)
    with pytest.raises(ConfigError, match="returned a str"):
        processes.consumer().consume(change_of(record), rscylla.Run("reminders"))
    with pytest.raises(ConfigError, match="not one of 'reminders'"):
        processes.fire(Timer("other/a", PAST))
    assert not processes.owns(Timer("other/a", PAST))


def test_managers_whose_names_begin_alike_own_their_own_timers() -> None:
    def named(name: str) -> Processes:
        manager = Reminders()
        manager.name = name
        return Processes(manager, Sent(), timers, TYPES.decode)

    names, timers = ["pay", "pay/late", "pay/", "pay%2Flate", "pay%", "/", "//", "Pay", "pay-late", " "], MemoryTimers()
    all_of_them = [named(name) for name in names]
    for one in all_of_them:
        one._carry_out([SetTimer("late/a", PAST), SetTimer("a", PAST)], "cause", "c", None)
    assert len(timers.waiting()) == 2 * len(names)
    for timer in timers.waiting():
        [owner] = [one for one in all_of_them if one.owns(timer)]
        owner.fire(timer)
        [(_, command, _)] = owner._send.commands.values()  # type: ignore[attr-defined]
        assert command[0] in ("late/a", "a")
        owner._send.commands.clear()  # type: ignore[attr-defined]


@pytest.mark.parametrize("cause", ["event", "timer"])
def test_a_stop_is_looked_at_between_two_actions_and_each_is_done_once(cause: str) -> None:
    class Many(Reminders):
        def react(self, envelope: Envelope[Any]) -> Iterable[Action]:
            return [Send(counter(f"c{n}"), Added(n)) for n in range(100)]

        def fire(self, timer: Timer) -> Iterable[Action]:
            return [Send(counter(f"c{n}"), Added(n)) for n in range(100)]

    class Stopping(Sent):
        def __call__(self, *args: Any, **more: Any) -> None:
            super().__call__(*args, **more)
            if self.calls == 3:
                stop.set()

    stop, sent, shop = Stop(), Stopping(), Shop()
    shop.add("a", 7)
    processes = Processes(Many(), sent, MemoryTimers(), TYPES.decode)
    [event] = [one for one in shop.stream.items if "version" in one.key]  # type: ignore[union-attr]

    def work(run: rscylla.Run) -> None:
        if cause == "event":
            processes.consumer().consume(event, run)  # type: ignore[arg-type]
        else:
            processes.fire(Timer("reminders/a", PAST), run)

    with pytest.raises(Stopped):
        work(rscylla.Run("reminders", stop=stop))
    assert sent.calls == 3
    work(rscylla.Run("reminders"))
    assert len(sent.commands) == 100


def test_the_lane_of_a_manager_fires_its_timers() -> None:
    timers, sent = MemoryTimers(), Sent()
    processes = Processes(Reminders(), sent, timers, TYPES.decode)
    timers.schedule(Timer("reminders/a", PAST, "why"))
    end = until_stopped(processes.timer_spec(every=SOON))
    try:
        eventually(lambda: not timers.waiting())
    finally:
        end()
    assert [command for _, command, _ in sent.commands.values()] == [("a", "why")]
