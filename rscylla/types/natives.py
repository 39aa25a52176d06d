"""Values of native types: bytes to Python, and JSON or Arrow to bytes. The registry assigns them.

A decoder raises ValueError for bytes that are no value of its type; an encoder ValueError, TypeError or
ArithmeticError for what is none. Source: native protocol v4, section 6.
"""

from __future__ import annotations

import ipaddress
import re
import struct
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from .._integers import format_int, parse_int
from .._timeuuid import datetime_of, parse_time
from .cells import unsigned_vint
from .moments import FarTime, parse_days, parse_far_time
from .tree import Digits

__all__ = [
    "Decoder",
    "Encoder",
    "TooManyDigits",
    "decimal_parts",
    "digits_reader",
    "has_width",
    "uuid_text",
    "varint_parts",
]

Decoder = Callable[[bytes], Any]
"""Makes the Python value of bytes."""

Encoder = Callable[[Any], bytes]
"""Makes the bytes of a value that JSON, or Arrow, has given."""

_INT = struct.Struct(">i")
_DAY_ZERO = 2**31
_DAYS = re.compile(r"-?\d+", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)\.(\d{9})", re.ASCII)
_DURATION = re.compile(r"(-?)(\d+)mo(\d+)d(\d+)ns", re.ASCII)


# ---------------------------------------------------------------- decoding


def packed_decoder(packed: str) -> Decoder:
    """Return the decoder of numbers that ``struct`` unpacks."""
    form = struct.Struct(packed)
    unpack, width = form.unpack, form.size
    return lambda raw: unpack(raw)[0] if has_width(raw, width) else None


def has_width(raw: bytes, width: int) -> bool:
    """Whether *raw* is a value: not empty. Raise ValueError for any other number of bytes than *width*."""
    if raw and len(raw) != width:
        raise ValueError(f"a cell does not have the {width} bytes of its type")
    return bool(raw)


def driver_decoder(driver_type: Any) -> Decoder:
    """Return the decoder of a class of ``cassandra.cqltypes``, whose errors are of many kinds."""
    deserialize = driver_type.deserialize

    def decode(raw: bytes) -> Any:
        try:
            return deserialize(raw, 4) if raw else None
        except (ValueError, ArithmeticError, LookupError, OSError, TypeError, struct.error) as e:
            raise ValueError(f"a cell does not hold a {driver_type.typename}") from e

    return decode


def decode_ascii(raw: bytes) -> str:
    return raw.decode("ascii")


def decode_blob(raw: bytes) -> bytes:
    return raw


def decode_boolean(raw: bytes) -> bool | None:
    return raw != b"\x00" if has_width(raw, 1) else None


def decode_decimal(raw: bytes) -> Decimal | None:
    if not raw:
        return None
    scale, number = decimal_parts(raw)
    return Decimal(f"{format_int(number)}E{-scale}")  # as text, because arithmetic rounds


def decimal_parts(raw: bytes) -> tuple[int, int]:
    """Return scale and unscaled number of the bytes of a decimal."""
    if len(raw) < _SHORTEST_DECIMAL:
        raise ValueError("a cell is too short for a decimal")
    return _INT.unpack_from(raw)[0], int.from_bytes(raw[4:], "big", signed=True)


_SHORTEST_DECIMAL = 5


def varint_parts(raw: bytes) -> tuple[int, int]:
    """Return scale, 0, and unscaled number of the bytes of a varint."""
    return 0, int.from_bytes(raw, "big", signed=True)


class TooManyDigits(OverflowError):
    """A number has no place in the ``Digits`` that were asked for. The message says how."""


def digits_reader(parts: Callable[[bytes], tuple[int, int]], digits: Digits) -> Decoder:
    """Return what converts a number to the unscaled one of *digits*: 16 bytes, little-endian, as Arrow has them.

    Args:
        parts: returns scale and unscaled number of a cell.

    Raises (the function):
        ValueError: the cell has no value of its type.
        TooManyDigits: the number cannot be written with *digits*; nothing is rounded.
    """
    bound = 10**digits.precision

    def read(raw: bytes) -> bytes | None:
        if not raw:
            return None
        scale, number = parts(raw)
        more = digits.scale - scale
        if digits.exact and more:
            raise TooManyDigits(f"a number of the scale {scale}, which {digits} would change")
        # The scale has 32 bits: a power of it is computed only where the number may fit.
        if number and more > digits.precision:
            raise TooManyDigits(f"a number that is too large for {digits}")
        if number and -more > number.bit_length():
            raise TooManyDigits(f"a number with more decimal places than {digits}")
        if number and more > 0:
            number *= 10**more
        elif number and more < 0:
            number, rest = divmod(number, 10**-more)
            if rest:
                raise TooManyDigits(f"a number with more decimal places than {digits}")
        if not -bound < number < bound:
            raise TooManyDigits(f"a number that is too large for {digits}")
        return number.to_bytes(16, "little", signed=True)

    return read


def decode_timestamp(raw: bytes) -> datetime | int | None:
    if not has_width(raw, 8):
        return None
    ms = int.from_bytes(raw, "big", signed=True)
    try:
        return datetime_of(ms * 1000)
    except OverflowError:
        return FarTime(ms)


def decode_uuid(raw: bytes) -> uuid.UUID | None:
    return uuid.UUID(bytes=raw) if has_width(raw, 16) else None


def uuid_text(raw: bytes) -> str | None:
    """Return the usual text of a UUID."""
    if not has_width(raw, 16):
        return None
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# ---------------------------------------------------------------- encoding what JSON has


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


def float_encoder(packed: str) -> Encoder:
    """Return the encoder of floating-point numbers that ``struct`` packs."""
    pack = struct.Struct(packed).pack

    def encode(value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError("not a number")
        if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
            raise ValueError("not a number")
        return pack(float(value))

    return encode


def encode_varint(value: Any) -> bytes:
    """Return the shortest two's complement."""
    number = _whole(value)
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def encode_decimal(value: Any) -> bytes:
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise ValueError("not a finite number")
    unscaled = int(Decimal((0, digits, 0)))
    return _INT.pack(-exponent) + encode_varint(-unscaled if sign else unscaled)


def encode_boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return b"\x01" if value else b"\x00"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def encode_ascii(value: Any) -> bytes:
    return _text(value).encode("ascii")


def encode_text(value: Any) -> bytes:
    return _text(value).encode()


def encode_blob(value: Any) -> bytes:
    if not _text(value).startswith("0x"):
        raise ValueError("no 0x in front")
    return bytes.fromhex(value[2:])


def encode_inet(value: Any) -> bytes:
    return ipaddress.ip_address(_text(value)).packed


def encode_uuid(value: Any) -> bytes:
    return uuid.UUID(_text(value)).bytes


def encode_timestamp(value: Any) -> bytes:
    """Return a timestamp, of its text or its milliseconds."""
    if isinstance(value, str):
        far = None if value[:4].isdecimal() and value[:4] != "0000" else parse_far_time(value)
        ms = parse_time(value) // 1000 if far is None else far
    else:
        ms = _whole(value)
    return ms.to_bytes(8, "big", signed=True)


def encode_date(value: Any) -> bytes:
    """Return a date, of its text or of text of the days since 1970."""
    return encode_days(int(value) if _DAYS.fullmatch(_text(value)) else parse_days(value))


def encode_time(value: Any) -> bytes:
    match = _TIME.fullmatch(_text(value))
    if match is None:
        raise ValueError("not a time with nine digits of fraction")
    hours, minutes, seconds, nanoseconds = (int(part) for part in match.groups())
    return (((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + nanoseconds).to_bytes(8, "big", signed=True)


def encode_duration(value: Any) -> bytes:
    match = _DURATION.fullmatch(_text(value))
    if match is None:
        raise ValueError("not a duration of months, days and nanoseconds")
    sign = -1 if match[1] else 1
    return _duration(*(sign * int(part) for part in match.groups()[1:]))


def _duration(*parts: int) -> bytes:
    """Return months, days and nanoseconds as signed numbers of variable length."""
    if not all(-(2**63) <= part < 2**63 for part in parts):
        raise ValueError("out of range")
    return b"".join([unsigned_vint((part << 1 ^ part >> 63) & (2**64 - 1)) for part in parts])


# ---------------------------------------------------------------- encoding what Arrow has otherwise


def encode_days(days: int) -> bytes:
    return (days + _DAY_ZERO).to_bytes(4, "big")


def encode_microseconds(us: int) -> bytes:
    """Return a timestamp; the ends of Arrow's time stand for whatever lies beyond, see ``rscylla.types.arrow``."""
    return _BEYOND.get(us, us // 1000).to_bytes(8, "big", signed=True)


_BEYOND = {2**63 - 1: 2**63 - 1, -(2**63): -(2**63)}


def encode_parts(value: Mapping[str, int]) -> bytes:
    return _duration(value["months"], value["days"], value["nanoseconds"])


def encode_varint_text(value: str | Decimal) -> bytes:
    """Return a varint; Arrow has it as text, or as a decimal number if it was read as one."""
    if isinstance(value, str):
        return encode_varint(parse_int(value))
    if value != (whole := int(value)):
        raise ValueError("not a whole number")
    return encode_varint(whole)
