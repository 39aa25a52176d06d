"""Values as the text that Java makes of them, for JSON numbers and for headers."""

from __future__ import annotations

import json
import math
import struct
from base64 import b64encode
from typing import Any, Final

from ..types import Schema

__all__ = ["double_text", "float_text", "header_text"]

_FLOAT = struct.Struct(">f")
_SMALLEST_NORMAL: Final = 2.0**-126
_SIX_DIGITS: Final = 7
"""Length of a text of six digits and a point: another text of so few digits is another float."""


def double_text(value: float) -> str:
    """Return the shortest text that reads as the same double, in Java's form. NaN and the infinities have their names.

    Source: ``Double.toString`` of Java 19 and later. Java 17 sometimes gives more digits.
    """
    if 1e-3 <= abs(value) < 1e7 or value == 0.0:
        return repr(value)
    if not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return _in_form(repr(value), value)


def float_text(value: float) -> str:
    """Return the same for a float of 32 bits."""
    text = double_text(value)
    if len(text) <= _SIX_DIGITS or not math.isfinite(value):
        return text
    # A normal float keeps any six digits; smaller ones have fewer.
    for digits in range(6 if abs(value) >= _SMALLEST_NORMAL else 2, 10):
        text = f"{value:.{digits}g}"
        try:
            if _FLOAT.unpack(_FLOAT.pack(float(text)))[0] == value:
                break
        except OverflowError:  # rounded up beyond the largest float
            continue
    return _in_form(text, value)


def _in_form(text: str, value: float) -> str:
    """Return the digits of *text* as Java has them: with a point, and an exponent below 10**-3 and from 10**7 on."""
    sign = "-" if math.copysign(1, value) < 0 else ""
    mantissa, _, exponent = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0.0"
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        digits = digits.ljust(point, "0")
        return f"{sign}{digits[:point]}.{digits[point:] or '0'}"
    if len(digits) == 1:  # Java has two digits at least, and then the nearest two
        nearest = f"{abs(value):.1e}"
        if float(nearest) == abs(value):
            two, _, power = nearest.partition("e")
            return f"{sign}{two}E{int(power)}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def header_text(schema: Schema, value: Any, *, blob_as_object: bool = False) -> str:
    """Return the value as text of a header: as Java's ``String.valueOf``, dates in UTC.

    Blobs are in base64, as in JSON; with *blob_as_object*, they are the description of a buffer, as from the connector.
    Structs are JSON.
    """
    if schema.type == "boolean":
        return "true" if value else "false"
    if schema.type in ("float32", "float64"):
        return float_text(value) if schema.type == "float32" else double_text(value)
    if schema.type == "bytes":
        if blob_as_object:
            return f"java.nio.HeapByteBuffer[pos=0 lim={len(value)} cap={len(value)}]"
        return b64encode(value).decode()
    if schema.name is not None and schema.name.endswith(".Date"):
        return _date_text(value * _DAY_MS)
    if schema.name is not None and schema.name.endswith(".Timestamp"):
        return _date_text(value)
    if schema.type == "array" and schema.items is not None:
        texts = ["null" if v is None else header_text(schema.items, v, blob_as_object=blob_as_object) for v in value]
        return f"[{', '.join(texts)}]"
    if schema.type == "struct":
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=lambda raw: b64encode(raw).decode())
    return str(value)


_DAY_MS: Final = 86_400_000
_CUTOVER_DAYS: Final = -141_427
_WEEKDAYS: Final = ("Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed")
_MONTHS: Final = ("Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb")


def _date_text(ms: int) -> str:
    """Return ``java.util.Date.toString`` in UTC: in the Julian calendar before 1582-10-15."""
    days, rest = divmod(ms // 1000, 86_400)
    if days >= _CUTOVER_DAYS:
        era, day = divmod(days + 719_468, 146_097)
        year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
        day -= 365 * year + year // 4 - year // 100
        year += 400 * era
    else:
        era, day = divmod(days + 719_470, 1461)
        year = (day - day // 1460) // 365
        day -= 365 * year
        year += 4 * era
    month = (5 * day + 2) // 153
    day += 1 - (153 * month + 2) // 5
    year += month >= 10
    if year < 1:
        year = 1 - year  # Java's text does not say that it is before Christ
    time = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{_WEEKDAYS[days % 7]} {_MONTHS[month]} {day:02} {time} UTC {year:04}"
