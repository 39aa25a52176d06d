"""``Spec`` and ``run``: one attempt to drive a consumer with a stream, from its saved cursor on.

At least once: the cursor moves only after the consumer returned. Knows nothing of CDC.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import NoReturn

import attrs
from prometheus_client import CollectorRegistry

from ..abc import Committing, Consumer, CursorStore, Fate, Resetter, Stopper, StreamClient, StreamFunc
from ..clock import Clock, Stop, SystemClock
from ..errors import ConfigError, CursorExpired, HeadReached, RscyllaError, RunError, Stopped, is_resumable
from ..event import Event, Progress
from ..options import SAFE_LAG, StreamOption, StreamOptions, resolve
from ._lane import Lane, entered
from ._scope import Scope
from .consumer import check_threads_can_drive
from .fate import NO_FATE
from .metrics import ConsumerSeries, metrics_for

__all__ = ["Spec", "run"]


@attrs.frozen(init=False)
class Spec:
    """What ``run`` needs: a stream, a cursor store, a consumer, and the options of the stream.

    ``fate`` is passed to the consumer, and its ``tempt`` is called at the points after_recv, after_consume,
    before_set_cursor, and before_flush. ``flush_timeout`` limits the flush at the end of a run. Metrics go to the
    consumer's own ``series`` unless ``registry`` is given.
    """

    stream: StreamFunc
    store: CursorStore
    consumer: Consumer
    options: tuple[StreamOption, ...] = ()
    fate: Fate = NO_FATE
    clock: Clock = attrs.field(factory=SystemClock)
    flush_timeout: timedelta = timedelta(seconds=10)
    series: ConsumerSeries = attrs.field(kw_only=True, eq=False, repr=False)

    def __init__(
        self,
        stream: StreamFunc,
        store: CursorStore,
        consumer: Consumer,
        *options: StreamOption,
        fate: Fate | None = None,
        clock: Clock | None = None,
        flush_timeout: timedelta = timedelta(seconds=10),
        registry: CollectorRegistry | None = None,
    ) -> None:
        resolve(options)
        if flush_timeout <= timedelta():
            raise ConfigError("Spec: flush_timeout must be more than zero")
        if clock is not None and not isinstance(clock, Clock):
            raise ConfigError(
                f"Spec: clock= is a {type(clock).__module__}.{type(clock).__qualname__}, which cannot drive a run; it "
                "needs now_us, monotonic and wait, as rscylla.SystemClock and rscylla.testing.ManualClock have"
            )
        series = getattr(consumer, "series", None) if registry is None else None
        if not isinstance(series, ConsumerSeries):
            series = metrics_for(registry).consumer(consumer.name)
        self.__attrs_init__(
            stream, store, consumer, options, fate or NO_FATE, clock or SystemClock(), flush_timeout, series=series
        )

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self.consumer.name

    @property
    def stream_options(self) -> StreamOptions:
        """The options, folded."""
        return resolve(self.options)

    @property
    def source(self) -> str:
        """What the stream reads, such as ``shop.orders``; "" if it does not say."""
        return str(getattr(self.stream, "source", ""))

    def on(self, stream: StreamFunc) -> Spec:
        """Return the same spec over another *stream*."""
        other = object.__new__(Spec)
        other.__attrs_init__(
            stream,
            self.store,
            self.consumer,
            self.options,
            self.fate,
            self.clock,
            self.flush_timeout,
            series=self.series,
        )
        return other

    def stop(self) -> None:
        """Stop the consumer's background work, if it has any."""
        if isinstance(self.consumer, Stopper):
            self.consumer.stop()


def run(spec: Spec, *, stop: Stop | None = None) -> NoReturn:
    """Run the consumer of *spec* until something ends the run; always raises. *stop* is checked between events.

    Raises:
        HeadReached: the stream reached the head that it runs to, and everything is saved.
        Stopped: *stop* was set, and everything is saved.
        RunError: any other ``Exception`` occurred: the error names the stage, consumer, and event, and chains the
            cause. Errors during cleanup are attached to the first error as notes.
    """
    scope = Scope(spec.name, spec.store, spec.clock, spec.fate, stop or Stop(), moved=spec.series.moved)
    lane = Lane(spec.name, spec.source, scope.stop, spec.clock, spec.series)
    at = _Place()
    with entered(lane):
        try:
            _drive(spec, scope, lane, at)
        except BaseException as error:
            spec.series.activity.end()
            try:
                left = _put_away(spec, at)
            finally:  # also after an interrupt
                scope.end()
            failure = _ended(spec, scope, at, error, left)
            if failure is error:
                raise
            raise failure from failure.__cause__


@attrs.define
class _Place:
    """How far a run has come: the stage, the event, and the stream once it is open."""

    stage: str = "reset"
    event: Event | None = None
    client: StreamClient | None = None
    refused: bool = False
    """The consumer did not begin this run; what it has under way belongs to another one, and is not stopped."""


def _drive(spec: Spec, scope: Scope, lane: Lane, at: _Place) -> NoReturn:
    """Do the steps of a run, noting in *at* which, until one of them raises."""
    consumer, fate, series, clock, stop = spec.consumer, spec.fate, spec.series, spec.clock, scope.stop
    committing = consumer if isinstance(consumer, Committing) else None
    try:
        check_threads_can_drive(consumer)
        if committing is not None:
            committing.begin(scope)
    except Exception:
        at.refused = True
        raise
    if isinstance(consumer, Resetter):
        consumer.reset()
    at.stage = "get_cursor"
    cursor = spec.store.get_cursor(spec.name)
    at.stage = "stream"
    options = spec.stream_options
    client = at.client = spec.stream(cursor, *spec.options, stop=stop)
    series.opened(client, unsafe_lag=options.lag < SAFE_LAG if options.lag is not None else None)
    # A stream that supports the lag reads later; any other only hands out later, and is made to wait here.
    hold = None if getattr(spec.stream, "supports_lag", False) else options.lag
    while True:
        at.stage, at.event, lane.event = "recv", None, None
        stop.check()
        try:
            item = client.recv()
        except HeadReached:
            if committing is not None:
                at.stage = "consume"
                committing.drain()
                at.stage = "recv"
            raise
        fate.tempt("after_recv")
        if isinstance(item, Progress):
            at.stage = "set_cursor"
            (committing.progress if committing is not None else scope.commit)(item.cursor)
            series.count("progress")
            continue
        event = at.event = lane.event = _checked(item)
        if hold:
            at.stage = "delay"
            _hold_back(event, hold, clock, stop)
        at.stage = "consume"
        scope.check()  # what was set while the stream was waited for counts: nothing is begun any more
        if committing is not None:
            consumer.consume(event, fate)
        else:
            series.activity.begin(clock, event)
            consumer.consume(event, fate)
            series.activity.end()
            fate.tempt("after_consume")
            at.stage = "set_cursor"
            scope.commit(event.id)


def _ended(
    spec: Spec, scope: Scope, at: _Place, error: BaseException, left: list[tuple[str, Exception]]
) -> BaseException:
    """Return what the run raises for *error*; *left* is what failed while it was put away."""
    failure = _failure(spec, at.stage, at.event, error)
    told = scope.failure  # what went wrong in the consumer's own threads, and ended the run
    if told is not None and isinstance(failure, HeadReached | Stopped):
        failure = _failure(spec, told.stage, told.event, told.error)
    elif told is not None:
        failure.add_note(f"meanwhile {told.stage} failed too: {_in_short(told.error)}")
    if left and isinstance(failure, HeadReached | Stopped):
        # Not all is saved, so the run has not ended well after all.
        stage, cause = left.pop(0)
        failure = _failure(spec, stage, None, cause)
        failure.add_note(f"the run itself ended with {type(error).__name__}")
    for stage, cause in left:
        failure.add_note(f"then {stage} failed too: {_in_short(cause)}")
    if isinstance(failure, RunError):
        spec.series.run_failed(failure.stage, failure.event_id)
        if isinstance(failure.__cause__, CursorExpired):
            spec.series.count("cursor_expired")
    return failure


def _checked(item: object) -> Event:
    if not isinstance(item, Event):
        raise RscyllaError(
            f"the stream returned {type(item).__name__}; recv must return an Event, a Progress, or raise"
        )
    return item


def _hold_back(event: Event, lag: timedelta, clock: Clock, stop: Stop) -> None:
    """Wait until *event* is as old as *lag*."""
    early_us = event.timestamp_us + lag // timedelta(microseconds=1) - clock.now_us()
    if early_us > 0 and clock.wait(stop, early_us / 1e6):
        raise Stopped


def _failure(spec: Spec, stage: str, event: Event | None, error: BaseException) -> BaseException:
    """Return what the run raises: *error* itself if it is no failure, else a ``RunError`` that it caused."""
    # A consumer or a store that says HeadReached has reached some other head than this stream's.
    reached = isinstance(error, HeadReached) and stage in ("stream", "recv")
    stopped = isinstance(error, Stopped) and stage not in ("stop", "close", "flush")
    if reached or stopped or not isinstance(error, Exception):
        return error
    event_id = event_fid = ""
    with suppress(Exception):  # an event that cannot even be named must not hide what happened
        if event is not None:
            event_id = event.id
            event_fid = event.foreign_id
    failure = RunError(
        f'consumer "{spec.name}": {stage} failed{" at event " if event_id else ""}{event_id}: {_in_short(error)}',
        stage=stage,
        consumer=spec.name,
        event_id=event_id,
        event_fid=event_fid,
        resumable=is_resumable(error),
    )
    failure.__cause__ = error
    return failure


def _in_short(error: BaseException) -> str:
    """Return the message of our own errors, and of others only the type: their text may hold row values."""
    return str(error) if isinstance(error, RscyllaError) else type(error).__name__


def _put_away(spec: Spec, at: _Place) -> list[tuple[str, Exception]]:
    """Stop the consumer, close the stream, flush the store, each whatever the others do; return what failed."""
    failed: list[tuple[str, Exception]] = []

    def attempt(stage: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - reported by the run, next to its first error
            failed.append((stage, error))
            if stage == "flush":
                spec.series.count("flush_failures")

    with ExitStack() as last_first:  # so that an interrupt in one step does not keep the others from running either
        last_first.callback(attempt, "flush", partial(_flush, spec))
        if at.client is not None:
            last_first.callback(attempt, "close", at.client.close)
            last_first.callback(spec.series.closed)
        if not at.refused:
            last_first.callback(attempt, "stop", spec.stop)
    return failed


def _flush(spec: Spec) -> None:
    """Flush the store in a thread of its own, because a store that hangs cannot be told to stop."""
    spec.fate.tempt("before_flush")
    done = Stop()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            spec.store.flush()
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
