"""One form for values of log rows, whether they were printed by a peer's program or decoded by rscylla.

Numbers, text, booleans and lists stay; sets and maps, of which a user-defined type is one, become tagged and sorted;
all else becomes the text or number that go/value.go and rust/src/value.rs print.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from cassandra.util import Date

__all__ = ["mapping", "plain", "printed", "setting"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def setting(elements: Iterable[Any]) -> tuple[str, Any]:
    return ("set", sorted(elements, key=repr))


def mapping(pairs: Iterable[Any]) -> tuple[str, Any]:
    return ("map", sorted(([key, value] for key, value in pairs), key=repr))


def printed(tagged: dict[str, Any]) -> Any:
    """Return a JSON object of a peer in the common form; for use as ``object_hook``."""
    match tagged:
        case {"set": list(elements), **rest} if not rest:
            return setting(elements)
        case {"map": list(pairs), **rest} if not rest:
            return mapping(pairs)
        case {"varint": str(digits), **rest} if not rest:
            return int(digits)
    return tagged


def plain(value: Any) -> Any:
    """Return a value of rscylla in the common form."""
    match value:
        case bool() | int() | float() | str() | None:
            return value
        case bytes():
            return "0x" + value.hex()
        case uuid.UUID():
            return str(value)
        case datetime():
            return (value - EPOCH) // timedelta(milliseconds=1)
        case Date():
            return value.days_from_epoch
        case Decimal():
            sign, digits, exponent = value.as_tuple()
            return f"{'-' * sign}{int(''.join(map(str, digits)))}e{exponent}"
        case Mapping():
            return mapping([plain(key), plain(item)] for key, item in value.items())
        case set() | frozenset():
            return setting(map(plain, value))
        case list() | tuple():
            return [plain(item) for item in value]
    raise TypeError(f"no common form for a {type(value).__name__}")
