"""Compiles the conditions of an IF clause. Unlike in WHERE, null is a value there: ``v = null`` holds if v has none.

Source: Scylla ``cql3/expr/expression.cc`` (null_handling_style::lwt_nulls).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...cql import ast
from ...errors import InvalidRequest, SyntaxException
from ...types import ASCII, TEXT, CqlType, ListType, UdtType
from ..binding import Request, Scope, not_unset
from .filtering import (
    COMPARE,
    Check,
    Predicate,
    Reader,
    duration_kind,
    holds_duration,
    left_side,
    like,
)

__all__ = ["condition"]

Value = bytes | None
Test = Callable[[Value], bool]


def condition(scope: Scope, relation: ast.Relation) -> Predicate:
    """Compile one condition. Raises InvalidRequest or SyntaxException for a comparison that IF does not allow."""
    if relation.op in ("CONTAINS", "CONTAINS KEY", "IS NOT NULL"):
        found = relation.op.partition(" ")[0]
        raise SyntaxException(f"no viable alternative at input '{found.lower()}': IF clauses have no {relation.op}")
    column, cql_type, receiver, reader = left_side(scope, relation)
    if column.kind in ("partition_key", "clustering"):
        raise InvalidRequest(f"PRIMARY KEY column '{column.name}' cannot have IF conditions")
    if relation.op in ("<", "<=", ">", ">=") and holds_duration(cql_type):
        raise InvalidRequest(f"Slice conditions are not supported on {duration_kind(cql_type)}")
    if relation.op in ("IN", "NOT IN"):
        return Predicate(column, _reading(reader, _membership(scope, relation, cql_type, receiver)))
    if relation.op in ("=", "!=") and _holds_null(relation.right) and isinstance(cql_type, ListType):
        # Of the collections, only a list literal may contain null. No stored list does, so none equals it.
        differs = relation.op == "!="
        return Predicate(column, lambda request: lambda view: differs)
    wanted = _getter(scope, relation.right, cql_type, receiver)
    if relation.op == "LIKE":
        if cql_type not in (TEXT, ASCII):
            raise InvalidRequest(f"LIKE is allowed only on string types, which {column.name} is not")
        return Predicate(column, _reading(reader, lambda request: _like(wanted(request))))
    op = relation.op
    return Predicate(column, _reading(reader, lambda request: _comparison(cql_type, op, wanted(request))))


def _reading(reader: Reader, test: Callable[[Request], Test]) -> Callable[[Request], Check]:
    def for_request(request: Request) -> Check:
        holds, read = test(request), reader(request)
        return lambda view: holds(read(view))

    return for_request


def _getter(scope: Scope, term: Any, cql_type: CqlType, receiver: str) -> Callable[[Request], Value]:
    """Return a function that evaluates the right-hand side for a request, and refuses an unset value."""
    # A whole collection is compared as one encoded value, like a frozen one.
    get = scope.getter(term, cql_type.freeze() if cql_type.is_multicell else cql_type, receiver)
    if isinstance(term, ast.ListTerm | ast.SetTerm | ast.MapTerm) and not term.items and _vanishes(cql_type):
        # An empty non-frozen collection is stored as null, so its literal compares as null.
        return lambda request: None
    return lambda request: not_unset(get(request), f"column {receiver}")


def _holds_null(term: Any) -> bool:
    return isinstance(term, ast.ListTerm) and ast.Constant("null", "") in term.items


def _vanishes(cql_type: CqlType) -> bool:
    return cql_type.is_multicell and not isinstance(cql_type, UdtType)


def _comparison(cql_type: CqlType, op: str, right: Value) -> Test:
    if right is None:
        if op not in ("=", "!="):
            # When evaluated, not when compiled: the answer is no error if an earlier condition does not hold.
            def refuse(_: Value) -> bool:
                raise InvalidRequest(f'Invalid comparison with null for operator "{op}"')

            return refuse
        return lambda left: (left is None) == (op == "=")
    compare, sort_key, limit = COMPARE[op], cql_type.sort_key, cql_type.sort_key(right)
    if op == "!=":
        return lambda left: left is None or compare(sort_key(left), limit)
    return lambda left: left is not None and compare(sort_key(left), limit)


def _like(pattern: Value) -> Test:
    if pattern is None:
        return lambda left: False
    matches = like(pattern.decode())
    return lambda left: left is not None and matches(left.decode())


def _membership(scope: Scope, relation: ast.Relation, cql_type: CqlType, receiver: str) -> Callable[[Request], Test]:
    name = f"{relation.op}({receiver})"
    values: Callable[[Request], list[Value] | None]
    if isinstance(relation.right, tuple):
        getters = [_getter(scope, term, cql_type, f"value({name})") for term in relation.right]

        def values(request: Request) -> list[Value] | None:
            return [get(request) for get in getters]
    else:
        values = scope.in_list(relation.right, cql_type, name)

    sort_key, negated = cql_type.sort_key, relation.op == "NOT IN"

    def for_request(request: Request) -> Test:
        wanted = values(request)
        if wanted is None:
            # Nothing is in a list that is not there.
            return lambda left: negated
        has_null = None in wanted
        keys = [sort_key(value) for value in wanted if value is not None]

        def holds(left: Value) -> bool:
            found = has_null if left is None else sort_key(left) in keys
            return found != negated

        return holds

    return for_request
