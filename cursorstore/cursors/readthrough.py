"""A cursor store that copies cursors from an old store to a new one, consumer by consumer, when they are read."""

from __future__ import annotations

from rscylla.abc import CursorRecord, CursorStore, LastEvent, fence_name, flush_cursor, last_event_of

from ..checks import admin_of, check_consumer, find, overridden

__all__ = ["ReadThroughCursorStore"]


class ReadThroughCursorStore:
    """Reads *primary*; copies a cursor that only *fallback* has to *primary* and flushes it. Thread-safe if both are.

    Writes go only to *primary*. A cursor of *primary* that was reset to "" exists: it is not read from *fallback*
    again. Both stores are closed together with this one. Both must have cursors of the same kind.
    """

    def __init__(self, primary: CursorStore, fallback: CursorStore) -> None:
        self._primary = primary
        self._fallback = fallback
        self._copied: set[str] = set()

    def get_cursor(self, consumer: str) -> str:
        check_consumer(consumer)
        cursor = self._primary.get_cursor(consumer)
        if not cursor and not find(self._primary, consumer):
            cursor = self._copy(consumer)
        self._copied.add(consumer)
        return cursor

    def set_cursor(self, consumer: str, cursor: str) -> None:
        if consumer not in self._copied:
            self.get_cursor(consumer)  # so that a cursor lower than that of the fallback is refused
        self._primary.set_cursor(consumer, cursor)

    def last_event_of(self, consumer: str) -> LastEvent:
        if consumer not in self._copied or overridden(self, ReadThroughCursorStore):
            return LastEvent()
        return last_event_of(self._primary, consumer)

    def _copy(self, consumer: str) -> str:
        """Copy the cursor of the fallback, if it has one, and return it in its canonical form."""
        cursor = self._fallback.get_cursor(consumer)
        if not cursor:
            return ""
        self._primary.set_cursor(consumer, cursor)
        flush_cursor(self._primary, consumer)
        return self._primary.get_cursor(consumer)

    def flush(self) -> None:
        self._primary.flush()

    def flush_cursor(self, consumer: str) -> None:
        if overridden(self, ReadThroughCursorStore, "flush"):
            self.flush()
        else:
            flush_cursor(self._primary, consumer)

    def fence_name(self, consumer: str) -> str | None:
        return fence_name(self._primary, consumer)

    def close(self) -> None:
        try:
            self._primary.close()
        finally:
            self._fallback.close()

    def find_cursor(self, consumer: str) -> CursorRecord | None:
        """Return the record of *consumer* in *primary*, or else in *fallback*; None if neither has one."""
        check_consumer(consumer)
        return find(self._primary, consumer) or find(self._fallback, consumer)

    def list_cursors(self) -> list[CursorRecord]:
        """Return the cursors of both stores, sorted by consumer; those of *primary* take precedence."""
        records = {record.consumer: record for record in admin_of(self._fallback).list_cursors()}
        records |= {record.consumer: record for record in admin_of(self._primary).list_cursors()}
        return [records[consumer] for consumer in sorted(records)]

    def cursor_history(self, consumer: str) -> list[CursorRecord]:
        """Return the last cursor of each epoch of *consumer* in *primary*, the newest epoch first."""
        return list(admin_of(self._primary).cursor_history(consumer))

    def reset_cursor(self, consumer: str, cursor: str, *, reason: str) -> None:
        admin_of(self._primary).reset_cursor(consumer, cursor, reason=reason)
