"""WRITETIME and TTL: what a cell was written with."""

from __future__ import annotations

from collections.abc import Callable

from ...schema.tables import Column
from ...storage.mutation import Cell, CollectionCells
from ...storage.reconcile import live_value
from ...types import BIGINT, INT
from ..binding import Request
from ..rows import RowView
from .expression import Evaluate, Expression

__all__ = ["cell_property"]


def cell_property(
    function: str, name: str, column: Column, element: Callable[[Request], bytes | None] | None
) -> Expression:
    """Return ``writetime`` (microseconds) or ``ttl`` (seconds left) of an atomic column or of one of its elements.

    ``element`` gives the key of the element's cell, None where the whole column is one cell.
    """
    read = _writetime if function == "writetime" else _ttl
    static = column.kind == "static"

    def for_request(request: Request) -> Evaluate:
        key = None if element is None else element(request)

        def evaluate(view: RowView) -> bytes | None:
            row = view.static if static else view.row
            cell = None if row is None else row.cells.get(column.name)
            if element is not None:
                cell = cell.cells.get(key) if key is not None and isinstance(cell, CollectionCells) else None
            if not isinstance(cell, Cell) or live_value(cell, view.now_s) is None:
                return None
            return read(cell, view.now_s)

        return evaluate

    return Expression(f"{function}({name})", BIGINT if function == "writetime" else INT, for_request)


def _writetime(cell: Cell, _: int) -> bytes:
    return cell.timestamp.to_bytes(8, "big", signed=True)


def _ttl(cell: Cell, now_s: int) -> bytes | None:
    # What is left of it, not what it was written with.
    return None if cell.expiry is None else (cell.expiry - now_s).to_bytes(4, "big")
