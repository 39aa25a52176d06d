"""Clustering ranges: bounds in declared order, and the ranges that comparisons of columns and tuples stand for."""

from __future__ import annotations

import attrs

from ...schema.tables import Column, TableSchema
from ...storage.mutation import Bound, Key
from ...storage.positions import Position, bound_end, bound_start, position_maker

__all__ = ["Range", "RangeMaker"]


@attrs.frozen
class Range:
    """A clustering range: its bounds in declared order and the same as a half-open interval of positions."""

    start: Bound
    end: Bound
    low: Position
    high: Position


class RangeMaker:
    """Makes the ranges of one table."""

    def __init__(self, table: TableSchema) -> None:
        self._position = position_maker(table)

    def between(self, start: Bound, end: Bound) -> Range:
        return Range(start, end, bound_start(start, self._position), bound_end(end, self._position))

    def row(self, key: Key) -> Range:
        """Return the range of the rows that start with this key: one row if the key is a full one."""
        return self.between(Bound(key), Bound(key))

    def tuple_slice(self, columns: tuple[Column, ...], op: str, key: Key) -> list[Range]:
        """Return the ranges of ``(c1, c2, ...) op key``; columns of mixed direction need one range for each column."""
        inclusive = op.endswith("=")
        if all(column.descending == columns[0].descending for column in columns):
            starts = (op[0] == ">") != columns[0].descending
            return [
                self.between(Bound(key, inclusive), Bound()) if starts else self.between(Bound(), Bound(key, inclusive))
            ]
        out: list[Range] = []
        for at, column in enumerate(columns):
            prefix, last = key[:at], at == len(columns) - 1
            bound = Bound(key[: at + 1], inclusive and last)
            if (op[0] == ">") != column.descending:
                out.append(self.between(bound, Bound(prefix)))
            else:
                out.append(self.between(Bound(prefix), bound))
        return out

    @staticmethod
    def intersection(left: Range, right: Range) -> Range | None:
        first = left if left.low >= right.low else right
        last = left if left.high <= right.high else right
        return Range(first.start, last.end, first.low, last.high) if first.low < last.high else None
