"""What a base table looks like: its columns, as the cluster tells them now."""

from __future__ import annotations

import attrs

from ..cdc.driver import LogSession
from ..cdc.table import dropped_us
from ..types import Type, quote_name

__all__ = ["Column", "Table", "dropped_columns", "read_columns"]


@attrs.frozen
class Column:
    """A column of a base table. ``type`` is what the driver tells of it, ``type_text`` what the schema does."""

    name: str
    kind: str
    position: int
    type_text: str
    descending: bool
    type: Type = attrs.field(repr=False)

    @property
    def multicell(self) -> bool:
        """Whether its parts are written one by one, so that there is no one time and TTL of the whole."""
        return self.type.kind in ("list", "set", "map", "udt") and not self.type_text.startswith("frozen<")


@attrs.frozen
class Table:
    """The columns of a table, key columns first and in their order."""

    keyspace: str
    name: str
    columns: tuple[Column, ...]

    @property
    def full_name(self) -> str:
        return f"{quote_name(self.keyspace)}.{quote_name(self.name)}"

    def of_kind(self, *kinds: str) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.kind in kinds)

    @property
    def key(self) -> tuple[Column, ...]:
        return self.of_kind("partition_key", "clustering")


_KINDS = ("partition_key", "clustering", "static", "regular")


def read_columns(session: LogSession, keyspace: str, table: str) -> Table | None:
    """Return the table, None if there is none. Blocks.

    Raises:
        ConnectionFailed, QueryTimeout, QueryFailed: the cluster did not tell.
    """
    full_name = f"{quote_name(keyspace)}.{quote_name(table)}"
    found = session.rows(
        "SELECT column_name, kind, position, type, clustering_order FROM system_schema.columns "
        "WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, table),
        doing=f"looking up table {full_name}",
    )
    if not found:
        return None
    found.sort(key=lambda row: (_KINDS.index(row[1]) if row[1] in _KINDS else len(_KINDS), row[2], row[0]))
    names = ", ".join(quote_name(row[0]) for row in found)
    statement = session.prepare(f"SELECT {names} FROM {full_name}", page_size=1, doing=f"looking up {full_name}")
    types = {column.name: column.type for column in statement.columns}
    columns = (Column(name, kind, at, text, order == "desc", types[name]) for name, kind, at, text, order in found)
    return Table(keyspace, table, tuple(columns))


def dropped_columns(session: LogSession, keyspace: str, table: str) -> dict[str, int]:
    """Return the columns that a table once lost, which it may have again, and when they were dropped last. Blocks.

    What was written to them with timestamps up to that, in microseconds, is gone.

    Raises:
        ConnectionFailed, QueryTimeout, QueryFailed: the cluster did not tell.
    """
    found = session.rows(
        "SELECT column_name, toUnixTimestamp(dropped_time) FROM system_schema.dropped_columns "
        "WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, table),
        doing=f"looking up columns of {quote_name(keyspace)}.{quote_name(table)}",
    )
    return {name: dropped_us(told) for name, told in found}
