"""Runs what rscylla offers on Spark Connect, in a process of its own, and prints what came of it as JSON.

A process has one kind of session: the shared one of the tests is a classic one. Arguments: contact point, keyspace,
directory. The keyspace has a table ``t`` with the log, and a table ``copy`` of the same columns.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maven import free_ports
from pyspark.errors import PySparkException
from sparkapps import ALONE, STARTS

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import StreamLag, StreamToHead
from rscylla import spark as rs

CONFIG = {
    **ALONE,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def builder_of(settings: dict[str, str]) -> Any:
    """Return the builder of a session whose server runs in this process, on a free port.

    Otherwise, it has a port that is one for all processes of the machine, where the client goes, too.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    [port] = free_ports(1)
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    return SparkSession.builder.remote("local[2]").config(map=settings | {"spark.connect.grpc.binding.port": str(port)})


def started_until_spark_can(run: Callable[[], object]) -> None:
    """Call *run* again if Spark gave up the process of a source, see ``sparkapps.SPARK_GAVE_UP``."""
    for _ in range(STARTS):
        try:
            run()
        except PySparkException as e:
            if "connect back" not in str(e):
                raise
        else:
            return
    raise SystemExit("Spark could not start the process of the source")


def main(point: str, keyspace: str, place: str) -> None:
    rs.ensure_java()
    builder = builder_of(CONFIG | {"spark.sql.warehouse.dir": f"{place}/warehouse"})
    session = rscylla.connect([point])
    spark = builder.getOrCreate()
    rs.register(spark)
    options = {"contactPoints": point, "keyspace": keyspace, "lag": "0s", "consistency": "ONE", "parallelism": "2"}
    found: dict[str, Any] = {"session": type(spark).__module__}

    def load(table: str = "t", **more: str) -> Any:
        return spark.read.format("scylla-cdc").options(**options, table=table, **more).load()

    def rows(frame: Any) -> list[list[Any]]:
        return sorted([row["id"], row["v"]] for row in frame.select("id", "v").collect())

    def answer(call: Callable[[], object]) -> str:
        try:
            with rs.spark_errors():
                return f"no error: {call()}"
        except rscylla.RscyllaError as e:
            return f"{type(e).__name__}: {e}"

    def streamed(name: str, into: Callable[[Any], Any]) -> Any:
        writer = into(spark.readStream.format("scylla-cdc").options(**options, table="t").load().writeStream)
        writer = writer.option("checkpointLocation", f"{place}/{name}-checkpoint").trigger(availableNow=True)
        for _ in range(2):  # the second run finds nothing
            started_until_spark_can(lambda: writer.start().awaitTermination())
        return sorted(row["id"] for row in spark.read.parquet(f"{place}/{name}").select("id").collect())

    def append(frame: Any, number: int) -> None:
        frame.write.mode("append").parquet(f"{place}/batches")

    stream = rscylla.NewStream(session, keyspace, "t")
    lag = StreamLag(seconds=0)

    def applied(sink: Any) -> str:
        for window, changes in rs.windows(spark, stream, MemoryCursorStore(), "x", lag, StreamToHead()):
            rs.apply_changes(changes, sink, window=window)
        return "applied"

    found["counts"] = {mode: load(mode=mode).count() for mode in ("changes", "log", "events")}
    found["latest"] = rows(rs.latest(load()))
    found["history"] = rs.history(load()).count()
    found["snapshot"] = rows(rs.snapshot(spark, stream, lag).rows)
    found["stream"] = streamed("files", lambda w: w.format("parquet").option("path", f"{place}/files"))
    found["foreachBatch"] = streamed("batches", lambda w: w.foreachBatch(append))
    copy = {name: value for name, value in options.items() if name not in ("lag", "parallelism")}
    found["scylla"] = applied(rs.ScyllaTable({**copy, "table": "copy"}))
    found["copy"] = sorted([row.id, row.v] for row in session.execute(f"SELECT id, v FROM {keyspace}.copy"))
    found["parquet"] = answer(lambda: applied(rs.ParquetTable(spark, str(Path(place, "table")))))
    found["merge"] = answer(lambda: applied(rs.MergeTable(spark, "merged", using="parquet")))
    found["no table"] = answer(lambda: load("nothing").count())
    print(json.dumps(found))
    session.cluster.shutdown()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
