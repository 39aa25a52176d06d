"""Streams, stores, and events on each imitated release of Scylla, in keyspaces of vnodes and of tablets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import attrs
import pytest
from cassandra import InvalidRequest

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.abc import StreamClient
from rscylla.doctor import diagnose
from rscylla.embedded import RELEASES, EmbeddedScylla, Version
from rscylla.testing import ManualClock

NETWORK = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
LAG = rscylla.StreamLag(seconds=30)
TABLETS = RELEASES[RELEASES.index("6.0") :]
LOGS_WITH_TABLETS = RELEASES[RELEASES.index("2025.4") :]

KEYSPACES = [
    *(pytest.param(v, False, id=f"{v}-vnodes") for v in RELEASES),
    *(pytest.param(v, True, id=f"{v}-tablets") for v in LOGS_WITH_TABLETS),
]


@attrs.define
class World:
    scylla: EmbeddedScylla
    session: Any
    clock: ManualClock

    def keyspace(self, *, tablets: bool) -> None:
        """Make the keyspace as one does who knows no version: with a clause, and without it where it is unknown."""
        create = f"CREATE KEYSPACE ks WITH replication = {NETWORK}"
        self.session.execute(create + self.clause(tablets=tablets))

    def clause(self, *, tablets: bool) -> str:
        return f" AND tablets = {{'enabled': {str(tablets).lower()}}}" if self.scylla.version in TABLETS else ""


@pytest.fixture
def world(version: Version) -> Iterator[World]:
    clock = ManualClock()
    with EmbeddedScylla(version=version, clock=clock, seed=1) as scylla:
        session = rscylla.connect([f"{scylla.contact_points[0]}:{scylla.port}"])
        yield World(scylla, session, clock)
        session.cluster.shutdown()


@pytest.mark.parametrize(("version", "tablets"), KEYSPACES)
def test_a_stream_delivers_every_change(world: World, tablets: bool) -> None:
    world.keyspace(tablets=tablets)
    execute = world.session.execute
    execute("CREATE TABLE ks.t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    world.clock.advance(60)
    for n in range(20):
        world.scylla.execute(f"INSERT INTO ks.t (pk, ck, v) VALUES ({n % 3}, {n}, {n})")
    world.clock.advance(60)
    store = ScyllaCursorStore(world.session, "ks", create=True)
    client = rscylla.NewStream(world.session, "ks", "t", clock=world.clock)("", LAG, rscylla.StreamToHead())
    got: list[int] = []
    for event in events(client):
        got.append(event.key["ck"])
        store.set_cursor("reader", event.id)
    client.close()
    store.flush()
    assert sorted(got) == list(range(20))
    assert ScyllaCursorStore(world.session, "ks").get_cursor("reader") == str(event.id)


def events(client: StreamClient) -> Iterator[rscylla.Event]:
    """Yield the events up to the head."""
    with suppress(rscylla.HeadReached):
        while True:
            got = client.recv()
            if isinstance(got, rscylla.Event):
                yield got


@pytest.mark.parametrize("version", RELEASES[RELEASES.index("6.0") : RELEASES.index("2025.4")])
def test_a_table_with_tablets_but_without_cdc_says_that_it_has_no_log(world: World, version: Version) -> None:
    """Tablets without CDC: 6.0 to 2025.3."""
    world.keyspace(tablets=True)
    with pytest.raises(InvalidRequest, match="because keyspace uses tablets"):
        world.session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    world.session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY)")
    with pytest.raises(rscylla.errors.CDCDisabled, match=r"table ks\.t has no CDC log"):
        rscylla.NewStream(world.session, "ks", "t", clock=world.clock)("", LAG)


@pytest.mark.parametrize(("version", "tablets"), KEYSPACES)
def test_the_doctor_finds_no_error(world: World, tablets: bool) -> None:
    world.keyspace(tablets=tablets)
    world.session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    world.clock.advance(60)
    found = diagnose(world.session, "ks", "t", clock=world.clock)
    assert [each for each in found if each.severity == "error"] == []


def test_connect_reads_the_schema_without_a_clause_that_4_3_does_not_know() -> None:
    with EmbeddedScylla(version="4.3") as scylla:
        session = rscylla.connect([f"{scylla.contact_points[0]}:{scylla.port}"])
        assert session.cluster.metadata_request_timeout == 0, "the driver adds USING TIMEOUT for any other"
        assert "system" in session.cluster.metadata.keyspaces
        session.cluster.shutdown()
