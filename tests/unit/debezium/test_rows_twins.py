"""The compiled rows, texts, and times equal their twins in Python."""

from __future__ import annotations

from typing import Any

import pytest
from fakelog import log_time
from hypothesis import example, given
from hypothesis import strategies as st
from logcells import LAYOUT, T, cells

from rscylla.cdc.rows.changes import Change
from rscylla.debezium import Emitter, Settings
from rscylla.debezium.rows import ColumnsInPython, us_of_time
from rscylla.types import natives

compiled = pytest.importorskip("rscylla.debezium.compiled")
types = pytest.importorskip("rscylla.types.compiled")

UUID = types.uuid_text


def outcome(work: Any, *args: Any) -> Any:
    """Return what *work* returns, or the text of its error."""
    try:
        return work(*args)
    except ValueError as e:
        return str(e)


@given(st.binary(min_size=16, max_size=16) | st.binary(max_size=17))
def test_uuids(raw: bytes) -> None:
    assert outcome(UUID, raw) == outcome(natives.uuid_text, raw)


@given(st.integers(-(2**50), 2**50))
@example(T)
@example(-1)
def test_times(us: int) -> None:
    raw = log_time(us, 7)
    assert compiled.us_of(raw) == us_of_time(raw)


NUMBERS = st.none() | st.integers(-(2**31), 2**31 - 1)
ROWS = st.fixed_dictionaries(
    {
        "op": st.sampled_from([1, 2, 3]),
        "ck": NUMBERS,
        "v": NUMBERS,
        "w": st.none() | st.text().map(str.encode),
        "s": NUMBERS,
    },
).flatmap(lambda row: st.lists(st.sampled_from(["v", "w", "tags", "u"])).map(lambda gone: {**row, "gone": gone}))


@given(ROWS, ROWS, ROWS, st.sampled_from(["legacy", "advanced"]), st.booleans())
def test_rows(delta: Any, preimage: Any, postimage: Any, form: Any, of_row: bool) -> None:
    emitter = Emitter(Settings(prefix="p", output_format=form))
    emitter.records(Change(LAYOUT, tuple(cells({"op": 2, "ck": 1}, LAYOUT.columns))), 0)
    ((_, plan),) = emitter._plans.values()
    fast, twin = compiled.Columns(plan._columns), ColumnsInPython(plan._columns)
    row, before, after = (tuple(cells(one, LAYOUT.columns)) for one in (delta, preimage, postimage))
    assert list(fast.row(before).items()) == list(twin.row(before).items())
    assert fast.updated(after, row) == twin.updated(after, row)
    assert fast.joined(before, after, row) == twin.joined(before, after, row)
    assert fast.cells(before, row, of_row) == twin.cells(before, row, of_row)


def test_a_short_row_is_an_error() -> None:
    emitter = Emitter(Settings(prefix="p"))
    emitter.records(Change(LAYOUT, tuple(cells({"op": 2, "ck": 1}, LAYOUT.columns))), 0)
    ((_, plan),) = emitter._plans.values()
    with pytest.raises(IndexError):
        compiled.Columns(plan._columns).row((None,))
