"""The engine: runs a consumer over a stream, from a saved cursor, at least once. It knows nothing about CDC."""

from ._run import run
from .consumer import Consumer
from .context import Run
from .fate import NO_FATE, OFFICE_HOURS, Fate
from .filters import EventFilter, all_event_filters, any_event_filters, metadata_event_filter
from .patterns import (
    Ack,
    Backoff,
    Lanes,
    ack,
    await_event,
    batch,
    best_effort,
    bootstrap,
    concurrent,
    dead_letter,
    fast_and_sweep,
    fast_lane_name,
    parallel,
    partition_of,
    replay_letters,
    run_forever,
    windows,
)
from .patterns.breaker import CircuitBreaker
from .slices import Sliceable, slice_name, slice_of, slice_specs
from .spec import Spec
from .telemetry.batch_metrics import BatchMetrics, batch_metrics_for
from .telemetry.logs import JsonFormatter, LaneFilter
from .telemetry.metrics import Metrics, metrics_for
from .telemetry.tracing import traced

__all__ = [
    "NO_FATE",
    "OFFICE_HOURS",
    "Ack",
    "Backoff",
    "BatchMetrics",
    "CircuitBreaker",
    "Consumer",
    "EventFilter",
    "Fate",
    "JsonFormatter",
    "LaneFilter",
    "Lanes",
    "Metrics",
    "Run",
    "Sliceable",
    "Spec",
    "ack",
    "all_event_filters",
    "any_event_filters",
    "await_event",
    "batch",
    "batch_metrics_for",
    "best_effort",
    "bootstrap",
    "concurrent",
    "dead_letter",
    "fast_and_sweep",
    "fast_lane_name",
    "metadata_event_filter",
    "metrics_for",
    "parallel",
    "partition_of",
    "replay_letters",
    "run",
    "run_forever",
    "slice_name",
    "slice_of",
    "slice_specs",
    "traced",
    "windows",
]
