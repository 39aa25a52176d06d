"""CQL values as JSON, without loss of precision.

Numbers, text, booleans and null are themselves, NaN and the infinities the strings "NaN", "Infinity", "-Infinity".
Blobs are "0x" and hex digits, as cqlsh prints them. Decimals are strings; timestamps RFC 3339 in UTC; uuid, inet, date,
time and duration their usual text; years beyond 1 to 9999 are those of ISO 8601 and Java, see ``moments``. Lists, sets
and tuples are arrays (sets sorted, so that the same value always gives the same text); maps are objects where all keys
are text, else arrays of pairs; UDTs are objects.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from json.encoder import encode_basestring
from typing import Any

from .._integers import format_int
from .._timeuuid import format_time, us_of
from .moments import FarTime, date_text

__all__ = ["dumps", "dumps_key", "plain"]


def plain(value: Any) -> Any:
    """Return *value* in terms of JSON: dicts with text keys, lists, strings, numbers, booleans, None."""
    if value is None or isinstance(value, str | bool | int):
        return value.text if isinstance(value, FarTime) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, bytes | bytearray | memoryview):
        return "0x" + bytes(value).hex()
    if isinstance(value, datetime):
        return format_time(us_of(value))
    if isinstance(value, Mapping):
        if all(isinstance(k, str) for k in value):
            return {k: plain(v) for k, v in value.items()}
        return [[plain(k), plain(v)] for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, AbstractSet):
        return [plain(v) for v in _sorted(value)]
    days = getattr(value, "days_from_epoch", None)  # of the driver's Date
    return str(value) if days is None else date_text(days)


def _sorted(values: AbstractSet[Any]) -> list[Any]:
    """Return the elements in an order that does not depend on their hashes: their own, or that of their JSON."""
    try:
        ordered = all(v == v for v in values)  # NaN has no place among numbers
        return sorted(values) if ordered else sorted(values, key=dumps)
    except TypeError:
        return sorted(values, key=dumps)


def dumps(value: Any, *, sort_keys: bool = False) -> str:
    """Return compact JSON text of a CQL value, or of a dict of such values. Text is not escaped to ASCII."""
    value = plain(value)
    try:
        return _encode_sorted(value) if sort_keys else _encode(value)
    except ValueError:  # an integer of so many digits that Python refuses to write them
        return _encode_parts(value, sort_keys=sort_keys)


def _encode_parts(value: Any, *, sort_keys: bool) -> str:
    """Return the same as ``_encode`` and ``_encode_sorted``, with integers of any size."""
    if isinstance(value, dict):
        members = sorted(value.items()) if sort_keys else value.items()
        texts = [f"{encode_basestring(k)}:{_encode_parts(v, sort_keys=sort_keys)}" for k, v in members]
        return "{" + ",".join(texts) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_encode_parts(v, sort_keys=sort_keys) for v in value]) + "]"
    return format_int(value) if type(value) is int else _encode(value)


def dumps_key(key: Mapping[str, Any]) -> str:
    """Return the same as ``dumps(key, sort_keys=True)``, in a third of the time for keys of ints and text."""
    parts = []
    for name in sorted(key):
        value = key[name]
        kind = type(value)
        if kind is int:
            text = format_int(value)
        elif kind is str:
            text = encode_basestring(value)
        else:
            text = dumps(value, sort_keys=True)
        parts.append(f"{encode_basestring(name)}:{text}")
    return "{" + ",".join(parts) + "}"


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_encode_sorted = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, sort_keys=True).encode
