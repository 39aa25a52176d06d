"""CDC logs in Spark: the data source ``scylla-cdc``, windows with a cursor, and pipeline helpers.

PySpark is imported only when one of the names is used, because Spark's workers import this package to find the data
source. Importing sets no variable of the environment: ``PYSPARK_PYTHON`` would also go to the executors of a cluster,
where this interpreter may be elsewhere. ``ensure_java`` sets it for those who ask.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..cdc import PlannedWindow as PlannedWindow
    from .loops.follow import checkpoint_cursor as checkpoint_cursor
    from .loops.follow import follow as follow
    from .loops.follow_tables import QueryStream as QueryStream
    from .loops.follow_tables import follow_tables as follow_tables
    from .loops.windows import Windows as Windows
    from .loops.windows import windows as windows
    from .pipeline.history import history as history
    from .pipeline.latest import latest as latest
    from .pipeline.snapshots import Snapshot as Snapshot
    from .pipeline.snapshots import snapshot as snapshot
    from .session.bars import JobProgress as JobProgress
    from .session.bars import spark_progress as spark_progress
    from .session.failures import spark_errors as spark_errors
    from .session.formats import format_settings as format_settings
    from .session.formats import with_format as with_format
    from .session.formats import with_kafka as with_kafka
    from .session.java import ensure_java as ensure_java
    from .session.local import check_spark as check_spark
    from .session.local import local_spark as local_spark
    from .session.metrics import QueryMetrics as QueryMetrics
    from .sinks.commits import TableVersion as TableVersion
    from .sinks.merge import MergeTable as MergeTable
    from .sinks.parquet import ParquetTable as ParquetTable
    from .sinks.scylla import ScyllaTable as ScyllaTable
    from .sinks.sink import Sink as Sink
    from .sinks.sink import apply_changes as apply_changes
    from .source.source import ScyllaCdcDataSource as ScyllaCdcDataSource
    from .source.source import register as register

__all__ = [
    "JobProgress",
    "MergeTable",
    "ParquetTable",
    "PlannedWindow",
    "QueryMetrics",
    "QueryStream",
    "ScyllaCdcDataSource",
    "ScyllaTable",
    "Sink",
    "Snapshot",
    "TableVersion",
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
    "JobProgress": ".session.bars",
    "MergeTable": ".sinks.merge",
    "ParquetTable": ".sinks.parquet",
    "QueryMetrics": ".session.metrics",
    "QueryStream": ".loops.follow_tables",
    "TableVersion": ".sinks.commits",
    "ScyllaCdcDataSource": ".source.source",
    "ScyllaTable": ".sinks.scylla",
    "Sink": ".sinks.sink",
    "Snapshot": ".pipeline.snapshots",
    "PlannedWindow": "..cdc.planned",
    "Windows": ".loops.windows",
    "check_spark": ".session.local",
    "apply_changes": ".sinks.sink",
    "checkpoint_cursor": ".loops.follow",
    "ensure_java": ".session.java",
    "follow": ".loops.follow",
    "follow_tables": ".loops.follow_tables",
    "format_settings": ".session.formats",
    "history": ".pipeline.history",
    "local_spark": ".session.local",
    "latest": ".pipeline.latest",
    "register": ".source.source",
    "snapshot": ".pipeline.snapshots",
    "spark_errors": ".session.failures",
    "spark_progress": ".session.bars",
    "windows": ".loops.windows",
    "with_format": ".session.formats",
    "with_kafka": ".session.formats",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
