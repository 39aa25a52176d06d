"""Where a table keeps its state: the cursor, and the shape of the base table, with the commit that they belong to.

Delta Lake and Iceberg store text with each commit: a commit's user metadata, and a snapshot's summary. A setting of the
session sets the text for a MERGE, so data and cursor are committed in one step. The property ``rscylla.state`` is for
what a commit cannot say: other formats, windows without a commit, and tables whose history has expired. It may be old.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs

from ... import _timeuuid as tu
from ...clock import SystemClock
from ...errors import ConfigError
from ...event import EventID, cursor_key
from ..pipeline.cells import quoted
from ..session.settings import unless_set, with_setting
from .names import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..source.shape import Shape

__all__ = [
    "STATE",
    "CommitLog",
    "State",
    "TableVersion",
    "commit_log",
    "listing",
    "of_property",
    "text",
    "to_property",
]

STATE = "rscylla.state"

_NEWEST = 20
"""The commits to look at first: the newest one with a state is nearly always among them."""

_LISTING = "spark.databricks.delta.snapshotPartitions"
"""The setting of the tasks in which Delta Lake lists the files of each version of a table: 50, unless it is set."""

_FILES_A_TASK = 5_000
_FEW = 8
"""Tasks where the number of files is not known."""

_LEAST = 2
"""Tasks for any table: beside its files, Delta Lake lists those that it replaced in the last week."""

_DIRECTORIES = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""The setting of the tasks in which VACUUM lists directories: 10,000, unless it is set. A MergeTable has few."""


_SAVED_US = 86_400_000_000
"""How much older than the newest commit the cursor in the property may be; for tables whose history has expired."""

_KEPT = timedelta(days=7)
"""The age of snapshots of Iceberg that a vacuum keeps, unless it is told."""

_OWN_RETENTION = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
"""The setting by which VACUUM keeps files for the time of the table's property, whatever time it is given but zero."""


@attrs.frozen
class TableVersion:
    """A version of a table that a window, or ``start_from``, committed.

    ``version`` is Delta's version number or Iceberg's snapshot id. The table contains the changes before ``end_time``,
    which is the time of ``cursor``; both times are aware UTC.
    """

    cursor: str
    version: int
    committed_at: datetime

    @property
    def end_time(self) -> datetime:
        """Aware UTC; changes of this time belong to the next window."""
        return tu.datetime_of(EventID.parse(self.cursor).exact_us)


@attrs.frozen
class State:
    """What a commit says: whose it is, the cursor, and the name of the property that has the shape."""

    table: str
    cursor: str
    shape: str

    @property
    def text(self) -> str:
        return json.dumps(attrs.asdict(self), separators=(",", ":"))

    def outdates(self, stored: State | None) -> bool:
        """Whether the property, which has *stored*, is to be set to this state."""
        if stored is None or not stored.cursor or stored.shape != self.shape:
            return True
        return EventID.parse(self.cursor).exact_us - EventID.parse(stored.cursor).exact_us > _SAVED_US

    @classmethod
    def parse(cls, text: str | None) -> State | None:
        """Return the state in *text*, of whatever table; None if it is not a state."""
        try:
            found = json.loads(text or "")
            return cls(found["table"], found["cursor"], found["shape"])
        except (ValueError, KeyError, TypeError):
            return None

    @classmethod
    def of(cls, text: str | None, table: str) -> State | None:
        """Return the state in *text*, or None if it is not one of *table*.

        The setting is one of the session, so a commit of another thread may carry the text of another table.
        """
        state = cls.parse(text)
        return state if state is not None and state.table == table else None


@attrs.frozen
class _Commit:
    version: int
    time_us: int
    state: State | None


class CommitLog:
    """The commits of a table in a format of which only table properties are known.

    Args:
        table: the id of the table, in its states.
    """

    setting: str | None = None
    """The setting of a session whose value becomes part of a commit."""

    def __init__(self, spark: SparkSession, name: TableName, properties: Mapping[str, str]) -> None:
        self._spark = spark
        self._name = name
        self.table = properties["rscylla.id"]
        self.properties = properties

    @property
    def stored(self) -> State | None:
        """The state in the property, which may be older than that of the newest commit."""
        value = self.properties.get(STATE)
        return None if value is None else State.of(of_property(value, STATE, str(self._name)), self.table)

    def state(self) -> State | None:
        """Return the state of the table as it is now; None if it has none."""
        return self.stored

    def chain(self) -> list[_Commit]:
        """Return the commits that led to the current version, newest first."""
        raise ConfigError(f"the format of the table {self._name} keeps no versions; use Delta Lake or Iceberg")

    def versions(self) -> list[TableVersion]:
        """Return the versions that have a state, oldest first; of those with one cursor the first."""
        found: dict[str, TableVersion] = {}
        for commit in reversed(self.chain()):
            if commit.state is not None and commit.state.cursor:
                made = TableVersion(commit.state.cursor, commit.version, tu.datetime_of(commit.time_us))
                found.setdefault(made.cursor, made)
        return list(found.values())

    def purged_us(self) -> int:
        """Return when the newest window was committed, in microseconds; 0 if no version has it."""
        return next((c.time_us for c in self.chain() if c.state is not None), 0) if self.setting is not None else 0

    def state_of(self, version: int) -> tuple[State | None, int]:
        """Return the state of a version, and its time in microseconds.

        Raises:
            ConfigError: it is not a version of the table.
        """
        chain = self.chain()
        at = next((n for n, commit in enumerate(chain) if commit.version == version), None)
        if at is None:
            raise self.gone(version)
        # Versions between windows, such as compactions, have the content of the last window.
        state = next((c.state for c in chain[at:] if c.state is not None), None)
        return state, chain[at].time_us

    def read(self, version: int) -> DataFrame:
        """Return the table as of *version*.

        Raises:
            ConfigError: the version has expired.
        """
        from pyspark.errors import PySparkException

        try:
            return self._spark.sql(f"SELECT * FROM {self._name.sql} VERSION AS OF {version}")
        except PySparkException as e:
            raise self.gone(version) from e

    def gone(self, version: int) -> ConfigError:
        return ConfigError(
            f"the table {self._name} has no version {version}, or it has expired; versions() has those that exist"
        )

    def commit_state(self, state: State) -> None:
        """Commit *state* without rows, if the format can: for a window without changes, or when a commit lacks it."""

    def files(self) -> int:
        """Return the number of data files, for ``listing``; 0 where it is not needed."""
        return 0

    def compact(self, shape: Shape) -> None:
        raise ConfigError(f"the format of the table {self._name} has no compaction known to rscylla")

    def vacuum(self, keep: timedelta | None) -> None:
        raise ConfigError(f"the format of the table {self._name} has no versions known to rscylla")

    @contextmanager
    def committing(self, session: SparkSession, state: State) -> Iterator[None]:
        """Commits of *session* in the block carry *state*, unless a thread commits to another table meanwhile.

        The commit then carries the other table's state, which ``State.of`` rejects, or none, and ``MergeTable`` makes
        another commit for it. No state outlives its block: a later commit would carry it, and the cursor of its table
        would go back. A text that a user has set comes back, unless blocks of several threads overlap. Micro-batches of
        ``foreachBatch`` have a session for each query, so what they merge into several tables does not meet here.
        """
        if self.setting is None:
            yield
            return
        before = session.conf.get(self.setting, None)
        session.conf.set(self.setting, state.text)
        try:
            yield
        finally:
            if session.conf.get(self.setting, None) == state.text:  # else it is the text of another thread
                if before is None or State.parse(before) is not None:
                    session.conf.unset(self.setting)
                else:
                    session.conf.set(self.setting, before)


_REMOVALS = (
    "numTargetFilesRemoved",
    "numRemovedFiles",
    "numTargetDeletionVectorsRemoved",
    "numTargetDeletionVectorsUpdated",
    "numDeletionVectorsRemoved",
    "numDeletionVectorsUpdated",
)
"""How Delta Lake's operations count the files that a commit made superfluous. Deletion vectors are in files, too."""


class _NotTold(ConfigError):
    """Which version a table was restored to cannot be told."""


class _DeltaLog(CommitLog):
    setting = "spark.databricks.delta.commitInfo.userMetadata"

    def state(self) -> State | None:
        newest = self._newest(self._history(f" LIMIT {_NEWEST}")) or self._newest(self._history(""))
        # RESTORE brings back the properties of its version, too, so they are never ahead of the data.
        states = [s for s in (newest, self.stored) if s is not None and s.cursor]
        return max(states, key=lambda s: cursor_key(s.cursor)) if states else newest or self.stored

    def chain(self) -> list[_Commit]:
        return list(self._told(self._history("")))

    def read(self, version: int) -> DataFrame:
        self._check_files(version)
        return super().read(version)

    def files(self) -> int:
        [found] = self._spark.sql(f"DESCRIBE DETAIL {self._name.sql}").select("numFiles").collect()
        return int(found["numFiles"])

    def compact(self, shape: Shape) -> None:
        self._spark.sql(f"OPTIMIZE {self._name.sql}").collect()

    def vacuum(self, keep: timedelta | None) -> None:
        from pyspark.errors import IllegalArgumentException

        # The history then says which versions have lost files.
        logged = with_setting(self._spark, "spark.databricks.delta.vacuum.logging.enabled", "true")
        obeyed = with_setting(self._spark, _OWN_RETENTION, "false")
        retained = ""
        if keep is not None:
            hours, rest = divmod(keep, timedelta(hours=1))
            retained = f" RETAIN {hours + bool(rest)} HOURS"
        try:
            with logged, obeyed, unless_set(self._spark, _DIRECTORIES, str(_FEW)):
                self._spark.sql(f"VACUUM {self._name.sql}{retained}").collect()
        except IllegalArgumentException as e:
            if "RETENTION_PERIOD_TOO_SHORT" not in str(e):
                raise
            raise ConfigError(
                f"keep={keep!r} is shorter than the time for which the table {self._name} keeps removed files; give a "
                "longer one, or set its property delta.deletedFileRetentionDuration, which is 7 days unless set"
            ) from e

    def _history(self, limit: str) -> list[Any]:
        removed = [f"try_cast(operationMetrics['{name}'] AS bigint)" for name in _REMOVALS]
        retained = [
            f"try_cast(operationParameters['{name}'] AS bigint)"
            for name in ("specifiedRetentionMillis", "defaultRetentionMillis")
        ]
        found = self._spark.sql(f"DESCRIBE HISTORY {self._name.sql}{limit}").selectExpr(
            "version",
            "unix_micros(timestamp) AS time_us",
            "operation",
            "userMetadata",
            "try_cast(operationParameters['version'] AS bigint) AS restored",
            f"coalesce(greatest({', '.join(removed)}), 0) > 0 AS removes",
            f"coalesce({', '.join(retained)}) AS retained_ms",
        )
        return sorted(found.collect(), key=lambda row: -int(row["version"]))

    def _newest(self, history: Sequence[Any]) -> State | None:
        return next((c.state for c in self._walk(history) if c.state is not None), None)

    def _told(self, history: Sequence[Any]) -> Iterator[_Commit]:
        """Yield the commits that led to the current version, newest first, up to a RESTORE of which nothing is told."""
        with suppress(_NotTold):
            yield from self._walk(history)

    def _walk(self, history: Sequence[Any]) -> Iterator[_Commit]:
        """Yield the commits that led to the current version, as far as *history* has them, newest first.

        Raises:
            _NotTold: the next one is the version of a RESTORE to a time, which cannot be told.
        """
        below: int | None = None
        for row in history:
            if below is not None and row["version"] > below:
                continue
            yield _Commit(row["version"], row["time_us"], State.of(row["userMetadata"], self.table))
            below = None
            if row["operation"] == "RESTORE":
                below = row["restored"] if row["restored"] is not None else self._restored(row["version"])

    def _restored(self, version: int) -> int:
        """Return the version that a RESTORE to a time, the commit *version*, went back to.

        Delta Lake notes the time without its zone, so what tells is the version's files. If several versions in a row
        have them, they have the same rows, and the newest one has the cursor.

        Raises:
            _NotTold: they cannot tell.
        """
        # With deletion vectors, versions with the same files may have other rows.
        if "delta.feature.deletionVectors" not in self.properties:
            with suppress(ConfigError):  # versions expire
                files = self._data_files(version)
                for earlier in range(version - 1, -1, -1):
                    if self._data_files(earlier) == files:
                        return earlier
        raise _NotTold(
            f"the table {self._name} was restored to a time, and which version that was cannot be told; restore it to "
            "the version: RESTORE TABLE ... TO VERSION AS OF"
        )

    def _data_files(self, version: int) -> set[str]:
        return set(super().read(version).inputFiles())

    def _check_files(self, version: int) -> None:
        """Raise ``ConfigError`` if a VACUUM in the history has removed files of *version*."""
        history = self._history("")
        cuts = [
            row["time_us"] - row["retained_ms"] * 1000
            for row in history
            if row["operation"].startswith("VACUUM") and row["retained_ms"] is not None and row["version"] > version
        ]
        cut = max(cuts, default=0)
        # What a RESTORE passed over has removed nothing, nor has the RESTORE itself of the versions before it.
        led_here = {commit.version for commit in self._told(history)}
        after = [r for r in history if r["version"] > version and r["version"] in led_here]
        if any(r["removes"] and r["operation"] != "RESTORE" and r["time_us"] <= cut for r in after):
            raise self.gone(version)


class _IcebergLog(CommitLog):
    setting = f"spark.sql.iceberg.snapshot-property.{STATE}"

    def state(self) -> State | None:
        chain, whole = self._snapshots()
        newest = next((c.state for c in chain if c.state is not None), None)
        if newest is not None or whole:
            # Not the property: a rollback does not bring back that of its snapshot.
            return newest
        return self.stored

    def chain(self) -> list[_Commit]:
        return self._snapshots()[0]

    def commit_state(self, state: State) -> None:
        # A MERGE of no rows would read the table, and Spark 4.1 fails to plan it.
        none = self._spark.table(self._name.sql).where("false")
        none.writeTo(self._name.sql).option(f"snapshot-property.{STATE}", state.text).append()

    def compact(self, shape: Shape) -> None:
        catalog, table = quoted(self._name.catalog), self._name.sql_in_catalog
        names = ", ".join(quoted(c.name) for c in shape.partition)
        self._spark.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => {text(table)}, strategy => 'sort', "
            f"sort_order => {text(names)}, options => map('min-input-files', '2'))"
        ).collect()

    def vacuum(self, keep: timedelta | None) -> None:
        catalog, table = quoted(self._name.catalog), self._name.sql_in_catalog
        kept = _KEPT if keep is None else keep
        until_us = max(SystemClock().now_us() - kept // timedelta(microseconds=1), 0)
        # The last snapshot is never expired.
        self._spark.sql(
            f"CALL {catalog}.system.expire_snapshots(table => {text(table)}, "
            f"older_than => TIMESTAMP {text(tu.format_time(until_us))}, retain_last => 1)"
        ).collect()
        self._spark.sql(f"CALL {catalog}.system.remove_orphan_files(table => {text(table)})").collect()

    def _snapshots(self) -> tuple[list[_Commit], bool]:
        """Return the snapshots that led to the current one, newest first, and whether the first of them is there."""
        from pyspark.sql import functions as F

        frame = self._spark.table(f"{self._name.sql}.snapshots").select(
            "snapshot_id",
            "parent_id",
            F.unix_micros("committed_at").alias("time_us"),
            F.col("summary")[STATE].alias("state"),
        )
        rows = {row["snapshot_id"]: row for row in frame.collect()}
        current = self.properties.get("current-snapshot-id", "none")
        at = int(current) if current != "none" else None
        found: list[_Commit] = []
        while at in rows:
            row = rows[at]
            found.append(_Commit(row["snapshot_id"], row["time_us"], State.of(row["state"], self.table)))
            at = row["parent_id"]
        return found, at is None


def listing(session: SparkSession, files: int | None) -> AbstractContextManager[None]:
    """Statements of *session* in the block list the *files* of a table of Delta Lake in no more tasks than they need.

    A number of tasks that the user has set stays. None: the number of files is not known.
    """
    return unless_set(session, _LISTING, str(_FEW if files is None else _LEAST + files // _FILES_A_TASK))


def commit_log(spark: SparkSession, name: TableName, properties: Mapping[str, str]) -> CommitLog:
    """Return the log of the table *name*, which has *properties*."""
    logs = {"delta": _DeltaLog, "iceberg": _IcebergLog}
    return logs.get(properties.get("rscylla.format", ""), CommitLog)(spark, name, properties)


def to_property(value: str) -> str:
    """Return *value* as the value of a table property, in hexadecimal digits.

    SHOW TBLPROPERTIES hides each value that looks like a secret or an address, such as a shape with a column ``url``.
    """
    return zlib.compress(value.encode()).hex()


def of_property(value: str, name: str, table: str) -> str:
    """Return what ``to_property`` made *value* of.

    Raises:
        ConfigError: it did not make it; Spark hides the property, or somebody else set it.
    """
    try:
        return zlib.decompress(bytes.fromhex(value)).decode()
    except (ValueError, zlib.error) as e:
        raise ConfigError(
            f"the property {name} of the table {table} cannot be read; see that the pattern spark.redaction.regex does "
            "not match its name, and that no other program sets it"
        ) from e


def text(value: str) -> str:
    """Return *value* as a literal of SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
