"""Reads a CDC log into Spark in each mode, and by a plain loop over the driver's rows; times small micro-batches."""

from __future__ import annotations

import argparse
import os
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
            spark.dataSource.register(ready_source())
            print(f"{'how':<34}{'rows/s':>10}{'seconds':>9}{'client us/row':>15}{'of ready':>10}{'server us/row':>15}")
            for name, how, more in READS:
                df = spark.read.format(how).options(**{**options, **more}).load()
                ready = 0.0
                if how != "plain-loop":
                    stored = store(df, Path(directory) / f"{len(name)}.arrow")
                    given = {"path": stored, "rows": str(args.rows), "slots": more.get("parallelism", str(args.slots))}
                    yardstick = spark.read.format("ready-batches").schema(df.schema).options(**given).load()
                    ready = report("  ready batches of its columns", yardstick, args.rows, args.repeat, server.pid)
                report(name, df, args.rows, args.repeat, server.pid, ready)
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


def report(name: str, df: Any, rows: int, repeat: int, pid: int, ready: float = 0.0) -> float:
    """Print what reading *df* costs; *ready*: the client's CPU of the yardstick. Return the client's CPU seconds."""
    best: list[float] = []
    for _ in range(repeat):
        before = client_cpu(pid)
        with timed(pid) as spent:
            df.write.format("noop").mode("overwrite").save()
        spent = [client_cpu(pid) - before, *spent]
        best = min(best, spent) if best else spent
    client, wall, _, child = best
    found = df.count()
    if found != rows:
        raise SystemExit(f"{name}: {found} rows read, {rows} written")
    share = f"{ready / client:.2f}" if ready else ""
    each = f"{1e6 * client / rows:>15.2f}{share:>10}{1e6 * child / rows:>15.2f}"
    print(f"{name:<34}{rows / wall:>10,.0f}{wall:>9.1f}{each}", flush=True)
    return client


def client_cpu(server: int) -> float:
    """Return the CPU seconds of this process and of all below it, the JVM and Spark's workers, but *server* (Linux)."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        spent[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # with children that have ended
    total, left = 0.0, [os.getpid()]
    while left:
        pid = left.pop()
        total += spent.get(pid, 0.0)
        left += [child for child in children.get(pid, ()) if child != server]
    return total


def store(df: Any, path: Path) -> str:
    """Write the first rows of *df* as Arrow batches of the schema that Spark expects, and return where."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from rscylla.cdc.batches import ROWS_A_BATCH

    schema = to_arrow_schema(df.schema, timezone="UTC")
    table = df.limit(ROWS_A_BATCH).toArrow().cast(schema).combine_chunks()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_table(table)
    return str(path)


def ready_source() -> type:
    """Return a data source whose Arrow batches are ready, so that what it costs is Spark's own."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class ReadyReader(DataSourceReader):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

        def partitions(self) -> list[InputPartition]:
            rows, slots = int(self.options["rows"]), int(self.options["slots"])
            return [InputPartition(rows * (n + 1) // slots - rows * n // slots) for n in range(slots)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import pyarrow as pa

            with pa.memory_map(self.options["path"]) as file:
                batch = pa.ipc.open_file(file).get_batch(0)
                left = partition.value
                while left:
                    yield batch.slice(0, left)
                    left -= min(left, batch.num_rows)

    class ReadySource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready-batches"

        def reader(self, schema: Any) -> ReadyReader:
            return ReadyReader(dict(self.options))

    return ReadySource


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
