"""Numbers, text, and headers as Java writes them, and JSON of these."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rscylla.debezium import Field, JsonConverter, Record, Schema
from rscylla.debezium.java import double_text, float_text, header_text

DATE = Schema("int32", name="org.apache.kafka.connect.data.Date", version=1)
TIMESTAMP = Schema("int64", name="org.apache.kafka.connect.data.Timestamp", version=1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1e23, "1.0E23"),
        (2e23, "2.0E23"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-5e-324, "-4.9E-324"),
        (123456.789, "123456.789"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (16777216, "1.6777216E7"),
        (3.4028234663852886e38, "3.4028235E38"),
        (1e-45, "1.4E-45"),
        (1e-5, "1.0E-5"),
        (33554432, "3.3554432E7"),
    ],
)
def test_floats(value: float, text: str) -> None:
    assert float_text(struct.unpack(">f", struct.pack(">f", value))[0]) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_read_as_the_same(value: float) -> None:
    assert struct.pack(">d", float(double_text(value))) == struct.pack(">d", value)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_floats_read_as_the_same(value: float) -> None:
    text = float_text(value)
    assert struct.pack(">f", float(text)) == struct.pack(">f", value)
    assert len(text) <= 16


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ('a"b\\c/d', r'"a\"b\\c/d"'),
        ("\b\t\n\f\r", r'"\b\t\n\f\r"'),
        ("\x00\x1f\x7f", '"\\u0000\\u001F\x7f"'),
        ("é\u2028", '"é\u2028"'),
        ("\U0001d11e", r'"\uD834\uDD1E"'),
    ],
)
def test_text_has_the_escapes_of_jackson(text: str, escaped: str) -> None:
    assert JsonConverter(schemas=False).bytes_of(Schema("string"), text) == escaped.encode()


FIELDS = [
    ("s", Schema("string"), st.text()),
    ("i", Schema("int64"), st.integers(-(2**63), 2**63 - 1)),
    ("b", Schema("boolean"), st.booleans()),
    ("raw", Schema("bytes"), st.binary()),
    ("list", Schema("array", items=Schema("string")), st.lists(st.none() | st.text())),
    ('odd "%s" name', Schema("string"), st.text()),
]
ROW = Schema("struct", fields=tuple(Field(name, schema) for name, schema, _ in FIELDS))
OUTER = Schema("struct", fields=(Field("row", ROW), Field("n", Schema("int32"))))


VALUES = st.tuples(
    st.none() | st.tuples(*(st.none() | values for _, _, values in FIELDS)), st.none() | st.integers(0, 9)
)


@given(VALUES)
def test_json_reads_as_the_value(values: tuple[tuple[Any, ...] | None, int | None]) -> None:
    names = [name for name, _, _ in FIELDS]
    row = None if values[0] is None else dict(zip(names, values[0], strict=True))
    found = JsonConverter(schemas=False).bytes_of(OUTER, {"row": row, "n": values[1]})
    assert found is not None
    if row is not None and row["raw"] is not None:
        row["raw"] = b64encode(row["raw"]).decode()
    assert json.loads(found) == {"row": row, "n": values[1]}


@pytest.mark.parametrize("value", [0, -1, 2**63 - 1, -(2**63), 2**63, -(10**30)])
def test_integers_of_any_size(value: int) -> None:
    assert JsonConverter(schemas=False).bytes_of(Schema("int64"), value) == str(value).encode()


def test_a_value_without_a_field_is_an_error() -> None:
    with pytest.raises(KeyError):
        JsonConverter(schemas=False).bytes_of(ROW, {"s": "x"})


def test_keys_may_be_other_than_structs() -> None:
    converter = JsonConverter(schemas=False)
    numbers = Schema("array", items=Schema("int32"))
    assert [converter.bytes_of(numbers, [1, None]), converter.bytes_of(Schema("int64"), -5)] == [b"[1,null]", b"-5"]


def test_null_with_a_schema_is_json_and_without_one_is_nothing() -> None:
    record = Record("t", ROW, None, None, None)
    assert JsonConverter(schemas=False).key(record) == b"null"
    assert JsonConverter(schemas=False).value(record) is None


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (DATE, 19_753, "Wed Jan 31 00:00:00 UTC 2024"),
        (TIMESTAMP, 1_577_836_800_000, "Wed Jan 01 00:00:00 UTC 2020"),
        (TIMESTAMP, -1, "Wed Dec 31 23:59:59 UTC 1969"),
        (DATE, -141_427, "Fri Oct 15 00:00:00 UTC 1582"),
        (DATE, -141_428, "Thu Oct 04 00:00:00 UTC 1582"),
        (DATE, -719_164, "Sat Jan 01 00:00:00 UTC 0001"),
        (DATE, 11_016, "Tue Feb 29 00:00:00 UTC 2000"),
        (Schema("boolean"), True, "true"),
        (Schema("float64"), 1e10, "1.0E10"),
        (Schema("bytes"), b"\x01\xff", "Af8="),
        (Schema("array", items=Schema("int32")), [1, None], "[1, null]"),
        (ROW, {"s": "x"}, '{"s":"x"}'),
    ],
)
def test_headers(schema: Schema, value: Any, text: str) -> None:
    assert header_text(schema, value) == text


def test_a_blob_can_be_described_as_java_describes_its_buffer() -> None:
    text = header_text(Schema("bytes"), b"ab", blob_as_object=True)
    assert text == "java.nio.HeapByteBuffer[pos=0 lim=2 cap=2]"
