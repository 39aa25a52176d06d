"""CQL types in Kafka Connect: the schema of each, and values as Connect has them.

    tinyint, smallint, int, bigint, counter, time   int8, int16, int32, int64, int64, int64 (nanoseconds of the day)
    float, double, boolean, text, ascii, blob       float32, float64, boolean, string, string, bytes
    uuid, timeuuid, inet, decimal, varint, duration string
    date, timestamp                                 Connect's Date (days), Timestamp (milliseconds)
    list, set, vector                               array
    map                                             array of structs with the fields key and value
    tuple, user-defined type                        struct

The registry names the form of each type.
Values are ints, floats, bools, str, bytes, lists, and dicts by field; a date is the days, a timestamp the milliseconds.

Source: records of the Scylla CDC source connector. Its texts are Java's: of decimals ``BigDecimal.toString``, of
addresses ``InetAddress.getHostAddress``. A collection that is null within a tuple or UDT is empty, and a UDT
without any value is null, as from the Java driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import attrs

from .._decoder import twin
from .._integers import format_int
from ..errors import ConfigError
from .cells import collection_cells, sized_cells, vector_cells
from .natives import Decoder, decimal_parts, has_width, uuid_text
from .registry import CONTAINERS, decoder_for, native, width_in_vector
from .tree import Type

__all__ = ["Field", "Schema", "connect_for", "java_uuid_order", "twice", "type_word"]


@attrs.frozen
class Schema:
    """A schema of Kafka Connect.

    ``type``: int8, int16, int32, int64, float32, float64, boolean, string, bytes, array, or struct. ``items``: of an
    array. ``fields``: of a struct, in order.

    Raises:
        ConfigError: two fields have one name, by which values would be lost.
    """

    type: str
    optional: bool = attrs.field(default=True, kw_only=True)
    name: str | None = attrs.field(default=None, kw_only=True)
    version: int | None = attrs.field(default=None, kw_only=True)
    parameters: Mapping[str, str] = attrs.field(factory=dict, kw_only=True, hash=False)
    default: Any = attrs.field(default=None, kw_only=True)
    items: Schema | None = attrs.field(default=None, kw_only=True)
    fields: tuple[Field, ...] = attrs.field(default=(), kw_only=True)

    def __attrs_post_init__(self) -> None:
        if len({f.name for f in self.fields}) < len(self.fields):
            name = twice(f.name for f in self.fields)
            raise ConfigError(f"two fields of {self.name or 'a struct'} have the name {name!r}")

    def field(self, name: str) -> Schema | None:
        """Return the schema of the field *name* of a struct; None if there is none."""
        return next((f.schema for f in self.fields if f.name == name), None)


def twice(names: Iterable[str]) -> str | None:
    """Return the first name that comes a second time; None if each comes once."""
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


@attrs.frozen
class Field:
    """A field of a struct."""

    name: str
    schema: Schema


# ---------------------------------------------------------------- native types


def _inet(raw: bytes) -> str | None:
    if raw[:12] == _MAPPED:  # Java reads a mapped address as the one that it maps
        raw = raw[12:]
    if len(raw) == 4:
        return ".".join(map(str, raw))
    if not has_width(raw, 16):
        return None
    return ":".join([f"{raw[at] << 8 | raw[at + 1]:x}" for at in range(0, 16, 2)])


_MAPPED = bytes(10) + b"\xff\xff"


_LONG = decoder_for(Type("bigint"))


def _days(raw: bytes) -> int | None:
    if not has_width(raw, 4):
        return None
    days = int.from_bytes(raw, "big") - 2**31
    if days >= _GREGORIAN:
        return days
    days += _julian_shift(days)
    return days if days >= -(2**31) else days + 2**32  # what Java keeps of it in 32 bits


_GREGORIAN = -141_427
"""The day 1582-10-15. Before it, the connector gives the day with the same date in Java's calendar, the Julian one."""

_SHIFT_OF_0000_03_01 = 719_468
"""Days from 0000-03-01 to 1970-01-01."""


def _julian_shift(days: int) -> int:
    """Return how many days later the same date is in the Julian calendar."""
    era, day = divmod(days + _SHIFT_OF_0000_03_01, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365 + 400 * era  # years start in March
    return year // 100 - year // 400 - 2


_NANOSECONDS = {"h": 3_600_000_000_000, "m": 60_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}


def _duration(value: Any) -> str:
    """Return the parts that are not zero, with their units; a duration of nothing is empty text."""
    months, days, rest = value.months, value.days, value.nanoseconds
    parts = ["-"] if months < 0 or days < 0 or rest < 0 else []
    years, months = divmod(abs(months), 12)
    parts += [f"{n}{unit}" for n, unit in ((years, "y"), (months, "mo"), (abs(days), "d")) if n]
    rest = abs(rest)
    for unit, size in _NANOSECONDS.items():
        n, rest = divmod(rest, size)
        if n:
            parts.append(f"{n}{unit}")
    return "".join(parts)


def _decimal(raw: bytes) -> str | None:
    if not raw:
        return None
    scale, number = decimal_parts(raw)
    digits = format_int(abs(number))
    if scale == 0:
        text = digits
    elif 0 < scale < len(digits) + 6:
        digits = digits.rjust(scale + 1, "0")
        text = f"{digits[:-scale]}.{digits[-scale:]}"
    else:
        text = str(Decimal(f"{digits}E{-scale}"))
    return f"-{text}" if number < 0 else text


def _by_value(convert: Callable[[Any], Any]) -> Callable[[Decoder], Decoder]:
    """Return what converts values that the type's own decoder makes."""

    def decoder(decode: Decoder) -> Decoder:
        def both(raw: bytes) -> Any:
            value = decode(raw)
            return None if value is None else convert(value)

        return both

    return decoder


def _by_itself(decode: Decoder) -> Callable[[Decoder], Decoder]:
    return lambda _: decode


def _as_decoded(decode: Decoder) -> Decoder:
    return decode


@attrs.frozen
class Form:
    """How a native type is in Connect: its schema, and the function that makes the decoder of the type's own one."""

    schema: Schema
    decoder: Callable[[Decoder], Decoder] = _as_decoded


_STRING = Schema("string")
_DATE = Schema("int32", name="org.apache.kafka.connect.data.Date", version=1)
_TIMESTAMP = Schema("int64", name="org.apache.kafka.connect.data.Timestamp", version=1)

FORMS: dict[str, Form] = {
    **{name: Form(Schema(name)) for name in ("int8", "int16", "int32", "int64", "float32", "float64", "boolean")},
    "string": Form(_STRING),
    "bytes": Form(Schema("bytes")),
    "decimal": Form(_STRING, _by_itself(_decimal)),
    "varint": Form(_STRING, _by_value(format_int)),
    "uuid": Form(_STRING, _by_itself(twin("types.uuid_text", uuid_text))),
    "inet": Form(_STRING, _by_itself(_inet)),
    "duration": Form(_STRING, _by_value(_duration)),
    "time": Form(Schema("int64"), _by_itself(_LONG)),
    "date": Form(_DATE, _by_itself(_days)),
    "timestamp": Form(_TIMESTAMP, _by_itself(_LONG)),
}
"""The forms of native types, by the names that the registry uses."""

# ---------------------------------------------------------------- containers

Named = Callable[[str], str]
"""Makes the name of the schema of a struct of its last part, such as ``UDT_address``."""

Made = tuple[Schema, Decoder]


class _Names(NamedTuple):
    schema: Named
    field: Named


def _as_it_is(name: str) -> str:
    return name


def connect_for(type_: Type, named: Named, *, field: Named = _as_it_is, java_lists: bool = False) -> Made:
    """Return the schema of a CQL type, and the function that makes the value of it from bytes.

    Args:
        field: makes the name of a field of that of a field of a user-defined type.
        java_lists: the elements of a list that is not frozen are in the order in which Java sorts UUIDs, which is not
            the order of the list.

    Raises:
        ConfigError: *field* makes one name of two fields of a type.
    """
    row = CONTAINERS.get(type_.kind)
    if row is None:
        form = FORMS[native(type_).connect]
        return form.schema, form.decoder(decoder_for(type_))
    parts = [connect_for(part, named, field=field) for part in type_.args]
    return _CONTAINERS[row.connect](type_, parts, _Names(named, field), java_lists)


def _array(type_: Type, parts: list[Made], names: _Names, java_lists: bool) -> Made:
    ((element, decode),) = parts
    if type_.kind != "vector" and _is_as_decoded(type_.args[0]):
        return Schema("array", items=element), decoder_for(Type("list", type_.args))
    is_vector = type_.kind == "vector"
    split = vector_cells(width_in_vector(type_.args[0]), type_.size) if is_vector else collection_cells
    return Schema("array", items=element), lambda raw: [None if e is None else decode(e) for e in split(raw)]


def _is_as_decoded(type_: Type) -> bool:
    """Return whether values are in Connect what they are in Python."""
    return type_.kind not in CONTAINERS and FORMS[native(type_).connect].decoder is _as_decoded


def _log_list(type_: Type, parts: list[Made], names: _Names, java_lists: bool) -> Made:
    element, decode = parts[1]

    def decode_list(raw: bytes) -> list[Any]:
        cells = collection_cells(raw, 2)
        pairs = list(zip(cells[::2], cells[1::2], strict=True))
        if java_lists:
            pairs.sort(key=lambda pair: java_uuid_order(pair[0] or b""))
        return [None if e is None else decode(e) for _, e in pairs]

    return Schema("array", items=element), decode_list


def java_uuid_order(raw: bytes) -> tuple[int, int]:
    """Return what sorts UUIDs as Java does: by their two halves as signed numbers."""
    return int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(raw[8:], "big", signed=True)


def _map(type_: Type, parts: list[Made], names: _Names, java_lists: bool) -> Made:
    (key, decode_key), (value, decode_value) = parts
    fields = (Field("key", key), Field("value", value))
    name = names.schema(f"MapEntry_{'_'.join(map(type_word, type_.args))}")

    def decode(raw: bytes) -> list[dict[str, Any]]:
        cells = collection_cells(raw, 2)
        return [
            {"key": None if k is None else decode_key(k), "value": None if v is None else decode_value(v)}
            for k, v in zip(cells[::2], cells[1::2], strict=True)
        ]

    return Schema("array", items=Schema("struct", fields=fields, name=name, optional=False)), decode


def _struct(type_: Type, parts: list[Made], names: _Names, java_lists: bool) -> Made:
    is_udt = type_.kind == "udt"
    own = tuple(map(names.field, type_.fields)) if is_udt else tuple(f"field_{at}" for at in range(len(parts)))
    if (name := twice(own)) is not None:
        raise ConfigError(
            f"two fields of the type {type_.name} have the name {name!r}; use field.name.adjustment.mode=avro_unicode"
        )
    fields = tuple(Field(name, schema) for name, (schema, _) in zip(own, parts, strict=True))
    decoders = [(name, decode, schema.type == "array") for name, (schema, decode) in zip(own, parts, strict=True)]

    def decode(raw: bytes) -> dict[str, Any] | None:
        cells = sized_cells(raw)
        cells += [None] * (len(decoders) - len(cells))  # fields that were added to the type later
        value = {
            name: decode(cell) if cell is not None else [] if is_array else None
            for (name, decode, is_array), cell in zip(decoders, cells, strict=False)
        }
        return None if is_udt and all(v is None or v == [] for v in value.values()) else value

    return Schema("struct", fields=fields, name=names.schema(type_word(type_))), decode


_CONTAINERS: dict[str, Callable[[Type, list[Made], _Names, bool], Made]] = {
    "array": _array,
    "log list": _log_list,
    "map": _map,
    "struct": _struct,
}


def type_word(type_: Type) -> str:
    """Return the word for a type in names of schemas, such as ``List_VARCHAR``: as the Java driver names it."""
    if type_.kind == "udt":
        return f"UDT_{type_.name}"
    if type_.kind not in CONTAINERS:
        return "VARCHAR" if type_.kind == "text" else type_.kind.upper()
    return "_".join([type_.kind.capitalize(), *map(type_word, type_.args)])
