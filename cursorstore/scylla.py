"""Cursors in a Scylla table: a register that can only grow, made of a plain write.

All writes of a position within one epoch carry the same write timestamp. For cells of equal timestamp the database
keeps the larger bytes, in Scylla as in Cassandra, on every replica, in whatever order writes, hints and repairs
arrive. Positions sort like their cursors (``codec.py``), so what remains is the highest cursor that anybody wrote. A
process that was paused for an hour cannot move it back, and no Paxos round, read, or clock takes part in a write.

Going back on purpose is a new epoch: one conditional insert of a row that has the new start, a reason, and the write
timestamp that the epoch's positions will carry. Old owners go on writing into their own epoch, where nobody looks; at
their next check they find out. The start has a column of its own: as a position, it would carry the later timestamp
of the conditional insert and would hide all that follow.

Source for ties: Scylla ``mutation/atomic_cell.hh`` (``compare_atomic_cell_for_merge``).
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

import attrs

from rscylla import _timeuuid as tu
from rscylla.abc import CursorRecord
from rscylla.clock import Clock, SystemClock
from rscylla.errors import ConfigError, CursorConflict, QueryFailed, QueryTimeout

from ._cursortable import CursorTable, Row
from ._ground import check_consumer, check_reason, conflict, moves, signature
from .codec import CursorCodec, EventCursorCodec, parse_us
from .schema import DEFAULT_TABLE

__all__ = ["ScyllaCursorStore"]

FIRST_STAMP = 1
"""Write timestamp of the first epoch, which no reset opened: microseconds, the same in every process."""

_RESET_ATTEMPTS = 16
"""Resets of one consumer at the same moment: each round, one of them gets through."""

_WIDTH = len("2026-11-21T10:00:05.250000Z")


@attrs.define(eq=False)
class _Known:
    """What this process knows of one consumer's cursor. ``epoch`` is None until it was read."""

    lock: threading.RLock = attrs.field(factory=threading.RLock)
    epoch: int | None = None
    stamp: int = FIRST_STAMP
    position: str = ""
    checked: float = 0.0
    absent: bool = False  # no row when it was read
    error: str = ""  # why nothing more may be saved until the cursor is read again


class ScyllaCursorStore:
    """Cursors in the table *keyspace*.*table*, one plain write for each ``set_cursor``. Thread-safe.

    Args:
        session: A connected session of the driver. It stays the caller's: nothing of it is changed or closed.
        keyspace: Where the table is; names are taken as they are, capitals too.
        table: Name of the table, for ``create_schema`` see below.
        create: Create the table at first use if it is not there. The keyspace must exist.
        codec: What the cursors are; event ids unless told.
        epoch_check: How often a process that saves looks whether its cursor was reset, or passed by another process.
        consistency: LOCAL_QUORUM, QUORUM or ALL, as text or the driver's number.
        clock: Gives the times that are kept for people. The order of cursors does not depend on it.

    ``set_cursor`` raises ``CursorRegression`` for a cursor below what this process knows to be saved. Below what only
    others saved, the write has no effect, and the next check raises it. ``CursorConflict`` tells that the cursor was
    reset; ``get_cursor`` takes it up. Errors of the cluster come as ``ConnectionFailed``, ``QueryTimeout``,
    ``AuthenticationFailed``, ``QueryFailed``, ``TableNotFound``; the saved cursor is then as before, or what was
    given, and saving again is safe. To spare a write an event, wrap it in ``BufferedCursorStore``.
    """

    def __init__(
        self,
        session: Any,
        keyspace: str,
        table: str = DEFAULT_TABLE,
        *,
        create: bool = False,
        codec: CursorCodec | None = None,
        epoch_check: timedelta = timedelta(seconds=10),
        consistency: int | str = "LOCAL_QUORUM",
        clock: Clock | None = None,
    ) -> None:
        if epoch_check < timedelta():
            raise ConfigError("epoch_check must not be negative; timedelta(0) checks at each save")
        self._table = CursorTable(session, keyspace, table, create=create, consistency=consistency)
        self._codec = codec or EventCursorCodec()
        self._epoch_check = epoch_check.total_seconds()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._table.name}>"

    def create_schema(self) -> None:
        """Create the table unless it is there."""
        self._table.create()

    def check_access(self) -> None:
        """Return when this user can read and reset cursors; writes nothing.

        Raises:
            TableNotFound, ConfigError: the table is not there, or another.
            QueryFailed, QueryTimeout, ConnectionFailed: it cannot be read or written.
        """
        self._table.touch()

    def get_cursor(self, consumer: str) -> str:
        known = self._of(consumer)
        with known.lock:
            self._adopt(known, self._table.read(consumer))
            return self._codec.decode(known.position)

    def set_cursor(self, consumer: str, cursor: str) -> None:
        known = self._of(consumer)
        given = self._codec.encode(cursor)
        with known.lock:
            if known.error:
                raise CursorConflict(known.error)
            if known.epoch is None:
                self._adopt(known, self._table.read(consumer))
            elif self._clock.monotonic() - known.checked >= self._epoch_check:
                self._check(consumer, known)
            if moves(consumer, self._codec, known.position, given):
                self._advance(consumer, known, given)

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Nothing runs in the background, and the session belongs to the caller."""

    def find_cursor(self, consumer: str) -> CursorRecord | None:
        """Return what is saved for *consumer*, None if nothing ever was."""
        check_consumer(consumer)
        row = self._table.read(consumer)
        return self._record(row) if row else None

    def list_cursors(self) -> list[CursorRecord]:
        return sorted(map(self._record, self._table.rows()), key=lambda record: record.consumer)

    def cursor_history(self, consumer: str) -> list[CursorRecord]:
        """Return the last cursor of each epoch of *consumer*, the newest epoch first: the audit trail of resets."""
        check_consumer(consumer)
        return [self._record(row) for row in self._table.history(consumer)]

    def reset_cursor(self, consumer: str, cursor: str, *, reason: str) -> None:
        check_reason(reason)
        known = self._of(consumer)
        start = self._codec.encode(cursor)
        with known.lock:
            self._open_epoch(consumer, start, reason)
            # A consumer of this process that is at work does not know that its cursor moved.
            known.error = str(conflict(consumer)) if known.epoch is not None else ""

    def _of(self, consumer: str) -> _Known:
        check_consumer(consumer)
        with self._lock:
            return self._known.setdefault(consumer, _Known())

    def _adopt(self, known: _Known, row: Row | None) -> None:
        known.absent = row is None
        known.epoch = row.epoch if row else 0
        known.stamp = row.stamp or FIRST_STAMP if row else FIRST_STAMP
        known.position = row.saved or "" if row else ""
        known.checked = self._clock.monotonic()
        known.error = ""

    def _advance(self, consumer: str, known: _Known, given: str) -> None:
        assert known.epoch is not None
        self._table.advance(consumer, known.epoch, known.stamp, given, signature(self._clock.now_us()))
        known.position = given
        if known.absent:
            # Where a row was deleted by hand, its tombstone hides later writes with earlier timestamps.
            self._check(consumer, known)
            known.absent = False

    def _check(self, consumer: str, known: _Known) -> None:
        """Compare with the table: take up what other processes saved; raise ``CursorConflict`` after a reset."""
        assert known.epoch is not None
        row = self._table.read(consumer)
        found = row.saved or "" if row else ""
        stamp = row.stamp or FIRST_STAMP if row else FIRST_STAMP
        if row and (row.epoch, stamp) > (known.epoch, known.stamp):
            # A reset after a deletion by hand may have the same epoch again, but not the same stamp.
            known.error = str(conflict(consumer))
        elif not row or row.epoch < known.epoch or found < known.position:
            if known.epoch or known.position:
                known.error = (
                    f"what was saved for consumer {consumer!r} is no longer in table {self._table.name}: rows were "
                    "deleted or restored by hand, and a deletion also hides what is saved after it; reset the cursor"
                )
        else:
            known.position = found
        if known.error:
            raise CursorConflict(known.error)
        known.checked = self._clock.monotonic()

    def _open_epoch(self, consumer: str, start: str, reason: str) -> None:
        for _ in range(_RESET_ATTEMPTS):
            last = self._table.read(consumer, serial=True)
            now_us = self._clock.now_us()
            row = Row(
                consumer,
                epoch=last.epoch + 1 if last else 1,
                position="",
                updated="",
                start=start,
                stamp=max(now_us, (last.stamp or FIRST_STAMP) + 1 if last else 0),
                opened=signature(now_us),
                reason=reason,
            )
            try:
                if self._table.open_epoch(row):
                    return
            except QueryTimeout:
                # It may have been done all the same, and then a second one would be a second entry of the audit.
                if not self._was_opened(row):
                    raise
                return
        raise QueryFailed(f"the cursor of consumer {consumer!r} is being reset by many others; try again")

    def _was_opened(self, row: Row) -> bool:
        self._table.read(row.consumer, serial=True)  # completes a conditional insert that was left half done
        wanted = row.epoch, row.stamp, row.opened
        return any((r.epoch, r.stamp, r.opened) == wanted for r in self._table.history(row.consumer))

    def _record(self, row: Row) -> CursorRecord:
        written = (row.updated or row.opened)[:_WIDTH]
        return CursorRecord(
            row.consumer,
            self._codec.decode(row.saved or ""),
            row.epoch,
            _moment(written),
            row.reason,
        )


def _moment(text: str) -> datetime | None:
    return tu.datetime_of(parse_us(text)) if text else None
