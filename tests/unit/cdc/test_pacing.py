"""How fast a stream reads and how much it holds: no pause while behind, back-pressure, and many generations at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from cassandra import OperationTimedOut
from fakelog import NOW_US, SECOND, Asked, FakeLog, stream_id

from rscylla.cdc.client import Client, ReadAhead
from rscylla.cdc.read.scan import Limits
from rscylla.cdc.stream import Stream
from rscylla.errors import HeadReached
from rscylla.event import EventID, Progress
from rscylla.options import StreamLag, StreamToHead

LAG = StreamLag(seconds=30)
HEAD_US = NOW_US - 30 * SECOND
HOUR = 3600 * SECOND
PATIENCE_S = 60.0


def stream_of(log: FakeLog, **settings: Any) -> Stream:
    return Stream(log, log.keyspace, log.table, clock=log.clock, **{"prefetch": 0, **settings})  # type: ignore[arg-type]


def drain(client: Client) -> list[str]:
    """Return the ids of all events up to the head."""
    ids = []
    try:
        while True:
            got = client.recv()
            if not isinstance(got, Progress):
                ids.append(got.id)
    except HeadReached:
        return ids
    finally:
        client.close()


def names(ids: list[str]) -> list[tuple[bytes, bytes, int]]:
    found = [EventID.parse(text) for text in ids]
    return [(i.stream_id, i.stream_time, i.seq) for i in found]


def wanted(log: FakeLog) -> list[tuple[bytes, bytes, int]]:
    return [(w.stream, w.time, w.seq) for w in sorted(log.written, key=lambda w: w.order)]


def backlog(log: FakeLog, rows: int, *, apart_us: int) -> None:
    """Write *rows* rows that end just before the head, over four streams."""
    log.generation(HEAD_US - rows * apart_us - HOUR, [stream_id(n * 100, n // 2) for n in range(4)])
    for n in range(rows):
        log.write(HEAD_US - (rows - n) * apart_us, at=n)


# ---------------------------------------------------------------- behind


@pytest.mark.parametrize("apart_us", [1, 1000, SECOND, 17 * SECOND])
def test_nothing_is_waited_for_while_behind(log: FakeLog, apart_us: int) -> None:
    """Elsewhere a reader sleeps after each window, and so catches up at three to six times real time at most."""
    backlog(log, 2000, apart_us=apart_us)
    client = stream_of(log, limits=Limits(window_rows=100))("", LAG, StreamToHead())
    assert names(drain(client)) == wanted(log)
    assert log.clock.waits == []
    assert log.clock.now_us() == NOW_US


def test_catching_up_costs_queries_by_rows_and_not_by_time(log: FakeLog) -> None:
    """The same rows over ten times the time: a few more windows for the width to find its way, and not ten times."""
    asked = []
    for apart_us in (SECOND, 10 * SECOND, 100 * SECOND):
        fresh = FakeLog(log.clock, ttl_s=0)
        backlog(fresh, 3000, apart_us=apart_us)
        assert names(drain(stream_of(fresh, limits=Limits(window_rows=500))("", LAG, StreamToHead()))) == wanted(fresh)
        asked.append(len(fresh.asked))
    assert max(asked) < 1.5 * min(asked)
    assert max(asked) < 100


@pytest.mark.parametrize("cell_bytes", [1, 1000, 5000])
def test_rows_of_any_size_are_asked_for_about_once(log: FakeLog, cell_bytes: int) -> None:
    """Windows grow to what fits in bytes, too: one that turns out too much was read in vain."""
    log.page_size = 20
    log.generation(HEAD_US - 2 * HOUR, [stream_id(n * 100, n // 2) for n in range(4)])
    for n in range(3000):
        log.write(HEAD_US - (3000 - n) * SECOND, at=n, v=b"x" * cell_bytes)
    sent = 0
    answer = log._page

    def count(*args: Any) -> Any:
        nonlocal sent
        page = answer(*args)
        sent += page.row_count
        return page

    log._page = count  # type: ignore[method-assign]
    client = stream_of(log, limits=Limits(window_bytes=500_000))("", LAG, StreamToHead())
    assert names(drain(client)) == wanted(log)
    assert sent < 1.1 * 3000


def test_a_window_without_rows_is_never_too_much(log: FakeLog) -> None:
    """Each page describes its columns, of which there may be hundreds, and a window may have a thousand pages."""
    log.generation(NOW_US - 2 * HOUR, [stream_id(n * 100, n) for n in range(50)])
    log.write(HEAD_US - SECOND)
    answer = log._page

    def described(*args: Any) -> Any:
        page = answer(*args)
        return attrs.evolve(page, body=b"columns" * 100 + page.body, offset=page.offset + 700)

    log._page = described  # type: ignore[method-assign]
    client = stream_of(log, streams_per_query=1, limits=Limits(window_bytes=10_000))("", LAG, StreamToHead())
    assert names(drain(client)) == wanted(log)
    assert len(log.asked) < 50 * 20


def test_windows_that_take_too_long_are_not_asked_for_again_and_again(log: FakeLog) -> None:
    """An hour of changes, of which the cluster can read ten seconds at once, is read in much less than an hour."""
    backlog(log, 3600, apart_us=SECOND)

    def answer(asked: Asked) -> BaseException | None:
        if asked.is_probe or asked.end_us - asked.start_us <= 10 * SECOND:
            return None
        log.clock.advance(5)
        return OperationTimedOut("late")

    log.on_fetch = answer
    began = log.clock.monotonic()
    assert names(drain(stream_of(log)("", LAG, StreamToHead()))) == wanted(log)
    assert log.clock.monotonic() - began < 1800


# ---------------------------------------------------------------- a consumer that is slow


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does, however slow the machine."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.001)


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_consumer_that_stops_taking_stops_the_reader(log: FakeLog, prefetch: int) -> None:
    """What is held is the window in hand and those read ahead, each within the limits; then nothing is asked for."""
    limits = Limits(window_rows=100, page_size=50)
    backlog(log, 1200, apart_us=SECOND)
    sent = 0

    def count(asked: Asked) -> None:
        nonlocal sent
        if not asked.is_probe:
            sent += limits.page_size  # at most

    log.on_fetch = count
    client = stream_of(log, limits=limits, prefetch=prefetch)("", LAG, StreamToHead())
    taken = 0
    most = 0
    for _ in range(40):
        while isinstance(client.recv(), Progress):
            pass
        taken += 1
        # The reader has used all its slots, so it waits for the consumer: from here on nothing more is read.
        feed = client._feed
        if isinstance(feed, ReadAhead):
            until(lambda ahead=feed: ahead._ready.qsize() == prefetch and ahead._slots.empty())
        rows = [len(events) for events in _waiting(client)]
        most = max(most, sum(rows))
        assert all(r <= limits.window_rows for r in rows)
    assert most <= (1 + prefetch) * limits.window_rows
    before = len(log.asked)
    # A window that held too much is read again in parts, so the fetched rows are also bounded, not only those kept.
    assert sent <= 6 * (taken + most + limits.window_rows)
    assert names(drain(client)) == wanted(log)[taken:]
    assert len(log.asked) > before


class _Taken:
    """Events that were made before they are asked for."""

    def __init__(self, events: list[Any], position: bytes) -> None:
        self._events = iter(events)
        self.position = position

    def __iter__(self) -> Iterator[Any]:
        return self._events


def _waiting(client: Client) -> list[list[Any]]:
    """Return the events left in the batch in hand and those in the batches read ahead, which stay in their order."""
    feed = client._feed
    held: list[Any] = [feed._ready.get() for _ in range(feed._ready.qsize())] if isinstance(feed, ReadAhead) else []
    events = [list(batch.events) for batch in (client._step, *held)]
    client._step, *held = [
        attrs.evolve(b, events=_Taken(e, b.events.position)) for b, e in zip((client._step, *held), events, strict=True)
    ]
    for batch in held:
        feed._ready.put(batch)
    return events


# ---------------------------------------------------------------- many generations


@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_generations_are_read_in_order_and_none_is_left_out(log: FakeLog, seed: int) -> None:
    """As after an hour of nodes that come and go, or of a table whose tablets split and merge; listed in any order."""
    log.random.seed(seed)
    start = HEAD_US - 3000 * SECOND
    for n in range(300):
        log.generation(start + n * 10 * SECOND, [stream_id(s * 100, s, n) for s in range(2)])
    for n in range(900):  # three in each, at both its edges
        log.write(start + n // 3 * 10 * SECOND + (0, 1, 9_999_999)[n % 3], at=n)
    ids = drain(stream_of(log)("", LAG, StreamToHead()))
    assert names(ids) == wanted(log)
    assert len({EventID.parse(i).generation for i in ids}) == 300
    assert len(log.asked) < 4 * 300
    lists = sum("cdc_generation_timestamps WHERE key" in cql for cql in log.metadata)
    assert lists < 20, "the list is read again for the head, and not for each generation"
    middle = ids[len(ids) // 2]
    assert drain(stream_of(log)(middle, LAG, StreamToHead())) == ids[len(ids) // 2 + 1 :]


def test_hundreds_of_empty_generations_cost_in_proportion_to_their_number(log: FakeLog) -> None:
    start = HEAD_US - 80_000 * SECOND
    for n in range(400):
        log.generation(start + n * 200 * SECOND, [stream_id(s * 100, s, n) for s in range(2)])
    row = log.write(HEAD_US - SECOND)
    ids = drain(stream_of(log)("", LAG, StreamToHead()))
    assert names(ids) == [(row.stream, row.time, row.seq)]
    assert len(log.asked) <= 3 * 400
