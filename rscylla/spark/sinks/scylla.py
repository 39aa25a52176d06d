"""``ScyllaTable``: the executors apply the changes of a DataFrame to a table of Scylla."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ...base.writing import Target
from ...cdc.table import read_base_table
from ...cdc.windowing import Window
from ...clock import Stop, SystemClock
from ...errors import ConfigError, TableNotFound
from ..options import Connection, Options
from ..pipeline.cells import quoted
from ..pipeline.replay import ArrowChangeWriter, in_numbers
from ..session import session_for
from ..shape import Shape

__all__ = ["ScyllaTable"]

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
            source.

    Raises (constructor):
        ConfigError: an option is wrong.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        if any(name.lower() in ("lag", "mode") for name in options):
            raise ConfigError("a sink does not accept the options lag and mode; omit them")
        # The options are those of the source, which must have a lag.
        self._options = Options.of({**options, "lag": "0s"})

    def apply(self, changes: DataFrame, window: Window) -> bool:
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
        writer = _Writer(self._options.connection, self._options.keyspace, self._options.table, shape)
        columns = [*shape.key_names, *(n for n in _NEEDED if n in changes.columns)]
        time = F.unix_micros("cdc_timestamp").alias("cdc_timestamp")
        counts = changes.select(*(F.col(quoted(n)) for n in columns), time).mapInArrow(writer, "written bigint")
        # Without any row, the sum is null.
        return int(counts.agg(F.coalesce(F.sum("written"), F.lit(0)).alias("n")).collect()[0]["n"])


@attrs.frozen
class _Writer:
    """Writes batches of changes, in an executor. Can be pickled."""

    connection: Connection
    keyspace: str
    table: str
    shape: Shape

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        session, clock = session_for(self.connection), SystemClock()
        target = read_base_table(session, self.keyspace, self.table)
        if target is None:
            raise TableNotFound(f"the target table {self.keyspace}.{self.table} does not exist; create it first")
        writer = ArrowChangeWriter(self.shape, target)
        door = Target(session.session, consistency=self.connection.consistency, clock=clock)
        doing, stop = f"writing to {target.full_name}", Stop()

        def repeat(change: Mapping[str, Any]) -> None:
            door.apply(writer.writes(change, clock.now_us()), doing=doing, stop=stop)

        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            try:
                for batch in batches:
                    # Consumes every result, so that the first error is raised.
                    for _ in pool.map(repeat, in_numbers(batch).to_pylist()):
                        pass
                    yield pa.RecordBatch.from_arrays([pa.array([batch.num_rows], pa.int64())], ["written"])
            finally:
                stop.set()  # after an error, writes in progress are not retried
