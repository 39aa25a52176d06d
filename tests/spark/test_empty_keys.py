"""Keys whose parts have no bytes: empty text and blobs, and empty values of other types, which Spark has as null."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import spark_history as h
from spark_formats import TableFormat

import rscylla
from rscylla import spark as rs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning"),
    pytest.mark.usefixtures("not_compiled"),
]

Options = Callable[..., dict[str, str]]

NO_LAG = rscylla.StreamLag(milliseconds=0)

TABLES = {
    "texts": ("a text, b blob, c text, d blob", (("''", "'x'"), ("0x", "0x01"), ("''", "'z'"), ("0x", "0x00"))),
    "numbers": (
        "a int, b smallint, c bigint, d text",
        (("blobasint(0x)", "0"), ("blobassmallint(0x)", "5"), ("blobasbigint(0x)", "-1"), ("''", "'z'")),
    ),
    "both": (
        "a text, b int, c bigint, d blob",
        (("''", "'x'"), ("blobasint(0x)", "0"), ("blobasbigint(0x)", "-1"), ("0x", "0x00")),
    ),
}
"""The key columns of each table, and two values of each: one without bytes."""


def create(session: Any, keyspace: str, table: str) -> list[str]:
    """Make the table, with partition key a, b and clustering key c, d, DESC; return INSERTs of all combinations."""
    columns, values = TABLES[table]
    session.execute(
        f"CREATE TABLE {keyspace}.t ({columns}, s int static, v int, m map<text, int>, PRIMARY KEY ((a, b), c, d)) "
        "WITH CLUSTERING ORDER BY (c ASC, d DESC) AND cdc = {'enabled': true}"
    )
    inserts = [
        f"INSERT INTO t (a, b, c, d, s, v, m) VALUES ({', '.join(key)}, {n}, {n}, {{'': {n}}}) ?"
        for n, key in enumerate(itertools.product(*values))
    ]
    a, b = values[0][0], values[1][1]
    return [*inserts, f"DELETE FROM t ? WHERE a = {a} AND b = {b}"]


def edits(table: str) -> list[str]:
    _, values = TABLES[table]
    (a, other_a), (b, other_b), (c, other_c), (d, other_d) = values
    found = [
        f"UPDATE t ? SET v = 70, m = m - {{''}} WHERE a = {a} AND b = {b} AND c = {c} AND d = {other_d}",
        f"UPDATE t ? SET s = 71 WHERE a = {a} AND b = {b}",
        f"DELETE FROM t ? WHERE a = {a} AND b = {b} AND c = {other_c} AND d = {d}",
        f"UPDATE t ? SET s = 72 WHERE a = {a} AND b = {other_b}",
        f"DELETE FROM t ? WHERE a = {other_a} AND b = {b} AND c < {other_c}",
        f"DELETE FROM t ? WHERE a = {other_a} AND b = {other_b} AND c = {other_c} AND d > {d}",
    ]
    if table == "texts":  # a bound without bytes is no bound for Spark, if it is not of text or a blob
        found += [
            f"DELETE FROM t ? WHERE a = {other_a} AND b = {other_b} AND c = {c} AND d > {d}",
            f"DELETE FROM t ? WHERE a = {a} AND b = {b} AND c > {c}",
        ]
    return found


def write(session: Any, keyspace: str, statements: list[str]) -> int:
    at = start = rscylla.SystemClock().now_us()
    for at, cql in enumerate(statements, start):
        session.execute(cql.replace(" t ", f" {keyspace}.t ").replace("?", f"USING TIMESTAMP {at}"))
    h.passed(at)
    return at


def load(spark: SparkSession, options: dict[str, str], after_us: int) -> DataFrame:
    changes = spark.read.format("scylla-cdc").options(**options).load()
    return changes.where(f"unix_micros(cdc_timestamp) > {after_us}")


@pytest.mark.parametrize("table", ["texts", "numbers"])
def test_keys_with_empty_parts_are_those_of_the_base_table(
    spark: SparkSession, session: Any, options: Options, vnodes: str, tmp_path: Path, table: str
) -> None:
    inserts = create(session, vnodes, table)
    first_us = write(session, vnodes, inserts)
    kept = rs.ParquetTable(spark, str(tmp_path / "t"))
    assert kept.apply(load(spark, options(vnodes, "t"), 0), h.window(0, 0, first_us + 1))
    assert h.rows_in(kept.rows()) == h.rows_of(session, vnodes, "t")
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    snapshot = rs.snapshot(spark, stream, NO_LAG, read={"consistency": "ONE"}, ranges=1)
    assert h.rows_in(snapshot.rows) == h.rows_of(session, vnodes, "t")
    from_snapshot = rs.ParquetTable(spark, str(tmp_path / "s"))
    from_snapshot.start_from(snapshot)
    assert h.rows_in(from_snapshot.rows()) == h.rows_of(session, vnodes, "t")

    end_us = write(session, vnodes, edits(table))
    want = h.rows_of(session, vnodes, "t")
    changes = load(spark, options(vnodes, "t"), 0)
    assert h.rows_in(rs.latest(changes)) == want
    later = load(spark, options(vnodes, "t"), first_us)
    assert h.rows_in(rs.latest(later, base=snapshot.cells)) == want
    assert kept.apply(later, h.window(0, first_us + 1, end_us + 1))
    assert h.rows_in(kept.rows()) == want


def test_a_table_with_merge_has_keys_with_empty_parts(
    spark: SparkSession, session: Any, options: Options, vnodes: str, table_format: TableFormat
) -> None:
    inserts = create(session, vnodes, "both")
    kept = rs.MergeTable(spark, table_format.table(), using=table_format.name)
    from_us = 0
    for statements in (inserts, edits("both")):
        end_us = write(session, vnodes, statements)
        changes = load(spark, options(vnodes, "t"), from_us)
        assert kept.apply(changes, h.window(0, from_us, end_us + 1))
        assert h.rows_in(kept.rows()) == h.rows_of(session, vnodes, "t")
        from_us = end_us + 1
