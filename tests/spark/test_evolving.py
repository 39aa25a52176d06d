"""A type of the base table gets fields, and its fields other names: tables go on, and keep what they have."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import spark_history as h
from pyspark.sql.types import ArrayType, DataType, IntegerType, MapType, StringType, StructField, StructType
from spark_formats import TableFormat

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import spark as rs
from rscylla.spark.pipeline.evolving import Added, Renamed, evolutions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning")

NO_LAG = rscylla.StreamLag(milliseconds=0)
INT, TEXT = IntegerType(), StringType()


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in fields.items()])


@pytest.mark.parametrize(
    ("known", "wanted", "steps"),
    [
        (struct(a=INT), struct(a=INT), []),
        (struct(a=INT), struct(a=INT, b=TEXT), [Added("`c`.`b`", TEXT, in_key=False)]),
        (struct(a=INT, b=TEXT), struct(x=INT, b=TEXT), [Renamed("`c`.`a`", "x", in_key=False)]),
        (
            struct(a=INT),
            struct(x=INT, a=TEXT),
            [Renamed("`c`.`a`", "x", in_key=False), Added("`c`.`a`", TEXT, in_key=False)],
        ),
        (
            struct(a=INT, b=INT),
            struct(b=INT, a=INT),
            [
                Renamed("`c`.`a`", "cdc$renamed_0", in_key=False),
                Renamed("`c`.`b`", "cdc$renamed_1", in_key=False),
                Renamed("`c`.`cdc$renamed_0`", "b", in_key=False),
                Renamed("`c`.`cdc$renamed_1`", "a", in_key=False),
            ],
        ),
        (
            struct(a=struct(b=INT)),
            struct(x=struct(y=INT)),
            [Renamed("`c`.`a`.`b`", "y", in_key=False), Renamed("`c`.`a`", "x", in_key=False)],
        ),
        (ArrayType(struct(a=INT)), ArrayType(struct(x=INT)), [Renamed("`c`.element.`a`", "x", in_key=False)]),
        (
            MapType(struct(a=INT), struct(a=INT)),
            MapType(struct(a=INT, b=INT), struct(a=INT, b=INT)),
            [Added("`c`.key.`b`", INT, in_key=True), Added("`c`.value.`b`", INT, in_key=False)],
        ),
        (
            struct(**{"a`b": struct(a=INT)}),
            struct(**{"a`b": struct(x=INT)}),
            [Renamed("`c`.`a``b`.`a`", "x", in_key=False)],
        ),
    ],
)
def test_fields_are_matched_by_their_places(known: DataType, wanted: DataType, steps: list[Any]) -> None:
    assert evolutions("c", known, wanted, "t") == steps


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        (INT, TEXT),
        (struct(a=INT), struct(a=TEXT)),
        (struct(a=INT, b=INT), struct(a=INT)),
        (ArrayType(INT), MapType(INT, INT)),
    ],
)
def test_types_that_differ_in_another_way_are_an_error(known: DataType, wanted: DataType) -> None:
    with pytest.raises(rscylla.ConfigError, match="the column 'c' of the table t has values of the type"):
        evolutions("c", known, wanted, "t")


PLACES = {
    "a": ("frozen<u>", "{{{0}: 1, {1}: 'x'}}"),
    "b": ("u", "{{{0}: 1, {1}: 'x'}}"),
    "l": ("list<frozen<u>>", "[{{{0}: 1, {1}: 'x'}}]"),
    "m": ("map<frozen<u>, int>", "{{{{{0}: 1, {1}: 'x'}}: 1}}"),
    "f": ("frozen<map<frozen<u>, frozen<u>>>", "{{{{{0}: 1, {1}: 'x'}}: {{{0}: 1, {1}: 'x'}}}}"),
    "o": ("frozen<outer>", "{{inner: {{{0}: 1, {1}: 'x'}}}}"),
}


class Evolving:
    """A base table with a type in every place, and a table that follows it."""

    def __init__(self, spark: SparkSession, session: Any, keyspace: str, table: Any) -> None:
        self.spark, self.session, self.keyspace, self.table = spark, session, keyspace, table
        self.store = MemoryCursorStore()
        session.execute(f"CREATE TYPE {keyspace}.u (a int, b text)")
        session.execute(f"CREATE TYPE {keyspace}.outer (inner frozen<u>)")
        columns = ", ".join(f"{name} {type_}" for name, (type_, _) in PLACES.items())
        session.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, {columns}) WITH cdc = {{'enabled': true}}")

    def write(self, id_: int, *fields: str) -> None:
        values = ", ".join(text.format(*fields) for _, text in PLACES.values())
        self.session.execute(f"INSERT INTO {self.keyspace}.t (id, {', '.join(PLACES)}) VALUES ({id_}, {values})")

    def alter(self, what: str) -> None:
        self.session.execute(f"ALTER TYPE {self.keyspace}.u {what}")

    def apply_and_compare(self) -> None:
        h.passed(rscylla.SystemClock().now_us() + 1000)
        stream = rscylla.NewStream(self.session, self.keyspace, "t", consistency="ONE")
        until, read = rscylla.StreamUntil(datetime.now(UTC)), {"consistency": "ONE"}
        for window, changes in rs.windows(self.spark, stream, self.store, "c", NO_LAG, until, read=read):
            rs.apply_changes(changes, self.table, window=window)
        found = sorted(self.table.rows().toArrow().to_pylist(), key=lambda row: row["id"])
        fields = [f.name for f in self.table.rows().schema["a"].dataType.fields]
        want = dict.fromkeys(fields) | dict(zip(fields, [1, "x"], strict=False))
        assert found == [
            {
                "id": id_,
                "a": want,
                "b": want,
                "l": [want],
                "m": [(want, 1)],
                "f": [(want, want)],
                "o": {"inner": want},
            }
            for id_ in range(1, len(found) + 1)
        ]

    def run(self) -> None:
        self.write(1, "a", "b")
        self.apply_and_compare()
        self.alter("RENAME a TO aa")
        self.write(2, "aa", "b")
        self.apply_and_compare()
        self.alter("ADD z int")
        self.alter("RENAME aa TO b AND b TO aa")
        self.write(3, "b", "aa")
        self.apply_and_compare()
        assert self.table.rows().schema["a"].dataType.names == ["b", "aa", "z"]


def test_a_table_of_files_goes_on_when_fields_are_renamed_and_added(
    spark: SparkSession, session: Any, vnodes: str, tmp_path: Path
) -> None:
    Evolving(spark, session, vnodes, rs.ParquetTable(spark, str(tmp_path / "t"))).run()


def test_a_table_with_merge_goes_on_when_fields_are_renamed_and_added(
    spark: SparkSession, session: Any, vnodes: str, table_format: TableFormat
) -> None:
    Evolving(spark, session, vnodes, rs.MergeTable(spark, table_format.table(), using=table_format.name)).run()
