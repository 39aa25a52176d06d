"""``apply_changes``: a table kept up to date window by window, as Parquet files or where Spark can MERGE.

A Parquet table is a directory:

    _rscylla.json         which version counts, and the point up to which changes are in it; replaced in one step
    v00000012/rows        the table's rows, plain: for any reader of Parquet
    v00000012/cells       the same with write times, which the next window is merged with

A version is written whole and then named by ``_rscylla.json``, so readers see one or the other, and a crash leaves a
directory that the next run writes over. Windows come in the order of write times; so once a window is in, deletes have
done their work, and what they hid is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ... import _timeuuid as tu
from ...errors import ConfigError
from ...event import EventID, cursor_key
from ..shape import ColumnShape, Shape
from ..windowing import Window
from .cells import (
    cell_names,
    cells_of,
    cells_schema,
    merge_cells,
    quoted,
    saying_left_out,
    udt_fields,
    with_all_columns,
    without,
)
from .files import Directory
from .latest import NEVER, is_static, live_rows, second_of, with_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .merging import MergeTable
    from .snapshots import Snapshot

__all__ = ["ParquetTable", "apply_changes", "changes_after", "check_same", "purged", "shape_json", "shape_of"]

MANIFEST = "_rscylla.json"

VERSION = 2


def apply_changes(changes: DataFrame, target: str | MergeTable, *, window: Window, keep: int = 2) -> bool:
    """Bring the Parquet table in the directory *target*, or a ``MergeTable``, up to the end of *window*.

    The same as ``ParquetTable(spark, target).apply(changes, window)`` or ``target.apply(changes, window)``. A table
    that is not there is made.
    """
    if not isinstance(target, str):
        return target.apply(changes, window)
    return ParquetTable(changes.sparkSession, target, keep=keep).apply(changes, window)


class ParquetTable:
    """A table in a directory, for one writer at a time and any number of readers.

    Each window writes the table anew. That suits tables of up to some gigabytes and windows of minutes; larger ones
    belong into a format with MERGE: ``MergeTable``.

    Args:
        path: of the directory, on any file system that Spark knows.
        keep: versions that are kept for readers that have them open, the current one among them.
    """

    def __init__(self, spark: SparkSession, path: str, *, keep: int = 2) -> None:
        if keep < 1:
            raise ConfigError(f"keep must be at least 1, not {keep}")
        self._spark = spark
        self._directory = Directory(spark, path)
        self._keep = keep

    @property
    def path(self) -> str:
        return self._directory.path

    @property
    def cursor(self) -> str:
        """The point up to which all changes are in the table, as a cursor; "" while there is no table."""
        manifest = self._manifest()
        return str(manifest["cursor"]) if manifest else ""

    def start_from(self, snapshot: Snapshot) -> None:
        """Make the table from the rows of a snapshot; changes are then applied from ``snapshot.cursor`` on.

        Raises:
            ConfigError: there is a table already.
        """
        if self._manifest() is not None:
            raise ConfigError(f"{self.path} holds a table already; take another directory, or remove this one")
        cells = with_all_columns(snapshot.cells, snapshot.shape)
        self._write(merge_cells(cells, snapshot.shape), snapshot.shape, snapshot.cursor, 1, snapshot.left_out)

    def apply(self, changes: DataFrame, window: Window) -> bool:
        """Merge the changes of *window* into the table, and return whether there was anything that it did not have.

        A window that is in the table already changes nothing, so a window may be applied again after a crash.

        Columns that a snapshot left out stay left out; those that the table of Scylla got since are added.

        Raises:
            ConfigError: windows between the table and this one are missing, or the table is another one's.
        """
        manifest = self._manifest()
        shape = Shape.of(changes)
        if manifest is None:
            self._write(merge_cells(cells_of(changes, shape), shape), shape, window.end, 1)
            return True
        left = changes_after(changes, window, manifest["cursor"], self.path)
        if left is None:
            return False
        check_same(_shape_of(manifest), shape, self.path)
        version, left_out = int(manifest["version"]), manifest["left_out"]
        shape = without(shape, left_out)
        old = self._spark.read.schema(cells_schema(shape)).parquet(self._cells_path(version))
        cells = cells_of(left, shape).unionByName(with_all_columns(old, shape))
        self._write(merge_cells(cells, shape), shape, window.end, version + 1, left_out)
        return True

    def rows(self, *, at: datetime | None = None) -> DataFrame:
        """Return the rows as of the table's cursor; what has expired by *at* (now, unless given) is null or gone.

        Other programs may read the directory ``rows`` of the current version, where expiry is that of when it was
        written.

        Raises:
            ConfigError: there is no table.
        """
        return live_rows(self.cells(), _shape_of(self._needed()), second_of(at))

    def cells(self) -> DataFrame:
        """Return the cells of the table, for ``latest(..., base=...)``."""
        manifest = self._needed()
        schema = cells_schema(_shape_of(manifest))
        found = self._spark.read.schema(schema).parquet(self._cells_path(int(manifest["version"])))
        return saying_left_out(found, manifest["left_out"])

    @property
    def rows_path(self) -> str:
        """Directory of the Parquet files with the current version's rows."""
        return self._directory.sub(f"{_name(int(self._needed()['version']))}/rows")

    # ------------------------------------------------------------ files

    def _write(self, cells: DataFrame, shape: Shape, cursor: str, version: int, left_out: Collection[str] = ()) -> None:
        second = second_of(None)
        alive = purged(cells, shape, second).select(*(F.col(quoted(n)) for n in cells_schema(shape).names))
        alive.write.mode("overwrite").parquet(self._cells_path(version))
        written = self._spark.read.schema(alive.schema).parquet(self._cells_path(version))
        live_rows(written, shape, second).write.mode("overwrite").parquet(self._directory.sub(f"{_name(version)}/rows"))
        self._directory.write_json(
            MANIFEST,
            {
                "v": VERSION,
                "version": version,
                "cursor": cursor,
                "shape": shape_json(shape),
                "left_out": sorted(left_out),
            },
        )
        for name in self._directory.names():
            if name.startswith("v") and name < _name(version - self._keep + 1):
                self._directory.remove(name)

    def _cells_path(self, version: int) -> str:
        return self._directory.sub(f"{_name(version)}/cells")

    def _manifest(self) -> dict[str, Any] | None:
        found = self._directory.read_json(MANIFEST)
        if found is not None and found.get("v") != VERSION:
            raise ConfigError(
                f"the table in {self.path} is of another version of rscylla; make it anew, or use that one"
            )
        return found

    def _needed(self) -> dict[str, Any]:
        found = self._manifest()
        if found is None:
            raise ConfigError(f"there is no table in {self.path}; apply_changes makes one")
        return found


def _name(version: int) -> str:
    return f"v{version:08d}"


def changes_after(changes: DataFrame, window: Window, cursor: str, name: str) -> DataFrame | None:
    """Return those of the *changes* of *window* that the table *name* lacks, which ends at *cursor*; None for none.

    Raises:
        ConfigError: windows between are missing.
    """
    at, start = EventID.parse(cursor), EventID.parse(window.start)
    if cursor_key(window.end) <= at.key:
        return None
    if start.key > at.key and not _is_next_generation(start, at):
        raise ConfigError(
            f"the table {name} ends at {tu.format_time(at.exact_us)}, but the window begins at "
            f"{tu.format_time(start.exact_us)}: apply the windows between, or make the table anew"
        )
    return changes.where(F.unix_micros("cdc_timestamp") >= at.exact_us) if start.key < at.key else changes


def _is_next_generation(start: EventID, at: EventID) -> bool:
    """Whether nothing lies between: a generation ends where the next one starts."""
    return start.exact_us == at.exact_us and not start.is_row


def shape_json(shape: Shape) -> list[dict[str, Any]]:
    """Return *shape* as what can be kept as JSON."""
    return [
        {
            "name": c.name,
            "kind": c.kind,
            "type": c.cql,
            "descending": c.descending,
            "dropped_us": c.dropped_us,
            "spark": json.loads(c.type.json()),
        }
        for c in (*shape.keys, *shape.values)
    ]


def _shape_of(manifest: dict[str, Any]) -> Shape:
    return shape_of(manifest["shape"])


def shape_of(told: list[dict[str, Any]]) -> Shape:
    """Return the shape that ``shape_json`` told."""
    columns = [
        ColumnShape(
            c["name"],
            c["kind"],
            c["type"],
            StructType.fromJson({"type": "struct", "fields": [_field_json(c)]}).fields[0].dataType,
            c["descending"],
            c["dropped_us"],
        )
        for c in told
    ]
    return Shape(
        tuple(c for c in columns if c.kind == "partition_key"),
        tuple(c for c in columns if c.kind == "clustering"),
        tuple(c for c in columns if c.kind in ("static", "regular")),
    )


def _field_json(column: dict[str, Any]) -> dict[str, Any]:
    return {"name": column["name"], "type": column["spark"], "nullable": True, "metadata": {}}


def check_same(known: Shape, given: Shape, name: str) -> None:
    """Raise ``ConfigError`` unless both are of one primary key; *name* is that of the table."""
    keys = [[(c.name, c.kind, c.cql) for c in shape.keys] for shape in (known, given)]
    if keys[0] != keys[1]:
        raise ConfigError(f"the table {name} has another primary key than these changes; is it another table's?")


# ---------------------------------------------------------------- what is worth keeping


def purged(cells: DataFrame, shape: Shape, second: Column, *, flag: str | None = None) -> DataFrame:
    """Return merged *cells* without what deletes hide, what has expired by *second*, and the deletes themselves.

    Rows of which nothing is left are left out; or, with *flag*, stay, and this column tells if something is left.
    """
    frame = with_partition(cells, shape)
    covered = F.col("cdc$covered")

    def alive(cell: Column, floor: Column) -> Column:
        return (cell["t"] > floor) & F.coalesce(cell["expires"] > second, F.lit(True))

    marker = F.col("cdc$marker")
    kept = {"cdc$marker": F.when(alive(marker, covered), marker)}
    no_time = F.lit(None).cast("bigint")
    done = {"cdc$row_deleted": no_time, "cdc$partition_deleted": no_time}
    done["cdc$ranges"] = F.lit(None).cast(cells.schema["cdc$ranges"].dataType)
    for column in shape.values:
        static = column.kind == "static" and bool(shape.clustering)
        here = is_static(shape) if static else F.lit(True)  # each row has been told its partition's static cells
        floor = F.col("cdc$partition_deleted") if static else covered
        if column.form != "value":
            gone = f"cdc$gone_{column.name}"
            done[gone] = no_time
            floor = F.greatest(floor, F.coalesce(quoted(gone), F.lit(NEVER)))
        if column.form in ("value", "udt"):
            for name in cell_names(column)[-len(_fields(column)) :]:
                cell = F.col(quoted(name))
                kept[name] = F.when(here & alive(cell, floor) & ~cell["dead"], cell)
        else:
            name = f"cdc$elements_{column.name}"
            elements = F.filter(quoted(name), _living(alive, floor))
            kept[name] = F.when(here & (F.size(elements) > 0), elements)
    # Not in one step: within a lambda, Spark takes a name for the column that the same step makes of it.
    found = frame.withColumns(kept).withColumns(done)
    left = reduce(lambda a, b: a | b, (F.col(quoted(n)).isNotNull() for n in kept))
    names = [F.col(quoted(n)) for n in cells.columns]
    return found.where(left).select(*names) if flag is None else found.select(*names, left.alias(flag))


def _living(alive: Callable[[Column, Column], Column], floor: Column) -> Callable[[Column], Column]:
    return lambda element: alive(element, floor) & ~element["dead"]


def _fields(column: ColumnShape) -> list[Any]:
    return [column] if column.form == "value" else udt_fields(column)
