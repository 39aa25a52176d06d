"""``system.size_estimates`` and ``system.runtime_info``: what a node tells of its data."""

from __future__ import annotations

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import Unauthorized

ESTIMATES = "SELECT * FROM system.size_estimates WHERE keyspace_name = 'ks' AND table_name = 't'"


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_nodes_estimates_together_cover_the_ring_once(nodes: int) -> None:
    box = EngineBox(nodes=nodes)
    box.run("CREATE TABLE t (k int PRIMARY KEY, v text)")
    for k in range(200):
        box.run("INSERT INTO t (k, v) VALUES (?, 'v')", [k])
    tokens = box.column("SELECT token(k) FROM t")
    ends: list[int] = []
    for node in box.cluster.nodes:
        rows = box.rows(ESTIMATES, node=node.index)
        assert {row["range_end"] for row in rows} == {str(token) for token in node.tokens}
        for row in rows:
            low, high = int(row["range_start"]), int(row["range_end"])
            inside = [t for t in tokens if (low < t <= high if low < high else t > low or t <= high)]
            assert row["partitions_count"] == len(inside)
            assert (row["mean_partition_size"] > 0) == bool(inside)
            ends.append(high)
    assert len(ends) == len(set(ends)) == sum(len(node.tokens) for node in box.cluster.nodes)


def test_estimates_follow_the_data_and_leave_out_system_tables() -> None:
    box = EngineBox()
    box.run("CREATE TABLE t (k int PRIMARY KEY, m map<int, text>) WITH cdc = {'enabled': true}")
    count = (
        "SELECT sum(partitions_count) AS n FROM system.size_estimates WHERE keyspace_name = 'ks' AND table_name = '{}'"
    )
    assert box.row(count.format("t"))["n"] == 0
    elements = ", ".join(f"{n}: 'long'" for n in range(100))
    box.run(f"INSERT INTO t (k, m) VALUES (1, {{{elements}}})")
    assert box.row(count.format("t"))["n"] == box.row(count.format("t_scylla_cdc_log"))["n"] == 1
    assert max(box.column("SELECT mean_partition_size FROM system.size_estimates")) > 400
    box.run("TRUNCATE t")
    assert box.row(count.format("t"))["n"] == 0
    assert box.column("SELECT DISTINCT keyspace_name FROM system.size_estimates") == ["ks"]


def test_runtime_info_tells_of_data_and_time() -> None:
    box = EngineBox()
    box.run("CREATE TABLE t (k int PRIMARY KEY, v text)")
    item = "SELECT value FROM system.runtime_info WHERE group = '{}' AND item = '{}'"
    for k in range(10):
        box.run("INSERT INTO t (k, v) VALUES (?, 'v')", [k])
    box.clock.advance(90)
    assert {"generic", "memtable", "cache"} == set(box.column("SELECT DISTINCT group FROM system.runtime_info"))
    assert box.column(item.format("memtable", "entries")) == ["10"]
    assert int(box.column(item.format("memtable", "memory_used"))[0]) > 0
    assert int(box.column(item.format("generic", "load"))[0]) > 0
    (uptime,) = box.column(item.format("generic", "uptime"))
    assert uptime == "90 seconds"
    assert box.column(item.format("generic", "gossip_active")) == ["true"]


@pytest.mark.parametrize("table", ["size_estimates", "runtime_info"])
def test_neither_can_be_written(table: str) -> None:
    with pytest.raises(Unauthorized):
        EngineBox().run(f"TRUNCATE system.{table}")
