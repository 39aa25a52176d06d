"""How long rows live by when they were written, against a model that asks for each moment on its own."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from fakelog import NOW_US, SECOND, log_time
from hypothesis import given
from hypothesis import strategies as st

from rscylla.cdc.log.lifetimes import EARLY_US, Lifetimes, Promise
from rscylla.cdc.log.table import LoggedTable
from rscylla.cdc.log.walk import Gap
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
    gaps = list(found.gaps_after(at_s * SECOND, now_s * SECOND))
    for moment in range(at_s, 61):
        ttl = found.ttl_at(moment * SECOND)
        inside = [h for h in gaps if h.start_us <= moment * SECOND < h.end_us]
        assert [h.ttl_s for h in inside] == ([ttl] if ttl and moment + ttl < now_s else [])
    assert all(at_s * SECOND <= h.start_us < h.end_us for h in gaps)
    assert gaps == sorted(gaps, key=lambda h: h.start_us)


@given(
    st.builds(Promise, lifetimes(), *[st.integers(0, 60).map(lambda s: s * SECOND)] * 2),
    st.integers(0, 40),
    st.integers(0, 20),
    st.integers(0, 60),
)
def test_rows_are_lost_if_they_were_promised_and_have_expired(
    promise: Promise, at_s: int, span_s: int, now_s: int
) -> None:
    ttl_at = promise.lifetimes.ttl_at

    def is_lost(moment_us: int) -> bool:
        expires_us = moment_us + (ttl_at(moment_us) or now_s + 100) * SECOND
        is_promised = moment_us >= promise.from_us and expires_us >= promise.since_us
        return is_promised and expires_us < now_s * SECOND + EARLY_US

    moments = range(at_s * SECOND, (at_s + span_s) * SECOND, SECOND // 2)
    lost = promise.lost(at_s * SECOND, (at_s + span_s) * SECOND, now_s * SECOND)
    found = [us for us in moments if is_lost(us)]
    # Gaps end between the moments, too, when one clock is ahead by less than they are apart.
    if found:
        assert lost is not None
        assert lost.start_us <= found[0] < lost.end_us
        assert lost.ttl_s == ttl_at(found[0])
        assert all(is_lost(us) for us in moments if lost.start_us <= us < lost.end_us)
    elif lost is not None:
        assert not [us for us in moments if lost.start_us <= us < lost.end_us]


@given(lifetimes(), st.integers(0, 60))
def test_the_oldest_row_is_of_the_first_moment_whose_rows_live(found: Lifetimes, now_s: int) -> None:
    living = [s for s in range(61) if not (ttl := found.ttl_at(s * SECOND)) or s + ttl >= now_s]
    assert found.oldest_us(now_s * SECOND) == living[0] * SECOND


@pytest.mark.parametrize("ttl_s", [600, 0])
def test_rows_of_unknown_ttl_may_all_be_there(ttl_s: int) -> None:
    found = Lifetimes(((0, None), (NOW_US - HOUR, ttl_s)))
    assert found.oldest_us(NOW_US) == 0
    assert list(found.gaps_after(0, NOW_US - HOUR)) == []


@pytest.mark.parametrize(("ttl_s", "lasting_s"), [(600, 86_400), (3 * 86_400, 3 * 86_400), (0, 0)])
def test_rows_of_unknown_ttl_are_doubted_after_a_day_or_the_present_ttl(ttl_s: int, lasting_s: int) -> None:
    altered_us = NOW_US - HOUR
    found = Lifetimes(((0, None), (altered_us, 7))).doubting(ttl_s)
    assert found == Lifetimes(((0, lasting_s), (altered_us, 7)), assumed_until_us=altered_us)
    known = Lifetimes(((0, 7), (altered_us, 7)))
    assert known.doubting(ttl_s) == known


def test_what_is_told_of_lost_rows_says_whether_their_ttl_is_assumed() -> None:
    promise = Promise(Lifetimes(((0, None), (NOW_US, 60))).assuming(60))
    lost = "changes from 2025-11-21 09:59:00 to 2025-11-21 10:01:40 UTC may be lost"
    start_us, end_us = NOW_US - 60 * SECOND, NOW_US + 100 * SECOND
    assert promise.message(table(), Gap(start_us, end_us, 60)) == (
        f"the log of ks.t keeps 60 s (assumed, because the table was altered since): {lost}"
    )
    known = Promise(Lifetimes(((0, 60),)))
    assert known.message(table(), Gap(start_us, end_us, 60)) == f"the log of ks.t keeps 60 s: {lost}"
    no_streams = f"the log of ks.t no longer has streams of that time: {lost}"
    assert known.message(table(), Gap(start_us, end_us)) == no_streams


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
