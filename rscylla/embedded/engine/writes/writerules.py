"""The rules of INSERT, UPDATE and DELETE: plans made, and what Scylla refuses before it writes."""

from __future__ import annotations

from ...cql import ast
from ...errors import InvalidRequest
from ...schema.tables import Column, TableSchema
from ..binding import Scope
from ..where.conditions import condition
from ..where.restrictions import Restrictions
from .operations import assignment, deletion, setter
from .write import JsonPlan, WritePlan

__all__ = ["compile_write"]


def compile_write(scope: Scope, statement: ast.Insert | ast.Update | ast.Delete) -> WritePlan:
    """Return the plan of a statement against ``scope.table``. Raises InvalidRequest for what does not fit it."""
    if isinstance(statement, ast.Insert):
        plan = _insert(scope, statement)
    elif isinstance(statement, ast.Update):
        plan = _update(scope, statement)
    else:
        plan = _delete(scope, statement)
    plan.settle()
    if plan.is_conditional:
        _check_conditional(plan)
    if plan.operations and plan.restrictions.has_slice:
        raise InvalidRequest("Range deletions are not supported for specific columns")
    return plan


def _insert(scope: Scope, statement: ast.Insert) -> WritePlan:
    if statement.json is not None:
        return JsonPlan(scope, statement)
    if len(statement.columns) != len(statement.values):
        raise InvalidRequest("Unmatched column names/values")
    table = scope.table
    plan = WritePlan(scope, "INSERT", statement.using)
    relations: list[ast.Relation] = []
    seen: set[str] = set()
    for name, term in zip(statement.columns, statement.values, strict=True):
        column = _column(table, name)
        if name in seen:
            raise InvalidRequest(f"Multiple definitions found for column {name}")
        seen.add(name)
        if column.kind in ("partition_key", "clustering"):
            # The keys of an INSERT are read as those of a WHERE clause.
            relations.append(ast.Relation(("column", name), "=", term))
        else:
            plan.operations.append(setter(scope, column, term))
    plan.restrictions = Restrictions(scope, relations)
    if statement.if_not_exists:
        plan.existence = "not exists"
    _require_partition_key(plan)
    only_static = bool(plan.operations) and all(op.column.kind == "static" for op in plan.operations)
    plan.static_only = only_static and bool(table.clustering_key) and not plan.restrictions.restricts_clustering
    if not plan.static_only:
        _require_clustering_key(plan)
    return plan


def _update(scope: Scope, statement: ast.Update) -> WritePlan:
    table = scope.table
    plan = WritePlan(scope, "UPDATE", statement.using)
    is_conditional = statement.if_exists or bool(statement.conditions)
    for item in statement.assignments:
        column = _column(table, item.column)
        if column.kind in ("partition_key", "clustering"):
            raise InvalidRequest(f"PRIMARY KEY part {column.name} found in SET part")
        plan.operations.append(assignment(scope, column, item, is_conditional=is_conditional))
    plan.restrictions = Restrictions(scope, statement.where)
    _conditions(scope, plan, statement)
    _require_only_keys(plan)
    _require_partition_key(plan)
    # Conditions count, too: one on a regular column looks at a row, which has to be named.
    touched = [op.column for op in plan.operations] + [c.column for c in plan.conditions]
    if all(column.kind == "static" for column in touched):
        _forbid_clustering(plan)
        plan.static_only = bool(table.clustering_key)
    else:
        _require_clustering_key(plan)
    return plan


def _delete(scope: Scope, statement: ast.Delete) -> WritePlan:
    table = scope.table
    if statement.using.ttl is not None:
        raise InvalidRequest("TTL attribute is not allowed for deletes")
    plan = WritePlan(scope, "DELETE", statement.using)
    for item in statement.deletions:
        column = _column(table, item.column)
        if column.kind in ("partition_key", "clustering"):
            raise InvalidRequest(f"Invalid identifier {column.name} for deletion (should not be a PRIMARY KEY part)")
        plan.operations.append(deletion(scope, column, item))
    plan.restrictions = Restrictions(scope, statement.where)
    _conditions(scope, plan, statement)
    _require_only_keys(plan)
    _require_partition_key(plan)
    touched = [op.column for op in plan.operations] + [c.column for c in plan.conditions]
    regular = [op.column for op in plan.operations if op.column.kind != "static"]
    if plan.operations and all(column.kind == "static" for column in touched):
        _forbid_clustering(plan)
        plan.static_only = bool(table.clustering_key)
        return plan
    plan.restrictions.require_prefix()
    missing = _missing_clustering(plan)
    if regular and missing is not None and not plan.restrictions.has_slice:
        raise InvalidRequest(
            f"Primary key column '{missing.name}' must be specified in order to modify column '{regular[0].name}'"
        )
    return plan


def _conditions(scope: Scope, plan: WritePlan, statement: ast.Update | ast.Delete) -> None:
    if statement.if_exists:
        plan.existence = "exists"
    plan.conditions = [condition(scope, relation) for relation in statement.conditions]


def _check_conditional(plan: WritePlan) -> None:
    what = "deletions" if plan.kind == "DELETE" else "updates"
    if plan.sets_timestamp:
        raise InvalidRequest("Cannot provide custom timestamp for conditional updates")
    if plan.restrictions.key_is_in:
        raise InvalidRequest(f"IN on the partition key is not supported with conditional {what}")
    if plan.restrictions.clustering_is_in:
        raise InvalidRequest(f"IN on the clustering key columns is not supported with conditional {what}")
    if plan.kind != "DELETE" or plan.static_only or plan.restrictions.full_clustering:
        return
    if not plan.operations or any(op.column.kind != "static" for op in plan.operations):
        raise InvalidRequest(
            "DELETE statements must restrict all PRIMARY KEY columns with equality relations"
            " in order to delete non static columns"
        )
    if not plan.looks_at_static_only:
        raise InvalidRequest(
            "DELETE statements must restrict all PRIMARY KEY columns with equality relations"
            " in order to use IF condition on non static columns"
        )


def _column(table: TableSchema, name: str) -> Column:
    column = table.by_name.get(name)
    if column is None:
        raise InvalidRequest(f"Unknown identifier {name}")
    return column


def _require_only_keys(plan: WritePlan) -> None:
    restrictions = plan.restrictions
    if restrictions.has_token:
        raise InvalidRequest("The token function cannot be used in WHERE clauses for UPDATE and DELETE statements")
    keys = {c.name for c in (*plan.table.partition_key, *plan.table.clustering_key)}
    others = [name for name in restrictions.filtered_names if name not in keys]
    if others:
        raise InvalidRequest(f"Invalid where clause contains non PRIMARY KEY columns: {', '.join(others)}")
    if restrictions.looks_into_clustering:
        raise InvalidRequest(
            "Cannot restrict clustering columns by a CONTAINS relation without a secondary index or filtering"
        )
    if restrictions.filters:
        raise InvalidRequest("Invalid operator in where clause")


def _require_partition_key(plan: WritePlan) -> None:
    restrictions = plan.restrictions
    if restrictions.full_key:
        return
    for column in plan.table.partition_key:
        if restrictions.sliced(column):
            raise InvalidRequest(
                "Only EQ and IN relation are supported on the partition key (unless you use the token() function or"
                " ALLOW FILTERING)"
            )
        if not restrictions.names(column):
            raise InvalidRequest(f"Missing mandatory PRIMARY KEY part {column.name}")


def _missing_clustering(plan: WritePlan) -> Column | None:
    if plan.restrictions.full_clustering:
        return None
    at = plan.restrictions.restricted_prefix()
    return plan.table.clustering_key[min(at, len(plan.table.clustering_key) - 1)]


def _require_clustering_key(plan: WritePlan) -> None:
    if plan.restrictions.has_slice:
        raise InvalidRequest("Invalid operator in where clause: clustering columns need = or IN to be updated")
    plan.restrictions.require_prefix()
    missing = _missing_clustering(plan)
    if missing is not None:
        raise InvalidRequest(f"Missing mandatory PRIMARY KEY part {missing.name}")


def _forbid_clustering(plan: WritePlan) -> None:
    if plan.restrictions.restricts_clustering:
        raise InvalidRequest(
            f"Invalid restrictions on clustering columns since the {plan.kind} statement modifies only static columns"
        )
