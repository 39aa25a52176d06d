"""``follow_tables``: streaming queries of several tables in one application, supervised as lanes of a ``Service``.

A query is a stream of the reflex engine that has no events, only progress: the cursor of each micro-batch that is
done. So ``Service`` restarts a query that failed, reports states and metrics, and stops all queries, as it does for
consumers, and a cursor store knows how far each query is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from cursorstore import MemoryCursorStore

from ...abc import CursorStore, StreamStatus
from ...clock import Stop
from ...errors import ConfigError, HeadReached, SparkFailed, Stopped
from ...event import Event, EventID, Progress, cursor_key
from ...options import StreamLag, StreamOption
from ...reflex import Consumer, Spec
from ...service import Restarts, Service
from ..session.failures import spark_errors
from ..sinks.sink import Sink, check_sink
from ..source.offsets import Offset
from ..source.optionnames import renamed
from ..source.options import Options
from .follow import check_arguments, check_text, follow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["QueryStream", "follow_tables"]

POLL_S = 0.2
"""How often a lane looks at its query."""


class QueryStream:
    """A ``StreamFunc`` that runs ``follow`` with these arguments. Its clients return a ``Progress`` for each batch.

    With a new checkpoint, a sink without a ``cursor`` starts at the cursor with which the stream is opened.

    Raises (constructor):
        ConfigError: an argument or an option is wrong.
    """

    supports_lag = True

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        sink: Sink,
        *,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        check_arguments(sink, checkpoint, trigger, name)
        self._follow = partial(follow, spark, sink=sink, checkpoint=checkpoint, trigger=trigger, name=name)
        self._options = renamed(options)
        asked = Options.of(self._options)
        self.source = f"{asked.keyspace}.{asked.table}"
        self.lag = StreamLag(timedelta(microseconds=asked.lag_us))
        self._sink = sink
        self._ends = any((trigger or {}).get(kind) for kind in ("availableNow", "once"))
        self._query: StreamingQuery | None = None

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> _QueryClient:
        given = self._options
        if after and getattr(self._sink, "cursor", None) is None:
            given = {**given, "startingposition": after}
        if self._query is not None:  # Spark may have given up waiting for its end, and its name would be in use
            with spark_errors():
                self._query.stop()
        self._query = self._follow(given)
        return _QueryClient(self._query, after, stop or Stop(), ends=self._ends)


class _QueryClient:
    """The ``StreamClient`` of one run of a query; *ends*: whether the query does when it has reached the head."""

    def __init__(self, query: StreamingQuery, after: str, stop: Stop, *, ends: bool) -> None:
        self._query = query
        self._at = after
        self._stop = stop
        self._ends = ends

    def recv(self) -> Progress:
        """Return the progress after the next batch that is done, unless the cursor store is ahead of it."""
        while not self._stop.is_set():
            with spark_errors():
                is_active = self._query.isActive  # before its progress, so that none is missed
                at = _done(self._query)
                # The table, and with it the store, may be ahead of the checkpoint.
                if at is not None and at.key > cursor_key(self._at):
                    self._at = str(at)
                    return Progress(self._at, at.exact_us)
                if not is_active:
                    failure = self._query.exception()
                    if failure is not None:
                        raise failure
                    if self._ends:
                        raise HeadReached
                    if not self._stop.is_set():
                        raise SparkFailed("the query was stopped, but not by its service; it starts again")
            self._stop.wait(POLL_S)
        raise Stopped

    def status(self) -> StreamStatus:
        if not self._at:
            return StreamStatus()
        at = EventID.parse(self._at)
        return StreamStatus(watermark_us=at.exact_us, generation_us=at.generation * 1000)

    def close(self) -> None:
        """Stop the query. A batch in progress is cancelled; it runs again after a restart."""
        with spark_errors():
            self._query.stop()


def _done(query: StreamingQuery) -> EventID | None:
    """Return the cursor after the last batch that the query has done in this run; None if it has done none."""
    last = query.lastProgress
    sources = [] if last is None else json.loads(last.json)["sources"]
    ends = [source["endOffset"] for source in sources if source.get("endOffset")]
    return Offset.of(ends[0]).cursor() if ends else None


def follow_tables(
    spark: SparkSession,
    options: Mapping[str, str],
    tables: Iterable[str] | Mapping[str, Mapping[str, str]],
    sink_of: Callable[[str], Sink],
    *,
    checkpoints: str,
    trigger: Mapping[str, Any] | None = None,
    store: CursorStore | None = None,
    name: str = "spark",
    restarts: Restarts | Mapping[str, Restarts] | None = None,
    **service: Any,
) -> Service:
    """Return a ``Service`` with one query for each table, as ``follow`` starts it.

    ::

        tables = ["shop.orders", "shop.customers"]
        service = follow_tables(spark, options, tables, lambda t: ParquetTable(spark, f"/lake/{t}"),
                                checkpoints="/lake/_checkpoints")
        sys.exit(service.run())

    Each query has a lane, named ``NAME.KEYSPACE.TABLE``. A query that fails starts again after a pause, while the
    others continue; after too many failures, or one that a restart cannot fix, its lane is parked.
    ``service.facts()``, ``/readyz`` and the page show the states; ``stop`` and SIGTERM stop all queries. With
    ``availableNow``, the service ends when all queries are done.

    Args:
        options: of the data source, without the table.
        tables: names as ``keyspace.table``; or a mapping from names to more options for each.
        sink_of: returns the sink of a table. Called once for each, in the caller's thread.
        checkpoints: directory with a checkpoint for each table, ``keyspace.table``.
        store: gets the cursor of each table under the name of its lane after each batch, for a service that is to
            continue there. A sink without a ``cursor`` also starts there if its checkpoint is new.
        restarts: default: ``Restarts(give_up="park")``.
        service: more arguments of ``Service``, such as ``port``.

    Raises:
        ConfigError: an argument, an option, or a name is wrong, or a table is named twice.
    """
    more = dict(tables) if isinstance(tables, Mapping) else {}
    names = _names_of(tables)
    check_text("checkpoints=", checkpoints)
    kept = MemoryCursorStore() if store is None else store
    specs = []
    for table in names:
        keyspace, _, own = table.partition(".")
        given = {**options, **more.get(table, {}), "keyspace": keyspace, "table": own}
        lane = f"{name}.{table}"
        checkpoint = f"{checkpoints.rstrip('/')}/{table}"
        sink = sink_of(table)
        check_sink(sink, "what sink_of returns")
        stream = QueryStream(spark, given, sink, checkpoint=checkpoint, trigger=trigger, name=lane)
        consumer = Consumer(lane, _no_events, registry=service.get("registry"))
        specs.append(Spec(stream, kept, consumer, stream.lag))
    return Service(specs, restarts=restarts or Restarts(give_up="park"), **service)


def _names_of(tables: Iterable[str]) -> list[str]:
    names = [] if isinstance(tables, str) else list(tables)
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"tables must be a list of different names, each as keyspace.table, not {tables!r}")
    for name in names:
        keyspace, _, table = name.partition(".") if isinstance(name, str) else ("", "", "")
        if not keyspace or not table:
            raise ConfigError(
                f"tables must have names as keyspace.table, such as 'shop.orders', not {name!r}; the keyspace is part "
                "of each name, not an option"
            )
    return names


def _no_events(_event: Event, _run: Any) -> None:
    raise AssertionError("a query has only progress")
