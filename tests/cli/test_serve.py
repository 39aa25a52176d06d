"""``rscylla serve``: a server of its own that says when it is ready, and ends when told."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

import rscylla
from rscylla.embedded import EmbeddedScylla

from .conftest import Process, Run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_it_is_told_to_stop(start: Callable[..., Process], number: int) -> None:
    server = start("serve", "--port", "0", "--json")
    ready = json.loads(server.line())
    assert ready["host"] == "127.0.0.1"
    session = rscylla.connect([ready["host"]], port=ready["port"])
    assert session.execute("SELECT key FROM system.local").one() is not None
    session.cluster.shutdown()
    assert server.end(number) == 0
    assert server.err == []


def test_says_what_it_is_for(start: Callable[..., Process]) -> None:
    server = start("serve", "--port", "0")
    assert server.line().startswith("embedded Scylla for development and tests listens on 127.0.0.1, port ")
    assert server.end(signal.SIGTERM) == 0


def test_nodes_and_users(start: Callable[..., Process], run: Run) -> None:
    server = start(*("serve", "--port", "0", "--json", "--nodes", "2", "--username", "ann", "--password", "secret"))
    ready = json.loads(server.line())
    assert ready["contact_points"] == ["127.0.0.1", "127.0.0.2"]
    with pytest.raises(rscylla.AuthenticationFailed):
        rscylla.connect([ready["host"]], port=ready["port"], username="ann", password="guessed")
    session = rscylla.connect([ready["host"]], port=ready["port"], username="ann", password="secret")
    assert len(session.cluster.metadata.all_hosts()) == 2
    session.cluster.shutdown()


def test_port_that_is_taken(run: Run) -> None:
    with EmbeddedScylla() as scylla:
        ran = run("serve", "--port", str(scylla.port))
    assert ran.code == 1
    assert f"cannot listen on 127.0.0.1 port {scylla.port}" in ran.error
    assert "choose another port" in ran.error
