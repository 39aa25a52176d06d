"""What a running server tells of itself, as plain values that become JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from .clock import ManualClock
from .cluster.node import Node
from .cluster.topology import Cluster
from .faults.board import FaultBoard
from .wire.interfaces import Ports
from .wire.server import Server

__all__ = ["moment", "status"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(time_ms: int) -> datetime:
    """Return the aware time of *time_ms* milliseconds since the epoch."""
    return _EPOCH + timedelta(milliseconds=time_ms)


def status(cluster: Cluster, server: Server, board: FaultBoard, ports: Ports, data_dir: Path | None) -> dict[str, Any]:
    """Return the state of the server; see `EmbeddedScylla.status`. Called on the loop's thread."""
    now_us = cluster.clock.now_us()
    cluster.tablets.collect(now_us)
    return {
        "port": ports.cql,
        "shard_aware_port": ports.shard_aware,
        "version": cluster.release.given,
        "time": _text(now_us // 1000),
        "clock": "manual" if isinstance(cluster.clock, ManualClock) else "system",
        "data_dir": None if data_dir is None else str(data_dir),
        "nodes": [_node(node, server) for node in cluster.nodes],
        "generations": [
            {"time": _text(generation.time_ms), "streams": len(generation.streams)}
            for generation in cluster.generations
        ],
        "tables": [
            {
                "keyspace": table.keyspace,
                "table": table.table,
                "tablets": len(table.sets[-1].streams),
                "stream_sets": [{"time": _text(each.time_ms), "streams": len(each.streams)} for each in table.sets],
            }
            for table in cluster.tablets
        ],
        "faults": board.active(),
        "held_writes": board.held,
    }


def _node(node: Node, server: Server) -> dict[str, Any]:
    listener = server.listener(node.index)
    if listener is None:
        state = "stopped"
    elif listener.held:
        state = "stalled"
    else:
        state = "slow" if listener.delay_s else "up"
    return {
        "address": node.address,
        "host_id": str(node.host_id),
        "datacenter": node.dc,
        "rack": node.rack,
        "shards": node.shards,
        "tokens": list(node.tokens),
        "state": state,
        "delay_s": 0.0 if listener is None else listener.delay_s,
        "clock_skew_s": node.clock.skew_us / 1e6,
        # By shard; a client has at least one on each.
        "connections": [0] * node.shards if listener is None else list(listener.shard_loads),
    }


def _text(time_ms: int) -> str:
    return moment(time_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
