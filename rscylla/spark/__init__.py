"""CDC logs in Spark: the data source ``scylla-cdc``, windows with a cursor, and pipeline helpers.

PySpark is imported only when one of the names is used, because Spark's workers import this package to find the data
source. Importing sets no variable of the environment: ``PYSPARK_PYTHON`` would also go to the executors of a cluster,
where this interpreter may be elsewhere. ``ensure_java`` sets it for those who ask.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..cdc import PlannedWindow
    from .loops.follow import checkpoint_cursor, follow
    from .loops.follow_tables import QueryStream, follow_tables
    from .loops.windows import Windows, windows
    from .pipeline.history import history
    from .pipeline.latest import latest
    from .pipeline.snapshots import Snapshot, snapshot
    from .session.bars import JobProgress, spark_progress
    from .session.failures import spark_errors
    from .session.formats import format_settings, with_format, with_kafka
    from .session.java import ensure_java
    from .session.metrics import QueryMetrics
    from .sinks.commits import TableVersion
    from .sinks.merge import MergeTable
    from .sinks.parquet import ParquetTable
    from .sinks.scylla import ScyllaTable
    from .sinks.sink import Sink, apply_changes
    from .source.source import ScyllaCdcDataSource, register

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
    "checkpoint_cursor",
    "ensure_java",
    "follow",
    "follow_tables",
    "format_settings",
    "history",
    "latest",
    "register",
    "snapshot",
    "spark_errors",
    "spark_progress",
    "windows",
    "with_format",
    "with_kafka",
]

_NAMES = {
    "..cdc": ("PlannedWindow",),
    ".loops.follow": ("checkpoint_cursor", "follow"),
    ".loops.follow_tables": ("QueryStream", "follow_tables"),
    ".loops.windows": ("Windows", "windows"),
    ".pipeline.history": ("history",),
    ".pipeline.latest": ("latest",),
    ".pipeline.snapshots": ("Snapshot", "snapshot"),
    ".session.bars": ("JobProgress", "spark_progress"),
    ".session.failures": ("spark_errors",),
    ".session.formats": ("format_settings", "with_format", "with_kafka"),
    ".session.java": ("ensure_java",),
    ".session.metrics": ("QueryMetrics",),
    ".sinks.commits": ("TableVersion",),
    ".sinks.merge": ("MergeTable",),
    ".sinks.parquet": ("ParquetTable",),
    ".sinks.scylla": ("ScyllaTable",),
    ".sinks.sink": ("Sink", "apply_changes"),
    ".source.source": ("ScyllaCdcDataSource", "register"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
