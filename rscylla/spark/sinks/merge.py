"""``MergeTable``: a table in a format with MERGE, such as Delta Lake or Iceberg, kept up to date window by window.

The table has the columns of the base table, ``cdc_live`` (whether ``SELECT *`` returns the row), and the cells with
their write times. A window affects the partitions that it writes to, or all partitions if a column was dropped before
it. These partitions are read and merged as in files, and one MERGE writes back the rows that differ. In Delta Lake and
Iceberg, the commit of the MERGE also has the cursor; see ``commits.py``. In other formats, the cursor is a property,
which is set after the MERGE. Merging the same window again changes nothing, so applying the window again repairs a
crash between the two steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ... import _timeuuid as tu
from ...errors import ConfigError
from ...event import EventID, cursor_key
from ..formats import missing_format
from ..pipeline.cells import (
    added_again,
    cell_names,
    cells_of,
    cells_schema,
    grouped,
    identities,
    merged_columns,
    quoted,
    with_all_columns,
    without,
)
from ..pipeline.files import Directory, has_files
from ..pipeline.latest import is_static, live_rows, second_of, with_liveness
from ..pipeline.order import identity
from ..pipeline.tables import added_fields, changes_after, purged, shape_json, shape_of
from ..settings import planned_quickly
from ..shape import Shape
from ..windowing import Window
from .commits import STATE, CommitLog, State, TableVersion, commit_log, of_property, text, to_property

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline.snapshots import Snapshot

__all__ = ["MergeTable", "TableVersion", "merge_source", "table_schema"]

_CLUSTERED = (IntegralType, StringType, DateType, TimestampType, DecimalType, FloatType, DoubleType)
"""The types that Delta Lake clusters by."""

VERSION = "4"

_SHAPE = "rscylla.shape."
"""Properties with the shapes that the base table has had; the rest of the name is made of the shape."""

_KEEP = "cdc$keep"
_WAS = "cdc$was"
_SOURCE = "cdc_source"
_LIVE = "cdc_live"
"""The column that readers use besides those of the base table."""

_SAVED = timedelta(days=1)
"""How much older than the newest commit the cursor in the property may be; for tables whose history has expired."""

_KEYS = 1_000
"""The partitions of a window up to which the MERGE names their keys, so that it skips files that have none of them."""

_MAPPED_NAMES = frozenset(" ,;{}()\n\t=")
"""Characters in names of columns for which Delta Lake must map them."""

_MAPPING = ("delta.columnMapping.mode", "name")


class MergeTable:
    """A table of a Spark catalog, for one writer at a time and any number of readers.

    Readers select ``WHERE cdc_live``. Values that expired after they were written are still present; ``rows`` omits
    them.

    Args:
        name: name of the table in SQL: ``orders``, ``db.orders``, ``catalog.db.orders``.
        using: format for creating the table if it does not exist, such as ``delta`` or ``iceberg``.
        buckets: for creating a table of Iceberg: number of buckets of partition keys that it is partitioned by, so that
            a window rewrites files of few buckets. A table of Delta Lake is clustered by the partition key.
        properties: more properties for creating the table.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        *,
        using: str | None = None,
        buckets: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        if buckets is not None and (using or "").lower() != "iceberg":
            raise ConfigError("buckets= is for tables of Iceberg (using='iceberg'); Delta Lake clusters its tables")
        if buckets is not None and buckets < 1:
            raise ConfigError(f"buckets must be at least 1, not {buckets}")
        self._spark = spark
        self._name = name
        self._using = using
        self._buckets = buckets
        self._extra = dict(properties or {})

    @property
    def name(self) -> str:
        return self._name

    @property
    def cursor(self) -> str:
        """The cursor up to which all changes are in the table; "" if there is none."""
        state = self._log().state() if self._exists() else None
        return state.cursor if state is not None else ""

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
        self._cluster(snapshot.shape, self._log())
        self._widen(snapshot.shape)
        cells = with_all_columns(snapshot.cells, snapshot.shape)
        self._commit(cells, snapshot.shape, snapshot.cursor, snapshot.left_out)

    def apply(self, changes: DataFrame, window: Window) -> bool:
        """Merge the changes of *window* into the table; return False if the table already has the window.

        A window that the table already has changes nothing, so a window can be applied again after a crash.

        Raises:
            ConfigError: a window between the table and this one is missing, the table belongs to another base table,
                its format has no MERGE, or it does not exist and *using* was not given.
        """
        shape = Shape.of(changes)
        self._create(shape)
        log = self._log()
        state = log.state()
        left_out: Collection[str] = ()
        whole = False
        if state is not None and state.cursor:
            known, left_out = self._shape(log, state)
            left = changes_after(changes, window, state.cursor, known, self._name)
            if left is None:
                return False
            changes = left
            shape = without(shape, left_out)
            whole = has_lost(known, shape)
        else:
            self._cluster(shape, log)
        self._widen(shape)
        self._commit(cells_of(changes, shape), shape, window.end, left_out, whole=whole)
        return True

    def rows(
        self,
        *,
        at: datetime | None = None,
        cursor: str | None = None,
        version: int | None = None,
        as_of: datetime | None = None,
    ) -> DataFrame:
        """Return the rows as of the table's cursor, or of an earlier one, without values that have expired by *at*.

        Args:
            at: the aware time by which values have expired; default: now, or when the earlier version was committed.
            cursor: that of an earlier version, such as the end of a window.
            version: number of an earlier version, of ``versions``.
            as_of: the aware time whose changes are the last: the newest version with an ``end_time`` until then.

        Raises:
            ConfigError: the table does not exist, it has no such version any more, or its format has none.
        """
        if not self._exists():
            raise ConfigError(f"the table {self._name} does not exist; apply_changes creates it")
        if sum(given is not None for given in (cursor, version, as_of)) > 1:
            raise ConfigError("give one of cursor=, version=, and as_of=")
        log = self._log()
        if cursor is None and version is None and as_of is None:
            frame, state = self._spark.table(self._name), log.state()
        else:
            number = version if version is not None else self._version(log, cursor, as_of).version
            state, time_us = log.state_of(number)
            frame, at = log.read(number), at or tu.datetime_of(time_us)
        if state is None or not state.cursor:
            raise ConfigError(f"the table {self._name} has no rows yet; apply_changes adds them")
        shape, _ = self._shape(log, state)
        return live_rows(with_all_columns(_as_wanted(frame, shape), shape), shape, second_of(at))

    def versions(self) -> list[TableVersion]:
        """Return the versions of the table that windows and ``start_from`` committed, oldest first.

        Those of Delta Lake whose files were removed by VACUUM are among them, as long as its log has them.

        Raises:
            ConfigError: the table does not exist, or its format keeps no versions.
        """
        if not self._exists():
            raise ConfigError(f"the table {self._name} does not exist; apply_changes creates it")
        return self._log().versions()

    def compact(self) -> None:
        """Rewrite small files as large ones, ordered by partition key: OPTIMIZE, or ``rewrite_data_files`` of Iceberg.

        Contents and cursor stay the same, and so do earlier versions.

        Raises:
            ConfigError: the table has no rows, or its format is neither Delta Lake nor Iceberg.
        """
        log, state = self._saved()
        log.compact(self._shape(log, state)[0])

    def vacuum(self, keep: timedelta = timedelta(days=7)) -> None:
        """Remove the files that no version needs which is younger than *keep*; older versions can no longer be read.

        This is VACUUM of Delta Lake, or ``expire_snapshots`` and ``remove_orphan_files`` of Iceberg. Delta Lake refuses
        less than its ``delta.deletedFileRetentionDuration``.

        Raises:
            ConfigError: as for ``compact``.
        """
        self._saved()[0].vacuum(keep)

    # ------------------------------------------------------------ the table

    def _exists(self) -> bool:
        return bool(self._spark.catalog.tableExists(self._name)) or self._is_named_again()

    def _is_named_again(self) -> bool:
        """Give a table of Delta Lake its name, if there is none; return whether it has one now.

        Without a metastore, names end with the application, but the tables stay where these names put them.
        """
        catalog, database, table = _parts(self._name, self._spark)
        known = catalog == "spark_catalog" and has_files(self._spark)
        if (self._using or "").lower() != "delta" or not known or not self._spark.catalog.databaseExists(database):
            return False
        location = f"{self._spark.catalog.getDatabase(database).locationUri.rstrip('/')}/{table}"
        if not any(name.endswith(".json") for name in Directory(self._spark, f"{location}/_delta_log").names()):
            return False
        self._spark.sql(f"CREATE TABLE {self._name} USING delta LOCATION {text(location)}")
        return True

    def _log(self) -> CommitLog:
        """Return the log of the table as it is now, with its properties."""
        self._spark.catalog.refreshTable(self._name)  # another process may have written to it
        shown = self._spark.sql(f"SHOW TBLPROPERTIES {self._name}").collect()
        found = {r["key"]: r["value"] for r in shown}
        if "rscylla.version" not in found:
            raise ConfigError(f"the table {self._name} was not created by rscylla; use a name that does not exist yet")
        if found["rscylla.version"] != VERSION:
            raise ConfigError(
                f"the table {self._name} has the format of another version of rscylla; create it "
                "again, or use that version"
            )
        return commit_log(self._spark, self._name, found)

    def _saved(self) -> tuple[CommitLog, State]:
        """Return the log and the state, after the property has the state: what follows may end the history."""
        if not self._exists():
            raise ConfigError(f"the table {self._name} does not exist; apply_changes creates it")
        log = self._log()
        state = log.state()
        if state is None or not state.cursor:
            raise ConfigError(f"the table {self._name} has no rows yet; apply_changes adds them")
        if log.stored != state:
            self._set({STATE: to_property(state.text)}, log, state)
        return log, state

    def _shape(self, log: CommitLog, state: State) -> tuple[Shape, Collection[str]]:
        """Return the shape of *state*, and the columns that its snapshot omits."""
        name = _SHAPE + state.shape
        value = log.properties.get(name)
        if value is None:
            raise ConfigError(f"the table {self._name} lost its property {name}; create it again")
        stored = json.loads(of_property(value, name, self._name))
        return shape_of(stored["columns"]), stored["left_out"]

    def _version(self, log: CommitLog, cursor: str | None, as_of: datetime | None) -> TableVersion:
        versions = log.versions()
        if cursor is not None:
            wanted = cursor_key(cursor)
            found = [v for v in versions if cursor_key(v.cursor) == wanted]
            said = "that cursor"
        else:
            assert as_of is not None
            try:
                until_us = tu.us_of(as_of)
            except ValueError as e:
                raise ConfigError(f"as_of= is {e}") from e
            found = [v for v in versions if tu.us_of(v.end_time) <= until_us]
            said = f"a window that ends until {tu.format_time(until_us)}"
        if not found:
            raise ConfigError(
                f"the table {self._name} has no version of {said}, or it has expired; versions() has those that exist"
            )
        return found[-1]

    def _create(self, shape: Shape) -> None:
        if self._exists():
            return
        if self._using is None:
            raise ConfigError(
                f"the table {self._name} does not exist; set the format for creating it, such as using='delta'"
            )
        schema, using = table_schema(shape), self._using.lower()
        properties = {"rscylla.version": VERSION, "rscylla.id": uuid4().hex, "rscylla.format": using}
        if using == "delta" and any(_MAPPED_NAMES & set(name) for name in schema.names):
            properties |= dict([_MAPPING])
        writer = self._spark.createDataFrame([], schema).writeTo(self._name).using(self._using)
        for name, value in (self._extra | properties).items():
            writer = writer.tableProperty(name, value)
        if self._buckets is not None:
            writer = writer.partitionedBy(F.partitioning.bucket(self._buckets, F.col(quoted(shape.partition[0].name))))
        try:
            writer.create()
        except Exception as e:
            if "DATA_SOURCE_NOT_FOUND" not in str(e):
                raise
            raise ConfigError(f"the table {self._name} cannot be created: {missing_format(self._using)}") from e

    def _cluster(self, shape: Shape, log: CommitLog) -> None:
        """Cluster a table of Delta Lake that has no rows yet; not when it is created, as a run may die in between."""
        clustered = [quoted(c.name) for c in shape.partition if isinstance(c.type, _CLUSTERED)]
        if log.properties.get("rscylla.format") == "delta" and clustered:
            self._spark.sql(f"ALTER TABLE {self._name} CLUSTER BY ({', '.join(clustered[:4])})")

    def _widen(self, shape: Shape) -> None:
        """Give the table the columns of *shape*; those dropped from the base table stay, and become null.

        A column that was dropped from the base table, and added again with another type, is a new one here, too.
        """
        of_format = self._log().properties.get("rscylla.format", "")
        known = {f.name: f.dataType for f in self._spark.table(self._name).schema.fields}
        wanted = {f.name: stored_type(f.dataType, of_format) for f in table_schema(shape).fields}
        other = [n for n in wanted if n in known and known[n].simpleString() != wanted[n].simpleString()]
        again = added_again(shape)
        grown: list[tuple[str, DataType]] = []
        for name in other:
            if name not in again:
                grown += added_fields(name, known[name], wanted[name], self._name)
        if dropped := [n for n in other if n in again]:
            if of_format == "delta":
                self._set(dict([_MAPPING]))
            self._spark.sql(f"ALTER TABLE {self._name} DROP COLUMNS ({', '.join(map(quoted, dropped))})")
        added = [(quoted(n), t) for n, t in wanted.items() if n not in known or n in dropped] + grown
        if added:
            columns = ", ".join(f"{name} {ddl(type_)}" for name, type_ in added)
            self._spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({columns})")

    def _set(self, properties: Mapping[str, str], log: CommitLog | None = None, state: State | None = None) -> None:
        """Set *properties* in one commit, which carries *state*."""
        pairs = ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
        with nullcontext() if log is None or state is None else log.committing(self._spark, state):
            self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ({pairs})")

    def _commit(
        self, cells: DataFrame, shape: Shape, cursor: str, left_out: Collection[str], *, whole: bool = False
    ) -> None:
        """Merge *cells*, and move the cursor: in one commit if the format can, else after the MERGE."""
        stored = json.dumps({"columns": shape_json(shape), "left_out": sorted(left_out)})
        key = hashlib.sha256(stored.encode()).hexdigest()[:16]
        log = self._log()
        if _SHAPE + key not in log.properties:  # its name is made of what it says
            self._set({_SHAPE + key: to_property(stored)})
        state = State(log.table, cursor, key)
        cells = cells.persist()  # each of the steps that follow would read the window again
        try:
            within = keys_within(cells, shape)
            if whole or within is None or within.some:
                self._merge(cells, shape, log, state, within=None if whole else within, whole=whole)
            elif log.commits_nothing:
                self._append_nothing(log, state)
        finally:
            cells.unpersist()
        log = self._log()
        # No commit has the state if the format cannot, if nothing was merged, or if another thread had the setting.
        if log.state() != state or is_old(log.stored, state):
            self._set({STATE: to_property(state.text)}, log, state)

    def _append_nothing(self, log: CommitLog, state: State) -> None:
        """Commit *state* without rows. A MERGE of none would read the table, and Spark 4.1 fails to plan it."""
        none = self._spark.table(self._name).where(F.lit(False))
        with log.committing(self._spark, state):
            none.writeTo(self._name).append()

    def _merge(
        self, cells: DataFrame, shape: Shape, log: CommitLog, state: State, *, within: KeysWithin | None, whole: bool
    ) -> None:
        table = _as_wanted(self._spark.table(self._name), shape)
        source = merge_source(table, cells, shape, second_of(None), whole=whole, within=within).alias(_SOURCE)
        target = self._name.rpartition(".")[2]
        names = table_schema(shape).names
        # Columns that the table of Scylla has lost become null.
        assigned = {quoted(n): F.lit(None) for n in table.columns}
        assigned |= {quoted(n): F.col(f"{_SOURCE}.{quoted(n)}") for n in names}
        same = same_key(shape, _SOURCE, target)
        if within is not None:
            same = within.of(_columns_of(target)) & same
        merge = (
            source.mergeInto(self._name, same)
            # The first clause that fits counts, so the delete comes before the update.
            .whenMatched(~F.col(f"{_SOURCE}.{_KEEP}"))
            .delete()
            .whenMatched()
            .update(assigned)
            .whenNotMatched(F.col(f"{_SOURCE}.{_KEEP}"))
            .insert(assigned)
        )
        try:
            with log.committing(source.sparkSession, state), planned_quickly(source.sparkSession):
                merge.merge()
        except PySparkException as e:
            if "MERGE INTO" not in str(e):
                raise
            raise ConfigError(
                f"the table {self._name} does not support MERGE; create it in Delta Lake or Iceberg (using=), or use "
                "a ParquetTable"
            ) from e


def _parts(name: str, spark: SparkSession) -> tuple[str, str, str]:
    """Return catalog, database, and table of *name*; what it does not say is as in the session."""
    *before, table = name.split(".")
    database = before[-1] if before else spark.catalog.currentDatabase()
    return before[0] if len(before) > 1 else spark.catalog.currentCatalog(), database, table


@attrs.frozen
class KeysWithin:
    """The partition keys of a window, by column, for those columns whose values Spark's formats compare as we do."""

    values: Mapping[str, Sequence[Any]]
    dates: Collection[str]
    """The columns that are dates. Their values are days since 1970, as Python has only those of four-digit years."""

    @property
    def some(self) -> bool:
        return any(self.values.values())

    def of(self, column: Callable[[str], Column]) -> Column:
        """Return a condition that is true for these keys, and for few others."""
        return reduce(lambda a, b: a & b, (self._among(name, column(name)) for name in self.values))

    def _among(self, name: str, column: Column) -> Column:
        found = self.values[name]
        if not found:
            return F.lit(False)
        return column.isin([F.date_from_unix_date(F.lit(v)) for v in found] if name in self.dates else list(found))


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
    return KeysWithin({c.name: sorted({row[n] for row in found}) for n, c in enumerate(columns)}, dates)


def is_old(stored: State | None, state: State) -> bool:
    """Whether the property with *stored* is to be set to *state*."""
    if stored is None or not stored.cursor:
        return True
    ends = [EventID.parse(s.cursor).exact_us for s in (stored, state)]
    return stored.shape != state.shape or ends[1] - ends[0] > _SAVED // timedelta(microseconds=1)


def ddl(type_: DataType) -> str:
    """Return *type_* as SQL, with the names of fields in quotes."""
    match type_:
        case StructType():
            return f"struct<{', '.join(f'{quoted(f.name)}: {ddl(f.dataType)}' for f in type_.fields)}>"
        case ArrayType():
            return f"array<{ddl(type_.elementType)}>"
        case MapType():
            return f"map<{ddl(type_.keyType)}, {ddl(type_.valueType)}>"
        case _:
            return str(type_.simpleString())


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


def _as_wanted(table: DataFrame, shape: Shape) -> DataFrame:
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
    sides = (identities(shape.keys, _columns_of(side)) for side in (source, target))
    return reduce(lambda a, b: a & b, (a.eqNullSafe(b) for a, b in zip(*sides, strict=True)))


def _columns_of(side: str) -> Callable[[str], Column]:
    return lambda name: F.col(f"{side}.{quoted(name)}")


def has_lost(known: Shape, shape: Shape) -> bool:
    """Whether a column of *known* was dropped before *shape* was read, and perhaps added again."""
    dropped = {c.name: c.dropped_us for c in shape.values}
    return any(c.name not in dropped or dropped[c.name] != c.dropped_us for c in known.values)


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
        sides = (identities(shape.partition, _columns_of(side)) for side in ("cdc_known", "cdc_touched"))
        same = reduce(lambda a, b: a & b, (a.eqNullSafe(b) for a, b in zip(*sides, strict=True)))
        near = known if within is None else known.where(within.of(lambda name: F.col(quoted(name))))
        known = near.alias("cdc_known").join(touched, same, "left_semi")
    was = F.lit(None).cast(known.schema[_WAS].dataType).alias(_WAS)
    names = [F.col(quoted(n)) for n in cells_schema(shape).names]
    old = with_all_columns(known, shape, _WAS)
    both = cells.select(*names, was).unionByName(old)
    merged = grouped(both, shape.keys, *merged_columns(shape, both), F.first(_WAS, ignorenulls=True).alias(_WAS))
    rows = _whole_rows(purged(merged, shape, second, flag=_KEEP), shape, second)
    changed = ~F.struct(*_comparable(rows, shape, after=table)).eqNullSafe(F.col(_WAS))
    return rows.where(F.when(F.col(_KEEP), changed).otherwise(F.col(_WAS).isNotNull())).drop(_WAS)


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
    return rows.select(*names, _KEEP, _WAS)
