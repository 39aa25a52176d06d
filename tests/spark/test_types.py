"""Values of every CQL type, in every place, through every operation of the pipeline, held against the base tables."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import spark_history as h
import spark_types
from pyspark.sql import functions as F
from spark_formats import TableFormat
from spark_oracle import plain, sorted_parts

import rscylla
from rscylla import spark as rs
from rscylla.driver.session import ReadSession
from rscylla.replicate import verify
from rscylla.spark.pipeline.cells import cells_of, without
from rscylla.spark.pipeline.latest import second_of
from rscylla.spark.pipeline.merging import has_lost, merge_source, same_key
from rscylla.spark.pipeline.tables import shape_json, shape_of
from rscylla.spark.source.shape import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning"),
    pytest.mark.filterwarnings("ignore:The iteration API:UserWarning"),
    pytest.mark.usefixtures("not_compiled"),
]

CONNECTION = ("contactPoints", "consistency")
NETWORK = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
NO_LAG = rscylla.StreamLag(milliseconds=0)

Options = Callable[..., dict[str, str]]


class Compared:
    """A base table, its types, and frames of it in a form in which they can be compared."""

    def __init__(self, session: Any, keyspace: str, table: str) -> None:
        self.session = session
        self.name = f"{keyspace}.{table}"
        statement = ReadSession(session, consistency=1).prepare(
            f"SELECT * FROM {self.name}", page_size=10, doing="a test"
        )
        self.types = {c.name: c.type for c in statement.columns}

    def base(self) -> list[str]:
        found = self.session.execute(f"SELECT * FROM {self.name}")
        names = found.column_names
        return self._sorted(dict(zip(names, row, strict=True)) for row in found)

    def _sorted(self, rows: Any) -> list[str]:
        return sorted(repr({n: plain(row[n], t) for n, t in sorted(self.types.items())}) for row in rows)

    def shown(self, frame: DataFrame) -> list[str]:
        """Return the rows of a frame; as text, in which 0.0 and -0.0 differ."""
        rows = frame.toArrow().to_pylist()
        found = (repr({n: sorted_parts(row[n], t) for n, t in sorted(self.types.items())}) for row in rows)
        return sorted(row.replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") for row in found)

    def without(self, *names: str) -> Compared:
        for name in names:
            del self.types[name]
        return self


def load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("scylla-cdc").options(**options).load()


@pytest.fixture(scope="module")
def written(session: Any) -> Iterator[tuple[str, int, int]]:
    """The tables of all types; the keyspace, and when the writes began and ended."""
    keyspace, tables = "spark_types", dict.fromkeys((*spark_types.TABLES, *spark_types.OF_FORMATS))
    for name in (keyspace, f"{keyspace}_copy"):
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {NETWORK}")
        spark_types.create(session, name, tables, cdc=name == keyspace)
    start = rscylla.SystemClock().now_us()
    statements = list(spark_types.writes(keyspace, start, tables))
    for cql in statements:
        session.execute(cql)
    end = start + 1_000 * (len(statements) + 1)
    h.passed(end)
    yield keyspace, start, end
    for name in (keyspace, f"{keyspace}_copy"):
        session.execute(f"DROP KEYSPACE {name}")


def test_every_type_is_written_in_every_place_of_the_tables_that_share_them() -> None:
    """Each place of each type is in one of the tables, and all that can be done to it is done there."""
    edits: Counter[tuple[str, str, int]] = Counter()
    tables: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    for cql in spark_types.writes("ks", 0, spark_types.TABLES):
        if update := re.match(r"UPDATE ks\.([fl]\d) .* SET (.*) WHERE", cql):
            table, columns = update[1], re.findall(r"(?:^|, )([a-g])(\d+) = ", update[2])
        elif insert := re.match(r"INSERT INTO ks\.(f\d) \((.*?)\)", cql):
            table, columns = insert[1], re.findall(r"([a-g])(\d+)", insert[2])
        else:
            continue
        for form, i in columns:
            edits[table[0], form, int(i)] += 1
            tables[table[0], form, int(i)].add(table)
    types = list(enumerate(spark_types.VALUES))
    keys = [i for i, t in types if t in spark_types.KEYS]
    want = {("f", form, i): 3 + (form == "a" and i % 3 == 0) for form in "abc" for i, _ in types}
    want |= {("f", form, i): 3 for form in "de" for i in keys}
    want |= {("l", form, i): 4 for form in "ab" for i, _ in types} | {("l", "d", i): 4 for i in keys}
    want |= {("l", "e", i): 4 for i, t in types if t in spark_types.MAPPED} | {("l", "g", i): 2 for i in keys}
    assert edits == want
    assert edits.total() == 387 + 444
    assert [len(found) for found in tables.values()] == [1] * len(want)
    assert {t for found in tables.values() for t in found} == {*spark_types.FROZEN, *spark_types.LIVE}


@pytest.mark.parametrize("table", spark_types.TABLES)
def test_each_operation_gives_the_base_table(
    spark: SparkSession, session: Any, options: Options, written: tuple[str, int, int], tmp_path: Path, table: str
) -> None:
    keyspace, _, end = written
    changes = load(spark, options(keyspace, table)).cache()
    compared = Compared(session, keyspace, table)
    want = compared.base()
    assert want

    assert compared.shown(rs.latest(changes)) == want
    shape = Shape.of(changes)
    no_row = f"'{shape.clustering[0].name}': None" if shape.clustering else "none such"
    with_rows = [row for row in want if no_row not in row]
    assert compared.shown(rs.history(changes).where("is_current")) == with_rows

    kept = rs.ParquetTable(spark, str(tmp_path / table))
    at_us, time_us = middle_of(changes), F.unix_micros("cdc_timestamp")
    assert kept.apply(changes.where(time_us < at_us), h.window(0, 0, at_us))
    assert kept.apply(changes.where(time_us >= at_us), h.window(0, at_us, end))
    assert compared.shown(kept.rows()) == want

    empty = kept.cells().limit(0)
    merged = merge_source(empty, cells_of(changes, shape), shape, second_of(None)).where("cdc_live")
    assert compared.shown(merged) == want

    source = options(keyspace, table)
    target = {n: source[n] for n in CONNECTION} | {"keyspace": f"{keyspace}_copy", "table": table}
    assert rs.ScyllaTable(target).write(changes) == changes.count()
    verdict = verify(session, session, keyspace, table, f"{keyspace}_copy", lag=timedelta(), ranges=2)
    assert verdict.same, [(d.kind, d.columns) for d in verdict.differences]
    changes.unpersist()


@pytest.mark.parametrize("table", spark_types.OF_FORMATS)
def test_a_table_with_merge_is_the_base_table(
    spark: SparkSession,
    session: Any,
    options: Options,
    written: tuple[str, int, int],
    table_format: TableFormat,
    table: str,
) -> None:
    keyspace, _, end = written
    changes = load(spark, options(keyspace, table)).cache()
    compared = Compared(session, keyspace, table)
    kept = rs.MergeTable(spark, table_format.table(), using=table_format.name)
    at_us = middle_of(changes)
    time_us = F.unix_micros("cdc_timestamp")
    assert kept.apply(changes.where(time_us < at_us), h.window(0, 0, at_us))
    assert kept.apply(changes.where(time_us >= at_us), h.window(0, at_us, end))
    assert compared.shown(kept.rows()) == compared.base()
    changes.unpersist()


def middle_of(changes: DataFrame) -> int:
    """Return the write time of the change in the middle."""
    times = sorted(row["us"] for row in changes.select(F.unix_micros("cdc_timestamp").alias("us")).collect())
    return int(times[len(times) // 2])


@pytest.mark.parametrize("table", [t for t in spark_types.TABLES if t != "r"])
def test_a_snapshot_of_all_types_is_the_base_table(
    spark: SparkSession, session: Any, options: Options, written: tuple[str, int, int], table: str
) -> None:
    keyspace, *_ = written
    compared = Compared(session, keyspace, table)
    stream = rscylla.NewStream(session, keyspace, table, consistency="ONE")
    read = {"consistency": "ONE"}
    assert compared.shown(rs.snapshot(spark, stream, NO_LAG, read=read, ranges=2).rows) == compared.base()
    lists = [n for n in compared.types if (table[0] in "lu" and n.startswith("a")) or (table, n) == ("u", "l")]
    names = [n for n in compared.without(*lists).types if n not in ("pk", "ck")]
    part = rs.snapshot(spark, stream, NO_LAG, read=read, ranges=2, columns=names)
    changes = load(spark, options(keyspace, table))
    assert compared.shown(rs.latest(changes, base=part.cells)) == compared.base()


# ---------------------------------------------------------------- what Spark takes for other than it is


def filled(session: Any, keyspace: str, create: str, *statements: str) -> Compared:
    """Make the table t, fill it, each statement a millisecond after the one before, and wait until all is past."""
    session.execute(f"CREATE TABLE {keyspace}.t {create} cdc = {{'enabled': true}}")
    more(session, keyspace, *statements)
    return Compared(session, keyspace, "t")


def more(session: Any, keyspace: str, *statements: str) -> int:
    at = rscylla.SystemClock().now_us()
    for cql in statements:
        at += 1_000
        session.execute(cql.replace(" t ", f" {keyspace}.t ").replace("?", f"USING TIMESTAMP {at}"))
    h.passed(at)
    return at


def test_zero_and_minus_zero_are_two_keys(
    spark: SparkSession, session: Any, options: Options, vnodes: str, tmp_path: Path
) -> None:
    compared = filled(
        session,
        vnodes,
        "(pk double, ck double, s int static, v int, st set<double>, m map<float, double>, PRIMARY KEY (pk, ck)) WITH",
        *(
            f"INSERT INTO t (pk, ck, s, v, st, m) VALUES ({pk}, {ck}, {n}, {n}, {{-0.0, {n + 1}}}, {{1.5: {n}}}) ?"
            for n, (pk, ck) in enumerate((pk, ck) for pk in ("0.0", "-0.0") for ck in ("0.0", "-0.0", "1.0"))
        ),
        "UPDATE t ? SET st = st - {0.0}, m = m + {1.0: -0.0} WHERE pk = 0.0 AND ck = -0.0",
        "DELETE FROM t ? WHERE pk = -0.0 AND ck > -0.0 AND ck <= 0.0",
    )
    want = compared.base()
    assert len(want) == 5
    changes = load(spark, options(vnodes, "t")).cache()
    assert compared.shown(rs.latest(changes)) == want
    assert compared.shown(rs.history(changes).where("is_current")) == want
    shape = Shape.of(changes)
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    snapshot = rs.snapshot(spark, stream, NO_LAG, read={"consistency": "ONE"}, ranges=1)
    merged = merge_source(snapshot.cells, cells_of(changes, shape), shape, second_of(None)).where("cdc_live")
    assert compared.shown(merged) == want
    pairs = merged.alias("given").join(merged.alias("there"), same_key(shape, "given", "there"))
    assert pairs.count() == len(want), "a row of MERGE is that of one row of the table"
    changes.unpersist()


def test_a_map_that_spark_cannot_hold_shows_one_of_two_zeros(
    spark: SparkSession, session: Any, options: Options, vnodes: str
) -> None:
    filled(
        session,
        vnodes,
        "(id int PRIMARY KEY, m map<double, int>) WITH",
        "UPDATE t ? SET m = {-0.0: 1, 0.0: 2, 3.0: 4} WHERE id = 1",
        "UPDATE t ? SET m = {-0.0: 5} WHERE id = 2",
    )
    rows = rs.latest(load(spark, options(vnodes, "t"))).orderBy("id").collect()
    assert [row["m"] for row in rows] == [{0.0: 2, 3.0: 4}, {0.0: 5}]


def test_maps_whose_keys_contain_both_zeros_are_read(
    spark: SparkSession, session: Any, options: Options, vnodes: str
) -> None:
    """Keys that are equal for Spark need not follow each other in the order of the database."""
    filled(
        session,
        vnodes,
        "(id int PRIMARY KEY, m map<frozen<list<float>>, int>, n map<frozen<tuple<int, frozen<set<double>>>>, int>) "
        "WITH",
        "UPDATE t ? SET m = {[0.0, 1]: 1, [-0.0, 2]: 2, [0.0, 2]: 3, [5]: 4}, n = {(1, {0.0}): 1} WHERE id = 1",
        "UPDATE t ? SET n = n + {(1, {-0.0}): 2, (2, {0.0}): 3} WHERE id = 1",
    )
    changes = load(spark, options(vnodes, "t"))
    for read in (rs.latest(changes), rs.history(changes).where("is_current")):
        (row,) = read.selectExpr("map_entries(m) AS m", "map_entries(n) AS n").collect()
        assert sorted((tuple(e["key"]), e["value"]) for e in row["m"]) == [
            ((0.0, 1.0), 1),
            ((0.0, 2.0), 3),
            ((5.0,), 4),
        ]
        assert sorted((e["key"][0], tuple(e["key"][1])) for e in row["n"]) == [(1, (0.0,)), (2, (0.0,))]


def test_numbers_that_are_decimals_of_spark_go_through_each_operation(
    spark: SparkSession, session: Any, options: Options, vnodes: str, tmp_path: Path
) -> None:
    """Clustering keys among them, which then sort as in CQL: deletes of their ranges apply."""
    columns = (
        "(pk decimal, ck varint, cd decimal, sd decimal static, d decimal, v varint, l list<decimal>, s set<varint>, "
        "m map<varint, decimal>, PRIMARY KEY (pk, ck, cd))"
    )
    filled(
        session,
        vnodes,
        f"{columns} WITH",
        *(
            f"INSERT INTO t (pk, ck, cd, sd, d, v, l, s, m) VALUES ({pk}, {ck}, {ck}.5, {ck}.25, {ck}.125, {ck}00, "
            f"[{ck}, 0.5], {{{ck}, 2}}, {{{ck}: 1.5}}) ?"
            for pk in ("1.500", "-2.000")
            for ck in (-10, 9, 100)
        ),
        "UPDATE t ? SET s = s - {2}, m = m + {7: 0.001}, l = l + [3] WHERE pk = 1.500 AND ck = 9 AND cd = 9.50",
        "DELETE FROM t ? WHERE pk = -2.000 AND ck >= 9 AND ck < 100",
        "DELETE FROM t ? WHERE pk = 1.500 AND ck = 100 AND cd > 5.5",
    )
    numbers = {"decimalAs": "decimal(38,3)", "varintAs": "decimal(38,0)"}
    want = in_numbers(session.execute(f"SELECT * FROM {vnodes}.t"))
    assert len(want) == 4

    def shown(frame: DataFrame) -> list[str]:
        return in_numbers(frame.collect())

    changes = load(spark, {**options(vnodes, "t"), **numbers}).cache()
    assert shown(rs.latest(changes)) == want
    current = rs.history(changes).where("is_current")
    assert shown(current.select(*rs.latest(changes).columns)) == want
    kept = rs.ParquetTable(spark, str(tmp_path / "t"))
    kept.apply(changes.where("cdc_operation = 'insert'"), h.window(0, 0, 2**51))
    kept.apply(changes.where("cdc_operation <> 'insert'"), h.window(0, 2**51, 2**52))
    assert shown(kept.rows()) == want
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    names = ["sd", "d", "v", "s", "m"]
    snapshot = rs.snapshot(spark, stream, NO_LAG, read={"consistency": "ONE", **numbers}, ranges=1, columns=names)
    rows = [row.asDict() for row in rs.latest(changes, base=snapshot.cells).collect()]
    assert in_numbers(rows, names) == in_numbers(session.execute(f"SELECT * FROM {vnodes}.t"), names)
    shape = Shape.of(changes)
    merged = merge_source(kept.cells().limit(0), cells_of(changes, shape), shape, second_of(None)).where("cdc_live")
    assert shown(merged.select(*rs.latest(changes).columns)) == want
    session.execute(f"CREATE TABLE {vnodes}.rows {columns}")
    source = options(vnodes, "t")
    target = {n: source[n] for n in CONNECTION} | {"keyspace": vnodes, "table": "rows"}
    rs.latest(changes).write.format("scylla-cdc").options(**target).mode("append").save()
    assert in_numbers(session.execute(f"SELECT * FROM {vnodes}.rows")) == want
    changes.unpersist()


def in_numbers(rows: Any, names: Sequence[str] = ("sd", "d", "v", "l", "s", "m")) -> list[str]:
    """Return the rows as text in which equal numbers of any type and scale are the same."""

    def even(value: Any) -> Any:
        if isinstance(value, int | Decimal):
            return str(Decimal(value).normalize())
        if isinstance(value, Mapping):
            return sorted((even(k), even(v)) for k, v in value.items())
        return value if value is None else [even(v) for v in value]

    found = [
        row if isinstance(row, dict) else row.asDict() if hasattr(row, "asDict") else row._asdict() for row in rows
    ]
    sets = {"s": sorted}
    return sorted(repr([sets.get(n, list)(even(row[n]) or ()) for n in ("pk", "ck", "cd", *names)]) for row in found)


def test_columns_may_have_the_names_that_the_pipeline_uses(
    spark: SparkSession, session: Any, options: Options, vnodes: str, tmp_path: Path
) -> None:
    names = (
        "cdc_live",
        "cdc_covered",
        "cdc_marker",
        "cdc_row_deleted",
        "cdc_cell_a",
        "cdc_at",
        "cdc_ranges",
        "CDC_Said",
    )
    columns = ", ".join(f'"{n}" int' for n in names)
    given = ", ".join(f'"{n}"' for n in names)
    compared = filled(
        session,
        vnodes,
        f"(cdc_keep int, cdc_key_0 int, {columns}, a int, m map<int, int>, PRIMARY KEY (cdc_keep, cdc_key_0)) WITH",
        f"INSERT INTO t (cdc_keep, cdc_key_0, {given}, a) VALUES (1, 2, {', '.join('7' * len(names))}, 5) ?",
        "UPDATE t ? SET m = m + {1: 2}, cdc_live = null, cdc_covered = 8 WHERE cdc_keep = 1 AND cdc_key_0 = 3",
        "DELETE FROM t ? WHERE cdc_keep = 1 AND cdc_key_0 = 2",
        f"INSERT INTO t (cdc_keep, cdc_key_0, {given}, a) VALUES (1, 4, {', '.join('6' * len(names))}, 5) ?",
    )
    want = compared.base()
    changes = load(spark, options(vnodes, "t")).cache()
    assert compared.shown(rs.latest(changes)) == want
    assert compared.shown(rs.history(changes).where("is_current")) == want
    table = rs.ParquetTable(spark, str(tmp_path / "t"))
    table.apply(changes, h.window(0, 0, 2**52))
    assert compared.shown(table.rows()) == want
    with pytest.raises(rscylla.ConfigError, match="a column 'cdc_live', which is reserved in a MergeTable"):
        rs.MergeTable(spark, "t", using="delta").apply(changes, h.window(0, 0, 2**52))
    changes.unpersist()


def test_a_column_with_a_name_of_the_log_is_refused(
    spark: SparkSession, session: Any, options: Options, vnodes: str
) -> None:
    filled(session, vnodes, '(id int PRIMARY KEY, "cdc$marker" int) WITH')
    with pytest.raises(rscylla.ConfigError, match=r"column 'cdc\$marker' cannot be merged"):
        rs.latest(load(spark, options(vnodes, "t")))


def test_a_map_with_keys_that_no_map_of_spark_may_have_is_refused(
    spark: SparkSession, session: Any, options: Options, vnodes: str
) -> None:
    filled(session, vnodes, "(id int PRIMARY KEY, m map<frozen<list<frozen<map<int, int>>>>, int>) WITH")
    with pytest.raises(rscylla.ConfigError, match="the map 'm' cannot be merged: its keys contain maps"):
        rs.latest(load(spark, options(vnodes, "t")))


def test_keys_that_are_maps_have_static_columns_and_a_history(
    spark: SparkSession, session: Any, options: Options, vnodes: str
) -> None:
    compared = filled(
        session,
        vnodes,
        "(pk frozen<map<blob, int>>, ck int, s int static, v map<blob, int>, PRIMARY KEY (pk, ck)) WITH",
        "INSERT INTO t (pk, ck, s, v) VALUES ({0x01: 1}, 1, 5, {0xff: 1}) ?",
        "INSERT INTO t (pk, ck, s, v) VALUES ({0x01: 2}, 1, 6, {0xff: 1, 0x01: 2}) ?",
        "UPDATE t ? SET v = v + {0xff: 1} WHERE pk = {0x01: 1} AND ck = 1",
        "UPDATE t ? SET v = v + {0xff: 1} WHERE pk = {0x01: 1} AND ck = 1",
        "UPDATE t ? SET v = v + {0xff: 2} WHERE pk = {0x01: 1} AND ck = 1",
    )
    changes = load(spark, options(vnodes, "t")).cache()
    assert compared.shown(rs.latest(changes)) == compared.base()
    versions = rs.history(changes).collect()
    assert [len(v["v"]) for v in versions if v["s"] == 6] == [2]
    assert sorted(v["is_current"] for v in versions if v["s"] == 5) == [False, True], (
        "what changes nothing is no version"
    )
    changes.unpersist()


def test_a_delete_and_an_insert_of_one_time_leave_no_row(
    spark: SparkSession, session: Any, options: Options, vnodes: str
) -> None:
    compared = filled(session, vnodes, "(pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH")
    at = rscylla.SystemClock().now_us()
    for n, first in enumerate(("INSERT", "DELETE")):
        pairs = [
            f"INSERT INTO {vnodes}.t (pk, ck, v) VALUES (1, {n}, 1) USING TIMESTAMP {at}",
            f"DELETE FROM {vnodes}.t USING TIMESTAMP {at} WHERE pk = 1 AND ck = {n}",
        ]
        for cql in sorted(pairs, key=lambda c: not c.startswith(first)):
            session.execute(cql)
    session.execute(f"INSERT INTO {vnodes}.t (pk, ck) VALUES (1, 2) USING TIMESTAMP {at}")
    session.execute(f"DELETE FROM {vnodes}.t USING TIMESTAMP {at} WHERE pk = 1 AND ck >= 2")
    session.execute(f"INSERT INTO {vnodes}.t (pk, ck) VALUES (1, 1) USING TIMESTAMP {at + 1}")
    h.passed(at + 1)
    assert len(compared.base()) == 1
    assert compared.shown(rs.latest(load(spark, options(vnodes, "t")))) == compared.base()


def test_timestamps_beyond_those_of_spark(
    spark: SparkSession, session: Any, options: Options, vnodes: str, tmp_path: Path
) -> None:
    least, most = -(2**63), 2**63 - 1
    filled(
        session,
        vnodes,
        "(pk int, ck timestamp, v timestamp, PRIMARY KEY (pk, ck)) WITH",
        *(f"INSERT INTO t (pk, ck, v) VALUES ({pk}, {ck}, 1) ?" for pk in range(4) for ck in (-5, 0, 5)),
        f"DELETE FROM t ? WHERE pk = 0 AND ck > {most // 2}",
        f"DELETE FROM t ? WHERE pk = 1 AND ck >= 0 AND ck <= {most}",
        f"DELETE FROM t ? WHERE pk = 2 AND ck >= {least} AND ck < 0",
        f"UPDATE t ? SET v = {most} WHERE pk = 3 AND ck = 0",
        f"UPDATE t ? SET v = {most} WHERE pk = 4 AND ck = 0",
    )
    changes = load(spark, options(vnodes, "t"))
    found = sorted(
        (row["pk"], row["us"], row["v"] is None)
        for row in rs.latest(changes).selectExpr("pk", "unix_micros(ck) AS us", "v").collect()
    )
    rows = {(0, -5), (0, 0), (0, 5), (1, -5), (2, 0), (2, 5), (3, -5), (3, 0), (3, 5), (4, 0)}
    assert found == sorted((pk, ms * 1000, (pk, ms) in ((3, 0), (4, 0))) for pk, ms in rows)
    assert session.execute(f"SELECT count(*) FROM {vnodes}.t").one()[0] == len(rows)

    copy = f"CREATE TABLE {vnodes}.copy (pk int, ck timestamp, v timestamp, PRIMARY KEY (pk, ck))"
    session.execute(copy)
    source = options(vnodes, "t")
    target = {n: source[n] for n in CONNECTION} | {"keyspace": vnodes, "table": "copy"}
    rs.ScyllaTable(target).write(changes.where("pk < 3"))
    for pk in range(3):
        count = f"SELECT count(*) FROM {vnodes}.{{}} WHERE pk = {pk}"
        assert session.execute(count.format("copy")).one() == session.execute(count.format("t")).one()
    with pytest.raises(Exception, match="beyond the range of Spark"):
        rs.ScyllaTable(target).write(changes.where("pk = 4"))

    more(session, vnodes, f"INSERT INTO t (pk, ck) VALUES (9, {most}) ?")
    with pytest.raises(Exception, match="timestamp in a key, in column 'ck', that is beyond what Arrow and Spark"):
        rs.latest(load(spark, options(vnodes, "t"))).collect()


# ---------------------------------------------------------------- columns that come and go


def test_what_a_snapshot_left_out_stays_left_out(
    spark: SparkSession, session: Any, options: Options, vnodes: str, tmp_path: Path
) -> None:
    filled(
        session,
        vnodes,
        "(id int PRIMARY KEY, v int, w int, l list<int>) WITH",
        "INSERT INTO t (id, v, w, l) VALUES (1, 1, 1, [1, 2]) ?",
    )
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    snapshot = rs.snapshot(spark, stream, NO_LAG, read={"consistency": "ONE"}, ranges=1, columns=["v"])
    assert snapshot.left_out == {"w", "l"}
    table = rs.ParquetTable(spark, str(tmp_path / "t"))
    table.start_from(snapshot)
    at_us = rscylla.EventID.parse(snapshot.cursor).exact_us
    end_us = more(session, vnodes, "UPDATE t ? SET v = 2, w = 2, l = l + [3] WHERE id = 1")
    changes = load(spark, options(vnodes, "t"))
    assert [row.asDict() for row in rs.latest(changes, base=snapshot.cells).collect()] == [{"id": 1, "v": 2}]

    session.execute(f"ALTER TABLE {vnodes}.t ADD x int")
    last_us = more(session, vnodes, "UPDATE t ? SET x = 7, w = 3 WHERE id = 1")
    generation = rscylla.EventID.parse(snapshot.cursor).generation
    for start_us, stop_us in ((at_us, end_us + 1), (end_us + 1, last_us + 1)):
        frame = load(spark, options(vnodes, "t"))
        where = f"unix_micros(cdc_timestamp) >= {start_us} AND unix_micros(cdc_timestamp) < {stop_us}"
        assert table.apply(frame.where(where), h.window(generation, start_us, stop_us))
    assert [row.asDict() for row in table.rows().collect()] == [{"id": 1, "v": 2, "x": 7}]
    assert [row.asDict() for row in rs.latest(frame.limit(0), base=table.cells()).collect()] == [
        {"id": 1, "v": 2, "x": 7}
    ]


def test_a_column_that_was_dropped_and_added_again_has_none_of_its_former_values(
    spark: SparkSession, session: Any, options: Options, vnodes: str, tmp_path: Path
) -> None:
    compared = filled(
        session,
        vnodes,
        "(id int PRIMARY KEY, v int, w int, z int, m map<int, int>) WITH",
        *(f"INSERT INTO t (id, v, w, z, m) VALUES ({n}, 1, 1, 1, {{1: 1}}) ?" for n in (1, 2)),
    )
    table = rs.ParquetTable(spark, str(tmp_path / "t"))
    middle_us = rscylla.SystemClock().now_us()
    first = load(spark, options(vnodes, "t"))
    table.apply(first, h.window(0, 0, middle_us))
    before = table.cells()
    for column in ("v", "m", "z"):
        session.execute(f"ALTER TABLE {vnodes}.t DROP {column}")
    h.passed(rscylla.SystemClock().now_us() + 5_000_000)  # Scylla drops columns of the log as of five seconds later
    for column in ("v int", "m map<int, int>", "z text"):
        session.execute(f"ALTER TABLE {vnodes}.t ADD {column}")
    compared = Compared(session, vnodes, "t")
    end_us = more(session, vnodes, "UPDATE t ? SET v = 2, m = m + {2: 2}, z = 'z' WHERE id = 1")
    changes = load(spark, options(vnodes, "t"))
    assert compared.shown(rs.latest(changes, base=before)) == compared.base()
    later = changes.where(f"unix_micros(cdc_timestamp) >= {middle_us}")
    assert table.apply(later, h.window(0, middle_us, end_us + 1))
    assert compared.shown(table.rows()) == compared.base()

    known, shape = Shape.of(first), Shape.of(changes)
    assert has_lost(known, shape)
    assert not has_lost(shape, shape)
    assert has_lost(shape, without(shape, ["w"]))
    assert not has_lost(without(shape, ["w"]), shape)
    assert shape_of(shape_json(shape)) == shape
    assert [c.dropped_us for c in shape_of(shape_json(shape)).values] == [c.dropped_us for c in shape.values]
    before = before.drop("cdc$cell_z")  # as a MergeTable drops a column whose type has changed
    merged = merge_source(before, cells_of(later, shape), shape, second_of(None), whole=True)
    assert compared.shown(merged.where("cdc_live")) == compared.base(), "also in partitions that nobody wrote to"


AGAIN = {
    "st": "set<int>",
    "m": "map<text, int>",
    "l": "list<int>",
    "u": "pair",
    "fl": "frozen<list<int>>",
    "v": "int",
    "ss": "set<int> static",
    "sv": "text static",
}
"""Columns that are dropped and added again, with the same types."""


def came_back(session: Any, keyspace: str) -> Compared:
    """Make a table whose columns ``AGAIN`` were dropped and added again, and fill it; all but the list are compared."""
    session.execute(f"CREATE TYPE {keyspace}.pair (a int, b text)")
    columns = ", ".join(f"{name} {type_}" for name, type_ in AGAIN.items())
    filled(session, keyspace, f"(pk int, ck int, w int, {columns}, PRIMARY KEY (pk, ck)) WITH")
    come_back(session, keyspace)
    more(session, keyspace, *rows_of_all(1))
    return Compared(session, keyspace, "t").without("l")


def come_back(session: Any, keyspace: str) -> None:
    session.execute(f"ALTER TABLE {keyspace}.t DROP ({', '.join(AGAIN)})")
    h.passed(rscylla.SystemClock().now_us() + 5_000_000)  # Scylla drops columns of the log as of five seconds later
    session.execute(f"ALTER TABLE {keyspace}.t ADD ({', '.join(f'{name} {type_}' for name, type_ in AGAIN.items())})")


def rows_of_all(n: int) -> list[str]:
    return [
        f"INSERT INTO t (pk, ck, w, st, m, l, u, fl, v, ss, sv) VALUES ({pk}, {ck}, {n}, {{{n}, 7}}, "
        f"{{'a': {n}, 'b': 7}}, [{n}], {{a: {n}, b: 'b'}}, [{n}, 7], {n}, {{{n}, {pk}}}, 's{n}') ?"
        for pk in (1, 2)
        for ck in (1, 2)
    ]


def snapshot_of(spark: SparkSession, session: Any, keyspace: str) -> rs.Snapshot:
    stream = rscylla.NewStream(session, keyspace, "t", consistency="ONE")
    names = ["w", *(name for name in AGAIN if name != "l")]
    return rs.snapshot(spark, stream, NO_LAG, read={"consistency": "ONE"}, ranges=1, columns=names)


def window_after(cursor: str, end_us: int, changes: DataFrame) -> tuple[DataFrame, rs.PlannedWindow]:
    """Return the changes after *cursor*, and their window, which ends with the write at *end_us*."""
    start = rscylla.EventID.parse(cursor)
    time_us = F.unix_micros("cdc_timestamp")
    found = changes.where((time_us >= start.exact_us) & (time_us <= end_us))
    return found, h.window(start.generation, start.exact_us, end_us + 1)


ELSEWHERE = "UPDATE t ? SET w = 9 WHERE pk = 3 AND ck = 1"
"""A write of another row, and of another column than those that came back."""

EDITS = (
    "UPDATE t ? SET st = st - {1}, m = m + {'c': 3}, u.a = null, v = null WHERE pk = 1 AND ck = 1",
    "UPDATE t ? SET st = {5}, m = m - {'a'}, u = {a: 6}, fl = [6] WHERE pk = 1 AND ck = 2",
    "UPDATE t ? SET ss = ss - {1}, sv = 'x' WHERE pk = 2",
    "DELETE FROM t ? WHERE pk = 2 AND ck = 2",
)


def test_a_snapshot_has_the_values_of_columns_that_were_dropped_and_added_again(
    spark: SparkSession, session: Any, options: Options, vnodes: str, tmp_path: Path
) -> None:
    compared = came_back(session, vnodes)
    snapshot = snapshot_of(spark, session, vnodes)
    table = rs.ParquetTable(spark, str(tmp_path / "t"))
    table.start_from(snapshot)
    assert compared.shown(table.rows()) == compared.base()
    end_us = more(session, vnodes, ELSEWHERE)
    changes, window = window_after(snapshot.cursor, end_us, load(spark, options(vnodes, "t")))
    assert compared.shown(rs.latest(changes, base=snapshot.cells)) == compared.base()
    assert table.apply(changes, window)
    assert compared.shown(table.rows()) == compared.base()
    known, shape = snapshot.shape, without(Shape.of(changes), snapshot.left_out)
    assert not has_lost(known, shape), "the window does not rewrite a whole table"
    assert shape_json(known) == shape_json(shape)

    end_us = more(session, vnodes, *EDITS)
    changes, window = window_after(table.cursor, end_us, load(spark, options(vnodes, "t")))
    assert table.apply(changes, window)
    assert compared.shown(table.rows()) == compared.base()


def test_columns_that_are_dropped_and_added_again_while_a_snapshot_is_read_have_their_new_values(
    spark: SparkSession, session: Any, options: Options, vnodes: str, tmp_path: Path
) -> None:
    compared = came_back(session, vnodes)
    snapshot = snapshot_of(spark, session, vnodes)
    early = rs.ParquetTable(spark, str(tmp_path / "early"))
    early.start_from(snapshot)
    come_back(session, vnodes)
    end_us = more(session, vnodes, *rows_of_all(2)[:2])
    late = rs.ParquetTable(spark, str(tmp_path / "late"))
    late.start_from(snapshot)
    for table in (early, late):
        changes, window = window_after(snapshot.cursor, end_us, load(spark, options(vnodes, "t")))
        assert table.apply(changes, window)
        assert compared.shown(table.rows()) == compared.base()


def test_a_table_with_merge_has_the_values_of_columns_that_were_dropped_and_added_again_before_its_snapshot(
    spark: SparkSession, session: Any, options: Options, vnodes: str, table_format: TableFormat
) -> None:
    compared = came_back(session, vnodes)
    snapshot = snapshot_of(spark, session, vnodes)
    table = rs.MergeTable(spark, table_format.table(), using=table_format.name)
    table.start_from(snapshot)
    assert compared.shown(table.rows()) == compared.base()
    for statements in ((ELSEWHERE,), EDITS):
        end_us = more(session, vnodes, *statements)
        changes, window = window_after(table.cursor, end_us, load(spark, options(vnodes, "t")))
        assert table.apply(changes, window)
        assert compared.shown(table.rows()) == compared.base()
