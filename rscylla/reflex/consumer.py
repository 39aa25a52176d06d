"""``Consumer``: a function with a name, filters, recovery and metrics."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from ..abc import Consumer as ConsumerLike
from ..abc import Run
from ..clock import Clock, SystemClock
from ..errors import ConfigError, FilterError, is_expected, is_resumable
from ..event import Event
from .filters import EventFilter
from .telemetry.metrics import metrics_for
from .telemetry.series import outcome_of

__all__ = ["ConsumeFunc", "Consumer", "RecoverFunc", "check_threads_can_drive"]

# Any, so that functions may annotate it as the public class Run or Fate, although a caller may pass another object with
# the same methods.
ConsumeFunc = Callable[[Event, Any], None]
"""The business logic: handles an event, or raises. Also receives the run, which is its fate. Must be idempotent."""

RecoverFunc = Callable[[Event, "Consumer", Exception], Exception | None]
"""Receives the event, the consumer, and the error. Returns None to swallow the error, or the error to raise."""


class LabelledGauge(Protocol):
    """The part of a Prometheus gauge that ``lag_alert_gauge`` needs."""

    def set_function(self, f: Callable[[], float]) -> None: ...


class Consumer:
    """A function with a name, which ``run`` calls for each event. Used by one thread at a time.

    Args:
        name: Key of the cursor and label of the metrics. Keep it stable across releases.
        fn: Called with the event and the ``Run``, which has the fate's ``tempt``, a stop signal, and a clock.
        lag_alert: Lag above which ``reflex_consumer_lag_alert`` is 1, computed when it is read; None: never.
        lag_alert_gauge: A gauge of your own that also shows the alert.
        activity_ttl: How long ``reflex_consumer_active`` stays 1 after an event, or a function that returns this time
            and is called once, here; None: the series does not exist.
        filter_types: Types of events to consume; empty: all.
        event_filter: Which of those to consume; None: all. Other events are skipped: the cursor moves past them.
        recover: Called with each unexpected error of *fn*; never with errors of filters.
        registry: Where metrics are registered; default: the default registry.
        clock: The clock for ages and latencies.

    Raises:
        ConfigError: an argument is invalid.
    """

    _outcome: str | None = "consumed"
    """The counter of events whose function returned; None if they are counted later."""

    def __init__(
        self,
        name: str,
        fn: ConsumeFunc,
        *,
        lag_alert: timedelta | None = timedelta(minutes=30),
        lag_alert_gauge: LabelledGauge | None = None,
        activity_ttl: timedelta | Callable[[], timedelta] | None = timedelta(hours=24),
        filter_types: Iterable[int] = (),
        event_filter: EventFilter | None = None,
        recover: RecoverFunc | None = None,
        registry: CollectorRegistry | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"the consumer's name is {name!r}; it must be a text that is not empty")
        for role, function in (("fn", fn), ("event_filter", event_filter), ("recover", recover)):
            if not callable(function) and (function is not None or role == "fn"):
                raise ConfigError(f'consumer "{name}": {role} is not callable; pass a function')
        if inspect.iscoroutinefunction(fn):
            raise ConfigError(
                f'consumer "{name}": fn is a coroutine function, which a thread cannot await; use '
                "rscylla.aio.Consumer and rscylla.aio.run"
            )
        ttl = activity_ttl() if callable(activity_ttl) else activity_ttl
        for role, span in (("lag_alert", lag_alert), ("activity_ttl", ttl)):
            if span is not None and span <= timedelta():
                raise ConfigError(f'consumer "{name}": {role} must be more than zero; None switches it off')
        self._name = name
        self._fn = fn
        self._types = frozenset(int(one) for one in filter_types)
        self._filter = event_filter
        self._takes_all = not self._types and event_filter is None
        self._recover = recover
        self._is_plain = self._takes_all and recover is None and self._outcome == "consumed"
        self.series = metrics_for(registry).consumer(name)
        """The metrics of this name; ``run`` adds its own."""
        self.series.configure(clock=clock or SystemClock(), lag_alert=lag_alert, activity_ttl=ttl)
        if lag_alert_gauge is not None:
            lag_alert_gauge.set_function(self.series.lag_alert)

    @property
    def name(self) -> str:
        return self._name

    def reset(self) -> None:
        """Restore the lag series. ``run`` calls this before it reads the cursor."""
        self.series.started()

    def stop(self) -> None:
        """Do nothing: there is no background work. Called at the end of a run; the lag metric continues to grow."""

    def consume(self, event: Event, run: Run) -> None:
        """Filter *event*, call the function, recover from its error, and count the outcome.

        Raises:
            FilterError: a filter failed; ``recover`` was not called.
            Exception: the error of the function, or the one that ``recover`` returned instead.
        """
        if self._is_plain:
            self.series.measure(self._fn, event, run)
        else:
            self._consume(event, run)

    @property
    def takes_all(self) -> bool:
        """Whether the function is called with each event: there are no filters."""
        return self._takes_all

    def _consume(self, event: Event, run: Run) -> None:
        series = self.series
        arrival = series.arrived(event)
        try:
            if not self._takes_all and not self._wants(event):
                outcome: str | None = "skipped"
            elif self._recover is None:
                self._fn(event, run)
                outcome = self._outcome
            else:
                outcome = self._call(event, run)
        except BaseException as error:
            series.ended(arrival, outcome_of(error))
            raise
        series.ended(arrival, outcome)

    def _wants(self, event: Event) -> bool:
        if self._types and int(event.type) not in self._types:
            return False
        if self._filter is None:
            return True
        try:
            return bool(self._filter(event))
        except FilterError:
            raise
        except Exception as error:
            raise FilterError(
                f'consumer "{self._name}": the event filter failed on event {event.id} ({type(error).__name__}); '
                "filters must not raise for events that may come",
                resumable=is_resumable(error),
            ) from error

    def _call(self, event: Event, run: Run) -> str | None:
        """Call the function, and ``recover`` if it fails; return the outcome."""
        try:
            self._fn(event, run)
        except Exception as error:  # noqa: BLE001 - raised again unless recovery swallows it
            self._recovered(event, error)
            return "recovered"
        return self._outcome

    def _recovered(self, event: Event, error: Exception) -> None:
        """Return if ``recover`` swallows *error*, which is being handled; else raise the error that it returns."""
        if self._recover is None or is_expected(error):
            raise error
        remaining = self._recover(event, self, error)
        if remaining is error:
            raise error
        if remaining is not None:
            raise remaining from error

    def __repr__(self) -> str:
        return f"Consumer({self._name!r})"


def check_threads_can_drive(consumer: ConsumerLike) -> None:
    """Raise ``ConfigError`` if *consumer* handles events in an event loop, and so not in a thread."""
    # In a thread, a coroutine function returns before it has done anything, and its event would count as consumed. A
    # consumer may offer both, though.
    if not hasattr(consumer, "aconsume"):
        return
    consume = getattr(consumer, "consume", None)
    if not callable(consume) or inspect.iscoroutinefunction(consume) or getattr(consumer, "needs_event_loop", False):
        raise ConfigError(
            f'consumer "{consumer.name}" is a coroutine function, which a thread cannot await; run it with '
            "rscylla.aio.run, or make it a rscylla.Consumer"
        )
