"""Prometheus metrics of consumers and runs: plain counters behind one collector, read at scrape time.

Names that start with ``reflex_`` are those of the Go reflex library, so that its dashboards keep working. Its
counters lack the suffix ``_total``, which the Python client requires of counters, so they are exposed without a type.
Nothing is registered on import: the first call of ``metrics_for`` for a registry registers one collector.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import accumulate
from typing import Any, Self

import attrs
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.registry import Collector

from ...abc import ChunkClient, Consumer, Run, StreamClient, StreamStatus
from ...clock import Clock, SystemClock, monotonic_of
from ...errors import is_expected
from ...event import Event
from ...options import SAFE_LAG
from .activity import Activity

__all__ = ["ConsumerSeries", "Consuming", "Histogram", "Metrics", "metrics_for", "outcome_of", "series_of"]

COUNTERS = (
    *("consumed", "cursor_expired", "dead_lettered", "errors", "flush_failures", "given_up"),
    *("late", "progress", "recovered", "skipped", "unproven", "version_gaps"),
)
# Upper bounds in seconds.
AGE_BUCKETS = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1e3, 1e4, 5e4, 1e5)
LATENCY_BUCKETS = (0.01, 0.1, 1.0, 5.0, 10.0, 60.0, 300.0)
LATE_BUCKETS = (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Histogram:
    """Counts by bucket. Guarded by the lock of its owner, so that an event takes one lock for all of its metrics."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_all(self, values: Sequence[float], scale: float = 1) -> None:
        """Count *values*, each divided by *scale*."""
        bounds = self.bounds
        first = bisect_left(bounds, min(values) / scale)
        if first == bisect_left(bounds, max(values) / scale):  # nearly always: events of one time, quickly consumed
            self.counts[first] += len(values)
        else:
            for value in values:
                self.counts[bisect_left(bounds, value / scale)] += 1
        self.total += sum(values) / scale

    def samples(self) -> tuple[list[tuple[str, float]], float]:
        names = [*(str(bound) for bound in self.bounds), "+Inf"]
        return [(name, float(count)) for name, count in zip(names, accumulate(self.counts), strict=True)], self.total


NOTED = 512
"""How many consumed events are noted before they are counted; whoever reads a counter counts them first."""

_Arrival = tuple[float, int, int]
"""When the consumer got an event, by the monotonic clock in seconds; the time of the event; its age; both in µs."""


class ConsumerSeries:
    """All metrics of one consumer name. Written by the run, read by scrapes from any thread.

    ``configure`` may be called again; the last call wins.
    """

    def __init__(self, name: str, metrics: Metrics | None = None) -> None:
        self.name = name
        self._metrics = metrics
        self._counts = dict.fromkeys(COUNTERS, 0)
        self.run_errors: dict[str, int] = {}
        self._histograms = {
            "age": Histogram(AGE_BUCKETS),
            "latency": Histogram(LATENCY_BUCKETS),
            "late_by": Histogram(LATE_BUCKETS),
        }
        # Of each consumed event that is not counted yet: age in us, seconds taken, and how often it counts as consumed.
        self._noted: list[float] = []
        self._clock: Clock = SystemClock()
        self.monotonic = monotonic_of(self._clock)
        """By which times of events are measured."""
        self._lag_alert: float | None = None
        self._activity_ttl: float | None = None
        self.unsafe_lag: float | None = None
        """1 if the stream runs with a lag that may miss late rows, else 0; None if it has no lag."""
        self.swept = False
        """Whether a sweep finds the events that this lane misses, so that its lag is not unsafe."""
        self._report: Callable[[], StreamStatus] | None = None  # of the open stream
        self._reported = StreamStatus()  # by the streams before it
        self._arrival: _Arrival | None = None  # of the last event
        self.activity = Activity()
        self._failing = ("", 0)
        self._has_moved = False
        self.failed_runs = 0
        """How many runs have failed in a row, and the cursor did not move in between."""
        self.is_failing = False
        """Whether a run, or an event, has failed since the cursor moved; read after each event, so an attribute."""
        self._shown: dict[str, Callable[[], float]] = {}
        self._finished = False
        self._opened_at = 0.0
        self._mark: tuple[int, ...] | None = None  # of what the run has read and finished
        self._marked_at = 0.0
        self._lock = threading.Lock()

    def collected(self, shown: bool) -> None:
        """Let scrapes see this series, or no longer, for a consumer that has moved to another process."""
        if self._metrics is not None:
            self._metrics.show(self, shown)

    def configure(self, *, clock: Clock, lag_alert: timedelta | None, activity_ttl: timedelta | None) -> None:
        """Set what the gauges need. Called when a ``Consumer`` is made."""
        with self._lock:
            self._clock = clock
            self.monotonic = monotonic_of(clock)
            self._lag_alert = lag_alert.total_seconds() if lag_alert is not None else None
            self._activity_ttl = activity_ttl.total_seconds() if activity_ttl is not None else None

    def beside(self, name: str) -> ConsumerSeries:
        """Return the series of another name on the same registry."""
        return self._metrics.consumer(name) if self._metrics is not None else ConsumerSeries(name)

    def opened(self, client: StreamClient | ChunkClient, lag: timedelta | None) -> None:
        """Show the status of *client*, whose lag is *lag*, from now on."""
        with self._lock:
            self._report = client.status
            self.monotonic = monotonic_of(self._clock)
            self.unsafe_lag = None if lag is None else float(lag < SAFE_LAG and not self.swept)
            self._finished = False
            self._opened_at, self._mark = self._clock.monotonic(), None

    @property
    def is_open(self) -> bool:
        """Whether the stream of a run is open."""
        return self._report is not None

    def closed(self) -> None:
        """Drop the stream but keep its last watermark, so that the lag grows until a run catches up."""
        with self._lock:
            self.activity.clear()
            self._reported = attrs.evolve(self._status(), poll_age_s=None, clock_skew_us=None)
            self._report = None

    def finished(self) -> None:
        """Drop the gauges of lag and of the last failure: the consumer is meant to be down, so no alert may fire."""
        with self._lock:
            self._finished = True
            self.moved()

    def started(self) -> None:
        """Show the gauges of lag again, after ``finished``."""
        with self._lock:
            self._finished = False

    @property
    def counts(self) -> dict[str, int]:
        """The plain counters as they are now, by the names in ``COUNTERS``."""
        with self._lock:
            self._count_noted()
            return dict(self._counts)

    def samples(self, histogram: str) -> tuple[list[tuple[str, float]], float]:
        """Return the cumulative buckets and the sum of age, latency, or late_by as they are now."""
        with self._lock:
            self._count_noted()
            return self._histograms[histogram].samples()

    def arrived(self, event: Event) -> _Arrival:
        """Show that the consumer handles *event* from now on; pass the result to ``consumed`` or ``ended``."""
        began, event_us = self.monotonic(), event.timestamp_us
        # Set before the consumer is called, which may take long, because alerts use the age of the event in progress.
        # A single assignment, which needs no lock.
        arrival = self._arrival = began, event_us, self._clock.now_us() - event_us
        return arrival

    def measure(self, fn: Callable[[Event, Any], None], event: Event, run: Run) -> None:
        """Call *fn* and count the event: ``arrived`` and then ``consumed`` or ``ended``, at the cost of one call."""
        began, event_us = self.monotonic(), event.timestamp_us
        age_us = self._clock.now_us() - event_us
        self._arrival = began, event_us, age_us
        try:
            fn(event, run)
        except BaseException as error:
            self.ended((began, event_us, age_us), outcome_of(error))
            raise
        noted = self._noted
        noted += age_us, self.monotonic() - began, 1
        if len(noted) >= 3 * NOTED:
            with self._lock:
                self._count_noted()

    def consumed(self, arrival: _Arrival, times: int = 1) -> None:
        """Count an event that was consumed without an error; *times*: 0 if it counts as consumed later."""
        noted = self._noted
        noted += arrival[2], self.monotonic() - arrival[0], times  # at once: no thread sees a part of it
        if len(noted) >= 3 * NOTED:
            with self._lock:
                self._count_noted()

    @contextmanager
    def collecting(self, events: Sequence[Event]) -> Iterator[None]:
        """Note that *events* arrive together, and enter a batch in the block; they count as consumed later.

        If the block fails, the first of them did, and the others are not noted.
        """
        began, now_us = self.monotonic(), self._clock.now_us()
        ages_us = [now_us - event.timestamp_us for event in events]
        self._arrival = began, now_us - ages_us[-1], ages_us[-1]
        try:
            yield
        except BaseException as error:
            self.ended((began, now_us - ages_us[0], ages_us[0]), outcome_of(error))
            raise
        took_s = (self.monotonic() - began) / len(events)
        self._noted += [number for age_us in ages_us for number in (age_us, took_s, 0)]  # at once, as in ``consumed``
        if len(self._noted) >= 3 * NOTED:
            with self._lock:
                self._count_noted()

    def ended(self, arrival: _Arrival, outcome: str | None) -> None:
        """Count the outcome of an event, a name in ``COUNTERS`` or None, its age on arrival, and the time taken."""
        took_s = self.monotonic() - arrival[0]
        with self._lock:
            if outcome is not None:
                self._counts[outcome] += 1
            self._histograms["age"].observe(arrival[2] / 1e6)
            self._histograms["latency"].observe(took_s)

    def _count_noted(self) -> None:
        """Count the events that ``consumed`` noted. Called with the lock held."""
        noted = self._noted
        size = len(noted)
        if not size:
            return
        ages_us, took_s, times = noted[:size:3], noted[1:size:3], noted[2:size:3]
        del noted[:size]  # events that were noted since remain
        self._counts["consumed"] += int(sum(times))
        self._histograms["age"].observe_all(ages_us, 1e6)
        self._histograms["latency"].observe_all(took_s)

    def consuming(self, event: Event) -> Consuming:
        """Return the context in which the consumer handles *event*; it shows the event now and counts it at its end."""
        return Consuming(self, self.arrived(event))

    def found_late(self, seconds: float, *, unproven: bool) -> None:
        """Count an event that a sweep delivers *seconds* after the fast lane passed it.

        *unproven*: the ledger no longer knows whether the fast lane delivered it.
        """
        with self._lock:
            if unproven:
                self._counts["unproven"] += 1
            else:
                self._counts["late"] += 1
                self._histograms["late_by"].observe(seconds)

    def count(self, what: str, times: int = 1) -> None:
        """Add to the counter *what*."""
        with self._lock:
            self._counts[what] += times

    def moved(self) -> None:
        """Forget the last failure, because the cursor moved past its event."""
        self.is_failing = False
        self._has_moved = True
        self._failing = ("", 0)

    def event_failed(self, event_id: str) -> None:
        """Count a failure of the current event; the count starts again at 1 with another event."""
        known, times = self._failing
        self._failing = (event_id, times + 1 if known == event_id else 1)
        self.is_failing = True

    def run_failed(self, stage: str, event_id: str = "") -> None:
        """Count a run that ended with an error at *stage*, when it was consuming the event *event_id*."""
        with self._lock:
            self.run_errors[stage] = self.run_errors.get(stage, 0) + 1
        # A cursor that moved and was not saved will move again.
        got_on = self._has_moved and stage not in ("set_cursor", "stop", "flush")
        self.failed_runs = 1 if got_on else self.failed_runs + 1
        self._has_moved = False
        self.is_failing = True
        if stage == "consume" and event_id:
            self.event_failed(event_id)

    def show(self, what: str, value: Callable[[], float] | None) -> None:
        """Show the result of *value*, which any thread may call, as the gauge *what*; None removes the gauge."""
        with self._lock:
            if value is None:
                self._shown.pop(what, None)
            else:
                self._shown[what] = value

    def shown(self, what: str) -> float | None:
        """Return the gauge *what* of a pattern; None if the pattern is not in use."""
        value = self._shown.get(what)
        return None if value is None else value()

    def watermark_lag(self) -> float | None:
        """Return how many seconds the stream is behind the clock, or None if it does not say."""
        watermark_us = self.status().watermark_us
        return (self._clock.now_us() - watermark_us) / 1e6 if watermark_us and not self._finished else None

    def open_s(self) -> float:
        """Return for how many seconds the stream has been open; 0 if none is."""
        return self._clock.monotonic() - self._opened_at if self._report is not None else 0.0

    def still_s(self) -> float:
        """Return for how many seconds the run has neither read nor finished anything, as far as this was asked.

        0 for a stream that waits for the future, or does not say how far it has read and whether its source answers.
        """
        status, now = self.status(), self._clock.monotonic()
        reads = status.poll_age_s is not None and 0 < status.watermark_us <= self._clock.now_us()
        mark = (status.watermark_us, *self.counts.values()) if reads else None
        if mark is None or mark != self._mark:
            self._mark, self._marked_at = mark, now
        return now - self._marked_at

    def lag(self) -> float | None:
        """Return the lag in seconds: that of the watermark, else the age of the last event on arrival, else None."""
        by_watermark = self.watermark_lag()
        if by_watermark is not None or self._arrival is None or self._finished:
            return by_watermark
        return self._arrival[2] / 1e6

    def lag_alert(self) -> float:
        """Return 1 if the lag is above the alert's threshold now, else 0."""
        lag, threshold = self.lag(), self._lag_alert
        return float(lag is not None and threshold is not None and lag > threshold > 0)

    def last_event_age(self) -> float | None:
        """Return the age in seconds of the last event that arrived, growing while none does; None before the first."""
        return (self._clock.now_us() - self._arrival[1]) / 1e6 if self._arrival is not None else None

    def active(self) -> float | None:
        """Return 1 if an event arrived within the activity TTL, else 0; None if that is switched off."""
        ttl, last = self._activity_ttl, self._arrival
        if ttl is None:
            return None
        return float(last is not None and self._clock.monotonic() - last[0] <= ttl)

    def failing(self) -> tuple[str, int]:
        """Return the id of the event that failed last, and how often in a row; ("", 0) once it was consumed."""
        return self._failing

    def clock_skew(self) -> float | None:
        """Return how many seconds the source's clock furthest off is ahead of the client's; None if not known."""
        skew_us = self.status().clock_skew_us
        return None if skew_us is None else skew_us / 1e6

    def cursor_expired(self) -> float:
        """Return how often the cursor was older than the log, whether the stream raised or skipped the gap."""
        return self.counts["cursor_expired"] + self.status().expired_gaps

    def streaming(self) -> bool:
        """Return whether a stream is open."""
        return self._report is not None

    def status(self) -> StreamStatus:
        """Return the status of the open stream, with the counts of all streams so far; between two runs, the last."""
        with self._lock:
            return self._status()

    def _status(self) -> StreamStatus:
        before = self._reported
        if self._report is None:
            return before
        now = self._report()
        return attrs.evolve(
            now,
            # A stream that was just opened does not know its watermark yet; what the last one reached still holds.
            watermark_us=now.watermark_us or before.watermark_us,
            incomplete_records=now.incomplete_records + before.incomplete_records,
            expired_gaps=now.expired_gaps + before.expired_gaps,
        )


class Consuming:
    """One event while its consumer handles it. ``end`` counts its outcome, its age on arrival, and the time taken.

    As a context manager, it calls ``end`` after the block. The block sets ``outcome`` to the name of a counter; an
    error sets it to ``errors``. A stop and an interrupt are not errors of the consumer, and change no counter.
    """

    __slots__ = ("_arrival", "_series", "outcome")

    def __init__(self, series: ConsumerSeries, arrival: _Arrival) -> None:
        self._series = series
        self._arrival = arrival
        self.outcome: str | None = None

    def end(self, outcome: str | None) -> None:
        self._series.ended(self._arrival, outcome)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.end(self.outcome if error is None else outcome_of(error))


def outcome_of(error: BaseException) -> str | None:
    """Return the counter of a consumer's error; None for a stop and an interrupt, which are no errors of it."""
    return "errors" if isinstance(error, Exception) and not is_expected(error) else None


class Metrics(Collector):
    """The collector of all consumers on one registry. Use ``metrics_for`` to get it."""

    def __init__(self) -> None:
        self._series: dict[str, ConsumerSeries] = {}
        self._lock = threading.Lock()

    def consumer(self, name: str) -> ConsumerSeries:
        """Return the series of consumer *name*, created on first use; consumers with the same name share it."""
        with self._lock:
            return self._series.setdefault(name, ConsumerSeries(name, self))

    def show(self, series: ConsumerSeries, shown: bool) -> None:
        """Add *series* unless its name has one, or remove it."""
        with self._lock:
            if shown:
                self._series.setdefault(series.name, series)
            elif self._series.get(series.name) is series:
                del self._series[series.name]

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples, so that a registry notices names that are taken."""
        return _families([])

    def collect(self) -> Iterable[Metric]:
        """Return all families as they are now."""
        with self._lock:
            series = list(self._series.values())
        return _families(series)


_LABEL = ("consumer_name",)

_Value = Callable[[ConsumerSeries], float | None]


def _cdc_enabled(series: ConsumerSeries) -> float | None:
    enabled = series.status().cdc_enabled
    return None if enabled is None else float(enabled)


_GAUGES: tuple[tuple[str, str, _Value], ...] = (
    ("reflex_consumer_lag_seconds", "how far the consumer is behind, from the stream's watermark", ConsumerSeries.lag),
    ("reflex_consumer_lag_alert", "1 if the lag is above the consumer's threshold", ConsumerSeries.lag_alert),
    ("reflex_consumer_active", "1 if the consumer got an event within its activity ttl", ConsumerSeries.active),
    ("rscylla_watermark_lag_seconds", "clock minus the stream's watermark", ConsumerSeries.watermark_lag),
    ("rscylla_last_event_age_seconds", "age of the last event the consumer got", ConsumerSeries.last_event_age),
    ("rscylla_unsafe_lag", "1 if StreamLag is so short that late rows may be missed", lambda s: s.unsafe_lag),
    ("rscylla_poll_age_seconds", "age of the query that the source has not answered", lambda s: s.status().poll_age_s),
    ("rscylla_cdc_enabled", "1 if the source logs new changes, 0 if CDC is switched off", _cdc_enabled),
    ("rscylla_log_ttl_seconds", "how long the source keeps changes", lambda s: s.status().log_ttl_s or None),
    ("rscylla_clock_skew_seconds", "the source's clock furthest off, minus the client's", ConsumerSeries.clock_skew),
    ("rscylla_busy_seconds", "how long the consumer has worked on its event", lambda s: s.activity.longest()[0]),
    ("rscylla_failing_event_attempts", "how often in a row the current event has failed", lambda s: s.failing()[1]),
    ("reflex_rpatterns_batch_consumer_buffer_length", "events in a batch that waits", lambda s: s.shown("buffered")),
    ("rscylla_unfinished_events", "events taken from the stream and not done yet", lambda s: s.shown("unfinished")),
    ("rscylla_oldest_unfinished_seconds", "how long ago the oldest of them was taken", lambda s: s.shown("oldest")),
)

_REFLEX_COUNTERS: tuple[tuple[str, str, _Value], ...] = (
    ("reflex_consumer_error_count", "events whose consumer failed", lambda s: s.counts["errors"]),
    ("reflex_consumer_skipped_events_count", "events that filters left out", lambda s: s.counts["skipped"]),
    ("reflex_consumer_dead_lettered_events_count", "events stored as letters", lambda s: s.counts["dead_lettered"]),
)

_COUNTERS: tuple[tuple[str, str, _Value], ...] = (
    ("rscylla_consumed_events", "events consumed without an error", lambda s: s.counts["consumed"]),
    ("rscylla_recovered_events", "events whose error the recover function swallowed", lambda s: s.counts["recovered"]),
    ("rscylla_given_up_events", "events that were skipped because of their errors", lambda s: s.counts["given_up"]),
    ("rscylla_late_events", "events that the fast lane missed and a sweep found", lambda s: s.counts["late"]),
    (
        "rscylla_unproven_events",
        "events that a sweep repeated to be safe",
        lambda s: s.counts["unproven"],
    ),
    ("rscylla_version_gaps", "gaps of versions that a projection found and filled", lambda s: s.counts["version_gaps"]),
    ("rscylla_cursor_expired", "how often a cursor was older than the log", ConsumerSeries.cursor_expired),
    ("rscylla_incomplete_records", "records of which rows had expired", lambda s: s.status().incomplete_records),
    ("rscylla_progress", "cursors saved without an event", lambda s: s.counts["progress"]),
    ("rscylla_flush_failures", "flushes at the end of runs that failed", lambda s: s.counts["flush_failures"]),
)


def _families(series: list[ConsumerSeries]) -> list[Metric]:
    families: list[Metric] = []
    for kind, table in (
        (GaugeMetricFamily, _GAUGES),
        (UnknownMetricFamily, _REFLEX_COUNTERS),
        (CounterMetricFamily, _COUNTERS),
    ):
        for name, text, value_of in table:
            family = kind(name, text, labels=_LABEL)
            for one in series:
                value = value_of(one)
                if value is not None:
                    family.add_metric([one.name], value)
            families.append(family)
    families.append(_run_errors(series))
    families.append(_histogram("reflex_consumer_event_age_seconds", "age of events on arrival", series, "age"))
    families.append(_histogram("reflex_consumer_latency_seconds", "time spent consuming", series, "latency"))
    late_by = "how long the fast lane had passed an event that the sweep found"
    families.append(_histogram("rscylla_late_by_seconds", late_by, series, "late_by"))
    return families


def _run_errors(series: list[ConsumerSeries]) -> Metric:
    family = CounterMetricFamily(
        "rscylla_run_errors", "runs that ended with an error, by stage", labels=(*_LABEL, "stage")
    )
    for one in series:
        with one._lock:  # noqa: SLF001 - the series of this module
            by_stage = sorted(one.run_errors.items())
        for stage, count in by_stage:
            family.add_metric([one.name, stage], count)
    return family


def _histogram(name: str, text: str, series: list[ConsumerSeries], attribute: str) -> Metric:
    family = HistogramMetricFamily(name, text, labels=_LABEL)
    for one in series:
        buckets, total = one.samples(attribute)
        family.add_metric([one.name], buckets, total)
    return family


_collectors: weakref.WeakKeyDictionary[CollectorRegistry, Metrics] = weakref.WeakKeyDictionary()
_collectors_lock = threading.Lock()


def metrics_for(registry: CollectorRegistry | None = None) -> Metrics:
    """Return the collector on *registry*, or on the default one; the first call registers it.

    Metrics live in this process only; the client library's multi-process mode does not see them.
    """
    registry = registry if registry is not None else REGISTRY
    with _collectors_lock:
        metrics = _collectors.get(registry)
        if metrics is None:
            metrics = Metrics()
            registry.register(metrics)
            _collectors[registry] = metrics
        return metrics


def series_of(consumer: Consumer, registry: CollectorRegistry | None = None) -> ConsumerSeries:
    """Return the series of *consumer* on *registry*; without a registry, its own, or else that of the default one."""
    series = getattr(consumer, "series", None) if registry is None else None
    return series if isinstance(series, ConsumerSeries) else metrics_for(registry).consumer(consumer.name)
