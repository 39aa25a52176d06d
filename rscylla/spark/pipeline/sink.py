"""A way back to Scylla: the executors write the changes of a DataFrame to a table, as they were made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..._retry import Backoff
from ...cdc.driver import LogSession, LogStatement, translate
from ...clock import Stop, SystemClock
from ...errors import ConfigError
from ..options import Connection, Options
from ..session import session_for
from ..shape import Shape
from .latest import quoted
from .replay import Replay, Statement, binder_for

__all__ = ["scylla_sink", "write_changes"]

IN_FLIGHT = 64
"""Writes at once, of each task."""

ATTEMPTS = 8

_NEEDED = (
    "cdc_operation",
    "cdc_ttl",
    "cdc_values",
    "cdc_touched",
    "cdc_deleted",
    "cdc_added",
    "cdc_removed",
    "cdc_range",
)


def scylla_sink(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for ``writeStream.foreachBatch`` that repeats changes in another table.

    ::

        stream = spark.readStream.format("scylla-cdc").options(**source).load()
        stream.writeStream.foreachBatch(scylla_sink(target)).option("checkpointLocation", path).start()

    For *options* see ``write_changes``.
    """
    _target(options)  # what is wrong is told here and not in the first batch

    def write(changes: DataFrame, _batch: int) -> None:
        write_changes(changes, options)

    return write


def write_changes(changes: DataFrame, options: Mapping[str, str]) -> int:
    """Repeat *changes* in a table of Scylla and return how many there were.

    Each is written with its own write time and what is left of its TTL, so the order does not matter, and to write
    again changes nothing: a batch may be repeated after a crash. The table must have the columns of the one that the
    changes are of. Elements of lists keep their ids.

    Args:
        changes: a DataFrame of the source with mode ``changes``, or a part of its rows.
        options: ``contactPoints``, ``keyspace``, ``table`` of the table to write to; credentials, TLS and
            ``consistency`` as for the data source.

    Raises:
        ConfigError: an option is wrong, or *changes* is no such DataFrame.
        PySparkException: a task failed; its text ends with the error of rscylla.
    """
    target = _target(options)
    shape = Shape.of(changes)
    writer = _Writer(target.connection, Replay(target.keyspace, target.table, shape))
    columns = [*shape.key_names, *(n for n in _NEEDED if n in changes.columns)]
    wanted = changes.select(*(F.col(quoted(n)) for n in columns), F.unix_micros("cdc_timestamp").alias("cdc_timestamp"))
    counts = wanted.mapInArrow(writer, "written bigint")
    return int(counts.agg(F.coalesce(F.sum("written"), F.lit(0)).alias("n")).collect()[0]["n"])


def _target(options: Mapping[str, str]) -> Options:
    if any(name.lower() in ("lag", "mode") for name in options):
        raise ConfigError("a sink takes no lag and no mode; leave them out of its options")
    return Options.of({**options, "lag": "0s"})


@attrs.frozen
class _Writer:
    """Writes batches of changes, in an executor. Can be pickled."""

    connection: Connection
    replay: Replay

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        writes = _Writes(session_for(self.connection), f"{self.replay.keyspace}.{self.replay.table}")
        clock = SystemClock()
        for batch in batches:
            for change in batch.to_pylist():
                for statement in self.replay.statements(change, clock.now_us() // 1_000_000):
                    writes.add(statement)
            writes.finish()
            yield pa.RecordBatch.from_arrays([pa.array([batch.num_rows], pa.int64())], ["written"])


@attrs.define
class _Write:
    statement: Statement
    failures: int = 0


class _Writes:
    """Writes in flight, up to a limit; those that fail for a while are sent again. Used by one thread."""

    def __init__(self, session: LogSession, name: str) -> None:
        self._session = session
        self._doing = f"writing to {name}"
        self._clock = SystemClock()
        self._backoff = Backoff()
        self._prepared: dict[str, tuple[LogStatement, list[Callable[[Any], Any]]]] = {}
        self._answers: SimpleQueue[tuple[_Write, BaseException | None]] = SimpleQueue()
        self._in_flight = 0

    def add(self, statement: Statement) -> None:
        """Send *statement*, waiting while there are too many.

        Raises:
            SourceError: it, or one before it, could not be written.
        """
        while self._in_flight >= IN_FLIGHT:
            self._take()
        self._send(_Write(statement))

    def finish(self) -> None:
        """Wait until all are written; raises as ``add`` does."""
        while self._in_flight:
            self._take()

    def _send(self, write: _Write) -> None:
        cql, values = write.statement
        known = self._prepared.get(cql)
        if known is None:
            statement = self._session.prepare(cql, page_size=1, doing=self._doing)
            known = self._prepared[cql] = (statement, [binder_for(c.type) for c in statement.parameters])
        prepared, binders = known
        bound = prepared.prepared.bind([bind(v) for bind, v in zip(binders, values, strict=True)])
        bound.consistency_level = prepared.consistency
        bound.is_idempotent = True
        answers = self._answers
        self._in_flight += 1
        try:
            future = self._session.session.execute_async(bound)
        except Exception as e:  # noqa: BLE001 - a refusal to send is an answer like any other
            answers.put((write, e))
            return
        future.add_callbacks(lambda _: answers.put((write, None)), lambda e: answers.put((write, e)))

    def _take(self) -> None:
        write, error = self._answers.get()
        self._in_flight -= 1
        if error is None:
            return
        ours = translate(error, self._doing)
        write.failures += 1
        if not ours.resumable or write.failures >= ATTEMPTS:
            raise ours from error
        self._clock.wait(Stop(), self._backoff.seconds(write.failures))
        self._send(write)
