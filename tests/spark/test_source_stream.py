"""Streaming queries, end to end: every change once, over restarts, kills, new streams, and splits of tablets."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import kill_spark
import pytest
from histories import IMAGES, create, statements
from pyspark.errors import StreamingQueryException
from spark_oracle import events_of
from sparkapps import SPARK_GAVE_UP, STARTS, SparkApp, more_files, wait_until

import rscylla
from rscylla._timeuuid import format_time
from rscylla.embedded import EmbeddedScyllaProcess
from rscylla.spark.source.versions import PASSES_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

MakeOptions = Callable[..., dict[str, str]]
T = TypeVar("T")


def write(session: rscylla.Session, table: str, *, seed: int, count: int) -> None:
    for statement in statements(seed, table, count):
        session.execute(statement)


def started_until_spark_can(start: Callable[[], T]) -> T:
    for _ in range(STARTS):
        try:
            return start()
        except StreamingQueryException as e:
            if SPARK_GAVE_UP not in str(e):
                raise
    pytest.fail("Spark could not start the source's process")


def copy(spark: SparkSession, options: dict[str, str], output: Path, checkpoint: Path) -> list[dict[str, Any]]:
    """Run a query over what there is, into files; return the progress of its batches."""
    return started_until_spark_can(
        lambda: run(spark, options, checkpoint, lambda w: w.format("parquet").option("path", str(output)))
    )


def run(
    spark: SparkSession,
    options: dict[str, str],
    checkpoint: Path,
    into: Callable[[DataStreamWriter], DataStreamWriter],
) -> list[dict[str, Any]]:
    frame = spark.readStream.format("scylla-cdc").options(**options).load()
    writer = into(frame.writeStream).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    found: list[dict[str, Any]] = []
    # On PySpark 4.1, a query with this trigger ends after one batch, which may repeat one that failed. It is started
    # until nothing is left: at an end, Spark makes no batch; without one, two in a row have no rows.
    empty = 0
    for _ in range(1 if PASSES_LIMITS else 100):
        query = writer.start()
        try:
            assert query.awaitTermination(1500)
        finally:
            query.stop()
        batches = [json.loads(progress.sources[0].json) for progress in query.recentProgress]
        found += batches
        empty = 0 if any(batch["numInputRows"] for batch in batches) else empty + 1
        if not batches or (empty == 2 and "endingPosition" not in options):
            break
    return found


@pytest.mark.every_pyspark
def test_a_query_from_the_head_whose_first_batches_fail_continues_where_it_began(
    spark: SparkSession, session: rscylla.Session, vnodes: str, options: MakeOptions, tmp_path: Path
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")

    def insert(*ids: int) -> None:
        for i in ids:
            session.execute(f"INSERT INTO {vnodes}.t (id) VALUES ({i})")

    seen: list[int] = []
    failures = iter([True, True])

    def take(batch: DataFrame, number: int) -> None:
        if next(failures, False):
            raise OSError("the sink is away")
        seen.extend(row["id"] for row in batch.select("id").collect())

    given = options(vnodes, "t", startingPosition="latest", windowSpan="1ms")
    insert(1, 2, 3)
    for ids in ((4, 5), (6,)):
        with pytest.raises(StreamingQueryException, match="the sink is away"):
            started_until_spark_can(lambda: run(spark, given, tmp_path, lambda w: w.foreachBatch(take)))
        insert(*ids)
    started_until_spark_can(lambda: run(spark, given, tmp_path, lambda w: w.foreachBatch(take)))
    assert sorted(seen) == [4, 5, 6]


def ids_in(spark: SparkSession, output: Path) -> Counter[str]:
    return Counter(row["id"] for row in spark.read.parquet(str(output)).select("id").collect())


def spread(events: list[rscylla.ChangeEvent], windows: int) -> dict[str, str]:
    """Return the options by which the events come in about so many windows, and the query ends with them."""
    first, last = events[0].timestamp_us, events[-1].timestamp_us
    return {
        "windowSpan": f"{(last - first) // windows + 1}us",
        "startingPosition": format_time(first),
        "endingPosition": format_time(last + 1),
        "maxWindowsPerTrigger": "1",
    }


@pytest.mark.every_pyspark
def test_batches_windows_and_restarts_repeat_and_lose_nothing(
    spark: SparkSession, session: rscylla.Session, keyspace: str, options: MakeOptions, tmp_path: Path
) -> None:
    create(session.execute, keyspace, "t", IMAGES)
    write(session, f"{keyspace}.t", seed=11, count=150)
    stream = rscylla.NewStream(session, keyspace, "t")
    events = events_of(stream)
    output, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    windowed = options(keyspace, "t", mode="events", **spread(events, 3))
    assert len(copy(spark, windowed, output, checkpoint)) >= 3
    assert ids_in(spark, output) == Counter(e.id for e in events)

    write(session, f"{keyspace}.t", seed=12, count=50)
    given = {"parallelism": 3, "pageSize": 7, "startingPosition": "latest", "maxRowsPerTrigger": 20}
    tuned = options(keyspace, "t", mode="events", **given)
    sizes = [batch["numInputRows"] for batch in copy(spark, tuned, output, checkpoint)]
    assert len(sizes) >= 3
    assert all(size <= 20 for size in sizes)
    assert ids_in(spark, output) == Counter(e.id for e in events_of(stream))
    copy(spark, tuned, output, checkpoint)
    assert ids_in(spark, output) == Counter(e.id for e in events_of(stream))


@pytest.mark.parametrize("tablets", [False, True], ids=["vnodes", "tablets"])
def test_new_streams_inside_a_query(spark: SparkSession, options: MakeOptions, tmp_path: Path, tablets: bool) -> None:
    with own_server() as (scylla, session):
        create_keyspace(session, "ks", tablets=tablets)
        create(session.execute, "ks", "t", IMAGES)
        stream = rscylla.NewStream(session, "ks", "t")
        write(session, "ks.t", seed=21, count=40)
        for seed in (22, 23):
            if tablets:
                scylla.split_tablets("ks", "t", timedelta(0))
            else:
                scylla.new_generation(timedelta(0))
            wait_until(lambda n=seed - 20: newest_is_in_use(stream, n), "the new streams are not in use")
            write(session, "ks.t", seed=seed, count=40)
        events = events_of(stream)
        assert len({rscylla.EventID.parse(e.id).generation for e in events}) == 3
        given = {**options("ks", "t"), "contactPoints": f"{scylla.contact_points[0]}:{scylla.port}"}
        for windows in (1, 4):
            output, checkpoint = tmp_path / f"out{windows}", tmp_path / f"checkpoint{windows}"
            copy(spark, {**given, "mode": "events", **spread(events, windows)}, output, checkpoint)
            assert ids_in(spark, output) == Counter(e.id for e in events)


def newest_is_in_use(stream: rscylla.Stream, count: int) -> bool:
    """Whether there are so many generations, and the newest began a while ago by the clock that stamps writes."""
    source = stream.describe()
    return len(source.generations) >= count and source.watermark_us(0) > source.generations[-1].start_us


@contextmanager
def own_server() -> Iterator[tuple[EmbeddedScyllaProcess, rscylla.Session]]:
    with EmbeddedScyllaProcess() as scylla:
        session = rscylla.connect([f"{scylla.contact_points[0]}:{scylla.port}"])
        try:
            yield scylla, session
        finally:
            session.cluster.shutdown()


def create_keyspace(session: rscylla.Session, name: str, *, tablets: bool) -> None:
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}} "
        f"AND tablets = {{'enabled': {str(tablets).lower()}}}"
    )


# ---------------------------------------------------------------- kill -9

KILLS = int(os.environ.get("RSCYLLA_STREAM_KILLS", "4"))
WINDOWS = 1_000
"""Far more than pass before the kills, however late they come; what is left is read in one batch."""


@pytest.mark.timeout(3600)
def test_a_query_that_is_killed_writes_every_change_once(
    spark: SparkSession, session: rscylla.Session, vnodes: str, tmp_path: Path, scylla_process: EmbeddedScyllaProcess
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (pk int, ck int, PRIMARY KEY (pk, ck)) WITH cdc = {{'enabled': true}}")
    insert = session.prepare(f"INSERT INTO {vnodes}.t (pk, ck) VALUES (?, ?)")
    for i in range(2_000):
        session.execute(insert, (i % 50, i))
    events = events_of(rscylla.NewStream(session, vnodes, "t"))
    given = spread(events, WINDOWS)
    output, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    point = f"{scylla_process.contact_points[0]}:{scylla_process.port}"
    positions = [given["startingPosition"], given["endingPosition"]]
    arguments = [point, vnodes, "t", given["windowSpan"], *positions, str(output), str(checkpoint)]
    app = SparkApp(kill_spark.__file__, *arguments, evidence=tmp_path / "evidence")
    # Sometimes right after a batch was committed, sometimes in the middle of one.
    moments = [more_files(checkpoint / "commits"), more_files(checkpoint / "offsets")]
    app.run_until_done(random.Random(7), kills=KILLS, moments=moments, last=[str(WINDOWS)])
    assert ids_in(spark, output) == Counter(e.id for e in events)
    assert len(app.kills) == KILLS < len(list((checkpoint / "commits").glob("[0-9]*")))
