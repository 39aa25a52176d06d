"""The table of cursors, and the statements on it.

One row per epoch of a consumer; the highest epoch counts. Each save writes the columns ``position`` and ``updated``,
which only grow (see ``scylla.py``). The other columns are written once, when a reset or a new holder of the lease opens
the epoch.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..table import StoreTable, TableKind, values_of

__all__ = ["CURSORS", "DEFAULT_TABLE", "CursorRow", "CursorTable", "schema_cql"]

DEFAULT_TABLE = "rscylla_cursors"

CURSORS = TableKind(
    what="cursor table",
    table=DEFAULT_TABLE,
    columns={
        "consumer": "text",
        "epoch": "bigint",
        "position": "text",
        "updated": "text",
        "start": "text",
        "stamp": "bigint",
        "opened": "text",
        "reason": "text",
        "lease": "text",
        "fence": "bigint",
    },
    primary_key="(consumer), epoch",
    options="CLUSTERING ORDER BY (epoch DESC) AND ",
    comment="cursors of rscylla consumers; the highest epoch counts; reset cursors with rscylla, do not edit rows",
    hint="create it with create_schema() or create=True of the store, --create-store of `rscylla tail`, or the "
    "statement that `rscylla schema cursors` prints",
)

schema_cql = CURSORS.cql

_NO_CONSUMER = "\x00nobody"
"""A consumer that never has a cursor, for checks of access."""

_COLUMNS = "epoch, position, updated, start, stamp, opened, reason, lease, fence"


@attrs.frozen
class CursorRow:
    """One epoch of one consumer. Null text is "", except in ``start``, where "" is the oldest position.

    ``lease`` and ``fence`` are the lease and its epoch of the last holder that opened this epoch or an earlier one; a
    reset copies them.
    """

    consumer: str
    epoch: int
    position: str
    updated: str
    start: str | None
    stamp: int | None
    opened: str
    reason: str
    lease: str = ""
    fence: int = 0

    @property
    def saved(self) -> str | None:
        """The current position; None if none was ever saved, as when a lease holder opens the first epoch."""
        return max(self.position, self.start or "") if self.position or self.start is not None else None


class CursorTable(StoreTable):
    """A table of cursors."""

    def read(self, consumer: str, *, serial: bool = False) -> CursorRow | None:
        """Return the highest epoch of *consumer*. A *serial* read includes resets that are in progress."""
        text = f"SELECT consumer, {_COLUMNS} FROM {self.name} WHERE consumer = ? LIMIT 1"
        with self.errors(f"reading the cursor of consumer {consumer!r} from table {self.name}"):
            for row in self.run(text, (consumer,), serial=serial):
                return _row(row)
        return None

    def history(self, consumer: str) -> list[CursorRow]:
        """Return all epochs of *consumer*, the highest first."""
        text = f"SELECT consumer, {_COLUMNS} FROM {self.name} WHERE consumer = ?"
        with self.errors(f"reading the cursors of consumer {consumer!r} from table {self.name}"):
            return [_row(row) for row in self.run(text, (consumer,))]

    def rows(self) -> list[CursorRow]:
        """Return the highest epoch of every consumer, in the order of the partitions."""
        text = f"SELECT consumer, {_COLUMNS} FROM {self.name} PER PARTITION LIMIT 1"
        with self.errors(f"listing the cursors in table {self.name}"):
            return [_row(row) for row in self.run(text, ())]

    def position(self, consumer: str, epoch: int) -> str:
        """Return the position that was saved in one epoch of *consumer*; "" if none was."""
        text = f"SELECT position FROM {self.name} WHERE consumer = ? AND epoch = ?"
        with self.errors(f"reading the cursor of consumer {consumer!r} from table {self.name}"):
            for row in self.run(text, (consumer, epoch)):
                return values_of(row)[0] or ""
        return ""

    def advance(self, consumer: str, epoch: int, stamp: int, position: str, updated: str) -> None:
        """Write a position. The write timestamp is *stamp*, the same for all writes of an epoch."""
        # UPDATE, not INSERT, whose row marker would keep a row alive without any cell. TTL 0 overrides the default TTL
        # of a table that somebody else created.
        text = (
            f"UPDATE {self.name} USING TIMESTAMP ? AND TTL 0 SET position = ?, updated = ? "
            "WHERE consumer = ? AND epoch = ?"
        )
        with self.errors(f"saving the cursor of consumer {consumer!r} in table {self.name}"):
            self.run(text, (stamp, position, updated, consumer, epoch))

    def prune(self, consumer: str, below: int, stamp: int) -> None:
        """Delete all epochs of *consumer* below *below*. *stamp*, of a later epoch, is higher than their timestamps."""
        text = f"DELETE FROM {self.name} USING TIMESTAMP ? WHERE consumer = ? AND epoch < ?"
        with self.errors(f"deleting old epochs of the cursor of consumer {consumer!r} from table {self.name}"):
            self.run(text, (stamp, consumer, below))

    def touch(self) -> None:
        """Update a row that does not exist under the condition that it does: checks access and writes nothing."""
        # Conditional like a reset, so that a user or keyspace without working Paxos fails here, too.
        text = f"UPDATE {self.name} SET reason = ? WHERE consumer = ? AND epoch = ? IF EXISTS"
        with self.errors(f"writing to table {self.name}"):
            self.run(text, ("", _NO_CONSUMER, 0), idempotent=False)

    def open_epoch(self, row: CursorRow) -> bool:
        """Insert the row of a new epoch, without a position; return False if the epoch already exists."""
        text = (
            f"INSERT INTO {self.name} (consumer, epoch, start, stamp, opened, reason, lease, fence) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
        )
        values = (row.consumer, row.epoch, row.start, row.stamp, row.opened, row.reason)
        # Null, not "" and 0, if there is no lease; _row reads both the same way.
        guard = (row.lease, row.fence) if row.lease else (None, None)
        with self.errors(f"opening an epoch of the cursor of consumer {row.consumer!r} in table {self.name}"):
            return self.applied(text, (*values, *guard))


def _row(row: Any) -> CursorRow:
    consumer, epoch, position, updated, start, stamp, opened, reason, lease, fence = values_of(row)
    return CursorRow(
        consumer,
        epoch,
        position or "",
        updated or "",
        start,
        stamp,
        opened or "",
        reason or "",
        lease or "",
        fence or 0,
    )
