"""Schema statements: CREATE, ALTER and DROP of keyspaces, tables and types, with CDC logs following their tables."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Collection
from typing import Any, Protocol

import attrs

from ..cdclog.log import altered_cdc_options, cdc_options, log_columns, log_options
from ..cql import ast
from ..errors import AlreadyExists, ConfigError, InvalidRequest, SyntaxException, Unauthorized
from ..result import SchemaChange
from ..schema.properties import DEFAULTS, keyspace_options, table_options, tablets_option
from ..schema.tables import LOG_SUFFIX, CdcOptions, Column, Keyspace, Schema, TableSchema
from ..schema.udts import replace_udt
from ..storage.rowttl import altered_ttl_column, created_ttl_column
from ..types import (
    BIGINT,
    COUNTER,
    DURATION,
    CqlType,
    ListType,
    MapType,
    SetType,
    UdtType,
    has_grown_from,
    parse_type,
    term_bytes,
)
from ..types.timeuuid import TimeUuids
from .binding import find_udt

__all__ = ["DdlStatement", "SchemaEditor", "SchemaStores"]

# Scylla's limits: 192 characters leave room for the suffix of the log.
_NAME = re.compile(r"\w{1,48}\Z", re.ASCII)
_TABLE_NAME = re.compile(r"\w{1,192}\Z", re.ASCII)
_LOG_DROP_DELAY_US = 5_000_000  # as in Scylla, a column that leaves the log counts as dropped only this much later

_LOG_COLUMNS = "You cannot modify the set of columns of a CDC log table directly. "
_DETACHED = (
    "Although the base table has deactivated CDC, this table will continue being a CDC log table until it is dropped. "
)

DdlStatement = (
    ast.CreateKeyspace
    | ast.AlterKeyspace
    | ast.DropKeyspace
    | ast.CreateTable
    | ast.AlterTable
    | ast.DropTable
    | ast.CreateType
    | ast.AlterType
    | ast.DropType
)


class SchemaStores(Protocol):
    """Who keeps the tables' data. Called once the schema holds the new state, in the same thread."""

    def table_changed(self, table: TableSchema) -> None:
        """``table`` is new, or is the new form of the table with its id."""
        ...

    def table_dropped(self, table: TableSchema) -> None:
        """``table`` is no longer there: its data goes."""
        ...


@attrs.define
class SchemaEditor:
    """Carries out schema statements. ``now_us`` reads the server's clock; ``system`` names protected keyspaces.

    ``datacenters`` returns the names of those that the cluster has. ``tablets`` tells whether new keyspaces use
    tablets where nothing else is said; None is a Scylla without them.
    """

    schema: Schema
    stores: SchemaStores
    now_us: Callable[[], int]
    system: frozenset[str]
    datacenters: Callable[[], Collection[str]]
    tablets: Callable[[], bool | None]
    _table_ids: TimeUuids = attrs.field(factory=TimeUuids, init=False)
    _written_us: int = attrs.field(default=0, init=False)

    def apply(self, statement: DdlStatement, keyspace: str | None) -> tuple[SchemaChange | None, list[SchemaChange]]:
        """Return the change asked for (None when there was nothing to do) and all changes made, logs included."""
        changes: list[SchemaChange] = []
        self._written_us = self.now_us()
        handler: Any = {
            ast.CreateKeyspace: self._create_keyspace,
            ast.AlterKeyspace: self._alter_keyspace,
            ast.DropKeyspace: self._drop_keyspace,
            ast.CreateTable: self._create_table,
            ast.AlterTable: self._alter_table,
            ast.DropTable: self._drop_table,
            ast.CreateType: self._create_type,
            ast.AlterType: self._alter_type,
            ast.DropType: self._drop_type,
        }[type(statement)]
        if isinstance(statement, ast.CreateKeyspace | ast.AlterKeyspace | ast.DropKeyspace):
            handler(statement, changes)
        else:
            handler(statement, keyspace, changes)
        if changes:
            self.schema.version = uuid.uuid4()
        return (changes[0] if changes else None), changes

    # ------------------------------------------------------------ keyspaces

    def _create_keyspace(self, statement: ast.CreateKeyspace, changes: list[SchemaChange]) -> None:
        name = statement.name
        if not _NAME.match(name):
            raise InvalidRequest(f'"{name}" is not a valid keyspace name')
        self._protect(name)
        if name in self.schema.keyspaces:
            if statement.if_not_exists:
                return
            raise AlreadyExists(f'Cannot add existing keyspace "{name}"', name)
        self._check_tablets_known(statement.options)
        options = keyspace_options(statement.options, None, self.datacenters())
        tablets = tablets_option(statement.options, options["replication"], default=bool(self.tablets()))
        self.schema.keyspaces[name] = Keyspace(name, options, tablets)
        changes.append(SchemaChange("CREATED", "KEYSPACE", name))

    def _alter_keyspace(self, statement: ast.AlterKeyspace, changes: list[SchemaChange]) -> None:
        self._protect(statement.name)
        found = self.schema.keyspaces.get(statement.name)
        if found is None:
            if statement.if_exists:
                return
            raise InvalidRequest(f"Unknown keyspace {statement.name}")
        self._check_tablets_known(statement.options)
        options = keyspace_options(statement.options, found.options, self.datacenters())
        # The number of tablets may change; vnodes and tablets cannot be turned into each other.
        if "tablets" in statement.options:
            tablets = tablets_option(statement.options, options["replication"], default=False)
            if (tablets is None) != (found.tablets is None):
                raise InvalidRequest("Cannot alter replication strategy vnode/tablets flavor")
            found.tablets = tablets
        found.options = options
        changes.append(SchemaChange("UPDATED", "KEYSPACE", statement.name))

    def _check_tablets_known(self, options: dict[str, Any]) -> None:
        if self.tablets() is None and "tablets" in options:
            raise SyntaxException("Unknown property 'tablets'")

    def _drop_keyspace(self, statement: ast.DropKeyspace, changes: list[SchemaChange]) -> None:
        self._protect(statement.name)
        found = self.schema.keyspaces.pop(statement.name, None)
        if found is None:
            if statement.if_exists:
                return
            raise ConfigError(f"Cannot drop non existing keyspace '{statement.name}'.")
        for table in found.tables.values():
            self.stores.table_dropped(table)
        changes.append(SchemaChange("DROPPED", "KEYSPACE", statement.name))

    def _protect(self, keyspace: str) -> None:
        if keyspace in self.system:
            raise Unauthorized(f"{keyspace} keyspace is not user-modifiable.")

    def _keyspace(self, name: ast.TableName, current: str | None) -> Keyspace:
        keyspace = name.keyspace or current
        if keyspace is None:
            raise InvalidRequest(
                "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename"
            )
        self._protect(keyspace)
        found = self.schema.keyspaces.get(keyspace)
        if found is None:
            raise InvalidRequest(f"Keyspace '{keyspace}' does not exist")
        return found

    def _type(self, keyspace: Keyspace, text: str) -> CqlType:
        return parse_type(text, lambda name: find_udt(self.schema, keyspace.name, name))

    # ------------------------------------------------------------ tables

    def _create_table(self, statement: ast.CreateTable, current: str | None, changes: list[SchemaChange]) -> None:
        keyspace = self._keyspace(statement.table, current)
        name = statement.table.name
        if not _TABLE_NAME.match(name):
            raise InvalidRequest(f'"{name}" is not a valid table name (must be alphanumeric, at most 192 characters)')
        if name in keyspace.tables:
            if statement.if_not_exists:
                return
            raise AlreadyExists(
                f'Cannot add already existing table "{name}" to keyspace "{keyspace.name}"', keyspace.name, name
            )
        if statement.compact_storage:
            raise InvalidRequest("COMPACT STORAGE tables are not supported by the embedded server")
        columns = self._new_columns(keyspace, statement)
        cdc = cdc_options(statement.options["cdc"]) if "cdc" in statement.options else None
        self._check_counters(keyspace, name, columns, cdc)
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

    def _new_table_id(self) -> uuid.UUID:
        """Return a timeuuid of now, as Scylla's ``schema_builder`` gives each new table, and so each new CDC log."""
        return uuid.UUID(bytes=self._table_ids.next(self.now_us()))

    def _new_columns(self, keyspace: Keyspace, statement: ast.CreateTable) -> tuple[Column, ...]:
        types: dict[str, CqlType] = {}
        static: set[str] = set()
        for column in statement.columns:
            if column.name in types:
                raise InvalidRequest(f"Multiple definition of identifier {column.name}")
            types[column.name] = self._type(keyspace, column.type_text)
            if column.static:
                static.add(column.name)
        if not statement.partition_key:
            raise InvalidRequest("No PRIMARY KEY specifed (exactly one required)")
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
        return (*columns, *_sorted_rest(rest))

    @staticmethod
    def _check_counters(keyspace: Keyspace, name: str, columns: tuple[Column, ...], cdc: CdcOptions | None) -> None:
        if not any(column.type == COUNTER for column in columns):
            return
        if cdc is not None and cdc.enabled:
            raise InvalidRequest(
                f"Cannot create CDC log for table {keyspace.name}.{name}. Counter support not implemented"
            )
        # What Scylla refuses comes first, with its words; this is a limit of ours.
        raise InvalidRequest("counter tables are not supported by the embedded server")

    def _put(self, keyspace: Keyspace, table: TableSchema, change: Any, changes: list[SchemaChange]) -> None:
        # All rows that a statement writes have one write time, and it does not write columns that it leaves alone.
        # Source: Scylla ``db/schema_tables.cc``, ``make_update_columns_mutations``.
        known = keyspace.tables[table.name].by_name if table.name in keyspace.tables else {}
        columns = tuple(
            known[c.name] if known.get(c.name) == c else attrs.evolve(c, written_us=self._written_us)
            for c in table.columns
        )
        table = attrs.evolve(table, columns=columns, written_us=self._written_us)
        keyspace.tables[table.name] = table
        self.stores.table_changed(table)
        changes.append(SchemaChange(change, "TABLE", keyspace.name, table.name))

    def _log_of(self, keyspace: Keyspace, base: TableSchema) -> TableSchema:
        """Return the log of ``base`` as it has to be now: a new one, or the present one with the base's columns."""
        name = base.name + LOG_SUFFIX
        columns = log_columns(base)
        known = keyspace.tables.get(name)
        if known is None:
            return TableSchema(
                base.keyspace,
                name,
                self._new_table_id(),
                uuid.uuid4(),
                columns,
                {**DEFAULTS, **log_options(base)},
                is_cdc_log=True,
                cdc_base=base.name,
            )
        if not known.is_cdc_log:
            raise InvalidRequest(
                f"Cannot create CDC log table for table {base.keyspace}.{base.name} because a table of name"
                f" {base.keyspace}.{name} already exists"
            )
        names = {column.name for column in columns}
        lost = dict(known.dropped)
        for column in known.columns:
            if column.name not in names:
                lost[column.name] = (column.type, self.now_us() + _LOG_DROP_DELAY_US)
        for column in columns:
            if column.name not in known.by_name:
                self._check_dropped(known, column)
        return attrs.evolve(known, version=uuid.uuid4(), columns=columns, dropped=lost, cdc_base=base.name)

    def _check_dropped(self, table: TableSchema, column: Column) -> None:
        """Refuse a column whose name was dropped at a time to come, or stood for a collection of another type."""
        if column.name not in table.dropped:
            return
        kind, timestamp = table.dropped[column.name]
        wait = math.ceil((timestamp - self.now_us()) / 1_000_000)
        if wait > 0:
            raise InvalidRequest(
                f"Cannot add column {column.name} because a column with the same name was dropped too recently."
                f" Please retry after {wait} seconds"
            )
        # Any other change of type is safe, because no cell from before the drop is read.
        collections = all(isinstance(t, ListType | SetType | MapType) and t.is_multicell for t in (kind, column.type))
        if collections and not has_grown_from(kind, column.type) and not table.is_cdc_log:
            raise InvalidRequest(
                f"Cannot add a collection with the name {column.name} because a collection with the same name and a"
                " different type has already been used in the past"
            )

    def _find_table(self, keyspace: Keyspace, name: str) -> TableSchema:
        table = keyspace.tables.get(name)
        if table is None:
            raise InvalidRequest(f"unconfigured table {name}")
        return table

    def _alter_table(self, statement: ast.AlterTable, current: str | None, changes: list[SchemaChange]) -> None:
        keyspace = self._keyspace(statement.table, current)
        if statement.if_exists and statement.table.name not in keyspace.tables:
            return
        table = self._find_table(keyspace, statement.table.name)
        if statement.options is not None:
            self._alter_options(keyspace, table, statement.options, changes)
            return
        if table.is_cdc_log:
            self._refuse_log_columns(keyspace, table, statement)
        ttl_column = table.ttl_column
        if statement.row_ttl is not None or statement.drop_row_ttl:
            columns, dropped, ttl_column = table.columns, table.dropped, altered_ttl_column(table, statement.row_ttl)
        elif statement.add:
            columns, dropped = self._added(keyspace, table, statement.add), table.dropped
        elif statement.drop:
            columns, dropped = self._dropped(table, statement)
        elif statement.rename:
            columns, dropped = _renamed(table, statement.rename), table.dropped
        else:
            raise InvalidRequest("ALTER TABLE ... TYPE is not supported by the embedded server")
        altered = attrs.evolve(table, version=uuid.uuid4(), columns=columns, dropped=dropped, ttl_column=ttl_column)
        log = self._log_of(keyspace, altered) if altered.cdc is not None and altered.cdc.enabled else None
        self._put(keyspace, altered, "UPDATED", changes)
        if log is not None:
            self._put(keyspace, log, "UPDATED", changes)

    def _refuse_log_columns(self, keyspace: Keyspace, log: TableSchema, statement: ast.AlterTable) -> None:
        base = keyspace.tables.get(log.cdc_base or "")
        attached = base is not None and base.cdc is not None and base.cdc.enabled
        if statement.rename:
            raise InvalidRequest(
                "Cannot rename a column of a CDC log table." + ("" if attached else " " + _DETACHED[:-1])
            )
        if attached:
            raise InvalidRequest(_LOG_COLUMNS + "Modify the base table instead.")
        raise InvalidRequest(
            _LOG_COLUMNS
            + _DETACHED
            + "If you want to modify the columns in it, you can only do that by reenabling CDC on the base table, which"
            " will reattach this log table. Then you will be able to modify the columns in the base table, and that"
            " will have effect on the log table too. Modifying the columns of a CDC log table directly is never"
            " allowed."
        )

    def _added(self, keyspace: Keyspace, table: TableSchema, added: tuple[ast.ColumnDef, ...]) -> tuple[Column, ...]:
        columns = list(table.columns)
        for item in added:
            if any(column.name == item.name for column in columns):
                raise InvalidRequest(f"Invalid column name {item.name} because it conflicts with an existing column")
            if item.static and not table.clustering_key:
                raise InvalidRequest(
                    "Static columns are only useful (and thus allowed) if the table has at least one clustering column"
                )
            column = Column(item.name, self._type(keyspace, item.type_text), "static" if item.static else "regular")
            if column.type == COUNTER:
                raise ConfigError(f"Cannot add a counter column ({item.name}) in a non counter column family")
            self._check_dropped(table, column)
            columns.append(column)
        keys = [c for c in columns if c.kind in ("partition_key", "clustering")]
        return (*keys, *_sorted_rest([c for c in columns if c not in keys]))

    def _dropped(self, table: TableSchema, statement: ast.AlterTable) -> tuple[tuple[Column, ...], dict[str, Any]]:
        timestamp = self.now_us()
        if statement.drop_timestamp is not None:
            raw = term_bytes(BIGINT, statement.drop_timestamp)
            timestamp = timestamp if raw is None else int.from_bytes(raw, "big", signed=True)
        dropped = dict(table.dropped)
        for name in statement.drop:
            column = table.by_name.get(name)
            if column is None:
                raise InvalidRequest(f"Column {name} was not found in table {table.name}")
            if column.kind in ("partition_key", "clustering"):
                raise InvalidRequest(f"Cannot drop PRIMARY KEY part {name}")
            if name == table.ttl_column:
                raise InvalidRequest(f"Cannot drop column {name}, which is the table's TTL column; first say TTL NULL")
            dropped[name] = (column.type, timestamp)
        return tuple(c for c in table.columns if c.name not in statement.drop), dropped

    def _alter_options(
        self, keyspace: Keyspace, table: TableSchema, given: dict[str, Any], changes: list[SchemaChange]
    ) -> None:
        if "id" in given:
            raise ConfigError("Cannot alter table id.")
        options = table_options(given, table.options, is_log=table.is_cdc_log)
        altered = attrs.evolve(table, version=uuid.uuid4(), options=options)
        log: TableSchema | None = None
        if "cdc" in given:
            cdc = altered_cdc_options(given["cdc"])
            if cdc.enabled and table.is_cdc_log:
                raise InvalidRequest(
                    f"Cannot create a CDC log for a table {keyspace.name}.{table.name}, because creating nested CDC"
                    " logs is not allowed"
                )
            altered = attrs.evolve(altered, cdc=cdc)
            if cdc.enabled:
                log = self._log_of(keyspace, altered)
        # A log that was left from an earlier time with CDC is attached again, not made.
        is_new = table.name + LOG_SUFFIX not in keyspace.tables
        self._put(keyspace, altered, "UPDATED", changes)
        if log is not None:
            self._put(keyspace, log, "CREATED" if is_new else "UPDATED", changes)

    def _drop_table(self, statement: ast.DropTable, current: str | None, changes: list[SchemaChange]) -> None:
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
        # With CDC off as well, as in Scylla. A table of the user's own that has such a name stays.
        log = keyspace.tables.get(name + LOG_SUFFIX)
        if log is not None and log.is_cdc_log and log.cdc_base == name:
            self._remove(keyspace, log, changes)

    def _remove(self, keyspace: Keyspace, table: TableSchema, changes: list[SchemaChange]) -> None:
        del keyspace.tables[table.name]
        self.stores.table_dropped(table)
        changes.append(SchemaChange("DROPPED", "TABLE", keyspace.name, table.name))

    # ------------------------------------------------------------ types

    def _create_type(self, statement: ast.CreateType, current: str | None, changes: list[SchemaChange]) -> None:
        keyspace = self._keyspace(statement.name, current)
        name = statement.name.name
        if name in keyspace.types:
            if statement.if_not_exists:
                return
            raise InvalidRequest(f"A user type of name {keyspace.name}.{name} already exists")
        fields = self._fields(keyspace, name, (), statement.fields)
        names, types = tuple(f for f, _ in fields), tuple(t for _, t in fields)
        keyspace.types[name] = UdtType(keyspace.name, name, names, types)
        changes.append(SchemaChange("CREATED", "TYPE", keyspace.name, name))

    def _fields(
        self, keyspace: Keyspace, name: str, known: tuple[str, ...], fields: tuple[tuple[str, str], ...]
    ) -> list[tuple[str, CqlType]]:
        out: list[tuple[str, CqlType]] = []
        seen = set(known)
        for field, text in fields:
            if field in seen:
                raise InvalidRequest(f"Duplicate field name {field} in type {name}")
            seen.add(field)
            kind = self._type(keyspace, text)
            if kind == COUNTER:
                raise InvalidRequest("A user type cannot contain counters")
            if kind.references(keyspace.name, name):
                raise InvalidRequest(
                    f"Cannot add new field {field} of type {text} to type {name}: it would contain itself"
                )
            out.append((field, kind))
        return out

    def _alter_type(self, statement: ast.AlterType, current: str | None, changes: list[SchemaChange]) -> None:
        keyspace = self._keyspace(statement.name, current)
        name = statement.name.name
        known = find_udt(self.schema, keyspace.name, name)
        names, types = list(known.field_names), list(known.field_types)
        for field, kind in self._fields(keyspace, name, known.field_names, statement.add):
            names.append(field)
            types.append(kind)
        for old, new in statement.rename:
            if old not in names:
                raise InvalidRequest(f"Unknown field {old} in type {name}")
            if new in names:
                raise InvalidRequest(f"Duplicate field name {new} in type {name}")
            names[names.index(old)] = new
        changed = UdtType(keyspace.name, name, tuple(names), tuple(types))
        keyspace.types = {
            key: changed if key == name else replace_udt(kind, changed) for key, kind in keyspace.types.items()
        }
        changes.append(SchemaChange("UPDATED", "TYPE", keyspace.name, name))
        # Columns hold their type as a value, so each table that uses the type gets a new form.
        for table in list(keyspace.tables.values()):
            columns = tuple(attrs.evolve(c, type=replace_udt(c.type, changed)) for c in table.columns)
            if columns != table.columns:
                self._put(keyspace, attrs.evolve(table, version=uuid.uuid4(), columns=columns), "UPDATED", changes)

    def _drop_type(self, statement: ast.DropType, current: str | None, changes: list[SchemaChange]) -> None:
        keyspace = self._keyspace(statement.name, current)
        name = statement.name.name
        if name not in keyspace.types:
            if statement.if_exists:
                return
            raise InvalidRequest(f"No user type named {keyspace.name}.{name} exists.")
        for other, kind in keyspace.types.items():
            if other != name and kind.references(keyspace.name, name):
                raise InvalidRequest(
                    f"Cannot drop user type {keyspace.name}.{name} as it is still used by user type {other}"
                )
        for table in keyspace.tables.values():
            if any(column.type.references(keyspace.name, name) for column in table.columns):
                raise InvalidRequest(
                    f"Cannot drop user type {keyspace.name}.{name} as it is still used by table"
                    f" {table.keyspace}.{table.name}"
                )
        del keyspace.types[name]
        changes.append(SchemaChange("DROPPED", "TYPE", keyspace.name, name))


def _check_key_type(name: str, cql_type: CqlType, *, is_static: bool) -> None:
    if cql_type == COUNTER:
        raise InvalidRequest(f"counter type is not supported for PRIMARY KEY part {name}")
    if cql_type == DURATION:
        raise InvalidRequest(f"duration type is not supported for PRIMARY KEY part {name}")
    if is_static:
        raise InvalidRequest(f"Static column {name} cannot be part of the PRIMARY KEY")
    if cql_type.is_multicell:
        kind = "user type" if isinstance(cql_type, UdtType) else "collection type"
        raise InvalidRequest(f"Invalid non-frozen {kind} {cql_type.name} for PRIMARY KEY component {name}")


def _clustering_order(statement: ast.CreateTable) -> dict[str, bool]:
    """Return whether each clustering column is DESC."""
    given = statement.clustering_order
    for name, _ in given:
        if name not in statement.clustering_key:
            raise InvalidRequest("Only clustering key columns can be defined in CLUSTERING ORDER directive")
    if given:
        for at, name in enumerate(statement.clustering_key):
            if at >= len(given):
                raise InvalidRequest(f"Missing CLUSTERING ORDER for column {name}")
            if given[at][0] != name:
                raise InvalidRequest(
                    "The order of columns in the CLUSTERING ORDER directive must be the one of the clustering key"
                    f" ({name} must appear before {given[at][0]})"
                )
    directions = dict(given)
    return {name: directions.get(name, "asc") == "desc" for name in statement.clustering_key}


def _sorted_rest(columns: list[Column]) -> tuple[Column, ...]:
    """Return static columns, then regular ones, each by the bytes of their names: the order of ``SELECT *``."""
    return tuple(sorted(columns, key=lambda c: (c.kind != "static", c.name.encode())))


def _renamed(table: TableSchema, renames: tuple[tuple[str, str], ...]) -> tuple[Column, ...]:
    columns = list(table.columns)
    for old, new in renames:
        at = next((i for i, column in enumerate(columns) if column.name == old), None)
        if at is None:
            raise InvalidRequest(f"Cannot rename unknown column {old} in table {table.name}")
        if any(column.name == new for column in columns):
            raise InvalidRequest(
                f"Cannot rename column {old} to {new} in table {table.name}; another column of that name already exist"
            )
        if columns[at].kind not in ("partition_key", "clustering"):
            raise InvalidRequest(f"Cannot rename non PRIMARY KEY part {old}")
        columns[at] = attrs.evolve(columns[at], name=new)
    return tuple(columns)
