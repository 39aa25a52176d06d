"""``fast_and_sweep``: one consumer with two lanes, an early one and a safe one behind it that finds late events.

The fast lane reads with a lag of about a second, too early for rows that arrive late. The sweep reads the same span
again with a safe lag, and delivers only the events that the fast lane missed, marked as ``late``. Nothing here depends
on CDC: events are compared by their cursors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Unpack

import attrs

from ...._tokens import FAST
from ....abc import (
    ChunkConsumer,
    Committing,
    Consumer,
    CursorStore,
    StreamFunc,
)
from ....clock import SystemClock
from ....errors import ConfigError
from ....event import Event, cursor_key
from ....options import SAFE_LAG, StreamLag, StreamOption, StreamOptions, resolve
from ...consumer import check_threads_can_drive
from ...slices import take_along
from ...spec import RunOptions, Spec
from ...telemetry.metrics import series_of
from .consumers import FastConsumer, LaneConsumer, SharedConsumer
from .cursors import FastStore, SweepStore
from .ledger import Ledger
from .streams import FastClient, LaneStream, SweepClient

__all__ = ["Lanes", "fast_and_sweep", "fast_lane_name"]

LEAST_APART = timedelta(seconds=30)
"""A sweep that is closer to the fast lane misses most of the events that the fast lane misses."""


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
    shared = SharedConsumer(consumer)

    def key_of(event: Event) -> Any:
        return event.order_key if order is cursor_key else order(event.id)

    def begin() -> None:
        part = getattr(stream, "key_slice", (0, 1))
        take_along(store, name, part, from_whole=more.get("from_whole", False))

    return Lanes(
        Spec(
            LaneStream(stream, lambda client, _: FastClient(client, ledger, key_of)),
            FastStore(store, ledger, begin, sweep=name, order=order, clock=clock),
            FastConsumer(fast_lane_name(name), shared, fast_series),
            *options,
            fast,
            **more,
        ),
        Spec(
            LaneStream(stream, lambda client, stop: SweepClient(client, stop, ledger, key_of, series, clock)),
            SweepStore(store, ledger, begin),
            LaneConsumer(name, shared, series),
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
