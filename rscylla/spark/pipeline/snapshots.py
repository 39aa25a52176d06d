"""``snapshot``: the rows of a base table, read by the executors, and the cursor whose changes complete them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ..._tokens import TokenRange
from ...base import pages, select_range, with_times
from ...cdc import Stream
from ...cdc.arrow import built, naming
from ...cdc.log import BaseColumn, LoggedTable, dropped_columns
from ...cdc.rows import Cells
from ...clock import Stop, SystemClock
from ...errors import ConfigError
from ...options import StreamLag
from ...types import NO_DIGITS, Digits, Type, with_digits
from ...types.arrow import Build, arrow_type, builder_for, check_levels
from ..loops.windows import read_options
from ..session.session import session_for
from ..source.options import Connection, Options
from ..source.shape import ColumnShape, Shape
from .cells import cell_of, element_types, grouped, quoted, saying_left_out, udt_fields
from .latest import is_static

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Snapshot", "snapshot"]

_PREFIXES = {"value": "", "writetime": "cdc$written_", "ttl": "cdc$ttl_"}

_OLDEST = -(2**62)
"""Write time of cells whose time cannot be read: every change is newer."""


@attrs.frozen
class Snapshot:
    """A base table, read some time after ``cursor``.

    ``rows`` has the columns of the table. ``cells`` also has the write times, as far as they can be read: it is the
    base for ``latest``, or the start of a table for ``apply_changes``. Each action reads both again. ``left_out`` names
    the omitted columns of the table, which are also absent from everything derived from the cells.
    """

    cursor: str
    rows: DataFrame
    shape: Shape
    left_out: frozenset[str]
    _raw: DataFrame

    @property
    def cells(self) -> DataFrame:
        """The rows as cells.

        Raises:
            ConfigError: the table has a non-frozen list. Changes identify its elements by ids that a SELECT does not
                return.
        """
        lists = [c.name for c in self.shape.values if c.form == "list"]
        if lists:
            raise ConfigError(
                f"changes cannot complete the snapshot of the non-frozen list {lists[0]!r}, whose element ids a "
                "SELECT does not return; read the log from the start, make the list frozen, or omit it with columns="
            )
        return saying_left_out(_cells(self._raw, self.shape), self.left_out)


def snapshot(
    spark: SparkSession,
    stream: Stream,
    lag: StreamLag,
    *,
    columns: list[str] | None = None,
    read: Mapping[str, str] | None = None,
    ranges: int | None = None,
) -> Snapshot:
    """Return the base table of *stream* as DataFrames, with a cursor whose later changes complete it.

    The cursor is that of the head at the time of the call, *lag* ago. The executors read the rows when an action needs
    them, one task for each range of tokens. The rows may contain some of the writes made in the meantime. The changes
    after the cursor contain all of them, and merging by write time produces the current table::

        start = snapshot(spark, stream, StreamLag(seconds=30))
        ParquetTable(spark, "/data/orders").start_from(start)
        store.set_cursor("lake", start.cursor)

    A SELECT does not return everything, so the snapshot assumes that every row was inserted, that a row whose values
    all expire ends with the last of them, and that elements of non-frozen collections have no TTL and are older than
    any change.

    Args:
        lag: the lag of the stream that continues from the cursor.
        columns: columns to read besides the key; default: all.
        read: options of the data source, as for ``windows``.
        ranges: number of tasks that share the token ring; default: four per core of the session.

    Raises:
        ConfigError: a column does not exist, or an option is wrong.
        TableNotFound, CDCDisabled, SourceError: as for opening a stream.
    """
    cursor = stream.head_cursor(lag.lag)
    source = stream.describe()
    options = Options.of(read_options(stream, source, lag.lag, "changes", read or {}))
    columns_ = _chosen(source.table, columns)
    query = _TableQuery.of(source.table, columns_, options.digits)
    fields = from_arrow_schema(query.schema, prefer_timestamp_ntz=False).fields
    types = {f.name: f.dataType for f in fields}
    count = ranges or 4 * _cores(spark)
    reader = _RangeReader(options.connection, query, count, options.page_size)
    # One row a task: its number is that of the task's range of tokens.
    raw = spark.range(0, count, 1, count).mapInArrow(reader, StructType(fields))
    # After the cursor: what is written to a column that is dropped and added again from here on, is in the changes.
    dropped = dropped_columns(source.session, source.table.keyspace, source.table.name)
    shape = Shape.from_columns([(c, types[c.name]) for c in columns_], dropped)
    rows = raw.select(*(F.col(quoted(c.name)) for c in (*shape.keys, *shape.values)))
    left_out = frozenset(c.name for c in source.table.columns if c not in columns_)
    return Snapshot(cursor, rows, shape, left_out, raw)


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - Spark Connect has no context; what it raises is its own
        return 4


def _chosen(table: LoggedTable, columns: list[str] | None) -> list[BaseColumn]:
    known = {c.name for c in table.columns}
    for name in columns or ():
        if name not in known:
            raise ConfigError(f"{table.full_name} has no column {name!r}")
    return [c for c in table.columns if c.in_key or columns is None or c.name in columns]


# ---------------------------------------------------------------- reading


@attrs.frozen
class _TableQuery:
    """The query for the rows of a token range, and its Arrow schema.

    After a column that is one cell come its ``cdc$written_NAME`` and ``cdc$ttl_NAME``; at the end ``cdc$read``, the
    second at which the row was read.
    """

    table: str
    cql: str
    types: tuple[tuple[str, Type], ...]
    keys: frozenset[str]

    @classmethod
    def of(cls, table: LoggedTable, columns: list[BaseColumn], digits: Mapping[str, Digits] = NO_DIGITS) -> _TableQuery:
        """Return the query of *columns*; *digits* as for ``cdc.batches.view_for``."""
        selected = list(with_times(columns))
        types = tuple(
            (_PREFIXES[s.what] + s.column.name, with_digits(s.type, digits, exact=s.column.kind == "partition_key"))
            for s in selected
        )
        keys = frozenset(c.name for c in columns if c.in_key)
        return cls(table.full_name, select_range(table, [s.cql for s in selected]), types, keys)

    @property
    def schema(self) -> Any:
        fields = [*((name, arrow_type(type_)) for name, type_ in self.types), ("cdc$read", pa.int64())]
        check_levels(fields, self.table)
        return pa.schema(fields)

    def builders(self) -> list[tuple[str, Build]]:
        """Return what converts the cells of each column but the last."""
        return [
            (
                name,
                # A null key would make rows equal that are not.
                builder_for(t, loose=t.kind == "udt" and not t.frozen, beyond="raise" if name in self.keys else "null"),
            )
            for name, t in self.types
        ]

    def batch(self, rows: Sequence[Cells], builders: Sequence[tuple[str, Build]], second: int) -> Any:
        """Return *rows*, which were read in *second*, as a record batch.

        Raises:
            MalformedData: a cell has no value of its type.
            SourceError: a timestamp in a key is beyond what Arrow can hold, or a number has too many digits.
        """
        columns = zip(builders, zip(*rows, strict=True), strict=True)
        with naming(self.table, is_log=False, instead="copy the table with rscylla.replicate"):
            arrays = [built(name, build, column) for (name, build), column in columns]
        arrays.append(pa.array([second] * len(rows), pa.int64()))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@attrs.frozen
class _RangeReader:
    """Reads token ranges in an executor: converts their numbers to batches of rows. Can be pickled."""

    connection: Connection
    query: _TableQuery
    ranges: int
    page_size: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        session, clock = session_for(self.connection), SystemClock()
        name = self.query.table
        statement = session.prepare(self.query.cql, page_size=self.page_size, doing=f"preparing to read {name}")
        builders = self.query.builders()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part, doing = TokenRange().split(self.ranges)[number], f"reading {name}"
                for page in pages(session, statement, (part.low, part.high), doing=doing, clock=clock, stop=Stop()):
                    if page.row_count:
                        yield self.query.batch(page.cells(name), builders, clock.now_us() // 1_000_000)


# ---------------------------------------------------------------- cells


def _cells(raw: DataFrame, shape: Shape) -> DataFrame:
    """Return rows with write times and TTLs as cells."""
    if not shape.clustering:
        return _with_cells(raw, shape.keys, shape.values, _marker(shape.values))
    regulars = shape.regulars
    rows = _with_cells(raw.where(~is_static(shape)), shape.keys, regulars, _marker(regulars))
    if not shape.statics:
        return rows
    none = [F.lit(None).cast(c.type).alias(c.name) for c in shape.clustering]
    columns = raw.columns
    parts = grouped(raw, shape.partition, F.first(F.struct(*(F.col(quoted(n)) for n in columns))).alias("cdc$row"))
    parts = parts.select(*(F.col("cdc$row").getField(n).alias(n) for n in columns))
    return rows.unionByName(_with_cells(parts, shape.partition, shape.statics, *none), allowMissingColumns=True)


def _with_cells(
    frame: DataFrame, keys: Sequence[ColumnShape], columns: Sequence[ColumnShape], *more: Column
) -> DataFrame:
    cells = (cell for column in columns for cell in _column_cells(column))
    return frame.select(*(F.col(quoted(c.name)) for c in keys), *more, *cells)


def _marker(columns: tuple[ColumnShape, ...]) -> Column:
    """Return the row marker, which never expires unless all cells of the row expire."""
    timed = [c for c in columns if c.form == "value"]
    lasting = [F.col(quoted(c.name)).isNotNull() & F.col(quoted(f"cdc$ttl_{c.name}")).isNull() for c in timed]
    lasting += [F.col(quoted(c.name)).isNotNull() for c in columns if c.form != "value"]
    ends = F.array_max(F.array(F.lit(None).cast("bigint"), *(_expires(c.name) for c in timed)))
    last = F.when(~reduce(lambda a, b: a | b, lasting, F.lit(False)), ends)
    none = F.lit(None).cast("bigint")
    return F.struct(F.lit(_OLDEST).alias("t"), last.alias("expires"), none.alias("ttl")).alias("cdc$marker")


def _expires(name: str) -> Column:
    return F.col("cdc$read") + F.col(quoted(f"cdc$ttl_{name}"))


def _column_cells(column: ColumnShape) -> list[Column]:
    name = column.name
    value = F.col(quoted(name))
    if column.form == "value":
        ttl = F.col(quoted(f"cdc$ttl_{name}")).cast("bigint")
        cell = cell_of(F.col(quoted(f"cdc$written_{name}")), value, expires=_expires(name), ttl=ttl)
        return [F.when(value.isNotNull(), cell).alias(f"cdc$cell_{name}")]
    # If the column was dropped and added again, its parts are newer than that.
    oldest = F.lit(_OLDEST if column.dropped_us is None else column.dropped_us + 1)
    if column.form == "udt":
        return [
            F.when(value.getField(field).isNotNull(), cell_of(oldest, value.getField(field))).alias(alias)
            for field, _, alias in udt_fields(column)
        ]
    if column.form == "set":
        none = F.lit(None).cast(element_types(column)[1])
        found = F.transform(value, lambda e: cell_of(oldest, none, key=e))
    else:
        found = F.transform(F.map_entries(value), lambda e: cell_of(oldest, e["value"], key=e["key"]))
    return [found.alias(f"cdc$elements_{name}")]
