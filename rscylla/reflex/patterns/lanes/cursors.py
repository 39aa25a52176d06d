"""The cursors of two lanes: the sweep's is the consumer's own; that of the fast lane is in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....abc import CursorRecord, CursorStore, fence_name, flush_cursor
from ....clock import Clock
from ....errors import CursorConflict
from .ledger import Ledger

__all__ = ["SAVE_EVERY_S", "FastStore", "SweepStore"]

SAVE_EVERY_S = 1.0
"""Seconds between saves of the fast lane's cursor, and of the sweep's while it finds no late event."""


class _LaneStore:
    """The store of a lane, around that of both. *begin* is called before a cursor is read."""

    def __init__(self, store: CursorStore, ledger: Ledger, begin: Callable[[], None]) -> None:
        self._store = store
        self._ledger = ledger
        self._begin = begin

    def _save(self) -> None:
        """Pass on what is not saved yet."""

    def flush(self) -> None:
        self._save()
        self._store.flush()

    def flush_cursor(self, consumer: str) -> None:
        self._save()
        flush_cursor(self._store, consumer)

    def fence_name(self, consumer: str) -> str | None:
        return fence_name(self._store, consumer)

    def close(self) -> None:
        self._save()
        self._store.close()


class FastStore(_LaneStore):
    """The fast lane's cursor: kept in the ledger, and saved about once a second, for people only."""

    def __init__(
        self,
        store: CursorStore,
        ledger: Ledger,
        begin: Callable[[], None],
        *,
        sweep: str,
        order: Callable[[str], Any],
        clock: Clock,
    ) -> None:
        super().__init__(store, ledger, begin)
        self._sweep = sweep
        self._order = order
        self._clock = clock
        self._saved: Any = None
        self._saved_at = 0.0
        self._unsaved: tuple[str, str] | None = None

    def get_cursor(self, consumer: str) -> str:
        self._begin()
        self._unsaved = None
        self._saved = self._order(self._store.get_cursor(consumer))
        self._saved_at = self._clock.monotonic()
        return self._ledger.open_fast(self._swept())

    def _swept(self) -> str:
        """Return the sweep's cursor without reading it as the sweep does.

        ``get_cursor`` acknowledges a reset. Called here, while the sweep runs, it would let the sweep save a cursor
        from before the reset.
        """
        find = getattr(self._store, "find_cursor", None)
        if find is None:  # a store without resets
            return self._store.get_cursor(self._sweep)
        record: CursorRecord | None = find(self._sweep)
        return record.cursor if record is not None else ""

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self._ledger.commit(cursor)
        self._unsaved = consumer, cursor
        if self._clock.monotonic() - self._saved_at >= SAVE_EVERY_S:
            self._save()

    def _save(self) -> None:
        if self._unsaved is None:
            return
        consumer, cursor = self._unsaved
        key = self._order(cursor)
        # After a restart, the lane starts at the sweep's cursor, which is lower than its own saved one; the store would
        # refuse to move backward.
        if self._saved is None or key > self._saved:
            self._store.set_cursor(consumer, cursor)
            self._saved = key
        self._unsaved, self._saved_at = None, self._clock.monotonic()


class SweepStore(_LaneStore):
    """The sweep's cursor; the ledger forgets the events before it."""

    def get_cursor(self, consumer: str) -> str:
        self._begin()
        cursor = self._store.get_cursor(consumer)
        self._ledger.open_sweep(cursor)
        return cursor

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self._ledger.try_sweep(cursor)
        try:
            self._store.set_cursor(consumer, cursor)
        except CursorConflict:
            self._ledger.reset_sweep()
            raise
        self._ledger.sweep(cursor)
