"""Event sourcing on ScyllaDB: aggregates whose events are rows, appended by conditional writes and read by CDC.

abc          what the parts ask of each other
envelope     events as they are stored, and as the application sees them
"""

from ..errors import EventStoreError, SubjectForgotten, UnreadableEvent, VersionConflict
from .abc import (
    BuildStore,
    Built,
    EventStore,
    Projection,
    ScanPage,
    SnapshotStore,
    SubjectKeys,
    Timer,
    TimerStore,
    TokenRange,
)
from .envelope import AggregateID, Envelope, EventRecord, Snapshot

__all__ = [
    "AggregateID",
    "BuildStore",
    "Built",
    "Envelope",
    "EventRecord",
    "EventStore",
    "EventStoreError",
    "Projection",
    "ScanPage",
    "Snapshot",
    "SnapshotStore",
    "SubjectForgotten",
    "SubjectKeys",
    "Timer",
    "TimerStore",
    "TokenRange",
    "UnreadableEvent",
    "VersionConflict",
]
