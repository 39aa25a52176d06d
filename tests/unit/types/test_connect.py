"""CQL types as Kafka Connect has them: their schemas, and values from bytes."""

from __future__ import annotations

from decimal import Decimal
from ipaddress import ip_address
from typing import Any

import pytest
from cellbox import any_types, broken, nested
from hypothesis import given
from hypothesis import strategies as st

from rscylla.types import Type, encoder_for, parse_type
from rscylla.types.connect import Schema, connect_for, java_uuid_order, type_word
from rscylla.types.registry import CONTAINERS, NATIVES, sample_of

POINT = parse_type("point", {"point": [("x", "int"), ("tags", "frozen<set<text>>")]})


def value_of(text: str, value: Any) -> Any:
    """Return what Connect has of a JSON value of a CQL type."""
    type_ = parse_type(text, {"point": [("x", "int"), ("tags", "frozen<set<text>>")]})
    return connect_for(type_, str)[1](encoder_for(type_)(value))


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("uuid", "6bddc89a-5644-11e4-97fc-56847afe9799", "6bddc89a-5644-11e4-97fc-56847afe9799"),
        ("decimal", "12.340", "12.340"),
        ("decimal", "1E+3", "1E+3"),
        ("decimal", "-0.00000000001", "-1E-11"),
        ("varint", 2**100, str(2**100)),
        ("inet", "::1", "0:0:0:0:0:0:0:1"),
        ("inet", "::ffff:10.1.2.3", "10.1.2.3"),
        ("time", "12:34:56.789000000", 45_296_789_000_000),
        ("timestamp", "1969-12-31T23:59:59.999Z", -1),
        ("date", "2024-06-10", 19_884),
        ("date", "1582-10-15", -141_427),
        ("date", "1582-10-14", -141_418),  # the day of that date in the Julian calendar
        ("date", "0001-01-01", -719_164),
        ("duration", "14mo35d1500000000ns", "1y2mo35d1s500ms"),
        ("duration", "-13mo1d3600000000000ns", "-1y1mo1d1h"),
        ("duration", "0mo0d0ns", ""),
        ("list<int>", [3, 1], [3, 1]),
        ("map<text, int>", {"a": 1}, [{"key": "a", "value": 1}]),
        ("tuple<int, text, set<int>>", [None, "x", None], {"field_0": None, "field_1": "x", "field_2": []}),
        ("point", {"x": 1}, {"x": 1, "tags": []}),
        ("point", {"x": None}, None),
        ("vector<float, 2>", [0.5, 2.0], [0.5, 2.0]),
    ],
)
def test_values(text: str, value: Any, expected: Any) -> None:
    assert value_of(text, value) == expected


def test_the_first_date_has_32_bits_as_in_java() -> None:
    """In the calendar of Java, the day -5877641-06-23 is before the first one that a Connect Date can have."""
    _, decode = connect_for(parse_type("date"), str)
    assert decode(bytes(4)) == 2_147_439_564
    assert decode(b"\xff" * 4) == 2**31 - 1


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_have_any_size(sign: int) -> None:
    number, minus = sign * 7 * 10**5000, "-" * (sign < 0)
    raw = number.to_bytes(2100, "big", signed=True)
    assert connect_for(Type("varint"), str)[1](raw) == f"{minus}7{'0' * 5000}"
    decimal = connect_for(Type("decimal"), str)[1]
    assert decimal((2).to_bytes(4, "big") + raw) == f"{minus}7{'0' * 4998}.00"
    assert decimal((-2).to_bytes(4, "big", signed=True) + raw) == f"{minus}7.{'0' * 5000}E+5002"


def test_a_udt_that_was_written_with_fewer_fields_has_nulls_for_the_rest() -> None:
    raw = encoder_for(parse_type("tuple<int>"))([7])
    assert connect_for(POINT, str)[1](raw) == {"x": 7, "tags": []}


@pytest.mark.parametrize("name", sorted(NATIVES))
def test_a_value_without_bytes_is_null_or_empty(name: str) -> None:
    schema, decode = connect_for(Type(name), str)
    empty = {"string": "", "bytes": b""}.get(schema.type)
    assert decode(b"") == (empty if NATIVES[name].has_empty else None)
    assert decode(sample_of(Type(name))) is not None or name == "boolean"


@pytest.mark.parametrize("name", ["uuid", "inet", "date", "time", "timestamp", "decimal", "int"])
def test_bytes_of_another_size_are_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="a cell"):
        connect_for(Type(name), str)[1](b"\x01\x02\x03")


def test_a_live_list_is_in_its_own_order_or_in_that_of_java() -> None:
    type_ = Type("log list", (Type("timeuuid"), Type("int")))
    keys = ["80000000-0000-1000-8080-808080808080", "00000000-0000-1001-8080-808080808080"]
    raw = encoder_for(type_)([[keys[0], 1], [keys[1], 2]])
    assert connect_for(type_, str)[1](raw) == [1, 2]
    assert connect_for(type_, str, java_lists=True)[1](raw) == [1, 2]
    later = encoder_for(type_)([[keys[1], 2], [keys[0], 1]])
    assert connect_for(type_, str, java_lists=True)[1](later) == [1, 2]
    assert java_uuid_order(b"\x80" + bytes(15)) < java_uuid_order(bytes(16))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("text", "VARCHAR"),
        ("frozen<map<timeuuid, frozen<list<ascii>>>>", "Map_TIMEUUID_List_ASCII"),
        ("tuple<int, point>", "Tuple_INT_UDT_point"),
        ("vector<float, 3>", "Vector_FLOAT"),
    ],
)
def test_names_of_schemas_have_the_words_of_the_java_driver(text: str, word: str) -> None:
    assert type_word(parse_type(text, {"point": [("x", "int")]})) == word


def test_every_row_of_the_registry_has_a_form() -> None:
    for name in NATIVES:
        assert connect_for(Type(name), str)[0].optional
    parts = (Type("int"), Type("text"))
    for row in CONTAINERS.values():
        args = parts[: row.parameters or 2]
        type_ = Type(row.name, args, ("a", "b") if row.name == "udt" else (), name="u", size=1)
        assert connect_for(type_, str)[0].type in ("array", "struct")


@given(st.ip_addresses())
def test_addresses_read_as_the_same(address: Any) -> None:
    text = value_of("inet", str(address))
    assert ip_address(":".join(f"{int(p, 16):04x}" for p in text.split(":")) if ":" in text else text) in (
        address,
        getattr(address, "ipv4_mapped", None),
    )


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_read_as_the_same(value: Decimal) -> None:
    text = value_of("decimal", str(value))
    assert Decimal(text) == value
    assert Decimal(text).as_tuple().exponent == value.as_tuple().exponent


PYTHON = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), int),
    **dict.fromkeys(("float32", "float64"), float),
    "boolean": bool,
    "string": str,
    "bytes": bytes,
}


def fits(schema: Schema, value: Any) -> bool:
    """Return whether *value* is one that Connect would take for *schema*."""
    if value is None:
        return schema.optional
    if schema.items is not None:
        return isinstance(value, list) and all(fits(schema.items, v) for v in value)
    if schema.type == "struct":
        return list(value) == [f.name for f in schema.fields] and all(
            fits(f.schema, value[f.name]) for f in schema.fields
        )
    return type(value) is PYTHON[schema.type]


@given(any_types, st.data())
def test_values_of_all_types_fit_their_schemas(type_: Type, data: st.DataObject) -> None:
    schema, decode = connect_for(type_, str)
    assert fits(schema, decode(data.draw(nested(type_))))


@given(any_types, st.data())
def test_bytes_that_are_no_value_are_an_error_or_a_value(type_: Type, data: st.DataObject) -> None:
    schema, decode = connect_for(type_, str)
    try:
        value = decode(data.draw(broken(type_)))
    except ValueError:
        return
    assert fits(schema, value)
