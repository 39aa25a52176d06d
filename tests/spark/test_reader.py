"""The readers of the data source, called directly and on a driven clock, without Java."""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from datetime import timedelta
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import DecimalType, IntegerType, StringType, StructField, StructType
from sparkreader import (
    ALL,
    OF_BOTH_KINDS,
    Row,
    World,
    passed_through_a_checkpoint,
    rows_of,
    sequences,
    switch,
)

import rscylla
from rscylla._timeuuid import datetime_of, format_time
from rscylla.cdc.arrow import columnar, spanbatches
from rscylla.cdc.log.walk import LogWindow
from rscylla.cdc.read.scan import Limits
from rscylla.cdc.read.span import Span, SpanReader
from rscylla.clock import Stop
from rscylla.driver.pages import Page
from rscylla.driver.session import RawRead, ReadSession
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import (
    ConfigError,
    SchemaChanged,
    SourceError,
    TableChanged,
)
from rscylla.event import EventID
from rscylla.spark.session.session import close_sessions, session_for
from rscylla.spark.sinks.scylla import ChangesWriter
from rscylla.spark.source import dividing, planning, reading
from rscylla.spark.source.offsets import Offset
from rscylla.spark.source.options import Options
from rscylla.spark.source.shape import Shape
from rscylla.spark.source.source import ScyllaCdcDataSource
from rscylla.testing import ManualClock


@pytest.mark.parametrize("mode", ["log", "changes", "events"])
@pytest.mark.parametrize("world", ["vnodes"], indirect=True)
def test_a_task_holds_one_window_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """In mode log, only the pages in flight."""
    world.write(600, every=timedelta(milliseconds=100))
    world.clock.advance(31)
    source = world.source(mode=mode, parallelism=1, pageSize=5)
    reader = source.reader(schema=source.schema())
    [partition] = reader.partitions()
    limits = partial(Limits, window_rows=200, in_flight=2)
    monkeypatch.setattr(reading, "Limits", limits)
    sizes = [
        sum(page.row_count for page in pages)
        for pages in SpanReader(
            session_for(reader._span_read.connection),
            partition.value,
            clock=world.clock,
            limits=limits(page_size=5),
            stop=Stop(),
        ).windows()
    ]
    assert len(sizes) > 5
    alive: weakref.WeakSet[Page] = weakref.WeakSet()
    most = 0
    send = ReadSession.send

    def counted(self: ReadSession, *args: Any, on_page: Any, **more: Any) -> None:
        def count(page: Page) -> None:
            nonlocal most
            alive.add(page)
            most = max(most, sum(page.row_count for page in list(alive)))
            on_page(page)

        send(self, *args, on_page=count, **more)

    monkeypatch.setattr(ReadSession, "send", counted)
    monkeypatch.setattr(columnar, "ROWS_A_BATCH", 5)
    monkeypatch.setattr(spanbatches, "ROWS_A_BATCH", 5)
    assert sum(batch.num_rows for batch in reader.read(partition)) == 600
    assert most <= (6 * 5 if mode == "log" else max(sizes) + 6 * 5), "some pages: in flight, or looked at"


PLAN_AND_READ = """
import sys

from rscylla.embedded import EmbeddedScylla
from rscylla.spark import ScyllaCdcDataSource

with EmbeddedScylla() as scylla:
    session = scylla.connect()
    session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v list<int>) WITH cdc = {'enabled': true}")
    session.execute("INSERT INTO ks.t (pk, v) VALUES (1, [2])")
    place = f"{scylla.contact_points[0]}:{scylla.port}"
    for mode in ("changes", "events", "log"):
        options = {"contactpoints": place, "keyspace": "ks", "table": "t", "lag": "0s", "mode": mode}
        source = ScyllaCdcDataSource(options)
        reader = source.reader(source.schema())
        partitions = reader.partitions()
    assert sum(batch.num_rows for partition in partitions for batch in reader.read(partition)) == 1
print("pandas" in sys.modules)
"""


@pytest.mark.every_pyspark
def test_planning_and_the_mode_log_do_not_import_pandas() -> None:
    """It takes a new worker longer than all its other imports, and pyarrow does so by itself at many calls."""
    assert find_spec("pandas") is not None
    if rscylla.__decoder__ != "compiled":
        pytest.skip("the decoder in Python makes its columns by calls of pyarrow's that import pandas")
    # -P: the installed rscylla, and not the tree's, whose modules are not compiled.
    command = [sys.executable, "-P", "-W", "ignore", "-c", PLAN_AND_READ]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (told.stdout.strip(), told.returncode) == ("False", 0), told.stderr


# ---------------------------------------------------------------- many streams and generations


@pytest.mark.parametrize("known", [0, 20])
@OF_BOTH_KINDS
def test_a_plan_does_not_grow_with_streams_and_generations_beyond_a_bound(
    world: World, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    """Executors look up the streams, and read each change once."""
    for _ in range(4):
        world.write(40, every=timedelta(milliseconds=100))
        switch(world)
    world.write(40, every=timedelta(milliseconds=100))
    world.clock.advance(31)
    expected = sequences(world.batch(windowSpan="9s"))
    assert len(expected) == world.written
    monkeypatch.setattr(dividing, "MOST_STREAMS", known)
    monkeypatch.setattr(dividing, "MANY", 1)
    source = world.source(windowSpan="9s")
    reader = source.reader(schema=source.schema())
    partitions = reader.partitions()
    shares = [p.value for p in partitions if not p.value.streams]
    spans = [p.value for p in partitions if p.value.streams]
    assert shares
    assert sum(len(span.streams) for span in spans) <= known
    assert sequences(rows_of(reader, partitions)) == expected
    assert {share.parts for share in shares if share.window.generation != shares[0].window.generation} == {1}


@pytest.mark.parametrize("world", ["vnodes"], indirect=True)
def test_where_streams_are_is_asked_once_for_all_micro_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    monkeypatch.setattr(ReadSession, "replicas_of", lambda self, keyspace: lambda stream: asked.append(stream) or ())
    reader = world.stream(windowSpan="1s")
    at = reader.initialOffset()
    for _ in range(3):
        world.clock.advance(40)
        end = reader.latestOffset(at, ALL)
        assert reader.partitions(at, end)
        at = end
    assert asked
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("world", ["vnodes"], indirect=True)
def test_a_share_has_each_stream_once_however_few_there_are(world: World) -> None:
    table = rscylla.NewStream(world.session, "ks", "t", clock=world.clock).describe().table
    streams = tuple(bytes([i]) for i in range(7))
    for parts in (1, 3, 7, 16):
        shares = [Span(table, LogWindow(0, 0, 9), part=part, parts=parts).of(streams).streams for part in range(parts)]
        assert sum(shares, ()) == streams
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


# ---------------------------------------------------------------- cursors


@pytest.mark.parametrize("mode", ["changes", "events", "log"])
@OF_BOTH_KINDS
def test_the_cursor_of_a_service_is_continued_in_the_middle_of_a_window(world: World, mode: str) -> None:
    world.write(20)
    switch(world)
    world.write(20)
    world.clock.advance(60)
    events = world.events()
    for i in (0, 7, 19, 20, 39):
        rest = [e.key["ck"] for e in events[i + 1 :]]
        cursor = events[i].id
        rows = world.batch(startingPosition=cursor, mode=mode)
        assert sorted(_cks(rows)) == sorted(rest)
        reader = world.stream(startingPosition=cursor, mode=mode)
        at = passed_through_a_checkpoint(reader.initialOffset())
        found = rows_of(reader, reader.partitions(at, reader.latestOffset(at, ALL)))
        assert sorted(_cks(found)) == sorted(rest)


def _cks(rows: list[Row]) -> list[int]:
    return [row["ck"] if "ck" in row else json.loads(row["foreign_id"])["ck"] for row in rows]


@OF_BOTH_KINDS
def test_a_service_continues_at_an_offset_of_a_query(world: World) -> None:
    world.write(20)
    switch(world)
    world.write(20)
    world.clock.advance(60)
    events = world.events()
    service = rscylla.NewStream(world.session, "ks", "t", clock=world.clock)
    reader = world.stream(startingPosition=events[6].id, windowSpan="1s", maxWindowsPerTrigger="1")
    at, cursors = reader.initialOffset(), []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) is not at:
        begin = Offset.of(end).begin
        cursors.append(Offset.of(at).cursor() if begin is None else begin.cursor())
        at = end
    assert cursors[0] == EventID.parse(events[6].id), "the row itself"
    generations = [g.time for g in service.describe().generations]
    assert len(generations) == 2
    assert {c.generation for c in cursors} == set(generations)
    keys = [c.key for c in cursors]
    assert keys == sorted(keys), "they only go forward, also into the next generation"
    for cursor in (cursors[0], cursors[1], cursors[len(cursors) // 2], cursors[-1]):
        rest = [e.key["ck"] for e in events if e.order_key > cursor.key]
        assert [e.key["ck"] for e in world.events(str(cursor))] == rest


def test_a_service_continues_where_a_batch_ended(world: World) -> None:
    world.write(30, every=timedelta(seconds=1))
    world.clock.advance(60)
    source = rscylla.NewStream(world.session, "ks", "t", clock=world.clock)
    middle = world.clock.now_us() - 75_000_000
    rows = world.batch(endingPosition=format_time(middle))
    client = source(source.cursor_at(datetime_of(middle)), rscylla.StreamLag(seconds=30))
    following = client.recv()
    client.close()
    assert len(rows) == 15
    assert isinstance(following, rscylla.ChangeEvent)
    assert following.key["ck"] == 15


# ---------------------------------------------------------------- batches


def test_an_end_that_was_complete_by_another_sample_of_the_clocks_is_waited_for(world: World) -> None:
    world.write(3)
    world.clock.advance(30)
    begun_us = world.clock.now_us()
    assert len(world.batch(endingPosition=format_time(begun_us - 28_500_000))) == 3
    assert world.clock.now_us() - begun_us == pytest.approx(1_500_000, abs=100_000)


def test_an_end_is_waited_for_again_if_the_clocks_are_still_before_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait may end early by the clock of a node."""
    samples = iter([1_500_000, 400_000, 0])
    end_us = world.clock.now_us()
    monkeypatch.setattr(planning.Plan, "watermark_us", lambda plan: end_us - next(samples))
    plan = planning.Plan(world.stream(endingPosition=format_time(end_us))._options)
    begun_us = world.clock.now_us()
    assert plan.batch_end_us() == end_us
    assert world.clock.now_us() - begun_us == pytest.approx(1_900_000, abs=1)
    samples = iter([1_500_000, 1_000_000])
    with pytest.raises(ConfigError, match=r"endingPosition is 1\.000 s after the complete part"):
        plan.batch_end_us()


def test_the_end_of_a_batch_must_be_complete(world: World) -> None:
    world.clock.advance(60)
    early = format_time(world.clock.now_us() - 27_000_000)
    with pytest.raises(ConfigError, match=r"endingPosition is 3\.000 s after the complete part of the log"):
        world.batch(endingPosition=early)
    with pytest.raises(ConfigError, match=r"option endTime is 3\.000 s after the complete part of the log"):
        world.batch(endTime=early)
    assert world.batch(endingPosition=format_time(world.clock.now_us() - 30_000_000)) == []


def test_a_batch_does_not_start_in_the_future(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.clock.advance(60)
    now_us = world.clock.now_us()
    log = rscylla.NewStream(world.session, "ks", "t", clock=world.clock).describe()
    with pytest.raises(ConfigError, match=r"option startTime \(.*\) is in the future, .* use readStream, which waits"):
        world.batch(startTime=format_time(now_us + 3_600_000_000))
    for start in (format_time(now_us - 30_000_000), "latest", str(log.at(now_us - 30_000_000))):
        assert world.batch(startingPosition=start) == []
    assert "batch is empty" not in caplog.text
    for start in (format_time(now_us - 10_000_000), str(log.at(now_us - 10_000_000))):
        caplog.clear()
        assert world.batch(startingPosition=start) == []
        assert "option startingPosition is 20.000 s after the complete part of the log" in caplog.text


@OF_BOTH_KINDS
def test_partitions_are_disjoint_and_hold_everything(world: World) -> None:
    world.write(50, every=timedelta(milliseconds=100))
    switch(world)
    world.write(50, every=timedelta(milliseconds=100))
    world.clock.advance(60)
    everything = world.batch()
    assert len(everything) == 100
    ways: tuple[dict[str, object], ...] = (
        {"parallelism": 1},
        {"parallelism": 16},
        {"streamsPerPartition": 1},
        {"windowSpan": "3s", "parallelism": 2},
        {"pageSize": 1},
    )
    for way in ways:
        assert world.batch(**way) == everything
    source = world.source(parallelism=16)
    reader = source.reader(schema=source.schema())
    spans = [p.value for p in reader.partitions()]
    assert len({s.window.generation for s in spans}) == 2
    assert all(sum(s.window.generation == g for s in spans) >= 16 for g in {s.window.generation for s in spans})


def test_few_nodes_have_the_streams_of_a_partition() -> None:
    """In order of token, each partition would have streams of each node."""
    with EmbeddedScylla(6, seed=5) as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
        source = World(scylla, ManualClock(), session).source(parallelism=3, lag="0s")
        with pytest.warns(UserWarning, match="lag"):
            reader = source.reader(schema=source.schema())
        parts = [p.value.streams for p in reader.partitions()]
        replicas_of = ReadSession(session, consistency=1).replicas_of("ks")
        assert replicas_of is not None
        streams = rscylla.NewStream(session, "ks", "t").describe()
        everything = streams.streams(streams.generations[-1])
        close_sessions()
    assert sorted(s for part in parts for s in part) == sorted(everything)
    nodes = [{replicas_of(s) for s in part} for part in parts]
    assert len(set().union(*nodes)) == 6
    # A node whose streams are cut belongs to two.
    assert sum(map(len, nodes)) <= 6 + len(parts) - 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"windowSpan": "10ms"}, "increase windowSpan"),
        ({"windowSpan": "10ms", "streamsPerPartition": 1}, "increase windowSpan or increase streamsPerPartition"),
        ({"windowSpan": "10ms", "parallelism": 300}, "increase windowSpan or decrease parallelism"),
        ({"parallelism": 200_000}, "decrease parallelism"),
    ],
)
def test_more_partitions_than_spark_can_plan_are_refused_with_the_options_that_were_given(
    world: World, given: dict[str, object], told: str
) -> None:
    world.clock.advance(3600)
    with pytest.raises(ConfigError) as caught:
        world.batch(**given)
    assert str(caught.value) == f"the options would make more than 100,000 partitions; {told}"


@pytest.mark.parametrize("length_us", [2, 1_001, 60_000_001])
@pytest.mark.parametrize("more", [{}, {"windowSpan": "1h"}])
@OF_BOTH_KINDS
def test_few_streams_are_cut_by_time_so_that_no_executor_is_idle(
    world: World, length_us: int, more: dict[str, str]
) -> None:
    world.clock.advance(120)
    start_us = world.clock.now_us() - 100_000_000
    bounds = {"startingPosition": format_time(start_us), "endingPosition": format_time(start_us + length_us)}
    source = world.source(parallelism=150, **more, **bounds)
    spans = [p.value for p in source.reader(schema=source.schema()).partitions()]
    assert len(spans) >= 150 or length_us == 2
    groups = {s.streams for s in spans}
    for group in groups:
        windows = sorted((s.window.start_us, s.window.end_us) for s in spans if s.streams == group)
        assert all(start < end for start, end in windows)
        assert [start for start, _ in windows] == [start_us, *(end for _, end in windows[:-1])]
        assert windows[-1][1] == start_us + length_us


def test_an_empty_span_has_no_partitions(world: World) -> None:
    assert world.batch(startingPosition="latest") == []


def test_a_table_that_is_changed_during_a_query_keeps_the_schema_of_the_query(world: World) -> None:
    world.session.execute("ALTER TABLE ks.t ADD gone int")
    source = world.source()
    schema = source.schema()
    world.session.execute("INSERT INTO ks.t (pk, ck, v, gone) VALUES (1, 1, 1, 1)")
    world.session.execute("ALTER TABLE ks.t ADD more text")
    world.session.execute("INSERT INTO ks.t (pk, ck, v, more) VALUES (1, 2, 2, 'x')")
    world.session.execute("ALTER TABLE ks.t DROP gone")
    world.clock.advance(60)
    reader = source.reader(schema=schema)
    rows = rows_of(reader, reader.partitions())
    assert [row["cdc_values"] for row in rows] == [{"gone": None, "v": 1}, {"gone": None, "v": 2}]


@pytest.mark.parametrize(
    ("alter", "write", "told"),
    [
        ("ALTER TABLE ks.t ADD late int", "(pk, ck, late) VALUES (1, 2, 3)", "ks.t has a new column 'late'; start"),
        ("ALTER TABLE ks.t ADD late int", "(pk, ck, late) VALUES (1, 2, null)", "ks.t has a new column 'late'; start"),
        ("ALTER TABLE ks.t DROP v", "(pk, ck, a) VALUES (1, 2, {street: 'y'})", "ks.t no longer has the column 'v'"),
        (
            "ALTER TYPE ks.addr ADD zip int",
            "(pk, ck, a) VALUES (1, 2, {zip: 3})",
            "cdc_values.a.zip has values, but is",
        ),
    ],
)
def test_a_strict_query_does_not_pass_over_changes_of_columns_that_it_lacks(
    world: World, alter: str, write: str, told: str
) -> None:
    world.session.execute("CREATE TYPE ks.addr (street text)")
    world.session.execute("ALTER TABLE ks.t ADD a addr")
    source = world.source(failOnSchemaChange=True)
    schema = source.schema()
    world.session.execute("INSERT INTO ks.t (pk, ck, v) VALUES (1, 1, 1)")
    world.clock.advance(60)
    reader = source.reader(schema=schema)
    assert len(rows_of(reader, reader.partitions())) == 1
    world.session.execute(alter)
    world.session.execute(f"INSERT INTO ks.t {write}")
    world.clock.advance(60)
    partitions = reader.partitions()
    with pytest.raises(SchemaChanged, match=told) as raised:
        rows_of(reader, partitions)
    assert raised.value.resumable
    again = world.source(failOnSchemaChange=True)
    reader = again.reader(schema=again.schema())
    assert len(rows_of(reader, reader.partitions())) == 2


def test_a_strict_query_goes_on_when_a_column_is_added_that_nobody_writes(world: World) -> None:
    source = world.source(failOnSchemaChange=True)
    schema = source.schema()
    world.session.execute("ALTER TABLE ks.t ADD late int")
    world.write(1)
    world.clock.advance(60)
    reader = source.reader(schema=schema)
    assert rows_of(reader, reader.partitions())[0]["cdc_values"] == {"v": 1}
    with pytest.raises(ConfigError, match="failOnSchemaChange is for all columns of mode changes; omit it"):
        world.source(failOnSchemaChange=True, columns="pk").schema()


PLACES = {
    "a": ("frozen<addr>", "{street: 'x'}", {"street": "x"}),
    "b": ("addr", "{street: 'x'}", {"street": "x"}),
    "l": ("list<frozen<addr>>", "[{street: 'x'}]", [{"street": "x"}]),
    "s": ("set<frozen<addr>>", "{{street: 'x'}}", [{"street": "x"}]),
    "m": ("map<int, frozen<addr>>", "{1: {street: 'x'}}", [(1, {"street": "x"})]),
    "t": ("tuple<int, frozen<addr>>", "(1, {street: 'x'})", {"_1": 1, "_2": {"street": "x"}}),
}


@pytest.mark.parametrize("change", ["ALTER TYPE ks.addr ADD zip int", "ALTER TABLE ks.t ADD aaa int"])
def test_what_is_altered_while_it_is_read_keeps_the_schema_of_the_query(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    world.session.execute("CREATE TYPE ks.addr (street text)")
    columns = ", ".join(f"{name} {type_}" for name, (type_, _, _) in PLACES.items())
    world.session.execute(f"ALTER TABLE ks.t ADD ({columns})")
    texts = ", ".join(text for _, text, _ in PLACES.values())
    for ck in range(4):
        world.session.execute(f"INSERT INTO ks.t (pk, ck, {', '.join(PLACES)}) VALUES (1, {ck}, {texts})")
    world.session.execute("INSERT INTO ks.t (pk, ck, v) VALUES (1, 4, 7)")
    world.clock.advance(60)
    source = world.source(pageSize=2)
    reader = source.reader(schema=source.schema())
    send = ReadSession.send
    due = [change]

    def send_after(self: ReadSession, read: RawRead, state: bytes | None, **answers: Any) -> None:
        if state is not None and due:
            world.scylla.execute(due.pop())
        send(self, read, state, **answers)

    monkeypatch.setattr(ReadSession, "send", send_after)
    rows = rows_of(reader, reader.partitions())
    assert not due
    assert [row["ck"] for row in rows] == [0, 1, 2, 3, 4]
    expected = {name: value for name, (_, _, value) in PLACES.items()} | {"v": None}
    assert [row["cdc_values"] for row in rows] == [expected] * 4 + [dict.fromkeys(PLACES) | {"v": 7}]


@pytest.mark.parametrize("mode", ["changes", "events"])
def test_changes_whose_keys_went_with_a_rename_are_an_error(world: World, mode: str) -> None:
    world.write(2)
    world.session.execute("ALTER TABLE ks.t RENAME ck TO cc")
    world.clock.advance(60)
    with pytest.raises(TableChanged, match=r"a key column of ks\.t was renamed at"):
        world.batch(mode=mode)


@pytest.mark.parametrize("seen", [0, 1])
def test_changes_behind_which_a_read_starts_may_have_lost_their_keys(world: World, seen: int) -> None:
    world.write(2, every=timedelta(milliseconds=1))
    world.clock.advance(60)
    start = world.events()[seen].id
    world.session.execute("ALTER TABLE ks.t RENAME ck TO cc")
    world.clock.advance(30)
    world.session.execute("INSERT INTO ks.t (pk, cc, v) VALUES (1, 9, 1)")
    world.clock.advance(60)
    if seen == 1:
        assert [row["cc"] for row in world.batch(startingPosition=start, parallelism=1)] == [9]
        return
    with pytest.raises(TableChanged, match=r"a key column of ks\.t was renamed at"):
        world.batch(startingPosition=start, parallelism=1)


def test_a_change_is_whole_however_small_the_pages_are(world: World) -> None:
    world.session.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'preimage': true, 'postimage': true}")
    for v in range(3):
        for pk in range(9):
            world.session.execute(f"INSERT INTO ks.t (pk, ck, v) VALUES ({pk}, 1, {v})")
    world.clock.advance(60)
    everything = world.batch(parallelism=1)
    written = [row for row in everything if row["cdc_operation"] == "insert"]
    assert [(row["cdc_before"]["v"], row["cdc_after"]["v"]) for row in written if row["cdc_before"]].count((0, 1)) == 9
    for size in (1, 2, 3, 7):
        assert world.batch(parallelism=1, pageSize=size) == everything


@pytest.mark.every_pyspark
def test_a_schema_given_by_hand_may_leave_out_columns_but_not_change_them(world: World) -> None:
    world.write(3)
    world.clock.advance(60)
    source = world.source()
    reader = source.reader(
        schema=StructType([StructField("ck", IntegerType()), StructField("cdc_operation", StringType())])
    )
    assert rows_of(reader, reader.partitions())[0] == {"ck": 0, "cdc_operation": "insert"}
    for fields, told in (
        (StructField("ck", StringType()), "column 'ck' is int32 in the table but string"),
        (StructField("x", StringType()), "column 'x' that the log of ks.t does not have in this mode"),
    ):
        with pytest.raises(ConfigError, match=told):
            source.reader(schema=StructType([fields])).partitions()


def test_columns_are_selected_and_misspelled_ones_reported(world: World) -> None:
    world.write(1)
    world.clock.advance(60)
    assert world.batch(columns="ck,cdc_operation") == [{"ck": 0, "cdc_operation": "insert"}]
    with pytest.raises(ConfigError, match="mode changes has no column 'cdc_operatoin'; did you mean 'cdc_operation'"):
        world.source(columns="cdc_operatoin").schema()
    with pytest.raises(
        ConfigError, match=r"no column 'v'; its values are in 'cdc_values': name that, and select cdc_v"
    ):
        world.source(columns="ck,v").schema()
    with pytest.raises(ConfigError, match="no column 'zzz'; known columns are cdc_stream_id, "):
        world.source(columns="zzz").schema()
    with pytest.raises(ConfigError, match="option columns: 'ck' is named twice; name each column once"):
        world.source(columns="ck,cdc_operation,ck").schema()


NUMBERS = {"decimalAs": "decimal(38,2)", "varintAs": "decimal(38,0)"}


def test_a_varint_of_the_partition_key_has_no_scale_that_could_change(world: World) -> None:
    world.session.execute("CREATE TABLE ks.whole (pk varint PRIMARY KEY) WITH cdc = {'enabled': true}")
    world.session.execute("INSERT INTO ks.whole (pk) VALUES (5)")
    world.clock.advance(60)
    assert world.batch(table="whole", columns="pk", varintAs="decimal(38,2)") == [{"pk": Decimal("5.00")}]


def numbers_table(world: World, name: str) -> None:
    world.session.execute(
        f"CREATE TABLE ks.{name} (pk decimal, ck varint, d decimal, v varint, l list<decimal>, s set<varint>, "
        "m map<varint, frozen<tuple<decimal, int>>>, f frozen<set<decimal>>, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'ttl': 3600, 'postimage': true}"
    )


@pytest.mark.every_pyspark
def test_varints_and_decimals_are_decimals_of_spark_on_request_and_can_be_written_again(world: World) -> None:
    for name in ("numbers", "copy"):
        numbers_table(world, name)
    for statement in (
        "INSERT INTO ks.numbers (pk, ck, d, v, l, s, m, f) VALUES (1.50, 7, 12.3, -5, [0.1,2], {1,2}, {3:(4.5,6)}, {})",
        "UPDATE ks.numbers SET l = l + [9.99], s = s - {1}, m = m - {3}, d = null WHERE pk = 1.50 AND ck = 7",
        f"INSERT INTO ks.numbers (pk, ck, v) VALUES (-0.01, {10**37}, {-(10**38) + 1})",
        "DELETE FROM ks.numbers WHERE pk = 2.00 AND ck > 3 AND ck < 100",
    ):
        world.session.execute(statement)
    world.clock.advance(60)
    source = world.source(table="numbers", **NUMBERS)
    schema = source.schema()
    assert schema["pk"].dataType == DecimalType(38, 2)
    assert schema["cdc_values"].dataType["s"].dataType.simpleString() == "array<decimal(38,0)>"
    reader = source.reader(schema=schema)
    batches = [b for p in reader.partitions() for b in reader.read(p)]
    rows = sorted((row for b in batches for row in b.to_pylist()), key=lambda row: row["cdc_sequence"])
    first = next(row for row in rows if row["cdc_operation"] == "insert" and row["ck"] == 7)
    assert first["pk"] == Decimal("1.50")
    assert first["cdc_values"]["d"] == Decimal("12.30")
    assert first["cdc_values"]["l"] == [Decimal("0.10"), 2]
    assert first["cdc_values"]["m"] == [(3, {"_1": Decimal("4.50"), "_2": 6})]
    assert first["cdc_after"]["v"] == -5
    other = next(row for row in rows if row["ck"] == 10**37)
    assert other["cdc_values"]["v"] == -(10**38) + 1
    (deleted,) = (row["cdc_range"] for row in rows if row["cdc_operation"] == "range_start_exclusive")
    assert (deleted["start"]["ck"], deleted["end"]["ck"]) == (3, 100)
    logged = world.batch(table="numbers", mode="log", **NUMBERS)
    assert sum(row["cdc_deleted_elements_s"] == [1] for row in logged) == 1
    assert {type(row["pk"]) for row in logged} == {Decimal}
    options = Options.of(source.options)
    writer = ChangesWriter(options.connection, "ks", "copy", Shape.of_schema(schema))
    assert sum(writer.written(iter(batches))) == len(rows)
    assert contents(world, "copy") == contents(world, "numbers") != []


def contents(world: World, table: str) -> list[Any]:
    return sorted(world.session.execute(f"SELECT * FROM ks.{table}"))


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("(1.00, 7, 0.001)", r"a number with more decimal places than decimal\(38,2\), in column 'd'; read such"),
        (f"(1.00, {10**38}, 1)", r"a number that is too large for decimal\(38,0\), in column 'ck'"),
        ("(1.5, 7, 1)", r"a number of the scale 1, which decimal\(38,2\) would change, in column 'pk'"),
    ],
)
@pytest.mark.parametrize("mode", ["changes", "log"])
def test_a_number_that_does_not_fit_is_an_error_and_never_rounded(
    world: World, mode: str, written: str, told: str
) -> None:
    numbers_table(world, "numbers")
    world.session.execute(f"INSERT INTO ks.numbers (pk, ck, d) VALUES {written}")
    world.clock.advance(60)
    with pytest.raises(SourceError, match=told):
        world.batch(table="numbers", mode=mode, **NUMBERS)
    assert len(world.batch(table="numbers", mode="log")) == 2  # as text, everything is there


@pytest.mark.every_pyspark
def test_a_table_of_the_catalog_is_read_with_the_options_that_its_columns_carry(world: World) -> None:
    world.write(3)
    world.clock.advance(60)
    given = dict(world.source().options)
    properties = {"owner": "me", "provider": "scylla-cdc", "comment": "x", **given}

    def created(**more: str) -> ScyllaCdcDataSource:
        options = {f"option.{name}": value for name, value in {**given, **more}.items()}
        return ScyllaCdcDataSource(CaseInsensitiveDict({**properties, **options}))

    schema = StructType.fromJson(json.loads(created().schema().json()))  # as the catalog keeps it
    for options, count in ({}, 3), ({"startingPosition": "latest"}, 0):
        selecting = ScyllaCdcDataSource(CaseInsensitiveDict(options))
        reader = selecting.reader(schema=schema)
        assert len(rows_of(reader, reader.partitions())) == count
        stream = selecting.streamReader(schema=schema)
        at = stream.initialOffset()
        stream.prepareForTriggerAvailableNow()
        assert len(rows_of(stream, stream.partitions(at, stream.latestOffset(at, ALL)))) == count
    with pytest.raises(ConfigError, match="does not accept the option password; use passwordEnv or credentialsFile"):
        created(username="u", password="p").schema()
    assert "scylla-cdc" not in world.source().schema().json()


@OF_BOTH_KINDS
def test_later_tasks_of_a_process_prepare_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A micro-batch has many small tasks, and a prepared statement belongs to the session, which they share."""
    world.write(5)
    world.clock.advance(31)
    source = world.source()
    reader = source.reader(schema=source.schema())
    partitions = reader.partitions()
    rows_of(reader, partitions[:1])
    monkeypatch.setattr(ReadSession, "prepare", lambda *_, **__: pytest.fail("prepared again"))
    assert len(rows_of(reader, partitions)) == 5


def test_an_unsafe_lag_warns(world: World) -> None:
    with pytest.warns(UserWarning, match="the lag of 1 s is unsafe: below 30 s rows may arrive behind"):
        world.source(lag="1s").schema()


def test_names_that_collide_are_reported(world: World) -> None:
    world.session.execute(
        "CREATE TABLE ks.c (pk int PRIMARY KEY, cdc_time int, cdc_timestamp int) WITH cdc = {'enabled': true}"
    )
    with pytest.raises(ConfigError, match="both be called 'cdc_time'; keep the \\$"):
        world.source(table="c", mode="log").schema()
    assert "cdc$timestamp" in world.source(table="c", mode="log", keepDollar=True).schema().names
    assert "cdc_time" in world.source(table="c").schema()["cdc_values"].dataType.names


def test_a_table_of_nothing_but_its_key(world: World) -> None:
    world.session.execute("CREATE TABLE ks.k (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    world.session.execute("INSERT INTO ks.k (pk) VALUES (7)")
    world.clock.advance(60)
    [row] = world.batch(table="k")
    assert list(row)[-3:] == ["pk", "cdc_touched", "cdc_deleted"]
    assert (row["pk"], row["cdc_touched"]) == (7, [])


@OF_BOTH_KINDS
def test_the_initial_offset_of_a_cursor_is_the_cursor(world: World) -> None:
    world.write(3)
    world.clock.advance(60)
    [event] = world.events()[1:2]
    offset = Offset.of(world.stream(startingPosition=event.id).initialOffset())
    assert (offset.time_us, offset.after) == (event.timestamp_us, event.position)
    progress = str(EventID(EventID.parse(event.id).generation, event.timestamp_us))
    assert Offset.of(world.stream(startingPosition=progress).initialOffset()).after == b""
