"""``windows``: the changes of a table as complete windows, each a DataFrame, with the cursor of a service.

The driver only plans: the executors read the rows of a window when an action needs them. The cursor is that of
``rscylla.run``, so a consumer can move from a service to Spark and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

import attrs

from ...abc import CursorStore
from ...cdc import PlannedWindow, Stream, WindowLoop, WindowOptions
from ...cdc.log import Source
from ...errors import ConfigError
from ...options import StreamOption
from ..session.failures import spark_errors
from ..source.dividing import Division
from ..source.handed import HandedRead
from ..source.optionnames import known_as
from ..source.options import Options
from ..source.planning import struct_of
from ..source.reading import SpanRead
from ..source.source import NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Windows", "read_options", "windows"]

_MICROSECOND = timedelta(microseconds=1)

_OWN_OPTIONS = frozenset(("keyspace", "table", "lag", "mode", "startingposition", "endingposition"))


class Windows(WindowLoop[tuple[PlannedWindow, "DataFrame"]]):
    """The result of ``windows``: an iterator for one thread, and a context manager that closes it."""

    def __init__(
        self,
        spark: SparkSession,
        stream: Stream,
        store: CursorStore,
        name: str,
        options: Iterable[StreamOption],
        how: WindowOptions,
        mode: str,
        read: Mapping[str, str],
    ) -> None:
        self._spark = spark
        self._mode = mode
        self._given = read
        super().__init__(stream, store, name, options, how)

    def _prepare(self, stream: Stream) -> None:
        read = Options.of(read_options(stream, self._source, self._plan.lag, self._mode, self._given))
        if self._plan.on_expired == "oldest" and "failondataloss" not in map(known_as, self._given):
            read = attrs.evolve(read, fail_on_data_loss=False)  # rows may expire until they are read
        self._read, self._division = read, Division(self._source, read)

    def _shown(self, window: PlannedWindow) -> tuple[PlannedWindow, DataFrame]:
        spans = self._division.spans([window.in_log], after=window.after, promise=self._follower.promise)
        handed = HandedRead(SpanRead.of(self._read, struct_of(self._source, self._read)), tuple(spans))
        with spark_errors():
            return window, self._spark.read.format(NAME).options(**handed.options()).load()

    def _rows_of(self, shown: tuple[PlannedWindow, DataFrame]) -> int:
        with spark_errors():
            rows: int = shown[1].count()
        return rows


def windows(
    spark: SparkSession,
    stream: Stream,
    store: CursorStore,
    name: str,
    *options: StreamOption,
    mode: str = "changes",
    read: Mapping[str, str] | None = None,
    **how: Unpack[WindowOptions],
) -> Windows:
    """Yield the changes of a table after the cursor *name* as complete windows, one after the other, in order.

    ::

        orders = ParquetTable(spark, "/data/orders")
        for window, changes in windows(spark, stream, store, "lake", StreamLag(seconds=30), StreamToHead()):
            apply_changes(changes, orders, window=window)

    The cursor moves to the end of a window when the loop requests the next one, that is, when the loop body ends
    without an error. After an error in the body or a ``break``, the cursor stays at the start of the window, and its
    rows are delivered again; if the window is done, call ``save()`` on the iterator before a ``break``. The window then
    begins at the same ``window.start``, but may end elsewhere, because the head has moved. The body must be idempotent,
    as the sinks of this package are: let it replace what it has of the same ``window.start_name``. A window never spans
    two generations of streams. Its rows are those whose write times are in the window.

    A window that begins at a row cursor of a service contains the rows after that row. The saved cursor is then a
    point, from which a service can continue. With ``StreamToHead``, the loop ends at the head as of the time when the
    last window was planned; with ``StreamUntil``, it ends at that time; otherwise, it waits at the head for more
    changes.

    Args:
        stream: of ``NewStream``; its session is used to plan, and to find contact points for the executors.
        store: the store of the cursor. Only the driver writes to it.
        options: options of a stream; ``StreamLag`` is required.
        mode: mode of the data source: ``changes``, ``log``, or ``events``.
        read: more options of the data source: login, TLS, and contact points for the executors.
        how: see ``WindowOptions``. With ``max_rows``, Spark counts the rows, so they are read once more.

    Raises:
        MissingLag, ConfigError: an option is missing or invalid.
        TableNotFound, CDCDisabled, InvalidCursor, CursorExpired, SourceError: as for a stream, also during iteration.
        RscyllaError: during iteration: Spark failed to plan or count a window; see ``spark_errors``.
    """
    return Windows(spark, stream, store, name, options, how, mode, read or {})


def read_options(stream: Stream, source: Source, lag: timedelta, mode: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return options of the data source for the table of *stream*: from its session, and from *given*.

    Raises:
        ConfigError: *given* has an option that follows from the stream, or lacks one that a session does not reveal,
            such as a password.
    """
    own = [key for key in given if known_as(key) in _OWN_OPTIONS]
    if own:
        raise ConfigError(f"read= must not contain {own[0]!r}, which follows from the stream")
    lower = {known_as(key) for key in given}
    cluster = source.session.session.cluster
    found = {"keyspace": stream.keyspace, "table": stream.table, "mode": mode}
    found["lag"] = f"{lag // _MICROSECOND} us"
    if "consistency" not in lower:
        found["consistency"] = stream.consistency
    if "contactpoints" not in lower:
        found["contactPoints"] = ",".join(_address(host) for host in source.session.hosts())
        found["port"] = str(cluster.port)
    if cluster.auth_provider is not None and not lower & {"username", "credentialsfile"}:
        raise ConfigError(
            "the stream's session logs in, so executors must, too: pass read={'username': ..., 'passwordEnv': ...}"
        )
    if cluster.ssl_context is not None:
        if "tlsca" not in lower:
            raise ConfigError("the stream's session uses TLS, so executors must, too: pass read={'tlsCa': ...}")
        if not cluster.ssl_context.check_hostname and "tlscheckhostname" not in lower:
            found["tlsCheckHostname"] = "false"
    return {**found, **given}


def _address(host: object) -> str:
    """Return the address of a node as host:port; IPv6 in brackets."""
    endpoint = host.endpoint  # type: ignore[attr-defined]
    address, port = str(endpoint.address), int(endpoint.port)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
