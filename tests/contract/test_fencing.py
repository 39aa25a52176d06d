"""Old holders of a lease over TCP: paused, or with a stopped clock, they write to an epoch that is no longer read."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorstore import IntCursorCodec, ScyllaCursorStore, ScyllaLease, list_leases
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import CursorRegression, LeaseLost
from rscylla.testing import ManualClock

KEYSPACE = "Shop"
CODEC = IntCursorCodec()
FOREVER = timedelta(hours=1)

CLOCK = ManualClock()


class BlindLease(ScyllaLease):
    """A lease whose holder does not notice that it expired, as if it were paused before each write."""

    blind = True

    def held(self) -> bool:
        return super().held() or (self.blind and self.epoch > 0)


@pytest.fixture(scope="module")
def driven_session() -> Iterator[Any]:
    with EmbeddedScylla(seed=1, clock=CLOCK) as server:
        session = server.connect()
        session.execute(
            f'CREATE KEYSPACE "{KEYSPACE}" WITH replication = '
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'enabled': false}"
        )
        yield session


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_only_the_holder_moves_the_cursor_in_any_interleaving(driven_session: Any, data: st.DataObject) -> None:
    consumer = str(uuid.uuid4())
    leases = [BlindLease(driven_session, KEYSPACE, consumer, create=True, clock=CLOCK) for _ in range(3)]
    stores = [
        ScyllaCursorStore(
            driven_session, KEYSPACE, create=True, codec=CODEC, lease=lease, epoch_check=FOREVER, clock=CLOCK
        )
        for lease in leases
    ]
    looking = ScyllaCursorStore(driven_session, KEYSPACE, create=True, codec=CODEC)
    holder, value = -1, 0
    actions = st.tuples(st.integers(0, 2), st.sampled_from(["take over", "save", "save", "save"]), st.integers(1, 30))
    for who, what, number in data.draw(st.lists(actions, max_size=20)):
        if what == "take over":
            CLOCK.advance(31)
            leases[who].blind = False
            assert leases[who].try_acquire()
            leases[who].blind = True
            assert int(stores[who].get_cursor(consumer) or 0) == value
            holder = who
        else:
            try:
                stores[who].set_cursor(consumer, str(number))
            except LeaseLost:
                assert leases[who].epoch == 0
            except CursorRegression:
                assert who != holder or number < value
            else:
                value = max(value, number) if who == holder else value
        record = looking.find_cursor(consumer)
        assert int(record.cursor if record else 0) == value


CONSUMER_PROCESS = """
import sys
from datetime import timedelta

from cassandra.cluster import Cluster
from cursorstore import IntCursorCodec, ScyllaCursorStore, ScyllaLease
from rscylla.errors import CursorError, LeaseLost

host, port, keyspace, consumer = sys.argv[1:]
cluster = Cluster([host], port=int(port))
session = cluster.connect()
lease = ScyllaLease(session, keyspace, consumer, owner="paused", ttl=timedelta(seconds=5), margin=timedelta(seconds=2))


class Blind:
    name, owner = lease.name, lease.owner
    epoch = 0

    def held(self):
        return True


def open_store(lease):
    return ScyllaCursorStore(session, keyspace, codec=IntCursorCodec(), lease=lease, epoch_check=timedelta(hours=1))


honest, blind = open_store(lease), open_store(Blind)
while lease.try_acquire():
    try:
        Blind.epoch, Blind.held = lease.epoch, lambda: True
        number = int(honest.get_cursor(consumer) or 0)
        blind.get_cursor(consumer)
        while True:
            for _ in range(20):
                number += 1
                honest.set_cursor(consumer, str(number))
            lease.renew()
            print("saved", flush=True)
    except LeaseLost:
        print("lost", flush=True)  # and acquire it again, in case the machine is slow and the lease is free
for late in range(20):
    try:
        blind.set_cursor(consumer, str(number + 1000 + late))
        print("written", flush=True)
    except CursorError as e:
        print(type(e).__name__, flush=True)
cluster.shutdown()
"""


@pytest.mark.slow
def test_paused_process_that_wakes_up_cannot_move_the_cursor(scylla: EmbeddedScylla) -> None:
    """A separate process is paused until its lease expires, another takes over, and the first one continues."""
    consumer = str(uuid.uuid4())
    session = scylla.connect()
    lease = ScyllaLease(session, KEYSPACE, consumer, owner="standby", ttl=timedelta(minutes=10), create=True)
    store = ScyllaCursorStore(session, KEYSPACE, create=True, codec=CODEC, lease=lease)
    lease.create_schema()
    store.create_schema()
    arguments = [scylla.contact_points[0], str(scylla.port), KEYSPACE, consumer]
    with subprocess.Popen(
        [sys.executable, "-c", CONSUMER_PROCESS, *arguments], stdout=subprocess.PIPE, text=True
    ) as paused:
        try:
            assert paused.stdout is not None
            lines = iter(paused.stdout.readline, "")
            while next(lines) != "saved\n":
                pass  # "lost", where this machine is so slow that the lease expired between two renewals
            paused.send_signal(signal.SIGSTOP)
            epoch = lease.acquire()  # once the other's time is over
            start = int(store.get_cursor(consumer))
            assert start >= 20
            store.set_cursor(consumer, str(start + 1))
            paused.send_signal(signal.SIGCONT)
            rest = [line.strip() for line in lines]
            assert paused.wait() == 0
        finally:
            paused.kill()
    assert "lost" in rest, "the process finds out by itself"
    assert rest[-20:] == ["written"] * 20, "writes that ignore the lease are not refused; they have no effect"
    assert store.get_cursor(consumer) == str(start + 1)
    store.set_cursor(consumer, str(start + 2))
    [record] = [r for r in list_leases(session, KEYSPACE) if r.name == consumer]
    assert (record.owner, record.epoch) == ("standby", epoch)
