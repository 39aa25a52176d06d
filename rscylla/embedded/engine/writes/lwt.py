"""Conditional writes (IF ...): read the rows, check all conditions, then apply all statements or none.

The answer has one row per statement, in order: ``[applied]``, then the columns of the row before the write. These are
all columns for IF [NOT] EXISTS, otherwise those in the conditions; a batch adds the key columns, and rows for its
statements without a condition. Source: Scylla ``cql3/statements/modification_statement.cc``, ``cas_request.cc``,
``batch_statement.cc``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import SERIAL_LEVELS, InvalidRequest, consistency_name
from ...result import ColumnSpec, QueryParams, RowsResult
from ...schema.tables import Column, TableSchema
from ...storage.mutation import Key, RowMutation
from ...storage.packed import join_row
from ...storage.partitions import Partition
from ...storage.positions import position_maker
from ...storage.reconcile import is_live_cell
from ...types import BOOLEAN
from ..binding import Request
from ..rows import RowView, column_value
from .operations import PriorRow
from .write import WritePlan

__all__ = ["OldRows", "cas_specs", "check_consistency", "check_one_table", "columns_of"]

FirstRow = Callable[[TableSchema, Key, int], tuple[Key, RowMutation] | None]
"""Returns a partition's first row, in clustering order, that is live at a time in seconds of the server's clock."""


def columns_of(plans: Sequence[WritePlan], *, is_batch: bool) -> tuple[Column, ...]:
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
    """Return the columns of the answer as drivers see them, ``[applied]`` first."""
    applied = ColumnSpec(table.keyspace, table.name, "[applied]", BOOLEAN)
    return (applied, *(ColumnSpec(table.keyspace, table.name, c.name, c.type) for c in columns))


def check_one_table(plans: Sequence[WritePlan]) -> None:
    """Refuse a batch of more than one table if it has conditions."""
    if (
        any(plan.is_conditional for plan in plans)
        and len({(plan.table.keyspace, plan.table.name) for plan in plans}) > 1
    ):
        raise InvalidRequest("BATCH with conditions cannot span multiple tables")


def check_consistency(params: QueryParams, *, is_conditional: bool) -> None:
    """Refuse a serial level as the level of a write: it is a level of the read before a conditional write."""
    if params.consistency not in SERIAL_LEVELS:
        return
    if is_conditional:
        raise InvalidRequest(
            f"{consistency_name(params.consistency)} is not supported as conditional update commit consistency."
            " Use ANY if it is enough that the write is accepted"
        )
    raise InvalidRequest("You must use conditional updates for serializable writes")


class OldRows:
    """The rows of a partition as they were before a conditional request, read once for all its statements.

    It holds the rows named by statements that check a regular column, check existence, or edit a list by its old value.
    If no statement needs such a row, it holds the first row of the partition. Every other row counts as missing; a
    statement whose row is missing sees the static columns only.
    """

    def __init__(
        self,
        plans: Sequence[tuple[WritePlan, Request]],
        prior: PriorRow,
        first_row: FirstRow,
        *,
        is_batch: bool,
    ) -> None:
        self._plans = plans
        self._columns = columns_of([plan for plan, _ in plans], is_batch=is_batch)
        table = self._table = plans[0][0].table
        self.key = _one_partition(plans)
        self._now_s = now_s = plans[0][1].now_s
        static = prior(table, self.key, None) if table.static_columns else None
        # What has expired is still stored, and must look as if it were not.
        if static is not None and not any(is_live_cell(cell, now_s) for cell in static.cells.values()):
            static = None
        self._static = static
        self._rows: dict[Key, RowMutation] = {}
        self._places = [_places(plan, request) for plan, request in plans]
        named: list[Key] = []
        for (plan, _), keys in zip(plans, self._places, strict=True):
            if (plan.is_conditional and not plan.looks_at_static_only) or plan.needs_read:
                named.extend(key for key in keys if key or not table.clustering_key)
        for ck in named:
            row = prior(table, self.key, ck)
            if row is not None and Partition.is_live(row, now_s):
                self._rows[ck] = row
        if not named and (first := first_row(table, self.key, now_s)) is not None:
            # A statement may spell its key in another way, as 1.00 for 1.0.
            position = position_maker(table)
            places = [keys[0] for keys in self._places if len(keys[0]) == len(first[0])]
            same = [key for key in places if position(key) == position(first[0])]
            self._rows |= dict.fromkeys([first[0], *same], first[1])
        # A static row may stand for a missing one, even if it is empty, in a partition in which anything was read.
        self._has_partition = bool(table.clustering_key and table.static_columns) and bool(self._rows or static)

    def _find(self, at: int) -> RowView | None:
        """Return the row that statement number *at* checks; None if it is missing."""
        plan, place = self._plans[at][0], self._places[at][0]
        row = self._rows.get(place)
        if row is not None:
            return RowView(self.key, place, row, self._static, self._now_s)
        if self._has_partition and (plan.existence is None or not place):
            return RowView(self.key, None, None, self._static, self._now_s)
        return None

    def hold(self) -> bool:
        """Return whether all conditions hold."""
        return all(self._holds(at) for at, (plan, _) in enumerate(self._plans) if plan.is_conditional)

    def _holds(self, at: int) -> bool:
        plan, request = self._plans[at]
        view = self._find(at)
        if plan.existence is not None:
            exists = view is not None and not (plan.looks_at_static_only and self._static is None)
            return exists == (plan.existence == "exists")
        seen = RowView(self.key, None, None, None, self._now_s) if view is None else view
        return all(condition.check(request)(seen) for condition in plan.conditions)

    def answer(self, *, applied: bool) -> RowsResult:
        """Return the answer: one row per statement, with nulls after ``[applied]`` if its row is missing."""
        flag = b"\x01" if applied else b"\x00"
        getters = [column_value(column) for column in self._columns]
        rows = []
        for at in range(len(self._plans)):
            view = self._find(at)
            rows.append(join_row([flag, *(None if view is None else get(view) for get in getters)]))
        return RowsResult(cas_specs(self._table, self._columns), rows)


def _one_partition(plans: Sequence[tuple[WritePlan, Request]]) -> Key:
    keys = {key for plan, request in plans for key in plan.keys(request)}
    if len(keys) > 1:
        raise InvalidRequest("BATCH with conditions cannot span multiple partitions")
    if not keys:
        raise InvalidRequest(f"Unrestricted partition key in a conditional {_what(plans[0][0])}")
    return keys.pop()


def _places(plan: WritePlan, request: Request) -> list[Key]:
    """Return the clustering keys that a statement names: of the static row ``()``, of a range its start."""
    if plan.static_only:
        return [()]
    found = [r.start.prefix for r in plan.ranges(request)]
    if not found:
        raise InvalidRequest(f"Unrestricted clustering key in a conditional {_what(plan)}")
    return found


def _what(plan: WritePlan) -> str:
    return "deletion" if plan.kind == "DELETE" else "update"
