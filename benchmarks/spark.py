"""Reads a CDC log into Spark in each mode, and by a plain loop over the driver's rows; times small micro-batches."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers.shapes import KEYSPACE, SHAPES, fill, timed

import rscylla
from rscylla.embedded import EmbeddedScyllaProcess
from rscylla.spark import ensure_java

TABLE = "narrow"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=200, help="rows of one batch while writing")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--slots", type=int, default=2, help="tasks of Spark at once")
    args = parser.parse_args()
    ensure_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{args.slots}]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with EmbeddedScyllaProcess() as server, tempfile.TemporaryDirectory() as directory:
        point = f"{server.contact_points[0]}:{server.port}"
        session = rscylla.connect([point])
        try:
            fill(session, SHAPES[TABLE], args.rows, batch=args.batch)
            options = {
                "contactPoints": point,
                "keyspace": KEYSPACE,
                "table": TABLE,
                "lag": "0s",
                "consistency": "ONE",
                "parallelism": str(args.slots),
            }
            spark.dataSource.register(plain_source())
            print(f"{'how':<46}{'rows/s':>12}{'seconds':>10}{'server us/row':>15}")
            for name, how, more in READS:
                df = spark.read.format(how).options(**{**options, **more}).load()
                report(name, df, args.rows, args.repeat, server.pid)
            micro_batches(spark, session, options, Path(directory))
        finally:
            session.cluster.shutdown()
            spark.stop()


READS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("the driver's rows, one partition", "plain-loop", {}),
    ("mode log, one partition", "scylla-cdc", {"mode": "log", "parallelism": "1"}),
    ("mode log", "scylla-cdc", {"mode": "log"}),
    ("mode log, four columns", "scylla-cdc", {"mode": "log", "columns": "cdc_time,cdc_operation,pk,ck"}),
    ("mode changes", "scylla-cdc", {"mode": "changes"}),
    ("mode events", "scylla-cdc", {"mode": "events"}),
)


def report(name: str, df: Any, rows: int, repeat: int, pid: int) -> None:
    best: list[float] = []
    for _ in range(repeat):
        with timed(pid) as spent:
            df.write.format("noop").mode("overwrite").save()
        best = min(best, spent) if best else spent
    wall, _, child = best
    found = df.count()
    if found != rows:
        raise SystemExit(f"{name}: {found} rows read, {rows} written")
    print(f"{name:<46}{rows / wall:>12,.0f}{wall:>10.1f}{1e6 * child / rows:>15.2f}", flush=True)


def plain_source() -> type:
    """Return the data source that one would write in ten minutes: one partition, a query a stream, tuples."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class PlainReader(DataSourceReader):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            from cassandra.cluster import Cluster

            host, _, port = self.options["contactpoints"].partition(":")
            cluster = Cluster([host], port=int(port))
            session = cluster.connect()
            log = f"{self.options['keyspace']}.{self.options['table']}_scylla_cdc_log"
            streams = session.execute("SELECT streams FROM system_distributed.cdc_streams_descriptions_v2")
            query = session.prepare(f'SELECT * FROM {log} WHERE "cdc$stream_id" = ?')
            for row in streams:
                for stream in row.streams:
                    for r in session.execute(query, (stream,)):
                        yield (bytes(r[0]), str(r[1]), r[2], *r[3:])
            cluster.shutdown()

    class PlainSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "plain-loop"

        def schema(self) -> str:
            return (
                "stream_id binary, time string, seq int, deleted_n boolean, deleted_v boolean, end_of_batch boolean, "
                "operation tinyint, ttl bigint, ck bigint, n bigint, pk int, v string"
            )

        def reader(self, schema: Any) -> PlainReader:
            return PlainReader(dict(self.options))

    return PlainSource


def micro_batches(spark: Any, session: rscylla.Session, options: dict[str, str], directory: Path) -> None:
    """Print how long a micro-batch of ten rows takes, from Spark's own progress."""
    session.execute(f"CREATE TABLE {KEYSPACE}.few (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    start = time.time()
    for i in range(400):
        session.execute(f"INSERT INTO {KEYSPACE}.few (pk) VALUES ({i})")
    end = time.time()
    span = int((end - start) * 1e6 / 40)
    windows = {
        "table": "few",
        "windowSpan": f"{span}us",
        "maxWindowsPerTrigger": "1",
        "startingPosition": iso(start),
        "endingPosition": iso(end),
    }
    df = spark.readStream.format("scylla-cdc").options(**{**options, **windows}).load()
    writer = df.writeStream.format("noop").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p.numInputRows][3:]
    print(f"\nmicro-batches of about ten rows: {len(progress)}, median milliseconds")
    for part in ("triggerExecution", "addBatch", "latestOffset", "queryPlanning", "walCommit", "commitOffsets"):
        print(f"  {part:<20}{statistics.median(p.durationMs.get(part, 0) for p in progress):>8,.0f}")


def iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1e6):06d}Z"


if __name__ == "__main__":
    main()
