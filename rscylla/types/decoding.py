"""Bytes of values to Python."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime
from typing import Any

from .._timeuuid import datetime_of
from .tree import Type

__all__ = ["Decoder", "collection_cells", "decoder_for", "sized_cells"]

_INT = struct.Struct(">i")

Decoder = Callable[[bytes], Any]


def decoder_for(type_: Type, *, list_cells: bool = False) -> Decoder:
    """Return a function from a cell's bytes to its value.

    Collections, tuples and UDTs are cut here and not by the driver: its containers put sets in another order, refuse
    some elements, and depend on the classes that the application registered for UDTs.

    Args:
        list_cells: the column is a non-frozen list, which the log keeps as a map from timeuuid to element.
    """
    if list_cells and type_.kind == "map":
        element = decoder_for(type_.args[1])
        return lambda raw: [_or_none(element, v) for v in collection_cells(raw)[1::2]]
    kind, parts = type_.kind, tuple(decoder_for(t) for t in type_.args)
    if kind == "timestamp":
        return _timestamp
    if kind == "list":
        return lambda raw: [_or_none(parts[0], e) for e in collection_cells(raw)]
    if kind == "set":
        return _set_decoder(parts[0], hashable=_hashable(type_.args[0]))
    if kind == "map":
        return _map_decoder(*parts, hashable=_hashable(type_.args[0]))
    if kind == "tuple":
        return lambda raw: tuple(_fields(raw, parts))
    if kind == "vector" and type_.args[0].kind == "timestamp":
        return lambda raw: [_timestamp(raw[at : at + 8]) for at in range(0, len(raw), 8)]
    if kind == "udt":
        names = type_.fields
        return lambda raw: dict(zip(names, _fields(raw, parts), strict=True))
    return _NATIVE.get(kind, type_.read)


def _packed(format_: str) -> Decoder:
    unpack = struct.Struct(format_).unpack
    return lambda raw: unpack(raw)[0] if raw else None


_NATIVE: dict[str, Decoder] = {  # what most columns are: the driver's own decoders take several calls for each
    "bigint": _packed(">q"),
    "double": _packed(">d"),
    "int": _packed(">i"),
    "smallint": _packed(">h"),
    "text": bytes.decode,
    "tinyint": _packed(">b"),
    "varchar": bytes.decode,
}


def _set_decoder(element: Decoder, *, hashable: bool) -> Decoder:
    if hashable:
        return lambda raw: {_or_none(element, e) for e in collection_cells(raw)}
    return lambda raw: [_or_none(element, e) for e in collection_cells(raw)]


def _map_decoder(key: Decoder, value: Decoder, *, hashable: bool) -> Decoder:
    def decode(raw: bytes) -> dict[Any, Any]:
        cells = collection_cells(raw)
        pairs = zip(cells[::2], cells[1::2], strict=True)
        found = ((_or_none(key, k), _or_none(value, v)) for k, v in pairs)
        return dict(found) if hashable else {_frozen(k): v for k, v in found}

    return decode


def collection_cells(raw: bytes) -> list[bytes | None]:
    """Return the cells of a collection; those of a map are keys and values in turn. Empty bytes are an empty one."""
    cells = sized_cells(raw, 4)
    if raw and len(cells) not in (count := _INT.unpack_from(raw)[0], 2 * count):
        raise ValueError("a collection holds another number of elements than it says")
    return cells


def _fields(raw: bytes, decoders: tuple[Decoder, ...]) -> list[Any]:
    """Return the fields of a tuple or UDT; those at the end that were added after it was written are None."""
    cells = sized_cells(raw, 0)
    found = [_or_none(decode, cell) for decode, cell in zip(decoders, cells, strict=False)]
    return found + [None] * (len(decoders) - len(found))


def sized_cells(raw: bytes, at: int) -> list[bytes | None]:
    """Return what follows in *raw* from *at* on, each piece led by its size; a negative size is null."""
    cells: list[bytes | None] = []
    end = len(raw)
    while at < end:
        (size,) = _INT.unpack_from(raw, at)
        at += 4
        if size < 0:
            cells.append(None)
            continue
        if at + size > end:
            raise ValueError("a value is longer than the cell that holds it")
        cells.append(raw[at : at + size])
        at += size
    return cells


def _timestamp(raw: bytes) -> datetime | int | None:
    if not raw:
        return None
    ms = int.from_bytes(raw, "big", signed=True)
    try:
        return datetime_of(ms * 1000)
    except OverflowError:
        return ms


def _or_none(decode: Decoder, raw: bytes | None) -> Any:
    return None if raw is None else decode(raw)


def _hashable(type_: Type) -> bool:
    """Whether values of the type, as decoded here, can be elements of a set or keys of a dict."""
    return type_.kind not in ("list", "vector", "set", "map", "udt") and all(_hashable(t) for t in type_.args)


def _frozen(value: Any) -> Any:
    """Return a hashable form of a list, set or dict, for use as a key of a dict."""
    if isinstance(value, dict):
        return tuple((_frozen(k), _frozen(v)) for k, v in value.items())
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, list | tuple):
        return tuple(_frozen(v) for v in value)
    return value
