"""``run``: one attempt to run a consumer over a stream, from its saved cursor.

Delivery is at least once: the cursor moves only after the consumer returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from itertools import islice
from threading import get_ident
from typing import Any, NoReturn

from ..abc import (
    Chunk,
    ChunkClient,
    ChunkConsumer,
    Committing,
    Consumer,
    Resetter,
    RunAware,
    flush_cursor,
    taker_of,
)
from ..clock import Stop, bounded, fenced, monotonic_of
from ..errors import ConfigError, HeadReached, Stopped
from ..event import Event, Progress
from .consumer import check_threads_can_drive
from .context import Run
from .failures import ending
from .fate import NO_FATE
from .slices import first_cursor
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
    try:
        # Last to first, each even if another fails or is interrupted. The flush comes last, because the consumer may
        # commit until it has stopped.
        with log_context(this), ExitStack() as last_first:
            last_first.callback(this.end)
            last_first.callback(this.clean_up, "flush", partial(_flush, spec))
            last_first.callback(this.clean_up, "close", this.close)
            with fenced(this.stop):
                _drive(spec, this, last_first)
    except BaseException as error:
        end = ending(this, error)
        if end is error:
            raise
        raise end from end.__cause__


def _drive(spec: Spec, this: Run, last_first: ExitStack) -> NoReturn:
    """Take the steps of a run until one of them raises; ``this.stage`` names the current one."""
    consumer: Any = spec.consumer
    later = isinstance(consumer, Committing)
    check_threads_can_drive(consumer)
    if later:
        consumer.begin(this)
    # If it does not begin, its work in progress belongs to another run, which continues.
    last_first.callback(this.clean_up, "stop", spec.stop)
    if isinstance(consumer, RunAware):
        consumer.run_begins(this)
    if isinstance(consumer, Resetter):
        consumer.reset()  # before the cursor is read: a reset may finish earlier work, which moves the cursor
    this.stage = "get_cursor"
    cursor = first_cursor(spec.store, spec.name, spec.key_slice, from_whole=spec.from_whole)
    this.stage = "stream"
    this.client = spec.stream(cursor, *spec.options, stop=this.stop)
    spec.series.opened(this.client, spec.stream_options.lag)
    take, consume = taker_of(this.client), _consuming(spec, this)
    while True:
        this.stage, this.event = "recv", None
        this.stop.check_flag()  # a lease is asked before each event, which it has to cover
        try:
            taken = take()
        except HeadReached:
            # HeadReached promises everything up to the head, so events that the consumer still works on must finish.
            if later:
                this.stage = "consume"
                consumer.drain()
                this.stage = "recv"
            raise
        if isinstance(taken, Progress):
            this.tempt("after_recv")
            this.stage = "set_cursor"
            (consumer.progress if later else this.commit)(taken.cursor)
            this.count("progress")
        else:
            consume(taken)
        del taken  # its memory is freed while the next is awaited


def _consuming(spec: Spec, this: Run) -> Callable[[Chunk], None]:
    """Return what passes a chunk to the consumer, in parts if it takes these, and saves the cursor."""
    consumer, client = spec.consumer, this.client
    # A stream that supports the lag waits before it reads. For any other stream, events wait here after they are read.
    hold = None if getattr(spec.stream, "supports_lag", False) else spec.stream_options.lag
    if isinstance(consumer, ChunkConsumer) and (most := consumer.room()) != 0:
        if most is None and not isinstance(client, ChunkClient):
            raise ConfigError(
                f"a {type(client).__name__} returns no windows, which the consumer needs; give it a stream of a CDC "
                "log, or use rscylla.batch"
            )
        if most is None or not (hold or this.fate is not NO_FATE):
            return partial(_in_parts, consumer, this, hold)
    return _one_by_one(consumer, this, hold)


def _one_by_one(consumer: Consumer, this: Run, hold: timedelta | None) -> Callable[[Chunk], None]:
    """Return the loop over the events of a chunk: a closure, because each of its lines runs for each event."""
    clock, series, tempt, saver = this.clock, this.series, this.tempt, this.saver
    assert saver is not None
    tempted, later = this.fate is not NO_FATE, isinstance(consumer, Committing)
    now, threads, thread = monotonic_of(clock), series.activity.threads, get_ident()
    check, consume = this.stop.checker(), consumer.consume

    def loop(chunk: Chunk) -> None:
        for event in chunk:
            if tempted:
                tempt("after_recv")
            this.event = event
            if hold:
                this.stage = "delay"
                _hold_back(event, hold, this)
            this.stage = "consume"
            check()  # a stop may have come while the stream waited, and no event starts after it
            if later:
                consume(event, this)
            else:
                threads[thread] = clock, event, now(), ""
                try:
                    consume(event, this)
                finally:
                    threads.pop(thread, None)
                if tempted:
                    tempt("after_consume")
                this.stage = "set_cursor"
                if tempted:
                    tempt("before_set_cursor")
                if (last := saver.last).is_open:
                    last.event = event
                else:
                    saver(event)
                if series.is_failing:
                    series.moved()
            this.stage, this.event = "recv", None

    return loop


def _in_parts(consumer: ChunkConsumer, this: Run, hold: timedelta | None, chunk: Chunk) -> None:
    later, events = isinstance(consumer, Committing), iter(chunk)
    whole = consumer.room() is None
    parts: Iterable[Any] = (chunk,) if whole else iter(lambda: list(islice(events, consumer.room())), [])
    for part in parts:
        this.tempt("after_recv")
        event = this.event = part[0]
        if hold:
            this.stage = "delay"
            _hold_back(part[-1], hold, this)
        this.stage = "consume"
        this.stop.check()
        if later:
            consumer.consume_chunk(part, this)
        else:
            with this.series.activity.working(this.clock, event):
                consumer.consume_chunk(part, this)
            this.tempt("after_consume")
            this.stage = "set_cursor"
            this.commit(chunk.cursor if whole else part[-1])
        this.stage, this.event = "recv", None


def _hold_back(event: Event, lag: timedelta, this: Run) -> None:
    """Wait until *event* is as old as *lag*."""
    early_us = event.timestamp_us + lag // timedelta(microseconds=1) - this.clock.now_us()
    if early_us > 0 and this.clock.wait(this.stop, early_us / 1e6):
        raise Stopped


def _flush(spec: Spec) -> None:
    """Flush the store in a separate thread, because a store that hangs cannot be interrupted."""
    spec.fate.tempt("before_flush")
    seconds = spec.flush_timeout.total_seconds()
    bounded(partial(flush_cursor, spec.store, spec.name), seconds=seconds, late="the cursor store did not flush")
