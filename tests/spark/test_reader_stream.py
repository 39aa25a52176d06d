"""The stream reader of the data source, called directly and on a driven clock, without Java."""

from __future__ import annotations

import json
import logging
import random
from datetime import timedelta
from typing import Any

import pytest
from sparkreader import (
    ALL,
    OF_BOTH_KINDS,
    Query,
    QueryWithoutStarts,
    World,
    alter,
    planned,
    positions,
    rows_of,
    sequences,
    switch,
)

import rscylla
from rscylla._timeuuid import format_time, parse_time
from rscylla.driver.pages import Page
from rscylla.driver.session import ReadSession
from rscylla.embedded import Statements
from rscylla.errors import (
    CDCDisabled,
    ConfigError,
    CursorExpired,
    QueryFailed,
    TableChanged,
    TableNotFound,
)
from rscylla.spark.session.session import close_sessions
from rscylla.spark.source import planning, source
from rscylla.spark.source.offsets import Offset
from rscylla.spark.source.options import Position
from rscylla.spark.source.source import KeepingStreamReader, StreamReader
from rscylla.spark.source.versions import ReadMaxFiles, ReadMaxRows


@OF_BOTH_KINDS
def test_streams_that_were_announced_after_the_query_was_planned_are_read(world: World) -> None:
    reader = world.stream(windowSpan="1s")
    start = reader.initialOffset()
    switch(world)
    world.write(5)
    world.clock.advance(31)
    end = reader.latestOffset(start, ALL)
    assert len(rows_of(reader, reader.partitions(start, end))) == 5


@pytest.mark.every_pyspark
@OF_BOTH_KINDS
def test_a_query_on_pyspark_4_1_keeps_limits_and_its_position_over_restarts(world: World) -> None:
    world.write(60, every=timedelta(seconds=1))
    world.clock.advance(120)
    query = QueryWithoutStarts(world, world.stream())
    options = {"windowSpan": "10s", "maxWindowsPerTrigger": "1"}
    query.restart(world.stream(**options))
    for _ in range(3):
        assert query.run_batch()
        spans = [json.loads(end)["t"] for end in query.ends]
        query.restart(world.stream(**options))
    assert spans[-1] - spans[0] == 2 * 10_000_000
    assert query.run_batch(fails=True)
    planned = len(query.ends)
    query.restart(world.stream())
    assert query.run_batch()
    assert len(query.ends) == planned, "the batch that failed is repeated, whatever the options are"
    while query.run_batch():
        pass
    assert sequences(query.rows) == positions(world.events())


@pytest.mark.every_pyspark
@OF_BOTH_KINDS
def test_on_pyspark_4_1_the_first_batch_goes_to_the_head_and_later_ones_end_on_the_grid(world: World) -> None:
    world.write(5)
    world.clock.advance(123)
    query = QueryWithoutStarts(world, world.stream())
    query.restart(world.stream(windowSpan="10s"))
    assert query.run_batch()
    head = query.reader.reportLatestOffset()["t"]
    assert head - json.loads(query.ends[-1])["t"] < 1_000_000
    world.clock.advance(37)
    assert query.run_batch()
    assert not query.run_batch()
    assert json.loads(query.ends[-1])["t"] % 10_000_000 == 0


def test_on_pyspark_4_1_a_limit_is_answered_with_what_it_does(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source, "PASSES_LIMITS", False)
    caplog.set_level(logging.WARNING, "rscylla")  # a command of a test before it may have set another one
    assert isinstance(world.stream(), KeepingStreamReader)
    assert "availableNow" not in caplog.text
    assert isinstance(world.stream(maxWindowsPerTrigger="3"), KeepingStreamReader)
    assert "the query ends after a batch of that size; start it again for the rest" in caplog.text


@pytest.mark.every_pyspark
@OF_BOTH_KINDS
def test_a_query_on_pyspark_4_1_from_the_head_whose_first_batch_fails_begins_where_it_began(world: World) -> None:
    world.write(5)
    world.clock.advance(120)
    query = QueryWithoutStarts(world, world.stream())
    query.restart(world.stream(startingPosition="latest", windowSpan="1s"))
    assert query.run_batch(fails=True)
    world.write(5)
    world.clock.advance(120)
    query.restart(world.stream(startingPosition="latest", windowSpan="1s"))
    while query.run_batch():
        pass
    assert len(query.rows) == 5


@pytest.mark.every_pyspark
@pytest.mark.parametrize("kind", [Query, QueryWithoutStarts])
@pytest.mark.parametrize("seed", range(3))
@OF_BOTH_KINDS
def test_each_change_once_whatever_the_batches_are(world: World, seed: int, kind: type[Query]) -> None:
    dice = random.Random(seed)
    query = kind(world, world.stream())
    query.restart(query.reader)
    for _ in range(30):
        match dice.choice(["write", "write", "wait", "switch", "restart", "read", "read"]):
            case "write":
                world.write(dice.randrange(30), every=timedelta(milliseconds=dice.choice([0, 1, 700])))
            case "wait":
                world.clock.advance(dice.choice([1, 29, 100]))
            case "switch":
                switch(world)
            case "restart":
                span, parallelism = dice.choice(["100ms", "7s", "1m"]), dice.choice([1, 2, 5])
                more = {"maxWindowsPerTrigger": 2} if dice.random() < 0.3 else {}
                query.restart(
                    world.stream(windowSpan=span, parallelism=parallelism, pageSize=dice.choice([2, 5000]), **more),
                    available_now=dice.random() < 0.2,
                )
            case "read":
                limits = [ALL, ReadMaxFiles(dice.choice([1, 5, 100])), ReadMaxRows(dice.choice([1, 20, 1000]))]
                query.run_batch(dice.choice(limits), fails=dice.random() < 0.3)
    world.clock.advance(120)
    query.restart(world.stream(), available_now=True)
    while query.run_batch():
        pass
    assert sequences(query.rows) == positions(world.events())
    assert len(query.rows) == world.written > 0


@pytest.mark.parametrize("seed", range(4))
@OF_BOTH_KINDS
def test_a_batch_has_at_most_the_rows_of_the_limit_and_most_have_nearly_as_many(world: World, seed: int) -> None:
    dice = random.Random(seed)
    most = dice.choice([1, 30, 100])
    for _ in range(12):
        world.write(dice.randrange(60), every=timedelta(milliseconds=dice.choice([0, 1, 50])))
        world.clock.advance(dice.choice([0.001, 0.5, 30, 200]))
        if dice.random() < 0.2:
            switch(world)
    world.clock.advance(100)
    query = Query(world, world.stream(mode="log", maxRowsPerTrigger=most))
    query.restart(query.reader, available_now=True)
    limit = query.reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(most)
    while query.run_batch(limit):
        pass
    assert len(query.rows) == world.written
    sizes = [len(rows) for rows in query.replayed.values()]
    for rows in query.replayed.values():
        assert len(rows) <= most or len({row["cdc_timestamp"] for row in rows}) == 1
    assert len(sizes) <= 4 * world.written / most + 2


@pytest.mark.every_pyspark
@pytest.mark.parametrize("world", ["vnodes"], indirect=True)
def test_of_two_limits_the_smaller_counts(world: World) -> None:
    world.write(100, every=timedelta(milliseconds=100))
    world.clock.advance(40)
    seconds = 1_000_000

    def ends(**more: object) -> list[int]:
        reader = world.stream(windowSpan="1s", **more)
        at = reader.initialOffset()
        found: list[int] = []
        while len(found) < 3:
            at = reader.latestOffset(at, reader.getDefaultReadLimit())
            found.append(at["t"])
        return found

    windows = ends(maxWindowsPerTrigger=2)
    first_us = world.clock.now_us() - 50 * seconds
    start_us = world.stream().initialOffset()["t"]
    assert windows == ends(maxWindowsPerTrigger=2, maxRowsPerTrigger=1000)
    assert windows[0] == start_us - start_us % seconds + 2 * seconds
    rows = ends(maxRowsPerTrigger=4)
    assert rows == ends(maxWindowsPerTrigger=1000, maxRowsPerTrigger=4)
    # Rows are 100 ms apart, and the first batch begins before them.
    assert all(end_us - first_us <= (i + 1) * 4 * seconds // 10 for i, end_us in enumerate(rows))


@pytest.mark.parametrize("world", ["vnodes"], indirect=True)
def test_counting_reads_each_row_about_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write(2_000, every=timedelta(milliseconds=10))
    world.clock.advance(60)
    reader = world.stream(maxRowsPerTrigger=100)
    counted = 0
    send = ReadSession.send

    def counting(self: ReadSession, *args: Any, on_page: Any, **more: Any) -> None:
        def count(page: Page) -> None:
            nonlocal counted
            counted += page.row_count
            on_page(page)

        send(self, *args, on_page=count, **more)

    monkeypatch.setattr(ReadSession, "send", counting)
    reader.prepareForTriggerAvailableNow()
    # Of the first batch, it is not known how dense the rows are.
    start, batches, counted = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()), 1, 0
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) is not start:
        start, batches = json.loads(json.dumps(end)), batches + 1
    assert 20 <= batches <= 30
    assert counted <= 1.2 * 2_000
    # Nothing is counted while there is nothing new.
    counted = 0
    for _ in range(3):
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) is start
    assert counted == 0


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("window", ["1ms", "10s"])
@OF_BOTH_KINDS
def test_latest_is_where_the_query_began_however_often_its_first_batch_fails(
    world: World, available_now: bool, window: str
) -> None:
    world.write(5)
    world.clock.advance(100)
    dice = random.Random(4)

    def started() -> StreamReader:
        return world.stream(startingPosition="latest", windowSpan=window)

    query = Query(world, started())
    query.restart(query.reader, available_now=available_now)
    began_us = world.clock.now_us() - 30_000_000
    for _ in range(4):
        assert query.run_batch(fails=True)
        world.write(3, every=timedelta(seconds=dice.choice([0, 1, 20])))
        world.clock.advance(dice.choice([0, 0.5, 40]))
        query.restart(started(), available_now=available_now)
    world.clock.advance(60)
    query.restart(started(), available_now=True)
    while query.run_batch():
        pass
    events = world.events()
    assert sequences(query.rows) == [e.position for e in events if e.timestamp_us >= began_us]
    assert len(query.rows) == 12


@OF_BOTH_KINDS
def test_a_first_batch_without_rows_keeps_the_row_to_start_behind(world: World) -> None:
    world.write(4)
    world.clock.advance(31)
    events = world.events()
    query = Query(world, world.stream(startingPosition=events[1].id, windowSpan="20m"))
    assert query.run_batch()
    assert query.rows == []
    world.clock.advance(1800)
    while query.run_batch():
        pass
    assert sequences(query.rows) == positions(events[2:])


def test_nothing_lies_between_the_end_of_the_first_batch_and_itself(world: World) -> None:
    world.write(5)
    world.clock.advance(60)
    reader = world.stream()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert rows_of(reader, reader.partitions(reader.initialOffset(), end)) != []
    assert reader.partitions(end, end) == []


@OF_BOTH_KINDS
def test_a_new_start_or_span_between_failures_does_not_change_the_first_batch(world: World) -> None:
    world.write(5)
    world.clock.advance(60)
    query = Query(world, world.stream())
    query.run_batch(fails=True)
    query.restart(world.stream(startingPosition="latest", windowSpan="1s", parallelism=7))
    assert query.run_batch()
    assert sequences(query.rows) == positions(world.events())


@OF_BOTH_KINDS
def test_nothing_new_is_the_same_offset_and_asks_the_cluster_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = world.stream(windowSpan="5s")
    world.clock.advance(60)
    at = reader.latestOffset(reader.initialOffset(), ALL)
    asked: list[str] = []
    rows = ReadSession.rows
    monkeypatch.setattr(ReadSession, "rows", lambda self, cql, *a, **k: asked.append(cql) or rows(self, cql, *a, **k))
    for _ in range(100):
        assert reader.latestOffset(at, ALL) is at
    world.clock.advance(4.9)
    assert reader.latestOffset(at, ALL) is at
    assert asked == []
    world.clock.advance(5)
    assert reader.latestOffset(at, ALL)["t"] == at["t"] + 5_000_000
    assert reader.reportLatestOffset()["t"] == world.clock.now_us() - 30_000_000


@OF_BOTH_KINDS
def test_spark_is_shown_how_far_the_query_is_and_the_cluster_is_asked_nothing_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(40, every=timedelta(seconds=1))
    world.clock.advance(60)
    reader = world.stream(maxWindowsPerTrigger=2, windowSpan="10s")
    assert "progress" not in reader.reportLatestOffset()  # a restarted query repeats its last batch first
    limit = reader.getDefaultReadLimit()
    at, start = reader.latestOffset(reader.initialOffset(), limit), reader.initialOffset()
    shown = reader.reportLatestOffset()
    seen = shown["progress"]
    partitions = reader.partitions(start, at)
    assert shown["t"] == world.clock.now_us() - 30_000_000
    assert (seen["watermark"], seen["head"]) == (format_time(at["t"]), format_time(shown["t"]))
    assert seen["lag_s"] == (world.clock.now_us() - at["t"]) / 1e6
    assert seen["behind_s"] == seen["lag_s"] - 30 > 0
    assert seen["windows_behind"] == shown["t"] // 10_000_000 - at["t"] // 10_000_000 > 0
    assert seen["splits"] == len(partitions) > 1
    assert seen["streams"] == len({stream for p in partitions for stream in p.value.streams})
    assert parse_time(seen["generation"]) == partitions[-1].value.window.generation * 1000

    asked: list[str] = []
    rows = ReadSession.rows
    monkeypatch.setattr(ReadSession, "rows", lambda self, cql, *a, **k: asked.append(cql) or rows(self, cql, *a, **k))
    while (end := reader.latestOffset(at, limit)) is not at:
        seen = reader.reportLatestOffset()["progress"]
        assert seen["splits"] == len(reader.partitions(at, end))
        at = end
    world.clock.advance(4.9)
    for _ in range(100):
        assert reader.latestOffset(at, limit) is at
        assert reader.reportLatestOffset()["progress"]["windows_behind"] == 0
    assert asked == []


@OF_BOTH_KINDS
def test_what_cannot_be_planned_is_an_error_of_the_batch_and_not_of_its_progress(world: World) -> None:
    world.write(5)
    world.clock.advance(60)
    reader = world.stream(startingPosition=format_time(world.clock.now_us() - 30_000_000))
    start = reader.initialOffset()
    world.clock.advance(2 * 3600)
    end = reader.latestOffset(start, ALL)
    assert reader.reportLatestOffset()["progress"].keys().isdisjoint({"streams", "splits", "generation"})
    with pytest.raises(CursorExpired):
        reader.partitions(start, end)


@pytest.mark.every_pyspark
@OF_BOTH_KINDS
def test_available_now_ends_where_the_head_was(world: World) -> None:
    reader = world.stream(maxWindowsPerTrigger=1, windowSpan="10s")
    world.write(40, every=timedelta(seconds=1))
    world.clock.advance(30)
    reader.prepareForTriggerAvailableNow()
    world.write(10)
    world.clock.advance(100)
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxFiles)
    at, batches, rows = reader.initialOffset(), 0, 0
    while (end := reader.latestOffset(at, limit)) is not at:
        rows += len(rows_of(reader, reader.partitions(at, end)))
        at, batches = end, batches + 1
    assert rows == 40
    assert batches in (4, 5, 6)  # by where in a window the first row lies


def test_a_query_ends_where_it_is_asked_to(world: World) -> None:
    world.write(10, every=timedelta(seconds=1))
    until = format_time(world.clock.now_us() - 3_000_000)
    world.clock.advance(100)
    reader = world.stream(endingPosition=until)
    reader.prepareForTriggerAvailableNow()
    at = reader.initialOffset()
    end = reader.latestOffset(at, ALL)
    assert len(rows_of(reader, reader.partitions(at, end))) == 7
    world.clock.advance(100)
    assert reader.latestOffset(end, ALL) is end


def test_an_end_is_refused_for_a_query_that_has_none(world: World) -> None:
    reader = world.stream(endTime=format_time(world.clock.now_us()))
    with pytest.raises(ConfigError, match=r"option endTime: .* needs trigger\(availableNow=True\)"):
        reader.latestOffset(reader.initialOffset(), ALL)


def test_offsets_that_do_not_fit_are_refused(world: World) -> None:
    reader = world.stream()
    world.clock.advance(100)
    at = reader.initialOffset()
    end = reader.latestOffset(at, ALL)
    assert list(at) == ["v", "log", "t", "gen", "from", "ttl", "seen"]
    assert list(end) == ["v", "log", "t", "gen", "ttl", "seen", "begin"]
    assert list(reader.latestOffset(end, ALL)) == ["v", "log", "t", "gen", "ttl", "seen", "begin"]
    world.clock.advance(100)
    assert list(reader.latestOffset(end, ALL)) == ["v", "log", "t", "gen", "ttl", "seen"]
    with pytest.raises(ConfigError, match="go backwards"):
        reader.partitions(end, at)
    with pytest.raises(ConfigError, match="version 2, but this rscylla reads version 1"):
        reader.partitions({**at, "v": 2}, end)
    with pytest.raises(ConfigError, match=r"a different CDC log than ks\.t"):
        reader.partitions({**at, "log": "00"}, {**end, "log": "00"})
    for wrong in (
        {"v": 1},
        {**at, "t": "1"},
        {**at, "after": "x"},
        {**at, "t": True},
        {**at, "from": 1},
        {**end, "ttl": "3600"},
        {**end, "ttl": -1},
        {**end, "ttl": True},
        {**end, "assumed": -1},
        {**end, "assumed": "60"},
        {**end, "seen": "zz.1"},
        {**end, "since": "1"},
        {**end, "since": True},
        {name: value for name, value in end.items() if name != "gen"},
        {**end, "gen": "1"},
        {**end, "gen": True},
        {**end, "begin": 1},
        {**end, "begin": {}},
    ):
        with pytest.raises(ConfigError, match="not from format"):
            Offset.of(wrong)


@OF_BOTH_KINDS
def test_a_log_that_was_created_again_is_noticed(world: World) -> None:
    reader = world.stream()
    at = reader.initialOffset()
    world.session.execute("DROP TABLE ks.t")
    world.session.execute(
        "CREATE TABLE ks.t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}"
    )
    world.clock.advance(100)
    with pytest.raises(TableChanged, match="dropped and created again"):
        reader.latestOffset(at, ALL)
    with pytest.raises(ConfigError, match="a different CDC log"):
        world.stream().partitions(at, {**at, "t": at["t"] + 1})


GONE = [
    (["DROP TABLE ks.t"], TableNotFound, "keyspace ks has no table t"),
    (
        ["ALTER TABLE ks.t WITH cdc = {'enabled': false}", "DROP TABLE ks.t_scylla_cdc_log"],
        CDCDisabled,
        r"table ks\.t has no CDC log",
    ),
]


@pytest.mark.parametrize("mode", ["changes", "log"])
@pytest.mark.parametrize(("statements", "error", "told"), GONE, ids=["table", "log"])
@OF_BOTH_KINDS
def test_a_log_that_is_dropped_before_its_rows_are_read_is_named(
    world: World, statements: list[str], error: type[rscylla.RscyllaError], told: str, mode: str
) -> None:
    """By an executor that has prepared its statement before, and by a new one."""
    world.write(20)
    world.clock.advance(100)
    source = world.source(mode=mode)
    batch, stream = source.reader(schema=source.schema()), world.stream(mode=mode)
    at = stream.initialOffset()
    plans = [(batch, batch.partitions()), (stream, stream.partitions(at, stream.latestOffset(at, ALL)))]
    world.batch(mode=mode)
    for statement in statements:
        world.session.execute(statement)
    for _ in range(2):
        for reader, partitions in plans:
            with pytest.raises(error, match=told):
                rows_of(reader, partitions)
        close_sessions()


@pytest.mark.parametrize(("statements", "error", "told"), GONE, ids=["table", "log"])
@OF_BOTH_KINDS
def test_a_log_that_is_dropped_while_a_batch_is_planned_is_named(
    world: World, statements: list[str], error: type[rscylla.RscyllaError], told: str
) -> None:
    world.write(20)
    world.clock.advance(100)
    cursor = world.events()[3].id
    alter(world, 7200)  # a start at a cursor then looks for its row
    counting = world.stream(maxRowsPerTrigger=5)
    at = counting.initialOffset()
    plan = planning.Plan(counting._options)
    known = planning.open_source(counting._options)
    for statement in statements:
        world.session.execute(statement)
    asks = [
        lambda: planning.view_of(known, counting._options),
        lambda: plan.start(Position(cursor=cursor)),
        lambda: counting.latestOffset(at, ReadMaxRows(5)),
    ]
    for ask in asks:
        with pytest.raises(error, match=told):
            ask()


@pytest.mark.parametrize("mode", ["changes", "log"])
@OF_BOTH_KINDS
def test_a_log_that_is_created_again_between_plan_and_read_is_named(world: World, mode: str) -> None:
    world.write(20)
    world.clock.advance(100)
    reader, partitions = planned(world, mode=mode)
    for statement in (
        "DROP TABLE ks.t",
        "CREATE TABLE ks.t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}",
    ):
        world.session.execute(statement)
    with pytest.raises(TableChanged, match="dropped and created again"):
        rows_of(reader, partitions)


@OF_BOTH_KINDS
def test_a_log_that_was_created_again_is_named_if_a_query_of_it_is_refused(world: World) -> None:
    world.write(20)
    world.clock.advance(100)
    source = world.source()
    reader = source.reader(schema=source.schema())
    partitions = reader.partitions()
    for statement in (
        "DROP TABLE ks.t",
        "CREATE TABLE ks.t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}",
    ):
        world.session.execute(statement)
    refused = world.scylla.faults.fail("invalid", Statements(table="t_scylla_cdc_log"), times=None)
    with refused, pytest.raises(TableChanged, match="dropped and created again"):
        rows_of(reader, partitions)


def test_a_query_that_is_refused_although_the_log_is_there_fails_with_its_own_error(world: World) -> None:
    world.write(20)
    world.clock.advance(100)
    source = world.source()
    reader = source.reader(schema=source.schema())
    partitions = reader.partitions()
    refused = world.scylla.faults.fail("invalid", Statements(table="t_scylla_cdc_log"), times=None)
    with refused, pytest.raises(QueryFailed, match=r"the CDC log of ks\.t|the log of ks\.t"):
        rows_of(reader, partitions)
