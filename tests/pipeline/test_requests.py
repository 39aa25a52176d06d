"""Requests of log pages as they go through the driver: what they keep, send, and where they go."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import pytest
from cassandra import OperationTimedOut
from cassandra.metadata import Murmur3Token
from cassandra.policies import ConstantSpeculativeExecutionPolicy
from waiting import eventually

import rscylla
from rscylla.cdc.log.query import ScanTask, StreamGroup, group_streams, scan_cql, scan_values, tasks_for
from rscylla.cdc.log.walk import LogWindow
from rscylla.driver import session as driver
from rscylla.driver.errors import DRIVER_ERRORS, took_too_long
from rscylla.driver.pages import Page
from rscylla.driver.session import BoundRead, ReadSession, ReadStatement, consistency_named
from rscylla.embedded import EmbeddedScylla, Statements

LOG = Statements(kind="select", table="t_scylla_cdc_log")


class Place:
    def __init__(self, scylla: EmbeddedScylla, replicas: int) -> None:
        self.scylla = scylla
        self.driver = rscylla.connect([f"{host}:{scylla.port}" for host in scylla.contact_points])
        self.driver.execute(
            "CREATE KEYSPACE ks WITH tablets = {'enabled': false} AND "
            f"replication = {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
        )
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
        return self.ask(statement, task, None)

    def ask(self, statement: ReadStatement, task: ScanTask, state: bytes | None) -> Page:
        answers = SimpleQueue[Page | BaseException]()
        read = statement.bind_raw(scan_values(task), task.streams.routing_key)
        self.session.send(read, state, on_page=answers.put, on_error=answers.put)
        got = answers.get(timeout=30)
        if isinstance(got, BaseException):
            raise got
        return got


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Three nodes; the parameter is the number of replicas."""
    with EmbeddedScylla(nodes=3, shards=2, vnodes=16, seed=5) as scylla:
        place = Place(scylla, getattr(request, "param", 1))
        yield place
        place.driver.cluster.shutdown()


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


class Sent:
    """The reads of a log that a session sends."""

    def __init__(self, driver: rscylla.Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.futures: list[Any] = []
        execute_async = driver.execute_async

        def sending(*args: Any, **kwargs: Any) -> Any:
            future = execute_async(*args, **kwargs)
            if isinstance(future.query, BoundRead):
                self.futures.append(future)
            return future

        monkeypatch.setattr(driver, "execute_async", sending)

    def taken(self) -> tuple[Any, int]:
        """Return the node and the shard that the last request went to."""
        (future,) = self.futures
        self.futures.clear()
        return future.coordinator_host, future._connection.features.shard_id


def test_a_request_goes_to_the_node_and_the_shard_that_own_the_stream(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement, sent = place.statement(), Sent(place.driver, monkeypatch)
    token_map = place.driver.cluster.metadata.token_map
    nodes = set()
    for stream in place.source.streams(place.generation):
        place.read(statement, StreamGroup([stream]))
        token = int.from_bytes(stream[:8], "big", signed=True)
        (owner,) = token_map.get_replicas("ks", Murmur3Token(token))
        assert sent.taken() == (owner, owner.sharding_info.shard_id_from_token(token))
        nodes.add(owner)
    assert len(nodes) == 3


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", [2], indirect=True)
def test_a_node_that_is_down_is_passed_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    statement, groups = place.statement(), [StreamGroup([s]) for s in place.source.streams(place.generation)]
    down = place.driver.cluster.metadata.get_host(place.scylla.contact_points[1])
    place.scylla.faults.stop_node(place.scylla.contact_points[1])
    while down.is_up is not False:
        with suppress(*DRIVER_ERRORS):  # which tells the driver
            place.driver.execute("SELECT key FROM system.local", timeout=1, host=down)
    sent = Sent(place.driver, monkeypatch)
    token_map = place.driver.cluster.metadata.token_map
    for group in groups:
        place.read(statement, group)
        node, _ = sent.taken()
        owners = token_map.get_replicas("ks", Murmur3Token(int.from_bytes(group[0][:8], "big", signed=True)))
        assert node in owners
        assert node is not down


def test_the_streams_of_a_group_share_an_owner(place: Place) -> None:
    streams = place.source.streams(place.generation)
    replicas_of = place.session.replicas_of("ks")
    assert replicas_of is not None
    groups = group_streams(streams, limit=10, replicas_of=replicas_of)
    token_map = place.driver.cluster.metadata.token_map
    owners = [
        {token_map.get_replicas("ks", Murmur3Token(int.from_bytes(s[:8], "big", signed=True)))[0] for s in group}
        for group in groups
    ]
    assert len(streams) == 3 * 16 * 2
    assert sum(len(each) > 1 for each in owners) <= 2, "where one node's streams end and another's begin"
    assert len({owner for each in owners for owner in each}) == 3
    mixed = sum(len({replicas_of(s) for s in group}) > 1 for group in group_streams(streams, limit=10))
    assert mixed > 3, "in the order of the ring"


def test_a_driver_that_reads_no_ring_sends_to_any_node(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place.driver.cluster.metadata, "token_map", None)
    assert place.session.replicas_of("ks") is None
    place.read(place.statement(), place.groups[0])


@pytest.mark.timeout(60)
def test_a_read_that_is_not_answered_times_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is answered."""
    monkeypatch.setattr(driver, "REQUEST_TIMEOUT_S", 0.2)
    statement, group = place.statement(), place.groups[0]
    with place.scylla.faults.no_answer(LOG), pytest.raises(OperationTimedOut) as error:
        place.read(statement, group)
    assert took_too_long(error.value)
    assert place.read(statement, group).row_count == 0


def test_each_read_goes_through_the_driver_whose_listeners_hear_of_it(place: Place) -> None:
    heard: list[Any] = []
    statement, group = place.statement(), place.groups[0]
    place.driver.add_request_init_listener(heard.append)
    for _ in range(3):
        place.read(statement, group)
    assert len([future for future in heard if isinstance(future.query, BoundRead)]) == 3


@pytest.mark.parametrize("place", [2], indirect=True)
def test_of_two_nodes_that_are_asked_the_first_answers(place: Place) -> None:
    """The driver calls back for each of them."""
    profile = place.driver.cluster.profile_manager.default
    profile.speculative_execution_policy = ConstantSpeculativeExecutionPolicy(0.01, 1)
    statement, answers = place.statement(), SimpleQueue[Page | BaseException]()
    (task,) = tasks_for(LogWindow(place.generation.time, 0, 1), place.groups[:1], keyspace="ks", table="t")
    read = statement.bind_raw(scan_values(task), task.streams.routing_key)
    with place.scylla.faults.delay(timedelta(seconds=0.2), LOG, times=2) as rule:
        place.session.send(read, None, on_page=answers.put, on_error=answers.put)
        assert isinstance(answers.get(timeout=10), Page)
        eventually(lambda: rule.hits == 2)
        eventually(
            lambda: not any(c._requests for pool in place.driver.get_pools() for c in pool._connections.values())
        )
    place.driver.execute("SELECT key FROM system.local")  # the driver's thread has left the callbacks
    assert answers.empty()


@pytest.mark.parametrize("port", [0, 65_536, "9042", True])
def test_a_port_out_of_range_is_refused_before_anything_is_asked(port: Any) -> None:
    with pytest.raises(rscylla.ConfigError, match=f"^port must be a whole number from 1 to 65535, not {port!r}$"):
        rscylla.connect(port=port)
