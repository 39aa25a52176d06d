"""The walk along a log: windows without gaps, up to the reach, whatever its driver reports."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rscylla.cdc.log.topology import Generation
from rscylla.cdc.log.walk import (
    PROBE_FROM_US,
    Action,
    End,
    Gap,
    LogWindow,
    Probe,
    Read,
    Skip,
    Switch,
    Wait,
    Walk,
    Width,
    windows_between,
)

SECOND = 1_000_000
OLD, NEW = Generation(0), Generation(60_000)
WIDTH = Width(us=SECOND, most_us=64 * SECOND)
START = Walk(OLD, 0, WIDTH)


@attrs.frozen
class Log:
    """A log as a driver finds it: rows by time, generations, and what has expired."""

    generations: tuple[Generation, ...]
    rows: tuple[int, ...]
    gaps: tuple[Gap, ...]
    reach_us: int

    def in_window(self, window: LogWindow) -> list[int]:
        return [us for us in self.rows if window.start_us <= us < window.end_us]

    def check(self, window: LogWindow, at_us: int) -> None:
        """Check that *window* begins at the walk's position and crosses nothing."""
        starts = [g.start_us for g in self.generations]
        assert window.start_us == at_us < window.end_us <= self.reach_us
        assert window.generation * 1000 == max(s for s in starts if s <= window.start_us)
        assert not any(window.start_us < s < window.end_us for s in starts)
        assert not any(h.start_us < window.end_us and window.start_us < h.end_us for h in self.gaps)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    reach_us = draw(st.integers(1, 100 * SECOND))
    times = draw(st.lists(st.integers(1, reach_us // 1000 + 1), max_size=4))
    rows = draw(st.lists(st.integers(0, reach_us - 1), max_size=30))
    edges = sorted(draw(st.sets(st.integers(0, reach_us), max_size=4)))
    gaps = tuple(Gap(a, b, 7) for a, b in zip(edges[::2], edges[1::2], strict=False))
    return Log(tuple(Generation(ms) for ms in sorted({0, *times})), tuple(sorted(rows)), gaps, reach_us)


def driven(walk: Walk, log: Log, dice: random.Random, *, most: int = 4) -> tuple[Walk, list[int]]:
    """Take steps until the end, and return the last walk and the times of the rows that were read.

    A window of more than *most* rows is too much. Queries of others, and probes, time out now and then.
    """
    read: list[int] = []
    known = log.generations[:1]
    failures = 6
    for _ in range(5_000):
        horizon_us = walk.horizon_us(log.reach_us)
        assert horizon_us <= log.reach_us
        known = tuple(g for g in log.generations if g in known or g.start_us < horizon_us)  # no more than was asked for
        step = walk.next(known, log.reach_us, [h for h in log.gaps if h.end_us > walk.at_us])
        fails = failures > 0 and isinstance(step, Read | Probe) and dice.random() < 0.3
        failures -= fails
        match step:
            case Read(window):
                log.check(window, walk.at_us)
                found = log.in_window(window)
                if window.can_narrow and (len(found) > most or fails):
                    walk = walk.too_much(step, slow=len(found) <= most)
                else:
                    walk = walk.read(step, len(found), 100 * len(found))
                    read += found
            case Probe(window):
                log.check(window, walk.at_us)
                first = window.start_us if fails else next(iter(log.in_window(window)), None)
                walk = walk.probed(step, first)
            case Skip():
                walk = walk.skipped(step, known)
            case Switch():
                walk = walk.switched(step)
            case Wait(until_us):
                assert until_us > log.reach_us
                log = attrs.evolve(log, reach_us=until_us)
                walk = walk.waited()
            case End():
                return walk, read
    pytest.fail("the walk does not end")


@settings(max_examples=60)
@given(logs(), st.data(), st.randoms(use_true_random=False))
def test_every_row_that_has_not_expired_is_read_once_whatever_is_reported(
    log: Log, data: st.DataObject, dice: random.Random
) -> None:
    start_us = data.draw(st.integers(0, log.reach_us))
    end_us = data.draw(st.none() | st.integers(0, log.reach_us))
    first = [g for g in log.generations if g.start_us <= start_us][-1]
    walk = Walk(first, start_us, WIDTH, end_us=end_us, to_head=end_us is None)
    walk, read = driven(walk, log, dice)
    stop_us = log.reach_us if end_us is None else end_us
    kept = [us for us in log.rows if not any(h.start_us <= us < h.end_us for h in log.gaps)]
    assert read == [us for us in kept if start_us <= us < stop_us]
    assert walk.at_us == max(start_us, stop_us) or walk.at_us in {h.end_us for h in log.gaps}


@settings(max_examples=30)
@given(logs(), st.integers(0, 90 * SECOND), st.randoms(use_true_random=False))
def test_windows_that_wait_to_be_long_hold_the_same_rows(log: Log, least_us: int, dice: random.Random) -> None:
    walk = Walk(log.generations[0], 0, WIDTH, end_us=log.reach_us + 5, least_us=least_us, probe_from_us=None)
    walk, read = driven(walk, attrs.evolve(log, gaps=()), dice, most=100)
    assert (walk.at_us, tuple(read)) == (log.reach_us + 5, log.rows)


@given(st.integers(1, 10**7), st.integers(0, 10**7), st.integers(1, 10**7))
def test_a_window_ends_at_the_reach_the_next_generation_or_its_width(width: int, reach: int, boundary_ms: int) -> None:
    walk = Walk(OLD, 0, Width(us=width))
    step = walk.next((OLD, Generation(boundary_ms)), reach)
    end = min(width, reach, boundary_ms * 1000)
    assert step == (Read(LogWindow(0, 0, end), at_head=end == reach) if end else Wait(1))


def test_a_generation_that_is_found_late_is_read_from_its_start() -> None:
    walk = attrs.evolve(START, at_us=90 * SECOND)
    step = walk.next((OLD, NEW), 100 * SECOND)
    assert step == Switch(NEW)
    assert isinstance(step, Switch)
    assert (walk.switched(step).at_us, walk.switched(step).generation) == (60 * SECOND, NEW)
    floored = attrs.evolve(walk, floor_us=70 * SECOND)
    assert floored.switched(step).at_us == 70 * SECOND, "nothing before a start is anybody's"


def test_a_generation_that_is_listed_no_more_is_followed_by_the_first_that_is() -> None:
    walk = attrs.evolve(START, generation=Generation(5), at_us=60 * SECOND)
    assert walk.next((NEW,), 100 * SECOND) == Switch(NEW)


def test_what_has_expired_is_skipped_and_no_window_runs_into_it() -> None:
    gaps = [Gap(0, 2 * SECOND, 60), Gap(2 * SECOND + 5, 70 * SECOND, 10)]
    walk, expected = START, [Skip(gaps[0]), Read(LogWindow(0, 2 * SECOND, 2 * SECOND + 5), False), Skip(gaps[1])]
    for step in expected:
        assert walk.next((OLD, NEW), 100 * SECOND, gaps) == step
        walk = walk.skipped(step, (OLD, NEW)) if isinstance(step, Skip) else walk.read(step, 1)
    assert (walk.generation, walk.at_us) == (NEW, 70 * SECOND)


@pytest.mark.parametrize("was_empty", [False, True])
def test_a_step_ends_at_a_halt_that_is_ahead_and_the_walk_goes_on(was_empty: bool) -> None:
    walk = attrs.evolve(START, at_us=10 * SECOND, to_head=True, was_empty=was_empty)
    usual = walk.next((OLD,), 50 * SECOND)
    assert isinstance(usual, Probe if was_empty else Read)
    assert usual.window.end_us > 10 * SECOND + 7
    halted = Read(LogWindow(0, 10 * SECOND, 10 * SECOND + 7), False)
    assert walk.next((OLD,), 50 * SECOND, halt_us=10 * SECOND + 7) == halted
    for behind_us in (0, 10 * SECOND):
        assert walk.next((OLD,), 50 * SECOND, halt_us=behind_us) == usual


def test_a_skip_over_the_time_before_the_first_generation_ends_at_its_start() -> None:
    step = Skip(Gap(0, 30 * SECOND))
    listed = (NEW, Generation(90_000))
    assert START.skipped(step, listed) == attrs.evolve(START, generation=NEW, at_us=NEW.start_us)


def test_a_start_in_the_future_waits_for_the_generations_before_it() -> None:
    walk = attrs.evolve(START, at_us=90 * SECOND, floor_us=90 * SECOND)
    assert walk.next((OLD, NEW), 60 * SECOND - 1) == Wait(90 * SECOND + 1)
    assert walk.next((OLD, NEW), 60 * SECOND) == Switch(NEW)


def test_the_result_of_the_last_step_is_forgotten_after_a_skip_or_a_switch() -> None:
    walk = attrs.evolve(START, at_head=True, was_empty=True)
    for after in (walk.skipped(Skip(Gap(0, SECOND)), (OLD,)), walk.switched(Switch(NEW))):
        assert (after.at_head, after.was_empty) == (False, False)
    assert not walk.waited().was_empty


def empty_steps(walk: Walk, reach_us: int, times: int) -> Walk:
    for _ in range(times):
        step = walk.next((OLD,), reach_us)
        assert isinstance(step, Read)
        walk = walk.read(step, 0)
    return walk


def test_empty_time_is_probed_if_much_lies_ahead() -> None:
    walk = empty_steps(START, 1000 * SECOND, 1)
    probe = walk.next((OLD,), 1000 * SECOND)
    assert probe == Probe(LogWindow(0, SECOND, 1000 * SECOND), at_head=True)
    assert isinstance(probe, Probe)
    assert walk.horizon_us(1000 * SECOND) == 1000 * SECOND
    assert START.horizon_us(1000 * SECOND) == SECOND
    assert walk.next((OLD, NEW), 1000 * SECOND) == Probe(LogWindow(0, SECOND, 60 * SECOND), at_head=False)
    found = walk.probed(probe, 500 * SECOND)
    assert (found.at_us, found.at_head) == (500 * SECOND, False)
    assert isinstance(found.next((OLD,), 1000 * SECOND), Read)
    nothing = walk.probed(probe, None)
    assert (nothing.at_us, nothing.at_head) == (1000 * SECOND, True)
    assert walk.probed(probe, 0).at_us == walk.at_us, "time does not go back"
    assert walk.probed(probe, 2000 * SECOND).at_us == 1000 * SECOND, "nor past what was asked for"


@pytest.mark.parametrize("ahead_us", [PROBE_FROM_US - 1, PROBE_FROM_US])
def test_a_short_time_is_walked_rather_than_probed(ahead_us: int) -> None:
    walk = empty_steps(START, SECOND + ahead_us, 1)
    assert isinstance(walk.next((OLD,), SECOND + ahead_us), Probe if ahead_us == PROBE_FROM_US else Read)
    after_rows = walk.read(Read(LogWindow(0, SECOND, 2 * SECOND), at_head=False), 1)
    assert isinstance(after_rows.next((OLD,), 1000 * SECOND), Read)
    assert isinstance(attrs.evolve(walk, probe_from_us=None).next((OLD,), 1000 * SECOND), Read)
    wide = attrs.evolve(walk, width=Width(us=60 * SECOND))
    assert isinstance(wide.next((OLD,), 120 * SECOND), Read), "two windows are as good"
    assert isinstance(wide.next((OLD,), 121 * SECOND), Probe)


def test_an_end_at_the_head_is_that_of_the_last_step() -> None:
    walk = attrs.evolve(START, to_head=True)
    step = walk.next((OLD,), SECOND // 2)
    assert step == Read(LogWindow(0, 0, SECOND // 2), at_head=True)
    assert isinstance(step, Read)
    walk = walk.read(step, 3)
    assert walk.is_done
    assert walk.next((OLD,), 100 * SECOND) == End()
    assert attrs.evolve(START, to_head=True).next((OLD,), 0) == End()
    assert not walk.too_much(step).is_done, "of a window that was too much, the rest is to come"
    assert START.too_much(step).width.slow_us is None
    assert START.too_much(step, slow=True).width.slow_us == step.window.span_us


def test_a_walk_that_follows_waits_at_the_head() -> None:
    step = START.next((OLD,), SECOND // 2)
    assert isinstance(step, Read)
    walk = START.read(step, 0)
    assert walk.at_head
    assert walk.next((OLD,), SECOND // 2) == Wait(SECOND // 2 + 1)
    assert walk.waited().at_head
    assert not walk.waited().is_done


@pytest.mark.parametrize(
    ("change", "reach_us", "expected"),
    [
        ({}, 5 * SECOND, Wait(10 * SECOND)),
        ({}, 10 * SECOND, Read(LogWindow(0, 0, 10 * SECOND), at_head=True)),
        ({"end_us": 8 * SECOND}, 5 * SECOND, Wait(8 * SECOND)),
        ({"end_us": 5 * SECOND}, 5 * SECOND, Read(LogWindow(0, 0, 5 * SECOND), at_head=True)),
        ({"to_head": True}, 5 * SECOND, Read(LogWindow(0, 0, 5 * SECOND), at_head=True)),
        ({"at_us": 55 * SECOND}, 70 * SECOND, Read(LogWindow(0, 55 * SECOND, 60 * SECOND), at_head=False)),
        ({"width": Width(us=3 * SECOND)}, 5 * SECOND, Read(LogWindow(0, 0, 3 * SECOND), at_head=False)),
        ({"width": Width(us=3 * SECOND)}, 2 * SECOND, Wait(3 * SECOND)),
    ],
)
def test_a_window_waits_to_be_worth_reading_unless_waiting_makes_it_no_longer(
    change: dict[str, object], reach_us: int, expected: Action
) -> None:
    walk = Walk(OLD, 0, Width(us=20 * SECOND), least_us=10 * SECOND)
    assert attrs.evolve(walk, **change).next((OLD, NEW), reach_us) == expected


def test_a_width_aims_at_a_fifth_of_what_a_window_may_hold() -> None:
    assert Width.within(100, 1000, us=7) == Width(us=7, target=20, target_bytes=200)
    assert Width.within(1, 1) == Width(target=1, target_bytes=1)


def test_only_a_window_of_one_microsecond_cannot_be_narrower() -> None:
    assert [LogWindow(0, 0, us).can_narrow for us in (1, 2)] == [False, True]


def test_uncounted_rows_do_not_change_the_width() -> None:
    step = START.next((OLD,), 100 * SECOND)
    assert isinstance(step, Read)
    assert START.read(step, None).width == START.width
    assert not START.read(step, None).was_empty
    assert START.read(step, 0).width.us == 4 * SECOND
    assert START.read(step, 0).was_empty


def test_windows_are_cut_where_generations_begin() -> None:
    generations = (Generation(10), Generation(20), Generation(30))
    assert windows_between(generations, 0, 5_000) == ()
    assert windows_between(generations, 0, 15_000) == (LogWindow(10, 10_000, 15_000),)
    assert windows_between(generations, 20_000, 20_000) == ()
    assert windows_between(generations, 15_000, 31_000) == (
        LogWindow(10, 15_000, 20_000),
        LogWindow(20, 20_000, 30_000),
        LogWindow(30, 30_000, 31_000),
    )
    assert windows_between((), 0, 5_000) == ()


@given(st.integers(1, 86_400_000_000), st.integers(0, 10**6), st.booleans())
def test_a_width_stays_in_its_bounds_and_grows_at_most_fourfold(us: int, rows: int, cut: bool) -> None:
    width = Width(us=us)
    cut = cut and us > 1
    window = LogWindow(0, 0, us // 2 if cut else us)
    after = width.after(window, rows)
    assert 1 <= after.us <= width.most_us
    assert after.us <= 4 * us
    if rows > 2 * width.target:
        assert after.us < us or us <= 2
    if cut and rows == 0:
        assert after == width, "a window that was cut short says nothing of wider ones"


def test_a_width_grows_over_empty_time_and_shrinks_to_what_fits() -> None:
    width = Width(us=1_000_000, target=100)
    for _ in range(20):
        width = width.after(LogWindow(0, 0, width.us), 0)
    assert width.us == width.most_us
    full = width.after(LogWindow(0, 0, width.us), 1000)
    assert full.us == width.us // 10


def test_a_width_that_took_too_long_is_tried_again_later_and_forgotten_in_the_end() -> None:
    width = Width(us=8_000_000).narrower(LogWindow(0, 0, 8_000_000), slow=True)
    assert width.us == 2_000_000
    before = 0
    while width.us < 8_000_000:
        width = width.after(LogWindow(0, 0, width.us), 1)
        before += 1
    assert 10 < before < 15
    for _ in range(200):
        width = width.after(LogWindow(0, 0, width.us), 0)
    assert width == Width(us=width.most_us)
    tiny = Width(us=1).narrower(LogWindow(0, 0, 1), slow=True)
    for _ in range(500):
        tiny = tiny.after(LogWindow(0, 0, tiny.us), 0)
    assert tiny.us == tiny.most_us, "nothing stays narrow for ever"


def test_a_window_is_narrowed_until_a_microsecond() -> None:
    width, window = Width(), LogWindow(0, 0, 86_400_000_000)
    steps = 0
    while window.can_narrow:
        width = width.narrower(window)
        assert width.us < window.span_us
        window = LogWindow(0, 0, width.us)
        steps += 1
    assert window.span_us == 1
    assert steps < 25
