"""``latest``: the rows that a table has after some changes, with every rule of the database on what wins."""

from __future__ import annotations

from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from ... import _timeuuid as tu
from ...clock import SystemClock
from ...errors import ConfigError
from ..shape import ColumnShape, Shape
from .cells import cells_of, merge_cells, udt_fields, with_all_columns
from .order import clustering_order

__all__ = ["latest", "live_rows", "row_values", "with_liveness", "with_partition"]

NEVER = -(2**63)


def latest(changes: DataFrame, *, at: datetime | None = None, base: DataFrame | None = None) -> DataFrame:
    """Return the rows of the table after *changes*, with the columns of the base table, as ``SELECT *`` shows them.

    Each cell, and each element of a collection that is not frozen, has the value that was written last by write time;
    at equal times a delete wins. Deletes of rows, ranges and partitions count, static columns are in each row of their
    partition (and in one without clustering key where that has no row), what has expired is null. The order in which
    the changes come does not matter.

    The result is the whole table if *changes* reach back to its first write, or *base* says what was there before.

    Args:
        changes: a DataFrame of the source with mode ``changes``, or a part of its rows.
        at: the time (aware) by which cells with a TTL have expired; now, unless given. The log does not tell the time
            of the server at which a cell expires: it is taken for the write time plus the TTL.
        base: cells that *changes* are added to: of ``snapshot``, or of a table kept by ``apply_changes``.

    Raises:
        ConfigError: *changes* is no such DataFrame, or *at* has no time zone.
    """
    second = second_of(at)
    shape = Shape.of(changes)
    cells = cells_of(changes, shape)
    if base is not None:
        cells = cells.unionByName(with_all_columns(base, shape))
    return live_rows(merge_cells(cells, shape), shape, second)


def second_of(at: datetime | None) -> Column:
    """Return the time by which things have expired, in seconds since the epoch."""
    try:
        us = SystemClock().now_us() if at is None else tu.us_of(at)
    except ValueError as e:
        raise ConfigError(f"at= is {e}") from e
    return F.lit(us // 1_000_000)


def live_rows(cells: DataFrame, shape: Shape, second: Column) -> DataFrame:
    """Return the rows of merged *cells* that exist at *second*."""
    rows = with_liveness(cells, shape, second)
    return rows.where("cdc_live").select(*(F.col(quoted(c.name)) for c in (*shape.keys, *shape.values)))


def with_liveness(cells: DataFrame, shape: Shape, second: Column) -> DataFrame:
    """Add the values of merged *cells* as of *second*, and ``cdc_live``: whether the row is one that a SELECT shows."""
    rows = row_values(with_partition(cells, shape), shape, second)
    exists = F.col("cdc_live")
    if shape.clustering and shape.statics:
        # A partition that has static values but no row is one row without clustering key.
        rows = rows.withColumn("cdc_any_live", F.max("cdc_live").over(_of_partition(shape)))
        has_statics = reduce(lambda a, b: a | b, (F.col(quoted(c.name)).isNotNull() for c in shape.statics))
        exists = exists | (is_static(shape) & has_statics & ~F.col("cdc_any_live"))
    return rows.withColumn("cdc_live", exists)


def is_static(shape: Shape) -> Column:
    """Whether a row of cells is that of the partition."""
    return reduce(lambda a, b: a & b, (F.col(quoted(c.name)).isNull() for c in shape.clustering))


def _of_partition(shape: Shape) -> WindowSpec:
    return Window.partitionBy(*(F.col(quoted(c.name)) for c in shape.partition))


def with_partition(cells: DataFrame, shape: Shape) -> DataFrame:
    """Return the cells of rows, next to what their partition says: static cells, and what was deleted of it.

    ``cdc_covered`` is the write time up to which deletes hide the row's own cells.
    """
    row_deleted = F.coalesce("cdc_row_deleted", F.lit(NEVER))
    if not shape.clustering:
        return cells.withColumn("cdc_covered", row_deleted)
    static, partition = is_static(shape), _of_partition(shape)
    shared = ["cdc_partition_deleted", "cdc_ranges", *(n for c in shape.statics for n in cell_names(c))]
    told = {n: F.first(F.when(static, F.col(quoted(n))), ignorenulls=True).over(partition) for n in shared}
    told["cdc_partition_deleted"] = F.coalesce(told["cdc_partition_deleted"], F.lit(NEVER))
    joined = cells.withColumns(told)
    deleted = F.col("cdc_partition_deleted")
    covered = F.greatest(row_deleted, deleted, range_deleted(F.col("cdc_ranges"), shape))
    return joined.withColumn("cdc_covered", F.when(static, deleted).otherwise(covered))


def range_deleted(ranges: Column, shape: Shape) -> Column:
    """Return the newest write time of those of *ranges* that the row lies in."""
    orders = [clustering_order(F.col(quoted(c.name)), c) for c in shape.clustering]
    unknown = [c for c, order in zip(shape.clustering, orders, strict=True) if order is None]
    if unknown:
        said = F.raise_error(
            f"ranges of the clustering column {unknown[0].name!r} were deleted, and Spark cannot compare its type "
            f"{unknown[0].cql}; read the base table instead"
        )
        return F.when(F.size(F.coalesce(ranges, F.array())) > 0, said.cast("bigint")).otherwise(F.lit(NEVER))

    def covers(each: Column) -> Column:
        return _beyond(each["start"], shape, after=True) & _beyond(each["end"], shape, after=False)

    times = F.transform(F.filter(ranges, covers), lambda each: each["t"])
    return F.coalesce(F.array_max(times), F.lit(NEVER))


def _beyond(bound: Column, shape: Shape, *, after: bool) -> Column:
    """Whether the row lies on the inner side of a bound, which names the first columns of the clustering key."""
    inner: Column = bound["inclusive"]
    for column in reversed(shape.clustering):
        here = clustering_order(F.col(quoted(column.name)), column)
        there = clustering_order(bound.getField(column.name), column)
        assert here is not None
        assert there is not None
        within = here > there if after != column.descending else here < there
        named = bound.getField(column.name).isNotNull()
        # At an equal value the columns after it decide, and where the bound names no more, whether it is inclusive.
        inner = F.when(~named, bound["inclusive"]).when(here == there, inner).otherwise(within)
    return inner


# ---------------------------------------------------------------- values


def row_values(cells: DataFrame, shape: Shape, second: Column) -> DataFrame:
    """Add the value of each column as of *second*, under its own name, and ``cdc_live``: whether the row exists."""
    covered = F.col("cdc_covered")
    statics = shape.statics if shape.clustering else ()
    values = {
        c.name: _value(c, F.col("cdc_partition_deleted") if c in statics else covered, second) for c in shape.values
    }
    marker = F.col("cdc_marker")
    alive = F.coalesce((marker["t"] > covered) & _unexpired(marker, second), F.lit(False))
    has_values = (F.col(quoted(c.name)).isNotNull() for c in shape.values if c not in statics)
    return cells.withColumns(values).withColumn("cdc_live", reduce(lambda a, b: a | b, has_values, alive))


def _value(column: ColumnShape, covered: Column, second: Column) -> Column:
    name = column.name

    def counts(cell: Column, floor: Column) -> Column:
        return F.coalesce((cell["t"] > floor) & ~cell["dead"] & _unexpired(cell, second), F.lit(False))

    if column.form == "value":
        cell = F.col(quoted(f"cdc_cell_{name}"))
        return F.when(counts(cell, covered), cell["value"])
    floor = F.greatest(covered, F.coalesce(quoted(f"cdc_gone_{name}"), F.lit(NEVER)))
    if column.form == "udt":
        fields = [
            F.when(counts(F.col(quoted(alias)), floor), F.col(quoted(alias))["value"]).alias(field)
            for field, _, alias in udt_fields(column)
        ]
        return F.when(reduce(lambda a, b: a | b, (f.isNotNull() for f in fields)), F.struct(*fields))
    elements = F.filter(quoted(f"cdc_elements_{name}"), lambda e: counts(e, floor))
    whole = {
        "map": lambda: F.map_from_entries(F.transform(elements, lambda e: F.struct(e["key"], e["value"]))),
        "set": lambda: F.transform(elements, lambda e: e["key"]),
        "list": lambda: F.transform(elements, lambda e: e["value"]),
    }[column.form]()
    return F.when(F.size(elements) > 0, whole)


def _unexpired(cell: Column, second: Column) -> Column:
    return F.coalesce(cell["expires"] > second, F.lit(True))


def cell_names(column: ColumnShape) -> list[str]:
    """Return the columns that hold the cells of *column* in a frame of cells."""
    if column.form == "value":
        return [f"cdc_cell_{column.name}"]
    if column.form == "udt":
        return [f"cdc_gone_{column.name}", *(alias for _, _, alias in udt_fields(column))]
    return [f"cdc_gone_{column.name}", f"cdc_elements_{column.name}"]


def quoted(name: str) -> str:
    """Return *name* in backticks, as Spark wants names with dots and the like."""
    return "`" + name.replace("`", "``") + "`"
