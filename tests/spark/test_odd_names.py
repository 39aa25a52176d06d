"""Every place where a name goes to Spark, Arrow, Delta Lake, or Iceberg takes any name, or refuses it by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import spark_history as h
from odd_names import ODD_NAMES
from pyspark.sql import functions as F
from spark_formats import TableFormat

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import spark as rs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning"),
    pytest.mark.usefixtures("not_compiled"),
]

NO_LAG = rscylla.StreamLag(milliseconds=0)
READ = {"consistency": "ONE"}
KEYS = ("two words", "a.b", "a`b", 'q"q', "{c}")
"""Names of two columns of the partition key and three of the clustering key; all are fields, too."""
VALUES = [name for name in ODD_NAMES if name not in KEYS]
TYPES = {
    "frozen": "frozen<odd>",
    "whole": "odd",
    "l": "list<frozen<odd>>",
    "m": "map<frozen<odd>, frozen<odd>>",
    "tu": "frozen<tuple<int, frozen<odd>>>",
}


def q(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Odd:
    """A table with odd names in every place: keys, static and regular columns, and fields of types at any depth."""

    def __init__(self, session: Any, keyspace: str) -> None:
        self.session, self.keyspace = session, keyspace
        values = [f"{q(n)} int" for n in VALUES]
        fields = ", ".join(f"{q(n)} int" for n in ODD_NAMES)
        columns = ", ".join([*(f"{q(n)} int" for n in KEYS), '"s, t" int static', *values])
        odd = ", ".join(f"{n} {type_}" for n, type_ in TYPES.items())
        key = f"({q(KEYS[0])}, {q(KEYS[1])}), {', '.join(map(q, KEYS[2:]))}"
        session.execute(f"CREATE TYPE {keyspace}.odd ({fields})")
        for table, options in (("t", "WITH cdc = {'enabled': true}"), ("copied", "")):
            session.execute(f"CREATE TABLE {keyspace}.{table} ({columns}, {odd}, PRIMARY KEY ({key})) {options}")
        self.columns = list(map(q, VALUES))

    def write(self, number: int) -> None:
        """Insert a row, and delete a range of others."""
        key = ", ".join(map(q, KEYS))
        field = "{" + ", ".join(f"{q(n)}: {number + i}" for i, n in enumerate(ODD_NAMES)) + "}"
        given = [field, field, f"[{field}]", f"{{{field}: {field}}}", f"({number}, {field})"]
        self.session.execute(
            f'INSERT INTO {self.keyspace}.t ({key}, "s, t", {", ".join([*self.columns, *TYPES])}) VALUES '
            f"(1, 1, {number}, 1, 1, {number}, {', '.join([str(number)] * len(self.columns) + given)})"
        )
        self.session.execute(
            f"DELETE FROM {self.keyspace}.t WHERE {q(KEYS[0])} = 1 AND {q(KEYS[1])} = 1 AND {q(KEYS[2])} < {number - 1}"
        )

    def apply(self, spark: SparkSession, table: Any, store: MemoryCursorStore) -> None:
        h.passed(rscylla.SystemClock().now_us() + 1000)
        stream = rscylla.NewStream(self.session, self.keyspace, "t", consistency="ONE")
        until = rscylla.StreamUntil(datetime.now(UTC))
        for window, changes in rs.windows(spark, stream, store, "odd", NO_LAG, until, read=READ):
            rs.apply_changes(changes, table, window=window)


class OddKeys(Odd):
    """A table whose key has all of the names: those that an index or a cluster is made of have the oddest ones."""

    def __init__(self, session: Any, keyspace: str) -> None:
        self.session, self.keyspace = session, keyspace
        partition, clustering = ODD_NAMES[::2], ODD_NAMES[1::2]
        columns = ", ".join(f"{q(n)} int" for n in ODD_NAMES)
        key = f"({', '.join(map(q, partition))}), {', '.join(map(q, clustering))}"
        for table, options in (("t", "WITH cdc = {'enabled': true}"), ("copied", "")):
            session.execute(f"CREATE TABLE {keyspace}.{table} ({columns}, v int, PRIMARY KEY ({key})) {options}")
        self.partition, self.first = " AND ".join(f"{q(n)} = 1" for n in partition), q(clustering[0])

    def write(self, number: int) -> None:
        values = ", ".join("1" if n in ODD_NAMES[::2] else str(number) for n in ODD_NAMES)
        self.session.execute(
            f"INSERT INTO {self.keyspace}.t ({', '.join(map(q, ODD_NAMES))}, v) VALUES ({values}, {number})"
        )
        self.session.execute(f"DELETE FROM {self.keyspace}.t WHERE {self.partition} AND {self.first} < {number - 1}")


def shown(frame: DataFrame) -> list[str]:
    """Return rows by column; struct fields by name."""
    return sorted(repr(sorted(row.items())) for row in frame.toArrow().to_pylist())


@pytest.fixture
def odd(session: Any, vnodes: str) -> Odd:
    return Odd(session, vnodes)


@pytest.fixture(params=[Odd, OddKeys], ids=["values", "keys"])
def either(request: pytest.FixtureRequest, session: Any, vnodes: str) -> Odd:
    made: Odd = request.param(session, vnodes)
    return made


def test_changes_versions_files_and_snapshots_take_any_name(
    spark: SparkSession, either: Odd, options: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    odd = either
    table, store = rs.ParquetTable(spark, str(tmp_path / "t")), MemoryCursorStore()
    for number in range(3):
        odd.write(number)
        odd.apply(spark, table, store)
    given = options(odd.keyspace, "t")
    changes = spark.read.format("scylla-cdc").options(**given).load()
    want = shown(rs.latest(changes))
    assert len(want) == 2
    assert all(repr(name) in want[1] for name in ODD_NAMES)
    assert shown(table.rows()) == want
    assert shown(rs.history(changes).where("is_current").drop("valid_from", "valid_to", "is_current")) == want
    stream = rscylla.NewStream(odd.session, odd.keyspace, "t", consistency="ONE")
    rows = rs.snapshot(spark, stream, NO_LAG, read=READ).rows
    assert shown(rows.drop("l")) == shown(rs.latest(changes).drop("l"))  # a snapshot has no lists
    for mode in ("log", "events"):
        assert spark.read.format("scylla-cdc").options(**given, mode=mode).load().count() >= 6


def test_history_refuses_the_names_of_its_own_columns_and_says_how_to_go_on(
    spark: SparkSession, session: Any, vnodes: str, options: Callable[..., dict[str, str]]
) -> None:
    session.execute(
        f"CREATE TABLE {vnodes}.t (id int PRIMARY KEY, v int, is_current int) WITH cdc = {{'enabled': true}}"
    )
    session.execute(f"INSERT INTO {vnodes}.t (id, v, is_current) VALUES (1, 2, 3)")
    changes = spark.read.format("scylla-cdc").options(**options(vnodes, "t")).load()
    with pytest.raises(rscylla.ConfigError, match=r"column 'is_current', .*dropFields\('is_current'\)"):
        rs.history(changes)
    less = changes.withColumn("cdc_values", F.col("cdc_values").dropFields("is_current"))
    assert [(row["id"], row["v"], row["is_current"]) for row in rs.history(less).collect()] == [(1, 2, True)]


def test_changes_of_any_names_are_written_back(
    spark: SparkSession, either: Odd, options: Callable[..., dict[str, str]]
) -> None:
    odd = either
    odd.write(1)
    odd.write(2)
    changes = spark.read.format("scylla-cdc").options(**options(odd.keyspace, "t")).load()
    given = {n: v for n, v in options(odd.keyspace, "copied").items() if n != "lag"}
    assert rs.ScyllaTable(given).write(changes) == changes.count()
    both = [odd.session.execute(f"SELECT * FROM {odd.keyspace}.{t}").all() for t in ("t", "copied")]
    assert repr(both[0]) == repr(both[1])
    assert len(both[0]) == 2


def test_arrow_takes_any_name(odd: Odd) -> None:
    odd.write(1)
    h.passed(rscylla.SystemClock().now_us() + 1000)
    stream = rscylla.NewStream(odd.session, odd.keyspace, "t", consistency="ONE")
    for mode in ("changes", "log", "events"):
        windows = rscylla.windows_as_arrow(
            stream, MemoryCursorStore(), mode, NO_LAG, rscylla.StreamUntil(datetime.now(UTC)), mode=mode
        )
        rows = [row for _, part in windows for row in part.table().to_pylist()]
        assert len(rows) >= 2
        if mode == "changes":
            (written,) = [row["cdc_values"] for row in rows if row["cdc_values"]["frozen"] is not None]
            assert written["frozen"] == written["tu"]["_2"] == {n: i + 1 for i, n in enumerate(ODD_NAMES)}
            assert {n: written[n] for n in VALUES} == dict.fromkeys(VALUES, 1)


class Halves:
    """A table with half of the names in its key, the others as columns, and all of them as fields; and its rows."""

    KEYS, VALUES = ODD_NAMES[::2], ODD_NAMES[1::2]
    PARTITION = 4

    def __init__(self, session: Any, keyspace: str) -> None:
        self._session, self._keyspace = session, keyspace
        self._names = [*self.KEYS, *self.VALUES, "deep"]
        self._fields = list(ODD_NAMES)
        self.rows: list[dict[str, Any]] = []
        columns = ", ".join(f"{q(n)} int" for n in self._names[:-1])
        partition, clustering = map(q, self.KEYS[: self.PARTITION]), map(q, self.KEYS[self.PARTITION :])
        session.execute(f"CREATE TYPE {keyspace}.odd ({', '.join(f'{q(n)} int' for n in self._fields)})")
        session.execute(
            f"CREATE TABLE {keyspace}.t ({columns}, deep list<frozen<map<frozen<odd>, tuple<int, frozen<odd>>>>>, "
            f"PRIMARY KEY (({', '.join(partition)}), {', '.join(clustering)})) WITH cdc = {{'enabled': true}}"
        )

    def insert(self) -> None:
        """Insert a row of another partition."""
        number = 1000 * (len(self.rows) + 1)
        values = range(number, number + len(self._names) - 1)
        odd = dict(zip(self._fields, range(number + 500, number + 1000), strict=False))
        literal = "{" + ", ".join(f"{q(name)}: {value}" for name, value in odd.items()) + "}"
        self._session.execute(
            f"INSERT INTO {self._keyspace}.t ({', '.join(map(q, self._names))}) "
            f"VALUES ({', '.join(map(str, values))}, [{{{literal}: (7, {literal})}}])"
        )
        self.rows.append(dict(zip(self._names, [*values, [[(odd, {"_1": 7, "_2": dict(odd)})]]], strict=True)))

    def alter(self) -> None:
        """Add a column and a field, and rename a field."""
        self._session.execute(f'ALTER TABLE {self._keyspace}.t ADD "new, one" int')
        self._session.execute(f'ALTER TYPE {self._keyspace}.odd ADD "new = field" int')
        self._session.execute(f"ALTER TYPE {self._keyspace}.odd RENAME {q('a.b')} TO {q('c d')}")
        self._names.insert(-1, "new, one")
        self._fields = [*("c d" if name == "a.b" else name for name in self._fields), "new = field"]
        for row in self.rows:
            row["new, one"] = None
            [[(key, pair)]] = row["deep"]
            for odd in (key, pair["_2"]):
                odd |= {"c d": odd.pop("a.b"), "new = field": None}


def test_a_table_of_a_format_takes_any_name_at_every_depth(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    halves, store = Halves(session, vnodes), MemoryCursorStore()
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    buckets = 2 if table_format.name == "iceberg" else None
    table = rs.MergeTable(spark, table_format.table(), using=table_format.name, buckets=buckets)

    def found() -> list[dict[str, Any]]:
        return sorted(table.rows().toArrow().to_pylist(), key=lambda row: row[halves.KEYS[0]])

    for alter in (lambda: None, halves.alter):
        alter()
        halves.insert()
        h.passed(rscylla.SystemClock().now_us())
        for window, changes in rs.windows(spark, stream, store, "odd", NO_LAG, rscylla.StreamToHead(), read=READ):
            assert rs.apply_changes(changes, table, window=window)
        assert found() == halves.rows
    table.compact()
    assert found() == halves.rows
