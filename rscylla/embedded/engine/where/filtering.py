"""Comparisons with a row's values: what ALLOW FILTERING checks row by row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ...cql import ast
from ...errors import InvalidRequest
from ...schema.tables import Column
from ...types import ASCII, DURATION, INT, TEXT, CqlType, ListType, MapType, SetType, TupleType, UdtType, term_text
from ..binding import Getter, Request, Scope, not_unset
from ..rows import RowView, column_value

__all__ = [
    "COMPARE",
    "Check",
    "Predicate",
    "Reader",
    "duration_kind",
    "element_of",
    "holds_duration",
    "left_side",
    "like",
    "one_of",
    "predicate",
    "relation_text",
]

Check = Callable[[RowView], bool]
Reader = Callable[[Request], Callable[[RowView], bytes | None]]
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
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
    column, cql_type, name, read = left_side(scope, relation)
    if relation.op == "IS NOT NULL":
        raise InvalidRequest(
            f"restriction '{column.name} IS NOT null' is only supported in materialized view creation, and views are"
            " not supported by the embedded server"
        )
    if relation.op in ("CONTAINS", "CONTAINS KEY"):
        return Predicate(column, _contains(scope, relation, column))
    if relation.op in ("<", "<=", ">", ">=") and holds_duration(cql_type):
        raise InvalidRequest(
            f"Duration type is unordered for {column.name}: Slice restrictions are not supported on"
            f" {duration_kind(cql_type)}"
        )
    if relation.left[0] == "column" and isinstance(cql_type, ListType | SetType | MapType) and cql_type.is_multicell:
        raise InvalidRequest(
            f"Collection column '{column.name}' ({cql_type.name}) cannot be restricted by a '{relation.op}' relation"
        )
    if relation.left[0] == "element" and isinstance(column.type, MapType):
        if not column.type.is_multicell:
            raise InvalidRequest(f"Map-entry equality predicates on frozen map column {column.name} are not supported")
        if relation.op != "=":
            raise InvalidRequest("Only EQ relations are supported on map entries")
    if relation.op == "LIKE":
        return Predicate(column, _like(scope, relation, column, cql_type, name, read))
    return Predicate(column, _comparison(scope, relation, cql_type, name, read))


def relation_text(relation: ast.Relation) -> str:
    """Return a relation as CQL, for messages."""
    kind, name = relation.left[0], relation.left[1]
    if kind in ("tuple", "clustering_bound", "token"):
        left = f"{'token' if kind == 'token' else ''}({', '.join(name)})"
    elif kind == "element":
        left = f"{name}[{term_text(relation.left[2])}]"
    else:
        left = ".".join(relation.left[1:])
    right = ast.TupleTerm(relation.right) if isinstance(relation.right, tuple) else relation.right
    return f"{left} {relation.op} {term_text(right)}"


def holds_duration(cql_type: CqlType) -> bool:
    if isinstance(cql_type, MapType):
        return holds_duration(cql_type.key) or holds_duration(cql_type.value)
    if isinstance(cql_type, ListType | SetType):
        return holds_duration(cql_type.element)
    if isinstance(cql_type, TupleType | UdtType):
        return any(holds_duration(item) for item in cql_type.items)
    return cql_type == DURATION


def duration_kind(cql_type: CqlType) -> str:
    if cql_type == DURATION:
        return "duration columns"
    if isinstance(cql_type, TupleType):
        return "tuples containing durations"
    return "UDTs containing durations" if isinstance(cql_type, UdtType) else "collections containing durations"


def left_side(scope: Scope, relation: ast.Relation) -> tuple[Column, CqlType, str, Reader]:
    """Return the column on the left, the type compared, how markers on the right are named, and how to read it."""
    kind, name = relation.left[0], relation.left[1]
    column = scope.table.by_name.get(name) if isinstance(name, str) else None
    if column is None:
        raise InvalidRequest(f"Unrecognized name {name}")
    whole = column_value(column)
    cql_type = column.type
    if kind == "column":
        return column, cql_type, name, lambda request: whole
    if kind == "field" and isinstance(cql_type, UdtType):
        field = relation.left[2]
        if field not in cql_type.field_names:
            raise InvalidRequest(f"Unknown field {field} in column {name}")
        at = cql_type.field_names.index(field)
        udt = cql_type

        def read_field(view: RowView) -> bytes | None:
            value = whole(view)
            return None if value is None else udt.split(value)[at]

        return column, udt.field_types[at], f"{name}.{field}", lambda request: read_field
    if kind == "element" and isinstance(cql_type, MapType):
        key = scope.getter(relation.left[2], cql_type.key, f"key({name})")
        return column, cql_type.value, f"value({name})", _element(cql_type, key, f"key({cql_type.name})", whole)
    if kind == "element" and isinstance(cql_type, ListType):
        key = scope.getter(relation.left[2], INT, f"index({name})")
        return column, cql_type.element, f"value({name})", _element(cql_type, key, "list index", whole)
    if kind == "element":
        raise InvalidRequest(f"Column {name} of type {cql_type.name} cannot be subscripted")
    raise InvalidRequest(f"Column {name} of type {cql_type.name} has no fields to compare")


def _element(cql_type: MapType | ListType, key: Getter, name: str, whole: Callable[[RowView], bytes | None]) -> Reader:
    def for_request(request: Request) -> Callable[[RowView], bytes | None]:
        pick = element_of(cql_type, not_unset(key(request), name))
        return lambda view: pick(whole(view))

    return for_request


def element_of(cql_type: CqlType, key: bytes | None) -> Callable[[bytes | None], bytes | None]:
    """Return what takes an element out of a value: of a map or set by its key, of a list by its index."""
    if key is None:  # it selects nothing
        return lambda value: None
    if isinstance(cql_type, ListType):
        at, lists = int.from_bytes(key, "big", signed=True), cql_type

        def of_list(value: bytes | None) -> bytes | None:
            items = [] if value is None else lists.split(value)
            return items[at] if 0 <= at < len(items) else None

        return of_list
    if isinstance(cql_type, MapType):
        is_it, maps = one_of(cql_type.key, [key]), cql_type
        return lambda value: None if value is None else next((v for k, v in maps.split(value) if is_it(k)), None)
    assert isinstance(cql_type, SetType)
    is_in, sets = one_of(cql_type.element, [key]), cql_type
    return lambda value: None if value is None else next(filter(is_in, sets.split(value)), None)


def _comparison(
    scope: Scope,
    relation: ast.Relation,
    cql_type: CqlType,
    name: str,
    reader: Reader,
) -> Callable[[Request], Check]:
    if relation.op in ("IN", "NOT IN"):
        return _membership(scope, relation, cql_type, name, reader)
    # Read or bound, a whole collection is one encoded value, as that of a frozen one is.
    wanted = scope.getter(relation.right, cql_type.freeze() if cql_type.is_multicell else cql_type, name)
    compare, sort_key = COMPARE[relation.op], cql_type.sort_key

    def for_request(request: Request) -> Check:
        right, read = not_unset(wanted(request), "column", name), reader(request)
        if right is None:
            return lambda view: False
        limit = sort_key(right)

        def check(view: RowView) -> bool:
            left = read(view)
            return left is not None and compare(sort_key(left), limit)

        return check

    return for_request


def _membership(
    scope: Scope,
    relation: ast.Relation,
    cql_type: CqlType,
    name: str,
    reader: Reader,
) -> Callable[[Request], Check]:
    """Return the check of IN and NOT IN. Source: Scylla ``cql3/expr/expression.cc``, is_one_of and is_none_of."""
    name, negated = f"{relation.op}({name})", relation.op == "NOT IN"
    values: Callable[[Request], list[bytes | None] | None]
    if isinstance(relation.right, tuple):
        getters = [scope.getter(term, cql_type.freeze(), f"value({name})") for term in relation.right]

        def values(request: Request) -> list[bytes | None] | None:
            return [not_unset(get(request), name) for get in getters]
    else:
        values = scope.in_list(relation.right, cql_type, name)

    def for_request(request: Request) -> Check:
        wanted, read = values(request), reader(request)
        # A null on either side is neither in a list nor not in it.
        if wanted is None or (negated and None in wanted):
            return lambda view: False
        is_one = one_of(cql_type, [value for value in wanted if value is not None])
        return lambda view: (value := read(view)) is not None and is_one(value) != negated

    return for_request


def _like(
    scope: Scope,
    relation: ast.Relation,
    column: Column,
    cql_type: CqlType,
    name: str,
    reader: Reader,
) -> Callable[[Request], Check]:
    if cql_type not in (TEXT, ASCII):
        raise InvalidRequest(f"LIKE is allowed only on string types, which {column.name} is not")
    wanted = scope.getter(relation.right, cql_type, name)

    def for_request(request: Request) -> Check:
        pattern, read = not_unset(wanted(request), f"column {column.name}"), reader(request)
        if pattern is None:
            return lambda view: False
        matches = like(pattern.decode())
        return lambda view: (value := read(view)) is not None and matches(value.decode())

    return for_request


def like(pattern: str) -> Callable[[str], bool]:
    r"""Return the match of LIKE: ``%`` is any text, ``_`` one character; ``\`` takes the next one as it is."""
    chunks = [""]
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            chunks.append("")
        elif character == "_":
            chunks[-1] += "."
        else:
            # At the end, a backslash stands for itself.
            chunks[-1] += re.escape(next(characters, "\\") if character == "\\" else character)
    first, *others = chunks
    if others:
        # The first place of a chunk is as good as any later one; without going back, no text takes long.
        first += "".join(f"(?>.*?{chunk})" for chunk in others[:-1]) + f".*{others[-1]}"
    compiled = re.compile(first, re.DOTALL)
    return lambda text: compiled.fullmatch(text) is not None


def one_of(cql_type: CqlType, values: Sequence[bytes]) -> Callable[[bytes], bool]:
    """Return the test whether a value equals one of *values*: equal ones may differ in bytes, as 1.0 and 1.00 do."""
    sort_key = cql_type.sort_key
    # Keys of values that hold lists have no hash.
    keys = [sort_key(value) for value in values]
    same = frozenset(values)
    return lambda value: value in same or sort_key(value) in keys


def _contains(scope: Scope, relation: ast.Relation, column: Column) -> Callable[[Request], Check]:
    cql_type, read = column.type, column_value(column)
    by_key = relation.op == "CONTAINS KEY"
    name = f"{'key' if by_key else 'value'}({column.name})"
    if isinstance(cql_type, MapType):
        part_type = cql_type.key if by_key else cql_type.value
        mapping, part = cql_type, 0 if by_key else 1

        def items(value: bytes) -> list[bytes]:
            return [pair[part] for pair in mapping.split(value)]
    elif isinstance(cql_type, SetType | ListType) and not by_key:
        part_type = cql_type.element
        listed = cql_type

        def items(value: bytes) -> list[bytes]:
            return listed.split(value)

    else:
        on = f"non-map column {column.name}" if by_key else f'non-collection column "{column.name}"'
        raise InvalidRequest(f"Cannot use {relation.op} on {on}")
    wanted = scope.getter(relation.right, part_type, name)

    def for_request(request: Request) -> Check:
        value = not_unset(wanted(request), name)
        is_it = one_of(part_type, [] if value is None else [value])

        def check(view: RowView) -> bool:
            whole = read(view)
            return whole is not None and any(map(is_it, items(whole)))

        return check

    return for_request
