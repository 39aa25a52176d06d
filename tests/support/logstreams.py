"""Streams over a log in memory, and what comes out of them."""

from __future__ import annotations

from typing import Any

import pytest
from fakelog import NOW_US, SECOND, FakeLog, stream_id

from rscylla.cdc.client import Client
from rscylla.cdc.stream import Stream
from rscylla.errors import (
    HeadReached,
)
from rscylla.event import EventID, Progress
from rscylla.options import StreamLag, StreamOption, StreamToHead

LAG = StreamLag(seconds=30)
HEAD_US = NOW_US - 30 * SECOND
HOUR = 3600 * SECOND
DAY = 24 * HOUR


def stream_of(log: FakeLog, **settings: Any) -> Stream:
    settings.setdefault("prefetch", 0)
    return Stream(log, log.keyspace, log.table, clock=log.clock, **settings)  # type: ignore[arg-type]


def drain(client: Client) -> tuple[list[Any], list[Progress], HeadReached]:
    """Return the events and progress up to the head, and the error that ended the stream."""
    events: list[Any] = []
    progress: list[Progress] = []
    while True:
        try:
            got = client.recv()
        except HeadReached as e:
            return events, progress, e
        (progress if isinstance(got, Progress) else events).append(got)


def drain_of_progress(client: Client) -> None:
    """Receive until an error; an event is a failure."""
    while isinstance(got := client.recv(), Progress):
        pass
    pytest.fail(f"delivered {got}")


def to_head(log: FakeLog, after: str = "", *options: StreamOption, **settings: Any) -> list[Any]:
    return drain(stream_of(log, **settings)(after, *(options or (LAG,)), StreamToHead()))[0]


def names(events: list[Any]) -> list[tuple[str, str, int]]:
    found = []
    for event in events:
        i = EventID.parse(event.id)
        raw = i.stream_time.hex()
        found.append((i.stream_id.hex(), f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}", i.seq))
    return found


def cut(log: FakeLog, us: int) -> None:
    """Begin another generation, of new streams."""
    log.generation(us, [stream_id(n * 100, n // 2, len(log.generations)) for n in range(4)])
