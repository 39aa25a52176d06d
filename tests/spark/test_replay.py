"""The way back from a DataFrame of changes to statements, without Java: it is what the replicator makes of the log."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
import spark_history as h
import spark_types
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema
from spark_oracle import events_of

import rscylla
from rscylla.base.statements import ChangeWriter
from rscylla.cdc.arrow.batches import ChangeView
from rscylla.cdc.log.table import Table, read_base_table
from rscylla.driver.session import ReadSession
from rscylla.embedded import EmbeddedScylla
from rscylla.spark.pipeline.replay import ArrowChangeWriter, in_numbers
from rscylla.spark.session.session import close_sessions
from rscylla.spark.sinks.scylla import ChangesWriter, ScyllaTable
from rscylla.spark.source.shape import Shape
from rscylla.spark.source.source import ScyllaCdcDataSource

pytestmark = pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning")


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla() as scylla:
        yield scylla


@pytest.fixture
def session(scylla: EmbeddedScylla, request: pytest.FixtureRequest) -> Any:
    session = scylla.connect()
    for name in ("source", "copy"):
        session.execute(f"DROP KEYSPACE IF EXISTS {name}")
        session.execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
    return session


def target_of(session: Any, table: str) -> Table:
    found = read_base_table(ReadSession(session, consistency=1), "copy", table)
    assert found is not None
    return found


def changes_of(session: Any, table: str) -> tuple[list[rscylla.ChangeEvent], Shape, Any]:
    """Return the changes of a table: as events, and as a batch of a DataFrame, with its shape."""
    events = events_of(rscylla.NewStream(session, "source", table, consistency="ONE"))
    layout = events[0].layout
    view = ChangeView(layout)
    fields = from_arrow_schema(view.schema, prefer_timestamp_ntz=False)
    columns = []
    for column in layout.table.columns:
        place = fields if column.kind in ("partition_key", "clustering") else fields["cdc_values"].dataType
        columns.append((column, place[column.name].dataType))
    return events, Shape.from_columns(columns), read(session, table)


def read(session: Any, table: str) -> Any:
    """Return the changes of a table as the data source reads them, in the order of events, as one batch."""
    cluster = session.cluster
    options = {"keyspace": "source", "table": table, "mode": "changes", "lag": "0s", "consistency": "ONE"}
    point = f"{cluster.contact_points[0]}:{cluster.port}"
    source = ScyllaCdcDataSource(CaseInsensitiveDict({**options, "contactPoints": point}))
    reader = source.reader(schema=source.schema())
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    [batch] = pa.Table.from_batches(batches).sort_by("cdc_sequence").combine_chunks().to_batches()
    return batch


def both_ways(session: Any, table: str, *, now_us: int | None = None) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield what Spark's way and the replicator's make of each change of a table."""
    target = target_of(session, table)
    events, shape, batch = changes_of(session, table)
    layout = events[0].layout
    spark = ArrowChangeWriter(shape, target)
    replicator = ChangeWriter(layout, "copy", table, {c.name for c in target.columns})
    for event, change in zip(events, in_numbers(batch).to_pylist(), strict=True):
        cells, _, _, end = event.raw_rows()
        ttl = int.from_bytes(cells[layout.ttl] or b"", "big")
        given = spark.writes(change, event.timestamp_us if now_us is None else now_us)
        yield given, replicator.writes(event.operation, event.timestamp_us, ttl, cells, end)


@pytest.mark.parametrize("table", spark_types.TABLES)
def test_values_of_all_types_in_all_places_come_back_byte_by_byte(session: Any, table: str) -> None:
    spark_types.create(session, "source", [table])
    spark_types.create(session, "copy", [table], cdc=False)
    start = rscylla.SystemClock().now_us()
    for cql in spark_types.writes("source", start, [table]):
        if f" source.{table} " in cql:
            session.execute(cql)
    h.passed(start + 1_000_000)
    pairs = list(both_ways(session, table))
    assert len(pairs) > 3
    for given, expected in pairs:
        assert given == expected


@pytest.mark.parametrize("seed", range(3))
def test_changes_of_all_kinds_become_the_statements_of_the_replicator(session: Any, seed: int) -> None:
    for keyspace in ("source", "copy"):
        h.create(session, keyspace)
    start = rscylla.SystemClock().now_us()
    for cql in h.writes(random.Random(seed), "source", 200, itertools.count(start, 1)):
        session.execute(cql)
    h.passed(start + 1_000)
    for table in h.TABLES:
        for given, expected in both_ways(session, table):
            assert given == expected


@pytest.mark.parametrize(("after_s", "left"), [(-3_600, 1_000), (0, 1_000), (400, 600), (999, 1), (5_000, 1)])
def test_what_is_written_back_expires_when_the_original_does(session: Any, after_s: int, left: int) -> None:
    """*after_s* is the age of the change. A write time ahead of the clock does not extend its TTL."""
    for keyspace in ("source", "copy"):
        session.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    at = rscylla.SystemClock().now_us() - 1_000
    session.execute(f"INSERT INTO source.t (id, v) VALUES (1, 1) USING TIMESTAMP {at} AND TTL 1000")
    [([write], _)] = both_ways(session, "t", now_us=at + after_s * 1_000_000)
    assert "AND TTL ?" in write.cql
    assert write.values[-2:] == (at.to_bytes(8, "big"), left.to_bytes(4, "big"))


def test_a_range_of_all_rows_leaves_the_static_row(session: Any) -> None:
    for keyspace in ("source", "copy"):
        session.execute(
            f"CREATE TABLE {keyspace}.t (pk int, ck int, s int static, PRIMARY KEY (pk, ck)) "
            "WITH cdc = {'enabled': true}"
        )
    session.execute("INSERT INTO source.t (pk, ck, s) VALUES (1, 1, 7)")
    session.execute(
        "BEGIN BATCH DELETE FROM source.t WHERE pk = 1 AND ck < 5; DELETE FROM source.t WHERE pk = 1 AND ck >= 5; "
        "APPLY BATCH"
    )
    deleted = [given for given, _ in both_ways(session, "t")][-1]
    assert [w.cql for w in deleted] == [
        f"DELETE FROM copy.t USING TIMESTAMP ? WHERE pk = ? AND ck {sign} ?" for sign in ("<=", ">")
    ]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("id int PRIMARY KEY, v int", r"copy.t lacks the column 's'; run ALTER TABLE copy.t ADD s set<int>"),
        ("id int PRIMARY KEY, v int, s frozen<set<int>>", r"column 's' is frozen<set<int>> in copy.t, but"),
        ("id int, v int, s set<int>, PRIMARY KEY (id, v)", "copy.t has a different primary key"),
        ("id int, x int, v int, s set<int>, PRIMARY KEY (id, x)", "copy.t has a different primary key"),
    ],
)
def test_a_table_that_cannot_take_the_changes_is_refused(session: Any, target: str, text: str) -> None:
    session.execute("CREATE TABLE source.t (id int PRIMARY KEY, v int, s set<int>) WITH cdc = {'enabled': true}")
    session.execute("INSERT INTO source.t (id, v) VALUES (1, 1)")
    session.execute(f"CREATE TABLE copy.t ({target})")
    with pytest.raises(rscylla.errors.CannotReplicate, match=text):
        list(both_ways(session, "t"))


@pytest.fixture
def writer_to(scylla: EmbeddedScylla, session: Any) -> Iterator[Callable[[Shape], Any]]:
    """Makes what an executor gets: the writer of a table, from the bytes that travelled there."""
    point = f"{scylla.contact_points[0]}:{scylla.port}"
    given = {"contactPoints": point, "keyspace": "copy", "table": "t", "consistency": "ONE"}
    options = ScyllaTable(given)._options

    def made(shape: Shape) -> Any:
        writer = ChangesWriter(options.connection, options.keyspace, options.table, shape)
        return cloudpickle.loads(cloudpickle.dumps(writer))

    yield made
    close_sessions()


def test_a_task_writes_its_batches_and_counts_them(session: Any, writer_to: Callable[[Shape], Any]) -> None:
    for keyspace in ("source", "copy"):
        h.create(session, keyspace)
    start = rscylla.SystemClock().now_us()
    for cql in h.writes(random.Random(5), "source", 300, itertools.count(start, 1)):
        session.execute(cql)
    h.passed(start + 1_000)
    _, shape, batch = changes_of(session, "t")
    halves = [batch.slice(0, len(batch) // 2), batch.slice(len(batch) // 2)]
    assert [b.to_pydict() for b in writer_to(shape)(iter(halves))] == [{"written": [len(half)]} for half in halves]
    assert h.rows_of(session, "copy", "t") == h.rows_of(session, "source", "t")


def test_a_change_that_cannot_be_written_ends_the_task(session: Any, writer_to: Callable[[Shape], Any]) -> None:
    for keyspace in ("source", "copy"):
        session.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    for n in range(200):
        session.execute(f"INSERT INTO source.t (id, v) VALUES ({n}, 1)")
    h.passed(rscylla.SystemClock().now_us())
    _, shape, batch = changes_of(session, "t")

    def batches() -> Iterator[Any]:
        yield batch.slice(0, 100)
        session.execute("DROP TABLE copy.t")
        yield batch.slice(100)

    with pytest.raises(rscylla.errors.QueryFailed, match=r"^writing to copy\.t: "):
        list(writer_to(shape)(batches()))
    with pytest.raises(rscylla.TableNotFound, match=r"the target table copy\.t does not exist"):
        list(writer_to(shape)(iter([batch])))


def test_what_a_frame_cannot_say_is_refused() -> None:
    shape = Shape.from_columns([])
    writer = ArrowChangeWriter(shape, Table("ks", "t", ()))
    change = {"cdc_timestamp": 0, "cdc_ttl": None, "cdc_touched": [], "cdc_deleted": []}
    assert writer.writes({**change, "cdc_operation": "preimage"}, 0) == []
    with pytest.raises(rscylla.errors.CannotReplicate, match="'delta': 'full'"):
        writer.writes({**change, "cdc_operation": "update"}, 0)
    with pytest.raises(rscylla.errors.CannotReplicate, match="the operation 'unknown_42'"):
        writer.writes({**change, "cdc_operation": "unknown_42"}, 0)


def test_times_beyond_those_of_python_are_numbers() -> None:
    stamp = pa.timestamp("us", "UTC")
    column = pa.array([[(2**62, 1)], None], pa.map_(pa.int64(), pa.int64())).cast(pa.map_(stamp, stamp))
    dates = pa.array([{"x": 2**31 - 1}, None], pa.struct([("x", pa.int32())])).cast(pa.struct([("x", pa.date32())]))
    assert in_numbers(pa.record_batch({"m": column, "d": dates})).to_pylist() == [
        {"m": [(2**62, 1)], "d": {"x": 2**31 - 1}},
        {"m": None, "d": None},
    ]
