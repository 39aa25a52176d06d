"""What a Replicator remembers of the tables."""

from __future__ import annotations

from typing import Any

import pytest
from cassandra import OperationTimedOut
from fakelog import body_of, columns_of, integer, log_time, stream_id

import rscylla
from rscylla.cdc.pages import Page
from rscylla.cdc.records import ChangeEvent, EventContext, changes_of
from rscylla.cdc.rows import Layout, LogRows
from rscylla.cdc.table import BaseColumn, LoggedTable, Table
from rscylla.replicate import Replicator
from rscylla.replicate.replicator import _MOST_LAYOUTS

BASE = (("pk", "partition_key", "int"),)
TABLE = LoggedTable(
    "shop",
    "t",
    log_id=None,  # type: ignore[arg-type]
    ttl_s=0,
    enabled=True,
    preimage="false",
    postimage="false",
    columns=[BaseColumn(n, k, at, t) for at, (n, k, t) in enumerate(BASE)],
)


class Session:
    """Never asked."""

    cluster = None

    def add_request_init_listener(self, _listener: Any) -> None:
        pass


class Looking(Replicator):
    """Counts how often the tables are looked at, which fails the first time."""

    def __init__(self) -> None:
        super().__init__(Session(), Session(), "copy")
        self.looks = 0

    def prepare(self, keyspace: str, table: str) -> Table:
        self.looks += 1
        if self.looks == 1:
            raise rscylla.QueryTimeout("nobody answered")
        return Table("copy", table, ())


def a_layout() -> Layout:
    return Layout.of(columns_of(BASE), TABLE)


def test_tables_are_looked_at_again_after_a_failure_and_then_once() -> None:
    replicator, layout = Looking(), a_layout()
    with pytest.raises(rscylla.QueryTimeout):
        replicator._writer(layout)
    assert replicator._writer(layout) is replicator._writer(layout)
    assert replicator.looks == 2


def test_old_layouts_are_forgotten() -> None:
    replicator = Looking()
    with pytest.raises(rscylla.QueryTimeout):
        replicator._writer(a_layout())
    for _ in range(10 * _MOST_LAYOUTS):
        replicator._writer(a_layout())
    assert len(replicator._writers) <= _MOST_LAYOUTS


def an_event(layout: Layout) -> ChangeEvent:
    row = {"cdc$stream_id": stream_id(5), "cdc$time": log_time(1_700_000_000_000_000), "cdc$operation": b"\x02"}
    cells = [row.get(c.name) or integer(1) for c in layout.columns if c.name != "cdc$ttl"]
    cells.insert([c.name for c in layout.columns].index("cdc$ttl"), None)
    rows = LogRows()
    rows.add(Page(layout.columns, body_of([cells]), 0, None), layout)
    [event] = changes_of(rows, EventContext(0))
    return event


def test_the_stop_of_the_run_ends_the_attempts_to_write() -> None:
    """The cursor stays before the change, which comes again."""

    class Silent(Session):
        def __init__(self) -> None:
            self.asked = 0

        def prepare(self, _cql: str) -> Any:
            self.asked += 1
            raise OperationTimedOut

    class Stopping(rscylla.SystemClock):
        def wait(self, stop: rscylla.Stop, seconds: float) -> bool:
            run.stop.set()
            return stop.is_set()

    class Ready(Replicator):
        def prepare(self, keyspace: str, table: str) -> Table:
            return Table("copy", table, ())

    run, silent = rscylla.Run("copy"), Silent()
    replicator = Ready(Session(), silent, "copy", clock=Stopping())
    with pytest.raises(rscylla.Stopped):
        replicator(an_event(a_layout()), run)
    assert silent.asked == 1
