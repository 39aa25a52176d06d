"""A closed span of a log: everything once, window by window, within the limits; empty time is cheap."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest

import rscylla
from rscylla.cdc.log.lifetimes import Lifetimes, Promise
from rscylla.cdc.log.query import MAX_STREAMS_PER_QUERY, group_streams
from rscylla.cdc.log.walk import LogWindow, windows_between
from rscylla.cdc.read.scan import Scanner
from rscylla.cdc.read.span import FIRST_WIDTH_US, Span, SpanReader
from rscylla.clock import Stop
from rscylla.driver.pages import Page
from rscylla.driver.session import ReadSession, ReadStatement
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import QueryTimeout, Stopped
from rscylla.testing import ManualClock


@attrs.frozen
class Box:
    """A table on a driven clock, with a log that keeps everything."""

    clock: ManualClock
    session: rscylla.Session

    def write(self, pk: int, ck: int) -> None:
        self.session.execute(f"INSERT INTO ks.t (pk, ck) VALUES ({pk}, {ck})")

    def span(self) -> Span:
        """Return all there is so far."""
        source = rscylla.NewStream(self.session, "ks", "t", clock=self.clock).describe()
        [window] = windows_between(source.generations, 0, self.clock.now_us() + 1)
        span = Span(source.table, window, source.streams(source.generations[0]))
        assert pickle.loads(pickle.dumps(span)) == span
        return span

    def reader(self, span: Span, stop: Stop | None = None, **limits: int) -> SpanReader:
        log = ReadSession(self.session, consistency=1)
        return SpanReader(log, span, clock=self.clock, limits=rscylla.Limits(**limits), stop=stop or Stop())


@pytest.fixture
def box() -> Iterator[Box]:
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, seed=3) as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute(
            "CREATE TABLE ks.t (pk int, ck int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true, 'ttl': 0}"
        )
        yield Box(clock, session)


def rows_of(reader: SpanReader, pages: list[Page]) -> list[tuple[bytes, int]]:
    """Return time and ``ck`` of the rows of a window."""
    found = []
    for page in pages:
        layout = reader.layout_of(page)
        [ck] = [c for c in layout.keys if c.name == "ck"]
        found += [(cells[layout.time] or b"", ck.decode(cells[ck.index] or b"")) for cells in page.cells("ks.t")]
    return found


def count_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of rows of each page that is read from now on."""
    read: list[int] = []
    send = ReadSession.send

    def counted(self: ReadSession, *args: Any, on_page: Any, **more: Any) -> None:
        def count(page: Page) -> None:
            read.append(page.row_count)
            on_page(page)

        send(self, *args, on_page=count, **more)

    monkeypatch.setattr(ReadSession, "send", counted)
    return read


def test_windows_are_within_the_limits_and_hold_everything_once(box: Box) -> None:
    for ck in range(300):
        box.write(ck % 11, ck)
        box.clock.advance(timedelta(milliseconds=300 if ck < 200 else 1))
    reader = box.reader(box.span(), window_rows=20, page_size=7)
    windows = [rows_of(reader, pages) for pages in reader.windows()]
    assert max(map(len, windows)) <= 20
    assert len(windows) < 100
    assert sorted(ck for window in windows for _, ck in window) == list(range(300))
    tops = [max(ck for _, ck in window) for window in windows]
    assert tops == sorted(tops)


def test_pages_are_passed_on_as_they_come_and_none_is_read_twice(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is read as a whole is given up at its limits, and what was read of it is read again."""
    for ck in range(300):
        box.write(ck % 11, ck)
        box.clock.advance(timedelta(milliseconds=300 if ck < 200 else 1))
    span = box.span()
    read = count_rows(monkeypatch)
    limits = {"window_rows": 20, "page_size": 7, "in_flight": 2}
    whole = box.reader(span, **limits)
    assert sum(len(rows_of(whole, pages)) for pages in whole.windows()) == 300 < sum(read)
    read.clear()
    reader = box.reader(span, **limits)
    pages = reader.pages()
    found = rows_of(reader, [next(pages)])
    assert sum(read) <= 3 * 7, "one page that was passed on, and those of two queries in flight"
    for page in pages:
        found += rows_of(reader, [page])
    assert sorted(ck for _, ck in found) == list(range(300))
    assert sum(read) == 300


def test_a_dense_span_is_noticed_by_its_first_page(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first window is not read up to the limits in vain."""
    for ck in range(800):
        box.write(ck % 23, ck)
        box.clock.advance(timedelta(milliseconds=10))
    read = count_rows(monkeypatch)
    reader = box.reader(box.span(), window_rows=400, page_size=20, in_flight=1)
    windows = [rows_of(reader, pages) for pages in reader.windows()]
    assert sorted(ck for window in windows for _, ck in window) == list(range(800))
    assert max(map(len, windows)) <= 400
    assert sum(read) <= 800 + 2 * 20, "the first page, and the one that was asked for before it was looked at"


def test_a_first_page_that_is_a_burst_does_not_make_windows_tiny(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    for ck in range(30):
        box.write(1, ck)
        box.clock.advance(timedelta(microseconds=1))
    for ck in range(30, 60):
        box.write(1, ck)
        box.clock.advance(timedelta(milliseconds=300))
    read = count_rows(monkeypatch)
    reader = box.reader(box.span(), window_rows=100, page_size=7, in_flight=1)
    windows = [rows_of(reader, pages) for pages in reader.windows()]
    assert sorted(ck for window in windows for _, ck in window) == list(range(60))
    assert len(windows) <= 10
    assert sum(read) <= 60 + 2 * 2 * 7


def test_a_record_is_in_one_window_however_narrow_they_are(box: Box) -> None:
    batch = "; ".join(f"INSERT INTO ks.t (pk, ck) VALUES (1, {ck})" for ck in range(50))
    box.session.execute(f"BEGIN BATCH {batch}; APPLY BATCH")
    box.clock.advance(10)
    reader = box.reader(box.span(), window_rows=5, page_size=3)
    [window] = [rows_of(reader, pages) for pages in reader.windows()]
    assert [len(window), len({time for time, _ in window})] == [50, 1]


def test_a_year_of_emptiness_is_jumped_over(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.write(1, 1)
    box.clock.advance(timedelta(days=365))
    box.write(1, 2)
    box.clock.advance(timedelta(days=365))
    asked: list[object] = []
    send = ReadSession.send

    def counted(self: ReadSession, *args: object, **kwargs: object) -> None:
        asked.append(args)
        send(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(ReadSession, "send", counted)
    reader = box.reader(box.span())
    assert [ck for pages in reader.windows() for _, ck in rows_of(reader, pages)] == [1, 2]
    assert len(asked) < 40


@pytest.mark.parametrize("streams", [None, 3])
def test_rows_far_apart_in_many_streams_are_all_found_in_order(box: Box, streams: int | None) -> None:
    """After each jump over empty time the next row may be in any stream, whichever answers first."""
    for ck in range(25):
        box.clock.advance(timedelta(minutes=10))
        box.write((ck * 7) % 25, ck)  # a partition key each, so nearly a stream each
    whole = box.span()
    stream_ids = whole.streams
    used = {cells[0] for cells in box.session.execute('SELECT DISTINCT "cdc$stream_id" FROM ks.t_scylla_cdc_log')}
    assert len(used) > 5
    size = streams or len(stream_ids)
    found: list[int] = []
    for at in range(0, len(stream_ids), size):
        reader = box.reader(attrs.evolve(whole, streams=stream_ids[at : at + size]), page_size=1)
        windows = [sorted(ck for _, ck in rows_of(reader, pages)) for pages in reader.windows()]
        assert windows == sorted(windows)
        found += [ck for window in windows for ck in window]
    assert sorted(found) == list(range(25))


def test_the_first_row_after_empty_time_is_not_passed_by_a_window_before_it(box: Box) -> None:
    """Rows on both sides of where a probe begins, to the microsecond."""
    box.write(0, 0)
    start_us = box.clock.now_us()
    box.clock.advance(7200)
    for ck, seconds in enumerate((10, 20, 30, 60, 61, 3600), start=1):
        for us in (-1, 0, 1):
            at = start_us + seconds * 1_000_000 + us
            box.session.execute(f"INSERT INTO ks.t (pk, ck) VALUES ({ck}, {ck * 10 + us}) USING TIMESTAMP {at}")
    reader = box.reader(box.span())
    found = [ck for pages in reader.windows() for _, ck in rows_of(reader, pages)]
    assert sorted(found) == sorted([0, *(ck * 10 + us for ck in range(1, 7) for us in (-1, 0, 1))])


@pytest.mark.parametrize("at_us", [0, FIRST_WIDTH_US - 1, FIRST_WIDTH_US, FIRST_WIDTH_US + 1, 3_600_000_000 - 1])
@pytest.mark.parametrize("probe_answers", [True, False])
def test_a_lonely_row_is_found_wherever_it_lies_in_the_span(
    box: Box, monkeypatch: pytest.MonkeyPatch, at_us: int, probe_answers: bool
) -> None:
    whole = box.span()
    start_us = box.clock.now_us()
    box.clock.advance(7200)
    box.session.execute(f"INSERT INTO ks.t (pk, ck) VALUES (1, 7) USING TIMESTAMP {start_us + at_us}")
    span = attrs.evolve(whole, window=LogWindow(whole.window.generation, start_us, start_us + 3_600_000_000))
    reader = box.reader(span)
    if not probe_answers:
        ask = Scanner.pages

        def times_out(self: Scanner, statement: ReadStatement, *args: Any, **more: Any) -> Iterator[Page]:
            if statement is reader._scan._first_row:
                raise QueryTimeout("the probe took too long")
            return ask(self, statement, *args, **more)

        monkeypatch.setattr(Scanner, "pages", times_out)
    assert [ck for pages in reader.windows() for _, ck in rows_of(reader, pages)] == [7]
    before = box.reader(attrs.evolve(span, window=attrs.evolve(span.window, end_us=start_us + at_us)))
    assert list(before.windows()) == []


def test_every_group_of_streams_is_asked(box: Box) -> None:
    """More streams than one query names, and a row in each group."""
    streams = tuple(f"{number:032x}" for number in range(1, 2 * MAX_STREAMS_PER_QUERY + 2))
    whole = box.span()
    real = sorted(whole.streams)
    padded = tuple(bytes.fromhex(s) for s in streams)
    box.write(1, 1)
    box.clock.advance(7200)
    box.write(1, 2)
    for order in ((*real, *padded), (*padded, *real)):
        span = attrs.evolve(whole, streams=order, window=attrs.evolve(whole.window, end_us=box.clock.now_us() + 1))
        reader = box.reader(span)
        assert len(group_streams(order)) > 1
        assert [ck for pages in reader.windows() for _, ck in rows_of(reader, pages)] == [1, 2]


def test_a_stop_ends_it(box: Box) -> None:
    box.write(1, 1)
    stop = Stop()
    stop.set()
    with pytest.raises(Stopped):
        list(box.reader(box.span(), stop).windows())


@pytest.mark.parametrize("paused", ["before", "after"])
def test_a_pause_between_two_readings_of_clocks_hides_no_loss(
    box: Box, monkeypatch: pytest.MonkeyPatch, paused: str
) -> None:
    """A process may be stopped, or its machine asleep, at any instant: what expired unread must not look younger."""
    box.write(1, 1)
    span = attrs.evolve(box.span(), promise=Promise(Lifetimes(((0, 60),))))
    box.clock.advance(62)  # it expires before it is read
    reader = box.reader(span)
    list(reader.windows())

    def latest_us() -> int:
        if paused == "before":
            box.clock.advance(20)
        at_us = box.clock.now_us()
        if paused == "after":
            box.clock.advance(20)
        return at_us

    assert reader.lost(latest_us) is not None
    assert box.reader(span).lost(latest_us) is None, "nothing was read, so nothing was missed"
