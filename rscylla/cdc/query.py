"""CQL of log reads: text and values, from plain data. Nothing here does I/O."""

from __future__ import annotations

from .._timeuuid import min_timeuuid
from ..types import quote_name
from .plan import ScanTask

__all__ = ["LOG_SUFFIX", "first_row_cql", "row_ttl_cql", "scan_cql", "scan_values", "stream_row_cql"]

LOG_SUFFIX = "_scylla_cdc_log"


def scan_cql(keyspace: str, table: str) -> str:
    """Return the text that reads all rows of some streams in a half-open span of time; see ``scan_values``.

    All columns by ``*``: the decoder follows the metadata of each page, so a column that is added or dropped while
    reading cannot be mixed up with another.
    """
    return (
        f"SELECT * FROM {_log(keyspace, table)} "
        'WHERE "cdc$stream_id" IN ? AND "cdc$time" >= ? AND "cdc$time" < ? BYPASS CACHE'
    )


def first_row_cql(keyspace: str, table: str) -> str:
    """Return the text that asks for the first row of each stream in a span; values as for ``scan_cql``."""
    return (
        f'SELECT "cdc$time" FROM {_log(keyspace, table)} '
        'WHERE "cdc$stream_id" IN ? AND "cdc$time" >= ? AND "cdc$time" < ? PER PARTITION LIMIT 1 BYPASS CACHE'
    )


def stream_row_cql(keyspace: str, table: str) -> str:
    """Return the text of a simple statement that reads one row of a stream, to see whether that can be done."""
    return f'SELECT "cdc$time" FROM {_log(keyspace, table)} WHERE "cdc$stream_id" = %s LIMIT 1'


def row_ttl_cql(keyspace: str, table: str) -> str:
    """Return the text of a simple statement that gives the seconds which a row of a stream and time has left."""
    return (
        f'SELECT TTL("cdc$operation") FROM {_log(keyspace, table)} '
        'WHERE "cdc$stream_id" = %s AND "cdc$time" = %s LIMIT 1'
    )


def scan_values(task: ScanTask) -> tuple[object, ...]:
    """Return the values for ``scan_cql``. Bounds are the smallest timeuuids of their microseconds."""
    return list(task.streams), min_timeuuid(task.start_us), min_timeuuid(task.end_us)


def _log(keyspace: str, table: str) -> str:
    return f"{quote_name(keyspace)}.{quote_name(table + LOG_SUFFIX)}"
