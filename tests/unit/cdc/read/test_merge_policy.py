"""Which readers of slices become one, and which wait."""

from __future__ import annotations

import pytest

from rscylla.cdc.read.merge_policy import (
    NEAR_US,
    NEAR_WINDOWS,
    PATIENCE_S,
    RECENT_S,
    Backlog,
    Place,
    Stage,
    blocked_s,
    halt_of,
    is_awaited,
    meet,
)

FREE = (Stage.HELD, Stage.POLLS, Stage.IDLE)
HOUR_US = 3_600_000_000


def place(
    at_us: int, stage: Stage = Stage.POLLS, *, generation: int = 1, width_us: int = 10, step_s: float = 0
) -> Place:
    return Place(generation, at_us, width_us, stage, step_s)


@pytest.mark.parametrize(("stage", "expected"), [(s, s in FREE) for s in Stage])
def test_a_scan_takes_over_one_that_is_between_two_steps_at_the_same_point(stage: Stage, expected: bool) -> None:
    assert meet(place(50), place(50, stage)) is expected
    assert not meet(place(50), place(51, stage))
    assert not meet(place(50), place(50, stage, generation=2))


def test_a_scan_waits_for_one_that_comes_from_near_behind() -> None:
    me = place(HOUR_US, Stage.READS)
    near_us = HOUR_US - NEAR_US
    assert is_awaited(me, [place(near_us, Stage.READS)])
    assert is_awaited(me, [place(near_us, Stage.HELD)])
    assert not is_awaited(me, [place(near_us - 1, Stage.READS)])
    assert not is_awaited(me, [place(HOUR_US, Stage.READS), place(HOUR_US + 1, Stage.READS)]), "two would wait for ever"
    assert not is_awaited(me, [place(near_us, Stage.READS, generation=2)])


def test_two_long_windows_are_near() -> None:
    width_us = NEAR_US + 1
    near_us = HOUR_US - NEAR_WINDOWS * width_us
    me, wide = place(HOUR_US, Stage.READS), place(HOUR_US, Stage.READS, width_us=width_us)
    assert is_awaited(me, [place(near_us, Stage.READS, width_us=width_us)])
    assert is_awaited(wide, [place(near_us, Stage.READS)])
    assert not is_awaited(wide, [place(near_us - 1, Stage.READS)])


@pytest.mark.parametrize(
    ("stage", "still_s"),
    [
        (Stage.POLLS, 0.0),
        (Stage.ENDED, 0.0),
        (Stage.IDLE, RECENT_S),
        (Stage.BLOCKED, RECENT_S),
        (Stage.READS, PATIENCE_S),
    ],
)
def test_no_scan_waits_for_one_that_does_not_move(stage: Stage, still_s: float) -> None:
    me = place(HOUR_US, Stage.READS)
    assert not is_awaited(me, [place(HOUR_US - 5, stage, step_s=still_s)])
    assert is_awaited(me, [place(HOUR_US - 5, stage, step_s=still_s / 2)]) is (still_s > 0)


def test_a_step_halts_where_the_next_scan_is() -> None:
    others = [place(40), place(70), place(60), place(55, Stage.ENDED), place(52, generation=2)]
    assert halt_of(place(50), others) == 60
    assert halt_of(place(70), others) is None


def test_a_slow_consumer_is_waited_for_while_no_other_has_waited_long() -> None:
    slow = Backlog(is_full=True)
    assert blocked_s([slow, Backlog(is_full=False)]) is None
    assert blocked_s([slow, Backlog(is_full=False, idle_s=0.25)]) == PATIENCE_S - 0.25
    assert blocked_s([slow, Backlog(is_full=False, idle_s=PATIENCE_S + 1), Backlog(is_full=False, idle_s=0)]) == 0
