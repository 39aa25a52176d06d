"""Trying a call again: which errors, how often, and after which pauses."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from rscylla._retry import Backoff, retry
from rscylla.clock import Stop
from rscylla.errors import ConnectionFailed, QueryFailed, Stopped
from rscylla.testing import ManualClock

EVEN = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=60), jitter=0)

DOWN = ConnectionFailed("no node answers; start one")


class Calls:
    """A function that raises the given errors, one a call, and then returns the number of the call."""

    def __init__(self, *errors: BaseException, takes_s: float = 0.0) -> None:
        self.clock = ManualClock()
        self.made = 0
        self._errors = errors
        self._takes_s = takes_s

    def __call__(self) -> int:
        self.clock.advance(self._takes_s)
        self.made += 1
        if self.made <= len(self._errors):
            raise self._errors[self.made - 1]
        return self.made

    def tried(self, **more: Any) -> int:
        return retry(self, **{"backoff": EVEN, "clock": self.clock, **more})


def test_what_works_at_once_is_called_once() -> None:
    calls = Calls()
    assert calls.tried() == 1
    assert (calls.made, calls.clock.waits) == (1, [])


def test_pauses_grow_with_each_failure() -> None:
    calls = Calls(DOWN, DOWN, DOWN)
    assert calls.tried() == 4
    assert calls.clock.waits == [1, 2, 4]


def test_an_attempt_that_lasted_was_healthy_and_its_failure_is_the_first_again() -> None:
    calls = Calls(DOWN, DOWN, DOWN, takes_s=60)
    calls.tried()
    assert calls.clock.waits == [1, 1, 1]
    calls = Calls(DOWN, DOWN, takes_s=59.9)
    calls.tried()
    assert calls.clock.waits == [1, 2]


def test_after_so_many_attempts_the_last_error_is_raised() -> None:
    last = ConnectionFailed("still none")
    calls = Calls(DOWN, DOWN, last, DOWN)
    with pytest.raises(ConnectionFailed) as caught:
        calls.tried(attempts=3)
    assert caught.value is last
    assert (calls.made, calls.clock.waits) == (3, [1, 2])


@pytest.mark.parametrize("error", [QueryFailed("no such column"), Stopped(), ValueError("x"), KeyboardInterrupt()])
def test_an_error_that_a_retry_cannot_fix_is_raised_at_once(error: BaseException) -> None:
    for before in ([], [DOWN]):
        calls = Calls(*before, error)
        with pytest.raises(type(error)) as caught:
            calls.tried(attempts=9)
        assert caught.value is error
        assert calls.made == len(before) + 1


def test_a_stop_ends_the_pause_and_no_attempt_follows() -> None:
    calls, stop = Calls(DOWN), Stop()
    calls.clock.on_wait = lambda seconds: stop.set()
    with pytest.raises(Stopped):
        calls.tried(stop=stop)
    assert calls.made == 1


def test_without_pauses_a_stop_still_ends_the_attempts() -> None:
    calls, stop = Calls(DOWN), Stop()
    stop.set()
    with pytest.raises(Stopped):
        calls.tried(backoff=None, stop=stop)
    assert (calls.made, calls.clock.waits) == (1, [])


def test_an_attempt_made_before_counts_as_the_first() -> None:
    calls = Calls(DOWN)
    seen: list[tuple[Exception, int, float]] = []
    assert calls.tried(failed=DOWN, attempts=3, waiting=lambda *told: seen.append(told)) == 2
    assert seen == [(DOWN, 1, 1), (DOWN, 2, 2)]
    calls = Calls()
    with pytest.raises(ConnectionFailed):
        calls.tried(failed=DOWN, attempts=1)
    assert calls.made == 0


def test_the_exhausted_function_may_return_the_result() -> None:
    assert Calls(DOWN, DOWN).tried(attempts=2, exhausted=lambda error: (error, "given up")) == (DOWN, "given up")


def test_an_error_before_a_pause_ends_the_attempts() -> None:
    calls = Calls(DOWN)
    spent = RuntimeError("one failure too many")

    def waiting(error: Exception, failures: int, seconds: float) -> None:
        raise spent

    with pytest.raises(RuntimeError) as caught:
        calls.tried(waiting=waiting)
    assert caught.value is spent
    assert (calls.made, calls.clock.waits) == (1, [])


def test_pauses_may_depend_on_the_error() -> None:
    slept: list[float] = []
    calls = Calls(DOWN, ValueError())
    calls.tried(
        again=lambda error: True,
        backoff=lambda error, failures: failures if isinstance(error, ValueError) else 10 * failures,
        sleep=slept.append,
    )
    assert slept == [10, 2]


def test_between_attempts_without_pauses_nothing_waits() -> None:
    calls = Calls(DOWN, DOWN)
    assert calls.tried(backoff=None) == 3
    assert calls.clock.waits == []


def test_a_pause_with_a_callback_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rscylla")
    Calls(DOWN).tried(waiting=lambda *pause: None)
    assert caplog.messages == []
    Calls(DOWN).tried(attempts=5)
    assert caplog.messages == ["no node answers; start one (attempt 1 of 5)"]


def test_an_interrupt_is_never_tried_again() -> None:
    for before in ([], [DOWN]):
        calls = Calls(*before, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            calls.tried(again=lambda error: True)
        assert calls.made == len(before) + 1
