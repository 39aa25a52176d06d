"""``Service(group=...)``: lanes of slices that come and go between services. Time is driven by the tests."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import attrs
import pytest
from fake_scylla import FakeScylla
from memorygroups import MemoryGroupTable, MemoryMembership
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cursorstore import BufferedCursorStore, MemoryCursorStore, ScyllaCursorStore, reslice_group
from rscylla._timeuuid import datetime_of
from rscylla._tokens import slices_text
from rscylla.abc import GroupView
from rscylla.clock import Stop
from rscylla.errors import ConfigError, ConnectionFailed, CursorExpired, QueryFailed
from rscylla.event import SimpleEvent
from rscylla.reflex import Consumer, Spec, checked_specs, fast_and_sweep, slice_name
from rscylla.service import Group, Restarts, Service, group_lanes
from rscylla.service.groups import slicekeeper
from rscylla.service.groups.slicekeeper import SliceKeeper
from rscylla.service.lease import LeasedStop
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer
from tests.support.drivenclock import PATIENCE_S, DrivenClock, until

START_US = 1_790_000_000_000_000
COUNT = 8
KEEPERS = ("rscylla-group", "rscylla-lease")
DOWN = ConnectionFailed("no node answers; start one")


def event(number: int) -> SimpleEvent:
    return SimpleEvent(f"e{number}", timestamp=datetime_of(START_US - 1))


class Member:
    """A process of a group: a service with a registry of its own."""

    def __init__(self, team: Team, name: str, **more: Any) -> None:
        self.name = name
        self.registry = CollectorRegistry()
        self.membership: Any = more.pop("membership", None) or MemoryMembership(
            "shop", team.table, owner=name, slices=COUNT
        )
        lanes = more.pop("lanes", None) or (lambda index, count: team.lanes(self, index, count))
        self.service = Service(
            more.pop("specs", ()),
            group=Group(self.membership, lanes),
            registry=self.registry,
            clock=team.clock,
            **more,
        )

    @property
    def lanes(self) -> list[str]:
        return [lane.consumer for lane in self.service.facts().lanes if lane.state == "streaming"]

    @property
    def held(self) -> list[int]:
        return sorted(self.membership.held())

    def samples(self, name: str) -> dict[str, float]:
        """Return the values of a metric by their only label, or by the last of them."""
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        found = [sample for family in families for sample in family.samples if sample.name == name]
        return {list(sample.labels.values())[-1]: sample.value for sample in found}


class Team:
    """Services that share the slices of two consumers, in one process and on one driven clock."""

    def __init__(self) -> None:
        self.clock = DrivenClock(START_US)
        self.table = MemoryGroupTable(self.clock)
        self.store = FakeCursorStore(buffered=True)
        self.streams = {index: FakeStream([event(1)], clock=self.clock) for index in range(2 * COUNT)}
        self.members: list[Member] = []
        self.seen: list[tuple[str, str, str]] = []
        self.blocked: dict[str, threading.Event] = {}

    def join(self, name: str, **more: Any) -> Member:
        member = Member(self, name, **more)
        self.members.append(member)
        member.service.start()
        return member

    def lanes(self, member: Member, index: int, count: int) -> Iterable[Spec]:
        name = slice_name("billing", index, count)

        def fn(event: Any, run: Any) -> None:
            self.seen.append((member.name, name, event.id))
            if (blocked := self.blocked.get(name)) is not None:
                blocked.wait(PATIENCE_S)

        consumer = Consumer(name, fn, registry=member.registry, clock=self.clock)
        yield Spec(self.streams[index], self.store, consumer, clock=self.clock, registry=member.registry)

    def step(self) -> None:
        self.clock.step(0.25, KEEPERS)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, what, self.step)

    def until_held(self, *numbers: int) -> None:
        """Wait until the members hold that many slices, and read all of them."""
        self.until(lambda: [len(one.lanes) for one in self.members] == list(numbers), f"slices held: {numbers}")
        assert [len(one.held) for one in self.members] == list(numbers)

    def view(self) -> GroupView:
        view = self.table.read("shop")
        assert view is not None
        return view

    def stop(self) -> None:
        for member in self.members:
            member.service.stop()
        for member in self.members:
            self.until(lambda: member.service.wait(timedelta()), f"{member.name} has ended")  # noqa: B023


@pytest.fixture
def team() -> Iterable[Team]:
    team = Team()
    yield team
    for blocked in team.blocked.values():
        blocked.set()
    team.stop()


# ---------------------------------------------------------------- joining, leaving, dying


def test_one_process_takes_all_slices_and_a_second_one_its_part(team: Team) -> None:
    first = team.join("first")
    team.until_held(8)
    second = team.join("second")
    team.until_held(4, 4)
    assert sorted(first.held + second.held) == list(range(8))
    assert sorted(first.lanes + second.lanes) == [f"billing[{index}/8]" for index in range(8)]
    team.until(lambda: len(team.seen) == 8, "all events")
    assert Counter(seen[1:] for seen in team.seen) == Counter((f"billing[{i}/8]", "e1") for i in range(8))


def test_the_log_says_which_slices_moved_and_to_whom(team: Team, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rscylla.service")
    first = team.join("first")
    team.until_held(8)
    second = team.join("second")
    team.until_held(4, 4)
    assert 'group "shop": took slices 0-7' in caplog.messages
    for index in second.held:
        assert f'group "shop": handed over slice {index} to second' in caplog.messages
    second.service.stop()
    until(lambda: second.service.wait(timedelta()), "it has ended", team.step)
    assert any("handed over slice" in one and "to first" in one for one in caplog.messages)
    team.members.remove(second)
    team.until_held(8)
    caplog.clear()
    first.service.stop()
    until(lambda: first.service.wait(timedelta()), "it has ended", team.step)
    for index in range(8):
        assert f'group "shop": let go of slice {index}' in caplog.messages


@pytest.mark.parametrize(
    ("indexes", "text"),
    [({5}, "slice 5"), ({1, 0}, "slices 0-1"), ({7, 3, 1, 2, 9, 10}, "slices 1-3, 7, 9-10")],
)
def test_slices_as_text(indexes: set[int], text: str) -> None:
    assert slices_text(indexes) == text


def test_a_slice_that_moved_goes_on_at_its_cursor(team: Team) -> None:
    team.join("first")
    team.until(lambda: len(team.seen) == 8, "all events")
    second = team.join("second")
    team.until_held(4, 4)
    for stream in team.streams.values():
        stream.append(event(2))
    team.until(lambda: len(team.seen) == 16, "all new events")
    moved = {f"billing[{index}/8]" for index in second.held}
    assert {name for by, name, one in team.seen if by == "second"} == moved
    assert len({seen[1:] for seen in team.seen}) == 16  # none twice: it was saved before it moved


def test_who_stops_hands_its_slices_over_at_once(team: Team) -> None:
    first, second = team.join("first"), team.join("second")
    team.until_held(4, 4)
    third = team.join("third")
    team.until(lambda: sorted(len(one.held) for one in team.members) == [2, 3, 3], "a balance of three")
    first.service.stop()
    until(lambda: first.service.wait(timedelta()), "it has ended", team.step)
    view = team.view()
    assert {view.holder(index) for index in range(8)} == set(view.members)
    assert {one.owner for one in view.members} == {"second", "third"}
    assert first.service.exit_code == 0
    assert first.service.facts().group.moves["left"] >= 2  # type: ignore[union-attr]
    team.members.remove(first)
    team.until_held(4, 4)
    assert first.held == []
    assert second.held + third.held


def test_processes_that_stop_at_once_do_not_pass_slices_round(team: Team) -> None:
    for name in ("first", "second", "third"):
        team.join(name)
    team.until(lambda: sorted(len(one.held) for one in team.members) == [2, 3, 3], "a balance of three")
    before = sum(one.epoch for one in team.view().slices)
    team.stop()
    # A slice may go to a member that has not told that it leaves, and which does not give it to one that has.
    assert sum(one.epoch for one in team.view().slices) - before <= COUNT * len(team.members)


def test_a_process_that_stops_tells_so_again_if_that_was_not_answered(team: Team) -> None:
    first, second = team.join("first"), team.join("second")
    team.until_held(4, 4)
    drain, told = team.table.drain, []

    def unanswered_once(name: str, token: str, drains: bool) -> bool:
        told.append(token)
        if len(told) == 1:
            raise DOWN
        return drain(name, token, drains)

    team.table.drain = unanswered_once  # type: ignore[method-assign]
    token = first.membership.token
    first.service.stop()
    until(lambda: first.service.wait(timedelta()), "it has ended", team.step)
    assert told == [token, token]
    team.members.remove(first)
    team.until_held(8)
    assert second.service.failure is None


def test_slices_of_a_process_that_dies_are_taken_when_its_membership_has_expired(team: Team) -> None:
    dead = MemoryMembership("shop", team.table, owner="dead", slices=COUNT)
    dead.join()
    dead.take(dead.look(), range(8))
    team.join("heir")
    team.until_held(8)
    since = [one.since - datetime_of(START_US) for one in team.view().slices if one.since]
    assert len(since) == 8
    assert timedelta(seconds=30) <= min(since) <= max(since) <= timedelta(seconds=32)


def test_free_slices_do_not_wait_for_a_member_that_died_before_it_took_them(team: Team) -> None:
    dead = MemoryMembership("shop", team.table, owner="dead", slices=COUNT)
    dead.join()
    began = team.clock.monotonic()
    team.join("heir")
    team.until_held(8)
    assert team.clock.monotonic() - began < 10


def test_a_process_that_dies_soon_after_it_joined_moves_nothing(team: Team) -> None:
    first = team.join("first")
    team.until_held(8)
    for number in range(5):
        ghost = MemoryMembership("shop", team.table, owner=f"ghost {number}", slices=COUNT)
        ghost.join()
        for _ in range(16):
            team.step()
            assert len(first.held) == 8
    assert "given" not in first.service.facts().group.moves  # type: ignore[union-attr]


def test_a_member_that_drains_hands_over_all_and_continues_without(team: Team) -> None:
    first, second = team.join("first"), team.join("second")
    team.until_held(4, 4)
    team.table.drain("shop", first.membership.token, True)
    team.until_held(0, 8)
    assert first.service.ready()["status"] == "ok"
    assert first.service.facts().group.moves["drained"] == 4  # type: ignore[union-attr]
    team.table.drain("shop", first.membership.token, False)
    team.until_held(4, 4)
    assert second.service.facts().group.moves["received"] >= 4  # type: ignore[union-attr]


def test_a_new_number_of_slices_lets_go_of_all_and_goes_on_with_the_new_one(team: Team) -> None:
    first, second = team.join("first"), team.join("second")
    team.until_held(4, 4)
    assert team.table.plan("shop", 8, 0, 16)
    team.until(lambda: not any(one.holder for one in team.view().slices), "all slices are free")
    assert first.lanes == second.lanes == []
    assert team.table.recount("shop", 8, 16)
    team.until_held(8, 8)
    assert sorted(first.lanes + second.lanes) == sorted(f"billing[{index}/16]" for index in range(16))


# ---------------------------------------------------------------- readiness


def why_not_ready(member: Member) -> str:
    """Return why the check of the group fails, "" if it does not."""
    checks = member.service.ready()["checks"]
    return next(check.get("why", "") for check in checks if check["check"] == 'group "shop"')


def test_a_member_is_not_ready_before_its_lanes_read(team: Team) -> None:
    first = Member(team, "first")
    assert why_not_ready(first) == "is not joined: no answer yet"
    first.membership.join()
    assert why_not_ready(first) == "has not been looked at yet"
    first.membership.leave()
    team.members.append(first)
    first.service.start()
    team.until(lambda: first.service.ready()["status"] == "ok", "it is ready")
    assert len(first.lanes) == 8


def test_a_change_of_slices_that_nobody_finishes_is_not_ready_and_logged(
    team: Team, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = team.join("first"), team.join("second")
    team.until_held(4, 4)
    team.until(lambda: first.service.ready()["status"] == "ok", "it is ready")
    assert team.table.plan("shop", 8, 0, 16)
    for member in (first, second):
        team.until(lambda: "nobody takes any" in why_not_ready(member), "it says so")  # noqa: B023
        assert "`rscylla group reslice shop --to 16 --store KEYSPACE`" in why_not_ready(member)
    team.until(lambda: "not ready: group" in caplog.text and "--to 16" in caplog.text, "the log says so")
    assert team.table.plan("shop", 8, 16, 0)
    team.until_held(4, 4)
    for member in (first, second):
        team.until(lambda: member.service.ready()["status"] == "ok", "it is ready again")  # noqa: B023


class Staying(FakeCursorStore):
    slices_stay = True


def test_the_slices_of_a_store_that_keeps_their_number_are_not_changed(team: Team) -> None:
    def lanes(index: int, count: int) -> Iterable[Spec]:
        name = slice_name("billing", index, count)
        yield Spec(FakeStream([], clock=team.clock), store, RecordingConsumer(name), clock=team.clock)

    store = Staying()
    team.join("first", lanes=lanes)
    team.until_held(8)
    team.until(lambda: [member.slices_stay for member in team.view().members] == [True], "it has told")
    with pytest.raises(ConfigError, match="keeps 8 slices: first has cursors in a store that keeps their number"):
        reslice_group(team.table, "shop", 16, clock=team.clock)
    assert team.view().next_count == 0


def test_services_with_different_consumers_in_one_group_are_not_ready(team: Team) -> None:
    def parcels(index: int, count: int) -> Iterable[Spec]:
        name = slice_name("parcels", index, count)
        consumer = Consumer(name, lambda event, run: None, registry=CollectorRegistry(), clock=team.clock)
        yield Spec(FakeStream([], clock=team.clock), team.store, consumer, clock=team.clock)

    first, second = team.join("first"), team.join("second", lanes=parcels)
    team.until_held(4, 4)
    for member in (first, second):
        team.until(lambda: "which second, their holder, does not run" in why_not_ready(member), "it says so")  # noqa: B023
        assert 'not read by consumer "parcels", which first' in why_not_ready(member)
    second.service.stop()
    until(lambda: second.service.wait(timedelta()), "it has ended", team.step)
    team.members.remove(second)
    team.until_held(8)
    team.until(lambda: first.service.ready()["status"] == "ok", "it is ready")


def test_one_consumer_of_two_tables_in_one_group_is_not_ready(team: Team) -> None:
    """Each process would read a part of its own table."""

    def of(table: str) -> Callable[[int, int], Iterable[Spec]]:
        def lanes(index: int, count: int) -> Iterable[Spec]:
            name, stream = slice_name("worker", index, count), FakeStream([], clock=team.clock)
            stream.source = table  # type: ignore[attr-defined]
            yield Spec(stream, team.store, Consumer(name, print, registry=CollectorRegistry()), clock=team.clock)

        return lanes

    members = [team.join(table, lanes=of(table)) for table in ("shop.orders", "shop.parcels")]
    team.until_held(4, 4)
    for member in members:
        team.until(lambda: 'by consumer "worker of shop.orders", which shop.parcels' in why_not_ready(member), "")  # noqa: B023
        assert 'by consumer "worker of shop.parcels", which shop.orders' in why_not_ready(member)


def test_slices_of_a_dead_member_are_not_read_until_others_have_them(team: Team) -> None:
    dead = MemoryMembership("shop", team.table, owner="dead", slices=COUNT)
    dead.join()
    dead.take(dead.look(), range(4))
    heir = team.join("heir")
    team.until(lambda: len(heir.lanes) == 4, "it reads the others")
    team.until(lambda: why_not_ready(heir) == "", "the other may read")
    team.until(lambda: "held by dead, which does not renew" in why_not_ready(heir), "it is noticed before it expires")
    assert team.view().member(dead._token) is not None
    team.until_held(8)
    team.until(lambda: heir.service.ready()["status"] == "ok", "it is ready")


def test_a_slice_without_lanes_is_not_ready(team: Team) -> None:
    def some(index: int, count: int) -> Iterable[Spec]:
        return team.lanes(member, index, count) if index != 3 else ()

    member = Member(team, "first", lanes=some)
    team.members.append(member)
    member.service.start()
    team.until(lambda: len(member.lanes) == 7, "the others read")
    assert why_not_ready(member) == "slice 3: held here, and no lane reads"


def test_lanes_that_read_other_keys_than_their_slice_are_refused(team: Team) -> None:
    def wrong(index: int, count: int) -> Iterable[Spec]:
        for spec in team.lanes(member, index, count):
            spec.stream.key_slice = (index, 2 * count)  # type: ignore[attr-defined]
            yield spec

    member = Member(team, "first", lanes=wrong)
    member.service.start()
    until(lambda: member.service.wait(timedelta()), "it has ended", team.step)
    assert "reads slice 0 of 16; slice it with the index and the count" in str(member.service.failure)


def test_a_lanes_function_that_hangs_is_not_ready(team: Team) -> None:
    release = threading.Event()

    def hangs(index: int, count: int) -> Iterable[Spec]:
        release.wait(PATIENCE_S)
        return team.lanes(member, index, count)

    member = Member(team, "first", lanes=hangs)
    team.members.append(member)
    member.service.start()
    team.until(lambda: len(member.held) == 8, "it has the slices")
    assert why_not_ready(member) == "slices 0-7: held here, and no lane reads"
    release.set()
    team.until_held(8)


# ---------------------------------------------------------------- lapses


def test_a_pause_beyond_the_membership_stops_all_lanes_and_it_joins_again(team: Team) -> None:
    first = team.join("first")
    team.until_held(8)
    token, lanes = first.membership.token, first.service._workers
    team.clock.advance(60)  # at once: as after a pause of the whole process
    assert first.held == []
    assert all(worker._stop.is_set() for worker in lanes)
    team.until(lambda: first.membership.token not in ("", token), "it has joined again")
    team.until_held(8)
    assert not set(lanes) & set(first.service._workers)
    assert first.service.facts().group.moves["lost"] == 8  # type: ignore[union-attr]


def test_a_store_that_does_not_answer_ends_the_membership_in_time_and_later_it_joins_again(team: Team) -> None:
    first = team.join("first")
    team.until_held(8)
    broken = {"read", "keep", "take", "give", "add", "drop"}
    for name in broken:
        setattr(team.table, name, raising(DOWN))
    team.until(lambda: not first.lanes, "no lane reads")
    assert first.held == []
    assert first.service.facts().group.renewals_failed >= 1  # type: ignore[union-attr]
    why = next(check["why"] for check in first.service.ready()["checks"] if check["check"] == 'group "shop"')
    assert why == "is not joined: no node answers; start one"
    for name in broken:
        delattr(team.table, name)
    team.until_held(8)
    assert first.service.failure is None


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any, **more: Any) -> Any:
        raise error

    return fail


@pytest.mark.slow
def test_a_lane_that_goes_on_after_the_membership_ended_ends_the_process(team: Team) -> None:
    team.blocked["billing[3/8]"] = threading.Event()
    first = team.join("first", stop_timeout=timedelta(seconds=1))
    team.until(lambda: len(team.seen) == 8, "all lanes work")
    team.clock.advance(60)
    team.until(lambda: first.service.wait(timedelta()), "it has ended")
    assert 'lane "billing[3/8]" went on for 1 s after the slice was lost' in str(first.service.failure)
    assert first.service.exit_code == 1


def test_a_hand_over_that_is_not_answered_is_found_out(team: Team) -> None:
    first = team.join("first")
    team.until_held(8)
    give, failures = team.table.give, iter([True, False, True])

    def unanswered(*args: Any) -> bool:
        done = give(*args)
        if next(failures, False):
            raise DOWN
        return done

    team.table.give = unanswered  # type: ignore[method-assign]
    second = team.join("second")
    team.until_held(4, 4)
    assert not set(first.held) & set(second.held)


def test_lanes_that_were_started_again_are_not_taken_for_those_before() -> None:
    """The end of lanes may be told twice: when they end by themselves as they are asked to."""
    clock = DrivenClock(START_US)
    membership = MemoryMembership("shop", MemoryGroupTable(clock), slices=1)
    membership.join()
    come: list[LeasedStop] = []
    keeper = SliceKeeper(
        membership,
        clock,
        Stop(),
        come=lambda keeper, count, signals: come.extend(signals.values()),
        go=lambda keeper, index, signal: None,
        over=lambda keeper, error: None,
        renew=membership.renew,
        moved=lambda why, slices: None,
    )
    keeper._step()
    keeper.gone(come[0])
    keeper._step()
    keeper.gone(come[0])
    keeper._step()
    assert len(come) == 2
    keeper.gone(come[1])
    keeper._step()
    assert len(come) == 3


# ---------------------------------------------------------------- slow lanes, errors, ends


def test_a_slow_consumer_holds_up_its_own_slice_alone(team: Team) -> None:
    team.blocked["billing[7/8]"] = threading.Event()  # the first one that would be given
    first = team.join("first")
    team.until(lambda: len(team.seen) == 8, "all lanes work")
    second = team.join("second")
    team.until(lambda: len(second.lanes) == 3, "the others have moved")
    assert 7 in first.held
    team.blocked["billing[7/8]"].set()
    team.until_held(4, 4)
    assert 7 in second.held
    assert second.held == [4, 5, 6, 7]


def test_slices_move_one_after_the_other(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slicekeeper, "ALONE_S", math.inf)  # the clock goes on while a busy machine ends the lanes
    first = team.join("first")
    team.until_held(8)
    running = []
    give = team.table.give

    def noting(name: str, count: int, *more: Any) -> bool:
        running.append(len(first.lanes))
        return give(name, count, *more)

    team.table.give = noting  # type: ignore[method-assign]
    team.join("second")
    team.until_held(4, 4)
    assert running == [7, 6, 5, 4]


def test_a_service_that_gives_up_hands_its_slices_over_first(team: Team) -> None:
    first, second = team.join("first"), team.join("second")
    team.until_held(4, 4)
    team.streams[first.held[0]].fail(
        "recv", CursorExpired("the log is gone", gap_from=datetime_of(0), gap_to=datetime_of(START_US))
    )
    team.streams[first.held[0]].append(event(2))
    team.until(lambda: first.service.wait(timedelta()), "it has ended")
    assert first.service.exit_code == 1
    assert [one.owner for one in team.view().members] == ["second"]
    assert {one.holder for one in team.view().slices} == {second.membership.token}


def test_a_parked_lane_stays_down_and_its_slice_may_move(team: Team) -> None:
    restarts = {"billing": Restarts(most=0, give_up="park")}
    first = team.join("first", restarts=restarts)
    team.until_held(8)
    team.streams[7].fail("recv", QueryFailed("no"))
    team.streams[7].append(event(2))

    def states() -> set[str]:
        return {lane.state for lane in first.service.facts().lanes if lane.consumer == "billing[7/8]"}

    team.until(lambda: states() == {"parked"}, "it is parked")
    assert first.service.ready()["status"] == "failed"
    second = team.join("second")
    team.until(lambda: "billing[7/8]" in second.lanes, "another process tries it")
    team.until(lambda: first.service.ready()["status"] == "ok", "the others read")


def test_a_lane_that_fails_runs_again_and_tells(team: Team) -> None:
    errors: list[str] = []
    team.join("first", on_error=lambda name, error: errors.append(name))
    team.until_held(8)
    team.streams[2].fail("recv", DOWN)
    team.streams[2].append(event(2))
    team.until(lambda: errors == ["billing[2/8]"], "the error is told")
    team.until(lambda: ("first", "billing[2/8]", "e2") in team.seen, "it went on")


def test_a_consumer_that_hangs_at_the_end_keeps_its_slice_from_others(team: Team) -> None:
    team.blocked["billing[3/8]"] = threading.Event()
    first = team.join("first")
    second = team.join("second")
    team.until(lambda: len({name for _, name, _ in team.seen}) == 8, "all lanes work")
    team.until(lambda: len(first.held) + len(second.held) == 8, "all held")
    hangs = first if 3 in first.held else second
    hangs.service._real = patience = ManualClock()
    hangs.service.stop()

    def kept() -> list[int]:
        return [one.index for one in team.view().slices if one.holder == hangs.membership.token]

    team.until(lambda: kept() == [3], "it has handed over the others")
    patience.advance(60)
    until(lambda: hangs.service.wait(timedelta()), "it has ended")  # no time passes for its membership
    assert hangs.service.exit_code == 3
    assert kept() == [3]


def test_a_store_that_does_not_ask_the_group_is_refused(team: Team) -> None:
    def lanes(index: int, count: int) -> Iterable[Spec]:
        name = slice_name("billing", index, count)
        yield Spec(FakeStream(), Unfenced(MemoryCursorStore()), RecordingConsumer(name), clock=team.clock)

    member = team.join("first", lanes=lanes)
    team.until(lambda: member.service.wait(timedelta()), "it has ended")
    assert (
        'the cursor store of "billing[0/8]" does not ask the group who may save; give the membership to it, as lease='
    ) in str(member.service.failure)


class Unfenced(BufferedCursorStore):
    """Buffers for a store that has no lease, such as a ``ScyllaCursorStore`` without ``lease=``."""

    def fence_name(self, consumer: str) -> str:
        return ""


def test_the_fence_of_a_store_is_that_of_the_group(team: Team) -> None:
    others = MemoryMembership("mailing", team.table, owner="other", slices=COUNT)
    fenced: list[str | None] = []

    def lanes(index: int, count: int) -> Iterable[Spec]:
        name = slice_name("billing", index, count)
        member = others if index == 5 else team.members[0].membership
        store = BufferedCursorStore(ScyllaCursorStore(FakeScylla().session(), "shop", create=True, lease=member))
        fenced.append(store.fence_name(name))
        yield Spec(FakeStream(), store, RecordingConsumer(name), clock=team.clock)

    member = team.join("first", lanes=lanes)
    team.until(lambda: member.service.wait(timedelta()), "it has ended")
    assert fenced == [*(f"shop[{index}/8]" for index in range(5)), "mailing[5/8]"]
    assert 'the cursor store of "billing[5/8]" has fence "mailing[5/8]", not that of this group' in str(
        member.service.failure
    )


@pytest.mark.slow
def test_dead_letters_are_those_of_the_whole_consumer_whatever_the_slices(team: Team) -> None:
    first = team.join("first", dead_letters=Letters({"billing": 2, "billing[3/4]": 5, "audit": 7}))
    team.until_held(8)
    team.until(lambda: first.samples("rscylla_dead_letters") == {"billing": 2}, "they are counted again")
    assert {lane.dead_letters for lane in first.service.facts().lanes} == {2}
    team.join("second")
    team.until_held(4, 4)
    team.until(lambda: first.samples("rscylla_dead_letters") == {"billing": 2}, "they are counted again")


class Letters:
    """As many dead letters as given."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def count_letters(self, consumer: str | None = None) -> dict[str, int]:
        return dict(self._counts)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["billing[0/8]"], "is not named after the slice"),
        (["billing"], "no slice of group"),
        (["billing[{}/8]", "billing[{}/8]"], "would share a cursor"),
        (["fixed[{}/8]"], 'another lane of the service is named "fixed[1/8]"'),
    ],
)
def test_lanes_that_are_not_of_the_slice_end_the_service(team: Team, names: list[str], why: str) -> None:
    def lanes(index: int, count: int) -> Iterable[Spec]:
        made = [name.format(index) for name in names] if index == 1 else []
        return [Spec(FakeStream(), team.store, RecordingConsumer(name), clock=team.clock) for name in made]

    fixed = Spec(FakeStream(), team.store, RecordingConsumer("fixed[1/8]"), clock=team.clock)
    member = team.join("first", lanes=lanes, specs=[fixed])
    team.until(lambda: member.service.wait(timedelta()), "it has ended")
    assert 'the lanes of slice 1 of 8 of group "shop" cannot be made' in str(member.service.failure)
    assert why in str(member.service.failure)
    assert team.view().members == ()


def test_a_group_that_cannot_be_joined_ends_the_service(team: Team) -> None:
    lost = MemoryMembership("other", team.table, owner="first", slices=None)
    member = team.join("first", membership=lost)
    team.until(lambda: member.service.wait(timedelta()), "it has ended")
    assert 'group "other" cannot be joined' in str(member.service.failure)


def test_ordinary_lanes_run_beside_and_do_not_stop_with_the_membership(team: Team) -> None:
    stream, consumer = FakeStream([event(1)], clock=team.clock), RecordingConsumer("fixed")
    first = team.join("first", specs=[Spec(stream, team.store, consumer, clock=team.clock)])
    team.until(lambda: len(first.lanes) == 9, "all lanes read")
    team.clock.advance(60)
    stream.append(event(2))
    until(lambda: consumer.ids == ["e1", "e2"], "the ordinary lane went on")
    assert len(stream.opened) == 1
    team.until(lambda: len(first.lanes) == 9, "the slices are back")


def test_a_group_and_a_lease_exclude_each_other(team: Team) -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        Member(team, "first", lease=object())


# ---------------------------------------------------------------- facts and metrics


def test_facts_and_metrics_show_the_group(team: Team) -> None:
    first, second = team.join("first"), team.join("second")
    team.until_held(4, 4)
    team.until(lambda: len(getattr(first.service.facts().group.view, "members", ())) == 2, "first sees both")  # type: ignore[union-attr]
    group = first.service.facts().group
    assert group is not None
    assert group.view is not None
    assert (group.name, group.owner, group.token) == ("shop", "first", first.membership.token)
    assert group.held == tuple(first.held)
    assert {group.view.holder(index).owner for index in first.held} == {"first"}  # type: ignore[union-attr]
    assert group.since is not None
    assert group.view_age_s is not None
    assert first.samples("rscylla_group_members") == {"shop": 2}
    assert first.samples("rscylla_group_slices") == {"shop": 8}
    assert first.samples("rscylla_group_slices_held") == {"shop": 4}
    assert first.samples("rscylla_group_joined_timestamp_seconds")["shop"] > 1e9
    moves = Counter(first.samples("rscylla_group_moves_total")) + Counter(second.samples("rscylla_group_moves_total"))
    assert moves["taken"] + moves["received"] - moves["given"] == 8
    first.service.stop()
    team.until(lambda: first.service.wait(timedelta()), "it has ended")
    assert first.samples("rscylla_group_members") == {}


def test_metrics_of_a_lane_go_with_its_slice_and_come_back_with_it(team: Team) -> None:
    first = team.join("first")
    team.until(lambda: len(team.seen) == 8, "all events")
    assert first.samples("rscylla_consumed_events_total")["billing[7/8]"] == 1
    second = team.join("second")
    team.until_held(4, 4)
    page = generate_latest(first.registry).decode()
    for index in range(8):
        assert (f"billing[{index}/8]" in page) == (index in first.held)
    assert "billing[7/8]" in generate_latest(second.registry).decode()
    second.service.stop()
    team.until(lambda: second.service.wait(timedelta()), "it has ended")
    team.members.remove(second)
    team.until_held(8)
    assert first.samples("rscylla_consumed_events_total")["billing[7/8]"] == 0
    assert "billing[7/8]" not in generate_latest(second.registry).decode()


def test_series_of_consumers_that_are_kept_are_shown_again(team: Team) -> None:
    """The function may return the same specs each time."""
    kept: dict[tuple[str, int], list[Spec]] = {}

    def lanes(index: int, count: int) -> list[Spec]:
        return kept.setdefault(("first", index), list(team.lanes(first, index, count)))

    first = Member(team, "first", lanes=lanes)
    team.members.append(first)
    first.service.start()
    team.until_held(8)
    team.table.drain("shop", first.membership.token, True)
    team.until(lambda: not first.service.facts().lanes, "all have ended")
    assert first.samples("rscylla_consumed_events_total") == {}
    team.table.drain("shop", first.membership.token, False)
    team.until_held(8)
    assert len(first.samples("rscylla_consumed_events_total")) == 8


# ---------------------------------------------------------------- the lanes of a group


class Sliced:
    def sliced(self, index: int, count: int) -> FakeStream:
        return FakeStream([event(index + 1)])


def test_group_lanes_are_those_of_each_consumer_in_the_slice(team: Team) -> None:
    membership = MemoryMembership("shop", team.table)
    both = [group_lanes(name, Sliced(), team.store, RecordingConsumer) for name in ("billing", "audit")]
    specs = Group(membership, *both).lanes(3, 8)
    assert [spec.name for spec in specs] == ["billing[3/8]", "audit[3/8]"]
    assert [spec.store for spec in specs] == [team.store, team.store]


def test_a_group_needs_functions(team: Team) -> None:
    for lanes in ((), ([],)):
        with pytest.raises(ConfigError, match="pass a function"):
            Group(MemoryMembership("shop", team.table), *lanes)  # type: ignore[arg-type]


@pytest.mark.parametrize("consumer", ["a", "a[eu]", "a[fast]", "a[1/4]", "a[1/4][fast]"])
@pytest.mark.parametrize("part", [(0, 1), (1, 4)])
def test_a_lane_knows_what_it_is_a_part_of(team: Team, consumer: str, part: tuple[int, int]) -> None:
    name = slice_name(consumer, *part)
    lanes = fast_and_sweep(FakeStream([], supports_lag=True), team.store, RecordingConsumer(name))
    found = [attrs.evolve(lane, key_slice=part) for lane in lanes]
    assert [lane.name for lane in found] == [f"{name}[fast]", name]
    assert [lane.whole for lane in found] == [consumer] * 2
    assert [lane.part_of for lane in found] == [f"{consumer}[fast]", consumer]


def test_a_consumer_does_not_take_the_cursor_of_the_fast_lane_of_another(team: Team) -> None:
    membership = MemoryMembership("shop", team.table)
    both = [group_lanes(name, Sliced(), team.store, RecordingConsumer) for name in ("a", "a[fast]")]
    assert len(Group(membership, *both).lanes(1, 2)) == 2
    with pytest.raises(ConfigError, match=r'"a\[fast\]" is the name of the fast lane of "a"; rename the consumer'):
        checked_specs("Group", Group(membership, *both).lanes(0, 1))
    lanes = fast_and_sweep(FakeStream([], supports_lag=True), team.store, RecordingConsumer("a"))
    checked_specs("Group", tuple(lanes))
