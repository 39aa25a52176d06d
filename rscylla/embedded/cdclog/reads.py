"""What CDC preimages and postimages read: one partition as it is before a write."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..schema.tables import TableSchema
from ..storage.mutation import Cell, Key, PlainRow, RowMutation
from ..storage.partitions import Partition
from ..storage.reconcile import live_value
from .images import ImageValue

__all__ = ["PartitionImages"]


class PartitionImages:
    """Implements ``images.ImageReader`` over the stored rows. ``now_s`` decides what has expired."""

    def __init__(
        self,
        prior: Callable[[TableSchema, Key, Key | None], RowMutation | None],
        table: TableSchema,
        key: Key,
        now_s: int,
    ) -> None:
        self._prior = prior
        self._table = table
        self._key = key
        self._now_s = now_s

    def row(self, key: Key) -> Mapping[str, ImageValue] | None:
        row = self._prior(self._table, self._key, key)
        if row is None or not Partition.is_live(row, self._now_s):
            return None
        return self._values(row)

    def static_row(self) -> Mapping[str, ImageValue] | None:
        row = self._prior(self._table, self._key, None)
        return None if row is None else self._values(row)

    def _values(self, row: RowMutation) -> dict[str, ImageValue]:
        out: dict[str, ImageValue] = {}
        if isinstance(row, PlainRow) and row.shape is not None:
            if row.expiry is not None and row.expiry <= self._now_s:
                return out
            return {name: value for name, value in zip(row.shape[1], row.values, strict=True) if value is not None}
        for name, cell in row.cells.items():
            if isinstance(cell, Cell):
                value = live_value(cell, self._now_s)
                if value is not None:
                    out[name] = value
                continue
            live = {k: v for k, c in cell.cells.items() if (v := live_value(c, self._now_s)) is not None}
            if live:
                out[name] = live
        return out
