"""``MergeTable``: a table in a format with MERGE, such as Delta Lake or Iceberg, kept up to date window by window.

The table has the columns of the base table, ``cdc_live`` (whether ``SELECT *`` returns the row), and the cells with
their write times. A window affects the partitions that it writes to, or all partitions if a column was dropped before
it. These partitions are read, merged as in files, and written back by one MERGE. The cursor of the table is one of its
properties and moves after the MERGE. Merging the same window again changes nothing, so applying the window again
repairs a crash between the two steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from ...cdc.windowing import Window
from ...errors import ConfigError
from ..formats import missing_format
from ..pipeline.cells import (
    cell_names,
    cells_of,
    cells_schema,
    grouped,
    identities,
    merge_cells,
    quoted,
    with_all_columns,
    without,
)
from ..pipeline.latest import is_static, live_rows, second_of, with_liveness
from ..pipeline.tables import changes_after, purged, shape_json, shape_of
from ..shape import Shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline.snapshots import Snapshot

__all__ = ["MergeTable", "merge_source", "table_schema"]

VERSION = "2"

_PROPERTIES = ("rscylla.version", "rscylla.shape", "rscylla.cursor", "rscylla.left_out")

_KEEP = "cdc$keep"
_SOURCE = "cdc_source"
_LIVE = "cdc_live"
"""The column that readers use besides those of the base table."""


class MergeTable:
    """A table of a Spark catalog, for one writer at a time and any number of readers.

    Readers select ``WHERE cdc_live``. Values that expired after they were written are still present; ``rows`` omits
    them.

    Args:
        name: name of the table in SQL: ``orders``, ``db.orders``, ``catalog.db.orders``.
        using: format for creating the table if it does not exist, such as ``delta`` or ``iceberg``.
    """

    def __init__(self, spark: SparkSession, name: str, *, using: str | None = None) -> None:
        self._spark = spark
        self._name = name
        self._using = using

    @property
    def name(self) -> str:
        return self._name

    @property
    def cursor(self) -> str:
        """The cursor up to which all changes are in the table; "" if there is none."""
        return self._properties().get("rscylla.cursor", "") if self._exists() else ""

    def start_from(self, snapshot: Snapshot) -> None:
        """Fill the table with the rows of a snapshot; changes are then applied from ``snapshot.cursor`` on.

        Raises:
            ConfigError: the table already has changes, or its format has no MERGE.
        """
        if self.cursor:
            raise ConfigError(f"the table {self._name} already has rows; use another name, or drop the table")
        if self._exists():  # rows of a run that was killed at this point
            self._spark.sql(f"DELETE FROM {self._name}")
        self._create(snapshot.shape)
        self._merge(with_all_columns(snapshot.cells, snapshot.shape), snapshot.shape)
        self._set(snapshot.shape, snapshot.cursor, left_out=json.dumps(sorted(snapshot.left_out)))

    def apply(self, changes: DataFrame, window: Window) -> bool:
        """Merge the changes of *window* into the table; return False if the table already has the window.

        A window that the table already has changes nothing, so a window can be applied again after a crash.

        Raises:
            ConfigError: a window between the table and this one is missing, the table belongs to another base table,
                its format has no MERGE, or it does not exist and *using* was not given.
        """
        shape = Shape.of(changes)
        self._create(shape)
        cursor, known = self.cursor, self._shape()
        if cursor:
            left = changes_after(changes, window, cursor, known, self._name)
            if left is None:
                return False
            changes = left
            shape = without(shape, json.loads(self._properties().get("rscylla.left_out", "[]")))
        self._widen(shape)
        self._merge(cells_of(changes, shape), shape, whole=has_lost(known, shape))
        self._set(shape, window.end)
        return True

    def rows(self, *, at: datetime | None = None) -> DataFrame:
        """Return the rows as of the table's cursor, without values that have expired by *at* (default: now).

        Raises:
            ConfigError: the table does not exist.
        """
        if not self._exists():
            raise ConfigError(f"the table {self._name} does not exist; apply_changes creates it")
        shape = self._shape()
        return live_rows(with_all_columns(self._spark.table(self._name), shape), shape, second_of(at))

    # ------------------------------------------------------------ the table

    def _exists(self) -> bool:
        return bool(self._spark.catalog.tableExists(self._name))

    def _properties(self) -> Mapping[str, str]:
        shown = self._spark.sql(f"SHOW TBLPROPERTIES {self._name}").collect()
        found = {r["key"]: r["value"] for r in shown if r["key"] in _PROPERTIES}
        if "rscylla.version" not in found:
            raise ConfigError(f"the table {self._name} was not created by rscylla; use a name that does not exist yet")
        if found["rscylla.version"] != VERSION:
            raise ConfigError(
                f"the table {self._name} has the format of another version of rscylla; create it "
                "again, or use that version"
            )
        return found

    def _shape(self) -> Shape:
        return shape_of(json.loads(self._properties()["rscylla.shape"]))

    def _create(self, shape: Shape) -> None:
        if self._exists():
            return
        if self._using is None:
            raise ConfigError(
                f"the table {self._name} does not exist; set the format for creating it, such as using='delta'"
            )
        writer = self._spark.createDataFrame([], table_schema(shape)).writeTo(self._name).using(self._using)
        writer = writer.tableProperty("rscylla.version", VERSION)
        try:
            writer.tableProperty("rscylla.shape", json.dumps(shape_json(shape))).create()
        except Exception as e:
            if "DATA_SOURCE_NOT_FOUND" not in str(e):
                raise
            raise ConfigError(f"cannot create the table {self._name}: {missing_format(self._using)}") from e

    def _widen(self, shape: Shape) -> None:
        """Add columns that were added to the base table; dropped columns stay, and become null."""
        known = set(self._spark.table(self._name).columns)
        fields = [f for f in table_schema(shape).fields if f.name not in known]
        if fields:
            added = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in fields)
            self._spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({added})")

    def _set(self, shape: Shape, cursor: str, **more: str) -> None:
        """Record the content of the table in one step; a run that is killed before it merges the window again."""
        values = {"shape": json.dumps(shape_json(shape)), "cursor": cursor, **more}
        escaped = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in values.items()}
        pairs = ", ".join(f"'rscylla.{name}' = '{value}'" for name, value in escaped.items())
        self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ({pairs})")

    def _merge(self, cells: DataFrame, shape: Shape, *, whole: bool = False) -> None:
        table = self._spark.table(self._name)
        source = merge_source(table, cells, shape, second_of(None), whole=whole).alias(_SOURCE)
        target = self._name.rpartition(".")[2]
        names = table_schema(shape).names
        # Columns that the table of Scylla has lost become null.
        assigned = {quoted(n): F.lit(None) for n in table.columns}
        assigned |= {quoted(n): F.col(f"{_SOURCE}.{quoted(n)}") for n in names}
        merge = (
            source.mergeInto(self._name, same_key(shape, _SOURCE, target))
            # The first clause that fits counts, so the delete comes before the update.
            .whenMatched(~F.col(f"{_SOURCE}.{_KEEP}"))
            .delete()
            .whenMatched()
            .update(assigned)
            .whenNotMatched(F.col(f"{_SOURCE}.{_KEEP}"))
            .insert(assigned)
        )
        try:
            merge.merge()
        except PySparkException as e:
            if "MERGE INTO" not in str(e):
                raise
            raise ConfigError(
                f"the table {self._name} does not support MERGE; create it in Delta Lake or Iceberg (using=), or use "
                "a ParquetTable"
            ) from e


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


def same_key(shape: Shape, source: str, target: str) -> Column:
    """Return the condition of the MERGE; the clustering key of a static row is null."""
    sides = (identities(shape.keys, _columns_of(side)) for side in (source, target))
    return reduce(lambda a, b: a & b, (a.eqNullSafe(b) for a, b in zip(*sides, strict=True)))


def _columns_of(side: str) -> Callable[[str], Column]:
    return lambda name: F.col(f"{side}.{quoted(name)}")


def has_lost(known: Shape, shape: Shape) -> bool:
    """Whether a column of *known* was dropped before *shape* was read, and perhaps added again."""
    dropped = {c.name: c.dropped_us for c in shape.values}
    return any(c.name not in dropped or dropped[c.name] != c.dropped_us for c in known.values)


def merge_source(table: DataFrame, cells: DataFrame, shape: Shape, second: Column, *, whole: bool = False) -> DataFrame:
    """Return the source rows of the MERGE that adds *cells* to *table*, with ``cdc$keep``: whether the row stays.

    These are all rows of the partitions of *cells*, because a delete or a static column affects all of them. With
    *whole*, these are all rows of the table, because the drop of a column affects each of them.
    """
    if whole:
        return _merged(table, cells, shape, second)
    touched = grouped(cells, shape.partition).alias("cdc_touched")
    sides = (identities(shape.partition, _columns_of(side)) for side in ("cdc_known", "cdc_touched"))
    same = reduce(lambda a, b: a & b, (a.eqNullSafe(b) for a, b in zip(*sides, strict=True)))
    return _merged(table.alias("cdc_known").join(touched, same, "left_semi"), cells, shape, second)


def _merged(table: DataFrame, cells: DataFrame, shape: Shape, second: Column) -> DataFrame:
    merged = merge_cells(cells.unionByName(with_all_columns(table, shape)), shape)
    return _whole_rows(purged(merged, shape, second, flag=_KEEP), shape, second)


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
    return rows.select(*names, _KEEP)
