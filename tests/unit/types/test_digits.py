"""Varints and decimals as numbers of limited digits in Arrow: exactly the number, or an error; never rounded."""

# ruff: noqa: E402 - what follows needs pyarrow, which is not everywhere
from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

pytestmark = pytest.mark.arrow
pa = pytest.importorskip("pyarrow", reason="pip install 'rscylla[spark]'")

from cellbox import INT, cell, varint
from hypothesis import example, given
from hypothesis import strategies as st

from rscylla.types import Digits, TooManyDigits, Type, arrow, decoder_for, encoder_for, with_digits
from rscylla.types.arrow import arrow_type, builder_for

MONEY = {"decimal": Digits(38, 2), "varint": Digits(38, 0)}


@pytest.fixture(scope="module", autouse=True, params=["compiled", "pure"])
def _twin(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "compiled" and arrow._compiled_builder is None:
        pytest.skip("rscylla was built without a C compiler, or RSCYLLA_PURE is set")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "pure":
            patch.setattr(arrow, "_compiled_builder", None)
        yield


def number(kind: str, digits: Digits) -> Type:
    return with_digits(Type(kind), {kind: digits})


def raw_of(unscaled: int, scale: int) -> bytes:
    raw: bytes = INT.pack(scale) + varint(unscaled)
    return raw


digits_of = st.integers(1, 38).flatmap(lambda p: st.builds(Digits, st.just(p), st.integers(0, p), st.booleans()))
numbers = st.builds(raw_of, st.integers(-(10**39), 10**39) | st.integers(-20, 20), st.integers(-45, 45))


@given(st.lists(st.none() | st.just(b"") | numbers, max_size=20), digits_of)
@example([raw_of(10**38 - 1, 0), raw_of(-(10**38) + 1, 0), None], Digits(38, 0))
@example([raw_of(10**38, 0)], Digits(38, 0))
@example([raw_of(10**60, 58), raw_of(0, 2**31 - 1), raw_of(0, -(2**31))], Digits(4, 2))
@example([raw_of(1, -(2**31))], Digits(38, 38))
@example([raw_of(1, 2**31 - 1)], Digits(38, 38))
@example([raw_of(1500, 3)], Digits(9, 2, exact=True))
def test_a_decimal_is_the_number_or_an_error(cells: list[bytes | None], digits: Digits) -> None:
    type_ = number("decimal", digits)
    read = decoder_for(type_)
    expected = [read(raw) if raw else None for raw in cells]
    if all(value is None or fits(value, digits) for value in expected):
        array = builder_for(type_)(cells)
        array.validate(full=True)
        assert array.type == pa.decimal128(digits.precision, digits.scale) == arrow_type(type_)
        assert array.to_pylist() == expected
        assert array.null_count == expected.count(None)
    else:
        with pytest.raises(TooManyDigits):
            builder_for(type_)(cells)


def fits(value: Decimal, digits: Digits) -> bool:
    """Whether a number has at most the digits, told by its own text."""
    _, written, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if digits.exact and exponent != -digits.scale:
        return False
    text = "".join(map(str, written)).lstrip("0")
    if not text:
        return True
    short = text.rstrip("0")
    exponent += len(text) - len(short)
    return exponent >= -digits.scale and len(short) + exponent <= digits.precision - digits.scale


@given(st.lists(st.none() | st.integers(-(10**40), 10**40) | st.integers(-200, 200)), st.integers(1, 38))
def test_a_varint_is_the_number_or_an_error(values: list[int | None], precision: int) -> None:
    type_ = number("varint", Digits(precision, 0))
    cells = [None if v is None else varint(v) for v in values]
    if all(v is None or abs(v) < 10**precision for v in values):
        found = builder_for(type_)(cells)
        assert found.to_pylist() == values
        encode = encoder_for(type_, arrow=True)
        assert [None if v is None else encode(v) for v in found.to_pylist()] == cells
    else:
        with pytest.raises(TooManyDigits):
            builder_for(type_)(cells)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**30), max_value=10**30))
def test_a_number_of_the_scale_is_written_as_the_same_bytes(value: Decimal) -> None:
    type_ = number("decimal", Digits(38, 2, exact=True))
    raw = encoder_for(Type("decimal"))(value)
    (found,) = builder_for(type_)([raw]).to_pylist()
    assert encoder_for(type_, arrow=True)(found) == raw


@pytest.mark.parametrize("value", [Decimal("1.5"), "1.5"])
def test_what_is_not_whole_is_no_varint(value: Any) -> None:
    with pytest.raises(ValueError, match=r"whole number|invalid literal"):
        encoder_for(Type("varint"), arrow=True)(value)


def test_numbers_within_other_types_are_numbers() -> None:
    decimal, integer = Type("decimal"), Type("varint")
    of_list = with_digits(Type("list", (Type("tuple", (decimal, integer, Type("int"))),)), MONEY)
    tuples = cell(raw_of(5, 1)) + cell(varint(7)) + cell(INT.pack(1))
    found = builder_for(of_list)([INT.pack(1) + cell(tuples)])
    assert found.to_pylist() == [[{"_1": Decimal("0.50"), "_2": 7, "_3": 1}]]
    of_map = with_digits(Type("map", (integer, decimal)), MONEY)
    raw = INT.pack(2) + cell(varint(1)) + cell(raw_of(100, 0)) + cell(varint(2)) + cell(raw_of(1, 3))
    with pytest.raises(TooManyDigits, match=r"decimal places than decimal\(38,2\)"):
        builder_for(of_map)([raw])
    raw = raw[: -len(raw_of(1, 3))] + raw_of(120, 3)
    assert builder_for(of_map)([raw]).to_pylist() == [[(1, Decimal(100)), (2, Decimal("0.12"))]]


@pytest.mark.parametrize(
    ("raw", "digits", "text"),
    [
        (raw_of(1, 3), Digits(5, 2), r"more decimal places than decimal\(5,2\)"),
        (raw_of(10**5, 0), Digits(5, 0), r"too large for decimal\(5,0\)"),
        (raw_of(1, -60), Digits(5, 0), r"too large for decimal\(5,0\)"),
        (raw_of(150, 2), Digits(5, 1, exact=True), r"of the scale 2, which decimal\(5,1\) would change"),
    ],
)
def test_the_error_says_why_a_number_does_not_fit(raw: bytes, digits: Digits, text: str) -> None:
    with pytest.raises(TooManyDigits, match=text):
        builder_for(number("decimal", digits))([raw])


def test_a_cell_that_is_no_decimal_is_malformed() -> None:
    with pytest.raises(ValueError, match="too short"):
        builder_for(number("decimal", MONEY["decimal"]))([b"\x00\x00"])


def test_without_digits_numbers_remain_text() -> None:
    assert arrow_type(with_digits(Type("varint"), {"decimal": Digits(38, 2)})) == pa.string()
    assert arrow_type(Type("decimal")) == pa.string()
