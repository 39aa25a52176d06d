"""``Stop`` and ``SystemClock``."""

from __future__ import annotations

import signal
import threading
from datetime import UTC, datetime

import pytest
from freezegun import freeze_time

from rscylla.clock import Clock, Stop, SystemClock
from rscylla.errors import Stopped


def test_a_stop_stays_set() -> None:
    stop = Stop()
    stop.check()
    assert not stop.is_set()
    stop.set()
    stop.set()
    assert (stop.is_set(), stop.wait(), stop.wait(0)) == (True, True, True)
    with pytest.raises(Stopped):
        stop.check()


def test_an_unset_stop_is_not_waited_for_longer_than_asked() -> None:
    assert not Stop().wait(0.001)
    assert not Stop().wait(0)


def test_set_wakes_all_that_wait() -> None:
    stop = Stop()
    ready, woken = threading.Barrier(4), []

    def waiter() -> None:
        ready.wait(30)
        woken.append(stop.wait(30))

    threads = [threading.Thread(target=waiter) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait(30)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert woken == [True, True, True]


def test_callbacks_are_called_once_each_in_order() -> None:
    stop, called = Stop(), []
    for name in "abc":
        stop.on_set(lambda name=name: called.append(name))  # type: ignore[misc]
    assert called == []
    stop.set()
    stop.set()
    assert called == ["a", "b", "c"]


def test_a_callback_of_a_stop_that_is_set_is_called_at_once() -> None:
    stop, called = Stop(), []
    stop.set()
    take_back = stop.on_set(lambda: called.append(1))
    take_back()
    stop.set()
    assert called == [1]


def test_a_callback_that_was_taken_back_is_not_called() -> None:
    stop, called = Stop(), []
    take_back = stop.on_set(lambda: called.append("gone"))
    stop.on_set(lambda: called.append("kept"))
    take_back()
    take_back()
    stop.set()
    take_back()
    assert called == ["kept"]


def test_a_callback_sees_the_stop_set_and_may_add_another() -> None:
    stop, seen = Stop(), []

    def callback() -> None:
        seen.append(stop.is_set())
        stop.on_set(lambda: seen.append(True))

    stop.on_set(callback)
    stop.set()
    assert seen == [True, True]


def test_a_signal_handler_may_set_it_while_a_callback_is_added() -> None:
    """The handler runs in the thread that it interrupts, which may hold the lock."""
    stop, called = Stop(), []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: stop.set())
    try:
        with stop._lock:
            signal.raise_signal(signal.SIGUSR1)
        stop.on_set(lambda: called.append(1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert called == [1]


def test_the_system_clock_is_a_clock_and_counts_microseconds_since_the_epoch() -> None:
    clock: Clock = SystemClock()
    assert isinstance(clock, Clock)
    with freeze_time("2026-11-21T12:00:00.5"):
        assert clock.now_us() == int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()) * 1_000_000 + 500_000


def test_the_monotonic_clock_does_not_step_back() -> None:
    clock = SystemClock()
    times = [clock.monotonic() for _ in range(1000)]
    assert times == sorted(times)


def test_the_system_clock_waits_for_the_stop() -> None:
    clock, stop = SystemClock(), Stop()
    assert not clock.wait(stop, 0.001)
    assert not clock.wait(stop, -5), "a time that has passed is no wait"
    stop.set()
    assert clock.wait(stop, 3600)
