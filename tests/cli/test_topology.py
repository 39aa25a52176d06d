"""``rscylla topology`` on an embedded server: options, generations, clocks."""

from __future__ import annotations

from datetime import timedelta

import rscylla
from rscylla.embedded import EmbeddedScylla, ManualClock

from .conftest import Run, Shop


def test_table_generations_and_clocks_as_json(run: Run, shop: Shop) -> None:
    ran = run("topology", shop.orders, "--host", shop.host, "--json")
    assert ran.code == 0
    (found,) = ran.objects
    assert (found["keyspace"], found["table"]) == (shop.keyspace, "orders")
    assert found["cdc"] == {"enabled": True, "ttl_s": 86400, "preimage": "true", "postimage": "false"}
    (generation,) = found["generations"]
    assert (generation["state"], generation["streams"], generation["vnodes"]) == ("current", 16, 8)
    assert list(found["node_clock_skew_ms"]) == [shop.host]


def test_for_people(run: Run, shop: Shop) -> None:
    ran = run("topology", shop.orders, "--host", shop.host)
    assert ran.out[0] == f"table {shop.orders}"
    assert ran.out[1] == "cdc   enabled, ttl 86400 s, preimage true, postimage false"
    assert [line.split()[1:] for line in ran.out if "current" in line] == [["current", "16", "8"]]


def test_states_of_generations(run: Run) -> None:
    with EmbeddedScylla(shards=1, vnodes=4) as scylla:
        scylla.execute("CREATE KEYSPACE s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        scylla.execute("CREATE TABLE s.t (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
        scylla.new_generation(timedelta())
        scylla.add_node(timedelta(hours=1))
        ran = run("topology", "s.t", "--host", f"127.0.0.1:{scylla.port}", "--json")
    found = ran.objects[0]["generations"]
    assert [(g["state"], g["vnodes"], g["streams"]) for g in found] == [
        ("past", 4, 4),
        ("current", 4, 4),
        ("upcoming", 8, 8),
    ]


def now_us() -> int:
    return rscylla.SystemClock().now_us()


def test_expired_generations_are_named_so(run: Run) -> None:
    """A generation whose last rows have outlived the log's TTL cannot be read any more."""
    clock = ManualClock(now_us() - 3_600_000_000)
    with EmbeddedScylla(clock=clock) as scylla:
        scylla.execute("CREATE KEYSPACE s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        scylla.execute("CREATE TABLE s.t (id int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 60}")
        clock.advance(1)
        scylla.new_generation(timedelta())
        clock.set_us(now_us())
        ran = run("topology", "s.t", "--host", f"127.0.0.1:{scylla.port}", "--json")
    found = ran.objects[0]["generations"]
    assert [(g["state"], g["streams"]) for g in found] == [("expired", None), ("current", 16)]


def test_node_whose_clock_is_off(run: Run) -> None:
    with EmbeddedScylla(clock=ManualClock(now_us() - 3_600_000_000)) as scylla:
        scylla.execute("CREATE KEYSPACE s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        scylla.execute("CREATE TABLE s.t (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
        ran = run("topology", "s.t", "--host", f"127.0.0.1:{scylla.port}", "--json")
    (skew,) = ran.objects[0]["node_clock_skew_ms"].values()
    assert -3_660_000 < skew < -3_599_000
    assert any(line.startswith("warning: the clock of node 127.0.0.1:") for line in ran.err)


def test_streams_of_tablets_have_no_vnodes(run: Run) -> None:
    with EmbeddedScylla(tablets=True) as scylla:
        scylla.execute(
            "CREATE KEYSPACE s WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        scylla.execute("CREATE TABLE s.t (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
        scylla.split_tablets("s", "t")
        host = f"127.0.0.1:{scylla.port}"
        found = run("topology", "s.t", "--host", host, "--json").objects[0]
        shown = run("topology", "s.t", "--host", host).out
    assert found["model"] == "tablets"
    assert [(g["state"], g["streams"], g["vnodes"]) for g in found["generations"]] == [
        ("current", 2, None),
        ("upcoming", 4, None),
    ]
    assert "streams follow tablets" in shown
    assert [line.split()[1:] for line in shown if "upcoming" in line] == [["upcoming", "4", "-"]]
