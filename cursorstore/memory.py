"""A cursor store in memory, for tests and for consumers that may start again from the beginning.

It refuses what the real stores refuse, so that a test that passes with it means something.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import attrs

from rscylla import _timeuuid as tu
from rscylla.abc import CursorRecord
from rscylla.clock import Clock, SystemClock

from ._ground import check_consumer, check_reason, conflict, moves
from .codec import CursorCodec, EventCursorCodec

__all__ = ["MemoryCursorStore"]


class MemoryCursorStore:
    """Cursors that live as long as this object. Thread-safe.

    *cursors* are saved at the start. After ``reset_cursor``, a consumer that had read or set its cursor before must
    read it again: until then ``set_cursor`` raises ``CursorConflict``, as the store in Scylla does.
    """

    def __init__(
        self,
        *,
        codec: CursorCodec | None = None,
        cursors: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._codec = codec or EventCursorCodec()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._epochs: dict[str, list[CursorRecord]] = {}
        self._used: dict[str, int] = {}  # consumer -> the epoch that it works in
        for consumer, cursor in (cursors or {}).items():
            check_consumer(consumer)
            self._epochs[consumer] = [self._record(consumer, cursor)]

    def get_cursor(self, consumer: str) -> str:
        check_consumer(consumer)
        with self._lock:
            record = self._last(consumer)
            self._used[consumer] = record.epoch if record else 0
            return record.cursor if record else ""

    def set_cursor(self, consumer: str, cursor: str) -> None:
        check_consumer(consumer)
        given = self._codec.encode(cursor)
        with self._lock:
            last = self._last(consumer)
            epoch = last.epoch if last else 0
            if self._used.setdefault(consumer, epoch) != epoch:
                raise conflict(consumer)
            stored = last.cursor if last else ""
            if moves(consumer, self._codec.encode(stored), given, stored_cursor=stored, cursor=cursor):
                moved = attrs.evolve(
                    self._record(consumer, cursor), epoch=epoch, reason=last.reason if last is not None else ""
                )
                self._epochs.setdefault(consumer, [moved])[-1] = moved

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Nothing runs in the background."""

    def find_cursor(self, consumer: str) -> CursorRecord | None:
        """Return what is saved for *consumer*, None if nothing ever was."""
        check_consumer(consumer)
        with self._lock:
            return self._last(consumer)

    def list_cursors(self) -> list[CursorRecord]:
        with self._lock:
            return [records[-1] for _, records in sorted(self._epochs.items())]

    def cursor_history(self, consumer: str) -> list[CursorRecord]:
        """Return the last cursor of each epoch of *consumer*, the newest epoch first: the audit trail of resets."""
        check_consumer(consumer)
        with self._lock:
            return self._epochs.get(consumer, [])[::-1]

    def reset_cursor(self, consumer: str, cursor: str, *, reason: str) -> None:
        check_consumer(consumer)
        check_reason(reason)
        record = self._record(consumer, cursor)
        with self._lock:
            last = self._last(consumer)
            epoch = last.epoch + 1 if last else 1
            self._epochs.setdefault(consumer, []).append(attrs.evolve(record, epoch=epoch, reason=reason))

    def _last(self, consumer: str) -> CursorRecord | None:
        return self._epochs[consumer][-1] if consumer in self._epochs else None

    def _record(self, consumer: str, cursor: str) -> CursorRecord:
        """Return a record of now, with the canonical form of *cursor*."""
        canonical = self._codec.decode(self._codec.encode(cursor))
        return CursorRecord(consumer, canonical, updated_at=tu.datetime_of(self._clock.now_us()))
