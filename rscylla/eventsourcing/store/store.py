"""Events, snapshots, and keys of subjects in tables of ScyllaDB.

Events: one partition per aggregate, one row per event. An append is one conditional batch: the static ``head`` moves if
it is still what the append expects, and the rows of the events are inserted. Every write to the table is conditional,
for plain writes and Paxos take their timestamps from different clocks. Plain reads at a quorum see all that was
acknowledged.

The answer to an append may be lost, or say that its outcome is unknown. A serial read settles it: whatever was on its
way is then either applied, or never will be. What is at the versions of the append says whose events are there.

Snapshots: one row per aggregate, one cell per snapshot, so that two writers at the same time never mix theirs.

Keys: one row per subject. An empty key means that the subject was forgotten. It is written over the key instead of a
deletion: a replica that missed a deletion could bring the key back.

Sources: the outcome of a conditional write that timed out, and of a serial read after it: as in
``cursorstore.leases.lease``.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, timedelta
from typing import Any

import attrs

from cursorstore.table import InTable, StoreTable, TableKind, values_of

from ..._retry import Backoff, may_help, retry
from ..._tokens import TokenRange
from ...base import TableScan
from ...clock import Clock, Stop, SystemClock
from ...errors import ConfigError, ConnectionFailed, MalformedData, QueryTimeout, SubjectForgotten, VersionConflict
from ..abc import ScanPage
from ..envelope import AggregateID, EventRecord, Snapshot
from .bounds import Bounds, conflict, content

__all__ = [
    "ScyllaEventStore",
    "ScyllaSnapshotStore",
    "ScyllaSubjectKeys",
    "event_schema_cql",
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

ATTEMPTS = 8
"""At a write whose outcome is unknown, and whether it was applied could not be read, or which was not applied."""

BACKOFF = Backoff(initial=timedelta(milliseconds=50), maximum=timedelta(seconds=2))

_COLUMNS = (
    *("version", "event_id", "event_type", "event_schema", "data", "at", "correlation_id", "causation_id"),
    *("user", "metadata"),
)
_KEY = ("aggregate_type", "aggregate_id")
_OF_AGGREGATE = "aggregate_type = ? AND aggregate_id = ?"


class ScyllaEventStore(InTable):
    """Events in the table *keyspace*.*table*, whose CDC log is their outbox. Implements ``EventStore``. Thread-safe.

    Args:
        session: A connected driver session. The caller keeps it; it is neither changed nor closed.
        keyspace: The keyspace of the table; names are case-sensitive.
        table: Name of the table; see ``event_schema_cql``.
        create: Create the table at first use if it does not exist. The keyspace must exist.
        log_ttl: How long the log of a table that is created here keeps an event. Readers of the log that are behind for
            longer miss events, and are told so.
        max_events: How many events one append may have.
        max_bytes: How many bytes they may have. Scylla refuses batches of 1 MB.
        consistency: LOCAL_QUORUM, QUORUM, or ALL, as text. With LOCAL_QUORUM, conflicts are found within a data center:
            writers in several data centers need QUORUM.
        clock: The clock of the pauses between attempts.
        stop: Ends the pauses, and scans, with ``Stopped``.
    """

    def __init__(
        self,
        session: Any,
        keyspace: str,
        table: str = DEFAULT_EVENT_TABLE,
        *,
        create: bool = False,
        log_ttl: timedelta = DEFAULT_LOG_TTL,
        max_events: int = Bounds().events,
        max_bytes: int = Bounds().bytes,
        consistency: str = "LOCAL_QUORUM",
        clock: Clock | None = None,
        stop: Stop | None = None,
    ) -> None:
        self._bounds = Bounds(max_events, max_bytes)
        self._clock = clock or SystemClock()
        self._stop = stop or Stop()
        self._table = StoreTable(session, events_kind(log_ttl), keyspace, table, create=create, consistency=consistency)
        self._scan = TableScan(session, keyspace, table, (*_KEY, *_COLUMNS), consistency=consistency, clock=self._clock)

    def append(self, records: Sequence[EventRecord]) -> None:
        """Append *records*, the next events of one aggregate; see ``EventStore.append``. Blocks.

        An unknown outcome is settled by reading; an append that was not applied is then tried again.
        """
        aggregate, expected = self._bounds.check(records)
        retry(
            lambda: self._append(aggregate, expected, records),
            attempts=ATTEMPTS,
            backoff=BACKOFF,
            clock=self._clock,
            stop=self._stop,
            again=lambda error: may_help(error) and not isinstance(error, VersionConflict),
        )

    def _append(self, aggregate: AggregateID, expected: int, records: Sequence[EventRecord]) -> None:
        unknown: Exception | None = None
        try:
            if self._write(aggregate, expected, records):
                return
        except (QueryTimeout, ConnectionFailed) as e:
            unknown = e
        # A refusal is read, too: the same append may have been applied before, by the caller or by the driver.
        head, there = self._settled(aggregate, expected, len(records))
        if there == list(map(content, records)):
            return
        if head == expected and unknown is not None:
            raise unknown
        raise conflict(aggregate, expected, head)

    def _write(self, aggregate: AggregateID, expected: int, records: Sequence[EventRecord]) -> bool:
        name = self._table.name
        key = (aggregate.type, aggregate.id)
        # "= null" is literal, because not every server accepts a bound null there.
        head = "IF head = ?" if expected else "IF head = null"
        insert = (
            f"INSERT INTO {name} ({', '.join((*_KEY, *_COLUMNS))}) VALUES ({', '.join('?' * (2 + len(_COLUMNS)))}); "
        )
        text = (
            f"BEGIN BATCH UPDATE {name} SET head = ? WHERE {_OF_AGGREGATE} {head}; {insert * len(records)}APPLY BATCH"
        )
        values: list[Any] = [expected + len(records), *key]
        if expected:
            values.append(expected)
        for record in records:
            values += key
            values += _values(record)
        with self._table.errors(f"appending {len(records)} events to {aggregate} in table {name}"):
            return self._table.applied(text, tuple(values))

    def _settled(self, aggregate: AggregateID, expected: int, count: int) -> tuple[int, list[Any]]:
        """Return the version of *aggregate*, and the contents of its next *count* events after *expected*."""
        # A partition is read with its static column even if it has none of the rows.
        text = f"SELECT head FROM {self._table.name} WHERE {_OF_AGGREGATE} LIMIT 1"
        key = (aggregate.type, aggregate.id)
        with self._table.errors(f"reading the version of {aggregate} in table {self._table.name}"):
            # The serial read comes first: it completes what was on its way. Then the rows are there for plain reads.
            heads = [values_of(row)[0] for row in self._table.run(text, key, serial=True)]
            text = (
                f"SELECT event_id, event_type, event_schema, data FROM {self._table.name} WHERE {_OF_AGGREGATE} "
                "AND version > ? AND version <= ?"
            )
            found = self._table.run(text, (*key, expected, expected + count))
            return (heads[0] or 0) if heads else 0, [values_of(row) for row in found]

    def read(self, aggregate: AggregateID, after: int = 0) -> Iterator[EventRecord]:
        """Yield the events of *aggregate* with versions above *after*, in order. Blocks, page by page."""
        name = self._table.name
        text = f"SELECT {', '.join(_COLUMNS)} FROM {name} WHERE {_OF_AGGREGATE} AND version > ?"
        with self._table.errors(f"reading the events of {aggregate} in table {name}"):
            for row in self._table.run(text, (aggregate.type, aggregate.id, after)):
                yield _record(aggregate, values_of(row))

    def head(self, aggregate: AggregateID) -> int:
        text = f"SELECT head FROM {self._table.name} WHERE {_OF_AGGREGATE} LIMIT 1"
        with self._table.errors(f"reading the version of {aggregate} in table {self._table.name}"):
            for row in self._table.run(text, (aggregate.type, aggregate.id)):
                return values_of(row)[0] or 0
        return 0

    def scan(self, within: TokenRange = TokenRange(), /) -> Iterator[ScanPage]:  # noqa: B008 - a value
        """Yield the events of all aggregates of a token range; see ``EventStore.scan``. Blocks, page by page.

        Pages are requested one ahead, and a failed one several times. Ranges can be scanned by several threads.
        """
        held: ScanPage | None = None
        for rows in self._scan.pages(within.low, within.high, stop=self._stop):
            if held is not None:
                yield held
                held = None
            if rows:
                # The last partition of the page may have more rows in the next one.
                rest = TokenRange(rows[-1][0] - 1, within.high)
                held = ScanPage(
                    [_record(AggregateID(*row[:2]), row[2:]) for _, row in rows if row[2] is not None], rest
                )
        yield ScanPage([], None) if held is None else ScanPage(held.records, None)


def _values(record: EventRecord) -> tuple[Any, ...]:
    return (
        *(record.version, record.event_id, record.type, record.schema, record.data, record.at),
        *(record.correlation_id, record.causation_id, record.user, record.metadata),
    )


def _record(aggregate: AggregateID, row: Sequence[Any]) -> EventRecord:
    version, event_id, kind, schema, data, at, correlation, causation, user, metadata = row
    try:
        # The driver's times have no time zone.
        at = at.replace(tzinfo=UTC)
        return EventRecord(
            aggregate, version, event_id, kind, schema, data, at, correlation or "", causation or "", user or "",
            dict(metadata or {}),
        )  # fmt: skip
    except (AttributeError, TypeError, ValueError) as e:
        raise MalformedData(
            f"event {version} of {aggregate} lacks a value; rows of the table were written by something else"
        ) from e


class ScyllaSnapshotStore(InTable):
    """Snapshots in the table *keyspace*.*table*. Implements ``SnapshotStore``. Thread-safe.

    The arguments are those of ``ScyllaEventStore``. Writes are plain: a snapshot that is lost, or replaced by an older
    one, only costs time.
    """

    def __init__(
        self,
        session: Any,
        keyspace: str,
        table: str = DEFAULT_SNAPSHOT_TABLE,
        *,
        create: bool = False,
        consistency: str = "LOCAL_QUORUM",
    ) -> None:
        self._table = StoreTable(session, SNAPSHOTS, keyspace, table, create=create, consistency=consistency)

    def get_snapshot(self, aggregate: AggregateID) -> Snapshot | None:
        text = f"SELECT snapshot FROM {self._table.name} WHERE {_OF_AGGREGATE}"
        with self._table.errors(f"reading the snapshot of {aggregate} in table {self._table.name}"):
            found = [values_of(row)[0] for row in self._table.run(text, (aggregate.type, aggregate.id))]
        if not found or not found[0]:
            return None
        try:
            version, schema, state, *commands = json.loads(found[0])
            return Snapshot(aggregate, version, schema, state, commands)
        except (ValueError, TypeError) as e:
            raise MalformedData(
                f"the snapshot of {aggregate} in table {self._table.name} is not one; delete its row"
            ) from e

    def put_snapshot(self, snapshot: Snapshot) -> None:
        aggregate = snapshot.aggregate
        cell = json.dumps([snapshot.version, snapshot.schema, snapshot.state, *snapshot.commands], ensure_ascii=False)
        text = f"INSERT INTO {self._table.name} (aggregate_type, aggregate_id, snapshot) VALUES (?, ?, ?)"
        with self._table.errors(f"writing the snapshot of {aggregate} to table {self._table.name}"):
            self._table.run(text, (aggregate.type, aggregate.id, cell))


class ScyllaSubjectKeys(InTable):
    """Keys of subjects in the table *keyspace*.*table*. Implements ``SubjectKeys``. Thread-safe.

    The arguments are those of ``ScyllaEventStore``. A forgotten key is overwritten: it is gone from the disks once the
    SSTables that hold it are compacted, and from backups once these are deleted.
    """

    def __init__(
        self,
        session: Any,
        keyspace: str,
        table: str = DEFAULT_KEY_TABLE,
        *,
        create: bool = False,
        consistency: str = "LOCAL_QUORUM",
        clock: Clock | None = None,
        stop: Stop | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._stop = stop or Stop()
        self._table = StoreTable(session, KEYS, keyspace, table, create=create, consistency=consistency)

    def find_key(self, subject: str) -> bytes | None:
        return self._read(subject, serial=False) or None

    def make_key(self, subject: str) -> bytes:
        """Return the key of *subject*, made first if there is none; ``SubjectForgotten`` if it was forgotten."""
        key = self._read(subject, serial=False)
        if key is None:
            key = retry(
                lambda: self._made(subject), attempts=ATTEMPTS, backoff=BACKOFF, clock=self._clock, stop=self._stop
            )
        if not key:
            raise SubjectForgotten("the subject was forgotten; nothing personal of it can be written any more")
        return key

    def _made(self, subject: str) -> bytes:
        key = secrets.token_bytes(32)
        text = f"INSERT INTO {self._table.name} (subject, key) VALUES (?, ?) IF NOT EXISTS"
        unknown: Exception | None = None
        try:
            with self._table.errors(f"making a key in table {self._table.name}"):
                if self._table.applied(text, (subject, key)):
                    return key
        except (QueryTimeout, ConnectionFailed) as e:
            unknown = e
        there = self._read(subject, serial=True)
        if there is None:
            raise unknown or QueryTimeout(f"making a key in table {self._table.name}: it was neither made nor there")
        return there

    def forget(self, subject: str) -> None:
        """Delete the key of *subject* for good."""
        text = f"UPDATE {self._table.name} SET key = 0x WHERE subject = ? IF key != 0x"

        def attempt() -> None:
            with self._table.errors(f"deleting a key in table {self._table.name}"):
                self._table.applied(text, (subject,))

        retry(attempt, attempts=ATTEMPTS, backoff=BACKOFF, clock=self._clock, stop=self._stop)

    def _read(self, subject: str, *, serial: bool) -> bytes | None:
        text = f"SELECT key FROM {self._table.name} WHERE subject = ?"
        with self._table.errors(f"reading a key in table {self._table.name}"):
            for row in self._table.run(text, (subject,), serial=serial):
                return values_of(row)[0]  # type: ignore[no-any-return]
        return None
