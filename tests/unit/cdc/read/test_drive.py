"""The steps of a walk, taken over scans that answer as a test says."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rscylla.cdc.log import End, Generation, LogWindow, Probe, Read, StreamGroup, Switch, Walk, Width
from rscylla.cdc.read.drive import Drive
from rscylla.cdc.read.scan import TooMuch, TooSlow
from rscylla.driver import Page

OLD, NEW = Generation(0), Generation(100)
END_US = 200_000
SECONDS = 1_000_000


class Rows:
    """A scan of rows at some times. It gives up a window with more than *most*, or longer than *slow_us*."""

    def __init__(self, times: Sequence[int], most: int = 10, slow_us: int | None = None) -> None:
        self._times = times
        self._most = most
        self._slow_us = slow_us
        self.closed = 0
        self.asked: list[tuple[Any, ...]] = []

    def pages(
        self, window: LogWindow, groups: Sequence[StreamGroup], *, whole: bool, most: int | None
    ) -> Generator[Any, None, None]:
        self.asked.append((window.generation, groups, whole, most))
        try:
            if self._slow_us is not None and window.span_us > self._slow_us:
                raise TooSlow
            found = [us for us in self._times if window.start_us <= us < window.end_us]
            for n, us in enumerate(found):
                if n == (most or self._most) and window.can_narrow:
                    raise TooMuch
                yield SimpleNamespace(row_count=1, size=8, us=us)
        finally:
            self.closed += 1

    def first_us(self, window: LogWindow, _groups: Sequence[StreamGroup]) -> int | None:
        return next((us for us in self._times if window.start_us <= us < window.end_us), None)


def drive(scan: Rows, end_us: int, width_us: int, generations: Sequence[Generation] = (OLD,), **how: Any) -> list[int]:
    """Return the times of all rows up to *end_us*, as a reader of whole windows finds them."""
    walk = Walk(generations[0], 0, Width.within(50, 10_000, us=width_us), end_us=end_us)
    taker = Drive(walk, scan, lambda generation: (f"of {generation}",), **how)  # type: ignore[arg-type, return-value]
    found: list[int] = []
    for _ in range(10_000):
        step = taker.walk.next(generations, end_us)
        if isinstance(step, End):
            return found
        before = taker.walk.at_us
        pages: list[Any] = list(taker.take(step))
        assert isinstance(step, Read) or not pages
        if taker.walk.at_us > before:
            found += [page.us for page in pages]
    raise AssertionError("it did not end")


@pytest.mark.parametrize("most", [1, 3, 1000])
@pytest.mark.parametrize("slow_us", [None, 300, 7_000])
def test_each_row_is_found_once_however_little_a_window_may_hold(most: int, slow_us: int | None) -> None:
    times = [*range(0, 900, 90), *range(50_000, 50_040), 199_999]
    scan = Rows(times, most, slow_us)
    assert drive(scan, END_US, width_us=20_000, generations=(OLD, NEW)) == times
    assert {(asked[0], asked[1]) for asked in scan.asked} == {(0, ("of 0",)), (100, ("of 100",))}
    assert scan.closed == len(scan.asked), "also those that were given up"


def test_a_span_without_rows_is_probed_and_a_far_row_found() -> None:
    scan = Rows([3_600 * SECONDS])
    assert drive(scan, 7_200 * SECONDS, width_us=SECONDS) == [3_600 * SECONDS]
    assert len(scan.asked) < 30, "not window by window"


def test_a_window_that_took_too_long_is_remembered_and_one_that_held_too_much_is_not() -> None:
    step = Read(LogWindow(0, 0, 8_000), at_head=False)
    for scan, slow_us in ((Rows([], slow_us=1), 8_000), (Rows(range(100)), None)):
        taker = Drive(Walk(OLD, 0, Width(us=8_000)), scan, lambda _: ())  # type: ignore[arg-type]
        list(taker.take(step))
        assert (taker.walk.at_us, taker.walk.width.us, taker.walk.width.slow_us) == (0, 2_000, slow_us)


def test_a_page_that_shows_what_fits_narrows_the_window_to_that() -> None:
    def check(_page: Page, window: LogWindow) -> None:
        raise TooMuch(window.span_us // 16)

    scan = Rows([1, 2, 3])
    taker = Drive(Walk(OLD, 0, Width(us=8_000)), scan, lambda _: (), check=check)  # type: ignore[arg-type]
    assert list(taker.take(Read(LogWindow(0, 0, 8_000), at_head=False))) == []
    assert (taker.walk.at_us, taker.walk.width.us, scan.closed) == (0, 500, 1)


def test_steps_that_read_nothing_move_the_walk_alone() -> None:
    scan = Rows([150_000])
    taker = Drive(Walk(OLD, 0, Width()), scan, lambda _: (), whole=False)  # type: ignore[arg-type]
    assert list(taker.take(Switch(NEW))) == []
    assert (taker.walk.generation, taker.walk.at_us) == (NEW, NEW.start_us)
    assert list(taker.take(Probe(LogWindow(100, NEW.start_us, END_US), at_head=True))) == []
    assert (taker.walk.at_us, taker.walk.at_head) == (150_000, False)
    list(taker.take(Read(LogWindow(100, 150_000, END_US), at_head=True), most=5))
    assert (taker.walk.at_us, taker.walk.at_head, scan.asked) == (END_US, True, [(100, (), False, 5)])
