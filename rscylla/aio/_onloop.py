"""``on_loop``: lets consumers that run in threads, such as the lanes of a ``Service``, call a coroutine function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, TypeVar

from ..abc import Run
from ..clock import LOOK_S, Stop, SystemClock
from ..errors import ConfigError, RscyllaError, Stopped
from ._consumer import is_async

__all__ = ["on_loop"]

Given = TypeVar("Given")


def on_loop(
    fn: Callable[[Given, Any], Coroutine[Any, Any, object]],
    loop: asyncio.AbstractEventLoop | None = None,
    *,
    most: int | None = None,
    grace: timedelta = timedelta(seconds=10),
) -> Callable[[Given, Run], None]:
    """Return a plain function that runs the coroutine function *fn* on *loop*, and returns or raises what it does.

    Give it to ``rscylla.Consumer``, ``batch``, and the patterns around them, and run them in a ``Service`` (also in a
    group), or with ``run_forever`` in a thread. The calling thread waits: each lane handles one event at a time, in
    order, and different lanes handle theirs at the same time. On a stop, *fn* may finish its event; after *grace*, it
    is cancelled, and the event is delivered again. A call that waits for its turn does not begin any more.

    Args:
        fn: called with the event, or the events of a batch, and the run.
        loop: the loop of *fn*; default: the running loop. It must run until the consumers have ended, so never wait for
            them in its own thread without ``await``.
        most: how many calls run at the same time, of all lanes; None: as many as there are lanes and workers.
        grace: how long a call may continue after a stop; keep it below the ``stop_timeout`` of the service.

    Raises:
        ConfigError: *fn* is not a coroutine function, *most* is below 1, or no loop was given and none runs.
    """
    if not is_async(fn):
        raise ConfigError("on_loop: fn is not a coroutine function; a plain function needs no on_loop")
    if most is not None and most < 1:
        raise ConfigError("on_loop: most must be at least 1; None is for no limit")
    if grace < timedelta():
        raise ConfigError("on_loop: grace must not be negative")
    if loop is None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise ConfigError("on_loop: no event loop runs in this thread; pass the loop as loop=") from error
    home, limit = loop, nullcontext() if most is None else asyncio.Semaphore(most)

    def call(given: Given, run: Run) -> None:
        if asyncio._get_running_loop() is home:  # noqa: SLF001 - documented, and get_running_loop raises in a thread
            raise ConfigError("on_loop: the thread of the event loop would wait for itself; run consumers in others")

        async def work() -> None:
            async with limit:
                run.stop.check()  # the wait may have been long, and the slice may have another holder by now
                await fn(given, run)

        _Call(home, work).wait(run.stop, grace.total_seconds())

    return call


class _Call:
    """A coroutine that runs in an event loop, while the thread that asked for it waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._ended = Stop()

    def wait(self, stop: Stop, grace_s: float) -> None:
        """Run the coroutine, and raise its error.

        Raises:
            Stopped: *stop* was set, and the coroutine did not end in time and was cancelled.
            RscyllaError: the coroutine was cancelled by other code, or its loop does not run.
        """
        self._in_loop(self._begin)
        woken = Stop()
        self._ended.on_set(woken.set)
        forget = stop.on_set(woken.set)
        try:
            while not woken.wait(LOOK_S) and not stop.is_set():
                self._check_loop()
        finally:
            forget()
        if not self._ended.is_set() and not self._ends_within(grace_s):
            self._in_loop(self._cancel)
            self._ends_within(None)
        task = self._task
        assert task is not None
        if task.cancelled():
            if stop.is_set():
                raise Stopped("the consumer was cancelled, because the run is stopped; the event is delivered again")
            raise _failed("the consumer's coroutine was cancelled, but its run was not stopped")
        task.result()

    def _ends_within(self, seconds: float | None) -> bool:
        clock = SystemClock()
        until = None if seconds is None else clock.monotonic() + seconds
        while not self._ended.is_set():
            left_s = LOOK_S if until is None else min(LOOK_S, until - clock.monotonic())
            if left_s <= 0:
                return False
            self._ended.wait(left_s)
            self._check_loop()
        return True

    def _check_loop(self) -> None:
        if not self._loop.is_running() and not self._ended.is_set():
            raise _failed("the event loop of the consumer does not run; let it run until the consumers have ended")

    def _in_loop(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError as error:
            raise _failed("the event loop of the consumer is closed; let it run until they have ended") from error

    # ------------------------------------------------------------ the loop's thread

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._work())
        self._task.add_done_callback(lambda _: self._ended.set())

    def _cancel(self) -> None:
        assert self._task is not None  # the loop makes calls in their order
        self._task.cancel()


def _failed(why: str) -> RscyllaError:
    failure = RscyllaError(why)
    failure.resumable = True
    return failure
