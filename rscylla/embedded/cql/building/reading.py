"""SELECT, and the relations of WHERE and IF."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidRequest, SyntaxException
from .. import ast
from .parts import Parts, as_tuple, false, first_or_none, true
from .terms import Terms

__all__ = ["Reading"]


class Reading(Terms):
    """SELECT and relations."""

    json = distinct = filtering = bypass = if_not_exists = if_exists = internals = static = row_ttl = staticmethod(
        false
    )
    no = staticmethod(false)
    yes = staticmethod(true)
    source = limit = partition_limit = timeout = drop_timestamp = staticmethod(first_or_none)
    selection = order = items = relations = no_values = staticmethod(as_tuple)

    def star(self, _: Parts) -> None:
        return None

    def selector(self, parts: Parts) -> ast.Selector:
        return ast.Selector(parts[0], parts[1] if len(parts) > 1 else None)

    def column_item(self, parts: Parts) -> ast.ColumnSelector:
        return ast.ColumnSelector(parts[0])

    def field_of_column(self, parts: Parts) -> ast.FieldSelector:
        return ast.FieldSelector(ast.ColumnSelector(parts[0]), parts[1])

    def element_of_column(self, parts: Parts) -> ast.ElementSelector:
        return self.nested(ast.ElementSelector(ast.ColumnSelector(parts[0]), parts[1]), parts[1])

    def field_item(self, parts: Parts) -> ast.FieldSelector:
        return self.nested(ast.FieldSelector(parts[0], parts[1]), parts[0])

    def element_item(self, parts: Parts) -> ast.ElementSelector:
        return self.nested(ast.ElementSelector(parts[0], parts[1]), *parts)

    def cast_item(self, parts: Parts) -> ast.CastSelector:
        return self.nested(ast.CastSelector(parts[0], parts[1]), parts[0])

    def term_item(self, parts: Parts) -> Any:
        return parts[0]

    def count_item(self, parts: Parts) -> ast.FunctionSelector:
        if parts[0] != (None, "count"):
            raise SyntaxException(f"only count takes *, not the function {parts[0][1]}")
        return ast.FunctionSelector(None, "count", ())

    def function_item(self, parts: Parts) -> ast.FunctionSelector:
        (keyspace, name), args = parts[0], parts[1] if len(parts) > 1 else ()
        # COUNT(1) and COUNT(*) are one thing, which the engine need not tell apart.
        if name == "count" and args == (ast.Constant("integer", "1"),):
            args = ()
        elif name == "count" and not args:
            raise InvalidRequest("Invalid number of arguments in call to function count: 1 required but 0 provided")
        return self.nested(ast.FunctionSelector(keyspace, name, args), *args)

    def select(self, parts: Parts) -> ast.Select | ast.Unsupported:
        json, distinct, selectors, table, where, group, order, per, limit, filtering, bypass, timeout = parts
        if table is None:
            return ast.Unsupported("SELECT without FROM")
        return ast.Select(
            table=table,
            selectors=selectors,
            distinct=distinct,
            json=json,
            where=where,
            group_by=group,
            order_by=order,
            per_partition_limit=per,
            limit=limit,
            allow_filtering=filtering,
            bypass_cache=bypass,
            timeout=timeout,
            markers=self.markers,
        )

    def where(self, parts: Parts) -> tuple[ast.Relation, ...]:
        return parts[0] if parts else ()

    group = where
    in_values = staticmethod(first_or_none)

    def equal(self, _: Parts) -> str:
        return "="

    def less(self, _: Parts) -> str:
        return "<"

    def greater(self, _: Parts) -> str:
        return ">"

    def column_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), parts[1], parts[2])

    def like_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "LIKE", parts[1])

    def not_null_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "IS NOT NULL", None)

    def in_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "IN", parts[1])

    def not_in_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "NOT IN", parts[1])

    def contains_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "CONTAINS", parts[1])

    def contains_key_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "CONTAINS KEY", parts[1])

    def element_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("element", parts[0], parts[1]), parts[2], parts[3])

    def element_in_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("element", parts[0], parts[1]), "IN", parts[2])

    def field_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("field", parts[0], parts[1]), parts[2], parts[3])

    def field_in_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("field", parts[0], parts[1]), "IN", parts[2])

    def token_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("token", parts[0]), parts[1], parts[2])

    def tuple_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("tuple", parts[0]), parts[1], parts[2])

    def bound_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("clustering_bound", parts[0]), parts[1], parts[2])

    def tuple_in_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("tuple", parts[0]), "IN", parts[1])

    def parentheses(self, parts: Parts) -> ast.Relation:
        relation: ast.Relation = parts[0]
        return self.nested(relation, relation)

    def ordering(self, parts: Parts) -> tuple[str, str]:
        return (parts[0], "asc")

    def descending(self, parts: Parts) -> tuple[str, str]:
        return (parts[0], "desc")
