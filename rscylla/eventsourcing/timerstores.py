"""Where timers are kept until they have fired: in tables, or in memory for tests.

A timer is a row of ``rscylla_timers``, all writes to which are conditional: it is scheduled, cancelled, claimed, and
marked as fired in one step each. To find the timers that are due, there is a second table, with a partition for each
five minutes. Its rows are hints: a timer without a hint would be lost, so the hint is written first, and removed last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import attrs

from cursorstore._cql import StoreTable, values_of
from cursorstore.schema import TableKind

from .. import _timeuuid as tu
from ..clock import Clock, SystemClock
from ..errors import ConfigError, ConnectionFailed, QueryTimeout
from .abc import Timer

__all__ = ["DEFAULT_TIMER_TABLE", "MemoryTimers", "ScyllaTimers", "timer_schema_cql"]

DEFAULT_TIMER_TABLE: Final = "rscylla_timers"

WAITING, FIRED, CANCELLED = "waiting", "fired", "cancelled"

BUCKET_US: Final = 300_000_000
"""The span of time whose hints are in one partition."""

STRAGGLERS_US: Final = 3_600_000_000
"""How late a hint may come, by a clock that is slow: older partitions are left behind once they are empty."""

SWEEP_S: Final = 60.0
"""How often all partitions that may have hints are read; between, only the last two."""

TIMERS = TableKind(
    what="timer table",
    columns={"id": "text", "state": "text", "due": "timestamp", "data": "text", "claim": "text"},
    primary_key="id",
    options="",
    comment="timers of rscylla; all writes are conditional",
    hint="create it with create=True of the store, or with the statements of timer_schema_cql()",
)

HINTS = TableKind(
    what="table of the times of timers",
    columns={"bucket": "bigint", "due": "timestamp", "id": "text", "data": "text"},
    primary_key="(bucket), due, id",
    options="",
    comment="when timers of rscylla are due; the timers are in the table beside it",
    hint=TIMERS.hint,
)

_FIRST: Final = -1
"""The bucket of the row that says which bucket is the first that may have hints."""


def timer_schema_cql(keyspace: str, table: str = DEFAULT_TIMER_TABLE) -> tuple[str, str]:
    """Return the statements that create the two tables of timers, without semicolons.

    Raises:
        ConfigError: a name is not a valid name of a keyspace or table.
    """
    return TIMERS.cql(keyspace, table), HINTS.cql(keyspace, _hints_of(table))


def _hinted(bucket: int, due: datetime, timer_id: str, data: str | None) -> Timer:
    return Timer(timer_id, due.replace(tzinfo=UTC), data or "", place=bucket)


def _hints_of(table: str) -> str:
    return f"{table}_due"


class ScyllaTimers:
    """Timers in the tables *keyspace*.*table* and *table*_due. Implements ``TimerStore``. Thread-safe.

    Args:
        session: A connected driver session. The caller keeps it; it is neither changed nor closed.
        keyspace: The keyspace of the tables. It must support conditional writes.
        table: Name of the table; see ``timer_schema_cql``.
        create: Create the tables at first use if they do not exist. The keyspace must exist.
        keep: How long a timer that was fired or cancelled is remembered, so that it is not scheduled again.
        consistency: LOCAL_QUORUM, QUORUM, or ALL, as text or the driver's number.
        clock: The clock of times.
    """

    def __init__(
        self,
        session: Any,
        keyspace: str,
        table: str = DEFAULT_TIMER_TABLE,
        *,
        create: bool = False,
        keep: timedelta = timedelta(days=30),
        consistency: int | str = "LOCAL_QUORUM",
        clock: Clock | None = None,
    ) -> None:
        if not timedelta(seconds=1) <= keep <= timedelta(days=7300):
            raise ConfigError("keep must be between one second and 20 years")
        self._timers = StoreTable(session, TIMERS, keyspace, table, create=create, consistency=consistency)
        self._hints = StoreTable(session, HINTS, keyspace, _hints_of(table), create=create, consistency=consistency)
        self._keep_s = int(keep.total_seconds())
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._first: int | None = None
        self._swept: float | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._timers.name}>"

    def create_schema(self) -> None:
        """Create the tables if they do not exist."""
        self._timers.create()
        self._hints.create()

    def schedule(self, timer: Timer) -> bool:
        self._first_bucket()
        bucket = max(tu.us_of(timer.due), self._clock.now_us()) // BUCKET_US
        with self._hints.errors(f"scheduling a timer in table {self._hints.name}"):
            self._hints.run(
                f"INSERT INTO {self._hints.name} (bucket, due, id, data) VALUES (?, ?, ?, ?)",
                (bucket, timer.due, timer.id, timer.data),
            )
        # If it is refused, the hint is the one of the same timer, or the runner removes it.
        return self._step(
            timer.id,
            # No INSERT, which would leave a row when the columns have expired.
            f"UPDATE {self._timers.name} SET state = 'waiting', due = ?, data = ? WHERE id = ? IF state = null",
            (timer.due, timer.data, timer.id),
            lambda row: row[:3] == (WAITING, timer.due, timer.data),
        )

    def cancel(self, timer_id: str) -> bool:
        return self._step(
            timer_id,
            f"UPDATE {self._timers.name} USING TTL ? SET state = 'cancelled', due = null, data = null WHERE id = ? "
            "IF state = 'waiting' AND claim = null",
            (self._keep_s, timer_id),
            lambda row: row[0] == CANCELLED,
        )

    def due(self, now: datetime, limit: int) -> Sequence[Timer]:
        last = tu.us_of(now) // BUCKET_US
        first, sweep = last - 1, self._sweeps()
        if sweep:
            first = min(first, self._first_bucket())
        found: list[Timer] = []
        oldest: int | None = None
        for bucket in range(first, last + 1):
            with self._hints.errors(f"reading the timers that are due from table {self._hints.name}"):
                rows = self._hints.run(
                    f"SELECT due, id, data FROM {self._hints.name} WHERE bucket = ? AND due <= ? LIMIT ?",
                    (bucket, now, limit - len(found)),
                )
                timers = [
                    Timer(id_, due.replace(tzinfo=UTC), data or "", place=bucket)
                    for due, id_, data in map(values_of, rows)
                ]
            if timers and oldest is None:
                oldest = bucket
            found += timers
            if len(found) >= limit:
                if sweep:  # there may be more of long ago, such as after an outage: they do not wait for a minute
                    self._sweep_again()
                break
        else:
            if sweep:
                reached = last - STRAGGLERS_US // BUCKET_US
                self._leave_behind(min(reached, last if oldest is None else oldest))
        return sorted(found, key=lambda timer: timer.due)

    def claim(self, timer: Timer, owner: str, duration: timedelta) -> bool:
        ttl_s = max(1, int(duration.total_seconds()))
        claimed = self._step(
            timer.id,
            f"UPDATE {self._timers.name} USING TTL ? SET claim = ? WHERE id = ? "
            "IF state = 'waiting' AND due = ? AND claim = null",
            (ttl_s, owner, timer.id, timer.due),
            lambda row: (row[0], row[1], row[3]) == (WAITING, timer.due, owner),
        )
        if claimed:
            return True
        row = self._read(timer.id)
        overdue_us = self._clock.now_us() - tu.us_of(timer.due)
        # A timer without a row may be about to be scheduled: its hint is there, and its row comes now.
        if row is None and overdue_us < STRAGGLERS_US:
            return False
        if row is None or row[:2] != (WAITING, timer.due):
            self._forget(timer)
        return False

    def finish(self, timer: Timer) -> None:
        self._step(
            timer.id,
            f"UPDATE {self._timers.name} USING TTL ? SET state = 'fired', due = null, data = null WHERE id = ? "
            "IF state = 'waiting'",
            (self._keep_s, timer.id),
            lambda row: row[0] == FIRED,
        )
        self._forget(timer)

    # ------------------------------------------------------------ steps

    def _step(self, timer_id: str, text: str, values: tuple[Any, ...], done: Callable[[Any], bool]) -> bool:
        """Execute a conditional write; return whether it was applied. *done* judges the row if that is not known."""

        def is_done() -> bool:
            row = self._read(timer_id)
            return row is not None and done(row)

        return self._timers.settled(text, values, is_done)

    def _read(self, timer_id: str) -> Any:
        text = f"SELECT state, due, data, claim FROM {self._timers.name} WHERE id = ?"
        with self._timers.errors(f"reading a timer from table {self._timers.name}"):
            for row in self._timers.run(text, (timer_id,), serial=True):
                state, due, data, claim = values_of(row)
                return state, None if due is None else due.replace(tzinfo=UTC), data or "", claim
        return None

    def _forget(self, timer: Timer) -> None:
        """Remove the hint of *timer*, which has come from ``due``."""
        if timer.place is None:
            return
        with self._hints.errors(f"removing a timer that has fired from table {self._hints.name}"):
            self._hints.run(
                f"DELETE FROM {self._hints.name} WHERE bucket = ? AND due = ? AND id = ?",
                (timer.place, timer.due, timer.id),
            )

    # ------------------------------------------------------------ the first bucket that may have hints

    def _sweeps(self) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            if self._swept is not None and now - self._swept < SWEEP_S:
                return False
            self._swept = now
        return True

    def _sweep_again(self) -> None:
        with self._lock:
            self._swept = None

    def _first_bucket(self) -> int:
        """Return the first bucket that may have hints; save it if there is none yet, before any hint is written."""
        with self._lock:
            if self._first is not None:
                return self._first
        now = (self._clock.now_us() - STRAGGLERS_US) // BUCKET_US
        with self._hints.errors(f"reading from table {self._hints.name}"):
            with suppress(QueryTimeout, ConnectionFailed):
                self._hints.applied(
                    f"INSERT INTO {self._hints.name} (bucket, due, id, data) VALUES (?, ?, '', ?) IF NOT EXISTS",
                    (_FIRST, tu.datetime_of(0), str(now)),
                )
            rows = self._hints.run(
                f"SELECT data FROM {self._hints.name} WHERE bucket = ? AND due = ? AND id = ''",
                (_FIRST, tu.datetime_of(0)),
                serial=True,
            )
            first = min(int(values_of(row)[0]) for row in rows)
        with self._lock:
            self._first = first
        return first

    def _leave_behind(self, first: int) -> None:
        """Save that buckets before *first* are empty for good."""
        known = self._first_bucket()
        if first <= known:
            return
        with self._hints.errors(f"writing to table {self._hints.name}"), suppress(QueryTimeout, ConnectionFailed):
            self._hints.applied(
                f"UPDATE {self._hints.name} SET data = ? WHERE bucket = ? AND due = ? AND id = '' IF data = ?",
                (str(first), _FIRST, tu.datetime_of(0), str(known)),
            )
        with self._lock:
            self._first = None  # another process may have moved it


@attrs.define
class _Kept:
    timer: Timer
    state: Literal["waiting", "fired", "cancelled"] = "waiting"
    owner: str = ""
    until: float = 0.0


class MemoryTimers:
    """Timers that live as long as this object, for tests. Implements ``TimerStore``. Thread-safe.

    Timers that were fired or cancelled are remembered for good.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._timers: dict[str, _Kept] = {}

    def schedule(self, timer: Timer) -> bool:
        with self._lock:
            kept = self._timers.setdefault(timer.id, _Kept(timer))
            return kept.state == WAITING and kept.timer == timer

    def cancel(self, timer_id: str) -> bool:
        with self._lock:
            kept = self._timers.get(timer_id)
            if kept is None or kept.state == FIRED or (kept.state == WAITING and self._claimed(kept)):
                return False
            kept.state = "cancelled"
            return True

    def due(self, now: datetime, limit: int) -> Sequence[Timer]:
        with self._lock:
            waiting = [k.timer for k in self._timers.values() if k.state == WAITING and k.timer.due <= now]
        return sorted(waiting, key=lambda timer: timer.due)[:limit]

    def claim(self, timer: Timer, owner: str, duration: timedelta) -> bool:
        with self._lock:
            kept = self._timers.get(timer.id)
            if kept is None or kept.state != WAITING or kept.timer.due != timer.due:
                return False
            if self._claimed(kept) and kept.owner != owner:
                return False
            kept.owner, kept.until = owner, self._clock.monotonic() + duration.total_seconds()
            return True

    def finish(self, timer: Timer) -> None:
        with self._lock:
            kept = self._timers.get(timer.id)
            if kept is not None and kept.state == WAITING:
                kept.state = "fired"

    def waiting(self) -> list[Timer]:
        """Return the timers that are neither fired nor cancelled, by time."""
        with self._lock:
            found = [kept.timer for kept in self._timers.values() if kept.state == WAITING]
        return sorted(found, key=lambda timer: timer.due)

    def _claimed(self, kept: _Kept) -> bool:
        return bool(kept.owner) and self._clock.monotonic() < kept.until
