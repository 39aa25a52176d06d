"""The one registry of CQL types: one row per type, with one field for each use that rscylla makes of values.

A new type is a new row. A new use is a new field of ``Native`` and ``Container`` and a function like ``decoder_for``,
which goes down the tree of a type; nothing else in rscylla asks for the name of a type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from typing import Literal as OneOf

import attrs
from cassandra import cqltypes as ct

from .._decoder import twin
from . import containers as c
from . import natives as n
from .cells import sized_of, vector_of
from .natives import Decoder, Encoder
from .tree import Digits, Type

__all__ = [
    "CONTAINERS",
    "NATIVES",
    "Container",
    "Native",
    "decoder_for",
    "encoder_for",
    "log_list",
    "native",
    "sample_of",
    "width_in_vector",
    "with_digits",
]

_LOG_LIST = "log list"

Sorting = OneOf["value", "uuid", "timeuuid"]

AnyDecoder = Callable[[Type, Sequence[Decoder]], Decoder]
AnyEncoder = Callable[[Type, Sequence[Encoder]], Encoder]


@attrs.frozen
class Native:
    """A native type, with a field for each use of its values.

    ``decode``: bytes to Python. ``encode``: JSON to bytes. ``encode_arrow``: the same from Arrow, where that has
    something else. ``arrow``: how values become Arrow, a key of ``rscylla.types.arrow.FORMS``. ``json``: how a column
    of them becomes JSON, a key of ``rscylla.types.json_arrow.FORMS``; without one, each value by itself.
    ``connect``: how they are in Kafka Connect, a key of ``rscylla.types.connect.FORMS``.
    ``packed``: for ``struct`` and ``numpy``, if all values have one width. ``compiled``: the form of the decoder in
    ``rscylla.types.compiled`` that does what ``decode`` does; without one, the compiled decoder calls ``decode``.
    ``in_vector``: size of an element of a vector; None if its size precedes each element, as for tinyint, smallint,
    date, time, and counter: Cassandra treats them as variable-size, and Scylla follows. ``sample``: the bytes of some
    valid value. ``has_empty``: no bytes are a value, and not null. ``sorting``: what clustering keys are sorted by;
    None if Python, JSON, and Arrow have nothing that sorts alike. ``parts``: returns scale and unscaled number of the
    bytes, if Arrow can have values as decimal numbers.

    Source of ``in_vector``: Scylla ``types/types.cc``, ``value_length_if_fixed``; the driver's ``serial_size``.
    """

    name: str
    decode: Decoder
    encode: Encoder
    arrow: str
    sample: bytes = b""
    encode_arrow: Encoder = attrs.field(kw_only=True, default=attrs.Factory(lambda self: self.encode, takes_self=True))
    json: str = attrs.field(kw_only=True, default="")
    connect: str = attrs.field(kw_only=True, default="bytes")
    packed: str = attrs.field(kw_only=True, default="")
    compiled: str = attrs.field(kw_only=True, default="")
    in_vector: int | None = attrs.field(kw_only=True, default=None)
    has_empty: bool = attrs.field(kw_only=True, default=False)
    sorting: Sorting | None = attrs.field(kw_only=True, default="value")
    parts: Callable[[bytes], tuple[int, int]] | None = attrs.field(kw_only=True, default=None)


@attrs.frozen
class Container:
    """A type with types as parameters: the fields of ``Native``, as functions of the same for the parameters.

    ``parameters``: how many there are; None for any number, 0 for a type that is not written with parameters. The name
    is also the compiled form. ``connect``: a kind of container of ``rscylla.types.connect``.
    """

    name: str
    parameters: int | None
    decode: AnyDecoder
    encode: AnyEncoder
    arrow: str
    sample: Callable[[Type], bytes] = lambda _: bytes(4)
    connect: str = attrs.field(kw_only=True, default="array")
    encode_arrow: AnyEncoder = attrs.field(
        kw_only=True, default=attrs.Factory(lambda self: self.encode, takes_self=True)
    )


def _number(name: str, packed: str, encode: Encoder, *, in_vector: bool = False) -> Native:
    width = len(encode(0))
    of_vector = width if in_vector else None
    return Native(
        name,
        n.packed_decoder(packed),
        encode,
        "number",
        bytes(width),
        json="float" if packed[1] in "fd" else "integer",
        connect=f"{'float' if packed[1] in 'fd' else 'int'}{8 * width}",
        packed=packed,
        compiled="number",
        in_vector=of_vector,
    )


def _text(name: str, decode: Decoder, encode: Encoder) -> Native:
    return Native(name, decode, encode, "text", json="text", connect="string", compiled=name, has_empty=True)


def _as_it_came(name: str, sorting: Sorting | None) -> Native:
    return Native(
        name,
        n.decode_blob,
        n.encode_blob,
        "binary",
        encode_arrow=bytes,
        json="hex",
        compiled="blob",
        has_empty=True,
        sorting=sorting,
    )


def _uuid(name: str, sample: bytes, sorting: Sorting) -> Native:
    return Native(
        name,
        n.decode_uuid,
        n.encode_uuid,
        "uuid",
        sample,
        json="uuid",
        connect="uuid",
        compiled="uuid",
        in_vector=16,
        sorting=sorting,
    )


def _by_driver(name: str, driver_type: Any, encode: Encoder, arrow: str, size: int, **more: Any) -> Native:
    return Native(name, n.driver_decoder(driver_type), encode, arrow, bytes(size), **more)


_ROWS = (
    _text("ascii", n.decode_ascii, n.encode_ascii),
    _number("bigint", ">q", n.integer_encoder(8), in_vector=True),
    _as_it_came("blob", "value"),
    Native(
        "boolean",
        n.decode_boolean,
        n.encode_boolean,
        "boolean",
        bytes(1),
        json="boolean",
        connect="boolean",
        compiled="boolean",
        in_vector=1,
    ),
    _number("counter", ">q", n.integer_encoder(8)),
    _by_driver("date", ct.SimpleDateType, n.encode_date, "date", 4, encode_arrow=n.encode_days, connect="date"),
    Native(
        "decimal",
        n.decode_decimal,
        n.encode_decimal,
        "shown",
        bytes(5),
        sorting=None,
        connect="decimal",
        parts=n.decimal_parts,
    ),
    _number("double", ">d", n.float_encoder(">d"), in_vector=True),
    _by_driver(
        "duration",
        ct.DurationType,
        n.encode_duration,
        "duration",
        3,
        encode_arrow=n.encode_parts,
        sorting=None,
        connect="duration",
    ),
    _number("float", ">f", n.float_encoder(">f"), in_vector=True),
    _by_driver("inet", ct.InetAddressType, n.encode_inet, "shown", 4, sorting=None, connect="inet"),
    _number("int", ">i", n.integer_encoder(4), in_vector=True),
    _number("smallint", ">h", n.integer_encoder(2)),
    _text("text", bytes.decode, n.encode_text),
    _by_driver(
        "time",
        ct.TimeType,
        n.encode_time,
        "number",
        8,
        encode_arrow=n.integer_encoder(8),
        packed=">q",
        connect="time",
    ),
    Native(
        "timestamp",
        n.decode_timestamp,
        n.encode_timestamp,
        "timestamp",
        bytes(8),
        encode_arrow=n.encode_microseconds,
        json="timestamp",
        connect="timestamp",
        compiled="timestamp",
        in_vector=8,
    ),
    _uuid("timeuuid", bytes(6) + b"\x10\x00" + b"\x80" * 8, "timeuuid"),
    _number("tinyint", ">b", n.integer_encoder(1)),
    _uuid("uuid", bytes(16), "uuid"),
    _by_driver(
        "varint",
        ct.IntegerType,
        n.encode_varint,
        "shown",
        1,
        encode_arrow=n.encode_varint_text,
        sorting=None,
        connect="varint",
        parts=n.varint_parts,
    ),
)

NATIVES = {row.name: row for row in _ROWS}

_UNKNOWN = _as_it_came("", None)


def _null_fields(type_: Type) -> bytes:
    return sized_of([None] * len(type_.args))


def _vector_decoder(type_: Type, parts: Sequence[Decoder]) -> Decoder:
    element = native(type_.args[0])
    if element.packed and element.in_vector:
        return c.packed_vector_decoder(element.packed, type_.size)
    return c.vector_decoder(width_in_vector(type_.args[0]), type_.size, parts)


def _vector_encoder(type_: Type, parts: Sequence[Encoder]) -> Encoder:
    return c.vector_encoder(width_in_vector(type_.args[0]), type_.size, parts)


def _vector_sample(type_: Type) -> bytes:
    (element,) = type_.args
    return vector_of([sample_of(element)] * type_.size, width_in_vector(element))


_CONTAINER_ROWS = (
    Container("list", 1, c.list_decoder, c.list_encoder, "list"),
    Container("set", 1, c.set_decoder, c.list_encoder, "list"),
    Container("map", 2, c.map_decoder, c.map_encoder, "map", connect="map"),
    Container(
        "tuple",
        None,
        c.tuple_decoder,
        c.tuple_encoder,
        "struct",
        _null_fields,
        encode_arrow=c.struct_encoder,
        connect="struct",
    ),
    Container("vector", 1, _vector_decoder, _vector_encoder, "vector", _vector_sample),
    Container("udt", 0, c.udt_decoder, c.udt_encoder, "struct", _null_fields, connect="struct"),
    # A list that is not frozen, as the log has it: a map from timeuuid to element.
    Container(_LOG_LIST, 0, c.log_list_decoder, c.map_encoder, "log list", connect="log list"),
)

CONTAINERS = {row.name: row for row in _CONTAINER_ROWS}


def log_list(type_: Type) -> Type:
    """Return the map *type_*, by which the log has a list that is not frozen, as a type whose values are lists.

    Only decoding, also to Arrow, is of the list; what is encoded are the cells, by their timeuuids.
    """
    return attrs.evolve(type_, kind=_LOG_LIST)


def with_digits(type_: Type, digits: Mapping[str, Digits], *, exact: bool = False) -> Type:
    """Return *type_* with what Arrow has as numbers of so many digits, at any depth.

    Only values as Arrow differ; their bytes, and values in Python and JSON, are the same.

    Args:
        digits: by "varint" and "decimal"; the one that is absent remains text.
        exact: all decimals are, see ``Digits``; a varint has no scale to change.
    """
    found = digits.get(type_.kind)
    if found is not None and exact and type_.kind == "decimal":
        found = attrs.evolve(found, exact=True)
    parts = tuple(with_digits(part, digits, exact=exact) for part in type_.args)
    return attrs.evolve(type_, args=parts, digits=found)


def decoder_for(type_: Type) -> Decoder:
    """Return the function that converts bytes of *type_* to Python values; ``rscylla.types`` lists them.

    Collections, tuples and UDTs are cut here and not by the driver: its containers put sets in another order, refuse
    some elements, and depend on the classes that the application registered for UDTs.
    """
    return _decoder(type_, *_DECODERS)


_DECODERS = (
    twin("types.native_decoder", lambda leaf: leaf.decode),
    twin("types.container_decoder", lambda row, type_, parts: row.decode(type_, parts)),
)


def _decoder(type_: Type, of_native: Callable[[Native], Decoder], of_container: Callable[..., Decoder]) -> Decoder:
    row = CONTAINERS.get(type_.kind)
    if row is None:
        return of_native(native(type_))
    return of_container(row, type_, [_decoder(part, of_native, of_container) for part in type_.args])


def encoder_for(type_: Type, *, arrow: bool = False) -> Encoder:
    """Return the function that converts a JSON value of *type_* to bytes; see ``rscylla.types.json``.

    Together the two lose nothing of any value that a primary key can have, with two exceptions: a tuple or UDT that was
    written with fewer fields than its type has gets nulls for the rest, and of a frozen set of floats that holds both
    0.0 and -0.0 one is lost. Sets and maps may come in any order: the database sorts what is bound.

    Args:
        arrow: values come as ``rscylla.types.arrow`` has them, with times and dates as numbers.
    """
    return cast("Encoder", _made(type_, "encode_arrow" if arrow else "encode"))


def _made(type_: Type, field: str) -> Any:
    """Return *field* of the row of *type_*, built from the same field of its parts."""
    row = CONTAINERS.get(type_.kind)
    if row is None:
        return getattr(native(type_), field)
    return getattr(row, field)(type_, [_made(part, field) for part in type_.args])


def native(type_: Type) -> Native:
    """Return the row of a type without parts. The row of an unknown type leaves bytes as they are."""
    return NATIVES.get(type_.kind, _UNKNOWN)


def sample_of(type_: Type) -> bytes:
    """Return the bytes of some valid value of *type_*."""
    row = CONTAINERS.get(type_.kind)
    return native(type_).sample if row is None else row.sample(type_)


def width_in_vector(type_: Type) -> int | None:
    """Return the size in bytes of each element *type_* of a vector; None if its size precedes each element."""
    if type_.kind == "vector":
        width = width_in_vector(type_.args[0])
        return None if width is None else width * type_.size
    return native(type_).in_vector
