"""The table of groups, and the statements on it.

One partition per group. The static columns are the number of slices, and the one that replaces it, 0 if none. The row
``member/TOKEN`` of a member has no column that does not expire, so it vanishes with the member. The row
``slice/COUNT/INDEX`` of a slice stays, also while the group has another number of slices, because epochs must grow.
Every write is conditional, and of one partition, so Paxos decides its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rscylla._tokens import Slice
from rscylla.abc import NOBODY, GroupMember, GroupSlice, GroupView

from ..cursors.codec import moment
from ..table import StoreTable, TableKind, values_of
from .rows import Move, Standing, member_of, view_of

__all__ = ["DEFAULT_GROUP_TABLE", "GROUPS", "ScyllaGroupTable", "group_schema_cql"]

DEFAULT_GROUP_TABLE = "rscylla_groups"

GROUPS = TableKind(
    what="group table",
    table=DEFAULT_GROUP_TABLE,
    columns={
        "name": "text",
        "item": "text",
        "slices": "int static",
        "next": "int static",
        "claim": "text",
        "renewals": "bigint",
        "drains": "boolean",
        "reads": "blob",
        "holder": "text",
        "epoch": "bigint",
        "owner": "text",
        "since": "text",
        "before": "text",
        "why": "text",
    },
    primary_key="(name), item",
    # Members that are gone leave tombstones, which each look reads. Only what has expired by itself is ever deleted, so
    # a replica that misses a tombstone brings nothing back.
    options="gc_grace_seconds = 86400 AND ",
    comment="groups of rscylla services; members expire by TTL; do not edit rows",
    hint="create it with create_schema() or create=True of the membership, or the statement that `rscylla schema "
    "groups` prints",
)

group_schema_cql = GROUPS.cql

_DRAINS_S = 7 * 86_400
"""How long a member is asked to drain. Members do not write the column, so that they cannot undo what was asked."""

_COLUMNS = "item, slices, next, claim, TTL(claim), renewals, drains, reads, holder, epoch, owner, since, before, why"


class ScyllaGroupTable(StoreTable):
    """A table of groups, for memberships and for operators. Thread-safe.

    Each write is atomic, and returns whether its conditions held. All methods raise ``SourceError`` if the database
    does not answer: whether a write was applied is then known from a *serial* ``read``, and even after that it may
    still be applied as long as its conditions hold.

    Args:
        session: A connected driver session. The caller keeps it; it is neither changed nor closed.
        keyspace: The keyspace of the table; names are case-sensitive.
        table: Name of the table; see ``group_schema_cql``.
        create: Create the table at first use if it does not exist. The keyspace must exist.
        consistency: LOCAL_QUORUM, QUORUM, or ALL, as text or the driver's number; the same as that of the memberships.
        timeout_s: How long to wait for each answer; None: as long as the session is configured to wait.
    """

    def __init__(
        self,
        session: Any,
        keyspace: str,
        table: str = DEFAULT_GROUP_TABLE,
        *,
        create: bool = False,
        consistency: int | str = "LOCAL_QUORUM",
        timeout_s: float | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        super().__init__(session, GROUPS, keyspace, table, create=create, consistency=consistency)

    def names(self) -> list[str]:
        """Return the names of all groups, sorted."""
        with self.errors(f"listing the groups in table {self.name}"):
            rows = self.run(f"SELECT DISTINCT name, slices FROM {self.name}", ())
            return sorted(name for name, slices in map(values_of, rows) if slices is not None)

    def read(self, name: str, *, serial: bool = False) -> GroupView | None:
        """Return the group; None if it has never had a member."""
        text = f"SELECT {_COLUMNS} FROM {self.name} WHERE name = ?"
        with self.errors(f"reading group {name!r} from table {self.name}"):
            rows = [values_of(row) for row in self.run(text, (name,), serial=serial, timeout_s=self._timeout_s)]
        count, planned = next(((row[1], row[2]) for row in rows), (None, None))
        if count is None:
            return None
        members: list[GroupMember] = []
        slices: dict[Slice, GroupSlice] = {}
        for item, _, _, claim, seconds, renewals, drains, reads, holder, epoch, owner, since, before, why in rows:
            if claim:
                told = owner or "", since or "", seconds or 0, renewals or 0, bool(drains), reads
                members.append(member_of(claim, *told))
            elif epoch:
                of, index = map(int, item.split("/")[1:])
                slices[Slice(index, of)] = GroupSlice(
                    index, epoch, holder or NOBODY, owner or "", moment(since or ""), before or "", why or ""
                )
        return view_of(name, count, planned or 0, members, slices)

    def found(self, name: str, count: int) -> bool:
        """Store the group with *count* slices, unless it is there."""
        # "= null" is literal, because not every server accepts a bound null there.
        text = f"UPDATE {self.name} USING TTL 0 SET slices = ?, next = 0 WHERE name = ? IF slices = null"
        with self.errors(f"creating group {name!r} in table {self.name}"):
            return self._applied(text, (count, name))

    def add(self, name: str, standing: Standing) -> bool:
        """Add a member."""
        with self.errors(f"joining group {name!r} in table {self.name}"):
            return self._applied(f"{self._standing} IF claim = null", _values(name, standing))

    def keep(self, name: str, standing: Standing) -> bool:
        """Write what a member tells of itself again, if it is still there."""
        with self.errors(f"renewing a membership of group {name!r} in table {self.name}"):
            return self._applied(f"{self._standing} IF claim = ?", (*_values(name, standing), standing.token))

    def drop(self, name: str, token: str) -> bool:
        """Remove a member if it is still there."""
        with self.errors(f"leaving group {name!r} in table {self.name}"):
            text = f"DELETE FROM {self.name} WHERE name = ? AND item = ? IF claim = ?"
            return self._applied(text, (name, _member(token), token))

    def take(self, name: str, count: int, standing: Standing, moves: Sequence[Move], gone: str) -> bool:
        """As ``give``, and only if the group has *count* slices and shall keep them, and member *gone* is not there."""
        begin = f"{self._standing} IF claim = ? AND slices = ? AND next = 0; "
        values: tuple[Any, ...] = (*_values(name, standing), standing.token, count)
        if gone != NOBODY:
            begin += f"DELETE FROM {self.name} WHERE name = ? AND item = ? IF claim = null; "
            values += name, _member(gone)
        return self._move(name, count, moves, begin, values)

    def give(self, name: str, count: int, standing: Standing, moves: Sequence[Move]) -> bool:
        """Do all *moves* and ``keep``, or nothing: each slice of *count* must have its epoch, and the member exist."""
        begin, values = f"{self._standing} IF claim = ?; ", (*_values(name, standing), standing.token)
        return self._move(name, count, moves, begin, values)

    def drain(self, name: str, token: str, drains: bool) -> bool:
        """Ask a member to hand over its slices, or no longer, if it is there."""
        where = "WHERE name = ? AND item = ? IF claim = ?"
        with self.errors(f"draining a member of group {name!r} in table {self.name}"):
            if not drains:
                text = f"UPDATE {self.name} SET drains = null {where}"
                return self._applied(text, (name, _member(token), token))
            text = f"UPDATE {self.name} USING TTL {_DRAINS_S} SET drains = true {where}"
            return self._applied(text, (name, _member(token), token))

    def plan(self, name: str, count: int, was: int, planned: int) -> bool:
        """Set the next count to *planned*, 0 for none, if the group has *count* slices and the next count *was*."""
        text = f"UPDATE {self.name} USING TTL 0 SET next = ? WHERE name = ? IF slices = ? AND next = ?"
        with self.errors(f"changing the slices of group {name!r} in table {self.name}"):
            return self._applied(text, (planned, name, count, was))

    def recount(self, name: str, count: int, planned: int) -> bool:
        """Set the number of slices to *planned* if it is *count*, and *planned* is its next count."""
        text = f"UPDATE {self.name} USING TTL 0 SET slices = ?, next = 0 WHERE name = ? IF slices = ? AND next = ?"
        with self.errors(f"changing the slices of group {name!r} in table {self.name}"):
            return self._applied(text, (planned, name, count, planned))

    @property
    def _standing(self) -> str:
        return (
            f"UPDATE {self.name} USING TTL ? SET claim = ?, owner = ?, since = ?, renewals = ?, reads = ? "
            "WHERE name = ? AND item = ?"
        )

    def _applied(self, text: str, values: tuple[Any, ...]) -> bool:
        return self.applied(text, values, timeout_s=self._timeout_s)

    def _move(self, name: str, count: int, moves: Sequence[Move], begin: str, values: tuple[Any, ...]) -> bool:
        # One statement has one TTL, and slices do not expire. All are in one partition, so it is one conditional write.
        text = f"BEGIN BATCH {begin}"
        for move in moves:
            text += (
                f"UPDATE {self.name} USING TTL 0 SET holder = ?, epoch = ?, owner = ?, since = ?, before = ?, why = ? "
                f"WHERE name = ? AND item = ? IF epoch = {'?' if move.epoch else 'null'}; "
            )
            values += move.holder, move.next, move.owner, move.since, move.before, move.why
            values += name, f"slice/{count}/{move.index}"
            values += (move.epoch,) if move.epoch else ()
        with self.errors(f"moving slices of group {name!r} in table {self.name}"):
            return self._applied(f"{text}APPLY BATCH", values)


def _member(token: str) -> str:
    return f"member/{token}"


def _values(name: str, standing: Standing) -> tuple[Any, ...]:
    """Return the values of a statement that writes the row of a member."""
    told = standing.ttl_s, standing.token, standing.owner, standing.since, standing.renewals, standing.reads
    return (*told, name, _member(standing.token))
