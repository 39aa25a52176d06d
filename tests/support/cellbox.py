"""Bytes of values of any CQL type, made by hand from the protocol's text: strategies for property tests."""

from __future__ import annotations

import struct
from collections.abc import Callable

from cassandra import cqltypes
from cassandra.util import Duration
from fakelog import type_of
from hypothesis import strategies as st

from rscylla.types import Type, decoder_for
from rscylla.types.cells import vector_of
from rscylla.types.registry import width_in_vector


def signed(size: int) -> st.SearchStrategy[bytes]:
    bits = 8 * size - 1
    return st.integers(-(2**bits), 2**bits - 1).map(lambda v: v.to_bytes(size, "big", signed=True))


def varint(value: int) -> bytes:
    raw: bytes = cqltypes.IntegerType.serialize(value, 4)
    return raw


def duration(*parts: int) -> bytes:
    raw: bytes = cqltypes.DurationType.serialize(Duration(*parts), 4)
    return raw


NATIVE: dict[str, st.SearchStrategy[bytes]] = {
    "ascii": st.text(st.characters(max_codepoint=127)).map(str.encode),
    "bigint": signed(8),
    "blob": st.binary(max_size=20),
    "boolean": st.sampled_from([b"\x00", b"\x01"]),
    "counter": signed(8),
    "date": st.binary(min_size=4, max_size=4)
    | st.integers(-719_162, 2_932_896).map(lambda d: struct.pack(">I", d + 2**31)),
    "decimal": st.tuples(st.integers(-(2**31) + 1, 2**31 - 1), st.integers(-(2**99), 2**99)).map(
        lambda p: struct.pack(">i", p[0]) + varint(p[1])
    ),
    "duration": st.tuples(st.sampled_from([1, -1]), *[st.integers(0, 2**31 - 1)] * 2, st.integers(0, 2**63 - 1)).map(
        lambda p: duration(*(p[0] * part for part in p[1:]))
    ),
    "double": st.floats(allow_nan=False).map(lambda v: struct.pack(">d", v)),
    "float": st.floats(allow_nan=False, width=32).map(lambda v: struct.pack(">f", v)),
    "inet": st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    "int": signed(4),
    "smallint": signed(2),
    "text": st.text(st.characters(exclude_categories=["Cs"])).map(str.encode),
    "time": st.integers(0, 86_400 * 10**9 - 1).map(lambda v: struct.pack(">q", v)),
    "timestamp": signed(8) | st.integers(-62_135_596_800_000, 253_402_300_799_999).map(lambda v: struct.pack(">q", v)),
    "timeuuid": st.uuids(version=1).map(lambda u: u.bytes),
    "tinyint": signed(1),
    "uuid": st.uuids().map(lambda u: u.bytes),
    "varint": st.integers(-(2**200), 2**200).map(varint),
}

INT = struct.Struct(">i")


def cell(raw: bytes | None) -> bytes:
    return INT.pack(-1) if raw is None else INT.pack(len(raw)) + raw


def told_apart(type_: Type) -> Callable[[bytes], bool]:
    """Leave out sets and maps of what Python holds for equal: two decimals that the database does not tell apart
    either, and the two zeros of floats, of which one is lost."""
    return lambda raw: len(decoder_for(type_)(raw)) == INT.unpack_from(raw)[0]


def nested(type_: Type) -> st.SearchStrategy[bytes]:
    """Bytes of values of *type_*, made by hand from the protocol's text."""
    parts = [nested(t) for t in type_.args]
    match type_.kind:
        case "list":
            return st.lists(parts[0], max_size=4).map(lambda es: INT.pack(len(es)) + b"".join(map(cell, es)))
        case "set":
            unique = st.lists(parts[0], max_size=4, unique=True)
            return unique.map(lambda es: INT.pack(len(es)) + b"".join(map(cell, es))).filter(told_apart(type_))
        case "map":
            pairs = st.lists(st.tuples(*parts), max_size=4, unique_by=lambda pair: pair[0])
            whole = pairs.map(lambda ps: INT.pack(len(ps)) + b"".join(cell(k) + cell(v) for k, v in ps))
            return whole.filter(told_apart(type_))
        case "tuple" | "udt":
            return st.tuples(*(st.none() | p for p in parts)).map(lambda es: b"".join(map(cell, es)))
        case "vector":
            elements = st.lists(parts[0], min_size=type_.size, max_size=type_.size)
            return elements.map(lambda es: vector_of(es, width_in_vector(type_.args[0])))
    return NATIVE["blob" if type_.kind == ODD else type_.kind]


def type_tree(children: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    def made(kind: str, *args: Type, fields: tuple[str, ...] = ()) -> Type:
        return Type(kind, args, fields, name="udt " + "".join(fields) if fields else "", frozen=kind != "tuple")

    return st.one_of(
        children.map(lambda t: made("list", t)),
        children.map(lambda t: made("set", t)),
        st.tuples(children, children).map(lambda ts: made("map", *ts)),
        st.lists(children, min_size=1, max_size=3).map(lambda ts: made("tuple", *ts)),
        st.lists(children, min_size=1, max_size=3).map(
            lambda ts: made("udt", *ts, fields=tuple(f"f{i}" for i in range(len(ts))))
        ),
        st.tuples(children, st.integers(1, 3)).map(lambda p: Type("vector", (p[0],), size=p[1])),
    )


KEYS = sorted(NATIVE.keys() - {"counter", "duration"})
"""Native types that can be in a key, so in a set, too."""

types = st.recursive(st.sampled_from(KEYS).map(type_of), type_tree, max_leaves=4)

ODD = "org.example.Odd"
"""A type that nobody knows."""

_others = st.sampled_from([*NATIVE, ODD]).map(Type)

any_types = (
    st.recursive(st.sampled_from([*KEYS, ODD]).map(Type), type_tree, max_leaves=4)
    | _others
    | _others.map(lambda t: Type("list", (t,)))
    | _others.map(lambda t: Type("tuple", (t, t)))
)


@st.composite
def broken(draw: st.DrawFn, type_: Type) -> bytes:
    """Draw bytes that are almost a value: cut, longer, or with another byte, or another size, somewhere."""
    raw = bytearray(draw(nested(type_)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(raw)))
        match draw(st.sampled_from(["cut", "add", "byte", "size"])):
            case "cut":
                del raw[at:]
            case "add":
                raw[at:at] = draw(st.binary(min_size=1, max_size=5))
            case "byte":
                raw[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "size":
                raw[at : at + 4] = INT.pack(draw(st.sampled_from([-(2**31), -1, 0, 1, 2, 5, 2**31 - 1])))
    return bytes(raw)
