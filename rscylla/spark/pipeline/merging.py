"""``MergeTable``: a table kept up to date window by window in a format with MERGE, such as Delta Lake or Iceberg.

The table has the columns of the base table, ``cdc_live`` (whether the row is one that ``SELECT *`` shows), and the
cells with their write times. A window touches the partitions that it writes to: these are read, merged as in files, and
put back by one MERGE. The point up to which changes are in the table is in its properties. It is moved after the MERGE,
and merging a window right after itself changes nothing; so a crash between the two is repaired by the same window.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
from .cells import cells_of, cells_schema, merge_cells, with_all_columns
from .latest import cell_names, is_static, live_rows, quoted, second_of, with_liveness
from .tables import changes_after, check_same, purged, shape_json, shape_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .snapshots import Snapshot

__all__ = ["MergeTable", "merge_source", "table_schema"]

VERSION = "1"

_PROPERTIES = ("rscylla.version", "rscylla.shape", "rscylla.cursor")

_KEEP = "cdc_keep"


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
        self._set_cursor(snapshot.cursor)

    def apply(self, changes: DataFrame, window: Window) -> bool:
        """Merge the changes of *window* into the table, and return whether there was anything that it did not have.

        A window that is in the table already changes nothing, so a window may be applied again after a crash.

        Raises:
            ConfigError: windows between the table and this one are missing, the table is another one's, its format
                has no MERGE, or it is not there and *using* was not given.
        """
        shape = Shape.of(changes)
        self._create(shape)
        cursor = self.cursor
        if cursor:
            check_same(self._shape(), shape, self._name)
            left = changes_after(changes, window, cursor, self._name)
            if left is None:
                return False
            changes = left
        self._widen(shape)
        self._merge(cells_of(changes, shape), shape)
        self._set_cursor(window.end)
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
            raise ConfigError(f"the table {self._name} was written by another version of rscylla; upgrade")
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
        if self._shape() != shape:
            self._set_property("rscylla.shape", json.dumps(shape_json(shape)))

    def _set_cursor(self, cursor: str) -> None:
        self._set_property("rscylla.cursor", cursor)

    def _set_property(self, name: str, value: str) -> None:
        text = value.replace("\\", "\\\\").replace("'", "\\'")
        self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ('{name}' = '{text}')")

    def _merge(self, cells: DataFrame, shape: Shape) -> None:
        table = self._spark.table(self._name)
        source = merge_source(table, cells, shape, second_of(None)).alias("cdc_source")
        target = self._name.rpartition(".")[2]
        names = table_schema(shape).names
        assigned = {quoted(n): F.lit(None) for n in table.columns}
        assigned |= {quoted(n): F.col(f"cdc_source.{quoted(n)}") for n in names}
        merge = (
            source.mergeInto(self._name, same_key(shape, "cdc_source", target))
            .whenMatched(~F.col(f"cdc_source.{_KEEP}"))
            .delete()
            .whenMatched()
            .update(assigned)
            .whenNotMatched(F.col(f"cdc_source.{_KEEP}"))
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
    """Return the columns of the table for *shape*."""
    cells = cells_schema(shape).fields
    keys = len(shape.keys)
    values = [StructField(c.name, c.type) for c in shape.values]
    return StructType([*cells[:keys], *values, StructField("cdc_live", BooleanType()), *cells[keys:]])


def same_key(shape: Shape, source: str, target: str) -> Column:
    """Return the condition of the MERGE; the clustering key of a partition's own row is null."""
    pairs = ((F.col(f"{source}.{quoted(n)}"), F.col(f"{target}.{quoted(n)}")) for n in shape.key_names)
    return reduce(lambda a, b: a & b, (a.eqNullSafe(b) for a, b in pairs))


def merge_source(table: DataFrame, cells: DataFrame, shape: Shape, second: Column) -> DataFrame:
    """Return what to MERGE into *table*, so that it has *cells*: rows with ``cdc_keep``, which tells if they stay.

    These are all the rows of the partitions that *cells* are of: a delete, or a static column, is about all of them.
    """
    partition = [c.name for c in shape.partition]
    touched = cells.select(*(F.col(quoted(n)) for n in partition)).distinct()
    before = with_all_columns(table.join(touched, partition, "left_semi"), shape)
    merged = purged(merge_cells(cells.unionByName(before), shape), shape, second, flag=_KEEP)
    return _whole_rows(merged, shape, second)


def _whole_rows(cells: DataFrame, shape: Shape, second: Column) -> DataFrame:
    """Return merged *cells* with the values that they make, ``cdc_live`` and ``cdc_keep``."""
    names: list[Any] = []
    rows = with_liveness(cells, shape, second)
    statics = {n for c in shape.statics for n in cell_names(c)} if shape.clustering else set()
    for field in table_schema(shape).fields:
        value = F.col(quoted(field.name))
        if field.name in ("cdc_row_deleted", "cdc_partition_deleted", "cdc_ranges"):
            value = F.lit(None)  # they have done their work
        elif field.name in statics:
            value = F.when(is_static(shape), value)
        names.append(value.cast(field.dataType).alias(field.name))
    return rows.select(*names, _KEEP)
