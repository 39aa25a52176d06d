"""A cluster that is broken on purpose, as scylla-driver sees it: answers, connections, pages, nodes, clocks, writes."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import cassandra
import pytest
from cassandra import ConsistencyLevel, OperationTimedOut
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import (
    ConstantReconnectionPolicy,
    FallthroughRetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
    WhiteListRoundRobinPolicy,
)
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage, ServerError
from cassandra.query import SimpleStatement
from cassandra.util import Duration
from waiting import eventually

from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaError, EmbeddedScyllaProcess, ManualClock, Statements
from rscylla.embedded.wire.frame import HEADER, Opcode

REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
NODES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")

_numbers = itertools.count()


def session_on(scylla: EmbeddedScylla | EmbeddedScyllaProcess, *nodes: str, **options: Any) -> Session:
    """Return a session that takes each error as it comes and speaks to *nodes* only, if some are given."""
    policy = WhiteListRoundRobinPolicy(nodes) if nodes else TokenAwarePolicy(RoundRobinPolicy())
    profile = ExecutionProfile(policy, FallthroughRetryPolicy(), request_timeout=5)
    return scylla.connect(
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        contact_points=list(NODES),
        reconnection_policy=ConstantReconnectionPolicy(0.1, max_attempts=None),
        **options,
    )


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(3, seed=3) as server:
        yield server


@pytest.fixture
def scylla(running: EmbeddedScylla) -> Iterator[EmbeddedScylla]:
    yield running
    running.faults.clear()


@pytest.fixture
def session(scylla: EmbeddedScylla) -> Iterator[Session]:
    """A session of the test's own, in a keyspace of its own, with tables ``t`` and ``u`` that have logs."""
    keyspace = f"ks{next(_numbers)}"
    scylla.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {REPLICATION}")
    for table in ("t", "u"):
        columns = "(pk int, ck int, v int, PRIMARY KEY (pk, ck))"
        scylla.execute(f"CREATE TABLE {keyspace}.{table} {columns} WITH cdc = {{'enabled': true}}")
    own = session_on(scylla, keyspace=keyspace)
    yield own
    scylla.faults.clear()  # a driver that shuts down waits for the answers of a node that hangs
    own.cluster.shutdown()
    scylla.execute(f"DROP KEYSPACE {keyspace}")


def fill(session: Session, rows: int) -> None:
    for ck in range(rows):
        session.execute("INSERT INTO t (pk, ck, v) VALUES (1, %s, 0)", (ck,))


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("fault", "cql", "error"),
    [
        ("unavailable", "SELECT * FROM t", cassandra.Unavailable),
        ("read_timeout", "SELECT * FROM t", cassandra.ReadTimeout),
        ("write_timeout", "UPDATE t SET v = 1 WHERE pk = 1 AND ck = 1", cassandra.WriteTimeout),
        ("read_failure", "SELECT * FROM t", cassandra.ReadFailure),
        ("write_failure", "DELETE FROM t WHERE pk = 1", cassandra.WriteFailure),
        ("rate_limit", "INSERT INTO t (pk, ck) VALUES (1, 1)", cassandra.RateLimitReached),
        ("overloaded", "SELECT * FROM t", OverloadedErrorMessage),
        ("bootstrapping", "SELECT * FROM t", IsBootstrappingErrorMessage),
        ("server_error", "SELECT * FROM t", ServerError),
        ("invalid", "SELECT * FROM t", cassandra.InvalidRequest),
        ("unauthorized", "SELECT * FROM t", cassandra.Unauthorized),
    ],
)
def test_an_error_is_what_the_driver_takes_it_for(
    scylla: EmbeddedScylla, session: Session, fault: Any, cql: str, error: type[Exception]
) -> None:
    rule = scylla.faults.fail(fault)
    with pytest.raises((error, NoHostAvailable)) as caught:
        session.execute(SimpleStatement(cql, consistency_level=ConsistencyLevel.LOCAL_QUORUM))
    failure = caught.value
    if isinstance(failure, NoHostAvailable):
        failure = next(iter(failure.errors.values()))
    assert isinstance(failure, error)
    if hasattr(failure, "consistency"):
        assert failure.consistency == ConsistencyLevel.LOCAL_QUORUM
    assert rule.hits == 1
    session.execute(cql)
    assert rule.hits == 1


def test_fields_of_errors_arrive(scylla: EmbeddedScylla, session: Session) -> None:
    scylla.faults.fail("write_timeout")
    with pytest.raises(cassandra.WriteTimeout) as timeout:
        session.execute("BEGIN BATCH INSERT INTO t (pk, ck) VALUES (1, 1); APPLY BATCH")
    assert timeout.value.write_type == cassandra.WriteType.BATCH
    scylla.faults.fail("write_timeout")
    with pytest.raises(cassandra.WriteTimeout) as timeout:
        session.execute("BEGIN BATCH INSERT INTO t (pk, ck) VALUES (1, 1) IF NOT EXISTS; APPLY BATCH")
    assert timeout.value.write_type == cassandra.WriteType.CAS, "a conditional batch is one Paxos round"
    scylla.faults.fail("rate_limit")
    with pytest.raises(cassandra.RateLimitReached) as limited:
        session.execute("SELECT * FROM t")
    assert limited.value.op_type == cassandra.OperationType.Read
    assert limited.value.rejected_by_coordinator


def test_a_statement_that_was_forgotten_is_prepared_again(scylla: EmbeddedScylla, session: Session) -> None:
    insert = session.prepare("INSERT INTO t (pk, ck) VALUES (?, ?)")
    with scylla.faults.fail("unprepared") as rule:
        session.execute("SELECT * FROM t")
        assert rule.hits == 0
        session.execute(insert, (1, 1))
        assert rule.hits == 1
    assert session.execute("SELECT ck FROM t").one() == (1,)


def test_preparing_fails_only_when_asked_for(scylla: EmbeddedScylla, session: Session) -> None:
    with scylla.faults.fail("overloaded", times=None) as rule:
        session.prepare("SELECT v FROM t")
        assert rule.hits == 0
    with scylla.faults.fail("server_error", Statements(kind="prepare", table="u"), times=None):
        session.prepare("SELECT ck FROM t")
        with pytest.raises((ServerError, NoHostAvailable)):
            session.prepare("SELECT ck FROM u")


def test_a_time_out_may_have_been_applied_or_not(scylla: EmbeddedScylla, session: Session) -> None:
    for ck, applied in ((1, True), (2, False)):
        scylla.faults.fail("write_timeout", applied=applied)
        with pytest.raises(cassandra.WriteTimeout):
            session.execute("INSERT INTO t (pk, ck) VALUES (1, %s)", (ck,))
    assert list(session.execute("SELECT ck FROM t")) == [(1,)]


# ---------------------------------------------------------------- which statements


SELECT_T, SELECT_U, INSERT_T = "SELECT * FROM t", "SELECT * FROM u", "INSERT INTO t (pk, ck) VALUES (1, 1)"
BATCH_T = f"BEGIN BATCH {INSERT_T}; APPLY BATCH"


@pytest.mark.parametrize(
    ("on", "met", "unmet"),
    [
        (Statements(), [SELECT_T, INSERT_T, BATCH_T], ["SELECT key FROM system.local"]),
        (Statements(kind="select"), [SELECT_T, SELECT_U], [INSERT_T]),
        (Statements(kind="insert"), [INSERT_T, BATCH_T], [SELECT_T]),
        (Statements(kind="batch"), [BATCH_T], [INSERT_T]),
        (Statements(kind="other"), ["TRUNCATE u"], [SELECT_T]),
        (Statements(table="u"), [SELECT_U], [SELECT_T, "SELECT * FROM u_scylla_cdc_log"]),
        (Statements(keyspace="system"), ["SELECT key FROM system.local"], [SELECT_T]),
        (Statements(keyspace="elsewhere"), [], [SELECT_T]),
        (Statements(matching="FROM t$"), [SELECT_T, "select pk from T"], [SELECT_U]),
        (Statements(later_pages=True), [], [SELECT_T]),
    ],
)
def test_faults_affect_the_selected_statements(
    scylla: EmbeddedScylla, session: Session, on: Statements, met: list[str], unmet: list[str]
) -> None:
    with scylla.faults.fail("read_timeout", on, times=None):
        for cql in met:
            with pytest.raises(cassandra.ReadTimeout):
                session.execute(cql)
        for cql in unmet:
            session.execute(cql)


def test_protocol_batches_and_prepared_statements_are_met(scylla: EmbeddedScylla, session: Session) -> None:
    insert = session.prepare("INSERT INTO t (pk, ck) VALUES (?, ?)")
    batch = cassandra.query.BatchStatement()
    batch.add(insert, (1, 1))
    with scylla.faults.fail("write_timeout", Statements(kind="insert", table="t"), times=2) as rule:
        for statement, values in ((insert, (1, 1)), (batch, None)):
            with pytest.raises(cassandra.WriteTimeout):
                session.execute(statement, values)
        assert rule.hits == 2


def test_faults_meet_one_node(scylla: EmbeddedScylla, session: Session) -> None:
    first, second = (session_on(scylla, node, keyspace=session.keyspace) for node in NODES[:2])
    with scylla.faults.fail("read_timeout", Statements(node=NODES[1]), times=None):
        first.execute(SELECT_T)
        with pytest.raises(cassandra.ReadTimeout):
            second.execute(SELECT_T)


def failures(session: Session, rounds: int) -> list[bool]:
    found = []
    for _ in range(rounds):
        try:
            session.execute(SELECT_T)
        except cassandra.ReadTimeout:
            found.append(True)
        else:
            found.append(False)
    return found


def test_times_and_a_seeded_chance(scylla: EmbeddedScylla, session: Session) -> None:
    with scylla.faults.fail("read_timeout", times=3):
        assert failures(session, 5) == [True, True, True, False, False]
    runs = []
    for _ in range(2):
        with scylla.faults.fail("read_timeout", times=None, probability=0.4, seed=11):
            runs.append(failures(session, 40))
    assert runs[0] == runs[1]
    assert 5 < sum(runs[0]) < 30


def test_what_makes_no_sense_is_refused(scylla: EmbeddedScylla) -> None:
    faults = scylla.faults
    for wrong in (
        lambda: faults.fail("nonsense"),  # type: ignore[arg-type]
        lambda: faults.fail("overloaded", times=0),
        lambda: faults.fail("overloaded", probability=0),
        lambda: Statements(matching="("),
        lambda: faults.cut_pages(),
        lambda: faults.cut_pages(0),
        lambda: faults.delay(timedelta(seconds=-1)),
        lambda: faults.delay(timedelta(seconds=1), Statements(kind="prepare")),
    ):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(EmbeddedScyllaError, match=r"no node has the address 127\.0\.0\.9"):
        faults.stop_node("127.0.0.9")
    with pytest.raises(EmbeddedScyllaError, match=r"no node has the address 127\.0\.0\.9"):
        faults.fail("overloaded", Statements(node="127.0.0.9"))


# ---------------------------------------------------------------- answers that do not come


def test_no_answer_is_the_clients_time_out(scylla: EmbeddedScylla, session: Session) -> None:
    scylla.faults.no_answer(applied=True)
    with pytest.raises(OperationTimedOut):
        session.execute(INSERT_T, timeout=0.2)
    assert len(list(session.execute(SELECT_T))) == 1


@pytest.mark.slow
def test_a_delayed_statement_lets_others_pass(scylla: EmbeddedScylla, session: Session) -> None:
    fill(session, 2)
    scylla.faults.delay(timedelta(seconds=2), Statements(matching="v FROM t"))
    answered = SimpleQueue[str]()
    slow = session.execute_async("SELECT v FROM t")
    slow.add_callback(lambda rows: answered.put("slow"))
    session.execute_async(SELECT_T).add_callback(lambda rows: answered.put("other"))
    assert [answered.get(timeout=60), answered.get(timeout=60)] == ["other", "slow"]
    assert list(slow.result()) == [(0,), (0,)]


@pytest.mark.parametrize("fault", ["delay", "slow"])
@pytest.mark.parametrize("clock", [None, ManualClock()], ids=["system", "manual"])
@pytest.mark.parametrize(
    ("cql", "values"),
    [
        ("SELECT * FROM ks.t USING TIMEOUT 50ms", None),
        ("SELECT * FROM ks.t WHERE pk = ? USING TIMEOUT ?", (1, Duration(0, 0, 50_000_000))),
        ("INSERT INTO ks.t (pk) VALUES (1) USING TIMEOUT 50ms", None),
        ("UPDATE ks.t USING TIMEOUT 50ms SET v = 1 WHERE pk = ?", (1,)),
        ("BEGIN BATCH USING TIMEOUT 50ms INSERT INTO ks.t (pk) VALUES (1); APPLY BATCH", None),
    ],
)
def test_a_request_that_is_held_back_for_longer_than_its_timeout_times_out(
    fault: str, clock: ManualClock | None, cql: str, values: tuple[Any, ...] | None
) -> None:
    with EmbeddedScylla(clock=clock) as scylla:
        scylla.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
        scylla.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        session = session_on(scylla, NODES[0], timestamp_generator=None)
        statement = SimpleStatement(cql) if values is None else session.prepare(cql)
        if fault == "delay":
            scylla.faults.delay(timedelta(seconds=600), Statements(table="t"))
        else:
            scylla.faults.slow_node(NODES[0], timedelta(seconds=600))
        request = session.execute_async(statement, values, timeout=60)
        ended = SimpleQueue[BaseException | None]()
        request.add_callbacks(lambda rows: ended.put(None), ended.put)
        if clock is not None:
            eventually(lambda: clock._told)
            clock.advance(0.049)
            scylla.status()
            assert ended.empty()
            clock.advance(0.001)
        is_read = cql.startswith("SELECT")
        assert isinstance(ended.get(timeout=60), cassandra.ReadTimeout if is_read else cassandra.WriteTimeout)
        assert clock is None or not clock._told
        scylla.faults.clear()
        assert scylla.execute("SELECT * FROM ks.t") == scylla.execute("SELECT * FROM ks.t_scylla_cdc_log") == []
        session.cluster.shutdown()


@pytest.mark.parametrize("fault", ["delay", "slow"])
@pytest.mark.parametrize("clock", [None, ManualClock()], ids=["system", "manual"])
def test_a_request_that_is_held_back_for_less_than_its_timeout_is_answered(
    fault: str, clock: ManualClock | None
) -> None:
    with EmbeddedScylla(clock=clock) as scylla:
        scylla.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
        scylla.execute("CREATE TABLE ks.t (pk int PRIMARY KEY)")
        session = session_on(scylla, NODES[0], timestamp_generator=None)
        if fault == "delay":
            scylla.faults.delay(timedelta(milliseconds=10), Statements(table="t"))
        else:
            scylla.faults.slow_node(NODES[0], timedelta(milliseconds=10))
        session.execute("INSERT INTO ks.t (pk) VALUES (1) USING TIMEOUT 1h")
        if clock is not None:
            assert not clock._told
            clock.advance(7200)
        with pytest.raises(cassandra.InvalidRequest, match="cannot be expressed in days"):
            session.execute("INSERT INTO ks.t (pk) VALUES (2) USING TIMEOUT 1d")
        assert scylla.execute("SELECT * FROM ks.t") == [{"pk": 1}]
        session.cluster.shutdown()


@pytest.mark.parametrize("partway", [False, True])
def test_a_connection_is_lost_between_or_within_pages(scylla: EmbeddedScylla, session: Session, partway: bool) -> None:
    fill(session, 10)
    rows = session.execute(SimpleStatement(SELECT_T, fetch_size=4))
    assert len(rows.current_rows) == 4
    with scylla.faults.drop_connection(Statements(table="t", later_pages=True), partway=partway) as rule:
        with pytest.raises((cassandra.connection.ConnectionShutdown, NoHostAvailable, OSError)):
            rows.fetch_next_page()
        assert rule.hits == 1
    eventually(lambda: len(list(session.execute(SimpleStatement(SELECT_T, fetch_size=4)))) == 10)


def test_pages_are_cut_short_and_come_empty(scylla: EmbeddedScylla, session: Session) -> None:
    fill(session, 10)

    def pages() -> list[int]:
        result = session.execute(SimpleStatement("SELECT ck FROM t", fetch_size=4))
        sizes, seen = [], []
        while True:
            sizes.append(len(result.current_rows))
            seen += [row.ck for row in result.current_rows]
            if not result.has_more_pages:
                break
            result.fetch_next_page()
        assert seen == list(range(10))
        return sizes

    assert pages() == [4, 4, 2]
    with scylla.faults.cut_pages(3):
        assert pages() == [3, 3, 3, 1]
    with scylla.faults.cut_pages(empty=True):
        assert pages() == [0, 4, 0, 4, 0, 2]
    with scylla.faults.cut_pages(5, empty=True, times=2):
        assert pages() == [0, 4, 0, 4, 2]
    assert pages() == [4, 4, 2]


def test_the_rule_may_end_between_an_empty_page_and_the_next(scylla: EmbeddedScylla, session: Session) -> None:
    fill(session, 3)
    rule = scylla.faults.cut_pages(empty=True)
    result = session.execute(SimpleStatement("SELECT ck FROM t", fetch_size=2))
    assert result.has_more_pages
    assert result.current_rows == []
    rule.remove()
    assert [row.ck for row in result] == [0, 1, 2]


def test_cut_pages_leave_conditional_writes_alone(scylla: EmbeddedScylla, session: Session) -> None:
    with scylla.faults.cut_pages(empty=True):
        assert session.execute("INSERT INTO t (pk, ck) VALUES (1, 1) IF NOT EXISTS").one().applied


# ---------------------------------------------------------------- nodes


def _short(data: bytes) -> str:
    return data[2 : 2 + int.from_bytes(data[:2], "big")].decode()


class Listener:
    """A bare client of one node that has registered for status events."""

    def __init__(self, scylla: EmbeddedScylla, node: str) -> None:
        self._socket = socket.create_connection((node, scylla.port), timeout=10)
        string = lambda text: len(text).to_bytes(2, "big") + text.encode()  # noqa: E731
        self._send(Opcode.STARTUP, b"\0\1" + string("CQL_VERSION") + string("3.0.0"))
        self._send(Opcode.REGISTER, b"\0\1" + string("STATUS_CHANGE"))
        assert [self._receive()[0], self._receive()[0]] == [Opcode.READY, Opcode.READY]

    def event(self) -> tuple[str, str]:
        """Return what happened to which address."""
        opcode, body = self._receive()
        assert opcode == Opcode.EVENT
        kind, change, address = _short(body), _short(body[15:]), body[-8:-4]
        assert kind == "STATUS_CHANGE"
        return change, socket.inet_ntoa(address)

    def close(self) -> None:
        self._socket.close()

    def _send(self, opcode: int, body: bytes) -> None:
        self._socket.sendall(HEADER.pack(4, 0, 1, opcode, len(body)) + body)

    def _receive(self) -> tuple[int, bytes]:
        _, _, _, opcode, size = HEADER.unpack(self._socket.recv(HEADER.size, socket.MSG_WAITALL))
        return opcode, self._socket.recv(size, socket.MSG_WAITALL) if size else b""


def test_stopping_and_starting_a_node_is_announced_to_clients(scylla: EmbeddedScylla) -> None:
    listener = Listener(scylla, NODES[0])
    scylla.faults.stop_node(NODES[2])
    scylla.faults.stop_node(NODES[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((NODES[2], scylla.port))
    scylla.faults.start_node(NODES[2])
    assert [listener.event(), listener.event()] == [("DOWN", NODES[2]), ("UP", NODES[2])]
    socket.create_connection((NODES[2], scylla.port)).close()
    listener.close()


@pytest.mark.parametrize("fixed", [False, True])
def test_a_node_that_starts_again_takes_another_shard_aware_port_if_its_own_is_taken(fixed: bool) -> None:
    with socket.create_server((NODES[1], 0)) as free:
        port = free.getsockname()[1]
    with EmbeddedScylla(2, shard_aware_port=port if fixed else 0) as scylla:
        scylla.faults.stop_node(NODES[1])
        with socket.create_server((NODES[1], scylla.shard_aware_port or 0)):
            if fixed:
                with pytest.raises(EmbeddedScyllaError, match=r"cannot listen again: .*; free that port"):
                    scylla.faults.start_node(NODES[1])
                return
            scylla.faults.start_node(NODES[1])
            session = scylla.connect(contact_points=[NODES[1]])
            (host,) = [each for each in session.cluster.metadata.all_hosts() if each.address == NODES[1]]
            told = eventually(lambda: host.sharding_info).shard_aware_port  # connect() waits for one node only
            assert told not in (None, scylla.port, scylla.shard_aware_port)
            socket.create_connection((NODES[1], told)).close()


def test_token_aware_sessions_live_through_the_loss_of_a_node(scylla: EmbeddedScylla, session: Session) -> None:
    insert = session.prepare("INSERT INTO t (pk, ck) VALUES (?, 0)")
    bound = [insert.bind((pk,)) for pk in range(60)]
    eventually(lambda: session.cluster.metadata.token_map.get_replicas(session.keyspace, _token(session, bound[0])))
    homes = [session.cluster.metadata.get_replicas(session.keyspace, b.routing_key)[0] for b in bound]
    assert {home.address for home in homes} == set(NODES)

    def write(statement: Any) -> str:
        future = session.execute_async(statement)
        future.result()
        return str(future.coordinator_host.address)

    eventually(lambda: [write(b) for b in bound] == [home.address for home in homes])
    scylla.faults.stop_node(NODES[1])
    assert {write(b) for b in bound} == {NODES[0], NODES[2]}
    scylla.faults.start_node(NODES[1])
    eventually(lambda: [write(b) for b in bound] == [home.address for home in homes])
    assert len(list(session.execute("SELECT pk FROM t"))) == 60


def _token(session: Session, bound: Any) -> Any:
    return session.cluster.metadata.token_map.token_class.from_key(bound.routing_key)


def test_a_stalled_node_answers_pending_requests_once_it_continues(scylla: EmbeddedScylla, session: Session) -> None:
    only, other = (session_on(scylla, node, keyspace=session.keyspace) for node in NODES[:2])
    scylla.faults.stall_node(NODES[0])
    asked = [only.execute_async(f"INSERT INTO t (pk, ck) VALUES (1, {ck})") for ck in range(20)]
    assert list(other.execute("SELECT ck FROM t")) == []
    scylla.faults.resume_node(NODES[0])
    for future in asked:
        future.result()
    assert len(list(other.execute("SELECT ck FROM t"))) == 20


def test_a_slow_node_takes_its_time(scylla: EmbeddedScylla, session: Session) -> None:
    only = session_on(scylla, NODES[0], keyspace=session.keyspace)
    scylla.faults.slow_node(NODES[0], timedelta(seconds=60))
    with pytest.raises(OperationTimedOut):
        only.execute(SELECT_T, timeout=0.1)
    scylla.faults.resume_node(NODES[0])
    scylla.faults.slow_node(NODES[0], timedelta(milliseconds=300))
    many = [only.execute_async(SELECT_T) for _ in range(50)]
    for future in many:
        future.result()
    scylla.faults.slow_node(NODES[0], timedelta(seconds=60))
    scylla.faults.resume_node(NODES[0])
    only.execute(SELECT_T, timeout=30)


def test_a_slow_node_bounds_what_waits(scylla: EmbeddedScylla) -> None:
    """A client that asks on and on is not read from while so much of it waits."""
    scylla.faults.slow_node(NODES[0], timedelta(seconds=60))
    flood = socket.create_connection((NODES[0], scylla.port), timeout=0.5)
    frame = HEADER.pack(4, 0, 1, Opcode.OPTIONS, 0) * 10_000
    with pytest.raises(TimeoutError):
        flood.sendall(frame * 2_000)
    (listener,) = [x for x in scylla._server.listeners.values() if x.node.address == NODES[0]]
    eventually(lambda: max(len(c._deferred) for c in listener.connections) == 1024)
    assert sum(len(c._pending) for c in listener.connections) < 2_000_000
    scylla.faults.resume_node(NODES[0])
    eventually(lambda: not any(c._deferred for c in listener.connections))
    flood.close()


def test_a_node_has_a_clock_of_its_own(scylla: EmbeddedScylla, session: Session) -> None:
    sessions = [session_on(scylla, node, keyspace=session.keyspace) for node in NODES[:2]]
    scylla.faults.skew_clock(NODES[1], timedelta(seconds=3))
    for ck, one in enumerate(sessions):
        one.use_client_timestamp = False
        one.execute("INSERT INTO t (pk, ck, v) VALUES (1, %s, 0)", (ck,))
    first, second = (row.w for row in session.execute("SELECT writetime(v) AS w FROM t"))
    assert 2_500_000 < second - first < 4_000_000


# ---------------------------------------------------------------- writes


def log_of(session: Session, table: str = "t") -> list[Any]:
    rows = session.execute(f'SELECT "cdc$time" AS time, ck, pk FROM {table}_scylla_cdc_log')
    return sorted(rows, key=lambda row: row.time.time)


def test_a_replayed_write_is_in_the_log_twice_with_one_time(scylla: EmbeddedScylla, session: Session) -> None:
    scylla.faults.replay_writes(session.keyspace, "t")
    session.execute("INSERT INTO u (pk, ck) VALUES (1, 1) IF NOT EXISTS")
    session.execute("INSERT INTO t (pk, ck) VALUES (1, 1) IF NOT EXISTS")
    session.execute("INSERT INTO t (pk, ck) VALUES (1, 2) IF NOT EXISTS")
    assert [row.ck for row in log_of(session)] == [1, 1, 2]
    first, second, _ = log_of(session)
    assert first.time.time == second.time.time
    assert first.time != second.time
    assert [row.ck for row in log_of(session, "u")] == [1]


def test_late_rows_keep_the_time_they_were_written_at(scylla: EmbeddedScylla, session: Session) -> None:
    with scylla.faults.hold_writes(session.keyspace, "t", times=2) as rule:
        session.execute("INSERT INTO u (pk, ck) VALUES (1, 1)")
        for ck in (1, 2, 3):
            session.execute("INSERT INTO t (pk, ck) VALUES (1, %s)", (ck,))
        assert rule.hits == 2
    assert [row.ck for row in log_of(session)] == [3]
    assert list(session.execute("SELECT ck FROM t")) == [(3,)]
    assert scylla.faults.deliver_held() == 2
    assert [row.ck for row in log_of(session)] == [1, 2, 3]
    assert list(session.execute("SELECT ck FROM t")) == [(1,), (2,), (3,)]
    assert scylla.faults.deliver_held() == 0


def test_a_held_write_to_a_table_that_changed_is_let_go(scylla: EmbeddedScylla, session: Session) -> None:
    with scylla.faults.hold_writes(session.keyspace, "t"):
        session.execute("INSERT INTO t (pk, ck) VALUES (1, 1)")
        session.execute("ALTER TABLE t ADD w int")
        session.execute("INSERT INTO t (pk, ck, w) VALUES (1, 2, 2)")
    with pytest.raises(EmbeddedScyllaError, match="was changed or dropped"):
        scylla.faults.deliver_held()
    assert scylla.faults.deliver_held() == 1
    assert [row.ck for row in log_of(session)] == [2]


# ---------------------------------------------------------------- in a process of its own


def test_a_server_in_its_own_process_is_broken_the_same_way() -> None:
    with EmbeddedScyllaProcess(3) as server:
        session = session_on(server)
        session.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
        session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY)")
        with server.faults.fail("read_timeout", Statements(table="t"), times=2) as rule:
            for _ in range(2):
                with pytest.raises(cassandra.ReadTimeout):
                    session.execute("SELECT * FROM ks.t")
            session.execute("SELECT * FROM ks.t")
            assert rule.hits == 2
        server.faults.hold_writes("ks", "t")
        session.execute("INSERT INTO ks.t (pk) VALUES (1)")
        server.faults.stop_node(NODES[1])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((NODES[1], server.port))
        with pytest.raises(EmbeddedScyllaError, match="no node has the address"):
            server.faults.stall_node("127.0.0.9")
        server.faults.clear()
        socket.create_connection((NODES[1], server.port)).close()
        assert list(session.execute("SELECT pk FROM ks.t")) == [(1,)]
