"""Prometheus metrics of consumers and runs: plain counters behind one collector, read at scrape time.

Names that start with ``reflex_`` are those of the Go reflex library, so that its dashboards keep working. Its
counters lack the suffix ``_total``, which the Python client requires of counters, so they are exposed without a type.
Nothing is registered on import: the first call of ``metrics_for`` for a registry registers one collector.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, Metric

from ...abc import Consumer
from .collector import PerRegistry, Row, SeriesCollector
from .series import ConsumerSeries

__all__ = ["Metrics", "metrics_for", "series_of"]


def _cdc_enabled(series: ConsumerSeries) -> float | None:
    enabled = series.status().cdc_enabled
    return None if enabled is None else float(enabled)


_GAUGES: tuple[Row[ConsumerSeries], ...] = (
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

_REFLEX_COUNTERS: tuple[Row[ConsumerSeries], ...] = (
    ("reflex_consumer_error_count", "events whose consumer failed", lambda s: s.counts["errors"]),
    ("reflex_consumer_skipped_events_count", "events that filters left out", lambda s: s.counts["skipped"]),
    ("reflex_consumer_dead_lettered_events_count", "events stored as letters", lambda s: s.counts["dead_lettered"]),
)

_COUNTERS: tuple[Row[ConsumerSeries], ...] = (
    ("rscylla_consumed_events", "events consumed without an error", lambda s: s.counts["consumed"]),
    ("rscylla_recovered_events", "events whose error the recover function swallowed", lambda s: s.counts["recovered"]),
    ("rscylla_given_up_events", "events that were skipped because of their errors", lambda s: s.counts["given_up"]),
    ("rscylla_late_events", "events that the fast lane missed and a sweep found", lambda s: s.counts["late"]),
    ("rscylla_unproven_events", "events that a sweep repeated to be safe", lambda s: s.counts["unproven"]),
    ("rscylla_version_gaps", "gaps of versions that a projection found and filled", lambda s: s.counts["version_gaps"]),
    ("rscylla_cursor_expired", "how often a cursor was older than the log", ConsumerSeries.cursor_expired),
    ("rscylla_incomplete_records", "records of which rows had expired", lambda s: s.status().incomplete_records),
    ("rscylla_progress", "cursors saved without an event", lambda s: s.counts["progress"]),
    ("rscylla_flush_failures", "flushes at the end of runs that failed", lambda s: s.counts["flush_failures"]),
)

_LATE_BY = "how long the fast lane had passed an event that the sweep found"

_HISTOGRAMS: tuple[Row[ConsumerSeries], ...] = (
    ("reflex_consumer_event_age_seconds", "age of events on arrival", lambda s: s.samples("age")),
    ("reflex_consumer_latency_seconds", "time spent consuming", lambda s: s.samples("latency")),
    ("rscylla_late_by_seconds", _LATE_BY, lambda s: s.samples("late_by")),
)


class Metrics(SeriesCollector[ConsumerSeries]):
    """The collector of all consumers on one registry. Use ``metrics_for`` to get it."""

    def __init__(self) -> None:
        tables = {"gauge": _GAUGES, "unknown": _REFLEX_COUNTERS, "counter": _COUNTERS, "histogram": _HISTOGRAMS}
        super().__init__("consumer_name", lambda name: ConsumerSeries(name, self), tables)

    def consumer(self, name: str) -> ConsumerSeries:
        """Return the series of consumer *name*, created on first use; consumers with the same name share it."""
        return self.of(name)

    def families(self, series: list[ConsumerSeries]) -> list[Metric]:
        labels = ("consumer_name", "stage")
        failed = CounterMetricFamily("rscylla_run_errors", "runs that ended with an error, by stage", labels=labels)
        for one in series:
            for stage, count in sorted(one.run_errors.copy().items()):
                failed.add_metric([one.name, stage], count)
        return [*super().families(series), failed]


def _registered(registry: CollectorRegistry) -> Metrics:
    metrics = Metrics()
    registry.register(metrics)
    return metrics


_METRICS = PerRegistry(_registered)


def metrics_for(registry: CollectorRegistry | None = None) -> Metrics:
    """Return the collector on *registry*, or on the default one; the first call registers it.

    Metrics live in this process only; the client library's multi-process mode does not see them.
    """
    return _METRICS.of(registry)


def series_of(consumer: Consumer, registry: CollectorRegistry | None = None) -> ConsumerSeries:
    """Return the series of *consumer* on *registry*; without a registry, its own, or else that of the default one."""
    series = getattr(consumer, "series", None) if registry is None else None
    return series if isinstance(series, ConsumerSeries) else metrics_for(registry).consumer(consumer.name)
