"""The statements on a table of leases. All that decides is conditional: who holds a lease is agreed on by Paxos."""

from __future__ import annotations

from typing import Any

import attrs

from ._cql import StoreTable, values_of
from .schema import LEASES

__all__ = ["Claim", "LeaseRow", "LeaseTable"]

LEAST_TIMEOUT_S = 1.0
"""A conditional write takes several round trips, so it is not given less than this."""


@attrs.frozen
class LeaseRow:
    """A lease as the database has it. ``token`` is "" when it is free; ``seconds`` are those until it expires."""

    name: str
    epoch: int
    token: str = ""
    owner: str = ""
    since: str = ""
    seconds: int = 0


@attrs.frozen
class Claim:
    """What a holder writes: ``token`` is who it is, and the rest is for people. It expires after ``ttl_s`` seconds."""

    token: str
    owner: str
    since: str
    ttl_s: int


class LeaseTable(StoreTable):
    """A table of leases."""

    def __init__(self, session: Any, keyspace: str, table: str, *, create: bool, consistency: int | str) -> None:
        super().__init__(session, LEASES, keyspace, table, create=create, consistency=consistency)

    def read(self, name: str, *, serial: bool = False) -> LeaseRow | None:
        """Return the lease, None if nobody ever had it. *serial* finds out what came of conditional writes."""
        text = f"SELECT name, epoch, claim, owner, since, TTL(claim) FROM {self.name} WHERE name = ?"
        with self.errors(f"reading lease {name!r} from table {self.name}"):
            for row in self.run(text, (name,), serial=serial):
                return _row(row)
        return None

    def rows(self) -> list[LeaseRow]:
        """Return all leases."""
        text = f"SELECT name, epoch, claim, owner, since, TTL(claim) FROM {self.name}"
        with self.errors(f"listing the leases in table {self.name}"):
            return [_row(row) for row in self.run(text, ())]

    def add(self, name: str) -> bool:
        """Insert a lease that nobody has, with epoch 0; return False if it is there."""
        text = f"INSERT INTO {self.name} (name, epoch) VALUES (?, 0) IF NOT EXISTS USING TTL 0"
        with self.errors(f"creating lease {name!r} in table {self.name}"):
            return self.applied(text, (name,))

    def take(self, last: LeaseRow, claim: Claim) -> bool:
        """Give the lease the next epoch and *claim*, if it is still as in *last*; return whether it was."""
        # One statement has one TTL, and the epoch must stay when the claim has expired: hence two in a batch, which is
        # one conditional write, as both are of one partition. "= null" is written out: not every server takes a bound
        # null there.
        held = "claim = ?" if last.token else "claim = null"
        text = (
            f"BEGIN BATCH UPDATE {self.name} USING TTL ? SET claim = ?, owner = ?, since = ? WHERE name = ? "
            f"IF epoch = ? AND {held}; "
            f"UPDATE {self.name} USING TTL 0 SET epoch = ? WHERE name = ?; APPLY BATCH"
        )
        was = (last.epoch, last.token) if last.token else (last.epoch,)
        values = (claim.ttl_s, claim.token, claim.owner, claim.since, last.name, *was, last.epoch + 1, last.name)
        with self.errors(f"acquiring lease {last.name!r} in table {self.name}"):
            return self.applied(text, values)

    def keep(self, name: str, epoch: int, claim: Claim) -> bool:
        """Write *claim* anew if it is still there and of *epoch*; return whether it was."""
        text = (
            f"UPDATE {self.name} USING TTL ? SET claim = ?, owner = ?, since = ? WHERE name = ? "
            "IF epoch = ? AND claim = ?"
        )
        values = (claim.ttl_s, claim.token, claim.owner, claim.since, name, epoch, claim.token)
        # Not as long as the session waits, ten seconds mostly: there must be time left to try again.
        timeout_s = max(LEAST_TIMEOUT_S, claim.ttl_s / 8)
        with self.errors(f"renewing lease {name!r} in table {self.name}"):
            return self.applied(text, values, timeout_s=timeout_s)

    def drop(self, name: str, epoch: int, claim: Claim) -> bool:
        """Take *claim* away if it is still there and of *epoch*; return whether it was."""
        text = (
            f"UPDATE {self.name} SET claim = null, owner = null, since = null WHERE name = ? IF epoch = ? AND claim = ?"
        )
        with self.errors(f"releasing lease {name!r} in table {self.name}"):
            return self.applied(text, (name, epoch, claim.token))


def _row(row: Any) -> LeaseRow:
    name, epoch, token, owner, since, seconds = values_of(row)
    return LeaseRow(name, epoch or 0, token or "", owner or "", since or "", seconds or 0)
