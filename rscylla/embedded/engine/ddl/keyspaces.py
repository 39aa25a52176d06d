"""CREATE, ALTER and DROP KEYSPACE."""

from __future__ import annotations

import re
from typing import Any

from ...cql import ast
from ...errors import AlreadyExists, ConfigError, InvalidRequest
from ...result import SchemaChange
from ...schema.replication import check_tablets_replication, keyspace_options, tablets_option
from ...schema.tables import Keyspace
from .base import MAX_NAME, Editing

__all__ = ["KeyspaceEditing"]

_NAME = re.compile(r"\w+\Z", re.ASCII)


class KeyspaceEditing(Editing):
    def _create_keyspace(self, statement: ast.CreateKeyspace, changes: list[SchemaChange]) -> None:
        name = statement.name
        if not _NAME.match(name):
            raise InvalidRequest(f'"{name}" is not a valid keyspace name')
        if len(name) > MAX_NAME:
            raise InvalidRequest(f'Keyspace names shouldn\'t be more than {MAX_NAME} characters long (got "{name}")')
        self._protect(name)
        if name in self.schema.keyspaces:
            if statement.if_not_exists:
                return
            raise AlreadyExists(f'Cannot add existing keyspace "{name}"', name)
        self._check_tablets_known(statement.options)
        options = keyspace_options(statement.options, None, self.cluster.racks(), self.cluster.release)
        tablets = tablets_option(
            statement.options,
            options["replication"],
            default=self.cluster.tablets_by_default,
            release=self.cluster.release,
        )
        self._check_rack_lists(options, tablets)
        self.schema.keyspaces[name] = Keyspace(name, options, tablets)
        changes.append(SchemaChange("CREATED", "KEYSPACE", name))

    def _alter_keyspace(self, statement: ast.AlterKeyspace, changes: list[SchemaChange]) -> None:
        self._protect(statement.name)
        found = self.schema.keyspaces.get(statement.name)
        if found is None:
            raise InvalidRequest(f"Unknown keyspace {statement.name}")
        self._check_tablets_known(statement.options)
        options = keyspace_options(statement.options, found.options, self.cluster.racks(), self.cluster.release)
        self._check_rack_lists(options, found.tablets)
        if "replication" in statement.options and found.tablets is not None:
            check_tablets_replication(
                statement.options["replication"], found.options["replication"], options["replication"]
            )
        # The number of tablets may change; vnodes and tablets cannot be turned into each other.
        if "tablets" in statement.options:
            tablets = tablets_option(
                statement.options, options["replication"], default=False, release=self.cluster.release
            )
            if (tablets is None) != (found.tablets is None):
                raise InvalidRequest("Cannot alter replication strategy vnode/tablets flavor")
            found.tablets = tablets
        found.options = options
        for table in found.tables.values():
            self.stores.table_changed(table)
        changes.append(SchemaChange("UPDATED", "KEYSPACE", statement.name))

    @staticmethod
    def _check_rack_lists(options: dict[str, Any], tablets: int | None) -> None:
        if "replication_v2" in options and tablets is None:
            raise ConfigError("Rack lists are only supported for keyspaces that use tablets")

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
