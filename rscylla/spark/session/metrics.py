"""``QueryMetrics``: the progress of streaming queries as metrics and log lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from pyspark.sql.streaming import StreamingQueryListener

from ...abc import BatchProgress
from ...reflex import BatchMetrics, BatchSeries, batch_metrics_for

__all__ = ["QueryMetrics", "batch_of"]


class QueryMetrics(StreamingQueryListener):  # type: ignore[misc]
    """A listener that shows how far streaming queries are, as Prometheus metrics and as one log line for each batch.

    ::

        spark.streams.addListener(QueryMetrics())
        prometheus_client.start_http_server(9400)

    The metrics are in the process that adds the listener, also with Spark Connect. Their label ``query`` is the name of
    the query, or else its id, which a checkpoint keeps. A query that reads something else has its batches, rows,
    restarts, and errors only. The lines go to the logger ``rscylla``, at level INFO. ``docs/spark.md`` lists the
    metrics.

    Args:
        registry: where the metrics are registered; the default registry of ``prometheus_client`` if None.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._metrics = batch_metrics_for(registry)
        self._names: dict[str, str] = {}  # by the id of the run, which is all that the end of a query has

    @property
    def metrics(self) -> BatchMetrics:
        """The collector, which also counts windows: ``windows(..., on_done=listener.metrics)``."""
        return self._metrics

    def query(self, name: str) -> BatchSeries:
        """Return what is known of the query *name*, or with the id *name*."""
        return self._metrics.query(name)

    def onQueryStarted(self, event: Any) -> None:
        self.query(self._name_of(event)).started()

    def onQueryProgress(self, event: Any) -> None:
        # The text has the same shape in classic Spark and in Spark Connect.
        progress = json.loads(event.progress.json)
        name = self._name_of(event.progress)
        self.query(name).done(batch_of(name, progress))

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        name = self._names.pop(str(event.runId), str(event.id))
        self.query(name).ended(failed=event.exception is not None)

    def _name_of(self, event: Any) -> str:
        name = event.name or str(event.id)
        self._names[str(event.runId)] = name
        return str(name)


def batch_of(name: str, progress: Mapping[str, Any]) -> BatchProgress:
    """Return what *progress*, the JSON of a ``StreamingQueryProgress``, says of the CDC logs that the query reads.

    If it reads several, the times are those of the one that is furthest behind, and numbers are sums.
    """
    seconds = (progress.get("batchDuration") or 0) / 1e3
    number = str(progress.get("batchId"))
    ours = [found for source in progress.get("sources") or () if (found := _of_source(name, number, source))]
    if not ours:
        return BatchProgress(query=name, batch=number, rows=progress.get("numInputRows"), seconds=seconds)
    last = min(ours, key=lambda batch: batch.watermark_us or 0)
    ttls = [batch.log_ttl_s for batch in ours if batch.log_ttl_s]
    return BatchProgress(
        query=name,
        batch=number,
        start_us=last.start_us,
        watermark_us=last.watermark_us,
        head_us=last.head_us,
        rows=sum(batch.rows or 0 for batch in ours),
        seconds=seconds,
        windows_behind=last.windows_behind,
        generation_us=last.generation_us,
        streams=_sum([batch.streams for batch in ours]),
        splits=_sum([batch.splits for batch in ours]),
        log_ttl_s=min(ttls, default=last.log_ttl_s),
    )


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _of_source(name: str, number: str, source: Mapping[str, Any]) -> BatchProgress | None:
    """Return the batch of one source; None if that is not of this package."""
    end = _offset(source.get("endOffset"))
    if end is None:
        return None
    start, head = _offset(source.get("startOffset")) or {}, _offset(source.get("latestOffset")) or {}
    seen = head.get("progress") or {}
    generation = end.get("gen")
    # The first batch begins at the initial offset, which its end holds.
    begin = end.get("begin") or start
    return BatchProgress(
        query=name,
        batch=number,
        start_us=begin.get("t"),
        watermark_us=end["t"],
        head_us=head.get("t"),
        rows=source.get("numInputRows"),
        windows_behind=seen.get("windows_behind"),
        generation_us=None if generation is None else generation * 1000,
        streams=seen.get("streams"),
        splits=seen.get("splits"),
        log_ttl_s=end.get("ttl"),
    )


def _offset(given: Any) -> dict[str, Any] | None:
    """Return an offset of this package, which may be text; None for any other."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    is_ours = isinstance(given, dict) and "log" in given and isinstance(given.get("t"), int)
    return given if is_ours else None
