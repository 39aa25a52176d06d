"""Which rows of two sides are taken to differ, without a database."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rscylla.replicate
from rscylla.cdc.rows import Cells

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
def test_what_does_not_fit_in_memory_is_looked_at_again(one: dict[int, int], other: dict[int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "_MOST_WAITING", 3)
        found = {key[0][0] for key in verify._aligned(rows_of(one), rows_of(other))}
    assert found >= {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def test_rows_in_another_order_are_never_taken_for_the_same() -> None:
    ours, theirs = rows_of({1: 1, 2: 1, 3: 1}), rows_of({1: 1, 2: 0, 3: 1})
    assert (b"\x02",) in set(verify._aligned(ours, reversed(theirs)))
