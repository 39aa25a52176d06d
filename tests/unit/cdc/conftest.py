"""Streams under test open over a ``FakeLog`` instead of a driver session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakelog import NOW_US, FakeLog

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
