"""The membership of a process in a group whose rows are in Scylla."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rscylla.clock import Clock

from ..leases.table import write_timeout_s
from ..leases.term import DEFAULT_TTL
from ..table import InTable
from .group import SLICES, _Membership
from .table import DEFAULT_GROUP_TABLE, ScyllaGroupTable

__all__ = ["ScyllaMembership"]


class ScyllaMembership(_Membership, InTable):
    """A membership in a group of the table *keyspace*.*table*. Implements ``rscylla.abc.Membership``. Thread-safe.

    One object is one process.

    Args:
        session: A connected driver session. The caller keeps it; it is neither changed nor closed.
        keyspace: The keyspace of the table; names are case-sensitive.
        name: The name of the group. All processes of a service use the same name.
        table: Name of the table; see ``group_schema_cql``.
        owner: The name of this process, for people; default: the host and the process id.
        slices: The number of slices of a new group, 1 to 4096; None: the group must exist. A group that exists keeps
            its number, whatever is given here; ``reslice_group`` changes it.
        ttl: How long the membership lasts unless it is renewed, in whole seconds, at least 3. If the process dies,
            nobody works on its slices for that long.
        margin: How much earlier the process stops; default: a quarter of *ttl*. As for ``ScyllaLease``.
        create: Create the table at first use if it does not exist. The keyspace must exist.
        consistency: LOCAL_QUORUM, QUORUM, or ALL, as text or the driver's number. With LOCAL_QUORUM, all processes of
            the group must be in one data center.
        clock: The clock of the process.

    Give it to ``ScyllaCursorStore(lease=...)``: the cursors of a slice then move only for its holder.
    """

    def __init__(
        self,
        session: Any,
        keyspace: str,
        name: str,
        table: str = DEFAULT_GROUP_TABLE,
        *,
        owner: str | None = None,
        slices: int | None = SLICES,
        ttl: timedelta = DEFAULT_TTL,
        margin: timedelta | None = None,
        create: bool = False,
        consistency: int | str = "LOCAL_QUORUM",
        clock: Clock | None = None,
    ) -> None:
        # An answer that does not come must not take the time in which the membership could be renewed.
        timeout_s = write_timeout_s(int(ttl.total_seconds()))
        self._table = ScyllaGroupTable(
            session, keyspace, table, create=create, consistency=consistency, timeout_s=timeout_s
        )
        super().__init__(self._table, name, owner, slices, ttl, margin, clock)
