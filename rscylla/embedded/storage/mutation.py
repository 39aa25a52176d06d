"""What one write does to one partition, before it is applied: the input of both storage and the CDC log.

All statements of a request that touch a partition merge into one ``PartitionMutation``. Values stay encoded
(native-protocol bytes). Timestamps are microseconds since the epoch; a TTL is in seconds, 0 for none; an expiry is in
whole seconds since the epoch of the server's clock, None when there is no TTL.
"""

from __future__ import annotations

import attrs

from ..schema.tables import TableSchema

__all__ = ["Bound", "Cell", "CollectionCells", "Marker", "PartitionMutation", "RangeTombstone", "RowMutation"]

Key = tuple[bytes, ...]


@attrs.define
class Cell:
    """One atomic value. ``value`` None is a dead cell (a column tombstone)."""

    value: bytes | None
    timestamp: int
    ttl: int = 0
    expiry: int | None = None


@attrs.define
class Marker:
    """The row marker that INSERT writes."""

    timestamp: int
    ttl: int = 0
    expiry: int | None = None


@attrs.define
class CollectionCells:
    """Edits of a non-frozen collection or UDT: a tombstone for what was there, and cells by encoded element key.

    Keys: map key, set element (cell value b""), list timeuuid, UDT field position as 2 bytes big-endian.
    """

    tombstone: int | None = None
    cells: dict[bytes, Cell] = attrs.field(factory=dict)


@attrs.define
class RowMutation:
    """Edits of one row. ``tombstone`` is a whole-row delete."""

    marker: Marker | None = None
    cells: dict[str, Cell | CollectionCells] = attrs.field(factory=dict)
    tombstone: int | None = None


@attrs.frozen
class Bound:
    """An end of a clustering range: a prefix of the clustering key. An empty prefix is unbounded (inclusive)."""

    prefix: Key = ()
    inclusive: bool = True


@attrs.define
class RangeTombstone:
    """A deleted clustering range; ``start`` comes before ``end`` in the table's declared clustering order."""

    start: Bound
    end: Bound
    timestamp: int


@attrs.define
class PartitionMutation:
    """All that one write does to one partition of one table.

    ``rows`` is keyed by the full clustering key (encoded parts), ``()`` in a table without clustering columns.
    ``is_service`` marks deletes of the server itself, of rows that have expired: the log tells them from the users'.
    """

    table: TableSchema
    key: Key
    partition_tombstone: int | None = None
    static_row: RowMutation | None = None
    rows: dict[Key, RowMutation] = attrs.field(factory=dict)
    range_tombstones: list[RangeTombstone] = attrs.field(factory=list)
    is_service: bool = False
