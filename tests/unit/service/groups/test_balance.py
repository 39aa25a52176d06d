"""The balance of a group: fair shares by the fewest moves, from any state, also with views that differ in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from random import Random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rscylla.abc import NOBODY, GroupMember, GroupSlice, GroupView
from rscylla.service.groups.balance import Moves, balance, shares

SEEDS = st.integers(0, 2**32)


def view_of(held: dict[str, int], count: int, *, new: Collection[str] = (), drains: Collection[str] = ()) -> GroupView:
    """Return a group in which each member holds that many slices, in order; the rest of *count* is free."""
    members = [GroupMember(one, one, renewals=int(one not in new), drains=one in drains) for one in held if one != "?"]
    holders = [one for one, many in held.items() for _ in range(many)]
    holders += [NOBODY] * (count - len(holders))
    return GroupView("g", count, 0, tuple(members), tuple(GroupSlice(i, 1, one) for i, one in enumerate(holders)))


class World:
    """A group as the store has it: moves are made if what they rely on is still true."""

    def __init__(self, view: GroupView) -> None:
        self.view = view
        self.moved: list[int] = []

    def take(self, token: str, seen: GroupView, indexes: Collection[int]) -> None:
        for index in indexes:
            self._move(index, seen.slices[index], token)

    def give(self, token: str, index: int, to: str) -> None:
        if self.view.slices[index].holder == token:
            self._move(index, self.view.slices[index], to)

    def _move(self, index: int, seen: GroupSlice, to: str) -> None:
        now = self.view.slices[index]
        if (now.holder, now.epoch) == (seen.holder, seen.epoch):
            new = attrs.evolve(now, holder=to, epoch=now.epoch + 1)
            slices = tuple(new if one.index == index else one for one in self.view.slices)
            self.view = attrs.evolve(self.view, slices=slices)
            self.moved.append(index)

    def renew(self) -> None:
        members = tuple(attrs.evolve(one, renewals=one.renewals + 1) for one in self.view.members)
        self.view = attrs.evolve(self.view, members=members)

    def held(self) -> Counter[str]:
        return Counter(one.holder for one in self.view.slices if self.view.holder(one.index) is not None)

    def in_balance(self) -> bool:
        held, fit = self.held(), [one.token for one in self.view.members if not one.drains]
        if not fit:
            return not held
        numbers = [held[token] for token in fit]
        return sum(numbers) == self.view.count and max(numbers) - min(numbers) <= 1

    def is_at_rest(self) -> bool:
        return all(not plan.take and not plan.give for plan in self.plans().values())

    def plans(self) -> dict[str, Moves]:
        return {one.token: balance(self.view, one.token) for one in self.view.members}

    def fewest(self) -> int:
        """Return how many slices have to move: all but those that members may keep, if the larger ones keep more."""
        held = self.held()
        kept = sorted((held[one.token] for one in self.view.members if not one.drains), reverse=True)
        if not kept:
            return sum(held.values())
        least, larger = divmod(self.view.count, len(kept))
        return self.view.count - sum(min(has, least + (place < larger)) for place, has in enumerate(kept))


@st.composite
def groups(draw: st.DrawFn, *, renewed: bool = False) -> GroupView:
    count = draw(st.integers(1, 24))
    tokens = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    members = tuple(
        GroupMember(
            token,
            token,
            renewals=draw(st.integers(int(renewed), 1)),
            drains=draw(st.integers(0, 5)) == 0,
        )
        for token in tokens
    )
    holder = st.sampled_from([*tokens, *tokens, NOBODY, "dead"])
    slices = tuple(GroupSlice(index, draw(st.integers(0, 3)), draw(holder)) for index in range(count))
    return GroupView("g", count, 0, members, slices)


# ---------------------------------------------------------------- properties


@given(groups(renewed=True))
def test_when_all_make_their_moves_the_group_is_in_balance_by_the_fewest(view: GroupView) -> None:
    world = World(view)
    fewest = world.fewest()
    for token, plan in world.plans().items():
        world.take(token, view, plan.take)
        for index, to in plan.give:
            world.give(token, index, to)
    assert world.in_balance()
    assert world.is_at_rest()
    assert len(world.moved) == fewest == len(set(world.moved))


@given(groups(), SEEDS.map(Random))
def test_one_move_at_a_time_in_any_order_is_as_good(view: GroupView, dice: Random) -> None:
    """Each member looks again after each move; members renew at some time, so that newcomers are settled in between."""
    world = World(view)
    renew_at = dice.randrange(view.count + 1)
    fewest = world.fewest()
    for step in range(3 * view.count + 3):
        if step == renew_at:
            world.renew()
        acting = [(token, plan) for token, plan in world.plans().items() if plan.take or plan.give]
        if not acting and step > renew_at:
            break
        if acting:
            token, plan = dice.choice(acting)
            if plan.take:
                world.take(token, world.view, [dice.choice(plan.take)])
            else:
                world.give(token, *dice.choice(plan.give))
    assert world.in_balance()
    assert len(world.moved) == fewest == len(set(world.moved))


@pytest.mark.slow
@settings(max_examples=300)
@given(groups(renewed=True), SEEDS.map(Random))
def test_views_that_differ_in_time_end_in_balance_too(view: GroupView, dice: Random) -> None:
    """Members look and act at different times: each acts on what it saw, while the others have moved on."""
    world = World(view)
    tokens = [one.token for one in view.members]
    seen = dict.fromkeys(tokens, view)
    fewest = world.fewest()
    for _ in range(60 * (view.count + len(tokens))):
        token = dice.choice(tokens)
        plan = balance(seen[token], token)
        if dice.random() < 0.5:
            seen[token] = world.view
        elif plan.take:
            world.take(token, seen[token], plan.take)
        elif plan.give:
            world.give(token, *plan.give[0])
            seen[token] = world.view  # who gave a slice looks again
        if world.is_at_rest() and all(one == world.view for one in seen.values()):
            break
    assert world.in_balance()
    assert len(world.moved) <= fewest + len(tokens)


@given(groups())
def test_nothing_moves_in_a_balanced_group(view: GroupView) -> None:
    world = World(view)
    if world.in_balance():
        assert world.is_at_rest()


@given(groups(), SEEDS.map(Random))
def test_members_that_come_and_go_before_they_renew_take_nothing_from_the_others(view: GroupView, dice: Random) -> None:
    world = World(view)
    world.renew()
    for token, plan in world.plans().items():
        world.take(token, world.view, plan.take)
        for index, to in plan.give:
            world.give(token, index, to)
    world.moved.clear()
    settled = world.view
    for number in range(3):
        newcomer = GroupMember(f"flaps{number}", "flaps")
        members = [*settled.members, newcomer]
        world.view = attrs.evolve(world.view, members=tuple(dice.sample(members, len(members))))
        if any(not one.drains for one in settled.members):
            assert world.is_at_rest()
    assert not world.moved


@given(groups(), SEEDS.map(Random))
def test_who_leaves_hands_all_its_slices_to_members_that_then_need_no_move(view: GroupView, dice: Random) -> None:
    world = World(view)
    world.renew()
    leaver = dice.choice(world.view.members).token
    plan = balance(world.view, leaver, leaving=True)
    assert sorted(index for index, _ in plan.give) == [one.index for one in view.slices if one.holder == leaver]
    assert not plan.take
    others = tuple(one for one in world.view.members if one.token != leaver)
    if all(one.drains for one in others):
        assert {to for _, to in plan.give} <= {NOBODY}
        return
    before = World(attrs.evolve(world.view, members=others)).fewest()
    for index, to in plan.give:
        world.give(leaver, index, to)
    world.view = attrs.evolve(world.view, members=others)
    assert World(world.view).fewest() == before - len(plan.give)


@given(groups(), SEEDS.map(Random))
def test_it_does_not_depend_on_the_order_of_slices_that_a_member_prefers(view: GroupView, dice: Random) -> None:
    """Which of its slices a member gives first changes nothing for the others."""
    token = dice.choice(view.members).token
    mine = [one.index for one in view.slices if one.holder == token]
    first = dice.sample(mine, dice.randrange(len(mine) + 1))
    plain, chosen = balance(view, token), balance(view, token, first=first)
    assert [to for _, to in chosen.give] == [to for _, to in plain.give]
    assert (chosen.take, chosen.due, chosen.lacks) == (plain.take, plain.due, plain.lacks)
    given_first = [index for index, _ in chosen.give][: len(first)]
    assert set(given_first) <= set(first)


@given(groups())
def test_each_free_slice_is_due_to_one_member(view: GroupView) -> None:
    world = World(view)
    plans = world.plans()
    for plan in plans.values():
        assert plan.due == next(iter(plans.values())).due
    taken = [index for plan in plans.values() for index in plan.take]
    free = [one.index for one in view.slices if view.holder(one.index) is None]
    assert sorted(taken) == (free if any(not one.drains for one in view.members) else [])


# ---------------------------------------------------------------- examples


def test_the_first_process_takes_all_slices() -> None:
    assert balance(view_of({"a": 0}, 8, new="a"), "a").take == tuple(range(8))


def test_processes_that_start_together_share_the_free_slices() -> None:
    view = view_of({"a": 0, "b": 0, "c": 0}, 8, new="abc")
    assert [len(balance(view, one).take) for one in "abc"] == [3, 3, 2]


def test_a_member_that_joins_gets_slices_once_it_has_renewed() -> None:
    view = view_of({"a": 8, "b": 0}, 8, new="b")
    assert balance(view, "a") == Moves()
    assert balance(view, "b").lacks == 4
    view = view_of({"a": 8, "b": 0}, 8)
    assert balance(view, "a").give == ((7, "b"), (6, "b"), (5, "b"), (4, "b"))


def test_slices_of_a_dead_member_go_to_the_others() -> None:
    view = view_of({"a": 3, "?": 3, "b": 2}, 8)
    assert (len(balance(view, "a").take), len(balance(view, "b").take)) == (1, 2)


def test_who_drains_gives_all_and_gets_none() -> None:
    view = view_of({"a": 4, "b": 4}, 8, drains="a")
    assert {to for _, to in balance(view, "a").give} == {"b"}
    assert balance(view, "b") == Moves()
    assert {to for _, to in balance(view_of({"a": 8}, 8, drains="a"), "a").give} == {NOBODY}
    assert balance(view_of({"a": 0}, 8, drains="a"), "a").take == ()


def test_who_drains_may_hand_over_to_a_newcomer() -> None:
    view = view_of({"a": 8, "b": 0}, 8, new="b", drains="a")
    assert {to for _, to in balance(view, "a").give} == {"b"}


def test_while_the_number_of_slices_changes_all_is_let_go() -> None:
    view = attrs.evolve(view_of({"a": 2, "b": 1}, 4), next_count=8)
    assert balance(view, "a").give == ((1, NOBODY), (0, NOBODY))
    assert balance(view, "b").take == ()


def test_who_is_absent_keeps_what_it_has_and_gets_nothing() -> None:
    view = view_of({"a": 2, "b": 2, "?": 2}, 8)
    assert len(balance(view, "a").take) == 2
    assert len(balance(view, "a", absent={"b"}).take) == 4
    view = view_of({"a": 6, "b": 2}, 8)
    assert balance(view, "a", absent={"b"}) == Moves()


def test_a_process_that_is_no_member_does_nothing() -> None:
    assert balance(view_of({"a": 2}, 4), "gone") == Moves(due={2: "a", 3: "a"})


@pytest.mark.parametrize(("held", "expected"), [({"a": 3, "b": 2}, [3, 2]), ({"a": 2, "b": 3}, [2, 3])])
def test_the_larger_share_is_of_who_has_it(held: dict[str, int], expected: list[int]) -> None:
    assert [shares(view_of(held, 5))[one] for one in "ab"] == expected
