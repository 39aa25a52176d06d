"""Slices of the ring: who owns a token, what overlaps, and the names of slices."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rscylla._slices import Slice, slice_at, slice_named
from rscylla.abc import CursorRecord
from rscylla.errors import ConfigError
from rscylla.reflex import slice_of

LOWEST, HIGHEST = -(2**63), 2**63 - 1
TOKENS = st.one_of(st.integers(LOWEST, HIGHEST), st.sampled_from([LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST]))


@given(TOKENS, st.integers(1, 50))
def test_each_token_is_in_the_slice_where_it_lies(token: int, count: int) -> None:
    at = slice_at(token, count)
    assert Fraction(at, count) <= Fraction(token + 2**63, 2**64) < Fraction(at + 1, count)


@given(st.integers(1, 12), st.integers(1, 12), TOKENS)
def test_slices_overlap_when_a_token_is_in_both(old: int, new: int, token: int) -> None:
    def common(a: Slice, b: Slice) -> bool:
        return max(Fraction(a.index, old), Fraction(b.index, new)) < min(
            Fraction(a.index + 1, old), Fraction(b.index + 1, new)
        )

    for a in (Slice(i, old) for i in range(old)):
        assert [a.overlaps(Slice(i, new)) for i in range(new)] == [common(a, Slice(i, new)) for i in range(new)]
    assert Slice(slice_at(token, old), old).overlaps(Slice(slice_at(token, new), new))


@given(TOKENS, TOKENS, TOKENS, st.integers(1, 9))
def test_a_slice_meets_each_span_that_has_one_of_its_tokens(start: int, end: int, token: int, count: int) -> None:
    inside = start < token <= end if start < end else start == end or token > start or token <= end
    key_slice = Slice(slice_at(token, count), count)
    assert key_slice.meets(start, end) or not inside


@pytest.mark.parametrize(
    ("start", "end", "met"),
    [
        (0, 1, [2]),
        (-1, 0, [2]),
        (-2, -1, [1]),
        (-2, 0, [1, 2]),
        (HIGHEST - 1, HIGHEST, [3]),
        (HIGHEST, LOWEST, [0]),
        (HIGHEST - 1, LOWEST, [0, 3]),
        (5, 5, [0, 1, 2, 3]),
        (2**62, -(2**62) - 1, [0, 3]),
    ],
)
def test_a_slice_meets_no_span_without_its_tokens(start: int, end: int, met: list[int]) -> None:
    assert [i for i in range(4) if Slice(i, 4).meets(start, end)] == met


@pytest.mark.parametrize("given_", [(1, 1), (-1, 2), (0, 0), (0.0, 2), ("0", 2), (True, 2), (0, 1, 2), None, 3])
def test_an_invalid_slice_is_refused(given_: object) -> None:
    with pytest.raises(ConfigError, match="slice must be"):
        Slice.of(given_)  # type: ignore[arg-type]


def test_names_of_slices() -> None:
    assert [Slice(i, 3).name("a[b]") for i in range(3)] == ["a[b][0/3]", "a[b][1/3]", "a[b][2/3]"]
    assert Slice(0, 1).name("a") == "a"
    assert slice_of("a[b][1/3]") == ("a[b]", 1, 3)
    assert all(slice_of(n) == (n, 0, 1) for n in ("a", "a[3/3]", "a[0/1]", "a[b/c]", "a[1/3] "))


NAMES = st.one_of(
    st.text("ab[]/01@:.\n", max_size=12),
    st.sampled_from(["billing[eu]", "billing[fast]", "x[0/4]", "x[0/4][fast]", "a/b:c@d", "[0/2]", ""]),
)


@given(NAMES, st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))))
def test_whatever_a_consumer_is_named_its_slices_are_told_from_those_of_others(
    consumer: str, part: tuple[int, int]
) -> None:
    key_slice = Slice.of(part)
    name = key_slice.name(consumer)
    assert key_slice.whole(name) == consumer
    assert Slice.named(name, consumer) == key_slice
    assert slice_named(name, {key_slice.count}) == key_slice
    record = CursorRecord(name, "", lease=key_slice.name("workers[0/3]"))
    assert record.slice_of(consumer) == part
    assert record.group_of(consumer) == "workers[0/3]"
    assert record.member_of("workers[0/3]", key_slice.count) == (consumer, key_slice.index)
    assert record.member_of("workers[0/3]", key_slice.count + 1) is None
    assert record.member_of("workers", key_slice.count) is None


def test_a_name_like_that_of_a_slice_is_a_name_like_others() -> None:
    assert CursorRecord("x[0/4]", "").slice_of("x[0/4]") == (0, 1)
    assert CursorRecord("x[0/4][1/2]", "", lease="g[1/2]").member_of("g", 2) == ("x[0/4]", 1)
    assert CursorRecord("x[0/4]", "", lease="g").member_of("g", 1) == ("x[0/4]", 0)
    assert CursorRecord("x[0/4][fast]", "").slice_of("x") is None
    assert [CursorRecord(n, "").slice_of("x") for n in ("xx[0/4]", "x[eu]", "x[eu][0/4]", "x[04/8]")] == [None] * 4
