"""The CDC log of a table as the table has it: made with it, altered with it, and closed to changes of its own."""

from __future__ import annotations

import math
import uuid

import attrs

from ...cdclog.log import log_columns, log_options
from ...cql import ast
from ...errors import InvalidRequest
from ...result import SchemaChange
from ...schema.properties import DEFAULTS
from ...schema.tables import LOG_SUFFIX, Column, Keyspace, TableSchema
from ...types import ListType, MapType, SetType, has_grown_from
from .base import Editing

__all__ = ["LogEditing"]

_LOG_DROP_DELAY_US = 5_000_000  # as in Scylla, a column that leaves the log counts as dropped only this much later

_LOG_COLUMNS = "You cannot modify the set of columns of a CDC log table directly. "
_DETACHED = (
    "Although the base table has deactivated CDC, this table will continue being a CDC log table until it is dropped. "
)


class LogEditing(Editing):
    def _log_of(self, keyspace: Keyspace, base: TableSchema) -> TableSchema:
        """Return the log of ``base`` as it has to be now: a new one, or the present one with the base's columns."""
        name = base.name + LOG_SUFFIX
        if keyspace.tablets is not None and not self.cluster.release.has("CDC with tablets"):
            raise InvalidRequest(
                f"Cannot create CDC log for a table {base.keyspace}.{base.name}, because keyspace uses tablets."
                " See issue #16317."
            )
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
        ahead_us = _LOG_DROP_DELAY_US if self.cluster.release.has("log columns are dropped ahead") else 0
        for column in known.columns:
            if column.name not in names:
                lost[column.name] = (column.type, self.now_us() + ahead_us)
        for column in columns:
            if column.name not in known.by_name:
                self._check_dropped(known, column)
        return attrs.evolve(known, version=uuid.uuid4(), columns=columns, dropped=lost, cdc_base=base.name)

    def _remove_log(self, keyspace: Keyspace, name: str, changes: list[SchemaChange]) -> None:
        """Drop the log of a table, if it has one. A table of the user's own that has such a name stays."""
        log = keyspace.tables.get(name + LOG_SUFFIX)
        if log is not None and log.is_cdc_log and log.cdc_base == name:
            self._remove(keyspace, log, changes)

    def _remove(self, keyspace: Keyspace, table: TableSchema, changes: list[SchemaChange]) -> None:
        del keyspace.tables[table.name]
        self.stores.table_dropped(table)
        changes.append(SchemaChange("DROPPED", "TABLE", keyspace.name, table.name))

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

    def _refuse_log_columns(self, keyspace: Keyspace, log: TableSchema, statement: ast.AlterTable) -> None:
        base = keyspace.tables.get(log.cdc_base or "")
        attached = base is not None and base.cdc is not None and base.cdc.enabled
        if statement.rename and attached:
            raise InvalidRequest("Cannot rename a column of a CDC log table.")
        if statement.rename:
            raise InvalidRequest("You cannot rename a column of a CDC log table. " + _DETACHED[:-1])
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
