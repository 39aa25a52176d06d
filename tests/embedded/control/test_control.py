"""Servers that take commands on a Unix socket: what is said, where the socket is, and clients and servers that die."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from rscylla.embedded import (
    ControlClient,
    ControlUnavailable,
    EmbeddedScylla,
    EmbeddedScyllaError,
    EmbeddedScyllaProcess,
    ManualClock,
    Statements,
)
from rscylla.embedded.control.sockets import control_path

REPLICATION = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"


@pytest.fixture(autouse=True)
def own_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of the test's own; short, as the path of a socket has to be."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ctl") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        monkeypatch.setenv("TMPDIR", directory)  # for other processes
        yield Path(directory)


@pytest.fixture
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(2, tablets=True, control=True, clock=ManualClock()) as server:
        yield server


@pytest.fixture
def client(scylla: EmbeddedScylla) -> ControlClient:
    return ControlClient.at_port(scylla.port)


def raw(path: Path | None, sent: bytes) -> bytes:
    """Return all that a server answers to bytes that end there."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as answers:
            return answers.read()


def rule(**given: Any) -> bytes:
    """Return the command that adds a rule."""
    arguments = {"on": {"kind": None, "node": None}, "times": 1, "probability": 1.0, "seed": None, **given}
    return json.dumps({"command": "call_fault", "name": "add", "arguments": arguments}).encode()


def test_a_client_changes_the_cluster(scylla: EmbeddedScylla, client: ControlClient) -> None:
    scylla.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION} AND tablets = {{'initial': 2}}")
    scylla.execute("CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    assert client.add_node() == "127.0.0.3"
    client.remove_node("127.0.0.2")
    now_us = scylla.clock.now_us()
    split = client.split_tablets("ks", "t", timedelta(seconds=20))
    assert int(split.timestamp() * 1e6) == now_us + 20_000_000
    assert client.merge_tablets("ks", "t", timedelta(seconds=30)) > split
    assert client.new_generation(timedelta(seconds=200)) > split
    client.advance(timedelta(seconds=5))
    assert scylla.clock.now_us() == now_us + 5_000_000
    assert client.expire_rows() == 0
    status = client.status()
    assert status == json.loads(json.dumps(scylla.status()))
    assert [node["address"] for node in status["nodes"]] == ["127.0.0.1", "127.0.0.3"]
    (table,) = status["tables"]
    assert (table["keyspace"], table["table"], table["tablets"]) == ("ks", "t", 2)
    assert [each["streams"] for each in table["stream_sets"]] == [2, 4, 2]
    assert len(status["generations"]) == 3
    assert status["time"] == "2025-11-21T10:00:05.000Z"


def test_a_client_breaks_the_cluster_and_sees_what_is_broken(scylla: EmbeddedScylla, client: ControlClient) -> None:
    faults = client.faults
    faults.stop_node("127.0.0.2")
    faults.skew_clock("127.0.0.1", timedelta(seconds=-3))
    faults.slow_node("127.0.0.1", timedelta(seconds=0.25))
    rule = faults.fail("overloaded", Statements(table="t"), times=None)
    faults.drop_connection().remove()
    faults.hold_writes("ks")
    first, second = client.status()["nodes"]
    assert (first["state"], first["delay_s"], first["clock_skew_s"]) == ("slow", 0.25, -3.0)
    assert (second["state"], second["connections"]) == ("stopped", [0, 0])
    failing, holding = client.status()["faults"]
    assert (failing["rule"], failing["action"], failing["fault"]) == (rule.number, "fail", "overloaded")
    assert (failing["on"]["table"], failing["times"], failing["hits"]) == ("t", None, 0)
    assert holding["action"] == "hold"
    faults.stall_node("127.0.0.1")
    assert client.status()["nodes"][0]["state"] == "stalled"
    assert faults.rule(rule.number).hits == 0
    faults.clear()
    assert client.status()["faults"] == []
    assert [node["state"] for node in client.status()["nodes"]] == ["up", "up"]


def test_sessions_count_by_shard_and_node(scylla: EmbeddedScylla, client: ControlClient) -> None:
    assert [node["connections"] for node in client.status()["nodes"]] == [[0, 0], [0, 0]]
    scylla.connect()
    # connect() waits for the connections to one node only.
    eventually(lambda: all(sum(node["connections"]) for node in client.status()["nodes"]))


def test_an_error_is_of_the_kind_that_the_owner_gets(client: ControlClient) -> None:
    with pytest.raises(
        EmbeddedScyllaError, match=r"^no node has the address 127\.0\.0\.9; the nodes are 127\.0\.0\.1,"
    ):
        client.remove_node("127.0.0.9")
    with pytest.raises(ValueError, match="no rule has the number 7"):
        client.faults.rule(7).remove()
    with pytest.raises(EmbeddedScyllaError, match=r"only a cluster of version 4\.3"):
        client.upgrade()


def test_only_a_manual_clock_is_advanced() -> None:
    with EmbeddedScylla(control=True) as scylla, pytest.raises(EmbeddedScyllaError, match="machine's clock"):
        ControlClient.at_port(scylla.port).advance(timedelta(seconds=1))


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON",
        b"[]",
        b"{}",
        b"\xff",
        b'{"command": "nope"}',
        b'{"command": "remove_node"}',
        b'{"command": "add_node", "delay_ms": "soon"}',
        b'{"command": "call_fault", "name": "add", "arguments": {"on": {"node": null}}}',
        b'{"command": "call_fault", "name": "hits", "arguments": {"number": -1}}',
        b'{"command": "call_fault", "name": "stop_node", "arguments": {}}',
        b'{"command": "status", "number": NaN}',
        b'{"command": "status", "number": 1e999}',
        b'{"command": "add_node", "delay_ms": Infinity}',
        b'{"command": "add_node", "delay_ms": 1e300}',
        b'{"command": "add_node", "delay_ms": ' + b"9" * 400 + b"}",
        b'{"command": "new_generation", "delay_ms": true}',
        b'{"command": "new_generation", "delay_ms": ' + b"9" * 5000 + b"}",
        b'{"command": "advance", "by_ms": 1e18}',
        b'{"command": "advance", "by_ms": -1}',
        b'{"command": "call_fault", "name": "skew_clock", "arguments": {"address": "127.0.0.1", "skew_us": 1e18}}',
        b'{"command": "call_fault", "name": "skew_clock", "arguments": {"address": "127.0.0.1", "skew_us": "1"}}',
        b'{"command": "call_fault", "name": "slow_node", "arguments": {"address": "127.0.0.1", "delay_s": 1e10}}',
        b'{"command": "call_fault", "name": "slow_node", "arguments": {"address": "127.0.0.1", "delay_s": "1"}}',
        rule(action="delay", arguments={"delay_s": -1}),
        rule(action="delay", arguments={"delay_s": None}),
        rule(action="delay", arguments={}),
        rule(action="nope", arguments={}),
        rule(action="fail", arguments={"fault": "overloaded"}),
        rule(action="cut", arguments={"rows": 0, "empty": True}),
        rule(action="cut", arguments={"rows": None, "empty": False}),
        rule(action="hold", arguments={}, times=0),
        rule(action="hold", arguments={}, probability=2),
        rule(action="cut", arguments={"rows": 1, "empty": False}, on={"kind": "prepare", "node": None}),
    ],
)
def test_a_malformed_command_is_refused_and_the_next_one_is_served(scylla: EmbeddedScylla, line: bytes) -> None:
    refused, served = raw(scylla.control_path, line + b'\n{"command": "status", "number": 5}\n').splitlines()
    assert json.loads(refused, parse_constant=str)["is_value_error"] is True
    answer = json.loads(served)
    assert (answer["number"], answer["result"]) == (5, json.loads(json.dumps(scylla.status())))
    assert (answer["result"]["faults"], len(answer["result"]["nodes"])) == ([], 2)


def test_a_clock_is_not_advanced_beyond_what_can_be_written(client: ControlClient) -> None:
    client.advance(timedelta(days=11_000))
    for _ in range(219):
        client.advance(timedelta(seconds=10**9))
    with pytest.raises(ValueError, match="cannot pass the year 9000"):
        client.advance(timedelta(seconds=10**9))
    assert client.status()["time"].startswith("899")


def test_a_client_that_dies_halfway_changes_nothing(scylla: EmbeddedScylla, client: ControlClient) -> None:
    assert raw(scylla.control_path, b'{"command": "add_node"}') == b""
    with socket.socket(socket.AF_UNIX) as gone:
        gone.connect(str(scylla.control_path))
        gone.sendall(b'{"command": "status"}\n')
    assert len(client.status()["nodes"]) == 2


def test_commands_of_several_clients_are_all_carried_out(scylla: EmbeddedScylla, client: ControlClient) -> None:
    with ThreadPoolExecutor(8) as threads:
        added = list(threads.map(lambda _: client.add_node(), range(8)))
    assert set(added) == {f"127.0.0.{number}" for number in range(3, 11)}
    assert set(scylla.contact_points) == {"127.0.0.1", "127.0.0.2", *added}


def test_only_the_owner_can_use_the_socket(scylla: EmbeddedScylla) -> None:
    path = control_path(scylla.port)
    assert scylla.control_path == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_directory_that_others_can_use_is_refused(own_directory: Path) -> None:
    (own_directory / f"rscylla-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(EmbeddedScyllaError, match="only its owner can use"):
        EmbeddedScylla(control=True).start()


def test_the_socket_goes_with_the_server_and_comes_again_with_it(own_directory: Path) -> None:
    path = own_directory / "c"
    scylla = EmbeddedScylla(control=path)
    assert scylla.control_path is None
    for _ in range(2):
        with scylla:
            assert ControlClient(path).status()["port"] == scylla.port
        assert not path.exists()
    with pytest.raises(ControlUnavailable, match=f"no server listens on the control socket '{path}'$"):
        ControlClient(path).status()


@pytest.mark.slow
def test_a_socket_of_a_killed_server_is_replaced(own_directory: Path) -> None:
    path = own_directory / "c"
    with EmbeddedScyllaProcess(control=path) as server:
        assert ControlClient(path).add_node() == server.status()["nodes"][1]["address"]
        server.kill()
        assert path.is_socket()
        with pytest.raises(ControlUnavailable, match="no server listens"):
            ControlClient(path).status()
        server.start()
        assert len(ControlClient(path).status()["nodes"]) == 1
    assert not path.exists()


@pytest.mark.slow
def test_a_new_server_removes_the_sockets_of_killed_ones(scylla: EmbeddedScylla) -> None:
    directory = control_path(scylla.port).parent
    (directory / "notes.sock").write_text("precious")
    with EmbeddedScyllaProcess(control=True) as killed, EmbeddedScyllaProcess(control=True) as living:
        dead = control_path(killed.port)
        killed.kill()
        assert dead.is_socket()
        with EmbeddedScylla(control=True) as new:
            assert not dead.exists()
            for port in (scylla.port, living.port, new.port):
                assert ControlClient.at_port(port).status()["port"] == port
    assert (directory / "notes.sock").read_text() == "precious"


@pytest.mark.parametrize("theirs", ["mode", "owner"])
def test_a_socket_in_a_directory_that_others_can_use_is_not_trusted(
    scylla: EmbeddedScylla, own_directory: Path, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = control_path(scylla.port).parent
    if theirs == "mode":
        directory.chmod(0o777)
    else:
        other = os.getuid() + 1
        directory.rename(own_directory / f"rscylla-{other}")
        monkeypatch.setattr(os, "getuid", lambda: other)
    with pytest.raises(ControlUnavailable, match="must be a directory that only its owner can use"):
        ControlClient.at_port(scylla.port).status()


@pytest.mark.parametrize("kind", ["server", "file", "directory", "long"])
def test_a_path_that_is_in_use_is_refused(scylla: EmbeddedScylla, own_directory: Path, kind: str) -> None:
    path: Any = own_directory / "used"
    match kind:
        case "server":
            path = scylla.control_path
        case "file":
            path.write_text("precious")
        case "directory":
            path = path / "missing" / "c"
        case _:
            path = own_directory / ("c" * 200)
    with pytest.raises(EmbeddedScyllaError, match="choose another path"):
        EmbeddedScylla(control=path).start()
    assert kind != "file" or path.read_text() == "precious"
    assert ControlClient.at_port(scylla.port).status()["port"] == scylla.port


def test_two_servers_are_told_apart_by_their_ports(scylla: EmbeddedScylla, client: ControlClient) -> None:
    with EmbeddedScylla(control=True) as other:
        ControlClient.at_port(other.port).add_node()
        assert (len(scylla.contact_points), len(other.contact_points)) == (2, 2)
        client.remove_node("127.0.0.2")
        assert (len(scylla.contact_points), len(other.contact_points)) == (1, 2)
        with pytest.raises(ControlUnavailable, match=rf"there are servers on port .*{other.port}"):
            ControlClient.at_port(1).status()


def test_a_server_that_does_not_answer_is_given_up(own_directory: Path) -> None:
    path = own_directory / "c"
    with EmbeddedScyllaProcess(control=path) as server:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(ControlUnavailable, match="did not answer in"):
                ControlClient(path, timeout=timedelta(seconds=0.2)).status()
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_a_server_stops_while_clients_are_connected(own_directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as idle:
        with EmbeddedScylla(control=own_directory / "c") as scylla:
            idle.connect(str(scylla.control_path))
            idle.settimeout(10)
            idle.sendall(b'{"command": "status"}\n')
            assert idle.recv(1)
        with idle.makefile("rb") as answers:
            assert answers.read().endswith(b"}\n"), "hung up on"


def test_a_server_opens_one_control_socket(scylla: EmbeddedScylla) -> None:
    with pytest.raises(EmbeddedScyllaError, match="has the control socket"):
        scylla.open_control()
