"""Cursors in a Scylla table: a register that only grows, with one plain write for each save.

All writes of a position within one epoch have the same write timestamp. Among cells with equal timestamps, Scylla and
Cassandra keep the cell with the larger bytes, on every replica, in whatever order writes, hints, and repairs arrive.
Positions sort like their cursors (``codec.py``), so the highest cursor remains, whoever wrote it. A process that was
paused for an hour cannot move it back, and a write needs no Paxos round, no read, and no clock.

A reset opens a new epoch: a conditional insert of a row with the new start, a reason, and the write timestamp for the
positions of the epoch. Processes that do not know about the reset continue to write to the old epoch, which is no
longer read, and notice it at their next check. The start has its own column: a position in the conditional insert would
have a later timestamp than the positions that follow, and would hide them.

Leases are enforced in the same way. After it acquires the lease, a holder opens an epoch for each consumer before it
reads the cursor. The row contains the epoch of the lease, the fence. A former holder that was paused writes to an epoch
that is no longer read. It cannot open one either, because fences only grow from epoch to epoch: the holder compares its
fence with the preceding row, and the conditional insert ensures that no other row came between.

Source for ties: Scylla ``mutation/atomic_cell.hh`` (``compare_atomic_cell_for_merge``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs

from rscylla._tokens import Slice
from rscylla.abc import CursorRecord, Fence, Fencing, Lease
from rscylla.clock import Clock, SystemClock
from rscylla.errors import (
    ConfigError,
    ConnectionFailed,
    CursorConflict,
    CursorError,
    LeaseLost,
    QueryTimeout,
    SourceError,
)

from ..checks import check_consumer, check_reason, conflict, moves, signature
from ..table import InTable
from .codec import CursorCodec, EventCursorCodec, moment
from .table import CURSORS, DEFAULT_TABLE, CursorRow, CursorTable

__all__ = ["ScyllaCursorStore"]

_log = logging.getLogger("rscylla.cursorstore")

FIRST_STAMP = 1
"""Write timestamp of the first epoch, which no reset opened: microseconds, the same in every process."""

_ATTEMPTS = 16
"""Rounds to open an epoch while other processes do the same; in each round, one of them succeeds.

These are not retries of a call: each round reads what the others did, and tries to open the epoch after that.
"""

KEPT_EPOCHS = 1000
"""Minimum number of epochs kept for a consumer, the newest ones."""

_PRUNE_EVERY = 100
"""Old epochs are deleted a hundred at a time, because each deletion leaves a tombstone."""

_WIDTH = len("2026-11-21T10:00:05.250000Z")


@attrs.define(eq=False)
class _Known:
    """What this process knows about one consumer's cursor. ``epoch`` is None until the cursor is read."""

    lock: threading.RLock = attrs.field(factory=threading.RLock)
    epoch: int | None = None
    stamp: int = FIRST_STAMP
    position: str = ""
    fence: int = 0  # epoch of the lease when it was read, 0 without one
    checked: float = 0.0
    absent: bool = False  # no row when it was read
    error: CursorError | None = None  # why set_cursor fails until the cursor is read again


class ScyllaCursorStore(InTable):
    """Cursors in the table *keyspace*.*table*, one plain write for each ``set_cursor``. Thread-safe.

    Args:
        session: A connected driver session. The caller keeps it; it is neither changed nor closed.
        keyspace: The keyspace of the table; names are case-sensitive.
        table: Name of the table; see ``create_schema``.
        create: Create the table at first use if it does not exist. The keyspace must exist.
        codec: The kind of the cursors; default: event ids.
        epoch_check: How often a saving process checks whether its cursor was reset, or passed by another process.
        consistency: LOCAL_QUORUM, QUORUM, or ALL, as text or the driver's number.
        lease: Only its holder can read and save cursors for work; the store neither acquires nor renews it. All
            processes that share a consumer need it. With a membership in a group, each slice of a consumer has the
            fence of its slice of the group. ``find_cursor``, ``list_cursors``, and ``reset_cursor`` are for operators,
            and need no lease.
        clock: The clock for times that people see. The order of cursors does not depend on it.

    ``set_cursor`` raises ``CursorRegression`` for a cursor lower than the one that this process knows to be saved. If
    only another process saved a higher one, the write has no effect, and the next check raises the error.
    ``CursorConflict`` means that the cursor was reset; ``get_cursor`` returns the new one. ``LeaseLost`` means that the
    lease is not held, or was lost since the cursor was read. Errors of the cluster are ``ConnectionFailed``,
    ``QueryTimeout``, ``AuthenticationFailed``, ``QueryFailed``, ``TableNotFound``; the saved cursor is then either
    unchanged or the given one, and saving again is safe. To avoid one write per event, use ``BufferedCursorStore``.
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
        lease: Lease | Fencing | None = None,
        clock: Clock | None = None,
    ) -> None:
        if epoch_check < timedelta():
            raise ConfigError("epoch_check must not be negative; timedelta(0) checks at each save")
        self._table: CursorTable = CursorTable(
            session, CURSORS, keyspace, table, create=create, consistency=consistency
        )
        self._codec = codec or EventCursorCodec()
        self._epoch_check = epoch_check.total_seconds()
        self._fence_of: Callable[[str], Fence | None] = (
            lease.fence_of if isinstance(lease, Fencing) else lambda consumer: lease
        )
        self._group: str = getattr(lease, "name", "")
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._told_of: set[tuple[str, str]] = set()

    def check_access(self) -> None:
        """Check that this user can read and reset cursors; writes nothing.

        Raises:
            TableNotFound, ConfigError: the table does not exist, or is a different one.
            QueryFailed, QueryTimeout, ConnectionFailed: it cannot be read or written.
        """
        self._table.touch()

    def get_cursor(self, consumer: str) -> str:
        known = self._of(consumer)
        with known.lock:
            self._load(consumer, known)
            return self._codec.decode(known.position)

    def set_cursor(self, consumer: str, cursor: str) -> None:
        known = self._of(consumer)
        given = self._codec.encode(cursor)
        with known.lock:
            if known.error:
                raise known.error.with_traceback(None)
            if known.epoch is None:
                self._load(consumer, known)
            elif self._clock.monotonic() - known.checked >= self._epoch_check:
                self._check(consumer, known)
            # The lease may be held again, with a new epoch. The cursor that was read belongs to the previous one.
            if self._fence(consumer) != known.fence:
                known.error = _not_held(consumer, self._fence_of(consumer))
                raise known.error
            if moves(consumer, self._codec, known.position, given):
                self._advance(consumer, known, given)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Do nothing: there is no background work, and the session belongs to the caller."""

    def fence_name(self, consumer: str) -> str:
        """Return the name of the fence of *consumer*'s cursor: of the lease, or of a slice of the group; "" if none."""
        fence = self._fence_of(consumer)
        return "" if fence is None else fence.name

    def find_cursor(self, consumer: str) -> CursorRecord | None:
        """Return the record of *consumer*; None if it never had a cursor."""
        check_consumer(consumer)
        row = self._table.read(consumer)
        return self._record(row) if row and row.saved is not None else None

    def list_cursors(self) -> list[CursorRecord]:
        rows = [row for row in self._table.rows() if row.saved is not None]
        return sorted(map(self._record, rows), key=lambda record: record.consumer)

    def cursor_history(self, consumer: str) -> list[CursorRecord]:
        """Return the last cursor of each epoch of *consumer*, the newest epoch first: the audit trail of resets.

        The result includes epochs that lease holders opened, marked as ``takeover``. Some 1,000 epochs are kept.
        """
        check_consumer(consumer)
        return [self._record(row) for row in self._table.history(consumer) if row.saved is not None]

    def reset_cursor(self, consumer: str, cursor: str, *, reason: str) -> None:
        check_reason(reason)
        known = self._of(consumer)
        start = self._codec.encode(cursor)
        with known.lock:
            self._reset(consumer, start, reason)
            # A running consumer of this process does not know that its cursor moved.
            known.error = conflict(consumer) if known.epoch is not None else None

    def _of(self, consumer: str) -> _Known:
        check_consumer(consumer)
        with self._lock:
            return self._known.setdefault(consumer, _Known())

    def _fence(self, consumer: str) -> int:
        """Return the epoch of the consumer's lease, 0 without one.

        Raises:
            LeaseLost: it is not held.
        """
        lease = self._fence_of(consumer)
        if lease is None:
            return 0
        fence = lease.epoch  # read before the check, so a concurrent change leaves the old one
        if not lease.held():
            raise _not_held(consumer, lease)
        return fence

    def _load(self, consumer: str, known: _Known) -> None:
        """Read the cursor; with a lease, ensure first that no earlier holder can write it."""
        fence = self._fence(consumer)
        lease = self._fence_of(consumer)
        row = self._table.read(consumer)
        if lease is not None and not (known.fence == fence and row and _is_ours(row, lease, fence)):
            row = self._take_over(consumer, lease, fence)
            fence = row.fence
        # The lease may have ended during the read, and later holders may have passed this cursor.
        if self._fence(consumer) != fence:
            raise _not_held(consumer, lease)
        self._adopt(known, row)
        known.fence = fence

    def _adopt(self, known: _Known, row: CursorRow | None) -> None:
        known.absent = row is None
        known.epoch = row.epoch if row else 0
        known.stamp = row.stamp or FIRST_STAMP if row else FIRST_STAMP
        known.position = row.saved or "" if row else ""
        known.checked = self._clock.monotonic()
        known.error = None

    def _advance(self, consumer: str, known: _Known, given: str) -> None:
        assert known.epoch is not None
        self._table.advance(consumer, known.epoch, known.stamp, given, signature(self._clock.now_us()))
        known.position = given
        if known.absent:
            # If a row was deleted manually, its tombstone hides later writes with earlier timestamps.
            self._check(consumer, known)
            known.absent = False

    def _check(self, consumer: str, known: _Known) -> None:
        """Compare with the table: adopt cursors that other processes saved; raise ``CursorConflict`` after a reset."""
        assert known.epoch is not None
        row = self._table.read(consumer)
        found = row.saved or "" if row else ""
        stamp = row.stamp or FIRST_STAMP if row else FIRST_STAMP
        if row and (row.epoch, stamp) > (known.epoch, known.stamp):
            # A reset after a manual deletion may have the same epoch again, but not the same stamp.
            known.error = _replaced(consumer, row, self._fence_of(consumer), known.fence)
        elif not row or row.epoch < known.epoch or found < known.position:
            if known.epoch or known.position:
                known.error = CursorConflict(
                    f"the saved cursor of consumer {consumer!r} is no longer in table {self._table.name}: rows were "
                    "deleted or restored manually, and a deletion also hides later saves; reset the cursor"
                )
        else:
            known.position = found
        if known.error:
            raise known.error
        known.checked = self._clock.monotonic()

    def _take_over(self, consumer: str, lease: Fence, fence: int) -> CursorRow:
        """Return our epoch under the present lease; open it if necessary. It continues at the last cursor."""
        failed: SourceError | None = None
        for _ in range(_ATTEMPTS):
            last = self._table.read(consumer, serial=True)
            if last and _is_ours(last, lease, fence):
                # Opened by an attempt that seemed to fail, or by a reset since we acquired the lease.
                return self._caught_up(last) if _took_over(last) else last
            if last and last.lease == lease.name and last.fence >= fence:
                fence = self._outgrown(consumer, last, lease)
                continue
            opened = _takeover_reason(lease.name, fence) + lease.owner
            now_us = self._clock.now_us()
            row = self._next(consumer, last, now_us, last.saved if last else None, opened, lease.name, fence)
            try:
                done = self._table.open_epoch(row)
            except (QueryTimeout, ConnectionFailed) as e:
                failed = e
                continue  # the next round reads the result, and whether others opened epochs in the meantime
            if done:
                if last and last.lease not in ("", lease.name):
                    self._tell_of_another(consumer, last.lease, lease.name)
                caught_up = self._caught_up(row)
                self._prune(row)
                return caught_up
        raise self._busy(consumer) from failed

    def _outgrown(self, consumer: str, last: CursorRow, lease: Fence) -> int:
        """Return our epoch of the lease after it was raised above that of *last*, which the lease has no more.

        Raises:
            LeaseLost: another process holds the lease, so the epoch may be of a later holder.
        """
        outgrow = getattr(lease, "outgrow", None)
        try:
            if outgrow is not None and lease.held():
                outgrow(last.fence)
                fence = self._fence(consumer)
                if fence > last.fence:
                    return fence
        except LeaseLost as lost:
            raise _passed_on(consumer, last) from lost
        raise _passed_on(consumer, last)

    def _tell_of_another(self, consumer: str, before: str, now: str) -> None:
        """Warn once for two leases, or two groups with all their slices."""
        part = Slice.named(now, self._group)
        whole = None if part is None else part.whole(before)
        names = (before, now) if whole is None else (whole, self._group)
        with self._lock:
            if names in self._told_of:
                return
            self._told_of.add(names)
        _log.warning(
            "the cursor of consumer %r was under lease %r and is under %r from now on; if processes of both run at the "
            "same time, they work against each other: give them different consumer names",
            *(consumer, before, now),
        )

    def _caught_up(self, row: CursorRow) -> CursorRow:
        """Return *row* with the cursor that the former holder saved before this epoch was opened."""
        if row.updated:
            return row
        position = max(self._saved_before(row), row.start or "")
        assert row.stamp is not None
        # Written even if it is "": from then on, later saves of a former holder have no effect.
        self._table.advance(row.consumer, row.epoch, row.stamp, position, signature(self._clock.now_us()))
        return attrs.evolve(row, position=position)

    def _saved_before(self, row: CursorRow) -> str:
        """Return the cursor saved in the epoch before *row*, or before that if its holder died before it caught up."""
        position = self._table.position(row.consumer, row.epoch - 1)
        if position:
            return position
        for last in self._table.history(row.consumer):
            if last.epoch < row.epoch and (last.updated or not _took_over(last)):
                return last.position  # cursors from before a reset do not count
        return ""

    def _reset(self, consumer: str, start: str, reason: str) -> None:
        now_us = self._clock.now_us()
        tried: list[CursorRow] = []
        failed: SourceError | None = None
        for _ in range(_ATTEMPTS):
            last = self._table.read(consumer, serial=True)
            # After a time-out, or if the driver sent a statement again, an attempt may have been applied. A second
            # attempt would then reset the cursor twice.
            if tried and self._has_one_of(tried):
                return
            if isinstance(failed, ConnectionFailed):
                raise failed
            lease, fence = (last.lease, last.fence) if last else ("", 0)
            row = self._next(consumer, last, now_us, start, reason, lease, fence)
            tried.append(row)
            try:
                if self._table.open_epoch(row):
                    self._prune(row)
                    return
            except (QueryTimeout, ConnectionFailed) as e:
                failed = e
        raise self._busy(consumer) from failed

    def _prune(self, row: CursorRow) -> None:
        """Delete the epochs that are too far behind the epoch of *row*."""
        below = row.epoch - KEPT_EPOCHS + 1
        if below <= 0 or row.epoch % _PRUNE_EVERY:
            return
        assert row.stamp is not None
        try:
            self._table.prune(row.consumer, below, row.stamp)
        except SourceError as e:
            _log.warning("old epochs of the cursor of consumer %r are not deleted yet: %s", row.consumer, e)

    def _next(
        self, consumer: str, last: CursorRow | None, now_us: int, start: str | None, reason: str, lease: str, fence: int
    ) -> CursorRow:
        """Return the row of the epoch after *last*. Its stamp is higher than that of *last*, whatever the clock."""
        return CursorRow(
            consumer,
            epoch=last.epoch + 1 if last else 1,
            position="",
            updated="",
            start=start,
            stamp=max(now_us, (last.stamp or FIRST_STAMP) + 1 if last else 0),
            opened=signature(now_us),
            reason=reason,
            lease=lease,
            fence=fence,
        )

    def _busy(self, consumer: str) -> QueryTimeout:
        return QueryTimeout(
            f"opening an epoch of the cursor of consumer {consumer!r} failed in {_ATTEMPTS} attempts: other "
            "processes open one at the same time, or the cluster is slow; try again"
        )

    def _has_one_of(self, rows: list[CursorRow]) -> bool:
        """Return whether one of *rows* is in the table, ignoring cursors saved in it since."""
        found = [attrs.evolve(row, position="", updated="") for row in self._table.history(rows[0].consumer)]
        return any(row in found for row in rows)

    def _record(self, row: CursorRow) -> CursorRecord:
        written = (row.updated or row.opened)[:_WIDTH]
        return CursorRecord(
            row.consumer,
            self._codec.decode(row.saved or ""),
            row.epoch,
            moment(written),
            row.reason,
            takeover=_took_over(row),
            lease=row.lease,
        )


def _is_of(row: CursorRow, lease: Fence, fence: int) -> bool:
    """Return whether the epoch of *row* was opened while we have held *lease* this time."""
    return (row.lease, row.fence) == (lease.name, fence)


def _is_ours(row: CursorRow, lease: Fence, fence: int) -> bool:
    """Return whether the epoch of *row* was opened by us, or by a reset, while we have held *lease* this time.

    After the epochs of the lease were lost, a former holder may have had the same one.
    """
    opened = _takeover_reason(lease.name, fence) + lease.owner
    return _is_of(row, lease, fence) and (row.reason == opened or not _took_over(row))


def _is_later(row: CursorRow, lease: Fence | None, fence: int) -> bool:
    """Return whether a later holder of our lease opened the epoch of *row*."""
    return lease is not None and row.lease == lease.name and row.fence > fence


def _takeover_reason(lease: str, fence: int) -> str:
    """Return the beginning of the reason of an epoch that a holder of *lease* opened."""
    return f"lease {lease!r}, epoch {fence}, acquired by "


def _took_over(row: CursorRow) -> bool:
    """Return whether a lease holder opened the epoch of *row*, rather than a reset."""
    return row.reason.startswith(_takeover_reason(row.lease, row.fence))


def _not_held(consumer: str, lease: Fence | None) -> LeaseLost:
    name = lease.name if lease else ""
    return LeaseLost(
        f"the cursor of consumer {consumer!r} is guarded by lease {name!r}, which is not held, or was lost "
        "since the cursor was read; acquire the lease, then read the cursor again"
    )


def _passed_on(consumer: str, row: CursorRow) -> LeaseLost:
    return LeaseLost(
        f"the cursor of consumer {consumer!r} belongs to a later holder of lease {row.lease!r}, epoch {row.fence}; "
        "acquire the lease again. If nobody else holds it, the table of the lease was emptied or restored"
    )


def _replaced(consumer: str, row: CursorRow, lease: Fence | None, fence: int) -> CursorError:
    """Return the error for a cursor that was read before *row* opened another epoch of it."""
    if _is_later(row, lease, fence):
        return _passed_on(consumer, row)
    if _took_over(row) and (lease is None or row.lease != lease.name):
        ours = "without a lease" if lease is None else f"under lease {lease.name!r}"
        return CursorConflict(
            f"the cursor of consumer {consumer!r} was taken over ({row.reason}), while this process works {ours}: they "
            "work against each other; give each group or service consumer names of its own"
        )
    return conflict(consumer)
