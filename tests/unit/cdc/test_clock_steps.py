"""The client's own clock is wrong, or steps, while the nodes' are right: nothing is lost, nothing spins."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from fakelog import NOW_US, SECOND, FakeLog, Host, Written, stream_id

from rscylla.cdc.stream import Stream
from rscylla.clock import Stop
from rscylla.errors import CursorExpired
from rscylla.event import EventID, Progress, cursor_key
from rscylla.options import StreamLag, StreamToHead

HOUR = 3600 * SECOND
LAG = StreamLag(seconds=30)
STEPS_S = [-600, -2, 2, 300, 7200, 90_000]


@attrs.define
class ClientClock:
    """The client's clock: *ahead_us* of that of the nodes. Its monotonic part takes no part in steps."""

    nodes: Any
    ahead_us: int = 0

    def now_us(self) -> int:
        return int(self.nodes.now_us()) + self.ahead_us

    def monotonic(self) -> float:
        return float(self.nodes.monotonic())

    def wait(self, stop: Stop, seconds: float) -> bool:
        return bool(self.nodes.wait(stop, seconds))


class Run:
    """A reader of a table to which a row is written each second, while its streams change every 40 seconds.

    Generations become visible 30 seconds before they start, as from a node that joins (where it is 65).
    """

    def __init__(self, log: FakeLog, *, ahead_s: float = 0) -> None:
        self.log = log
        self.clock = ClientClock(log.clock, round(ahead_s * SECOND))
        self.start_us = log.clock.now_us()
        log.generation(self.start_us - HOUR, [stream_id(n, n) for n in range(3)])
        log.nodes = [Host("a"), Host("b")]
        # The nodes return their own time, whatever the client's clock is.
        self.rows: list[Written] = []
        self.at_second: dict[int, Callable[[], None]] = {}
        self.second = 0
        log.clock.on_wait = self._go_on
        self.got: list[str] = []
        self.cursors: list[str] = []

    def step(self, by_s: float) -> None:
        self.clock.ahead_us += round(by_s * SECOND)

    def _go_on(self, _: float) -> None:
        passed = (self.log.clock.now_us() - self.start_us) // SECOND
        while self.second <= passed:
            self._one_second(self.second)
            self.second += 1

    def _one_second(self, second: int) -> None:
        at = self.start_us + second * SECOND
        if second % 40 == 10:
            later = second + 30
            self.log.generation(self.start_us + later * SECOND, [stream_id(n, n, later) for n in range(3)])
        self.at_second.pop(second, lambda: None)()
        self.rows.append(self.log.write(at, at=second))

    def read(self, seconds: int, after: str = "") -> None:
        """Read until all that was written in the first *seconds* was delivered."""
        client = Stream(self.log, "ks", "t", clock=self.clock, prefetch=0)(after, LAG)  # type: ignore[arg-type]
        for _ in range(60 * seconds):
            got = client.recv()
            cursor = got.cursor if isinstance(got, Progress) else got.id
            self.cursors.append(cursor)
            if not isinstance(got, Progress):
                self.got.append(cursor)
            if EventID.parse(cursor).exact_us >= self.start_us + seconds * SECOND:
                return
        raise AssertionError("it does not come to an end")

    def check(self, seconds: int) -> None:
        wanted = [r for r in self.rows if r.us < self.start_us + seconds * SECOND]
        names = []
        for text in self.got:
            i = EventID.parse(text)
            names.append((i.stream_id, i.stream_time, i.seq))
        expected = sorted(wanted, key=lambda w: w.order)
        assert names[: len(expected)] == [(w.stream, w.time, w.seq) for w in expected], "lost, or out of order"
        assert len(expected) >= seconds
        keys = [cursor_key(c) for c in self.cursors]
        assert keys == sorted(keys), "no cursor moves back"
        assert all(0 < w <= 60 for w in self.log.clock.waits), "no wait is negative, or forgets the time"


@pytest.mark.parametrize("ahead_s", STEPS_S)
def test_a_client_clock_that_is_wrong_all_the_time_loses_nothing(log: FakeLog, ahead_s: float) -> None:
    run = Run(log, ahead_s=ahead_s)
    run.read(200)
    run.check(200)


@pytest.mark.parametrize("by_s", STEPS_S)
@pytest.mark.parametrize("at", [61, 100])
def test_a_client_clock_that_steps_loses_nothing(log: FakeLog, by_s: float, at: int) -> None:
    run = Run(log)
    run.at_second[at] = lambda: run.step(by_s)
    run.read(300)
    run.check(300)


@pytest.mark.parametrize("by_s", STEPS_S)
def test_a_client_clock_that_was_wrong_and_is_set_right_loses_nothing(log: FakeLog, by_s: float) -> None:
    run = Run(log, ahead_s=by_s)
    run.at_second[150] = lambda: run.step(-by_s)
    run.read(300)
    run.check(300)


def test_a_clock_that_stepped_back_is_waited_for_without_asking_the_log(
    log: FakeLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    run = Run(log)
    run.read(60)
    log.asked.clear()
    log.metadata.clear()
    asked_at: list[int] = []
    run.at_second[120] = lambda: run.step(-600)
    run.at_second[130] = log.asked.clear
    run.at_second[600] = lambda: asked_at.append(len(log.asked))
    run.read(720, run.cursors[-1])
    run.check(720)
    assert asked_at == [0], "nothing is read that was read before"
    told = [r.message for r in caplog.records if "ahead of the slowest clock" in r.message]
    assert len(told) == 1
    # Metadata is still read every 15 s, and no more often: 44 times in 660 s.
    looks = sum("FROM system_schema.dropped_columns" in cql for cql in log.metadata)
    assert 44 <= looks < 140


def test_a_step_is_met_with_a_look_at_the_nodes_clocks(log: FakeLog) -> None:
    run = Run(log)
    client = Stream(log, "ks", "t", clock=run.clock, prefetch=0)("", LAG)  # type: ignore[arg-type]
    client.recv()
    log.metadata.clear()
    for by_s in (7200, -300, -7200):
        run.step(by_s)
        client._feed.take()
        assert any("now()" in cql for cql in log.metadata), "no need to wait for the next look that is due"
        log.metadata.clear()
        client._feed.take()
        assert not any("now()" in cql for cql in log.metadata)


def test_a_wrong_client_clock_makes_no_cursor_expire(log: FakeLog) -> None:
    """What the log keeps is decided by the nodes' clocks."""
    log.ttl_s = 600
    for ahead_s in (-90_000, 90_000):
        run = Run(log, ahead_s=ahead_s)
        cursor = str(EventID((run.start_us - HOUR) // 1000, run.start_us - 500 * SECOND))
        row = log.write(run.start_us - 400 * SECOND)
        client = Stream(log, "ks", "t", clock=run.clock, prefetch=0)(cursor, LAG)  # type: ignore[arg-type]
        if ahead_s > 0:
            got = client.recv()
            assert not isinstance(got, Progress)
            assert got.timestamp_us == row.us
        old = str(EventID((run.start_us - HOUR) // 1000, run.start_us - 700 * SECOND))
        with pytest.raises(CursorExpired):
            Stream(log, "ks", "t", clock=run.clock, prefetch=0)(old, LAG, StreamToHead())  # type: ignore[arg-type]
        log.written.clear()


def test_nodes_that_are_all_away_for_a_while_leave_no_window_to_a_wrong_client_clock(log: FakeLog) -> None:
    """A driver that believes all nodes to be down names none; the first query that gets through must not read ahead."""
    run = Run(log, ahead_s=7200)
    nodes = log.nodes
    run.at_second[100] = lambda: setattr(log, "nodes", [])
    run.at_second[130] = lambda: setattr(log, "nodes", nodes)
    run.read(200)
    run.check(200)


def test_slow_clock_answers_do_not_open_a_stream_by_a_wrong_client_clock(log: FakeLog) -> None:
    run = Run(log, ahead_s=7200)
    told = log.nodes
    asked = 0

    def answer(cql: str) -> None:
        nonlocal asked
        asked += "now()" in cql
        log.nodes = told if asked > 2 else [Host("a", None), Host("b", None)]

    log.nodes = [Host("a", None), Host("b", None)]
    log.on_rows = answer  # type: ignore[assignment]
    run.read(60)
    run.check(60)
    assert asked > 2


def test_without_an_answer_of_any_node_the_clients_clock_is_all_there_is(log: FakeLog) -> None:
    run = Run(log)
    log.nodes = [Host("a", None)]
    run.read(100)
    run.check(100)
    assert log.clock.now_us() >= NOW_US
