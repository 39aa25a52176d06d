"""What the tests of consumers with threads share."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from deferring import LONG_S


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG_S)
        assert not thread.is_alive(), thread.name
