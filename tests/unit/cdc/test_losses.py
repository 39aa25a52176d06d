"""Where a stream begins and ends, and what it must not pass over in silence, over a log in memory."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from typing import Any

import pytest
from cassandra import InvalidRequest
from fakelog import NOW_US, SECOND, FakeLog, Host, stream_id
from logstreams import DAY, HEAD_US, HOUR, LAG, cut, drain, drain_of_progress, names, stream_of, to_head

from rscylla._timeuuid import datetime_of, min_timeuuid
from rscylla.cdc.client import Client, Direct, ReadAhead, _items_of
from rscylla.cdc.log.lifetimes import EARLY_US
from rscylla.cdc.read.scan import Limits
from rscylla.cdc.rows.events import made_in_python
from rscylla.cdc.window import Begun, EventChunk
from rscylla.errors import (
    ConfigError,
    CursorExpired,
    HeadReached,
    InvalidCursor,
    NoStreams,
    QueryFailed,
)
from rscylla.event import Event, EventID, Progress
from rscylla.options import StreamFromHead, StreamLag, StreamToHead, StreamUntil

# ---------------------------------------------------------------- heads and ends


def test_from_head_first_returns_its_start(one: FakeLog) -> None:
    one.write(HEAD_US - SECOND)
    client = stream_of(one)("", LAG, StreamFromHead())
    start = client.recv()
    assert isinstance(start, Progress)
    at = EventID.parse(start.cursor)
    assert (at.generation, at.exact_us) == ((NOW_US - HOUR) // 1000, HEAD_US)
    assert at.mark is not None
    assert at.mark.is_start
    assert one.asked == []
    fresh = one.write(HEAD_US)
    assert names([client.recv()]) == [fresh.name]


def test_from_head_to_head_is_over_at_once(one: FakeLog) -> None:
    one.write(HEAD_US - SECOND)
    events, progress, head = drain(stream_of(one)("", LAG, StreamFromHead(), StreamToHead()))
    assert events == []
    assert [p.cursor for p in progress] == [head.cursor]


def test_nothing_waits_longer_than_the_lag_and_a_poll(one: FakeLog) -> None:
    client = stream_of(one)("", StreamLag(seconds=120))
    client.recv()
    row = one.write(one.clock.now_us() + 5)
    got = client.recv()
    while isinstance(got, Progress):
        got = client.recv()
    assert names([got]) == [row.name]
    assert 120 * SECOND < one.clock.now_us() - row.us <= 121 * SECOND + 10


def test_to_head_saves_where_it_ended(one: FakeLog) -> None:
    rows = [one.write(HEAD_US - s * SECOND) for s in (5, 1)]
    events, progress, head = drain(stream_of(one)("", LAG, StreamToHead()))
    assert names(events) == one.expected(rows)
    assert progress[-1].cursor == head.cursor
    assert EventID.parse(head.cursor).time == HEAD_US
    assert drain(stream_of(one)(head.cursor, LAG, StreamToHead()))[0] == []


@pytest.mark.parametrize("tail_s", [0, 60])
def test_until_delivers_all_before_and_nothing_after(one: FakeLog, tail_s: int) -> None:
    end = HEAD_US + tail_s * SECOND
    rows = [one.write(end - us) for us in (1, 2, SECOND, 50 * SECOND)]
    one.write(end)
    events, progress, head = drain(stream_of(one)("", LAG, StreamUntil(datetime_of(end))))
    assert names(events) == one.expected(rows)
    assert EventID.parse(head.cursor).time == end
    assert progress[-1].cursor == head.cursor
    assert one.clock.now_us() >= end + 30 * SECOND


def test_the_head_of_a_cursor_that_is_ahead_is_not_behind_it(one: FakeLog) -> None:
    row = one.write(NOW_US - 40 * SECOND, low=2**63)
    (event,) = to_head(one)
    events, progress, head = drain(stream_of(one)(event.id, StreamLag(seconds=60), StreamToHead()))
    assert (events, progress, head.cursor) == ([], [], event.id)
    assert row.us == event.timestamp_us


# ---------------------------------------------------------------- what must not pass in silence


def test_a_generation_without_streams_is_an_error(one: FakeLog) -> None:
    row = one.write(NOW_US - 600 * SECOND)
    one.generations[(NOW_US - 300 * SECOND) // 1000] = []
    client = stream_of(one)("", LAG, StreamToHead())
    assert names([client.recv()]) == [row.name]
    with pytest.raises(NoStreams, match="has no streams") as e:
        drain(client)
    assert e.value.resumable
    assert len(one.clock.waits) >= 5


def test_streams_that_arrive_late_are_waited_for(one: FakeLog) -> None:
    late = (NOW_US - 300 * SECOND) // 1000
    one.generations[late] = []
    one.clock.on_wait = lambda _: one.generations.__setitem__(late, [stream_id(7, 0, 9)])
    client = stream_of(one)("", LAG, StreamToHead())
    drain(client)
    row = one.write(NOW_US - 200 * SECOND)
    assert names(to_head(one)) == [row.name]


def test_a_cluster_without_generations_is_an_error(log: FakeLog) -> None:
    with pytest.raises(NoStreams, match="no CDC generation"):
        stream_of(log)("", LAG)


def test_an_expired_cursor_is_an_error_and_is_not_skipped(log: FakeLog) -> None:
    cut(log, NOW_US - 30 * DAY)
    cursor = str(EventID((NOW_US - 30 * DAY) // 1000, NOW_US - 3 * DAY))
    with pytest.raises(CursorExpired, match=r"changes from .* to .* may be lost") as e:
        stream_of(log)(cursor, LAG)
    assert e.value.gap_from == datetime_of(NOW_US - 3 * DAY)
    assert e.value.gap_to == datetime_of(NOW_US - DAY + EARLY_US)


def test_the_policy_may_be_to_continue_at_the_oldest_row(log: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    cut(log, NOW_US - 30 * DAY)
    row = log.write(NOW_US - DAY + SECOND)
    cursor = str(EventID((NOW_US - 30 * DAY) // 1000, NOW_US - 3 * DAY))
    assert names(to_head(log, cursor, on_expired="oldest")) == [row.name]
    assert any(r.levelno == logging.ERROR and "may be lost" in r.message for r in caplog.records)


def test_a_reader_that_falls_behind_what_is_kept_stops(log: FakeLog) -> None:
    cut(log, NOW_US - 30 * DAY)
    log.write(NOW_US - DAY + 100 * SECOND)
    log.write(NOW_US - DAY + 200 * SECOND)
    start = str(EventID((NOW_US - 30 * DAY) // 1000, NOW_US - DAY + 50 * SECOND))
    client = stream_of(log, limits=Limits(window_rows=1))(start, LAG)
    assert isinstance(client.recv(), Event)
    log.clock.advance(300.0)
    with pytest.raises(CursorExpired, match="fell behind") as e:
        drain(client)
    assert e.value.gap_to == datetime_of(log.clock.now_us() - DAY + EARLY_US)


def test_gaps_that_are_passed_over_are_counted(log: FakeLog) -> None:
    cut(log, NOW_US - 30 * DAY)
    log.write(NOW_US - DAY + 100 * SECOND)
    log.write(NOW_US - DAY + 200 * SECOND)
    long_ago = str(EventID((NOW_US - 30 * DAY) // 1000, NOW_US - 3 * DAY))
    client = stream_of(log, on_expired="oldest", limits=Limits(window_rows=1), prefetch=0)(long_ago, LAG)
    assert client.status().expired_gaps == 1
    assert isinstance(client.recv(), Event)
    log.clock.advance(300.0)
    assert isinstance(client.recv(), Progress | Event)
    assert client.status().expired_gaps == 2, "it fell behind, too"


def test_what_one_node_takes_for_expired_may_be_lost(log: FakeLog) -> None:
    """Rows expire by the clock of the node that reads them, and any node may be the one."""
    cut(log, NOW_US - 30 * DAY)
    log.nodes = [Host("a", 0), Host("b", 600 * SECOND)]
    log.write(NOW_US - DAY + 310 * SECOND)
    cursor = str(EventID((NOW_US - 30 * DAY) // 1000, NOW_US - DAY + 300 * SECOND))
    with pytest.raises(CursorExpired, match="may be lost") as e:
        stream_of(log)(cursor, LAG)
    assert e.value.gap_from == datetime_of(NOW_US - DAY + 300 * SECOND)
    assert abs((e.value.gap_to - datetime_of(NOW_US - DAY + 600 * SECOND + EARLY_US)).total_seconds()) < 0.01
    later = str(EventID((NOW_US - 30 * DAY) // 1000, NOW_US - DAY + 700 * SECOND))
    assert to_head(log, later) == []


def test_a_reader_that_falls_behind_the_fastest_node_stops(log: FakeLog) -> None:
    cut(log, NOW_US - 30 * DAY)
    log.nodes = [Host("a", 0), Host("b", 600 * SECOND)]
    for seconds in (700, 800):
        log.write(NOW_US - DAY + seconds * SECOND)
    start = str(EventID((NOW_US - 30 * DAY) // 1000, NOW_US - DAY + 650 * SECOND))
    client = stream_of(log, limits=Limits(window_rows=1))(start, LAG)
    assert isinstance(client.recv(), Event)
    log.clock.advance(300.0)
    with pytest.raises(CursorExpired, match="fell behind"):
        drain(client)


def test_a_reader_that_fell_behind_and_continues_reports_it_once(log: FakeLog) -> None:
    cut(log, NOW_US - 30 * DAY)
    log.nodes = [Host("a", 0), Host("b", 600 * SECOND)]
    for seconds in range(700, 1500, 100):
        log.write(NOW_US - DAY + seconds * SECOND)
    start = str(EventID((NOW_US - 30 * DAY) // 1000, NOW_US - DAY + 650 * SECOND))
    client = stream_of(log, limits=Limits(window_rows=1), on_expired="oldest")(start, LAG, StreamToHead())
    assert isinstance(client.recv(), Event)
    log.clock.advance(300.0)
    drain(client)
    assert client.status().expired_gaps == 1


@pytest.mark.parametrize("ahead_s", [600, 40 * 86_400])
def test_only_rows_that_have_expired_on_all_nodes_are_skipped(log: FakeLog, ahead_s: int, monkeypatch: Any) -> None:
    """A clock that is far ahead does not hide rows that other nodes still return."""
    cut(log, NOW_US - 30 * DAY)
    rows = [log.write(NOW_US - DAY + seconds * SECOND) for seconds in (310, 50_000)]
    nodes = [Host("a", 0), Host("b", ahead_s * SECOND)]
    log.nodes = nodes
    send = log.send

    def by_the_first(*given: Any, **callbacks: Any) -> None:
        log.nodes = nodes[:1]
        send(*given, **callbacks)
        log.nodes = nodes

    monkeypatch.setattr(log, "send", by_the_first)
    cursor = str(EventID((NOW_US - 30 * DAY) // 1000, NOW_US - DAY + 300 * SECOND))
    assert names(to_head(log, cursor, on_expired="oldest")) == [row.name for row in rows]
    assert names(to_head(log, "")) == [row.name for row in rows]


def test_a_start_at_the_oldest_row_keeps_clear_of_what_any_node_takes_for_expired(log: FakeLog) -> None:
    cut(log, NOW_US - 30 * DAY)
    log.nodes = [Host("a", 0), Host("b", 600 * SECOND)]
    stream_of(log)(stream_of(log).cursor_at(), LAG).close()


def test_a_gap_that_was_skipped_to_open_a_stream_is_reported_once(log: FakeLog) -> None:
    cut(log, NOW_US - 30 * DAY)
    long_ago = str(EventID((NOW_US - 30 * DAY) // 1000, NOW_US - 3 * DAY))
    client = stream_of(log, on_expired="oldest", prefetch=0)(long_ago, LAG)
    log.clock.advance(0.5)
    client.recv()
    assert client.status().expired_gaps == 1


def test_a_client_reports_what_alarms_need(one: FakeLog) -> None:
    one.nodes = [Host("a", 0), Host("b", -40 * SECOND), Host("c", 2 * SECOND)]
    asked: list[float] = []
    client = stream_of(one, prefetch=0)("", LAG)

    def hang(seconds: float) -> None:
        one.clock.advance(7)
        asked.append(client.status().poll_age_s)

    one.clock.on_wait = hang
    assert client.status().log_ttl_s == DAY // SECOND
    assert client.status().clock_skew_us == pytest.approx(-40 * SECOND, abs=1000)
    assert client.status().poll_age_s == 0
    while not asked:
        client.recv()
    assert asked[0] >= 7
    assert client.status().poll_age_s == 0, "nothing is asked while the consumer works"


def test_a_start_at_the_oldest_promises_nothing_that_expires(log: FakeLog) -> None:
    cut(log, NOW_US - 30 * DAY)
    log.write(NOW_US - DAY + SECOND)
    row = log.write(NOW_US - HOUR)
    client = stream_of(log)("", LAG, StreamToHead())
    log.clock.advance(300.0)
    assert names(drain(client)[0]) == [row.name]


def test_a_cursor_of_another_cluster_is_refused(one: FakeLog) -> None:
    with pytest.raises(InvalidCursor, match="another cluster"):
        stream_of(one)(str(EventID(NOW_US // 1000 - 5, NOW_US - 4000)), LAG)
    for text in ("7", "{}", '{"v":2}', "x", None, 0):
        with pytest.raises(InvalidCursor):
            stream_of(one)(text, LAG)


def test_a_node_whose_clock_is_behind_holds_the_windows_back(one: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    one.nodes = [Host("a", 0), Host("b", -40 * SECOND), Host("c", None), Host("d", 90 * SECOND)]
    seen = one.write(HEAD_US - 41 * SECOND)
    one.write(HEAD_US - 39 * SECOND)
    assert names(to_head(one)) == [seen.name]
    told = [r.message for r in caplog.records if "clock of node" in r.message]
    assert [("node b" in t, "node d" in t) for t in sorted(told)] == [(True, False), (False, True)]


def test_a_list_of_generations_is_as_old_as_the_moment_it_was_asked_for(one: FakeLog) -> None:
    """The answer may have been made right then, however long it takes to come."""
    source = stream_of(one).describe()

    def slow(cql: str) -> None:
        if "generation_timestamps" in cql:
            one.clock.advance(20)

    asked_us = one.clock.now_us()
    one.on_rows = slow  # type: ignore[assignment]
    source.refresh_generations()
    assert source.known_at_us == pytest.approx(asked_us, abs=1000)


@pytest.mark.parametrize("lag_s", [1, 10, 30, 60, 600])
def test_a_generation_may_be_announced_at_its_very_start(one: FakeLog, lag_s: int) -> None:
    """And by a node whose clock is behind by up to the margin: the list is that much younger than a window is."""
    margin_us = min(lag_s * SECOND // 2, 15 * SECOND)
    stream = stream_of(one, poll=timedelta(seconds=1), progress_every=timedelta(0))
    client = stream("", StreamLag(seconds=lag_s))
    seen: list[Any] = []
    begins_us = one.clock.now_us() + (lag_s + 40) * SECOND
    is_written = False
    for _ in range(2000):
        now_us = one.clock.now_us()
        if not is_written and now_us >= begins_us + margin_us - SECOND:
            cut(one, begins_us)
            one.write(begins_us + 1000)
            is_written = True
        got = client.recv()
        if not isinstance(got, Progress):
            seen.append(got)
            break
        assert is_written or got.time_us <= begins_us, "no progress beyond a generation that nobody has heard of"
        assert seen or not is_written or got.time_us <= begins_us + 1000, "no progress beyond a row that was not read"
    assert [e.timestamp_us for e in seen] == [begins_us + 1000]


def test_a_start_in_the_future_stays_one_though_a_generation_begins_before_it(one: FakeLog) -> None:
    one.log_id = min_timeuuid(NOW_US - HOUR)
    start_us = NOW_US + 100 * SECOND
    cursor = stream_of(one).cursor_at(datetime_of(start_us))
    cut(one, NOW_US + 50 * SECOND)
    one.write(NOW_US + 60 * SECOND)
    wanted = one.write(NOW_US + 101 * SECOND)
    one.clock.advance(200)
    assert names(to_head(one, cursor)) == [wanted.name]


def test_a_point_in_the_future_that_names_no_log_is_a_start_too(one: FakeLog) -> None:
    """Such as one that another program wrote."""
    point = EventID((NOW_US - HOUR) // 1000, NOW_US + 100 * SECOND)
    client = stream_of(one)(str(point), LAG, StreamUntil(datetime_of(NOW_US + 150 * SECOND)))
    cut(one, NOW_US + 50 * SECOND)
    one.write(NOW_US + 60 * SECOND)
    wanted = one.write(NOW_US + 101 * SECOND)
    one.clock.advance(200)
    assert names(drain(client)[0]) == [wanted.name]


def test_a_start_in_the_future_stays_one_though_generations_begin_before_it_in_several_runs(one: FakeLog) -> None:
    """Nothing was read before a start, so its cursor stays one, whichever generation the stream has come to."""
    one.log_id = min_timeuuid(NOW_US - HOUR)
    start_us = NOW_US + 100 * SECOND
    cursor = stream_of(one).cursor_at(datetime_of(start_us))
    cut(one, NOW_US + 10 * SECOND)
    one.clock.advance(80)
    assert drain(stream_of(one)(cursor, LAG, StreamToHead()))[0] == []
    *_, told = drain(stream_of(one)(cursor, LAG, StreamToHead()))
    cut(one, NOW_US + 90 * SECOND)
    one.write(NOW_US + 95 * SECOND)
    wanted = one.write(NOW_US + 101 * SECOND)
    one.clock.advance(200)
    assert told.cursor is not None
    assert EventID.parse(told.cursor).generation > EventID.parse(cursor).generation
    assert names(to_head(one, told.cursor)) == [wanted.name]


def test_a_start_in_the_future_enters_no_generation_before_it_begins(one: FakeLog) -> None:
    """Its cursor would be above all those of a log that is created again until then."""
    begun, ahead = (NOW_US - HOUR) // 1000, NOW_US // 1000 + 20_000
    cut(one, ahead * 1000)
    cursor = stream_of(one).cursor_at(datetime_of(NOW_US + 100 * SECOND))
    assert EventID.parse(cursor).generation == begun
    for _ in range(2):
        *_, told = drain(stream_of(one)(cursor, LAG, StreamToHead()))
        assert told.cursor is not None
        assert EventID.parse(told.cursor).generation == begun
        cursor = told.cursor
        one.clock.advance(10)
    one.clock.advance(200)
    *_, told = drain(stream_of(one)(cursor, LAG, StreamToHead()))
    assert told.cursor is not None
    assert EventID.parse(told.cursor).generation == ahead


@pytest.mark.slow
@pytest.mark.parametrize("iterate", [False, True])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_an_interrupt_at_any_line_loses_nothing(one: FakeLog, prefetch: int, iterate: bool) -> None:
    """Ctrl-C may come anywhere in ``recv``; the next call returns the next event or raises, without a gap.

    So does a new iterator, after an interrupt of the old one.
    """
    rows = [one.write(HEAD_US - s * SECOND) for s in (50, 40, 30, 20, 10)]
    expected = one.expected(rows)
    settings = {"prefetch": prefetch, "limits": Limits(window_rows=1), "progress_every": timedelta(0)}
    steps = (Client.recv, Client.take, Client._next, Client._advance, Client._progress, Direct.take, ReadAhead.take)
    chunks = (Client._chunk, _items_of, EventChunk.__init__, EventChunk.__iter__, Begun.__init__, Begun.__iter__)
    code = {f.__code__ for f in (*steps, *chunks, made_in_python)}
    for nth in range(1, 500):
        left = nth

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_code not in code:
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
            return trace

        client = stream_of(one, **settings)("", LAG, StreamToHead())
        seen: list[tuple[str, str, int]] = []
        interrupts = 0
        receive = iter(client).__next__ if iterate else client.recv
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            while True:
                try:
                    got = receive()
                except KeyboardInterrupt:
                    receive = iter(client).__next__ if iterate else client.recv
                    interrupts += 1
                    if interrupts == 3:
                        break  # an error that stays
                    continue
                except HeadReached:
                    assert seen == expected, f"interrupted at line {nth}"
                    break
                if isinstance(got, Progress):
                    passed = [r for r in rows if r.us < EventID.parse(got.cursor).exact_us]
                    assert seen == one.expected(passed), f"progress passes what was not delivered, line {nth}"
                else:
                    seen += names([got])
                    assert seen == expected[: len(seen)], f"interrupted at line {nth}"
        finally:
            sys.settrace(before)
            client.close()
        if left > 0:
            break  # it ended before the interrupt


def test_no_query_asks_for_more_streams_than_the_server_allows(log: FakeLog) -> None:
    log.generation(NOW_US - HOUR, [stream_id(n, n // 120) for n in range(360)])
    rows = [log.write(HEAD_US - SECOND, at=n) for n in range(360)]
    assert names(to_head(log)) == log.expected(rows)
    assert max(len(a.streams) for a in log.asked) <= 100
    with pytest.raises(ConfigError, match="from 1 to 100"):
        to_head(log, streams_per_query=101)


def test_the_start_of_an_old_cluster_is_what_the_log_still_has(log: FakeLog) -> None:
    for days in range(360, 0, -30):
        cut(log, NOW_US - days * DAY)
    row = log.write(NOW_US - HOUR)
    assert names(to_head(log)) == [row.name]
    assert min(a.start_us for a in log.asked) >= NOW_US - DAY
    assert len(log.asked) < 10


def test_nothing_is_handed_out_while_another_stream_is_unread(one: FakeLog) -> None:
    rows = [one.write(HEAD_US - 3 * SECOND + n * 7919 % 1000, at=n) for n in range(40)]
    cursor = stream_of(one).cursor_at(datetime_of(HEAD_US - 4 * SECOND))
    bad = one.generations[(NOW_US - HOUR) // 1000][3]
    one.on_fetch = lambda a: InvalidRequest("broken") if bad in a.streams and not a.is_probe else None
    client = stream_of(one, streams_per_query=1, limits=Limits(in_flight=1))(cursor, LAG)
    with pytest.raises(QueryFailed):
        drain_of_progress(client)
    one.on_fetch = lambda _: None
    assert names(to_head(one, cursor, streams_per_query=1)) == one.expected(rows)


def test_an_id_depends_on_the_row_alone(one: FakeLog) -> None:
    for n in range(30):
        one.write(HEAD_US - 95 * SECOND + n * SECOND // 7, at=n)
    ids = [e.id for e in to_head(one)]
    for lag in (1, 45, 60):
        assert [e.id for e in to_head(one, "", StreamLag(seconds=lag))] == ids
    assert [e.id for e in to_head(one, limits=Limits(window_rows=2), streams_per_query=1)] == ids
    for start in range(0, 3000, 411):
        after = stream_of(one).cursor_at(datetime_of(HEAD_US - 95 * SECOND + start * 1000))
        assert {e.id for e in to_head(one, after)} <= set(ids)


def test_a_cursor_of_go_replays_its_window(one: FakeLog) -> None:
    second = HEAD_US // SECOND * SECOND - 10 * SECOND
    rows = [one.write(second + us, at=at) for at, us in enumerate((-1, 0, 250_000, 999_999, SECOND))]
    third = to_head(one)[2]
    go = third.id.replace(',"v":2', "")
    assert names(to_head(one, go)) == one.expected(rows[1:])


def test_a_cursor_of_go_from_before_its_generation_is_not_expired(log: FakeLog) -> None:
    cut(log, NOW_US - HOUR)
    row = log.write(NOW_US - HOUR)
    go = str(EventID((NOW_US - HOUR) // 1000, NOW_US - HOUR - 30 * SECOND)).replace(',"v":2', "")
    assert names(to_head(log, go)) == [row.name]
