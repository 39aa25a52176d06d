"""What the tests of services share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from servicebench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def sigterm_is_harmless() -> Iterator[list[int]]:
    """Signals that a service does not take end up here, and not with the test run."""
    missed: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda n, _: missed.append(n)) for number in numbers}
    yield missed
    for number, handler in before.items():
        signal.signal(number, handler)
