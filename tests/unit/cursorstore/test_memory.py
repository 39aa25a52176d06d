"""The store in memory: what its contract does not say."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from cursorstore import IntCursorCodec, MemoryCursorStore

PATIENCE_S = 5.0


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
