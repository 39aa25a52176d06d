"""A Spark application for tests of clusters: runs jobs one after the other, with tasks that can be killed.

python cluster_app.py CONFIG, a file of JSON: ``master``, ``settings`` of the session, ``source`` options, ``jobs`` (the
names of functions below), ``out``, a directory, ``strikes``, the directory of those of each job, and what a job needs;
and ``executor_env``, the variables that the program takes from its own environment for executors. A job that is done is
not repeated when the application is started again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
from pyspark import TaskContext
from sparkapps import ALONE, kill_session, point, wait_until

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.spark import ParquetTable, ScyllaTable, apply_changes, ensure_java, register, windows
from rscylla.spark.source.options import duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@attrs.frozen
class Strikes:
    """Kills in the middle of tasks, each once: a test puts a file into *directory*, and the next task takes it.

    The name of the file begins with what is killed: ``python``, the task's own process; ``executor``, with its Java; or
    ``worker``, that is, all processes of the session: of a worker of a cluster, or of the application in local mode.
    ``slow`` kills nothing: the task goes on when a second attempt of a task has begun, so one that speculation starts.
    """

    directory: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches on. A strike comes after half the rows of one."""
        context = TaskContext.get()
        if context is not None and context.attemptNumber():
            self._again.touch()
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if half:
                self._strike()
            yield batch.slice(half)

    @property
    def _again(self) -> Path:
        return Path(self.directory, "again")

    def _strike(self) -> None:
        for file in sorted(Path(self.directory).glob("*.armed")):
            try:
                file.rename(file.with_suffix(".done"))
            except FileNotFoundError:
                continue  # another task took it
            if file.name.startswith("slow"):
                wait_until(self._again.exists, "there is no second attempt")
                return
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
        """All changes in each of ``modes``."""
        for mode in self.config["modes"]:
            frame = self.spark.read.format("scylla-cdc").options(**self.config["source"], mode=mode).load()
            frame = frame.select({"events": "id", "changes": "cdc_sequence", "log": "cdc_time"}[mode])
            self._struck(frame, "batches").write.mode("overwrite").parquet(str(self.out / mode))

    def stream(self) -> None:
        """The ids of all events, as a streaming query into files."""
        frame = self._stream(mode="events").select("id")
        self._finish(
            self._struck(frame, "stream").writeStream.format("parquet").option("path", str(self.out / "stream")),
            "stream",
        )

    def copy(self) -> None:
        """All changes to another table of Scylla."""
        sink = ScyllaTable(self.config["sink"])

        def write(batch: DataFrame, number: int) -> None:
            sink.write(self._struck(batch, "copy"), number)
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
                apply_changes(self._struck(changes, "table"), table, window=window)
                point("applied")
        finally:
            session.cluster.shutdown()

    def logins(self) -> None:
        """The ids of all events, read by each way to log in, and in a stream, too, by the first."""
        for way, login in self.config["logins"].items():
            source = {**self.config["source"], **login, "mode": "events"}
            frame = self.spark.read.format("scylla-cdc").options(**source).load().select("id")
            self._show("plans", way, frame._jdf.queryExecution().toString().encode())
            frame.write.mode("overwrite").parquet(str(self.out / f"batch-{way}"))
        login = next(iter(self.config["logins"].values()))
        frame = self._stream(mode="events", **login).select("id")
        self._finish(frame.writeStream.format("parquet").option("path", str(self.out / "stream")), "stream")

    def shown(self) -> None:
        """What others may see while the application runs: its pages, the cluster's, processes, and recovery files."""
        url, app = self.spark.sparkContext.uiWebUrl, self.spark.sparkContext.applicationId
        paths = ["jobs/", "stages/", "environment/", "executors/", "StreamingQuery/", "SQL/"]
        paths += [f"SQL/execution/?id={number}" for number in range(4)]
        names = ("environment", "sql?details=true&planDescription=true", "stages?details=true", "executors")
        paths += [f"api/v1/applications/{app}/{name}" for name in names]
        master, *workers = self.config["pages"]
        pages = {
            "application's pages": [f"{url}/{path}" for path in paths],
            "master's pages": [f"{master}/{path}" for path in ("", "json/", f"app/?appId={app}")],
            "workers' pages": [f"{page}/{path}" for page in workers for path in ("", "json/")],
        }
        for place, addresses in pages.items():
            for number, address in enumerate(addresses):
                with urllib.request.urlopen(address, timeout=60) as page:
                    self._show(place, str(number), page.read())
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it ended meanwhile
                if b"spark" in (command := file.read_bytes()):
                    self._show("processes", file.parent.name, command)
        for file in Path(self.config["recovery"]).iterdir():
            self._show("recovery", file.name, file.read_bytes())

    def _show(self, place: str, name: str, content: bytes) -> None:
        (self.out / "shown" / place).mkdir(parents=True, exist_ok=True)
        (self.out / "shown" / place / name).write_bytes(content)

    def _struck(self, frame: DataFrame, job: str) -> DataFrame:
        return frame.mapInArrow(Strikes(str(Path(self.config["strikes"], job))), frame.schema)

    def _stream(self, **more: str) -> DataFrame:
        options = {**self.config["source"], **self.config["stream"], **more}
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
        **ALONE,
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "8",  # several strikes may meet the same task
    }
    builder = builder.config(map=settings | config["settings"])
    for name in config.get("executor_env", ()):
        builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    spark = builder.getOrCreate()
    register(spark)
    jobs = Jobs(spark, config)
    for name in config["jobs"]:
        if not (done := jobs.out / f"{name}.done").exists():
            getattr(jobs, name)()
            done.touch()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
