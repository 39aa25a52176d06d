"""``Stop`` and ``SystemClock``."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from freezegun import freeze_time

from rscylla import clock
from rscylla.clock import Clock, InnerStop, Stop, SystemClock
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


class Blocker:
    """Replaces a lock: an acquisition that would block is recorded in *happened* and does not block."""

    def __init__(self, happened: list[str]) -> None:
        self._happened = happened
        self._held = False

    def acquire(self, timeout: float = -1) -> bool:
        if self._held:
            self._happened.append("blocked")
        self._held = True
        return True

    def release(self) -> None:
        self._held = False


@pytest.mark.parametrize("what", ["wait", "on_set", "set", "take back"])
def test_a_signal_handler_may_set_it_at_any_point_of_what_its_thread_does(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler runs in the thread that it interrupts, between any two lines of it; here before each in turn."""
    for line in range(1, 100):
        stop = Stop()
        left, happened = line, list[str]()
        take_back = stop.on_set(lambda: happened.append("known"))  # noqa: B023
        monkeypatch.setattr(clock.threading, "Lock", lambda: Blocker(happened))  # type: ignore[attr-defined]  # noqa: B023

        def step(frame: Any, kind: str, arg: Any) -> Any:
            nonlocal left
            if kind == "line" and frame.f_code.co_filename == clock.__file__:
                left -= 1
                if left == 0:
                    sys.settrace(None)
                    happened.append("set")  # noqa: B023
                    stop.set()  # noqa: B023
            return step

        act: dict[str, Callable[[], Any]] = {
            "wait": stop.wait,
            "on_set": lambda: stop.on_set(lambda: happened.append("new")),  # noqa: B023
            "set": stop.set,
            "take back": take_back,
        }
        before = sys.gettrace()
        sys.settrace(step)
        try:
            act[what]()
        finally:
            sys.settrace(before)
        if left > 0:
            assert line > 2, "no line was seen"
            return
        assert happened.count("known") == 1 or (what == "take back" and "known" not in happened), line
        assert happened.count("new") == (what == "on_set"), line
        assert "blocked" not in happened[happened.index("set") :], line
    raise AssertionError("it has more lines than that")


def test_a_signal_that_does_not_wake_the_main_thread_ends_its_wait() -> None:
    """As when another thread takes it, or when it comes just before the main thread blocks."""
    waits, ended, late = threading.Event(), threading.Event(), []

    class Waited(Stop):
        def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
            forget = super().on_set(callback)
            waits.set()
            return forget

    def interrupt() -> None:
        waits.wait(30)
        signal.raise_signal(signal.SIGTERM)  # the system gives it to this thread
        if not ended.wait(10):
            late.append("the main thread did not wake")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    stop = Waited()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        assert stop.wait()
        ended.set()
        thread.join(30)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert late == []


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


def test_a_wait_that_is_over_leaves_nothing_with_the_stop() -> None:
    stop = Stop()
    for seconds in (0, 0.001, -5):
        assert not stop.wait(seconds)
    assert not stop._callbacks, "a service waits for months"


class Asked(Stop):
    """A signal that is set when it is checked, like that of a lease: it runs no callbacks."""

    over = False

    def is_set(self) -> bool:
        return self.over

    def check(self) -> None:
        if self.over:
            raise Stopped


def test_an_inner_stop_asks_the_outer_one() -> None:
    outer = Asked()
    inner = InnerStop(outer)
    inner.check()
    assert not inner.wait(0)
    outer.over = True
    assert inner.is_set()
    assert inner.wait(0)
    with pytest.raises(Stopped):
        inner.check()


def test_an_inner_stop_is_set_with_the_outer_one_and_leaves_it_alone() -> None:
    outer = Stop()
    first, second, called = InnerStop(outer), InnerStop(outer), []
    first.set()
    assert not outer.is_set()
    assert not second.is_set()
    second.on_set(lambda: called.append("second"))
    outer.set()
    assert called == ["second"]
    assert InnerStop(outer).is_set()
    assert not InnerStop(None).is_set()


def nested(depth: int, outer: Stop) -> list[Stop]:
    """Return *depth* signals, each within the next one, the last one of which is *outer*."""
    found = [outer]
    for _ in range(depth - 1):
        found.insert(0, InnerStop(found[0]))
    return found


@pytest.mark.parametrize(("depth", "at"), [(depth, at) for depth in (1, 2, 3) for at in range(depth)])
@pytest.mark.parametrize("own_check", [False, True], ids=["plain", "own check"])
def test_a_checker_asks_each_signal_even_if_its_callbacks_did_not_run_yet(depth: int, at: int, own_check: bool) -> None:
    signals = nested(depth, Asked() if own_check else Stop())
    check = signals[0].checker()
    check()
    signal = signals[at]
    if isinstance(signal, Asked):
        signal.over = True
    else:
        signal._set = True
    with pytest.raises(Stopped):
        check()


def test_an_inner_stop_that_is_done_is_not_kept_by_the_outer_one() -> None:
    outer = Stop()
    inner = InnerStop(outer)
    inner.forget()
    gone = weakref.ref(inner)
    del inner
    gc.collect()
    assert gone() is None


def test_a_signal_within_another_one_asks_it_when_a_wait_ends() -> None:
    """The signal of a lease reports that it is set before its callbacks run."""

    class Lapsed(Stop):
        def is_set(self) -> bool:
            return True

    inner = InnerStop(Lapsed())
    assert inner.wait(0.0)
    assert inner.is_set()


def test_a_signal_within_another_one_follows_it_until_it_forgets_it() -> None:
    outer = Stop()
    first, second = InnerStop(outer), InnerStop(outer)
    first.set()
    assert not outer.is_set(), "it is set by itself alone"
    called: list[int] = []
    second.on_set(lambda: called.append(1))
    second.forget()
    outer.set()
    assert called == []
    assert second.is_set(), "asked, it still says so"
