"""The contract suite of leases in memory and over TCP, and the cursor stores' suite under a lease."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from leasecontracts import ExpiringLeaseContract
from memoryleases import MemoryLease, MemoryLeaseTable

from cursorstore import BufferedCursorStore, ScyllaCursorStore, ScyllaLease
from rscylla.abc import CursorStore, Lease
from rscylla.embedded import EmbeddedScylla
from rscylla.testing import ManualClock
from rscylla.testing.contracts import CursorAdminContract, EventCursorStoreContract

KEYSPACE = "Shop"

TTL = timedelta(seconds=60)


class TestMemoryLease(ExpiringLeaseContract):
    @pytest.fixture(autouse=True)
    def make_table(self) -> None:
        self.table = MemoryLeaseTable(ManualClock())

    def open_lease(self, name: str, owner: str = "") -> Lease:
        return MemoryLease(name, self.table, owner=owner, ttl=TTL)

    def pass_time(self, seconds: float) -> None:
        assert isinstance(self.table.clock, ManualClock)
        self.table.clock.advance(seconds)


CLOCK = ManualClock()
"""The driven clock that the owners and the server below have in common."""


@pytest.fixture(scope="module")
def driven_sessions() -> Iterator[Any]:
    with EmbeddedScylla(seed=1, clock=CLOCK) as server:
        session = server.connect()
        session.execute(
            f'CREATE KEYSPACE "{KEYSPACE}" WITH replication = '
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'enabled': false}"
        )
        yield itertools.cycle([session, server.connect()])


class TestScyllaLease(ExpiringLeaseContract):
    consistency: ClassVar[str] = "LOCAL_QUORUM"

    @pytest.fixture(autouse=True)
    def take_sessions(self, driven_sessions: Iterator[Any]) -> None:
        self.sessions = driven_sessions

    def open_lease(self, name: str, owner: str = "") -> Lease:
        session = next(self.sessions)
        return ScyllaLease(
            session, KEYSPACE, name, owner=owner, ttl=TTL, create=True, consistency=self.consistency, clock=CLOCK
        )

    def pass_time(self, seconds: float) -> None:
        CLOCK.advance(seconds)


@pytest.mark.parametrize(("ttl_s", "timeout_s"), [(60, 7.5), (3, 1.0)])
def test_renewal_waits_for_its_answer_only_while_there_is_time_to_try_again(
    driven_sessions: Iterator[Any], monkeypatch: pytest.MonkeyPatch, ttl_s: int, timeout_s: float
) -> None:
    session = next(driven_sessions)
    lease = ScyllaLease(session, KEYSPACE, str(uuid.uuid4()), ttl=timedelta(seconds=ttl_s), create=True, clock=CLOCK)
    lease.acquire()
    asked: list[dict[str, Any]] = []
    execute = session.execute

    def noting(statement: Any, *values: Any, **how: Any) -> Any:
        asked.append(how)
        return execute(statement, *values, **how)

    monkeypatch.setattr(session, "execute", noting)
    lease.renew()
    assert asked == [{"timeout": timeout_s}]


class TestScyllaLeaseOverDatacenters(TestScyllaLease):
    consistency = "QUORUM"


class UnderALease(EventCursorStoreContract, CursorAdminContract):
    """A store whose lease is held does all that stores do. Each store has the lease in turn."""

    @pytest.fixture(autouse=True)
    def take_sessions(self, sessions: Iterator[Any]) -> None:
        self.sessions = sessions
        self.lease_name = f"contract-{uuid.uuid4()}"

    def scylla_store(self) -> ScyllaCursorStore:
        session = next(self.sessions)
        lease = ScyllaLease(session, KEYSPACE, self.lease_name, ttl=timedelta(hours=1), create=True)
        lease.acquire()
        return ScyllaCursorStore(session, KEYSPACE, "leased_cursors", create=True, lease=lease)


class TestScyllaUnderALease(UnderALease):
    def open_store(self) -> CursorStore:
        return self.scylla_store()


class TestBufferedUnderALease(UnderALease):
    def open_store(self) -> CursorStore:
        return BufferedCursorStore(self.scylla_store(), interval=timedelta(hours=1))
