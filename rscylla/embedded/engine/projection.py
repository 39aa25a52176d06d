"""Select lists: columns, functions of them and aggregates, compiled to functions of a row."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from typing import Any, Final

import attrs

from ..cql import ast
from ..errors import InvalidRequest
from ..result import ColumnSpec
from ..schema.tables import Column
from ..types import (
    BIGINT,
    COUNTER,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    TINYINT,
    VARINT,
    CqlType,
    ListType,
    MapType,
    UdtType,
    parse_type,
)
from .binding import Request, Scope
from .rows import RowView, column_cell, column_value

__all__ = ["Aggregate", "Expression", "Projection", "compile_projection"]

Evaluate = Callable[[RowView], bytes | None]
_INTEGERS = (TINYINT, SMALLINT, INT, BIGINT, VARINT, COUNTER)


@attrs.frozen
class Expression:
    """A value computed from a row. ``column`` is set when it is nothing but that column."""

    name: str
    type: CqlType
    for_request: Callable[[Request], Evaluate]
    column: Column | None = None
    aggregate: Aggregate | None = None


@attrs.frozen
class Aggregate:
    """``finish`` turns the collected inputs of a group into the result."""

    inputs: Callable[[Request], Evaluate]
    finish: Callable[[list[bytes | None]], bytes | None]


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
        expressions = tuple(_column(column) for column in table.columns)
        names = [column.name for column in table.columns]
    else:
        expressions = tuple(_expression(scope, selector.item) for selector in selectors)
        names = [s.alias or e.name for s, e in zip(selectors, expressions, strict=True)]
    specs = tuple(
        ColumnSpec(table.keyspace, table.name, name, expression.type)
        for name, expression in zip(names, expressions, strict=True)
    )
    columns = tuple(e.column for e in expressions if e.column is not None)
    is_aggregate = any(expression.aggregate is not None for expression in expressions)
    return Projection(specs, expressions, columns if len(columns) == len(expressions) else None, is_aggregate)


def _column(column: Column) -> Expression:
    read = column_value(column)
    return Expression(column.name, column.type, lambda request: read, column)


def _find(scope: Scope, name: str) -> Column:
    column = scope.table.by_name.get(name)
    if column is None:
        raise InvalidRequest(f"Unrecognized name {name}")
    return column


def _expression(scope: Scope, item: Any) -> Expression:
    if isinstance(item, ast.ColumnSelector):
        return _column(_find(scope, item.name))
    if isinstance(item, ast.FunctionSelector):
        return _function(scope, item)
    if isinstance(item, ast.CastSelector):
        return _cast(scope, item)
    if isinstance(item, ast.ElementSelector):
        return _element(scope, item)
    if isinstance(item, ast.FieldSelector):
        return _field(scope, item)
    raise InvalidRequest(
        "literals in a select list are not supported by the embedded server; select columns or functions"
    )


def _function(scope: Scope, item: ast.FunctionSelector) -> Expression:
    name = item.name.lower()
    if item.keyspace not in (None, "system"):
        raise InvalidRequest(f"Unknown function '{item.keyspace}.{item.name}'")
    if name in ("writetime", "ttl"):
        return _cell_property(scope, item, name)
    # They need a group of rows; all other functions need one row.
    if name in ("count", "min", "max", "sum", "avg"):
        return _aggregate(scope, item, name)
    if name == "countrows" or item.name == "*":
        return _count_rows()
    arguments = [_argument(scope, argument) for argument in item.args]
    if name == "token":
        return _token(scope, arguments)
    names = ", ".join(a.name if isinstance(a, Expression) else "?" for a in arguments)
    result_type, call = scope.functions.select(scope, name, arguments)
    aggregates = [a for a in arguments if isinstance(a, Expression) and a.aggregate is not None]
    if aggregates:
        raise InvalidRequest(f"aggregate inside the function {name} is not supported by the embedded server")
    return Expression(f"system.{name}({names})", result_type, call)


def _argument(scope: Scope, argument: Any) -> Any:
    """Return an Expression, or the term as it is (typed by the function)."""
    if isinstance(
        argument,
        ast.ColumnSelector | ast.FunctionSelector | ast.CastSelector | ast.ElementSelector | ast.FieldSelector,
    ):
        return _expression(scope, argument)
    return argument


def _token(scope: Scope, arguments: list[Any]) -> Expression:
    wanted = scope.table.partition_key
    given = tuple(a.column for a in arguments if isinstance(a, Expression))
    if given != wanted:
        expected = ", ".join(column.name for column in wanted)
        raise InvalidRequest(f"The token function arguments must be in the partition key order: {expected}")
    token = scope.functions.token(scope.table)

    def evaluate(view: RowView) -> bytes:
        return token(view.key).to_bytes(8, "big", signed=True)

    names = ", ".join(column.name for column in wanted)
    return Expression(f"system.token({names})", BIGINT, lambda request: evaluate)


def _cell_property(scope: Scope, item: ast.FunctionSelector, name: str) -> Expression:
    if len(item.args) != 1 or not isinstance(item.args[0], ast.ColumnSelector):
        raise InvalidRequest(f"{name} takes the name of one column")
    column = _find(scope, item.args[0].name)
    if column.kind in ("partition_key", "clustering"):
        raise InvalidRequest(f"Cannot use selection function {name} on PRIMARY KEY part {column.name}")
    if column.type.is_multicell:
        raise InvalidRequest(f"Cannot use selection function {name} on collections")
    read = column_cell(column)

    def writetime(view: RowView) -> bytes | None:
        cell = read(view)
        return None if cell is None else cell.timestamp.to_bytes(8, "big", signed=True)

    def ttl(view: RowView) -> bytes | None:
        cell = read(view)
        # What is left of it, not what it was written with.
        return None if cell is None or cell.expiry is None else (cell.expiry - view.now_s).to_bytes(4, "big")

    evaluate = writetime if name == "writetime" else ttl
    return Expression(f"{name}({column.name})", BIGINT if name == "writetime" else INT, lambda request: evaluate)


def _cast(scope: Scope, item: ast.CastSelector) -> Expression:
    inner = _expression(scope, item.selector)
    if inner.aggregate is not None:
        raise InvalidRequest("CAST of an aggregate is not supported by the embedded server")
    target = parse_type(item.type_text, scope.lookup_udt)
    convert = scope.functions.cast(inner.type, target)

    def for_request(request: Request) -> Evaluate:
        evaluate = inner.for_request(request)

        def cast(view: RowView) -> bytes | None:
            value = evaluate(view)
            return None if value is None else convert(value)

        return cast

    return Expression(f"cast({inner.name} as {target.name})", target, for_request)


def _element(scope: Scope, item: ast.ElementSelector) -> Expression:
    column = _find(scope, item.column)
    cql_type, read = column.type, column_value(column)
    if isinstance(cql_type, MapType):
        key = scope.getter(item.key, cql_type.key, f"key({column.name})")
        mapping = cql_type

        def of_map(request: Request) -> Evaluate:
            wanted = key(request)

            def evaluate(view: RowView) -> bytes | None:
                value = read(view)
                return None if value is None else next((v for k, v in mapping.split(value) if k == wanted), None)

            return evaluate

        return Expression(f"{column.name}[?]", cql_type.value, of_map)
    if isinstance(cql_type, ListType):
        index = scope.getter(item.key, INT, f"idx({column.name})")
        listed = cql_type

        def of_list(request: Request) -> Evaluate:
            raw = index(request)
            at = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else -1

            def evaluate(view: RowView) -> bytes | None:
                value = read(view)
                items = [] if value is None else listed.split(value)
                return items[at] if 0 <= at < len(items) else None

            return evaluate

        return Expression(f"{column.name}[?]", cql_type.element, of_list)
    raise InvalidRequest(f"Column {column.name} of type {cql_type.name} cannot be read by element")


def _field(scope: Scope, item: ast.FieldSelector) -> Expression:
    column = _find(scope, item.column)
    udt = column.type
    if not isinstance(udt, UdtType):
        raise InvalidRequest(f"Invalid field selection: column {column.name} of type {udt.name} is not a user type")
    if item.field not in udt.field_names:
        raise InvalidRequest(f"{column.name} of type {udt.name} has no field {item.field}")
    at, read = udt.field_names.index(item.field), column_value(column)

    def evaluate(view: RowView) -> bytes | None:
        value = read(view)
        return None if value is None else udt.split(value)[at]

    return Expression(f"{column.name}.{item.field}", udt.field_types[at], lambda request: evaluate)


# ---------------------------------------------------------------- aggregates

# Sums are exact or refused: 1E100000 + 1 alone would have more than 100,000 digits.
_EXACT: Final = Context(prec=10_000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])


def _none(view: RowView) -> bytes | None:
    return b""  # any value but null will do: rows are counted


def _count_rows() -> Expression:
    def finish(values: list[bytes | None]) -> bytes:
        return len(values).to_bytes(8, "big")

    aggregate = Aggregate(lambda request: _none, finish)
    return Expression("count", BIGINT, lambda request: _none, aggregate=aggregate)


def _aggregate(scope: Scope, item: ast.FunctionSelector, name: str) -> Expression:
    if name == "count" and (not item.args or not isinstance(item.args[0], ast.ColumnSelector)):
        return _count_rows()
    if len(item.args) != 1:
        raise InvalidRequest(f"Invalid number of arguments in call to function system.{name}: 1 required")
    inner = _argument(scope, item.args[0])
    if not isinstance(inner, Expression) or inner.aggregate is not None:
        raise InvalidRequest("aggregate functions cannot be used as arguments of aggregate functions")
    result_type, finish = _finisher(name, inner.type)
    aggregate = Aggregate(inner.for_request, finish)
    return Expression(f"system.{name}({inner.name})", result_type, inner.for_request, aggregate=aggregate)


def _finisher(name: str, cql_type: CqlType) -> tuple[CqlType, Callable[[list[bytes | None]], bytes | None]]:
    if name == "count":
        return BIGINT, lambda values: sum(v is not None for v in values).to_bytes(8, "big")
    if name in ("min", "max"):
        pick: Any = min if name == "min" else max

        def extreme(values: list[bytes | None]) -> bytes | None:
            return pick((v for v in values if v is not None), key=cql_type.sort_key, default=None)  # type: ignore[no-any-return]

        return cql_type, extreme
    if cql_type not in (*_INTEGERS, FLOAT, DOUBLE, DECIMAL):
        raise InvalidRequest(f"Invalid call to function system.{name}: it takes numbers, not {cql_type.name}")
    return cql_type, functools.partial(_total, cql_type, mean=name == "avg")


def _total(cql_type: CqlType, values: list[bytes | None], *, mean: bool) -> bytes | None:
    numbers = [cql_type.decode(v) for v in values if v]  # empty values count as null
    if not numbers:
        return cql_type.encode(Decimal(0) if cql_type == DECIMAL else 0)
    if cql_type == DECIMAL:
        return cql_type.encode(_decimal_total(numbers, mean=mean))
    total = sum(numbers[1:], numbers[0])
    if mean and cql_type in _INTEGERS:
        total = abs(total) // len(numbers) * (1 if total >= 0 else -1)  # truncated like C++
    elif mean:
        total = total / len(numbers)
    if cql_type in _INTEGERS and cql_type is not VARINT:
        bits = 8 * (cql_type.fixed_size or 8)
        if not -(1 << bits - 1) <= total < 1 << bits - 1:
            raise InvalidRequest(f"sum overflows {cql_type.name}; cast the column to a wider type")
    return cql_type.encode(total)


def _decimal_total(numbers: list[Decimal], *, mean: bool) -> Decimal:
    """Return the exact sum; the mean has its scale, rounded half to even. Source: Scylla ``utils/big_decimal.cc``."""
    try:
        total = functools.reduce(_EXACT.add, numbers)
    except Inexact:
        raise InvalidRequest(f"a sum of decimals has more than {_EXACT.prec} digits") from None
    if not mean:
        return total
    sign, digits, exponent = total.as_tuple()
    assert isinstance(exponent, int)  # none is NaN or infinite
    # Through Decimal, not str: Python refuses to read whole numbers of more than 4300 digits.
    quotient, rest = divmod(int(Decimal((0, digits, 0))), len(numbers))
    quotient += 2 * rest > len(numbers) or (2 * rest == len(numbers) and quotient % 2)
    return Decimal((sign, Decimal(quotient).as_tuple().digits, exponent))
