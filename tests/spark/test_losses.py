"""Rows that expire before they are read: lost if they were promised, and never without an error."""

from __future__ import annotations

import json
import logging
import random
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import attrs
import pytest
from sparkreader import (
    ALL,
    OF_BOTH_KINDS,
    Query,
    Row,
    World,
    about,
    alter,
    passed_through_a_checkpoint,
    planned,
    rows_of,
    switch,
)

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import spark as rs
from rscylla._timeuuid import datetime_of, format_time, us_of
from rscylla.cdc.arrow import spanbatches
from rscylla.cdc.log import same as cdc_same
from rscylla.cdc.log.lifetimes import EARLY_US
from rscylla.cdc.read.scan import Limits
from rscylla.errors import CursorExpired
from rscylla.spark.source import planning, reading
from rscylla.spark.source.dividing import Division
from rscylla.spark.source.source import StreamReader
from rscylla.spark.source.versions import ReadMaxFiles


def test_a_first_batch_that_failed_until_its_rows_expired_is_empty_and_the_query_continues(world: World) -> None:
    start = "earliest"
    world.write(5)
    world.clock.advance(60)
    query = Query(world, world.stream(startingPosition=start))
    query.run_batch(fails=True)
    query.replayed.clear()  # expired rows are not read again
    world.clock.advance(2 * 3600)
    world.write(3)
    world.clock.advance(60)
    query.restart(world.stream(startingPosition=start, failOnDataLoss=True))
    assert query.run_batch()
    assert query.rows == []
    with pytest.raises(CursorExpired, match="may be lost"):  # from the first batch on, rows were promised
        query.run_batch()
    query.restart(world.stream(startingPosition=start, failOnDataLoss=False))
    while query.run_batch():
        pass
    assert len(query.rows) == 3


@pytest.mark.parametrize("start", ["now", "2020-01-01T00:00:00Z"])
def test_rows_that_a_given_start_promised_are_missed_when_the_first_batch_failed_for_too_long(
    world: World, start: str
) -> None:
    world.clock.advance(60)
    if start == "now":
        start = format_time(world.clock.now_us())
    world.write(5)
    world.clock.advance(60)
    query = Query(world, world.stream(startingPosition=start))
    query.run_batch(fails=True)
    world.clock.advance(2 * 3600)
    query.restart(world.stream(startingPosition=start))
    with pytest.raises(CursorExpired, match="may be lost"):
        query.run_batch()


def test_a_lag_that_the_log_does_not_outlive_is_refused(world: World, caplog: pytest.LogCaptureFixture) -> None:
    alter(world, 20)
    world.write(5)
    for read in (world.batch, lambda **more: Query(world, world.stream(**more)).run_batch()):
        with pytest.raises(rscylla.ConfigError, match="keeps changes for 20 s, and a reader with a lag of 30 s"):
            read()
        read(failOnDataLoss=False)
        assert "keeps changes for 20 s" in caplog.text
        caplog.clear()


def test_a_start_that_has_expired_is_an_error_by_default(world: World) -> None:
    world.write(5)
    world.clock.advance(60)
    start = format_time(world.clock.now_us())
    reader = world.stream(startingPosition=start)
    at = reader.initialOffset()
    world.clock.advance(3600 + 60)
    world.write(3)
    world.clock.advance(60)
    end = reader.latestOffset(at, ALL)
    with pytest.raises(CursorExpired, match=r"keeps 3600 s: changes from .* may be lost; .*failOnDataLoss"):
        reader.partitions(at, end)
    lenient = world.stream(failOnDataLoss=False)
    assert len(rows_of(lenient, lenient.partitions(at, end))) == 3


def test_a_row_expires_with_the_second_in_which_its_ttl_ends_and_is_lost_then(world: World) -> None:
    """Nodes count its TTL from the start of the second in which it was written."""
    world.clock.advance(60.9)
    start = format_time(world.clock.now_us())
    world.write(1)
    world.clock.advance(3599.2)
    assert list(world.session.execute("SELECT * FROM ks.t_scylla_cdc_log")) == []
    with pytest.raises(CursorExpired):
        planned(world, startingPosition=start)


def test_a_time_whose_rows_have_expired_is_an_error_by_default(world: World) -> None:
    world.clock.advance(60)
    start = world.clock.now_us()
    world.write(5)
    world.clock.advance(3600 + 60)
    world.write(3)
    world.clock.advance(60)
    at = {"startingPosition": format_time(start)}
    stream = world.stream(**at)
    first = stream.initialOffset()
    for plan in (
        lambda: planned(world, **at),
        lambda: stream.partitions(first, stream.latestOffset(first, ALL)),
    ):
        with pytest.raises(CursorExpired, match=r"keeps 3600 s: .* may be lost; start later") as caught:
            plan()
        assert caught.value.gap_from == datetime_of(start)
        assert caught.value.gap_to == datetime_of(world.clock.now_us() - 3600_000_000 + EARLY_US)
    assert len(rows_of(*planned(world, **at, failOnDataLoss=False))) == 3
    lenient = world.stream(**at, failOnDataLoss=False)
    first = lenient.initialOffset()
    assert len(rows_of(lenient, lenient.partitions(first, lenient.latestOffset(first, ALL)))) == 3


@OF_BOTH_KINDS
def test_nothing_is_lost_of_the_time_before_there_was_a_log(world: World) -> None:
    """Its generation is older, and the rows of that time would have expired."""
    world.clock.advance(3 * 3600)
    world.session.execute("CREATE TABLE ks.young (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 3600}")
    created_us = world.clock.now_us()
    world.session.execute("INSERT INTO ks.young (pk, v) VALUES (1, 1)")
    world.clock.advance(100)
    early = {"table": "young", "startingPosition": format_time(created_us - 2 * 3600_000_000)}
    batch = planned(world, **early)
    stream = world.stream(**early)
    first = stream.initialOffset()
    end = stream.latestOffset(first, ALL)
    again = passed_through_a_checkpoint(end)
    assert len(rows_of(*batch)) == len(rows_of(stream, stream.partitions(first, again))) == 1
    world.clock.advance(3600)
    for read in (
        lambda: rows_of(*batch),
        lambda: planned(world, **early),
        lambda: stream.partitions(first, again),
    ):
        with pytest.raises(CursorExpired) as caught:
            read()
        assert caught.value.gap_from is not None
        assert -60_000_000 <= us_of(caught.value.gap_from) - created_us <= 0


def test_a_shorter_ttl_does_not_hide_what_is_lost_after_a_start_before_the_log(world: World) -> None:
    world.session.execute("CREATE TABLE ks.young (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    start_us = world.clock.now_us() - 3_600_000_000
    world.clock.advance(600)
    altered_us = world.clock.now_us()
    world.session.execute("ALTER TABLE ks.young WITH cdc = {'enabled': true, 'ttl': 60}")
    world.session.execute("INSERT INTO ks.young (pk, v) VALUES (1, 1)")
    world.clock.advance(200)
    early = {"table": "young", "startingPosition": format_time(start_us)}
    stream = world.stream(**early)
    first = stream.initialOffset()
    for plan in (
        lambda: planned(world, **early),
        lambda: stream.partitions(first, passed_through_a_checkpoint(stream.latestOffset(first, ALL))),
    ):
        with pytest.raises(CursorExpired) as caught:
            plan()
        # The rows from before it are assumed to have had the same TTL.
        assert -60_000_000 <= us_of(caught.value.gap_from) - (altered_us - 600_000_000) <= 0
        assert us_of(caught.value.gap_to) == altered_us


def test_the_former_ttl_of_rows_after_a_start_is_assumed_to_be_that_of_now(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "rscylla")  # a command of a test before it may have set another one
    start_us = world.clock.now_us()
    world.write(1)
    world.clock.advance(2 * 3600)
    world.session.execute("ALTER TABLE ks.t ADD w int")
    world.write(1)
    world.clock.advance(100)
    at = {"startingPosition": format_time(start_us)}
    stream = world.stream(**at)
    first = passed_through_a_checkpoint(stream.initialOffset())
    assert first["assumed"] == 3600
    for plan in (
        lambda: planned(world, **at),
        lambda: stream.partitions(first, stream.latestOffset(first, ALL)),
    ):
        with pytest.raises(CursorExpired, match=r"ks\.t keeps 3600 s \(assumed, .* may be lost; start later") as caught:
            plan()
        assert us_of(caught.value.gap_from) == start_us
    assert caplog.text.count("was altered at") == 2, "once for each reader"
    assert "the current one of 3600 s is assumed, so if the former one was shorter, changes may be lost" in caplog.text
    caplog.clear()
    later = format_time(world.clock.now_us() - 3_000_000_000)
    assert [row["ck"] for row in rows_of(*planned(world, startingPosition=later))] == [1]
    assert "changes may be lost" in caplog.text, "of the 48 minutes before the table was altered"


@OF_BOTH_KINDS
def test_rows_that_outlive_the_assumed_ttl_are_read_if_losses_are_accepted(world: World) -> None:
    world.clock.advance(60)
    at = {"startingPosition": format_time(world.clock.now_us())}
    world.write(1)
    world.clock.advance(600)
    alter(world, 60)
    world.clock.advance(100)
    with pytest.raises(CursorExpired, match=r"keeps 60 s \(assumed"):
        planned(world, **at)
    assert [row["ck"] for row in rows_of(*planned(world, **at, failOnDataLoss=False))] == [0]
    query = Query(world, world.stream(**at, failOnDataLoss=False, windowSpan="100s"))
    while query.run_batch(ReadMaxFiles(1)):
        query.restart(world.stream(failOnDataLoss=False, windowSpan="100s"))
    assert [row["ck"] for row in query.rows] == [0]


@pytest.mark.parametrize("start", ["a time", "earliest"])
@OF_BOTH_KINDS
def test_a_former_ttl_is_remembered_over_restarts(world: World, start: str) -> None:
    """It was seen before the table was altered, or is assumed."""
    world.clock.advance(60)
    at = format_time(world.clock.now_us())
    small = {"windowSpan": "10s"}
    first = world.stream(startingPosition="earliest" if start == "earliest" else at, **small)
    if start == "earliest":
        query = Query(world, first)
        world.clock.advance(100)
        assert query.run_batch(ReadMaxFiles(1))
    world.write(20, every=timedelta(seconds=30))
    if start == "earliest":
        alter(world, 7200)
    else:
        world.session.execute("ALTER TABLE ks.t ADD w int")
        query = Query(world, first)
    world.clock.advance(100)
    for _ in range(4):  # each in a process of its own
        query.restart(world.stream(startingPosition=at, **small))
        assert query.run_batch(ReadMaxFiles(3))
    assert json.loads(query.ends[-1])["ttl" if start == "earliest" else "assumed"] == 3600
    world.clock.advance(3600)
    query.restart(world.stream(**small))
    with pytest.raises(CursorExpired, match="keeps 3600 s") as caught:
        query.run_batch()
    assert us_of(caught.value.gap_from) == json.loads(query.ends[-2])["t"]


@pytest.mark.parametrize("start", ["latest", "a time", "earliest"])
@pytest.mark.parametrize("later_s", [86_400, 60])
def test_the_first_batch_keeps_the_ttl_that_was_known_when_it_was_planned(
    world: World, start: str, later_s: int
) -> None:
    world.clock.advance(60)
    start = format_time(world.clock.now_us() - 30_000_000) if start == "a time" else start
    first = world.stream(startingPosition=start)
    query = Query(world, first)
    begin = first.initialOffset()
    first.initialOffset = lambda: begin  # type: ignore[method-assign]
    world.write(5)
    world.clock.advance(60)
    query.run_batch(fails=True)
    alter(world, later_s)
    world.clock.advance(300)
    query.restart(world.stream(startingPosition=start))
    assert query.run_batch()
    assert len(query.rows) == 5, "they live as long as they did before"
    query.done, query.replayed = 0, {}
    world.clock.advance(7200)
    query.restart(world.stream(startingPosition=start))
    if start == "earliest":
        assert query.run_batch(), "what is there when it is read"
        return
    with pytest.raises(CursorExpired, match="keeps 3600 s:"):
        query.run_batch()


def test_a_node_with_an_outdated_schema_does_not_bring_back_a_former_ttl(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.clock.advance(60)
    alter(world, 7200)
    world.clock.advance(60)
    reader = world.stream(startingPosition="latest")
    world.clock.advance(60)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    former = planning.open_source(reader._options).table
    alter(world, 60)
    world.clock.advance(20)
    reader.reportLatestOffset()
    world.write(5)
    world.clock.advance(200)
    with monkeypatch.context() as outdated:
        outdated.setattr(cdc_same, "read_table", lambda *_, **__: former)
        following = reader.latestOffset(end, ALL)
    assert following["ttl"] == 60
    with pytest.raises(CursorExpired, match="keeps 60 s"):
        reader.partitions(end, following)


@pytest.mark.parametrize("answer_s", [0, 5])
def test_rows_are_lost_however_long_the_question_for_the_time_takes(
    world: World, monkeypatch: pytest.MonkeyPatch, answer_s: int
) -> None:
    world.clock.advance(60)
    start = format_time(world.clock.now_us())
    world.write(5)
    world.clock.advance(100)
    reader, partitions = planned(world, startingPosition=start, parallelism=1)
    world.clock.advance(3502)
    ask = cdc_same.read_log_id

    def slowly(*given: Any) -> Any:
        answer = ask(*given)
        world.clock.advance(answer_s)
        return answer

    monkeypatch.setattr(cdc_same, "read_log_id", slowly)
    with pytest.raises(CursorExpired, match="because they expired before"):
        rows_of(reader, partitions)


@pytest.mark.parametrize("is_known", [True, False])
def test_rows_that_live_by_the_fastest_clock_are_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """The node that an executor asks may be the fastest, or the slowest; unless all answer, it may be either."""
    second = world.scylla.add_node()
    world.clock.advance(70)
    world.scylla.faults.skew_clock(second, timedelta(seconds=600))
    start = format_time(world.clock.now_us())
    world.write(20)
    world.clock.advance(2400)
    reader, partitions = planned(world, startingPosition=start)
    check = reading.check_log
    monkeypatch.setattr(reading, "check_log", lambda *given: max(check(*given), world.clock.now_us() + 600_000_000))
    if is_known:
        assert len(rows_of(reader, partitions)) == 20
        return
    monkeypatch.setattr(reading.NodeClocks, "sample", lambda clocks: None)
    with pytest.raises(CursorExpired):
        rows_of(reader, partitions)


@OF_BOTH_KINDS
def test_another_start_does_not_change_what_a_planned_batch_assumes(world: World) -> None:
    world.clock.advance(60)
    old = format_time(world.clock.now_us() - 60_000_000)
    world.write(6, every=timedelta(seconds=20))
    alter(world, 60)
    world.clock.advance(35)
    query = Query(world, world.stream(windowSpan="10s"))
    query.run_batch(ReadMaxFiles(2), fails=True)
    world.clock.advance(170)
    query.restart(world.stream(startingPosition=old, windowSpan="10s", failOnDataLoss=False))
    query.replayed.clear()
    while query.run_batch(ReadMaxFiles(2)):
        pass
    assert all("assumed" not in json.loads(end) for end in query.ends)


@OF_BOTH_KINDS
def test_the_former_ttl_that_a_cursor_has_is_in_the_first_batch(world: World) -> None:
    log = rscylla.NewStream(world.session, "ks", "t", clock=world.clock).describe()
    cursor = log.read_until(log.generations[-1], world.clock.now_us())
    world.write(1)
    world.clock.advance(60)
    alter(world, 7200)
    query = Query(world, world.stream(startingPosition=str(cursor)))
    query.run_batch(fails=True)
    assert json.loads(query.ends[0])["begin"]["ttl"] == 3600
    world.clock.advance(3600)
    query.restart(world.stream(startingPosition="latest"))
    with pytest.raises(CursorExpired, match="keeps 3600 s") as caught:
        query.run_batch()
    assert us_of(caught.value.gap_from) == cursor.exact_us


@pytest.mark.parametrize("how", ["batch", "stream", "earliest"])
@OF_BOTH_KINDS
def test_rows_without_a_ttl_are_never_lost(world: World, how: str) -> None:
    start = "earliest" if how == "earliest" else format_time(world.clock.now_us())
    alter(world, 0)
    world.write(2)
    world.session.execute("ALTER TABLE ks.t ADD w int")
    world.clock.advance(3 * 86_400)
    if how == "batch":
        assert len(rows_of(*planned(world, startingPosition=start))) == 2
        return
    query = Query(world, world.stream(startingPosition=start, maxWindowsPerTrigger=1, windowSpan="1h"))
    for _ in range(3):
        assert query.run_batch(ReadMaxFiles(1))
        world.clock.advance(86_400)
    while query.run_batch():
        pass
    assert len(query.rows) == 2


@pytest.mark.parametrize("world", ["tablets"], indirect=True)
def test_a_start_among_streams_that_tablets_no_longer_have_is_a_gap_from_there(world: World) -> None:
    world.clock.advance(60)
    start_us = world.clock.now_us()
    world.write(2)
    switch(world)
    world.clock.advance(2 * 3600)
    world.write(1)
    world.clock.advance(60)
    log = rscylla.NewStream(world.session, "ks", "t", clock=world.clock).describe()
    assert log.generations[0].start_us > start_us, "the streams of the start are no longer listed"
    at = {"startingPosition": format_time(start_us)}
    for plan in (lambda: planned(world, **at), lambda: world.stream(**at).initialOffset()):
        with pytest.raises(CursorExpired, match="may be lost; start later") as caught:
            plan()
        assert us_of(caught.value.gap_from) == start_us
        assert us_of(caught.value.gap_to) == about(world.clock.now_us() - 3_600_000_000 + EARLY_US)
    assert [row["ck"] for row in rows_of(*planned(world, **at, failOnDataLoss=False))] == [2]


def first_batch(world: World) -> Row:
    """Run a first batch without rows, and return where it ended."""
    world.clock.advance(60)
    reader = world.stream()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert rows_of(reader, reader.partitions(reader.initialOffset(), end)) == []
    world.clock.advance(60)
    return passed_through_a_checkpoint(end)


def test_rows_that_expired_in_the_middle_of_a_batch_are_reported(world: World) -> None:
    start = first_batch(world)
    world.write(1)
    world.clock.advance(10)
    altered_us = world.clock.now_us()
    alter(world, 60)
    world.clock.advance(5)
    world.write(1)
    world.clock.advance(200)
    reader = world.stream()
    end = reader.latestOffset(start, ALL)
    with pytest.raises(CursorExpired, match="may be lost") as caught:
        reader.partitions(start, end)
    assert caught.value.gap_from == datetime_of(altered_us)
    assert caught.value.gap_to == datetime_of(world.clock.now_us() - 60_000_000 + EARLY_US)
    before = {**end, "t": altered_us}
    assert [row["ck"] for row in rows_of(reader, reader.partitions(start, before))] == [0]
    with pytest.raises(CursorExpired, match="may be lost"):
        reader.partitions(before, end)
    lenient = world.stream(failOnDataLoss=False)
    assert [row["ck"] for row in rows_of(lenient, lenient.partitions(start, end))] == [0]


def begin_behind_a_gap(world: World) -> tuple[Query, int]:
    """Run the first batch of a query from the earliest row; before it began, the TTL was shortened, and rows expired.

    Returns:
        The query, and when it began.
    """
    world.clock.advance(60)
    world.write(1, every=timedelta(seconds=1))
    alter(world, 60)
    world.clock.advance(5)
    world.write(1)
    world.clock.advance(200)
    world.write(1)
    world.clock.advance(40)
    query = Query(world, world.stream())
    assert query.run_batch(ReadMaxFiles(1))
    return query, world.clock.now_us()


def test_rows_that_had_expired_when_an_earliest_query_began_were_never_promised(world: World) -> None:
    query, _ = begin_behind_a_gap(world)
    while query.run_batch(ReadMaxFiles(3)):
        query.restart(world.stream())
    assert [row["ck"] for row in query.rows] == [0, 2]
    assert "since" in json.loads(query.ends[0])
    assert "since" not in json.loads(query.ends[-1]), "nothing is left that had expired"
    assert [row["ck"] for row in world.batch()] == [0, 2]


def test_rows_that_expire_after_an_earliest_query_began_are_reported(world: World) -> None:
    query, began_us = begin_behind_a_gap(world)
    world.clock.advance(100)
    query.restart(world.stream())
    assert query.run_batch(ReadMaxFiles(10)), "ends among what had expired"
    with pytest.raises(CursorExpired, match="may be lost") as caught:
        query.run_batch(ReadMaxFiles(100))
    assert us_of(caught.value.gap_from) == about(began_us - 54_000_000)
    assert us_of(caught.value.gap_to) == about(world.clock.now_us() - 60_000_000 + EARLY_US)
    lenient = world.stream(failOnDataLoss=False)
    query.restart(lenient)
    start, end = json.loads(query.ends[-2]), json.loads(query.ends[-1])
    first_us = min(p.value.window.start_us for p in lenient.partitions(start, end))
    assert first_us == about(world.clock.now_us() - 60_000_000), "what has expired is not looked for"
    while query.run_batch():
        pass
    assert [row["ck"] for row in query.rows] == [0]


def test_rows_before_the_gap_may_expire_too(world: World) -> None:
    """What TTL they have is not known any more: after two days they may be gone."""
    query, _ = begin_behind_a_gap(world)
    world.clock.advance(2 * 86400)
    query.restart(world.stream())
    with pytest.raises(CursorExpired, match="may be lost") as caught:
        query.run_batch()
    assert us_of(caught.value.gap_from) == json.loads(query.ends[0])["t"]


def test_rows_of_unknown_ttl_that_were_old_when_an_earliest_query_began_are_not_promised(world: World) -> None:
    world.clock.advance(3 * 86_400)
    alter(world, 60)
    world.write(1)
    world.clock.advance(40)
    query = Query(world, world.stream())
    assert query.run_batch(ReadMaxFiles(1))
    while query.run_batch(ReadMaxFiles(100_000)):
        query.restart(world.stream())
    assert [row["ck"] for row in query.rows] == [0]


def test_a_gap_after_one_that_was_not_promised_is_reported(world: World) -> None:
    world.clock.advance(60)
    alter(world, 120)
    world.clock.advance(200)
    alter(world, 60)
    world.clock.advance(200)
    query = Query(world, world.stream())
    assert query.run_batch(ReadMaxFiles(1))
    began_us = world.clock.now_us()
    world.clock.advance(200)
    query.restart(world.stream())
    with pytest.raises(CursorExpired, match="may be lost") as caught:
        query.run_batch()
    assert us_of(caught.value.gap_from) == about(began_us - 54_000_000)


def test_a_gap_is_reported_by_the_fastest_clock_and_skipped_by_the_slowest(world: World) -> None:
    """Rows expire by the clock of the node that reads them: 600 s sooner on the second node."""
    second = world.scylla.add_node()
    world.clock.advance(70)
    world.scylla.faults.skew_clock(second, timedelta(seconds=600))
    query = Query(world, world.stream())
    world.write(3)
    world.clock.advance(100)
    assert query.run_batch()
    end_us = json.loads(query.ends[-1])["t"]
    world.clock.advance(3300)
    query.restart(world.stream())
    with pytest.raises(CursorExpired, match="may be lost") as caught:
        query.run_batch()
    assert us_of(caught.value.gap_from) == end_us
    assert us_of(caught.value.gap_to) == about(world.clock.now_us() - 3_000_000_000 + EARLY_US)

    def first_us() -> int:
        lenient = world.stream(failOnDataLoss=False)
        start = json.loads(query.ends[0])
        return min(p.value.window.start_us for p in lenient.partitions(start, lenient.latestOffset(start, ALL)))

    assert first_us() == end_us, "the first node still has these rows"
    world.clock.advance(600)
    assert end_us < first_us() == about(world.clock.now_us() - 3_600_000_000)


def test_rows_that_expired_before_the_ttl_became_longer_are_reported(world: World) -> None:
    start = first_batch(world)
    assert start["ttl"] == 3600
    world.write(1)
    world.clock.advance(3700)
    alter(world, 86400)
    world.clock.advance(100)
    world.write(1)
    world.clock.advance(60)
    reader = world.stream()
    end = reader.latestOffset(start, ALL)
    assert end["ttl"] == 86400
    unknown = {name: value for name, value in start.items() if name != "ttl"}  # of an rscylla that did not keep it
    fresh = world.stream()
    assert [row["ck"] for row in rows_of(fresh, fresh.partitions(unknown, end))] == [1]
    with pytest.raises(CursorExpired, match="may be lost") as caught:
        reader.partitions(start, end)
    assert caught.value.gap_from == datetime_of(start["t"])
    assert reader.partitions({**start, "t": world.clock.now_us() - 120_000_000}, end), "of the table as it is"
    world.clock.advance(2 * 86400)
    with pytest.raises(CursorExpired, match="may be lost"):
        world.stream().partitions(unknown, end)


def test_earliest_is_whatever_is_there_when_it_is_read(world: World) -> None:
    world.write(5)
    reader = world.stream()
    at = reader.initialOffset()
    world.clock.advance(3600 + 60)
    world.write(3)
    world.clock.advance(60)
    assert len(rows_of(reader, reader.partitions(at, reader.latestOffset(at, ALL)))) == 3


@pytest.mark.parametrize("mode", ["changes", "log"])
def test_rows_that_expire_between_plan_and_read_are_an_error_if_they_were_promised(world: World, mode: str) -> None:
    world.clock.advance(60)
    start = format_time(world.clock.now_us())
    world.write(5)
    world.clock.advance(100)
    promised = planned(world, mode=mode, startingPosition=start)
    others = [
        planned(world, mode=mode),  # from the earliest row that there is
        planned(world, mode=mode, startingPosition=start, failOnDataLoss=False),
    ]
    assert len(rows_of(*promised)) == 5
    world.clock.advance(3600)
    with pytest.raises(CursorExpired, match=r"ks\.t keeps 3600 s: .* may be lost, because they expired before an") as e:
        rows_of(*promised)
    assert e.value.gap_from is not None
    assert format_time(us_of(e.value.gap_from)) == start
    for reader, partitions in others:
        assert rows_of(reader, partitions) == []


def planned_in_many_windows(world: World, monkeypatch: pytest.MonkeyPatch, mode: str) -> tuple[int, Any, Any]:
    """Write a row each half minute, 100 in all; return when the first was written, and a reader with its one part."""
    rows_a_window = 25 if mode == "changes" else 5  # a fifth of that, where windows are held as a whole
    monkeypatch.setattr(reading, "Limits", partial(Limits, window_rows=rows_a_window, in_flight=1))
    monkeypatch.setattr(spanbatches, "ROWS_A_BATCH", 1)
    start_us = world.clock.now_us()
    world.write(100, every=timedelta(seconds=30))
    world.clock.advance(100)
    reader, [partition] = planned(world, mode=mode, parallelism=1, startingPosition=format_time(start_us))
    return start_us, reader, partition


@pytest.mark.parametrize("mode", ["changes", "log"])
def test_rows_that_expire_after_they_were_read_are_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A span is read window by window, which may take longer than its first rows have left."""
    start_us, reader, partition = planned_in_many_windows(world, monkeypatch, mode)
    rows = batches = 0
    for batch in reader.read(partition):
        rows, batches = rows + batch.num_rows, batches + 1
        world.clock.advance(20 * batch.num_rows)
    assert rows == 100
    assert batches > 10
    assert world.clock.now_us() > start_us + 3_600_000_000, "the first rows have expired by now"


@pytest.mark.parametrize("mode", ["changes", "log"])
def test_rows_that_expire_while_others_are_read_are_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    start_us, reader, partition = planned_in_many_windows(world, monkeypatch, mode)
    seen: list[int] = []

    def read() -> None:
        for batch in reader.read(partition):
            seen.extend(time.timestamp() for time in batch.column("cdc_timestamp").to_pylist())
            if len(seen) >= 40 > len(seen) - batch.num_rows:
                world.clock.advance(3600)

    with pytest.raises(CursorExpired, match="because they expired before an executor read them") as caught:
        read()
    assert 40 <= len(seen) < 100
    gap_from, gap_to = caught.value.gap_from, caught.value.gap_to
    assert abs(gap_from.timestamp() - seen[39]) <= 300
    assert gap_to.timestamp() == start_us / 1e6 + 3070, "all that was read later had expired"


def test_rows_that_expired_are_lost_although_a_node_did_not_know_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its schema was outdated: another node says that the log is the same, and the rows have expired all the same."""
    start = format_time(world.clock.now_us())
    world.write(5)
    world.clock.advance(100)
    reader, partitions = planned(world, startingPosition=start)
    world.clock.advance(3600)
    known = cdc_same.read_log_id
    monkeypatch.setattr(cdc_same, "read_log_id", lambda *given: (None, *known(*given)[1:]))
    with pytest.raises(CursorExpired, match="because they expired before"):
        rows_of(reader, partitions)


def test_a_cursor_that_has_expired_is_an_error_by_default(world: World) -> None:
    world.write(2)
    world.clock.advance(60)
    cursor = world.events()[0].id
    world.clock.advance(2 * 3600)
    world.write(3)
    world.clock.advance(60)
    with pytest.raises(CursorExpired, match="older than what the log keeps"):
        world.batch(startingPosition=cursor)
    assert len(world.batch(startingPosition=cursor, failOnDataLoss=False)) == 3


# ---------------------------------------------------------------- random histories


@pytest.mark.parametrize("world", ["tablets"], indirect=True)
def test_streams_that_tablets_forget_before_a_batch_is_planned_are_a_gap(world: World) -> None:
    """A TTL that becomes shorter lets them forget streams whose rows were written with another one."""
    world.clock.advance(60)
    start_us = world.clock.now_us()
    alter(world, 0)
    reader = world.stream(startingPosition=format_time(start_us))
    first = reader.initialOffset()
    for _ in range(3):
        world.write(1)
        switch(world)
    world.clock.advance(60)
    end = reader.latestOffset(first, ALL)
    alter(world, 60)
    world.clock.advance(120)
    with pytest.raises(CursorExpired, match="may be lost") as caught:
        reader.partitions(first, end)
    assert us_of(caught.value.gap_from) == start_us
    lenient = world.stream(failOnDataLoss=False)
    assert rows_of(lenient, lenient.partitions(first, end)) == []


@pytest.mark.parametrize("world", ["tablets"], indirect=True)
@pytest.mark.parametrize("on_expired", ["raise", "oldest"])
def test_streams_that_tablets_forget_while_a_window_is_planned_are_a_gap(
    world: World, monkeypatch: pytest.MonkeyPatch, on_expired: Any
) -> None:
    store, stream = MemoryCursorStore(), rscylla.NewStream(world.session, "ks", "t", clock=world.clock)
    world.clock.advance(60)
    alter(world, 0)
    cursor = stream.cursor_at(datetime_of(world.clock.now_us()))
    store.set_cursor("lake", cursor)
    for _ in range(3):
        world.write(1)
        switch(world)
    world.clock.advance(60)
    spans = Division.spans

    def forgetting(division: Division, *args: Any, **more: Any) -> Any:
        monkeypatch.setattr(Division, "spans", spans)
        alter(world, 60)
        world.clock.advance(120)
        return spans(division, *args, **more)

    monkeypatch.setattr(Division, "spans", forgetting)
    with rs.windows(
        MagicMock(), stream, store, "lake", rscylla.StreamLag(seconds=30), rscylla.StreamToHead(), on_expired=on_expired
    ) as loop:
        if on_expired == "raise":
            with pytest.raises(CursorExpired, match="may be lost"):
                next(loop)
            assert store.get_cursor("lake") == cursor
        else:
            window, _ = next(loop)
            assert window.generation > rscylla.EventID.parse(cursor).generation


@attrs.define
class Written:
    """A row of the log: its ``ck``, when it was written, and how long it lives, in microseconds; 0: for ever."""

    ck: int
    time_us: int
    ttl_us: int

    def lives_at(self, now_us: int) -> bool:
        return not self.ttl_us or now_us <= self.time_us + self.ttl_us


@attrs.define
class History:
    """Writes at random, alters the table, and lets time pass; knows all rows, and which TTL they have."""

    world: World
    dice: random.Random
    rows: list[Written] = attrs.field(factory=list)
    ttls: list[tuple[int, int]] = attrs.field(factory=lambda: [(0, 3600)])
    columns: int = 0

    @property
    def altered_us(self) -> int:
        return self.ttls[-1][0]

    def ttl_us_at(self, time_us: int) -> int:
        return next(ttl for since, ttl in reversed(self.ttls) if since <= time_us) * 1_000_000

    def go_on(self) -> None:
        world, dice = self.world, self.dice
        match dice.choice(["write", "write", "write", "pass", "pass", "alter", "switch"]):
            case "write":
                for _ in range(dice.randint(1, 5)):
                    now_us = world.clock.now_us()
                    self.rows.append(Written(world.written, now_us, self.ttl_us_at(now_us)))
                    world.write(1, every=timedelta(seconds=dice.choice([1, 20, 90])))
            case "alter":
                ttl_s = self.ttls[-1][1]
                if dice.random() < 0.3:
                    self.columns += 1
                    world.session.execute(f"ALTER TABLE ks.t ADD c{self.columns} int")
                else:
                    ttl_s = dice.choice([0, 60, 600, 7200])
                    alter(world, ttl_s, comment=str(len(self.ttls)))
                self.ttls.append((world.clock.now_us(), ttl_s))
            case "switch":
                switch(world)
        world.clock.advance(dice.choice([1, 30, 200, 2000]) * dice.random())


@attrs.define
class SlowQuery(Query):
    """Reads the parts of a batch long after they were planned, at times, and knows what the reader cannot know.

    ``unsure``: spans of time, and the TTL in microseconds that the reader believes the rows of each had, as it has not
    looked between two alterations; None: a day, or more.
    """

    history: History = attrs.field(kw_only=True)
    looked_us: int = 0
    begun_us: int = 0
    """When the end of the first batch was planned."""
    unsure: list[tuple[int, int, int | None]] = attrs.field(factory=list)

    def read(self, partitions: list[Any]) -> list[Row]:
        rows: list[Row] = []
        for partition in partitions:
            self.world.clock.advance(self.history.dice.choice([0, 0, 0, 5, 40, 700]))
            rows += super().read([partition])
        return sorted(rows, key=lambda row: row["cdc_sequence"])

    def step(self, reader: StreamReader | None) -> None:
        """Run a batch by a new *reader*, or by the present one, which looks at the table again."""
        history, dice = self.history, self.history.dice
        if reader is not None:
            self.restart(reader)
        if reader is None and self.looked_us:
            self.unsure.append((self.looked_us, history.altered_us, history.ttl_us_at(self.looked_us)))
        else:
            planned = [json.loads(end) for end in self.ends]
            offset = planned[self.done - 1] if self.done else planned[0]["begin"] if planned else None
            offset = offset or self.reader.initialOffset()
            ttl_s = offset.get("ttl", offset.get("assumed"))
            believed_us = None if ttl_s is None else ttl_s * 1_000_000
            self.unsure.append((offset["t"] if self.done else 0, history.altered_us, believed_us))
        self.looked_us = self.world.clock.now_us()
        self.replayed.clear()  # of a batch that failed, rows may expire before it is repeated
        self.begun_us = self.begun_us or self.looked_us
        self.run_batch(dice.choice([ALL, ReadMaxFiles(1), ReadMaxFiles(9)]), fails=dice.random() < 0.2)

    def is_unsure(self, time_us: int) -> bool:
        """Whether the reader believes something else of rows of this time than what is true."""
        ttl_us = self.history.ttl_us_at(time_us)
        return any(start <= time_us < end and believed != ttl_us for start, end, believed in self.unsure)


@pytest.mark.parametrize(("seed", "world"), [(n, ("vnodes", "tablets")[n % 2]) for n in range(16)], indirect=["world"])
def test_no_row_is_lost_without_an_error_and_no_error_is_false(world: World, seed: int) -> None:
    """Except where the schema does not show the TTL that rows had, and what is assumed of it is wrong."""
    dice = random.Random(seed)
    history = History(world, dice)
    before_us = world.clock.now_us() - 7_200_000_000
    for _ in range(dice.randint(0, 6)):
        history.go_on()
    start_us = dice.choice([before_us, world.clock.now_us(), *(row.time_us for row in history.rows)])
    is_earliest = dice.random() < 0.3
    start = "earliest" if is_earliest else format_time(start_us)
    world.clock.advance(31)

    def stream() -> StreamReader:
        span, parts = dice.choice(["10s", "300s"]), dice.choice([1, 4])
        return world.stream(startingPosition=start, windowSpan=span, parallelism=parts)

    query = SlowQuery(world, stream(), history=history)
    error: CursorExpired | None = None
    for _ in range(14):
        history.go_on()
        try:
            query.step(stream() if dice.random() < 0.6 else None)
        except CursorExpired as e:
            error = e
            break
    if error is not None:
        gap_us, ttl_us = us_of(error.gap_from), history.ttl_us_at(us_of(error.gap_from))
        assert gap_us < us_of(error.gap_to)
        has_expired = ttl_us and gap_us + ttl_us <= world.clock.now_us() + EARLY_US
        # Tablets forget stream sets by the TTL of now, whatever TTL their rows have.
        first_us = planning.open_source(query.reader._options).generations[0].start_us
        assert has_expired or gap_us < first_us or query.is_unsure(gap_us)
    ends_us = [json.loads(end)["t"] for end in query.ends[: query.done]] or [0]
    found = {row["ck"] for row in query.rows}
    assert len(found) == len(query.rows)
    for row in history.rows:
        promised = row.time_us >= start_us
        if is_earliest:  # what is there, and from the first batch on what is there then
            promised = row.time_us >= ends_us[0] and row.lives_at(query.begun_us + 61_000_000)
        if promised and row.time_us < ends_us[-1] and row.ck not in found:
            assert query.is_unsure(row.time_us)
