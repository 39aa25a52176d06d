"""Conditional writes (IF ...): read, compare, and either apply all of it or nothing.

The answer holds ``[applied]`` and the row as it was before, as Scylla gives it: all columns for IF [NOT] EXISTS, those
of the conditions otherwise; for a batch the key columns too, and one row for each conditional statement.
Source: Scylla ``cql3/statements/modification_statement.cc``, ``cas_request.cc``, ``batch_statement.cc``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import InvalidRequest
from ..result import ColumnSpec, RowsResult
from ..schema.tables import Column, TableSchema
from ..storage.mutation import Key, RowMutation
from ..storage.partitions import Partition, join_row
from ..storage.reconcile import is_live_cell
from ..types import BOOLEAN
from .binding import Request
from .rows import RowView, column_value
from .write import WritePlan

__all__ = ["Conditional", "cas_columns", "check_one_partition"]

PriorRow = Callable[[TableSchema, Key, Key | None], RowMutation | None]


def cas_columns(plans: Sequence[WritePlan], *, is_batch: bool) -> tuple[Column, ...]:
    """Return the columns of the answer, after ``[applied]``, in ``SELECT *`` order."""
    table = plans[0].table
    names: set[str] = set()
    if is_batch:
        names.update(c.name for c in (*table.partition_key, *table.clustering_key))
    for plan in plans:
        if plan.existence is not None:
            names.update(table.by_name)
        names.update(condition.column.name for condition in plan.conditions)
    return tuple(column for column in table.columns if column.name in names)


def cas_specs(table: TableSchema, columns: Sequence[Column]) -> tuple[ColumnSpec, ...]:
    applied = ColumnSpec(table.keyspace, table.name, "[applied]", BOOLEAN)
    return (applied, *(ColumnSpec(table.keyspace, table.name, c.name, c.type) for c in columns))


class Conditional:
    """The conditions of one statement against the row they look at."""

    def __init__(self, plan: WritePlan, request: Request, prior: PriorRow) -> None:
        self._plan = plan
        self._request = request
        table, now_s = plan.table, request.now_s
        key = plan.keys(request)[0]
        # Conditions on static columns alone look at no clustering row, unless the statement names one.
        only_static = plan.static_only or (
            bool(plan.conditions)
            and all(c.column.kind == "static" for c in plan.conditions)
            and not plan.restrictions.full_clustering
        )
        ck: Key | None = None if only_static and table.clustering_key else plan.clustering_keys(request)[0]
        static = prior(table, key, None) if table.static_columns else None
        # What has expired is still stored, and must look as if it were not.
        if static is not None and not any(is_live_cell(cell, now_s) for cell in static.cells.values()):
            static = None
        row = None if ck is None else prior(table, key, ck)
        if row is not None and not Partition.is_live(row, now_s):
            row = None
        self._exists = row is not None if ck is not None else static is not None
        # A missing row still shows the partition's static columns where the conditions ask for them.
        has_static = any(c.column.kind == "static" for c in plan.conditions)
        self._shown = self._exists or (static is not None and has_static)
        self._view = RowView(key, ck if row is not None else None, row, static, now_s)

    def holds(self) -> bool:
        if self._plan.existence == "exists":
            return self._exists
        if self._plan.existence == "not exists":
            return not self._exists
        return all(condition.check(self._request)(self._view) for condition in self._plan.conditions)

    def answer(self, columns: Sequence[Column], applied: bool) -> bytes:
        """Return the wire row: the flag and the old values, all null when there was no row."""
        flag = b"\x01" if applied else b"\x00"
        # The keys, too, are null then: there is no row to show.
        if not self._shown:
            return join_row([flag, *[None] * len(columns)])
        return join_row([flag, *[column_value(column)(self._view) for column in columns]])


def check_one_partition(plans: Sequence[tuple[WritePlan, Request]]) -> None:
    """Refuse a conditional batch that touches more than one table or partition."""
    tables = {(plan.table.keyspace, plan.table.name) for plan, _ in plans}
    if len(tables) > 1:
        raise InvalidRequest("BATCH with conditions cannot span multiple tables")
    keys = {key for plan, request in plans for key in plan.keys(request)}
    if len(keys) > 1:
        raise InvalidRequest("BATCH with conditions cannot span multiple partitions")


def result(plans: Sequence[WritePlan], checks: Sequence[Conditional], applied: bool, *, is_batch: bool) -> RowsResult:
    """Return the answer of a conditional request."""
    columns = cas_columns(plans, is_batch=is_batch)
    return RowsResult(cas_specs(plans[0].table, columns), [check.answer(columns, applied) for check in checks])
