"""Event sourcing on ScyllaDB: aggregates whose events are rows, appended by conditional writes and read by CDC.

    abc           what the parts ask of each other
    envelope      events as they are stored, and as the application sees them
    types         classes of events: schema numbers, upcasters
    codec/        values as JSON, proven to come back as they are, and sealed on the way
    aggregate     deciders: commands to events, events to states
    commands      ``CommandHandler``: load, decide, append, and again on conflict
    store/        events, snapshots, and keys: in tables
    memory        events, snapshots, and keys in memory, for tests
    shredding     personal data that can be forgotten
    reading       changes of the event table, read as events
    projections/  ``Projector``: views that follow the log, and are rebuilt while live
    timers/       what has to happen at a time, and ``Processes``: events and timers that lead to commands
    messages      events as records for a broker

Needs the extra ``eventsourcing``. See docs/event-store.md.
"""

from ..errors import (
    CommandIDReused,
    ConcealedError,
    EventStoreError,
    SubjectForgotten,
    UnreadableEvent,
    VersionConflict,
    VersionGap,
)
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
from .messages import EventMessages, parking_messages
from .projections.builds import ScyllaBuilds, build_schema_cql
from .projections.projections import Projector
from .reading import aggregate_of, parking_key, record_of
from .shredding import FORGOTTEN, PersonalData, personal, subject
from .store.store import (
    ScyllaEventStore,
    ScyllaSnapshotStore,
    ScyllaSubjectKeys,
    event_schema_cql,
    key_schema_cql,
    snapshot_schema_cql,
)
from .timers.processes import Action, CancelTimer, Processes, ProcessManager, Send, Sender, SetTimer
from .timers.stores import ScyllaTimers, timer_schema_cql
from .timers.timers import firing_id, timer_of, timer_spec
from .types import EventTypes, Upcaster

__all__ = [
    "FORGOTTEN",
    "Action",
    "Aggregate",
    "AggregateID",
    "BuildStore",
    "Built",
    "CancelTimer",
    "CommandHandler",
    "CommandIDReused",
    "ConcealedError",
    "Envelope",
    "EventMessages",
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
    "ProcessManager",
    "Processes",
    "Projection",
    "Projector",
    "ScanPage",
    "ScyllaBuilds",
    "ScyllaEventStore",
    "ScyllaSnapshotStore",
    "ScyllaSubjectKeys",
    "ScyllaTimers",
    "Send",
    "Sender",
    "SetTimer",
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
    "VersionGap",
    "aggregate_of",
    "build_schema_cql",
    "event_id_of",
    "event_schema_cql",
    "firing_id",
    "key_schema_cql",
    "parking_key",
    "parking_messages",
    "personal",
    "record_of",
    "snapshot_schema_cql",
    "subject",
    "timer_of",
    "timer_schema_cql",
    "timer_spec",
]
