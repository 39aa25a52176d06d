"""What is known of a log, and whether an answer that contradicts it is believed at once or asked for again."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from fakelog import EPOCH_TICKS, NOW_US, SECOND, FakeLog, Host, log_time, stream_id

from rscylla.cdc.lifetimes import Hole
from rscylla.cdc.source import SETTLING_US, Source
from rscylla.cdc.stream import Stream
from rscylla.clock import Stop
from rscylla.errors import CursorExpired, NoStreams, TableChanged, TableNotFound
from rscylla.event import EventID, cursor_key
from rscylla.options import StreamLag

HOUR = 3600 * SECOND
DAY = 24 * HOUR


def id_of(us: int) -> uuid.UUID:
    """Return the id of a table that was created at *us*."""
    return uuid.UUID(bytes=log_time(us))


def source_of(log: FakeLog) -> Source:
    found = Source(log, log.keyspace, log.table, log.clock, Stop())  # type: ignore[arg-type]
    log.clock.waits.clear()
    return found


@pytest.fixture
def old(log: FakeLog) -> FakeLog:
    """A log that was created an hour ago."""
    log.generation(NOW_US - 2 * HOUR, [stream_id(1)])
    log.log_id = id_of(NOW_US - HOUR)
    assert log.log_id.time == (NOW_US - HOUR) * 10 + EPOCH_TICKS
    return log


@pytest.mark.parametrize("seen_us", [NOW_US - 2 * HOUR, NOW_US])
def test_of_a_table_that_is_old_enough_another_log_is_told_at_once(old: FakeLog, seen_us: int) -> None:
    source = source_of(old)
    old.log_id = id_of(seen_us)
    with pytest.raises(TableChanged):
        source.reread_table(retrying=True)
    assert old.clock.waits == []


def test_a_table_that_is_old_enough_and_gone_is_told_at_once(old: FakeLog) -> None:
    source = source_of(old)
    old.table = "other"
    with pytest.raises(TableNotFound):
        source.reread_table(retrying=True)
    assert old.clock.waits == []


@pytest.mark.parametrize("former", [True, False], ids=["the former table", "no table"])
def test_a_new_table_is_asked_for_again_while_a_node_may_not_know_it(log: FakeLog, former: bool) -> None:
    log.generation(NOW_US - 2 * HOUR, [stream_id(1)])
    log.log_id = new = id_of(NOW_US - SETTLING_US // 2)
    source = source_of(log)
    name = log.table

    def learn(_: float) -> None:
        if len(log.clock.waits) > 1:
            log.table, log.log_id = name, new

    log.clock.on_wait = learn
    if former:
        log.log_id = id_of(NOW_US - HOUR)
    else:
        log.table = "other"
    assert source.reread_table().log_id == new
    assert len(log.clock.waits) > 1


def test_a_new_table_that_was_made_again_is_told_at_once(log: FakeLog) -> None:
    log.generation(NOW_US - 2 * HOUR, [stream_id(1)])
    log.log_id = id_of(NOW_US - SETTLING_US // 2)
    source = source_of(log)
    log.log_id = id_of(NOW_US - SETTLING_US // 4)
    with pytest.raises(TableChanged):
        source.reread_table(retrying=True)
    assert log.clock.waits == []


def test_where_there_are_no_generations_a_table_that_is_gone_is_what_is_told(old: FakeLog) -> None:
    source = source_of(old)
    old.generations.clear()
    with pytest.raises(NoStreams):
        source.refresh_generations()
    old.table = "other"
    with pytest.raises(TableNotFound):
        source.refresh_generations()


@pytest.mark.parametrize(("after_s", "told"), [(-1, True), (30, True), (90, False)])
def test_a_row_that_the_log_lacks_is_of_a_former_log_if_its_stamp_may_be_from_before(
    old: FakeLog, monkeypatch: pytest.MonkeyPatch, after_s: int, told: bool
) -> None:
    """A node whose clock is ahead may have stamped a row of the former log later than the new one was created."""
    answer = old.rows

    def rows(cql: str, *given: Any, **named: Any) -> Any:
        return [] if "SELECT TTL(" in cql else answer(cql, *given, **named)

    monkeypatch.setattr(old, "rows", rows)
    monkeypatch.setattr(old, "consistency", 4, raising=False)
    monkeypatch.setattr(old, "quorum_at_least", 4, raising=False)
    row = EventID.row((NOW_US - 2 * HOUR) // 1000, stream_id(1), log_time(NOW_US - HOUR + after_s * SECOND), 0)
    stream = Stream(old, "ks", "t", clock=old.clock, prefetch=0)  # type: ignore[arg-type]
    if told:
        with pytest.raises(TableChanged):
            stream(str(row), StreamLag(seconds=30))
        start = str(source_of(old).resume(str(row), "oldest"))
        assert cursor_key(start) > cursor_key(str(row)), "a store refuses a lower cursor"
    else:
        stream(str(row), StreamLag(seconds=30)).close()


def test_a_row_that_a_fast_node_takes_for_expired_tells_nothing_of_a_former_log(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    created_us = NOW_US - DAY + 300 * SECOND
    log.generation(NOW_US - 2 * DAY, [stream_id(1)])
    log.log_id = id_of(created_us)
    log.nodes = [Host("a", 0), Host("b", 600 * SECOND)]
    answer = log.rows

    def rows(cql: str, *given: Any, **named: Any) -> Any:
        assert "SELECT TTL(" not in cql, "what has expired need not be looked for"
        return answer(cql, *given, **named)

    monkeypatch.setattr(log, "rows", rows)
    row = EventID.row((NOW_US - 2 * DAY) // 1000, stream_id(1), log_time(created_us + 30 * SECOND), 0)
    stream = Stream(log, "ks", "t", clock=log.clock, prefetch=0)  # type: ignore[arg-type]
    with pytest.raises(CursorExpired):
        stream(str(row), StreamLag(seconds=30))


def test_what_no_generation_held_and_what_expired_after_it_are_one_gap(log: FakeLog) -> None:
    log.generation(NOW_US - 3 * DAY, [stream_id(1)])
    source = source_of(log)
    expired_us = source.now_us() - DAY
    assert source.holes(NOW_US - 5 * DAY) == (Hole(NOW_US - 5 * DAY, expired_us, DAY // SECOND),)
    assert source.holes(NOW_US - 2 * DAY) == (Hole(NOW_US - 2 * DAY, expired_us, DAY // SECOND),)
    assert source.holes(NOW_US - HOUR) == ()


def test_a_young_log_is_read_from_its_very_beginning(log: FakeLog) -> None:
    log.generation(NOW_US - HOUR, [stream_id(1)])
    source = source_of(log)
    assert source.holes(NOW_US - DAY) == (Hole(NOW_US - DAY, NOW_US - HOUR),)
    assert source.safe_start_us() == NOW_US - HOUR


def test_a_node_that_is_days_ahead_moves_no_start_into_the_future(log: FakeLog) -> None:
    log.generation(NOW_US - 3 * DAY, [stream_id(1)])
    log.nodes = [Host("a", 0), Host("b", 40 * DAY)]
    source = source_of(log)
    assert source.safe_start_us() == source.now_us()
    assert source.at_time(None).time <= NOW_US
