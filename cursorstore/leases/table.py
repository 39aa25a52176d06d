"""The table of leases, and the statements on it.

One row per lease. ``claim`` and the columns that describe the holder expire with the lease; ``epoch`` stays. Every
write is conditional, so that Paxos decides who holds a lease.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import attrs

from ..cursors.codec import moment
from ..table import StoreTable, TableKind, values_of

__all__ = [
    "DEFAULT_LEASE_TABLE",
    "LEASES",
    "Claim",
    "LeaseRecord",
    "LeaseRow",
    "LeaseTable",
    "lease_schema_cql",
    "row_of",
    "write_timeout_s",
]

DEFAULT_LEASE_TABLE = "rscylla_leases"

LEASES = TableKind(
    what="lease table",
    table=DEFAULT_LEASE_TABLE,
    columns={"name": "text", "epoch": "bigint", "claim": "text", "owner": "text", "since": "text"},
    primary_key="name",
    options="",
    comment="leases of rscylla services; what tells their holders expires by TTL; do not edit rows",
    hint="create it with create_schema() or create=True of the lease, or the statement that `rscylla schema leases` "
    "prints",
)

lease_schema_cql = LEASES.cql

LEAST_TIMEOUT_S = 1.0
"""Minimum time-out of a conditional write, which takes several round trips."""


@attrs.frozen
class LeaseRecord:
    """A lease, as ``list_leases`` returns it: its holder, since when, and how long it lasts unless it is renewed.

    If the lease is free, ``owner`` is "" and ``since`` is None. ``epoch`` is the epoch of the last holder.
    """

    name: str
    epoch: int
    owner: str = ""
    since: datetime | None = None
    expires_in: timedelta = timedelta()


@attrs.frozen
class LeaseRow(LeaseRecord):
    """A lease as the database returns it. ``token`` is what the row knows its holder by; "" if it is free."""

    token: str = ""


@attrs.frozen
class Claim:
    """The columns that a holder writes. ``token`` identifies it, the rest is for people; expires after ``ttl_s``."""

    token: str
    owner: str
    since: str
    ttl_s: int


class LeaseTable(StoreTable):
    """A table of leases."""

    def read(self, name: str, *, serial: bool = False) -> LeaseRow | None:
        """Return the lease; None if it never had a holder. A *serial* read includes conditional writes in progress."""
        text = f"SELECT name, epoch, claim, owner, since, TTL(claim) FROM {self.name} WHERE name = ?"
        with self.errors(f"reading lease {name!r} from table {self.name}"):
            for row in self.run(text, (name,), serial=serial):
                return row_of(*values_of(row))
        return None

    def rows(self) -> list[LeaseRow]:
        """Return all leases."""
        text = f"SELECT name, epoch, claim, owner, since, TTL(claim) FROM {self.name}"
        with self.errors(f"listing the leases in table {self.name}"):
            return [row_of(*values_of(row)) for row in self.run(text, ())]

    def add(self, name: str) -> bool:
        """Insert a free lease with epoch 0; return False if the lease already exists."""
        text = f"INSERT INTO {self.name} (name, epoch) VALUES (?, 0) IF NOT EXISTS USING TTL 0"
        with self.errors(f"creating lease {name!r} in table {self.name}"):
            return self.applied(text, (name,))

    def take(self, last: LeaseRow, epoch: int, claim: Claim) -> bool:
        """Give the lease a higher *epoch* and *claim* if it still equals *last*; return whether it did."""
        # A statement has one TTL, but the epoch must stay when the claim expires. Hence two statements in a batch: as
        # both are in one partition, it is one conditional write. "= null" is literal, because not every server accepts
        # a bound null there.
        held = "claim = ?" if last.token else "claim = null"
        text = (
            f"BEGIN BATCH UPDATE {self.name} USING TTL ? SET claim = ?, owner = ?, since = ? WHERE name = ? "
            f"IF epoch = ? AND {held}; "
            f"UPDATE {self.name} USING TTL 0 SET epoch = ? WHERE name = ?; APPLY BATCH"
        )
        was = (last.epoch, last.token) if last.token else (last.epoch,)
        values = (claim.ttl_s, claim.token, claim.owner, claim.since, last.name, *was, epoch, last.name)
        with self.errors(f"acquiring lease {last.name!r} in table {self.name}"):
            return self.applied(text, values)

    def keep(self, name: str, epoch: int, claim: Claim) -> bool:
        """Write *claim* again if the lease still has it with *epoch*; return whether it did."""
        text = (
            f"UPDATE {self.name} USING TTL ? SET claim = ?, owner = ?, since = ? WHERE name = ? "
            "IF epoch = ? AND claim = ?"
        )
        values = (claim.ttl_s, claim.token, claim.owner, claim.since, name, epoch, claim.token)
        with self.errors(f"renewing lease {name!r} in table {self.name}"):
            return self.applied(text, values, timeout_s=write_timeout_s(claim.ttl_s))

    def drop(self, name: str, epoch: int, claim: Claim) -> bool:
        """Remove *claim* if the lease still has it with *epoch*; return whether it did."""
        text = (
            f"UPDATE {self.name} SET claim = null, owner = null, since = null WHERE name = ? IF epoch = ? AND claim = ?"
        )
        with self.errors(f"releasing lease {name!r} in table {self.name}"):
            return self.applied(text, (name, epoch, claim.token))


def write_timeout_s(ttl_s: int) -> float:
    """Return how long to wait for the answer to a write that renews what expires after *ttl_s*."""
    # Shorter than the session's time-out, ten seconds by default, to leave time for another attempt.
    return max(LEAST_TIMEOUT_S, ttl_s / 8)


def row_of(name: str, epoch: int | None, token: str, owner: str, since: str, seconds: int) -> LeaseRow:
    """Return a lease as its row has it; what tells its holder is null if it is free."""
    if not token:
        return LeaseRow(name, epoch or 0)
    return LeaseRow(name, epoch or 0, owner or "", moment(since), timedelta(seconds=seconds or 0), token)
