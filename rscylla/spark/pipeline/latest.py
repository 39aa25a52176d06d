"""``latest``: the rows of a table after some changes, by the database's own rules for conflicting writes."""

from __future__ import annotations

from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from ...clock import SystemClock
from ...options import aware_us
from ..session.settings import without_call_sites
from ..source.shape import ColumnShape, Shape
from .cells import (
    cell_names,
    cells_of,
    element_types,
    identities,
    left_out_of,
    merge_cells,
    quoted,
    raised,
    udt_fields,
    with_all_columns,
    without,
)
from .order import clustering_order, differs, one_zero

__all__ = ["latest", "live_rows", "row_values", "unexpired", "with_liveness", "with_partition"]

NEVER = -(2**63)


@without_call_sites()
def latest(changes: DataFrame, *, at: datetime | None = None, base: DataFrame | None = None) -> DataFrame:
    """Return the rows of the table after *changes*, with the columns of the base table, as ``SELECT *`` shows them.

    Each cell, and each element of a non-frozen collection, has the value with the latest write time; at equal times, a
    delete wins. Deletes of rows, ranges, and partitions apply, static columns are in each row of their partition (or in
    one row without clustering key if the partition has no rows), and expired values are null. The order of the changes
    does not matter.

    The result is the whole table if *changes* reach back to its first write, or if *base* contains the earlier data.

    Args:
        changes: a DataFrame of the source with mode ``changes``, or a part of its rows.
        at: the aware time by which cells with a TTL have expired; default: now. The log does not contain the time at
            which the server lets a cell expire; the write time plus the TTL is used.
        base: cells that *changes* are merged with, from ``snapshot`` or from a table of ``apply_changes``. Columns that
            it omits are absent from the rows.

    Raises:
        ConfigError: *changes* is not such a DataFrame, or *at* is no aware time.
    """
    second = second_of(at)
    shape = Shape.of(changes)
    if base is not None:
        shape = without(shape, left_out_of(base))
    cells = cells_of(changes, shape)
    if base is not None:
        cells = cells.unionByName(with_all_columns(base, shape))
    return live_rows(merge_cells(cells, shape), shape, second)


def second_of(at: datetime | None) -> Column:
    """Return the time of expiration *at*, in seconds since the epoch; default: now."""
    us = SystemClock().now_us() if at is None else aware_us("at=", at)
    return F.lit(us // 1_000_000)


@without_call_sites()
def live_rows(cells: DataFrame, shape: Shape, second: Column, *, deletes: bool = True) -> DataFrame:
    """Return the rows of merged *cells* that exist at *second*; *deletes* as for ``with_partition``."""
    rows = with_liveness(cells, shape, second, deletes=deletes)
    return rows.where(F.col("cdc$live")).select(*(F.col(quoted(c.name)) for c in (*shape.keys, *shape.values)))


def with_liveness(cells: DataFrame, shape: Shape, second: Column, *, deletes: bool = True) -> DataFrame:
    """Add the values of merged *cells* as of *second*, and ``cdc$live``: whether a SELECT returns the row.

    *deletes* is as for ``with_partition``.
    """
    rows = row_values(with_partition(cells, shape, deletes=deletes), shape, second)
    exists = F.col("cdc$live")
    if shape.clustering and shape.statics:
        # A partition with static values but without rows is one row without clustering key.
        rows = rows.withColumn("cdc$any_live", F.max("cdc$live").over(_of_partition(shape)))
        has_statics = reduce(lambda a, b: a | b, (F.col(quoted(c.name)).isNotNull() for c in shape.statics))
        exists = exists | (is_static(shape) & has_statics & ~F.col("cdc$any_live"))
    return rows.withColumn("cdc$live", exists)


def is_static(shape: Shape) -> Column:
    """Whether a row of cells is the static row of a partition."""
    return reduce(lambda a, b: a & b, (F.col(quoted(c.name)).isNull() for c in shape.clustering))


def _of_partition(shape: Shape) -> WindowSpec:
    return Window.partitionBy(*identities(shape.partition))


def with_partition(cells: DataFrame, shape: Shape, *, deletes: bool = True) -> DataFrame:
    """Return the cells of rows, with those of their partition: static cells and deletes.

    ``cdc$covered`` is the write time up to which deletes hide the row's own cells. Without *deletes*, the cells are of
    ``purged``, which has applied them.
    """
    if not deletes:
        never = {name: F.lit(NEVER) for name in ("cdc$covered", "cdc$partition_deleted")}
        return cells.withColumns(never | (_of_static_row(shape, _static_cells(shape)) if shape.clustering else {}))
    row_deleted = F.coalesce("cdc$row_deleted", F.lit(NEVER))
    if not shape.clustering:
        return cells.withColumn("cdc$covered", row_deleted)
    static = is_static(shape)
    of_partition = _of_static_row(shape, ["cdc$partition_deleted", "cdc$ranges", *_static_cells(shape)])
    of_partition["cdc$partition_deleted"] = F.coalesce(of_partition["cdc$partition_deleted"], F.lit(NEVER))
    joined = cells.withColumns(of_partition)
    deleted = F.col("cdc$partition_deleted")
    covered = F.greatest(row_deleted, deleted, range_deleted(F.col("cdc$ranges"), shape))
    return joined.withColumn("cdc$covered", F.when(static, deleted).otherwise(covered))


def _static_cells(shape: Shape) -> list[str]:
    return [name for column in shape.statics for name in cell_names(column)]


def _of_static_row(shape: Shape, names: list[str]) -> dict[str, Column]:
    """Return, for each row, the columns *names* of the static row of its partition."""
    static, partition = is_static(shape), _of_partition(shape)
    return {n: F.first(F.when(static, F.col(quoted(n))), ignorenulls=True).over(partition) for n in names}


def range_deleted(ranges: Column, shape: Shape) -> Column:
    """Return the newest write time of the *ranges* that contain the row."""
    orders = [clustering_order(F.col(quoted(c.name)), c) for c in shape.clustering]
    unknown = [c for c, order in zip(shape.clustering, orders, strict=True) if order is None]
    # An error only where there is a range: a table whose key Spark cannot compare is fine until one is deleted.
    if unknown:
        said = raised(
            "ConfigError",
            f"ranges of the clustering column {unknown[0].name!r} were deleted, and Spark cannot compare its type "
            f"{unknown[0].cql}; read the base table instead",
        )
        return F.when(F.size(F.coalesce(ranges, F.array())) > 0, said.cast("bigint")).otherwise(F.lit(NEVER))

    def covers(each: Column) -> Column:
        return _beyond(each["start"], shape, after=True) & _beyond(each["end"], shape, after=False)

    times = F.transform(F.filter(ranges, covers), lambda each: each["t"])
    return F.coalesce(F.array_max(times), F.lit(NEVER))


def _beyond(bound: Column, shape: Shape, *, after: bool) -> Column:
    """Whether the row is on the inner side of a bound, which has the first columns of the clustering key."""
    inner: Column = bound["inclusive"]
    for column in reversed(shape.clustering):
        here = clustering_order(F.col(quoted(column.name)), column)
        there = clustering_order(bound.getField(column.name), column)
        assert here is not None
        assert there is not None
        # A row's value of no bytes is null, and before all others.
        within = here > there if after != column.descending else F.coalesce(here < there, F.lit(True))
        named = bound.getField(column.name).isNotNull()
        # At an equal value, the next columns decide; if the bound has no more columns, whether it is inclusive decides.
        inner = F.when(~named, bound["inclusive"]).when(here == there, inner).otherwise(within)
    return inner


# ---------------------------------------------------------------- values


def row_values(cells: DataFrame, shape: Shape, second: Column) -> DataFrame:
    """Add the value of each column as of *second*, under its own name, and ``cdc$live``: whether the row exists."""
    covered = F.col("cdc$covered")
    statics = shape.statics if shape.clustering else ()
    found = {
        c.name: _value(c, F.col("cdc$partition_deleted") if c in statics else covered, second) for c in shape.values
    }
    marker = F.col("cdc$marker")
    inserted = F.coalesce((marker["t"] > covered) & unexpired(marker, second), F.lit(False))
    lives = (found[c.name][1] for c in shape.values if c not in statics)
    live = reduce(lambda a, b: a | b, lives, inserted)
    return cells.withColumns({**{name: value for name, (value, _) in found.items()}, "cdc$live": live})


def _value(column: ColumnShape, covered: Column, second: Column) -> tuple[Column, Column]:
    """Return the value of a column, and whether there is one that Spark may be unable to hold."""
    name = column.name

    def counts(cell: Column, floor: Column) -> Column:
        return F.coalesce((cell["t"] > floor) & ~cell["dead"] & unexpired(cell, second), F.lit(False))

    if column.form == "value":
        cell = F.col(quoted(f"cdc$cell_{name}"))
        return F.when(counts(cell, covered), cell["value"]), counts(cell, covered)
    floor = F.greatest(covered, F.coalesce(quoted(f"cdc$gone_{name}"), F.lit(NEVER)))
    if column.form == "udt":
        cells = [(field, F.col(quoted(alias))) for field, _, alias in udt_fields(column)]
        some = reduce(lambda a, b: a | b, (counts(cell, floor) for _, cell in cells))
        fields = [F.when(counts(cell, floor), cell["value"]).alias(field) for field, cell in cells]
        return F.when(some, F.struct(*fields)), some
    elements = F.filter(quoted(f"cdc$elements_{name}"), lambda e: counts(e, floor))
    some = F.coalesce(F.size(elements) > 0, F.lit(False))
    whole = {
        "map": lambda: F.map_from_entries(
            F.transform(_one_zero(elements, column), lambda e: F.struct(e["key"], e["value"]))
        ),
        "set": lambda: F.transform(elements, lambda e: e["key"]),
        "list": lambda: F.transform(elements, lambda e: e["value"]),
    }[column.form]()
    return F.when(some, whole), some


def _one_zero(elements: Column, column: ColumnShape) -> Column:
    """Return the entries of a map with 0.0 for -0.0 in keys, as Spark's maps cannot hold both; of equal keys, one."""
    key, _ = element_types(column)
    if not differs(key):
        return elements

    def numbered(each: Column, at: Column) -> Column:
        return F.struct(one_zero(each["key"], key).alias("key"), at.alias("at"), each["value"].alias("value"))

    def last_of_each(all_: Column) -> Column:
        return F.filter(all_, lambda x, i: F.coalesce(F.get(all_, i + 1)["key"] != x["key"], F.lit(True)))

    # In the order of the keys as Spark compares them, so that equal ones are neighbors; bound once, as in ``_winners``.
    return F.transform(F.array(F.array_sort(F.transform(elements, numbered))), last_of_each)[0]


def unexpired(cell: Column, second: Column) -> Column:
    """Whether the *cell*, or row marker, has no TTL that has ended by *second*."""
    return F.coalesce(cell["expires"] > second, F.lit(True))
