"""How a stream reads, each defect of the Go reader (R numbers) once: from open to event, over a log in memory."""

from __future__ import annotations

import gc
import json
import threading
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from cassandra import InvalidRequest, OperationTimedOut
from fakelog import NOW_US, SECOND, FakeLog, Written, columns_of, stream_id
from logstreams import DAY, HEAD_US, HOUR, LAG, cut, drain, drain_of_progress, names, stream_of, to_head

from rscylla import Consumer, Spec, run
from rscylla._timeuuid import datetime_of
from rscylla.cdc.log.lifetimes import Lifetimes
from rscylla.cdc.log.query import first_row_cql
from rscylla.cdc.log.source import METADATA_EVERY_S
from rscylla.cdc.read.scan import Limits
from rscylla.cdc.stream import Stream
from rscylla.clock import Stop
from rscylla.driver.session import ReadSession
from rscylla.errors import (
    CDCDisabled,
    ConfigError,
    HeadReached,
    MissingLag,
    QueryFailed,
    QueryTimeout,
    Stopped,
    TableChanged,
    TableNotFound,
)
from rscylla.event import Event, EventID, Operation, Progress
from rscylla.options import StreamLag, StreamToHead, StreamUntil
from rscylla.testing import FakeCursorStore

# ---------------------------------------------------------------- lag, width, windows


def test_the_lag_reaches_the_source_through_run(one: FakeLog) -> None:
    old = [one.write(NOW_US - s * SECOND, at=s) for s in (61, 90, 300)]
    one.write(NOW_US - 59 * SECOND)
    seen: list[Event] = []
    spec = Spec(
        stream_of(one),
        FakeCursorStore(),
        Consumer("c", lambda event, fate: seen.append(event)),
        StreamLag(seconds=60),
        StreamToHead(),
    )
    with pytest.raises(HeadReached):
        run(spec)
    assert names(seen) == one.expected(old)


def test_a_stream_without_lag_is_refused(one: FakeLog) -> None:
    with pytest.raises(MissingLag, match=r"ks\.t has no StreamLag"):
        stream_of(one)("")
    assert one.metadata == []


def test_a_year_of_nothing_costs_a_handful_of_queries(log: FakeLog) -> None:
    log.ttl_s = 0
    log.generation(NOW_US - 365 * DAY, [stream_id(n) for n in range(8)])
    first, last = log.write(NOW_US - 364 * DAY), log.write(NOW_US - DAY)
    assert names(to_head(log)) == log.expected([first, last])
    assert len(log.asked) < 40


def test_width_shrinks_where_there_is_much(one: FakeLog) -> None:
    rows = [one.write(HEAD_US - 60 * SECOND + n * 1000, at=n) for n in range(300)]
    got = to_head(one, limits=Limits(window_rows=20, page_size=5))
    assert names(got) == one.expected(rows)


def test_generations_are_taken_in_order_of_time_however_they_are_listed(log: FakeLog) -> None:
    for hours in (5, 4, 3, 2, 1):
        cut(log, NOW_US - hours * HOUR)
    rows = [log.write(NOW_US - minutes * 60 * SECOND, at=minutes) for minutes in range(1, 299)]
    for seed in range(5):
        log.random.seed(seed)
        assert names(to_head(log)) == log.expected(rows)


def test_the_head_is_that_of_the_newest_generation(log: FakeLog) -> None:
    cut(log, NOW_US - 600 * SECOND)
    cut(log, NOW_US - 300 * SECOND)
    rows = [log.write(NOW_US - s * SECOND) for s in (599, 301, 300, 299, 31)]
    assert names(to_head(log)) == log.expected(rows)


def test_a_generation_that_starts_while_far_behind_is_read_before_the_head(one: FakeLog) -> None:
    client = stream_of(one, limits=Limits(window_rows=2))("", LAG, StreamToHead())
    one.write(NOW_US - 50 * 60 * SECOND)
    client.recv()
    one.clock.advance(1200.0)
    cut(one, NOW_US + 600 * SECOND)
    late = one.write(NOW_US + 700 * SECOND)
    assert names(drain(client)[0]) == [late.name]


def test_the_cursor_of_an_event_continues_right_after_it(one: FakeLog) -> None:
    rows = [one.write(HEAD_US - 5 * SECOND + n // 3, at=n, low=n * 2**60, seq=n % 2) for n in range(12)]
    ids = [e.id for e in to_head(one)]
    assert len(ids) == len(rows)
    for at, cursor in enumerate(ids):
        assert [e.id for e in to_head(one, cursor)] == ids[at + 1 :]


def test_an_idle_stream_returns_progress(one: FakeLog) -> None:
    client = stream_of(one)("", LAG)
    told = [client.recv() for _ in range(20)]
    assert all(isinstance(p, Progress) for p in told)
    times = [p.time_us for p in told if isinstance(p, Progress)]
    assert times == sorted(set(times))
    assert one.clock.now_us() - times[-1] <= 42 * SECOND  # lag, 10 s between two, and a poll
    assert client.status().watermark_us >= times[-1]
    one.asked.clear()
    stream_of(one)(told[-1].cursor, LAG, StreamToHead())  # type: ignore[union-attr]
    assert all(a.start_us >= times[-1] for a in one.asked)


def test_the_first_row_is_asked_of_each_stream(one: FakeLog) -> None:
    assert "PER PARTITION LIMIT 1" in first_row_cql("ks", "t")
    late, early = one.write(NOW_US - 600 * SECOND, at=0), one.write(NOW_US - 3000 * SECOND, at=1)
    assert names(to_head(one)) == one.expected([late, early])


def test_cursor_at_any_time_is_a_point_and_not_an_error(log: FakeLog) -> None:
    for days in (400, 200, 2):
        cut(log, NOW_US - days * DAY)
    row = log.write(NOW_US - HOUR)
    stream = stream_of(log)
    for time in (None, datetime_of(0), datetime_of(NOW_US - 300 * DAY), datetime_of(NOW_US - 2 * HOUR)):
        cursor = stream.cursor_at(time)
        assert EventID.parse(cursor).generation == (NOW_US - 2 * DAY) // 1000
        assert names(to_head(log, cursor)) == [row.name]
    assert to_head(log, stream.cursor_at(datetime_of(row.us + 1))) == []
    assert names(to_head(log, stream.cursor_at(datetime_of(row.us)))) == [row.name]
    with pytest.raises(ConfigError, match="time zone"):
        stream.cursor_at(datetime_of(0).replace(tzinfo=None))


def test_a_cursor_at_the_oldest_row_can_still_be_used_a_moment_later(log: FakeLog) -> None:
    cut(log, NOW_US - 400 * DAY)
    cursor = stream_of(log).cursor_at()
    log.clock.advance(59.0)
    assert to_head(log, cursor) == []


@pytest.mark.parametrize("shared", [False, True])
def test_rows_at_a_boundary_come_once_and_old_before_new(log: FakeLog, shared: bool) -> None:
    boundary = NOW_US - 300 * SECOND
    ids = [stream_id(n * 100) for n in range(3)]
    log.generation(boundary - HOUR, ids)
    log.generation(boundary, ids if shared else [stream_id(n * 100, 0, 1) for n in range(3)])
    rows = [log.write(boundary + us, at=n) for us in (-1000, -1, 0, 1, 1000) for n in range(3)]
    got = to_head(log)
    assert names(got) == log.expected(rows)
    assert [e.timestamp_us for e in got] == sorted(e.timestamp_us for e in got)


# ---------------------------------------------------------------- threads, retries, limits


@pytest.mark.parametrize("how", ["dropped", "closed", "stopped"])
def test_a_client_that_is_left_ends_its_thread(one: FakeLog, how: str) -> None:
    waiting, stop = threading.Event(), Stop()
    one.clock.wait = lambda inner, seconds: waiting.set() or inner.wait()  # type: ignore[assignment]
    client = stream_of(one, prefetch=3)("", LAG, stop=stop)
    thread = client._feed._thread
    assert thread is not None
    assert waiting.wait(60)
    gone = weakref.ref(client)
    if how == "closed":
        client.close()
        client.close()
        with pytest.raises(Stopped):
            client.recv()
    elif how == "stopped":
        stop.set()
    else:
        del client
        gc.collect()
        assert gone() is None
    thread.join(60)
    assert not thread.is_alive()


def test_close_waits_for_the_thread_to_end(one: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, joined = threading.Event(), threading.Event()

    def wait(inner: Stop, _: float) -> None:
        waiting.set()
        inner.wait()
        joined.wait(60)  # the thread cannot end before another one waits for it

    one.clock.wait = wait  # type: ignore[assignment, method-assign]
    client = stream_of(one, prefetch=3)("", LAG)
    thread = client._feed._thread
    assert thread is not None
    assert waiting.wait(60)
    join = thread.join
    monkeypatch.setattr(thread, "join", lambda *timeout: joined.set() or join(*timeout))
    client.close()
    assert not thread.is_alive()


def test_a_stop_ends_recv_while_the_reader_waits_for_an_answer(one: FakeLog) -> None:
    stop, answer = Stop(), threading.Event()
    answered: list[bool] = []
    client = stream_of(one, prefetch=1)("", LAG, stop=stop)
    client.recv()

    def hang(cql: str) -> None:
        if not stop.is_set():
            stop.set()
            answered.append(answer.wait(60))

    one.on_rows = hang  # type: ignore[assignment]
    with pytest.raises(Stopped):
        drain_of_progress(client)
    assert answered == []
    answer.set()
    client.close()


def test_an_error_outlasts_close(one: FakeLog) -> None:
    client = stream_of(one)("", LAG)
    one.on_fetch = lambda _: InvalidRequest("no such column")
    for _ in range(2):
        with pytest.raises(QueryFailed):
            client.recv()
        client.close()


def test_the_watermark_follows_the_events_of_a_batch(one: FakeLog) -> None:
    rows = [one.write(HEAD_US - 60 * SECOND + n) for n in range(3)]
    client = stream_of(one)("", LAG)
    for row in rows:
        while isinstance(client.recv(), Progress):
            pass
        assert client.status().watermark_us == row.us


def test_the_status_names_the_generation_that_is_read(one: FakeLog) -> None:
    begins_us = HEAD_US - 100 * SECOND
    cut(one, begins_us)
    first, second = one.write(begins_us - SECOND), one.write(begins_us + SECOND)
    client = stream_of(one)("", LAG)
    found = {}
    for row in (first, second):
        while isinstance(client.recv(), Progress):
            pass
        found[row.name] = client.status().generation_us
    assert found == {first.name: NOW_US - HOUR, second.name: begins_us}


def test_a_page_that_fails_is_asked_again_and_no_other(one: FakeLog) -> None:
    rows = [one.write(HEAD_US - n * SECOND, at=n) for n in range(1, 60)]
    one.on_fetch = lambda asked: OperationTimedOut("late") if one.asked.count(asked) == 1 else None
    assert names(to_head(one, limits=Limits(page_size=4), streams_per_query=1)) == one.expected(rows)
    assert any(one.clock.waits)
    assert {one.asked.count(a) for a in one.asked} == {2}


def test_metadata_that_cannot_be_read_for_a_while_does_not_end_the_stream(one: FakeLog) -> None:
    client = stream_of(one)("", LAG)
    client.recv()
    failing = iter([True] * 3)
    one.on_rows = lambda cql: OperationTimedOut("late") if next(failing, False) else None
    for _ in range(10):
        assert isinstance(client.recv(), Progress)
    assert next(failing, None) is None


def test_a_refused_query_ends_the_stream_at_once_and_permanently(one: FakeLog) -> None:
    client = stream_of(one)("", LAG)
    one.on_fetch = lambda _: InvalidRequest("no such column")
    with pytest.raises(QueryFailed, match=r"reading the CDC log of ks\.t.*no such column") as first:
        client.recv()
    asked = len(one.asked)
    with pytest.raises(QueryFailed) as second:
        client.recv()
    assert second.value is first.value
    assert asked == len(one.asked) == 1


def test_a_cluster_that_stays_silent_ends_the_stream_with_a_resumable_error(one: FakeLog) -> None:
    one.on_fetch = lambda _: OperationTimedOut("late")
    with pytest.raises(QueryTimeout) as e:
        to_head(one, limits=Limits(attempts=4))
    assert e.value.resumable


def test_an_idle_stream_asks_little(log: FakeLog) -> None:
    log.generation(NOW_US - HOUR, [stream_id(n * 1000 + s, n) for n in range(64) for s in range(4)])
    client = stream_of(log)("", LAG)
    client.recv()
    log.asked.clear()
    before = log.clock.now_us()
    for _ in range(6):
        client.recv()
    seconds = (log.clock.now_us() - before) / SECOND
    assert len(log.asked) <= 3 * (seconds + 1)  # 256 streams are three queries


def test_a_short_lag_asks_of_the_schema_no_more_than_whether_the_log_is_the_same(one: FakeLog) -> None:
    client = stream_of(one)("", StreamLag(seconds=0.5))
    client.recv()
    one.metadata.clear()
    before = one.clock.now_us()
    for _ in range(6):
        client.recv()
    seconds = (one.clock.now_us() - before) / SECOND
    asked = [cql for cql in one.metadata if "FROM system_schema." in cql and "toUnixTimestamp(now())" not in cql]
    assert len(asked) <= 6 * (seconds / METADATA_EVERY_S + 1)  # the table takes six queries


@pytest.mark.parametrize("lag_s", [0, 0.5, 30])
def test_no_progress_passes_the_moment_when_the_log_became_another(one: FakeLog, lag_s: float) -> None:
    client = stream_of(one, progress_every=timedelta(0))("", StreamLag(seconds=lag_s))
    client.recv()
    one.log_id = uuid.uuid4()
    changed_us = one.clock.now_us()

    def told_times() -> Iterator[int]:
        while isinstance(got := client.recv(), Progress):
            yield got.time_us

    with pytest.raises(TableChanged):
        assert all(us <= changed_us for us in told_times())


def test_a_returned_point_stays_the_same_when_the_ttl_changes(one: FakeLog) -> None:
    client = stream_of(one)("", LAG)
    reader = client._feed._timed._reader
    for _ in range(3):
        reader.step()
    returned = reader.done
    reader._source.lifetimes = Lifetimes(((0, 60),))
    assert reader.done == returned
    one.clock.advance(5)
    reader.step()
    assert json.loads(str(reader.done))["ttl"] == 60


@pytest.mark.parametrize(("level", "firm"), [(1, 4), (4, 4), (6, 6)], ids=["ONE", "QUORUM", "LOCAL_QUORUM"])
def test_a_row_that_a_replica_lacks_has_not_expired(
    one: FakeLog, monkeypatch: pytest.MonkeyPatch, level: int, firm: int
) -> None:
    one.write(HEAD_US - 60 * SECOND)
    cursor = to_head(one)[0].id
    one.altered_us = HEAD_US
    answers = one.rows

    def rows(cql: str, values: Any = (), **given: Any) -> Any:
        if "SELECT TTL(" not in cql:
            return answers(cql, values, **given)
        return [(80_000,)] if given["consistency"] == firm else []

    monkeypatch.setattr(one, "rows", rows)
    monkeypatch.setattr(one, "consistency", level, raising=False)
    monkeypatch.setattr(one, "quorum_at_least", firm, raising=False)
    assert to_head(one, cursor) == []
    assert ReadSession(Mock(), consistency=level).quorum_at_least == firm


def test_the_head_of_very_many_streams_is_polled_less_often(log: FakeLog) -> None:
    log.generation(NOW_US - HOUR, [stream_id(n * 1000 + s, n) for n in range(64) for s in range(4)])
    client = stream_of(log, limits=Limits(head_queries_per_s=2), streams_per_query=4)("", LAG)
    client.recv()
    log.asked.clear()
    before = log.clock.now_us()
    for _ in range(6):
        client.recv()
    seconds = (log.clock.now_us() - before) / SECOND
    assert len(log.asked) <= 2 * (seconds + 64)  # one look is 64 queries


def test_rows_come_no_faster_than_asked_for(one: FakeLog) -> None:
    for n in range(200):
        one.write(HEAD_US - 100 * SECOND + n * 1000, at=n)
    before = one.clock.now_us()
    assert len(to_head(one, limits=Limits(window_rows=20, rows_per_s=10))) == 200
    assert one.clock.now_us() - before >= 17 * SECOND  # 200 rows, less those of the last window


def test_a_window_that_holds_too_many_bytes_is_read_in_parts(one: FakeLog) -> None:
    rows = [one.write(HEAD_US - 10 * SECOND + n * 1000, at=n) for n in range(200)]
    client = stream_of(one, limits=Limits(window_bytes=2000, page_size=3))("", LAG, StreamToHead())
    of_window: Counter[EventID] = Counter()
    events = []
    while True:
        try:
            got = client.recv()
        except HeadReached:
            break
        if not isinstance(got, Progress):
            events.append(got)
            of_window[client._step.done] += 1
    assert names(events) == one.expected(rows)
    assert 0 < max(of_window.values()) <= 20


# ---------------------------------------------------------------- changes and keys


def test_images_come_with_their_change(one: FakeLog) -> None:
    us = HEAD_US - SECOND
    for seq, (operation, v) in enumerate([(0, 1), (1, 2), (9, 3)]):
        one.write(us, low=5, seq=seq, v=v, **{"cdc$operation": operation})
    (event,) = to_head(one, limits=Limits(page_size=1))
    assert (event.type, event.change.before, event.change.values, event.change.after) == (
        Operation.UPDATE,
        {"v": 1},
        {"v": 2},
        {"v": 3},
    )
    raw = to_head(one, granularity="row")
    assert [e.type for e in raw] == [0, 1, 9]


def test_absent_key_parts_are_absent(one: FakeLog) -> None:
    one.write(HEAD_US - 2, pk=1, ck=None, **{"cdc$operation": 4})
    one.write(HEAD_US - 1, pk=1, ck=0, **{"cdc$operation": 3})
    assert [e.foreign_id for e in to_head(one)] == ['{"pk":1}', '{"ck":0,"pk":1}']


def test_a_table_that_was_made_again_is_noticed(one: FakeLog) -> None:
    client = stream_of(one)("", LAG)
    client.recv()
    one.log_id = type(one.log_id)(int=7)
    with pytest.raises(TableChanged, match="dropped and created again"):
        drain(client)


def test_a_column_that_is_added_while_reading_is_read(one: FakeLog) -> None:
    client = stream_of(one)("", LAG)
    one.write(HEAD_US - SECOND, v=1)
    assert client.recv().change.values == {"v": 1}  # type: ignore[union-attr]
    one.base = (*one.base, ("w", "regular", "int"))
    one.columns = columns_of(one.base)
    one.write(one.clock.now_us(), v=2, w=3)
    got = client.recv()
    while isinstance(got, Progress):
        got = client.recv()
    assert got.change.values == {"v": 2, "w": 3}


def test_names_are_quoted(clock: Any) -> None:
    log = FakeLog(clock, keyspace="Select", table='My "Table"')
    log.generation(NOW_US - HOUR, [stream_id(1)])
    log.write(HEAD_US - SECOND)
    assert len(to_head(log)) == 1
    assert log.asked[0].cql.startswith('SELECT * FROM "Select"."My ""Table""_scylla_cdc_log" WHERE "cdc$stream_id"')


# ---------------------------------------------------------------- opening


def test_a_stop_that_is_set_ends_it(one: FakeLog) -> None:
    stop = Stop()
    client = stream_of(one)("", LAG, stop=stop)
    stop.set()
    with pytest.raises(Stopped):
        client.recv()
    with pytest.raises(Stopped):
        client.recv()


def test_a_closed_client_leaves_the_callers_stop_as_it_was(one: FakeLog) -> None:
    stop = Stop()
    for _ in range(3):
        stream_of(one)("", LAG, stop=stop).close()
    assert not stop.is_set()
    assert not stop._callbacks


def test_a_short_lag_is_warned_of_once(one: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    stream = stream_of(one)
    for part in (stream, stream, stream.sliced(0, 2), stream.sliced(1, 2)):
        drain(part("", StreamLag(seconds=1), StreamToHead()))
    assert len([r for r in caplog.records if "lag of 1 s" in r.message]) == 1


@pytest.mark.parametrize(
    ("keyspace", "table", "error", "text"),
    [
        ("ks", "T", TableNotFound, "did you mean ks.t?"),
        ("ks", "t_scylla_cdc_log", TableNotFound, "name the base table"),
        ("ks", "u", TableNotFound, "check the name"),
        ("Ks", "t", TableNotFound, "did you mean ks?"),
        ("other", "t", TableNotFound, "no keyspace other"),
    ],
)
def test_a_wrong_name_is_reported_with_a_hint(
    one: FakeLog, keyspace: str, table: str, error: type[Exception], text: str
) -> None:
    stream = Stream(one, keyspace, table, clock=one.clock)  # type: ignore[arg-type]
    with pytest.raises(error) as e:
        stream("", LAG)
    assert text in str(e.value)


def test_the_error_for_a_table_without_a_log_says_how_to_enable_it(
    one: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Callable[..., Any] = one._schema
    monkeypatch.setattr(one, "_schema", lambda cql, given: [r for r in whole(cql, given) if "_log" not in str(r[0])])
    with pytest.raises(CDCDisabled, match=r"ALTER TABLE ks\.t WITH cdc"):
        stream_of(one)("", LAG)


@pytest.mark.parametrize(
    "wrong",
    [{"granularity": "rows"}, {"on_expired": "skip"}, {"prefetch": -1}, {"poll": timedelta()}, {"consistency": "MOST"}],
)
def test_a_wrong_argument_is_refused(one: FakeLog, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        stream_of(one, **wrong)


def test_late_rows_within_the_lag_are_delivered_in_their_place(one: FakeLog) -> None:
    """A row that becomes visible 20 s after its time is found by a lag of 30 s."""
    rows: list[Written] = [
        one.write(NOW_US + n * SECOND, at=n, visible_us=NOW_US + (n + n % 3 * 10) * SECOND) for n in range(40)
    ]
    client = stream_of(one)("", LAG, StreamUntil(datetime_of(NOW_US + 100 * SECOND)))
    assert names(drain(client)[0]) == one.expected(rows)
