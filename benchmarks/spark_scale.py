"""Spark with very much: planning with 73,728 streams and a year of log, and reading millions of rows in flat memory.

``--plan`` needs no Java: it plans batches and micro-batches of a cluster of 288 nodes, whose generations but one are
made up. ``--rows`` reads a log of so many rows, as a batch in each mode and as a query that catches up, and prints the
memory of the processes as the rows go by.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from peers.shapes import KEYSPACE, cpu_of, create_keyspace, resident
from spark import client_cpu, ready_source, store

import rscylla
from rscylla.cdc.log.topology import Generation
from rscylla.embedded import EmbeddedScyllaProcess
from rscylla.spark import ensure_java
from rscylla.spark.source.source import ScyllaCdcDataSource, StreamReader

MEGABYTE = 1 << 20
DAY_MS = 86_400_000
CLUSTER = {"nodes": 4, "shards": 72, "vnodes": 256}
"""As many streams as 288 nodes of one shard and 256 vnodes have."""
TABLETS = 32_768
KEYS = 10_000
"""The rows of the base table, each of which is written again and again: the log alone grows."""
BATCH = 200
WRITERS = 2
FIFTHS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--per-trigger", type=int, default=500_000, help="maxRowsPerTrigger of the query")
    parser.add_argument("--windows", type=int, default=20, help="the windows of the log, for maxWindowsPerTrigger=1")
    parser.add_argument("--slots", type=int, default=2, help="tasks of Spark at once")
    args = parser.parse_args()
    if args.plan:
        plan()
    if args.rows:
        with EmbeddedScyllaProcess(vnodes=16) as server:
            place = f"{server.contact_points[0]}:{server.port}"
            before, start = resident(server.pid), time.time()
            fill(place, args.rows)
            each = (resident(server.pid) - before) / args.rows
            print(f"written in {time.time() - start:,.0f} s; the server: {each:,.0f} bytes a row", flush=True)
            read(place, server.pid, args, (start, time.time()))


# ---------------------------------------------------------------- planning


def plan() -> None:
    print(f"{'':<46}{'CPU s':>8}{'partitions':>12}{'plan MB':>9}{'grown MB':>10}")
    with EmbeddedScyllaProcess(**CLUSTER) as server:
        place = f"{server.contact_points[0]}:{server.port}"
        session = rscylla.connect([place])
        create_keyspace(session)
        create_table(session, "bench.narrow")
        session.cluster.shutdown()
        for days, options in ((1, {}), (365, {}), (1, {"windowSpan": "2h"})):
            source = source_of(place, KEYSPACE, **options)
            reader = source.reader(source.schema())
            with made_up(days):
                what = ", ".join([f"{days} generations" if days > 1 else "one generation", *options])
                report(f"a batch of a year, 73,728 streams, {what}", reader.partitions)
        stream_calls(place)
    with EmbeddedScyllaProcess(tablets=True) as server:
        place = f"{server.contact_points[0]}:{server.port}"
        session = rscylla.connect([place])
        session.execute(
            "CREATE KEYSPACE tab WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
            f"AND tablets = {{'enabled': true, 'initial': {TABLETS}}}"
        )
        create_table(session, "tab.narrow")
        session.cluster.shutdown()
        source = source_of(place, "tab")
        report(f"a batch, {TABLETS:,} tablets", source.reader(source.schema()).partitions)


def source_of(place: str, keyspace: str, **more: str) -> ScyllaCdcDataSource:
    options = {"contactpoints": place, "keyspace": keyspace, "table": "narrow", "lag": "0s", "consistency": "ONE"}
    return ScyllaCdcDataSource(
        {**options, "parallelism": "16", **{name.lower(): given for name, given in more.items()}}
    )


@contextmanager
def made_up(days: int) -> Iterator[None]:
    """Let clusters have had another generation on each of the last *days* days, and a log without a TTL since then."""
    from rscylla.cdc.log.source import Source
    from rscylla.cdc.log.topology import VnodeTopology

    now_ms = time.time_ns() // 1_000_000
    generations = tuple(Generation(now_ms - 365 * DAY_MS + 365 * DAY_MS // days * day) for day in range(days))
    real = VnodeTopology.generations, VnodeTopology._read, Source.begin, Source.remaining_us

    def streams(self: VnodeTopology, generation: Generation) -> list[bytes]:
        known = real[1](self, real[0](self)[-1])
        mark = generation.time.to_bytes(8, "big")[4:]
        return [stream[:4] + mark + stream[8:] for stream in known]

    def begin(self: Source, *args: Any) -> tuple[rscylla.EventID, bool]:
        return self.start(generations[0], generations[0].start_us), False

    VnodeTopology.generations = lambda self: generations
    VnodeTopology._read = streams
    Source.begin = begin
    Source.remaining_us = lambda self, at_us: at_us
    try:
        yield
    finally:
        VnodeTopology.generations, VnodeTopology._read, Source.begin, Source.remaining_us = real


def report(what: str, partitions: Any) -> None:
    before, started = resident(os.getpid()), time.process_time()
    planned = partitions()
    pickled = sum(len(pickle.dumps(partition)) for partition in planned)
    spent, grown = time.process_time() - started, resident(os.getpid()) - before
    print(
        f"{what:<46}{spent:>8.2f}{len(planned):>12,}{pickled / MEGABYTE:>9.1f}{max(0, grown) / MEGABYTE:>10.0f}",
        flush=True,
    )


def stream_calls(place: str) -> None:
    """Print what Spark's calls of an idle query cost, and those of a micro-batch."""
    source = source_of(place, KEYSPACE, windowSpan="10s", maxRowsPerTrigger="100000")
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    idle, new, spans = [], [], []
    while len(new) < 3:
        started = time.process_time()
        end = reader.latestOffset(first, limit)
        spent = time.process_time() - started
        if end is first:
            idle.append(spent)
            time.sleep(0.01)  # as Spark does
            continue
        new.append(spent)
        started = time.process_time()
        for partition in reader.partitions(first, end):
            pickle.dumps(partition)
        spans.append(time.process_time() - started)
        first = end
    print(
        f"a query, 73,728 streams: idle latestOffset {1e6 * statistics.median(idle):.0f} us CPU; "
        f"with counted rows {1e3 * statistics.median(new):.0f} ms; partitions {1e3 * statistics.median(spans):.0f} ms",
        flush=True,
    )


# ---------------------------------------------------------------- rows


def create_table(session: rscylla.Session, name: str) -> None:
    columns = "pk int, ck bigint, v text, n bigint, PRIMARY KEY (pk, ck)"
    session.execute(f"CREATE TABLE {name} ({columns}) WITH cdc = {{'enabled': true}}")


def fill(place: str, rows: int) -> None:
    session = rscylla.connect([place])
    create_keyspace(session)
    create_table(session, "bench.narrow")
    session.cluster.shutdown()
    processes = multiprocessing.get_context("spawn")
    writers = [processes.Process(target=write, args=(place, rows, part)) for part in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        if writer.exitcode:
            raise SystemExit(writer.exitcode)


def write(place: str, rows: int, part: int) -> None:
    from cassandra.concurrent import execute_concurrent
    from cassandra.query import BatchStatement, BatchType

    session = rscylla.connect([place])
    insert = session.prepare("INSERT INTO bench.narrow (pk, ck, v, n) VALUES (?, ?, ?, ?)")

    def batches() -> Iterator[tuple[Any, None]]:
        for start in range(part * BATCH, rows, WRITERS * BATCH):
            statement = BatchStatement(BatchType.UNLOGGED)
            for i in range(start, min(rows, start + BATCH)):
                pk, ck = divmod(i % KEYS, BATCH)
                statement.add(insert, (pk, ck, f"order {i * 7919 % 1_000_003:012d}", i))
            yield statement, None

    for ok, result in execute_concurrent(session, batches(), concurrency=4, results_generator=True):
        if not ok:
            raise result
    session.cluster.shutdown()


@attrs.define
class Memory:
    """The resident memory of the driver, the JVM, and the largest of Spark's Python processes, sampled in a thread."""

    server: int
    samples: list[tuple[float, float, float]] = attrs.field(factory=list)
    end: threading.Event = attrs.field(factory=threading.Event)

    def __enter__(self) -> Memory:
        threading.Thread(target=self._sample, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end.set()

    def _sample(self) -> None:
        while not self.end.wait(0.5):
            found = {"driver": 0.0, "java": 0.0, "python": 0.0}
            for pid in client_cpu(self.server):
                try:
                    name = Path(f"/proc/{pid}/comm").read_text().strip()
                    size = resident(pid) / MEGABYTE
                except OSError:  # the process has ended
                    continue
                kind = "driver" if pid == os.getpid() else "java" if name == "java" else "python"
                found[kind] = max(found[kind], size)
            self.samples.append((found["driver"], found["java"], found["python"]))

    def fifths(self) -> str:
        """Return the most in each fifth of the time: the driver, the JVM, the largest Python process."""
        size = max(1, -(-len(self.samples) // FIFTHS))
        parts = [self.samples[at : at + size] for at in range(0, len(self.samples), size)]
        return "; ".join(
            f"{name} {' '.join(f'{max(sample[i] for sample in part):.0f}' for part in parts)}"
            for i, name in enumerate(("driver", "JVM", "Python"))
        )


def read(place: str, server: int, args: argparse.Namespace, written: tuple[float, float]) -> None:
    ensure_java()
    from pyspark.sql import SparkSession

    rscylla_options = {
        "contactPoints": place,
        "keyspace": KEYSPACE,
        "table": "narrow",
        "lag": "0s",
        "consistency": "ONE",
        "parallelism": str(args.slots),
        "endingPosition": iso(written[1]),
    }
    builder = SparkSession.builder.master(f"local[{args.slots}]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(ready_source())
    spark.dataSource.register(ScyllaCdcDataSource)
    try:
        with tempfile.TemporaryDirectory() as directory:
            for mode in ("log", "changes", "events"):
                df = spark.read.format("scylla-cdc").options(**rscylla_options, mode=mode).load()
                given = {
                    "path": store(df, Path(directory) / f"{mode}.arrow"),
                    "rows": str(args.rows),
                    "slots": str(args.slots),
                }
                ready = spark.read.format("ready-batches").schema(df.schema).options(**given).load()
                yardstick = batch(f"ready batches of mode {mode}", ready, args.rows, server)
                batch(f"mode {mode}", df, args.rows, server, yardstick)
            span_us = int((written[1] - written[0]) * 1e6 / args.windows) + 1
            for limits in (
                {"maxRowsPerTrigger": str(args.per_trigger)},
                {"windowSpan": f"{span_us}us", "maxWindowsPerTrigger": "1"},
            ):
                query(spark, {**rscylla_options, **limits}, args.rows, server, directory)
    finally:
        spark.stop()


def batch(name: str, df: Any, rows: int, server: int, yardstick: float | None = None) -> float:
    """Print what it costs to read *df*, and return the CPU seconds of the client."""
    before, before_server, started = client_cpu(server), cpu_of(server), time.perf_counter()
    observed = observation()
    with Memory(server) as memory:
        observed_df(df, observed).write.format("noop").mode("overwrite").save()
    wall = time.perf_counter() - started
    client = sum(cpu - before.get(pid, 0.0) for pid, cpu in client_cpu(server).items())
    show(name, observed.get["rows"], rows, wall, client, cpu_of(server) - before_server, memory, yardstick)
    return client


def query(spark: Any, options: dict[str, str], rows: int, server: int, directory: str) -> None:
    limit = next(name for name in options if name.startswith("max"))
    frame = spark.readStream.format("scylla-cdc").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", f"{directory}/{limit}")
    before, before_server, started = client_cpu(server), cpu_of(server), time.perf_counter()
    with Memory(server) as memory:
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
    wall = time.perf_counter() - started
    client = sum(cpu - before.get(pid, 0.0) for pid, cpu in client_cpu(server).items())
    progress = [p for p in running.recentProgress if p.numInputRows]
    sizes = sorted(p.numInputRows for p in progress)
    show(f"a query, {limit}", sum(sizes), rows, wall, client, cpu_of(server) - before_server, memory, None)
    counted = sum(p.durationMs.get("latestOffset", 0) for p in progress) / 1000
    print(
        f"    {len(sizes)} batches of {sizes[0]:,} to {sizes[-1]:,} rows (median {statistics.median(sizes):,.0f}); "
        f"latestOffset {counted:.1f} s in all"
    )


def observation() -> Any:
    from pyspark.sql import Observation

    return Observation()


def observed_df(df: Any, observed: Any) -> Any:
    from pyspark.sql import functions as f

    return df.observe(observed, f.count(f.lit(1)).alias("rows"))


def show(
    name: str,
    found: int,
    rows: int,
    wall: float,
    client: float,
    server: float,
    memory: Memory,
    yardstick: float | None,
) -> None:
    if found != rows:
        raise SystemExit(f"{name}: {found} rows read, {rows} written")
    share = "" if yardstick is None else f", {yardstick / client:.2f} of ready batches"
    print(
        f"{name}: {rows / wall:,.0f} rows/s, {1e6 * client / rows:.2f} us a row{share}, "
        f"server {1e6 * server / rows:.2f} us\n    MB: {memory.fifths()}",
        flush=True,
    )


def iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1e6):06d}Z"


if __name__ == "__main__":
    main()
