"""Log reads as CQL: splits a window into tasks of one query each, and returns the text and values of queries. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import groupby

import attrs

from ..._timeuuid import min_timeuuid
from ..._tokens import vnode_of
from ...errors import ConfigError
from ...types import quote_name
from .routing import routing_key_of
from .walk import LogWindow

__all__ = [
    "LOG_SUFFIX",
    "MAX_STREAMS_PER_QUERY",
    "NODE_TIME_CQL",
    "ScanTask",
    "StreamGroup",
    "by_replicas",
    "first_row_cql",
    "group_streams",
    "row_ttl_cql",
    "scan_cql",
    "scan_values",
    "stream_row_cql",
    "tasks_for",
    "times_cql",
]

LOG_SUFFIX = "_scylla_cdc_log"

NODE_TIME_CQL = "SELECT toUnixTimestamp(now()) FROM system.local"
"""Asks a node for its time, in milliseconds."""

MAX_STREAMS_PER_QUERY = 100
"""Scylla refuses more partition keys in one query by default (``max_partition_key_restrictions_per_query``)."""


_INT = struct.Struct(">i")


class StreamGroup(tuple[bytes, ...]):
    """The streams that one query reads. What all queries for them have in common is computed once."""

    @cached_property
    def serialized(self) -> bytes:
        """The streams as a ``list<blob>``."""
        ids = b"".join(_INT.pack(len(stream)) + stream for stream in self)
        return _INT.pack(len(self)) + ids

    @cached_property
    def routing_key(self) -> bytes:
        """A routing key that leads to the replicas of the group's middle stream, and to its shard there."""
        return routing_key_of(self[len(self) // 2])


@attrs.frozen
class ScanTask:
    """One query: some streams of a generation in a span of time. Can be pickled and run anywhere."""

    keyspace: str
    table: str
    generation: int
    streams: StreamGroup = attrs.field(repr=lambda streams: f"<{len(streams)}>")
    start_us: int
    end_us: int


def group_streams(
    streams: Sequence[bytes],
    *,
    limit: int = MAX_STREAMS_PER_QUERY,
    replicas_of: Callable[[bytes], tuple[str, ...]] | None = None,
) -> tuple[StreamGroup, ...]:
    """Return the streams in groups of at most *limit*, with streams of the same replicas together as far as they fit.

    The streams of a vnode share their replicas, but those of its neighbors usually have others.

    Args:
        streams: in ascending order of token, as ``Topology.streams`` returns them.
        replicas_of: returns the replicas of a stream; without it, only the streams of a vnode are kept together. It is
            asked once a vnode. Streams of tablets belong to no vnode; a group has up to *limit* neighbors.
    """
    if not 0 < limit <= MAX_STREAMS_PER_QUERY:
        raise ConfigError(f"streams per query must be from 1 to {MAX_STREAMS_PER_QUERY}, not {limit}")
    if replicas_of is None:
        blocks = [list(members) for _, members in groupby(streams, key=vnode_of)]
    else:
        blocks = by_replicas(streams, replicas_of)
    groups: list[StreamGroup] = []
    filling: list[bytes] = []
    for block in blocks:
        if filling and len(filling) + len(block) > limit:
            groups.append(StreamGroup(filling))
            filling = []
        whole = len(block) - len(block) % limit if len(block) > limit else 0
        groups += (StreamGroup(block[at : at + limit]) for at in range(0, whole, limit))
        filling += block[whole:]
    if filling:
        groups.append(StreamGroup(filling))
    return tuple(groups)


def by_replicas(streams: Iterable[bytes], replicas_of: Callable[[bytes], tuple[str, ...]]) -> list[list[bytes]]:
    """Return the streams in lists, one for each set of replicas. Neighbors have at least their first replica in common.

    Args:
        streams: those of a vnode follow each other.
        replicas_of: see ``group_streams``.
    """
    shared: dict[tuple[str, ...], list[bytes]] = {}
    for _, vnode in groupby(streams, key=vnode_of):
        members = list(vnode)
        shared.setdefault(replicas_of(members[0]), []).extend(members)
    return [shared[replicas] for replicas in sorted(shared)]


def tasks_for(window: LogWindow, groups: Sequence[StreamGroup], *, keyspace: str, table: str) -> tuple[ScanTask, ...]:
    """Return one task per group of streams."""
    return tuple(ScanTask(keyspace, table, window.generation, g, window.start_us, window.end_us) for g in groups)


def scan_cql(keyspace: str, table: str) -> str:
    """Return the text that reads all rows of some streams in a half-open span of time; see ``scan_values``.

    It selects ``*``: the decoder follows the metadata of each page, so columns that are added or dropped during a read
    cannot be confused.
    """
    return (
        f"SELECT * FROM {_log(keyspace, table)} "
        'WHERE "cdc$stream_id" IN ? AND "cdc$time" >= ? AND "cdc$time" < ? BYPASS CACHE'
    )


def first_row_cql(keyspace: str, table: str) -> str:
    """Return the text that reads the time of the first row of each stream in a span; values as for ``scan_cql``."""
    return _times_cql(keyspace, table, "PER PARTITION LIMIT 1 ")


def times_cql(keyspace: str, table: str) -> str:
    """Return the text that reads the times of all rows of some streams in a span, to count them; as ``scan_cql``."""
    return _times_cql(keyspace, table)


def _times_cql(keyspace: str, table: str, limit: str = "") -> str:
    return (
        f'SELECT "cdc$time" FROM {_log(keyspace, table)} '
        f'WHERE "cdc$stream_id" IN ? AND "cdc$time" >= ? AND "cdc$time" < ? {limit}BYPASS CACHE'
    )


def stream_row_cql(keyspace: str, table: str) -> str:
    """Return the text of a simple statement that reads one row of a stream, to check whether the log can be read."""
    return f'SELECT "cdc$time" FROM {_log(keyspace, table)} WHERE "cdc$stream_id" = %s LIMIT 1'


def row_ttl_cql(keyspace: str, table: str) -> str:
    """Return the text of a simple statement that reads the remaining TTL of a row, by stream and time."""
    return (
        f'SELECT TTL("cdc$operation") FROM {_log(keyspace, table)} '
        'WHERE "cdc$stream_id" = %s AND "cdc$time" = %s LIMIT 1'
    )


def scan_values(task: ScanTask) -> tuple[bytes, bytes, bytes]:
    """Return the serialized values for ``scan_cql``. Bounds are the smallest timeuuids of their microseconds."""
    return task.streams.serialized, _bound(task.start_us), _bound(task.end_us)


@lru_cache(maxsize=64)  # all queries of a window have the same bounds
def _bound(us: int) -> bytes:
    return min_timeuuid(us).bytes


def _log(keyspace: str, table: str) -> str:
    return f"{quote_name(keyspace)}.{quote_name(table + LOG_SUFFIX)}"
