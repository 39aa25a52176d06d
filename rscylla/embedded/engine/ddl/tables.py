"""CREATE TABLE and DROP TABLE."""

from __future__ import annotations

import re
import uuid
from typing import Any, Final

from ...cdclog.log import cdc_options
from ...cql import ast
from ...errors import AlreadyExists, ConfigError, InvalidRequest, Unauthorized
from ...result import SchemaChange
from ...schema.properties import DEFAULTS, table_options
from ...schema.tables import PAXOS_SUFFIX, CdcOptions, Column, Keyspace, TableSchema
from ...schema.udts import parts
from ...storage.rowttl import created_ttl_column
from ...types import BLOB, COUNTER, DURATION, TIMEUUID, CqlType, UdtType
from .base import MAX_NAME
from .logs import LogEditing

__all__ = ["TableEditing", "sorted_rest"]

_NAME = re.compile(r"\w+\Z", re.ASCII)
_PAXOS: Final[dict[str, CqlType]] = {
    "most_recent_commit": BLOB,
    "most_recent_commit_at": TIMEUUID,
    "promise": TIMEUUID,
    "proposal": BLOB,
    "proposal_ballot": TIMEUUID,
}


class TableEditing(LogEditing):
    def _create_table(self, statement: ast.CreateTable, current: str | None, changes: list[SchemaChange]) -> None:
        keyspace = self._keyspace(statement.table, current)
        name = statement.table.name
        if not _NAME.match(name):
            raise InvalidRequest(
                f'"{name}" is not a valid table name (must be alphanumeric character only: [0-9A-Za-z]+)'
            )
        if len(name) > MAX_NAME:
            raise InvalidRequest(f'Table names shouldn\'t be more than {MAX_NAME} characters long (got "{name}")')
        if name in keyspace.tables:
            if statement.if_not_exists:
                return
            raise AlreadyExists(
                f'Cannot add already existing table "{name}" to keyspace "{keyspace.name}"', keyspace.name, name
            )
        if statement.compact_storage:
            raise InvalidRequest("COMPACT STORAGE tables are not supported by the embedded server")
        columns = self._new_columns(keyspace, statement)
        cdc = cdc_options(statement.options["cdc"], self.cluster.release) if "cdc" in statement.options else None
        self._check_replicas(keyspace)
        self._check_counters(keyspace, name, columns, cdc)
        self._check_tablet_hints(keyspace, statement.options)
        table = TableSchema(
            keyspace.name,
            name,
            self._table_id(statement.options.get("id")),
            uuid.uuid4(),
            columns,
            table_options(statement.options, DEFAULTS),
            cdc,
            ttl_column=created_ttl_column(columns, [column.name for column in statement.columns if column.expires]),
        )
        # Before anything is put in its place: a log that cannot be made refuses the whole statement.
        log = self._log_of(keyspace, table) if cdc is not None and cdc.enabled else None
        # The base first: the first change is what the client is answered.
        self._put(keyspace, table, "CREATED", changes)
        if log is not None:
            self._put(keyspace, log, "CREATED", changes)

    def make_paxos_table(self, base: TableSchema) -> list[SchemaChange]:
        """Make the table of the Paxos rounds of *base*. Source: Scylla ``service/paxos/paxos_state.cc``."""
        changes: list[SchemaChange] = []
        self._written_us = self.now_us()
        keyspace, name = self.schema.keyspaces[base.keyspace], base.name + PAXOS_SUFFIX
        columns = (Column("row_key", BLOB, "partition_key", 0), *(Column(n, t, "regular") for n, t in _PAXOS.items()))
        options = DEFAULTS | {"gc_grace_seconds": 0, "comment": f"Paxos state for {base.keyspace}.{base.name}"}
        table = TableSchema(keyspace.name, name, self._new_table_id(), uuid.uuid4(), columns, options)
        self._put(keyspace, table, "CREATED", changes)
        self.schema.version = uuid.uuid4()
        return changes

    def _table_id(self, given: Any) -> uuid.UUID:
        """Return the id that the statement gives, or a new one."""
        if given is None:
            return self._new_table_id()
        try:
            identity = uuid.UUID(given)
        except (TypeError, ValueError, AttributeError):
            raise ConfigError(f"Invalid table id {given}") from None
        for keyspace in self.schema.keyspaces.values():
            if any(table.id == identity for table in keyspace.tables.values()):
                raise InvalidRequest(f"Table with id {identity} already exists")
        return identity

    def _new_columns(self, keyspace: Keyspace, statement: ast.CreateTable) -> tuple[Column, ...]:
        types: dict[str, CqlType] = {}
        static: set[str] = set()
        for column in statement.columns:
            if column.name in types:
                raise InvalidRequest(f"Multiple definition of identifier {column.name}")
            types[column.name] = self._column_type(keyspace, column.type_text)
            if column.static:
                static.add(column.name)
        if not statement.partition_key:
            raise InvalidRequest("No PRIMARY KEY specified (exactly one required)")
        keys = (*statement.partition_key, *statement.clustering_key)
        for at, name in enumerate(keys):
            if name not in types:
                raise InvalidRequest(f"Unknown definition {name} referenced in PRIMARY KEY")
            if name in keys[:at]:
                raise InvalidRequest(f"Multiple definition of identifier {name} in PRIMARY KEY")
            _check_key_type(name, types[name], is_static=name in static)
        if static and not statement.clustering_key:
            raise InvalidRequest(
                "Static columns are only useful (and thus allowed) if the table has at least one clustering column"
            )
        order = _clustering_order(statement)
        columns = [Column(n, types[n], "partition_key", at) for at, n in enumerate(statement.partition_key)]
        columns += [Column(n, types[n], "clustering", at, order[n]) for at, n in enumerate(statement.clustering_key)]
        rest = [Column(n, t, "static" if n in static else "regular") for n, t in types.items() if n not in keys]
        return (*columns, *sorted_rest(rest))

    def _check_replicas(self, keyspace: Keyspace) -> None:
        """Refuse a table whose tablets have fewer nodes than replicas. Source: ``network_topology_strategy.cc``."""
        if keyspace.tablets is None:
            return
        for dc, factor in keyspace.options["replication"].items():
            if dc != "class" and int(factor) > self.cluster.owners(dc):
                raise ConfigError(
                    f"Datacenter {dc} doesn't have enough token-owning nodes for replication_factor={factor}"
                )

    def _check_counters(
        self, keyspace: Keyspace, name: str, columns: tuple[Column, ...], cdc: CdcOptions | None
    ) -> None:
        if not any(column.type == COUNTER for column in columns):
            return
        if keyspace.tablets is not None and not self.cluster.release.has("counters with tablets"):
            raise InvalidRequest(
                f"Cannot use the 'counter' type for table {keyspace.name}.{name}: Counters are not yet supported with"
                " tablets"
            )
        if cdc is not None and cdc.enabled:
            raise InvalidRequest(
                f"Cannot create CDC log for table {keyspace.name}.{name}. Counter support not implemented"
            )
        # What Scylla refuses comes first, with its words; this is a limit of ours.
        raise InvalidRequest("counter tables are not supported by the embedded server")

    def _drop_table(self, statement: ast.DropTable, current: str | None, changes: list[SchemaChange]) -> None:
        if statement.if_exists and not self._has_keyspace(statement.table, current):
            return
        keyspace = self._keyspace(statement.table, current)
        name = statement.table.name
        if statement.if_exists and name not in keyspace.tables:
            return
        table = self._find_table(keyspace, name)
        if table.is_cdc_log:
            base = keyspace.tables.get(table.cdc_base or "")
            if base is not None and base.cdc is not None and base.cdc.enabled:
                raise Unauthorized(f"Cannot DROP cdc log table {name}")
        self._remove(keyspace, table, changes)
        self._remove_log(keyspace, name, changes)  # with CDC off as well, as in Scylla
        if (rounds := keyspace.tables.get(name + PAXOS_SUFFIX)) is not None:
            self._remove(keyspace, rounds, changes)


def _check_key_type(name: str, cql_type: CqlType, *, is_static: bool) -> None:
    if cql_type == COUNTER:
        raise InvalidRequest(f"counter type is not supported for PRIMARY KEY part {name}")
    if DURATION in parts(cql_type):
        raise InvalidRequest(f"duration type is not supported for PRIMARY KEY part {name}")
    if is_static:
        raise InvalidRequest(f"Static column {name} cannot be part of the PRIMARY KEY")
    if cql_type.is_multicell:
        kind = "user-defined type" if isinstance(cql_type, UdtType) else "collection type"
        raise InvalidRequest(f"Invalid non-frozen {kind} for PRIMARY KEY component {name}")


def _clustering_order(statement: ast.CreateTable) -> dict[str, bool]:
    """Return whether each clustering column is DESC. A directive may leave out columns at the end."""
    given, key = statement.clustering_order, statement.clustering_key
    if len(given) > len(key):
        raise InvalidRequest("Only clustering key columns can be defined in CLUSTERING ORDER directive")
    directions = dict(given)
    for (name, _), expected in zip(given, key, strict=False):
        if name != expected:
            if expected not in directions:
                raise InvalidRequest(f"Missing CLUSTERING ORDER for column {expected}")
            raise InvalidRequest(
                "The order of columns in the CLUSTERING ORDER directive must be the one of the clustering key"
                f" ({expected} must appear before {name})"
            )
    return {name: directions.get(name, "asc") == "desc" for name in key}


def sorted_rest(columns: list[Column]) -> tuple[Column, ...]:
    """Return static columns, then regular ones, each by the bytes of their names: the order of ``SELECT *``."""
    return tuple(sorted(columns, key=lambda c: (c.kind != "static", c.name.encode())))
