"""Contract suites of memberships in groups, as test classes to subclass."""

from __future__ import annotations

import contextlib
import threading
import uuid
from datetime import timedelta
from typing import ClassVar

import pytest

from cursorstore import ScyllaGroupTable, abort_reslice, drain_member, find_group, list_groups, reslice_group
from rscylla.abc import NOBODY, CursorStore, GroupView, Membership
from rscylla.errors import ConfigError, LeaseLost, QueryTimeout
from rscylla.testing import ManualClock

__all__ = ["ExpiringMembershipContract", "GroupFencingContract", "MembershipContract"]


class _Groups:
    """What the suites of groups have in common."""

    def open_membership(self, name: str, owner: str = "", *, slices: int | None = 8) -> Membership:
        """Return a new membership. Called once for each process that a test simulates."""
        raise NotImplementedError("a contract suite needs open_membership(), which returns the membership to test")

    def open_table(self) -> ScyllaGroupTable:
        """Return the table of the groups, for operators."""
        raise NotImplementedError("this contract suite needs open_table(), which returns the table of the groups")

    @pytest.fixture
    def name(self) -> str:
        return f"contract-{uuid.uuid4()}"

    def joined(self, name: str, owner: str = "", *, slices: int | None = 8) -> Membership:
        member = self.open_membership(name, owner, slices=slices)
        member.join()
        return member


def holders(view: GroupView) -> dict[int, str]:
    """Return who holds what, by the names of the members that are there."""
    found = {s.index: view.holder(s.index) for s in view.slices}
    return {index: member.owner for index, member in found.items() if member is not None}


def _abort(table: ScyllaGroupTable, name: str) -> None:
    abort_reslice(table, name)


class MembershipContract(_Groups):
    """The contract of ``Membership`` while none expires: memberships must last a minute or more."""

    def test_first_member_founds_the_group_and_holds_nothing(self, name: str) -> None:
        member = self.open_membership(name, "a")
        assert (member.name, member.owner, member.token, member.held()) == (name, "a", NOBODY, frozenset())
        member.join()
        view = member.look()
        assert (view.name, view.count, view.next_count) == (name, 8, 0)
        [seen] = view.members
        assert (seen.token, seen.owner, seen.renewals, seen.drains) == (member.token, "a", 0, False)
        assert seen.expires_in.total_seconds() > 0
        assert [(s.index, s.epoch, s.holder) for s in view.slices] == [(i, 0, NOBODY) for i in range(8)]
        assert member.held() == frozenset()

    def test_stored_number_of_slices_counts(self, name: str) -> None:
        with pytest.raises(ConfigError, match="slices="):
            self.open_membership(name, slices=None).join()
        first = self.joined(name, slices=4)
        for slices in (None, 8):
            assert self.joined(name, slices=slices).look().count == 4
        assert len(first.look().members) == 3

    def test_another_number_of_slices_is_told_once(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("WARNING", logger="rscylla.cursorstore")
        self.joined(name, slices=4)
        other = self.open_membership(name, "b", slices=8)
        for _ in range(2):
            other.join()
            other.leave()
        [warned] = [record.getMessage() for record in caplog.records]
        assert f"group '{name}' has 4 slices, not the 8 that b was given" in warned

    def test_number_that_the_group_had_before_is_not_told(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("WARNING", logger="rscylla.cursorstore")
        member = self.joined(name, "a", slices=4)
        assert self.open_table().plan(name, 4, 0, 8)
        assert self.open_table().recount(name, 4, 8)
        member.leave()
        member.join()
        assert not caplog.records

    def test_group_without_members_cannot_be_looked_at(self, name: str) -> None:
        with pytest.raises(ConfigError, match=name):
            self.open_membership(name).look()

    def test_joining_again_changes_nothing(self, name: str) -> None:
        member = self.joined(name)
        member.take(member.look(), {1})
        token = member.token
        member.join()
        assert (member.token, set(member.held()), len(member.look().members)) == (token, {1}, 1)

    def test_members_take_free_slices(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        assert a.take(a.look(), {0, 3}) == {0, 3} == a.held()
        assert b.take(b.look(), range(4, 8)) == {4, 5, 6, 7} == b.held()
        for view in (a.look(), b.look()):
            assert holders(view) == {0: "a", 3: "a", 4: "b", 5: "b", 6: "b", 7: "b"}
            assert [s.epoch for s in view.slices] == [1, 0, 0, 1, 1, 1, 1, 1]
        taken = a.look().slices[3]
        assert (taken.owner, taken.before) == ("a", "")
        assert taken.since is not None
        assert taken.why

    def test_many_slices_are_taken_at_once(self, name: str) -> None:
        member = self.joined(name, slices=64)
        assert member.take(member.look(), range(64)) == frozenset(range(64)) == member.held()
        assert {s.epoch for s in member.look().slices} == {1}

    def test_slice_has_one_taker(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        seen = b.look()
        assert a.take(a.look(), {0, 1}) == {0, 1}
        assert b.take(seen, {0, 1}) == frozenset() == b.held()
        assert holders(b.look()) == {0: "a", 1: "a"}

    def test_refused_take_leaves_the_rest_to_the_next_look(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        seen = b.look()
        a.take(a.look(), {0})
        b.take(seen, {0, 1, 2})
        assert b.take(b.look(), {1, 2}) == {1, 2} == b.held()
        assert a.held() == {0}

    def test_slices_of_living_members_are_not_taken(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        a.take(a.look(), {0})
        assert b.take(b.look(), {0}) == frozenset()
        assert a.take(a.look(), {0}) == {0}
        assert (set(a.held()), a.look().slices[0].epoch) == ({0}, 1)

    def test_slice_is_handed_over(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        a.take(a.look(), {2})
        a.look()
        assert a.give(2, b.token)
        assert (a.held(), b.held()) == (frozenset(), frozenset())
        view = b.look()
        assert b.held() == {2}
        given = view.slices[2]
        assert (given.epoch, given.holder, given.owner, given.before) == (2, b.token, "b", "a")
        assert not a.give(2, b.token)
        a.look()
        assert (set(a.held()), set(b.held())) == (set(), {2})

    def test_slice_that_is_let_go_is_free(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        a.take(a.look(), {2})
        assert a.give(2, NOBODY)
        freed = b.look().slices[2]
        assert (freed.epoch, freed.holder, freed.before) == (2, NOBODY, "a")
        assert b.take(b.look(), {2}) == {2}
        assert (b.look().slices[2].epoch, b.look().slices[2].before) == (3, "a")

    def test_slice_that_was_never_held_cannot_be_given(self, name: str) -> None:
        a, b = self.joined(name), self.joined(name)
        assert not a.give(0, b.token)
        b.take(b.look(), {0})
        assert not a.give(0, NOBODY)
        assert b.held() == {0}

    def test_slice_given_to_a_member_that_is_gone_can_be_taken(self, name: str) -> None:
        a, b, c = self.joined(name, "a"), self.joined(name, "b"), self.joined(name, "c")
        a.take(a.look(), {0})
        gone = b.token
        b.leave()
        assert a.give(0, gone)
        assert (a.held(), b.held()) == (frozenset(), frozenset())
        view = c.look()
        assert view.holder(0) is None
        assert c.take(view, {0}) == {0}
        assert c.look().slices[0].epoch == 3

    def test_slices_of_a_member_that_left_can_be_taken_at_once(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        a.take(a.look(), range(8))
        a.leave()
        assert (a.held(), a.token) == (frozenset(), NOBODY)
        view = b.look()
        assert [m.owner for m in view.members] == ["b"]
        assert b.take(view, range(8)) == frozenset(range(8))
        assert {(s.epoch, s.before) for s in b.look().slices} == {(2, "a")}

    def test_process_that_left_can_do_nothing_until_it_joins_again(self, name: str) -> None:
        a = self.joined(name)
        a.take(a.look(), {0})
        token = a.token
        a.leave()
        a.leave()
        for act in (a.renew, lambda: a.take(a.look(), {0}), lambda: a.give(0, NOBODY)):
            with pytest.raises(LeaseLost, match="join again"):
                act()
        a.join()
        assert a.token not in (token, NOBODY)
        assert (a.held(), a.look().slices[0].holder) == (frozenset(), token)
        assert a.take(a.look(), {0}) == {0}

    def test_renewals_are_counted_and_nothing_else_counts_as_one(self, name: str) -> None:
        a = self.joined(name)
        a.take(a.look(), {0, 1})
        a.give(1, NOBODY)
        counts = [a.look().members[0].renewals]
        for _ in range(2):
            a.renew()
            counts.append(a.look().members[0].renewals)
        assert counts == [0, 1, 2]
        assert a.held() == {0}

    def test_members_are_listed_oldest_first(self, name: str) -> None:
        members = [self.joined(name, owner) for owner in "abc"]
        since = [m.since for m in members[0].look().members if m.since]
        assert since == sorted(since)
        assert {m.token for m in members[0].look().members} == {m.token for m in members}

    def test_operators_find_groups(self, name: str) -> None:
        table = self.open_table()
        assert find_group(table, name) is None
        member = self.joined(name, "a", slices=4)
        member.take(member.look(), {3})
        found = find_group(table, name)
        assert found is not None
        assert (found.name, found.count, [m.owner for m in found.members], found.slices[3].owner) == (
            name,
            4,
            ["a"],
            "a",
        )
        member.leave()
        assert [view.count for view in list_groups(table) if view.name == name] == [4]
        names = [view.name for view in list_groups(table)]
        assert names == sorted(names)

    def test_member_is_asked_to_drain_and_told_otherwise(self, name: str) -> None:
        table, member, other = self.open_table(), self.joined(name, "a"), self.joined(name, "b")

        def drains() -> list[tuple[str, bool]]:
            return sorted((m.owner, m.drains) for m in other.look().members)

        assert drain_member(table, name, "a").token == member.token
        member.renew()  # which must not undo what was asked
        assert drains() == [("a", True), ("b", False)]
        drain_member(table, name, member.token[:8], undo=True)
        member.renew()
        assert drains() == [("a", False), ("b", False)]
        drain_member(table, name, "a")
        member.leave()
        member.join()
        assert drains() == [("a", False), ("b", False)]

    def test_member_tells_that_it_is_about_to_leave(self, name: str) -> None:
        member, other = self.joined(name, "a"), self.joined(name, "b")
        member.take(member.look(), [0])
        member.drain()
        assert sorted((m.owner, m.drains) for m in other.look().members) == [("a", True), ("b", False)]
        assert member.held() == {0}
        assert member.give(0, other.token)
        member.leave()
        member.drain()  # of no member: nothing
        assert [(m.owner, m.drains) for m in other.look().members] == [("b", False)]

    def test_member_that_is_about_to_leave_tells_the_others(self, name: str) -> None:
        leaving, other = self.joined(name, "leaving"), self.joined(name, "other")
        leaving.take(leaving.look(), {0})
        leaving.drain()
        leaving.renew()
        assert sorted((m.owner, m.drains) for m in other.look().members) == [("leaving", True), ("other", False)]
        assert leaving.held() == {0}
        assert leaving.give(0, other.token)
        other.look()
        assert other.held() == {0}

    def test_members_that_cannot_be_asked_to_drain(self, name: str) -> None:
        table = self.open_table()
        with pytest.raises(ConfigError, match="no group"):
            drain_member(table, name, "a")
        self.joined(name, "same")
        self.joined(name, "same")
        with pytest.raises(ConfigError, match="no member 'a'; its members: same, same"):
            drain_member(table, name, "a")
        with pytest.raises(ConfigError, match="2 members 'same'; give the token"):
            drain_member(table, name, "same")

    def test_nothing_is_taken_while_the_number_of_slices_changes(self, name: str) -> None:
        table, a = self.open_table(), self.joined(name, "a")
        seen = a.look()
        a.take(seen, {0, 1})
        assert table.plan(name, 8, 0, 16)
        assert a.take(seen, {2}) == frozenset(), "what it saw is no longer so"
        view = a.look()
        assert not a.fence_of("billing[2/16]").held()
        assert (view.count, view.next_count, set(a.held())) == (8, 16, {0, 1})
        assert a.take(view, {2}) == frozenset()
        assert a.give(0, NOBODY)
        assert abort_reslice(table, name).next_count == 0
        assert a.take(a.look(), {0, 2}) == {0, 2}
        assert a.held() == {0, 1, 2}

    def test_number_of_slices_changes_while_members_run(self, name: str) -> None:
        table, members = self.open_table(), [self.joined(name, owner) for owner in "ab"]
        for index, member in enumerate(members):
            member.take(member.look(), {index})
        held: list[int] = []

        def let_go(view: GroupView) -> None:
            assert (view.count, view.next_count) == (8, 16)
            held.append(sum(view.holder(s.index) is not None for s in view.slices))
            for member in members:
                member.look()
                for index in sorted(member.held())[:1]:
                    member.give(index, NOBODY)

        assert reslice_group(table, name, 16, watch=let_go, clock=ManualClock()) == {}
        assert held == [2, 0]
        former = members[0].fence_of("billing[0/8]")
        view = members[0].look()
        assert (view.count, view.next_count, len(view.slices)) == (16, 0, 16)
        assert members[0].take(view, {0, 15}) == {0, 15}
        assert not former.held()
        assert members[0].fence_of("billing[15/16]").held()
        assert reslice_group(table, name, 16, clock=ManualClock()) == {}

    def test_holder_of_a_slice_raises_its_epoch_above_one_that_was_found(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        fence = a.fence_of("billing[5/8]")
        with pytest.raises(LeaseLost):
            fence.outgrow(7)
        a.take(a.look(), {5, 6})
        for found in (7, 3):
            fence.outgrow(found)
            assert (fence.epoch, fence.held(), a.fence_of("billing[6/8]").epoch) == (8, True, 1)
            assert [(s.epoch, s.holder) for s in b.look().slices][5:7] == [(8, a.token), (1, a.token)]
        assert a.held() == {5, 6}
        assert a.give(5, b.token)
        b.look()
        assert (b.fence_of("billing[5/8]").epoch, set(b.held())) == (9, {5})
        with pytest.raises(LeaseLost):
            fence.outgrow(20)
        assert (b.look().slices[5].epoch, set(b.held())) == (9, {5})

    def test_epochs_grow_over_changes_of_the_number_of_slices(self, name: str) -> None:
        table, a = self.open_table(), self.joined(name, slices=64)
        epochs = []
        for count in (128, 64, 128, 64):
            a.take(a.look(), {5})
            epochs.append((a.look().count, a.look().slices[5].epoch))
            a.give(5, NOBODY)
            reslice_group(table, name, count, clock=ManualClock())
        assert epochs == [(64, 1), (128, 1), (64, 3), (128, 3)]
        assert a.fence_of("billing[5/64]").epoch == 3

    def test_members_tell_which_consumers_they_run(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        assert {m.reads for m in b.look().members} == {None}
        names = {"billing", "a\nname \u00fc", *(f"shop.table_{n}" for n in range(500))}
        a.announce(names)
        a.renew()
        assert {m.owner: m.reads for m in b.look().members} == {"a": names, "b": None}
        a.take(a.look(), {0})
        a.give(0, b.token)
        assert {m.owner: m.reads for m in a.look().members} == {"a": names, "b": None}

    def test_consumers_whose_store_keeps_their_slices_are_not_resliced(self, name: str) -> None:
        table, a = self.open_table(), self.joined(name, "a")
        a.announce(["orders"], slices_stay=True)
        a.renew()
        a.take(a.look(), {0})
        with pytest.raises(ConfigError, match=r"keeps \d+ slices: a has cursors in a store that keeps their number"):
            reslice_group(table, name, 128, clock=ManualClock())
        assert (a.look().next_count, a.held()) == (0, {0})
        a.announce(["orders"])
        a.renew()
        a.give(0, NOBODY)
        reslice_group(table, name, 128, clock=ManualClock())
        assert a.look().count == 128

    def test_change_that_takes_too_long_is_undone(self, name: str) -> None:
        table, a = self.open_table(), self.joined(name, "busy")
        a.take(a.look(), {0})
        with pytest.raises(QueryTimeout, match="still hold slices after 30 s: busy"):
            reslice_group(table, name, 16, timeout=timedelta(seconds=30), clock=ManualClock())
        view = a.look()
        assert (view.count, view.next_count) == (8, 0)
        assert a.take(view, {1}) == {1}
        assert a.held() == {0, 1}

    def test_only_one_change_of_the_number_of_slices_at_a_time(self, name: str) -> None:
        table, a = self.open_table(), self.joined(name)
        table.plan(name, 8, 0, 16)  # by a process that has died since
        with pytest.raises(ConfigError, match="from 8 to 16 slices; finish that change first"):
            reslice_group(table, name, 32, clock=ManualClock())
        assert a.look().next_count == 16
        reslice_group(table, name, 16, clock=ManualClock())
        assert (a.look().count, a.look().next_count) == (16, 0)

    def test_change_that_is_aborted_by_somebody_else_ends(self, name: str) -> None:
        table, a = self.open_table(), self.joined(name)
        a.take(a.look(), {0})
        with pytest.raises(ConfigError, match="ended by somebody else"):
            reslice_group(table, name, 16, watch=lambda view: _abort(table, name), clock=ManualClock())
        assert (a.look().count, a.look().next_count) == (8, 0)

    @pytest.mark.parametrize("count", [0, -1, 4097, 1.5])
    def test_number_of_slices_is_checked(self, name: str, count: int) -> None:
        with pytest.raises(ConfigError, match="1 to 4096"):
            self.open_membership(name, slices=count)
        self.joined(name)
        with pytest.raises(ConfigError, match="1 to 4096"):
            reslice_group(self.open_table(), name, count, clock=ManualClock())

    def test_members_with_the_same_name_are_different(self, name: str) -> None:
        a, b = self.joined(name, "same"), self.joined(name, "same")
        assert a.token != b.token
        a.take(a.look(), {0})
        assert b.take(b.look(), {0}) == frozenset()

    def test_groups_are_independent(self, name: str) -> None:
        a, b = self.joined(name), self.joined(f"{name} größe '", slices=4)
        assert a.take(a.look(), {0}) == {0} == b.take(b.look(), {0})
        assert (a.look().count, b.look().count) == (8, 4)

    def test_threads_that_compete_for_slices_get_each_once(self, name: str) -> None:
        members = [self.joined(name) for _ in range(4)]
        views = [member.look() for member in members]
        gate = threading.Barrier(len(members))
        failures: list[BaseException] = []

        def rush(member: Membership, view: GroupView) -> None:
            gate.wait()
            for index in range(4):
                try:
                    with contextlib.suppress(QueryTimeout):  # concurrent conditional writes may time out
                        member.take(view, {index})
                except BaseException as e:  # noqa: BLE001  shown by the assertion below
                    failures.append(e)

        threads = [threading.Thread(target=rush, args=pair) for pair in zip(members, views, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        # All of them may be refused; then the next round decides.
        for member in members:
            member.take(member.look(), range(4))
        assert sorted(index for member in members for index in member.held()) == [0, 1, 2, 3]


class ExpiringMembershipContract(MembershipContract):
    """The contract of ``Membership`` as time passes, on a clock that the test drives."""

    ttl: ClassVar[float] = 60.0

    def pass_time(self, seconds: float) -> None:
        """Advance all clocks: those of the members and that of the storage."""
        raise NotImplementedError("this contract suite needs pass_time(), which moves the clocks")

    def test_slices_of_a_dead_member_can_be_taken_once_it_expires(self, name: str) -> None:
        dead, other = self.joined(name, "dead"), self.joined(name, "other")
        dead.take(dead.look(), {0, 1})
        while other.look().holder(0) is not None:
            assert other.take(other.look(), {0, 1}) == frozenset()
            self.pass_time(other.renew_every)
            other.renew()
        assert not dead.held()
        assert other.take(other.look(), {0, 1}) == {0, 1}
        taken = other.look().slices[0]
        assert (taken.epoch, taken.before, [m.owner for m in other.look().members]) == (2, "dead", ["other"])

    def test_member_that_dies_while_it_drains_is_gone(self, name: str) -> None:
        """What it was asked lasts longer than itself, but does not count without it."""
        dead, other = self.joined(name, "dead"), self.joined(name, "other")
        dead.take(dead.look(), {0})
        dead.drain()
        self.pass_time(self.ttl / 2)
        other.renew()
        self.pass_time(self.ttl / 2 + 1)
        other.join()
        view = other.look()
        assert [m.owner for m in view.members] == ["other"]
        assert other.take(view, {0}) == {0}

    def test_holder_stops_before_another_member_can_take(self, name: str) -> None:
        paused, other = self.joined(name), self.joined(name)
        paused.take(paused.look(), {0})
        held = [bool(paused.held())]
        while not other.take(other.look(), {0}):
            held.append(bool(paused.held()))
            self.pass_time(0.5)
            other.renew()
            assert len(held) < 4 * self.ttl, "the membership never expires"
        assert held[0]
        assert not held[-1]
        assert held == sorted(held, reverse=True)

    def test_renewed_membership_keeps_its_slices(self, name: str) -> None:
        a, b = self.joined(name), self.joined(name)
        a.take(a.look(), {0})
        for _ in range(12):
            self.pass_time(a.renew_every)
            a.renew()
            b.renew()
            assert (set(a.held()), set(b.take(b.look(), {0}))) == ({0}, set())
        assert a.look().slices[0].epoch == 1

    def test_two_renewals_may_fail(self, name: str) -> None:
        a = self.joined(name)
        a.take(a.look(), {0})
        self.pass_time(2.9 * a.renew_every)
        assert a.held() == {0}
        a.renew()
        assert a.held() == {0}

    def test_process_that_was_paused_does_nothing_until_it_joins_again(self, name: str) -> None:
        paused = self.joined(name)
        paused.take(paused.look(), {0})
        for act in (lambda seen: paused.renew(), lambda seen: paused.take(seen, {1}), lambda seen: paused.give(0, "")):
            seen = paused.look()
            self.pass_time(self.ttl + 1)
            assert paused.held() == frozenset()
            with pytest.raises(LeaseLost, match="join again"):
                act(seen)
            assert paused.token == NOBODY
            paused.join()
            assert paused.held() == frozenset()
            assert paused.take(paused.look(), {0}) == {0}

    def test_lapsed_process_moves_nothing_though_its_row_is_still_there(self, name: str) -> None:
        """A process stops before its row expires. From then on, it neither takes nor gives."""
        a = self.joined(name)
        a.take(a.look(), {0})
        token = a.token
        while a.held():
            assert a.token == token
            self.pass_time(0.5)
        assert a.token == NOBODY
        view = a.look()
        assert view.member(token) is not None
        assert a.held() == frozenset()
        with pytest.raises(LeaseLost):
            a.take(view, {1})
        a.join()
        assert a.take(a.look(), {0}) == frozenset(), "its former self is still there"
        self.pass_time(self.ttl / 2)
        a.renew()
        assert a.take(a.look(), {0}) == {0}

    def test_renewal_that_comes_too_late_finds_its_slices_taken(self, name: str) -> None:
        paused, other = self.joined(name, "paused"), self.joined(name, "other")
        paused.take(paused.look(), {0})
        self.pass_time(self.ttl / 2)
        other.renew()
        self.pass_time(self.ttl / 2 + 1)
        other.join()
        assert other.take(other.look(), {0}) == {0}
        with pytest.raises(LeaseLost):
            paused.renew()
        paused.join()
        paused.look()
        assert (set(paused.held()), set(other.held())) == (set(), {0})

    def test_slice_given_to_a_dead_member_is_not_lost(self, name: str) -> None:
        a, dead = self.joined(name), self.joined(name)
        a.take(a.look(), {0})
        self.pass_time(self.ttl / 2)
        a.renew()
        self.pass_time(self.ttl / 2 + 1)
        a.join()
        a.take(a.look(), {0})
        assert a.give(0, dead.token)
        assert dead.held() == frozenset()
        dead.look()
        assert dead.held() == frozenset()
        assert a.take(a.look(), {0}) == {0}

    def test_slice_given_is_held_only_while_the_membership_lasts(self, name: str) -> None:
        a, b = self.joined(name), self.joined(name)
        a.take(a.look(), {0})
        assert a.give(0, b.token)
        self.pass_time(self.ttl + 1)
        b.look()
        assert b.held() == frozenset()
        assert b.token == NOBODY

    def test_fences_follow_the_slices(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        of_a, of_b = a.fence_of("billing[2/8]"), b.fence_of("audit[2/8][fast]")
        assert (of_a.name, of_a.owner, of_b.name, of_b.owner) == (f"{name}[2/8]", "a", f"{name}[2/8]", "b")
        assert a.fence_of("billing[2/8]") is of_a
        assert (of_a.epoch, of_a.held()) == (0, False)
        a.take(a.look(), {2})
        assert (of_a.epoch, of_a.held(), of_b.epoch, of_b.held()) == (1, True, 0, False)
        assert not a.fence_of("billing[3/8]").held()
        a.give(2, b.token)
        assert (of_a.epoch, of_a.held()) == (1, False)
        b.look()
        assert (of_b.epoch, of_b.held()) == (2, True)
        self.pass_time(self.ttl + 1)
        assert not of_b.held()

    def test_group_of_one_slice_fences_whole_consumers(self, name: str) -> None:
        member = self.open_membership(name, slices=1)
        fence = member.fence_of("billing")
        member.join()
        assert (fence.name, fence.held()) == (name, False)
        member.take(member.look(), {0})
        assert fence.held()
        assert member.fence_of("audit").held()

    @pytest.mark.parametrize("consumer", ["billing", "billing[2/9]", "billing[8/8]", "billing[2/8]x", "[fast]"])
    def test_consumer_that_has_no_slice_of_the_group_has_no_fence(self, name: str, consumer: str) -> None:
        with pytest.raises(ConfigError, match=r"8 slices.*'NAME\[0/8\]'"):
            self.joined(name).fence_of(consumer)


class GroupFencingContract(_Groups):
    """Cursors of the slices of a group move only for the holder of their slice. Cursors are numbers."""

    def open_numbers(self, member: Membership) -> CursorStore:
        """Return a new store of cursors that are numbers, of the process *member*, which checks epochs rarely."""
        raise NotImplementedError("this contract suite needs open_numbers(), which returns the store to test")

    def saved(self, store: CursorStore, consumer: str, cursor: str) -> None:
        store.set_cursor(consumer, cursor)
        store.flush()

    def test_former_holder_cannot_move_the_cursor(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        consumer = f"{name}-billing[5/8]"
        a.take(a.look(), {5})
        fence = a.fence_of(consumer)
        former, present = self.open_numbers(a), self.open_numbers(b)
        assert former.get_cursor(consumer) == ""
        self.saved(former, consumer, "5")
        with pytest.raises(LeaseLost):
            present.get_cursor(consumer)
        assert a.give(5, b.token)
        with pytest.raises(LeaseLost):
            self.saved(former, consumer, "6")
        fence.held = lambda: True  # type: ignore[method-assign]  # paused, and does not notice
        b.look()
        assert present.get_cursor(consumer) == "5"
        blind = self.open_numbers(a)
        with pytest.raises(LeaseLost, match="later holder"):
            blind.get_cursor(consumer)
        self.saved(present, consumer, "7")
        assert present.get_cursor(consumer) == "7"

    def test_paused_holder_writes_to_an_epoch_that_is_no_longer_read(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        consumer = f"{name}-billing[5/8]"
        a.take(a.look(), {5})
        former, present = self.open_numbers(a), self.open_numbers(b)
        former.get_cursor(consumer)
        self.saved(former, consumer, "5")
        fence = a.fence_of(consumer)
        fence.held = lambda: True  # type: ignore[method-assign]  # paused, and does not notice
        assert a.give(5, b.token)
        b.look()
        assert present.get_cursor(consumer) == "5"
        self.saved(former, consumer, "99")
        assert present.get_cursor(consumer) == "5"
        self.saved(present, consumer, "6")
        self.saved(former, consumer, "100")
        assert self.open_numbers(b).get_cursor(consumer) == "6"

    def test_both_lanes_of_a_slice_have_its_fence(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        lanes = [f"{name}-billing[1/8]", f"{name}-billing[1/8][fast]"]
        a.take(a.look(), {1})
        former, present = self.open_numbers(a), self.open_numbers(b)
        for lane in lanes:
            self.saved(former, lane, "3")
        a.give(1, b.token)
        b.look()
        for lane in lanes:
            with pytest.raises(LeaseLost):
                former.get_cursor(lane)
            assert present.get_cursor(lane) == "3"

    def test_slices_of_one_consumer_move_by_themselves(self, name: str) -> None:
        a, b = self.joined(name, "a"), self.joined(name, "b")
        a.take(a.look(), {0})
        b.take(b.look(), {1})
        first, second = self.open_numbers(a), self.open_numbers(b)
        self.saved(first, f"{name}[0/8]", "1")
        self.saved(second, f"{name}[1/8]", "2")
        for store, other in ((first, f"{name}[1/8]"), (second, f"{name}[0/8]")):
            with pytest.raises(LeaseLost):
                self.saved(store, other, "3")
        assert (first.get_cursor(f"{name}[0/8]"), second.get_cursor(f"{name}[1/8]")) == ("1", "2")

    def test_consumer_outside_the_group_is_told_so(self, name: str) -> None:
        a = self.joined(name)
        store = self.open_numbers(a)
        with pytest.raises(ConfigError, match="without this membership"):
            store.get_cursor(f"{name}-other")
