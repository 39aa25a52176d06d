"""CREATE, ALTER and DROP TYPE."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import attrs

from ...cql import ast
from ...errors import InvalidRequest
from ...result import SchemaChange
from ...schema.tables import Keyspace
from ...schema.udts import parts, replace_udt
from ...types import COUNTER, DURATION, CqlType, UdtType
from .base import Editing
from .retyping import check_field_type

__all__ = ["TypeEditing"]


class TypeEditing(Editing):
    def _create_type(self, statement: ast.CreateType, current: str | None, changes: list[SchemaChange]) -> None:
        keyspace = self._keyspace(statement.name, current)
        name = statement.name.name
        if name in keyspace.types:
            if statement.if_not_exists:
                return
            raise InvalidRequest(f"A user type of name {keyspace.name}.{name} already exists")
        fields = self._fields(keyspace, name, statement.fields)
        names, types = tuple(f for f, _ in fields), tuple(t for _, t in fields)
        _check_names(name, names)
        keyspace.types[name] = UdtType(keyspace.name, name, names, types)
        changes.append(SchemaChange("CREATED", "TYPE", keyspace.name, name))

    def _fields(self, keyspace: Keyspace, name: str, fields: tuple[tuple[str, str], ...]) -> list[tuple[str, CqlType]]:
        out: list[tuple[str, CqlType]] = []
        for field, text in fields:
            kind = self._type(keyspace, text)
            if kind == COUNTER:
                raise InvalidRequest("A user type cannot contain counters")
            if isinstance(kind, UdtType) and kind.is_multicell:
                raise InvalidRequest("A user type cannot contain non-frozen user type fields")
            out.append((field, kind))
        return out

    def _alter_type(self, statement: ast.AlterType, current: str | None, changes: list[SchemaChange]) -> None:
        keyspace = self._keyspace(statement.name, current)
        name = statement.name.name
        known = keyspace.types.get(name)
        if not isinstance(known, UdtType):
            raise InvalidRequest(f"No user type named {keyspace.name}.{name} exists.")
        self._check_keys(keyspace, name)
        names, types = list(known.field_names), list(known.field_types)
        if statement.retype is not None:
            field, text = statement.retype
            check_field_type(known, field, self._type(keyspace, text))
        for field, kind in self._fields(keyspace, name, statement.add):
            self._check_added(keyspace, known, field, kind)
            names.append(field)
            types.append(kind)
        for old, new in statement.rename:
            if old not in known.field_names:
                raise InvalidRequest(f"Unknown field {old} in type {keyspace.name}.{name}")
            names[known.field_names.index(old)] = new
        _check_names(name, names)
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

    @staticmethod
    def _check_keys(keyspace: Keyspace, name: str) -> None:
        """Refuse any change of a type in a partition key, which would move rows to other partitions."""
        for table in keyspace.tables.values():
            for column in table.partition_key:
                if column.type.references(keyspace.name, name):
                    raise InvalidRequest(
                        f"Cannot add new field to type {keyspace.name}.{name} because it is used in the partition key"
                        f" column {column.name} of table {keyspace.name}.{table.name}"
                    )

    @staticmethod
    def _check_added(keyspace: Keyspace, known: UdtType, field: str, kind: CqlType) -> None:
        full = f"{keyspace.name}.{known.type_name}"
        if field in known.field_names:
            raise InvalidRequest(
                f"Cannot add new field {field} to type {full}: a field of the same name already exists"
            )
        if kind.references(keyspace.name, known.type_name):
            raise InvalidRequest(
                f"Cannot add new field {field} of type {kind.name} to type {full} as this would create a circular"
                " reference"
            )
        for table in keyspace.tables.values() if DURATION in parts(kind) else ():
            for column in table.clustering_key:
                if column.type.references(keyspace.name, known.type_name):
                    raise InvalidRequest(
                        f"Cannot add new field to type {full} because it is used in the clustering key column"
                        f" {column.name} of table {keyspace.name}.{table.name} where durations are not allowed"
                    )

    def _drop_type(self, statement: ast.DropType, current: str | None, changes: list[SchemaChange]) -> None:
        if statement.if_exists and not self._has_keyspace(statement.name, current):
            return
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


def _check_names(name: str, fields: Sequence[str]) -> None:
    for at, field in enumerate(fields):
        if field in fields[:at]:
            raise InvalidRequest(f"Duplicate field name {field} in type {name}")
