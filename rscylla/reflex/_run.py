"""``run``: one attempt to run a consumer over a stream, from its saved cursor.

Delivery is at least once: the cursor moves only after the consumer returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from threading import get_ident
from typing import Any, NoReturn

from ..abc import (
    BulkConsumer,
    BulkStreamClient,
    Committing,
    Consumer,
    LastEvent,
    Resetter,
    RunAware,
    StreamClient,
    Window,
    WindowConsumer,
    WindowedStreamClient,
    bulk_of,
    flush_cursor,
    last_event_of,
    receiver_of,
)
from ..clock import Stop, fenced, monotonic_of
from ..errors import ConfigError, HeadReached, RscyllaError, Stopped
from ..event import Event, Progress
from .consumer import check_threads_can_drive, timing_of
from .context import Failure, Run
from .failures import ending
from .fate import NO_FATE
from .first import first_cursor
from .spec import Spec
from .telemetry.logs import log_context

__all__ = ["run"]


def run(spec: Spec, *, stop: Stop | None = None) -> NoReturn:
    """Run the consumer of *spec* until something ends the run; always raises. *stop* is checked between events.

    Raises:
        HeadReached: the stream reached the head that it runs to, and everything is saved.
        Stopped: *stop* was set, and everything is saved.
        RunError: any other ``Exception`` occurred: the error names the stage, consumer, and event, and chains the
            cause. Errors during cleanup are attached to the first error as notes.
    """
    this = Run.of(spec, stop or Stop())
    with log_context(this):
        try:
            with fenced(this.stop):
                _drive(spec, this)
        except BaseException as error:
            try:
                failed = _clean_up(spec, this)
            finally:  # also after an interrupt
                this.end()
            end = ending(this, error, failed)
            if end is error:
                raise
            raise end from end.__cause__


def _drive(spec: Spec, this: Run) -> NoReturn:
    """Take the steps of a run until one of them raises; ``this.stage`` names the current one."""
    windowed = isinstance(spec.consumer, WindowConsumer)
    if isinstance(spec.consumer, WindowConsumer):
        consumer: Any = _Windows(spec.consumer)
    else:
        consumer = spec.consumer if isinstance(spec.consumer, Committing) else _AtOnce(spec.consumer)
    check_threads_can_drive(spec.consumer)
    consumer.begin(this)
    this.begun = True
    if isinstance(spec.consumer, RunAware):
        spec.consumer.run_begins(this)
    if isinstance(spec.consumer, Resetter):
        spec.consumer.reset()  # before the cursor is read: a reset may finish earlier work, which moves the cursor
    this.stage = "get_cursor"
    cursor = first_cursor(spec.store, spec.name, spec.key_slice, from_whole=spec.from_whole)
    this.stage = "stream"
    lag = spec.stream_options.lag
    client = this.client = spec.stream(cursor, *spec.options, stop=this.stop)
    spec.series.opened(client, lag)
    # A stream that supports the lag waits before it reads. For any other stream, events wait here after they are read.
    hold = None if getattr(spec.stream, "supports_lag", False) else lag
    check, check_flag, consume = this.stop.checker(), this.stop.check_flag, consumer.consume
    recv: Callable[[], Any] = _window_receiver_of(client) if windowed else receiver_of(client)
    tempt = None if this.fate is NO_FATE else this.tempt
    bulk = None if tempt is not None or hold else bulk_of(client, spec.consumer)
    if bulk is not None and bulk[1].room():
        recv, consume = partial(_recv_many, *bulk), bulk[1].consume_many
    else:
        bulk = None
    several = windowed or bulk is not None
    known: type[Any] | None = None  # the class of the last event: an ``isinstance`` with an ABC for each costs more
    while True:
        this.stage, this.event = "recv", None
        check_flag()  # a lease is asked below, right before the event that it has to cover
        try:
            item = recv()
        except HeadReached:
            # HeadReached promises everything up to the head, so events that the consumer still works on must finish.
            this.stage = "consume"
            consumer.drain()
            this.stage = "recv"
            raise
        if tempt is not None:
            tempt("after_recv")
        if type(item) is not known:
            if isinstance(item, Progress):
                this.stage = "set_cursor"
                consumer.progress(item.cursor)
                this.count("progress")
                continue
            known = type(item if several else _checked(item))
        event = this.event = item[0] if several else item
        if hold:
            this.stage = "delay"
            _hold_back(item[-1] if windowed else event, hold, this)
        this.stage = "consume"
        check()  # again: a stop may have come while the stream waited, and no event starts after it
        consume(item, this)


def _recv_many(client: BulkStreamClient, consumer: BulkConsumer) -> Sequence[Event] | Progress:
    return client.recv_many(consumer.room())


def _window_receiver_of(client: StreamClient) -> Callable[[], Window | Progress]:
    if not isinstance(client, WindowedStreamClient):
        raise ConfigError(
            f"a {type(client).__name__} returns no windows, which the consumer needs; give it a stream of a CDC log, "
            "or use rscylla.batch"
        )
    return client.recv_window


class _AtOnce:
    """Adapts a consumer that is done with an event when ``consume`` returns to ``Committing``."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def begin(self, run: Run) -> None:
        self._run = run
        self.consume = self._handler(run)

    def _handler(self, run: Run) -> Callable[[Event, Run], None]:
        """Return the function that handles one event: a closure, because it runs for each."""
        clock, series, tempt = run.clock, run.series, run.tempt
        store, save, name = run.store, run.save_after, run.consumer
        tempted = run.fate is not NO_FATE
        now, threads, thread = monotonic_of(clock), series.activity.threads, get_ident()
        timed = timing_of(self._consumer, clock)
        consume = self._consumer.consume

        last, asked = LastEvent(), False

        def handle(event: Event, run: Run) -> None:
            nonlocal last, asked
            began = now()
            threads[thread] = clock, event, began, ""
            try:
                if timed is not None:
                    timed(event, run, began)
                else:
                    consume(event, run)
            finally:
                threads.pop(thread, None)
            if tempted:
                tempt("after_consume")
            run.stage = "set_cursor"
            if tempted:
                tempt("before_set_cursor")
            if last.is_open:
                last.event = event
            else:
                save(name, event)
                if not asked and store is not None:
                    last, asked = last_event_of(store, name), True
            if series.is_failing:
                series.moved()

        return handle

    def progress(self, cursor: str) -> None:
        self._run.commit(cursor)

    def drain(self) -> None:
        """Do nothing: no event is in progress."""


class _Windows:
    """Adapts a consumer of windows to ``Committing``. Its event is the first one of the window."""

    def __init__(self, consumer: WindowConsumer) -> None:
        self._consumer = consumer

    def begin(self, run: Run) -> None:
        self._run = run

    def consume(self, window: Window, run: Run) -> None:
        activity = run.series.activity
        activity.begin(run.clock, window[0])
        try:
            self._consumer.consume_window(window, run)
        finally:
            activity.end()
        run.tempt("after_consume")
        run.stage = "set_cursor"
        run.commit(window.cursor)

    def progress(self, cursor: str) -> None:
        self._run.commit(cursor)

    def drain(self) -> None:
        """Do nothing: no event is in progress."""


def _checked(item: object) -> Event:
    if not isinstance(item, Event):
        raise RscyllaError(
            f"the stream returned {type(item).__name__}; recv must return an Event, a Progress, or raise"
        )
    return item


def _hold_back(event: Event, lag: timedelta, this: Run) -> None:
    """Wait until *event* is as old as *lag*."""
    early_us = event.timestamp_us + lag // timedelta(microseconds=1) - this.clock.now_us()
    if early_us > 0 and this.clock.wait(this.stop, early_us / 1e6):
        raise Stopped


def _clean_up(spec: Spec, this: Run) -> list[Failure]:
    """Stop the consumer, close the stream, flush the store, each even if another fails; return the failures."""
    failed: list[Failure] = []

    def attempt(stage: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - reported by the run, next to its first error
            failed.append(Failure(error, stage, None))
            if stage == "flush":
                this.count("flush_failures")

    # The stack runs its callbacks last to first. The flush comes last, because the consumer may commit until it has
    # stopped. With a stack, an interrupt in one step does not skip the others.
    with ExitStack() as last_first:
        last_first.callback(attempt, "flush", partial(_flush, spec))
        if this.client is not None:
            last_first.callback(attempt, "close", this.client.close)
            last_first.callback(spec.series.closed)
        if this.begun:  # else its work in progress belongs to another run, which continues
            last_first.callback(attempt, "stop", spec.stop)
    return failed


def _flush(spec: Spec) -> None:
    """Flush the store in a separate thread, because a store that hangs cannot be interrupted."""
    spec.fate.tempt("before_flush")
    done = Stop()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            flush_cursor(spec.store, spec.name)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            failed.append(error)
        finally:
            done.set()

    threading.Thread(target=work, name=f"rscylla-flush-{spec.name}", daemon=True).start()
    seconds = spec.flush_timeout.total_seconds()
    if not done.wait(seconds):
        raise TimeoutError(f"the cursor store did not flush within {seconds:g} s")
    if failed:
        raise failed[0]
