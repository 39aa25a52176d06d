"""``apply_changes``: a table kept up to date window by window, as Parquet files or in a format with MERGE.

A Parquet table is a directory:

    _rscylla.json         the current version and its cursor; replaced atomically
    v00000012/rows        the rows of the table, for any reader of Parquet
    v00000012/cells       the same rows with write times, which are merged with the next window

A version is written completely before ``_rscylla.json`` names it, so readers see either version, and a crash leaves a
directory that the next run overwrites. Windows arrive in the order of write times, so after a window is merged, its
deletes and the cells that they hide are dropped.
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
    that does not exist is created.
    """
    if not isinstance(target, str):
        return target.apply(changes, window)
    return ParquetTable(changes.sparkSession, target, keep=keep).apply(changes, window)


class ParquetTable:
    """A table in a directory, for one writer at a time and any number of readers.

    Each window rewrites the table. Use it for tables of up to a few gigabytes and windows of minutes; for larger
    tables, use ``MergeTable``.

    Args:
        path: path of the directory, on any file system that Spark supports.
        keep: number of versions to keep for readers, including the current one.
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
        """The cursor up to which all changes are in the table; "" if the table does not exist."""
        manifest = self._manifest()
        return str(manifest["cursor"]) if manifest else ""

    def start_from(self, snapshot: Snapshot) -> None:
        """Create the table from the rows of a snapshot; changes are then applied from ``snapshot.cursor``.

        Raises:
            ConfigError: the table already exists.
        """
        if self._manifest() is not None:
            raise ConfigError(f"{self.path} already contains a table; use another directory, or remove this one")
        cells = with_all_columns(snapshot.cells, snapshot.shape)
        self._write(merge_cells(cells, snapshot.shape), snapshot.shape, snapshot.cursor, 1, snapshot.left_out)

    def apply(self, changes: DataFrame, window: Window) -> bool:
        """Merge the changes of *window* into the table; return False if the table already has the window.

        A window that the table already has changes nothing, so a window can be applied again after a crash. Columns
        that the snapshot omits stay absent; columns that were added to the base table since are added.

        Raises:
            ConfigError: a window between the table and this one is missing, or the table belongs to another base table.
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
        """Return the rows as of the table's cursor, without values that have expired by *at* (default: now).

        Other programs can read the directory ``rows`` of the current version, whose values expired as of its write
        time.

        Raises:
            ConfigError: the table does not exist.
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
        """Directory of the Parquet files with the rows of the current version."""
        return self._directory.sub(f"{_name(int(self._needed()['version']))}/rows")

    # ------------------------------------------------------------ files

    def _write(self, cells: DataFrame, shape: Shape, cursor: str, version: int, left_out: Collection[str] = ()) -> None:
        second = second_of(None)
        alive = purged(cells, shape, second).select(*(F.col(quoted(n)) for n in cells_schema(shape).names))
        # Overwritten: a run that crashed may have left a part of this version.
        alive.write.mode("overwrite").parquet(self._cells_path(version))
        # Read back: otherwise the merge would be worked out a second time for the rows.
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
            # Names have a fixed width, so they sort as their numbers do.
            if name.startswith("v") and name < _name(version - self._keep + 1):
                self._directory.remove(name)

    def _cells_path(self, version: int) -> str:
        return self._directory.sub(f"{_name(version)}/cells")

    def _manifest(self) -> dict[str, Any] | None:
        found = self._directory.read_json(MANIFEST)
        if found is not None and found.get("v") != VERSION:
            raise ConfigError(
                f"the table in {self.path} has the format of another version of rscylla; create it again, or use "
                "that version"
            )
        return found

    def _needed(self) -> dict[str, Any]:
        found = self._manifest()
        if found is None:
            raise ConfigError(f"there is no table in {self.path}; apply_changes creates it")
        return found


def _name(version: int) -> str:
    return f"v{version:08d}"


def changes_after(changes: DataFrame, window: Window, cursor: str, name: str) -> DataFrame | None:
    """Return the *changes* of *window* that the table *name* lacks after its cursor *cursor*; None if there are none.

    Raises:
        ConfigError: a window in between is missing.
    """
    at, start = EventID.parse(cursor), EventID.parse(window.start)
    if cursor_key(window.end) <= at.key:
        return None
    if start.key > at.key and not _is_next_generation(start, at):
        raise ConfigError(
            f"the table {name} ends at {tu.format_time(at.exact_us)}, but the window begins at "
            f"{tu.format_time(start.exact_us)}: apply the windows in between, or create the table again"
        )
    return changes.where(F.unix_micros("cdc_timestamp") >= at.exact_us) if start.key < at.key else changes


def _is_next_generation(start: EventID, at: EventID) -> bool:
    """Whether the two adjoin; a generation ends where the next one starts."""
    return start.exact_us == at.exact_us and not start.is_row


def shape_json(shape: Shape) -> list[dict[str, Any]]:
    """Return *shape* as a JSON value."""
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


def shape_of(stored: list[dict[str, Any]]) -> Shape:
    """Return the shape from the result of ``shape_json``."""
    columns = [
        ColumnShape(
            c["name"],
            c["kind"],
            c["type"],
            StructType.fromJson({"type": "struct", "fields": [_field_json(c)]}).fields[0].dataType,
            c["descending"],
            c["dropped_us"],
        )
        for c in stored
    ]
    return Shape.by_kind(columns)


def _field_json(column: dict[str, Any]) -> dict[str, Any]:
    return {"name": column["name"], "type": column["spark"], "nullable": True, "metadata": {}}


def check_same(known: Shape, given: Shape, name: str) -> None:
    """Raise ``ConfigError`` unless both have the same primary key; *name* is the name of the table."""
    keys = [[(c.name, c.kind, c.cql) for c in shape.keys] for shape in (known, given)]
    if keys[0] != keys[1]:
        raise ConfigError(
            f"the table {name} has a different primary key from these changes; check that it belongs "
            "to the same base table"
        )


# ---------------------------------------------------------------- what is worth keeping


def purged(cells: DataFrame, shape: Shape, second: Column, *, flag: str | None = None) -> DataFrame:
    """Return merged *cells* without deletes, the cells that they hide, and cells that have expired by *second*.

    Rows without remaining cells are omitted; with *flag*, they stay, and this column says whether cells remain.
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
        here = is_static(shape) if static else F.lit(True)  # each row has a copy of its partition's static cells
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
    # Not in one step: within a lambda, Spark resolves a name to the column that the same step creates.
    found = frame.withColumns(kept).withColumns(done)
    left = reduce(lambda a, b: a | b, (F.col(quoted(n)).isNotNull() for n in kept))
    names = [F.col(quoted(n)) for n in cells.columns]
    return found.where(left).select(*names) if flag is None else found.select(*names, left.alias(flag))


def _living(alive: Callable[[Column, Column], Column], floor: Column) -> Callable[[Column], Column]:
    return lambda element: alive(element, floor) & ~element["dead"]


def _fields(column: ColumnShape) -> list[Any]:
    return [column] if column.form == "value" else udt_fields(column)
