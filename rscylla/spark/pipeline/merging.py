"""``MergeTable``: a table kept up to date window by window in a format with MERGE, such as Delta Lake or Iceberg.

The table has the columns of the base table, ``cdc_live`` (whether the row is one that ``SELECT *`` shows), and the
cells with their write times. A window touches the partitions that it writes to, or all if a column was dropped before
it: these are read, merged as in files, and put back by one MERGE. The point up to which changes are in the table is in
its properties. It is moved after the MERGE, and merging a window right after itself changes nothing; so a crash between
the two is repaired by the same window.
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

from ...errors import ConfigError
from ..shape import Shape
from ..windowing import Window
from .cells import (
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
from .latest import is_static, live_rows, second_of, with_liveness
from .tables import changes_after, check_same, purged, shape_json, shape_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .snapshots import Snapshot

__all__ = ["MergeTable", "merge_source", "table_schema"]

VERSION = "2"

_PROPERTIES = ("rscylla.version", "rscylla.shape", "rscylla.cursor", "rscylla.left_out")

_KEEP = "cdc$keep"
_SOURCE = "cdc_source"
_LIVE = "cdc_live"
"""The one column that readers ask for beside those of the table."""


class MergeTable:
    """A table of a catalog of Spark, for one writer at a time and any number of readers.

    Readers see the rows with ``WHERE cdc_live``; values that expired after they were written are still there, which
    ``rows`` leaves out.

    Args:
        name: of the table, as SQL has it: ``orders``, ``db.orders``, ``catalog.db.orders``.
        using: format in which the table is made if there is none, such as ``delta`` or ``iceberg``.
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
        """The point up to which all changes are in the table, as a cursor; "" while there is none."""
        return self._properties().get("rscylla.cursor", "") if self._exists() else ""

    def start_from(self, snapshot: Snapshot) -> None:
        """Fill the table with the rows of a snapshot; changes are then applied from ``snapshot.cursor`` on.

        Raises:
            ConfigError: the table has changes already, or cannot merge.
        """
        if self.cursor:
            raise ConfigError(f"the table {self._name} is filled already; take another name, or drop this one")
        if self._exists():  # what a run left that died here
            self._spark.sql(f"DELETE FROM {self._name}")
        self._create(snapshot.shape)
        self._merge(with_all_columns(snapshot.cells, snapshot.shape), snapshot.shape)
        self._set(snapshot.shape, snapshot.cursor, left_out=json.dumps(sorted(snapshot.left_out)))

    def apply(self, changes: DataFrame, window: Window) -> bool:
        """Merge the changes of *window* into the table, and return whether there was anything that it did not have.

        A window that is in the table already changes nothing, so a window may be applied again after a crash.

        Raises:
            ConfigError: windows between the table and this one are missing, the table is another one's, its format
                has no MERGE, or it is not there and *using* was not given.
        """
        shape = Shape.of(changes)
        self._create(shape)
        cursor, known = self.cursor, self._shape()
        if cursor:
            check_same(known, shape, self._name)
            left = changes_after(changes, window, cursor, self._name)
            if left is None:
                return False
            changes = left
            shape = without(shape, json.loads(self._properties().get("rscylla.left_out", "[]")))
        self._widen(shape)
        self._merge(cells_of(changes, shape), shape, whole=has_lost(known, shape))
        self._set(shape, window.end)
        return True

    def rows(self, *, at: datetime | None = None) -> DataFrame:
        """Return the rows as of the table's cursor; what has expired by *at* (now, unless given) is null or gone.

        Raises:
            ConfigError: there is no table.
        """
        if not self._exists():
            raise ConfigError(f"there is no table {self._name}; apply_changes makes one")
        shape = self._shape()
        return live_rows(with_all_columns(self._spark.table(self._name), shape), shape, second_of(at))

    # ------------------------------------------------------------ the table

    def _exists(self) -> bool:
        return bool(self._spark.catalog.tableExists(self._name))

    def _properties(self) -> Mapping[str, str]:
        shown = self._spark.sql(f"SHOW TBLPROPERTIES {self._name}").collect()
        found = {r["key"]: r["value"] for r in shown if r["key"] in _PROPERTIES}
        if "rscylla.version" not in found:
            raise ConfigError(f"the table {self._name} was not made by rscylla; name one that is not there yet")
        if found["rscylla.version"] != VERSION:
            raise ConfigError(f"the table {self._name} is of another version of rscylla; make it anew, or use that one")
        return found

    def _shape(self) -> Shape:
        return shape_of(json.loads(self._properties()["rscylla.shape"]))

    def _create(self, shape: Shape) -> None:
        if self._exists():
            return
        if self._using is None:
            raise ConfigError(f"there is no table {self._name}; say in which format to make it: using='delta', say")
        writer = self._spark.createDataFrame([], table_schema(shape)).writeTo(self._name).using(self._using)
        writer = writer.tableProperty("rscylla.version", VERSION)
        try:
            writer.tableProperty("rscylla.shape", json.dumps(shape_json(shape))).create()
        except Exception as e:
            if "DATA_SOURCE_NOT_FOUND" not in str(e):
                raise
            raise ConfigError(
                f"Spark has no format {self._using!r} to make the table {self._name} in; start the session with its "
                "package (spark.jars.packages)"
            ) from e

    def _widen(self, shape: Shape) -> None:
        """Add the columns that the table of Scylla got since; those that it lost stay, and become null."""
        known = set(self._spark.table(self._name).columns)
        fields = [f for f in table_schema(shape).fields if f.name not in known]
        if fields:
            added = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in fields)
            self._spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({added})")

    def _set(self, shape: Shape, cursor: str, **more: str) -> None:
        """Note what the table holds now. In one step, so that a run that dies before it merges the same again."""
        values = {"shape": json.dumps(shape_json(shape)), "cursor": cursor, **more}
        escaped = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in values.items()}
        pairs = ", ".join(f"'rscylla.{name}' = '{value}'" for name, value in escaped.items())
        self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ({pairs})")

    def _merge(self, cells: DataFrame, shape: Shape, *, whole: bool = False) -> None:
        table = self._spark.table(self._name)
        source = merge_source(table, cells, shape, second_of(None), whole=whole).alias(_SOURCE)
        target = self._name.rpartition(".")[2]
        names = table_schema(shape).names
        assigned = {quoted(n): F.lit(None) for n in table.columns}
        assigned |= {quoted(n): F.col(f"{_SOURCE}.{quoted(n)}") for n in names}
        merge = (
            source.mergeInto(self._name, same_key(shape, _SOURCE, target))
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
                f"the table {self._name} cannot MERGE: its format has no such operation; make it in Delta Lake or "
                "Iceberg (using=), or keep it as files with ParquetTable"
            ) from e


def table_schema(shape: Shape) -> StructType:
    """Return the columns of the table for *shape*.

    Raises:
        ConfigError: one of them has the name that says which rows exist.
    """
    if any(c.name.lower() == _LIVE for c in (*shape.keys, *shape.values)):
        raise ConfigError(
            f"a MergeTable has a column {_LIVE!r} of its own, and so has the table of these changes; keep it as files "
            "with ParquetTable, or rename the column"
        )
    cells = cells_schema(shape).fields
    keys = len(shape.keys)
    values = [StructField(c.name, c.type) for c in shape.values]
    return StructType([*cells[:keys], *values, StructField(_LIVE, BooleanType()), *cells[keys:]])


def same_key(shape: Shape, source: str, target: str) -> Column:
    """Return the condition of the MERGE; the clustering key of a partition's own row is null."""
    sides = (identities(shape.keys, _columns_of(side)) for side in (source, target))
    return reduce(lambda a, b: a & b, (a.eqNullSafe(b) for a, b in zip(*sides, strict=True)))


def _columns_of(side: str) -> Callable[[str], Column]:
    return lambda name: F.col(f"{side}.{quoted(name)}")


def has_lost(known: Shape, shape: Shape) -> bool:
    """Whether a column of *known* was dropped before *shape* was read, and perhaps added again."""
    dropped = {c.name: c.dropped_us for c in shape.values}
    return any(c.name not in dropped or dropped[c.name] != c.dropped_us for c in known.values)


def merge_source(table: DataFrame, cells: DataFrame, shape: Shape, second: Column, *, whole: bool = False) -> DataFrame:
    """Return what to MERGE into *table*, so that it has *cells*: rows with ``cdc$keep``, which tells if they stay.

    These are all the rows of the partitions that *cells* are of: a delete, or a static column, is about all of them.
    With *whole*, all rows of the table: a drop of a column is about each.
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
    """Return merged *cells* with the values that they make, ``cdc_live`` and ``cdc$keep``."""
    names: list[Any] = []
    rows = with_liveness(cells, shape, second).withColumnRenamed("cdc$live", _LIVE)
    statics = {n for c in shape.statics for n in cell_names(c)} if shape.clustering else set()
    for field in table_schema(shape).fields:
        value = F.col(quoted(field.name))
        if field.name in ("cdc$row_deleted", "cdc$partition_deleted", "cdc$ranges"):
            value = F.lit(None)  # they have done their work
        elif field.name in statics:
            value = F.when(is_static(shape), value)
        names.append(value.cast(field.dataType).alias(field.name))
    return rows.select(*names, _KEEP)
