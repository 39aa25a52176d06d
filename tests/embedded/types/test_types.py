"""Types: the driver as the oracle of values, what is refused, and the order of values."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
import struct
import uuid
from decimal import Decimal

import pytest
from cassandra import cqltypes, protocol
from cqlvalues import (
    ADDRESS,
    NATIVES,
    PROTOCOL,
    all_types,
    driver_type,
    for_driver,
    from_driver,
    timeuuids,
    values,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

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
    parse_type,
)

# ---------------------------------------------------------------- the driver as oracle


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
