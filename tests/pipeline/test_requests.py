"""Requests of log pages as they go through the driver: what they keep, send, and where they go."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

import rscylla
from rscylla.cdc.driver import ReadSession, ReadStatement, consistency_named
from rscylla.cdc.pages import Page
from rscylla.cdc.query import StreamGroup, group_streams, scan_cql, scan_values, tasks_for
from rscylla.cdc.walk import LogWindow
from rscylla.embedded import EmbeddedScylla

CREATE = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} "


class Place:
    def __init__(self, scylla: EmbeddedScylla) -> None:
        self.scylla = scylla
        self.driver = scylla.connect()
        self.driver.execute(CREATE + "AND tablets = {'enabled': false}")
        self.driver.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        self.session = ReadSession(self.driver, consistency=consistency_named("ONE"))
        self.source = rscylla.NewStream(self.driver, "ks", "t").describe()
        self.generation = self.source.generations[-1]

    @property
    def groups(self) -> tuple[StreamGroup, ...]:
        return group_streams(self.source.streams(self.generation))

    def statement(self) -> ReadStatement:
        return self.session.prepare(scan_cql("ks", "t"), page_size=100, doing="a test")

    def read(self, statement: ReadStatement, group: StreamGroup) -> Page:
        (task,) = tasks_for(LogWindow(self.generation.time, 0, 2**52), [group], keyspace="ks", table="t")
        return self.session.read(statement, scan_values(task), doing="a test")


@pytest.fixture
def place() -> Iterator[Place]:
    with EmbeddedScylla(nodes=3, vnodes=16, seed=5) as scylla:
        yield Place(scylla)


def test_an_answered_request_keeps_nothing(place: Place) -> None:
    """Not until the garbage collector runs, nor until an older request is answered."""
    statement, answers = place.statement(), SimpleQueue[weakref.ref[Page]]()
    (task,) = tasks_for(LogWindow(place.generation.time, 0, 1), place.groups[:1], keyspace="ks", table="t")
    hangs = place.driver.cluster.connection_class.create_timer(60, lambda: None)
    gc.disable()
    try:
        for _ in range(3):
            bound = statement.bind_raw(scan_values(task))
            kept = weakref.ref(bound)
            place.session.send(bound, None, on_page=lambda page: answers.put(weakref.ref(page)), on_error=print)
            page = answers.get(timeout=10)
            del bound
            place.driver.execute("SELECT key FROM system.local")  # the driver's thread has left the callback
            assert page() is None
            assert kept() is None
    finally:
        gc.enable()
        hangs.cancel()


def test_requests_are_not_compressed_though_answers_may_be(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine tenths of a request are stream ids, which are random."""
    frames: list[bytes] = []
    connection_class = place.driver.cluster.connection_class
    push = connection_class.push
    monkeypatch.setattr(connection_class, "push", lambda self, data: frames.append(data) or push(self, data))
    group = place.groups[0]
    place.read(place.statement(), group)
    (execute,) = [frame for frame in frames if frame[4] == 0x0A]
    assert not execute[1] & 0x01
    assert all(stream in execute for stream in group)
