"""CDC logs in Spark: the data source ``scylla-cdc``, windows with a cursor, and pipeline helpers.

PySpark is imported only when one of the names is used, because Spark's workers import this package to find the data
source. Importing sets no variable of the environment: ``PYSPARK_PYTHON`` would also go to the executors of a cluster,
where this interpreter may be elsewhere. ``ensure_java`` sets it for those who ask.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..cdc.windowing import Window as Window
    from .bars import JobProgress as JobProgress
    from .bars import spark_progress as spark_progress
    from .failures import spark_errors as spark_errors
    from .fanout import QueryStream as QueryStream
    from .fanout import follow_tables as follow_tables
    from .following import checkpoint_cursor as checkpoint_cursor
    from .following import follow as follow
    from .formats import format_settings as format_settings
    from .formats import with_format as with_format
    from .formats import with_kafka as with_kafka
    from .java import ensure_java as ensure_java
    from .local import check_spark as check_spark
    from .local import local_spark as local_spark
    from .metrics import QueryMetrics as QueryMetrics
    from .pipeline.history import history as history
    from .pipeline.latest import latest as latest
    from .pipeline.snapshots import Snapshot as Snapshot
    from .pipeline.snapshots import snapshot as snapshot
    from .sinks.commits import TableVersion as TableVersion
    from .sinks.merge import MergeTable as MergeTable
    from .sinks.parquet import ParquetTable as ParquetTable
    from .sinks.scylla import ScyllaTable as ScyllaTable
    from .sinks.sink import Sink as Sink
    from .sinks.sink import apply_changes as apply_changes
    from .source import ScyllaCdcDataSource as ScyllaCdcDataSource
    from .source import register as register
    from .windowing import Windows as Windows
    from .windowing import windows as windows

__all__ = [
    "JobProgress",
    "MergeTable",
    "ParquetTable",
    "QueryMetrics",
    "QueryStream",
    "ScyllaCdcDataSource",
    "ScyllaTable",
    "Sink",
    "Snapshot",
    "TableVersion",
    "Window",
    "Windows",
    "apply_changes",
    "check_spark",
    "checkpoint_cursor",
    "ensure_java",
    "follow",
    "follow_tables",
    "format_settings",
    "history",
    "latest",
    "local_spark",
    "register",
    "snapshot",
    "spark_errors",
    "spark_progress",
    "windows",
    "with_format",
    "with_kafka",
]

_HOMES = {
    "JobProgress": ".bars",
    "MergeTable": ".sinks.merge",
    "ParquetTable": ".sinks.parquet",
    "QueryMetrics": ".metrics",
    "QueryStream": ".fanout",
    "TableVersion": ".sinks.commits",
    "ScyllaCdcDataSource": ".source",
    "ScyllaTable": ".sinks.scylla",
    "Sink": ".sinks.sink",
    "Snapshot": ".pipeline.snapshots",
    "Window": "..cdc.windowing",
    "Windows": ".windowing",
    "check_spark": ".local",
    "apply_changes": ".sinks.sink",
    "checkpoint_cursor": ".following",
    "ensure_java": ".java",
    "follow": ".following",
    "follow_tables": ".fanout",
    "format_settings": ".formats",
    "history": ".pipeline.history",
    "local_spark": ".local",
    "latest": ".pipeline.latest",
    "register": ".source",
    "snapshot": ".pipeline.snapshots",
    "spark_errors": ".failures",
    "spark_progress": ".bars",
    "windows": ".windowing",
    "with_format": ".formats",
    "with_kafka": ".formats",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
