"""Terms become values of their type."""

from __future__ import annotations

import ipaddress
import math
import struct
import uuid
from decimal import Decimal

import pytest
from cqlvalues import (
    ADDRESS,
    of,
)

from rscylla.embedded.cql import ast
from rscylla.embedded.cql.parser import parse
from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    DECIMAL,
    DOUBLE,
    DURATION,
    INT,
    SMALLINT,
    TEXT,
    UNSET,
    UUID,
    VARINT,
    CqlType,
    Duration,
    ListType,
    MapType,
    SetType,
    TupleType,
    default_type,
    resolve,
    term_bytes,
)


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
