"""SELECT, and the relations of WHERE and IF."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidRequest, SyntaxException
from .. import ast
from .parts import Parts, as_tuple, false, first_or_none, true, word
from .terms import Terms

__all__ = ["Reading"]


def _relation(kind: str, op: str | None = None) -> Any:
    """Return what builds a relation whose left side is of *kind*; without *op*, the rule has an operator."""
    size = 2 if kind in ("element", "field") else 1

    def build(_: Reading, parts: Parts) -> ast.Relation:
        operator, *right = parts[size:] if op is None else (op, *parts[size:])
        return ast.Relation((kind, *parts[:size]), operator, right[0] if right else None)

    return build


class Reading(Terms):
    """SELECT and relations."""

    json = distinct = filtering = bypass = if_not_exists = if_exists = internals = static = row_ttl = staticmethod(
        false
    )
    no = staticmethod(false)
    star = staticmethod(word(None))
    yes = staticmethod(true)
    source = limit = partition_limit = timeout = drop_timestamp = term_item = staticmethod(first_or_none)
    selection = order = items = relations = no_values = staticmethod(as_tuple)

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

    equal = staticmethod(word("="))
    less = staticmethod(word("<"))
    greater = staticmethod(word(">"))

    column_relation = _relation("column")
    like_relation = _relation("column", "LIKE")
    not_null_relation = _relation("column", "IS NOT NULL")
    in_relation = _relation("column", "IN")
    not_in_relation = _relation("column", "NOT IN")
    contains_relation = _relation("column", "CONTAINS")
    contains_key_relation = _relation("column", "CONTAINS KEY")
    element_relation = _relation("element")
    element_in_relation = _relation("element", "IN")
    field_relation = _relation("field")
    field_in_relation = _relation("field", "IN")
    token_relation = _relation("token")
    tuple_relation = _relation("tuple")
    tuple_in_relation = _relation("tuple", "IN")
    bound_relation = _relation("clustering_bound")

    def parentheses(self, parts: Parts) -> ast.Relation:
        relation: ast.Relation = parts[0]
        return self.nested(relation, relation)

    def ordering(self, parts: Parts) -> tuple[str, str]:
        return (parts[0], "asc")

    def descending(self, parts: Parts) -> tuple[str, str]:
        return (parts[0], "desc")
