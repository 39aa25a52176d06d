"""``ConsumerSeries``: what the runs of one consumer name write, and scrapes and health checks read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Self

import attrs

from ...abc import ChunkClient, Run, StreamClient, StreamStatus
from ...clock import Clock, SystemClock, monotonic_of
from ...errors import is_expected
from ...event import Event
from ...options import SAFE_LAG
from .activity import Activity
from .collector import Histogram, SeriesCollector

__all__ = ["ConsumerSeries", "Consuming", "outcome_of"]

COUNTERS = (
    *("consumed", "cursor_expired", "dead_lettered", "errors", "flush_failures", "given_up"),
    *("late", "progress", "recovered", "skipped", "unproven", "version_gaps"),
)
# Upper bounds in seconds.
AGE_BUCKETS = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1e3, 1e4, 5e4, 1e5)
LATENCY_BUCKETS = (0.01, 0.1, 1.0, 5.0, 10.0, 60.0, 300.0)
LATE_BUCKETS = (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


NOTED = 512
"""How many consumed events are noted before they are counted; whoever reads a counter counts them first."""

_Arrival = tuple[float, int, int]
"""When the consumer got an event, by the monotonic clock in seconds; the time of the event; its age; both in µs."""


class ConsumerSeries:
    """All metrics of one consumer name. Written by the run, read by scrapes from any thread.

    ``configure`` may be called again; the last call wins.
    """

    def __init__(self, name: str, metrics: SeriesCollector[ConsumerSeries] | None = None) -> None:
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
        return self._metrics.of(name) if self._metrics is not None else ConsumerSeries(name)

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
            self.activity.threads.clear()
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
            self._take_noted()
            return dict(self._counts)

    def samples(self, histogram: str) -> tuple[list[tuple[str, float]], float]:
        """Return the cumulative buckets and the sum of age, latency, or late_by as they are now."""
        with self._lock:
            self._take_noted()
            return self._histograms[histogram].samples()

    def arrived(self, event: Event) -> _Arrival:
        """Show that the consumer handles *event* from now on; pass the result to ``ended``."""
        began, event_us = self.monotonic(), event.timestamp_us
        # Set before the consumer is called, which may take long, because alerts use the age of the event in progress.
        # A single assignment, which needs no lock.
        arrival = self._arrival = began, event_us, self._clock.now_us() - event_us
        return arrival

    def measure(self, fn: Callable[[Event, Any], None], event: Event, run: Run) -> None:
        """Call *fn* and count the event, as in ``consuming``, at the cost of one call."""
        began, event_us = self.monotonic(), event.timestamp_us
        age_us = self._clock.now_us() - event_us
        self._arrival = began, event_us, age_us
        try:
            fn(event, run)
        except BaseException as error:
            self.ended((began, event_us, age_us), outcome_of(error))
            raise
        noted = self._noted
        noted += age_us, self.monotonic() - began, 1  # at once: no thread sees a part of it
        if len(noted) >= 3 * NOTED:
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
        self._noted += [number for age_us in ages_us for number in (age_us, took_s, 0)]  # at once, as in ``measure``
        if len(self._noted) >= 3 * NOTED:
            self._count_noted()

    def ended(self, arrival: _Arrival, outcome: str | None) -> None:
        """Count the outcome of an event, a name in ``COUNTERS`` or None, its age on arrival, and the time taken."""
        noted = self._noted
        noted += arrival[2], self.monotonic() - arrival[0], outcome == "consumed"  # at once, as in ``measure``
        if outcome is not None and outcome != "consumed":
            self.count(outcome)
        if len(noted) >= 3 * NOTED:
            self._count_noted()

    def _count_noted(self) -> None:
        """Count the events that were noted."""
        with self._lock:
            self._take_noted()

    def _take_noted(self) -> None:
        """Count the events that were noted. Called with the lock held."""
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
