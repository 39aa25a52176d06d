"""The contract suites of memberships in groups in memory and over TCP, and of cursors under them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from cursorstore import (
    BufferedCursorStore,
    IntCursorCodec,
    MemoryCursorStore,
    MemoryGroupTable,
    MemoryMembership,
    ReadThroughCursorStore,
    ScyllaCursorStore,
    ScyllaGroupTable,
    ScyllaMembership,
)
from cursorstore._grouprows import GroupRows
from rscylla.abc import CursorStore, Membership
from rscylla.clock import SystemClock
from rscylla.embedded import EmbeddedScylla
from rscylla.testing import ManualClock
from rscylla.testing.contracts import ExpiringMembershipContract, GroupFencingContract

KEYSPACE = "Shop"

TTL = timedelta(seconds=60)


class InMemory:
    @pytest.fixture(autouse=True)
    def make_table(self) -> None:
        self.table = MemoryGroupTable(ManualClock())

    def open_membership(self, name: str, owner: str = "", *, slices: int | None = 8) -> Membership:
        return MemoryMembership(name, self.table, owner=owner, slices=slices, ttl=TTL)

    def open_table(self) -> GroupRows:
        return self.table

    def pass_time(self, seconds: float) -> None:
        assert isinstance(self.table.clock, ManualClock)
        self.table.clock.advance(seconds)


class TestMemoryMembership(InMemory, ExpiringMembershipContract):
    pass


CLOCK = ManualClock()
"""The driven clock that the members and the server below have in common."""


@pytest.fixture(scope="module")
def driven_sessions() -> Iterator[Any]:
    with EmbeddedScylla(seed=1, clock=CLOCK) as server:
        session = server.connect()
        session.execute(
            f'CREATE KEYSPACE "{KEYSPACE}" WITH replication = '
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'enabled': false}"
        )
        yield itertools.cycle([session, server.connect()])


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

    def open_table(self) -> GroupRows:
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


class TestReadThroughCursorsOfAGroup(TestCursorsOfAGroup):
    def open_numbers(self, member: Membership) -> CursorStore:
        local = MemoryCursorStore(codec=IntCursorCodec(), clock=SystemClock())
        return ReadThroughCursorStore(super().open_numbers(member), local)
