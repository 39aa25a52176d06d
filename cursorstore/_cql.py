"""The only door of the cursor stores to the driver: statements, rows, and driver errors turned into ours."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import cassandra
from cassandra import ConsistencyLevel, cluster, connection, protocol

from rscylla.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    QueryFailed,
    QueryTimeout,
    RscyllaError,
    TableNotFound,
)

from .schema import COLUMNS, qualified, schema_cql

__all__ = ["CursorTable", "Row", "driver_errors"]

_NOBODY = "\x00nobody"
"""A consumer that never has a cursor."""

_COLUMNS = "epoch, position, updated, start, stamp, opened, reason"

_SERIAL = {
    ConsistencyLevel.LOCAL_QUORUM: ConsistencyLevel.LOCAL_SERIAL,
    ConsistencyLevel.QUORUM: ConsistencyLevel.SERIAL,
    ConsistencyLevel.ALL: ConsistencyLevel.SERIAL,
}

_UNREACHABLE = (
    cassandra.Unavailable,
    cassandra.UnresolvableContactPoints,
    connection.ConnectionException,
    OSError,
)
_LATE = (
    cassandra.OperationTimedOut,
    cassandra.Timeout,
    cassandra.CoordinationFailure,
    cassandra.RateLimitReached,
    protocol.OverloadedErrorMessage,
    protocol.IsBootstrappingErrorMessage,
)
_DRIVER = (
    cassandra.DriverException,
    cluster.NoHostAvailable,
    connection.ConnectionException,
    connection.ProtocolError,
    protocol.ErrorMessage,
    protocol.NotSupportedError,
    OSError,
)


@attrs.frozen
class Row:
    """One epoch of one consumer. ``position`` and ``start`` are "" where the database has nothing."""

    consumer: str
    epoch: int
    position: str
    updated: str
    start: str
    stamp: int | None
    opened: str
    reason: str


class CursorTable:
    """The statements on one cursor table. Thread-safe. Everything is prepared at first use, on the caller's session."""

    def __init__(self, session: Any, keyspace: str, table: str, *, create: bool, consistency: int | str) -> None:
        self.name = qualified(keyspace, table)
        self._session = session
        self._keyspace = keyspace
        self._table = table
        self._create = create
        self._consistency = _consistency(consistency)
        self._lock = threading.Lock()
        self._prepared: dict[str, Any] = {}

    def create(self) -> None:
        """Create the table unless it is there."""
        with driver_errors(f"creating table {self.name}"):
            self._session.execute(schema_cql(self._keyspace, self._table))

    def read(self, consumer: str, *, serial: bool = False) -> Row | None:
        """Return the highest epoch of *consumer*. *serial* waits for resets that are under way."""
        text = f"SELECT consumer, {_COLUMNS} FROM {self.name} WHERE consumer = ? LIMIT 1"
        with driver_errors(f"reading the cursor of consumer {consumer!r} from table {self.name}"):
            for row in self._run(text, (consumer,), serial=serial):
                return _row(row)
        return None

    def history(self, consumer: str) -> list[Row]:
        """Return all epochs of *consumer*, the highest first."""
        text = f"SELECT consumer, {_COLUMNS} FROM {self.name} WHERE consumer = ?"
        with driver_errors(f"reading the cursors of consumer {consumer!r} from table {self.name}"):
            return [_row(row) for row in self._run(text, (consumer,))]

    def rows(self) -> list[Row]:
        """Return the highest epoch of every consumer, in the order of the partitions."""
        text = f"SELECT consumer, {_COLUMNS} FROM {self.name} PER PARTITION LIMIT 1"
        with driver_errors(f"listing the cursors in table {self.name}"):
            return [_row(row) for row in self._run(text, ())]

    def advance(self, consumer: str, epoch: int, stamp: int, position: str, updated: str) -> None:
        """Write a position. The write timestamp is *stamp*, the same for all writes of an epoch."""
        # UPDATE, not INSERT: a row marker would keep a row alive that nothing else keeps. TTL 0 overrules a table
        # made by others with a default TTL.
        text = (
            f"UPDATE {self.name} USING TIMESTAMP ? AND TTL 0 SET position = ?, updated = ? "
            "WHERE consumer = ? AND epoch = ?"
        )
        with driver_errors(f"saving the cursor of consumer {consumer!r} in table {self.name}"):
            self._run(text, (stamp, position, updated, consumer, epoch))

    def touch(self) -> None:
        """Do what a reset does on a row that nobody has, under a condition that it is there: nothing is written."""
        text = f"UPDATE {self.name} SET reason = ? WHERE consumer = ? AND epoch = ? IF EXISTS"
        with driver_errors(f"writing to table {self.name}"):
            self._run(text, ("", _NOBODY, 0), idempotent=False)

    def open_epoch(self, row: Row) -> bool:
        """Insert a row for a new epoch, without a position; return False if that epoch exists."""
        text = (
            f"INSERT INTO {self.name} (consumer, epoch, start, stamp, opened, reason) "
            "VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS"
        )
        values = (row.consumer, row.epoch, row.start, row.stamp, row.opened, row.reason)
        with driver_errors(f"resetting the cursor of consumer {row.consumer!r} in table {self.name}"):
            for answer in self._run(text, values, idempotent=False):
                return bool(_values(answer)[0])
        raise QueryFailed(f"the conditional write to table {self.name} had no answer; is this a CQL database?")

    def _run(
        self, text: str, values: tuple[Any, ...], *, serial: bool = False, idempotent: bool = True
    ) -> Iterable[Any]:
        statement = self._statement(text, idempotent=idempotent).bind(values)
        if serial:
            statement.consistency_level = _SERIAL[self._consistency]
        return self._session.execute(statement)  # type: ignore[no-any-return]

    def _statement(self, text: str, *, idempotent: bool) -> Any:
        with self._lock:
            if text not in self._prepared:
                if not self._prepared:
                    self._require_table()
                statement = self._session.prepare(text)
                statement.consistency_level = self._consistency
                statement.serial_consistency_level = _SERIAL[self._consistency]
                statement.is_idempotent = idempotent
                self._prepared[text] = statement
            return self._prepared[text]

    def _require_table(self) -> None:
        """Create the table if that was asked for.

        Raises:
            TableNotFound: it, or its keyspace, is not there.
            ConfigError: it is a table of something else.
        """
        # Asked before the first prepare, because the driver logs a traceback for each prepare that fails.
        where = "keyspace_name = %s AND table_name = %s"
        columns = self._schema("column_name", "columns", where, self._keyspace, self._table)
        if columns:
            if lacking := [name for name in COLUMNS if name not in columns]:
                raise ConfigError(
                    f"table {self.name} is no cursor table, it has no column {', '.join(lacking)}; name another one, "
                    "which the store can create"
                )
            return
        if not self._schema("keyspace_name", "keyspaces", "keyspace_name = %s", self._keyspace):
            raise TableNotFound(
                f"keyspace {self._keyspace!r} does not exist, so it has no cursor table; create the keyspace, or name "
                "another one for the cursor store"
            )
        if not self._create:
            raise _no_table(self.name)
        self.create()

    def _schema(self, column: str, kind: str, where: str, *names: str) -> set[str]:
        answer = self._session.execute(f"SELECT {column} FROM system_schema.{kind} WHERE {where}", names)
        return {_values(row)[0] for row in answer}


@contextmanager
def driver_errors(doing: str) -> Iterator[None]:
    """Turn errors of the driver into ours; *doing* tells what was tried, such as "saving the cursor of ..."."""
    try:
        yield
    except _DRIVER as e:
        raise _translate(e, doing) from e


def _translate(error: BaseException, doing: str) -> RscyllaError:
    kind = type(error).__name__
    if isinstance(error, cluster.NoHostAvailable):
        return _no_host(error, doing)
    if isinstance(error, cassandra.AuthenticationFailed | protocol.BadCredentials):
        return AuthenticationFailed(f"{doing} failed: the cluster refused the user name or password; check both")
    if isinstance(error, cassandra.Unauthorized):
        return QueryFailed(f"{doing} failed: not permitted; grant this user SELECT and MODIFY on the table")
    if isinstance(error, _LATE):
        return QueryTimeout(f"{doing} did not succeed in time ({kind}); it is safe to try again")
    if isinstance(error, _UNREACHABLE):
        return ConnectionFailed(f"{doing} failed: not enough nodes could be reached ({kind}); are they up?")
    text = str(error)
    if isinstance(error, cassandra.InvalidRequest) and "unconfigured table" in text:
        return _no_table(doing)
    if isinstance(error, cassandra.InvalidRequest) and "not yet supported with tablets" in text:
        return QueryFailed(
            f"{doing} failed: this version of Scylla has no conditional writes in keyspaces with tablets; keep cursors "
            "in a keyspace created WITH tablets = {'enabled': false}"
        )
    return QueryFailed(f"{doing} failed for good ({kind}); the cause says why")


def _no_host(error: cluster.NoHostAvailable, doing: str) -> RscyllaError:
    """Return what the nodes' answers have in common: refused credentials count, the rest is a lost connection."""
    answers = error.errors.values() if isinstance(error.errors, Mapping) else ()
    for answer in answers:
        if isinstance(answer, cassandra.AuthenticationFailed):
            return _translate(answer, doing)
    return ConnectionFailed(f"{doing} failed: no node could be reached; is the cluster up and the address right?")


def _no_table(what: str) -> TableNotFound:
    return TableNotFound(
        f"no cursor table: {what}; create it with create_schema() or create=True of the store, --create-store of "
        "`rscylla tail`, or the statement that `rscylla cursor schema` prints"
    )


def _consistency(level: int | str) -> int:
    """Return the driver's number of a consistency level that lets each read see all earlier writes."""
    number: int = ConsistencyLevel.name_to_value.get(level.upper(), -1) if isinstance(level, str) else level
    if number not in _SERIAL:
        raise ConfigError(
            "a cursor store needs reads that see earlier writes; its consistency is one of LOCAL_QUORUM, QUORUM, ALL"
        )
    return number


def _row(row: Any) -> Row:
    consumer, epoch, position, updated, start, stamp, opened, reason = _values(row)
    return Row(consumer, epoch, position or "", updated or "", start or "", stamp, opened or "", reason or "")


def _values(row: Any) -> tuple[Any, ...]:
    """Return the values of a row in the order of its columns, whatever row factory the caller's session has."""
    return tuple(row.values()) if isinstance(row, Mapping) else tuple(row)
