"""What users of Spark see when something is wrong: one clear message each; and that no secret shows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import rscylla
from rscylla.spark import register, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.every_pyspark

MakeOptions = Callable[..., dict[str, str]]


def told(spark: SparkSession, options: dict[str, str]) -> str:
    """Return what is raised by a load, or by reading."""
    with pytest.raises(Exception) as caught:
        spark.read.format("scylla-cdc").options(**options).load().collect()
    return str(caught.value)


@pytest.fixture
def table(session: rscylla.Session, vnodes: str) -> str:
    session.execute(f"CREATE TABLE {vnodes}.t (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    session.execute(f"INSERT INTO {vnodes}.t (id, v) VALUES (1, 1)")
    session.execute(f"CREATE TABLE {vnodes}.plain (id int PRIMARY KEY)")
    return vnodes


def test_bad_input_is_reported_in_the_users_terms(spark: SparkSession, table: str, options: MakeOptions) -> None:
    given = options(table, "t")
    without_lag = {n: v for n, v in given.items() if n != "lag"}
    assert "MissingLag: format('scylla-cdc') has no option lag; pass .option('lag', '30s')" in told(spark, without_lag)
    assert "no option 'keyspase'; did you mean 'keyspace'?" in told(spark, given | {"keyspase": "x"})
    assert f"CDCDisabled: table {table}.plain has no CDC log; enable it with ALTER TABLE" in told(
        spark, options(table, "plain")
    )
    assert f"TableNotFound: keyspace {table} has no table" in told(spark, options(table, "typo"))
    assert "ConnectionFailed: connecting to 127.0.0.1:1: no node answered" in told(
        spark, given | {"contactPoints": "127.0.0.1:1"}
    )
    assert "endingPosition is" in told(spark, given | {"endingPosition": "2100-01-01T00:00:00Z"})


def test_rows_that_have_expired_are_a_gap_for_who_asked_for_them(
    spark: SparkSession, session: rscylla.Session, vnodes: str, options: MakeOptions
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.short (id int PRIMARY KEY) WITH cdc = {{'enabled': true, 'ttl': 2}}")
    start = datetime.now(UTC) - timedelta(minutes=10)
    given = options(vnodes, "short") | {"startingPosition": start.isoformat()}
    frame = spark.read.format("scylla-cdc").options(**given).load()
    told = r"keeps 2 s: changes from .* may be lost"
    with pytest.raises(rscylla.CursorExpired, match=told) as caught, spark_errors():
        frame.collect()
    assert start < caught.value.gap_from < caught.value.gap_to <= datetime.now(UTC)


def test_a_table_that_is_dropped_before_it_is_read_is_named(
    spark: SparkSession, session: rscylla.Session, table: str, options: MakeOptions
) -> None:
    frame = spark.read.format("scylla-cdc").options(**options(table, "t")).load()
    assert len(frame.collect()) == 1  # which plans the partitions of later uses, too
    session.execute(f"DROP TABLE {table}.t")
    with pytest.raises(rscylla.TableNotFound, match=f"keyspace {table} has no table t"), spark_errors():
        frame.collect()


def test_errors_of_spark_become_errors_of_rscylla(spark: SparkSession, table: str, options: MakeOptions) -> None:
    def load(**more: str) -> None:
        spark.read.format("scylla-cdc").options(**{**options(table, "t"), **more}).load()

    with pytest.raises(rscylla.TableNotFound, match=f"^keyspace {table} has no table"), spark_errors():
        load(table="typo")
    with pytest.raises(rscylla.ConfigError, match="did you mean 'keyspace'"), spark_errors():
        load(keyspase="x")
    with (
        pytest.raises(rscylla.RscyllaError, match="Py4JJavaError, SparkClassNotFoundException, DATA_SOURCE_NOT_FOUND"),
        spark_errors(),
    ):
        spark.read.format("nothing").load()
    with (
        pytest.raises(rscylla.RscyllaError, match="failed: ArithmeticException, DIVIDE_BY_ZERO") as caught,
        spark_errors(),
    ):
        spark.sql("SELECT 1 / 0").collect()
    assert "DIVIDE_BY_ZERO" in str(caught.value.__cause__)


def test_passwords_show_nowhere(
    spark: SparkSession, table: str, options: MakeOptions, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "hunter2hunter2"
    given = options(table, "t", username="u", password=secret)
    df = spark.read.format("scylla-cdc").options(**given).load()
    assert df.count() == 1
    df.explain(extended=True)
    assert secret not in "".join(capfd.readouterr())
    assert secret not in told(spark, given | {"table": "typo"})
    assert secret not in told(spark, given | {"startingPosition": "yesterday"})


def test_sql_and_a_registered_source(spark: SparkSession, table: str, options: MakeOptions) -> None:
    register(spark)
    named = ", ".join(f"{name} '{value}'" for name, value in options(table, "t").items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING `scylla-cdc` OPTIONS ({named})")
    assert [tuple(r) for r in spark.sql("SELECT id, cdc_values.v, cdc_operation FROM orders").collect()] == [
        (1, 1, "insert")
    ]
    # The catalog of Delta Lake reads no tables of sources in Python.
    if "delta" not in spark.conf.get("spark.sql.catalog.spark_catalog", "builtin"):
        spark.sql(f"CREATE TABLE orders_{table} USING `scylla-cdc` OPTIONS ({named})")
        for _ in range(2):
            assert [tuple(r) for r in spark.sql(f"SELECT id, cdc_operation FROM orders_{table}").collect()] == [
                (1, "insert")
            ]
        spark.sql(f"DROP TABLE orders_{table}")
    load = options(table, "t")
    df = (
        spark.read.format("scylla-cdc")
        .options(**{n: v for n, v in load.items() if n not in ("keyspace", "table")})
        .load(f"{table}.t")
    )
    assert df.where("cdc_operation = 'insert'").count() == 1
