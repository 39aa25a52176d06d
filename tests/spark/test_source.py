"""The data source shows what the library's stream delivers, row by row, in each of its modes."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyspark.sql.functions as F
import pytest
from histories import DELTAS, IMAGES, create, statements
from spark_oracle import ChangeOracle, events_of, log_types, plain, shown, sorted_parts

import rscylla
from rscylla._timeuuid import ticks_to_us, us_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

pytestmark = pytest.mark.every_pyspark

MakeOptions = Callable[..., dict[str, str]]


def load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("scylla-cdc").options(**options).load()


def rows_of(df: DataFrame) -> list[dict[str, Any]]:
    return df.toArrow().to_pylist()  # type: ignore[no-any-return]


def write(session: rscylla.Session, keyspace: str, table: str, *, seed: int, count: int, cdc: str) -> None:
    create(session.execute, keyspace, table, cdc)
    for statement in statements(seed, f"{keyspace}.{table}", count):
        session.execute(statement)


@pytest.mark.parametrize(("seed", "cdc"), [(1, DELTAS), (2, IMAGES)], ids=["deltas", "images"])
def test_changes_are_those_of_the_stream(
    spark: SparkSession, session: rscylla.Session, keyspace: str, options: MakeOptions, seed: int, cdc: str
) -> None:
    write(session, keyspace, "t", seed=seed, count=400, cdc=cdc)
    oracle = ChangeOracle(log_types(session, keyspace, "t"), ("pk", "pt", "ck", "cu"), ("l", "lt"))
    expected = [oracle.expected(e) for e in events_of(rscylla.NewStream(session, keyspace, "t"))]
    found = sorted(rows_of(load(spark, options(keyspace, "t"))), key=lambda row: row["cdc_sequence"])
    assert [list(row) for row in found[:1]] == [list(row) for row in expected[:1]]
    assert len({row["cdc_operation"] for row in expected}) >= 6
    assert len(found) == len(expected)
    for seen, wanted in zip(found, expected, strict=True):
        assert shown(oracle.seen(seen)) == shown(wanted)


def test_events_are_those_of_the_stream(
    spark: SparkSession, session: rscylla.Session, keyspace: str, options: MakeOptions
) -> None:
    write(session, keyspace, "t", seed=3, count=200, cdc=IMAGES)
    expected = [
        {
            "id": e.id,
            "type": e.type.name.lower(),
            "foreign_id": e.foreign_id,
            "timestamp": e.timestamp,
            "metadata": e.metadata.decode(),
        }
        for e in events_of(rscylla.NewStream(session, keyspace, "t"))
    ]
    found = rows_of(load(spark, options(keyspace, "t", mode="events")))
    assert sorted(found, key=lambda row: row["id"]) == sorted(expected, key=lambda row: row["id"])


def test_the_log_is_what_the_driver_reads(
    spark: SparkSession, session: rscylla.Session, keyspace: str, options: MakeOptions
) -> None:
    write(session, keyspace, "t", seed=4, count=200, cdc=IMAGES)
    types = log_types(session, keyspace, "t")
    expected = {}
    for row in session.execute(f"SELECT * FROM {keyspace}.t_scylla_cdc_log"):
        values = {n: plain(v, t) for v, (n, t) in zip(row, types.items(), strict=True)}
        named = {n.replace("cdc$", "cdc_", 1): v for n, v in values.items()}
        expected[named["cdc_stream_id"], named["cdc_time"], named["cdc_batch_seq_no"]] = named
    found = rows_of(load(spark, options(keyspace, "t", mode="log")))
    assert len(found) == len(expected) > 200
    for row in found:
        timestamp = row.pop("cdc_timestamp")
        of = dict(zip(row, types.values(), strict=True))
        seen = {n: sorted_parts(v, of[n]) for n, v in row.items()}
        key = (row["cdc_stream_id"], row["cdc_time"], row["cdc_batch_seq_no"])
        assert shown(seen) == shown(expected[key])
        assert us_of(timestamp) == ticks_to_us(UUID(row["cdc_time"]).time)


def test_one_frame_answers_every_query_whatever_was_asked_of_it_before(
    spark: SparkSession, session: rscylla.Session, vnodes: str, options: MakeOptions, request: pytest.FixtureRequest
) -> None:
    """With Spark's own filter pushdown switched on, which other sources may want."""
    pushdown = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(pushdown, "true")
    request.addfinalizer(lambda: spark.conf.unset(pushdown))
    session.execute(
        f"CREATE TABLE {vnodes}.t (type text, timestamp timestamp, v int, PRIMARY KEY (type, timestamp)) "
        "WITH cdc = {'enabled': true}"
    )
    dice = random.Random(9)
    for i in range(30):
        key = f"'{dice.choice(['insert', 'update', 'x'])}', {dice.randrange(4) * 86_400_000}"
        session.execute(f"INSERT INTO {vnodes}.t (type, timestamp, v) VALUES ({key}, {i})")
        if dice.random() < 0.3:
            session.execute(f"DELETE FROM {vnodes}.t WHERE type = 'x' AND timestamp = {dice.randrange(4) * 86_400_000}")
    frame = load(spark, options(vnodes, "t"))
    rows = frame.collect()
    times = sorted({row["cdc_timestamp"] for row in rows})
    choices: list[tuple[str, Callable[[], Any]]] = [
        ("cdc_timestamp", lambda: dice.choice(times)),
        ("timestamp", lambda: datetime(1970, 1, dice.randint(1, 4))),
        ("type", lambda: dice.choice(["insert", "update", "x"])),
        ("cdc_operation", lambda: dice.choice(["insert", "row_delete", "update"])),
        ("cdc_stream_id", lambda: bytes(dice.choice(rows)["cdc_stream_id"])),
    ]
    compare = {"=": operator.eq, "<": operator.lt, ">=": operator.ge}

    def picked() -> tuple[Column, list[Row]]:
        """Return a filter, and the rows that it leaves."""
        name, value = dice.choice(choices)
        wanted, sign = value(), dice.choice([*compare])
        left = [row for row in rows if compare[sign](row[name], wanted)]
        column = F.col(name)
        return {"=": column == F.lit(wanted), "<": column < F.lit(wanted), ">=": column >= F.lit(wanted)}[sign], left

    def sequences(found: Iterable[Row]) -> list[bytes]:
        return sorted(bytes(row["cdc_sequence"]) for row in found)

    for _ in range(8):
        one, left = picked()
        assert sequences(frame.where(one).collect()) == sequences(left)
        assert frame.count() == len(rows)
        other, right = picked()
        assert sequences(frame.where(one).union(frame.where(other)).collect()) == sequences([*left, *right])
        both = frame.where(one).alias("a").join(frame.where(other).alias("b"), "cdc_sequence").select("cdc_sequence")
        assert sequences(both.collect()) == sorted(set(sequences(left)) & set(sequences(right)))
