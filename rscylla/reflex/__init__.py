"""The engine: what drives a consumer with a stream, from a saved cursor, at least once. Knows nothing of CDC."""

from ._run import Spec, run
from .consumer import Consumer
from .fate import NO_FATE, OFFICE_HOURS, Fate
from .filters import EventFilter, all_event_filters, any_event_filters, metadata_event_filter
from .metrics import Metrics, metrics_for
from .patterns import Backoff, run_forever
from .shards import Shardable, shard_name, shard_of, shard_specs

__all__ = [
    "NO_FATE",
    "OFFICE_HOURS",
    "Backoff",
    "Consumer",
    "EventFilter",
    "Fate",
    "Metrics",
    "Shardable",
    "Spec",
    "all_event_filters",
    "any_event_filters",
    "metadata_event_filter",
    "metrics_for",
    "run",
    "run_forever",
    "shard_name",
    "shard_of",
    "shard_specs",
]
