"""Schema statements: CREATE, ALTER and DROP of keyspaces, tables and types, with CDC logs following their tables."""

from __future__ import annotations

import uuid
from typing import Any

import attrs

from ...cql import ast
from ...result import SchemaChange
from .alteration import TableAltering
from .base import SchemaStores
from .keyspaces import KeyspaceEditing
from .tables import TableEditing
from .types import TypeEditing

__all__ = ["DdlStatement", "SchemaEditor", "SchemaStores"]

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


@attrs.define
class SchemaEditor(KeyspaceEditing, TableEditing, TableAltering, TypeEditing):
    """Carries out schema statements."""

    def apply(self, text: str, statement: DdlStatement, keyspace: str | None) -> list[SchemaChange]:
        """Return the changes made, logs included: first the one asked for, none if there was nothing to do.

        *text*: the statement as the client wrote it, for the history. Source: Scylla ``cql3/query_processor.cc``.
        """
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
            self.schema.history.append((self._state_ids.next(self._written_us), f'CQL DDL statement: "{text}"'))
        return changes
