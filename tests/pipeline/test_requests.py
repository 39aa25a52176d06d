"""Requests of log pages as they go through the driver: what they keep, send, and where they go."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cassandra import OperationTimedOut
from cassandra.connection import Connection, ConnectionBusy
from cassandra.metadata import Murmur3Token
from cassandra.policies import ConstantSpeculativeExecutionPolicy, NoSpeculativeExecutionPlan
from waiting import eventually

import rscylla
from rscylla.cdc.log.query import ScanTask, StreamGroup, group_streams, scan_cql, scan_values, tasks_for
from rscylla.cdc.log.walk import LogWindow
from rscylla.driver import session as driver
from rscylla.driver import shortcut
from rscylla.driver.errors import DRIVER_ERRORS, took_too_long
from rscylla.driver.pages import Page
from rscylla.driver.session import BoundRead, ReadSession, ReadStatement, consistency_named
from rscylla.driver.shortcut import USES, ShortcutSender
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


# ---------------------------------------------------------------- reads that follow


class Followed:
    """Reads of one group, of which the first is the driver's."""

    def __init__(self, place: Place, monkeypatch: pytest.MonkeyPatch, *, keeps: bool = True) -> None:
        self.place, self.group, self.statement = place, place.groups[0], place.statement()
        self.read()
        self.sent = Sent(place.driver, monkeypatch)
        assert bool(self.statement.shortcuts) is keeps

    def read(self) -> Page:
        return self.place.read(self.statement, self.group)

    @property
    def driven(self) -> int:
        """How many of the reads since the first went through the driver."""
        return len(self.sent.futures)

    def connections(self) -> list[Any]:
        pools = self.place.driver.get_pools()
        return [connection for pool in pools for connection in pool._connections.values()]


@pytest.fixture
def followed(place: Place, monkeypatch: pytest.MonkeyPatch) -> Followed:
    return Followed(place, monkeypatch)


def write(place: Place, rows: int) -> None:
    for i in range(rows):
        place.driver.execute(f"INSERT INTO ks.t (pk, v) VALUES ({i}, {i})")


def test_reads_follow_one_of_the_driver(followed: Followed) -> None:
    """They find what the driver's own find: rows that are new, later pages, other spans."""
    place, group = followed.place, followed.group
    statement = place.session.prepare(scan_cql("ks", "t"), page_size=3, doing="a test")

    def pages(end_us: int) -> list[int]:
        """Return the rows of each page."""
        (task,) = tasks_for(LogWindow(place.generation.time, 0, end_us), [group], keyspace="ks", table="t")
        found = [place.ask(statement, task, None)]
        while (state := found[-1].state) is not None:
            found.append(place.ask(statement, task, state))
        return [page.row_count for page in found]

    assert pages(2**52) == [0]
    write(place, 20)
    driven = followed.driven
    assert sum(pages(2**52)) == 20
    assert pages(2**52) == [3, 3, 3, 3, 3, 3, 2]
    assert pages(1) == [0]
    assert followed.driven == driven


def test_the_policy_of_the_driver_is_asked_again(followed: Followed) -> None:
    for _ in range(2 * (USES + 1)):
        followed.read()
    assert followed.driven == 2


def test_a_read_that_follows_goes_where_the_first_one_went(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    token = int.from_bytes(followed.group[len(followed.group) // 2][:8], "big", signed=True)
    (owner,) = followed.place.driver.cluster.metadata.token_map.get_replicas("ks", Murmur3Token(token))
    used: list[Any] = []
    connection_class = followed.place.driver.cluster.connection_class
    push = connection_class.push
    monkeypatch.setattr(connection_class, "push", lambda self, data: used.append(self) or push(self, data))
    followed.read()
    (connection,) = used
    assert connection.endpoint == owner.endpoint
    assert connection.features.shard_id == owner.sharding_info.shard_id_from_token(token)
    assert not followed.driven


def test_the_driver_prepares_what_a_node_does_not_know(followed: Followed) -> None:
    with followed.place.scylla.faults.fail("unprepared", LOG) as rule:
        assert followed.read().row_count == 0
        assert rule.hits == 1
    assert followed.driven == 1


@pytest.mark.parametrize("name", ["overloaded", "read_timeout", "unavailable", "server_error"])
def test_an_error_is_that_of_the_driver_which_sends_the_next_read(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    with followed.place.scylla.faults.fail(name, LOG, times=2):
        with pytest.raises(DRIVER_ERRORS) as short:
            followed.read()
        assert not followed.driven
        with pytest.raises(DRIVER_ERRORS) as driven:
            followed.read()
        assert followed.driven == 1
    assert type(short.value) is type(driven.value)
    assert str(short.value) == str(driven.value)
    followed.read()


def test_a_dropped_connection_is_an_error_of_those_who_use_it(followed: Followed) -> None:
    with followed.place.scylla.faults.drop_connection(LOG), pytest.raises(DRIVER_ERRORS):
        followed.read()
    assert not followed.driven
    assert followed.read().row_count == 0
    assert followed.driven == 1


@pytest.mark.timeout(60)
def test_a_read_that_follows_times_out(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is not used again before the late answer, which is dropped."""
    monkeypatch.setattr(driver, "REQUEST_TIMEOUT_S", 0.2)
    before = sum(connection.in_flight for connection in followed.connections())
    with followed.place.scylla.faults.no_answer(LOG), pytest.raises(OperationTimedOut) as error:
        followed.read()
    assert took_too_long(error.value)
    assert not followed.driven
    assert sum(len(connection.orphaned_request_ids) for connection in followed.connections()) == 1
    assert sum(connection.in_flight for connection in followed.connections()) == before + 1
    assert followed.read().row_count == 0
    assert followed.driven == 1


def test_nothing_stays_in_flight(followed: Followed) -> None:
    numbers = sum(connection.in_flight for connection in followed.connections())
    for _ in range(5):
        followed.read()
    followed.place.driver.execute("SELECT key FROM system.local")  # the driver's thread has left the callbacks
    assert sum(connection.in_flight for connection in followed.connections()) == numbers
    assert not followed.place.session._shortcuts._open


def test_no_read_follows_where_each_request_is_listened_to(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    place.driver.add_request_init_listener(heard.append)
    followed = Followed(place, monkeypatch, keeps=False)
    followed.read()
    assert followed.driven == 1
    assert len(heard) >= 2


def test_no_read_follows_where_the_driver_is_another(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcut, "_KNOWN", False)
    followed = Followed(place, monkeypatch, keeps=False)
    assert followed.read().row_count == 0


@pytest.mark.parametrize(
    ("session", "may"),
    [
        ({"_pools": {}, "_request_init_callbacks": [1]}, True),
        ({"_pools": {}, "_request_init_callbacks": [1, 2]}, False),
        ({"_pools": {}}, False),
        ({"_request_init_callbacks": [1]}, False),
    ],
)
@pytest.mark.parametrize("counted", [False, True])
def test_no_read_follows_in_a_session_that_counts_or_has_other_parts(
    session: dict[str, Any], may: bool, counted: bool
) -> None:
    sender = ShortcutSender(SimpleNamespace(**session, cluster=SimpleNamespace(metrics_enabled=counted)))
    future = SimpleNamespace(_spec_execution_plan=NoSpeculativeExecutionPlan())
    assert sender.may_be_taken(future) is (may and not counted)


def test_no_read_follows_where_the_driver_asks_a_second_node_after_a_while(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = place.driver.cluster.profile_manager.default
    profile.speculative_execution_policy = ConstantSpeculativeExecutionPolicy(10, 1)
    followed = Followed(place, monkeypatch, keeps=False)
    followed.read()
    assert followed.driven == 1


def test_a_page_comes_although_no_read_can_follow(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(future: Any) -> None:
        raise AttributeError("a driver that was not foreseen")

    monkeypatch.setattr(shortcut.Shortcut, "of", of)
    assert Followed(place, monkeypatch, keeps=False).read().row_count == 0


def test_the_driver_that_is_installed_is_known() -> None:
    assert shortcut._KNOWN


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


def test_a_full_connection_is_left_to_the_driver(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [(connection, connection.in_flight) for connection in followed.connections()]
    send_msg = Connection.send_msg

    def send(self: Connection, message: Any, *args: Any, **kwargs: Any) -> int:
        if isinstance(message, list):
            raise ConnectionBusy("full")
        return cast("int", send_msg(self, message, *args, **kwargs))

    monkeypatch.setattr(Connection, "send_msg", send)
    assert followed.read().row_count == 0
    assert followed.driven == 1
    followed.place.driver.execute("SELECT key FROM system.local")
    assert [(connection, connection.in_flight) for connection, _ in busy] == busy


@pytest.mark.parametrize("port", [0, 65_536, "9042", True])
def test_a_port_out_of_range_is_refused_before_anything_is_asked(port: Any) -> None:
    with pytest.raises(rscylla.ConfigError, match=f"^port must be a whole number from 1 to 65535, not {port!r}$"):
        rscylla.connect(port=port)
