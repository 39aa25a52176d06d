"""Metrics of queries and loops as a scrape sees them, and their lines in the log."""

from __future__ import annotations

import logging

import attrs
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rscylla.abc import BatchProgress
from rscylla.reflex.telemetry.batch_metrics import BatchMetrics, batch_metrics_for
from rscylla.testing import ManualClock

START_US = 1_790_000_000_000_000
DONE = BatchProgress(
    query="orders",
    batch="7",
    start_us=START_US,
    watermark_us=START_US + 10_000_000,
    head_us=START_US + 40_000_000,
    rows=200,
    seconds=0.5,
    windows_behind=3,
    generation_us=START_US - 1_000_000,
    streams=256,
    splits=4,
    log_ttl_s=86_400,
)


def shown(metrics: BatchMetrics) -> dict[str, float]:
    """Return the values of the query "orders", without those of buckets."""
    registry = CollectorRegistry()
    registry.register(metrics)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        sample.name.removeprefix("rscylla_query_"): sample.value
        for family in families
        for sample in family.samples
        if sample.labels == {"query": "orders"}
    }


def test_a_batch_shows_how_far_its_query_is() -> None:
    clock = ManualClock(START_US + 70_000_000)
    metrics = BatchMetrics(clock)
    metrics(DONE)
    assert shown(metrics) == {
        "watermark_lag_seconds": 60,
        "behind_seconds": 30,
        "windows_behind": 3,
        "rows_behind": 600,  # 200 rows in ten seconds of the log, for the 30 s behind
        "log_ttl_seconds": 86_400,
        "generation_timestamp_seconds": START_US / 1e6 - 1,
        "streams": 256,
        "splits": 4,
        "rows_per_second": 400,
        "batches_total": 1,
        "rows_total": 200,
        "restarts_total": 0,
        "errors_total": 0,
        "batch_seconds_count": 1,
        "batch_seconds_sum": 0.5,
    }
    clock.advance(100)
    assert shown(metrics)["watermark_lag_seconds"] == 160, "the lag of a query that hangs grows"


def test_the_rows_behind_are_estimated_from_the_last_ten_batches() -> None:
    metrics = BatchMetrics(ManualClock(START_US))
    for rows in [10**9, *[0] * 9, 100]:
        metrics(attrs.evolve(DONE, rows=rows))
    assert shown(metrics)["rows_behind"] == 30  # 100 rows in 100 s, 30 s behind
    empty = BatchMetrics(ManualClock(START_US))
    empty(attrs.evolve(DONE, watermark_us=START_US))
    assert "rows_behind" not in shown(empty), "no span to go by"


def test_a_query_that_ends_as_meant_has_no_lag_and_one_that_fails_has() -> None:
    metrics = BatchMetrics(ManualClock(START_US + 70_000_000))
    query = metrics.query("orders")
    query.started()
    metrics(DONE)
    assert shown(metrics)["running"] == 1
    query.ended(failed=True)
    seen = shown(metrics)
    assert (seen["running"], seen["errors_total"], seen["watermark_lag_seconds"]) == (0, 1, 60)
    query.started()
    query.ended(failed=False)
    seen = shown(metrics)
    assert (seen["running"], seen["errors_total"], seen["restarts_total"]) == (0, 1, 1)
    assert not {"watermark_lag_seconds", "behind_seconds", "windows_behind", "rows_behind"} & seen.keys()
    query.started()
    assert shown(metrics)["watermark_lag_seconds"] == 60


def test_a_batch_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    metrics = BatchMetrics(ManualClock(START_US + 70_000_000))
    assert metrics.query("orders").line() == "query orders: no batch yet"
    with caplog.at_level(logging.INFO, "rscylla"):
        metrics(attrs.evolve(DONE, rows=123_456))
        metrics(BatchProgress(query="other", batch="0", rows=5, seconds=1.25))
        metrics(BatchProgress(query="loop", batch="w", watermark_us=START_US))
    assert caplog.messages == [
        (
            "query orders, batch 7: 123,456 rows, 0.5 s, 246,912 rows/s, lag 60.0 s, 3 windows behind, "
            "about 370,368 rows behind, generation 2026-09-21T14:13:19Z, 256 streams, 4 splits"
        ),
        "query other, batch 0: 5 rows, 1.2 s, 4 rows/s",
        "query loop, batch w: lag 70.0 s",
    ]


def test_all_queries_of_a_registry_are_in_one_collector() -> None:
    registry = CollectorRegistry()
    assert batch_metrics_for(registry) is batch_metrics_for(registry)
    assert batch_metrics_for(registry) is not batch_metrics_for(CollectorRegistry())
    batch_metrics_for(registry)(DONE)
    assert registry.get_sample_value("rscylla_query_rows_total", {"query": "orders"}) == 200
