"""Whatever is written is delivered: once, in the total order, over generations, windows, faults, stops and resumes."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from cassandra import OperationTimedOut, ReadTimeout
from fakelog import NOW_US, SECOND, FakeLog, stream_id
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rscylla.cdc.read.scan import Limits
from rscylla.cdc.stream import Stream
from rscylla.errors import HeadReached
from rscylla.event import EventID, Progress, cursor_key
from rscylla.options import StreamLag, StreamToHead
from rscylla.testing import ManualClock

LOWS = (0, 0x7F, 0x80, 0x7FFF_FFFF_FFFF_FFFF, 0x8000_0000_0000_0000, 0x8080_8080_8080_8080, 0xFFFF_FFFF_FFFF_FFFF)
SPAN_US = 20_000 * SECOND
LAG_US = 30 * SECOND


@st.composite
def scripts(draw: st.DrawFn) -> dict[str, Any]:
    """Return how a table was written and is read; times are microseconds before the first head."""
    spans = st.one_of(st.integers(0, SPAN_US), st.integers(0, 30).map(lambda s: s * SECOND), st.integers(0, 50))
    return {
        "generations": draw(st.lists(spans, max_size=3, unique_by=lambda us: us // 1000)),
        "rows": draw(st.lists(st.tuples(spans, st.integers(0, 7), st.sampled_from(LOWS)), max_size=40)),
        "streams": draw(st.integers(1, 6)),
        "shared": draw(st.booleans()),
        "limits": Limits(
            in_flight=draw(st.integers(1, 3)),
            page_size=draw(st.integers(1, 7)),
            window_rows=draw(st.integers(1, 12)),
            attempts=50,
        ),
        "per_query": draw(st.integers(1, 4)),
        "granularity": draw(st.sampled_from(["row", "change"])),
        "progress_s": draw(st.sampled_from([0, 10])),
        "faults": draw(st.sampled_from([0.0, 0.0, 0.2])),
        "stops": draw(st.sampled_from([0.0, 0.1, 0.5])),
        "seed": draw(st.integers(0, 2**16)),
    }


def build(script: dict[str, Any]) -> FakeLog:
    log = FakeLog(ManualClock(NOW_US), ttl_s=0, seed=script["seed"])
    head_us = NOW_US - LAG_US
    starts = sorted({head_us - SPAN_US - SECOND, *(head_us - us for us in script["generations"])})
    for place, us in enumerate(starts):
        salt = 0 if script["shared"] else place
        log.generation(us, [stream_id(n * 1000 - 2500, n // 2, salt) for n in range(script["streams"])])
    write_all(log, script["rows"], head_us)
    return log


def write_all(log: FakeLog, rows: list[tuple[int, int, int]], head_us: int) -> None:
    """Write one log row for each; of the same stream and time they are one record."""
    taken: dict[tuple[bytes, bytes], int] = {}
    for before_us, at, low in rows:
        row = log.write(head_us - before_us - 1, at=at, low=low)
        log.written.pop()
        seq = taken[row.stream, row.time] = taken.get((row.stream, row.time), -1) + 1
        log.write(head_us - before_us - 1, at=at, low=low, seq=seq)


def name_of(cursor: str) -> tuple[str, str, int]:
    found = EventID.parse(cursor)
    raw = found.stream_time.hex()
    return found.stream_id.hex(), f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}", found.seq


def read(log: FakeLog, script: dict[str, Any], cursor: str, dice: random.Random) -> tuple[list[str], str]:
    """Return the ids delivered up to the head, over as many clients as there are stops, and where to continue."""
    stream = Stream(
        log,  # type: ignore[arg-type]
        "ks",
        "t",
        granularity=script["granularity"],
        limits=script["limits"],
        streams_per_query=script["per_query"],
        progress_every=timedelta(seconds=script["progress_s"]),
        prefetch=0,
        clock=log.clock,
    )
    ids: list[str] = []
    while True:
        client = stream(cursor, StreamLag(seconds=30), StreamToHead())
        try:
            while True:
                got = client.recv()
                new = got.cursor if isinstance(got, Progress) else got.id
                assert not cursor or cursor_key(new) > cursor_key(cursor), "a cursor moves forward only"
                cursor = new
                if not isinstance(got, Progress):
                    assert EventID.parse(got.id).position == got.position
                    ids.append(new)
                if dice.random() < script["stops"]:
                    break
        except HeadReached as e:
            return ids, e.cursor
        finally:
            client.close()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts())
def test_delivered_is_what_was_written_in_order_and_once(script: dict[str, Any]) -> None:
    log = build(script)
    dice = random.Random(script["seed"])
    errors = (OperationTimedOut("late"), ReadTimeout("late"))
    log.on_fetch = lambda _: dice.choice(errors) if dice.random() < script["faults"] else None
    before = list(log.written)
    ids, cursor = read(log, script, "", dice)
    assert [name_of(i) for i in ids] == log.expected(before)
    # Later, more was written behind the head that was reached; a resumed reader finds just that.
    assert not ids or cursor_key(cursor) >= cursor_key(ids[-1])
    reached_us = EventID.parse(cursor).exact_us
    head_us = max(log.clock.now_us(), reached_us + LAG_US) + 60 * SECOND
    log.clock.advance((head_us + LAG_US - log.clock.now_us()) / 1e6)
    fresh = [r for r in script["rows"] if head_us - r[0] - 1 >= reached_us]
    write_all(log, fresh, head_us)
    more, _ = read(log, script, cursor, dice)
    assert [name_of(i) for i in more] == log.expected(log.written[len(before) :])
    assert len({*ids, *more}) == len(log.written)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts(), st.integers(1, 3))
def test_reading_ahead_delivers_the_same(script: dict[str, Any], ahead: int) -> None:
    log = build(script)
    stream = Stream(
        log,  # type: ignore[arg-type]
        "ks",
        "t",
        limits=script["limits"],
        streams_per_query=script["per_query"],
        prefetch=ahead,
        clock=log.clock,
    )
    client = stream("", StreamLag(seconds=30), StreamToHead())
    ids = []
    try:
        while True:
            got = client.recv()
            if not isinstance(got, Progress):
                ids.append(got.id)
    except HeadReached:
        pass
    finally:
        client.close()
    assert [name_of(i) for i in ids] == log.expected()
