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
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    TimestampType,
)

from ... import _timeuuid as tu
from ...cdc import PlannedWindow
from ...errors import ConfigError
from ...event import cursor_key
from ...options import aware_us
from ..pipeline.cells import cells_of, quoted, with_all_columns, without
from ..pipeline.files import Directory, has_files, path_of
from ..pipeline.latest import live_rows, second_of
from ..pipeline.merging import (
    KEEP,
    KeysWithin,
    as_wanted,
    columns_of,
    has_lost,
    keys_within,
    merge_source,
    same_key,
    table_schema,
)
from ..pipeline.tables import changes_after, check_begins, shape_json, shape_of
from ..session.formats import missing_format
from ..session.settings import planned_quickly
from ..source.shape import Shape
from .columnnames import MAPPING, check_columns, needs_mapping, parsed_again
from .commits import STATE, CommitLog, State, TableVersion, commit_log, listing, of_property, text, to_property
from .names import TableName
from .widening import widen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline.snapshots import Snapshot

__all__ = ["MergeTable", "TableVersion"]

P = ParamSpec("P")
T = TypeVar("T")

_CLUSTERED = (IntegralType, StringType, DateType, TimestampType, DecimalType, FloatType, DoubleType)
"""The types that Delta Lake clusters by."""

_IN_BUCKETS = (IntegralType, StringType, DateType, TimestampType, DecimalType, BinaryType)
"""The types that Iceberg has buckets of."""

_FILES = frozenset(("avro", "csv", "json", "orc", "parquet", "text"))
"""Formats of Spark that are files alone."""

_INSTEAD = "create it in Delta Lake or Iceberg (using=), or use a ParquetTable"

_COUNTED = 100
"""The windows after which the files of the table are counted again."""

VERSION = "4"

_SHAPE = "rscylla.shape."
"""Properties with the shapes that the base table has had; the rest of the name is made of the shape."""

_SOURCE = "cdc_source"


def _listed(method: Callable[Concatenate[MergeTable, P], T]) -> Callable[Concatenate[MergeTable, P], T]:
    """Let *method* list the files of the table in few tasks, if these are few."""

    @wraps(method)
    def within(self: MergeTable, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with listing(self._spark, self._files):
            return method(self, *args, **kwargs)

    return within


class MergeTable:
    """A table of a Spark catalog, for one writer at a time and any number of readers.

    Readers select ``WHERE cdc_live``. Values that expired after they were written are still present; ``rows`` omits
    them.

    Args:
        name: name of the table in SQL: ``orders``, ``db.orders``, ``catalog.db.orders``. Other characters than letters,
            digits, and underscores are in backticks.
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
        if (using or "").lower() in _FILES:
            raise ConfigError(
                f"the table {name} does not support MERGE, because {using} is a format of files alone; {_INSTEAD}"
            )
        if buckets is not None and buckets < 1:
            raise ConfigError(f"buckets must be at least 1, not {buckets}")
        self._spark = spark
        self._name = TableName.of(spark, name)
        self._using = using
        self._buckets = buckets
        self._extra = dict(properties or {})
        self._files: int | None = None
        self._windows = 0

    @property
    def name(self) -> str:
        """The name as it was given; a later ``USE`` does not make it that of another table."""
        return self._name.given

    @property
    @_listed
    def cursor(self) -> str:
        """The cursor up to which all changes are in the table; "" if there is none."""
        state = self._log().state() if self._exists() else None
        return state.cursor if state is not None else ""

    @_listed
    def start_from(self, snapshot: Snapshot) -> None:
        """Fill the table with the rows of a snapshot; changes are then applied from ``snapshot.cursor`` on.

        Raises:
            ConfigError: the table already has changes, or its format has no MERGE.
        """
        exists = self._exists()
        if exists and self.cursor:
            raise ConfigError(f"the table {self._name} already has rows; use another name, or drop the table")
        shape = snapshot.shape
        cells = with_all_columns(snapshot.cells, shape)  # before anything is created: it may be refused
        if exists:  # rows of a run that was killed at this point
            self._spark.sql(f"DELETE FROM {self._name.sql}")
        else:
            self._create(shape)
        log = self._log()
        self._cluster(shape, log)
        widen(self._spark, self._name, shape, log)
        self._commit(cells, shape, log, snapshot.cursor, snapshot.left_out)

    @_listed
    def apply(self, changes: DataFrame, window: PlannedWindow) -> bool:
        """Merge the changes of *window* into the table; return False if the table already has the window.

        A window that the table already has changes nothing, so a window can be applied again after a crash.

        Raises:
            ConfigError: a window between the table and this one is missing, also if the table is gone; the table
                belongs to another base table;
                its format has no MERGE, or it does not exist and *using* was not given.
        """
        shape = Shape.of(changes)
        if not self._exists():
            check_begins(window, str(self._name))
            self._create(shape)
        log = self._log()
        state = log.state()
        left_out: Collection[str] = ()
        whole = False
        if state is not None and state.cursor:
            known, left_out = self._shape(log, state)
            left = changes_after(changes, window, state.cursor, known, str(self._name))
            if left is None:
                return False
            changes = left
            shape = without(shape, left_out)
            whole = has_lost(known, shape)
        else:
            check_begins(window, str(self._name))
            self._cluster(shape, log)
        widen(self._spark, self._name, shape, log)
        self._commit(cells_of(changes, shape), shape, log, window.end, left_out, whole=whole)
        return True

    @_listed
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
                Values that had expired when they were merged are not in the table, whatever the time.
            cursor: that of an earlier version, such as the end of a window.
            version: number of an earlier version, of ``versions``.
            as_of: the aware time whose changes are the last: the newest version with an ``end_time`` until then.

        Raises:
            ConfigError: the table does not exist, it has no such version any more, or its format has none; or *at* is
                before the version was committed, without the values that had expired until then.
        """
        if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
            raise ConfigError(f"version= requires an int, the version of one of versions(), not {version!r}")
        if cursor is not None and not isinstance(cursor, str):
            raise ConfigError(f"cursor= requires a text, such as the end of a window, not {cursor!r}")
        if sum(given is not None for given in (cursor, version, as_of)) > 1:
            raise ConfigError("give one of cursor=, version=, and as_of=")
        log = self._needed()
        if cursor is None and version is None and as_of is None:
            frame, state = self._spark.table(self._name.sql), log.state()
            time_us = log.purged_us() if at is not None else 0
        else:
            number = version if version is not None else self._version(log, cursor, as_of).version
            state, time_us = log.state_of(number)
            frame, at = log.read(number), tu.datetime_of(time_us) if at is None else at
        if at is not None and aware_us("at=", at) < time_us:
            raise ConfigError(
                f"at= is before {tu.format_time(time_us)}, when the table {self._name} was committed without the "
                "values that had expired; omit it, or give a later time"
            )
        shape, _ = self._shape(log, self._filled(state))
        return live_rows(with_all_columns(as_wanted(frame, shape), shape), shape, second_of(at))

    @_listed
    def versions(self) -> list[TableVersion]:
        """Return the versions of the table that windows and ``start_from`` committed, oldest first.

        Those of Delta Lake whose files were removed by VACUUM are among them, as long as its log has them.

        Raises:
            ConfigError: the table does not exist, or its format keeps no versions.
        """
        return self._needed().versions()

    @_listed
    def compact(self) -> None:
        """Rewrite small files as large ones, ordered by partition key: OPTIMIZE, or ``rewrite_data_files`` of Iceberg.

        Contents and cursor stay the same, and so do earlier versions.

        Raises:
            ConfigError: the table has no rows, or its format is neither Delta Lake nor Iceberg.
        """
        log, state = self._saved()
        log.compact(self._shape(log, state)[0])

    @_listed
    def vacuum(self, keep: timedelta | None = None) -> None:
        """Remove the files that no version needs which is younger than *keep*; older versions can no longer be read.

        This is VACUUM of Delta Lake, or ``expire_snapshots`` and ``remove_orphan_files`` of Iceberg. Delta Lake refuses
        less than its ``delta.deletedFileRetentionDuration``, which is 7 days unless set.

        Args:
            keep: None for what Delta Lake keeps at least, and 7 days for Iceberg.

        Raises:
            ConfigError: as for ``compact``; or *keep* is not a ``timedelta``, negative, or too short for Delta Lake.
        """
        if keep is not None and (not isinstance(keep, timedelta) or keep < timedelta()):
            raise ConfigError(f"keep must be a timedelta of zero or more, such as timedelta(days=7), not {keep!r}")
        self._saved()[0].vacuum(keep)

    # ------------------------------------------------------------ the table

    def _exists(self) -> bool:
        return bool(self._spark.catalog.tableExists(self._name.sql)) or self._is_named_again()

    def _is_named_again(self) -> bool:
        """Give a table of Delta Lake its name, if there is none; return whether it has one now.

        Without a metastore, names end with the application, but the tables stay where these names put them.
        """
        database = self._name.database
        known = self._name.catalog == "spark_catalog" and has_files(self._spark)
        if (self._using or "").lower() != "delta" or not known or not self._spark.catalog.databaseExists(database):
            return False
        where = path_of(self._spark, self._spark.catalog.getDatabase(database).locationUri)
        location = f"{where}/{self._name.table}"
        if not any(name.endswith(".json") for name in Directory(self._spark, f"{location}/_delta_log").names()):
            return False
        self._spark.sql(f"CREATE TABLE {self._name.sql} USING delta LOCATION {text(location)}")
        return True

    def _log(self) -> CommitLog:
        """Return the log of the table as it is now, with its properties."""
        self._spark.catalog.refreshTable(self._name.sql)  # another process may have written to it
        shown = self._spark.sql(f"SHOW TBLPROPERTIES {self._name.sql}").collect()
        found = {r["key"]: r["value"] for r in shown}
        if "rscylla.version" not in found:
            raise ConfigError(f"the table {self._name} was not created by rscylla; use a name that does not exist yet")
        if found["rscylla.version"] != VERSION:
            raise ConfigError(
                f"the table {self._name} has the format of another version of rscylla; create it "
                "again, or use that version"
            )
        has = found.get("rscylla.format", "")
        if self._using is not None and self._using.lower() != has:
            raise ConfigError(f"the table {self._name} exists with the format {has!r}; omit using={self._using!r}")
        return commit_log(self._spark, self._name, found)

    def _needed(self) -> CommitLog:
        if not self._exists():
            raise ConfigError(f"the table {self._name} does not exist; apply_changes creates it")
        return self._log()

    def _filled(self, state: State | None) -> State:
        if state is None or not state.cursor:
            raise ConfigError(f"the table {self._name} has no rows yet; apply_changes adds them")
        return state

    def _saved(self) -> tuple[CommitLog, State]:
        """Return the log and the state, after the property has the state: what follows may end the history."""
        log = self._needed()
        state = self._filled(log.state())
        if log.stored != state:
            self._set({STATE: to_property(state.text)}, log, state)
        return log, state

    def _shape(self, log: CommitLog, state: State) -> tuple[Shape, Collection[str]]:
        """Return the shape of *state*, and the columns that its snapshot omits."""
        name = _SHAPE + state.shape
        value = log.properties.get(name)
        if value is None:
            raise ConfigError(f"the table {self._name} lost its property {name}; create it again")
        stored = json.loads(of_property(value, name, str(self._name)))
        return shape_of(stored["columns"]), stored["left_out"]

    def _version(self, log: CommitLog, cursor: str | None, as_of: datetime | None) -> TableVersion:
        versions = log.versions()
        if cursor is not None:
            found = [v for v in versions if cursor_key(v.cursor) == cursor_key(cursor)]
            said = "that cursor"
        else:
            assert as_of is not None
            until_us = aware_us("as_of=", as_of)
            found = [v for v in versions if tu.us_of(v.end_time) <= until_us]
            said = f"a window that ends until {tu.format_time(until_us)}"
        if not found:
            raise ConfigError(
                f"the table {self._name} has no version of {said}, or it has expired; versions() has those that exist"
            )
        return found[-1]

    def _create(self, shape: Shape) -> None:
        if self._using is None:
            raise ConfigError(
                f"the table {self._name} does not exist; set the format for creating it, such as using='delta'"
            )
        schema, using, first = table_schema(shape), self._using.lower(), shape.partition[0]
        if self._buckets is not None and not isinstance(first.type, _IN_BUCKETS):
            raise ConfigError(
                f"buckets=: Iceberg has no buckets of {first.type.simpleString()}, the type of the partition key "
                f"{first.name!r}; omit it"
            )
        properties = {"rscylla.version": VERSION, "rscylla.id": uuid4().hex, "rscylla.format": using}
        check_columns(self._spark, shape, using)
        if using == "delta" and any(needs_mapping(f.name, f.dataType) for f in schema.fields):
            properties |= dict([MAPPING])
        writer = self._spark.createDataFrame([], schema).writeTo(self._name.sql).using(self._using)
        for name, value in (self._extra | properties).items():
            writer = writer.tableProperty(name, value)
        if self._buckets is not None:
            writer = writer.partitionedBy(F.partitioning.bucket(self._buckets, parsed_again(first.name)))
        try:
            writer.create()
        except (PySparkException, Py4JError) as e:
            said = str(e).strip()
            if "[DATA_SOURCE_NOT_FOUND]" in said:
                why = missing_format(self._using)
            elif "[SCHEMA_NOT_FOUND]" in said:
                why = f"the database {self._name.database} does not exist; CREATE DATABASE {self._name.database}"
            elif isinstance(e, PySparkException):
                why = said.partition("\n")[0]
            else:
                raise
            raise ConfigError(f"the table {self._name} cannot be created: {why}") from e

    def _cluster(self, shape: Shape, log: CommitLog) -> None:
        """Cluster a table of Delta Lake that has no rows yet; not when it is created, as a run may die in between."""
        clustered = [quoted(c.name) for c in shape.partition if isinstance(c.type, _CLUSTERED)]
        if log.properties.get("rscylla.format") == "delta" and clustered:
            self._spark.sql(f"ALTER TABLE {self._name.sql} CLUSTER BY ({', '.join(clustered[:4])})")

    def _set(self, properties: Mapping[str, str], log: CommitLog | None = None, state: State | None = None) -> None:
        """Set *properties* in one commit, which carries *state*."""
        pairs = ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
        with nullcontext() if log is None or state is None else log.committing(self._spark, state):
            self._spark.sql(f"ALTER TABLE {self._name.sql} SET TBLPROPERTIES ({pairs})")

    def _commit(
        self,
        cells: DataFrame,
        shape: Shape,
        log: CommitLog,
        cursor: str,
        left_out: Collection[str],
        *,
        whole: bool = False,
    ) -> None:
        """Merge *cells*, and move the cursor: in one commit if the format can, else after the MERGE."""
        stored = json.dumps({"columns": shape_json(shape), "left_out": sorted(left_out)})
        key = hashlib.sha256(stored.encode()).hexdigest()[:16]
        if _SHAPE + key not in log.properties:  # its name is made of what it says
            self._set({_SHAPE + key: to_property(stored)})
        state = State(log.table, cursor, key)
        cells = cells.persist()  # each of the steps that follow would read the window again
        try:
            within = keys_within(cells, shape)
            if whole or (within.some if within is not None else not cells.isEmpty()):
                self._merge(cells, shape, log, state, within=None if whole else within, whole=whole)
        finally:
            cells.unpersist()
        log = self._log()
        found = log.state()
        if found != state:
            # No commit has it if nothing was merged, if the format cannot, or if another thread had the setting.
            log.commit_state(state)
            log = self._log()
            found = log.state()
        if found != state or state.outdates(log.stored):
            self._set({STATE: to_property(state.text)}, log, state)
        if self._windows % _COUNTED == 0:
            self._files = log.files()
        self._windows += 1

    def _merge(
        self, cells: DataFrame, shape: Shape, log: CommitLog, state: State, *, within: KeysWithin | None, whole: bool
    ) -> None:
        table = as_wanted(self._spark.table(self._name.sql), shape)
        source = merge_source(table, cells, shape, second_of(None), whole=whole, within=within).alias(_SOURCE)
        target = quoted(self._name.table)
        names = table_schema(shape).names
        # Columns that the table of Scylla has lost become null.
        assigned = {quoted(n): F.lit(None) for n in table.columns}
        assigned |= {quoted(n): F.col(f"{_SOURCE}.{quoted(n)}") for n in names}
        same = same_key(shape, _SOURCE, target)
        if within is not None:
            same = within.of(columns_of(target)) & same
        merge = (
            source.mergeInto(self._name.sql, same)
            # The first clause that fits counts, so the delete comes before the update.
            .whenMatched(~F.col(f"{_SOURCE}.{KEEP}"))
            .delete()
            .whenMatched()
            .update(assigned)
            .whenNotMatched(F.col(f"{_SOURCE}.{KEEP}"))
            .insert(assigned)
        )
        try:
            with (
                log.committing(source.sparkSession, state),
                listing(source.sparkSession, self._files),
                planned_quickly(source.sparkSession),
            ):
                merge.merge()
        except PySparkException as e:
            if "MERGE INTO" not in str(e):
                raise
            raise ConfigError(f"the table {self._name} does not support MERGE; {_INSTEAD}") from e
