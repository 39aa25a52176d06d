"""Key values from JSON back to the bytes of CQL: the way back of ``Event.foreign_id``, by the columns' types.

Together with ``rscylla.types.json`` this loses nothing of any value that a primary key can have, with two
exceptions: a tuple or UDT that was written with fewer fields than its type has gets nulls for the rest, and of a frozen
set of floats that holds both 0.0 and -0.0 one is lost. Sets and maps may come in any order: the database sorts what is
bound. Source: native protocol v4, section 6.
"""

from __future__ import annotations

import ipaddress
import re
import struct
import uuid
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from .._timeuuid import parse_time
from ..errors import ConfigError
from .tree import Type

__all__ = ["NATIVES", "Encoder", "encoder_for", "integer_encoder", "unsigned_vint"]

Encoder = Callable[[Any], bytes]
"""Makes the bytes of a value in terms of JSON. Raises ValueError or TypeError for what is no such value."""

_INT = struct.Struct(">i")
_FLOAT = struct.Struct(">f")
_DOUBLE = struct.Struct(">d")
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAYS = re.compile(r"-?\d+", re.ASCII)
_DATE = re.compile(r"(\d{1,4})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)\.(\d{9})", re.ASCII)


def encoder_for(
    type_: Type, natives: Mapping[str, Encoder] | None = None, *, parts_of: Callable[[Any], list[Any]] | None = None
) -> Encoder:
    """Return the function that makes the bytes of a value of *type_*, null being None to its callers.

    Args:
        natives: encoders by the name of a native type, where values do not come in terms of JSON.
        parts_of: what gives the fields of a tuple, which are an array in JSON.

    Raises:
        ConfigError: values of the type have no order, so they can be in no key.
    """
    natives = NATIVES if natives is None else natives
    parts_of = parts_of or _array
    parts = [encoder_for(t, natives, parts_of=parts_of) for t in type_.args]
    match type_.kind:
        case "list" | "set":
            return lambda value: _collection([_cell(parts[0], v) for v in _array(value)], len(value))
        case "map":
            return lambda value: _collection(_pairs(value, *parts), len(value))
        case "tuple":
            return lambda value: b"".join(_cell(e, v) for e, v in zip(parts, parts_of(value), strict=True))
        case "udt":
            return lambda value: _udt(value, type_.fields, parts)
        case "vector" if type_.args[0].kind in _FIXED_SIZE:
            return lambda value: b"".join(parts[0](v) for v in _array(value))
        case "vector":
            return lambda value: b"".join(unsigned_vint(len(raw)) + raw for raw in map(parts[0], _array(value)))
    native = natives.get(type_.kind)
    if native is None:
        raise ConfigError(f"values of type {type_.text} cannot be part of a key")
    return native


def _cell(encode: Encoder, value: Any) -> bytes:
    if value is None:
        return b"\xff\xff\xff\xff"
    raw = encode(value)
    return _INT.pack(len(raw)) + raw


def _collection(cells: list[bytes], count: int) -> bytes:
    return _INT.pack(count) + b"".join(cells)


def _pairs(value: Any, key: Encoder, item: Encoder) -> list[bytes]:
    """Return the entries of a map, which JSON has as an object or, if a key is not text, as an array of pairs."""
    pairs = value.items() if isinstance(value, Mapping) else _array(value)
    return [_cell(key, k) + _cell(item, v) for k, v in pairs]


def _udt(value: Any, fields: tuple[str, ...], encoders: list[Encoder]) -> bytes:
    """Return a UDT; as the key of a map JSON has it as an array of pairs."""
    named = dict(value)
    if unknown := named.keys() - set(fields):
        raise ValueError(f"no field {min(unknown)!r}")
    return b"".join(_cell(e, named.get(f)) for f, e in zip(fields, encoders, strict=True))


def unsigned_vint(value: int) -> bytes:
    """Return a number of up to 64 bits in 1 to 9 bytes, led by as many ones as bytes follow the first."""
    more = min(8, (value.bit_length() - 1) // 7 if value else 0)
    lead = (0xFF << (8 - more)) & 0xFF
    if more == 8:
        return bytes([lead]) + value.to_bytes(8, "big")
    return (value | lead << 8 * more).to_bytes(more + 1, "big")


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError("not an array")
    return list(value)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("not a whole number")
    return value


def integer_encoder(size: int) -> Encoder:
    """Return the encoder of whole numbers of *size* bytes."""

    def encode(value: Any) -> bytes:
        try:
            return _whole(value).to_bytes(size, "big", signed=True)
        except OverflowError as e:
            raise ValueError("out of range") from e

    return encode


def _varint(value: Any) -> bytes:
    """Return the shortest two's complement."""
    number = _whole(value)
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _decimal(value: Any) -> bytes:
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise ValueError("not a finite number")
    unscaled = int("".join(map(str, digits)))
    return _INT.pack(-exponent) + _varint(-unscaled if sign else unscaled)


def _number(pack: Callable[[float], bytes]) -> Encoder:
    def encode(value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError("not a number")
        if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
            raise ValueError("not a number")
        return pack(float(value))

    return encode


def _boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return b"\x01" if value else b"\x00"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _blob(value: Any) -> bytes:
    if not _text(value).startswith("0x"):
        raise ValueError("no 0x in front")
    return bytes.fromhex(value[2:])


def _timestamp(value: Any) -> bytes:
    """Return a timestamp; JSON has those beyond the years 1 to 9999 in milliseconds."""
    ms = parse_time(value) // 1000 if isinstance(value, str) else _whole(value)
    return ms.to_bytes(8, "big", signed=True)


def _date(value: Any) -> bytes:
    """Return a date; JSON has those beyond the years 1 to 9999 as text of the days since 1970."""
    if _DAYS.fullmatch(_text(value)):
        days = int(value)
    elif match := _DATE.fullmatch(value):
        days = date(*(int(part) for part in match.groups())).toordinal() - _EPOCH_DAY
    else:
        raise ValueError("not a date")
    return (days + 2**31).to_bytes(4, "big")


def _time(value: Any) -> bytes:
    match = _TIME.fullmatch(_text(value))
    if match is None:
        raise ValueError("not a time with nine digits of fraction")
    hours, minutes, seconds, nanoseconds = (int(part) for part in match.groups())
    return (((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + nanoseconds).to_bytes(8, "big", signed=True)


NATIVES: dict[str, Encoder] = {
    "ascii": lambda value: _text(value).encode("ascii"),
    "bigint": integer_encoder(8),
    "blob": _blob,
    "boolean": _boolean,
    "date": _date,
    "decimal": _decimal,
    "double": _number(_DOUBLE.pack),
    "float": _number(_FLOAT.pack),
    "inet": lambda value: ipaddress.ip_address(_text(value)).packed,
    "int": integer_encoder(4),
    "smallint": integer_encoder(2),
    "text": lambda value: _text(value).encode(),
    "time": _time,
    "timestamp": _timestamp,
    "timeuuid": lambda value: uuid.UUID(_text(value)).bytes,
    "tinyint": integer_encoder(1),
    "uuid": lambda value: uuid.UUID(_text(value)).bytes,
    "varchar": lambda value: _text(value).encode(),
    "varint": _varint,
}
_FIXED_SIZE = ("bigint", "boolean", "double", "float", "int", "timestamp", "timeuuid", "uuid")
