"""CAST(value AS type): which conversions there are, and the encoded value each gives."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

from ..errors import InvalidRequest
from .cqltype import CqlType
from .natives import (
    ASCII,
    BITS,
    BOOLEAN,
    COUNTER,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INET,
    NUMBERS,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMEUUID,
    UUID,
    VARINT,
)
from .timeuuid import millis

__all__ = ["cast_function", "value_text"]

_MS_PER_DAY: Final = 86_400_000
_MAX_EXPONENT: Final = 4000  # a decimal of a few bytes can have two thousand million digits when written out
_WRITTEN: Final[tuple[CqlType, ...]] = (*NUMBERS, TIMESTAMP, DATE, TIME, TIMEUUID, UUID, BOOLEAN, INET)

Convert = Callable[[bytes], bytes | None]


def cast_function(source: CqlType, target: CqlType) -> Convert:
    """Return the function that converts an encoded value of *source* to one of *target*.

    An empty value gives null. Whole numbers are cut to a smaller type as C does; a fraction is cut off. A float outside
    the range of bigint, or of int for the smaller types, becomes its nearest limit before it is cut; NaN becomes 0. A
    float that is not finite cannot become a varint.

    Raises InvalidRequest if there is no such conversion. Source: Scylla ``cql3/functions/castas_fcts.cc``.
    """
    if source == target:
        return lambda data: data
    change = _conversion(source, target)
    if change is None:
        raise InvalidRequest(f"{source.name} cannot be cast to {target.name}")
    convert = change

    def cast(data: bytes) -> bytes | None:
        value = source.decode(data)
        if isinstance(value, Decimal) and abs(value.adjusted()) > _MAX_EXPONENT:
            raise InvalidRequest(f"a decimal with an exponent beyond {_MAX_EXPONENT} cannot be cast to {target.name}")
        return None if value is None else target.encode(convert(value))

    return cast


def _conversion(source: CqlType, target: CqlType) -> Callable[[Any], Any] | None:
    if source in NUMBERS and target in NUMBERS and target is not COUNTER:
        return _number(source, target)
    if target in (TEXT, ASCII) and source in _WRITTEN:
        return lambda value: value_text(source, value)
    if (source, target) == (ASCII, TEXT):
        return lambda value: value
    if source is TIMEUUID and target in (TIMESTAMP, DATE):
        per_unit = _MS_PER_DAY if target is DATE else 1
        return lambda value: millis(value.bytes) // per_unit
    if (source, target) == (TIMESTAMP, DATE):
        return lambda value: value // _MS_PER_DAY
    if (source, target) == (DATE, TIMESTAMP):
        return lambda value: value * _MS_PER_DAY
    return None


def _number(source: CqlType, target: CqlType) -> Callable[[Any], Any]:
    if target in (FLOAT, DOUBLE):
        return _to_float
    if target is DECIMAL:
        if source in (FLOAT, DOUBLE):
            # Its text, which has no more digits than tell a 32-bit or 64-bit float from its neighbours.
            return lambda value: Decimal(value_text(source, value))
        return _with_tenths
    bits = BITS.get(target)
    if source in (FLOAT, DOUBLE):
        return lambda value: _whole(value, bits)
    return lambda value: _wrap(int(value), bits)


def _with_tenths(value: int) -> Decimal:
    """Return a decimal with one place after the point, as Scylla writes it."""
    sign, digits, _ = Decimal(value).as_tuple()
    return Decimal((sign, (*digits, 0), -1))


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _whole(value: float, bits: int | None) -> int:
    if bits is None:
        if not math.isfinite(value):
            raise InvalidRequest("a number that is not finite cannot be cast to varint")
        return int(value)
    if math.isnan(value):
        return 0
    # As in Java: first to int or bigint, where it stops at the limits, then cut to the smaller type.
    limit = 1 << max(bits, 32) - 1
    return _wrap(int(max(-limit, min(value, limit - 1))), bits)


def _wrap(value: int, bits: int | None) -> int:
    if bits is None:
        return value
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def value_text(source: CqlType, value: Any) -> str:
    """Return a decoded value of a number, time, uuid, boolean or inet as text. Source: Scylla ``types/types.cc``."""
    if source is BOOLEAN:
        return "true" if value else "false"
    if source is FLOAT:
        return _float_text(_shortest_float(value))
    if source is DOUBLE:
        return _float_text(repr(value))
    if source is DECIMAL:
        return _decimal_text(value)
    if source is DATE:
        return _date_text(value)
    if source is TIMESTAMP:
        days, inside = divmod(value, _MS_PER_DAY)
        seconds, ms = divmod(inside, 1000)
        return f"{_date_text(days)}T{_clock_text(seconds)}.{ms:03d}Z"
    if source is TIME:
        seconds, nanos = divmod(value, 1_000_000_000)
        return f"{_clock_text(seconds)}.{nanos:09d}"
    if source is VARINT:
        return format(Decimal(value), "f")  # str() refuses more than 4300 digits
    return str(value)


def _shortest_float(value: float) -> str:
    """Return the fewest digits that read back as the same 32-bit float."""
    if not math.isfinite(value):
        return repr(value)
    wanted = struct.pack(">f", value)
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        with suppress(OverflowError):  # the greatest floats round up to what no 32-bit float holds
            if struct.pack(">f", float(text)) == wanted:
                return repr(float(text))
    return repr(value)


def _float_text(text: str) -> str:
    return text.removesuffix(".0")


def _decimal_text(value: Decimal) -> str:
    """Return all digits, without zeros at the end of a fraction. Source: Scylla ``utils/big_decimal.cc``."""
    text = format(value, "f") if value else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _clock_text(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _date_text(days: int) -> str:
    """Return a date of any year; Python's calendar is moved by whole cycles of 400 years."""
    cycles, inside = divmod(days + 719_162, 146_097)  # days from 0001-01-01 to 1970-01-01, days of 400 years
    date = dt.date.fromordinal(inside + 1)
    year = date.year + 400 * cycles
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{date.month:02d}-{date.day:02d}"
