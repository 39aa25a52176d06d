"""What the schema statements share: the schema, the stores of its tables, and how a table is put in its place."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs

from ...cql import ast
from ...errors import ConfigError, InvalidRequest, SyntaxException, Unauthorized
from ...result import SchemaChange
from ...schema.replication import Racks
from ...schema.tables import Keyspace, Schema, TableSchema
from ...schema.udts import parts
from ...types import CqlType, UdtType, parse_type
from ...types.timeuuid import TimeUuids
from ...versions import Release
from ..binding import find_udt

__all__ = ["MAX_NAME", "Editing", "SchemaStores"]

MAX_NAME: Final = 192
"""Characters that Scylla allows in the name of a keyspace or a table."""


class ClusterLike(Protocol):
    """What the schema statements ask of the cluster."""

    @property
    def release(self) -> Release: ...

    @property
    def tablets_by_default(self) -> bool: ...

    def racks(self) -> Racks: ...

    def owners(self, dc: str) -> int: ...


class SchemaStores(Protocol):
    """Who keeps the tables' data. Called once the schema holds the new state, in the same thread."""

    def table_changed(self, table: TableSchema) -> None:
        """``table`` is new, or is the new form of the table with its id."""
        ...

    def table_dropped(self, table: TableSchema) -> None:
        """``table`` is no longer there: its data goes."""
        ...


@attrs.define
class Editing:
    """Carries out schema statements. ``now_us`` reads the server's clock; ``system`` names protected keyspaces.

    ``cluster`` is asked for the racks of each datacenter, for the release, and for its defaults.
    """

    schema: Schema
    stores: SchemaStores
    now_us: Callable[[], int]
    system: frozenset[str]
    cluster: ClusterLike
    _table_ids: TimeUuids = attrs.field(factory=TimeUuids, init=False)
    _state_ids: TimeUuids = attrs.field(factory=TimeUuids, init=False)
    _written_us: int = attrs.field(default=0, init=False)

    def _protect(self, keyspace: str) -> None:
        if keyspace in self.system:
            raise Unauthorized(f"{keyspace} keyspace is not user-modifiable.")

    def _has_keyspace(self, name: ast.TableName, current: str | None) -> bool:
        """Tell whether there is what ``DROP ... IF EXISTS`` looks into."""
        return (name.keyspace or current) is None or (name.keyspace or current) in self.schema.keyspaces

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
        def find(name: str) -> UdtType:
            place = name.rpartition(".")[0]
            if place not in ("", keyspace.name):
                raise InvalidRequest(
                    f"Statement on keyspace {keyspace.name} cannot refer to a user type in keyspace {place}; user types"
                    " can only be used in the keyspace they are defined in"
                )
            return find_udt(self.schema, keyspace.name, name)

        return parse_type(text, find)

    def _column_type(self, keyspace: Keyspace, text: str) -> CqlType:
        found = self._type(keyspace, text)
        if isinstance(found, UdtType) and found.is_multicell and sum(p.is_multicell for p in parts(found)) > 1:
            raise InvalidRequest("Non-frozen UDTs with nested non-frozen collections are not supported")
        return found

    def _check_tablets_known(self, options: dict[str, Any]) -> None:
        if "tablets" in options and not self.cluster.release.has("tablets"):
            raise SyntaxException("Unknown property 'tablets'")

    def _check_tablet_hints(self, keyspace: Keyspace, options: dict[str, Any]) -> None:
        if "tablets" in options and not self.cluster.release.has("system_schema.scylla_tables/tablets"):
            raise SyntaxException("Unknown property 'tablets'")
        if "tablets" in options and keyspace.tablets is None:
            raise ConfigError("tablet options cannot be used when tablets are disabled for the keyspace")

    def _find_table(self, keyspace: Keyspace, name: str) -> TableSchema:
        table = keyspace.tables.get(name)
        if table is None:
            raise InvalidRequest(f"unconfigured table {name}")
        return table

    def _new_table_id(self) -> uuid.UUID:
        """Return a timeuuid of now, as Scylla's ``schema_builder`` gives each new table, and so each new CDC log."""
        return uuid.UUID(bytes=self._table_ids.next(self.now_us()))

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
