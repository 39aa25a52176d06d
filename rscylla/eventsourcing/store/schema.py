"""The tables of events, snapshots, and keys of subjects, as CQL text.

Events: one partition per aggregate, one row per event. ``head`` is the version of the last one; each append writes it
in the same conditional batch as its rows, so it decides which of several appends goes first.

Snapshots: one row per aggregate, one cell per snapshot, so that two writers at the same time never mix theirs.

Keys: one row per subject. An empty key means that the subject was forgotten. It is written over the key instead of a
deletion: a replica that missed a deletion could bring the key back.
"""

from __future__ import annotations

from datetime import timedelta

import attrs

from cursorstore.table import TableKind

from ...errors import ConfigError

__all__ = [
    "DEFAULT_EVENT_TABLE",
    "DEFAULT_KEY_TABLE",
    "DEFAULT_LOG_TTL",
    "DEFAULT_SNAPSHOT_TABLE",
    "EVENTS",
    "KEYS",
    "SNAPSHOTS",
    "event_schema_cql",
    "events_kind",
    "key_schema_cql",
    "snapshot_schema_cql",
]

DEFAULT_EVENT_TABLE = "rscylla_events"

DEFAULT_SNAPSHOT_TABLE = "rscylla_snapshots"

DEFAULT_KEY_TABLE = "rscylla_subject_keys"

DEFAULT_LOG_TTL = timedelta(days=7)
"""How long the log keeps an event: longer than any outage of its readers. Scylla's own default is a day."""

EVENTS = TableKind(
    what="event table",
    table=DEFAULT_EVENT_TABLE,
    columns={
        "aggregate_type": "text",
        "aggregate_id": "text",
        "version": "bigint",
        "head": "bigint static",
        "event_id": "uuid",
        "event_type": "text",
        "event_schema": "int",
        "data": "text",
        "at": "timestamp",
        "correlation_id": "text",
        "causation_id": "text",
        "user": "text",
        "metadata": "frozen<map<text, text>>",
    },
    primary_key="(aggregate_type, aggregate_id), version",
    options="CLUSTERING ORDER BY (version ASC) AND ",
    comment="events of aggregates; every write is a conditional batch of rscylla, do not edit rows",
    hint="create it with create_schema() or create=True of the store, or the statement of event_schema_cql()",
)

SNAPSHOTS = TableKind(
    what="snapshot table",
    table=DEFAULT_SNAPSHOT_TABLE,
    columns={"aggregate_type": "text", "aggregate_id": "text", "snapshot": "text"},
    primary_key="(aggregate_type, aggregate_id)",
    options="",
    comment="last snapshots of aggregates; rows may be deleted, the events make them again",
    hint="create it with create_schema() or create=True of the store, or the statement of snapshot_schema_cql()",
)

KEYS = TableKind(
    what="table of subject keys",
    table=DEFAULT_KEY_TABLE,
    columns={"subject": "text", "key": "blob"},
    primary_key="subject",
    options="",
    comment="keys of personal data; an empty key means forgotten; do not delete rows, and keep no old backups",
    hint="create it with create_schema() or create=True of the keys, or the statement of key_schema_cql()",
)


def events_kind(log_ttl: timedelta = DEFAULT_LOG_TTL) -> TableKind:
    """Return the kind of an event table whose log keeps changes for *log_ttl*.

    Raises:
        ConfigError: it is less than a second, or more than the database allows.
    """
    seconds = int(log_ttl.total_seconds())
    if not 1 <= seconds < 2**31:
        raise ConfigError("log_ttl must be a second or more, and less than 68 years")
    options = f"cdc = {{'enabled': true, 'ttl': {seconds}}} AND "
    return attrs.evolve(EVENTS, options=EVENTS.options + options)


def event_schema_cql(keyspace: str, table: str = DEFAULT_EVENT_TABLE, *, log_ttl: timedelta = DEFAULT_LOG_TTL) -> str:
    """Return the statement that creates a table of events with its CDC log, without a semicolon.

    Raises:
        ConfigError: a name is not a valid name of a keyspace or table, or *log_ttl* is out of range.
    """
    return events_kind(log_ttl).cql(keyspace, table)


snapshot_schema_cql = SNAPSHOTS.cql

key_schema_cql = KEYS.cql
