"""The contract suites of event sourcing in memory and over TCP, and appends under faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rscylla.eventsourcing import (
    EventStore,
    MemoryEventStore,
    MemorySnapshotStore,
    MemorySubjectKeys,
    ScyllaEventStore,
    ScyllaSnapshotStore,
    ScyllaSubjectKeys,
    SnapshotStore,
    SubjectKeys,
)
from rscylla.testing.eventcontracts import EventStoreContract, SnapshotStoreContract, SubjectKeysContract

KEYSPACE = "Shop"


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
