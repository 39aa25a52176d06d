"""Prometheus metrics of streaming queries and of loops over windows, and one line in the log for each batch.

The names follow those of consumers in ``metrics``, with the label ``query`` instead of ``consumer_name``.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from ..._timeuuid import format_time
from ...abc import BatchProgress
from ...clock import Clock, SystemClock
from .collector import Histogram, PerRegistry, Row, SeriesCollector

__all__ = ["BatchMetrics", "BatchSeries", "batch_metrics_for"]

log = logging.getLogger("rscylla")

SECONDS_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Upper bounds of how long batches take."""

RATE_BATCHES = 10
"""The rows behind are estimated from the rows of so many batches."""


class BatchSeries:
    """The metrics of one query. Thread-safe."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: BatchProgress | None = None
        self._recent: deque[tuple[int, int]] = deque(maxlen=RATE_BATCHES)  # rows of a batch, and its span in us
        self._starts = 0
        self.running: bool | None = None
        """None if it is not known when the query starts and ends."""
        self.finished = False
        self.batches = 0
        self.rows = 0
        self.errors = 0
        self.seconds = Histogram(SECONDS_BUCKETS)

    def started(self) -> None:
        """The query was started, maybe again."""
        with self._lock:
            self._starts += 1
            self.running = True
            self.finished = False

    def ended(self, *, failed: bool) -> None:
        """The query has ended. Without a failure it is meant to be down, so its lag is not shown any longer."""
        with self._lock:
            self.running = False
            self.errors += failed
            self.finished = not failed

    def done(self, batch: BatchProgress) -> None:
        """Count *batch*, and write its line to the log."""
        with self._lock:
            self.finished = False
            self.batches += 1
            self._seen = batch
            if batch.seconds is not None:
                self.seconds.observe(batch.seconds)
            if batch.rows is not None:
                self.rows += batch.rows
                if batch.start_us is not None and batch.watermark_us is not None:
                    self._recent.append((batch.rows, max(0, batch.watermark_us - batch.start_us)))
        if log.isEnabledFor(logging.INFO):
            log.info("%s", self.line())

    @property
    def restarts(self) -> int:
        """How often the query was started again in this process."""
        return max(0, self._starts - 1)

    @property
    def failed(self) -> bool | None:
        """Whether the query is down because of an error; None if it is not known when it starts and ends."""
        return None if self.running is None else not self.running and not self.finished

    def lag(self) -> float | None:
        """Return the clock minus the watermark in seconds. It grows until the next batch is done."""
        seen = self._seen
        if seen is None or seen.watermark_us is None or self.finished:
            return None
        return (self._clock.now_us() - seen.watermark_us) / 1e6

    def rows_behind(self) -> float | None:
        """Return an estimate of the rows between the watermark and the head.

        It is how far the query is behind, times the rows in a second of the log in the last ten batches.
        """
        seen = self._seen
        with self._lock:
            rows, span_us = (sum(values) for values in zip(*self._recent, strict=True)) if self._recent else (0, 0)
        if seen is None or seen.behind_s is None or not span_us:
            return None
        return round(seen.behind_s * rows * 1e6 / span_us)

    def of_last(self, value: Callable[[BatchProgress], float | None]) -> float | None:
        """Return a value of the last batch; None if there was none, or the query has finished."""
        seen = self._seen
        return None if seen is None or self.finished else value(seen)

    def line(self) -> str:
        """Return the last batch as a line of text, with what is known of it."""
        seen = self._seen
        if seen is None:
            return f"query {self.name}: no batch yet"
        parts = []
        if seen.rows is not None:
            parts.append(f"{seen.rows:,} rows")
        if seen.seconds is not None:
            parts.append(f"{seen.seconds:.1f} s")
        rate = _rate(seen)
        if rate is not None:
            parts.append(f"{rate:,.0f} rows/s")
        lag, behind = self.lag(), self.rows_behind()
        if lag is not None:
            parts.append(f"lag {lag:.1f} s")
        if seen.windows_behind is not None:
            parts.append(f"{seen.windows_behind:,} windows behind")
        if behind is not None:
            parts.append(f"about {behind:,} rows behind")
        if seen.generation_us is not None:
            parts.append(f"generation {format_time(seen.generation_us)}")
        if seen.streams is not None:
            parts.append(f"{seen.streams:,} streams")
        if seen.splits is not None:
            parts.append(f"{seen.splits:,} splits")
        return f"query {self.name}, batch {seen.batch}: {', '.join(parts)}"


def _rate(batch: BatchProgress) -> float | None:
    return batch.rows / batch.seconds if batch.rows is not None and batch.seconds else None


def _of(value: Callable[[BatchProgress], float | None]) -> Callable[[BatchSeries], float | None]:
    return lambda series: series.of_last(value)


def _generation_s(batch: BatchProgress) -> float | None:
    return None if batch.generation_us is None else batch.generation_us / 1e6


_GAUGES: tuple[Row[BatchSeries], ...] = (
    ("rscylla_query_watermark_lag_seconds", "clock minus the time before which all was read", BatchSeries.lag),
    ("rscylla_query_behind_seconds", "complete part of the log that was not read", _of(lambda b: b.behind_s)),
    ("rscylla_query_windows_behind", "complete windows that were not read", _of(lambda b: b.windows_behind)),
    (
        "rscylla_query_rows_behind",
        "estimate of the rows in them, by those of the last batches",
        lambda s: None if s.finished else s.rows_behind(),
    ),
    ("rscylla_query_log_ttl_seconds", "how long the log keeps changes", _of(lambda b: b.log_ttl_s or None)),
    ("rscylla_query_generation_timestamp_seconds", "start of the generation of streams", _of(_generation_s)),
    ("rscylla_query_streams", "streams of that generation", _of(lambda b: b.streams)),
    ("rscylla_query_splits", "partitions of the last batch", _of(lambda b: b.splits)),
    ("rscylla_query_rows_per_second", "rows per second of the last batch", _of(_rate)),
    ("rscylla_query_running", "1 while the query runs", lambda s: None if s.running is None else float(s.running)),
    (
        "rscylla_query_failed",
        "1 after the query ended with an error, until it is started again",
        lambda s: None if s.failed is None else float(s.failed),
    ),
)

_COUNTERS: tuple[Row[BatchSeries], ...] = (
    ("rscylla_query_batches", "batches that were done", lambda s: s.batches),
    ("rscylla_query_rows", "rows of these batches", lambda s: s.rows),
    ("rscylla_query_restarts", "how often the query was started again in this process", lambda s: s.restarts),
    ("rscylla_query_errors", "how often the query ended with an error", lambda s: s.errors),
)

_HISTOGRAMS: tuple[Row[BatchSeries], ...] = (
    ("rscylla_query_batch_seconds", "how long batches took", lambda s: s.seconds.samples()),
)


class BatchMetrics(SeriesCollector[BatchSeries]):
    """The collector of all queries on one registry. Use ``batch_metrics_for`` to get it."""

    def __init__(self, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        tables = {"gauge": _GAUGES, "counter": _COUNTERS, "histogram": _HISTOGRAMS}
        super().__init__("query", lambda name: BatchSeries(name, clock), tables)

    def query(self, name: str) -> BatchSeries:
        """Return the series of query *name*, created on first use."""
        return self.of(name)

    def __call__(self, batch: BatchProgress) -> None:
        """Count a batch: ``windows(..., on_done=batch_metrics_for())``."""
        self.query(batch.query).done(batch)


def _registered(registry: CollectorRegistry) -> BatchMetrics:
    metrics = BatchMetrics()
    registry.register(metrics)
    return metrics


_METRICS = PerRegistry(_registered)


def batch_metrics_for(registry: CollectorRegistry | None = None) -> BatchMetrics:
    """Return the collector of queries on *registry*, or on the default one; the first call registers it."""
    return _METRICS.of(registry)
