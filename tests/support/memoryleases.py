"""Leases in memory, for owners in one process: their table, and leases."""

from __future__ import annotations

import threading
from datetime import timedelta

from cursorstore.leases.lease import _Lease
from cursorstore.leases.table import Claim, LeaseRow, row_of
from cursorstore.leases.term import DEFAULT_TTL
from rscylla.clock import Clock, SystemClock

__all__ = ["MemoryLease", "MemoryLeaseTable"]

_NEVER = float("-inf")


class MemoryLeaseTable:
    """Leases in memory, for owners in one process, as ``LeaseTable`` has them. Thread-safe. They expire by *clock*."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._leases: dict[str, tuple[int, Claim | None, float]] = {}

    def read(self, name: str, *, serial: bool = False) -> LeaseRow | None:
        with self._lock:
            return self._row(name) if name in self._leases else None

    def add(self, name: str) -> bool:
        with self._lock:
            return self._leases.setdefault(name, fresh := (0, None, _NEVER)) is fresh

    def take(self, last: LeaseRow, epoch: int, claim: Claim) -> bool:
        with self._lock:
            return self._swap(last.name, last.epoch, last.token, epoch, claim)

    def keep(self, name: str, epoch: int, claim: Claim) -> bool:
        with self._lock:
            return self._swap(name, epoch, claim.token, epoch, claim)

    def drop(self, name: str, epoch: int, claim: Claim) -> bool:
        with self._lock:
            return self._swap(name, epoch, claim.token, epoch, None)

    def _row(self, name: str) -> LeaseRow:
        epoch, claim, until = self._leases[name]
        left = until - self.clock.monotonic()
        if claim is None or left <= 0:
            return LeaseRow(name, epoch)
        return row_of(name, epoch, claim.token, claim.owner, claim.since, int(left))

    def _swap(self, name: str, epoch: int, token: str, new_epoch: int, claim: Claim | None) -> bool:
        if name not in self._leases:
            return False
        row = self._row(name)
        if (row.epoch, row.token) != (epoch, token):
            return False
        until = self.clock.monotonic() + claim.ttl_s if claim else _NEVER
        self._leases[name] = new_epoch, claim, until
        return True


class MemoryLease(_Lease):
    """A lease in a ``MemoryLeaseTable``, for tests of services. It works like ``ScyllaLease``, without a database.

    Competing owners share *table* and, unless *clock* is given, its clock: with a driven clock, leases expire when the
    test says so. Without *table*, the lease has no competitors.
    """

    def __init__(
        self,
        name: str,
        table: MemoryLeaseTable | None = None,
        *,
        owner: str | None = None,
        ttl: timedelta = DEFAULT_TTL,
        margin: timedelta | None = None,
        clock: Clock | None = None,
    ) -> None:
        table = table or MemoryLeaseTable(clock)
        super().__init__(table, name, owner, ttl, margin, clock or table.clock)
