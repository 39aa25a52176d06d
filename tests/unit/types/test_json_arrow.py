"""Columns of cells as JSON: the same text, letter by letter, as each value by itself."""

# ruff: noqa: E402 - what follows needs pyarrow, which is not everywhere
from __future__ import annotations

import struct
from typing import Any

import pytest

pytestmark = pytest.mark.arrow
pa = pytest.importorskip("pyarrow", reason="pip install 'rscylla[spark]'")
np = pytest.importorskip("numpy", reason="pip install 'rscylla[spark]'")

from cellbox import INT, cell, nested, types
from hypothesis import given
from hypothesis import strategies as st

from rscylla._timeuuid import format_time
from rscylla.types import Type, decoder_for
from rscylla.types.json import dumps
from rscylla.types.json_arrow import hex_of, joined, json_builder_for, times_text
from rscylla.types.registry import NATIVES

natives = st.sampled_from(sorted(NATIVES)).map(Type)


def filled(type_: Type) -> st.SearchStrategy[list[bytes | None]]:
    """Columns in which some cells are missing, or without bytes, or none are."""
    values = nested(type_)
    return st.lists(values, max_size=5) | st.lists(st.none() | st.just(b"") | values, max_size=5)


@given((natives | types).flatmap(lambda t: st.tuples(st.just(t), filled(t))), st.booleans())
def test_a_column_is_what_its_values_are(column: tuple[Type, list[bytes | None]], sort_keys: bool) -> None:
    type_, cells = column
    decode = decoder_for(type_)
    try:
        expected = [None if c is None else dumps(decode(c), sort_keys=sort_keys) for c in cells]
    except ValueError:  # no bytes are no value of some types
        return
    found = json_builder_for(type_, sort_keys=sort_keys)(cells)
    found.validate(full=True)
    assert (found.type, found.to_pylist()) == (pa.string(), expected)


@pytest.mark.parametrize(("name", "raw"), [("varint", b""), ("decimal", bytes(4))])
def test_numbers_have_any_size(name: str, raw: bytes) -> None:
    raw += (10**5000).to_bytes(2077, "big", signed=True)
    quote = '"' * (name == "decimal")
    assert json_builder_for(Type(name))([raw, None]).to_pylist() == [f"{quote}1{'0' * 5000}{quote}", None]


@pytest.mark.parametrize("text", ["plain", "", 'a "quote"', "back\\slash", "line\nend", "\x00\x1f", "\x7f\u2028é😀"])
def test_text_is_escaped_where_it_must_be(text: str) -> None:
    build = json_builder_for(Type("text"))
    assert build([b"x", text.encode(), None]).to_pylist() == ['"x"', dumps(text), None]


@pytest.mark.parametrize("value", [0.1, 1e16, 1e22, -0.0, 5e-324, float("nan"), float("-inf"), 100.0])
@pytest.mark.parametrize(("name", "packed"), [("double", ">d"), ("float", ">f")])
def test_floats_have_the_digits_of_python(name: str, packed: str, value: float) -> None:
    raw = (
        struct.pack(packed, value) if abs(value) < 1e30 or value != value or packed == ">d" else struct.pack(packed, 1)
    )
    expected = dumps(decoder_for(Type(name))(raw))
    assert json_builder_for(Type(name))([raw, None]).to_pylist() == [expected, None]


@pytest.mark.parametrize("year_ms", [0, -1, -62_135_596_800_000, 253_402_300_799_999, 253_402_300_800_000, -(2**63)])
def test_moments_of_any_year(year_ms: int) -> None:
    raw = struct.pack(">q", year_ms)
    expected = dumps(decoder_for(Type("timestamp"))(raw))
    assert json_builder_for(Type("timestamp"))([raw, bytes(8)]).to_pylist() == [expected, '"1970-01-01T00:00:00Z"']


@given(
    st.lists(st.integers(-30_610_224_000_000_000, 253_402_300_799_999_999) | st.integers(-20, 20).map(lambda n: n * 10))
)
def test_times_are_those_of_format_time(us: list[int]) -> None:
    assert times_text(np.array(us, "i8")).to_pylist() == [format_time(n) for n in us]


def test_a_loose_udt_without_fields_is_no_value() -> None:
    udt = Type("udt", (Type("int"), Type("text")), ("x", "y"))
    cells: list[Any] = [cell(None) * 2, cell(INT.pack(1)), None]
    assert json_builder_for(udt, loose=True)(cells).to_pylist() == ["null", '{"x":1,"y":null}', None]
    assert json_builder_for(udt)(cells).to_pylist() == ['{"x":null,"y":null}', '{"x":1,"y":null}', None]


@given(st.lists(st.none() | st.binary(max_size=4)), st.integers(0, 3))
def test_the_digits_of_a_part_of_an_array(values: list[bytes | None], start: int) -> None:
    found = hex_of(pa.array(values, pa.binary())[start:])
    found.validate(full=True)
    assert found.to_pylist() == [None if v is None else v.hex() for v in values[start:]]


def test_what_is_put_together_is_null_where_a_part_is() -> None:
    assert joined("(", pa.array(["a", None]), ")").to_pylist() == ["(a)", None]
