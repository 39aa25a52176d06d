"""Tables of Delta Lake and Iceberg, really run: whatever was written, each window brings them to the base table."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import spark_history as h
from spark_formats import TableFormat

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import spark as rs
from rscylla.spark.sinks.commits import CommitLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning"),
    pytest.mark.usefixtures("not_compiled"),
]

HISTORIES = int(os.environ.get("RSCYLLA_TABLE_HISTORIES", "1"))
"""Random histories of each format; a longer run asks for more."""

READ = {"parallelism": "1", "consistency": "ONE"}
NO_LAG = rscylla.StreamLag(milliseconds=0)


class Follower:
    """A table of Scylla, and the cursor of the windows of its changes."""

    def __init__(self, spark: SparkSession, session: Any, keyspace: str, table: str, cursor: str = "") -> None:
        self._spark = spark
        self._session = session
        self.name = f"{keyspace}.{table}"
        self.stream = rscylla.NewStream(session, keyspace, table, consistency="ONE")
        self.store = MemoryCursorStore(cursors={"lake": cursor} if cursor else {})

    def write(self, *statements: str) -> None:
        """Write *statements*, with ``?`` for the write time, and wait until the clock is past them."""
        at = start = rscylla.SystemClock().now_us()
        for at, cql in enumerate(statements, start):
            self._session.execute(cql.replace("!", self.name).replace("?", f"USING TIMESTAMP {at}"))
        h.passed(at)

    def windows(self) -> Iterator[tuple[rs.PlannedWindow, DataFrame]]:
        """Yield the windows up to now."""
        return rs.windows(self._spark, self.stream, self.store, "lake", NO_LAG, rscylla.StreamToHead(), read=READ)

    def apply(self, table: rs.MergeTable, *, twice: bool = False) -> rs.PlannedWindow:
        """Apply the windows up to now; return the last one."""
        for window, changes in self.windows():
            assert rs.apply_changes(changes, table, window=window)
            assert table.cursor == window.end
            assert not twice or not rs.apply_changes(changes, table, window=window), "a window counts once"
        return window

    def rows(self) -> list[tuple[Any, ...]]:
        return h.rows_of(self._session, *self.name.split("."))


# Between the windows of a history: columns come and go, and come back with another type; a UDT gets a field.
STEPS = (
    ("ALTER TABLE {ks}.t ADD z int", "ALTER TABLE {ks}.t ADD zs set<int>"),
    ("ALTER TABLE {ks}.t DROP z", "ALTER TABLE {ks}.t DROP zs", "ALTER TABLE {ks}.t ADD y double"),
    ("ALTER TABLE {ks}.t ADD z text", "ALTER TABLE {ks}.t ADD zs set<int>", "ALTER TYPE {ks}.pair ADD c int"),
)
WRITES = (
    "UPDATE {ks}.t ? SET z = {v}, zs = zs + {{{v}}} WHERE {key}",
    "UPDATE {ks}.t ? SET y = {v} WHERE {key}",
    "UPDATE {ks}.t ? SET z = 'z{v}', zs = zs + {{{v}}}, u.c = {v} WHERE {key}",
)


ON_READ = {
    "delta": {"delta.enableDeletionVectors": "true"},
    "iceberg": {f"write.{what}.mode": "merge-on-read" for what in ("merge", "update", "delete")},
}
"""Properties with which a MERGE marks the rows that it replaces, beside their files, and readers leave them out."""

FORMAT_VERSIONS = {"delta": [{}], "iceberg": [{"format-version": "2"}, {"format-version": "3"}]}
"""Iceberg has delete files in version 2 of its format, and deletion vectors in version 3."""


def pairs_of(properties: Mapping[str, str]) -> str:
    """Return *properties* as SQL."""
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())


def marks(spark: SparkSession, table: rs.MergeTable, table_format: TableFormat) -> list[int]:
    """Return how many deletion vectors, or delete files, each commit added, oldest first."""
    if table_format.name == "delta":
        found = spark.sql(f"DESCRIBE HISTORY {table.name}").orderBy("version").collect()
        names = ("numTargetDeletionVectorsAdded", "numTargetDeletionVectorsUpdated")
        return [sum(int(row["operationMetrics"].get(name, 0)) for name in names) for row in found]
    found = spark.table(f"{table.name}.snapshots").orderBy("committed_at").collect()
    return [int(row["summary"].get("added-delete-files", 0)) for row in found]


def vacuum(spark: SparkSession, table: rs.MergeTable) -> None:
    """Remove all files that the current version does not need."""
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        table.vacuum(keep=timedelta())
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")


def check_versions(table: rs.MergeTable, told: list[tuple[str, Any]]) -> int:
    """Check that each of the versions has its rows, or says that it has expired; return how many have them."""
    readable = 0
    for cursor, want in told:
        said, frame = "", None
        try:
            frame = table.rows(cursor=cursor)
        except rscylla.ConfigError as e:
            said = str(e)
        if frame is None:
            assert "or it has expired" in said
        else:
            assert h.rows_in(frame) == want
            readable += 1
    return readable


class History:
    """Random writes to a table whose columns come and go, and another one that each window brings to the same rows."""

    def __init__(self, spark: SparkSession, session: Any, keyspace: str, table_format: TableFormat, seed: int) -> None:
        self._session, self._keyspace = session, keyspace
        self._dice = random.Random(seed)
        h.create(session, keyspace)
        self._made = Follower(spark, session, keyspace, "t")
        self.table = rs.MergeTable(spark, table_format.table(), using=table_format.name)
        self.told: list[tuple[str, Any]] = []
        """The cursor of each version, and its rows."""

    def go_on(self, steps: Sequence[str] = (), more: str = "") -> None:
        """Alter the table by *steps*, write to it, some of the times by *more*, and apply the window."""
        for cql in steps:
            self._session.execute(cql.format(ks=self._keyspace))
        if any("DROP" in cql for cql in steps):
            h.passed(rscylla.SystemClock().now_us() + 5_000_000)  # Scylla drops columns of the log as of that time
        dice, times = self._dice, itertools.count(rscylla.SystemClock().now_us(), 1)
        for cql in h.writes(dice, self._keyspace, 60, times):
            self._session.execute(cql)
            if more and dice.random() < 0.3:
                key = f"pk = {dice.randrange(3)} AND c1 = {dice.randrange(3)} AND c2 = '{dice.choice('xyz')}'"
                update = more.format(ks=self._keyspace, v=dice.randrange(9), key=key)
                self._session.execute(update.replace("?", f"USING TIMESTAMP {next(times)}"))
        h.passed(next(times))
        window, want = self._made.apply(self.table, twice=True), self._made.rows()
        assert h.rows_in(self.table.rows()) == want
        self.told.append((window.end, want))


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_table_is_the_base_table_after_each_window_of_a_random_history(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat, seed: int
) -> None:
    """From the third window on, with deletion vectors or merge-on-read."""
    history = History(spark, session, vnodes, table_format, seed)
    table, told = history.table, history.told
    history.go_on()
    history.go_on(STEPS[0], WRITES[0])
    on_read = ON_READ[table_format.name] | FORMAT_VERSIONS[table_format.name][0]
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({pairs_of(on_read)})")
    history.go_on(STEPS[1], WRITES[1])
    history.go_on(STEPS[2], WRITES[2])
    history.go_on()
    assert sum(marks(spark, table, table_format)) > 0, "rows were marked, or this test shows nothing"
    assert [v.cursor for v in table.versions()] == [c for c, _ in told], "a commit for each window"
    table.compact()
    assert table.cursor == told[-1][0]
    assert h.rows_in(table.rows()) == told[-1][1]
    assert check_versions(table, told) == 5, "a compaction keeps versions"
    vacuum(spark, table)
    assert table.cursor == told[-1][0]
    assert h.rows_in(table.rows()) == told[-1][1]
    assert check_versions(table, told) < 5, "vacuum() removes what only earlier versions need"
    history.go_on()


def test_a_window_without_changes_moves_the_cursor_and_writes_no_file(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    made, table = small(spark, session, vnodes, table_format)
    made.write(*insert(range(3), 1))
    made.apply(table)
    before = files(spark, table, table_format)
    for _ in range(2):
        h.passed(rscylla.SystemClock().now_us())
        window = made.apply(table)
        assert table.versions()[-1].cursor == window.end
        assert values(table.rows(cursor=window.end)) == dict.fromkeys(range(3), 1)
    assert files(spark, table, table_format) == before


@pytest.mark.parametrize("table_format", ["iceberg"], indirect=True)
def test_a_window_without_changes_makes_no_merge_whatever_the_keys_are(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (id blob PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    made = Follower(spark, session, vnodes, "t")
    table = rs.MergeTable(spark, table_format.table(), using=table_format.name)
    made.write("INSERT INTO ! (id, v) VALUES (0x01, 1) ?")
    made.apply(table)
    h.passed(rscylla.SystemClock().now_us())
    monkeypatch.setattr(rs.MergeTable, "_merge", lambda *_, **__: pytest.fail("a MERGE"))
    window = made.apply(table)
    assert table.cursor == window.end
    assert h.rows_in(table.rows()) == made.rows()


@pytest.mark.parametrize("table_format", ["delta"], indirect=True)
def test_a_table_whose_first_run_was_killed_after_it_was_created_is_clustered(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, table = small(spark, session, vnodes, table_format)
    made.write(*insert(range(3), 1))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rs.MergeTable, "_cluster", killed)
        with pytest.raises(KeyboardInterrupt):
            made.apply(table)
    assert table.cursor == ""
    made.apply(table)
    assert spark.sql(f"DESCRIBE DETAIL {table.name}").first()["clusteringColumns"] == ["id"]
    assert values(table.rows()) == dict.fromkeys(range(3), 1)


def test_columns_may_be_named_as_secrets_and_addresses_are(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    """Spark hides properties that look like them."""
    session.execute(
        f"CREATE TABLE {vnodes}.t (token_id text PRIMARY KEY, url text, password int) WITH cdc = {{'enabled': true}}"
    )
    made = Follower(spark, session, vnodes, "t")
    table = rs.MergeTable(spark, table_format.table(), using=table_format.name)
    for n in (1, 2):
        made.write(f"INSERT INTO ! (token_id, url, password) VALUES ('access_key', 'https://{n}', {n}) ?")
        made.apply(table)
    assert h.rows_in(table.rows()) == made.rows()
    assert len(table.versions()) == 2


def test_keys_may_be_dates_that_python_does_not_have(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (day date PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    made = Follower(spark, session, vnodes, "t")
    table = rs.MergeTable(spark, table_format.table(), using=table_format.name)
    day = 2**31 + 6_585_000  # of the year 19998, as CQL counts days
    for write in (f"({day}, 1) ?", f"({day + 1}, 1) ?"), (f"({day}, 2) ?",):
        made.write(*(f"INSERT INTO ! (day, v) VALUES {values}" for values in write))
        made.apply(table)
    table.compact()
    found = table.rows().selectExpr("unix_date(day) AS day", "v").orderBy("day").collect()
    assert [tuple(row) for row in found] == [(6_585_000, 2), (6_585_001, 1)]


def test_a_column_comes_back_with_a_name_that_differs_in_case_only(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    made, table = small(spark, session, vnodes, table_format)
    session.execute(f"ALTER TABLE {vnodes}.t ADD z set<int>")
    made.write("UPDATE ! ? SET v = 1, z = {1} WHERE id = 1 AND ck = 0", *insert(range(2, 4), 2))
    window = made.apply(table)
    session.execute(f"ALTER TABLE {vnodes}.t DROP z")
    h.passed(rscylla.SystemClock().now_us() + 5_000_000)  # Scylla drops columns of the log as of that time
    session.execute(f'ALTER TABLE {vnodes}.t ADD "Z" text')
    for text in "ab":
        made.write(f"UPDATE ! ? SET \"Z\" = '{text}' WHERE id = 1 AND ck = 0")
        made.apply(table)
        assert h.rows_in(table.rows()) == made.rows()
    found = {row["id"]: row["z"] for row in table.rows(cursor=window.end).collect()}
    assert found == {1: [1], 2: None, 3: None}


def test_a_snapshot_that_is_refused_leaves_no_table(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (id int PRIMARY KEY, v int, l list<int>) WITH cdc = {{'enabled': true}}")
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    table = rs.MergeTable(spark, table_format.table(), using=table_format.name)
    with pytest.raises(rscylla.ConfigError, match="make the list frozen, or omit it"):
        table.start_from(rs.snapshot(spark, stream, NO_LAG, read=READ))
    assert not spark.catalog.tableExists(table.name)


@pytest.mark.parametrize("using", ["parquet", "ORC"])
def test_a_format_of_files_alone_is_refused_at_once(spark: SparkSession, using: str) -> None:
    with pytest.raises(rscylla.ConfigError, match=f"does not support MERGE, because {using} is a format of files"):
        rs.MergeTable(spark, "t", using=using)


@pytest.mark.parametrize("table_format", ["delta"], indirect=True)
def test_a_table_of_delta_without_a_name_is_found_again_in_any_directory(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat, tmp_path: Path
) -> None:
    """A second database at the same place stands for the next application, which has lost the names of tables."""
    made, _ = small(spark, session, vnodes, table_format)
    names = f"{vnodes}_a", f"{vnodes}_b"
    for v, name in enumerate(names):
        spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path}/a b%20c'")
        table = rs.MergeTable(spark, f"{name}.t", using="delta")
        made.write(*insert(range(v, v + 1), v))
        made.apply(table)
        assert values(table.rows()) == {n: n for n in range(v + 1)}


def test_a_table_has_one_name_however_it_is_written(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    made = Follower(spark, session, vnodes, "t")
    if table_format.name == "iceberg":  # databases may be nested there, and names have any characters
        database, own = f"{table_format.catalog}.`a b`.{vnodes}", "`Or ders`"
    else:
        database, own = f"{table_format.catalog}.{vnodes}_X", "Orders"
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    spark.sql(f"USE {database}")
    try:
        table = rs.MergeTable(spark, own, using=table_format.name)
    finally:
        spark.sql("USE spark_catalog.default")
    for v in (1, 2):
        made.write(f"INSERT INTO ! (id, v) VALUES (1, {v}) ?")
        made.apply(table)
    assert values(table.rows()) == {1: 2}
    assert values(spark.sql(f"SELECT id, v FROM {database}.{own} WHERE cdc_live")) == {1: 2}
    assert [values(table.rows(version=v.version)) for v in table.versions()] == [{1: 1}, {1: 2}]
    table.compact()
    vacuum(spark, table)
    again = rs.MergeTable(spark, f"{database}.{own}")
    assert again.cursor == table.cursor
    with pytest.raises(rscylla.ConfigError, match="exists with the format"):
        rs.MergeTable(spark, f"{database}.{own}", using="other").versions()
    session.execute(f"CREATE TABLE {vnodes}.t2 (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    with pytest.raises(rscylla.ConfigError, match="changes of another log"):
        Follower(spark, session, vnodes, "t2").apply(table)


def test_what_spark_says_of_a_table_that_it_cannot_create_is_one_line(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (id double PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    made = Follower(spark, session, vnodes, "t")
    made.write("INSERT INTO ! (id, v) VALUES (1, 1) ?")
    buckets = 4 if table_format.name == "iceberg" else None
    if buckets is None:
        name, told = "nowhere.t", "the database `spark_catalog`.`nowhere` does not exist; CREATE DATABASE"
    else:
        name, told = table_format.table(), "Iceberg has no buckets of double"
    with pytest.raises(rscylla.ConfigError, match=told) as failure:
        made.apply(rs.MergeTable(spark, name, using=table_format.name, buckets=buckets))
    assert "\n" not in str(failure.value)


# ---------------------------------------------------------------- versions and maintenance


def small(
    spark: SparkSession, session: Any, keyspace: str, table_format: TableFormat, **more: Any
) -> tuple[Follower, rs.MergeTable]:
    session.execute(
        f"CREATE TABLE {keyspace}.t (id int, ck int, v int, PRIMARY KEY (id, ck)) WITH cdc = {{'enabled': true}}"
    )
    made = Follower(spark, session, keyspace, "t")
    return made, rs.MergeTable(spark, table_format.table(), using=table_format.name, **more)


def insert(ids: Iterator[int] | range, v: int, ck: int = 0) -> list[str]:
    return [f"INSERT INTO ! (id, ck, v) VALUES ({i}, {ck}, {v}) ?" for i in ids]


def values(frame: DataFrame) -> dict[int, int]:
    return {row["id"]: row["v"] for row in frame.collect()}


def test_a_table_is_read_as_of_any_window_until_its_files_are_removed(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    made, table = small(spark, session, vnodes, table_format)
    with pytest.raises(rscylla.ConfigError, match="does not exist"):
        table.versions()
    ends = []
    for v in (1, 2, 3):
        made.write(*insert(range(3), v))
        ends.append(made.apply(table))
    made.write("DELETE FROM ! ? WHERE id = 1")
    ends.append(made.apply(table))
    versions = table.versions()
    assert [v.cursor for v in versions] == [w.end for w in ends]
    assert [v.end_time for v in versions] == [w.end_time for w in ends]
    assert all(a.committed_at <= b.committed_at for a, b in itertools.pairwise(versions))
    for v, (version, window) in enumerate(zip(versions[:3], ends, strict=False), 1):
        want = dict.fromkeys(range(3), v)
        assert values(table.rows(cursor=window.end)) == want
        assert values(table.rows(version=version.version)) == want
        assert values(table.rows(as_of=window.end_time + timedelta(microseconds=1))) == want
    assert values(table.rows()) == {0: 3, 2: 3}
    with pytest.raises(rscylla.ConfigError, match="has no version 77, or it has expired"):
        table.rows(version=77)
    with pytest.raises(rscylla.ConfigError, match="no version of that cursor"):
        table.rows(cursor=str(rscylla.EventID(ends[0].generation, 7)))
    with pytest.raises(rscylla.ConfigError, match="no version of a window that ends until 1970"):
        table.rows(as_of=datetime(1970, 1, 2, tzinfo=UTC))
    with pytest.raises(rscylla.ConfigError, match="give one of"):
        table.rows(version=1, cursor="x")

    # Back to an earlier version: the cursor goes back, too, and the windows after it count again.
    table_format.restore(spark, table.name, versions[1].version)
    assert table.cursor == ends[1].end
    assert values(table.rows()) == {0: 2, 1: 2, 2: 2}
    made.store = MemoryCursorStore(cursors={"lake": table.cursor})
    last = made.apply(table)
    assert values(table.rows()) == {0: 3, 2: 3}
    assert [v.cursor for v in table.versions()] == [ends[0].end, ends[1].end, last.end]

    table.compact()
    assert table.cursor == last.end
    assert values(table.rows()) == {0: 3, 2: 3}
    assert values(table.rows(cursor=ends[0].end)) == dict.fromkeys(range(3), 1), "a compaction keeps versions"
    vacuum(spark, table)
    assert table.cursor == last.end
    assert values(table.rows()) == {0: 3, 2: 3}
    with pytest.raises(rscylla.ConfigError, match=r"or it has expired; versions\(\) has"):
        table.rows(version=versions[0].version)
    made.write(*insert(range(1), 9))
    made.apply(table)
    assert values(table.rows()) == {0: 9, 2: 3}


def restore_to(spark: SparkSession, name: str, at: datetime, table_format: TableFormat) -> None:
    """Take the table back to the version that it had at a time."""
    if table_format.name == "delta":
        spark.sql(f"RESTORE TABLE {name} TO TIMESTAMP AS OF '{at.isoformat()}'")
    else:
        of_table, time = name.partition(".")[2], f"TIMESTAMP '{at.isoformat()}'"
        spark.sql(f"CALL {table_format.catalog}.system.rollback_to_timestamp('{of_table}', {time})")


def test_a_table_that_was_restored_to_a_time_has_the_cursor_of_its_rows(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    """Whatever the time zone of the session that reads the history, which has the time without a zone."""
    made, table = small(spark, session, vnodes, table_format)
    ends = []
    for v in (1, 2, 3):
        made.write(*insert(range(3), v))
        ends.append(made.apply(table))
    at = table.versions()[1].committed_at + timedelta(milliseconds=1)
    restore_to(spark, table.name, at, table_format)
    assert values(table.rows()) == dict.fromkeys(range(3), 2)
    try:
        for zone in ("UTC", "Asia/Tokyo", "America/Los_Angeles"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            assert table.cursor == ends[1].end
            assert [v.cursor for v in table.versions()] == [ends[0].end, ends[1].end]
        made.store = MemoryCursorStore(cursors={"lake": table.cursor})
        made.apply(table)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert values(table.rows()) == dict.fromkeys(range(3), 3)


@pytest.mark.parametrize("table_format", ["delta"], indirect=True)
def test_a_table_of_deletion_vectors_is_restored_to_a_version_only(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    made, table = small(spark, session, vnodes, table_format, properties=ON_READ["delta"])
    for v in (1, 2):
        made.write(*insert(range(3), v))
        made.apply(table)
    restore_to(spark, table.name, table.versions()[0].committed_at + timedelta(milliseconds=1), table_format)
    with pytest.raises(rscylla.ConfigError, match="restore it to the version: RESTORE TABLE"):
        _ = table.cursor


@pytest.mark.parametrize("table_format", ["delta"], indirect=True)
def test_windows_after_a_restore_that_cannot_be_told_any_more_are_versions(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    made, table = small(spark, session, vnodes, table_format)
    for v in (1, 2):
        made.write(*insert(range(3), v))
        made.apply(table)
    restore_to(spark, table.name, table.versions()[0].committed_at + timedelta(milliseconds=1), table_format)
    made.store = MemoryCursorStore(cursors={"lake": table.cursor})
    last = made.apply(table)
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    assert table.cursor == last.end
    [version] = table.versions()
    assert version.cursor == last.end
    assert values(table.rows(version=version.version)) == dict.fromkeys(range(3), 2)


def test_versions_before_a_restore_are_read_after_a_vacuum_if_their_files_are_there(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    made, table = small(spark, session, vnodes, table_format)
    ends = []
    for v in (1, 2):
        made.write(*insert(range(3), v))
        ends.append(made.apply(table))
    first = table.versions()[0]
    table_format.restore(spark, table.name, first.version)
    vacuum(spark, table)
    assert table.cursor == ends[0].end
    assert values(table.rows(version=first.version)) == dict.fromkeys(range(3), 1)
    with pytest.raises(rscylla.ConfigError, match="or it has expired"):
        table.rows(cursor=ends[1].end)


@contextmanager
def another_thread(*_: Any) -> Iterator[None]:
    """What ``committing`` does to a commit when a thread merges into another table at the same time."""
    yield


def test_a_commit_that_carries_the_cursor_of_another_table_is_followed_by_one_with_its_own(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, table = small(spark, session, vnodes, table_format)
    made.write(*insert(range(3), 0))
    made.apply(table)
    monkeypatch.setattr(CommitLog, "committing", another_thread)
    made.write(*insert(range(3), 1))
    ends = [made.apply(table).end]
    h.passed(rscylla.SystemClock().now_us())
    ends.append(made.apply(table).end)  # a window without changes
    assert values(table.rows()) == dict.fromkeys(range(3), 1)
    if table_format.name == "iceberg":  # Delta Lake's second commit is a property, and no version
        assert [v.cursor for v in table.versions()][1:] == ends


def test_values_that_had_expired_when_a_version_was_committed_are_not_asked_for(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    made, table = small(spark, session, vnodes, table_format)
    made.write("INSERT INTO ! (id, ck, v) VALUES (1, 0, 1) ? AND TTL 1000")
    window = made.apply(table)
    [version] = table.versions()
    late = version.committed_at + timedelta(seconds=2000)
    assert values(table.rows(cursor=window.end, at=version.committed_at)) == {1: 1}
    assert values(table.rows(cursor=window.end, at=late)) == values(table.rows(at=late)) == {}
    for which in ({}, {"version": version.version}):
        with pytest.raises(rscylla.ConfigError, match=r"at= is before .* was committed without the values"):
            table.rows(**which, at=version.committed_at - timedelta(seconds=1))
    for wrong in ({"as_of": "2026-11-27"}, {"cursor": window.end, "at": "2026-11-27"}, {"at": "2026-11-27"}):
        with pytest.raises(rscylla.ConfigError, match=r"= requires an aware datetime, .* not '2026-11-27'"):
            table.rows(**wrong)
    for wrong in ({"version": "1"}, {"version": True}, {"version": 1.0}):
        with pytest.raises(rscylla.ConfigError, match=r"^version= requires an int, the version of one of "):
            table.rows(**wrong)
    refused = r"^cursor= requires a text, such as the end of a window, not PlannedWindow"
    with pytest.raises(rscylla.ConfigError, match=refused):
        table.rows(cursor=window)  # type: ignore[arg-type]
    for keep in (7, timedelta(microseconds=-1)):
        with pytest.raises(rscylla.ConfigError, match=r"^keep must be a timedelta of zero or more, such ") as e:
            table.vacuum(keep)  # type: ignore[arg-type]
        assert str(e.value).endswith(repr(keep))


def test_a_vacuum_keeps_files_as_long_as_it_is_told_to(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    made, table = small(spark, session, vnodes, table_format)
    for v in (1, 2):
        made.write(*insert(range(3), v))
        made.apply(table)
    table.vacuum(timedelta.max)
    if table_format.name == "delta":
        table.vacuum(timedelta(days=30, microseconds=-1))
        history = spark.sql(f"DESCRIBE HISTORY {table.name}").where("operation = 'VACUUM START'").orderBy("version")
        told = [row["operationParameters"]["specifiedRetentionMillis"] for row in history.collect()]
        assert timedelta(milliseconds=int(told[-1])) == timedelta(days=30)
        for keep in (timedelta(), timedelta(days=6)):
            with pytest.raises(rscylla.ConfigError, match="is shorter than the time for which the table") as refused:
                table.vacuum(keep)
            assert "\n" not in str(refused.value)
            assert "RETENTION_PERIOD_TOO_SHORT" in str(refused.value.__cause__)
        kept = "'delta.deletedFileRetentionDuration' = 'interval 30 days'"
        spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({kept})")
    table.vacuum()
    assert values(table.rows(version=table.versions()[0].version)) == dict.fromkeys(range(3), 1)


@pytest.mark.parametrize("table_format", ["delta"], indirect=True)
def test_a_small_table_is_listed_in_few_tasks(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    """Delta Lake takes 50 for each version, and 10,000 for the directories of a VACUUM, unless a session says."""
    made, table = small(spark, session, vnodes, table_format)
    settings = ["spark.databricks.delta.snapshotPartitions", "spark.sql.sources.parallelPartitionDiscovery.parallelism"]
    before = {name: spark.conf.get(name) for name in settings}
    for name in settings:
        spark.conf.unset(name)
    try:
        spark.sparkContext.setJobGroup(vnodes, "what a MergeTable does")
        for v in (1, 2):
            made.write(*insert(range(30), v))
            made.apply(table)
        table.compact()
        vacuum(spark, table)
        assert all(spark.conf.get(name, None) is None for name in settings)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        for name in settings:
            spark.conf.set(name, before[name])
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(vnodes)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    assert 0 < max(stage.numTasks for stage in stages if stage is not None) <= 8


def test_a_table_gets_deletion_vectors_or_merge_on_read_later(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    made, table = small(spark, session, vnodes, table_format)
    told: list[tuple[str, Any]] = []

    def apply(*statements: str) -> None:
        made.write(*statements)
        told.append((made.apply(table).end, made.rows()))
        assert h.rows_in(table.rows()) == told[-1][1]

    apply(*insert(range(50), 1))
    on_read = ON_READ[table_format.name] | FORMAT_VERSIONS[table_format.name][-1]
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({pairs_of(on_read)})")
    assert table.cursor == told[-1][0]
    for v in (3, 4):  # rows of the first file, so each window replaces the marks of the one before
        apply(*insert(range(v, v + 1), v), f"DELETE FROM ! ? WHERE id = {40 + v}")
        assert marks(spark, table, table_format)[-1] > 0
    assert check_versions(table, told) == 3
    vacuum(spark, table)
    assert check_versions(table, told) == 1, "the marks of earlier versions are removed, too"
    table.compact()
    assert h.rows_in(table.rows()) == told[-1][1]


def cost(spark: SparkSession, table: rs.MergeTable, table_format: TableFormat) -> dict[str, int]:
    """Return what the newest MERGE did: files removed and added, rows written, rows copied."""
    if table_format.name == "delta":
        history = spark.sql(f"DESCRIBE HISTORY {table.name}").where("operation = 'MERGE'").orderBy("version")
        found = history.collect()[-1]["operationMetrics"]
        names = ("numTargetFilesRemoved", "numTargetFilesAdded", "numTargetRowsUpdated", "numTargetRowsCopied")
    else:
        found = spark.table(f"{table.name}.snapshots").orderBy("committed_at").collect()[-1]["summary"]
        rows = "spark.merge-into.num-target-rows"
        names = ("deleted-data-files", "added-data-files", f"{rows}-matched-updated", f"{rows}-copied")
    return dict(zip(("removed", "added", "updated", "copied"), (int(found.get(n, 0)) for n in names), strict=True))


def files(spark: SparkSession, table: rs.MergeTable, table_format: TableFormat) -> int:
    if table_format.name == "delta":
        return int(spark.sql(f"DESCRIBE DETAIL {table.name}").first()["numFiles"])
    return spark.table(f"{table.name}.files").count()


def test_a_window_of_few_keys_rewrites_few_files_of_a_table_of_many(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    many = {"write.target-file-size-bytes": "1500"}
    more = {"properties": many} if table_format.name == "iceberg" else {}
    made, table = small(spark, session, vnodes, table_format, **more)
    made.write(*insert(range(2000), 1), *(f"INSERT INTO ! (id, ck, v) VALUES (-1, {n}, 1) ?" for n in range(200)))
    made.apply(table)
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", "4000")
    try:
        table.compact()
    finally:
        spark.conf.unset("spark.databricks.delta.optimize.maxFileSize")
    before = files(spark, table, table_format)
    assert before >= 8
    made.write(*insert(iter((7, 1999)), 2), "UPDATE ! ? SET v = 5 WHERE id = -1 AND ck = 3")
    made.apply(table)
    done = cost(spark, table, table_format)
    assert done["updated"] == 3, "the other rows of their partitions stay"
    assert done["removed"] <= 3
    assert done["added"] <= 3
    assert len(values(table.rows())) == 2001


def test_a_table_of_iceberg_in_buckets_rewrites_those_of_the_keys(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    if table_format.name == "delta":
        with pytest.raises(rscylla.ConfigError, match="Delta Lake clusters its tables"):
            rs.MergeTable(spark, "t", using="delta", buckets=8)
        return
    made, table = small(spark, session, vnodes, table_format, buckets=8)
    made.write(*insert(range(400), 1))
    made.apply(table)
    assert files(spark, table, table_format) >= 8
    made.write(*insert(range(7, 8), 2))
    made.apply(table)
    assert (cost(spark, table, table_format)["removed"], values(table.rows())[7]) == (1, 2)
