"""Where timers are kept until they have fired: in two tables.

A timer is a row of ``rscylla_timers``, all writes to which are conditional: it is scheduled, cancelled, claimed, and
marked as fired in one step each. To find the timers that are due, there is a second table, with a partition for each
five minutes. Its rows are hints: a timer without a hint would be lost, so the hint is written first, and removed last.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs

from cursorstore.table import StoreTable, TableKind, values_of

from ... import _timeuuid as tu
from ...clock import Clock, SystemClock
from ...errors import ConfigError
from ..abc import Timer
from .firsthint import FirstHint, Position

__all__ = ["DEFAULT_TIMER_TABLE", "ScyllaTimers", "timer_schema_cql"]

DEFAULT_TIMER_TABLE: Final = "rscylla_timers"

WAITING, FIRED, CANCELLED = "waiting", "fired", "cancelled"

BUCKET_US: Final = 300_000_000
"""The span of time whose hints are in one partition."""

BEHIND: Final = 3_600_000_000 // BUCKET_US
"""How many buckets the first one stays behind the time, so that a timer that is scheduled late moves nothing back."""

SWEEP_S: Final = 60.0
"""How often all buckets that may have hints are read; between, only the last two."""

LOOKS: Final = 100
"""How many buckets one look of a sweep reads, at most. If there are more, only those that have hints are read."""

ORPHAN_S: Final = 3600.0
"""How long a hint without a timer is seen until it is removed, by a clock that nobody sets: a timer may still come."""

TIMERS = TableKind(
    what="timer table",
    table=DEFAULT_TIMER_TABLE,
    columns={"id": "text", "state": "text", "due": "timestamp", "data": "text", "claim": "text"},
    primary_key="id",
    options="",
    comment="timers of rscylla; all writes are conditional",
    hint="create it with create=True of the store, or with the statements of timer_schema_cql()",
)

HINTS = TableKind(
    what="table of the times of timers",
    table=f"{DEFAULT_TIMER_TABLE}_due",
    columns={"bucket": "bigint", "due": "timestamp", "id": "text", "data": "text"},
    primary_key="(bucket), due, id",
    options="",
    comment="when timers of rscylla are due; the timers are in the table beside it",
    hint=TIMERS.hint,
)


def timer_schema_cql(keyspace: str, table: str = DEFAULT_TIMER_TABLE) -> tuple[str, str]:
    """Return the statements that create the two tables of timers, without semicolons.

    Raises:
        ConfigError: a name is not a valid name of a keyspace or table.
    """
    return TIMERS.cql(keyspace, table), HINTS.cql(keyspace, _hints_of(table))


def _bucket_of(at: datetime) -> int:
    return max(0, tu.us_of(at) // BUCKET_US)


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
        self._first = FirstHint(self._hints)
        self._lock = threading.Lock()
        self._swept: float | None = None
        self._sweep: _Sweep | None = None
        self._orphans: dict[tuple[Timer, int | None], float] = {}  # hints without timers, and since when they are seen

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._timers.name}>"

    def create_schema(self) -> None:
        """Create the tables if they do not exist."""
        self._timers.create()
        self._hints.create()

    def schedule(self, timer: Timer) -> bool:
        began = self._clock.monotonic()
        self._hint(timer)
        # If it is refused, the hint is the one of the same timer, or the runner removes it.
        waits = self._step(
            timer.id,
            # No INSERT, which would leave a row when the columns have expired.
            f"UPDATE {self._timers.name} SET state = 'waiting', due = ?, data = ? WHERE id = ? IF state = null",
            (timer.due, timer.data, timer.id),
            lambda row: row[:3] == (WAITING, timer.due, timer.data),
        )
        if waits and self._clock.monotonic() - began > ORPHAN_S / 2:
            self._hint(timer)  # this process was paused, and the hint may have been removed meanwhile
        return waits

    def _hint(self, timer: Timer) -> None:
        bucket = _bucket_of(timer.due)
        with self._hints.errors(f"scheduling a timer in table {self._hints.name}"):
            self._hints.run(
                f"INSERT INTO {self._hints.name} (bucket, due, id, data) VALUES (?, ?, ?, ?)",
                (bucket, timer.due, timer.id, timer.data),
            )
        self._first.keep(bucket)

    def cancel(self, timer_id: str) -> bool:
        return self._step(
            timer_id,
            f"UPDATE {self._timers.name} USING TTL ? SET state = 'cancelled', due = null, data = null WHERE id = ? "
            "IF state = 'waiting' AND claim = null",
            (self._keep_s, timer_id),
            lambda row: row[0] == CANCELLED,
        )

    def due(self, now: datetime, limit: int) -> Sequence[Timer]:
        last = _bucket_of(now)
        found = self._of_long_ago(now, last - 1, limit)
        for bucket in (last - 1, last):
            if len(found) < limit:
                found += self._hinted(bucket, now, limit - len(found))
        return sorted(found, key=lambda timer: timer.due)

    def _hinted(self, bucket: int, now: datetime, limit: int) -> list[Timer]:
        text = f"SELECT due, id, data, WRITETIME(data) FROM {self._hints.name} WHERE bucket = ? AND due <= ? LIMIT ?"
        with self._hints.errors(f"reading the timers that are due from table {self._hints.name}"):
            rows = map(values_of, self._hints.run(text, (bucket, now, limit)))
            return [Timer(id_, due.replace(tzinfo=UTC), data or "", place=at) for due, id_, data, at in rows]

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
        if self._is_orphan(timer) if row is None else row[:2] != (WAITING, timer.due):
            self._forget(timer)
        return False

    def _is_orphan(self, timer: Timer) -> bool:
        """Return whether the hint of *timer* was seen for long without a timer, which may be about to be scheduled."""
        now = self._clock.monotonic()
        with self._lock:
            if len(self._orphans) >= LOOKS:
                self._orphans = {one: since for one, since in self._orphans.items() if now - since < 2 * ORPHAN_S}
            return now - self._orphans.setdefault((timer, timer.place), now) >= ORPHAN_S

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
        return self._timers.settled(text, values, lambda: self._read(timer_id), done)

    def _read(self, timer_id: str) -> Any:
        text = f"SELECT state, due, data, claim FROM {self._timers.name} WHERE id = ?"
        with self._timers.errors(f"reading a timer from table {self._timers.name}"):
            for row in self._timers.run(text, (timer_id,), serial=True):
                state, due, data, claim = values_of(row)
                return state, None if due is None else due.replace(tzinfo=UTC), data or "", claim
        return None

    def _forget(self, timer: Timer) -> None:
        """Remove the hint of *timer*: the one that ``due`` has returned, and none that was written later."""
        with self._lock:
            self._orphans.pop((timer, timer.place), None)
        name, values = self._hints.name, (_bucket_of(timer.due), timer.due, timer.id)
        using = "" if timer.place is None else "USING TIMESTAMP ? "
        with self._hints.errors(f"removing a timer that has fired from table {name}"):
            self._hints.run(
                f"DELETE FROM {name} {using}WHERE bucket = ? AND due = ? AND id = ?",
                values if timer.place is None else (timer.place, *values),
            )

    # ------------------------------------------------------------ sweeps

    def _of_long_ago(self, now: datetime, end: int, limit: int) -> list[Timer]:
        """Return hints of buckets before *end*, if it is time to sweep, or a sweep goes on."""
        with self._lock:
            sweep, self._sweep = self._sweep, None
            if sweep is None and self._swept is not None and self._clock.monotonic() - self._swept < SWEEP_S:
                return []
        sweep = sweep or self._begun(end)
        found: list[Timer] = []
        read: list[int] = []
        while sweep.buckets and len(read) < LOOKS and len(found) < limit:
            read.append(sweep.buckets.popleft())
            timers = self._hinted(read[-1], now, limit - len(found))
            if timers and sweep.oldest is None:
                sweep.oldest = read[-1]
            found += timers
        if len(found) >= limit:  # there may be more, such as after an outage: the next look begins with them
            sweep.oldest = None
            sweep.buckets.extendleft(reversed(read))
        elif not sweep.buckets and sweep.proposal is not None:
            reach = sweep.proposal.reach
            self._first.confirm(sweep.proposal, reach if sweep.oldest is None else min(reach, sweep.oldest))
        with self._lock:
            self._swept = self._clock.monotonic()
            self._sweep = sweep if sweep.buckets else None
        return found

    def _begun(self, end: int) -> _Sweep:
        """Return a new sweep of the buckets before *end* that may have hints."""
        at = self._first.find()
        if at is None or at.first >= end:
            return _Sweep(None, deque())
        proposal = self._first.propose(at, end - BEHIND) if end - BEHIND > at.first else None
        if end - at.first <= LOOKS:
            return _Sweep(proposal, deque(range(at.first, end)))
        with self._hints.errors(f"reading the times of timers from table {self._hints.name}"):
            rows = self._hints.run(f"SELECT DISTINCT bucket FROM {self._hints.name}", ())
            there = (values_of(row)[0] for row in rows)
            return _Sweep(proposal, deque(sorted(bucket for bucket in there if at.first <= bucket < end)))


@attrs.define
class _Sweep:
    """A look at all buckets that may have hints. ``proposal`` is confirmed at its end; ``oldest`` had one."""

    proposal: Position | None
    buckets: deque[int]
    oldest: int | None = None
