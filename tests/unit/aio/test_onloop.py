"""``on_loop``: threads that call a coroutine function, and what a stop, a cancellation, and a lost loop do to them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from memorygroups import MemoryGroupTable, MemoryMembership
from prometheus_client import CollectorRegistry

import rscylla
from rscylla import (
    ConfigError,
    Consumer,
    HeadReached,
    RscyllaError,
    RunError,
    SimpleEvent,
    Spec,
    Stop,
    Stopped,
    StreamToHead,
    aio,
)
from rscylla.reflex.telemetry.logs import LaneFilter
from rscylla.testing import FakeCursorStore, FakeStream
from tests.support.drivenclock import PATIENCE_S, DrivenClock, until

EVENTS = [SimpleEvent(f"e{number}") for number in range(5)]
IDS = [event.id for event in EVENTS]


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="loop")
        self.thread.start()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)

    def close(self) -> None:
        if self.thread.is_alive():
            self.stop()
        if not self.loop.is_closed():
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()


@pytest.fixture
def home() -> Iterator[Loop]:
    home = Loop()
    yield home
    home.close()


def spec(fn: Callable[[Any, Any], None], store: Any = None, *options: Any) -> Spec:
    registry = CollectorRegistry()
    consumer = Consumer("billing", fn, registry=registry)
    return Spec(FakeStream(EVENTS), store or FakeCursorStore(), consumer, *options, registry=registry)


def ran(made: Spec, stop: Stop) -> threading.Thread:
    thread = threading.Thread(target=rscylla.run_forever, args=(made,), kwargs={"stop": stop})
    thread.start()
    return thread


def test_a_coroutine_handles_the_events_of_a_thread_in_order(home: Loop) -> None:
    got, threads = [], set()

    async def fn(event: Any, run: Any) -> None:
        await asyncio.sleep(0)
        got.append(event.id)
        threads.add(threading.current_thread())

    with pytest.raises(HeadReached):
        rscylla.run(spec(aio.on_loop(fn, home.loop), None, StreamToHead()))
    assert got == IDS
    assert threads == {home.thread}


def test_its_error_is_that_of_the_consumer(home: Loop) -> None:
    async def fn(event: Any, run: Any) -> None:
        await asyncio.sleep(0)
        raise KeyError("price")

    store = FakeCursorStore()
    with pytest.raises(RunError, match="e0") as raised:
        rscylla.run(spec(aio.on_loop(fn, home.loop), store, StreamToHead()))
    assert isinstance(raised.value.__cause__, KeyError)
    assert store.durable == {}


def test_the_loop_of_the_caller_is_the_default() -> None:
    async def main() -> list[str]:
        got = []

        async def fn(event: Any, run: Any) -> None:
            got.append(event.id)

        made = spec(aio.on_loop(fn), None, StreamToHead())
        await asyncio.to_thread(rscylla.run_forever, made)
        return got

    assert asyncio.run(main()) == IDS


def test_at_most_so_many_calls_run_at_the_same_time(home: Loop) -> None:
    running, peak, release = 0, [], threading.Event()

    async def fn(event: Any, run: Any) -> None:
        nonlocal running
        running += 1
        peak.append(running)
        while not release.is_set():
            await asyncio.sleep(0.001)
        running -= 1

    call, stop = aio.on_loop(fn, home.loop, most=2), Stop()
    threads = [ran(spec(call, None, StreamToHead()), stop) for _ in range(4)]
    until(lambda: len(peak) == 2, "two calls run")
    release.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(peak) == 4 * len(EVENTS)
    assert max(peak) == 2


def test_a_call_that_waits_for_its_turn_does_not_begin_after_a_stop(home: Loop) -> None:
    """The slice may have another holder by then."""
    begun, release, stop, store = threading.Event(), threading.Event(), Stop(), FakeCursorStore()
    handled: list[str] = []

    async def fn(event: Any, run: Any) -> None:
        handled.append(run.consumer)
        begun.set()
        while not release.is_set():
            await asyncio.sleep(0.001)

    call = aio.on_loop(fn, home.loop, most=1)
    first = ran(spec(call, FakeCursorStore(), StreamToHead()), Stop())
    assert begun.wait(PATIENCE_S)
    waiting = FakeStream(EVENTS)
    second = ran(Spec(waiting, store, named("shipping", call), StreamToHead(), registry=CollectorRegistry()), stop)
    until(lambda: waiting_calls(home) == 2, "the second call waits")
    stop.set()
    release.set()
    second.join(PATIENCE_S)
    first.join(PATIENCE_S)
    assert handled == ["billing"] * len(EVENTS)
    assert store.durable == {}


def named(name: str, call: Any) -> Consumer:
    return Consumer(name, call, registry=CollectorRegistry())


def waiting_calls(home: Loop) -> int:
    """Return how many coroutines there are in the loop."""

    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    return asyncio.run_coroutine_threadsafe(count(), home.loop).result(PATIENCE_S)


def test_on_a_stop_the_current_event_is_finished(home: Loop) -> None:
    begun, release, stop, store = threading.Event(), threading.Event(), Stop(), FakeCursorStore()

    async def fn(event: Any, run: Any) -> None:
        begun.set()
        while not release.is_set():
            await asyncio.sleep(0.001)

    thread = ran(spec(aio.on_loop(fn, home.loop), store), stop)
    assert begun.wait(PATIENCE_S)
    stop.set()
    release.set()
    thread.join(PATIENCE_S)
    assert store.durable == {"billing": "e0"}


def test_what_does_not_end_in_time_is_cancelled_and_its_event_is_not_done(home: Loop) -> None:
    begun, stop, store, ended = threading.Event(), Stop(), FakeCursorStore(), []

    async def fn(event: Any, run: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(event.id)

    errors: list[Exception] = []
    made = spec(aio.on_loop(fn, home.loop, grace=timedelta()), store)
    thread = threading.Thread(
        target=rscylla.run_forever, args=(made,), kwargs={"stop": stop, "on_error": errors.append}
    )
    thread.start()
    assert begun.wait(PATIENCE_S)
    stop.set()
    thread.join(PATIENCE_S)
    assert ended == ["e0"]  # before the run ended
    assert store.durable == {}
    assert made.series.counts["errors"] == 0
    assert not [error for error in errors if not isinstance(error.__cause__, Stopped)]


def test_a_cancellation_by_other_code_is_an_error_that_a_retry_may_help(home: Loop) -> None:
    async def fn(event: Any, run: Any) -> None:
        raise asyncio.CancelledError

    with pytest.raises(RunError, match="was cancelled, but its run was not stopped") as raised:
        rscylla.run(spec(aio.on_loop(fn, home.loop)))
    assert isinstance(raised.value.__cause__, RscyllaError)
    assert raised.value.resumable


@pytest.mark.parametrize("closed", [True, False])
def test_a_loop_that_has_ended_is_an_error_and_no_hang(home: Loop, closed: bool) -> None:
    async def fn(event: Any, run: Any) -> None:
        raise AssertionError("never called")

    home.stop()
    if closed:
        home.loop.close()
    with pytest.raises(RunError, match="closed" if closed else "does not run"):
        rscylla.run(spec(aio.on_loop(fn, home.loop)))


def test_the_thread_of_the_loop_does_not_wait_for_itself() -> None:
    async def fn(event: Any, run: Any) -> None: ...

    async def main() -> None:
        rscylla.run(spec(aio.on_loop(fn)))

    with pytest.raises(RunError, match="would wait for itself"):
        asyncio.run(main())


def test_what_it_is_given_is_checked(home: Loop) -> None:
    async def fn(event: Any, run: Any) -> None: ...

    with pytest.raises(ConfigError, match="not a coroutine function"):
        aio.on_loop(lambda event, run: None, home.loop)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match="at least 1"):
        aio.on_loop(fn, home.loop, most=0)
    with pytest.raises(ConfigError, match="negative"):
        aio.on_loop(fn, home.loop, grace=timedelta(seconds=-1))
    with pytest.raises(ConfigError, match="pass the loop"):
        aio.on_loop(fn)


def test_records_that_it_logs_name_the_lane(home: Loop) -> None:
    import logging

    found: list[Any] = []

    async def fn(event: Any, run: Any) -> None:
        record = logging.LogRecord("shop", logging.INFO, __file__, 1, "x", None, None)
        LaneFilter().filter(record)
        found.append((record.__dict__["consumer"], record.__dict__["event_id"]))

    rscylla.run_forever(spec(aio.on_loop(fn, home.loop), None, StreamToHead()))
    assert found == [("billing", one) for one in IDS]


def test_coroutines_and_batches_of_them_run_in_a_group(home: Loop) -> None:
    clock = DrivenClock()
    table, store, registry = MemoryGroupTable(clock), FakeCursorStore(), CollectorRegistry()
    got: list[tuple[str, str]] = []
    lock = threading.Lock()

    class Sliced:
        def sliced(self, index: int, count: int) -> FakeStream:
            return FakeStream([SimpleEvent("e1"), SimpleEvent("e2")], clock=clock)

    async def one(event: Any, run: Any) -> None:
        await asyncio.sleep(0)
        with lock:
            got.append(("one", event.id))

    async def many(events: Any, run: Any) -> None:
        await asyncio.sleep(0)
        with lock:
            got.extend(("many", event.id) for event in events)

    def make(name: str) -> Consumer:
        return Consumer(name, aio.on_loop(one, home.loop), registry=registry, clock=clock)

    def batches(name: str) -> Any:
        return rscylla.batch(name, aio.on_loop(many, home.loop), size=2, registry=registry, clock=clock)

    lanes = [
        rscylla.group_lanes(name, Sliced(), store, made, clock=clock, registry=registry)
        for name, made in (("billing", make), ("audit", batches))
    ]
    group = rscylla.Group(MemoryMembership("shop", table, slices=4), *lanes)
    with rscylla.Service(group=group, registry=registry, clock=clock):
        until(lambda: len(got) == 16, "all events", lambda: clock.step(0.25, ("rscylla-group", "rscylla-lease")))
    assert sorted(got) == sorted([("one", "e1"), ("one", "e2"), ("many", "e1"), ("many", "e2")] * 4)
    assert store.durable == {f"{name}[{index}/4]": "e2" for name in ("billing", "audit") for index in range(4)}
