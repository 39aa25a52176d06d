"""``fast_and_sweep``: one consumer with two lanes, an early one and a safe one behind it that finds late events.

The fast lane reads with a lag of about a second, too early for rows that arrive late. The sweep reads the same span
again with a safe lag, and delivers only the events that the fast lane missed, marked as ``late``. Nothing here depends
on CDC: events are compared by their cursors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Unpack

import attrs

from ...._tokens import FAST
from ....abc import (
    ChunkClient,
    ChunkConsumer,
    Committing,
    Consumer,
    CursorRecord,
    CursorStore,
    Resetter,
    Run,
    RunAware,
    Stopper,
    StreamClient,
    StreamFunc,
    StreamStatus,
    fence_name,
    flush_cursor,
    taker_of,
)
from ....clock import Clock, Stop, SystemClock
from ....errors import ConfigError, CursorConflict, HeadReached, Stopped
from ....event import Event, Progress, cursor_key
from ....options import SAFE_LAG, StreamLag, StreamOption, StreamOptions, resolve
from ...consumer import check_threads_can_drive
from ...slices import take_along
from ...spec import RunOptions, Spec
from ...telemetry.metrics import ConsumerSeries, series_of
from .ledger import Ledger, Verdict

__all__ = ["Lanes", "fast_and_sweep", "fast_lane_name"]

LEAST_APART = timedelta(seconds=30)
"""A sweep that is closer to the fast lane misses most of the events that the fast lane misses."""

SAVE_EVERY_S = 1.0
"""Seconds between saves of the fast lane's cursor, and of the sweep's while it finds no late event."""


def fast_lane_name(consumer: str) -> str:
    """Return the name of a consumer's fast lane, for its cursor and metrics. The sweep has the consumer's own name.

    >>> fast_lane_name("billing"), fast_lane_name("billing[0/4]")
    ('billing[fast]', 'billing[0/4][fast]')
    """
    return f"{consumer}{FAST}"


@attrs.frozen
class Lanes:
    """The two specs of one consumer, which must both run, in one process. Iterates as (fast, sweep).

    ``rscylla.parallel(lanes)`` runs both; a ``Service`` takes them among its specs.
    """

    fast: Spec
    sweep: Spec
    _ledger: Ledger = attrs.field(repr=False, eq=False)

    def __iter__(self) -> Iterator[Spec]:
        return iter((self.fast, self.sweep))

    def __len__(self) -> int:
        return 2

    @property
    def remembered(self) -> int:
        """The number of events remembered now: those between the sweep and the fast lane. Any thread."""
        return len(self._ledger)


def fast_and_sweep(
    stream: StreamFunc,
    store: CursorStore,
    consumer: Consumer,
    *options: StreamOption,
    fast: StreamLag | None = None,
    sweep: StreamLag | None = None,
    force: bool = False,
    remember: int = 1_000_000,
    order: Callable[[str], Any] = cursor_key,
    **more: Unpack[RunOptions],
) -> Lanes:
    """Return the two specs of *consumer*: a fast lane, and a sweep that delivers the events that the fast lane missed.

    Each event is delivered once: by the fast lane in order, or by the sweep, after newer events, with ``event.late``
    set. The consumer gets one event at a time, from either lane. A crash at any point repeats events and loses none.
    The cursor under the consumer's own name is the sweep's; it is authoritative, and a new process starts both lanes
    there. The cursor of the fast lane, ``NAME[fast]``, is for information only.

    Args:
        stream: must apply the lag itself (``supports_lag``), as CDC streams do.
        options: options of both streams besides the lag: ``StreamToHead``, ``StreamUntil``.
        fast: the lag of the fast lane; default: a second.
        sweep: the lag of the sweep, which must be safe; default: a minute. Rows that are later than this are missed.
        force: allow a sweep below 30 seconds, or less than 30 seconds behind the fast lane.
        remember: how many events between the lanes are remembered, at about 200 bytes each. If there are more, the
            oldest are forgotten, and the sweep delivers them again.
        order: returns the key by which the stream's cursors compare; "" has the lowest.
        more: ``fate``, ``clock``, ``flush_timeout``, ``from_whole``, and ``registry``, as for ``Spec``.

    Raises:
        ConfigError: the lags are too close, or an argument is invalid.
    """
    fast = fast or StreamLag(seconds=1)
    sweep = sweep or StreamLag(seconds=60)
    _check(stream, consumer, resolve(options), fast.lag, sweep.lag, force, remember)
    clock = more["clock"] = more.get("clock") or SystemClock()
    name = consumer.name
    series = series_of(consumer, more.pop("registry", None))
    # On the registry of the consumer's metrics, which may not be the default one.
    fast_series = series.beside(fast_lane_name(name))
    fast_series.configure(clock=clock, lag_alert=None, activity_ttl=None)
    fast_series.swept = True
    ledger = Ledger(name, order, remember, clock)
    shared = _SharedConsumer(consumer)

    def key_of(event: Event) -> Any:
        return event.order_key if order is cursor_key else order(event.id)

    def begin() -> None:
        part = getattr(stream, "key_slice", (0, 1))
        take_along(store, name, part, from_whole=more.get("from_whole", False))

    return Lanes(
        Spec(
            _LaneStream(stream, lambda client, _: _FastClient(client, ledger, key_of)),
            _FastStore(store, name, ledger, order, clock, begin),
            _FastConsumer(fast_lane_name(name), shared, fast_series),
            *options,
            fast,
            **more,
        ),
        Spec(
            _LaneStream(stream, lambda client, stop: _SweepClient(client, stop, ledger, key_of, series, clock)),
            _SweepStore(store, ledger, begin),
            _LaneConsumer(name, shared, series),
            *options,
            sweep,
            **more,
        ),
        ledger,
    )


def _check(
    stream: StreamFunc,
    consumer: Consumer,
    options: StreamOptions,
    fast: timedelta,
    sweep: timedelta,
    force: bool,
    remember: int,
) -> None:
    if not getattr(stream, "supports_lag", False):
        raise ConfigError(
            "fast_and_sweep: the stream does not apply the lag, so a sweep would read it as early as the "
            "fast lane; use a stream with supports_lag, such as that of NewStream"
        )
    check_threads_can_drive(consumer)
    if isinstance(consumer, Committing):
        raise ConfigError(
            f'fast_and_sweep: consumer "{consumer.name}" moves the cursor of its run and cannot serve two lanes; '
            "use a consumer that is done with an event when it returns"
        )
    if isinstance(consumer, ChunkConsumer):
        raise ConfigError(
            f'fast_and_sweep: consumer "{consumer.name}" handles whole windows, and the lanes deliver single events; '
            "use a consumer of events"
        )
    if options.lag is not None or options.from_head:
        raise ConfigError(
            "fast_and_sweep: set the lags with fast= and sweep=; to start at the head, first save "
            "stream.head_cursor(...) as the consumer's cursor"
        )
    if sweep <= fast:
        raise ConfigError("fast_and_sweep: sweep= must be a longer lag than fast=")
    if not force and (sweep < SAFE_LAG or sweep - fast < LEAST_APART):
        raise ConfigError(
            f"fast_and_sweep: a sweep of {sweep.total_seconds():g} s behind a fast lane of {fast.total_seconds():g} s "
            f"misses late rows; make it {LEAST_APART.total_seconds():g} s longer, or pass force=True"
        )
    if remember < 1:
        raise ConfigError("fast_and_sweep: remember must be 1 or more")


# ---------------------------------------------------------------- the consumer's side


class _SharedConsumer:
    """The consumer of two lanes. It gets one event at a time; the first run resets it, and the last one stops it."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._lock = threading.RLock()
        self._lanes = set[str]()

    def consume(self, event: Event, run: Run) -> None:
        if not self._lock.acquire(blocking=False):
            with run.waiting():  # the event of the other lane may wait for a circuit breaker, which is not hanging
                self._lock.acquire()
        try:
            self.consumer.consume(event, run)
        finally:
            self._lock.release()

    def enter(self, lane: str) -> None:
        with self._lock:
            if not self._lanes and isinstance(self.consumer, Resetter):
                self.consumer.reset()
            self._lanes.add(lane)

    def leave(self, lane: str) -> None:
        with self._lock:
            if lane in self._lanes:
                self._lanes.discard(lane)
                if not self._lanes and isinstance(self.consumer, Stopper):
                    self.consumer.stop()


class _LaneConsumer:
    """The shared consumer under the name and metrics of one lane."""

    def __init__(self, name: str, shared: _SharedConsumer, series: ConsumerSeries) -> None:
        self._name = name
        self._shared = shared
        self.series = series

    @property
    def name(self) -> str:
        return self._name

    def run_begins(self, run: Run) -> None:
        if isinstance(self._shared.consumer, RunAware):
            self._shared.consumer.run_begins(run)

    @property
    def lane_of(self) -> str:
        """The name of the shared consumer."""
        return self._shared.consumer.name

    def reset(self) -> None:
        self._shared.enter(self._name)
        self.series.started()

    def stop(self) -> None:
        self._shared.leave(self._name)

    def consume(self, event: Event, run: Run) -> None:
        self._shared.consume(event, run)


class _FastConsumer(_LaneConsumer):
    """The shared consumer in the fast lane, which measures the ages of its events."""

    def consume(self, event: Event, run: Run) -> None:
        with self.series.consuming(event) as consuming:
            super().consume(event, run)
            consuming.outcome = "consumed"


# ---------------------------------------------------------------- the cursors' side


class _FastStore:
    """The fast lane's cursor: kept in the ledger, and saved about once a second, for people only."""

    def __init__(
        self,
        store: CursorStore,
        sweep: str,
        ledger: Ledger,
        order: Callable[[str], Any],
        clock: Clock,
        begin: Callable[[], None],
    ) -> None:
        self._begin = begin
        self._store = store
        self._sweep = sweep
        self._ledger = ledger
        self._order = order
        self._clock = clock
        self._saved: Any = None
        self._saved_at = 0.0
        self._unsaved: tuple[str, str] | None = None

    def get_cursor(self, consumer: str) -> str:
        self._begin()
        self._unsaved = None
        self._saved = self._order(self._store.get_cursor(consumer))
        self._saved_at = self._clock.monotonic()
        return self._ledger.open_fast(self._swept())

    def _swept(self) -> str:
        """Return the sweep's cursor without reading it as the sweep does.

        ``get_cursor`` acknowledges a reset. Called here, while the sweep runs, it would let the sweep save a cursor
        from before the reset.
        """
        find = getattr(self._store, "find_cursor", None)
        if find is None:  # a store without resets
            return self._store.get_cursor(self._sweep)
        record: CursorRecord | None = find(self._sweep)
        return record.cursor if record is not None else ""

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self._ledger.commit(cursor)
        self._unsaved = consumer, cursor
        if self._clock.monotonic() - self._saved_at >= SAVE_EVERY_S:
            self._save()

    def _save(self) -> None:
        if self._unsaved is None:
            return
        consumer, cursor = self._unsaved
        key = self._order(cursor)
        # After a restart, the lane starts at the sweep's cursor, which is lower than its own saved one; the store would
        # refuse to move backward.
        if self._saved is None or key > self._saved:
            self._store.set_cursor(consumer, cursor)
            self._saved = key
        self._unsaved, self._saved_at = None, self._clock.monotonic()

    def flush(self) -> None:
        self._save()
        self._store.flush()

    def flush_cursor(self, consumer: str) -> None:
        self._save()
        flush_cursor(self._store, consumer)

    def fence_name(self, consumer: str) -> str | None:
        return fence_name(self._store, consumer)

    def close(self) -> None:
        self.flush()
        self._store.close()


class _SweepStore:
    """The sweep's cursor; the ledger forgets the events before it."""

    def __init__(self, store: CursorStore, ledger: Ledger, begin: Callable[[], None]) -> None:
        self._store = store
        self._ledger = ledger
        self._begin = begin

    def get_cursor(self, consumer: str) -> str:
        self._begin()
        cursor = self._store.get_cursor(consumer)
        self._ledger.open_sweep(cursor)
        return cursor

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self._ledger.try_sweep(cursor)
        try:
            self._store.set_cursor(consumer, cursor)
        except CursorConflict:
            self._ledger.reset_sweep()
            raise
        self._ledger.sweep(cursor)

    def flush(self) -> None:
        self._store.flush()

    def flush_cursor(self, consumer: str) -> None:
        flush_cursor(self._store, consumer)

    def fence_name(self, consumer: str) -> str | None:
        return fence_name(self._store, consumer)

    def close(self) -> None:
        self._store.close()


# ---------------------------------------------------------------- the streams' side


class _LaneStream:
    """A stream whose clients are wrapped for a lane."""

    supports_lag = True

    def __init__(self, stream: StreamFunc, wrap: Callable[[StreamClient | ChunkClient, Stop], StreamClient]) -> None:
        self._stream = stream
        self._wrap = wrap

    @property
    def source(self) -> str:
        return str(getattr(self._stream, "source", ""))

    @property
    def key_slice(self) -> tuple[int, int]:
        return getattr(self._stream, "key_slice", (0, 1))

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> StreamClient:
        stop = stop or Stop()
        return self._wrap(self._stream(after, *options, stop=stop), stop)


class _LaneClient:
    """An open stream of a lane."""

    def __init__(self, client: StreamClient | ChunkClient) -> None:
        self._client = client
        self._take = taker_of(client)
        self._events: Iterator[Event] = iter(())

    def _receive(self) -> Event | Progress:
        for event in self._events:
            return event
        taken = self._take()
        if isinstance(taken, Progress):
            return taken
        self._events = iter(taken)
        return self._receive()

    def status(self) -> StreamStatus:
        return self._client.status()

    def close(self) -> None:
        self._client.close()


class _FastClient(_LaneClient):
    """Lists the events that the fast lane delivers in the ledger."""

    def __init__(self, client: StreamClient | ChunkClient, ledger: Ledger, key_of: Callable[[Event], Any]) -> None:
        super().__init__(client)
        self._ledger = ledger
        self._key_of = key_of

    def recv(self) -> Event | Progress:
        try:
            item = self._receive()
        except HeadReached:
            self._ledger.end_fast()
            raise
        if isinstance(item, Event):
            self._ledger.hand(item.id, self._key_of(item))
        return item


class _SweepClient(_LaneClient):
    """Delivers the events that the fast lane missed as late; for the others, only a ``Progress`` about every second."""

    def __init__(
        self,
        client: StreamClient | ChunkClient,
        stop: Stop,
        ledger: Ledger,
        key_of: Callable[[Event], Any],
        series: ConsumerSeries,
        clock: Clock,
    ) -> None:
        super().__init__(client)
        self._stop = stop
        self._ledger = ledger
        self._key_of = key_of
        self._series = series
        self._clock = clock
        self._held: tuple[Event, Any] | None = None  # read and not judged yet, with its key
        self._skipped: Event | None = None  # the last event that the fast lane delivered, with no progress for it yet
        self._progress_at = clock.monotonic()

    def recv(self) -> Event | Progress:
        while True:
            if self._skipped is not None and self._clock.monotonic() - self._progress_at >= SAVE_EVERY_S:
                return self._progress(self._skipped)
            try:
                held = self._held or self._next()
                if isinstance(held, Progress):
                    return held
                self._held = held
                event, key = held
                if self._skipped is not None and not self._ledger.passed(key):
                    return self._progress(self._skipped)  # saved now, because ``judge`` may wait long for the fast lane
                verdict = self._ledger.judge(key, self._stop)
            except (HeadReached, Stopped):
                if self._skipped is not None:
                    return self._progress(self._skipped)  # saved first; the next call raises
                raise
            self._held = None
            if verdict is Verdict.DELIVERED:
                self._skipped = event
                continue
            self._skipped = None
            if self._ledger.find(key):  # an event that failed and is delivered again counts once
                self._series.found_late(self._ledger.passed_for(key), unproven=verdict is Verdict.UNPROVEN)
            return event.as_late()

    def _next(self) -> Progress | tuple[Event, Any]:
        item = self._receive()
        if isinstance(item, Progress):
            self._skipped, self._progress_at = None, self._clock.monotonic()
            return item
        return item, self._key_of(item)

    def _progress(self, event: Event) -> Progress:
        self._skipped, self._progress_at = None, self._clock.monotonic()
        return Progress(event.id, event.timestamp_us)
