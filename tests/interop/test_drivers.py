"""What drivers of other languages make of shards and tablets: a connection to each shard, and requests to replicas."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from rscylla.embedded import EmbeddedScylla

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200)]

NODES, SHARDS, TABLETS = 3, 3, 32
ROUNDS = 5
WAIT_S = 60.0


@pytest.mark.parametrize("language", ["go", "rust"])
def test_a_driver_connects_to_all_shards_and_learns_where_tablets_are(
    language: str, peer_program: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = peer_program(language)
    with EmbeddedScylla(NODES, shards=SHARDS, tablets=True) as scylla:
        told = _payloads(scylla, monkeypatch)
        replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        scylla.execute(f"CREATE KEYSPACE ks WITH replication = {replication} AND tablets = {{'initial': {TABLETS}}}")
        scylla.execute("CREATE TABLE ks.routed (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        command = [str(program), scylla.contact_points[0], str(scylla.port), "ks", "route"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                eventually(lambda: process.poll() is not None or _all_connected(scylla), WAIT_S)
                first, *later = [_payloads_of_a_round(process, told) for _ in range(ROUNDS)]
                _, errors = process.communicate(timeout=WAIT_S)
            finally:
                process.kill()
    assert (process.returncode, errors) == (0, ""), "no error, and no warning"
    assert first, "it had to be told"
    # The Rust driver takes up what it is told in the background.
    assert [] in later, "it knew all tablets that it wrote to"


def _payloads(scylla: EmbeddedScylla, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list to which every payload that tells a client of a tablet is added."""
    told: list[bytes] = []
    routing = scylla._cluster.routing

    def recorded(*arguments: Any) -> bytes | None:
        payload = routing(*arguments)
        if payload is not None:
            told.append(payload)
        return payload

    monkeypatch.setattr(scylla._cluster, "routing", recorded)
    return told


def _all_connected(scylla: EmbeddedScylla) -> bool:
    return all(all(node["connections"]) for node in scylla.status()["nodes"])


def _payloads_of_a_round(process: subprocess.Popen[str], told: list[bytes]) -> list[bytes]:
    """Let the program write to all partitions; return what it was told meanwhile."""
    assert process.stdin is not None
    assert process.stdout is not None
    told.clear()
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()
    return list(told)
