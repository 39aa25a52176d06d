"""Slices of the ring: who owns a token, what overlaps, and the names of slices."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rscylla._tokens import LAST, LEAST, Slice, TokenRange, slice_at, slice_named
from rscylla.abc import CursorRecord
from rscylla.errors import ConfigError
from rscylla.reflex import slice_of

TOKENS = st.one_of(st.integers(LEAST, LAST), st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, LAST - 1, LAST]))


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
        (LAST - 1, LAST, [3]),
        (LAST, LEAST, [0]),
        (LAST - 1, LEAST, [0, 3]),
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


@given(st.integers(1, 300), st.data())
def test_the_tokens_of_a_slice_are_those_that_are_in_it(count: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, count - 1))
    part = Slice(index, count).tokens
    edges = [t for edge in (part.low, part.high) for t in (edge - 1, edge, edge + 1) if LEAST < t <= LAST]
    for token in [*edges, data.draw(st.integers(LEAST + 1, LAST))]:
        assert (part.low < token <= part.high) == (slice_at(token, count) == index)


def test_the_parts_of_all_slices_are_the_whole_ring() -> None:
    parts = [Slice(n, 7).tokens for n in range(7)]
    assert parts[0].low == TokenRange().low
    assert parts[-1].high == TokenRange().high
    assert all(a.high == b.low for a, b in pairwise(parts))


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 1000])
def test_the_parts_of_a_range_cover_it_once(parts: int) -> None:
    found = TokenRange().split(parts)
    assert (found[0].low, found[-1].high) == (LEAST, LAST)
    assert all(one.high == two.low for one, two in pairwise(found))
    sizes = {one.high - one.low for one in found}
    assert max(sizes) - min(sizes) <= 1


def test_a_range_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="low must not be above high"):
        TokenRange(1, 0)
    with pytest.raises(ConfigError, match="0 parts"):
        TokenRange().split(0)
