"""The contract suites of the stores, for a real cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from groupcontracts import GroupFencingContract, MembershipContract
from leasecontracts import LeaseContract
from lettercontracts import DeadLettersContract

from cursorstore import (
    BufferedCursorStore,
    IntCursorCodec,
    ScyllaCursorStore,
    ScyllaDeadLetters,
    ScyllaGroupTable,
    ScyllaLease,
    ScyllaMembership,
)
from rscylla.abc import CursorStore, DeadLetters, Lease, Membership
from rscylla.testing.contracts import (
    CursorAdminContract,
    EventCursorStoreContract,
    SharedCursorStoreContract,
)

FOREVER = timedelta(hours=1)

NUMBERS = "Numbers_of_tests"


class OnTheCluster:
    @pytest.fixture(autouse=True)
    def take_sessions(self, sessions: Iterator[Any], keyspace: str) -> None:
        self.sessions = sessions
        self.keyspace = keyspace
        self.lease_name = f"contract-{uuid.uuid4()}"

    def scylla_store(self, **options: Any) -> ScyllaCursorStore:
        return ScyllaCursorStore(next(self.sessions), self.keyspace, **options)

    def number_store(self, **options: Any) -> ScyllaCursorStore:
        """Return a store of cursors that are numbers, in a table of its own: one table has cursors of one kind."""
        return self.scylla_store(table=NUMBERS, codec=IntCursorCodec(), **options)

    def scylla_lease(self, name: str, **options: Any) -> ScyllaLease:
        options = {"ttl": FOREVER, **options}
        return ScyllaLease(next(self.sessions), self.keyspace, name, **options)

    def scylla_membership(self, name: str, owner: str = "", *, slices: int | None = 8, **options: Any) -> Membership:
        options = {"ttl": FOREVER, **options}
        return ScyllaMembership(next(self.sessions), self.keyspace, name, owner=owner, slices=slices, **options)

    def open_table(self) -> ScyllaGroupTable:
        return ScyllaGroupTable(next(self.sessions), self.keyspace)


class Cursors(OnTheCluster, SharedCursorStoreContract):
    def open_store(self) -> CursorStore:
        return self.scylla_store()


class CursorsCheckedAlways(OnTheCluster, SharedCursorStoreContract):
    def open_store(self) -> CursorStore:
        return self.scylla_store(epoch_check=timedelta(0), consistency="QUORUM")


class Buffered(OnTheCluster, SharedCursorStoreContract):
    def open_store(self) -> CursorStore:
        return BufferedCursorStore(self.scylla_store(), interval=FOREVER)


class CursorsUnderALease(OnTheCluster, EventCursorStoreContract, CursorAdminContract):
    def open_store(self) -> CursorStore:
        lease = self.scylla_lease(self.lease_name)
        lease.acquire()
        return self.scylla_store(lease=lease)


class Leases(OnTheCluster, LeaseContract):
    def open_lease(self, name: str, owner: str = "") -> Lease:
        return self.scylla_lease(name, owner=owner)


class LeasesOfAllDatacenters(OnTheCluster, LeaseContract):
    def open_lease(self, name: str, owner: str = "") -> Lease:
        return self.scylla_lease(name, owner=owner, consistency="QUORUM")


class Memberships(OnTheCluster, MembershipContract):
    def open_membership(self, name: str, owner: str = "", *, slices: int | None = 8) -> Membership:
        return self.scylla_membership(name, owner, slices=slices)


class MembershipsOfAllDatacenters(OnTheCluster, MembershipContract):
    def open_table(self) -> ScyllaGroupTable:
        return ScyllaGroupTable(next(self.sessions), self.keyspace, consistency="QUORUM")

    def open_membership(self, name: str, owner: str = "", *, slices: int | None = 8) -> Membership:
        return self.scylla_membership(name, owner, slices=slices, consistency="QUORUM")


class CursorsOfAGroup(OnTheCluster, GroupFencingContract):
    def open_membership(self, name: str, owner: str = "", *, slices: int | None = 8) -> Membership:
        return self.scylla_membership(name, owner, slices=slices)

    def open_numbers(self, member: Membership) -> CursorStore:
        return self.number_store(lease=member, epoch_check=FOREVER)


class BufferedCursorsOfAGroup(CursorsOfAGroup):
    def open_numbers(self, member: Membership) -> CursorStore:
        return BufferedCursorStore(super().open_numbers(member), codec=IntCursorCodec(), interval=FOREVER)


class Letters(OnTheCluster, DeadLettersContract):
    def open_letters(self) -> DeadLetters:
        return ScyllaDeadLetters(next(self.sessions), self.keyspace)
