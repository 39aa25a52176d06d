"""The engine: runs a consumer over a stream, from a saved cursor, at least once. It knows nothing about CDC."""

from ._run import run
from .consumer import Consumer
from .context import Run
from .deferred import Collecting
from .fate import NO_FATE, OFFICE_HOURS, Fate
from .filters import EventFilter, all_event_filters, any_event_filters, metadata_event_filter
from .inflight import LOOK_AGAIN_S, Entry, InFlight, positive
from .patterns import (
    Ack,
    Backoff,
    Lanes,
    ack,
    await_event,
    batch,
    best_effort,
    bootstrap,
    checked_specs,
    concurrent,
    dead_letter,
    fast_and_sweep,
    fast_lane_name,
    flat_specs,
    parallel,
    partition_of,
    replay_letters,
    run_forever,
    windows,
)
from .patterns.breaker import CircuitBreaker
from .patterns.letters.parked import Parked
from .slices import Sliceable, slice_name, slice_of, slice_specs, take_along
from .spec import RunOptions, Spec
from .telemetry.batch_metrics import BatchMetrics, BatchSeries, batch_metrics_for
from .telemetry.logs import JsonFormatter, LaneFilter, log_context, whole_of
from .telemetry.meters import Meters, meters_for
from .telemetry.metrics import Metrics, metrics_for
from .telemetry.series import ConsumerSeries, Consuming
from .telemetry.tracing import traced
from .wrapper import Wrapper

__all__ = [
    "LOOK_AGAIN_S",
    "NO_FATE",
    "OFFICE_HOURS",
    "Ack",
    "Backoff",
    "BatchMetrics",
    "BatchSeries",
    "CircuitBreaker",
    "Collecting",
    "Consumer",
    "ConsumerSeries",
    "Consuming",
    "Entry",
    "EventFilter",
    "Fate",
    "InFlight",
    "JsonFormatter",
    "LaneFilter",
    "Lanes",
    "Meters",
    "Metrics",
    "Parked",
    "Run",
    "RunOptions",
    "Sliceable",
    "Spec",
    "Wrapper",
    "ack",
    "all_event_filters",
    "any_event_filters",
    "await_event",
    "batch",
    "batch_metrics_for",
    "best_effort",
    "bootstrap",
    "checked_specs",
    "concurrent",
    "dead_letter",
    "fast_and_sweep",
    "fast_lane_name",
    "flat_specs",
    "log_context",
    "metadata_event_filter",
    "meters_for",
    "metrics_for",
    "parallel",
    "partition_of",
    "positive",
    "replay_letters",
    "run",
    "run_forever",
    "slice_name",
    "slice_of",
    "slice_specs",
    "take_along",
    "traced",
    "whole_of",
    "windows",
]
