"""The contract suites of event sourcing in memory and over TCP, and appends under faults."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from eventcontracts import (
    BuildStoreContract,
    EventStoreContract,
    SnapshotStoreContract,
    SubjectKeysContract,
    TimerStoreContract,
)
from eventmemory import MemoryBuilds, MemoryTimers

from cursorstore import ScyllaDeadLetters
from rscylla._letters import DeadLetter
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import ConfigError
from rscylla.event import SimpleEvent
from rscylla.eventsourcing import (
    AggregateID,
    BuildStore,
    EventStore,
    MemoryEventStore,
    MemorySnapshotStore,
    MemorySubjectKeys,
    ScyllaBuilds,
    ScyllaEventStore,
    ScyllaSnapshotStore,
    ScyllaSubjectKeys,
    ScyllaTimers,
    Snapshot,
    SnapshotStore,
    SubjectKeys,
    TimerStore,
)
from rscylla.testing import ManualClock

KEYSPACE = "Shop"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class TestMemoryEventStore(EventStoreContract):
    @pytest.fixture(autouse=True)
    def make_store(self) -> None:
        self.shared = MemoryEventStore()

    def open_store(self) -> EventStore:
        return self.shared


class TestMemorySnapshotStore(SnapshotStoreContract):
    @pytest.fixture(autouse=True)
    def make_store(self) -> None:
        self.shared = MemorySnapshotStore()

    def open_store(self) -> SnapshotStore:
        return self.shared


class TestMemorySubjectKeys(SubjectKeysContract):
    @pytest.fixture(autouse=True)
    def make_keys(self) -> None:
        self.shared = MemorySubjectKeys()

    def open_keys(self) -> SubjectKeys:
        return self.shared


class OverTCP:
    @pytest.fixture(autouse=True)
    def take_sessions(self, sessions: Iterator[Any]) -> None:
        self.sessions = sessions


class TestScyllaEventStore(OverTCP, EventStoreContract):
    def open_store(self) -> EventStore:
        return ScyllaEventStore(next(self.sessions), KEYSPACE, create=True)


class TestScyllaEventStoreOverDatacenters(OverTCP, EventStoreContract):
    def open_store(self) -> EventStore:
        return ScyllaEventStore(next(self.sessions), KEYSPACE, "Events", create=True, consistency="QUORUM")


class TestScyllaSnapshotStore(OverTCP, SnapshotStoreContract):
    def open_store(self) -> SnapshotStore:
        return ScyllaSnapshotStore(next(self.sessions), KEYSPACE, create=True)


class TestScyllaSubjectKeys(OverTCP, SubjectKeysContract):
    def open_keys(self) -> SubjectKeys:
        return ScyllaSubjectKeys(next(self.sessions), KEYSPACE, create=True)


@pytest.mark.parametrize(
    "write",
    [
        lambda session: ScyllaTimers(session, KEYSPACE, create=True).cancel("\ud83d"),
        lambda session: ScyllaBuilds(session, KEYSPACE, create=True).find_builds("\ud83d"),
        lambda session: ScyllaSubjectKeys(session, KEYSPACE, create=True).make_key("\ud83d"),
        lambda session: ScyllaSnapshotStore(session, KEYSPACE, create=True).put_snapshot(
            Snapshot(AggregateID("order", "1"), 1, 1, "\ud83d")
        ),
        lambda session: ScyllaDeadLetters(session, KEYSPACE, create=True).put(
            DeadLetter.of("billing", SimpleEvent("\ud83d", 2, "", NOON), ValueError(), attempts=1, failed_at=NOON)
        ),
    ],
    ids=["timer", "projection", "subject", "snapshot", "letter"],
)
def test_no_table_takes_half_of_a_pair_of_surrogates(sessions: Iterator[Any], write: Callable[[Any], object]) -> None:
    with pytest.raises(ConfigError, match="takes no text with half of a pair of surrogates; pass valid text"):
        write(next(sessions))


class TestMemoryBuilds(BuildStoreContract):
    @pytest.fixture(autouse=True)
    def make_builds(self) -> None:
        self.shared = MemoryBuilds()

    def open_builds(self) -> BuildStore:
        return self.shared


class TestScyllaBuilds(OverTCP, BuildStoreContract):
    def open_builds(self) -> BuildStore:
        return ScyllaBuilds(next(self.sessions), KEYSPACE, "Builds", create=True)


class Driven:
    clock: ManualClock

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_us() / 1e6, UTC)


class TestMemoryTimers(Driven, TimerStoreContract):
    @pytest.fixture(autouse=True)
    def make_timers(self) -> None:
        self.clock = ManualClock()
        self.shared = MemoryTimers(clock=self.clock)

    def open_timers(self) -> TimerStore:
        return self.shared


@pytest.fixture(scope="module")
def driven() -> Iterator[tuple[ManualClock, Iterator[Any]]]:
    """A clock, and sessions of a server that has the same, so that claims expire by it."""
    clock = ManualClock()
    with EmbeddedScylla(seed=1, clock=clock) as server:
        session = server.connect()
        session.execute(
            f'CREATE KEYSPACE "{KEYSPACE}" WITH replication = '
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'enabled': false}"
        )
        yield clock, itertools.cycle([session, server.connect()])


class TestScyllaTimers(Driven, TimerStoreContract):
    @pytest.fixture(autouse=True)
    def take_sessions(self, driven: tuple[ManualClock, Iterator[Any]]) -> None:
        self.clock, self.sessions = driven

    def open_timers(self) -> TimerStore:
        return ScyllaTimers(next(self.sessions), KEYSPACE, "Timers", create=True, clock=self.clock)
