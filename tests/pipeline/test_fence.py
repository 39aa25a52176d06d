"""A lane whose lease was lost writes nothing any more, even in the middle of an event."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import aio
from rscylla.clock import InnerStop
from rscylla.errors import Stopped
from rscylla.service.lease import LeasedStop


class Lease:
    def __init__(self) -> None:
        self.lost = False

    def held(self) -> bool:
        return not self.lost


class Place:
    """A log with two changes, and a consumer that writes a row before and after it loses its lease."""

    def __init__(self, session: Any, keyspace: str) -> None:
        self.session, self.keyspace = session, keyspace
        for name, cdc in (("t", "WITH cdc = {'enabled': true}"), ("seen", "")):
            session.execute(f"CREATE TABLE {keyspace}.{name} (pk int PRIMARY KEY) {cdc}")
        self.lease = Lease()
        self.stop = LeasedStop(self.lease)
        self.cursors = MemoryCursorStore()
        self.registry = CollectorRegistry()

    def write(self, number: int) -> None:
        self.session.execute(f"INSERT INTO {self.keyspace}.seen (pk) VALUES (%s)", (number,))

    def consume(self, event: rscylla.Event, run: Any) -> None:
        self.write(1)
        self.lease.lost = True
        self.write(2)

    def spec(self, consumer: Any) -> rscylla.Spec:
        stream = rscylla.NewStream(self.session, self.keyspace, "t")
        for pk in range(2):
            self.session.execute(f"INSERT INTO {self.keyspace}.t (pk) VALUES ({pk})")
        return rscylla.Spec(
            *(stream, self.cursors, consumer, rscylla.StreamLag(milliseconds=50)), registry=self.registry
        )

    def seen(self) -> list[int]:
        return [row[0] for row in self.session.execute(f"SELECT pk FROM {self.keyspace}.seen")]


@pytest.fixture
def place(session: Any, keyspace: str) -> Place:
    return Place(session, keyspace)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_event_in_progress_writes_no_further_row(place: Place, workers: int) -> None:
    consumer: Any = rscylla.Consumer("lane", place.consume, registry=place.registry)
    if workers:
        consumer = rscylla.concurrent(consumer, workers=workers)
    with pytest.raises(Stopped):
        rscylla.run(place.spec(consumer), stop=place.stop)
    assert place.seen() == [1]
    assert place.cursors.get_cursor("lane") == ""
    place.write(3)  # outside of the run, the session is free


def test_nor_does_one_of_an_event_loop(place: Place) -> None:
    async def consume(event: rscylla.Event, run: Any) -> None:
        place.consume(event, run)

    consumer = aio.Consumer("lane", consume, registry=place.registry)
    with pytest.raises(Stopped):
        asyncio.run(aio.run(place.spec(consumer), stop=place.stop))
    assert place.seen() == [1]
    assert place.cursors.get_cursor("lane") == ""


def test_a_stop_alone_lets_the_event_in_progress_end(place: Place) -> None:
    stop = InnerStop(place.stop)

    def consume(event: rscylla.Event, run: Any) -> None:
        stop.set()
        place.write(1)

    consumer = rscylla.Consumer("lane", consume, registry=place.registry)
    with pytest.raises(Stopped):
        rscylla.run(place.spec(consumer), stop=stop)
    assert place.seen() == [1]
    assert place.cursors.get_cursor("lane") != ""
