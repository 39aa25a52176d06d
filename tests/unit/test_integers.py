"""Integers as text, also those that Python itself does not write or read."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rscylla._integers import format_int, parse_int

LONG = f"7{'0' * 4999}1"


@pytest.mark.parametrize("sign", ["", "-"])
def test_long_numbers_become_text_and_numbers_again(sign: str) -> None:
    with pytest.raises(ValueError, match="4300"):
        int(LONG)
    number = int(f"{sign}1") * (7 * 10**5000 + 1)
    assert (format_int(number), parse_int(f"{sign}{LONG}")) == (f"{sign}{LONG}", number)


@given(st.integers())
@example(0)
def test_other_numbers_are_what_python_makes_of_them(number: int) -> None:
    assert (format_int(number), parse_int(str(number))) == (str(number), number)


@pytest.mark.parametrize("text", ["", "x", "1.5", "1e3", "NaN", f"{LONG}.0", f"{LONG}E1", f"{LONG}٣"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_int(text)
