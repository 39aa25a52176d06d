"""The native CQL types: one object each, which encodes, decodes, checks and orders its values."""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
import struct
import uuid
from decimal import Decimal
from typing import Any, Final

import attrs

from .cqltype import CqlType, bad_value, marshal_error
from .vint import pack_vint, read_vint

__all__ = ["BITS", "DATE_EPOCH", "INTEGERS", "NANOS_PER_DAY", "NATIVE_TYPES", "NUMBERS", "Duration", "NativeType"]

NANOS_PER_DAY: Final = 86_400_000_000_000
DATE_EPOCH: Final = 1 << 31  # the stored value of 1970-01-01; dates are unsigned 32-bit days around it
_EMPTY_FIRST: Final = -math.inf  # sorts before every number: an empty value comes first
_EPOCH_ORDINAL: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SIGN_FLIP: Final = bytes(b ^ 0x80 for b in range(256))


@attrs.frozen
class Duration:
    """A CQL duration. The three parts have the same sign (zero goes with both)."""

    months: int = 0
    days: int = 0
    nanoseconds: int = 0


class NativeType(CqlType):
    """A type without parameters. There is one object of each, so ``is`` compares them."""

    __slots__ = ("_marshal", "_name", "_size", "_width", "_wire")
    _wrong_size = "Validation failed for type {marshal}: got {got} bytes"  # Scylla words it anew for nearly every type

    def __init__(self, name: str, code: int, marshal: str, size: int | None = None, width: int = 0) -> None:
        self._name = name
        self._wire = struct.pack(">H", code)
        self._marshal = "org.apache.cassandra.db.marshal." + marshal
        self._size = size
        self._width = width or size or 0  # bytes of a value that is not empty, 0 for any number

    @property
    def name(self) -> str:
        return self._name

    @property
    def wire(self) -> bytes:
        return self._wire

    @property
    def marshal_name(self) -> str:
        return self._marshal

    @property
    def fixed_size(self) -> int | None:
        return self._size

    # A copy by pickle is the same object again: types are compared with "is".
    def __reduce__(self) -> tuple[Any, ...]:
        return (_native, (self._name,))

    def __repr__(self) -> str:
        return f"<{self._name}>"

    def decode(self, data: bytes) -> Any:
        return data

    def sort_key(self, data: bytes) -> Any:
        return data

    def normalize(self, data: bytes) -> bytes:
        self.validate(data)
        return data

    def validate(self, data: bytes) -> None:
        """Every byte string is a value, unless the type says otherwise."""
        if self._width and data and len(data) != self._width:
            raise marshal_error(self._wrong_size.format(marshal=self._marshal, size=self._width, got=len(data)))

    def _refuse(self, value: Any) -> Exception:
        return bad_value(self, f"cannot encode {type(value).__name__}")


def _native(name: str) -> NativeType:
    return NATIVE_TYPES[name]


class _Varint(NativeType):
    """Two's complement of any length."""

    __slots__ = ()

    def encode(self, value: Any) -> bytes:
        # In Python a bool is an int; in CQL it is none.
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._refuse(value)
        return pack_varint(value)

    def decode(self, data: bytes) -> Any:
        return int.from_bytes(data, "big", signed=True) if data else None

    def sort_key(self, data: bytes) -> Any:
        return int.from_bytes(data, "big", signed=True) if data else _EMPTY_FIRST


class _Integer(_Varint):
    """Two's complement of a fixed width."""

    __slots__ = ()

    def encode(self, value: Any) -> bytes:
        data = super().encode(value)
        if len(data) > self._width:
            raise bad_value(self, "value out of range")
        return (b"\xff" if value < 0 else b"\x00") * (self._width - len(data)) + data

    # One call instead of three: this runs for each number that is bound.
    def normalize(self, data: bytes) -> bytes:
        if len(data) != self._width:
            self.validate(data)
        return data

    def validate(self, data: bytes) -> None:
        if data and len(data) != self._width and self._width < 4:
            what = "1 byte for a tinyint" if self._width == 1 else "2 bytes for a smallint"
            raise marshal_error(f"Expected {what} ({len(data)})")
        super().validate(data)


def pack_varint(value: int) -> bytes:
    """Return the shortest two's complement of *value*."""
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


class _Decimal(NativeType):
    """int32 scale, then the unscaled varint."""

    __slots__ = ()

    def encode(self, value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise self._refuse(value)
        sign, digits, exponent = Decimal(value).as_tuple()
        if not isinstance(exponent, int):
            raise bad_value(self, "not a finite number")
        # Through Decimal, not str: Python refuses to read or write whole numbers of more than 4300 digits as text.
        unscaled = int(Decimal((sign, digits, 0)))
        try:
            return struct.pack(">i", -exponent) + pack_varint(unscaled)
        except struct.error:
            raise bad_value(self, "scale out of range") from None

    def decode(self, data: bytes) -> Any:
        if not data:
            return None
        # Built from the parts: arithmetic would round to the precision of Python's decimal context.
        (scale,) = struct.unpack_from(">i", data)
        unscaled = int.from_bytes(data[4:], "big", signed=True)
        sign, digits, _ = Decimal(unscaled).as_tuple()
        return Decimal((sign, digits, -scale))

    def sort_key(self, data: bytes) -> Any:
        return self.decode(data) if data else Decimal("-Infinity")

    def validate(self, data: bytes) -> None:
        if data and len(data) < 5:
            raise bad_value(self, f"expected at least 5 bytes, got {len(data)}")


class _Float(NativeType):
    """IEEE 754, ordered as Java orders it: -0 before 0, NaN last. Source: Scylla ``types/types.cc``."""

    __slots__ = ("_int", "_pack")
    _wrong_size = "Expected {size} bytes for a floating type, got {got}"

    def __init__(self, name: str, code: int, marshal: str, size: int) -> None:
        super().__init__(name, code, marshal, size)
        self._pack = struct.Struct(">d" if size == 8 else ">f")
        self._int = struct.Struct(">Q" if size == 8 else ">I")

    def encode(self, value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._refuse(value)
        try:
            return self._pack.pack(value)
        except OverflowError:
            if isinstance(value, int):
                raise bad_value(self, "value out of range") from None
            # A double beyond the range of float becomes infinity, as a C cast does.
            return self._pack.pack(math.copysign(math.inf, value))

    def decode(self, data: bytes) -> Any:
        return self._pack.unpack(data)[0] if data else None

    def sort_key(self, data: bytes) -> Any:
        if not data:
            return _EMPTY_FIRST
        (value,) = self._pack.unpack(data)
        if math.isnan(value):
            return math.inf
        (bits,) = self._int.unpack(data)
        # Bits of positive floats rise with the value, those of negative ones fall: these are mirrored, -0 becomes -1.
        top = 1 << (8 * self._pack.size - 1)
        return bits if not bits & top else top - 1 - bits


class _Boolean(NativeType):
    __slots__ = ()
    _wrong_size = "Validation failed for boolean, got {got} bytes"

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, bool):
            raise self._refuse(value)
        return b"\x01" if value else b"\x00"

    def decode(self, data: bytes) -> Any:
        return data != b"\x00" if data else None

    def sort_key(self, data: bytes) -> Any:
        return int(data != b"\x00") if data else _EMPTY_FIRST


class _Text(NativeType):
    """UTF-8 or ASCII, ordered by bytes."""

    __slots__ = ("_codec",)

    def __init__(self, name: str, code: int, marshal: str, codec: str) -> None:
        super().__init__(name, code, marshal)
        self._codec = codec

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise self._refuse(value)
        try:
            return value.encode(self._codec)
        except UnicodeEncodeError:
            raise marshal_error(f"Invalid {self._codec.upper()} character in string literal") from None

    def decode(self, data: bytes) -> Any:
        return data.decode(self._codec)

    def normalize(self, data: bytes) -> bytes:
        # What is ASCII is UTF-8, too.
        if not data.isascii():
            self.validate(data)
        return data

    def validate(self, data: bytes) -> None:
        try:
            data.decode(self._codec)
        except UnicodeDecodeError as error:
            if self._codec == "ascii":
                raise marshal_error("Validation failed - non-ASCII character in an ASCII string") from None
            raise marshal_error(
                f"Validation failed - non-UTF8 character in a UTF8 string, at byte offset {error.start}"
            ) from None


class _Blob(NativeType):
    __slots__ = ()

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise self._refuse(value)
        return bytes(value)


class _Uuid(NativeType):
    """Ordered by version, then by bytes; version 1 by its time first. Source: Scylla ``types/types.cc``."""

    __slots__ = ()
    _wrong_size = "Validation failed for uuid - got {got} bytes"

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, uuid.UUID):
            raise self._refuse(value)
        self.validate(value.bytes)
        return value.bytes

    def decode(self, data: bytes) -> Any:
        return uuid.UUID(bytes=data) if data else None

    def sort_key(self, data: bytes) -> Any:
        if not data:
            return b""
        version = data[6] >> 4
        if version != 1:
            return bytes([version + 1]) + data
        return b"\x02" + bytes([data[6] & 0x0F, data[7]]) + data[4:6] + data[:4] + data[8:]


class _TimeUuid(_Uuid):
    """Ordered by the 60-bit time, then by the low half as signed bytes. Source: Scylla ``utils/UUID.hh``."""

    __slots__ = ()
    _wrong_size = "Validation failed for timeuuid - got {got} bytes"

    def sort_key(self, data: bytes) -> Any:
        if not data:
            return b""
        return bytes([data[6] & 0x0F, data[7]]) + data[4:6] + data[:4] + data[8:].translate(_SIGN_FLIP)

    def validate(self, data: bytes) -> None:
        super().validate(data)
        if data and data[6] >> 4 != 1:
            raise marshal_error(f"Unsupported UUID version ({data[6] >> 4})")


class _Timestamp(_Integer):
    """Milliseconds since the epoch, signed 64 bits."""

    __slots__ = ()
    _wrong_size = "Validation failed for timestamp - got {got} bytes"

    def encode(self, value: Any) -> bytes:
        if isinstance(value, dt.datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
            # Integer division, not timestamp(): a float of seconds would not hit every millisecond.
            value = (aware - _EPOCH) // dt.timedelta(milliseconds=1)
        return super().encode(value)


class _Date(NativeType):
    """Days, unsigned, 1970-01-01 in the middle."""

    __slots__ = ()
    _wrong_size = "Expected {size} byte long for date ({got})"

    def encode(self, value: Any) -> bytes:
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            value = value.toordinal() - _EPOCH_ORDINAL
        elif isinstance(value, bool) or not isinstance(value, int):
            raise self._refuse(value)
        try:
            return int(value + DATE_EPOCH).to_bytes(4, "big")
        except OverflowError:
            raise bad_value(self, "value out of range") from None

    def decode(self, data: bytes) -> Any:
        return int.from_bytes(data, "big") - DATE_EPOCH if data else None


class _Time(_Integer):
    """Nanoseconds since midnight."""

    __slots__ = ()
    _wrong_size = "Expected {size} byte long for time ({got})"

    def encode(self, value: Any) -> bytes:
        if isinstance(value, dt.time):
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            value = (seconds * 1_000_000 + value.microsecond) * 1_000
        data = super().encode(value)
        self.validate(data)
        return data

    def normalize(self, data: bytes) -> bytes:
        self.validate(data)
        return data

    def validate(self, data: bytes) -> None:
        super().validate(data)
        if data and int.from_bytes(data, "big") >= NANOS_PER_DAY:
            raise bad_value(self, "not a time of day, which is 0 to 86399999999999 nanoseconds")


class _Inet(NativeType):
    __slots__ = ()

    def encode(self, value: Any) -> bytes:
        if isinstance(value, str):
            try:
                value = ipaddress.ip_address(value)
            except ValueError:
                raise marshal_error(f"Failed to parse inet_addr from '{value}'") from None
        if not isinstance(value, (ipaddress.IPv4Address, ipaddress.IPv6Address)):
            raise self._refuse(value)
        return value.packed

    def decode(self, data: bytes) -> Any:
        return ipaddress.ip_address(data) if data else None

    def validate(self, data: bytes) -> None:
        if len(data) not in (0, 4, 16):
            raise marshal_error(f"Validation failed for inet_addr - got {len(data)} bytes")


class _Duration(NativeType):
    """Three signed vints: months and days of 32 bits, nanoseconds of 64. It has no order of its own: bytes."""

    __slots__ = ()

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, Duration):
            raise self._refuse(value)
        data = b"".join(_pack_signed(part) for part in (value.months, value.days, value.nanoseconds))
        self.validate(data)
        return data

    def decode(self, data: bytes) -> Any:
        return Duration(*self._parts(data)) if data else None

    def validate(self, data: bytes) -> None:
        # Alone among the native types, a duration cannot be empty.
        if len(data) < 3:
            raise marshal_error(f"Expected at least 3 bytes for a duration, got {len(data)}")
        months, days, nanoseconds = self._parts(data)
        for part, what in ((months, "months"), (days, "days")):
            if not -(1 << 31) <= part < 1 << 31:
                raise marshal_error(f"The duration {what} ({part}) must be a 32 bit integer")
        if min(months, days, nanoseconds) < 0 < max(months, days, nanoseconds):
            raise marshal_error(
                "The duration months, days and nanoseconds must be all of the same sign"
                f" ({months}, {days}, {nanoseconds})"
            )

    def _parts(self, data: bytes) -> tuple[int, int, int]:
        parts, at = [], 0
        try:
            for _ in range(3):
                raw, at = read_vint(data, at)
                parts.append((raw >> 1) ^ -(raw & 1))
        except ValueError as error:
            raise bad_value(self, str(error)) from None
        if at != len(data):
            raise bad_value(self, f"{len(data) - at} unexpected extraneous bytes after the value")
        return parts[0], parts[1], parts[2]


def _pack_signed(value: int) -> bytes:
    """Return a signed vint: zig-zag, so that small negative numbers stay short."""
    if not -(1 << 63) <= value < 1 << 63:
        raise bad_value(DURATION, "value out of range")
    return pack_vint(value << 1 if value >= 0 else (-value << 1) - 1)


# The size, where a type has one, is that of its values in a vector. Others have their length written there, even if it
# is always the same; drivers read them so.
ASCII: Final = _Text("ascii", 0x01, "AsciiType", "ascii")
BIGINT: Final = _Integer("bigint", 0x02, "LongType", 8)
BLOB: Final = _Blob("blob", 0x03, "BytesType")
BOOLEAN: Final = _Boolean("boolean", 0x04, "BooleanType", 1)
COUNTER: Final = _Integer("counter", 0x05, "CounterColumnType", 8)
DECIMAL: Final = _Decimal("decimal", 0x06, "DecimalType")
DOUBLE: Final = _Float("double", 0x07, "DoubleType", 8)
FLOAT: Final = _Float("float", 0x08, "FloatType", 4)
INT: Final = _Integer("int", 0x09, "Int32Type", 4)
TIMESTAMP: Final = _Timestamp("timestamp", 0x0B, "TimestampType", 8)
UUID: Final = _Uuid("uuid", 0x0C, "UUIDType", 16)
TEXT: Final = _Text("text", 0x0D, "UTF8Type", "utf-8")
VARINT: Final = _Varint("varint", 0x0E, "IntegerType")
TIMEUUID: Final = _TimeUuid("timeuuid", 0x0F, "TimeUUIDType", 16)
INET: Final = _Inet("inet", 0x10, "InetAddressType")
DATE: Final = _Date("date", 0x11, "SimpleDateType", width=4)
TIME: Final = _Time("time", 0x12, "TimeType", width=8)
SMALLINT: Final = _Integer("smallint", 0x13, "ShortType", width=2)
TINYINT: Final = _Integer("tinyint", 0x14, "ByteType", width=1)
DURATION: Final = _Duration("duration", 0x15, "DurationType")

_ALL: Final[tuple[NativeType, ...]] = (
    *(ASCII, BIGINT, BLOB, BOOLEAN, COUNTER, DATE, DECIMAL, DOUBLE, DURATION, FLOAT),
    *(INET, INT, SMALLINT, TEXT, TIME, TIMESTAMP, TIMEUUID, TINYINT, UUID, VARINT),
)

NATIVE_TYPES: Final[dict[str, NativeType]] = {**{t.name: t for t in _ALL}, "varchar": TEXT}
"""The native types by CQL name; ``varchar`` is another name of text."""

BITS: Final[dict[CqlType, int]] = {TINYINT: 8, SMALLINT: 16, INT: 32, BIGINT: 64, COUNTER: 64}
"""The integers of fixed width."""

INTEGERS: Final[tuple[CqlType, ...]] = (TINYINT, SMALLINT, INT, BIGINT, VARINT, COUNTER)
NUMBERS: Final[tuple[CqlType, ...]] = (*INTEGERS, FLOAT, DOUBLE, DECIMAL)
