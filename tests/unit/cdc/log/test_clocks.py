"""The clocks of the nodes, as they are sampled."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from fakelog import NOW_US, SECOND, FakeLog, Host

from rscylla.cdc.log.clocks import SAMPLE_TIMEOUT_S, NodeClocks
from rscylla.testing import ManualClock


def test_the_slowest_clock_counts_and_faster_ones_do_not(log: FakeLog) -> None:
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    log.nodes = [Host("a", 0), Host("b", -3 * SECOND), Host("c", 9 * SECOND)]
    clocks.sample()
    assert clocks.slowest_us() == pytest.approx(NOW_US - 3 * SECOND, abs=1000)
    assert clocks.fastest_us() == pytest.approx(NOW_US + 9 * SECOND, abs=1000)
    assert clocks.skew_us["a"] == 0


def test_a_node_that_does_not_answer_keeps_its_last_value(log: FakeLog) -> None:
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    log.nodes = [Host("a", -5 * SECOND)]
    clocks.sample()
    log.nodes = [Host("a", None), Host("never", None)]
    clocks.sample()
    assert clocks.skew_us.keys() == {"a"}
    assert clocks.slowest_us() == pytest.approx(NOW_US - 5 * SECOND, abs=1000)
    log.nodes = [Host("b", -SECOND)]
    clocks.sample()
    assert clocks.slowest_us() == pytest.approx(NOW_US - SECOND, abs=1000), "a node that has gone counts no more"


def test_the_clock_of_a_node_that_falls_silent_still_holds_the_windows_back(log: FakeLog) -> None:
    """It may still take writes, and stamps them with the clock that it had."""
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    log.nodes = [Host("a", 0), Host("b", -5 * SECOND)]
    clocks.sample()
    log.nodes = [Host("a", 0), Host("b", None)]
    log.clock.advance(10)
    clocks.sample()
    assert clocks.slowest_us() == pytest.approx(NOW_US + 5 * SECOND, abs=1000)
    assert clocks.skew_us["b"] == pytest.approx(-5 * SECOND, abs=1000)


def test_while_all_nodes_are_away_their_clocks_count_and_not_that_of_the_client(log: FakeLog) -> None:
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    log.nodes = [Host("a", -7200 * SECOND), Host("b", -7201 * SECOND)]
    clocks.sample()
    log.nodes = []
    clocks.sample()
    assert clocks.slowest_us() == pytest.approx(NOW_US - 7201 * SECOND, abs=1000)
    assert clocks.skew_us == pytest.approx({"a": -7200 * SECOND, "b": -7201 * SECOND}, abs=1000)


def test_the_time_of_an_answer_does_not_count_as_skew(log: FakeLog) -> None:
    log.nodes = [Host("a", 0)]
    log.on_rows = lambda _: log.clock.advance(0.25)  # type: ignore[assignment,func-returns-value]
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    clocks.sample()
    assert clocks.skew_us == {"a": 0}


@pytest.mark.parametrize(("skew_s", "told_s"), [(3, 2.75), (-5, -5), (0.1, 0), (0, 0)])
def test_a_skew_is_the_least_that_an_answer_allows_however_long_it_was_on_its_way(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch, skew_s: float, told_s: float
) -> None:
    log.nodes = [Host("a", round(skew_s * SECOND))]
    answer = log.rows

    def late(*given: Any, **named: Any) -> Any:
        assert named["timeout_s"] == SAMPLE_TIMEOUT_S, "a node that hangs holds nobody up for long"
        told = answer(*given, **named)
        log.clock.advance(0.25)
        return told

    monkeypatch.setattr(log, "rows", late)
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    clocks.sample()
    assert clocks.skew_us["a"] == pytest.approx(told_s * SECOND, abs=1000)


@pytest.mark.parametrize("early_s", [0, 1.5])
@pytest.mark.parametrize("skew_s", [-50, -0.5, 0, 0.5, 50])
def test_whenever_a_node_read_its_clock_no_window_is_closed_early_and_no_row_is_promised_too_long(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch, skew_s: float, early_s: float
) -> None:
    """A node that hangs reads its clock late; an answer that waits in a busy process was read early."""
    log.nodes = [Host("a", round(skew_s * SECOND))]
    answer = log.rows

    def slow(*given: Any, **named: Any) -> Any:
        log.clock.advance(1.5 - early_s)
        told = answer(*given, **named)
        log.clock.advance(early_s)
        return told

    monkeypatch.setattr(log, "rows", slow)
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    clocks.sample()
    node_us = log.clock.now_us() + round(skew_s * SECOND)
    assert clocks.nodes_us() <= node_us
    assert clocks.fastest_us() >= node_us
    assert clocks.fastest_us() - clocks.nodes_us() <= 1.5 * SECOND + 1000


def test_an_answer_that_a_paused_process_gets_late_says_nothing(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node may have read its clock at any time meanwhile; rows of a clock that is taken too early look younger."""
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    log.nodes = [Host("a", 5 * SECOND)]
    clocks.sample()
    answer = log.rows

    def late(*given: Any, **named: Any) -> Any:
        told = answer(*given, **named)
        log.clock.advance(20)
        return told

    with monkeypatch.context() as patch:
        patch.setattr(log, "rows", late)
        clocks.sample()
        assert clocks.fastest_us() == pytest.approx(NOW_US + 25 * SECOND, abs=2000)
        fresh = NodeClocks(log, log.clock)  # type: ignore[arg-type]
        fresh.sample()
        assert fresh.skew_us == {}


def test_truncation_to_milliseconds_does_not_count_as_skew(log: FakeLog) -> None:
    log.clock.advance(0.0007)
    log.nodes = [Host("a", 0)]
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    clocks.sample()
    assert clocks.skew_us == {"a": 0}


class Stepping(ManualClock):
    """Its wall clock is *ahead_us* of what passes."""

    ahead_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.ahead_us


def test_a_wall_clock_that_is_set_does_not_set_those_of_the_nodes(log: FakeLog) -> None:
    clock = Stepping(NOW_US)
    log.nodes = [Host("a", 0), Host("b", SECOND)]
    clocks = NodeClocks(log, clock)  # type: ignore[arg-type]
    clocks.sample()
    for step_s in (7200, -7200):
        clock.ahead_us = step_s * SECOND
        assert clocks.has_stepped()
        assert clocks.nodes_us() == pytest.approx(NOW_US, abs=1000)
        assert clocks.fastest_us() == pytest.approx(NOW_US + SECOND, abs=1000)
        assert clocks.slowest_us() == pytest.approx(min(NOW_US, clock.now_us()), abs=1000)
    clock.ahead_us = 0
    assert not clocks.has_stepped()


@pytest.mark.parametrize("sign", [1, -1])
def test_skew_is_logged_once_until_it_is_gone(log: FakeLog, caplog: pytest.LogCaptureFixture, sign: int) -> None:
    caplog.set_level(logging.WARNING)
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    for skew in (2 * sign, 2 * sign, 0, 2 * sign):
        log.nodes = [Host("a", skew * SECOND)]
        clocks.sample()
    assert len(caplog.records) == 2
