"""Streams under test open over a ``FakeLog`` instead of a driver session."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from fakelog import NOW_US, SECOND, FakeLog, stream_id

from rscylla.cdc.read import reader
from rscylla.cdc.rows import LogRows, events
from rscylla.testing import ManualClock


@pytest.fixture(autouse=True, scope="module")
def _fake_sessions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rscylla.cdc.stream.ReadSession", lambda session, consistency: session)
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture
def log(clock: ManualClock) -> FakeLog:
    return FakeLog(clock)


@pytest.fixture
def second_event_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the second event of a stream, made in Python, raise ``ZeroDivisionError`` once."""
    made, event = itertools.count(), events.ChangeEvent

    def make(*args: Any) -> events.ChangeEvent:
        if next(made) == 1:
            raise ZeroDivisionError
        return event(*args)

    monkeypatch.setattr(reader, "new_rows", LogRows)
    monkeypatch.setattr(events, "ChangeEvent", make)


@pytest.fixture
def one(log: FakeLog) -> FakeLog:
    """A log with one generation, an hour old, of four streams."""
    log.generation(NOW_US - 3600 * SECOND, [stream_id(n * 100, n // 2) for n in range(4)])
    return log
