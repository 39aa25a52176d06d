"""Select lists: columns, parts of them, literals, functions and aggregates, compiled to functions of a row."""

from __future__ import annotations

from typing import Any

import attrs

from ...cql import ast
from ...errors import InvalidRequest, SyntaxException
from ...result import ColumnSpec
from ...schema.tables import Column
from ...types import (
    INT,
    CqlType,
    ListType,
    MapType,
    SetType,
    UdtType,
    default_type,
    parse_type,
    term_text,
)
from ..binding import Getter, Request, Scope
from ..values.aggregates import AGGREGATES, aggregate_of, count_rows
from ..values.cellproperty import cell_property
from ..values.expression import Combine, Evaluate, Expression, applied, column_expression
from ..where.filtering import element_of

__all__ = ["Evaluate", "Expression", "Projection", "compile_projection"]

_SELECTORS = ast.ColumnSelector | ast.FunctionSelector | ast.CastSelector | ast.ElementSelector | ast.FieldSelector


@attrs.frozen
class Projection:
    """A compiled select list. ``plain`` holds the columns when the list is nothing but columns."""

    specs: tuple[ColumnSpec, ...]
    expressions: tuple[Expression, ...]
    plain: tuple[Column, ...] | None
    is_aggregate: bool


def compile_projection(scope: Scope, selectors: tuple[ast.Selector, ...] | None) -> Projection:
    """Return the projection of a select list, ``None`` for ``*``."""
    table = scope.table
    if selectors is None:
        expressions = tuple(column_expression(column) for column in table.columns)
        names = [column.name for column in table.columns]
    else:
        expressions = tuple(_expression(scope, selector.item) for selector in selectors)
        names = [s.alias or e.name for s, e in zip(selectors, expressions, strict=True)]
    specs = tuple(
        ColumnSpec(table.keyspace, table.name, name, expression.type)
        for name, expression in zip(names, expressions, strict=True)
    )
    columns = tuple(e.column for e in expressions if e.column is not None)
    is_aggregate = any(expression.grouped is not None for expression in expressions)
    return Projection(specs, expressions, columns if len(columns) == len(expressions) else None, is_aggregate)


def _find(scope: Scope, name: str) -> Column:
    column = scope.table.by_name.get(name)
    if column is None:
        raise InvalidRequest(f"Unrecognized name {name}")
    return column


def _expression(scope: Scope, item: Any) -> Expression:
    match item:
        case ast.ColumnSelector():
            return column_expression(_find(scope, item.name))
        case ast.FunctionSelector():
            return _function(scope, item)
        case ast.CastSelector():
            return _cast(scope, item)
        case ast.ElementSelector():
            return _element(scope, item)
        case ast.FieldSelector():
            return _field(scope, item)
    return _literal(scope, item)


def _literal(scope: Scope, term: Any) -> Expression:
    """Return a term of its own type."""
    hinted = parse_type(term.type_text, scope.lookup_udt) if isinstance(term, ast.Cast) else None
    wanted = hinted or default_type(term)
    if wanted is None:
        raise InvalidRequest(f"Could not infer type of {term_text(term)}")
    return _value(scope, term, wanted, term_text(term))


def _value(scope: Scope, term: Any, wanted: CqlType, receiver: str) -> Expression:
    """Return a term of the type that its place wants; *receiver* names its markers."""
    getter = scope.getter(term, wanted, receiver)

    def for_request(request: Request) -> Evaluate:
        value = _bound_value(getter, request)
        return lambda view: value

    return Expression(term_text(term), wanted, for_request)


def _bound_value(getter: Getter, request: Request) -> bytes | None:
    value = getter(request)
    if value is None or isinstance(value, bytes):
        return value
    raise InvalidRequest("Invalid unset value in a select list")


# ---------------------------------------------------------------- functions


def _function(scope: Scope, item: ast.FunctionSelector) -> Expression:
    name = item.name
    if item.keyspace not in (None, "system"):
        raise InvalidRequest(f"Unknown function '{item.keyspace}.{item.name}'")
    if name in ("writetime", "ttl"):
        return _cell_property(scope, item)
    if (name == "count" and not item.args) or name == "countrows":
        return count_rows()
    if name in AGGREGATES:
        return _aggregate(scope, item)
    parts = [_expression(scope, a) if isinstance(a, _SELECTORS) else a for a in item.args]
    kinds = [part.type if isinstance(part, Expression) else part for part in parts]
    shown = [part.name if isinstance(part, Expression) else term_text(part) for part in parts]
    result, wanted, combine = scope.functions.selected(scope, name, kinds, shown)
    typed = [
        part if isinstance(part, Expression) else _value(scope, part, kind, f"arg{at}(system.{name})")
        for at, (part, kind) in enumerate(zip(parts, wanted, strict=True))
    ]
    return applied(f"system.{name}({', '.join(shown)})", result, typed, combine)


def _aggregate(scope: Scope, item: ast.FunctionSelector) -> Expression:
    if len(item.args) != 1:
        raise InvalidRequest(
            f"Invalid number of arguments in call to function system.{item.name}: 1 required but {len(item.args)}"
            " provided"
        )
    (argument,) = item.args
    if not isinstance(argument, _SELECTORS | ast.Cast) and default_type(argument) is None:
        raise InvalidRequest(f"{item.name}() function is only valid when argument types are known")
    inner = _expression(scope, argument)
    if inner.grouped is not None:
        raise InvalidRequest("aggregate functions cannot be used as arguments of aggregate functions")
    return aggregate_of(item.name, inner)


def _cast(scope: Scope, item: ast.CastSelector) -> Expression:
    inner = _expression(scope, item.selector)
    target = parse_type(item.type_text, scope.lookup_udt)
    # A cast to the same type is left out, and with it its name.
    if inner.type == target:
        return inner
    convert = scope.functions.cast(inner.type, target)

    def combine(request: Request) -> Combine:
        return lambda values: None if values[0] is None else convert(values[0])

    return applied(f"cast({inner.name} as {target.name})", target, [inner], combine)


# ---------------------------------------------------------------- parts of values


def _element(scope: Scope, item: ast.ElementSelector) -> Expression:
    inner = _expression(scope, item.of)
    kind = inner.type
    name = f"{inner.name}[{term_text(item.key)}]"
    key = _element_key(scope, inner, item.key)

    def combine(request: Request) -> Combine:
        pick = element_of(kind, _bound_value(key, request))
        return lambda values: pick(values[0])

    result = kind.value if isinstance(kind, MapType) else kind.element  # type: ignore[attr-defined]
    return applied(name, result, [inner], combine)


def _element_key(scope: Scope, inner: Expression, key: Any) -> Getter:
    """Return what gives the key of an element: that of a map or set, the index of a list."""
    match inner.type:
        case MapType():
            return scope.getter(key, inner.type.key, f"key({inner.name})")
        case ListType():
            return scope.getter(key, INT, f"index({inner.name})")
        case SetType():
            return scope.getter(key, inner.type.element, f"value({inner.name})")
    raise InvalidRequest(f"Column {inner.name} is not a map/set/list, cannot be subscripted")


def _field(scope: Scope, item: ast.FieldSelector) -> Expression:
    inner = _expression(scope, item.of)
    udt = inner.type
    at = _field_position(inner.name, udt, item.field)
    assert isinstance(udt, UdtType)

    def combine(request: Request) -> Combine:
        return lambda values: None if values[0] is None else udt.split(values[0])[at]

    return applied(f"{inner.name}.{item.field}", udt.field_types[at], [inner], combine)


def _field_position(name: str, udt: CqlType, field: str) -> int:
    if not isinstance(udt, UdtType):
        raise InvalidRequest(f"Invalid field selection: {name} of type {udt.name} is not a user type")
    if field not in udt.field_names:
        raise InvalidRequest(f"{name} of type {udt.name} has no field {field}")
    return udt.field_names.index(field)


def _cell_property(scope: Scope, item: ast.FunctionSelector) -> Expression:
    """Return WRITETIME or TTL of a column, of an element of a map or set, or of a field of a UDT."""
    (argument,) = item.args if len(item.args) == 1 else (None,)
    whole = argument.of if isinstance(argument, ast.ElementSelector | ast.FieldSelector) else argument
    kind = item.name.upper()
    if not isinstance(whole, ast.ColumnSelector):
        raise SyntaxException(f"{kind} takes a column, an element of a column, or a field of a column")
    column = _find(scope, whole.name)
    if column.kind in ("partition_key", "clustering"):
        raise InvalidRequest(f"{kind} is not legal on primary key component {column.name}")
    if isinstance(argument, ast.ElementSelector):
        key = _element_key(scope, column_expression(column), argument.key)
        if not column.type.is_multicell or isinstance(column.type, ListType):
            raise InvalidRequest(f"{kind} on a subscript is only valid for non-frozen map or set columns")
        name = f"{column.name}[{term_text(argument.key)}]"
        return cell_property(item.name, name, column, lambda request: _bound_value(key, request))
    if isinstance(argument, ast.FieldSelector):
        at = _field_position(column.name, column.type, argument.field)
        if not column.type.is_multicell:
            raise InvalidRequest(f"{kind} on a field selection is only valid for non-frozen UDT columns")
        place = at.to_bytes(2, "big")
        return cell_property(item.name, f"{column.name}.{argument.field}", column, lambda request: place)
    if column.type.is_multicell:
        raise InvalidRequest(f"{kind} expects an atomic column, but {column.name} is a non-frozen collection")
    return cell_property(item.name, column.name, column, None)
