"""The rules of SELECT: what Scylla refuses before it reads a row."""

from __future__ import annotations

from ..cql import ast
from ..errors import InvalidRequest
from ..schema.tables import Column
from .binding import Scope
from .projection import compile_projection
from .select import SelectPlan
from .where import Restrictions

__all__ = ["compile_select"]

_FILTERING = (
    "Cannot execute this query as it might involve data filtering and thus may have unpredictable performance."
    " If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING"
)


def compile_select(scope: Scope, statement: ast.Select) -> SelectPlan:
    """Return the plan of a SELECT. Raises InvalidRequest for what the table or Scylla does not allow."""
    projection = compile_projection(scope, statement.selectors)
    restrictions = Restrictions(scope, statement.where)
    plan = SelectPlan(scope, statement, projection, restrictions)
    if statement.distinct:
        _check_distinct(plan, statement)
    if plan.partition_limit is not None and projection.is_aggregate:
        raise InvalidRequest("PER PARTITION LIMIT is not allowed with aggregate queries.")
    _check_filtering(plan, statement.allow_filtering)
    _check_order(plan, statement.order_by)
    _check_group(plan, statement.group_by)
    plan.filters = [*restrictions.key_predicates(), *[p.check for p in restrictions.filters]]
    return plan


def _check_distinct(plan: SelectPlan, statement: ast.Select) -> None:
    selected = [e.column for e in plan.projection.expressions if e.column is not None]
    for column in selected:
        if column.kind not in ("partition_key", "static"):
            raise InvalidRequest(
                "SELECT DISTINCT queries must only request partition key columns and/or static columns"
                f" (not {column.name})"
            )
    for column in plan.table.partition_key:
        if column not in selected and not plan.restrictions.full_key:
            raise InvalidRequest(
                f"SELECT DISTINCT queries must request all the partition key columns (missing {column.name})"
            )
    if plan.restrictions.restricts_clustering:
        raise InvalidRequest("Cannot restrict clustering columns when selecting only static or partition key columns")


def _check_filtering(plan: SelectPlan, allowed: bool) -> None:
    restrictions = plan.restrictions
    if allowed:
        return
    if restrictions.sliced_key:
        raise InvalidRequest(
            "Only EQ and IN relation are supported on the partition key (unless you use the token() function or allow"
            " filtering)"
        )
    if restrictions.filters or restrictions.partial_key:
        raise InvalidRequest(_FILTERING)
    if restrictions.broken_after is not None:
        before, after = restrictions.broken_after
        if restrictions.names(before):
            raise InvalidRequest(
                f'Clustering column "{after.name}" cannot be restricted (preceding column "{before.name}" is restricted'
                " by a non-EQ relation)"
            )
        raise InvalidRequest(
            f'PRIMARY KEY column "{after.name}" cannot be restricted as preceding column "{before.name}" is not'
            " restricted"
        )
    if restrictions.restricts_clustering and not restrictions.full_key:
        raise InvalidRequest(_FILTERING)


def _check_order(plan: SelectPlan, order_by: tuple[tuple[str, str], ...]) -> None:
    if not order_by:
        return
    if plan.distinct:
        raise InvalidRequest("ORDER BY is not supported with SELECT DISTINCT")
    if not plan.restrictions.full_key:
        raise InvalidRequest("ORDER BY is only supported when the partition key is restricted by an EQ or an IN.")
    directions: list[bool] = []
    for at, (name, direction) in enumerate(order_by):
        column = plan.table.by_name.get(name)
        if column is None:
            raise InvalidRequest(f"Order by on unknown column {name}")
        if column.kind != "clustering":
            raise InvalidRequest(
                "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got " + name
            )
        if column.position != at:
            raise InvalidRequest(
                "Order by currently only support the ordering of columns following their declared order in the PRIMARY"
                " KEY"
            )
        directions.append((direction == "desc") != column.descending)
    # A partition is read forwards or backwards; there is no third way.
    if len(set(directions)) > 1:
        raise InvalidRequest("Unsupported order by relation")
    plan.reverse = directions[0]
    if plan.restrictions.key_is_in:
        plan.sort_columns = plan.table.clustering_key[: len(order_by)]


def _check_group(plan: SelectPlan, group_by: tuple[str, ...]) -> None:
    keys = (*plan.table.partition_key, *plan.table.clustering_key)
    columns: list[Column] = []
    for name in group_by:
        column = plan.table.by_name.get(name)
        if column is None:
            raise InvalidRequest(f"Group by unknown column {name}")
        if column not in keys:
            raise InvalidRequest(f"Group by is currently only supported on the columns of the PRIMARY KEY, got {name}")
        columns.append(column)
    if columns and tuple(columns) != keys[: len(columns)] and not plan.restrictions.full_key:
        raise InvalidRequest(
            "Group by currently only support groups of columns following their declared order in the PRIMARY KEY"
        )
    plan.group = tuple(columns)
