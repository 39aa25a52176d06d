"""``df.write.format("scylla-cdc")``: rows become INSERTs, changes are applied, and what does not fit is said before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import spark_history as h
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from spark_history import passed

import rscylla
from rscylla.spark import spark_errors
from rscylla.spark.session.session import close_sessions
from rscylla.spark.source.source import ScyllaCdcDataSource
from rscylla.types import parse_type
from rscylla.types.arrow import arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning")

TABLE = """CREATE TABLE {}.rows (pk int, ck text, n bigint, d decimal, v varint, at timestamp, day date, t time,
    l list<int>, st set<text>, m map<text, timestamp>, u frozen<tuple<int, text>>, dur duration, s int static,
    PRIMARY KEY (pk, ck)) WITH cdc = {{'enabled': true}}"""


@pytest.fixture(autouse=True)
def no_sessions() -> Iterator[None]:
    yield
    close_sessions()


def sink(options: Callable[..., dict[str, str]], keyspace: str, table: str) -> dict[str, str]:
    found = options(keyspace, table)
    return {n: found[n] for n in ("contactPoints", "keyspace", "table", "consistency")}


def test_rows_are_inserted_and_read_back(
    spark: SparkSession, session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    session.execute(TABLE.format(vnodes))
    made = """SELECT cast(id % 3 AS int) AS pk, cast(id AS string) AS ck, id AS n, cast(id / 7 AS string) AS d,
        '123456789012345678901234567890' AS v, timestamp_millis(id * 1001) AS at, date '2026-11-21' AS day, id AS t,
        array(cast(id AS int)) AS l, array('b', 'a') AS st, map('k', timestamp_millis(id)) AS m,
        struct(cast(id AS int) AS _1, 'x' AS _2) AS u,
        struct(1 AS months, 2 AS days, id AS nanoseconds) AS dur FROM range(40)"""
    rows = spark.sql(made).repartition(3)
    for _ in range(2):  # again changes nothing
        rows.write.format("scylla-cdc").options(**sink(options, vnodes, "rows")).mode("append").save()
    changes = spark.read.format("scylla-cdc").options(**options(vnodes, "rows")).load()
    want = spark.sql(made).collect()
    assert changes.count() == 2 * len(want)
    found = rscylla.spark.latest(changes).select(*want[0].asDict()).collect()
    plain = [sorted(({**r.asDict(True), "st": sorted(r["st"])} for r in of), key=repr) for of in (found, want)]
    assert plain[0] == plain[1]


def test_a_narrower_integer_fits_and_a_null_deletes(
    spark: SparkSession, session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (k bigint PRIMARY KEY, a int, b text)")
    session.execute(f"INSERT INTO {vnodes}.t (k, a, b) VALUES (1, 1, 'kept')")
    writer = spark.sql("SELECT 1 AS k, cast(NULL AS int) AS a").write.format("scylla-cdc")
    writer.options(**sink(options, vnodes, "t")).mode("append").save()
    assert [tuple(r) for r in session.execute(f"SELECT * FROM {vnodes}.t")] == [(1, None, "kept")]
    writer = spark.sql("SELECT 2 AS k, 3000000000 AS a").write.format("scylla-cdc")
    with pytest.raises(rscylla.errors.CannotReplicate, match="value of 'a' that does not fit"), spark_errors():
        writer.options(**sink(options, vnodes, "t")).mode("append").save()


def test_changes_are_applied_with_their_write_times(
    spark: SparkSession, session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    for name in ("a", "b"):
        session.execute(f"CREATE TABLE {vnodes}.{name} (k int PRIMARY KEY, v int, m map<int, int>) "
                        "WITH cdc = {'enabled': true}")  # fmt: skip
    start = rscylla.SystemClock().now_us() - 1_000_000
    for n, cql in enumerate(
        (
            "INSERT INTO {} (k, v, m) VALUES (1, 1, {{1: 1}})",
            "UPDATE {} SET m[2] = 2 WHERE k = 1",
            "DELETE FROM {} WHERE k = 2",
        )
    ):
        text = cql.format(f"{vnodes}.a").replace(" SET", f" USING TIMESTAMP {start + n} SET")
        session.execute(text)
    passed(rscylla.SystemClock().now_us())
    changes = spark.read.format("scylla-cdc").options(**options(vnodes, "a")).load()
    changes.write.format("scylla-cdc").options(**sink(options, vnodes, "b")).mode("append").save()
    times = "SELECT k, v, m, writetime(v) FROM {}"
    assert list(session.execute(times.format(f"{vnodes}.b"))) == list(session.execute(times.format(f"{vnodes}.a")))
    assert h.rows_of(session, vnodes, "b")


def test_sql_writes_to_a_view_and_is_answered_for_a_table_of_the_catalog(
    spark: SparkSession, session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    """Spark passes the options of a view to the source, and none of a table that it knows."""
    session.execute(f"CREATE TABLE {vnodes}.t (k int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    session.execute(f"INSERT INTO {vnodes}.t (k, v) VALUES (1, 1)")
    passed(rscylla.SystemClock().now_us())
    named = ", ".join(f"{name} '{value}'" for name, value in options(vnodes, "t").items())
    view, table = f"view_{vnodes}", f"table_{vnodes}"
    spark.sql(f"CREATE TEMPORARY VIEW {view} USING `scylla-cdc` OPTIONS ({named})")
    spark.sql(f"CREATE TABLE {table} USING `scylla-cdc` OPTIONS ({named})")
    try:
        spark.sql(f"INSERT INTO {view} SELECT * FROM {view}")
        assert [tuple(row) for row in session.execute(f"SELECT k, v FROM {vnodes}.t")] == [(1, 1)]
        for statement in (
            f"INSERT INTO {table} SELECT * FROM {table}",
            f"CREATE TABLE {table}_as USING `scylla-cdc` OPTIONS ({named}) AS SELECT 1 AS k, 1 AS v",
        ):
            with pytest.raises(rscylla.ConfigError, match="passes no options to INSERT INTO or"), spark_errors():
                spark.sql(statement)
    finally:
        spark.sql(f"DROP VIEW {view}")
        spark.sql(f"DROP TABLE {table}")
        spark.sql(f"DROP TABLE IF EXISTS {table}_as")


# ---------------------------------------------------------------- without Java


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"k": "integer", "a": "integer", "typo": "integer"}, r"has no column 'typo'; known columns are k, a"),
        ({"a": "integer"}, r"lacks the key column 'k' of"),
        ({"k": "integer", "a": "string"}, r"'a' is string in the DataFrame, but .*\(int\) takes int; cast it"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_written(
    session: Any, options: Callable[..., dict[str, str]], vnodes: str, schema: dict[str, str], message: str
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (k int PRIMARY KEY, a int)")
    with pytest.raises(rscylla.ConfigError, match=message):
        source_of(sink(options, vnodes, "t")).writer(struct(schema), overwrite=False)


def test_a_row_without_its_key_is_refused(session: Any, options: Callable[..., dict[str, str]], vnodes: str) -> None:
    import pyarrow as pa

    session.execute(f"CREATE TABLE {vnodes}.t (k int PRIMARY KEY, a int)")
    writer = source_of(sink(options, vnodes, "t")).writer(struct({"k": "integer", "a": "integer"}), overwrite=False)
    batch = pa.RecordBatch.from_pydict(
        {"k": [None], "a": [1]}, schema=pa.schema([("k", pa.int32()), ("a", pa.int32())])
    )
    with pytest.raises(rscylla.errors.CannotReplicate, match="no value in the key column 'k'"):
        writer.write(iter([batch]))


@pytest.mark.parametrize(
    ("cql", "value", "hint"),
    [
        ("list<int>", [1, None], r", such as by array_compact\(a\)"),
        ("set<int>", [None], r", such as by array_compact\(a\)"),
        ("map<text, int>", [("x", None)], ""),
        ("frozen<list<int>>", [None, 1], r", such as by array_compact\(a\)"),
        ("list<frozen<list<int>>>", [[1, None]], ""),
        ("frozen<map<text, frozen<list<int>>>>", [("x", [1, None])], ""),
        ("tuple<int, frozen<list<int>>>", {"_1": None, "_2": [None]}, ""),
    ],
)
def test_a_null_inside_a_collection_is_refused_and_not_lost(
    session: Any, options: Callable[..., dict[str, str]], vnodes: str, cql: str, value: Any, hint: str
) -> None:
    import pyarrow as pa

    session.execute(f"CREATE TABLE {vnodes}.t (k int PRIMARY KEY, a {cql})")
    schema = pa.schema([("k", pa.int32()), ("a", arrow_type(parse_type(cql)))])
    writer = source_of(sink(options, vnodes, "t")).writer(from_arrow_schema(schema), overwrite=False)
    row = {"k": 1, "a": value}
    told = f"a null inside a collection of the column 'a', where CQL has none; remove it{hint}$"
    with pytest.raises(rscylla.errors.CannotReplicate, match=told):
        writer.write(iter([pa.RecordBatch.from_pylist([row], schema)]))
    assert list(session.execute(f"SELECT * FROM {vnodes}.t")) == []


def test_an_attempt_that_writes_again_or_late_changes_nothing(
    session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    """Spark may repeat a task, and an attempt that it gave up may write after the job has ended."""
    import pyarrow as pa

    session.execute(f"CREATE TABLE {vnodes}.t (k int PRIMARY KEY, a int, l list<int>, m map<text, int>)")
    schema = pa.schema(
        [("k", pa.int32()), ("a", pa.int32()), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32()))]
    )
    rows = [{"k": k, "a": 1, "l": [3, 1, 3], "m": [("x", 1)]} for k in range(2)]
    batch = pa.RecordBatch.from_pylist(rows, schema)
    writer = source_of(sink(options, vnodes, "t")).writer(from_arrow_schema(schema), overwrite=False)
    again = cloudpickle.loads(cloudpickle.dumps(writer))  # as each task gets it
    written = f"SELECT k, a, l, m, writetime(a) FROM {vnodes}.t"
    writer.write(iter([batch]))
    first = sorted(session.execute(written))
    assert [(r.k, r.a, r.l, dict(r.m)) for r in first] == [(k, 1, [3, 1, 3], {"x": 1}) for k in range(2)]
    again.write(iter([batch]))
    assert sorted(session.execute(written)) == first
    session.execute(f"UPDATE {vnodes}.t SET a = 2, l = [5], m['x'] = 2 WHERE k = 1")
    again.write(iter([batch]))
    found = {r.k: (r.a, r.l, dict(r.m)) for r in session.execute(written)}
    assert found == {0: (1, [3, 1, 3], {"x": 1}), 1: (2, [5], {"x": 2})}
    next_job = source_of(sink(options, vnodes, "t")).writer(from_arrow_schema(schema), overwrite=False)
    next_job.write(iter([batch]))
    assert session.execute(f"SELECT a, l FROM {vnodes}.t WHERE k = 1").one() == (1, [3, 1, 3])


def test_a_time_in_a_key_has_milliseconds(session: Any, options: Callable[..., dict[str, str]], vnodes: str) -> None:
    import pyarrow as pa

    session.execute(f"CREATE TABLE {vnodes}.t (k timestamp PRIMARY KEY, a timestamp)")
    schema = pa.schema([("k", pa.timestamp("us", "UTC")), ("a", pa.timestamp("us", "UTC"))])
    writer = source_of(sink(options, vnodes, "t")).writer(from_arrow_schema(schema), overwrite=False)
    writer.write(iter([pa.RecordBatch.from_pydict({"k": [5_000], "a": [7_001]}, schema)]))
    with pytest.raises(rscylla.errors.CannotReplicate, match=r"microseconds in the key column 'k'.*date_trunc"):
        writer.write(iter([pa.RecordBatch.from_pydict({"k": [5_001], "a": [7_000]}, schema)]))
    assert [(r.k.microsecond, r.a.microsecond) for r in session.execute(f"SELECT * FROM {vnodes}.t")] == [
        (5_000, 7_000)
    ]


def test_varints_and_decimals_may_be_decimals_of_any_digits(
    session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    import pyarrow as pa

    session.execute(
        f"CREATE TABLE {vnodes}.t (k decimal PRIMARY KEY, v varint, l list<decimal>, "
        "m map<text, frozen<tuple<varint, decimal>>>)"
    )
    schema = pa.schema(
        [
            ("k", pa.decimal128(9, 2)),
            ("v", pa.decimal128(38, 0)),
            ("l", pa.list_(pa.decimal128(5, 1))),
            ("m", pa.map_(pa.string(), pa.struct([("_1", pa.decimal128(4, 0)), ("_2", pa.decimal128(4, 2))]))),
        ]
    )
    row = {
        "k": Decimal("1.50"),
        "v": 10**38 - 1,
        "l": [Decimal("-0.5")],
        "m": [("a", {"_1": -7, "_2": Decimal("0.25")})],
    }
    source = source_of(sink(options, vnodes, "t"))
    writer = source.writer(from_arrow_schema(schema), overwrite=False)
    writer.write(iter([pa.RecordBatch.from_pylist([row], schema)]))
    (found,) = session.execute(f"SELECT * FROM {vnodes}.t")
    assert (str(found.k), found.v, found.l) == ("1.50", 10**38 - 1, [Decimal("-0.5")])
    assert dict(found.m) == {"a": (-7, Decimal("0.25"))}
    for wrong in (("v", pa.decimal128(9, 2)), ("m", pa.map_(pa.string(), pa.decimal128(9, 2)))):
        with pytest.raises(rscylla.ConfigError, match=f"'{wrong[0]}' is .*; cast it"):
            source.writer(from_arrow_schema(pa.schema([schema.field("k"), wrong])), overwrite=False)


def test_other_ways_of_writing_are_answered(options: Callable[..., dict[str, str]]) -> None:
    source = source_of(sink(options, "shop", "orders"))
    with pytest.raises(rscylla.ConfigError, match=r"does not overwrite.*mode\('append'\)"):
        source.writer(StructType(), overwrite=True)
    with pytest.raises(rscylla.ConfigError, match=r"no writeStream; use writeStream.foreachBatch"):
        source.streamWriter(StructType(), overwrite=False)
    with pytest.raises(rscylla.ConfigError, match="writes all that it gets, so it has no option 'columns'"):
        source_of({**sink(options, "shop", "orders"), "columns": "id"}).writer(StructType(), overwrite=False)
    with pytest.raises(rscylla.ConfigError, match=r"no options to INSERT INTO or CREATE TABLE AS; use df\.write"):
        source_of({}).writer(StructType(), overwrite=False)
    with pytest.raises(rscylla.TableNotFound, match="create it first"):
        source_of(sink(options, "system", "none")).writer(struct({"k": "integer"}), overwrite=False)


def test_the_options_of_reading_a_table_are_those_of_writing_it(
    session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    import pyarrow as pa

    session.execute(f"CREATE TABLE {vnodes}.t (k int PRIMARY KEY, a int) WITH cdc = {{'enabled': true}}")
    shared = {**options(vnodes, "t"), "pageSize": "100", "maxRowsPerTrigger": "10", "failOnDataLoss": "false"}
    source_of(shared).schema()
    schema = pa.schema([("k", pa.int32()), ("a", pa.int32())])
    writer = source_of(shared).writer(from_arrow_schema(schema), overwrite=False)
    writer.write(iter([pa.RecordBatch.from_pydict({"k": [1], "a": [2]}, schema)]))
    assert [tuple(row) for row in session.execute(f"SELECT k, a FROM {vnodes}.t")] == [(1, 2)]


def test_what_a_number_may_be_is_said_with_its_decimals(
    session: Any, options: Callable[..., dict[str, str]], vnodes: str
) -> None:
    session.execute(
        f"CREATE TABLE {vnodes}.t (k int PRIMARY KEY, d decimal, v varint, l list<decimal>, "
        "m map<text, frozen<tuple<varint, int>>>)"
    )
    source = source_of(sink(options, vnodes, "t"))
    for name, taken in {
        "d": "(decimal) takes string or decimal(p,s); cast it",
        "v": "(varint) takes string or decimal(p,0); cast it",
        "l": "(list<decimal>) takes array<string or decimal(p,s)>; cast it",
        "m": "takes map<string,struct<_1:string or decimal(p,0),_2:int>>; cast it",
    }.items():
        with pytest.raises(rscylla.ConfigError, match=re.escape(taken)):
            source.writer(struct({"k": "integer", name: "double"}), overwrite=False)


def source_of(options: dict[str, str]) -> ScyllaCdcDataSource:
    return ScyllaCdcDataSource(CaseInsensitiveDict(options))


def struct(types: dict[str, str]) -> StructType:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types.items()]
    return StructType.fromJson({"type": "struct", "fields": fields})
