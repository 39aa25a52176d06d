"""``rscylla serve``: runs a server that reports when it is ready, and ends on a signal."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import rscylla
from rscylla.embedded import EmbeddedScylla

from .conftest import Process, Run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_a_signal_stops_it(start: Callable[..., Process], number: int) -> None:
    server = start("serve", "--port", "0", "--json")
    ready = json.loads(server.line())
    assert ready["host"] == "127.0.0.1"
    session = rscylla.connect([ready["host"]], port=ready["port"])
    assert session.execute("SELECT key FROM system.local").one() is not None
    session.cluster.shutdown()
    assert server.end(number) == 0
    assert server.err == []


def test_tablets(start: Callable[..., Process]) -> None:
    server = start("serve", "--port", "0", "--json", "--tablets")
    ready = json.loads(server.line())
    session = rscylla.connect([ready["host"]], port=ready["port"])
    session.execute(
        "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    )
    assert session.execute("SELECT initial_tablets FROM system_schema.scylla_keyspaces").one() == (0,)
    session.cluster.shutdown()
    server.end(signal.SIGTERM)


def test_says_what_it_is_for(start: Callable[..., Process]) -> None:
    server = start("serve", "--port", "0")
    assert server.line().startswith("embedded Scylla for development and tests listens on 127.0.0.1, port ")
    assert server.end(signal.SIGTERM) == 0


def test_nodes_and_users(start: Callable[..., Process], run: Run) -> None:
    server = start(*("serve", "--port", "0", "--json", "--nodes", "2", "--username", "ann", "--password", "secret"))
    ready = json.loads(server.line())
    assert 0 < ready["shard_aware_port"] != ready["port"] > 0
    assert ready["contact_points"] == ["127.0.0.1", "127.0.0.2"]
    with pytest.raises(rscylla.errors.AuthenticationFailed):
        rscylla.connect([ready["host"]], port=ready["port"], username="ann", password="guessed")
    session = rscylla.connect([ready["host"]], port=ready["port"], username="ann", password="secret")
    assert len(session.cluster.metadata.all_hosts()) == 2
    session.cluster.shutdown()


@pytest.mark.slow
def test_data_dir_outlives_a_kill(start: Callable[..., Process], run: Run, tmp_path: Path) -> None:
    options = ("serve", "--port", "0", "--json", "--data-dir", str(tmp_path / "data"))
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    server = start(*options)
    ready = json.loads(server.line())
    session = rscylla.connect([ready["host"]], port=ready["port"])
    session.execute(f"CREATE KEYSPACE ks WITH replication = {replication}")
    session.execute("CREATE TABLE ks.t (k int PRIMARY KEY) WITH cdc = {'enabled': true}")
    session.execute("INSERT INTO ks.t (k) VALUES (7)")
    refused = run(*options)
    assert (refused.code, "is in use by another server" in refused.error) == (1, True)
    server.kill()
    session.cluster.shutdown()

    server = start(*options, "--fsync")
    ready = json.loads(server.line())
    session = rscylla.connect([ready["host"]], port=ready["port"])
    assert [row.k for row in session.execute("SELECT k FROM ks.t")] == [7]
    assert [row.k for row in session.execute("SELECT k FROM ks.t_scylla_cdc_log")] == [7]
    session.cluster.shutdown()
    assert server.end(signal.SIGTERM) == 0


def test_says_where_the_data_is(start: Callable[..., Process], tmp_path: Path) -> None:
    server = start("serve", "--port", "0", "--data-dir", str(tmp_path))
    assert server.line().endswith(f"; data is kept in {tmp_path}; Ctrl-C stops it")
    assert server.end(signal.SIGTERM) == 0


def test_fsync_without_a_data_dir(run: Run) -> None:
    ran = run("serve", "--port", "0", "--fsync")
    assert ran.code == 2
    assert "--fsync requires --data-dir" in ran.error


@pytest.mark.parametrize("version", ["4.3", "4.4", "5.4"])
def test_tablets_of_a_version_that_has_none(run: Run, version: str) -> None:
    ran = run("serve", "--port", "0", "--tablets", "--scylla-version", version)
    assert ran.code == 2
    assert ran.error.startswith(f"error: --tablets: ScyllaDB {version} has no tablets; leave it out")


def test_data_of_another_version(run: Run, tmp_path: Path) -> None:
    with EmbeddedScylla(data_dir=tmp_path, version="5.4"):
        pass
    for option in (("--scylla-version", "6.0"), ("--tablets",)):
        ran = run("serve", "--port", "0", "--data-dir", str(tmp_path), *option)
        assert ran.code == 1
        assert "has a cluster of version 5.4, " in ran.error


def test_port_that_is_taken(run: Run) -> None:
    with EmbeddedScylla() as scylla:
        ran = run("serve", "--port", str(scylla.port))
    assert ran.code == 1
    assert f"cannot listen on 127.0.0.1 port {scylla.port}" in ran.error
    assert "choose another port" in ran.error


def test_an_internal_error_shows_its_traceback(start: Callable[..., Process]) -> None:
    """The error of a client refers to the log of the server; the log of `serve` is standard error."""
    server = start(
        "serve",
        "--port",
        "0",
        "--json",
        before="import rscylla.embedded.wire.connection as c; c.Connection._query = lambda *_: 1 / 0",
    )
    ready = json.loads(server.line())
    with pytest.raises(rscylla.ConnectionFailed, match="its log has the traceback"):
        rscylla.connect([ready["host"]], port=ready["port"])
    assert server.end(signal.SIGTERM) == 0
    assert "warning: the embedded Scylla failed on a request (opcode 0x07)" in server.err
    assert "Traceback (most recent call last):" in server.err
    assert "ZeroDivisionError: division by zero" in server.err


def test_the_password_of_a_server_is_not_for_ps(start: Callable[..., Process], run: Run, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    server = start("serve", "--port", "0", "--json", "--username", "ann", "--password-file", str(password))
    ready = json.loads(server.line())
    with pytest.raises(rscylla.errors.AuthenticationFailed):
        rscylla.connect([ready["host"]], port=ready["port"], username="ann", password="guessed")
    line = ["topology", "shop.orders", "--host", f"127.0.0.1:{ready['port']}", "--username", "ann"]
    assert run(*line, "--password-file", str(password)).code == 4  # logged in; there is no such table
    assert server.end(signal.SIGTERM) == 0
