"""Values with parts: the functions of ``natives`` for containers, built from those of the parts."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from .cells import NOT_SO_MANY, collection_cells, collection_of, sized_cells, sized_of, vector_cells, vector_of
from .natives import Decoder, Encoder
from .tree import Type

# ---------------------------------------------------------------- decoding

Decoders = Sequence[Decoder]


def list_decoder(_: Type, parts: Decoders) -> Decoder:
    (element,) = parts
    return lambda raw: [_or_none(element, e) for e in collection_cells(raw)]


def log_list_decoder(_: Type, parts: Decoders) -> Decoder:
    element = parts[1]
    return lambda raw: [_or_none(element, e) for e in collection_cells(raw, 2)[1::2]]


def set_decoder(type_: Type, parts: Decoders) -> Decoder:
    if not type_.args[0].is_hashable:
        return list_decoder(type_, parts)
    (element,) = parts
    return lambda raw: {_or_none(element, e) for e in collection_cells(raw)}


def map_decoder(type_: Type, parts: Decoders) -> Decoder:
    key, value = parts
    hashable = type_.args[0].is_hashable

    def decode(raw: bytes) -> dict[Any, Any]:
        cells = collection_cells(raw, 2)
        pairs = zip(cells[::2], cells[1::2], strict=True)
        found = ((_or_none(key, k), _or_none(value, v)) for k, v in pairs)
        return dict(found) if hashable else {_frozen(k): v for k, v in found}

    return decode


def tuple_decoder(_: Type, parts: Decoders) -> Decoder:
    return lambda raw: tuple(_fields(raw, parts))


def udt_decoder(type_: Type, parts: Decoders) -> Decoder:
    names = type_.fields
    return lambda raw: dict(zip(names, _fields(raw, parts), strict=True))


def vector_decoder(width: int | None, size: int, parts: Decoders) -> Decoder:
    (element,), split = parts, vector_cells(width, size)
    return lambda raw: [_or_none(element, e) for e in split(raw)]


def packed_vector_decoder(packed: str, size: int) -> Decoder:
    """Return the decoder of a vector of *size* numbers that ``struct`` unpacks; there may be many."""
    numbers = struct.Struct(f"{packed[0]}{size}{packed[1]}")

    def decode(raw: bytes) -> list[Any]:
        if not raw:
            return []
        if len(raw) != numbers.size:
            raise ValueError(NOT_SO_MANY)
        return list(numbers.unpack(raw))

    return decode


def _fields(raw: bytes, parts: Decoders) -> list[Any]:
    """Return the fields of a tuple or UDT; those at the end that were added after it was written are None."""
    cells = sized_cells(raw)
    found = [_or_none(decode, cell) for decode, cell in zip(parts, cells, strict=False)]
    return found + [None] * (len(parts) - len(found))


def _or_none(decode: Decoder, raw: bytes | None) -> Any:
    return None if raw is None else decode(raw)


def _frozen(value: Any) -> Any:
    """Return a hashable form of a list, set or dict, for use as a key of a dict."""
    if isinstance(value, dict):
        return tuple((_frozen(k), _frozen(v)) for k, v in value.items())
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, list | tuple):
        return tuple(_frozen(v) for v in value)
    return value


# ---------------------------------------------------------------- encoding

Encoders = Sequence[Encoder]


def list_encoder(_: Type, parts: Encoders) -> Encoder:
    (element,) = parts
    return lambda value: collection_of([_encoded(element, v) for v in _array(value)], len(value))


def map_encoder(_: Type, parts: Encoders) -> Encoder:
    """JSON has a map as an object or, if a key is not text, as an array of pairs."""
    key, item = parts

    def encode(value: Any) -> bytes:
        pairs = value.items() if isinstance(value, Mapping) else _array(value)
        return collection_of([c for k, v in pairs for c in (_encoded(key, k), _encoded(item, v))], len(value))

    return encode


def tuple_encoder(_: Type, parts: Encoders) -> Encoder:
    return lambda value: sized_of([_encoded(part, v) for part, v in zip(parts, _array(value), strict=True)])


def struct_encoder(_: Type, parts: Encoders) -> Encoder:
    """Return the encoder of a tuple, which Arrow has as a struct."""
    return lambda value: sized_of([_encoded(part, v) for part, v in zip(parts, value.values(), strict=True)])


def udt_encoder(type_: Type, parts: Encoders) -> Encoder:
    """As the key of a map JSON has a UDT as an array of pairs."""
    fields = type_.fields

    def encode(value: Any) -> bytes:
        named = dict(value)
        if unknown := named.keys() - set(fields):
            raise ValueError(f"no field {min(unknown)!r}")
        return sized_of([_encoded(part, named.get(field)) for field, part in zip(fields, parts, strict=True)])

    return encode


def vector_encoder(width: int | None, size: int, parts: Encoders) -> Encoder:
    (element,) = parts

    def encode(value: Any) -> bytes:
        cells = [element(v) for v in _array(value)]
        if len(cells) != size:
            raise ValueError(NOT_SO_MANY)
        return vector_of(cells, width)

    return encode


def _encoded(encode: Encoder, value: Any) -> bytes | None:
    return None if value is None else encode(value)


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError("not an array")
    return list(value)
