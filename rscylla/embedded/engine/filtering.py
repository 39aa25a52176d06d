"""Comparisons with a row's values: what ALLOW FILTERING checks row by row, and the conditions of IF clauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from ..cql import ast
from ..errors import InvalidRequest
from ..result import UNSET
from ..schema.tables import Column
from ..types import DURATION, INT, CqlType, ListType, MapType, SetType, TupleType, UdtType
from .binding import Getter, Request, Scope
from .rows import RowView, column_value

__all__ = ["Check", "Predicate", "condition", "predicate"]

Check = Callable[[RowView], bool]
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


@attrs.frozen
class Predicate:
    """A comparison bound to a table: ``check(request)`` gives the test of a row for one request."""

    column: Column
    check: Callable[[Request], Check]


def predicate(scope: Scope, relation: ast.Relation) -> Predicate:
    """Return the WHERE comparison. A null on either side is never true."""
    column, cql_type, read = _left(scope, relation)
    if relation.op in ("CONTAINS", "CONTAINS KEY"):
        return Predicate(column, _contains(scope, relation, column))
    if relation.op == "IS NOT NULL":
        raise InvalidRequest(
            "restriction IS NOT NULL is only supported for materialized views, which are not supported"
        )
    if relation.op == "LIKE":
        raise InvalidRequest("LIKE is not supported by the embedded server")
    if relation.op in ("<", "<=", ">", ">=") and _holds_duration(cql_type):
        raise InvalidRequest(f"Slice restrictions are not supported on {_duration_kind(cql_type)}")
    if relation.op == "!=":
        raise InvalidRequest(f'Unsupported "!=" relation: {column.name}')
    return Predicate(column, _comparison(scope, relation, cql_type, column.name, read, null_equals_null=False))


def _holds_duration(cql_type: CqlType) -> bool:
    if isinstance(cql_type, MapType):
        return _holds_duration(cql_type.key) or _holds_duration(cql_type.value)
    if isinstance(cql_type, ListType | SetType):
        return _holds_duration(cql_type.element)
    if isinstance(cql_type, TupleType | UdtType):
        return any(_holds_duration(item) for item in cql_type.items)
    return cql_type == DURATION


def _duration_kind(cql_type: CqlType) -> str:
    if cql_type == DURATION:
        return "duration columns"
    if isinstance(cql_type, TupleType):
        return "tuples containing durations"
    return "UDTs containing durations" if isinstance(cql_type, UdtType) else "collections containing durations"


def condition(scope: Scope, relation: ast.Relation) -> Predicate:
    """Return the IF comparison: ``= null`` holds for a missing value and ``!=`` for any other one."""
    column, cql_type, read = _left(scope, relation)
    if relation.op in ("<", "<=", ">", ">=") and _holds_duration(cql_type):
        raise InvalidRequest(f"Slice conditions are not supported on {_duration_kind(cql_type)}")
    if column.kind in ("partition_key", "clustering"):
        raise InvalidRequest(f"PRIMARY KEY column '{column.name}' cannot have IF conditions")
    if relation.op in ("CONTAINS", "CONTAINS KEY", "LIKE", "IS NOT NULL"):
        raise InvalidRequest(f"{relation.op} is not supported in IF conditions by the embedded server")
    return Predicate(column, _comparison(scope, relation, cql_type, column.name, read, null_equals_null=True))


def _left(
    scope: Scope, relation: ast.Relation
) -> tuple[Column, CqlType, Callable[[Request], Callable[[RowView], bytes | None]]]:
    """Return the column on the left, the type compared, and how to read it."""
    kind, name = relation.left[0], relation.left[1]
    column = scope.table.by_name.get(name) if isinstance(name, str) else None
    if column is None:
        raise InvalidRequest(f"Unrecognized name {name}")
    whole = column_value(column)
    cql_type = column.type
    if kind == "column":
        return column, cql_type, lambda request: whole
    if kind == "field" and isinstance(cql_type, UdtType):
        field = relation.left[2]
        if field not in cql_type.field_names:
            raise InvalidRequest(f"Unknown field {field} in column {name}")
        at = cql_type.field_names.index(field)
        udt = cql_type

        def read_field(view: RowView) -> bytes | None:
            value = whole(view)
            return None if value is None else udt.split(value)[at]

        return column, udt.field_types[at], lambda request: read_field
    if kind == "element" and isinstance(cql_type, MapType):
        key = scope.getter(relation.left[2], cql_type.key, f"key({name})")
        return column, cql_type.value, _map_element(cql_type, key, whole)
    if kind == "element" and isinstance(cql_type, ListType):
        key = scope.getter(relation.left[2], INT, f"idx({name})")
        return column, cql_type.element, _list_element(cql_type, key, whole)
    raise InvalidRequest(f"Column {name} of type {cql_type.name} has no elements or fields to compare")


def _map_element(
    cql_type: MapType, key: Getter, whole: Callable[[RowView], bytes | None]
) -> Callable[[Request], Callable[[RowView], bytes | None]]:
    def for_request(request: Request) -> Callable[[RowView], bytes | None]:
        wanted = key(request)

        def read(view: RowView) -> bytes | None:
            value = whole(view)
            return None if value is None else next((v for k, v in cql_type.split(value) if k == wanted), None)

        return read

    return for_request


def _list_element(
    cql_type: ListType, key: Getter, whole: Callable[[RowView], bytes | None]
) -> Callable[[Request], Callable[[RowView], bytes | None]]:
    def for_request(request: Request) -> Callable[[RowView], bytes | None]:
        raw = key(request)
        # A null index selects nothing.
        at = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else -1

        def read(view: RowView) -> bytes | None:
            value = whole(view)
            items = [] if value is None else cql_type.split(value)
            return items[at] if 0 <= at < len(items) else None

        return read

    return for_request


def _comparison(
    scope: Scope,
    relation: ast.Relation,
    cql_type: CqlType,
    name: str,
    reader: Callable[[Request], Callable[[RowView], bytes | None]],
    *,
    null_equals_null: bool,
) -> Callable[[Request], Check]:
    if relation.op == "IN":
        return _membership(scope, relation, cql_type, name, reader, null_equals_null=null_equals_null)
    # Read or bound, a whole collection is one encoded value, as that of a frozen one is.
    wanted = scope.getter(relation.right, cql_type.freeze() if cql_type.is_multicell else cql_type, name)
    compare, sort_key, op = _COMPARE[relation.op], cql_type.sort_key, relation.op

    def for_request(request: Request) -> Check:
        right, read = wanted(request), reader(request)
        if right is UNSET:
            raise InvalidRequest(f"Invalid unset value for column {name}")
        if not isinstance(right, bytes):
            # In an IF clause null is a value; in a WHERE clause it matches nothing.
            if null_equals_null and op in ("=", "!="):
                return lambda view: (read(view) is None) == (op == "=")
            return lambda view: False
        limit = sort_key(right)

        def check(view: RowView) -> bool:
            left = read(view)
            if left is None:
                return null_equals_null and op == "!="
            return compare(sort_key(left), limit)

        return check

    return for_request


def _membership(
    scope: Scope,
    relation: ast.Relation,
    cql_type: CqlType,
    name: str,
    reader: Callable[[Request], Callable[[RowView], bytes | None]],
    *,
    null_equals_null: bool,
) -> Callable[[Request], Check]:
    single = cql_type.freeze() if cql_type.is_multicell else cql_type
    if isinstance(relation.right, tuple):
        getters = [scope.getter(term, single, name) for term in relation.right]

        def values(request: Request) -> set[Any]:
            return {get(request) for get in getters}
    else:
        listed = ListType(single, frozen=True)
        whole = scope.getter(relation.right, listed, f"in({name})")

        def values(request: Request) -> set[Any]:
            raw = whole(request)
            if not isinstance(raw, bytes):
                raise InvalidRequest(f"Invalid null value for IN restriction on {name}")
            return set(listed.split(raw))

    def for_request(request: Request) -> Check:
        wanted, read = values(request), reader(request)
        # Likewise: IN (null) matches nothing in a WHERE clause.
        if not null_equals_null:
            wanted.discard(None)
        return lambda view: read(view) in wanted

    return for_request


def _contains(scope: Scope, relation: ast.Relation, column: Column) -> Callable[[Request], Check]:
    cql_type, read = column.type, column_value(column)
    by_key = relation.op == "CONTAINS KEY"
    if isinstance(cql_type, MapType):
        wanted = scope.getter(relation.right, cql_type.key if by_key else cql_type.value, f"value({column.name})")
        mapping, part = cql_type, 0 if by_key else 1

        def items(value: bytes) -> list[bytes]:
            return [pair[part] for pair in mapping.split(value)]
    elif isinstance(cql_type, SetType | ListType) and not by_key:
        wanted = scope.getter(relation.right, cql_type.element, f"value({column.name})")
        listed = cql_type

        def items(value: bytes) -> list[bytes]:
            return listed.split(value)

    else:
        raise InvalidRequest(f"Cannot use {relation.op} on column {column.name} of type {cql_type.name}")

    def for_request(request: Request) -> Check:
        value = wanted(request)

        def check(view: RowView) -> bool:
            whole = read(view)
            return whole is not None and value in items(whole)

        return check

    return for_request
