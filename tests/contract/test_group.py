"""The contract suites of memberships in groups in memory and over TCP, and of cursors under them."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from groupcontracts import ExpiringMembershipContract, GroupFencingContract
from memorygroups import MemoryGroupTable, MemoryMembership

from cursorstore import (
    DEFAULT_GROUP_TABLE,
    BufferedCursorStore,
    IntCursorCodec,
    ScyllaCursorStore,
    ScyllaGroupTable,
    ScyllaMembership,
    reslice_group,
)
from rscylla.abc import NOBODY, CursorStore, GroupView, Membership
from rscylla.embedded import EmbeddedScylla, Rule, Statements
from rscylla.errors import LeaseLost, QueryTimeout
from rscylla.event import EventID
from rscylla.reflex import slice_name
from rscylla.testing import ManualClock

KEYSPACE = "Shop"

TTL = timedelta(seconds=60)


class InMemory:
    @pytest.fixture(autouse=True)
    def make_table(self) -> None:
        self.table = MemoryGroupTable(ManualClock())

    def open_membership(self, name: str, owner: str = "", *, slices: int | None = 8) -> Membership:
        return MemoryMembership(name, self.table, owner=owner, slices=slices, ttl=TTL)

    def open_table(self) -> Any:
        return self.table

    def pass_time(self, seconds: float) -> None:
        assert isinstance(self.table.clock, ManualClock)
        self.table.clock.advance(seconds)


class TestMemoryMembership(InMemory, ExpiringMembershipContract):
    pass


CLOCK = ManualClock()
"""The driven clock that the members and the server below have in common."""


@pytest.fixture(scope="module")
def driven_server() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(seed=1, clock=CLOCK) as server:
        yield server


@pytest.fixture(scope="module")
def driven_sessions(driven_server: EmbeddedScylla) -> Iterator[Any]:
    session = driven_server.connect()
    session.execute(
        f'CREATE KEYSPACE "{KEYSPACE}" WITH replication = '
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'enabled': false}"
    )
    return itertools.cycle([session, driven_server.connect()])


class OverTCP:
    consistency: ClassVar[str] = "LOCAL_QUORUM"

    @pytest.fixture(autouse=True)
    def take_sessions(self, driven_sessions: Iterator[Any]) -> None:
        self.sessions = driven_sessions

    def open_membership(self, name: str, owner: str = "", *, slices: int | None = 8) -> Membership:
        return ScyllaMembership(
            next(self.sessions),
            KEYSPACE,
            name,
            owner=owner,
            slices=slices,
            ttl=TTL,
            create=True,
            consistency=self.consistency,
            clock=CLOCK,
        )

    def open_table(self) -> Any:
        return ScyllaGroupTable(next(self.sessions), KEYSPACE, create=True, consistency=self.consistency)

    def pass_time(self, seconds: float) -> None:
        CLOCK.advance(seconds)


class TestScyllaMembership(OverTCP, ExpiringMembershipContract):
    pass


class TestScyllaMembershipOverDatacenters(TestScyllaMembership):
    consistency = "QUORUM"


class ScyllaNumbers:
    """Cursors that are numbers, over TCP, in a table of this module."""

    @pytest.fixture(autouse=True)
    def take_sessions(self, sessions: Iterator[Any]) -> None:
        self.sessions = sessions

    def open_numbers(self, member: Membership) -> CursorStore:
        return ScyllaCursorStore(
            next(self.sessions),
            KEYSPACE,
            "group_cursors",
            create=True,
            codec=IntCursorCodec(),
            lease=member,
            epoch_check=timedelta(hours=1),
        )


class TestCursorsOfAMemoryGroup(ScyllaNumbers, InMemory, GroupFencingContract):
    pass


class TestBufferedCursorsOfAMemoryGroup(TestCursorsOfAMemoryGroup):
    def open_numbers(self, member: Membership) -> CursorStore:
        return BufferedCursorStore(super().open_numbers(member), codec=IntCursorCodec(), interval=timedelta(hours=1))


class TestCursorsOfAGroup(OverTCP, GroupFencingContract):
    def open_numbers(self, member: Membership) -> CursorStore:
        return ScyllaCursorStore(
            next(self.sessions),
            KEYSPACE,
            create=True,
            codec=IntCursorCodec(),
            lease=member,
            epoch_check=timedelta(hours=1),
            clock=CLOCK,
        )


def at(us: int) -> str:
    return str(EventID(1_795_251_600_000, 1_795_251_600_000_000 + us))


class TestReslicedCursors(OverTCP):
    """The cursors of a group's consumers move with the number of its slices, and no others do."""

    def test_cursors_of_a_group_are_moved_and_no_others(self) -> None:
        name = f"resliced-{uuid.uuid4()}"
        cursors = f"cursors_{uuid.uuid4().hex}"
        member = self.open_membership(name, slices=2)
        member.join()
        member.take(member.look(), {0, 1})
        store = self.store(cursors, member)
        for consumer, times in (("billing", (5, 7)), ("audit", (9,))):
            for index, us in enumerate(times):
                store.get_cursor(f"{consumer}[{index}/2]")
                store.set_cursor(f"{consumer}[{index}/2]", at(us))
                store.set_cursor(f"{consumer}[{index}/2][fast]", at(us + 1))
        other = self.store(cursors)
        for name_of_other in ("manual[0/2]", "manual[1/2]", "whole"):
            other.set_cursor(name_of_other, at(1))
        assert {r.consumer: r.lease for r in other.list_cursors()}["billing[1/2]"] == f"{name}[1/2]"

        def let_go(view: GroupView) -> None:
            for index in member.held():
                member.give(index, NOBODY)

        moved = reslice_group(self.open_table(), name, 4, other, watch=let_go, reason="more work", clock=CLOCK)
        quarters = {f"billing[{i}/4]": at(us) for i, us in enumerate((5, 5, 7, 7))}
        assert moved == quarters | {f"audit[{i}/4]": us for i, us in enumerate((at(9), at(9), "", ""))}
        record = other.find_cursor("billing[3/4]")
        assert record is not None
        assert (record.cursor, record.reason) == (at(7), "more work")
        member.take(member.look(), range(4))
        for consumer, cursor in moved.items():
            assert store.get_cursor(consumer) == cursor
            store.set_cursor(consumer, at(20))
        back = reslice_group(self.open_table(), name, 2, other, watch=let_go, clock=CLOCK)
        assert back == {f"{consumer}[{i}/2]": at(20) for consumer in ("audit", "billing") for i in (0, 1)}
        with pytest.raises(LeaseLost):
            store.set_cursor("billing[0/2]", at(30))

    def test_cursors_move_again_though_no_member_has_worked_in_between(self) -> None:
        name, cursors = f"resliced-{uuid.uuid4()}", f"cursors_{uuid.uuid4().hex}"
        member = self.open_membership(name, slices=2)
        member.join()
        member.take(member.look(), {0, 1})
        store, other = self.store(cursors, member), self.store(cursors)
        for index in (0, 1):
            store.set_cursor(f"billing[{index}/2]", at(5))
            member.give(index, NOBODY)
        other.set_cursor("manual[0/4]", at(1))
        reslice_group(self.open_table(), name, 4, other, clock=CLOCK)
        moved = reslice_group(self.open_table(), name, 8, other, clock=CLOCK)
        assert moved == {f"billing[{i}/8]": at(5) for i in range(8)}
        moved = reslice_group(self.open_table(), name, 1, other, clock=CLOCK)
        assert moved == {"billing": at(5)}
        member.take(member.look(), {0})
        store.set_cursor("billing[fast]", at(6))  # a lane of the only slice
        store.set_cursor("billing", at(6))
        member.give(0, NOBODY)
        moved = reslice_group(self.open_table(), name, 2, other, clock=CLOCK)
        assert moved == {f"billing[{i}/2]": at(6) for i in range(2)}

    @pytest.mark.parametrize("slices", [1, 2])
    def test_cursors_move_whatever_the_names_of_consumers_and_group_are(self, slices: int) -> None:
        name, cursors = f"resliced-{uuid.uuid4()}[0/4]", f"cursors_{uuid.uuid4().hex}"
        consumers = ("billing", "billing[eu]", "billing[0/4]", "a/b:c@d", "x[1/2][fast]")
        member = self.open_membership(name, slices=slices)
        member.join()
        member.take(member.look(), range(slices))
        store, other = self.store(cursors, member), self.store(cursors)
        for consumer in consumers:
            for index in range(slices):
                store.set_cursor(slice_name(consumer, index, slices), at(5))
        for index in range(slices):
            member.give(index, NOBODY)
        other.set_cursor("manual", at(1))
        for count in (3, 5):  # the second change moves cursors that no member has read
            moved = reslice_group(self.open_table(), name, count, other, clock=CLOCK)
            assert moved == {slice_name(consumer, i, count): at(5) for consumer in consumers for i in range(count)}

    @pytest.mark.parametrize("slices", [1, 2])
    def test_a_snapshot_that_nobody_has_begun_moves_with_its_consumer(self, slices: int) -> None:
        name, cursors = f"resliced-{uuid.uuid4()}", f"cursors_{uuid.uuid4().hex}"
        member = self.open_membership(name, slices=slices)
        member.join()
        member.take(member.look(), range(slices))
        store, other = self.store(cursors, member), self.store(cursors)
        for index in range(slices):
            store.set_cursor(slice_name("billing", index, slices), at(5))
            member.give(index, NOBODY)
            for requested in ("billing/snapshot", "manual/snapshot"):
                other.set_cursor(slice_name(requested, index, slices), at(1))
        moved = reslice_group(self.open_table(), name, 4, other, clock=CLOCK)
        wanted = {"billing": at(5), "billing/snapshot": at(1)}
        assert moved == {slice_name(each, i, 4): cursor for each, cursor in wanted.items() for i in range(4)}

    def test_failure_while_cursors_move_leaves_the_group_as_it_was_and_the_change_can_be_repeated(self) -> None:
        name, cursors = f"resliced-{uuid.uuid4()}", f"cursors_{uuid.uuid4().hex}"
        member = self.open_membership(name, slices=2)
        member.join()
        member.take(member.look(), {0, 1})
        store, failing = self.store(cursors, member), self.store(cursors)
        for index in (0, 1):
            store.set_cursor(f"billing[{index}/2]", at(index))
            member.give(index, NOBODY)
        reset, resets = failing.reset_cursor, itertools.count()

        def breaking(consumer: str, cursor: str, *, reason: str) -> None:
            if next(resets) == 2:
                raise QueryTimeout("no answer")
            reset(consumer, cursor, reason=reason)

        failing.reset_cursor = breaking  # type: ignore[method-assign]
        with pytest.raises(QueryTimeout):
            reslice_group(self.open_table(), name, 4, failing, clock=CLOCK)
        view = member.look()
        assert (view.count, view.next_count) == (2, 0)
        assert member.take(view, {0, 1}) == {0, 1}
        store.get_cursor("billing[0/2]")
        store.set_cursor("billing[0/2]", at(9))
        for index in (0, 1):
            member.give(index, NOBODY)
        moved = reslice_group(self.open_table(), name, 4, failing, clock=CLOCK)
        assert moved == {f"billing[{i}/4]": at(us) for i, us in enumerate((9, 9, 1, 1))}

    def store(self, table: str, member: Membership | None = None) -> ScyllaCursorStore:
        return ScyllaCursorStore(next(self.sessions), KEYSPACE, table, create=True, lease=member, clock=CLOCK)


class TestLostAnswers(OverTCP):
    """The server carries out a conditional write and does not answer."""

    @pytest.fixture
    def member(self) -> Membership:
        member = self.open_membership(f"lost-{uuid.uuid4()}")
        member.join()
        return member

    def lost(self, server: EmbeddedScylla, *, applied: bool) -> Rule:
        return server.faults.fail("write_timeout", Statements(table=DEFAULT_GROUP_TABLE, kind="batch"), applied=applied)

    def test_take_and_give_that_were_applied(self, driven_server: EmbeddedScylla, member: Membership) -> None:
        seen = member.look()
        with self.lost(driven_server, applied=True):
            assert member.take(seen, {0, 1}) == {0, 1}
        with self.lost(driven_server, applied=True):
            assert member.give(0, NOBODY)
        assert (set(member.held()), [s.epoch for s in member.look().slices[:2]]) == ({1}, [2, 1])

    def test_take_and_give_that_were_not_applied(self, driven_server: EmbeddedScylla, member: Membership) -> None:
        seen = member.look()
        with self.lost(driven_server, applied=False):
            assert member.take(seen, {0}) == frozenset()
        assert member.take(member.look(), {0}) == {0}
        with self.lost(driven_server, applied=False), pytest.raises(QueryTimeout):
            member.give(0, NOBODY)
        assert member.held() == frozenset()
        assert member.look().slices[0].epoch == 2
        assert member.held() == {0}
