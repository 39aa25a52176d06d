"""Which rows of two sides are taken to differ, without a database."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rscylla.replicate
from rscylla.cdc.log.table import BaseColumn, Table
from rscylla.cdc.rows import Cells
from rscylla.replicate import Difference
from rscylla.replicate.side import Group, Key, Side

assert rscylla.replicate  # the function of the same name hides the module
verify = sys.modules["rscylla.replicate.verify"]

ROWS = st.dictionaries(st.integers(0, 12), st.integers(0, 1))
TOKENS = st.dictionaries(st.integers(-2, 2), ROWS.filter(bool))


def rows_of(rows: dict[int, int]) -> list[tuple[Cells, Cells]]:
    return [((bytes([key]),), (bytes([value]),)) for key, value in sorted(rows.items())]


@given(TOKENS, TOKENS)
def test_exactly_what_differs_is_found(one: dict[int, dict[int, int]], other: dict[int, dict[int, int]]) -> None:
    groups = [((token, iter(rows_of(rows))) for token, rows in sorted(side.items())) for side in (one, other)]
    sides = [{(t, k): v for t, rows in side.items() for k, v in rows.items()} for side in (one, other)]
    differing = sorted(key[0][0] for key in verify._differing(*groups))
    everywhere = sides[0].keys() | sides[1].keys()
    assert differing == sorted(k for t, k in everywhere if sides[0].get((t, k)) != sides[1].get((t, k)))


@given(ROWS, ROWS)
def test_rows_that_do_not_fit_in_memory_are_read_again(one: dict[int, int], other: dict[int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "_MOST_WAITING", 3)
        found = {key[0][0] for key in verify._aligned(rows_of(one), rows_of(other))}
    assert found >= {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def test_rows_in_another_order_are_never_taken_for_the_same() -> None:
    ours, theirs = rows_of({1: 1, 2: 1, 3: 1}), rows_of({1: 1, 2: 0, 3: 1})
    assert (b"\x02",) in set(verify._aligned(ours, reversed(theirs)))


# ---------------------------------------------------------------- looking again

TABLE = Table(
    "shop",
    "t",
    (
        BaseColumn("pk", "partition_key", 0, "tinyint"),
        BaseColumn("ck", "clustering", 0, "tinyint"),
        BaseColumn("v", "regular", -1, "blob"),
        BaseColumn("w", "regular", -1, "blob"),
    ),
)
LAG = timedelta(seconds=30)


class Rows(Side):
    """A side in memory: cells of v, its write time, and w, by key. *meanwhile* is called for each wait."""

    columns = ("v", "v", "w")

    def __init__(self, rows: dict[Key, Cells], meanwhile: Callable[[int], None] = lambda _: None) -> None:
        self.rows = dict(sorted(rows.items()))
        self.table = TABLE
        self.key_size = 2
        self.waits: list[timedelta] = []
        self._meanwhile = meanwhile

    def groups(self, low: int, high: int) -> Iterator[Group]:
        for token, rows in groupby(list(self.rows.items()), key=lambda row: (row[0][0] or b"")[0]):
            if low < token <= high:
                yield token, iter(list(rows))

    def row(self, key: Key) -> Cells | None:
        return self.rows.get(key)

    def wait(self, lag: timedelta) -> None:
        self.waits.append(lag)
        self._meanwhile(len(self.waits))


def key(pk: int, ck: int = 0) -> Key:
    return bytes([pk]), bytes([ck])


def cells(v: int, w: int = 0, *, at: int = 0) -> Cells:
    return bytes([v]), bytes([at]), bytes([w])


def search_of(here: Rows, there: Rows, *, looks: int = 3, limit: int = 100) -> Any:
    return verify._Search(here, there, looks=looks, limit=limit, lag=LAG)


def compared(here: Rows, there: Rows, **options: int) -> Any:
    search = search_of(here, there, **options)
    search.compare(-1, 255)
    search.look_again()
    return search.verdict()


def test_differences_are_named_by_kind_key_and_columns() -> None:
    here = Rows({key(1): cells(1), key(2): cells(2), key(3, 7): cells(3, 3, at=3), key(5): cells(5, 5)})
    there = Rows({key(1): cells(1), key(3, 7): cells(4, 3, at=4), key(4): cells(4), key(5): cells(5, 6)})
    verdict = compared(here, there)
    assert verdict.differences == (
        Difference("missing", {"pk": 2, "ck": 0}),
        Difference("different", {"pk": 3, "ck": 7}, ("v",)),
        Difference("extra", {"pk": 4, "ck": 0}),
        Difference("different", {"pk": 5, "ck": 0}, ("w",)),
    )
    assert (verdict.rows, verdict.more, verdict.unsettled) == (4, False, 0)
    assert here.waits == [LAG] * 3
    assert there.waits == []


def test_the_key_of_a_static_row_lacks_what_the_row_lacks() -> None:
    verdict = compared(Rows({(b"\1", None): cells(1)}), Rows({}))
    assert verdict.differences == (Difference("missing", {"pk": 1}),)


def test_rows_that_become_the_same_are_not_looked_at_again() -> None:
    there = Rows({key(1): cells(0)})
    here = Rows({key(1): cells(1)}, lambda number: there.rows.update({key(1): cells(1)}) if number == 2 else None)
    assert compared(here, there).same
    assert here.waits == [LAG] * 2


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_row_that_is_once_the_same_is_settled(number: int) -> None:
    """What comes after that is another change."""
    here = Rows({key(1): cells(1)})
    there = Rows({key(1): cells(0)})
    here._meanwhile = lambda at: there.rows.update({key(1): cells(1 if at == number else 9)})
    assert compared(here, there).same


def test_what_changes_before_each_look_is_not_judged() -> None:
    here, there = Rows({key(1): cells(1), key(2): cells(2)}), Rows({key(1): cells(0), key(2): cells(0)})
    here._meanwhile = lambda number: here.rows.update({key(1): cells(10 + number)})
    verdict = compared(here, there)
    assert verdict.differences == (Difference("different", {"pk": 2, "ck": 0}, ("v",)),)
    assert verdict.unsettled == 1


def test_what_changed_before_an_earlier_look_is_judged() -> None:
    here, there = Rows({key(1): cells(1)}), Rows({key(1): cells(0)})
    here._meanwhile = lambda number: here.rows.update({key(1): cells(10 + min(number, 2))})
    verdict = compared(here, there)
    assert verdict.differences == (Difference("different", {"pk": 1, "ck": 0}, ("v",)),)
    assert verdict.unsettled == 0


def test_of_a_row_that_changes_the_columns_that_do_not_are_judged() -> None:
    here, there = Rows({key(1): cells(1, 1)}), Rows({key(1): cells(0, 0)})
    here._meanwhile = lambda number: here.rows.update({key(1): cells(10 + number, 1)})
    verdict = compared(here, there)
    assert verdict.differences == (Difference("different", {"pk": 1, "ck": 0}, ("w",)),)


@pytest.mark.parametrize("copy", [{}, {key(1): cells(0)}])
def test_a_row_that_has_just_been_written_is_not_judged(copy: dict[Key, Cells]) -> None:
    here, there = Rows({}), Rows(copy or {key(1): cells(0)})
    search = search_of(here, there, looks=1)
    search.compare(-1, 255)

    def written(_: int) -> None:
        here.rows[key(1)] = cells(1)
        there.rows = copy

    here._meanwhile = written
    search.look_again()
    assert (search.verdict().differences, search.verdict().unsettled) == ((), 1)


def test_a_row_that_has_just_been_deleted_is_not_judged() -> None:
    here, there = Rows({key(1): cells(1)}), Rows({key(1): cells(0)})
    here._meanwhile = lambda _: here.rows.clear()
    verdict = compared(here, there, looks=1)
    assert (verdict.differences, verdict.unsettled) == ((), 1)
    here.rows[key(1)] = cells(1)
    assert compared(here, there, looks=2).differences == (Difference("extra", {"pk": 1, "ck": 0}),)


def test_findings_of_several_rounds_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_MOST_DOUBTS", 2)
    here, there = Rows({key(n): cells(n) for n in range(1, 7)}), Rows({key(n): cells(0) for n in range(1, 7)})
    here._meanwhile = lambda number: here.rows.update({key(n): cells(100 + number) for n in (2, 4)})
    verdict = compared(here, there)
    assert [d.key["pk"] for d in verdict.differences] == [1, 3, 5, 6]
    assert (verdict.rows, verdict.unsettled) == (6, 2)
    assert here.waits == [LAG] * 9, "three looks at each two rows"


def test_a_comparison_ends_once_there_are_more_differences_than_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_MOST_DOUBTS", 1)
    here, there = Rows({key(n): cells(n) for n in range(1, 10)}), Rows({})
    search = search_of(here, there, limit=2)
    search.compare(-1, 255)
    verdict = search.verdict()
    assert [d.key["pk"] for d in verdict.differences] == [1, 2]
    assert (verdict.rows, verdict.more, verdict.same) == (3, True, False)


def test_as_many_differences_as_are_reported_are_not_more() -> None:
    here, there = Rows({key(n): cells(n) for n in range(1, 3)}), Rows({})
    verdict = compared(here, there, limit=2)
    assert (len(verdict.differences), verdict.more) == (2, False)


def test_rows_of_several_ranges_add_up() -> None:
    rows = {key(n): cells(n) for n in range(1, 10)}
    search = search_of(Rows(rows), Rows(rows))
    search.compare(-1, 4)
    search.compare(4, 255)
    assert search.verdict() == verify.Verdict(9, ())


def done(result: BaseException | None = None) -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None) if result is None else future.set_exception(result)
    return future


def test_progress_is_reported_by_range() -> None:
    seen: list[tuple[int, int]] = []
    verify._follow(search_of(Rows({}), Rows({})), [done(), done(), done()], lambda *at: seen.append(at))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_an_error_in_a_range_ends_the_waiting() -> None:
    with pytest.raises(KeyError):
        verify._follow(search_of(Rows({}), Rows({})), [done(), done(KeyError()), done()], None)


def test_no_range_is_waited_for_once_there_are_enough_differences() -> None:
    search = search_of(Rows({key(n): cells(n) for n in range(3)}), Rows({}), limit=1)
    search.compare(-1, 255)
    search.look_again()
    verify._follow(search, [done(), done(KeyError())], None)
    assert search.enough


def test_rows_that_wait_for_those_of_the_other_side_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_MOST_WAITING", 3)
    taken: list[int] = []

    def rows(first: int) -> Iterator[tuple[Cells, Cells]]:
        for number in range(first, 200, 2):
            taken.append(number)
            yield (bytes([number]),), (b"",)

    next(verify._aligned(rows(0), rows(1)))
    assert taken == [0, 1, 2, 3]
