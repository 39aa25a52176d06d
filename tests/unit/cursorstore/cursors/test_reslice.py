"""From one number of slices to another: no change is lost, and few are delivered again."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorstore import IntCursorCodec, MemoryCursorStore, reslice_cursors
from rscylla import EventID, cursor_key, slice_name
from rscylla.errors import ConfigError, CursorError, CursorRegression


def at(us: int) -> str:
    return str(EventID(1_795_251_600_000, 1_795_251_600_000_000 + us))


def saved(count: int, *times: int) -> MemoryCursorStore:
    store = MemoryCursorStore()
    for index, us in enumerate(times):
        store.set_cursor(slice_name("billing", index, count), at(us))
    return store


@given(st.integers(1, 8), st.integers(1, 8), st.lists(st.integers(0, 9), min_size=8, max_size=8), st.integers(0, 2**64))
def test_no_key_is_skipped_and_none_moves_back_without_need(old: int, new: int, times: list[int], key: int) -> None:
    """Wherever a key lies: its new slice starts no later than its old slice was, and no lower than some neighbour."""
    if old == new:
        return
    store = saved(old, *times[:old])
    after = reslice_cursors(store, "billing", old, new)
    assert list(after) == [slice_name("billing", i, new) for i in range(new)]
    place = Fraction(key, 2**64 + 1)
    before = at(times[int(place * old)])
    assert cursor_key(after[slice_name("billing", int(place * new), new)]) <= cursor_key(before)
    for index in range(new):
        mine = [
            times[i]
            for i in range(old)
            if max(Fraction(i, old), Fraction(index, new)) < min(Fraction(i + 1, old), Fraction(index + 1, new))
        ]
        name = slice_name("billing", index, new)
        assert after[name] == store.get_cursor(name) == at(min(mine))


def test_from_a_whole_consumer_and_back() -> None:
    store = saved(1, 7)
    assert reslice_cursors(store, "billing", 1, 3) == {f"billing[{i}/3]": at(7) for i in range(3)}
    store.set_cursor("billing[0/3]", at(9))
    store.set_cursor("billing[1/3]", at(8))
    store.set_cursor("billing[2/3]", at(10))
    assert reslice_cursors(store, "billing", 3, 1) == {"billing": at(8)}
    records = {r.consumer: r for r in store.list_cursors()}
    assert records["billing"].reason == "from 3 to 1 slices"
    assert records["billing[0/3]"].cursor == at(9), "old cursors stay"


def test_the_oldest_is_lowest_of_all() -> None:
    store = saved(2, 5, 6)
    store.reset_cursor("billing[1/2]", "", reason="replay")
    assert reslice_cursors(store, "billing", 2, 1, reason="fewer machines") == {"billing": ""}
    assert next(r.reason for r in store.list_cursors() if r.consumer == "billing") == "fewer machines"


def test_a_slice_without_a_cursor_is_an_error_and_nothing_is_set() -> None:
    store = saved(3, 1, 2)
    with pytest.raises(CursorError, match=r"'billing\[2/3\]' has no cursor.* check that 3 is the old number"):
        reslice_cursors(store, "billing", 3, 2)
    assert len(list(store.list_cursors())) == 2


def test_a_second_time_is_refused_once_the_new_slices_have_gone_on() -> None:
    store = saved(1, 7)
    reslice_cursors(store, "billing", 1, 2)
    reslice_cursors(store, "billing", 1, 2)
    store.set_cursor("billing[1/2]", at(8))
    history = store.cursor_history("billing[0/2]")
    with pytest.raises(CursorRegression, match="already ahead of the old slices"):
        reslice_cursors(store, "billing", 1, 2)
    assert store.cursor_history("billing[0/2]") == history, "nothing is reset unless all can be"
    assert store.get_cursor("billing[1/2]") == at(8)
    reslice_cursors(store, "billing", 1, 2, rewind=True)
    assert store.get_cursor("billing[1/2]") == at(7)


def test_what_makes_no_sense_is_refused() -> None:
    store = saved(2, 1, 2)
    for old, new, words in [(2, 2, "two different"), (2, 0, "slice must be"), (0, 2, "slice must be")]:
        with pytest.raises(ConfigError, match=words):
            reslice_cursors(store, "billing", old, new)

    class Plain:
        def get_cursor(self, consumer: str) -> str:
            return at(1)

    with pytest.raises(ConfigError, match=r"use a store that implements rscylla\.abc\.CursorAdmin"):
        reslice_cursors(Plain(), "billing", 2, 1)  # type: ignore[arg-type]


def test_cursors_must_be_event_ids() -> None:
    """Whole numbers cannot be those of a stream that is read in slices."""
    store = MemoryCursorStore(codec=IntCursorCodec())
    store.set_cursor("billing", "7")
    with pytest.raises(CursorError):
        reslice_cursors(store, "billing", 1, 2)
