"""Sums and differences of encoded numbers, exact or refused."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Inexact
from typing import Any, Final

from ...errors import InvalidRequest
from ...types import DECIMAL, CqlType
from ...types.natives import BITS

__all__ = ["EXACT", "added", "overflows", "subtracted"]

# 1E100000 + 1 alone would have more than 100,000 digits.
EXACT: Final = Context(prec=10_000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])


def added(cql_type: CqlType, name: str, left: bytes | None, right: bytes | None) -> bytes | None:
    """Return the sum of two values of the column *name*, null if one is null. Raises InvalidRequest for an overflow."""
    return _applied(EXACT.add if cql_type is DECIMAL else operator.add, cql_type, name, left, right)


def subtracted(cql_type: CqlType, name: str, left: bytes | None, right: bytes | None) -> bytes | None:
    """Return the difference of two values; see ``added``."""
    return _applied(EXACT.subtract if cql_type is DECIMAL else operator.sub, cql_type, name, left, right)


def overflows(cql_type: CqlType, number: int) -> bool:
    """Tell whether an integer is beyond the range of its type."""
    bits = BITS.get(cql_type)
    return bits is not None and not -(1 << bits - 1) <= number < 1 << bits - 1


def _applied(
    operate: Callable[[Any, Any], Any], cql_type: CqlType, name: str, left: bytes | None, right: bytes | None
) -> bytes | None:
    if not left or not right:  # an empty value is no number either
        return None
    try:
        result = operate(cql_type.decode(left), cql_type.decode(right))
    except Inexact:
        raise InvalidRequest(f"the new value of the decimal column {name} has more than {EXACT.prec} digits") from None
    if overflows(cql_type, result):
        raise InvalidRequest(f"Integer overflow: the new value of column {name} is out of the range of {cql_type.name}")
    return cql_type.encode(result)
