"""A timer that was scheduled is found, whatever the clocks of the processes say, and in a bounded number of queries."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rscylla.embedded import EmbeddedScylla
from rscylla.eventsourcing import ScyllaTimers, Timer
from rscylla.eventsourcing.timers.firsthint import FirstHint
from rscylla.testing import ManualClock

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
DAY = 86_400
MINUTE = timedelta(minutes=1)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with EmbeddedScylla(seed=1) as server:
        session = server.connect()
        session.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        yield session


class World:
    """Tables of their own, and processes whose clocks are ahead, or behind, by so many seconds."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.table = f"t{uuid.uuid4().hex[:12]}"
        self.true = ManualClock(NOON)
        self._others: list[ManualClock] = []

    def process(self, ahead: float = 0) -> ScyllaTimers:
        clock = ManualClock(self.now() + timedelta(seconds=ahead)) if ahead else self.true
        self._others += [clock] if ahead else []
        return ScyllaTimers(self.session, "ks", self.table, create=True, clock=clock)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.true.now_us() / 1e6, UTC)

    def pass_time(self, seconds: float) -> None:
        for clock in (self.true, *self._others):
            clock.advance(seconds)

    def run(self, timers: ScyllaTimers, ahead: float = 0) -> list[str]:
        """Look once as a runner does, and fire what is due."""
        fired = []
        for timer in timers.due(self.now() + timedelta(seconds=ahead), 100):
            if timers.claim(timer, "me", MINUTE):
                timers.finish(timer)
                fired.append(timer.id)
        return fired

    def queries(self, work: Callable[[], object]) -> int:
        """Return how many requests *work* makes."""
        asked: list[object] = []
        self.session.add_request_init_listener(asked.append)
        try:
            work()
        finally:
            self.session.remove_request_init_listener(asked.append)
        return len(asked)

    def hints(self) -> set[str]:
        return {row[0] for row in self.session.execute(f"SELECT id FROM ks.{self.table}_due")} - {""}


@pytest.fixture
def world(session: Any) -> World:
    return World(session)


@pytest.mark.parametrize("ahead", [0.5 * DAY, -0.5 * DAY, 3 * 3600, 400 * DAY, 30_000 * DAY])
def test_a_runner_with_a_wrong_clock_hides_no_timer_that_is_scheduled_later(world: World, ahead: float) -> None:
    app, runner, wrong = world.process(), world.process(), world.process(ahead)
    app.schedule(Timer("far", NOON + timedelta(days=100_000)))
    assert world.run(runner) == []
    assert world.run(wrong, ahead) == []
    app.schedule(Timer("soon", NOON + timedelta(minutes=30)))
    world.process(-ahead).schedule(Timer("too", NOON + timedelta(minutes=31)))
    assert world.run(runner) == []
    world.pass_time(3 * 3600)  # nobody looked at its time
    assert sorted(world.run(world.process())) == ["soon", "too"]


@pytest.mark.parametrize("late", [0, 3600, 86_400 * 500])
def test_a_timer_that_is_scheduled_late_is_found_at_the_next_sweep(world: World, late: int) -> None:
    app, runner = world.process(), world.process()
    app.schedule(Timer("first", NOON))
    assert world.run(runner) == ["first"]
    for _ in range(3):
        world.pass_time(61)
        assert world.run(runner) == []
    app.schedule(Timer("late", NOON - timedelta(seconds=late)))
    world.pass_time(61)
    assert world.run(runner) == ["late"]


def test_after_a_year_without_runners_a_look_asks_for_what_there_is(world: World) -> None:
    app = world.process()
    app.schedule(Timer("a year ago", NOON))
    world.pass_time(365 * DAY)
    app.schedule(Timer("now", world.now()))
    app.schedule(Timer("tomorrow", world.now() + timedelta(days=1)))
    runner, fired = world.process(), list[str]()
    assert world.queries(lambda: fired.extend(world.run(runner))) < 30
    assert fired == ["a year ago", "now"]
    world.pass_time(61)
    assert world.queries(lambda: world.run(runner)) < 30  # the year is behind


def test_a_look_is_short_however_many_times_have_timers(world: World) -> None:
    app, count = world.process(), 250
    for n in range(count):
        app.schedule(Timer(f"t{n}", NOON + timedelta(hours=n)))
    world.pass_time(count * 3600)
    runner, found = world.process(), list[Timer]()
    for _ in range(3):
        assert world.queries(lambda: found.extend(runner.due(world.now(), 10_000))) <= 106
    assert [timer.id for timer in found] == [f"t{n}" for n in range(count)]


def test_more_timers_than_a_look_returns_come_one_after_the_other_without_a_pause(world: World) -> None:
    app, runner = world.process(), world.process()
    for n in range(30):
        app.schedule(Timer(f"t{n}", NOON - timedelta(hours=n)))
    fired = []
    for _ in range(11):
        for timer in runner.due(world.now(), 3):
            assert runner.claim(timer, "me", MINUTE)
            runner.finish(timer)
            fired.append(timer.id)
    assert fired == [f"t{n}" for n in reversed(range(30))]


STEPS = sorted(set(itertools.permutations(["sweeps"] * 3 + ["schedules"] * 2)))


@pytest.mark.parametrize("order", STEPS, ids=lambda order: "".join(step[1] for step in order))
def test_in_whatever_order_a_sweep_and_a_schedule_meet_the_hint_is_found(world: World, order: tuple[str, ...]) -> None:
    app = world.process()
    app.schedule(Timer("far", NOON))
    first, bucket = FirstHint(app._hints), 7
    first.keep(5)

    def sweeps() -> Iterator[None]:
        before = first.find()
        assert before is not None
        proposal = first.propose(before, 20)
        yield
        found = world.session.execute(f"SELECT id FROM ks.{world.table}_due WHERE bucket = {bucket}").one()
        yield
        if proposal is not None:
            first.confirm(proposal, bucket if found else 20)
        yield

    def schedules() -> Iterator[None]:
        world.session.execute(f"INSERT INTO ks.{world.table}_due (bucket, due, id) VALUES ({bucket}, 0, 'a')")
        yield
        first.keep(bucket)
        yield

    running = {"sweeps": sweeps(), "schedules": schedules()}
    for step in order:
        next(running[step])
    now = first.find()
    assert now is not None
    assert now.first <= bucket


def test_a_proposal_that_is_made_again_does_not_confirm_an_earlier_one(world: World) -> None:
    app = world.process()
    app.schedule(Timer("far", NOON))
    first = FirstHint(app._hints)
    first.keep(5)
    at = first.find()
    assert at is not None
    earlier = first.propose(at, 20)
    first.keep(7)  # a hint of bucket 7, which the earlier one has not seen
    again = first.find()
    assert again == at
    assert first.propose(again, 20) is not None
    assert earlier is not None
    first.confirm(earlier, 20)
    now = first.find()
    assert now is not None
    assert now.first == 5


@pytest.mark.parametrize("ahead", [0, 5 * 3600])
def test_the_hint_of_a_timer_that_is_about_to_be_scheduled_stays(world: World, ahead: int) -> None:
    app, runner = world.process(), world.process(ahead)
    timer = Timer("slow", NOON - timedelta(hours=2))
    app._hint(timer)  # and the process is paused before it writes the timer
    for _ in range(3):
        assert world.run(runner, ahead) == []
        world.pass_time(600)
    assert app.schedule(timer)
    world.pass_time(61)
    assert world.run(runner, ahead) == ["slow"]


def test_a_process_that_was_paused_for_long_while_it_scheduled_a_timer_writes_the_hint_again(world: World) -> None:
    app, runner = world.process(), world.process()
    timer, step = Timer("slow", NOON - timedelta(hours=2)), app._step

    def paused(*args: Any) -> bool:
        for _ in range(70):
            assert world.run(runner) == []
            world.pass_time(61)
        assert world.hints() == set()
        return step(*args)

    app._step = paused  # type: ignore[method-assign]
    assert app.schedule(timer)
    world.pass_time(61)
    assert world.run(runner) == ["slow"]


def test_a_hint_without_a_timer_is_removed_once_it_was_seen_for_an_hour(world: World) -> None:
    app, runner = world.process(), world.process()
    app.schedule(Timer("other", NOON + timedelta(days=1)))
    app._hint(Timer("gone", NOON))
    for _ in range(58):
        assert world.run(runner) == []
        world.pass_time(61)
    assert world.hints() == {"gone", "other"}
    for _ in range(3):
        world.run(runner)
        world.pass_time(61)
    assert world.hints() == {"other"}


def test_a_hint_that_was_written_again_is_not_removed_with_the_one_before(world: World) -> None:
    app, runner, timer = world.process(), world.process(), Timer("again", NOON)
    app._hint(timer)
    [found] = runner.due(world.now(), 10)
    app._hint(timer)
    runner._forget(found)
    assert world.hints() == {"again"}


@pytest.mark.parametrize("due", [datetime(1969, 12, 31, 23, 59, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)])
def test_timers_of_before_1970_fire(world: World, due: datetime) -> None:
    world.process().schedule(Timer("old", due))
    assert world.run(world.process()) == ["old"]
    assert world.hints() == set()
