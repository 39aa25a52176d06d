"""The only door of the stores to the driver: a table with its prepared statements."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import cassandra
from cassandra import ConsistencyLevel

from rscylla._drivererrors import DRIVER_ERRORS, translate
from rscylla._retry import retry
from rscylla.errors import ConfigError, QueryFailed, RscyllaError, TableNotFound

from .schema import TableKind, qualified

__all__ = ["StoreTable", "values_of"]

# The level of the Paxos rounds: it has to span the same data centers as plain reads and writes do.
_SERIAL = {
    ConsistencyLevel.LOCAL_QUORUM: ConsistencyLevel.LOCAL_SERIAL,
    ConsistencyLevel.QUORUM: ConsistencyLevel.SERIAL,
    ConsistencyLevel.ALL: ConsistencyLevel.SERIAL,
}

_SERIAL_TRIES = 5


class StoreTable:
    """Statements on one table. Thread-safe. Everything is prepared at first use, on the caller's session."""

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
        """Create the table unless it is there."""
        with self.errors(f"creating table {self.name}"):
            self._session.execute(self._kind.cql(self._keyspace, self._table))

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn errors of the driver into ours; *doing* tells what was tried, such as "saving the cursor of ..."."""
        try:
            yield
        except DRIVER_ERRORS as e:
            raise self._translate(e, doing) from e

    def _translate(self, error: BaseException, doing: str) -> RscyllaError:
        text = str(error)
        # Scylla's words, and Cassandra's.
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
        """Execute *text* and return its rows. *serial* reads what conditional writes under way will leave.

        *timeout_s*: how long to wait for the answer, if not as long as the session does.
        """
        statement = self._statement(text, idempotent=idempotent).bind(values)
        if not serial:
            waiting = {} if timeout_s is None else {"timeout": timeout_s}
            return self._session.execute(statement, **waiting)  # type: ignore[no-any-return]
        statement.consistency_level = _SERIAL[self._consistency]
        # A WriteTimeout is how Cassandra ends a serial read that met a conditional write.
        return retry(
            lambda: self._session.execute(statement),
            attempts=_SERIAL_TRIES,
            again=lambda error: isinstance(error, cassandra.WriteTimeout),
        )

    def applied(self, text: str, values: tuple[Any, ...], *, timeout_s: float | None = None) -> bool:
        """Execute a conditional write and return whether its condition held.

        After ``QueryTimeout`` and ``ConnectionFailed`` it is not known; a serial read tells what came of it.
        """
        for answer in self.run(text, values, idempotent=False, timeout_s=timeout_s):
            return bool(values_of(answer)[0])
        raise QueryFailed(
            f"the conditional write to table {self.name} returned no result; check that the session is "
            "connected to ScyllaDB or Cassandra"
        )

    def _statement(self, text: str, *, idempotent: bool) -> Any:
        with self._lock:
            if text not in self._prepared:
                # Before the first statement only; after that the table is there.
                if not self._prepared:
                    self._require_table()
                statement = self._prepare(text)
                statement.consistency_level = self._consistency
                statement.serial_consistency_level = _SERIAL[self._consistency]
                # The driver may send an idempotent statement twice; a conditional write would then meet its own result.
                statement.is_idempotent = idempotent
                self._prepared[text] = statement
            return self._prepared[text]

    def _prepare(self, text: str) -> Any:
        try:
            return self._session.prepare(text)
        except cassandra.InvalidRequest:
            if not self._create:
                raise
        # Another client has just created the table, and not all nodes know of it. This waits until they agree.
        self._session.cluster.refresh_table_metadata(self._keyspace, self._table)
        return self._session.prepare(text)

    def _require_table(self) -> None:
        """Create the table if that was asked for.

        Raises:
            TableNotFound: it, or its keyspace, is not there.
            ConfigError: it is a table of something else.
        """
        # Asked before the first prepare, because the driver logs a traceback for each prepare that fails.
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


def values_of(row: Any) -> tuple[Any, ...]:
    """Return the values of a row in the order of its columns, whatever row factory the caller's session has."""
    return tuple(row.values()) if isinstance(row, Mapping) else tuple(row)


def _no_table(what: str, table: TableKind) -> TableNotFound:
    return TableNotFound(f"no {table.what}: {what}; {table.hint}")


def _consistency(level: int | str) -> int:
    """Return the driver's number of a consistency level that lets each read see all earlier writes."""
    number: int = ConsistencyLevel.name_to_value.get(level.upper(), -1) if isinstance(level, str) else level
    if number not in _SERIAL:
        raise ConfigError(
            "a store requires reads that see earlier writes; set consistency to one of LOCAL_QUORUM, QUORUM, ALL"
        )
    return number
