"""The one registry of CQL types: a row a type, and in it a field for each use that rscylla makes of values.

A new type is a new row. A new use is a new field of ``Native`` and ``Container`` and a function like ``decoder_for``,
which goes down the tree of a type; nothing else in rscylla asks for the name of a type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast
from typing import Literal as OneOf

import attrs
from cassandra import cqltypes

from . import containers as c
from . import natives as n
from .cells import sized_of, vector_of
from .natives import Decoder, Encoder, Literal
from .tree import Type

__all__ = [
    "CONTAINERS",
    "NATIVES",
    "Container",
    "Native",
    "decoder_for",
    "encoder_for",
    "literal_for",
    "log_list",
    "native",
    "sample_of",
    "width_in_vector",
]

_LOG_LIST = "log list"

Sorting = OneOf["value", "uuid", "timeuuid"]

AnyDecoder = Callable[[Type, Sequence[Decoder]], Decoder]
AnyEncoder = Callable[[Type, Sequence[Encoder]], Encoder]
AnyLiteral = Callable[[Type, Sequence[Literal]], Literal]


@attrs.frozen(kw_only=True)
class Native:
    """What there is to know of a native type.

    ``decode``: bytes to Python. ``encode``: JSON to bytes. ``encode_arrow``: the same from Arrow, where that has
    something else. ``literal``: Python to CQL text. ``arrow``: how values become Arrow, a key of
    ``rscylla.types.arrow.FORMS``. ``packed``: for ``struct`` and ``numpy``, if all values have one width.
    ``in_vector``: bytes of an element of a vector; None if each is led by its size. ``sample``: the bytes of some valid
    value. ``has_empty``: no bytes are a value, and not null. ``sorting``: what clustering keys are sorted by; None if
    Python, JSON and Arrow have nothing that sorts alike.
    """

    name: str
    decode: Decoder
    encode: Encoder
    literal: Literal
    arrow: str
    encode_arrow: Encoder = attrs.field(default=attrs.Factory(lambda self: self.encode, takes_self=True))
    packed: str = ""
    in_vector: int | None = None
    sample: bytes = b""
    has_empty: bool = False
    sorting: Sorting | None = "value"


@attrs.frozen(kw_only=True)
class Container:
    """What there is to know of a type that has others as parameters: as ``Native``, given the same for these.

    ``parameters``: how many there are; None for any number, 0 for a type that is not written with parameters.
    """

    name: str
    parameters: int | None
    decode: AnyDecoder
    encode: AnyEncoder
    literal: AnyLiteral
    arrow: str
    encode_arrow: AnyEncoder = attrs.field(default=attrs.Factory(lambda self: self.encode, takes_self=True))
    sample: Callable[[Type], bytes] = lambda _: bytes(4)


def _number(name: str, packed: str, encode: Encoder, *, in_vector: bool = False) -> Native:
    width = len(encode(0))
    return Native(
        name=name,
        decode=n.packed_decoder(packed),
        encode=encode,
        literal=n.float_literal if packed in (">f", ">d") else str,
        arrow="number",
        packed=packed,
        in_vector=width if in_vector else None,
        sample=bytes(width),
    )


def _text(name: str, decode: Decoder, encode: Encoder) -> Native:
    return Native(name=name, decode=decode, encode=encode, literal=n.quoted, arrow="text", has_empty=True)


def _as_it_came(name: str) -> Native:
    return Native(
        name=name,
        decode=n.decode_blob,
        encode=n.encode_blob,
        encode_arrow=bytes,
        literal=n.blob_literal,
        arrow="binary",
        has_empty=True,
        sorting=None,
    )


def _uuid(name: str, sample: bytes, sorting: Sorting) -> Native:
    return Native(
        name=name,
        decode=n.decode_uuid,
        encode=n.encode_uuid,
        literal=str,
        arrow="uuid",
        in_vector=16,
        sample=sample,
        sorting=sorting,
    )


NATIVES = {
    row.name: row
    for row in (
        _text("ascii", n.decode_ascii, n.encode_ascii),
        _number("bigint", ">q", n.integer_encoder(8), in_vector=True),
        attrs.evolve(_as_it_came("blob"), sorting="value"),
        Native(
            name="boolean",
            decode=n.decode_boolean,
            encode=n.encode_boolean,
            literal=n.boolean_literal,
            arrow="boolean",
            in_vector=1,
            sample=bytes(1),
        ),
        _number("counter", ">q", n.integer_encoder(8)),
        Native(
            name="date",
            decode=n.driver_decoder(cqltypes.SimpleDateType),
            encode=n.encode_date,
            encode_arrow=n.encode_days,
            literal=n.date_literal,
            arrow="date",
            sample=bytes(4),
        ),
        Native(
            name="decimal",
            decode=n.driver_decoder(cqltypes.DecimalType),
            encode=n.encode_decimal,
            literal=str,
            arrow="shown",
            sample=bytes(5),
            sorting=None,
        ),
        _number("double", ">d", n.float_encoder(">d"), in_vector=True),
        Native(
            name="duration",
            decode=n.driver_decoder(cqltypes.DurationType),
            encode=n.encode_duration,
            encode_arrow=n.encode_duration_struct,
            literal=str,
            arrow="duration",
            sample=bytes(3),
            sorting=None,
        ),
        _number("float", ">f", n.float_encoder(">f"), in_vector=True),
        Native(
            name="inet",
            decode=n.driver_decoder(cqltypes.InetAddressType),
            encode=n.encode_inet,
            literal=n.quoted,
            arrow="shown",
            sample=bytes(4),
            sorting=None,
        ),
        _number("int", ">i", n.integer_encoder(4), in_vector=True),
        _number("smallint", ">h", n.integer_encoder(2)),
        _text("text", bytes.decode, n.encode_text),
        Native(
            name="time",
            decode=n.driver_decoder(cqltypes.TimeType),
            encode=n.encode_time,
            encode_arrow=n.integer_encoder(8),
            literal=n.quoted,
            arrow="number",
            packed=">q",
            sample=bytes(8),
        ),
        Native(
            name="timestamp",
            decode=n.decode_timestamp,
            encode=n.encode_timestamp,
            encode_arrow=n.encode_microseconds,
            literal=n.timestamp_literal,
            arrow="timestamp",
            in_vector=8,
            sample=bytes(8),
        ),
        _uuid("timeuuid", bytes(6) + b"\x10\x00" + b"\x80" * 8, "timeuuid"),
        _number("tinyint", ">b", n.integer_encoder(1)),
        _uuid("uuid", bytes(16), "uuid"),
        Native(
            name="varint",
            decode=n.driver_decoder(cqltypes.IntegerType),
            encode=n.encode_varint,
            encode_arrow=n.encode_varint_text,
            literal=str,
            arrow="shown",
            sample=bytes(1),
            sorting=None,
        ),
    )
}

_UNKNOWN = _as_it_came("")


def _null_fields(type_: Type) -> bytes:
    return sized_of([None] * len(type_.args))


CONTAINERS = {
    row.name: row
    for row in (
        Container(
            name="list",
            parameters=1,
            decode=c.list_decoder,
            encode=c.list_encoder,
            literal=c.list_literal,
            arrow="list",
        ),
        Container(
            name="set",
            parameters=1,
            decode=c.set_decoder,
            encode=c.list_encoder,
            literal=c.set_literal,
            arrow="list",
        ),
        Container(
            name="map",
            parameters=2,
            decode=c.map_decoder,
            encode=c.map_encoder,
            literal=c.map_literal,
            arrow="map",
        ),
        Container(
            name="tuple",
            parameters=None,
            decode=c.tuple_decoder,
            encode=c.tuple_encoder,
            encode_arrow=c.struct_encoder,
            literal=c.tuple_literal,
            arrow="struct",
            sample=_null_fields,
        ),
        Container(
            name="vector",
            parameters=1,
            decode=lambda type_, parts: c.vector_decoder(width_in_vector(type_.args[0]), parts),
            encode=lambda type_, parts: c.vector_encoder(width_in_vector(type_.args[0]), parts),
            literal=c.list_literal,
            arrow="vector",
            sample=lambda type_: vector_of([sample_of(type_.args[0])] * type_.size, width_in_vector(type_.args[0])),
        ),
        Container(
            name="udt",
            parameters=0,
            decode=c.udt_decoder,
            encode=c.udt_encoder,
            literal=c.udt_literal,
            arrow="struct",
            sample=_null_fields,
        ),
        # A list that is not frozen, as the log has it: a map from timeuuid to element.
        Container(
            name=_LOG_LIST,
            parameters=0,
            decode=c.log_list_decoder,
            encode=c.map_encoder,
            literal=c.list_literal,
            arrow="log list",
        ),
    )
}


def log_list(type_: Type) -> Type:
    """Return the map *type_*, by which the log has a list that is not frozen, as a type whose values are lists.

    Only decoding, also to Arrow, is of the list; what is encoded are the cells, by their timeuuids.
    """
    return attrs.evolve(type_, kind=_LOG_LIST)


def decoder_for(type_: Type) -> Decoder:
    """Return the function that makes Python values of the bytes of *type_*; ``rscylla.types`` lists them.

    Collections, tuples and UDTs are cut here and not by the driver: its containers put sets in another order, refuse
    some elements, and depend on the classes that the application registered for UDTs.
    """
    return cast("Decoder", _made(type_, "decode"))


def encoder_for(type_: Type, *, arrow: bool = False) -> Encoder:
    """Return the function that makes the bytes of a value of *type_* as ``rscylla.types.json`` has it.

    Together the two lose nothing of any value that a primary key can have, with two exceptions: a tuple or UDT that was
    written with fewer fields than its type has gets nulls for the rest, and of a frozen set of floats that holds both
    0.0 and -0.0 one is lost. Sets and maps may come in any order: the database sorts what is bound.

    Args:
        arrow: values come as ``rscylla.types.arrow`` has them, with times and dates as numbers.
    """
    return cast("Encoder", _made(type_, "encode_arrow" if arrow else "encode"))


def literal_for(type_: Type) -> Literal:
    """Return the function that makes the CQL text of a Python value of *type_*."""
    return cast("Literal", _made(type_, "literal"))


def _made(type_: Type, field: str) -> Any:
    """Return what the field of the row of *type_* gives, built of the same of its parts."""
    row = CONTAINERS.get(type_.kind)
    if row is None:
        return getattr(native(type_), field)
    return getattr(row, field)(type_, [_made(part, field) for part in type_.args])


def native(type_: Type) -> Native:
    """Return the row of a type without parts; that of a type that rscylla does not know leaves bytes as they are."""
    return NATIVES.get(type_.kind, _UNKNOWN)


def sample_of(type_: Type) -> bytes:
    """Return the bytes of any one valid value of *type_*."""
    row = CONTAINERS.get(type_.kind)
    return native(type_).sample if row is None else row.sample(type_)


def width_in_vector(type_: Type) -> int | None:
    """Return how many bytes an element of a vector takes; None if each is led by its size."""
    return native(type_).in_vector
