"""A Spark application for tests of clusters: runs jobs one after the other, with tasks that can be killed.

python cluster_app.py CONFIG, a file of JSON: ``master``, ``source`` options, ``jobs`` (the names of functions below),
``out``, a directory, ``strikes``, the directory of ``Strikes``, and what a job needs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
from sparkapps import kill_session, point

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.spark import ParquetTable, ScyllaTable, apply_changes, ensure_java, register, windows
from rscylla.spark.options import duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOPBACK = "127.0.0.1"


@attrs.frozen
class Strikes:
    """Kills in the middle of tasks, each once: a test puts a file into *directory*, and the next task takes it.

    The name of the file begins with what is killed: ``python``, the task's own process; ``executor``, with its Java; or
    ``worker``, that is, all processes of the session: of a worker of a cluster, or of the application in local mode.
    """

    directory: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches on. A strike comes after half the rows of one."""
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if half:
                self._strike()
            yield batch.slice(half)

    def _strike(self) -> None:
        for file in sorted(Path(self.directory).glob("*.armed")):
            try:
                file.rename(file.with_suffix(".done"))
            except FileNotFoundError:
                continue  # another task took it
            if file.name.startswith("worker"):
                kill_session(os.getsid(0))
            if file.name.startswith("executor"):
                daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
                os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


class Jobs:
    def __init__(self, spark: SparkSession, config: dict[str, Any]) -> None:
        self.spark = spark
        self.config = config
        self.out = Path(config["out"])

    def batches(self) -> None:
        """All changes in each mode."""
        for mode, columns in (("events", ["id"]), ("changes", ["cdc_sequence"]), ("log", ["cdc_time"])):
            frame = self.spark.read.format("scylla-cdc").options(**self.config["source"], mode=mode).load()
            self._struck(frame.select(*columns)).write.mode("overwrite").parquet(str(self.out / mode))

    def stream(self) -> None:
        """The ids of all events, as a streaming query into files."""
        frame = self._stream(mode="events").select("id")
        self._finish(
            self._struck(frame).writeStream.format("parquet").option("path", str(self.out / "stream")), "stream"
        )

    def copy(self) -> None:
        """All changes to another table of Scylla."""
        sink = ScyllaTable(self.config["sink"])

        def write(batch: DataFrame, number: int) -> None:
            sink.write(batch, number)
            point("written")

        self._finish(self._stream(mode="changes").writeStream.foreachBatch(write), "copy")

    def table(self) -> None:
        """A ``ParquetTable`` of the base table, window by window."""
        source = self.config["source"]
        session = rscylla.connect([source["contactPoints"]])
        try:
            stream = rscylla.NewStream(session, source["keyspace"], source["table"])
            store = ScyllaCursorStore(session, source["keyspace"], create=True)
            if not store.get_cursor("lake"):
                store.set_cursor("lake", self.config["from"])
            until = rscylla.StreamUntil(datetime.fromisoformat(self.config["until"]))
            table = ParquetTable(self.spark, str(self.out / "table"))
            spans = {name: duration(self.config["span"]) for name in ("shortest", "longest")}
            lag = rscylla.StreamLag(seconds=0)
            for window, changes in windows(self.spark, stream, store, "lake", lag, until, **spans):
                apply_changes(changes, table, window=window)
                point("applied")
        finally:
            session.cluster.shutdown()

    def _struck(self, frame: DataFrame) -> DataFrame:
        return frame.mapInArrow(Strikes(self.config["strikes"]), frame.schema)

    def _stream(self, mode: str) -> DataFrame:
        options = {**self.config["source"], **self.config["stream"], "mode": mode}
        return self.spark.readStream.format("scylla-cdc").options(**options).load()

    def _finish(self, writer: Any, name: str) -> None:
        writer = writer.option("checkpointLocation", str(self.out / f"{name}-checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()


def main(file: str) -> None:
    config = json.loads(Path(file).read_text())
    ensure_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(config["master"]).appName("rscylla-cluster")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "8",  # several strikes may meet the same task
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    jobs = Jobs(spark, config)
    for name in config["jobs"]:
        getattr(jobs, name)()
        print(f"done: {name}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
