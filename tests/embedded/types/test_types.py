"""Types encode and decode as the driver's own codecs do, order as CQL orders, and refuse what is not of them."""

from __future__ import annotations

import datetime as dt
import ipaddress
import itertools
import math
import pickle
import re
import struct
import uuid
from decimal import Decimal

import pytest
from cassandra import cqltypes, protocol
from cassandra.util import Date, OrderedMapSerializedKey, Time, sortedset
from cassandra.util import Duration as DriverDuration
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rscylla.embedded.cql import ast
from rscylla.embedded.cql.parser import parse
from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.types import (
    ASCII,
    BIGINT,
    BLOB,
    BOOLEAN,
    COUNTER,
    DATE,
    DECIMAL,
    DOUBLE,
    DURATION,
    FLOAT,
    INET,
    INT,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMEUUID,
    TINYINT,
    UNSET,
    UUID,
    VARINT,
    CqlType,
    Duration,
    ListType,
    MapType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
    default_type,
    parse_type,
    resolve,
    term_bytes,
)
from rscylla.embedded.types.natives import NATIVE_TYPES

PROTOCOL = 4
ADDRESS = UdtType("ks", "addr", ("street", "zip"), (TEXT, INT))


def lookup(name: str) -> UdtType:
    if name in ("addr", "ks.addr"):
        return ADDRESS
    raise InvalidRequest(f"Unknown type {name}")


def of(text: str) -> CqlType:
    return parse_type(text, lookup)


# ---------------------------------------------------------------- the driver as oracle


def driver_type(cql_type: CqlType):
    """Return the driver's own class for a type, made from parts and not from our wire bytes."""
    match cql_type:
        case ListType():
            return cqltypes.ListType.apply_parameters([driver_type(cql_type.element)])
        case SetType():
            return cqltypes.SetType.apply_parameters([driver_type(cql_type.element)])
        case MapType():
            return cqltypes.MapType.apply_parameters([driver_type(cql_type.key), driver_type(cql_type.value)])
        case TupleType():
            return cqltypes.TupleType.apply_parameters([driver_type(item) for item in cql_type.items])
        case UdtType():
            parts = tuple(driver_type(item) for item in cql_type.items)
            return cqltypes.UserType.make_udt_class(cql_type.keyspace, cql_type.type_name, cql_type.field_names, parts)
        case VectorType():
            name = f"org.apache.cassandra.db.marshal.VectorType({driver_type(cql_type.element).cassname}, "
            return cqltypes.lookup_casstype(f"{name}{cql_type.dimension})")
    return cqltypes._cqltypes[cql_type.name]


def for_driver(cql_type: CqlType, value):
    """Return our Python value in the classes that the driver encodes."""
    if value is None:
        return None
    match cql_type:
        case ListType() | VectorType():
            return [for_driver(cql_type.element, item) for item in value]
        case SetType():
            # The driver keeps the order it is given; the server stores element order.
            return sorted(
                (for_driver(cql_type.element, item) for item in value), key=lambda v: key_of(cql_type.element, v)
            )
        case MapType():
            items = value.items() if isinstance(value, dict) else value
            pairs = [(for_driver(cql_type.key, k), for_driver(cql_type.value, v)) for k, v in items]
            pairs.sort(key=lambda pair: key_of(cql_type.key, pair[0]))
            return dict(pairs)
        case TupleType():
            return tuple(for_driver(t, v) for t, v in zip(cql_type.items, value, strict=True))
        case UdtType():
            return tuple(
                for_driver(t, value[n]) for n, t in zip(cql_type.field_names, cql_type.field_types, strict=True)
            )
    if cql_type is DATE:
        return Date(value)
    if cql_type is TIME:
        return Time(value)
    if cql_type is DURATION:
        return DriverDuration(value.months, value.days, value.nanoseconds)
    if cql_type is INET:
        return str(value)
    return value


def key_of(cql_type: CqlType, driver_value):
    return cql_type.sort_key(driver_type(cql_type).serialize(driver_value, PROTOCOL))


def from_driver(cql_type: CqlType, value):
    """Return what the driver decoded in our own Python classes."""
    if value is None:
        return None
    match cql_type:
        case ListType() | VectorType():
            return [from_driver(cql_type.element, item) for item in value]
        case SetType():
            assert isinstance(value, sortedset)
            return frozenset(from_driver(cql_type.element, item) for item in value)
        case MapType():
            assert isinstance(value, OrderedMapSerializedKey)
            return {from_driver(cql_type.key, k): from_driver(cql_type.value, v) for k, v in value.items()}
        case TupleType():
            return tuple(from_driver(t, v) for t, v in zip(cql_type.items, value, strict=True))
        case UdtType():
            parts = zip(cql_type.field_names, cql_type.field_types, value, strict=True)
            return {name: from_driver(t, v) for name, t, v in parts}
    if cql_type is TIMESTAMP:
        return (value.replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
    if cql_type is DATE:
        return value.days_from_epoch
    if cql_type is TIME:
        return value.nanosecond_time
    if cql_type is DURATION:
        return Duration(value.months, value.days, value.nanoseconds)
    if cql_type is INET:
        return ipaddress.ip_address(value)
    return value


def integers(bits: int):
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


@st.composite
def durations(draw):
    sign = draw(st.sampled_from([1, -1]))
    parts = [draw(st.integers(0, (1 << bits) - 1)) for bits in (31, 31, 63)]
    return Duration(*(sign * part for part in parts))


@st.composite
def timeuuids(draw):
    high = draw(st.integers(0, (1 << 60) - 1))
    raw = (high & 0xFFFFFFFF) << 96 | (high >> 32 & 0xFFFF) << 80 | 1 << 76 | high >> 48 << 64
    return uuid.UUID(int=raw | draw(st.integers(0, (1 << 64) - 1)))


# Years that the driver's own datetime can hold.
YEAR_1_MS = -62_135_596_800_000
YEAR_9999_MS = 253_402_300_799_999
NATIVE_VALUES = {
    ASCII: st.text(st.characters(max_codepoint=127), max_size=10),
    BIGINT: integers(64),
    BLOB: st.binary(max_size=10),
    BOOLEAN: st.booleans(),
    COUNTER: integers(64),
    DATE: st.integers(-(1 << 31), (1 << 31) - 1),
    DECIMAL: st.decimals(allow_nan=False, allow_infinity=False),
    DOUBLE: st.floats(allow_nan=False),
    DURATION: durations(),
    FLOAT: st.floats(width=32, allow_nan=False),
    INET: st.ip_addresses(),
    INT: integers(32),
    SMALLINT: integers(16),
    TEXT: st.text(max_size=10),
    TIME: st.integers(0, 86_399_999_999_999),
    TIMESTAMP: st.integers(YEAR_1_MS, YEAR_9999_MS),
    TIMEUUID: timeuuids(),
    TINYINT: integers(8),
    UUID: st.uuids(),
    VARINT: st.integers(),
}
NATIVES = list(NATIVE_VALUES)


def values(cql_type: CqlType):
    match cql_type:
        case ListType():
            return st.lists(values(cql_type.element), max_size=4)
        case SetType():
            return st.frozensets(values(cql_type.element), max_size=4)
        case MapType():
            return st.dictionaries(values(cql_type.key), values(cql_type.value), max_size=4)
        case TupleType():
            return st.tuples(*(st.none() | values(item) for item in cql_type.items))
        case UdtType():
            parts = zip(cql_type.field_names, cql_type.field_types, strict=True)
            return st.fixed_dictionaries({name: st.none() | values(item) for name, item in parts})
        case VectorType():
            return st.lists(values(cql_type.element), min_size=cql_type.dimension, max_size=cql_type.dimension)
    return NATIVE_VALUES[cql_type]


# Sets and map keys hold types whose Python values are equal exactly when their encodings are.
KEYS = [t for t in NATIVES if t not in (DECIMAL, FLOAT, DOUBLE, DURATION, COUNTER, BOOLEAN)]
key_types = st.sampled_from(KEYS)
natives = st.sampled_from([t for t in NATIVES if t is not COUNTER])
all_types = st.recursive(
    natives,
    lambda inner: st.one_of(
        st.builds(lambda t: ListType(t.freeze()), inner),
        st.builds(lambda t: SetType(t), key_types),
        st.builds(lambda k, v: MapType(k, v.freeze()), key_types, inner),
        st.builds(lambda items: TupleType(tuple(t.freeze() for t in items)), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda a, b: UdtType("ks", "kind", ("a", "b"), (a.freeze(), b.freeze())), inner, inner),
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_encoding_equals_the_drivers(data):
    cql_type = data.draw(all_types | st.just(COUNTER))
    value = data.draw(values(cql_type))
    expected = driver_type(cql_type).serialize(for_driver(cql_type, value), PROTOCOL)
    assert expected == cql_type.encode(value)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_driver_decodes_what_was_encoded(data):
    cql_type = data.draw(all_types)
    value = data.draw(values(cql_type))
    # The driver reads an empty text inside a collection as itself, and an empty blob too: nothing is lost here.
    assert value == from_driver(cql_type, driver_type(cql_type).from_binary(cql_type.encode(value), PROTOCOL))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_decoding_reverses_encoding(data):
    cql_type = data.draw(all_types)
    value = data.draw(values(cql_type))
    encoded = cql_type.encode(value)
    assert value == cql_type.decode(encoded)
    assert encoded == cql_type.normalize(encoded)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_vectors_are_the_drivers(data):
    element = data.draw(
        st.sampled_from([FLOAT, INT, BIGINT, DOUBLE, UUID, TIMESTAMP, TEXT, TINYINT, SMALLINT, VARINT, BLOB])
    )
    cql_type = VectorType(element, data.draw(st.integers(1, 5)))
    value = data.draw(values(cql_type))
    if element is TEXT and data.draw(st.booleans()):
        value = ["x" * 300, *value[1:]]
    encoded = cql_type.encode(value)
    assert driver_type(cql_type).serialize(value, PROTOCOL) == encoded
    assert value == cql_type.decode(encoded)


@settings(max_examples=200, deadline=None)
@given(all_types)
def test_the_driver_reads_the_wire_form_of_a_type(cql_type):
    class Reader:
        def __init__(self, data: bytes) -> None:
            self.data = data

        def read(self, size: int) -> bytes:
            head, self.data = self.data[:size], self.data[size:]
            return head

    reader = Reader(cql_type.wire)
    read = protocol.ResultMessage.read_type(reader, {})
    assert reader.data == b""
    assert driver_type(cql_type).cql_parameterized_type() == read.cql_parameterized_type().replace("varchar", "text")


def test_the_wire_form_of_a_udt_and_a_vector():
    assert ADDRESS.wire == b"\x00\x30\x00\x02ks\x00\x04addr\x00\x02\x00\x06street\x00\x0d\x00\x03zip\x00\x09"
    name = b"org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType, 3)"
    assert VectorType(FLOAT, 3).wire == b"\x00\x00" + struct.pack(">H", len(name)) + name


@given(all_types)
def test_type_text_reads_back(cql_type):
    def named(_: str) -> UdtType:
        raise InvalidRequest("no user types here")

    assume("kind" not in cql_type.name)
    assert cql_type == parse_type(cql_type.name, named)


@given(all_types)
def test_the_marshal_name_is_what_the_driver_understands(cql_type):
    read = cqltypes.lookup_casstype(cql_type.marshal_name)
    while read.typename == "frozen":
        (read,) = read.subtypes
    name = cqltypes.strip_frozen(driver_type(cql_type).cql_parameterized_type())
    assert cqltypes.strip_frozen(read.cql_parameterized_type()) == name


# ---------------------------------------------------------------- values the driver cannot show


@pytest.mark.parametrize(
    ("cql_type", "value", "encoded"),
    [
        (TIMESTAMP, (1 << 63) - 1, b"\x7f" + b"\xff" * 7),
        (TIMESTAMP, dt.datetime(2026, 11, 21, 10, 0, 5, 123456), (1795255205123).to_bytes(8, "big")),
        (TIMESTAMP, dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC), b"\xff" * 8),
        (DATE, dt.date(1970, 1, 2), b"\x80\x00\x00\x01"),
        (TIME, dt.time(0, 0, 1), (1_000_000_000).to_bytes(8, "big")),
        (INET, "::1", bytes(15) + b"\x01"),
        (FLOAT, 1e300, struct.pack(">f", math.inf)),
        (VARINT, 0, b"\x00"),
        (VARINT, 128, b"\x00\x80"),
        (VARINT, -128, b"\x80"),
        (DECIMAL, 5, b"\x00\x00\x00\x00\x05"),
        (DECIMAL, Decimal("1E+2"), b"\xff\xff\xff\xfe\x01"),
    ],
)
def test_values_in_other_python_classes_are_encoded(cql_type, value, encoded):
    assert encoded == cql_type.encode(value)


@pytest.mark.parametrize("cql_type", [t for t in NATIVES if t not in (TEXT, ASCII, BLOB, DURATION)])
def test_an_empty_value_is_allowed_and_means_nothing(cql_type):
    cql_type.validate(b"")
    assert cql_type.decode(b"") is None


@pytest.mark.parametrize(
    ("cql_type", "value"),
    [
        (INT, 1 << 31),
        (INT, True),
        (INT, "1"),
        (TINYINT, 128),
        (TEXT, b"x"),
        (ASCII, "é"),
        (TEXT, "\ud800"),
        (BLOB, "x"),
        (BOOLEAN, 1),
        (FLOAT, "1"),
        (DECIMAL, Decimal("NaN")),
        (DECIMAL, 1.5),
        (UUID, "x"),
        (TIMEUUID, uuid.UUID(int=4 << 76)),
        (TIME, -1),
        (TIME, 86_400_000_000_000),
        (DATE, 1 << 31),
        (INET, "300.1.1.1"),
        (DURATION, Duration(1, -1, 0)),
        (DURATION, Duration(1 << 31, 0, 0)),
        (DURATION, Duration(0, 0, 1 << 64)),
        (ListType(INT), "12"),
        (ListType(INT), 5),
        (SetType(INT), {1: 2}),
        (MapType(INT, INT), b"x"),
        (TupleType((INT,)), (1, 2)),
        (ADDRESS, {"town": "x"}),
        (ADDRESS, "x"),
        (VectorType(INT, 2), [1]),
    ],
)
def test_values_of_another_kind_are_refused(cql_type, value):
    with pytest.raises(InvalidRequest, match="marshaling error"):
        cql_type.encode(value)


@pytest.mark.parametrize(
    ("cql_type", "data"),
    [
        (INT, b"\x00" * 3),
        (BIGINT, b"\x00" * 4),
        (BOOLEAN, b"\x00\x00"),
        (TEXT, b"\xff"),
        (ASCII, b"\x80"),
        (UUID, b"\x00" * 15),
        (TIMEUUID, uuid.UUID(int=4 << 76).bytes),
        (DECIMAL, b"\x00\x00\x00\x01"),
        (INET, b"\x00" * 5),
        (TIME, b"\xff" * 8),
        (DATE, b"\x00" * 8),
        (DURATION, b"\x02\x01\x00"),
        (DURATION, b"\x02\x02"),
        (DURATION, b"\x02\x02\x02\x02"),
        (DURATION, b"\xff"),
        (DURATION, b""),
        (ListType(INT), b""),
        (ListType(INT), b"\x00\x00\x00\x01"),
        (ListType(INT), b"\xff\xff\xff\xff"),
        (ListType(INT), b"\x7f\xff\xff\xff"),
        (ListType(INT), b"\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00"),
        (ListType(INT), b"\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00"),
        (ListType(INT), b"\x00\x00\x00\x00x"),
        (SetType(INT), b"\x00\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00\x01"),
        (MapType(INT, INT), b"\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01"),
        (TupleType((INT,)), b"\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00\x00"),
        (VectorType(INT, 2), b"\x00" * 7),
        (VectorType(TEXT, 1), b"\x05abc"),
        (VectorType(TEXT, 1), b"\x01ab"),
        (VectorType(TEXT, 1), b""),
    ],
)
def test_bytes_of_another_form_are_refused(cql_type, data):
    with pytest.raises(InvalidRequest, match="marshaling error"):
        cql_type.validate(data)


@pytest.mark.parametrize(
    ("cql_type", "data", "message"),
    [
        (INT, b"123", "Validation failed for type org.apache.cassandra.db.marshal.Int32Type: got 3 bytes"),
        (TINYINT, b"12", "Expected 1 byte for a tinyint (2)"),
        (SMALLINT, b"1", "Expected 2 bytes for a smallint (1)"),
        (ASCII, b"\x80", "Validation failed - non-ASCII character in an ASCII string"),
        (TEXT, b"a\xff", "Validation failed - non-UTF8 character in a UTF8 string, at byte offset 1"),
        (BOOLEAN, b"12", "Validation failed for boolean, got 2 bytes"),
        (TIMESTAMP, b"1", "Validation failed for timestamp - got 1 bytes"),
        (UUID, b"1", "Validation failed for uuid - got 1 bytes"),
        (TIMEUUID, b"1", "Validation failed for timeuuid - got 1 bytes"),
        (TIMEUUID, uuid.UUID(int=4 << 76).bytes, "Unsupported UUID version (4)"),
        (DURATION, b"", "Expected at least 3 bytes for a duration, got 0"),
        (FLOAT, b"1", "Expected 4 bytes for a floating type, got 1"),
        (DOUBLE, b"1", "Expected 8 bytes for a floating type, got 1"),
        (DATE, b"1", "Expected 4 byte long for date (1)"),
        (TIME, b"1", "Expected 8 byte long for time (1)"),
        (INET, b"1", "Validation failed for inet_addr - got 1 bytes"),
        (ListType(INT), b"\x00", "not enough bytes"),
        (ListType(INT), b"\x00\x00\x00\x01\x00\x00\x00\x04\x00", "not enough bytes"),
        (MapType(INT, INT), b"\x00\x00\x00\x01\x00\x00\x00\x00", "not enough bytes"),
        (TupleType((INT,)), b"\x00\x00", "not enough bytes"),
    ],
)
def test_refused_bytes_are_told_in_the_words_of_scylla(cql_type, data, message):
    with pytest.raises(InvalidRequest, match=rf"^marshaling error: .*{re.escape(message)}"):
        cql_type.validate(data)


def test_null_inside_a_collection_is_refused():
    with pytest.raises(InvalidRequest, match="null is not supported inside collections"):
        ListType(INT).validate(b"\x00\x00\x00\x01\xff\xff\xff\xff")


@settings(max_examples=300, deadline=None)
@given(all_types, st.binary(max_size=40))
def test_any_bytes_are_a_value_or_refused(cql_type, data):
    try:
        stored = cql_type.normalize(data)
    except InvalidRequest:
        return
    cql_type.decode(stored)
    cql_type.sort_key(stored)
    assert stored == cql_type.normalize(stored)


def test_a_bound_set_and_map_are_put_in_order_without_repeats():
    parts = [INT.encode(n) for n in (3, -1, 3, 2)]
    unordered = struct.pack(">i", 4) + b"".join(struct.pack(">i", len(part)) + part for part in parts)
    assert SetType(INT).encode({-1, 2, 3}) == SetType(INT).normalize(unordered)
    pairs = struct.pack(">i", 2) + b"".join(struct.pack(">i", len(part)) + part for part in parts)
    assert MapType(INT, INT).encode({3: 2}) == MapType(INT, INT).normalize(pairs)
    nested = ListType(SetType(INT, frozen=True))
    assert nested.encode([{-1, 2, 3}]) == nested.normalize(struct.pack(">ii", 1, len(unordered)) + unordered)


def test_short_tuples_read_as_null_at_the_end():
    pair = TupleType((INT, TEXT))
    short = pair.encode((1,))
    assert pair.decode(short) == (1, None)
    assert short == pair.normalize(short)
    assert ADDRESS.decode(ADDRESS.join([b"x"])) == {"street": "x", "zip": None}


def test_values_that_python_cannot_hash_come_in_lists():
    lists = SetType(ListType(INT, frozen=True))
    assert lists.decode(lists.encode([[2], [1], [1]])) == [[1], [2]]
    keyed = MapType(SetType(ADDRESS.freeze(), frozen=True), INT)
    assert keyed.decode(keyed.encode([([{"street": "x", "zip": 1}], 2)])) == [([{"street": "x", "zip": 1}], 2)]


# ---------------------------------------------------------------- order


def in_order(cql_type: CqlType, ordered: list[bytes]) -> None:
    keys = [cql_type.sort_key(data) for data in ordered]
    assert all(a < b for a, b in itertools.pairwise(keys))


@pytest.mark.parametrize(
    ("cql_type", "ordered"),
    [
        (INT, [-(1 << 31), -1, 0, 1, (1 << 31) - 1]),
        (TINYINT, [-128, -1, 0, 127]),
        (VARINT, [-(10**30), -1, 0, 10**30]),
        (DECIMAL, [Decimal("-1E+3"), Decimal("-1.5"), Decimal(0), Decimal("1.49"), Decimal("1.5"), Decimal("1E+3")]),
        (DOUBLE, [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan]),
        (FLOAT, [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, -math.nan]),
        (TEXT, ["", "A", "a", "aa", "ä", "\U0001f600"]),
        (BLOB, [b"", b"\x00", b"\x01", b"\x7f", b"\x80", b"\x80\x00", b"\xff"]),
        (BOOLEAN, [False, True]),
        (TIMESTAMP, [-1, 0, 1]),
        (DATE, [-(1 << 31), -1, 0, (1 << 31) - 1]),
        (TIME, [0, 86_399_999_999_999]),
        (INET, ["::1", "0.0.0.1", "127.0.0.1", "fe80::1", "255.0.0.1"]),
        (ListType(INT), [[], [-1], [0], [0, -5], [1]]),
        (MapType(INT, TEXT), [{}, {1: "a"}, {1: "b"}, {1: "b", 2: ""}, {2: "a"}]),
        (TupleType((INT, TEXT)), [(None, None), (None, "x"), (-1, "x"), (0, None), (0, "a")]),
    ],
)
def test_order(cql_type, ordered):
    in_order(cql_type, [cql_type.encode(value) for value in ordered])


@pytest.mark.parametrize("cql_type", [t for t in NATIVES if t is not DURATION])
def test_an_empty_value_comes_first(cql_type):
    lowest = {
        TEXT: "\x00",
        ASCII: "\x00",
        BLOB: b"\x00",
        UUID: uuid.UUID(int=0),
        TIMEUUID: uuid.UUID(int=1 << 76),
        INET: "0.0.0.0",
        BOOLEAN: False,
        DECIMAL: Decimal("-1E+9999"),
        DOUBLE: -math.inf,
        FLOAT: -math.inf,
        VARINT: -(10**30),
        DATE: -(1 << 31),
        TIME: 0,
    }
    bits = {TINYINT: 8, SMALLINT: 16, INT: 32}.get(cql_type, 64)
    in_order(cql_type, [b"", cql_type.encode(lowest.get(cql_type, -(1 << bits - 1)))])


@settings(max_examples=300)
@given(timeuuids(), timeuuids(), st.booleans())
def test_timeuuids_are_ordered_by_time_then_signed_bytes(a, b, same_time):
    if same_time:
        b = uuid.UUID(bytes=a.bytes[:8] + b.bytes[8:])

    def reference(value: uuid.UUID):
        return value.time, [byte - 256 if byte > 127 else byte for byte in value.bytes[8:]]

    assert (reference(a) < reference(b)) == (TIMEUUID.sort_key(a.bytes) < TIMEUUID.sort_key(b.bytes))


@settings(max_examples=300)
@given(st.uuids() | timeuuids(), st.uuids() | timeuuids())
def test_uuids_are_ordered_by_version_then_time_or_bytes(a, b):
    def reference(value: uuid.UUID):
        version = value.bytes[6] >> 4
        return version, value.time if version == 1 else 0, value.bytes[8:] if version == 1 else value.bytes

    assert (reference(a) < reference(b)) == (UUID.sort_key(a.bytes) < UUID.sort_key(b.bytes))


def test_python_would_order_timeuuids_otherwise():
    early, late = uuid.UUID(int=(2 << 96) | 1 << 76), uuid.UUID(int=(1 << 96) | 1 << 76 | 1 << 64)
    assert late < early
    in_order(TIMEUUID, [early.bytes, late.bytes])


# ---------------------------------------------------------------- type text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INT", INT),
        ("varchar", TEXT),
        ("list<int>", ListType(INT)),
        ("Frozen< Set <text> >", SetType(TEXT, frozen=True)),
        ("map<int,frozen<list<text>>>", MapType(INT, ListType(TEXT, frozen=True))),
        ("frozen<map<int, list<text>>>", MapType(INT, ListType(TEXT, frozen=True), frozen=True)),
        ("tuple<int, list<addr>>", TupleType((INT, ListType(ADDRESS.freeze(), frozen=True)))),
        ("frozen<tuple<int>>", TupleType((INT,))),
        ("addr", ADDRESS),
        ("ks.addr", ADDRESS),
        ("frozen<addr>", ADDRESS.freeze()),
        ("vector<float, 1536>", VectorType(FLOAT, 1536)),
        ("vector<list<int>, 2>", VectorType(ListType(INT, frozen=True), 2)),
        ("list<vector<float, 3>>", ListType(VectorType(FLOAT, 3))),
    ],
)
def test_type_text(text, expected):
    assert expected == of(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("frozen<map<text, list<int>>>", "frozen<map<text, frozen<list<int>>>>"),
        ("tuple<int, text>", "frozen<tuple<int, text>>"),
        ("map<int, vector<float, 3>>", "map<int, vector<float, 3>>"),
        ("frozen<addr>", "frozen<addr>"),
        ("varchar", "text"),
    ],
)
def test_the_name_of_a_type_is_what_system_schema_shows(text, name):
    assert name == of(text).name
    assert name == str(of(name))


def test_the_name_of_a_udt_is_quoted_where_it_must_be():
    assert UdtType("ks", "My Type", ("a",), (INT,)).name == '"My Type"'
    assert UdtType("ks", "table", ("a",), (INT,)).freeze().name == 'frozen<"table">'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("itn", "Unknown type itn"),
        ('"int"', "Unknown type int"),
        ("int<text>", "Unknown type int .* takes no parameters"),
        ("list", "Unknown type list"),
        ("list<>", "Unable to read the type"),
        ("list<int", "Unable to read the type"),
        ("list<int>>", "Unable to read the type"),
        ("map<int>", "Unable to read the type"),
        ("", "Unable to read the type"),
        ("int;", "Unable to read the type"),
        ("list<list<int>>", "Non-frozen user types or collections are not allowed inside collections"),
        ("map<frozen<addr>, addr>", "Non-frozen user types or collections are not allowed inside collections"),
        ("set<duration>", "Durations are not allowed inside sets"),
        ("map<duration, int>", "Durations are not allowed as map keys"),
        ("list<counter>", "Counters are not allowed inside collections"),
        ("tuple<counter>", "Counters are not allowed inside tuples"),
        ("frozen<int>", "frozen<> is only allowed on collections, tuples, and user-defined types"),
        ("vector<float, 0>", "Vectors must have a dimension greater than 0"),
        ("vector<float, 16001>", "Vectors must have a dimension less than or equal to 16000"),
        ("vector<float, x>", "Unable to read the type"),
        ("frozen<" * 50 + "int" + ">" * 50, "nested deeper"),
    ],
)
def test_type_text_that_names_no_type_is_refused(text, message):
    with pytest.raises(InvalidRequest, match=message):
        of(text)


def test_kinds_of_types():
    assert ListType(INT).is_multicell
    assert ADDRESS.is_multicell
    assert not ListType(INT).is_frozen
    for frozen in (INT, ListType(INT, frozen=True), TupleType((INT,)), VectorType(INT, 1), ADDRESS.freeze()):
        assert frozen.is_frozen
        assert not frozen.is_multicell
    assert len({of("list<int>"), ListType(INT), of("frozen<list<int>>")}) == 2
    assert MapType(TEXT, ListType(ADDRESS.freeze(), frozen=True)).references("ks", "addr")
    assert not TupleType((INT, SetType(TEXT))).references("ks", "addr")


@pytest.mark.parametrize("cql_type", [*NATIVE_TYPES.values(), of("map<int, frozen<addr>>"), of("vector<float, 2>")])
def test_types_survive_pickling(cql_type):
    assert cql_type == pickle.loads(pickle.dumps(cql_type))


# ---------------------------------------------------------------- terms


def value_of(text: str) -> object:
    return parse(f"INSERT INTO t (a) VALUES ({text})").values[0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("type_text", "term", "value"),
    [
        ("int", "-5", -5),
        ("varint", "123456789012345678901234567890", 123456789012345678901234567890),
        pytest.param("varint", "9" * 5000, 10**5000 - 1, id="varint of 5,000 digits"),
        ("counter", "5", 5),
        ("double", "1", 1.0),
        ("double", "1.5e3", 1500.0),
        ("float", "-Infinity", -math.inf),
        ("float", "3.4028235E38", float.fromhex("0x1.fffffep127")),
        ("float", "-3.4028235677973362E38", -float.fromhex("0x1.fffffep127")),
        ("decimal", "1.10", Decimal("1.10")),
        ("decimal", "3", Decimal(3)),
        ("boolean", "TRUE", True),
        ("text", "'a''b'", "a'b"),
        ("text", "$$a'b$$", "a'b"),
        ("blob", "0xCAFE", b"\xca\xfe"),
        ("uuid", "6f1f8f10-10b9-41f2-ba7e-2b8c92c13c26", uuid.UUID("6f1f8f10-10b9-41f2-ba7e-2b8c92c13c26")),
        ("inet", "'10.0.0.1'", ipaddress.ip_address("10.0.0.1")),
        ("inet", "'fe80::1'", ipaddress.ip_address("fe80::1")),
        ("timestamp", "1795255205123", 1795255205123),
        ("timestamp", "-1", -1),
        ("timestamp", "'2026-11-21'", 1795219200000),
        ("timestamp", "'2026-11-21 10:00'", 1795255200000),
        ("timestamp", "'2026-11-21 10:00:05'", 1795255205000),
        ("timestamp", "'2026-11-21T10:00:05.123Z'", 1795255205123),
        ("timestamp", "'2026-11-21T10:00:05.1+0130'", 1795249805100),
        ("timestamp", "'2026-11-21 10:00:05.123-01:30'", 1795260605123),
        ("timestamp", "'2026-11-21  Z '", 1795219200000),
        ("timestamp", "'2026-11-21 12:00:05+02'", 1795255205000),
        ("timestamp", "'2026-11-21 10:00:05 UTC'", 1795255205000),
        ("timestamp", "'1795255205123'", 1795255205123),
        ("timestamp", "'1600-02-29'", -11670998400000),
        ("date", "'2026-11-21'", 20778),
        ("date", "'1969-12-31'", -1),
        ("date", "'-5877641-06-23'", -(1 << 31)),
        ("date", "2147483648", 0),
        ("time", "'10:00:05.000000001'", 36_005_000_000_001),
        ("date", "'2147483648'", 0),
        ("date", "''", None),
        ("time", "''", None),
        ("inet", "''", None),
        ("timestamp", "''", None),
        ("duration", "1y2mo3w4d5h6m7s8ms9us10ns", Duration(14, 25, 18_367_008_009_010)),
        ("duration", "-1H30M", Duration(0, 0, -5_400_000_000_000)),
        ("duration", "P1Y2M3DT4H5M6S", Duration(14, 3, 14_706_000_000_000)),
        ("duration", "P3W", Duration(0, 21, 0)),
        ("duration", "P0001-02-03T04:05:06", Duration(14, 3, 14_706_000_000_000)),
        ("duration", "5µs", Duration(0, 0, 5000)),
        ("list<int>", "[3, 1, 3]", [3, 1, 3]),
        ("list<int>", "[]", []),
        ("set<int>", "{3, 1, 3}", frozenset({1, 3})),
        ("set<int>", "{}", frozenset()),
        ("map<text, int>", "{'b': 1, 'a': 2}", {"a": 2, "b": 1}),
        ("map<text, int>", "{}", {}),
        ("map<text, frozen<list<int>>>", "{'b': [1]}", {"b": [1]}),
        ("tuple<int, text>", "(1, null)", (1, None)),
        ("tuple<int, text>", "(1)", (1, None)),
        ("addr", "{zip: 5, street: 'x'}", {"street": "x", "zip": 5}),
        ("addr", "{zip: 5}", {"street": None, "zip": 5}),
        ("vector<float, 2>", "[1, 2.5]", [1.0, 2.5]),
        ("int", "(int)5", 5),
        ("varint", "(int)5", 5),
        ("timestamp", "(bigint)5", 5),
        ("bigint", "(timestamp)5", 5),
        ("text", "(ascii)'x'", "x"),
        ("blob", "(int)1", b"\x00\x00\x00\x01"),
        ("addr", "(addr){zip: 5}", {"street": None, "zip": 5}),
        ("addr", "('x', 5)", {"street": "x", "zip": 5}),
        ("frozen<addr>", "('x')", {"street": "x", "zip": None}),
        ("set<frozen<addr>>", "{('x', 5), (null, 6)}", [{"street": None, "zip": 6}, {"street": "x", "zip": 5}]),
        ("list<int>", "(list<int>)[5]", [5]),
    ],
)
def test_terms_become_values_of_their_type(type_text, term, value):
    cql_type = of(type_text)
    data = term_bytes(cql_type, value_of(term))
    assert data is not None
    assert value == cql_type.decode(data)
    assert data == cql_type.normalize(data)


def test_numbers_of_any_length_are_held():
    digits = "-" + "7" * 6000
    for cql_type in (of("varint"), of("decimal")):
        data = term_bytes(cql_type, value_of("7" * 4000))
        assert data == cql_type.normalize(data or b"")
    assert DECIMAL.decode(DECIMAL.encode(Decimal(digits))) == Decimal(digits)
    assert VARINT.decode(VARINT.encode(-(1 << 30000))) == -(1 << 30000)
    assert default_type(value_of(digits)) is VARINT


def test_null_has_no_bytes():
    assert term_bytes(INT, value_of("null")) is None
    assert term_bytes(of("list<int>"), value_of("NULL")) is None


@pytest.mark.parametrize(
    ("type_text", "term", "message"),
    [
        ("int", "'x'", r'Invalid STRING constant \(x\) for "v" of type int'),
        ("text", "5", r'Invalid INTEGER constant \(5\) for "v" of type text'),
        ("int", "5.0", "Invalid FLOAT constant"),
        ("int", "true", "Invalid BOOLEAN constant"),
        ("boolean", "1", "Invalid INTEGER constant"),
        ("blob", "'cafe'", "Invalid STRING constant"),
        ("blob", "0xabc", "Invalid HEX constant"),
        ("text", "0xab", "Invalid HEX constant"),
        ("uuid", "'6f1f8f10-10b9-41f2-ba7e-2b8c92c13c26'", "Invalid STRING constant"),
        ("timeuuid", "6f1f8f10-10b9-41f2-ba7e-2b8c92c13c26", r"Unsupported UUID version \(4\)"),
        ("time", "5", "Invalid INTEGER constant"),
        ("duration", "'1h'", "Invalid STRING constant"),
        ("duration", "1h1y", "units of a duration"),
        ("duration", "1h1h", "units of a duration"),
        ("duration", "200000000y", "number of months must be less or equal"),
        ("int", "99999999999", "out of range"),
        ("double", "1" * 400, "Invalid INTEGER constant"),
        ("float", "1e39", "Invalid FLOAT constant"),
        ("timestamp", "'yesterday'", "unable to parse date 'yesterday'"),
        ("timestamp", "'2026-11-21 10:00:05.123456'", r"Milliseconds length exceeds expected \(6\)"),
        ("timestamp", "'2026-02-30'", "Invalid STRING constant"),
        ("timestamp", "'2026-13-01'", "Invalid STRING constant"),
        ("timestamp", "'2026-11-21 25:00'", r"Hour out of bounds \(25\)"),
        ("timestamp", "'2026-11-21 10:00 +99:00'", "out of range"),
        ("timestamp", "99999999999999999999", "out of range"),
        ("date", "'9999999-01-01'", "out of range"),
        ("date", "4294967296", "Unable to make unsigned int"),
        ("date", "-1", "Unable to make unsigned int"),
        ("date", "'x'", "Unable to coerce 'x' to a formatted date"),
        ("time", "'24:00:00'", "Hour out of bounds"),
        ("time", "'10:00'", "Timestamp format must be hh:mm:ss"),
        ("time", "'36000000000000'", "Timestamp format must be hh:mm:ss"),
        ("inet", "'a.b'", "Failed to parse inet_addr from 'a.b'"),
        ("ascii", "'é'", "ascii"),
        ("counter", "null", "Invalid null value for counter"),
        ("list<int>", "5", "Invalid INTEGER constant"),
        ("list<int>", "{5}", "Invalid set literal for v of type list<int>"),
        ("list<int>", "[null]", "null is not supported inside collections"),
        ("list<int>", "['x']", "Invalid list literal for v: value 'x' is not of type int"),
        ("set<int>", "[5]", "Invalid list literal"),
        ("set<int>", "{5: 6}", "Invalid map literal"),
        ("map<int, int>", "{5}", "Invalid set literal"),
        ("map<int, int>", "{5: null}", "null is not supported inside collections"),
        ("float", "3.4028235677973366E38", "Invalid FLOAT constant"),
        (
            "tuple<int>",
            "(1, 2)",
            r"Invalid tuple literal for v: too many elements\. .* expects 1 but got 2",
        ),
        ("addr", "{town: 5}", "Unknown field 'town' in value of user defined type addr"),
        ("addr", "('x', 5, 6)", r"Invalid tuple literal for v: too many elements\. Type addr expects 2 but got 3"),
        ("addr", "(5, 'x')", "Invalid tuple literal for v: component 0 is not of type text"),
        ("int", "{a: 1}", "Invalid user type literal"),
        ("vector<float, 2>", "[1]", "expected 2 elements"),
        ("int", "(bigint)5", r"Cannot assign value \(bigint\)5 to v of type int"),
        ("bigint", "(int)5", r"Cannot assign value \(int\)5 to v of type bigint"),
        ("double", "(int)3", r"Cannot assign value \(int\)3 to v of type double"),
        ("double", "(float)3", r"Cannot assign value \(float\)3 to v of type double"),
        ("decimal", "(varint)3", r"Cannot assign value \(varint\)3 to v of type decimal"),
        ("list<bigint>", "[(int)3]", r"Invalid list literal for v: value \(int\)3 is not of type bigint"),
        ("int", "(text)5", "Invalid INTEGER constant"),
        ("int", "(nonsense)5", "Unknown type nonsense in a type hint"),
        ("int", "?", "bind variables cannot be used here"),
        ("int", "now()", "now cannot be called here"),
    ],
)
def test_terms_of_another_kind_are_refused(type_text, term, message):
    with pytest.raises(InvalidRequest, match=message):
        term_bytes(of(type_text), value_of(term), receiver="v")


def test_markers_and_calls_inside_a_term_are_asked_for_with_their_types():
    asked: list[tuple[str, str]] = []

    def bind(marker: ast.Marker, cql_type: CqlType) -> bytes | None:
        asked.append((f"marker {marker.index}", cql_type.name))
        return cql_type.encode(7) if cql_type is INT else cql_type.encode("k")

    def call(function: ast.Call, cql_type: CqlType) -> bytes | None:
        asked.append((function.name, cql_type.name))
        return cql_type.encode(8)

    term = value_of("{? : (1, f(), ?), 'a': (null, 2)}")
    cql_type = of("map<text, frozen<tuple<int, int, int>>>")
    data = resolve(term, cql_type, bind, call)
    assert isinstance(data, bytes)
    assert cql_type.decode(data) == {"k": (1, 8, 7), "a": (None, 2, None)}
    assert asked == [("marker 0", "text"), ("f", "int"), ("marker 1", "int")]


def test_bound_values_are_checked_and_put_into_stored_form():
    stored = SetType(INT).encode({1, 2})
    reversed_ = struct.pack(">i", 2) + b"".join(struct.pack(">ii", 4, n) for n in (2, 1))

    def call(_: ast.Call, __: CqlType) -> bytes | None:
        raise AssertionError

    assert stored == resolve(ast.Marker(0, None), SetType(INT), lambda *_: reversed_, call)
    assert resolve(ast.Marker(0, None), INT, lambda *_: None, call) is None
    assert resolve(ast.Marker(0, None), INT, lambda *_: UNSET, call) is UNSET
    with pytest.raises(InvalidRequest, match="marshaling error"):
        resolve(ast.Marker(0, None), INT, lambda *_: b"abc", call)
    for term, where in (("[?]", "inside collections"), ("(?, 1)", "tuple component 0"), ("{zip: ?}", "field zip")):
        cql_type = {"[": of("list<int>"), "(": of("tuple<int, int>"), "{": ADDRESS}[term[0]]
        with pytest.raises(InvalidRequest, match=f"unset value .*{where}"):
            resolve(value_of(term), cql_type, lambda *_: UNSET, call)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("1", INT),
        ("2147483648", BIGINT),
        ("9223372036854775808", VARINT),
        ("1.0", DOUBLE),
        ("'x'", TEXT),
        ("true", BOOLEAN),
        ("0x00", BLOB),
        ("1h", DURATION),
        ("6f1f8f10-10b9-41f2-ba7e-2b8c92c13c26", UUID),
        ("(smallint)1", SMALLINT),
        ("null", None),
        ("?", None),
        ("[1]", ListType(INT, frozen=True)),
        ("{1, 30000000000}", SetType(BIGINT, frozen=True)),
        ("{'a': 1.5}", MapType(TEXT, DOUBLE, frozen=True)),
        ("(1, 'a')", TupleType((INT, TEXT))),
        ("(1, null)", None),
        ("[1, 'a']", None),
        ("[]", None),
        ("{}", None),
        ("{a: 1}", None),
    ],
)
def test_the_type_of_a_term_that_stands_alone(term, expected):
    assert default_type(value_of(term)) == expected
