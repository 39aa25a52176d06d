"""``follow``: the table, the checkpoint, and the base table, whatever fails in between."""

from __future__ import annotations

import itertools
import random
import shutil
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import spark_history as h
from prometheus_client import CollectorRegistry
from pyspark.errors import IllegalArgumentException
from spark_formats import TableFormat
from spark_oracle import events_of
from sparkapps import SPARK_GAVE_UP, wait_until

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import spark as rs
from rscylla.errors import SparkFailed
from rscylla.event import EventID, LogMark, cursor_key
from rscylla.spark.loops.follow import _check_agree, _check_log
from rscylla.spark.source.checkpoint import Batch, Checkpoint
from rscylla.spark.source.offsets import Offset
from rscylla.spark.source.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeOptions = Callable[..., dict[str, str]]

pytestmark = pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning")

NOW = {"availableNow": True}
LOG = "00" * 16
GIVEN = {"contactPoints": "n", "keyspace": "k", "table": "t", "lag": "30s"}


class Kept:
    """A table in memory: ids of rows, and a cursor. ``fails`` names where the next window fails, once."""

    def __init__(self) -> None:
        self.windows: list[rs.PlannedWindow] = []
        self.ids: list[int] = []
        self.cursor = ""
        self.fails = ""

    def apply(self, changes: DataFrame, window: rs.PlannedWindow) -> bool:
        self._may_fail("before")
        if cursor_key(window.end) <= cursor_key(self.cursor):
            return False
        ids = sorted(row["id"] for row in changes.select("id").collect())
        self._may_fail("between")
        self.ids += ids
        self.windows.append(window)
        self.cursor = window.end
        self._may_fail("after")
        return True

    def _may_fail(self, where: str) -> None:
        if self.fails == where:
            self.fails = ""
            raise OSError("the disk is full")


def run(spark: SparkSession, options: dict[str, str], sink: rs.Sink, checkpoint: Path) -> None:
    """Follow up to the head, also if Spark needs several tries to start the process of the source."""
    for _ in range(10):
        query = rs.follow(spark, options, sink, checkpoint=str(checkpoint), trigger=NOW)
        try:
            with rs.spark_errors():
                assert query.awaitTermination(1500)
        except rscylla.RscyllaError as e:
            if SPARK_GAVE_UP not in str(e.__cause__):
                raise
        else:
            return
        finally:
            query.stop()
    pytest.fail("Spark could not start the process of the source")


def table_of_ids(session: rscylla.Session, keyspace: str) -> Callable[..., None]:
    session.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")

    def insert(*ids: int) -> None:
        for i in ids:
            session.execute(f"INSERT INTO {keyspace}.t (id) VALUES ({i})")
        h.passed(rscylla.SystemClock().now_us())

    return insert


def test_a_table_is_followed_over_failures_and_a_deleted_checkpoint(
    spark: SparkSession, session: rscylla.Session, vnodes: str, options: MakeOptions, tmp_path: Path
) -> None:
    insert = table_of_ids(session, vnodes)
    given = options(vnodes, "t", windowSpan="1s", maxWindowsPerTrigger="5", parallelism="1")
    table, written, checkpoint = Kept(), itertools.count(), tmp_path / "checkpoint"
    for fails in ("between", "before", "after"):
        insert(*itertools.islice(written, 4))
        table.fails = fails
        with pytest.raises(SparkFailed):
            run(spark, given, table, checkpoint)
    insert(*itertools.islice(written, 4))
    run(spark, given, table, checkpoint)
    assert cursor_key(rs.checkpoint_cursor(spark, str(checkpoint))) == cursor_key(table.cursor)
    restored = table.windows[0].end
    shutil.rmtree(checkpoint)
    insert(*itertools.islice(written, 4))
    run(spark, given, table, checkpoint)
    assert table.ids == list(range(20)), "each once, in order"
    ends, starts = [w.end for w in table.windows[:-1]], [w.start for w in table.windows[1:]]
    assert [cursor_key(c) for c in ends] == [cursor_key(c) for c in starts]
    assert len({w.name for w in table.windows}) == len(table.windows) > 2

    # A service goes on from the table, and so do windows; the query skips what they did.
    insert(20, 21)
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    assert [e.key["id"] for e in events_of(stream, table.cursor)] == [20, 21]
    store = MemoryCursorStore(cursors={"lake": table.cursor})
    read = {"parallelism": "1", "consistency": "ONE"}
    lag = rscylla.StreamLag(milliseconds=0)
    for window, changes in rs.windows(spark, stream, store, "lake", lag, rscylla.StreamToHead(), read=read):
        table.apply(changes, window)
    insert(22)
    run(spark, given, table, checkpoint)
    assert table.ids == list(range(23))

    table.cursor = restored
    with pytest.raises(rscylla.ConfigError, match="begins at the table's cursor"):
        run(spark, given, table, checkpoint)


def test_a_query_whose_table_gets_a_column_ends_and_has_it_after_it_was_started_again(
    spark: SparkSession, session: rscylla.Session, vnodes: str, options: MakeOptions, tmp_path: Path
) -> None:
    insert = table_of_ids(session, vnodes)
    given = options(vnodes, "t", parallelism="1")
    table, checkpoint = rs.ParquetTable(spark, str(tmp_path / "t")), tmp_path / "checkpoint"
    insert(1)
    query = rs.follow(spark, given, table, checkpoint=str(checkpoint))
    try:
        wait_until(lambda: table.cursor or not query.isActive, "the first batch is not done")
        session.execute(f"ALTER TABLE {vnodes}.t ADD late int")
        session.execute(f"INSERT INTO {vnodes}.t (id, late) VALUES (2, 5)")
        with (
            pytest.raises(rscylla.errors.SchemaChanged, match="has a new column 'late'; start the query again"),
            rs.spark_errors(),
        ):
            query.awaitTermination(1500)
    finally:
        query.stop()
    h.passed(rscylla.SystemClock().now_us())
    run(spark, given, table, checkpoint)
    assert h.rows_in(table.rows()) == h.rows_of(session, vnodes, "t")


def test_a_query_that_fails_beside_another_starts_again_and_both_have_all_rows(
    spark: SparkSession, session: rscylla.Session, vnodes: str, options: MakeOptions, tmp_path: Path
) -> None:
    insert = table_of_ids(session, vnodes)
    session.execute(f"CREATE TABLE {vnodes}.u (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    given = options(vnodes, "t", parallelism="1")
    shared = {name: value for name, value in given.items() if name not in ("keyspace", "table")}
    sinks = {f"{vnodes}.{table}": Kept() for table in "tu"}
    store = MemoryCursorStore()
    sinks[f"{vnodes}.t"].fails = "between"
    service = rs.follow_tables(
        spark,
        shared,
        list(sinks),
        sinks.__getitem__,
        checkpoints=str(tmp_path),
        store=store,
        registry=CollectorRegistry(),
        restarts=rscylla.Restarts(give_up="park", backoff=rscylla.Backoff(initial=timedelta(milliseconds=1))),
    )
    with service:
        for first in (0, 10):
            session.execute(f"INSERT INTO {vnodes}.u (id) VALUES ({first})")
            insert(first, first + 1)
            wanted = {f"{vnodes}.t": [0, 1, 10, 11], f"{vnodes}.u": [0, 10]}
            wait_until(
                lambda f=first, w=wanted: all(sinks[n].ids == [i for i in ids if i <= f + 1] for n, ids in w.items()),
                lambda: f"{ {name: sink.ids for name, sink in sinks.items()} } {service.facts()}",
                seconds=60,
            )
        cursors = {name: sink.cursor for name, sink in sinks.items()}
        wait_until(
            lambda: all(cursor_key(store.get_cursor(f"spark.{n}")) >= cursor_key(c) for n, c in cursors.items()),
            "the store does not get the cursors",
        )
        restarts = {lane.source: lane.restarts for lane in service.facts().lanes}
    assert restarts[f"{vnodes}.t"] >= 1
    assert service.exit_code == 0


@pytest.mark.usefixtures("not_compiled")
def test_a_table_with_merge_is_followed(
    spark: SparkSession,
    session: Any,
    vnodes: str,
    options: MakeOptions,
    tmp_path: Path,
    table_format: TableFormat,
) -> None:
    """The batches of a query belong to a copy of the session, which the table has to get along with."""
    h.create(session, vnodes)
    made = h.writes(random.Random(3), vnodes, 10**9, iter(rscylla.SystemClock().now_us, None))
    table = rs.MergeTable(spark, table_format.table(), using=table_format.name)
    given = options(vnodes, "t", parallelism="1")  # without a limit, whose batches would be many on a slow machine
    for _ in range(2):
        for cql in itertools.islice(made, 60):
            session.execute(cql)
        h.passed(written_us := rscylla.SystemClock().now_us())
        while (
            not table.cursor or EventID.parse(table.cursor).exact_us <= written_us
        ):  # PySpark 4.1 ends after each batch
            run(spark, given, table, tmp_path / "checkpoint")
        assert cursor_key(table.cursor) == cursor_key(rs.checkpoint_cursor(spark, str(tmp_path / "checkpoint")))
        shutil.rmtree(tmp_path / "checkpoint")
        assert h.rows_in(table.rows()) == h.rows_of(session, vnodes, "t")


class Noted:
    """The files of a checkpoint, without Java."""

    def __init__(self, offsets: str) -> None:
        self._offsets = offsets

    def __call__(self, _spark: Any, path: str) -> Noted:
        return self if path.endswith("/offsets") else Noted("")

    def read_text(self, _name: str) -> str:
        return self._offsets


@pytest.mark.parametrize(
    ("offsets", "told"),
    [
        ("", "is not of a query that reads one table: it has offsets of 0 sources, in format ''"),
        ("v1\n{}\n{}\n{}", "it has offsets of 2 sources, in format 'v1'"),
        ("v1\n{}\n7;8", "is not of a query of scylla-cdc; use another one"),
        ('v1\n{}\n{"v": 9}', "version 9"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_says_why(monkeypatch: pytest.MonkeyPatch, offsets: str, told: str) -> None:
    monkeypatch.setattr("rscylla.spark.source.checkpoint.has_files", lambda _spark: True)
    monkeypatch.setattr("rscylla.spark.source.checkpoint.Directory", Noted(offsets))
    with pytest.raises(rscylla.ConfigError, match=told):
        Checkpoint(None, "/data/checkpoint").batch(3)  # type: ignore[arg-type]


def test_follow_on_spark_connect_says_what_to_use_instead() -> None:
    with pytest.raises(rscylla.ConfigError, match=r"gives no access to the checkpoint; use windows\(\)"):
        rs.follow(object(), GIVEN, Kept(), checkpoint="/data/checkpoint")  # type: ignore[arg-type]


def test_a_table_of_another_log_is_refused_before_a_query_with_a_new_checkpoint_starts(
    session: rscylla.Session, vnodes: str, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "tu":
        session.execute(f"CREATE TABLE {vnodes}.{name} (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    cursors = {name: rscylla.NewStream(session, vnodes, name).cursor_at() for name in "tu"}
    monkeypatch.setattr(
        "rscylla.spark.loops.follow.Checkpoint", lambda _spark, _path: SimpleNamespace(last=lambda: None)
    )
    sink, no_session = Kept(), object()
    for followed, other in ("tu", "ut"):  # the log of the other table is newer, and older
        sink.cursor = cursors[other]
        with pytest.raises(rscylla.ConfigError, match="the table of this query has the changes of another log than"):
            rs.follow(no_session, options(vnodes, followed), sink, checkpoint="/c")  # type: ignore[arg-type]
        _check_log(cursors[followed], Options.of(options(vnodes, followed)))

    session.execute(f"DROP TABLE {vnodes}.t")
    session.execute(f"CREATE TABLE {vnodes}.t (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    again = Options.of(options(vnodes, "t"))
    with pytest.raises(rscylla.ConfigError, match="if that was dropped and created again"):
        _check_log(cursors["t"], again)
    # The node may lack the newest schema, in which the table has a log that no table has here: this is for the source.
    newer = EventID(1, 5, mark=LogMark(uuid.uuid1().bytes))
    for cursor in (newer, EventID(1, 5), EventID.row(1, b"s" * 16, uuid.uuid1().bytes, 0)):
        _check_log(str(cursor), again)
    _check_log(cursors["t"], Options.of(options(vnodes, "gone")))


def batch(start: Offset, end: Offset, *, done: bool, first: bool = False) -> Batch:
    return Batch(0 if first else 7, start, end, first, done)


def offset(us: int, chosen: str = "", generation: int = 1) -> Offset:
    return Offset(LOG, us, generation, chosen=chosen)


@pytest.mark.parametrize(
    ("last", "cursor"),
    [
        (batch(offset(5), offset(9), done=True), None),
        (batch(offset(5), offset(9), done=True), EventID(1, 9)),
        (batch(offset(5), offset(9), done=True), EventID(1, 20)),
        (batch(offset(5), offset(9), done=False), EventID(1, 5)),
        (batch(offset(5), offset(9), done=False), EventID(1, 7)),
        (batch(offset(5, generation=2), offset(9, generation=2), done=False), EventID(1, 5)),
        (batch(offset(0, "earliest"), offset(9), done=False, first=True), ""),
    ],
)
def test_a_table_that_is_not_behind_its_checkpoint_is_followed(last: Batch, cursor: EventID | None) -> None:
    _check_agree(last, None if cursor is None else str(cursor), Options.of(GIVEN), "/c")


@pytest.mark.parametrize(
    ("last", "cursor", "text"),
    [
        (batch(offset(5), offset(9), done=True), EventID(1, 8), r"continues at .*000009Z, but the table ends at .*08Z"),
        (batch(offset(5), offset(9), done=False), EventID(1, 4), "begins at the table's cursor"),
        (batch(offset(0, "earliest"), offset(9), done=True, first=True), "", "not there, or empty"),
        (batch(offset(5), offset(9), done=False), "", "not there, or empty"),
        (batch(offset(5, "given"), offset(9), done=False, first=True), "", "not there, or empty"),
        (batch(offset(5), offset(9), done=True), EventID(1, 20, mark=LogMark(b"x" * 16)), "changes of another log"),
    ],
)
def test_a_table_that_lacks_what_its_checkpoint_has_passed_is_refused(last: Batch, cursor: Any, text: str) -> None:
    with pytest.raises(rscylla.ConfigError, match=text):
        _check_agree(last, str(cursor), Options.of(GIVEN), "/c")


def test_arguments_that_spark_refuses_are_errors_that_no_restart_fixes(
    spark: SparkSession, session: rscylla.Session, vnodes: str, options: MakeOptions, tmp_path: Path
) -> None:
    table_of_ids(session, vnodes)
    given = options(vnodes, "t")
    for interval in ("banana", "-1 second", "1 month"):
        with pytest.raises(rscylla.ConfigError) as told:
            rs.follow(spark, given, Kept(), checkpoint=str(tmp_path / "a"), trigger={"processingTime": interval})
        assert str(told.value).startswith(f"trigger: {interval!r} is no interval for Spark; write a number and a unit")
        assert isinstance(told.value.__cause__, IllegalArgumentException)
    query = spark.readStream.format("rate").load().writeStream.format("noop").queryName("orders").start()
    try:
        with pytest.raises(rscylla.ConfigError, match=r"^name='orders' is that of a query that runs in this session; "):
            rs.follow(spark, given, Kept(), checkpoint=str(tmp_path / "b"), name="orders")
    finally:
        query.stop()


def test_other_modes_and_checkpoints_of_other_queries_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(rscylla.ConfigError, match="needs mode changes, not log"):
        rs.follow(spark, {**GIVEN, "mode": "log"}, Kept(), checkpoint=str(tmp_path))
    assert rs.checkpoint_cursor(spark, str(tmp_path / "none")) == ""
    query = spark.readStream.format("rate").load().writeStream.format("noop")
    query = query.option("checkpointLocation", str(tmp_path)).trigger(once=True).start()
    assert query.awaitTermination(600)
    with pytest.raises(rscylla.ConfigError, match=r"the checkpoint|not from format"):
        rs.follow(spark, GIVEN, Kept(), checkpoint=str(tmp_path))
