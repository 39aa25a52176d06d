"""Reads a CDC log into Spark in each mode, and by a plain loop; times small micro-batches, and tables of changes."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from peers.shapes import KEYSPACE, LAG, SHAPES, create_keyspace, fill, timed

import rscylla
from cursorstore import MemoryCursorStore
from rscylla.embedded import EmbeddedScyllaProcess
from rscylla.spark import ParquetTable, PlannedWindow, ensure_java, latest, register

TABLE = "narrow"
FEW = 40
"""The micro-batches of ten rows that are timed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=200, help="rows of one batch while writing")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--slots", type=int, default=2, help="tasks of Spark at once")
    parser.add_argument("--only", choices=("reads", "micro-batches", "tables"), help="run this part alone")
    args = parser.parse_args()
    ensure_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{args.slots}]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)  # Spark does not search an editable install
    with EmbeddedScyllaProcess() as server, tempfile.TemporaryDirectory() as directory:
        point = f"{server.contact_points[0]}:{server.port}"
        session = rscylla.connect([point])
        try:
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
            create_keyspace(session)
            if args.only in (None, "reads"):
                fill(session, SHAPES[TABLE], args.rows, batch=args.batch)
                reads(spark, session, options, Path(directory), args, server.pid)
            if args.only in (None, "micro-batches"):
                micro_batches(spark, session, options, Path(directory))
            if args.only in (None, "tables"):
                tables(spark, session, options, Path(directory), args.repeat, server.pid)
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


def reads(
    spark: Any, session: rscylla.Session, options: dict[str, str], directory: Path, args: Any, server: int
) -> None:
    """Print what a row costs in each of `READS`, and without Spark."""
    print(f"{'how':<34}{'rows/s':>10}{'client us/row':>15}{'of ready':>10}{'(spread)':>14}{'server us/row':>15}")
    for name, how, more in READS:
        df = spark.read.format(how).options(**{**options, **more}).load()
        frames = {name: df}
        if how != "plain-loop":
            stored = store(df, directory / f"{len(name)}.arrow")
            given = {"path": stored, "rows": str(args.rows), "slots": more.get("parallelism", str(args.slots))}
            yardstick = spark.read.format("ready-batches").schema(df.schema).options(**given).load()
            frames = {"  ready batches of its columns": yardstick, **frames}
        report(frames, args.rows, args.repeat, server)
    without_spark(session, args.rows, args.repeat, server)


def report(frames: dict[str, Any], rows: int, repeat: int, server: int) -> None:
    """Print the medians of what reading each of *frames* costs, and ratios of client CPU: of the first to the others.

    They are read in turns, after a read of each that starts Spark's workers, opens sessions, and warms the JVM up.
    """
    for name, df in frames.items():
        found = df.count()
        if found != rows:
            raise SystemExit(f"{name}: {found} rows read, {rows} written")
    rounds = [{name: read(df, server) for name, df in frames.items()} for _ in range(repeat)]
    first = next(iter(frames))
    for name in frames:
        wall, client, child = (statistics.median(r[name][i] for r in rounds) for i in range(3))
        shares = sorted(r[first][1] / r[name][1] for r in rounds)
        share = "" if name == first else f"{statistics.median(shares):.2f}"
        spread = "" if name == first else f"{shares[0]:.2f}-{shares[-1]:.2f}"
        each = f"{1e6 * client / rows:>15.2f}{share:>10}{spread:>14}{1e6 * child / rows:>15.2f}"
        print(f"{name:<34}{rows / wall:>10,.0f}{each}", flush=True)


def without_spark(session: rscylla.Session, rows: int, repeat: int, server: int) -> None:
    """Print what the same rows cost in this process: as events of a stream, and as windows of Arrow; read in turns."""
    ways: dict[str, Callable[[], int]] = {"no Spark: events of a stream": lambda: count_events(session)}
    for mode in ("log", "changes", "events"):
        ways[f"no Spark: windows, mode {mode}"] = partial(count_windows, session, mode)
    spent: dict[str, list[list[float]]] = {name: [] for name in ways}
    for _ in range(repeat + 1):
        for name, count in ways.items():
            with timed(server) as found:
                if (seen := count()) != rows:
                    raise SystemExit(f"{name}: {seen} rows read, {rows} written")
            spent[name].append(found)
    for name, rounds in spent.items():
        wall, client, child = (statistics.median(costs) for costs in zip(*rounds[1:], strict=True))  # one to warm up
        print(f"{name:<34}{rows / wall:>10,.0f}{1e6 * client / rows:>15.2f}{'':>24}{1e6 * child / rows:>15.2f}")


def count_events(session: rscylla.Session) -> int:
    stream = rscylla.NewStream(session, KEYSPACE, TABLE, consistency="ONE")
    client = stream("", LAG, rscylla.StreamUntil(datetime.now(UTC)))
    count = 0
    with suppress(rscylla.HeadReached):
        while True:
            count += isinstance(client.recv(), rscylla.Event)
    client.close()
    return count


def count_windows(session: rscylla.Session, mode: Any) -> int:
    stream = rscylla.NewStream(session, KEYSPACE, TABLE, consistency="ONE")
    until = rscylla.StreamUntil(datetime.now(UTC))
    loop = rscylla.windows_as_arrow(stream, MemoryCursorStore(), "benchmark", LAG, until, mode=mode)
    return sum(batch.num_rows for _, found in loop for batch in found)


def read(df: Any, server: int) -> tuple[float, float, float]:
    """Read *df*, and return the seconds that it took, and the CPU seconds of the client and of the process *server*."""
    before = client_cpu(server)
    with timed(server) as spent:
        df.write.format("noop").mode("overwrite").save()
    client = sum(cpu - before.get(pid, 0.0) for pid, cpu in client_cpu(server).items())
    return spent[0], client, spent[2]


def client_cpu(server: int) -> dict[int, float]:
    """Return the CPU seconds of this process and of each below it, the JVM and Spark's workers, but *server* (Linux).

    What a worker used that has ended is not known: Spark's daemon does not wait for it.
    """
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        spent[pid] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    found, left = {}, [os.getpid()]
    while left:
        pid = left.pop()
        found[pid] = spent.get(pid, 0.0)
        left += [child for child in children.get(pid, ()) if child != server]
    return found


def store(df: Any, path: Path) -> str:
    """Write the first rows of *df* as Arrow batches of the schema that Spark expects, and return where."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from rscylla.cdc.arrow.batches import ROWS_A_BATCH

    schema = to_arrow_schema(df.schema, timezone="UTC")
    table = df.limit(ROWS_A_BATCH).toArrow().cast(schema).combine_chunks()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_table(table)
    return str(path)


def ready_source() -> type:
    """Return a data source whose Arrow batches are ready, so that what it costs is Spark's own.

    It has as many partitions as the source that it stands for, and yields batches of as many rows. They are the first
    rows again and again, which therefore stay in the processor's caches. A stream has forty micro-batches of ten rows.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

    def batches(path: str, rows: int) -> Iterator[Any]:
        import pyarrow as pa

        with pa.memory_map(path) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
            while rows:
                yield batch.slice(0, rows)
                rows -= min(rows, batch.num_rows)

    class ReadyReader(DataSourceReader):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

        def partitions(self) -> list[InputPartition]:
            rows, slots = int(self.options["rows"]), int(self.options["slots"])
            return [InputPartition(rows * (n + 1) // slots - rows * n // slots) for n in range(slots)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            return batches(self.options["path"], partition.value)

    class ReadyStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

        def prepareForTriggerAvailableNow(self) -> None:
            pass

        def initialOffset(self) -> dict[str, int]:
            return {"batch": 0}

        def getDefaultReadLimit(self) -> Any:
            return ReadAllAvailable()

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
            return {"batch": min(start["batch"] + 1, FEW)}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            slots = int(self.options["slots"])
            return [InputPartition(10 * (n + 1) // slots - 10 * n // slots) for n in range(slots)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            return batches(self.options["path"], partition.value)

        def commit(self, end: dict[str, int]) -> None:
            pass

        def stop(self) -> None:
            pass

    class ReadySource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready-batches"

        def reader(self, schema: Any) -> ReadyReader:
            return ReadyReader(dict(self.options))

        def streamReader(self, schema: Any) -> ReadyStream:
            return ReadyStream(dict(self.options))

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
    """Print how long a micro-batch of ten rows takes, from Spark's own progress: of ready batches, and of changes."""
    session.execute(f"CREATE TABLE {KEYSPACE}.few (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    start = time.time()
    for i in range(10 * FEW):
        session.execute(f"INSERT INTO {KEYSPACE}.few (pk) VALUES ({i})")
    end = time.time()
    span = int((end - start) * 1e6 / FEW)
    options = {**options, "table": "few", "startingPosition": iso(start), "endingPosition": iso(end)}
    stored = store(spark.read.format("scylla-cdc").options(**options).load(), directory / "few.arrow")
    windows = {**options, "windowSpan": f"{span}us", "maxWindowsPerTrigger": "1"}
    changes = spark.readStream.format("scylla-cdc").options(**windows).load()
    given = {"path": stored, "slots": options["parallelism"]}
    ready = spark.readStream.format("ready-batches").schema(changes.schema).options(**given).load()
    found: list[list[Any]] = [[], []]
    for turn in range(2):
        for progress, df, name in zip(found, (ready, changes), ("ready", "changes"), strict=True):
            progress += progress_of(df, directory / f"{name}{turn}")
    print(f"\n{'micro-batches of ten rows, ms':<34}{'ready batches':>15}{'mode changes':>15}")
    for part in ("triggerExecution", "addBatch", "latestOffset", "queryPlanning", "walCommit", "commitOffsets"):
        medians = (statistics.median(p.durationMs.get(part, 0) for p in progress) for progress in found)
        print(f"  {part:<32}" + "".join(f"{median:>15,.0f}" for median in medians))


def progress_of(df: Any, checkpoint: Path) -> list[Any]:
    """Run a streaming query to its end, and return its progress with each micro-batch but the first three."""
    writer = df.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [p for p in query.recentProgress if p.numInputRows][3:]


CHANGES = 9_000
"""The changes of each of two windows of a table."""

MERGED: dict[str, tuple[str, tuple[str, ...]]] = {
    "narrow": (
        "v text, n bigint",
        ("INSERT INTO {t} (pk, ck, v, n) VALUES ({pk}, {ck}, 'order {i}', {i})", "UPDATE {t} SET n = {i} {key}"),
    ),
    "mixed": (
        "s int static, sm map<int, text> static, a int, b text, l list<int>, m map<int, text>, st set<int>, u pair",
        (
            "INSERT INTO {t} (pk, ck, a, b, m, st) VALUES ({pk}, {ck}, {i}, 'x{i}', {{{e}: 'x'}}, {{{e}, 9}})",
            "UPDATE {t} SET l = l + [{e}], m = m + {{{e}: 'x'}}, st = st - {{{e}}}, u.a = {e} {key}",
            "UPDATE {t} SET s = {i}, sm = sm + {{{e}: 'x'}} WHERE pk = {pk}",
        ),
    ),
}
"""The columns of tables besides the key, and what is written to them in turn, to 637 rows of each."""


def tables(
    spark: Any, session: rscylla.Session, options: dict[str, str], directory: Path, repeat: int, server: int
) -> None:
    """Print what a ``ParquetTable`` costs beside ``latest`` of the same changes: its first window, and the next."""
    session.execute(f"CREATE TYPE {KEYSPACE}.pair (a int, b text)")
    print(f"\n{'9,000 changes of 637 rows, CPU':<34}{'latest, s':>10}{'first window':>26}{'next window':>26}")
    for name, (columns, writes) in MERGED.items():
        table = f"{KEYSPACE}.merged_{name}"
        key = "PRIMARY KEY (pk, ck)"
        session.execute(f"CREATE TABLE {table} (pk int, ck bigint, {columns}, {key}) WITH cdc = {{'enabled': true}}")
        windows: list[PlannedWindow] = []
        frames: list[Any] = []
        for part in range(2):
            start = int(time.time() * 1e6)
            for i in range(part * CHANGES, (part + 1) * CHANGES):
                pk, ck = divmod(i * 7919 % 637, 32)
                where = f"WHERE pk = {pk} AND ck = {ck}"
                text = writes[i % len(writes)]
                session.execute(text.format(t=table, pk=pk, ck=ck, i=i, e=i % 7, key=where))
            end = int(time.time() * 1e6)
            cursors = [str(rscylla.EventID(0, us)) for us in (start if not windows else windows[-1].end_us, end)]
            windows.append(PlannedWindow(0, start, end, *cursors))
            given = {**options, "table": f"merged_{name}", "startingPosition": iso(start / 1e6)}
            df = spark.read.format("scylla-cdc").options(**given, endingPosition=iso(end / 1e6)).load()
            # Stored, because reading the log is measured above.
            df.write.parquet(str(directory / f"{name}{part}"))
            frames.append(spark.read.parquet(str(directory / f"{name}{part}")))
        found: list[list[float]] = []
        for turn in range(repeat + 1):
            kept = ParquetTable(spark, str(directory / f"merged_{name}{turn}"))
            steps = (
                partial(latest_rows, frames[0]),
                partial(kept.apply, frames[0], windows[0]),
                partial(kept.apply, frames[1], windows[1]),
            )
            found.append([spent_on(step, server) for step in steps])
        shares = [sorted(turn[step] / turn[0] for turn in found[1:]) for step in (1, 2)]  # the first turn warms up
        printed = (f"{statistics.median(each):>14.2f} ({each[0]:.2f}-{each[-1]:.2f})" for each in shares)
        print(f"{name:<34}{statistics.median(turn[0] for turn in found[1:]):>10.2f}" + "".join(printed), flush=True)


def latest_rows(changes: Any) -> None:
    """Build the query of ``latest`` and run it, as ``apply`` builds its own."""
    latest(changes).collect()


def spent_on(step: Any, server: int) -> float:
    """Return the CPU seconds of the client for *step*."""
    before = client_cpu(server)
    step()
    return sum(cpu - before.get(pid, 0.0) for pid, cpu in client_cpu(server).items())


def iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1e6):06d}Z"


if __name__ == "__main__":
    main()
