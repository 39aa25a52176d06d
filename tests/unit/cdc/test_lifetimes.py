"""How long rows live by when they were written, against a model that asks for each moment on its own."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from fakelog import NOW_US, SECOND, log_time
from hypothesis import given
from hypothesis import strategies as st

from rscylla.cdc.lifetimes import Lifetimes
from rscylla.cdc.table import LoggedTable
from rscylla.event import EventID

HOUR = 3600 * SECOND


def table(ttl_s: int = 600, *, altered_us: int | None = None, on: bool = True) -> Any:
    return LoggedTable("ks", "t", (), uuid.uuid4(), ttl_s=ttl_s, enabled=on, altered_us=altered_us)


def test_a_table_that_was_not_altered_since_its_log_was_created_had_its_option_always() -> None:
    assert Lifetimes.of(table()) == Lifetimes(((0, 600),))
    assert Lifetimes.of(table(on=False)) == Lifetimes(((0, 600),)), "its rows were logged before"


def test_what_was_before_the_last_alteration_is_not_known() -> None:
    assert Lifetimes.of(table(altered_us=NOW_US)) == Lifetimes(((0, None), (NOW_US, 600)))
    off = table(altered_us=NOW_US, on=False)
    assert Lifetimes.of(off) == Lifetimes(((0, None), (NOW_US, 0))), "nothing is written any more"


def test_what_is_learnt_fills_only_what_was_not_known() -> None:
    assert Lifetimes(((0, None), (5, 600))).knowing(60) == Lifetimes(((0, 60), (5, 600)))
    assert Lifetimes(((0, 7), (5, 600))).knowing(60) == Lifetimes(((0, 7), (5, 600)))
    assert Lifetimes(((0, None), (5, 600))).unknown_until_us() == 5
    assert Lifetimes(((0, 60), (5, 600))).unknown_until_us() == 0


def test_an_alteration_counts_from_when_it_was_made_and_never_before_the_last() -> None:
    known = Lifetimes(((0, 600),))
    assert known.altered(table(600, altered_us=NOW_US), NOW_US) is known
    assert known.altered(table(60, altered_us=NOW_US - 7), NOW_US).spans == ((0, 600), (NOW_US - 7, 60))
    assert known.altered(table(60), NOW_US).spans == ((0, 600), (NOW_US, 60)), "the cluster does not tell when"
    assert known.altered(table(600, on=False), NOW_US).spans == ((0, 600), (NOW_US, 0))
    later = Lifetimes(((0, 600), (NOW_US, 60)))
    assert later.altered(table(7, altered_us=NOW_US - HOUR), NOW_US).spans[-1] == (NOW_US, 7)


@st.composite
def lifetimes(draw: st.DrawFn) -> Lifetimes:
    starts = sorted(draw(st.lists(st.integers(1, 40), max_size=3, unique=True)))
    ttls = draw(st.lists(st.integers(0, 12), min_size=len(starts) + 1, max_size=len(starts) + 1))
    return Lifetimes(tuple((s * SECOND, ttl) for s, ttl in zip([0, *starts], ttls, strict=True)))


@given(lifetimes(), st.integers(-3, 60))
def test_the_ttl_of_a_moment_is_that_of_the_last_change_until_then(found: Lifetimes, at_s: int) -> None:
    at_us = at_s * SECOND
    assert found.ttl_at(at_us) == [ttl for since, ttl in found.spans if since <= max(0, at_us)][-1]


@given(lifetimes(), st.integers(0, 60), st.integers(0, 60))
def test_a_moment_lies_in_a_hole_exactly_if_its_rows_have_expired(found: Lifetimes, at_s: int, now_s: int) -> None:
    holes = list(found.holes(at_s * SECOND, now_s * SECOND))
    for moment in range(at_s, 61):
        ttl = found.ttl_at(moment * SECOND)
        inside = [h for h in holes if h.start_us <= moment * SECOND < h.end_us]
        assert [h.ttl_s for h in inside] == ([ttl] if ttl and moment + ttl < now_s else [])
    assert all(at_s * SECOND <= h.start_us < h.end_us for h in holes)
    assert holes == sorted(holes, key=lambda h: h.start_us)


@given(lifetimes(), st.integers(0, 40), st.integers(0, 20), st.integers(0, 60))
def test_the_first_rows_to_expire_are_those_that_lived_and_have_the_least_time_left(
    found: Lifetimes, at_s: int, span_s: int, since_s: int
) -> None:
    def expiry_s(moment: int) -> int:
        return moment + (found.ttl_at(moment * SECOND) or 0)

    mortal = [s for s in range(at_s, at_s + span_s) if found.ttl_at(s * SECOND)]
    lived = [(expiry_s(s), s) for s in mortal if expiry_s(s) >= since_s]
    first = found.first_to_expire(at_s * SECOND, (at_s + span_s) * SECOND, since_s * SECOND)
    assert first == (tuple(s * SECOND for s in reversed(min(lived))) if lived else None)


@given(lifetimes(), st.integers(0, 60))
def test_the_oldest_row_is_of_the_first_moment_whose_rows_live(found: Lifetimes, now_s: int) -> None:
    living = [s for s in range(61) if not (ttl := found.ttl_at(s * SECOND)) or s + ttl >= now_s]
    assert found.oldest_us(now_s * SECOND) == living[0] * SECOND


@pytest.mark.parametrize("ttl_s", [600, 0])
def test_rows_of_unknown_ttl_may_all_be_there(ttl_s: int) -> None:
    found = Lifetimes(((0, None), (NOW_US - HOUR, ttl_s)))
    assert found.oldest_us(NOW_US) == 0
    assert list(found.holes(0, NOW_US - HOUR)) == []


@pytest.mark.parametrize(("ttl_s", "lasting_s"), [(600, 86_400), (3 * 86_400, 3 * 86_400), (0, 86_400)])
def test_rows_of_unknown_ttl_are_doubted_after_a_day_or_the_present_ttl(ttl_s: int, lasting_s: int) -> None:
    found = Lifetimes(((0, None), (NOW_US - HOUR, ttl_s))).doubting()
    assert found.spans == ((0, lasting_s), (NOW_US - HOUR, ttl_s))
    known = Lifetimes(((0, 7), (NOW_US - HOUR, ttl_s)))
    assert known.doubting() == known


@pytest.mark.parametrize(
    ("left_s", "ttl_s"),
    [([49], 60), ([None], 0), ([0], 11)],
    ids=["a TTL", "no TTL", "about to expire"],
)
def test_the_row_of_a_cursor_shows_the_former_ttl_and_never_a_shorter_one(left_s: list[int | None], ttl_s: int) -> None:
    """The remaining TTL is in whole seconds, so the age is rounded up."""
    found = Lifetimes(((0, None), (NOW_US, 5)))
    row = EventID.row(NOW_US // 1000 - 60_000, b"s" * 16, log_time(NOW_US - 10_500_000), 0)
    assert found.known_from(row, NOW_US, left_s) == Lifetimes(((0, ttl_s), (NOW_US, 5)))
    assert found.known_from(row, NOW_US, []) is None, "it has expired"
    assert found.known_from(row, NOW_US, None) is found, "it was not looked up"
