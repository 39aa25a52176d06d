"""``ParquetTable``: a table of Parquet files, kept up to date window by window.

It is a directory:

    _rscylla.json         the current version and its cursor; replaced atomically
    v00000012-ID/rows     the rows of the table, for any reader of Parquet
    v00000012-ID/cells    the same rows with write times, which are merged with the next window

A version is written completely before ``_rscylla.json`` names it, so readers see either version. A crash leaves a
directory that no manifest names; it is removed when its version is too old to be kept. Windows arrive in the order of
write times, so after a window is merged, its deletes and the cells that they hide are dropped.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ...cdc import PlannedWindow
from ...errors import ConfigError
from ..pipeline.cells import (
    added_again,
    cell_names,
    cells_of,
    cells_schema,
    merge_cells,
    quoted,
    saying_left_out,
    with_all_columns,
    without,
)
from ..pipeline.evolving import evolutions, evolved
from ..pipeline.files import Directory
from ..pipeline.latest import live_rows, second_of
from ..pipeline.tables import changes_after, check_begins, purged, shape_json, shape_of
from ..session.settings import planned_quickly
from ..source.shape import Shape
from .columnnames import check_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline.snapshots import Snapshot

__all__ = ["ParquetTable"]

MANIFEST = "_rscylla.json"

VERSION = 3


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
        self._check_new()
        cells = with_all_columns(snapshot.cells, snapshot.shape)
        self._write(merge_cells(cells, snapshot.shape), snapshot.shape, snapshot.cursor, 1, snapshot.left_out)

    def apply(self, changes: DataFrame, window: PlannedWindow) -> bool:
        """Merge the changes of *window* into the table; return False if the table already has the window.

        A window that the table already has changes nothing, so a window can be applied again after a crash. Columns
        that the snapshot omits stay absent; columns that were added to the base table since are added.

        Raises:
            ConfigError: a window between the table and this one is missing, also if the table is gone; or the table
                belongs to another base table.
        """
        manifest = self._manifest()
        shape = Shape.of(changes)
        if manifest is None:
            self._check_new()
            check_begins(window, self.path)
            self._write(merge_cells(cells_of(changes, shape), shape), shape, window.end, 1)
            return True
        known = shape_of(manifest["shape"])
        left = changes_after(changes, window, manifest["cursor"], known, self.path)
        if left is None:
            return False
        version, left_out = int(manifest["version"]), manifest["left_out"]
        shape = without(shape, left_out)
        # Kept, because whoever asks whether there are any reads some, and Spark ends Python workers that are not read
        # to the end.
        new = cells_of(left, shape).persist()
        try:
            if shape_json(shape) == manifest["shape"] and new.isEmpty():
                self._directory.write_json(MANIFEST, {**manifest, "cursor": window.end})
                return True
            old = _as_now(
                self._spark.read.schema(cells_schema(known)).parquet(self._cells_path(manifest)), shape, self.path
            )
            cells = new.unionByName(with_all_columns(old, shape))
            self._write(merge_cells(cells, shape), shape, window.end, version + 1, left_out)
        finally:
            new.unpersist()
        return True

    def rows(self, *, at: datetime | None = None) -> DataFrame:
        """Return the rows as of the table's cursor, without values that have expired by *at* (default: now).

        Values that had expired when their window was merged are not in the table, whatever *at* is. Other programs can
        read the directory ``rows`` of the current version, whose values expired as of its write time. A window without
        changes does not write it again.

        Raises:
            ConfigError: the table does not exist, or *at* is no aware time.
        """
        return live_rows(self.cells(), shape_of(self._needed()["shape"]), second_of(at), deletes=False)

    def cells(self) -> DataFrame:
        """Return the cells of the table, for ``latest(..., base=...)``."""
        manifest = self._needed()
        schema = cells_schema(shape_of(manifest["shape"]))
        found = self._spark.read.schema(schema).parquet(self._cells_path(manifest))
        return saying_left_out(found, manifest["left_out"])

    @property
    def rows_path(self) -> str:
        """Directory of the Parquet files with the rows of the current version."""
        return self._directory.sub(f"{self._needed()['directory']}/rows")

    # ------------------------------------------------------------ files

    def _write(self, cells: DataFrame, shape: Shape, cursor: str, version: int, left_out: Collection[str] = ()) -> None:
        check_columns(self._spark, shape, "parquet")
        # Its own name: another run may have crashed in this version, or, cut off and replaced, still write it.
        directory = f"{_name(version)}-{uuid4().hex[:12]}"
        with planned_quickly(cells.sparkSession):  # a micro-batch has a session of its own
            self._write_files(directory, cells, shape)
        self._directory.write_json(
            MANIFEST,
            {
                "v": VERSION,
                "version": version,
                "directory": directory,
                "cursor": cursor,
                "shape": shape_json(shape),
                "left_out": sorted(left_out),
            },
        )
        for name in self._directory.names():
            # Names have a fixed width, so they sort as their numbers do.
            if name.startswith("v") and name < _name(version - self._keep + 1):
                self._directory.remove(name)

    def _write_files(self, directory: str, cells: DataFrame, shape: Shape) -> None:
        second = second_of(None)
        path = self._directory.sub(f"{directory}/cells")
        alive = purged(cells, shape, second).select(*(F.col(quoted(n)) for n in cells_schema(shape).names))
        alive.write.parquet(path)
        # Read back from the files: otherwise, Spark would compute the merge again for the rows.
        written = cells.sparkSession.read.schema(alive.schema).parquet(path)
        rows = live_rows(written, shape, second, deletes=False)
        rows.write.parquet(self._directory.sub(f"{directory}/rows"))

    def _check_new(self) -> None:
        """Raise ``ConfigError`` if the directory has versions of a table whose manifest is gone."""
        # A first version alone is what a run leaves behind that crashed before it wrote the manifest.
        if lost := [n for n in self._directory.names() if n.startswith("v") and n > _name(2)]:
            raise ConfigError(
                f"{self.path} has the version {lost[-1]} of a table, but lost its {MANIFEST}; put it back from a "
                "backup, or create the table again in another directory"
            )

    def _cells_path(self, manifest: dict[str, Any]) -> str:
        return self._directory.sub(f"{manifest['directory']}/cells")

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


def _as_now(old: DataFrame, shape: Shape, path: str) -> DataFrame:
    """Return the cells *old* with the types of *shape*, as far as they have its columns.

    A column that was added again is another one.

    Raises:
        ConfigError: a column has another type than in the files, though it was not dropped.
    """
    before = {f.name: f.dataType for f in old.schema.fields}
    columns = {name: c.name for c in shape.values for name in cell_names(c)}
    again = added_again(shape)
    kept = []
    for field in cells_schema(shape).fields:
        type_ = before.get(field.name)
        if type_ is None or (type_ != field.dataType and field.name in again):
            continue
        evolutions(columns.get(field.name, field.name), type_, field.dataType, path)
        kept.append(evolved(F.col(quoted(field.name)), type_, field.dataType).alias(field.name))
    return old.select(*kept)


def _name(version: int) -> str:
    return f"v{version:08d}"
