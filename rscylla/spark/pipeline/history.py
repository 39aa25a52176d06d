"""``history``: every version of a row, with the time that it was valid (a slowly changing dimension, type 2)."""

from __future__ import annotations

from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType
from pyspark.sql.window import WindowSpec

from ...errors import ConfigError
from ..session.settings import without_call_sites
from ..source.shape import ColumnShape, Shape
from .cells import cells_of, grouped, identities, merged_columns, named, quoted, winners
from .folding import FIRST, Elements, Fold
from .inarrow import map_in_arrow
from .latest import NEVER, is_static, range_deleted, row_values, second_of

__all__ = ["history"]

_OWN = ("valid_from", "valid_to", "is_current")


@without_call_sites()
def history(changes: DataFrame, *, at: datetime | None = None) -> DataFrame:
    """Return one row per version of each row of the table, with ``valid_from``, ``valid_to``, and ``is_current``.

    A version begins with a write that changes a value, or when a value expires, and ends where the next version begins.
    ``valid_to`` is null for versions that are valid at *at*; these are the rows of ``latest``. A deleted row has no
    version. A change of a static column creates a version of each row of its partition; a partition with static values
    and no rows has no history. Writes that change nothing create no version.

    One task processes each row of the table.

    Args:
        changes: a DataFrame of the source with mode ``changes``, from the first write of its rows.
        at: the aware time up to which values expire; default: now.

    Raises:
        ConfigError: *changes* is not such a DataFrame, the table has a column of one of these names, or *at* is no
            aware time.
    """
    second = second_of(at)
    shape = Shape.of(changes)
    _check_names(shape)
    moments = _moments(changes, shape, second)
    keys = [F.col(quoted(c.name)) for c in shape.keys]
    in_time = Window.partitionBy(*identities(shape.keys)).orderBy("cdc$at")
    versions = row_values(_states(moments, shape, in_time), shape, F.floor(F.col("cdc$at") / 1_000_000))
    values = [F.col(quoted(c.name)) for c in shape.values]
    # A struct: a live row without values is a version as well, and must not be null.
    said = F.when(F.col("cdc$live"), F.struct(F.lit(0).alias("cdc$live"), *identities(shape.values)))
    versions = versions.withColumn("cdc$said", said)
    versions = versions.withColumn("cdc$before", F.lag("cdc$said").over(in_time))
    versions = versions.where(~F.col("cdc$said").eqNullSafe(F.col("cdc$before")))
    until = F.lead("cdc$at").over(in_time)
    versions = versions.withColumn("cdc$until", until).where(F.col("cdc$live"))
    return versions.select(
        *keys,
        *values,
        F.timestamp_micros("cdc$at").alias("valid_from"),
        F.timestamp_micros("cdc$until").alias("valid_to"),
        F.col("cdc$until").isNull().alias("is_current"),
    )


def _check_names(shape: Shape) -> None:
    taken = next((c.name for c in (*shape.keys, *shape.values) if c.name.lower() in _OWN), None)
    if taken is not None:
        raise ConfigError(
            f"the table of these changes has a column {taken!r}, as history has itself; leave it out: "
            f"changes.withColumn('cdc_values', col('cdc_values').dropFields({taken!r})), or rename a key column"
        )


def _states(moments: DataFrame, shape: Shape, in_time: WindowSpec) -> DataFrame:
    """Return the merged cells of each row after each of its *moments*; ``cdc$covered`` is as in ``with_partition``."""
    # What was written at one time counts together.
    time = ColumnShape("cdc$at", "regular", "bigint", LongType())
    merged = grouped(moments, (*shape.keys, time), *merged_columns(shape, moments))
    running = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    keys = [F.col(quoted(c.name)) for c in shape.keys]
    states = merged.select(*keys, "cdc$at", *merged_columns(shape, merged, running))
    covered = [F.coalesce(name, F.lit(NEVER)) for name in ("cdc$row_deleted", "cdc$partition_deleted")]
    if shape.clustering:
        covered.append(F.max(range_deleted(F.col("cdc$ranges"), shape)).over(running))
    states = states.withColumns(
        {"cdc$covered": F.greatest(*covered, F.lit(NEVER)), "cdc$partition_deleted": covered[1]}
    )
    collections = [c for c in shape.values if c.form in ("set", "map", "list")]
    if not collections:
        return states
    statics = shape.statics if shape.clustering else ()
    folded = [
        Elements(
            f"cdc$elements_{c.name}",
            ("cdc$partition_deleted" if c in statics else "cdc$covered", f"cdc$gone_{c.name}"),
        )
        for c in collections
    ]
    # A window leaves the moments of a row together, in order.
    states = states.withColumn(FIRST, F.row_number().over(in_time) == 1)
    states = map_in_arrow(states, Fold(tuple(folded)), states.schema)
    names = {f"cdc$elements_{c.name}": c for c in collections}
    return states.withColumns({name: winners(F.col(quoted(name)), c) for name, c in names.items()})


def _moments(changes: DataFrame, shape: Shape, second: Column) -> DataFrame:
    """Return all cells that concern each row, with ``cdc$at``: the time of the write or expiration."""
    cells = cells_of(changes, shape, "cdc_timestamp", "cdc_ttl")
    cells = cells.withColumn("cdc$at", F.unix_micros("cdc_timestamp"))
    expiry = F.when(F.col("cdc_ttl") > 0, F.floor(F.col("cdc$at") / 1_000_000) + F.col("cdc_ttl"))
    cells = cells.withColumn("cdc$expires", expiry).drop("cdc_timestamp", "cdc_ttl")
    if shape.clustering:
        cells = _for_each_row(cells, shape)
    expired = cells.where(F.col("cdc$expires") <= second).select(
        *(F.col(quoted(c.name)) for c in shape.keys), (F.col("cdc$expires") * 1_000_000).alias("cdc$at")
    )
    return cells.drop("cdc$expires").unionByName(expired, allowMissingColumns=True)


def _for_each_row(cells: DataFrame, shape: Shape) -> DataFrame:
    """Return *cells* with the changes of a partition repeated for each row that it ever had."""
    of_rows = cells.where(~is_static(shape))
    of_partitions = cells.where(is_static(shape)).drop(*(c.name for c in shape.clustering))
    rows = grouped(of_rows, shape.keys).withColumnsRenamed({c.name: f"cdc$key_{c.name}" for c in shape.partition})
    sides = (identities(shape.partition, of) for of in (named, lambda name: named(f"cdc$key_{name}")))
    same = reduce(lambda a, b: a & b, (a.eqNullSafe(b) for a, b in zip(*sides, strict=True)))
    repeated = of_partitions.join(rows, same).select(*(F.col(quoted(n)) for n in cells.columns))
    return of_rows.unionByName(repeated)
