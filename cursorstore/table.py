"""Tables of stores: their schemas, and their prepared statements. Only this module of the stores imports the driver."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import attrs
import cassandra
from cassandra import ConsistencyLevel

from rscylla._retry import retry
from rscylla.driver import DRIVER_ERRORS, translate
from rscylla.errors import ConfigError, ConnectionFailed, QueryFailed, QueryTimeout, RscyllaError, TableNotFound

__all__ = [
    "InTable",
    "StoreTable",
    "TableKind",
    "check_name",
    "values_of",
]

T = TypeVar("T")

# The level of the Paxos rounds, which must span the same data centers as plain reads and writes.
_SERIAL = {
    ConsistencyLevel.LOCAL_QUORUM: ConsistencyLevel.LOCAL_SERIAL,
    ConsistencyLevel.QUORUM: ConsistencyLevel.SERIAL,
    ConsistencyLevel.ALL: ConsistencyLevel.SERIAL,
}

_SERIAL_TRIES = 5
"""Attempts at a serial read, which fails while it meets conditional writes."""


@attrs.frozen
class TableKind:
    """The schema of a kind of table. ``columns`` has their types by name; ``hint`` says how to create such a table."""

    what: str
    table: str
    columns: Mapping[str, str]
    primary_key: str
    options: str
    comment: str
    hint: str

    def cql(self, keyspace: str, table: str | None = None) -> str:
        """Return the statement that creates the table, without a semicolon.

        Use it where the library must not create tables itself.

        Args:
            table: its name; default: the usual one of its kind.

        Raises:
            ConfigError: a name is not a valid name of a keyspace or table.
        """
        columns = "".join(f"    {name} {kind},\n" for name, kind in self.columns.items())
        # No default TTL: an expiring cell would win over a plain one of the same timestamp, and then vanish.
        return (
            f"CREATE TABLE IF NOT EXISTS {qualified(keyspace, self.table if table is None else table)} (\n{columns}"
            f"    PRIMARY KEY ({self.primary_key})\n)\n"
            f"WITH {self.options}default_time_to_live = 0\n    AND comment = '{self.comment}'"
        )


class StoreTable:
    """Statements on one table, prepared on first use on the caller's session. Thread-safe."""

    def __init__(
        self, session: Any, kind: TableKind, keyspace: str, table: str, *, create: bool, consistency: int | str
    ) -> None:
        self.name = qualified(keyspace, table)
        self._session = session
        self._kind = kind
        self._keyspace = keyspace
        self._table = table
        self._create = create
        self._consistency = _consistency(consistency)
        self._lock = threading.Lock()
        self._prepared: dict[str, Any] = {}

    def create(self) -> None:
        """Create the table if it does not exist."""
        with self.errors(f"creating table {self.name}"):
            self._session.execute(self._kind.cql(self._keyspace, self._table))

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Translate errors of the driver to ours. *doing* starts the message, such as "saving the cursor of ..."."""
        try:
            yield
        except DRIVER_ERRORS as e:
            raise self._translate(e, doing) from e

    def _translate(self, error: BaseException, doing: str) -> RscyllaError:
        text = str(error)
        # The messages of Scylla and of Cassandra.
        if isinstance(error, cassandra.InvalidRequest) and ("unconfigured table" in text or "does not exist" in text):
            return _no_table(doing, self._kind)
        if isinstance(error, cassandra.InvalidRequest) and "not yet supported with tablets" in text:
            return QueryFailed(
                f"{doing}: this version of Scylla does not support conditional writes in keyspaces with tablets; "
                "create this table in a keyspace created WITH tablets = {'enabled': false}"
            )
        return translate(error, doing, grant="SELECT and MODIFY on the table", quote=False)

    def run(
        self,
        text: str,
        values: tuple[Any, ...],
        *,
        serial: bool = False,
        idempotent: bool = True,
        timeout_s: float | None = None,
    ) -> Iterable[Any]:
        """Execute *text* and return its rows. A *serial* read includes conditional writes that are in progress.

        *timeout_s*: how long to wait for the answer; None: as long as the session is configured to wait.
        """
        try:
            statement = self._statement(text, idempotent=idempotent).bind(values)
        except UnicodeEncodeError as e:
            raise ConfigError(
                f"table {self.name} takes no text with half of a pair of surrogates; pass valid text"
            ) from e
        waiting = {} if timeout_s is None else {"timeout": timeout_s}
        if not serial:
            return self._session.execute(statement, **waiting)  # type: ignore[no-any-return]
        statement.consistency_level = _SERIAL[self._consistency]
        # Cassandra ends a serial read that meets a conditional write with a WriteTimeout.
        return retry(
            lambda: self._session.execute(statement, **waiting),
            attempts=_SERIAL_TRIES,
            again=lambda error: isinstance(error, cassandra.WriteTimeout),
        )

    def applied(self, text: str, values: tuple[Any, ...], *, timeout_s: float | None = None) -> bool:
        """Execute a conditional write and return whether its condition held.

        After ``QueryTimeout`` and ``ConnectionFailed``, the result is unknown until a serial read shows it.
        """
        for answer in self.run(text, values, idempotent=False, timeout_s=timeout_s):
            return bool(values_of(answer)[0])
        raise QueryFailed(
            f"the conditional write to table {self.name} returned no result; check that the session is "
            "connected to ScyllaDB or Cassandra"
        )

    def settled(
        self, text: str, values: tuple[Any, ...], read: Callable[[], T | None], done: Callable[[T], bool]
    ) -> bool:
        """Execute a conditional write and return whether it was applied, also if its answer does not say so.

        *read* is a serial read, and *done* says of what it returns whether what the write asks for is there. They are
        asked after a refusal, too: the driver may have sent the write twice, and the first one makes the second one
        fail. A write whose answer is unknown, and which is not found, is an error: to say that it was refused would
        lose it.
        """
        unknown: Exception | None = None
        try:
            with self.errors(f"writing to table {self.name}"):
                if self.applied(text, values):
                    return True
        except (QueryTimeout, ConnectionFailed) as e:
            unknown = e
        found = read()
        if found is not None and done(found):
            return True
        if unknown is not None:
            raise unknown
        return False

    def _statement(self, text: str, *, idempotent: bool) -> Any:
        with self._lock:
            if text not in self._prepared:
                # Only before the first statement; after it, the table exists.
                if not self._prepared:
                    self._require_table()
                statement = self._prepare(text)
                statement.consistency_level = self._consistency
                statement.serial_consistency_level = _SERIAL[self._consistency]
                # The driver may send an idempotent statement twice. A conditional write that did would fail on its own
                # result.
                statement.is_idempotent = idempotent
                self._prepared[text] = statement
            return self._prepared[text]

    def _prepare(self, text: str) -> Any:
        try:
            return self._session.prepare(text)
        except cassandra.InvalidRequest:
            if not self._create:
                raise
        # Another client has just created the table, and not all nodes know it yet. The refresh waits until they agree.
        self._session.cluster.refresh_table_metadata(self._keyspace, self._table)
        return self._session.prepare(text)

    def _require_table(self) -> None:
        """Check that the table exists and has the right columns; create it if ``create`` allows that.

        Raises:
            TableNotFound: the table or its keyspace does not exist.
            ConfigError: it is a table of another kind.
        """
        # Checked before the first prepare, because the driver logs a traceback for each prepare that fails.
        what = self._kind.what
        where = "keyspace_name = %s AND table_name = %s"
        columns = self._schema("column_name", "columns", where, self._keyspace, self._table)
        if columns:
            if lacking := [name for name in self._kind.columns if name not in columns]:
                raise ConfigError(
                    f"table {self.name} is not a {what}, because it lacks the columns {', '.join(lacking)}; use "
                    "another name, or add the columns if an earlier version created the table"
                )
            return
        if not self._schema("keyspace_name", "keyspaces", "keyspace_name = %s", self._keyspace):
            raise TableNotFound(
                f"keyspace {self._keyspace!r} does not exist, so it has no {what}; create the keyspace or use "
                "another one"
            )
        if not self._create:
            raise _no_table(self.name, self._kind)
        self.create()

    def _schema(self, column: str, kind: str, where: str, *names: str) -> set[str]:
        answer = self._session.execute(f"SELECT {column} FROM system_schema.{kind} WHERE {where}", names)
        return {values_of(row)[0] for row in answer}


def qualified(keyspace: str, table: str) -> str:
    """Return the quoted full name of a table. Both names are case-sensitive."""
    for what, name in (("keyspace", keyspace), ("table", table)):
        if not isinstance(name, str) or not re.fullmatch(r"\w{1,192}", name, re.ASCII):
            raise ConfigError(
                f"{name!r} cannot be the name of a {what}; use only letters, digits, and _, without quotes"
            )
    return f'"{keyspace}"."{table}"'


def check_name(what: str, name: str, *, least: int = 1, most: int = 65_535) -> None:
    """Raise ``ConfigError`` if *name*, which is *what*, cannot be a key of a table, or text of so many bytes."""
    try:
        size = -1 if not isinstance(name, str) else len(name) if name.isascii() else len(name.encode())
    except UnicodeEncodeError:  # half of a pair of surrogates
        size = -1
    if not least <= size <= most:
        raise ConfigError(f"{what} must be text of {least} to {most} bytes")


class InTable:
    """What is kept in one table."""

    _table: StoreTable

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._table.name}>"

    def create_schema(self) -> None:
        """Create the table if it does not exist."""
        self._table.create()


def values_of(row: Any) -> tuple[Any, ...]:
    """Return the values of a row in the order of its columns, whatever row factory the caller's session has."""
    # The driver makes a class of tuples for each result, which an abstract class has never seen: asking it is slow.
    return tuple(row.values()) if not isinstance(row, tuple) and isinstance(row, Mapping) else tuple(row)


def _no_table(what: str, table: TableKind) -> TableNotFound:
    return TableNotFound(f"no {table.what}: {what}; {table.hint}")


def _consistency(level: int | str) -> int:
    """Return the driver's number of *level*; raise ``ConfigError`` unless reads with it see all earlier writes."""
    number: int = ConsistencyLevel.name_to_value.get(level.upper(), -1) if isinstance(level, str) else level
    if number not in _SERIAL:
        raise ConfigError(
            "a store requires reads that see earlier writes; set consistency to one of LOCAL_QUORUM, QUORUM, ALL"
        )
    return number
