"""The mutations of one request, and how large they may be together."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from ...errors import InvalidRequest
from ...schema.tables import TableSchema
from ...storage.mutation import Cell, Key, PartitionMutation, PlainRow
from ...storage.reconcile import MutationBuilder
from .operations import ListKeys, PriorRow

__all__ = ["Mutations"]

_MOST_BATCH = 1024 * 1024  # bytes, Scylla's default of batch_size_fail_threshold_in_kb
_BESIDE_ROW = 281  # bytes: for Scylla, an int key with a text of 743 bytes takes a KiB (its test_batch.py)


class Mutations:
    """The mutations of one request, one for each partition, in the order the partitions were first named.

    ``prior(table, key, ck)`` gives a stored row (ck None: the static row) as it was before the request.
    ``list_node`` is the node in the keys of list elements.
    """

    def __init__(self, list_node: bytes, prior: PriorRow) -> None:
        self.prior = prior
        self._list_node = list_node
        self._mutations: dict[tuple[str, str, Key], PartitionMutation] = {}
        self._builders: dict[tuple[str, str, Key], MutationBuilder] = {}

    @functools.cached_property
    def list_keys(self) -> ListKeys:
        return ListKeys(self._list_node)

    def mutation(self, table: TableSchema, key: Key) -> PartitionMutation:
        """Return the mutation of a partition; a new one if it has none yet."""
        place = (table.keyspace, table.name, key)
        mutation = self._mutations.get(place)
        if mutation is None:
            mutation = self._mutations[place] = PartitionMutation(table, key)
        return mutation

    def of(self, table: TableSchema, key: Key) -> MutationBuilder:
        """Return what merges further edits into the mutation of a partition."""
        place = (table.keyspace, table.name, key)
        builder = self._builders.get(place)
        if builder is None:
            builder = self._builders[place] = MutationBuilder(self.mutation(table, key))
        return builder

    def __iter__(self) -> Iterator[PartitionMutation]:
        return iter(self._mutations.values())

    def __len__(self) -> int:
        return len(self._mutations)

    def check_size(self) -> None:
        """Refuse a large batch of more than one partition: of its values, and of the memory that rows take beside."""
        if len(self._mutations) > 1 and sum(map(_values_size, self)) > _MOST_BATCH:
            raise InvalidRequest("Batch too large")


def _values_size(mutation: PartitionMutation) -> int:
    size = 0
    static = () if mutation.static_row is None else (mutation.static_row,)
    for row in (*static, *mutation.rows.values()):
        size += _BESIDE_ROW
        if isinstance(row, PlainRow) and row.shape is not None:
            size += sum([len(value) for value in row.values if value is not None])
            continue
        for cell in row.cells.values():
            if isinstance(cell, Cell):
                size += len(cell.value or b"")
            else:
                size += sum(len(key) + len(each.value or b"") for key, each in cell.cells.items())
    return size
