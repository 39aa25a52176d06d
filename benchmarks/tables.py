"""What a window costs a ``MergeTable`` of Delta Lake or Iceberg, beside ``latest`` of the same changes.

Each table is filled, compacted, and then gets windows of a few partitions. The window is stored before, because reading
the log is measured elsewhere. The installed PySpark says which formats run: Delta Lake on 4.1 and 4.2, Iceberg on 4.1.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from peers.shapes import KEYSPACE, create_keyspace
from spark import iso, latest_rows, spent_on

import rscylla
from rscylla.embedded import EmbeddedScyllaProcess
from rscylla.spark import MergeTable, PlannedWindow, ensure_java, register, with_format
from rscylla.spark.session.formats import FORMATS, pyspark_version

PER_PARTITION = 10
TOUCHED = 20
"""The partitions of a window; each gets ``PER_PARTITION`` changes."""

SMALL_FILES = {"iceberg": {"write.target-file-size-bytes": "262144"}}
"""Properties with which tables of some megabytes have more than one file."""

SMALL_FILES_OF_DELTA = {f"spark.databricks.delta.optimize.{name}FileSize": "262144" for name in ("min", "max")}
"""Delta Lake has settings of the session for this."""

ON_READ = {
    "delta": {"delta.enableDeletionVectors": "true"},
    "iceberg": {f"write.{what}.mode": "merge-on-read" for what in ("merge", "update", "delete")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    here = sorted(name for name, known in FORMATS.items() if pyspark_version() in known.jars)
    parser.add_argument("--format", choices=here, default=here[-1] if here else None)
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000, 50_000], help="rows of the tables")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    if args.format is None:
        raise SystemExit(f"no table format has a release for PySpark {pyspark_version()}; use 4.1 or 4.2")
    ensure_java()
    from pyspark.sql import SparkSession

    with EmbeddedScyllaProcess() as server, tempfile.TemporaryDirectory() as directory:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = (
            builder.config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "2g")
            .config(map=SMALL_FILES_OF_DELTA)
        )
        spark = with_format(builder, args.format, warehouse=f"{directory}/lake").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        register(spark)  # Spark does not search an editable install
        point = f"{server.contact_points[0]}:{server.port}"
        session = rscylla.connect([point])
        try:
            create_keyspace(session)
            options = {"contactPoints": point, "keyspace": KEYSPACE, "lag": "0s", "consistency": "ONE"}
            print(f"{args.format}, {TOUCHED * PER_PARTITION} changes of {TOUCHED} partitions in a window")
            print(f"{'table':<32}{'files':>6}{'latest, s':>11}{'window, s':>11}{'CPU ratio':>20}{'files replaced':>18}")
            for rows in args.rows:
                for how, more in (("", {}), (", on read", ON_READ[args.format])):
                    log = Log(spark, session, options, f"t{rows}{'r' if more else ''}", Path(directory))
                    report(f"{rows:,} rows{how}", log, args.format, more, rows, args.repeat, server.pid)
        finally:
            session.cluster.shutdown()
            spark.stop()


@attrs.define
class Log:
    """A table that is written to, and its changes as windows."""

    spark: Any
    session: rscylla.Session
    options: dict[str, str]
    table: str
    directory: Path
    _random: random.Random = attrs.field(factory=lambda: random.Random(1), init=False)
    _last_us: int = attrs.field(default=0, init=False)
    _count: int = attrs.field(default=0, init=False)

    def create(self) -> None:
        self.session.execute(
            f"CREATE TABLE {KEYSPACE}.{self.table} (pk int, ck int, v text, w bigint, PRIMARY KEY (pk, ck)) "
            "WITH cdc = {'enabled': true}"
        )

    def window(self, partitions: list[int]) -> tuple[Any, PlannedWindow]:
        """Write to each row of *partitions*; return these changes, stored, and their window."""
        start_us = time.time_ns() // 1000
        for pk in partitions:
            for ck in range(PER_PARTITION):
                text = self._random.randbytes(50).hex()
                self.session.execute(
                    f"INSERT INTO {KEYSPACE}.{self.table} (pk, ck, v, w) VALUES ({pk}, {ck}, '{text}', {self._count})"
                )
        end_us = time.time_ns() // 1000
        given = {**self.options, "table": self.table, "startingPosition": iso(start_us / 1e6)}
        found = self.spark.read.format("scylla-cdc").options(**given, endingPosition=iso(end_us / 1e6)).load()
        path = str(self.directory / f"{self.table}-{self._count}")
        found.write.parquet(path)
        cursors = [str(rscylla.EventID(0, us)) for us in (self._last_us or start_us, end_us)]
        window = PlannedWindow(0, self._last_us or start_us, end_us, *cursors)
        self._last_us, self._count = end_us, self._count + 1
        return self.spark.read.parquet(path), window

    def some(self, partitions: int) -> list[int]:
        return self._random.sample(range(partitions), TOUCHED)


def report(title: str, log: Log, of_format: str, more: Mapping[str, str], rows: int, repeat: int, server: int) -> None:
    """Print the medians of *repeat* windows after one that warms up: what they cost, and which files they replace."""
    log.create()
    catalog = FORMATS[of_format].catalog
    name = f"{catalog}.default.{log.table}"
    table = MergeTable(log.spark, name, using=of_format, properties={**SMALL_FILES.get(of_format, {}), **more})
    partitions = rows // PER_PARTITION
    table.apply(*log.window(list(range(partitions))))
    table.compact()
    path = "_metadata.file_path" if of_format == "delta" else "_file"
    files = log.spark.table(name).select(path).distinct().count()
    costs = []
    for _ in range(repeat + 1):
        changes, window = log.window(log.some(partitions))
        latest_s = spent_on(lambda changes=changes: latest_rows(changes), server)
        window_s = spent_on(lambda changes=changes, window=window: table.apply(changes, window), server)
        costs.append((latest_s, window_s, replaced(log.spark, name, of_format)))
    found = table.rows().count()
    if found != rows:
        raise SystemExit(f"{title}: the table has {found} rows")
    costs = costs[1:]
    shares = sorted(window_s / latest_s for latest_s, window_s, _ in costs)
    share = f"{statistics.median(shares):.1f} ({shares[0]:.1f}-{shares[-1]:.1f})"
    medians = [statistics.median(cost[i] for cost in costs) for i in range(3)]
    print(f"{title:<32}{files:>6}{medians[0]:>11.2f}{medians[1]:>11.2f}{share:>20}{medians[2]:>18.0f}", flush=True)


def replaced(spark: Any, name: str, of_format: str) -> int:
    """Return how many data files the last commit of the table removed."""
    if of_format == "delta":
        [last] = spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()
        return int(last["operationMetrics"].get("numTargetFilesRemoved", 0))
    [last] = spark.table(f"{name}.snapshots").orderBy("committed_at", ascending=False).limit(1).collect()
    return int(last["summary"].get("deleted-data-files", 0))


if __name__ == "__main__":
    main()
