"""The rules of SELECT: what Scylla refuses before it reads a row."""

from __future__ import annotations

from typing import Any

from ...cql import ast
from ...errors import InvalidRequest
from ...schema.tables import Column
from ..binding import Scope
from ..where.restrictions import Restrictions
from .projection import compile_projection
from .select import SelectPlan

__all__ = ["compile_select"]

_FILTERING = (
    "Cannot execute this query as it might involve data filtering and thus may have unpredictable performance."
    " If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING"
)


def compile_select(scope: Scope, statement: ast.Select) -> SelectPlan:
    """Return the plan of a SELECT. Raises InvalidRequest for what the table or Scylla does not allow.

    The order of the checks is Scylla's: it decides which message a statement with two faults gets.
    """
    projection = compile_projection(scope, statement.selectors)
    aliases = {selector.alias for selector in statement.selectors or ()}
    for relation in statement.where:
        name = relation.left[1]
        if name in aliases and name not in scope.table.by_name:
            raise InvalidRequest(f"Aliases aren't allowed in the WHERE clause (name: '{name}')")
    for name, _ in statement.order_by:
        if name in aliases and name not in scope.table.by_name:
            raise InvalidRequest(f"Aliases are not allowed in order by clause ('{name}')")
    restrictions = Restrictions(scope, statement.where)
    plan = SelectPlan(scope, statement, projection, restrictions)
    if plan.partition_limit is not None and projection.is_aggregate and not statement.group_by:
        raise InvalidRequest("PER PARTITION LIMIT is not allowed with aggregate queries.")
    selected = _selected(plan, statement)
    _check_where(plan, selected, statement.allow_filtering)
    if statement.distinct:
        _check_distinct(plan, statement, selected)
    _check_order(plan, statement.order_by)
    if not statement.allow_filtering and restrictions.restricts_clustering and not restrictions.full_key:
        raise InvalidRequest(_FILTERING)
    _check_group(plan, statement.group_by)
    if statement.distinct and any(column.kind == "clustering" for column in plan.group):
        raise InvalidRequest("Grouping on clustering columns is not allowed for SELECT DISTINCT queries")
    plan.filters = [*restrictions.key_predicates(), *[p.check for p in restrictions.filters]]
    return plan


def _selected(plan: SelectPlan, statement: ast.Select) -> tuple[Column, ...]:
    """Return the columns that the select list reads, those inside functions included."""
    if statement.selectors is None:
        return plan.table.columns
    names: dict[str, None] = {}
    items: list[Any] = [selector.item for selector in statement.selectors]
    while items:
        item = items.pop()
        if isinstance(item, ast.ColumnSelector):
            names[item.name] = None
        elif isinstance(item, ast.ElementSelector | ast.FieldSelector):
            items.append(item.of)
        elif isinstance(item, ast.FunctionSelector):
            items.extend(item.args)
        elif isinstance(item, ast.CastSelector):
            items.append(item.selector)
    return tuple(plan.table.by_name[name] for name in names if name in plan.table.by_name)


def _check_where(plan: SelectPlan, selected: tuple[Column, ...], allowed: bool) -> None:
    restrictions = plan.restrictions
    if not allowed and restrictions.sliced_key:
        raise InvalidRequest(
            "Only EQ and IN relation are supported on the partition key (unless you use the token() function or ALLOW"
            " FILTERING)"
        )
    if not allowed and restrictions.slice_conflict is not None:
        raise InvalidRequest(restrictions.slice_conflict)
    if not allowed and restrictions.partial_key:
        raise InvalidRequest(_FILTERING)
    if restrictions.restricts_clustering and _is_static(selected):
        raise InvalidRequest("Cannot restrict clustering columns when selecting only static columns")
    if allowed:
        return
    if restrictions.looks_into_clustering:
        raise InvalidRequest(
            "Cannot restrict clustering columns by a CONTAINS relation without a secondary index or filtering"
        )
    restrictions.require_prefix()
    if any(p.column.kind in ("regular", "static") for p in restrictions.filters):
        raise InvalidRequest(_FILTERING)


def _is_static(selected: tuple[Column, ...]) -> bool:
    """Whether a select list reads static columns, and nothing else but the partition key."""
    kinds = {column.kind for column in selected}
    return "static" in kinds and kinds <= {"static", "partition_key"}


def _check_distinct(plan: SelectPlan, statement: ast.Select, selected: tuple[Column, ...]) -> None:
    restrictions = plan.restrictions
    if plan.partition_limit is not None:
        raise InvalidRequest("PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries")
    if restrictions.restricts_clustering or any(p.column.kind != "partition_key" for p in restrictions.filters):
        raise InvalidRequest("SELECT DISTINCT with WHERE clause only supports restriction by partition key.")
    for column in selected:
        if column.kind not in ("partition_key", "static"):
            raise InvalidRequest(
                "SELECT DISTINCT queries must only request partition key columns and/or static columns"
                f" (not {column.name})"
            )
    for column in plan.table.partition_key:
        if column not in selected and not restrictions.full_key:
            raise InvalidRequest(
                f"SELECT DISTINCT queries must request all the partition key columns (missing {column.name})"
            )


def _check_order(plan: SelectPlan, order_by: tuple[tuple[str, str], ...]) -> None:
    if not order_by:
        return
    if not plan.restrictions.full_key:
        raise InvalidRequest("ORDER BY is only supported when the partition key is restricted by an EQ or an IN.")
    columns: list[Column] = []
    for name, _ in order_by:
        column = plan.table.by_name.get(name)
        if column is None:
            raise InvalidRequest(f"Order by on unknown column {name}")
        if column.kind != "clustering":
            raise InvalidRequest(
                f"Order by is currently only supported on the clustered columns of the PRIMARY KEY, got {name}"
            )
        if columns and column.position <= columns[-1].position:
            raise InvalidRequest(
                "Order by currently only supports the ordering of columns following their declared order in the PRIMARY"
                " KEY"
            )
        columns.append(column)
    # A partition is read forwards or backwards; there is no third way.
    plan.reverse = (order_by[0][1] == "desc") != columns[0].descending
    for column, (_, direction) in zip(columns, order_by, strict=True):
        if ((direction == "desc") != column.descending) != plan.reverse:
            raise InvalidRequest(
                "Unsupported order by relation - only reversing all columns is supported, but column"
                f" {column.name} has opposite ordering"
            )
    for column in plan.table.clustering_key[: columns[-1].position]:
        # Of a column with one value there is nothing to order.
        if column not in columns and not plan.restrictions.has_equal(column):
            raise InvalidRequest(
                f"Unsupported order by relation - column {column.name} doesn't have an ordering or EQ relation."
            )
    if plan.restrictions.key_is_in:
        plan.sort_columns = tuple(columns)


def _check_group(plan: SelectPlan, group_by: tuple[str, ...]) -> None:
    """Check that the columns follow the primary key; columns with one value may be left out."""
    keys = [*plan.table.partition_key, *plan.table.clustering_key]
    columns: list[Column] = []
    expected = 0
    for name in group_by:
        column = plan.table.by_name.get(name)
        if column is None:
            raise InvalidRequest(f"Group by unknown column {name}")
        if column not in keys:
            raise InvalidRequest(f"Group by non-primary-key column {name}")
        while expected < len(keys) and keys[expected] != column and plan.restrictions.has_single_equal(keys[expected]):
            expected += 1
        if expected >= len(keys) or keys[expected] != column:
            raise InvalidRequest(f"Group by column {name} is out of order")
        expected += 1
        columns.append(column)
    if group_by and expected < len(plan.table.partition_key):
        raise InvalidRequest("GROUP BY must include the entire partition key")
    plan.group = tuple(columns)
