"""The pipeline helpers against the database: whatever was written, they arrive at the rows that a SELECT shows."""

from __future__ import annotations

import itertools
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import spark_history as h
from spark_history import passed

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import spark as rs
from rscylla.event import cursor_key
from rscylla.spark.pipeline.cells import cells_of
from rscylla.spark.pipeline.latest import second_of
from rscylla.spark.pipeline.merging import merge_source, table_schema
from rscylla.spark.source.shape import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning"),
    pytest.mark.usefixtures("not_compiled"),
]

NO_LAG = rscylla.StreamLag(milliseconds=0)
CONNECTION = ("contactPoints", "consistency")


def now_us() -> int:
    return rscylla.SystemClock().now_us()


def frames(spark: SparkSession, options: Callable[..., dict[str, str]], keyspace: str) -> dict[str, DataFrame]:
    return {t: spark.read.format("scylla-cdc").options(**options(keyspace, t)).load() for t in h.TABLES}


def test_latest_and_history_are_what_the_base_table_was(
    spark: SparkSession, session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    """Write times rise by a millisecond each, so that every moment of the history can be compared."""
    h.create(session, vnodes)
    rng = random.Random(1)
    start = now_us()
    times = itertools.count(start, 1_000)
    moments: dict[int, dict[str, Any]] = {}
    for cql in h.writes(rng, vnodes, 60, times, ttl=False):
        session.execute(cql)
        moments[h.time_of(cql)] = {t: h.rows_of(session, vnodes, t) for t in h.TABLES}
    passed(start + 300_000)
    for table, changes in frames(spark, options, vnodes).items():
        want = h.rows_of(session, vnodes, table)
        assert h.rows_in(rs.latest(changes)) == want
        versions = rs.history(changes).cache()
        names = sorted(versions.columns[:-3])
        dropped = ("valid_from", "valid_to", "is_current")
        with_rows = [r for r in want if not _alone(r, names, table)]
        assert h.rows_in(versions.where("is_current"), drop=dropped) == with_rows
        spans = [(row.asDict(), _us(row["valid_from"]), _us(row["valid_to"])) for row in versions.collect()]
        assert all(begin < end for _, begin, end in spans)
        for time, tables in moments.items():
            found = h.common((row for row, begin, end in spans if begin <= time < end), names)
            assert found == [r for r in tables[table] if not _alone(r, names, table)]


def _alone(row: tuple[Any, ...], names: list[str], table: str) -> bool:
    """Whether the row is a partition with only static values, which has no history."""
    return table == "t" and row[names.index("c1")] is None


def _us(moment: datetime | None) -> int:
    return (
        2**62
        if moment is None
        else (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    )


@pytest.mark.parametrize("seed", [3, 4])
def test_latest_is_the_base_table_whatever_the_order_of_write_times(
    spark: SparkSession, session: Any, options: Callable[..., dict[str, str]], vnodes: str, seed: int
) -> None:
    h.create(session, vnodes)
    rng = random.Random(seed)
    start = now_us()
    # Few different times, so that deletes and writes often have the same: then a delete wins. Two live values of one
    # time are distinguished by their bytes.
    times = iter(lambda: start + rng.randrange(60) * 1_000, None)
    for cql in h.writes(rng, vnodes, 200, times):
        session.execute(cql)
    passed(start + 50_000)
    for table, changes in frames(spark, options, vnodes).items():
        shuffled = changes.orderBy("cdc_time")  # some other order than that of the log
        assert h.rows_in(rs.latest(shuffled)) == h.rows_of(session, vnodes, table)


def test_latest_and_history_know_when_values_expire(
    spark: SparkSession, session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    h.create(session, vnodes)
    start = now_us()
    at = datetime.fromtimestamp(start // 1_000_000, UTC)

    def write(cql: str, after_ms: int, ttl: int = 0) -> None:
        session.execute(
            cql.replace("?", f"USING TIMESTAMP {start + after_ms * 1000}" + (f" AND TTL {ttl}" if ttl else ""))
        )

    write(f"INSERT INTO {vnodes}.s (k1, k2, a, b) VALUES ('row', 0x00, 1, 'x') ?", 0, 100)
    write(f"INSERT INTO {vnodes}.s (k1, k2, a) VALUES ('cell', 0x00, 1) ?", 0)
    write(f"UPDATE {vnodes}.s ? SET b = 'gone', m = m + {{'short': 1}} WHERE k1 = 'cell' AND k2 = 0x00", 1, 100)
    write(f"UPDATE {vnodes}.s ? SET m = m + {{'long': 1}} WHERE k1 = 'cell' AND k2 = 0x00", 2, 1000)
    write(f"UPDATE {vnodes}.s ? SET a = 2 WHERE k1 = 'cells' AND k2 = 0x00", 3, 100)
    passed(start + 10_000)
    changes = frames(spark, options, vnodes)["s"]

    def rows(seconds: int) -> dict[str, Any]:
        return {
            r["k1"]: (r["a"], r["b"], r["m"]) for r in rs.latest(changes, at=at + timedelta(seconds=seconds)).collect()
        }

    assert rows(50) == {
        "row": (1, "x", None),
        "cell": (1, "gone", {"short": 1, "long": 1}),
        "cells": (2, None, None),
    }
    assert rows(500) == {"cell": (1, None, {"long": 1})}
    assert rows(5000) == {"cell": (1, None, None)}
    versions = rs.history(changes, at=at + timedelta(seconds=5000)).where("k1 = 'cell'").orderBy("valid_from").collect()
    assert [(v["b"], v["m"], v["is_current"]) for v in versions] == [
        (None, None, False),
        ("gone", {"short": 1}, False),
        ("gone", {"short": 1, "long": 1}, False),
        (None, {"long": 1}, False),
        (None, None, True),
    ]
    assert [v["valid_to"] for v in versions[:-1]] == [v["valid_from"] for v in versions[1:]]
    row = rs.history(changes, at=at + timedelta(seconds=5000)).where("k1 = 'row'").collect()
    assert [(v["is_current"], v["valid_to"] - v["valid_from"] <= timedelta(seconds=100)) for v in row] == [
        (False, True)
    ]


def test_frames_that_are_none_of_changes_are_refused(spark: SparkSession) -> None:
    with pytest.raises(rscylla.ConfigError, match="no column 'cdc_operation'"):
        rs.latest(spark.range(1))
    with pytest.raises(rscylla.ConfigError, match="at=: a datetime without time zone"):
        rs.history(spark.range(1), at=datetime(2026, 1, 1))
    with pytest.raises(rscylla.ConfigError, match="at= requires an aware datetime"):
        rs.latest(spark.range(1), at="2026-01-01")  # type: ignore[arg-type]


# ---------------------------------------------------------------- tables


def drain(spark: SparkSession, stream: rscylla.Stream, store: Any, read: dict[str, str]) -> rs.Windows:
    return rs.windows(spark, stream, store, "lake", NO_LAG, rscylla.StreamToHead(), read=read)


def test_a_table_follows_its_windows(
    spark: SparkSession, session: Any, options: Callable[..., dict[str, str]], vnodes: str, tmp_path: Path
) -> None:
    h.create(session, vnodes)
    rng = random.Random(7)
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    store = MemoryCursorStore()
    path = str(tmp_path / "t")
    read = {"parallelism": "2", "consistency": "ONE"}
    table = rs.ParquetTable(spark, path, keep=1)
    assert table.cursor == ""
    with pytest.raises(rscylla.ConfigError, match="there is no table"):
        table.rows()
    version = 0
    for _ in range(2):
        start = now_us()
        for cql in h.writes(rng, vnodes, 90, itertools.count(start, 1)):
            session.execute(cql)
        passed(start + 1_000)
        for window, changes in drain(spark, stream, store, read):
            version += 1
            # What a run left that died while it wrote this version, or still writes, is not a part of it.
            left = tmp_path / "t" / f"v{version:08d}-0123456789ab" / "cells"
            left.mkdir(parents=True)
            (left / "part-0.parquet").write_bytes(b"half a file")
            assert rs.apply_changes(changes, table, window=window)
            assert not rs.apply_changes(changes, table, window=window), "a window counts once"
        assert table.cursor == window.end
        assert cursor_key(store.get_cursor("lake")) == cursor_key(window.end)
    want = h.rows_of(session, vnodes, "t")
    assert h.rows_in(table.rows()) == want
    assert h.rows_in(spark.read.parquet(table.rows_path)) == want
    there = {p.name for p in (tmp_path / "t").iterdir() if p.name.startswith("v")}
    assert there == {f"v{version:08d}-0123456789ab", Path(table.rows_path).parent.name}, "of the current version"
    assert {name[:9] for name in there} == {f"v{version:08d}"}

    start_us = window.end_us + 1
    later = h.window(window.generation, start_us, start_us + 1)
    with pytest.raises(rscylla.ConfigError, match="apply the windows in between"):
        table.apply(changes, later)
    (tmp_path / "t" / "_rscylla.json").unlink()
    with pytest.raises(rscylla.ConfigError, match=f"has the version v{version:08d}-.* of a table, but lost its"):
        table.apply(changes, later)


def test_each_task_of_a_window_is_read_once_and_to_its_end(
    spark: SparkSession, session: Any, vnodes: str, tmp_path: Path
) -> None:
    """Spark ends a Python worker, and its session with the cluster, of which it does not read all."""
    session.execute(f"CREATE TABLE {vnodes}.t (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    store, table = MemoryCursorStore(), rs.ParquetTable(spark, str(tmp_path / "t"))
    read = {"parallelism": "2", "consistency": "ONE"}

    def window(v: int) -> tuple[rs.PlannedWindow, DataFrame]:
        for pk in range(20):
            session.execute(f"INSERT INTO {vnodes}.t (pk, v) VALUES ({pk}, {v})")
        passed(now_us() + 1_000)
        with drain(spark, stream, store, read) as windows:
            found = next(windows)
            windows.save()
        return found

    first, changes = window(1)
    table.apply(changes, first)
    second, changes = window(2)
    told = tmp_path / "told"

    def noting(batches: Iterator[Any]) -> Iterator[Any]:
        name = uuid.uuid4().hex
        (told / f"{name}.begun").write_text("")
        yield from batches
        (told / f"{name}.ended").write_text("")

    told.mkdir()
    assert table.apply(changes.mapInArrow(noting, changes.schema), second)
    tasks = changes.rdd.getNumPartitions()
    assert {kind: len(list(told.glob(f"*.{kind}"))) for kind in ("begun", "ended")} == {"begun": tasks, "ended": tasks}
    assert {row["v"] for row in table.rows().collect()} == {2}


def test_a_snapshot_and_the_changes_after_it_are_the_table_while_it_is_written(
    spark: SparkSession, session: Any, vnodes: str, tmp_path: Path
) -> None:
    h.create(session, vnodes)
    session.execute(f"ALTER TABLE {vnodes}.t DROP l")
    for pk, c1, c2 in itertools.product(range(3), range(3), "xyz"):  # a snapshot takes every row for inserted
        session.execute(f"INSERT INTO {vnodes}.t (pk, c1, c2) VALUES ({pk}, {c1}, '{c2}')")
    rng = random.Random(11)
    start = now_us()
    for cql in h.writes(rng, vnodes, 100, itertools.count(start, 1), lists=False):
        session.execute(cql)
    passed(start + 1_000)

    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for cql in h.writes(rng, vnodes, 10**9, iter(now_us, None), lists=False):
                if stop.wait(0.002):
                    return
                session.execute(cql)
        except BaseException as e:  # noqa: BLE001 - shown by the test
            failures.append(e)

    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    read = {"parallelism": "2", "consistency": "ONE"}
    writer = threading.Thread(target=write)
    writer.start()
    try:
        snapshot = rs.snapshot(spark, stream, rscylla.StreamLag(seconds=1), read=read, ranges=3)
        table = rs.ParquetTable(spark, str(tmp_path / "t"))
        table.start_from(snapshot)
        with pytest.raises(rscylla.ConfigError, match="already contains a table"):
            table.start_from(snapshot)
    finally:
        stop.set()
        writer.join()
    assert not failures
    assert h.rows_in(snapshot.rows) == h.rows_of(session, vnodes, "t")
    passed(now_us())
    store = MemoryCursorStore(cursors={"lake": snapshot.cursor})
    for window, changes in drain(spark, stream, store, read):
        table.apply(changes, window)
        with_base = rs.latest(changes, base=snapshot.cells)
    want = h.rows_of(session, vnodes, "t")
    assert h.rows_in(table.rows()) == want
    assert h.rows_in(with_base) == want


def test_a_snapshot_with_a_list_says_what_it_cannot_be(spark: SparkSession, session: Any, vnodes: str) -> None:
    h.create(session, vnodes)
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    snapshot = rs.snapshot(spark, stream, NO_LAG)
    with pytest.raises(rscylla.ConfigError, match="the non-frozen list 'l'"):
        _ = snapshot.cells
    assert rs.snapshot(spark, stream, NO_LAG, columns=["a", "s"]).rows.columns == ["pk", "c1", "c2", "a", "s"]
    with pytest.raises(rscylla.ConfigError, match="no column 'x'"):
        rs.snapshot(spark, stream, NO_LAG, columns=["x"])


# ---------------------------------------------------------------- tables with MERGE


def test_what_is_merged_into_a_table_keeps_it_the_base_table(spark: SparkSession, session: Any, vnodes: str) -> None:
    """No format with MERGE is available here, so the MERGE is applied to rows in memory."""
    h.create(session, vnodes)
    rng = random.Random(17)
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    store = MemoryCursorStore()
    rows: dict[tuple[Any, ...], Any] = {}
    dropped = 0
    for number in range(2):
        start = now_us()
        for cql in h.writes(rng, vnodes, 90, itertools.count(start, 1)):
            session.execute(cql)
        passed(start + 1_000)
        for _, changes in drain(spark, stream, store, {"parallelism": "1", "consistency": "ONE"}):
            shape = Shape.of(changes)
            schema = table_schema(shape)
            for _ in range(1 + number):  # once more: the process died before it noted that the window is in
                table = spark.createDataFrame(list(rows.values()), schema)
                source = merge_source(table, cells_of(changes, shape), shape, second_of(None)).collect()
                assert len({tuple(r[n] for n in shape.key_names) for r in source}) == len(source), "MERGE wants it so"
                for row in source:
                    key = tuple(row[n] for n in shape.key_names)
                    if row["cdc$keep"]:
                        rows[key] = [row[n] for n in schema.names]
                    else:
                        dropped += rows.pop(key, None) is not None
        table = spark.createDataFrame(list(rows.values()), schema)
        want = h.rows_of(session, vnodes, "t")
        columns = [c.name for c in (*shape.keys, *shape.values)]
        assert h.rows_in(table.where("cdc_live").select(*columns)) == want
    assert dropped


def test_a_table_that_cannot_merge_is_reported(
    spark: SparkSession, session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    h.create(session, vnodes)
    session.execute(f"INSERT INTO {vnodes}.s (k1, k2, a) VALUES ('x', 0x00, 1)")
    changes = frames(spark, options, vnodes)["s"]
    window = h.window(0, 0, 1)
    spark.sql(f"CREATE DATABASE {vnodes}")
    try:
        with pytest.raises(rscylla.ConfigError, match=r"does not exist; set the format"):
            rs.MergeTable(spark, f"{vnodes}.a").apply(changes, window)
        with pytest.raises(rscylla.ConfigError, match=r"not have the format 'hudi'.*start the session"):
            rs.MergeTable(spark, f"{vnodes}.a", using="hudi").apply(changes, window)
        with pytest.raises(rscylla.ConfigError, match=r"does not support MERGE.*ParquetTable"):
            rs.apply_changes(changes, rs.MergeTable(spark, f"{vnodes}.b", using="parquet"), window=window)
        spark.sql(f"CREATE TABLE {vnodes}.c (x int) USING parquet")
        with pytest.raises(rscylla.ConfigError, match="not created by rscylla"):
            rs.MergeTable(spark, f"{vnodes}.c").apply(changes, window)
        assert not spark.catalog.tableExists(f"{vnodes}.a")
    finally:
        spark.sql(f"DROP DATABASE {vnodes} CASCADE")


# ---------------------------------------------------------------- the way back


def test_changes_written_back_are_the_same_table_again(
    spark: SparkSession, session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    copy = vnodes + "_copy"
    session.execute(
        f"CREATE KEYSPACE {copy} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}}"
    )
    try:
        h.create(session, vnodes)
        h.create(session, copy)
        rng = random.Random(13)
        start = now_us()
        for cql in h.writes(rng, vnodes, 150, itertools.count(start, 1)):
            session.execute(cql)
        passed(start + 1_000)
        cells = {"t": "writetime(a), writetime(s)", "s": "writetime(a), writetime(b)", "e": "writetime(a)"}
        for table, changes in frames(spark, options, vnodes).items():
            source = options(vnodes, table)
            target = {n: source[n] for n in CONNECTION} | {"keyspace": copy, "table": table}
            shuffled = changes.orderBy("cdc_time")
            assert rs.ScyllaTable(target).write(shuffled) == changes.count()
            assert rs.apply_changes(changes, rs.ScyllaTable(target), window=h.window(0, 0, 1))
            assert h.rows_of(session, copy, table) == h.rows_of(session, vnodes, table)
            times = f"SELECT {cells[table]} FROM {{}}.{table}"
            assert list(session.execute(times.format(copy))) == list(session.execute(times.format(vnodes)))
    finally:
        session.execute(f"DROP KEYSPACE {copy}")


def test_a_sink_refuses_options_of_a_reader() -> None:
    with pytest.raises(rscylla.ConfigError, match="writes all that it gets, so it has no option 'mode'"):
        rs.ScyllaTable({"contactPoints": "127.0.0.1", "keyspace": "k", "table": "t", "mode": "changes"})
