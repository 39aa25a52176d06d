"""The native aggregates: count, min, max, sum, avg."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal, Inexact
from typing import Any, Final

import attrs

from ...errors import InvalidRequest
from ...types import BIGINT, DECIMAL, CqlType
from ...types.natives import INTEGERS, NUMBERS
from ..rows import RowView
from .arithmetic import EXACT, overflows
from .expression import Expression, aggregated

__all__ = ["AGGREGATES", "aggregate_of", "count_rows"]

AGGREGATES: Final = ("count", "min", "max", "sum", "avg")


def _no_value(view: RowView) -> bytes | None:
    return b""  # any value but null will do: rows are counted


def count_rows() -> Expression:
    """Return ``count(*)``."""
    count = aggregated("count", BIGINT, lambda request: _no_value, lambda values: len(values).to_bytes(8, "big"))
    return attrs.evolve(count, counts=True)


def aggregate_of(name: str, inner: Expression) -> Expression:
    """Return one of `AGGREGATES` of a value. Raises InvalidRequest for a type that it does not take."""
    result_type, finish = _finisher(name, inner.type)
    return aggregated(f"system.{name}({inner.name})", result_type, inner.for_request, finish)


def _finisher(name: str, cql_type: CqlType) -> tuple[CqlType, Callable[[list[bytes | None]], bytes | None]]:
    if name == "count":
        return BIGINT, lambda values: sum(v is not None for v in values).to_bytes(8, "big")
    if name in ("min", "max"):
        pick: Any = min if name == "min" else max

        def extreme(values: list[bytes | None]) -> bytes | None:
            return pick((v for v in values if v is not None), key=cql_type.sort_key, default=None)  # type: ignore[no-any-return]

        return cql_type, extreme
    if cql_type not in NUMBERS:
        known = ", ".join(f"system.{name} : ({number.name}) -> {number.name}" for number in NUMBERS)
        raise InvalidRequest(
            f"Invalid call to function {name}, none of its type signatures match (known type signatures: {known})"
        )
    return cql_type, functools.partial(_total, cql_type, mean=name == "avg")


def _total(cql_type: CqlType, values: list[bytes | None], *, mean: bool) -> bytes | None:
    numbers = [cql_type.decode(v) for v in values if v]  # empty values count as null
    if not numbers:
        return cql_type.encode(Decimal(0) if cql_type == DECIMAL else 0)
    if cql_type == DECIMAL:
        return cql_type.encode(_decimal_total(numbers, mean=mean))
    total = sum(numbers[1:], numbers[0])
    if mean and cql_type in INTEGERS:
        total = abs(total) // len(numbers) * (1 if total >= 0 else -1)  # truncated like C++
    elif mean:
        total = total / len(numbers)
    if overflows(cql_type, total):
        raise InvalidRequest("Sum overflow. Values should be casted to a wider type.")
    return cql_type.encode(total)


def _decimal_total(numbers: list[Decimal], *, mean: bool) -> Decimal:
    """Return the exact sum; the mean has its scale, rounded half to even. Source: Scylla ``utils/big_decimal.cc``."""
    try:
        total = functools.reduce(EXACT.add, numbers)
    except Inexact:
        raise InvalidRequest(f"a sum of decimals has more than {EXACT.prec} digits") from None
    if not mean:
        return total
    sign, digits, exponent = total.as_tuple()
    assert isinstance(exponent, int)  # none is NaN or infinite
    # Through Decimal, not str: Python refuses to read whole numbers of more than 4300 digits.
    quotient, rest = divmod(int(Decimal((0, digits, 0))), len(numbers))
    quotient += 2 * rest > len(numbers) or (2 * rest == len(numbers) and quotient % 2)
    return Decimal((sign, Decimal(quotient).as_tuple().digits, exponent))
