"""Per-row TTL: the column that tells when a row expires, and which rows have.

Scylla's expiration service looks for such rows now and then and deletes them, which the CDC log shows as deletes of the
server's own. Here it runs when it is told to. Source: Scylla ``docs/cql/cql-extensions.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import InvalidRequest
from ..schema.tables import Column, TableSchema
from ..types import BIGINT, INT, TIMESTAMP
from .mutation import Cell, Key
from .partitions import Partition, TableStore
from .reconcile import live_value

__all__ = ["altered_ttl_column", "created_ttl_column", "expired_rows"]

_TYPES = (TIMESTAMP, BIGINT, INT)
_FIVE_YEARS = 5 * 31_556_952  # seconds, of mean Gregorian years


def created_ttl_column(columns: Iterable[Column], named: list[str]) -> str | None:
    """Return the TTL column of a new table, None for none. Raises InvalidRequest for one that cannot be it."""
    if len(named) > 1:
        raise InvalidRequest(f"a table cannot have more than one TTL column, not {', '.join(named)}")
    by_name = {column.name: column for column in columns}
    return _checked(by_name[named[0]]) if named else None


def altered_ttl_column(table: TableSchema, name: str | None) -> str | None:
    """Return the TTL column after ``ALTER TABLE ... TTL name`` (None: ``TTL NULL``). Raises InvalidRequest."""
    if name is None:
        if table.ttl_column is None:
            raise InvalidRequest(f"table {table.keyspace}.{table.name} does not have a TTL column")
        return None
    if table.ttl_column is not None:
        raise InvalidRequest(
            f"table {table.keyspace}.{table.name} already has a TTL column, {table.ttl_column}; disable it first with"
            " TTL NULL"
        )
    if name not in table.by_name:
        raise InvalidRequest(f"Column {name} does not exist in table {table.keyspace}.{table.name}")
    return _checked(table.by_name[name])


def _checked(column: Column) -> str:
    if column.kind != "regular":
        kind = "static" if column.kind == "static" else "primary key"
        raise InvalidRequest(f"Cannot use a {kind} column as TTL column {column.name}: it must be a regular column")
    if column.type not in _TYPES:
        raise InvalidRequest(
            f"the TTL column {column.name} must be of type timestamp, bigint or int, not {column.type.name}"
        )
    return column.name


def expired_rows(store: TableStore, now_s: int) -> Iterator[tuple[Key, Key]]:
    """Yield (partition key, clustering key) of the live rows that have expired. Do not write while iterating.

    As in Scylla, a time of more than five years ago is taken for a mistake, and its row stays.
    """
    column = store.table.by_name[store.table.ttl_column or ""]
    # timestamp columns are in milliseconds, the integers in seconds.
    per_second = 1000 if column.type is TIMESTAMP else 1
    newest, oldest = now_s * per_second, (now_s - _FIVE_YEARS) * per_second
    for partition in store.scan():
        if not isinstance(partition, Partition):
            continue
        for key, row in partition.entries():
            cell = row.cells.get(column.name)
            value = live_value(cell, now_s) if isinstance(cell, Cell) else None
            if value and oldest < int.from_bytes(value, "big", signed=True) <= newest:
                yield partition.key, key
