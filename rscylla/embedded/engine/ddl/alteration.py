"""ALTER TABLE: of columns and of properties."""

from __future__ import annotations

import uuid
from typing import Any

import attrs

from ...cdclog.log import altered_cdc_options
from ...cql import ast
from ...errors import ConfigError, InvalidRequest
from ...result import SchemaChange
from ...schema.properties import table_options
from ...schema.tables import LOG_SUFFIX, Column, Keyspace, TableSchema
from ...storage.rowttl import altered_ttl_column
from ...types import BIGINT, COUNTER, term_bytes
from .logs import LogEditing
from .retyping import check_column_type
from .tables import sorted_rest

__all__ = ["TableAltering"]


class TableAltering(LogEditing):
    def _alter_table(self, statement: ast.AlterTable, current: str | None, changes: list[SchemaChange]) -> None:
        keyspace = self._keyspace(statement.table, current)
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
            ttl_column = None if ttl_column in statement.drop else ttl_column
        elif statement.rename:
            columns, dropped = _renamed(table, statement.rename), table.dropped
        else:
            assert statement.alter_type is not None
            columns, dropped = self._retyped(keyspace, table, *statement.alter_type), table.dropped
        altered = attrs.evolve(table, version=uuid.uuid4(), columns=columns, dropped=dropped, ttl_column=ttl_column)
        log = self._log_of(keyspace, altered) if altered.cdc is not None and altered.cdc.enabled else None
        self._put(keyspace, altered, "UPDATED", changes)
        if log is not None:
            self._put(keyspace, log, "UPDATED", changes)

    def _retyped(self, keyspace: Keyspace, table: TableSchema, name: str, text: str) -> tuple[Column, ...]:
        column = table.by_name.get(name)
        if column is None:
            raise InvalidRequest(f"Column {name} was not found in table {table.name}")
        kind = self._column_type(keyspace, text)
        check_column_type(column, kind)
        return tuple(attrs.evolve(c, type=kind) if c is column else c for c in table.columns)

    def _added(self, keyspace: Keyspace, table: TableSchema, added: tuple[ast.ColumnDef, ...]) -> tuple[Column, ...]:
        columns = list(table.columns)
        for item in added:
            if (known := next((column for column in columns if column.name == item.name), None)) is not None:
                what = "a PRIMARY KEY part" if known.kind == "partition_key" else "an existing column"
                raise InvalidRequest(f"Invalid column name {item.name} because it conflicts with {what}")
            if item.static and not table.clustering_key:
                raise InvalidRequest(
                    "Static columns are only useful (and thus allowed) if the table has at least one clustering column"
                )
            column = Column(
                item.name, self._column_type(keyspace, item.type_text), "static" if item.static else "regular"
            )
            if column.type == COUNTER:
                raise ConfigError(f"Cannot add a counter column ({item.name}) in a non counter column family")
            self._check_dropped(table, column)
            columns.append(column)
        keys = [c for c in columns if c.kind in ("partition_key", "clustering")]
        return (*keys, *sorted_rest([c for c in columns if c not in keys]))

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
            dropped[name] = (column.type, timestamp)
        return tuple(c for c in table.columns if c.name not in statement.drop), dropped

    def _alter_options(
        self, keyspace: Keyspace, table: TableSchema, given: dict[str, Any], changes: list[SchemaChange]
    ) -> None:
        if "id" in given:
            raise ConfigError("Cannot alter table id.")
        self._check_tablet_hints(keyspace, given)
        options = table_options(given, table.options, is_log=table.is_cdc_log)
        altered = attrs.evolve(table, version=uuid.uuid4(), options=options)
        log: TableSchema | None = None
        if "cdc" in given:
            cdc = altered_cdc_options(given["cdc"], self.cluster.release)
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
        elif "cdc" in given and not self.cluster.release.has("a log outlives enabled: false"):
            self._remove_log(keyspace, table.name, changes)


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
