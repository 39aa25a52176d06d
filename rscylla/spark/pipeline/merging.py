"""What a MERGE into a table of cells needs: its source rows, its condition, and the columns of the table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    IntegralType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from ...errors import ConfigError
from ..session.settings import without_call_sites
from ..source.shape import Shape
from .cells import cell_names, cells_schema, grouped, identities, merged_columns, quoted, with_all_columns
from .latest import is_static, with_liveness
from .order import identity
from .tables import purged

__all__ = [
    "KEEP",
    "KeysWithin",
    "as_wanted",
    "columns_of",
    "has_lost",
    "keys_within",
    "merge_source",
    "same_key",
    "stored_type",
    "table_schema",
]

KEEP = "cdc$keep"
"""The column of the source rows that says whether the row stays in the table."""

_WAS = "cdc$was"

_LIVE = "cdc_live"
"""The column that readers use besides those of the base table."""

_KEYS = 1_000
"""The partitions of a window up to which the MERGE names their keys, so that it skips files that have none of them."""


@attrs.frozen
class KeysWithin:
    """The partition keys of a window, by column, for those columns whose values Spark's formats compare as we do."""

    values: Mapping[str, Sequence[Any]]
    dates: Collection[str]
    """The columns that are dates. Their values are days since 1970, as Python has only those of four-digit years."""
    empty: Collection[str] = ()
    """The columns that also have a value of no bytes, which Spark has as null."""

    @property
    def some(self) -> bool:
        return any(self.values.values()) or bool(self.empty)

    def of(self, column: Callable[[str], Column]) -> Column:
        """Return a condition that is true for these keys, and for few others."""
        return reduce(lambda a, b: a & b, (self._among(name, column(name)) for name in self.values))

    def _among(self, name: str, column: Column) -> Column:
        found = self.values[name]
        given = [F.date_from_unix_date(F.lit(v)) for v in found] if name in self.dates else list(found)
        among = column.isin(given) if given else F.lit(False)
        return among | column.isNull() if name in self.empty else among


def keys_within(cells: DataFrame, shape: Shape) -> KeysWithin | None:
    """Return the partition keys of *cells*; None if there are too many, or none of a type that can be compared."""
    columns = [c for c in shape.partition if isinstance(c.type, IntegralType | StringType | DateType)]
    if not columns:
        return None
    dates = {c.name for c in columns if isinstance(c.type, DateType)}
    keys = [(F.unix_date if c.name in dates else F.col)(quoted(c.name)) for c in columns]
    found = cells.select(*keys).distinct().limit(_KEYS + 1).collect()
    if len(found) > _KEYS:
        return None
    values = {c.name: {row[n] for row in found} for n, c in enumerate(columns)}
    empty = {name for name, of in values.items() if None in of}
    return KeysWithin({name: sorted(of - {None}) for name, of in values.items()}, dates, empty)


def table_schema(shape: Shape) -> StructType:
    """Return the columns of the table for *shape*.

    Raises:
        ConfigError: a column has the reserved name ``cdc_live``.
    """
    if any(c.name.lower() == _LIVE for c in (*shape.keys, *shape.values)):
        raise ConfigError(
            f"the table of these changes has a column {_LIVE!r}, which is reserved in a MergeTable; use a "
            "ParquetTable, or rename the column"
        )
    cells = cells_schema(shape).fields
    keys = len(shape.keys)
    values = [StructField(c.name, c.type) for c in shape.values]
    return StructType([*cells[:keys], *values, StructField(_LIVE, BooleanType()), *cells[keys:]])


def stored_type(type_: DataType, of_format: str) -> DataType:
    """Return the type of *type_* in tables of the format *of_format*; integers of Iceberg have 32 bits or more."""
    if of_format != "iceberg":
        return type_
    match type_:
        case ByteType() | ShortType():
            return IntegerType()
        case StructType():
            return StructType([StructField(f.name, stored_type(f.dataType, of_format)) for f in type_.fields])
        case ArrayType():
            return ArrayType(stored_type(type_.elementType, of_format))
        case MapType():
            return MapType(stored_type(type_.keyType, of_format), stored_type(type_.valueType, of_format))
        case _:
            return type_


def as_wanted(table: DataFrame, shape: Shape) -> DataFrame:
    """Return *table* with the integers of *shape* where its format has stored wider ones."""
    known = {f.name: f.dataType.simpleString() for f in table.schema.fields}
    narrower = {
        f.name: F.col(quoted(f.name)).cast(f.dataType)
        for f in table_schema(shape).fields
        if known.get(f.name) == (stored := stored_type(f.dataType, "iceberg").simpleString())
        and stored != f.dataType.simpleString()
    }
    return table.withColumns(narrower) if narrower else table


def same_key(shape: Shape, source: str, target: str) -> Column:
    """Return the condition of the MERGE; the clustering key of a static row is null."""
    sides = (identities(shape.keys, columns_of(side)) for side in (source, target))
    return reduce(lambda a, b: a & b, (a.eqNullSafe(b) for a, b in zip(*sides, strict=True)))


def columns_of(side: str) -> Callable[[str], Column]:
    return lambda name: F.col(f"{side}.{quoted(name)}")


def has_lost(known: Shape, shape: Shape) -> bool:
    """Whether a column of *known* was dropped before *shape* was read, and perhaps added again."""
    dropped = {c.name: c.dropped_us for c in shape.values}
    return any(c.name not in dropped or dropped[c.name] != c.dropped_us for c in known.values)


@without_call_sites()
def merge_source(
    table: DataFrame,
    cells: DataFrame,
    shape: Shape,
    second: Column,
    *,
    whole: bool = False,
    within: KeysWithin | None = None,
) -> DataFrame:
    """Return the source rows of the MERGE that adds *cells* to *table*, with ``cdc$keep``: whether the row stays.

    All rows of the partitions of *cells* are read, because a delete or a static column affects all of them; those that
    stay as they are, are omitted. With *whole*, all rows of the table are read, because the drop of a column affects
    each of them. *within* has the keys of the partitions, to skip files.
    """
    known = table.withColumn(_WAS, F.struct(*_comparable(table, shape)))
    if not whole:
        touched = grouped(cells, shape.partition).alias("cdc_touched")
        sides = (identities(shape.partition, columns_of(side)) for side in ("cdc_known", "cdc_touched"))
        same = reduce(lambda a, b: a & b, (a.eqNullSafe(b) for a, b in zip(*sides, strict=True)))
        near = known if within is None else known.where(within.of(lambda name: F.col(quoted(name))))
        known = near.alias("cdc_known").join(touched, same, "left_semi")
    was = F.lit(None).cast(known.schema[_WAS].dataType).alias(_WAS)
    names = [F.col(quoted(n)) for n in cells_schema(shape).names]
    old = with_all_columns(known, shape, _WAS)
    both = cells.select(*names, was).unionByName(old)
    merged = grouped(both, shape.keys, *merged_columns(shape, both), F.first(_WAS, ignorenulls=True).alias(_WAS))
    rows = _whole_rows(purged(merged, shape, second, flag=KEEP), shape, second)
    changed = ~F.struct(*_comparable(rows, shape, after=table)).eqNullSafe(F.col(_WAS))
    return rows.where(F.when(F.col(KEEP), changed).otherwise(F.col(_WAS).isNotNull())).drop(_WAS)


def _comparable(rows: DataFrame, shape: Shape, *, after: DataFrame | None = None) -> list[Column]:
    """Return the stored values of *rows* as Spark can compare them; *after* is the table, if *rows* are to replace it.

    A column that the base table has lost is compared with null, which it becomes.
    """
    fields = table_schema(shape).fields
    there = set(rows.columns)
    values = [F.col(quoted(f.name)) if f.name in there else F.lit(None).cast(f.dataType) for f in fields]
    stored = [identity(v, f.dataType).alias(f"c{n}") for n, (v, f) in enumerate(zip(values, fields, strict=True))]
    lost = [n for n in (after or rows).columns if n not in {f.name for f in fields}]
    gone = [(F.col(quoted(n)).isNull() if after is None else F.lit(True)).alias(f"l{i}") for i, n in enumerate(lost)]
    return [*stored, *gone]


def _whole_rows(cells: DataFrame, shape: Shape, second: Column) -> DataFrame:
    """Return merged *cells* with the resulting values, ``cdc_live``, and ``cdc$keep``."""
    names: list[Any] = []
    rows = with_liveness(cells, shape, second).withColumnRenamed("cdc$live", _LIVE)
    statics = {n for c in shape.statics for n in cell_names(c)} if shape.clustering else set()
    for field in table_schema(shape).fields:
        value = F.col(quoted(field.name))
        if field.name in ("cdc$row_deleted", "cdc$partition_deleted", "cdc$ranges"):
            value = F.lit(None)  # they are no longer needed
        elif field.name in statics:
            value = F.when(is_static(shape), value)
        names.append(value.cast(field.dataType).alias(field.name))
    return rows.select(*names, KEEP, _WAS)
