"""Changes as cells with write times. The last write of each cell wins, whatever the order of merging.

A frame of cells has one row for each row of the table, and one for each partition's static row (its clustering key is
null), which also records deletes in the partition. Merging is idempotent and independent of order, so frames of cells
can be united and merged at any time. Columns, besides the key:

    cdc$row_deleted         write time of the newest delete of the row
    cdc$marker              struct: the row was inserted, so it exists even without values
    cdc$partition_deleted   write time of the newest delete of the partition
    cdc$ranges              array of struct: deleted ranges of rows
    cdc$cell_NAME           struct: the cell of a column that is written as a whole
    cdc$gone_NAME           write time of the newest delete of a whole collection or UDT
    cdc$elements_NAME       array of struct: the cells of a set, map or list
    cdc$field_N_NAME        struct: the cell of the field number N of a UDT

Write times are in microseconds, ``expires`` in seconds since the epoch. Source of the rules: Scylla ``mutation/``
(compare_atomic_cell_for_merge, row_marker, collection_mutation).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from pyspark.sql.window import WindowSpec

from ...errors import ConfigError
from ..session.settings import without_call_sites
from ..source.shape import ColumnShape, Shape
from .order import byte_order, differs, identity, timeuuid_order

__all__ = [
    "cell_names",
    "cell_of",
    "cells_of",
    "cells_schema",
    "element_types",
    "grouped",
    "identities",
    "left_out_of",
    "merge_cells",
    "merged_columns",
    "named",
    "quoted",
    "raised",
    "saying_left_out",
    "udt_fields",
    "winners",
    "with_all_columns",
    "with_columns",
    "without",
    "written_names",
]


def quoted(name: str) -> str:
    """Return *name* in backticks, which Spark requires for names with dots and other special characters."""
    return "`" + name.replace("`", "``") + "`"


_DELETES_ROW = ("row_delete", "service_row_delete")
_DELETES_PARTITION = ("partition_delete", "service_partition_delete")
_RANGES = ("range_start_inclusive", "range_start_exclusive", "range_end_inclusive", "range_end_exclusive")
_WRITES = ("insert", "update")


def element_types(column: ColumnShape) -> tuple[DataType, DataType]:
    """Return the types of key and value of a collection's cells; the value of a set's cell is always null."""
    type_ = column.type
    if isinstance(type_, MapType):
        return type_.keyType, type_.valueType
    assert isinstance(type_, ArrayType)
    return (StringType() if column.form == "list" else type_.elementType), type_.elementType


def udt_fields(column: ColumnShape) -> list[tuple[str, DataType, str]]:
    """Return name, type, and the frame's column of each field of a UDT."""
    assert isinstance(column.type, StructType)
    return [(f.name, f.dataType, f"cdc$field_{n}_{column.name}") for n, f in enumerate(column.type.fields)]


def cells_schema(shape: Shape) -> StructType:
    """Return the columns of a frame of cells, with their types.

    Raises:
        ConfigError: a column has a reserved name, or is a map that Spark cannot merge.
    """
    for column in (*shape.keys, *shape.values):
        if column.name.lower().startswith("cdc$"):
            raise ConfigError(f"the column {column.name!r} cannot be merged: names with cdc$ are reserved for the log")
        if column.form == "map" and _has_map(element_types(column)[0]):
            raise ConfigError(
                f"the map {column.name!r} cannot be merged: its keys contain maps, which Spark does not allow; make "
                "it frozen"
            )
    bound = StructType([StructField(c.name, c.type) for c in shape.clustering])
    bound = bound.add("inclusive", BooleanType())
    times = StructType().add("t", LongType()).add("expires", LongType()).add("ttl", LongType())
    ranged = StructType().add("t", LongType()).add("start", bound).add("end", bound)
    schema = StructType([StructField(c.name, c.type) for c in shape.keys])
    schema = schema.add("cdc$row_deleted", LongType()).add("cdc$marker", times)
    schema = schema.add("cdc$partition_deleted", LongType()).add("cdc$ranges", ArrayType(ranged))
    for column in shape.values:
        if column.form == "value":
            schema = schema.add(f"cdc$cell_{column.name}", _cell_type(column.type))
            continue
        schema = schema.add(f"cdc$gone_{column.name}", LongType())
        if column.form == "udt":
            for _, type_, alias in udt_fields(column):
                schema = schema.add(alias, _cell_type(type_))
        else:
            key_type, value_type = element_types(column)
            element = StructType([StructField("key", key_type), *_cell_type(value_type).fields])
            schema = schema.add(f"cdc$elements_{column.name}", ArrayType(element))
    return schema


def _has_map(type_: DataType) -> bool:
    """Whether values of the type are maps or contain maps."""
    if isinstance(type_, ArrayType):
        return _has_map(type_.elementType)
    if isinstance(type_, StructType):
        return any(_has_map(f.dataType) for f in type_.fields)
    return isinstance(type_, MapType)


def _cell_type(value: DataType) -> StructType:
    fields = [("t", LongType()), ("dead", BooleanType()), ("expires", LongType()), ("ttl", LongType())]
    return StructType([*(StructField(n, t) for n, t in fields), StructField("value", value)])


def with_all_columns(cells: DataFrame, shape: Shape, *also: str) -> DataFrame:
    """Return *cells* with exactly the columns of *shape*, and *also*: missing ones are null, others are dropped.

    Values written to a column before it was dropped and added again, perhaps with another type, are omitted, too.
    """
    fields = cells_schema(shape).fields
    there = {f.name: f.dataType.simpleString() for f in cells.schema.fields}
    again = added_again(shape)
    missing = {
        f.name: F.lit(None).cast(f.dataType)
        for f in fields
        if f.name not in there or (f.name in again and there[f.name] != f.dataType.simpleString())
    }
    whole = with_columns(cells, missing).select(*(F.col(quoted(f.name)) for f in fields), *also)
    return with_columns(whole, {name: kept for c in shape.values for name, kept in _since_dropped(c)})


def added_again(shape: Shape) -> set[str]:
    """Return the columns of cells whose column of the base table was dropped before, and is now another one."""
    return {n for c in shape.values if c.dropped_us is not None for n in (c.name, *cell_names(c))}


def with_columns(frame: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """Return *frame* with *columns*, which may be none: Spark Connect would fail with an ``AssertionError``."""
    return frame.withColumns(dict(columns)) if columns else frame


def _since_dropped(column: ColumnShape) -> Iterator[tuple[str, Column]]:
    dropped_us = column.dropped_us
    if dropped_us is None:
        return
    for name in written_names(column):
        if column.form in ("set", "map", "list"):
            yield name, F.filter(quoted(name), lambda e: e["t"] > dropped_us)
        else:
            yield name, F.when(F.col(quoted(name))["t"] > dropped_us, F.col(quoted(name)))


def without(shape: Shape, names: Collection[str]) -> Shape:
    """Return *shape* without the columns *names*."""
    return attrs.evolve(shape, values=tuple(c for c in shape.values if c.name not in names)) if names else shape


_LEFT_OUT = "left_out"


def saying_left_out(cells: DataFrame, names: Collection[str]) -> DataFrame:
    """Return *cells* with the omitted columns recorded in their schema, for ``left_out_of``."""
    return cells.withMetadata("cdc$marker", {_LEFT_OUT: sorted(names)})


def left_out_of(cells: DataFrame) -> frozenset[str]:
    """Return the columns of the table that *cells* omit. Changes cannot complete them."""
    return frozenset(cells.schema["cdc$marker"].metadata.get(_LEFT_OUT, ()))


def cell_names(column: ColumnShape) -> list[str]:
    """Return the columns that hold the cells of *column* in a frame of cells, and when all of it was deleted."""
    gone = [] if column.form == "value" else [f"cdc$gone_{column.name}"]
    return gone + written_names(column)


def written_names(column: ColumnShape) -> list[str]:
    """Return those of ``cell_names`` that hold what was written."""
    if column.form == "udt":
        return [alias for _, _, alias in udt_fields(column)]
    return [f"cdc$cell_{column.name}" if column.form == "value" else f"cdc$elements_{column.name}"]


# ---------------------------------------------------------------- changes to cells


@without_call_sites()
def cells_of(changes: DataFrame, shape: Shape, *also: str) -> DataFrame:
    """Return the cells of *changes*, one row per change, not merged yet; *also* names columns to keep."""
    cells_schema(shape)  # checks the names
    operation = F.col("cdc_operation")
    known = changes.where(operation.isin(*_WRITES, *_DELETES_ROW, *_DELETES_PARTITION, *_RANGES))
    time = F.unix_micros("cdc_timestamp")
    expires = F.when(F.col("cdc_ttl") > 0, F.floor(time / 1_000_000) + F.col("cdc_ttl"))
    ttl = F.when(F.col("cdc_ttl") > 0, F.col("cdc_ttl"))
    deletes_row = operation.isin(*_DELETES_ROW)
    deletes_partition = operation.isin(*_DELETES_PARTITION)
    if not shape.clustering:  # a partition is a row
        deletes_row, deletes_partition = deletes_row | deletes_partition, F.lit(False)
    columns = [*(F.col(quoted(c.name)) for c in shape.keys), *(F.col(name) for name in also)]
    columns += [
        F.when(deletes_row, time).alias("cdc$row_deleted"),
        F.when(operation == "insert", _struct(t=time, expires=expires, ttl=ttl)).alias("cdc$marker"),
        F.when(deletes_partition, time).alias("cdc$partition_deleted"),
        _ranges(operation, time, shape, changes).alias("cdc$ranges"),
    ]
    for column in shape.values:
        columns += _column_cells(column, changes, time, expires, ttl)
    return known.where(_has_values(operation, time, shape)).select(*columns)


def _has_values(operation: Column, time: Column, shape: Shape) -> Column:
    """True; an error in a row of an update without columns, which the log had with ``delta: 'keys'``."""
    lacks = (operation == "update") & (F.size("cdc_touched") == 0) & (time > shape.lost_us)
    said = raised(
        "ConfigError",
        "an update has no columns, so the log had the keys of what was written then, and no values (delta: 'keys'); "
        "begin with a snapshot of the table, and with changes that are written after it (or, if a column was dropped "
        "after the DataFrame was made, load it again)",
    )
    return F.when(lacks, said.cast("boolean")).otherwise(F.lit(True))


def raised(kind: str, text: str) -> Column:
    """Return an expression that fails; ``spark_errors`` makes of that the error of rscylla of the class *kind*."""
    return F.raise_error(F.lit(f"rscylla.errors.{kind}: {text}"))


def _ranges(operation: Column, time: Column, shape: Shape, changes: DataFrame) -> Column:
    """Return the deleted range as an array of one; the end is null if its row is missing, and deletes nothing."""
    if "cdc_range" not in changes.columns:
        return F.lit(None).cast(cells_schema(shape)["cdc$ranges"].dataType)
    whole = operation.isin(*_RANGES) & F.col("cdc_range.start").isNotNull() & F.col("cdc_range.end").isNotNull()
    return F.when(whole, F.array(_struct(t=time, start=F.col("cdc_range.start"), end=F.col("cdc_range.end"))))


def _column_cells(column: ColumnShape, changes: DataFrame, time: Column, expires: Column, ttl: Column) -> list[Column]:
    name = column.name
    value = F.col("cdc_values").getField(name)
    marked = F.coalesce(F.array_contains("cdc_deleted", name), F.lit(False))
    touched = F.array_contains("cdc_touched", name)
    if column.form == "value":
        # Not where the value is null: one that Spark cannot hold is, too, but was not deleted.
        cell = cell_of(time, value, dead=marked, expires=F.when(~marked, expires), ttl=F.when(~marked, ttl))
        return [F.when(touched, cell).alias(f"cdc$cell_{name}")]
    # The log shows a collection's tombstone one microsecond later than it is.
    gone = F.when(marked, time - 1).alias(f"cdc$gone_{name}")
    removed = F.col("cdc_removed").getField(name)
    if column.form == "udt":
        return [gone, *_field_cells(column, value, removed, time, expires, ttl)]
    _, value_type = element_types(column)
    none = F.lit(None).cast(value_type)

    def live(key: Column, item: Column) -> Column:
        return cell_of(time, item.cast(value_type), key=key, expires=expires, ttl=ttl)

    def removal(key: Column) -> Column:
        return cell_of(time, none, key=key, dead=F.lit(True))

    if column.form == "set":
        added = F.transform(value, lambda e: live(e, none))
    else:
        entries = F.map_entries(F.col("cdc_added").getField(name) if column.form == "list" else value)
        added = F.transform(entries, lambda e: live(e["key"], e["value"]))
    # flatten gives null for an array that holds a null one.
    cells = F.array_compact(F.array(added, F.transform(removed, removal)))
    return [gone, F.when(touched, F.flatten(cells)).alias(f"cdc$elements_{name}")]


def _field_cells(
    column: ColumnShape, value: Column, removed: Column, time: Column, expires: Column, ttl: Column
) -> list[Column]:
    cells = []
    for field, type_, alias in udt_fields(column):
        item = value.getField(field)
        live = cell_of(time, item, expires=expires, ttl=ttl)
        dead = cell_of(time, F.lit(None).cast(type_), dead=F.lit(True))
        cells.append(F.when(item.isNotNull(), live).when(F.array_contains(removed, field), dead).alias(alias))
    return cells


def cell_of(time: Column, value: Column, *, key: Column | None = None, **others: Column) -> Column:
    """Return a cell; with *key* that of an element. It lives, and for ever, but for ``dead``, ``expires``, ``ttl``."""
    never, keys = F.lit(None).cast("bigint"), {} if key is None else {"key": key}
    return _struct(**keys, t=time, **({"dead": F.lit(False), "expires": never, "ttl": never} | others), value=value)


def _struct(**parts: Column) -> Column:
    return F.struct(*(part.alias(name) for name, part in parts.items()))


# ---------------------------------------------------------------- merging


def named(name: str) -> Column:
    """Return the column of that name, with any characters in it."""
    return F.col(quoted(name))


def identities(columns: Iterable[ColumnShape], of: Callable[[str], Column] = named) -> list[Column]:
    """Return expressions that identify the keys of *columns*, to group or join by; *of* returns a column by name."""
    return [identity(of(c.name), c.type) for c in columns]


def grouped(frame: DataFrame, columns: Sequence[ColumnShape], *aggregates: Column) -> DataFrame:
    """Return one row per key of *columns*, with the key and *aggregates*."""
    by, firsts, extra = [], [], []
    for n, column in enumerate(columns):
        if not differs(column.type):
            by.append(named(column.name))
            continue
        # Not the grouping key: Spark normalizes -0.0 to 0.0 in it.
        extra.append(f"cdc$key_{n}")
        by.append(identity(named(column.name), column.type).alias(extra[-1]))
        firsts.append(F.first(quoted(column.name)).alias(column.name))
    group = frame.groupBy(*by)
    return group.agg(*firsts, *aggregates).drop(*extra) if firsts or aggregates else frame.select(*by).distinct()


@without_call_sites()
def merge_cells(cells: DataFrame, shape: Shape) -> DataFrame:
    """Return *cells* merged to one row per key."""
    if shape.clustering:
        # Whatever follows works by partition, and Spark then keeps to this distribution: it shuffles once.
        cells = cells.repartition(*identities(shape.partition))
    return grouped(cells, shape.keys, *merged_columns(shape, cells))


def merged_columns(shape: Shape, cells: DataFrame, window: WindowSpec | None = None) -> list[Column]:
    """Return the aggregates that merge the columns of *cells*, over a *window* or for ``groupBy``.

    Over a window, arrays (ranges, elements) stay those of each row: merged ones would be as long as the window.
    """

    def over(aggregate: Column) -> Column:
        return aggregate if window is None else aggregate.over(window)

    def newest(name: str) -> Column:
        return over(F.max(quoted(name))).alias(name)

    columns = [newest("cdc$row_deleted"), newest("cdc$partition_deleted")]
    marker = F.col("cdc$marker")
    order = F.when(marker.isNotNull(), F.struct(marker["t"], marker["expires"], -marker["ttl"]))
    columns.append(over(F.max_by(marker, order)).alias("cdc$marker"))
    columns.append(
        F.flatten(F.collect_list("cdc$ranges")).alias("cdc$ranges") if window is None else F.col("cdc$ranges")
    )
    for column in shape.values:
        if column.form == "value":
            columns.append(_winner(f"cdc$cell_{column.name}", column.type, over))
            continue
        columns.append(newest(f"cdc$gone_{column.name}"))
        if column.form == "udt":
            columns += [_winner(alias, type_, over) for _, type_, alias in udt_fields(column)]
        else:
            name = f"cdc$elements_{column.name}"
            merged = winners(F.flatten(F.collect_list(quoted(name))), column).alias(name)
            columns.append(merged if window is None else F.col(quoted(name)))
    return columns


def _winner(name: str, type_: DataType, over: Callable[[Column], Column]) -> Column:
    cell = F.col(quoted(name))
    return over(F.max_by(cell, F.when(cell.isNotNull(), _rank(cell, type_)))).alias(name)


def _rank(cell: Column, type_: DataType) -> Column:
    """Return the sort key of a cell; the greater wins: newer; then dead, expiring, later, shorter TTL, greater."""
    return F.struct(
        cell["t"], cell["dead"], cell["expires"], -cell["ttl"], byte_order(cell["value"], type_).alias("tie")
    )


def winners(cells: Column, column: ColumnShape) -> Column:
    """Return the winning cell of each key, in the order of the keys."""
    key_type, value_type = element_types(column)

    def ranked(cell: Column, at: Column) -> Column:
        key = timeuuid_order(cell["key"]) if column.form == "list" else identity(cell["key"], key_type)
        rank = _rank(cell, value_type)
        return F.struct(key.alias("key"), rank.alias("rank"), at.alias("at"))

    def last_of_each(order: Column) -> Column:
        return F.filter(
            order,
            lambda x, i: (i == F.size(order) - 1) | ~F.get(order, i + 1)["key"].eqNullSafe(x["key"]),
        )

    # A value bound by a lambda is computed once; inlined, it would be computed again for each element.
    picked = F.transform(F.array(F.array_sort(F.transform(cells, ranked))), last_of_each)[0]
    return F.transform(F.array(cells), lambda all_: F.transform(picked, lambda x: F.get(all_, x["at"])))[0]
