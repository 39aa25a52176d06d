"""``ScyllaTable``: the executors apply the changes of a DataFrame to a table of Scylla."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ...base import TableWriter, Write
from ...cdc import PlannedWindow
from ...cdc.log import Table, read_base_table
from ...clock import Clock, Stop, SystemClock
from ...errors import ConfigError, TableNotFound
from ..pipeline.cells import quoted
from ..pipeline.inarrow import map_in_arrow
from ..pipeline.replay import ArrowChangeWriter, in_numbers
from ..session.session import session_for
from ..source.optionnames import of_sink
from ..source.options import Connection, Options
from ..source.shape import Shape

__all__ = ["ChangesWriter", "ExecutorWriter", "ScyllaTable", "sink_options"]

IN_FLIGHT = 64
"""Concurrent writes of a task."""

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


class ScyllaTable:
    """A table of Scylla, for any number of writers.

    Each change is written with its original write time and its remaining TTL, so the order does not matter, and writing
    again changes nothing: a batch can be repeated after a crash. The table must have the columns of the source table.
    List elements keep their ids.

    Args:
        options: ``contactPoints``, ``keyspace``, and ``table``; credentials, TLS, and ``consistency`` as for the data
            source. Options that only say how a log is read, such as ``lag``, are ignored.

    Raises (constructor):
        ConfigError: an option is wrong.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = sink_options(options)

    def apply(self, changes: DataFrame, window: PlannedWindow) -> bool:
        """Apply the changes of *window*; return True. See ``write``."""
        self.write(changes)
        return True

    def write(self, changes: DataFrame, batch: int = 0) -> int:
        """Apply *changes*; return the number of changes. Can be passed to ``writeStream.foreachBatch``.

        ::

            stream = spark.readStream.format("scylla-cdc").options(**source).load()
            stream.writeStream.foreachBatch(ScyllaTable(target).write).option("checkpointLocation", path).start()

        Args:
            changes: a DataFrame of the source with mode ``changes``, or a part of its rows.
            batch: not used.

        Raises:
            ConfigError: *changes* is not such a DataFrame.
            PySparkException: a task failed. Its text ends with the error of rscylla: ``TableNotFound``,
                ``CannotReplicate`` if the table cannot take the changes, or the error of a write; ``spark_errors``
                converts it.
        """
        shape = Shape.of(changes)
        writer = ChangesWriter(self._options.connection, self._options.keyspace, self._options.table, shape)
        columns = [*shape.key_names, *(n for n in _NEEDED if n in changes.columns)]
        time = F.unix_micros("cdc_timestamp").alias("cdc_timestamp")
        given = changes.select(*(F.col(quoted(n)) for n in columns), time)
        counts = map_in_arrow(given, writer, "written bigint")
        # Without any row, the sum is null.
        return int(counts.agg(F.coalesce(F.sum("written"), F.lit(0)).alias("n")).collect()[0]["n"])


def sink_options(options: Mapping[str, str]) -> Options:
    """Return the parsed options of a sink, which has no lag; see ``of_sink``.

    Raises:
        ConfigError: an option is wrong, or chooses what a reader reads.
    """
    # The options are those of the source, which must have a lag.
    parsed = Options.of({**of_sink(options), "lag": "0s"})
    if parsed.connection.consistency in ("SERIAL", "LOCAL_SERIAL"):
        raise ConfigError(f"option consistency: {parsed.connection.consistency} is for reading; write with QUORUM")
    return parsed


@attrs.frozen
class ExecutorWriter:
    """Writes batches of rows to a table, in an executor. Can be pickled."""

    connection: Connection
    keyspace: str
    table: str

    def writes_to(self, target: Table, clock: Clock) -> Callable[[Mapping[str, Any]], list[Write]]:
        """Return what makes the writes of a row, all of one partition.

        Raises:
            CannotReplicate: *target* cannot take the rows.
        """
        raise NotImplementedError

    def target(self) -> Table:
        """Return the table; raise ``TableNotFound`` if it does not exist."""
        target = read_base_table(session_for(self.connection), self.keyspace, self.table)
        if target is None:
            raise TableNotFound(f"the target table {self.keyspace}.{self.table} does not exist; create it first")
        return target

    def written(self, batches: Iterator[Any]) -> Iterator[int]:
        """Write *batches*, and yield the number of rows of each when they are written."""
        session, clock = session_for(self.connection), SystemClock()
        target = self.target()
        writes = self.writes_to(target, clock)
        door = TableWriter(session.session, consistency=self.connection.consistency, clock=clock)
        doing, stop = f"writing to {target.full_name}", Stop()

        def write(row: Mapping[str, Any]) -> None:
            door.apply(writes(row), doing=doing, stop=stop)

        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            try:
                for batch in batches:
                    # Consumes every result, so that the first error is raised.
                    for _ in pool.map(write, in_numbers(batch).to_pylist()):
                        pass
                    yield batch.num_rows
            finally:
                stop.set()  # after an error, writes in progress are not retried


@attrs.frozen
class ChangesWriter(ExecutorWriter):
    """Writes changes with their own write times; a function for ``mapInArrow``."""

    shape: Shape

    def writes_to(self, target: Table, clock: Clock) -> Callable[[Mapping[str, Any]], list[Write]]:
        writer = ArrowChangeWriter(self.shape, target)
        return lambda change: writer.writes(change, clock.now_us())

    def check(self) -> None:
        """Check that the table can take the changes; raise ``CannotReplicate`` or ``TableNotFound`` if not."""
        ArrowChangeWriter(self.shape, self.target())

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for count in self.written(batches):
            yield pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], ["written"])
