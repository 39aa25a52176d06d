"""What has been read does not stay in memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

import rscylla
from rscylla.driver.session import ReadSession, consistency_named

PAGES = 10


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_a_page_is_freed_with_its_last_reference(session: rscylla.Session) -> None:
    log = ReadSession(session, consistency=consistency_named("ONE"))
    statement = log.prepare("SELECT * FROM system.local WHERE key = ?", page_size=10, doing="a test")
    pages = [weakref.ref(log.read(statement, (b"local",), doing="a test")) for _ in range(PAGES)]
    # The driver's thread may still be about to leave the callback that got the last one.
    assert [page() for page in pages[:-1]] == [None] * (PAGES - 1)
