"""Rows of a log as rows of a record: what becomes of the cells of a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .. import _timeuuid as tu
from ..cdc.rows import Cells, ValueColumn
from ..types import Decoder

__all__ = ["Columns", "us_of"]

Row = dict[str, Any]


class Column(Protocol):
    """A column: the name of its field, its index in a row, what makes its value, and where else it is in the log.

    ``place``: ``pk``, ``ck``, or empty for a column outside of the key.
    """

    @property
    def name(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def decode(self) -> Decoder: ...
    @property
    def log(self) -> ValueColumn: ...
    @property
    def place(self) -> str: ...


class Columns:
    """Columns of rows; compiled code adds them to bytes in the same ways, without values: see ``direct``."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [(c.name, c.index, c.decode, c.log, c.place) for c in columns]

    def row(self, cells: Cells) -> Row:
        """Return a row as it is."""
        return {name: None if (raw := cells[at]) is None else decode(raw) for name, at, decode, *_ in self._columns}

    def updated(self, image: Cells, delta: Cells) -> Row:
        """Return the key, and the columns that the delta touches."""
        return {
            name: None if (raw := image[at]) is None or not (log.deleted < 0 or log.touched_in(delta)) else decode(raw)
            for name, at, decode, log, _ in self._columns
        }

    def joined(self, preimage: Cells, postimage: Cells, delta: Cells) -> Row:
        """Return the row before the change: what it touched as in the preimage, the rest, which stayed, as after it."""
        found: Row = {}
        for name, at, decode, log, _ in self._columns:
            raw = (preimage if log.touched_in(delta) else postimage)[at]
            found[name] = None if raw is None else decode(raw)
        return found

    def cells(self, row: Cells, delta: Cells, of_row: bool) -> Row:
        """Return the cells of a log row. A column that the delta makes null is so also where the row says nothing."""
        found: Row = {}
        for name, at, decode, log, place in self._columns:
            raw = row[at]
            if place:
                found[name] = decode(raw) if raw is not None and (of_row or place == "pk") else None
                continue
            value = None if raw is None else decode(raw)
            found[name] = {"value": value} if value is not None or log.marked_in(delta) else None
        return found


def us_of(time: bytes) -> int:
    """Return the microseconds since the epoch of a timeuuid."""
    return tu.ticks_to_us(tu.ticks_of(time))
