"""An engine without a server around it that is kept in a directory, and its whole state as values to compare."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from rscylla.embedded import ManualClock
from rscylla.embedded.cluster.topology import Cluster
from rscylla.embedded.durability.durable import COMPACT_BYTES, Durable
from rscylla.embedded.engine.engine import Engine
from rscylla.embedded.result import QueryParams, RowsResult
from rscylla.embedded.storage.packed import PackedPartition

REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
START_US = 1_795_000_000_000_000


class Kept:
    """An engine on a driven clock that is kept in a directory."""

    def __init__(
        self,
        path: Path,
        clock: ManualClock | None = None,
        *,
        compact_bytes: int = COMPACT_BYTES,
        skip_broken: bool = False,
    ) -> None:
        self.clock = clock or ManualClock(START_US)
        self.cluster = Cluster(2, clock=self.clock, seed=3)
        self.engine = Engine(self.cluster, self.clock)
        self.durable = Durable(path, self.engine, compact_bytes=compact_bytes, skip_broken=skip_broken)
        self.durable.open()
        if clock is None:
            self.clock.advance(60)  # writes are not at the very edge of the first generation

    def run(self, text: str) -> list[bytes]:
        result = self.engine.query(text, (), QueryParams(keyspace="ks", node=self.cluster.nodes[0].index))
        return list(result.rows) if isinstance(result, RowsResult) else []

    def create(self, columns: str = "k int PRIMARY KEY, v text", cdc: str = "{'enabled': true}") -> None:
        self.run(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
        self.run(f"CREATE TABLE ks.t ({columns}) WITH cdc = {cdc}")

    def reopened(self, path: Path | None = None) -> Kept:
        """Return another engine on what is in the directory, or in a copy of it."""
        self.durable.close()
        return Kept(path or self.durable.path, self.clock)

    def state(self) -> Any:
        """Return all that an engine and its cluster hold, as values that can be compared."""
        self.engine.writer.sweep()
        stores = {place: _store_state(store) for place, store in self.engine.stores.items()}
        keyspaces = {
            name: (k.options, k.tablets, dict(k.tables), dict(k.types))
            for name, k in self.engine.schema.keyspaces.items()
        }
        return self.cluster.state(), self.engine.schema.version, keyspaces, stores


def _store_state(store: Any) -> Any:
    out = []
    for partition in store.scan():
        if isinstance(partition, PackedPartition):
            out.append((partition.key, list(partition.entries(0, len(partition)))))
        elif len(partition) or partition.static or partition.ranges:
            rows = dict(partition.entries())
            # A column whose edits have all been undone leaves no trace that a read could see.
            out.append((partition.key, partition.tombstone, rows, partition.static, partition.ranges.as_list()))
    return copy.deepcopy(out)


def last_log(path: Path) -> Path:
    return max(path.glob("log-*.rsc"))
