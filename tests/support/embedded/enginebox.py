"""An engine without a server around it, for tests: statements in, Python values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rscylla.embedded.clock import ManualClock
from rscylla.embedded.cluster.topology import Cluster
from rscylla.embedded.engine.engine import Engine
from rscylla.embedded.result import UNSET, QueryParams, Result, RowsResult, SchemaChange
from rscylla.embedded.storage.packed import cut_row

START_US = 1_795_000_000_000_000

Row = dict[str, Any]


class EngineBox:
    """One engine on a driven clock, with a keyspace ``ks`` in use."""

    def __init__(self, nodes: int = 1, users: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock(START_US)
        self.cluster = Cluster(nodes, clock=self.clock, seed=7)
        # Some way behind the generation's start, so that writes are not at its very edge.
        self.clock.advance(60)
        self.engine = Engine(self.cluster, self.clock, users)
        self.events: list[SchemaChange] = []
        self.engine.schema_listeners.append(self.events.append)
        self.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        self.events.clear()

    def run(self, text: str, values: Sequence[Any] = (), **params: Any) -> Result:
        """Execute with natural Python values; ``params`` are those of ``QueryParams``."""
        prepared = self.engine.prepare(text, "ks")
        bound = [
            value if value is None or value is UNSET else spec.type.encode(value)
            for spec, value in zip(prepared.variables, values, strict=True)
        ]
        return self.engine.execute(prepared, bound, QueryParams(keyspace="ks", **params))

    def rows(self, text: str, values: Sequence[Any] = (), **params: Any) -> list[Row]:
        result = self.run(text, values, **params)
        assert isinstance(result, RowsResult)
        return decoded(result)

    def row(self, text: str, values: Sequence[Any] = (), **params: Any) -> Row:
        (only,) = self.rows(text, values, **params)
        return only

    def column(self, text: str, values: Sequence[Any] = (), **params: Any) -> list[Any]:
        """Return the values of a result with one column."""
        return [next(iter(row.values())) for row in self.rows(text, values, **params)]

    def pages(self, text: str, values: Sequence[Any] = (), *, page_size: int) -> list[list[Row]]:
        """Return all pages of a read."""
        pages: list[list[Row]] = []
        state: bytes | None = None
        while True:
            result = self.run(text, values, page_size=page_size, paging_state=state)
            assert isinstance(result, RowsResult)
            pages.append(decoded(result))
            state = result.paging_state
            if state is None:
                return pages

    def log(self, table: str = "t") -> list[Row]:
        """Return the log's rows as short dicts: ``cdc$`` left off the names, keys of the log and nulls left out."""
        out: list[Row] = []
        for row in sorted(self.rows(f"SELECT * FROM {table}_scylla_cdc_log"), key=_log_order):
            named = {name.removeprefix("cdc$"): value for name, value in row.items() if value is not None}
            out.append({n: v for n, v in named.items() if n not in ("stream_id", "time", "batch_seq_no")})
        return out


def _log_order(row: Row) -> Any:
    return (row["cdc$time"].time, row["cdc$time"].bytes, row["cdc$batch_seq_no"])


def decoded(result: RowsResult) -> list[Row]:
    return [
        {
            spec.name: None if cell is None else spec.type.decode(cell)
            for spec, cell in zip(result.columns, cut_row(row), strict=True)
        }
        for row in result.rows
    ]
