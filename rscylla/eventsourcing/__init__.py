"""Event sourcing on ScyllaDB: aggregates whose events are rows, appended by conditional writes and read by CDC.

    abc          what the parts ask of each other
    envelope     events as they are stored, and as the application sees them
    types        classes of events: JSON, schema numbers, upcasters
    aggregate    deciders: commands to events, events to states
    commands     ``CommandHandler``: load, decide, append, and again on conflict
    store        events, snapshots, and keys in tables; schema: these tables; memory: the same without a database
    shredding    personal data that can be forgotten

Needs the extra ``eventsourcing``.
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
from .aggregate import Aggregate
from .commands import CommandHandler, Handled, Loaded, event_id_of
from .envelope import AggregateID, Envelope, EventRecord, Snapshot
from .memory import MemoryEventStore, MemorySnapshotStore, MemorySubjectKeys
from .schema import event_schema_cql, key_schema_cql, snapshot_schema_cql
from .shredding import FORGOTTEN, PersonalData, personal, subject
from .store import ScyllaEventStore, ScyllaSnapshotStore, ScyllaSubjectKeys
from .types import EventTypes, Upcaster, json_converter

__all__ = [
    "FORGOTTEN",
    "Aggregate",
    "AggregateID",
    "BuildStore",
    "Built",
    "CommandHandler",
    "Envelope",
    "EventRecord",
    "EventStore",
    "EventStoreError",
    "EventTypes",
    "Handled",
    "Loaded",
    "MemoryEventStore",
    "MemorySnapshotStore",
    "MemorySubjectKeys",
    "PersonalData",
    "Projection",
    "ScanPage",
    "ScyllaEventStore",
    "ScyllaSnapshotStore",
    "ScyllaSubjectKeys",
    "Snapshot",
    "SnapshotStore",
    "SubjectForgotten",
    "SubjectKeys",
    "Timer",
    "TimerStore",
    "TokenRange",
    "UnreadableEvent",
    "Upcaster",
    "VersionConflict",
    "event_id_of",
    "event_schema_cql",
    "json_converter",
    "key_schema_cql",
    "personal",
    "snapshot_schema_cql",
    "subject",
]
