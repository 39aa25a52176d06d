"""Tests of ``rscylla.aio``: events by ``async for``, async consumers, and cancellation at each place that awaits."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry

import rscylla
from rscylla import (
    Backoff,
    ConfigError,
    Event,
    Fate,
    HeadReached,
    Progress,
    RunError,
    SimpleEvent,
    Spec,
    Stop,
    Stopped,
    StreamToHead,
    aio,
)
from rscylla.errors import FateError
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, ScriptedFate

T = TypeVar("T")
LONG_S = 60.0


def event(number: int) -> Event:
    return SimpleEvent(f"e{number}", 2, f'{{"id":{number}}}')


EVENTS = [event(i) for i in range(5)]
IDS = [e.id for e in EVENTS]


def asynchronously(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run *work* on a loop of its own; the test fails if that takes a minute."""

    async def bounded() -> T:
        async with asyncio.timeout(LONG_S):
            return await work()

    return asyncio.run(bounded())


async def until(ready: Callable[[], bool]) -> None:
    """Yield to other tasks until *ready*."""
    while not ready():
        await asyncio.sleep(0.001)


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("rscylla-aio")]


def no_threads_left() -> bool:
    """Wait for threads that are about to end; return whether all have ended."""
    for thread in ours():
        thread.join(LONG_S)
    return not ours()


class Bench:
    """A stream, a store and an async consumer."""

    def __init__(self, fn: Callable[[Event, Any], Awaitable[None]] | None = None, **options: Any) -> None:
        self.got: list[str] = []
        self.stream = FakeStream(EVENTS)
        self.store = FakeCursorStore()
        self.registry = CollectorRegistry()
        self.clock = ManualClock()
        self.fn = fn
        self.fate = ScriptedFate()
        self.consumer = aio.Consumer("billing", self.consume, registry=self.registry, clock=self.clock, **options)

    async def consume(self, event: Event, fate: Fate) -> None:
        if self.fn is not None:
            await self.fn(event, fate)
        await asyncio.sleep(0)
        self.got.append(event.id)

    def spec(self, *options: Any) -> Spec:
        return Spec(self.stream, self.store, self.consumer, *options, clock=self.clock, fate=self.fate)

    def value(self, name: str) -> float | None:
        return self.registry.get_sample_value(name, {"consumer_name": "billing"})


# ---------------------------------------------------------------- async for


def test_events_come_in_order_and_end_at_the_head() -> None:
    async def main() -> list[str]:
        return [e.id async for e in aio.events(FakeStream(EVENTS), StreamToHead())]

    assert asynchronously(main) == IDS
    assert no_threads_left()


def test_an_event_is_done_when_the_next_is_asked_for() -> None:
    store = FakeCursorStore()

    async def main() -> None:
        async with aio.events(FakeStream(EVENTS), store=store, name="billing") as feed:
            async for e in feed:
                if e.id == "e2":
                    break

    asynchronously(main)
    assert store.durable == {"billing": "e1"}


def test_commit_makes_the_current_event_durable_at_once() -> None:
    store = FakeCursorStore(buffered=True)

    async def main() -> None:
        async with aio.events(FakeStream(EVENTS), store=store, name="billing") as feed:
            async for e in feed:
                if e.id == "e2":
                    await feed.commit()
                    assert store.durable == {"billing": "e2"}
                    await feed.commit()
                    break

    asynchronously(main)
    assert store.durable == {"billing": "e2"}


def test_a_commit_that_fails_says_so() -> None:
    store = FakeCursorStore()
    store.fail("flush", OSError("down"))

    async def main() -> None:
        async with aio.events(FakeStream(EVENTS), store=store, name="billing") as feed:
            await anext(feed)
            await feed.commit()

    with pytest.raises(RunError) as caught:
        asynchronously(main)
    assert (caught.value.stage, type(caught.value.__cause__)) == ("flush", OSError)


def test_a_new_iteration_continues_where_the_last_one_was() -> None:
    stream, store = FakeStream(EVENTS), FakeCursorStore()

    async def main() -> list[str]:
        async with aio.events(stream, store=store, name="billing") as feed:
            first = [(await anext(feed)).id, (await anext(feed)).id]
        async with aio.events(stream, StreamToHead(), store=store, name="billing") as feed:
            return first + [e.id async for e in feed]

    assert asynchronously(main) == ["e0", "e1", "e1", "e2", "e3", "e4"]
    assert store.durable == {"billing": "e4"}


def test_an_event_that_the_body_failed_on_is_the_first_of_the_next_loop() -> None:
    store, got, failures = FakeCursorStore(), list[str](), [ValueError("no"), ValueError("again")]

    async def main() -> None:
        async with aio.events(FakeStream(EVENTS), StreamToHead(), store=store, name="billing") as feed:
            for _ in range(3):
                try:
                    async for e in feed:
                        if e.id == "e2" and failures:
                            raise failures.pop()
                        got.append(e.id)
                except ValueError:
                    await until(lambda: store.durable == {"billing": "e1"})

    asynchronously(main)
    assert (got, store.durable) == (IDS, {"billing": "e4"})


def test_a_loop_after_a_commit_continues_with_the_next_event() -> None:
    async def main() -> list[str]:
        got = []
        async with aio.events(FakeStream(EVENTS), StreamToHead()) as feed:
            async for e in feed:
                got.append(e.id)
                if e.id == "e1":
                    await feed.commit()
                    break
            return got + [e.id async for e in feed]

    assert asynchronously(main) == IDS


def test_a_loop_that_begins_after_the_stop_leaves_the_current_event() -> None:
    stop, store = Stop(), FakeCursorStore()

    async def main() -> list[Event]:
        async with aio.events(FakeStream(EVENTS), store=store, name="billing", stop=stop) as feed:
            async for e in feed:
                if e.id == "e2":
                    break
            stop.set()
            return [e async for e in feed]

    assert asynchronously(main) == []
    assert store.durable == {"billing": "e1"}


def test_an_error_that_was_raised_is_not_raised_again_where_the_block_ends() -> None:
    stream = FakeStream(EVENTS)
    stream.fail("recv", rscylla.QueryTimeout("slow"), index=2)

    async def main() -> None:
        async with aio.events(stream) as feed:
            with pytest.raises(RunError):
                async for _ in feed:
                    pass

    asynchronously(main)


def test_events_that_are_dropped_leave_nothing_at_the_stop_signal() -> None:
    stop = Stop()

    async def main() -> None:
        for _ in range(3):
            feed = aio.events(FakeStream(EVENTS), stop=stop)
            await anext(feed)
            del feed
            gc.collect()
        await until(lambda: not ours())

    asynchronously(main)
    assert stop._callbacks == {}


def test_progress_moves_the_cursor_without_an_event() -> None:
    store = FakeCursorStore()

    async def main() -> None:
        stream = FakeStream([*EVENTS, Progress("p", 5)])
        assert len([e async for e in aio.events(stream, StreamToHead(), store=store, name="billing")]) == 5

    asynchronously(main)
    assert store.durable == {"billing": "p"}


def test_a_slow_body_holds_the_stream_back() -> None:
    """No more is read than the buffer holds."""
    stream = FakeStream([event(i) for i in range(100)])
    handed: list[int] = []

    async def main() -> None:
        async with aio.events(stream, StreamToHead(), buffer=10, store=FakeCursorStore(), name="n") as feed:
            async for _ in feed:
                handed.append(len(handed))
                client = feed._bridge._work
                assert client is None or len(client.in_flight._entries) <= 10
                await asyncio.sleep(0)

    asynchronously(main)
    assert len(handed) == 100


def test_errors_of_the_source_are_those_of_run() -> None:
    stream = FakeStream(EVENTS)
    stream.fail("recv", rscylla.QueryTimeout("slow"), index=2)
    got: list[str] = []

    async def main() -> None:
        async for e in aio.events(stream):
            await asyncio.sleep(0.001)  # the thread fails long before
            got.append(e.id)

    with pytest.raises(RunError) as caught:
        asynchronously(main)
    assert (caught.value.stage, type(caught.value.__cause__)) == ("recv", rscylla.QueryTimeout)
    assert got == ["e0", "e1"]


def test_a_cursor_that_cannot_be_saved_ends_the_iteration() -> None:
    store = FakeCursorStore()
    store.fail("set_cursor", OSError("down"))

    async def main() -> None:
        async for _ in aio.events(FakeStream(EVENTS), store=store, name="billing"):
            pass

    with pytest.raises(RunError) as caught:
        asynchronously(main)
    assert (caught.value.stage, store.durable) == ("set_cursor", {})


def test_the_stop_signal_ends_the_iteration_and_all_is_saved() -> None:
    stop, store = Stop(), FakeCursorStore()

    async def main() -> None:
        async for e in aio.events(FakeStream(EVENTS), store=store, name="billing", stop=stop):
            if e.id == "e4":
                asyncio.get_running_loop().call_soon(stop.set)

    asynchronously(main)
    assert store.durable == {"billing": "e4"}


def test_closed_events_are_at_an_end_and_can_be_closed_again() -> None:
    async def main() -> None:
        feed = aio.events(FakeStream(EVENTS))
        await feed.aclose()
        assert [e async for e in feed] == []
        other = aio.events(FakeStream(EVENTS))
        await anext(other)
        await other.aclose()
        await other.aclose()
        assert [e async for e in other] == []

    asynchronously(main)


def test_two_tasks_cannot_ask_at_once() -> None:
    async def main() -> None:
        async with aio.events(FakeStream()) as feed:
            asking = asyncio.create_task(_ask(feed))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task"):
                await anext(feed)
            asking.cancel()

    asynchronously(main)


async def _ask(feed: aio.Events) -> Event:
    return await anext(feed)


def test_another_loop_is_refused_and_does_not_count_the_event_as_done() -> None:
    store = FakeCursorStore()
    feed = aio.events(FakeStream(EVENTS), store=store, name="billing")
    assert asynchronously(lambda: _ask(feed)).id == "e0"
    for ask in (lambda: _ask(feed), feed.commit, feed.aclose):
        with pytest.raises(RuntimeError, match="belong to the event loop where they were opened"):
            asynchronously(ask)
    assert no_threads_left()  # it was closed all the same
    assert store.durable == {}


def test_being_cancelled_while_waiting_loses_nothing() -> None:
    stream, store = FakeStream(), FakeCursorStore()

    async def main() -> list[str]:
        got: list[str] = []
        async with aio.events(stream, store=store, name="billing") as feed:
            for e in EVENTS:
                asking = asyncio.create_task(_ask(feed))
                await asyncio.sleep(0)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                stream.append(e)
                got.append((await anext(feed)).id)
        return got

    assert asynchronously(main) == IDS
    assert store.durable == {"billing": "e3"}


class Held(FakeCursorStore):
    """A store whose writes wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go = threading.Event(), threading.Event()

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self.entered.set()
        assert self.go.wait(LONG_S)
        super().set_cursor(consumer, cursor)


@pytest.mark.parametrize("times", [1, 3])
def test_being_cancelled_while_the_block_ends_saves_what_is_done(times: int) -> None:
    """So ends ``asyncio.timeout`` around the block."""
    store = Held()

    async def body() -> None:
        async with aio.events(FakeStream(EVENTS), store=store, name="billing") as feed:
            await anext(feed)
            await anext(feed)

    async def main() -> None:
        task = asyncio.create_task(body())
        await until(store.entered.is_set)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        store.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert store.durable == {"billing": "e0"}

    asynchronously(main)
    assert no_threads_left()


def test_a_run_that_is_cancelled_again_while_it_closes_saves_what_is_done() -> None:
    bench, store = Bench(), Held()
    bench.store = store

    async def main() -> None:
        task = asyncio.create_task(aio.run(bench.spec()))
        await until(store.entered.is_set)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        store.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert store.durable["billing"] == bench.got[-1]

    asynchronously(main)


def test_being_cancelled_in_the_body_leaves_the_event_to_the_next_run() -> None:
    stream, store = FakeStream(EVENTS), FakeCursorStore()
    reached = asyncio.Event()

    async def work() -> None:
        async with aio.events(stream, store=store, name="billing") as feed:
            async for e in feed:
                if e.id == "e3":
                    reached.set()
                    await asyncio.sleep(LONG_S * 10)

    async def main() -> None:
        task = asyncio.create_task(work())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (stream.closed, no_threads_left()) == (1, True)

    asynchronously(main)
    assert store.durable == {"billing": "e2"}


def test_events_that_are_dropped_are_closed_in_the_background() -> None:
    stream, store = FakeStream(EVENTS), FakeCursorStore()

    async def main() -> None:
        feed = aio.events(stream, store=store, name="billing")
        await anext(feed)
        await anext(feed)
        del feed
        gc.collect()
        await until(lambda: not ours())

    asynchronously(main)
    assert (stream.closed, store.durable) == (1, {"billing": "e0"})


def test_a_blocking_store_does_not_block_the_loop() -> None:
    held = threading.Event()

    class Slow(FakeCursorStore):
        def set_cursor(self, consumer: str, cursor: str) -> None:
            assert held.wait(LONG_S)
            super().set_cursor(consumer, cursor)

    store = Slow()

    async def main() -> list[str]:
        got = []
        async with aio.events(FakeStream(EVENTS), StreamToHead(), store=store, name="billing") as feed:
            async for e in feed:
                got.append(e.id)
                if e.id == "e4":
                    held.set()
        return got

    assert asynchronously(main) == IDS
    assert store.durable == {"billing": "e4"}
    assert len(store.writes) <= 2  # one that was held, then the newest


def test_wrong_arguments_of_events_are_refused() -> None:
    with pytest.raises(ConfigError, match="name="):
        aio.events(FakeStream(), store=FakeCursorStore())
    with pytest.raises(ConfigError, match="does not go with after="):
        aio.events(FakeStream(), store=FakeCursorStore(), name="billing", after="e1")
    with pytest.raises(ConfigError, match="buffer"):
        aio.events(FakeStream(), buffer=0)


# ---------------------------------------------------------------- run


def test_run_awaits_the_consumer_for_each_event_and_saves_its_cursor() -> None:
    bench = Bench()
    with pytest.raises(HeadReached):
        asynchronously(lambda: aio.run(bench.spec(StreamToHead())))
    assert (bench.got, bench.store.durable) == (IDS, {"billing": "e4"})
    assert bench.value("rscylla_consumed_events_total") == 5
    assert bench.value("rscylla_unfinished_events") is None
    assert no_threads_left()


def test_an_error_of_the_consumer_ends_the_run_at_its_event() -> None:
    async def fails(e: Event, fate: Fate) -> None:
        if e.id == "e2":
            raise ValueError("no")

    bench = Bench(fails)
    with pytest.raises(RunError) as caught:
        asynchronously(lambda: aio.run(bench.spec()))
    error = caught.value
    assert (error.stage, error.event_id, type(error.__cause__)) == ("consume", "e2", ValueError)
    assert (bench.got, bench.store.durable) == (["e0", "e1"], {"billing": "e1"})
    assert bench.value("reflex_consumer_error_count") == 1


def test_filters_and_recovery_work_as_without_asyncio() -> None:
    async def fails(e: Event, fate: Fate) -> None:
        if e.id == "e2":
            raise ValueError("no")

    bench = Bench(fails, event_filter=lambda e: e.id != "e1", recover=lambda e, consumer, error: None)
    with pytest.raises(HeadReached):
        asynchronously(lambda: aio.run(bench.spec(StreamToHead())))
    assert (bench.got, bench.store.durable) == (["e0", "e3", "e4"], {"billing": "e4"})
    assert bench.value("rscylla_recovered_events_total") == 1
    assert bench.value("reflex_consumer_skipped_events_count") == 1


@pytest.mark.parametrize("point", ["after_consume", "before_set_cursor"])
def test_fate_strikes_after_the_consumer_and_before_the_cursor(point: str) -> None:
    bench = Bench()
    bench.fate = ScriptedFate(at={point: FateError("fate")})
    with pytest.raises(RunError) as caught:
        asynchronously(lambda: aio.run(bench.spec(StreamToHead())))
    assert isinstance(caught.value.__cause__, FateError)
    assert bench.got[0] == "e0"
    assert bench.store.durable == {}


def test_a_cancellation_that_was_not_requested_of_the_task_is_an_error() -> None:
    """Else a group would take the consumer for ended, and say nothing."""
    cancelled = [True]

    async def meets(e: Event, fate: Fate) -> None:
        if e.id == "e2" and cancelled:
            cancelled.clear()
            shared = asyncio.get_running_loop().create_future()
            shared.cancel()
            await shared

    bench, told = Bench(meets), list[Exception]()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(aio.run_forever(bench.spec(StreamToHead()), on_error=told.append))

    asynchronously(main)
    assert bench.got == IDS
    assert [type(error) for error in told] == [RunError]
    assert "was cancelled, but its task was not" in str(told[0])


def test_run_forever_tries_again_from_the_saved_cursor() -> None:
    failures = [ValueError("once"), ValueError("twice")]

    async def fails(e: Event, fate: Fate) -> None:
        if e.id == "e2" and failures:
            raise failures.pop()

    bench, told = Bench(fails), list[Exception]()
    backoff = Backoff(initial=timedelta(seconds=5), jitter=0)
    asynchronously(lambda: aio.run_forever(bench.spec(StreamToHead()), backoff=backoff, on_error=told.append))
    assert bench.got == IDS
    assert (len(told), bench.clock.waits) == (2, [5.0, 10.0])


def test_tasks_of_a_group_drive_several_consumers_until_the_stop_signal() -> None:
    stop, benches = Stop(), [Bench() for _ in range(3)]

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for bench in benches:
                group.create_task(aio.run_forever(bench.spec(), stop=stop))
            await until(lambda: all(len(bench.got) == 5 for bench in benches))
            stop.set()

    asynchronously(main)
    assert [bench.store.durable for bench in benches] == [{"billing": "e4"}] * 3


def test_a_permanent_error_ends_the_group() -> None:
    async def fails(e: Event, fate: Fate) -> None:
        raise ConfigError("wrong")

    calm, broken = Bench(), Bench(fails)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(aio.run_forever(calm.spec()))
            group.create_task(aio.run_forever(broken.spec()))

    with pytest.raises(ExceptionGroup) as caught:
        asynchronously(main)
    assert [type(e) for e in caught.value.exceptions] == [RunError]
    assert (calm.stream.closed, broken.stream.closed, no_threads_left()) == (1, 1, True)


def test_the_current_event_is_finished_after_the_stop_signal() -> None:
    stop = Stop()

    async def stops(e: Event, fate: Fate) -> None:
        if e.id == "e1":
            stop.set()
            await asyncio.sleep(0.01)

    bench = Bench(stops)
    with pytest.raises(Stopped):
        asynchronously(lambda: aio.run(bench.spec(), stop=stop))
    assert (bench.got, bench.store.durable) == (["e0", "e1"], {"billing": "e1"})


def test_a_cancelled_run_closes_the_stream_and_leaves_the_current_event() -> None:
    reached = asyncio.Event()

    async def hangs(e: Event, fate: Fate) -> None:
        if e.id == "e3":
            reached.set()
            await asyncio.sleep(LONG_S * 10)

    bench = Bench(hangs)

    async def main() -> None:
        task = asyncio.create_task(aio.run(bench.spec()))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (bench.stream.closed, no_threads_left()) == (1, True)

    asynchronously(main)
    assert bench.store.durable == {"billing": "e2"}


def test_a_run_that_is_cancelled_while_it_waits_has_saved_all() -> None:
    bench = Bench()

    async def main() -> None:
        task = asyncio.create_task(aio.run_forever(bench.spec()))
        await until(lambda: bench.got == IDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bench.stream.closed == 1

    asynchronously(main)
    assert bench.store.durable == {"billing": "e4"}


@pytest.mark.parametrize("steps", range(12))
def test_cancelled_after_any_number_of_steps_a_run_loses_nothing(steps: int) -> None:
    """The cursor never passes an event that was not finished, and a second run finishes the rest."""
    bench = Bench()

    async def main() -> None:
        task = asyncio.create_task(aio.run(bench.spec()))
        for _ in range(steps):
            await asyncio.sleep(0.0005 if steps % 2 else 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        saved = bench.store.durable.get("billing")
        assert (IDS.index(saved) + 1 if saved else 0) <= len(bench.got)
        with pytest.raises(HeadReached):
            await aio.run(bench.spec(StreamToHead()))

    asynchronously(main)
    assert sorted(set(bench.got)) == IDS
    assert bench.store.durable == {"billing": "e4"}


def test_a_cancel_within_a_hanging_open_ends_when_the_stop_is_heard() -> None:
    """The stream is opened by the thread; what it waits for there hears the stop signal."""
    entered = threading.Event()

    class Opening(FakeStream):
        def __call__(self, after: str, *options: Any, stop: Stop | None = None) -> Any:
            assert stop is not None
            entered.set()
            assert stop.wait(LONG_S)
            raise Stopped

    bench = Bench()
    bench.stream = Opening()

    async def main() -> None:
        task = asyncio.create_task(aio.run(bench.spec()))
        await until(entered.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asynchronously(main)
    assert no_threads_left()


def test_consumers_are_handed_the_run_they_are_in() -> None:
    seen: list[tuple[str, str]] = []

    async def looks(e: Event, run: rscylla.Run) -> None:
        await asyncio.sleep(0)
        assert run.event is not None
        seen.append((run.consumer, run.event.id))

    bench = Bench(looks)
    with pytest.raises(HeadReached):
        asynchronously(lambda: aio.run(bench.spec(StreamToHead())))
    assert seen == [("billing", event_id) for event_id in IDS]


def test_a_coroutine_function_that_would_not_be_awaited_is_refused() -> None:
    async def coroutine(e: Event, fate: Fate) -> None: ...

    def function(e: Event, fate: Fate) -> None: ...

    registry = CollectorRegistry()
    with pytest.raises(ConfigError, match=r"rscylla\.aio\.Consumer"):
        rscylla.Consumer("billing", coroutine, registry=registry)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not a coroutine function"):
        aio.Consumer("billing", function, registry=registry)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not callable"):
        aio.Consumer("billing", None, registry=registry)  # type: ignore[arg-type]
    plain = Spec(FakeStream(), FakeCursorStore(), rscylla.Consumer("billing", function, registry=registry))
    with pytest.raises(ConfigError, match="has no aconsume"):
        asynchronously(lambda: aio.run(plain))


class Awaited:
    """An async consumer of the application's own."""

    name = "billing"

    async def aconsume(self, event: Event, fate: Fate) -> None: ...


@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_what_only_a_loop_can_drive_is_refused_by_threads_before_anything_is_read(kind: str) -> None:
    bench = Bench()
    consumer: Any = bench.spec().consumer if kind == "ours" else Awaited()
    spec = bench.spec() if kind == "ours" else Spec(bench.stream, bench.store, consumer, registry=CollectorRegistry())
    refused = pytest.raises(ConfigError, match=r"run it with rscylla\.aio\.run")
    with refused:
        rscylla.Service([spec], registry=CollectorRegistry())
    with refused:
        rscylla.parallel([spec])
    if kind == "ours":
        with refused:
            rscylla.reflex.best_effort(consumer)
        with refused:
            rscylla.fast_and_sweep(FakeStream(supports_lag=True), bench.store, consumer)
    with pytest.raises(RunError, match=r"run it with rscylla\.aio\.run"):
        rscylla.run(spec)
    assert bench.stream.opened == []


def test_patterns_that_wrap_plain_consumers_hand_their_work_to_the_loop() -> None:
    """The recipe of docs/asyncio.md."""
    got: list[str] = []

    async def on_order(e: Event, fate: Fate) -> None:
        await asyncio.sleep(0)
        got.append(e.id)

    async def main() -> None:
        stop, registry = Stop(), CollectorRegistry()
        consumer = rscylla.reflex.best_effort(rscylla.Consumer("billing", aio.on_loop(on_order), registry=registry))
        spec = Spec(FakeStream(EVENTS), FakeCursorStore(), consumer)
        running = asyncio.create_task(asyncio.to_thread(rscylla.run_forever, spec, stop=stop))
        await until(lambda: got == IDS)
        stop.set()
        await running

    asynchronously(main)
    assert got == IDS


def test_it_runs_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")
    bench = Bench()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(HeadReached):
        runner.run(aio.run(bench.spec(StreamToHead())))
    assert (bench.got, bench.store.durable) == (IDS, {"billing": "e4"})


def test_a_body_that_never_waits_leaves_other_tasks_their_turn() -> None:
    stream = FakeStream([event(i) for i in range(1000)])
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    async def main() -> None:
        beside = asyncio.create_task(other())
        async with aio.events(stream, StreamToHead()) as feed:
            await until(lambda: feed._bridge._work is not None and len(feed._bridge._work._ready) == 1000)
            turns.clear()
            for _ in range(1000):
                await anext(feed)
        beside.cancel()

    asynchronously(main)
    assert len(turns) >= 9


def test_what_was_read_ahead_is_taken_without_waking_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is woken when it waits, not for each event."""
    loop = asyncio.new_event_loop()
    hops: list[int] = []
    call = loop.call_soon_threadsafe

    def counted(*arguments: Any, **options: Any) -> Any:
        hops.append(1)
        return call(*arguments, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)

    async def main() -> None:
        async with aio.events(FakeStream([event(i) for i in range(1000)])) as feed:
            await until(lambda: feed._bridge._work is not None and len(feed._bridge._work._ready) == 1000)
            for _ in range(1000):
                await anext(feed)
            assert hops == []

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
