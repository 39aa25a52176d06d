"""Table formats with MERGE that run on the installed PySpark, for tests."""

from __future__ import annotations

import fcntl
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FORMAT_CONFIG", "NOT_COMPILED", "TableFormat", "one_at_a_time", "runs_here"]

FORMAT_CONFIG = {
    "spark.jars.ivySettings": str(Path(__file__).with_name("ivysettings.xml")),
    # Delta Lake reads the log of a table with 50 tasks, unless told.
    "spark.databricks.delta.snapshotPartitions": "1",
    # Its VACUUM lists directories with as many tasks as this, which is 10,000 unless told.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}
"""Settings of sessions in tests, whatever their format."""

NOT_COMPILED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings with which Spark does not compile plans."""


@attrs.frozen
class TableFormat:
    """A format that the shared session has: ``using`` of a ``MergeTable``, and where its tables are."""

    name: str
    catalog: str
    warehouse: Path

    def table(self) -> str:
        """Return the name of a table that does not exist."""
        return f"{self.catalog}.default.t_{uuid.uuid4().hex[:12]}"

    def files_of(self, name: str) -> Path:
        """Return the directory with the data files of the table *name*."""
        _, database, table = name.split(".")
        return self.warehouse / table if self.name == "delta" else self.warehouse / database / table / "data"

    def restore(self, spark: SparkSession, name: str, version: int) -> None:
        """Take the table *name* back to an earlier version."""
        if self.name == "delta":
            spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {version}")
        else:
            spark.sql(f"CALL {self.catalog}.system.rollback_to_snapshot('{name.partition('.')[2]}', {version})")

    def settings(self) -> dict[str, str]:
        """Return what a session of another process needs for these tables.

        It finds those of Iceberg by name. Those of Delta Lake get their names again by ``MergeTable(using="delta")``.
        """
        from rscylla.spark import format_settings

        catalog = None if self.catalog == "spark_catalog" else self.catalog
        return FORMAT_CONFIG | format_settings(self.name, warehouse=str(self.warehouse), catalog=catalog)


def runs_here(name: str) -> bool:
    """Whether the format *name* has a release for the installed PySpark."""
    from rscylla.spark.session.formats import FORMATS, pyspark_version

    return pyspark_version() in FORMATS[name].jars


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold a lock of all processes: Ivy, which fetches jars for Spark, expects no other one in its cache."""
    with (Path(tempfile.gettempdir()) / "rscylla-tests-ivy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
