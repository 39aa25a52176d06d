"""Windows, groups of streams and widths, as values."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from fakelog import stream_id
from hypothesis import given
from hypothesis import strategies as st

from rscylla._streamid import vnode_of
from rscylla.cdc.plan import Width, Window, group_streams, next_window, tasks_for
from rscylla.cdc.reader import Settings
from rscylla.errors import ConfigError

times = st.integers(0, 10**7)


@given(times, times, st.none() | times, st.integers(1, 10**7))
def test_a_window_ends_at_the_watermark_the_boundary_or_its_width(
    start: int, watermark: int, boundary: int | None, width: int
) -> None:
    window = next_window(5, start, watermark_us=watermark, boundary_us=boundary, width_us=width)
    ends = [start + width, watermark, *([] if boundary is None else [boundary])]
    if min(ends) <= start:
        assert window is None
    else:
        assert window == Window(5, start, min(ends))
        assert window.span_us == min(ends) - start


@given(st.lists(st.integers(1, 30), max_size=12), st.integers(1, 100))
def test_groups_hold_every_stream_once_within_the_limit(sizes: list[int], limit: int) -> None:
    streams = [stream_id(vnode * 1000 + n, vnode) for vnode, size in enumerate(sizes) for n in range(size)]
    groups = group_streams(streams, limit=limit)
    assert [s for g in groups for s in g] == streams
    assert all(0 < len(g) <= limit for g in groups)
    for vnode, size in enumerate(sizes):
        parts = sum(any(vnode_of(s) == vnode for s in g) for g in groups)
        assert parts <= -(-size // limit) + (size > limit), "a vnode that fits is not cut"
    if max(sizes, default=0) <= limit:
        assert all(len(a) + size_of_first(b) > limit for a, b in pairwise(groups))


def size_of_first(group: tuple[bytes, ...]) -> int:
    """Return the number of streams of the group's first vnode."""
    return sum(vnode_of(s) == vnode_of(group[0]) for s in group)


def test_streams_of_before_versions_are_grouped_too() -> None:
    old = [n.to_bytes(8, "big") + b"\x00" * 8 for n in range(250)]
    assert [len(g) for g in group_streams(old)] == [100, 100, 50]


def test_streams_of_tablets_are_grouped_whole_and_bounded() -> None:
    tablets = [stream_id(n) for n in range(7)]
    assert group_streams(tablets, limit=3) == (tuple(tablets[:3]), tuple(tablets[3:6]), tuple(tablets[6:]))


@pytest.mark.parametrize("limit", [0, -1, 101])
def test_a_group_larger_than_the_server_allows_is_refused(limit: int) -> None:
    with pytest.raises(ConfigError, match="from 1 to 100"):
        group_streams([stream_id(1)], limit=limit)
    with pytest.raises(ConfigError, match="from 1 to 100"):
        Settings(streams_per_query=limit)


def test_tasks_can_be_sent_to_other_processes_and_show_no_ids() -> None:
    (task,) = tasks_for(Window(1, 2, 3), [(stream_id(1), stream_id(2))], keyspace="k", table="t")
    assert pickle.loads(pickle.dumps(task)) == task
    assert "streams=<2>" in repr(task)


@given(st.integers(1, 86_400_000_000), st.integers(0, 10**6), st.booleans())
def test_a_width_stays_in_its_bounds_and_grows_at_most_fourfold(us: int, rows: int, cut: bool) -> None:
    width = Width(us=us)
    cut = cut and us > 1
    window = Window(0, 0, us // 2 if cut else us)
    after = width.after(window, rows)
    assert width.least_us <= after.us <= width.most_us
    assert after.us <= 4 * us
    if rows > 2 * width.target:
        assert after.us < us or us <= 2
    if cut and rows == 0:
        assert after == width, "a window that was cut short says nothing of wider ones"


def test_a_width_grows_over_empty_time_and_shrinks_to_what_fits() -> None:
    width = Width(us=1_000_000, target=100)
    for _ in range(20):
        width = width.after(Window(0, 0, width.us), 0)
    assert width.us == width.most_us
    full = width.after(Window(0, 0, width.us), 1000)
    assert full.us == width.us // 10


def test_a_width_that_took_too_long_is_tried_again_later_and_forgotten_in_the_end() -> None:
    width = Width(us=8_000_000).narrower(Window(0, 0, 8_000_000), slow=True)
    assert width.us == 2_000_000
    before = 0
    while width.us < 8_000_000:
        width = width.after(Window(0, 0, width.us), 1)
        before += 1
    assert 10 < before < 15
    for _ in range(200):
        width = width.after(Window(0, 0, width.us), 0)
    assert width == Width(us=width.most_us)
    tiny = Width(us=1).narrower(Window(0, 0, 1), slow=True)
    for _ in range(500):
        tiny = tiny.after(Window(0, 0, tiny.us), 0)
    assert tiny.us == tiny.most_us, "nothing stays narrow for ever"


def test_a_window_is_narrowed_until_a_microsecond() -> None:
    width, window = Width(), Window(0, 0, 86_400_000_000)
    steps = 0
    while width.can_narrow(window):
        width = width.narrower(window)
        assert width.us < window.span_us
        window = Window(0, 0, width.us)
        steps += 1
    assert window.span_us == 1
    assert steps < 25
