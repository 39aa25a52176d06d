"""The driver on a cluster that changes, on a driven clock, and what the owner sees of it."""

from __future__ import annotations

import datetime as dt
import doctest
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile, Session
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import HostStateListener, RoundRobinPolicy, WhiteListRoundRobinPolicy
from cassandra.query import BatchStatement, SimpleStatement
from waiting import eventually

from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaError, EmbeddedScyllaProcess, ManualClock, facade

REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}"


UNIX_EPOCH_TICKS = 0x01B21DD213814000  # 100 ns ticks from 1582-10-15, where UUID time starts, to 1970


class Hosts(HostStateListener):  # type: ignore[misc]
    """Records the notifications of the driver about its hosts."""

    def __init__(self) -> None:
        self.added, self.removed = threading.Event(), threading.Event()

    def on_add(self, host: object) -> None:
        self.added.set()

    def on_remove(self, host: object) -> None:
        self.removed.set()

    def on_up(self, host: object) -> None:
        pass

    def on_down(self, host: object) -> None:
        pass


def test_a_node_joins_and_leaves_before_the_drivers_eyes() -> None:
    with EmbeddedScylla(2, seed=4, ring_delay=timedelta(0)) as scylla:
        session = scylla.connect()
        hosts = Hosts()
        session.cluster.register_listener(hosts)
        streams = "SELECT DISTINCT time FROM system_distributed.cdc_streams_descriptions_v2"
        times = "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
        assert len(list(session.execute(times))) == 1

        assert scylla.add_node(timedelta(seconds=7)) == "127.0.0.3"
        assert hosts.added.wait(60)
        assert {host.address for host in session.cluster.metadata.all_hosts()} == set(scylla.contact_points)
        newest, oldest = [row.time for row in session.execute(times)]
        assert timedelta(seconds=6) < newest - oldest
        assert {row.time for row in session.execute(streams)} == {newest, oldest}
        ranges = "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = %s"
        assert len(list(session.execute(ranges, [oldest]))) == 2 * 8
        assert [len(row.streams) for row in session.execute(ranges, [newest])] == [2] * (3 * 8)

        direct = scylla.connect(
            contact_points=["127.0.0.3"],
            execution_profiles={
                EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy(["127.0.0.3"]))
            },
        )
        local = direct.execute("SELECT rpc_address FROM system.local WHERE key = 'local'").one()
        assert local.rpc_address == "127.0.0.3"
        assert {row.peer for row in direct.execute("SELECT peer FROM system.peers")} == {"127.0.0.1", "127.0.0.2"}

        scylla.remove_node("127.0.0.2")
        assert hosts.removed.wait(60)
        assert scylla.contact_points == ["127.0.0.1", "127.0.0.3"]
        assert len(list(session.execute(times))) == 2


def test_writes_go_to_the_generation_of_their_time_while_a_node_joins() -> None:
    with EmbeddedScylla(2, seed=5) as scylla:
        session = scylla.connect()
        session.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
        session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        update = session.prepare("UPDATE ks.t SET v = ? WHERE pk = ?")
        execute_concurrent_with_args(session, update, [(-1, pk) for pk in range(20)])
        scylla.add_node(timedelta(milliseconds=150))
        streams = "SELECT time, streams FROM system_distributed.cdc_streams_descriptions_v2"
        owner = {stream: row.time.replace(tzinfo=dt.UTC) for row in session.execute(streams) for stream in row.streams}
        switch = max(owner.values())
        written, switched = 20, False
        while not switched:  # the last round starts after the switch, however slow the machine is
            switched = dt.datetime.now(dt.UTC) > switch
            execute_concurrent_with_args(session, update, [(written, pk) for pk in range(20)])
            written += 20
        rows = list(
            session.execute('SELECT "cdc$stream_id" AS id, writetime("cdc$operation") AS at FROM ks.t_scylla_cdc_log')
        )
        assert len(rows) == written
        switch_us = int(switch.timestamp() * 1000) * 1000
        before = [row for row in rows if row.at < switch_us]
        after = [row for row in rows if row.at >= switch_us]
        assert before
        assert switch not in {owner[row.id] for row in before}
        assert {owner[row.id] for row in after} == {switch}


def test_a_new_generation_needs_no_new_node(shared: Session) -> None:
    with EmbeddedScylla() as scylla:
        scylla.new_generation(timedelta(seconds=60))
        with pytest.raises(EmbeddedScyllaError, match="longer delay"):
            scylla.new_generation(timedelta(seconds=1))
        rows = scylla.execute("SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'")
        assert len(rows) == 2


def test_a_driven_clock_decides_the_time_of_writes_expiry_and_generations() -> None:
    clock = ManualClock(1_500_000_000_000_000)
    with EmbeddedScylla(clock=clock, seed=2) as scylla:
        session = scylla.connect()
        session.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
        session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 600}")
        insert = session.prepare("INSERT INTO ks.t (pk, v) VALUES (1, 1) USING TTL 60")
        session.execute(insert)
        (before,) = session.execute("SELECT * FROM ks.t_scylla_cdc_log")
        assert 0 <= (before.cdc_time.time - UNIX_EPOCH_TICKS) // 10 - 1_500_000_000_000_000 < 10

        scylla.new_generation(timedelta(seconds=90))
        clock.advance(61)
        assert list(session.execute("SELECT * FROM ks.t")) == []
        session.execute(insert)
        clock.advance(60)
        session.execute(insert)
        streams = [row.cdc_stream_id for row in session.execute("SELECT * FROM ks.t_scylla_cdc_log")]
        assert sorted(streams.count(stream) for stream in set(streams)) == [1, 2]

        clock.advance(600 - 121)
        assert len(list(session.execute("SELECT * FROM ks.t_scylla_cdc_log"))) == 2


def test_the_example_in_the_docs_is_true() -> None:
    assert doctest.testmod(facade).failed == 0
    assert doctest.testmod(facade).attempted > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_of_a_server(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    with EmbeddedScyllaProcess() as scylla:
        port = scylla.port
        os.kill(scylla.pid, number)
        eventually(lambda: not is_listening(port))
    said = capfd.readouterr().err
    assert "for development and tests" in said
    assert "Traceback" not in said


def test_execute_inside_the_server_needs_no_driver() -> None:
    with EmbeddedScylla() as scylla:
        scylla.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
        scylla.execute("CREATE TABLE t (pk int PRIMARY KEY, v text)", keyspace="ks")
        scylla.execute("INSERT INTO t (pk, v) VALUES (?, ?)", [1, "one"], keyspace="ks")
        scylla.execute("INSERT INTO t (pk, v) VALUES (?, ?)", [2, None], keyspace="ks")
        rows = scylla.execute("SELECT * FROM ks.t")
        assert sorted(rows, key=lambda row: row["pk"]) == [{"pk": 1, "v": "one"}, {"pk": 2, "v": None}]
        with pytest.raises(ValueError, match="2 bind markers, but got 1 values"):
            scylla.execute("INSERT INTO ks.t (pk, v) VALUES (?, ?)", [1])


def test_a_port_in_use_is_reported_and_a_stopped_server_starts_again_with_its_data() -> None:
    with EmbeddedScylla() as first:
        with pytest.raises(EmbeddedScyllaError, match=f"cannot listen on 127.0.0.1 port {first.port}"):
            EmbeddedScylla(port=first.port).start()
        with pytest.raises(EmbeddedScyllaError, match="already running"):
            first.start()
        first.execute(f"CREATE KEYSPACE kept WITH replication = {REPLICATION}")
    with pytest.raises(EmbeddedScyllaError, match=r"call start\(\)"):
        first.execute("SELECT * FROM system.local")
    first.stop()
    with first:
        names = first.execute("SELECT keyspace_name FROM system_schema.keyspaces")
        assert {"keyspace_name": "kept"} in names


def test_what_is_not_there_yet_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"Scylla 4\.3 has no tablets"):
        EmbeddedScylla(tablets=True, version="4.3")
    with pytest.raises(ValueError, match="no client could log in"):
        EmbeddedScylla(users={})


@pytest.mark.slow
def test_the_server_in_a_process_of_its_own_serves_changes_and_dies() -> None:
    with EmbeddedScyllaProcess(users={"ann": "right"}, seed=3) as scylla:
        session = scylla.connect()
        assert session.execute("SELECT key FROM system.local").one() == ("local",)
        assert scylla.add_node(timedelta(seconds=30)) == "127.0.0.2"
        assert scylla.contact_points == ["127.0.0.1", "127.0.0.2"]
        scylla.new_generation(timedelta(seconds=60))
        times = "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
        assert len(list(session.execute(times))) == 3
        with pytest.raises(EmbeddedScyllaError, match="no node has the address"):
            scylla.remove_node("10.0.0.1")
        with pytest.raises(EmbeddedScyllaError, match="cannot listen"):
            EmbeddedScyllaProcess(port=scylla.port).start()
        port = scylla.port
        session.cluster.shutdown()
        scylla.kill()
        with pytest.raises(EmbeddedScyllaError, match="not running"):
            _ = scylla.port
    with EmbeddedScyllaProcess(port=port, users={"ann": "right"}) as again:
        assert again.port == port
        profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy())
        again.connect(execution_profiles={EXEC_PROFILE_DEFAULT: profile}).execute("SELECT key FROM system.local")


@pytest.mark.slow
def test_a_child_does_not_outlive_a_parent_that_was_killed() -> None:
    program = """
import os, signal, sys
from rscylla.embedded import EmbeddedScyllaProcess
scylla = EmbeddedScyllaProcess().start()
print(scylla.port, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=30, check=False)
    assert done.returncode == -signal.SIGKILL
    port = int(done.stdout)
    eventually(lambda: not is_listening(port))


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_clients_that_are_just_being_accepted_are_let_go_when_the_server_stops(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """A socket that is left open would be a ResourceWarning in the suite of whoever uses the server."""
    for _ in range(30):
        scylla = EmbeddedScylla(seed=1).start()
        clients = [socket.create_connection(("127.0.0.1", scylla.port)) for _ in range(8)]
        scylla.stop()
        for client in clients:
            client.close()
        del scylla
    gc.collect()
    assert [str(w.message) for w in recwarn if issubclass(w.category, ResourceWarning)] == []


def test_a_traced_request_is_in_the_tables_of_traces(session: Session) -> None:
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, v int)")
    insert = session.prepare("INSERT INTO t (pk, v) VALUES (?, ?)")
    batch = BatchStatement()
    batch.add(insert, (1, 1))
    batch.add("INSERT INTO t (pk, v) VALUES (2, 2)")
    for statement, values, request, texts in (
        (SimpleStatement("SELECT v FROM t WHERE pk = 0"), None, "Execute CQL3 query", {"SELECT v FROM t WHERE pk = 0"}),
        (insert, (3, 3), "Execute CQL3 prepared query", {insert.query_string}),
        (batch, None, "Execute batch of CQL3 queries", {insert.query_string, "INSERT INTO t (pk, v) VALUES (2, 2)"}),
    ):
        trace = session.execute(statement, values, trace=True).get_query_trace()
        assert (trace.request_type, trace.coordinator, trace.client) == (request, "127.0.0.1", "127.0.0.1")
        assert texts | {"LOCAL_ONE"} <= set(trace.parameters.values())
        assert [event.source_elapsed <= trace.duration for event in trace.events] == [True, True, True]
        rows = session.execute(f"SELECT username FROM system_traces.sessions WHERE session_id = {trace.trace_id}")
        assert [row["username"] for row in rows] == ["anonymous"]
    assert session.execute("SELECT v FROM t WHERE pk = 3").get_query_trace() is None


def test_a_request_that_fails_is_traced_too(session: Session) -> None:
    future = session.execute_async("SELECT v FROM nothere", trace=True)
    with pytest.raises(InvalidRequest, match="nothere"):
        future.result()
    assert future.get_query_trace().parameters["query"] == "SELECT v FROM nothere"


def test_large_pages_are_traced(session: Session) -> None:
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, v blob)")
    session.execute("INSERT INTO t (pk, v) VALUES (1, %s)", [b"x" * 100_000])
    result = session.execute("SELECT v FROM t", trace=True)
    assert result.one()["v"] == b"x" * 100_000
    assert result.get_query_trace().request_type == "Execute CQL3 query"
