"""The contract suites of memberships in groups in memory and over TCP, and of cursors under them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from cursorstore import BufferedCursorStore, IntCursorCodec, MemoryGroupTable, MemoryMembership, ScyllaCursorStore
from rscylla.abc import CursorStore, Membership
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

    def pass_time(self, seconds: float) -> None:
        assert isinstance(self.table.clock, ManualClock)
        self.table.clock.advance(seconds)


class TestMemoryMembership(InMemory, ExpiringMembershipContract):
    pass


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
