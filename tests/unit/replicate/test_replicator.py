"""What a Replicator remembers of the tables."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from cassandra import ConsistencyLevel, OperationTimedOut
from cassandra.query import PreparedStatement
from fakelog import body_of, columns_of, integer, log_time, stream_id

import rscylla
from rscylla.base.statements import ChangeWriter
from rscylla.cdc.log.table import BaseColumn, LoggedTable, Table
from rscylla.cdc.rows import Layout, LogRows
from rscylla.cdc.rows.events import ChangeEvent, EventContext, changes_of
from rscylla.driver.pages import Page
from rscylla.errors import FateError
from rscylla.event import SimpleEvent
from rscylla.replicate import Replicator
from rscylla.replicate.replicator import _MOST_LAYOUTS
from rscylla.testing import ScriptedFate

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


def test_tables_are_read_again_once_after_a_failure() -> None:
    replicator, layout = Looking(), a_layout()
    with pytest.raises(rscylla.QueryTimeout):
        replicator._writer(layout)
    assert replicator._writer(layout) is replicator._writer(layout)
    assert replicator.looks == 2


def test_old_layouts_are_forgotten() -> None:
    replicator = Looking()
    with pytest.raises(rscylla.QueryTimeout):
        replicator._writer(a_layout())
    kept = set()
    for _ in range(10 * _MOST_LAYOUTS):
        replicator._writer(a_layout())
        kept.add(len(replicator._writers))
    assert max(kept) == _MOST_LAYOUTS


def an_event(layout: Layout) -> ChangeEvent:
    row = {"cdc$stream_id": stream_id(5), "cdc$time": log_time(1_700_000_000_000_000), "cdc$operation": b"\x02"}
    cells = [row.get(c.name) or integer(1) for c in layout.columns if c.name != "cdc$ttl"]
    cells.insert([c.name for c in layout.columns].index("cdc$ttl"), None)
    rows = LogRows()
    rows.add(Page(layout.columns, body_of([cells]), 0, None), layout)
    [event] = changes_of(rows, EventContext(0))
    return event


def test_the_stop_of_the_run_ends_the_attempts_to_write() -> None:
    """The cursor stays before the change, which is delivered again."""

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


def test_events_that_are_not_changes_are_refused() -> None:
    with pytest.raises(rscylla.ConfigError, match="granularity='change'"):
        Looking()(SimpleEvent("e1"), rscylla.Run("copy"))


def test_all_threads_that_wait_for_the_schema_get_the_error_of_the_one_that_reads_it() -> None:
    class Asked(Looking):
        def prepare(self, keyspace: str, table: str) -> Table:
            [self.waiting] = self._writers.values()
            return super().prepare(keyspace, table)

    replicator = Asked()
    with pytest.raises(rscylla.QueryTimeout) as caught:
        replicator._writer(a_layout())
    assert replicator.waiting.exception(timeout=0) is caught.value


def test_a_failure_does_not_remove_the_newer_writer_of_another_thread() -> None:
    layout, other = a_layout(), Future[ChangeWriter]()

    class Overtaken(Looking):
        def prepare(self, keyspace: str, table: str) -> Table:
            self._writers.clear()
            if self.looks:
                self._writers[layout] = other
            self.looks += 1
            raise rscylla.QueryTimeout("nobody answered")

    replicator = Overtaken()
    for expected in ({}, {layout: other}):
        with pytest.raises(rscylla.QueryTimeout):
            replicator._writer(layout)
        assert replicator._writers == expected


# ---------------------------------------------------------------- the tables


class Answer:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def add_callbacks(self, callback: Any, _errback: Any) -> None:
        callback(self._rows)

    def result(self) -> list[Any]:
        return self._rows


class Scylla:
    """A session on a cluster with some hosts and tables, which keeps what it is sent."""

    def __init__(self, *hosts: str | None, tables: dict[tuple[str, str], str] | None = None) -> None:
        found = [SimpleNamespace(host_id=host) for host in hosts]
        self.cluster = SimpleNamespace(metadata=SimpleNamespace(all_hosts=lambda: found))
        self.tables = tables or {}
        self.created: list[str] = []
        self.sent: list[Any] = []

    def add_request_init_listener(self, _listener: Any) -> None:
        pass

    def execute_async(self, statement: Any, values: Any, **_: Any) -> Answer:
        if statement.query_string.startswith("CREATE TABLE"):
            self.created.append(statement.query_string)
            self.tables["copy", "t"] = "pk v"
            return Answer([])
        assert "system_schema.columns" in statement.query_string
        columns = self.tables.get(values, "").split()
        return Answer([(c, "partition_key" if c == "pk" else "regular", 0, "int", "none") for c in columns])

    def prepare(self, cql: str) -> Any:
        return PreparedStatement([], cql.encode(), None, cql, "copy", 4, [], None)

    def execute(self, statement: Any, **_: Any) -> None:
        self.sent.append(statement)


SOURCE = {("shop", "t"): "pk v"}


def test_the_target_has_the_name_of_the_source_or_the_one_that_is_given() -> None:
    source, target = Scylla("a", tables=SOURCE), Scylla("b", tables={("copy", "t"): "pk v", ("copy", "u"): "pk v x"})
    assert Replicator(source, target, "copy").prepare("shop", "t").full_name == "copy.t"
    assert Replicator(source, target, "copy", "u").prepare("shop", "t").full_name == "copy.u"


def test_tables_that_do_not_exist_are_named() -> None:
    replicator = Replicator(Scylla("a", tables=SOURCE), Scylla("b"), "copy")
    with pytest.raises(rscylla.TableNotFound, match=r"^there is no table shop\.u"):
        replicator.prepare("shop", "u")
    with pytest.raises(rscylla.TableNotFound, match=r"^the target table copy\.t does not exist"):
        replicator.prepare("shop", "t")


def test_a_missing_target_is_created_with_create() -> None:
    source, target = Scylla("a", tables=SOURCE), Scylla("b")
    for _ in range(2):
        table = Replicator(source, target, "copy", create=True).prepare("shop", "t")
        assert (table.full_name, [c.name for c in table.columns]) == ("copy.t", ["pk", "v"])
    assert len(target.created) == 1
    assert source.created == []


def test_a_target_that_lacks_a_column_is_refused() -> None:
    target = Scylla("b", tables={("copy", "t"): "pk"})
    with pytest.raises(rscylla.errors.CannotReplicate, match="lacks the column 'v'"):
        Replicator(Scylla("a", tables=SOURCE), target, "copy").prepare("shop", "t")


def test_sessions_that_share_a_node_are_of_one_cluster() -> None:
    tables = {**SOURCE, ("shop", "u"): "pk v", ("copy", "t"): "pk v"}
    source = Scylla("a", "b", tables=tables)
    same = Scylla("b", "c", tables=tables)
    for session in (source, same):
        with pytest.raises(rscylla.errors.CannotReplicate, match=r"shop\.t cannot be copied to itself"):
            Replicator(source, session, "shop").prepare("shop", "t")
        assert Replicator(source, session, "shop", "u").prepare("shop", "t").full_name == "shop.u"
        assert Replicator(source, session, "copy").prepare("shop", "t").full_name == "copy.t"
    bare = Scylla(tables=SOURCE)
    bare.cluster = source.cluster
    with pytest.raises(rscylla.errors.CannotReplicate):
        Replicator(source, bare, "shop").prepare("shop", "t")


def test_clusters_without_a_common_node_may_have_tables_of_the_same_name() -> None:
    """The driver knows no id of a node that it has not reached yet."""
    source, target = Scylla("a", None, tables=SOURCE), Scylla("b", None, tables=SOURCE)
    assert Replicator(source, target, "shop").prepare("shop", "t").full_name == "shop.t"


def test_changes_are_written_to_the_target_at_the_level_that_is_asked_for() -> None:
    source, target = Scylla("a", tables=SOURCE), Scylla("b", tables={("copy", "t"): "pk v"})
    replicator = Replicator(source, target, "copy", consistency="LOCAL_ONE")
    event = an_event(a_layout())
    with pytest.raises(FateError):
        replicator(event, rscylla.Run("copy", fate=ScriptedFate(at={"before_apply": FateError("struck")})))
    assert (target.sent, replicator.applied) == ([], 0)
    for _ in range(2):
        replicator(event, rscylla.Run("copy"))
    assert [s.consistency_level for s in target.sent] == [ConsistencyLevel.LOCAL_ONE] * 2
    assert all(s.prepared_statement.query_string.startswith("INSERT INTO copy.t (pk) ") for s in target.sent)
    assert (source.sent, replicator.applied) == ([], 2)


def test_columns_that_the_target_lost_with_the_source_are_left_out() -> None:
    """The change, and the table as it was read with it, are from before that."""
    base = (*BASE, ("v", "regular", "int"))
    columns = [BaseColumn(n, k, at, t) for at, (n, k, t) in enumerate(base)]
    layout = Layout.of(columns_of(base), attrs.evolve(TABLE, columns=columns))
    target = Scylla("b", tables={("copy", "t"): "pk"})
    Replicator(Scylla("a", tables={("shop", "t"): "pk"}), target, "copy")(an_event(layout), rscylla.Run("copy"))
    [statement] = target.sent
    assert statement.prepared_statement.query_string.startswith("INSERT INTO copy.t (pk) ")
