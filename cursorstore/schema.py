"""The tables of cursors, leases, groups, and dead letters, as CQL text.

Cursors: one row per epoch of a consumer; the highest epoch counts. Each save writes the columns ``position`` and
``updated``, which only grow (see ``scylla.py``). The other columns are written once, when a reset or a new holder of
the lease opens the epoch.

Leases: one row per lease. ``claim`` and the columns that describe the holder expire with the lease; ``epoch`` stays.

Groups: one partition per group. The static columns are the number of slices, and the one that replaces it, 0 if none.
The row ``member/TOKEN`` of a member has no column that does not expire, so it vanishes with the member. The row
``slice/COUNT/INDEX`` of a slice stays, also while the group has another number of slices, because epochs must grow.

Dead letters: one row per event of a consumer, in a partition for each consumer and day of events. ``tries`` is written
before there is a letter, and expires; a row without ``status`` is not a letter yet. ``dead`` has an element for each
letter of the partition whose status is dead, so that letters can be counted without reading them. ``claims`` has those
who work on a letter, each for a while; of two, none goes on.
"""

from __future__ import annotations

from .table import TableKind

__all__ = [
    "CURSORS",
    "DEFAULT_GROUP_TABLE",
    "DEFAULT_LEASE_TABLE",
    "DEFAULT_LETTER_TABLE",
    "DEFAULT_TABLE",
    "GROUPS",
    "LEASES",
    "LETTERS",
    "group_schema_cql",
    "lease_schema_cql",
    "letter_schema_cql",
    "schema_cql",
]

DEFAULT_TABLE = "rscylla_cursors"

DEFAULT_GROUP_TABLE = "rscylla_groups"

DEFAULT_LEASE_TABLE = "rscylla_leases"

DEFAULT_LETTER_TABLE = "rscylla_dead_letters"


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
    "statement that `rscylla cursor schema` prints",
)

LEASES = TableKind(
    what="lease table",
    table=DEFAULT_LEASE_TABLE,
    columns={"name": "text", "epoch": "bigint", "claim": "text", "owner": "text", "since": "text"},
    primary_key="name",
    options="",
    comment="leases of rscylla services; what tells their holders expires by TTL; do not edit rows",
    hint="create it with create_schema() or create=True of the lease, or the statement that `rscylla cursor schema "
    "--leases` prints",
)


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
    hint="create it with create_schema() or create=True of the membership, or the statement that `rscylla group "
    "schema` prints",
)


LETTERS = TableKind(
    what="dead letter table",
    table=DEFAULT_LETTER_TABLE,
    columns={
        "consumer": "text",
        "day": "text",
        "event_us": "bigint",
        "event_id": "text",
        "dead": "set<blob> static",
        "tries": "int",
        "status": "text",
        "attempts": "int",
        "error": "text",
        "traceback": "text",
        "failed_us": "bigint",
        "event_type": "bigint",
        "foreign_id": "text",
        "metadata": "blob",
        "trace": "blob",
        "late": "boolean",
        "park": "text",
        "claims": "map<text, text>",
        "audit": "map<text, text>",
    },
    primary_key="(consumer, day), event_us, event_id",
    options="CLUSTERING ORDER BY (event_us ASC, event_id ASC) AND ",
    comment="dead letters of rscylla consumers; replay or discard them with rscylla, do not edit rows",
    hint="create it with create_schema() or create=True of the store, or the statement that `rscylla deadletter "
    "schema` prints",
)


schema_cql = CURSORS.cql

lease_schema_cql = LEASES.cql

group_schema_cql = GROUPS.cql

letter_schema_cql = LETTERS.cql
