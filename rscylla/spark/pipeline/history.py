"""``history``: every version of a row, with the time that it was valid (a slowly changing dimension, type 2)."""

from __future__ import annotations

from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..settings import without_call_sites
from ..shape import Shape
from .cells import cells_of, grouped, identities, merged_columns, named, quoted
from .latest import NEVER, is_static, range_deleted, row_values, second_of

__all__ = ["history"]


@without_call_sites()
def history(changes: DataFrame, *, at: datetime | None = None) -> DataFrame:
    """Return one row per version of each row of the table, with ``valid_from``, ``valid_to``, and ``is_current``.

    A version begins with a write that changes a value, or when a value expires, and ends where the next version begins.
    ``valid_to`` is null for versions that are valid at *at*; these are the rows of ``latest``. A deleted row has no
    version. A change of a static column creates a version of each row of its partition; a partition with static values
    and no rows has no history. Writes that change nothing create no version.

    One task processes each row of the table, with all changes that concern the row in memory.

    Args:
        changes: a DataFrame of the source with mode ``changes``, from the first write of its rows.
        at: the aware time up to which values expire; default: now.

    Raises:
        ConfigError: *changes* is not such a DataFrame, or *at* is no aware time.
    """
    second = second_of(at)
    shape = Shape.of(changes)
    moments = _moments(changes, shape, second)
    keys = [F.col(quoted(c.name)) for c in shape.keys]
    in_time = Window.partitionBy(*identities(shape.keys)).orderBy("cdc$at")
    # By range, not by rows: what was written at one time counts together.
    running = in_time.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    states = moments.select(*keys, "cdc$at", *merged_columns(shape, moments, running))
    # All events of one time have the same resulting state.
    states = states.withColumn("cdc$until", F.lead("cdc$at").over(in_time))
    states = states.where(~F.col("cdc$at").eqNullSafe(F.col("cdc$until"))).drop("cdc$until")
    covered = [F.coalesce(name, F.lit(NEVER)) for name in ("cdc$row_deleted", "cdc$partition_deleted")]
    if shape.clustering:
        covered.append(range_deleted(F.col("cdc$ranges"), shape))
    states = states.withColumns(
        {"cdc$covered": F.greatest(*covered, F.lit(NEVER)), "cdc$partition_deleted": covered[1]}
    )
    versions = row_values(states, shape, F.floor(F.col("cdc$at") / 1_000_000))
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
