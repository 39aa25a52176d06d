"""``QueryMetrics``: what a listener makes of the progress of queries."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException

import rscylla
from rscylla._timeuuid import format_time
from rscylla.abc import BatchProgress
from rscylla.spark.session.metrics import QueryMetrics, batch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeOptions = Callable[..., dict[str, str]]
T_US = 1_795_464_455_000_000
GENERATION_MS = 1_795_464_388_632


def source(end_us: int, **more: Any) -> dict[str, Any]:
    """Return the progress of a source, as Spark 4.3 writes it."""
    offset = {"v": 1, "log": "5e9d", "gen": GENERATION_MS, "ttl": 86_400}
    seen = {"windows_behind": 2, "streams": 16, "splits": 2}
    return {
        "description": "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@4ecc",
        "startOffset": {**offset, "t": end_us - 10_000_000},
        "endOffset": {**offset, "t": end_us},
        "latestOffset": {"v": 1, "log": "5e9d", "t": T_US, "progress": seen},
        "numInputRows": 5,
        **more,
    }


def progress(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"batchId": 3, "batchDuration": 250, "numInputRows": 99, "sources": [*sources]}


ONE = BatchProgress(
    query="q",
    batch="3",
    start_us=T_US - 30_000_000,
    watermark_us=T_US - 20_000_000,
    head_us=T_US,
    rows=5,
    seconds=0.25,
    windows_behind=2,
    generation_us=GENERATION_MS * 1000,
    streams=16,
    splits=2,
    log_ttl_s=86_400,
)


def test_a_batch_is_read_from_the_progress_of_its_source() -> None:
    given = source(T_US - 20_000_000)
    assert batch_of("q", progress(given)) == ONE
    texts = {name: json.dumps(value) if name.endswith("Offset") else value for name, value in given.items()}
    assert batch_of("q", progress(texts)) == ONE


def test_a_query_over_several_logs_is_where_the_last_of_them_is() -> None:
    ahead = source(T_US, numInputRows=7)
    ahead["endOffset"]["ttl"] = 3600
    kafka = {"description": "KafkaV2", "startOffset": None, "endOffset": {"t": {"0": 1}}, "numInputRows": 50}
    found = batch_of("q", progress(ahead, kafka, source(T_US - 20_000_000)))
    assert found.watermark_us == ONE.watermark_us
    assert (found.rows, found.streams, found.splits, found.log_ttl_s) == (12, 32, 4, 3600)


def test_what_a_version_of_spark_does_not_tell_is_not_known() -> None:
    """PySpark 4.1 does not ask the source for more than offsets."""
    found = batch_of("q", progress(source(T_US - 20_000_000, startOffset=None, latestOffset=None)))
    assert (found.watermark_us, found.generation_us, found.rows) == (ONE.watermark_us, ONE.generation_us, 5)
    assert (found.start_us, found.head_us, found.windows_behind, found.streams) == (None, None, None, None)
    first = source(T_US, startOffset=None)
    first["endOffset"]["begin"] = {"t": T_US - 1_000_000, "from": "earliest"}
    assert batch_of("q", progress(first)).start_us == T_US - 1_000_000


@pytest.mark.parametrize("end", [None, "", "null", "12", {"t": 5}, [], "not json"])
def test_other_sources_have_rows_and_nothing_else(end: object) -> None:
    found = batch_of("q", progress({"description": "rate", "endOffset": end, "numInputRows": 99}))
    assert found == BatchProgress(query="q", batch="3", rows=99, seconds=0.25)


def test_a_query_without_a_name_is_known_by_its_id_also_if_it_was_started_before() -> None:
    metrics = QueryMetrics(CollectorRegistry())
    listened = SimpleNamespace(id="id-1", runId="run-1", name=None, json=json.dumps(progress(source(T_US))))
    metrics.onQueryProgress(SimpleNamespace(progress=listened))
    metrics.onQueryTerminated(SimpleNamespace(id="id-1", runId="run-1", exception="lost"))
    assert (metrics.query("id-1").batches, metrics.query("id-1").errors) == (1, 1)


def test_a_listener_follows_a_query_through_failure_and_restart(
    spark: SparkSession, session: rscylla.Session, vnodes: str, options: MakeOptions, tmp_path: Path
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true, 'ttl': 3600}}")
    for i in range(20):
        session.execute(f"INSERT INTO {vnodes}.t (id, v) VALUES ({i}, {i})")
    last_us = max(row[0] for row in session.execute(f"SELECT writetime(v) FROM {vnodes}.t"))
    given = options(vnodes, "t", endingPosition=format_time(last_us + 1))
    registry, ended = CollectorRegistry(), threading.Semaphore(0)

    class Listener(QueryMetrics):
        def onQueryTerminated(self, event: Any) -> None:
            super().onQueryTerminated(event)
            ended.release()

    listener = Listener(registry)
    fails = iter([True])

    def take(batch: DataFrame, number: int) -> None:
        if next(fails, False):
            raise OSError("the sink is away")
        batch.collect()

    def run() -> None:
        frame = spark.readStream.format("scylla-cdc").options(**given).load()
        writer = frame.writeStream.queryName("orders").foreachBatch(take)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(600)

    spark.streams.addListener(listener)
    try:
        with pytest.raises(StreamingQueryException, match="the sink is away"):
            run()
        assert ended.acquire(timeout=60)
        run()
        assert ended.acquire(timeout=60)
    finally:
        spark.streams.removeListener(listener)

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"rscylla_query_{name}", {"query": "orders"})

    assert (value("rows_total"), value("errors_total"), value("restarts_total"), value("running")) == (20, 1, 1, 0)
    assert value("batches_total") == value("batch_seconds_count") == 1
    assert value("watermark_lag_seconds") is None, "it ended as it was meant to"
    line = listener.query("orders").line()
    assert line.startswith("query orders, batch 0: 20 rows, ")
    assert "generation 20" in line
