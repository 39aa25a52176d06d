"""What one write does to one partition, before it is applied: the input of both storage and the CDC log.

All statements of a request that touch a partition merge into one ``PartitionMutation``. Values stay encoded
(native-protocol bytes). Timestamps are microseconds since the epoch; a TTL is in seconds, 0 for none; an expiry is in
whole seconds since the epoch of the server's clock, None when there is no TTL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ..schema.tables import TableSchema

__all__ = [
    "Bound",
    "Cell",
    "CollectionCells",
    "Key",
    "Marker",
    "PartitionMutation",
    "PlainRow",
    "RangeTombstone",
    "RowMutation",
    "Shape",
    "columns_of",
]

Key = tuple[bytes, ...]

# Whether a row has a marker, and the names of its columns: what rows written by one statement share.
Shape = tuple[bool, tuple[str, ...]]


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


class PlainRow(RowMutation):
    """Edits that set columns of a row, all with one stamp, as most writes do.

    ``values`` are in the order of the names in ``shape``; None is a dead cell, which a row with a TTL must not have.
    Marker and cells are made when somebody asks for them, who may then change them: from then on ``shape`` is None, and
    only they count.
    """

    __slots__ = ("expiry", "shape", "timestamp", "ttl", "values")

    def __init__(
        self, shape: Shape, timestamp: int, ttl: int, expiry: int | None, values: Sequence[bytes | None]
    ) -> None:
        self.shape: Shape | None = shape
        self.timestamp = timestamp
        self.ttl = ttl
        self.expiry = expiry
        self.values = values
        self.tombstone = None

    def __getattr__(self, name: str) -> Any:
        # Only what has no value yet comes here.
        if self.shape is None or name not in ("cells", "marker"):
            raise AttributeError(name)
        has_marker, names = self.shape
        self.shape = None
        stamp = (self.timestamp, self.ttl, self.expiry)
        self.marker = Marker(*stamp) if has_marker else None
        self.cells = {column: Cell(value, *stamp) for column, value in zip(names, self.values, strict=True)}
        return getattr(self, name)


def columns_of(row: RowMutation) -> Iterable[str]:
    """Return the names of the columns that a row edits; a plain row stays plain."""
    return row.shape[1] if isinstance(row, PlainRow) and row.shape is not None else row.cells


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
