"""The types that are made of others: list, set, map, tuple, UDT, vector."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ..cql.names import quote_name
from ..errors import InvalidRequest, short_string
from .cqltype import CqlType, bad_value
from .vint import pack_vint, read_vint

__all__ = ["ListType", "MapType", "SetType", "TupleType", "UdtType", "VectorType"]

_INT32: Final = struct.Struct(">i")
_MARSHAL: Final = "org.apache.cassandra.db.marshal."
_pack_length = _INT32.pack


def _items_of(cql_type: CqlType, value: Any) -> list[Any]:
    """Return the items of a Python value that is to be encoded as one with parts."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise bad_value(cql_type, f"cannot encode {type(value).__name__}")
    return list(value)


def _read_count(cql_type: CqlType, data: bytes) -> int:
    if len(data) < 4:
        raise bad_value(cql_type, f"not enough bytes for the number of elements (expected 4, got {len(data)})")
    (count,) = _INT32.unpack_from(data)
    # Each element has at least its length, which bounds what a hostile count can make us allocate.
    if count < 0 or count * 4 > len(data):
        raise bad_value(cql_type, f"impossible number of elements {count} in {len(data)} bytes")
    return int(count)


def _read_parts(cql_type: CqlType, data: bytes, start: int, limit: int) -> list[bytes | None]:
    """Return up to *limit* length-prefixed parts from *start*; the data must end with the last one read."""
    parts: list[bytes | None] = []
    end = len(data)
    # The data may end early: a tuple may be short, and a UDT was written before a field was added.
    while start < end and len(parts) < limit:
        if start + 4 > end:
            raise bad_value(cql_type, f"not enough bytes for the length of an element (expected 4, got {end - start})")
        (size,) = _INT32.unpack_from(data, start)
        start += 4
        if size < 0:
            parts.append(None)
        elif start + size > end:
            raise bad_value(cql_type, f"not enough bytes for an element (expected {size}, got {end - start})")
        else:
            parts.append(data[start : start + size])
            start += size
    if start != end:
        raise bad_value(cql_type, f"{end - start} unexpected extraneous bytes after the value")
    return parts


def _no_nulls(cql_type: CqlType, parts: list[bytes | None]) -> list[bytes]:
    if None in parts:
        raise InvalidRequest(f"null is not supported inside collections, in a value of type {cql_type.name}")
    return parts  # type: ignore[return-value]  # proved by the line above


def _join(parts: Iterable[bytes | None]) -> bytes:
    """Return the parts, each behind its int32 length; None becomes length -1."""
    return b"".join([b"\xff\xff\xff\xff" if p is None else _pack_length(len(p)) + p for p in parts])


def _in_order(cql_type: CqlType, entries: Mapping[bytes, Any]) -> list[tuple[bytes, Any]]:
    """Return entries by key in the order of its type; of equal keys, as 1.0 and 1.00, the first and the last value."""
    placed = sorted([(cql_type.sort_key(key), key) for key in entries], key=lambda pair: pair[0])
    out: list[tuple[bytes, Any]] = []
    for _, same in itertools.groupby(placed, key=lambda pair: pair[0]):
        keys = [key for _, key in same]
        out.append((keys[0], entries[keys[-1]]))
    return out


def _null_first(cql_type: CqlType, part: bytes | None) -> tuple[Any, ...]:
    return () if part is None else (cql_type.sort_key(part),)


def _frozen_name(text: str, frozen: bool) -> str:
    return f"frozen<{text}>" if frozen else text


def _marshal(cls: str, *parts: str) -> str:
    return f"{_MARSHAL}{cls}({','.join(parts)})"


class _Row(CqlType):
    """What list, set and vector share: parts of one type, in a row."""

    __slots__ = ()

    element: CqlType

    def split(self, data: bytes) -> list[bytes]:
        """Return the encoded elements in the order of *data*."""
        raise NotImplementedError

    def join(self, items: Iterable[bytes]) -> bytes:
        """Return the encoded value of these encoded elements."""
        raise NotImplementedError

    def encode(self, value: Any) -> bytes:
        return self.join([self.element.encode(item) for item in _items_of(self, value)])

    def decode(self, data: bytes) -> Any:
        return [self.element.decode(item) for item in self.split(data)]

    def sort_key(self, data: bytes) -> Any:
        return [self.element.sort_key(item) for item in self.split(data)]

    def normalize(self, data: bytes) -> bytes:
        return self.join([self.element.normalize(item) for item in self.split(data)])

    def references(self, keyspace: str, type_name: str) -> bool:
        return self.element.references(keyspace, type_name)


@attrs.frozen
class _Collection(CqlType):
    """What list, set and map share. The frozen flag comes last so that ``ListType(INT)`` is the non-frozen one."""

    frozen: bool

    @property
    def is_frozen(self) -> bool:
        return self.frozen

    @property
    def is_hashable(self) -> bool:
        return False

    def _marshal(self, cls: str, *parts: str) -> str:
        inner = _marshal(cls, *parts)
        return _marshal("FrozenType", inner) if self.frozen else inner


@attrs.frozen
class _Elements(_Row, _Collection):
    """What list and set share: elements, which are always frozen."""

    element: CqlType
    frozen: bool = False

    def split(self, data: bytes) -> list[bytes]:
        """Return the encoded elements in the order of *data*."""
        return _no_nulls(self, self.split_nullable(data))

    def split_nullable(self, data: bytes) -> list[bytes | None]:
        """Return the encoded elements of what is never stored, such as the list of IN; None for a null."""
        count = _read_count(self, data)
        parts = _read_parts(self, data, 4, count)
        if len(parts) != count:
            raise bad_value(self, f"not enough bytes for {count} elements, found {len(parts)}")
        return parts

    def join(self, items: Iterable[bytes]) -> bytes:
        """Return the encoded value of these encoded elements."""
        parts = list(items)
        return _pack_length(len(parts)) + _join(parts)


@attrs.frozen
class ListType(_Elements):
    """``list<element>``."""

    @property
    def name(self) -> str:
        return _frozen_name(f"list<{self.element.name}>", self.frozen)

    @property
    def wire(self) -> bytes:
        return b"\x00\x20" + self.element.wire

    @property
    def marshal_name(self) -> str:
        return self._marshal("ListType", self.element.marshal_name)

    def freeze(self) -> ListType:
        return ListType(self.element.freeze(), frozen=True)


@attrs.frozen
class SetType(_Elements):
    """``set<element>``; stored in element order."""

    @property
    def name(self) -> str:
        return _frozen_name(f"set<{self.element.name}>", self.frozen)

    @property
    def wire(self) -> bytes:
        return b"\x00\x22" + self.element.wire

    @property
    def marshal_name(self) -> str:
        return self._marshal("SetType", self.element.marshal_name)

    @property
    def is_hashable(self) -> bool:
        return self.element.is_hashable

    def freeze(self) -> SetType:
        return SetType(self.element.freeze(), frozen=True)

    def join(self, items: Iterable[bytes]) -> bytes:
        """Return the encoded value of these encoded elements, sorted; of equal ones the first stays."""
        # Scylla keeps sets and maps in order, however a driver sends them.
        return super().join([pair[0] for pair in _in_order(self.element, dict.fromkeys(items))])

    def decode(self, data: bytes) -> Any:
        items = super().decode(data)
        return frozenset(items) if self.element.is_hashable else items


@attrs.frozen
class MapType(_Collection):
    """``map<key, value>``; stored in key order."""

    key: CqlType
    value: CqlType
    frozen: bool = False

    @property
    def name(self) -> str:
        return _frozen_name(f"map<{self.key.name}, {self.value.name}>", self.frozen)

    @property
    def wire(self) -> bytes:
        return b"\x00\x21" + self.key.wire + self.value.wire

    @property
    def marshal_name(self) -> str:
        return self._marshal("MapType", self.key.marshal_name, self.value.marshal_name)

    def freeze(self) -> MapType:
        return MapType(self.key.freeze(), self.value.freeze(), frozen=True)

    def split(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the encoded (key, value) pairs in the order of *data*."""
        count = _read_count(self, data)
        parts = _no_nulls(self, _read_parts(self, data, 4, 2 * count))
        if len(parts) != 2 * count:
            raise bad_value(self, f"not enough bytes for {count} entries, found {len(parts) // 2}")
        return list(zip(parts[::2], parts[1::2], strict=True))

    def join(self, pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the encoded value of these encoded pairs, sorted by key; of equal keys the last value wins."""
        entries = _in_order(self.key, dict(pairs))
        return _pack_length(len(entries)) + _join(part for pair in entries for part in pair)

    def encode(self, value: Any) -> bytes:
        pairs = value.items() if isinstance(value, Mapping) else _items_of(self, value)
        return self.join([(self.key.encode(key), self.value.encode(item)) for key, item in pairs])

    def decode(self, data: bytes) -> Any:
        pairs = [(self.key.decode(key), self.value.decode(value)) for key, value in self.split(data)]
        return dict(pairs) if self.key.is_hashable else pairs

    def sort_key(self, data: bytes) -> Any:
        return [(self.key.sort_key(key), self.value.sort_key(value)) for key, value in self.split(data)]

    def normalize(self, data: bytes) -> bytes:
        return self.join([(self.key.normalize(key), self.value.normalize(value)) for key, value in self.split(data)])

    def references(self, keyspace: str, type_name: str) -> bool:
        return self.key.references(keyspace, type_name) or self.value.references(keyspace, type_name)


class _Parts(CqlType):
    """What tuple and UDT share: parts of a type each. They may be null, and missing ones at the end read as null."""

    __slots__ = ()

    @property
    def items(self) -> tuple[CqlType, ...]:
        raise NotImplementedError

    def split(self, data: bytes) -> list[bytes | None]:
        """Return the encoded parts, one for each of ``items``."""
        parts = _read_parts(self, data, 0, len(self.items))
        return parts + [None] * (len(self.items) - len(parts))

    def join(self, parts: Iterable[bytes | None]) -> bytes:
        """Return the encoded value of these encoded parts; trailing ones may be left out."""
        return _join(parts)

    def encode(self, value: Any) -> bytes:
        values = _items_of(self, value)
        if len(values) > len(self.items):
            raise bad_value(self, f"expected {len(self.items)} components, got {len(values)}")
        return _join([None if v is None else t.encode(v) for t, v in zip(self.items, values, strict=False)])

    def _decoded(self, data: bytes) -> list[Any]:
        return [None if p is None else t.decode(p) for t, p in zip(self.items, self.split(data), strict=True)]

    def sort_key(self, data: bytes) -> Any:
        """Return a key that puts a value that lacks parts at its end before those that have them.

        A value that was written before a field was added keeps its place, and is another one than with null there.
        """
        return tuple(map(_null_first, self.items, _read_parts(self, data, 0, len(self.items))))

    def normalize(self, data: bytes) -> bytes:
        # The number of parts is kept: a short tuple is stored short.
        parts = _read_parts(self, data, 0, len(self.items))
        return _join([None if p is None else t.normalize(p) for t, p in zip(self.items, parts, strict=False)])

    def references(self, keyspace: str, type_name: str) -> bool:
        return any(item.references(keyspace, type_name) for item in self.items)


@attrs.frozen
class TupleType(_Parts):
    """``tuple<...>``: always frozen."""

    items: tuple[CqlType, ...]

    @property
    def name(self) -> str:
        # As system_schema has it: a tuple that is not frozen does not exist.
        return f"frozen<tuple<{', '.join(item.name for item in self.items)}>>"

    @property
    def wire(self) -> bytes:
        return struct.pack(">HH", 0x31, len(self.items)) + b"".join(item.wire for item in self.items)

    @property
    def marshal_name(self) -> str:
        return _marshal("TupleType", *(item.marshal_name for item in self.items))

    @property
    def is_hashable(self) -> bool:
        return all(item.is_hashable for item in self.items)

    def freeze(self) -> TupleType:
        return TupleType(tuple(item.freeze() for item in self.items))

    def decode(self, data: bytes) -> Any:
        return tuple(self._decoded(data))


@attrs.frozen
class UdtType(_Parts):
    """A user-defined type. Fields may be null; values written before a field was added read as null there."""

    keyspace: str
    type_name: str
    field_names: tuple[str, ...]
    field_types: tuple[CqlType, ...]
    frozen: bool = False

    @property
    def items(self) -> tuple[CqlType, ...]:
        """The field types, under the name that tuples use."""
        return self.field_types

    @property
    def name(self) -> str:
        return _frozen_name(quote_name(self.type_name), self.frozen)

    @property
    def wire(self) -> bytes:
        head = struct.pack(">H", 0x30) + short_string(self.keyspace) + short_string(self.type_name)
        fields = zip(self.field_names, self.field_types, strict=True)
        return head + struct.pack(">H", len(self.field_names)) + b"".join(short_string(n) + t.wire for n, t in fields)

    @property
    def marshal_name(self) -> str:
        fields = zip(self.field_names, self.field_types, strict=True)
        # Names in hex: their characters could be those of this syntax.
        parts = [f"{name.encode().hex()}:{cql_type.marshal_name}" for name, cql_type in fields]
        inner = _marshal("UserType", self.keyspace, self.type_name.encode().hex(), *parts)
        return _marshal("FrozenType", inner) if self.frozen else inner

    @property
    def is_frozen(self) -> bool:
        return self.frozen

    @property
    def is_hashable(self) -> bool:
        return False

    def freeze(self) -> UdtType:
        types = tuple(item.freeze() for item in self.field_types)
        return UdtType(self.keyspace, self.type_name, self.field_names, types, frozen=True)

    def encode(self, value: Any) -> bytes:
        """Encode a mapping of field names (missing ones are null) or a sequence in declared order."""
        if isinstance(value, Mapping):
            unknown = set(value) - set(self.field_names)
            if unknown:
                raise bad_value(self, f"no field {quote_name(min(unknown))}")
            value = [value.get(field) for field in self.field_names]
        return super().encode(value)

    def decode(self, data: bytes) -> Any:
        return dict(zip(self.field_names, self._decoded(data), strict=True))

    def references(self, keyspace: str, type_name: str) -> bool:
        return (self.keyspace, self.type_name) == (keyspace, type_name) or super().references(keyspace, type_name)


@attrs.frozen
class VectorType(_Row):
    """``vector<element, dimension>``: elements side by side, each behind a vint length if its size is not fixed."""

    element: CqlType
    dimension: int

    @property
    def name(self) -> str:
        return f"vector<{self.element.name}, {self.dimension}>"

    @property
    def wire(self) -> bytes:
        # The protocol has no code for vectors, so they go by the name of their class.
        return b"\x00\x00" + short_string(self.marshal_name)

    @property
    def marshal_name(self) -> str:
        return f"{_MARSHAL}VectorType({self.element.marshal_name}, {self.dimension})"

    @property
    def fixed_size(self) -> int | None:
        size = self.element.fixed_size
        return None if size is None else size * self.dimension

    @property
    def is_hashable(self) -> bool:
        return False

    def freeze(self) -> VectorType:
        return VectorType(self.element.freeze(), self.dimension)

    def split(self, data: bytes) -> list[bytes]:
        """Return the encoded elements."""
        size = self.element.fixed_size
        if size is not None:
            if len(data) != size * self.dimension:
                raise bad_value(self, f"expected {size * self.dimension} bytes, got {len(data)}")
            return [data[at : at + size] for at in range(0, len(data), size)]
        parts, at = [], 0
        for _ in range(self.dimension):
            try:
                length, at = read_vint(data, at)
            except ValueError as error:
                raise bad_value(self, str(error)) from None
            if at + length > len(data):
                raise bad_value(self, f"not enough bytes for an element (expected {length}, got {len(data) - at})")
            parts.append(data[at : at + length])
            at += length
        if at != len(data):
            raise bad_value(self, f"{len(data) - at} unexpected extraneous bytes after the value")
        return parts

    def join(self, items: Iterable[bytes]) -> bytes:
        """Return the encoded value of these encoded elements."""
        parts = list(items)
        if len(parts) != self.dimension:
            raise bad_value(self, f"expected {self.dimension} elements, got {len(parts)}")
        if self.element.fixed_size is not None:
            return b"".join(parts)
        return b"".join(pack_vint(len(part)) + part for part in parts)
