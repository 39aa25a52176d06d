"""CREATE, ALTER and DROP TYPE."""

from __future__ import annotations

import uuid

import attrs

from ...cql import ast
from ...errors import InvalidRequest
from ...result import SchemaChange
from ...schema.tables import Keyspace
from ...schema.udts import replace_udt
from ...types import COUNTER, CqlType, UdtType
from ..binding import find_udt
from .base import Editing

__all__ = ["TypeEditing"]


class TypeEditing(Editing):
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
