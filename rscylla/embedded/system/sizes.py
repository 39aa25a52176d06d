"""What a node tells of its data: ``system.size_estimates`` and ``system.runtime_info``, counted when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from ..cluster.node import Node
from ..cluster.topology import Cluster
from ..storage.partitions import TableStore

__all__ = ["Stores", "runtime_rows", "size_rows"]

Stores = Mapping[tuple[str, str], TableStore]
"""The data of all tables, by keyspace and name."""

_SAMPLE: Final = 100  # partitions of a range whose sizes make the mean


def size_rows(cluster: Cluster, node: Node, stores: Stores, system: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``system.size_estimates``: each user table's partitions in the node's primary ranges.

    Counts are exact, while Scylla estimates them from what has been flushed; the mean size is that of a sample.
    """
    ranges = list(_primary_ranges(cluster, node))
    for (keyspace, name), store in stores.items():
        for start, end in ranges if keyspace not in system else ():
            count, places = _within(store, start, end)
            sizes = [store.order[place].size() for place in islice(places, _SAMPLE)]
            yield {
                "keyspace_name": keyspace,
                "table_name": name,
                "range_start": str(start),
                "range_end": str(end),
                "partitions_count": count,
                "mean_partition_size": sum(sizes) // len(sizes) if sizes else 0,
            }


def _primary_ranges(cluster: Cluster, node: Node) -> Iterator[tuple[int, int]]:
    """Yield the ranges that end at the node's tokens, without their starts; the first one on the ring wraps around."""
    ring = sorted((token, each.index) for each in cluster.nodes for token in each.tokens)
    for at, (token, owner) in enumerate(ring):
        if owner == node.index:
            yield ring[at - 1][0], token


def _within(store: TableStore, start: int, end: int) -> tuple[int, Iterable[Any]]:
    """Return how many partitions a range has, and their places."""
    # No key is as great as this one, so it stands for the end of a token's partitions.
    low, high = store.order.bisect_left((start + 1,)), store.order.bisect_left((end + 1,))
    if start < end:
        return high - low, store.order.islice(low, high)
    return len(store.order) - low + high, chain(store.order.islice(low), store.order.islice(0, high))


def runtime_rows(stores: Stores, uptime_s: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``system.runtime_info``. All data is in one memtable, so to say; there is no cache."""
    partitions = [partition for store in stores.values() for partition in store.partitions.values()]
    size = sum(partition.size() for partition in partitions)
    groups: dict[str, dict[str, Any]] = {
        "generic": {
            "gossip_active": "true",
            "incremental_backup_enabled": "false",
            "load": size,
            "trace_probability": 0,
            "uptime": f"{uptime_s} seconds",
        },
        "memtable": {"entries": len(partitions), "memory_free": 0, "memory_total": size, "memory_used": size},
        "cache": dict.fromkeys(("entries", "hits", "misses", "memory_free", "memory_total", "memory_used"), 0),
    }
    for group, items in groups.items():
        for item, value in items.items():
            yield {"group": group, "item": item, "value": str(value)}
