"""The store in memory: what its contract does not say."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from cursorstore import IntCursorCodec, MemoryCursorStore

PATIENCE_S = 60.0


def test_consumers_in_several_threads_do_not_wait_for_each_other() -> None:
    """A lock for all made each event of two slices in one process a switch of threads."""
    entered, gate = threading.Event(), threading.Event()

    class Waits(IntCursorCodec):
        def decode(self, position: str) -> str:
            entered.set()
            assert gate.wait(2 * PATIENCE_S)
            return super().decode(position)

    store = MemoryCursorStore(codec=Waits(), cursors={"slow": "7"})
    with ThreadPoolExecutor(2) as threads:
        try:
            slow = threads.submit(store.get_cursor, "slow")
            assert entered.wait(PATIENCE_S)
            threads.submit(store.set_cursor, "fast", "8").result(PATIENCE_S)
        finally:
            gate.set()
        assert slow.result(PATIENCE_S) == "7"
    assert store.get_cursor("fast") == "8"


def test_the_newest_record_is_found_without_the_older_ones() -> None:
    class Counts(IntCursorCodec):
        decoded = 0

        def decode(self, position: str) -> str:
            self.decoded += 1
            return super().decode(position)

    codec = Counts()
    store = MemoryCursorStore(codec=codec, cursors={"c": "1"})
    for n in range(100):
        store.reset_cursor("c", str(n), reason="a test")
    record = store.find_cursor("c")
    assert record is not None
    assert (record.epoch, record.cursor, codec.decoded) == (100, "99", 1)


def test_asking_for_consumers_without_a_cursor_keeps_nothing_of_them() -> None:
    store = MemoryCursorStore()
    for n in range(10):
        assert store.find_cursor(f"c{n}") is None
        assert list(store.cursor_history(f"c{n}")) == []
    assert store._consumers == {}
