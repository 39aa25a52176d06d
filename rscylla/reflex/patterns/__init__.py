"""Ways to run consumers and to wrap them, one module each."""

from .ack import Ack, ack
from .await_event import await_event
from .batch import batch
from .best_effort import best_effort
from .bootstrap import bootstrap
from .concurrent import concurrent, partition_of
from .lanes.fast_and_sweep import Lanes, fast_and_sweep, fast_lane_name
from .letters.claims import replay_letters
from .letters.dead_letter import dead_letter
from .parallel import checked_specs, flat_specs, parallel
from .run_forever import Backoff, run_forever
from .windows import windows

__all__ = [
    "Ack",
    "Backoff",
    "Lanes",
    "ack",
    "await_event",
    "batch",
    "best_effort",
    "bootstrap",
    "checked_specs",
    "concurrent",
    "dead_letter",
    "fast_and_sweep",
    "fast_lane_name",
    "flat_specs",
    "parallel",
    "partition_of",
    "replay_letters",
    "run_forever",
    "windows",
]
