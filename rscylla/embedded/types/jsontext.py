"""CQL values as JSON and back: what ``SELECT JSON``, ``INSERT JSON``, ``toJson`` and ``fromJson`` speak.

Encodings follow Scylla ``cql3/type_json.cc`` and its documentation of JSON support. Two things differ: a ``time`` is
always written in quotes, and no number loses digits on the way in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ..errors import InvalidRequest
from .casts import value_text
from .composed import ListType, MapType, SetType, TupleType, UdtType, VectorType
from .cqltype import CqlType
from .literals import parse_varint
from .natives import (
    ASCII,
    BLOB,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    DURATION,
    FLOAT,
    INTEGERS,
    NUMBERS,
    TEXT,
    TIME,
    TIMESTAMP,
    Duration,
    NativeType,
)
from .terms import READERS

__all__ = ["decode_document", "from_json", "json_row", "read_json", "to_json"]

_MAX_DIGITS: Final = 4000  # a few characters such as 1e999999999 would otherwise become a gigabyte of digits

# A number too large for a float is infinite in JSON, not refused.
_FROM_TEXT: Final[dict[NativeType, Callable[[str], Any]]] = READERS | dict.fromkeys((FLOAT, DOUBLE), float)


# ---------------------------------------------------------------- writing


def to_json(cql_type: CqlType, data: bytes | None) -> str:
    """Return an encoded value as JSON text; null is ``null``."""
    if data is None:
        return "null"
    match cql_type:
        case MapType():
            pairs = [(to_json(cql_type.key, k), to_json(cql_type.value, v)) for k, v in cql_type.split(data)]
            # Keys of JSON objects are text: a key that is no string by itself is put in quotes.
            return _object((key if key.startswith('"') else json.dumps(key), value) for key, value in pairs)
        case ListType() | SetType() | VectorType():
            return _array(to_json(cql_type.element, part) for part in cql_type.split(data))
        case UdtType():
            parts = zip(cql_type.field_names, cql_type.field_types, cql_type.split(data), strict=True)
            return _object((_quoted(name), to_json(kind, part)) for name, kind, part in parts)
        case TupleType():
            return _array(to_json(kind, part) for kind, part in zip(cql_type.items, cql_type.split(data), strict=True))
    return _scalar(cql_type, cql_type.decode(data))


def json_row(names: Iterable[str], types: Iterable[CqlType], cells: Iterable[bytes | None]) -> bytes:
    """Return a result row as one JSON object; a name with a capital letter stands in quotes of its own."""
    parts = zip(names, types, cells, strict=True)
    return _object(
        (_quoted(name if name == name.lower() else f'"{name}"'), to_json(kind, cell)) for name, kind, cell in parts
    ).encode()


def _scalar(cql_type: CqlType, value: Any) -> str:
    if value is None:  # an empty value
        return '""' if cql_type in (TEXT, ASCII) else "null"
    # JSON has no word for them.
    if cql_type in (FLOAT, DOUBLE) and not math.isfinite(value):
        return "null"
    if cql_type is BLOB:
        return f'"0x{value.hex()}"'
    if cql_type is DURATION:
        return _quoted(_duration_text(value))
    if cql_type in (TEXT, ASCII):
        return _quoted(value)
    is_far = cql_type is DECIMAL and abs(value.adjusted()) > _MAX_DIGITS  # written out it would fill the memory
    text = str(value) if is_far else value_text(cql_type, value)
    if cql_type is TIMESTAMP:
        text = text.replace("T", " ")  # JSON alone separates date and time by a space
    return text if cql_type in (*NUMBERS, BOOLEAN) else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _object(pairs: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"


def _array(items: Iterable[str]) -> str:
    return "[" + ", ".join(items) + "]"


_CLOCK_UNITS: Final = (("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000))
_SMALL_UNITS: Final = (("ms", 1_000_000), ("us", 1_000), ("ns", 1))


def _duration_text(value: Duration) -> str:
    """Return a duration in the short form that CQL reads: ``-1y2mo3d4h``."""
    sign = "-" if min(value.months, value.days, value.nanoseconds) < 0 else ""
    years, months = divmod(abs(value.months), 12)
    parts = [(years, "y"), (months, "mo"), (abs(value.days), "d")]
    left = abs(value.nanoseconds)
    for unit, size in (*_CLOCK_UNITS, *_SMALL_UNITS):
        amount, left = divmod(left, size)
        parts.append((amount, unit))
    return sign + "".join(f"{amount}{unit}" for amount, unit in parts if amount)


# ---------------------------------------------------------------- reading


def decode_document(text: str) -> dict[str, Any]:
    """Return the columns of an ``INSERT JSON`` document by name, values as parsed.

    A name counts in lower case unless it stands in double quotes of its own. Raises InvalidRequest.
    """
    document = read_json(text)
    if document is None:
        raise InvalidRequest("Got null for INSERT JSON values")
    if not isinstance(document, dict):
        raise InvalidRequest("Could not decode JSON string as a map of column names to values")
    out: dict[str, Any] = {}
    for name, value in document.items():
        is_quoted = len(name) > 1 and name[0] == name[-1] == '"'
        out[name[1:-1] if is_quoted else name.lower()] = value
    return out


def read_json(text: str) -> Any:
    """Return a JSON text as Python values; numbers with a point or an exponent come as Decimal. InvalidRequest."""
    try:
        # Decimal keeps all digits; Python alone would take NaN and Infinity, which are not JSON.
        return json.loads(text, parse_float=Decimal, parse_int=parse_varint, parse_constant=_no_constant)
    except (ValueError, InvalidOperation, RecursionError):
        raise InvalidRequest("Could not decode JSON string: it is not valid JSON") from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def from_json(cql_type: CqlType, value: Any) -> bytes | None:
    """Return the encoded value of a parsed JSON value, None for null.

    Raises InvalidRequest for a JSON value that is not one of the type. Null inside a collection is one of these.
    """
    if value is None:
        return None
    match cql_type:
        case MapType():
            return _map_from(cql_type, value)
        case ListType() | SetType() | VectorType():
            _expect(cql_type, value, list, "an array")
            return cql_type.join([_element(cql_type.element, item) for item in value])
        case UdtType():
            return _udt_from(cql_type, value)
        case TupleType():
            _expect(cql_type, value, list, "an array")
            if len(value) > len(cql_type.items):
                raise _refusal(cql_type, f"{len(value)} components are too many")
            return cql_type.join([from_json(kind, item) for kind, item in zip(cql_type.items, value, strict=False)])
    return _scalar_from(cql_type, value)


def _expect(cql_type: CqlType, value: Any, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise _refusal(cql_type, f"it must be {what}")


def _refusal(cql_type: CqlType, reason: str) -> InvalidRequest:
    return InvalidRequest(f"Error decoding JSON value of type {cql_type.name}: {reason}")


def _element(cql_type: CqlType, value: Any) -> bytes:
    encoded = from_json(cql_type, value)
    if encoded is None:
        raise InvalidRequest("null is not supported inside collections")
    return encoded


def _map_from(cql_type: MapType, value: Any) -> bytes:
    _expect(cql_type, value, dict, "an object")
    pairs: list[tuple[bytes, bytes]] = []
    for name, item in value.items():
        # JSON has only text for keys: keys of other types are JSON inside that text.
        key = name if cql_type.key in (TEXT, ASCII) else _key_of(cql_type.key, name)
        pairs.append((_element(cql_type.key, key), _element(cql_type.value, item)))
    return cql_type.join(pairs)


def _key_of(cql_type: CqlType, name: str) -> Any:
    try:
        return read_json(name)
    except InvalidRequest:
        if cql_type in _FROM_TEXT and cql_type is not BOOLEAN:
            return name  # uuids, dates and blobs are written as keys without further quotes
        raise


def _udt_from(cql_type: UdtType, value: Any) -> bytes:
    _expect(cql_type, value, dict, "an object")
    unknown = [name for name in value if name not in cql_type.field_names]
    if unknown:
        raise _refusal(cql_type, f"there is no field {_quoted(unknown[0])}")
    fields = zip(cql_type.field_names, cql_type.field_types, strict=True)
    return cql_type.join([from_json(kind, value.get(name)) for name, kind in fields])


def _scalar_from(cql_type: CqlType, value: Any) -> bytes:
    try:
        return cql_type.encode(_natural(cql_type, value))
    except InvalidRequest:
        raise
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise _refusal(cql_type, str(error) if cql_type in (TIMESTAMP, DATE, TIME, DURATION) else "bad value") from None


def _natural(cql_type: CqlType, value: Any) -> Any:
    """Return the Python value that ``encode`` takes."""
    if cql_type is BOOLEAN:
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        _expect(cql_type, value, bool, "true or false")
        return value
    if cql_type is BLOB:
        if not isinstance(value, str) or not value.startswith("0x"):
            raise _refusal(cql_type, "it must be text that begins with 0x")
        return bytes.fromhex(value[2:])
    if isinstance(value, str):
        return _FROM_TEXT[cql_type](value)  # type: ignore[index]  # no other type comes here
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _refusal(cql_type, "it must be text or a number")
    if cql_type in INTEGERS or cql_type is TIMESTAMP:
        return _whole(cql_type, value)
    if cql_type is DECIMAL:
        return Decimal(value)
    if cql_type in (FLOAT, DOUBLE):
        return float(value)
    raise _refusal(cql_type, "it must be text")


def _whole(cql_type: CqlType, value: int | Decimal) -> int:
    # 12.0 and 1.3e8 are integers to JSON; 12.5 is not.
    if isinstance(value, Decimal):
        if value.adjusted() > _MAX_DIGITS or value != value.to_integral_value():
            raise _refusal(cql_type, "it must be a whole number")
        return int(value)
    return value
