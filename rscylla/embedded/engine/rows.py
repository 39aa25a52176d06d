"""One row as a query sees it, and the functions that read a column of it."""

from __future__ import annotations

from collections.abc import Callable

from ..schema.tables import Column
from ..storage.mutation import Cell, CollectionCells, Key, PlainRow, RowMutation, Shape
from ..storage.reconcile import live_value
from ..types import TIMEUUID, CqlType, ListType, MapType, SetType, UdtType

__all__ = ["RowView", "assemble", "column_value"]


class RowView:
    """A live row: encoded keys, its cells and the partition's static cells, as of ``now_s``.

    ``ck`` is None for a row made of static columns only (no clustering row was there).
    """

    __slots__ = ("ck", "key", "now_s", "row", "static")

    def __init__(
        self, key: Key, ck: Key | None, row: RowMutation | None, static: RowMutation | None, now_s: int
    ) -> None:
        self.key = key
        self.ck = ck
        self.row = row
        self.static = static
        self.now_s = now_s


ColumnGetter = Callable[[RowView], bytes | None]


def column_value(column: Column) -> ColumnGetter:
    """Return the function that gives the column's encoded value in a row, None for null."""
    name, at, kind = column.name, column.position, column.type
    if column.kind == "partition_key":
        return lambda view: view.key[at]
    if column.kind == "clustering":
        return lambda view: None if view.ck is None else view.ck[at]
    static = column.kind == "static"
    # Where the column is in the last shape that was seen: rows of one shape follow each other.
    seen: Shape | None = None
    place: int | None = None

    def read(view: RowView) -> bytes | None:
        row = view.static if static else view.row
        if isinstance(row, PlainRow) and row.shape is not None:
            nonlocal seen, place
            if row.shape is not seen:
                seen = row.shape
                place = seen[1].index(name) if name in seen[1] else None
            return row.values[place] if place is not None and (row.expiry is None or row.expiry > view.now_s) else None
        cell = None if row is None else row.cells.get(name)
        if cell is None:
            return None
        if isinstance(cell, Cell):
            return cell.value if cell.expiry is None or cell.expiry > view.now_s else None
        return assemble(kind, cell, view.now_s)

    return read


def assemble(cql_type: CqlType, edit: CollectionCells, now_s: int) -> bytes | None:
    """Return the encoded value of a non-frozen collection or UDT, None when no element is live.

    Lists come in the order of their element times; sets and maps in element order.
    """
    live = {key: value for key, cell in edit.cells.items() if (value := live_value(cell, now_s)) is not None}
    if not live:
        return None
    if isinstance(cql_type, MapType):
        return cql_type.join(live.items())
    if isinstance(cql_type, SetType):
        # The elements are the keys of the cells; the cells themselves are empty.
        return cql_type.join(live)
    if isinstance(cql_type, ListType):
        return cql_type.join([live[key] for key in sorted(live, key=TIMEUUID.sort_key)])
    if isinstance(cql_type, UdtType):
        return cql_type.join([live.get(at.to_bytes(2, "big")) for at in range(len(cql_type.field_types))])
    raise TypeError(f"{cql_type.name} has no element cells")
