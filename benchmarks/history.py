"""What the versions of one row cost that changed often: ``history`` beside ``latest`` of the same changes.

The changes write a value and one of five elements of a set. They are in memory before Spark works with them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from cassandra.concurrent import execute_concurrent_with_args
from pyspark.sql import SparkSession

import rscylla
from rscylla.embedded import EmbeddedScyllaProcess
from rscylla.spark import ensure_java, history, latest, register


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    ensure_java()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(spark)
    with EmbeddedScyllaProcess() as scylla:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        for count in args.changes:
            write(session, f"ks.t{count}", count)
            options = {"contactPoints": f"{scylla.contact_points[0]}:{scylla.port}", "keyspace": "ks", "lag": "0s"}
            changes = spark.read.format("scylla-cdc").options(**options, table=f"t{count}").load().cache()
            assert changes.count() == count
            took = [(rows_of(changes), versions(changes, count)) for _ in range(args.times)]
            of_latest, of_history = (median(each) for each in zip(*took, strict=True))
            ratio = of_history / of_latest
            print(f"{count:,} changes: latest {of_latest:.1f} s, history {of_history:.1f} s, ratio {ratio:.1f}")
            changes.unpersist()
    spark.stop()


def write(session: rscylla.Session, table: str, count: int) -> None:
    session.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v int, st set<int>) WITH cdc = {{'enabled': true}}")
    update = session.prepare(f"UPDATE {table} SET v = ?, st = st + ? WHERE id = 1")
    execute_concurrent_with_args(session, update, [(n, {n % 5}) for n in range(count)], concurrency=50)
    time.sleep(0.1)  # past the last write time


def rows_of(changes: Any) -> float:
    return seconds(lambda: latest(changes).collect())


def versions(changes: Any, count: int) -> float:
    def work() -> None:
        found = history(changes).count()
        assert found <= count, found

    return seconds(work)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
