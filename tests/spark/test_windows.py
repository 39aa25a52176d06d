"""Windows and their cursor: planned on a driven clock without Spark, and handed between Spark and a service with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import histories
import pytest
import spark_history as h
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore, ScyllaCursorStore
from rscylla import spark as rs
from rscylla._timeuuid import datetime_of
from rscylla.abc import BatchProgress
from rscylla.cdc.log import LogWindow
from rscylla.embedded import EmbeddedScylla
from rscylla.embedded.clock import ManualClock as ServerClock
from rscylla.reflex.telemetry.batch_metrics import batch_metrics_for
from rscylla.spark.source.handed import HandedRead
from rscylla.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_US = 1_800_000_000_000_000
LAG = rscylla.StreamLag(seconds=30)
TO_HEAD = rscylla.StreamToHead()
NAME = "lake"


class FakeSpark:
    """The part of a session that ``windows`` uses; the DataFrame is what its options hand over."""

    def __init__(self, rows: Callable[[LogWindow], int] = lambda _: 0) -> None:
        self._rows = rows
        self._given: dict[str, str] = {}

    @property
    def read(self) -> FakeSpark:
        return FakeSpark(self._rows)

    def format(self, name: str) -> FakeSpark:
        assert name == "scylla-cdc"
        return self

    def options(self, **given: str) -> FakeSpark:
        self._given |= given
        return self

    def load(self) -> FakeFrame:
        handed = HandedRead.given(self._given)
        assert handed is not None
        return FakeFrame(handed, self._rows)


class FakeFrame:
    def __init__(self, handed: HandedRead, rows: Callable[[LogWindow], int]) -> None:
        self.handed = handed
        self._rows = rows

    @property
    def window(self) -> LogWindow:
        """From the first to the last of the spans."""
        windows = [span.window for span in self.handed.spans]
        return LogWindow(windows[0].generation, min(w.start_us for w in windows), max(w.end_us for w in windows))

    def count(self) -> int:
        return self._rows(self.window)


class Box:
    """A server, a table and a stream on clocks that only the test moves."""

    def __init__(self, scylla: EmbeddedScylla, server: ServerClock) -> None:
        self.scylla = scylla
        self._server = server
        self.clock = ManualClock(START_US)
        self.session = scylla.connect()
        self.session.execute(
            "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        self.session.execute("CREATE TABLE k.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 3600}")
        self.stream = rscylla.NewStream(self.session, "k", "t", clock=self.clock)
        self.store = MemoryCursorStore()

    def pass_(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self._server.advance(seconds)

    def windows(self, *options: Any, spark: Any = None, **more: Any) -> rs.Windows:
        return rs.windows(spark or FakeSpark(), self.stream, self.store, NAME, LAG, *options, **more)

    def cursor_us(self) -> int:
        return rscylla.EventID.parse(self.store.get_cursor(NAME)).exact_us

    def generation_us(self) -> int:
        return self.stream.describe().generations[0].start_us


@pytest.fixture
def box() -> Iterator[Box]:
    server = ServerClock(START_US)
    with EmbeddedScylla(clock=server) as scylla:
        yield Box(scylla, server)


def test_windows_follow_each_other_without_gap_up_to_the_head(box: Box) -> None:
    box.pass_(600)
    found = list(box.windows(TO_HEAD, longest=timedelta(minutes=3)))
    assert [w.end_us for w, _ in found[:-1]] == [w.start_us for w, _ in found[1:]]
    assert found[0][0].start_us == box.generation_us()
    assert found[-1][0].end_us == box.clock.now_us() - 30_000_000
    assert max(w.end_us - w.start_us for w, _ in found) == 180_000_000
    assert box.store.get_cursor(NAME) == found[-1][0].end
    mark = rscylla.EventID.parse(found[-1][0].end).mark
    assert mark is not None
    assert (mark.is_start, mark.ttl_s) == (False, 3600), "all before it was read"
    for window, frame in found:
        assert frame.window == window.in_log
        assert {(span.table.full_name, span.after) for span in frame.handed.spans} == {("k.t", b"")}
        assert frame.handed.read.mode == "changes"
        assert "cdc_values" in frame.handed.read.schema.names
    assert len({w.name for w, _ in found}) == len(found)
    assert list(box.windows(TO_HEAD)) == []


def test_each_window_that_is_done_is_told(box: Box) -> None:
    box.pass_(600)
    told: list[BatchProgress] = []
    metrics = batch_metrics_for(CollectorRegistry())
    spark = FakeSpark(lambda window: 7)
    found = []
    for window, _ in box.windows(TO_HEAD, spark=spark, longest=timedelta(minutes=3), max_rows=100, on_done=told.append):
        found.append(window)
        assert len(told) == len(found) - 1, "a window is done when the next one is asked for"
        box.clock.advance(2)
    assert [(t.batch, t.start_us, t.watermark_us) for t in told] == [(w.name, w.start_us, w.end_us) for w in found]
    assert {(t.query, t.rows, t.seconds, t.log_ttl_s) for t in told} == {(NAME, 7, 2.0, 3600)}
    assert [t.windows_behind for t in told][-2:] == [1, 0]
    assert told[0].generation_us == box.generation_us()
    for each in told:
        metrics(each)
    assert (metrics.query(NAME).rows, metrics.query(NAME).batches) == (7 * len(found), len(found))


def test_a_window_is_not_repeated_because_telling_failed(box: Box) -> None:
    box.pass_(600)

    def fail(done: BatchProgress) -> None:
        raise RuntimeError("no")

    first: list[rs.PlannedWindow] = []

    def work() -> None:
        for window, _ in box.windows(TO_HEAD, longest=timedelta(minutes=3), on_done=fail):
            first.append(window)

    with pytest.raises(RuntimeError, match="no"):
        work()
    assert len(first) == 1
    assert box.cursor_us() == first[0].end_us


def test_a_failed_body_leaves_the_cursor_and_the_window_is_repeated(box: Box) -> None:
    box.pass_(600)
    done: list[rs.PlannedWindow] = []

    def work() -> None:
        for window, _ in box.windows(TO_HEAD, longest=timedelta(minutes=3)):
            if len(done) == 1:
                raise RuntimeError("disk full")
            done.append(window)

    with pytest.raises(RuntimeError, match="disk full"):
        work()
    assert box.cursor_us() == done[0].end_us
    again, _ = next(box.windows(TO_HEAD, longest=timedelta(minutes=3)))
    assert again.start_us == done[0].end_us


def test_a_break_leaves_the_window_undone_unless_it_is_saved(box: Box) -> None:
    box.pass_(600)
    for _ in box.windows(TO_HEAD, longest=timedelta(minutes=3)):
        break
    assert box.store.get_cursor(NAME) == ""
    with box.windows(TO_HEAD, longest=timedelta(minutes=3)) as batches:
        window, _ = next(batches)
        batches.save()
    assert box.cursor_us() == window.end_us
    assert list(batches) == [], "closed"


class Recorded(MemoryCursorStore):
    """A store that keeps the cursors it was given, one after the other, and counts flushes."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[str] = []
        self.flushes = 0

    def set_cursor(self, name: str, cursor: str) -> None:
        self.given.append(cursor)
        super().set_cursor(name, cursor)

    def flush(self) -> None:
        self.flushes += 1
        super().flush()


def test_the_cursor_is_saved_once_for_each_window_and_flushed_at_the_end(box: Box) -> None:
    box.pass_(600)
    box.store = store = Recorded()
    batches = box.windows(TO_HEAD, longest=timedelta(minutes=3))
    ends = []
    for window, _ in batches:
        ends.append(window.end)
        batches.save()
    assert store.given == ends
    assert len(ends) > 2
    assert store.flushes == 1


def test_a_window_that_is_at_work_when_the_iteration_is_closed_is_not_done(box: Box) -> None:
    box.pass_(600)
    box.store = store = Recorded()
    batches = box.windows(TO_HEAD, longest=timedelta(minutes=3))
    next(batches)
    batches.close()
    batches.save()
    assert list(batches) == []
    assert store.given == []
    flushed = Recorded()
    box.store = flushed
    box.windows(TO_HEAD).close()
    assert flushed.flushes == 1


def test_a_start_holds_where_a_generation_begins_before_it(box: Box) -> None:
    """The start names the generation of when it was made; the next one begins before it."""
    start_us = box.clock.now_us() + 300_000_000
    box.store.set_cursor(NAME, box.stream.cursor_at(datetime_of(start_us)))
    box.scylla.new_generation(timedelta(seconds=60))
    box.pass_(600)
    found = list(box.windows(TO_HEAD))
    second_us = box.stream.describe().generations[1].start_us
    assert second_us < start_us
    assert (found[0][0].generation * 1000, found[0][0].start_us) == (second_us, start_us)


def test_no_window_crosses_a_generation(box: Box) -> None:
    box.pass_(100)
    box.scylla.new_generation(timedelta(seconds=0))
    box.pass_(100)
    first, second = (g.start_us for g in box.stream.describe().generations)
    found = [w for w, _ in box.windows(TO_HEAD)]
    assert [(w.generation * 1000, w.start_us) for w in found] == [(first, first), (second, second)]
    assert found[0].end_us == second
    assert box.store.get_cursor(NAME) == found[-1].end


def test_at_the_head_a_window_waits_until_it_is_worth_it(box: Box) -> None:
    box.pass_(60)
    stop = rscylla.Stop()
    batches = box.windows(shortest=timedelta(seconds=20), stop=stop)
    first, _ = next(batches)
    # The clock moves by what is waited for: the next window is as long as was asked, and not a moment longer.
    second, _ = next(batches)
    assert first.end_us == second.start_us
    assert 20_000_000 <= second.end_us - second.start_us < 31_000_000
    stop.set()
    with pytest.raises(StopIteration):
        next(batches)
    assert box.cursor_us() == second.end_us, "the window at work was done"


def test_a_long_wait_is_cut_so_that_a_stepped_clock_is_noticed(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.pass_(60)
    waits: list[float] = []

    def recorded(_: rscylla.Stop, seconds: float) -> bool:
        waits.append(seconds)
        assert len(waits) < 100
        box.pass_(seconds)
        return False

    batches = box.windows(shortest=timedelta(minutes=5))
    monkeypatch.setattr(box.clock, "wait", recorded)
    next(batches)
    assert len(waits) > 20
    assert set(waits[:-1]) == {10.0}
    assert 0.05 <= waits[-1] <= 10


def test_until_ends_the_loop_at_that_time(box: Box) -> None:
    box.pass_(600)
    until = datetime_of(box.generation_us() + 10_500_000)
    [(window, _)] = list(box.windows(rscylla.StreamUntil(until)))
    assert window.end_time == until
    assert list(box.windows(rscylla.StreamUntil(until))) == []


def test_from_head_saves_where_it_starts(box: Box) -> None:
    box.pass_(600)
    assert list(box.windows(rscylla.StreamFromHead(), TO_HEAD)) == []
    assert box.cursor_us() == box.clock.now_us() - 30_000_000


def test_windows_with_too_many_rows_are_cut(box: Box) -> None:
    """A row a second, so a window of so many rows is at most so many seconds long."""
    box.pass_(600)

    def rows(window: LogWindow) -> int:
        return round(window.span_us / 1e6)

    found = [w for w, _ in box.windows(TO_HEAD, spark=FakeSpark(rows), max_rows=100)]
    assert [w.end_us for w in found[:-1]] == [w.start_us for w in found[1:]]
    assert all(w.end_us - w.start_us <= 100_500_000 for w in found)
    assert 5 < len(found) < 30
    assert found[-1].end_us == box.clock.now_us() - 30_000_000


def test_windows_grow_again_behind_a_time_of_many_rows(box: Box) -> None:
    box.pass_(3000)
    dense_until_us = box.generation_us() + 300_000_000

    def rows(window: LogWindow) -> int:
        """A row a second at first, then none."""
        return max(0, min(window.end_us, dense_until_us) - window.start_us) // 1_000_000

    found = [w for w, _ in box.windows(TO_HEAD, spark=FakeSpark(rows), max_rows=100)]
    lengths = [w.end_us - w.start_us for w in found]
    assert max(n for n, w in zip(lengths, found, strict=True) if w.end_us <= dense_until_us) <= 101_000_000
    assert max(lengths) > 500_000_000


def test_a_window_may_have_as_many_rows_as_are_allowed(box: Box) -> None:
    box.pass_(600)
    counted = []

    def rows(window: LogWindow) -> int:
        counted.append(window)
        return 100

    window, _ = next(box.windows(TO_HEAD, spark=FakeSpark(rows), max_rows=100))
    assert len(counted) == 1
    assert window.end_us - window.start_us > 500_000_000


def test_a_row_cursor_is_continued_within_its_window(box: Box) -> None:
    box.pass_(10)
    box.session.execute("INSERT INTO k.t (pk, v) VALUES (1, 1) USING TIMESTAMP " + str(START_US + 9_000_000))
    box.pass_(100)
    client = box.stream("", LAG)
    event = client.recv()
    while not isinstance(event, rscylla.Event):
        event = client.recv()
    client.close()
    box.store.set_cursor(NAME, event.id)
    [(window, frame)] = list(box.windows(TO_HEAD))
    assert window.start == event.id
    assert {span.after for span in frame.handed.spans} == {rscylla.EventID.parse(event.id).position}
    assert window.start_us == event.timestamp_us
    assert "-after-" in window.name
    assert window.start_name == f"20270115T080009.000000Z-after-{rscylla.EventID.parse(event.id).position.hex()}"


def test_an_expired_cursor_is_an_error_by_default(box: Box) -> None:
    box.pass_(60)
    box.store.set_cursor(NAME, box.stream.cursor_at(datetime_of(START_US + 40_000_000)))
    box.pass_(7200)
    with pytest.raises(rscylla.CursorExpired):
        next(box.windows(TO_HEAD))
    window, frame = next(box.windows(TO_HEAD, on_expired="oldest"))
    assert window.start_us >= box.clock.now_us() - 3_600_000_000
    assert not any(span.promise for span in frame.handed.spans), "executors read it later, when more has expired"
    _, frame = next(box.windows(TO_HEAD, on_expired="oldest", read={"failondataloss": "true"}))
    assert all(span.promise for span in frame.handed.spans)


def shorten_ttl(box: Box) -> int:
    """Shorten the TTL to a minute, let all that was written since expire, and return when that was."""
    box.pass_(60)
    altered_us = box.clock.now_us()
    box.session.execute("ALTER TABLE k.t WITH cdc = {'enabled': true, 'ttl': 60}")
    box.pass_(200)
    return altered_us


def test_a_window_ends_where_rows_begin_that_have_expired(box: Box) -> None:
    box.pass_(60)
    assert list(box.windows(TO_HEAD))
    start_us = box.cursor_us()
    altered_us = shorten_ttl(box)
    found = box.windows(TO_HEAD)
    window, _ = next(found)
    assert (window.start_us, window.end_us) == (start_us, altered_us)
    with pytest.raises(rscylla.CursorExpired) as caught:
        next(found)
    assert caught.value.gap_from == datetime_of(altered_us)
    assert box.cursor_us() == altered_us
    [(window, _)] = list(box.windows(TO_HEAD, on_expired="oldest"))
    assert (window.start_us, window.end_us) == (box.clock.now_us() - 60_000_000, box.clock.now_us() - 30_000_000)


def test_a_window_that_rows_which_expired_cut_short_is_not_waited_for(box: Box) -> None:
    box.pass_(60)
    assert list(box.windows(TO_HEAD))
    start_us = box.cursor_us()
    altered_us = shorten_ttl(box)
    window, _ = next(box.windows(shortest=timedelta(minutes=10)))
    assert (window.start_us, window.end_us) == (start_us, altered_us)


def test_rows_that_expired_before_the_first_window_were_never_promised(box: Box) -> None:
    altered_us = shorten_ttl(box)
    found = [w for w, _ in box.windows(TO_HEAD)]
    edges = [(w.start_us, w.end_us) for w in found]
    assert [rscylla.EventID.parse(w.start).exact_us for w in found] == [w.start_us for w in found]
    now_us = box.clock.now_us()
    assert edges == [(box.generation_us(), altered_us), (now_us - 60_000_000, now_us - 30_000_000)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"read": {"Lag": "1s"}}, "must not contain 'Lag'"),
        ({"shortest": timedelta(hours=2)}, "shortest must not be above longest"),
        ({"longest": 60}, r"longest must be a timedelta, such as timedelta\(minutes=1\), not 60"),
        ({"shortest": "10 s"}, r"shortest must be a timedelta, .* not '10 s'"),
        ({"max_rows": 0}, "max_rows must be a whole number of at least 1, or None, not 0"),
        ({"max_rows": "10"}, "max_rows must be a whole number of at least 1, or None, not '10'"),
    ],
)
def test_wrong_arguments_are_reported(box: Box, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(rscylla.ConfigError, match=message):
        box.windows(**arguments)


def test_a_lag_is_required_and_a_short_one_is_warned_of(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(rscylla.errors.MissingLag, match=r"the loop over the windows of k\.t has no StreamLag"):
        rs.windows(FakeSpark(), box.stream, box.store, NAME)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "rscylla"):
        rs.windows(FakeSpark(), box.stream, box.store, NAME, rscylla.StreamLag(seconds=1))  # type: ignore[arg-type]
    assert "rows may be missed" in caplog.text


def test_a_name_that_was_forgotten_is_what_the_error_is_about(box: Box) -> None:
    with pytest.raises(rscylla.ConfigError, match=r"^name must be the name of the cursor .*, not StreamLag\("):
        rs.windows(FakeSpark(), box.stream, box.store, LAG, TO_HEAD)  # type: ignore[arg-type]


def test_a_slice_of_a_table_is_refused(box: Box) -> None:
    with pytest.raises(rscylla.ConfigError, match="a whole table"):
        rs.windows(FakeSpark(), box.stream.sliced(0, 2), box.store, NAME, LAG)  # type: ignore[arg-type]


# ---------------------------------------------------------------- with Spark


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning")
def test_service_and_spark_hand_a_consumer_to_each_other(spark: SparkSession, session: Any, vnodes: str) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    store = ScyllaCursorStore(session, vnodes, create=True)
    lag = rscylla.StreamLag(milliseconds=0)
    seen: list[int] = []
    written = 0

    def write(count: int) -> None:
        nonlocal written
        for _ in range(count):
            written += 1
            session.execute(f"INSERT INTO {vnodes}.t (pk, v) VALUES ({written}, {written})")

    def serve(count: int | None) -> None:
        """Run the service until it has seen *count* changes more, or all."""
        end = None if count is None else len(seen) + count

        def consume(event: rscylla.Event, _: rscylla.Fate) -> None:
            if end is not None and len(seen) == end:
                raise RuntimeError("enough")
            assert event.change is not None
            seen.append(event.change.key["pk"])

        until = rscylla.StreamUntil(datetime_of(rscylla.SystemClock().now_us()))
        spec = rscylla.Spec(stream, store, rscylla.Consumer(NAME, consume), lag, until)
        with pytest.raises(rscylla.HeadReached if end is None else rscylla.RunError):
            rscylla.run(spec)

    def spread() -> None:
        until = rscylla.StreamUntil(datetime_of(rscylla.SystemClock().now_us()))
        read = {"parallelism": "2", "consistency": "ONE"}
        for _, changes in rs.windows(spark, stream, store, NAME, lag, until, read=read):
            ordered = changes.orderBy("cdc_sequence").collect()
            seen.extend(row["pk"] for row in ordered)

    write(30)
    serve(13)  # stops in the middle
    spread()
    assert sorted(seen) == list(range(1, 31))
    write(10)
    spread()
    write(10)
    serve(7)
    write(10)
    serve(None)
    write(5)
    spread()
    assert seen == list(range(1, written + 1)), "each once, in the order of writing"


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning")
@pytest.mark.parametrize("mode", ["changes", "events", "log"])
def test_windows_as_arrow_are_the_windows_of_spark(spark: SparkSession, session: Any, vnodes: str, mode: Any) -> None:
    histories.create(session.execute, vnodes, "t", histories.IMAGES)
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    begin = stream.cursor_at(datetime_of(rscylla.SystemClock().now_us()))
    for cql in histories.statements(11, f"{vnodes}.t", 300):
        session.execute(cql)
    until = rscylla.StreamUntil(datetime_of(rscylla.SystemClock().now_us()))
    lag, most = rscylla.StreamLag(milliseconds=0), timedelta(milliseconds=200)
    store = MemoryCursorStore()
    for name in ("spark", "arrow"):
        store.set_cursor(name, begin)
    read = {"consistency": "ONE", "parallelism": "2"}
    of_spark = rs.windows(
        spark, stream, store, "spark", lag, until, mode=mode, read=read, shortest=most, longest=most, max_rows=200
    )
    of_arrow = rscylla.windows_as_arrow(
        stream, store, "arrow", lag, until, mode=mode, shortest=most, longest=most, max_rows=200
    )
    rows = 0
    for (window, frame), (same, found) in zip(of_spark, of_arrow, strict=True):
        assert window == same
        expected = frame.toArrow()
        assert expected.schema.names == found.schema.names
        assert sorted(map(repr, in_utc(expected).to_pylist())) == sorted(map(repr, in_utc(found.table()).to_pylist()))
        rows += expected.num_rows
    assert rows > 300
    assert store.get_cursor("spark") == store.get_cursor("arrow")


def in_utc(table: Any) -> Any:
    """Return *table* with all times in UTC: ``toArrow`` gives them the time zone of the session."""
    import pyarrow as pa

    def fixed(kind: Any) -> Any:
        if pa.types.is_timestamp(kind):
            return pa.timestamp(kind.unit, "UTC")
        if pa.types.is_struct(kind):
            return pa.struct([pa.field(f.name, fixed(f.type)) for f in kind])
        if pa.types.is_map(kind):
            return pa.map_(fixed(kind.key_type), fixed(kind.item_type))
        return pa.list_(fixed(kind.value_type)) if pa.types.is_list(kind) else kind

    return table.cast(pa.schema([pa.field(f.name, fixed(f.type)) for f in table.schema]))


def test_a_table_that_is_gone_is_not_created_again_from_the_middle(
    spark: SparkSession, session: Any, vnodes: str, tmp_path: Path
) -> None:
    session.execute(f"CREATE TABLE {vnodes}.t (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    stream = rscylla.NewStream(session, vnodes, "t", consistency="ONE")
    store = MemoryCursorStore()

    def run(path: str, v: int | None = None) -> rs.ParquetTable:
        at = rscylla.SystemClock().now_us()
        if v is not None:
            session.execute(f"INSERT INTO {vnodes}.t (pk, v) VALUES ({v}, {v}) USING TIMESTAMP {at}")
        h.passed(at)
        table = rs.ParquetTable(spark, str(tmp_path / path))
        no_lag = rscylla.StreamLag(milliseconds=0)
        for window, changes in rs.windows(spark, stream, store, NAME, no_lag, TO_HEAD, read={"consistency": "ONE"}):
            assert rs.apply_changes(changes, table, window=window)
            assert table.cursor == window.end
        return table

    table = run("a", 1)
    written, cursor = table.rows_path, table.cursor
    assert run("a").rows_path == written, "a window without changes writes no files"
    assert table.cursor != cursor
    assert run("a", 2).rows_path != written
    kept = store.get_cursor(NAME)
    with pytest.raises(rscylla.ConfigError, match="has no rows yet, but the window begins at"):
        run("b", 3)
    assert store.get_cursor(NAME) == kept
    store.reset_cursor(NAME, stream.cursor_at(), reason="the table is gone")
    assert sorted(row["pk"] for row in run("b").rows().collect()) == [1, 2, 3]
