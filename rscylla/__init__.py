"""Change data capture for ScyllaDB, as cursor streams of events.

Open a stream over a table's CDC log, give it to a consumer, and keep its cursor in a store::

    stream = rscylla.NewStream(session, "shop", "orders")
    spec = rscylla.Spec(stream, store, rscylla.Consumer("billing", on_order), rscylla.StreamLag(seconds=30))
    rscylla.run_forever(spec)
"""

import logging as _logging

from ._json import dumps as to_json
from .cdc.changes import Bound, Change, ChangeBatch, KeyRange
from .cdc.checkup import diagnose
from .cdc.columns import ColumnChange, ColumnState
from .cdc.doctor import Finding
from .cdc.driver import Session, connect
from .cdc.records import ChangeEvent
from .cdc.scan import Limits
from .cdc.stream import GetCursor, NewStream, Stream
from .clock import Clock, Stop, SystemClock
from .errors import (
    AuthenticationFailed,
    CDCDisabled,
    ConfigError,
    ConnectionFailed,
    CursorConflict,
    CursorError,
    CursorExpired,
    CursorRegression,
    EventTypeError,
    FateError,
    FilterError,
    HeadReached,
    IncompleteKey,
    InvalidCursor,
    LeaseLost,
    MetadataError,
    MissingLag,
    NoStreams,
    QueryFailed,
    QueryTimeout,
    RscyllaError,
    RunError,
    SourceError,
    Stopped,
    TableChanged,
    TableNotFound,
)
from .event import Event, EventID, Operation, Progress, SimpleEvent, cursor_key
from .options import StreamFromHead, StreamLag, StreamOptions, StreamToHead, StreamUntil
from .reflex import (
    NO_FATE,
    OFFICE_HOURS,
    Backoff,
    Consumer,
    Fate,
    Spec,
    all_event_filters,
    any_event_filters,
    metadata_event_filter,
    run,
    run_forever,
    shard_name,
    shard_of,
    shard_specs,
)

__all__ = [
    "NO_FATE",
    "OFFICE_HOURS",
    "AuthenticationFailed",
    "Backoff",
    "Bound",
    "CDCDisabled",
    "Change",
    "ChangeBatch",
    "ChangeEvent",
    "Clock",
    "ColumnChange",
    "ColumnState",
    "ConfigError",
    "ConnectionFailed",
    "Consumer",
    "CursorConflict",
    "CursorError",
    "CursorExpired",
    "CursorRegression",
    "Event",
    "EventID",
    "EventTypeError",
    "Fate",
    "FateError",
    "FilterError",
    "Finding",
    "GetCursor",
    "HeadReached",
    "IncompleteKey",
    "InvalidCursor",
    "KeyRange",
    "LeaseLost",
    "Limits",
    "MetadataError",
    "MissingLag",
    "NewStream",
    "NoStreams",
    "Operation",
    "Progress",
    "QueryFailed",
    "QueryTimeout",
    "RscyllaError",
    "RunError",
    "Session",
    "SimpleEvent",
    "SourceError",
    "Spec",
    "Stop",
    "Stopped",
    "Stream",
    "StreamFromHead",
    "StreamLag",
    "StreamOptions",
    "StreamToHead",
    "StreamUntil",
    "SystemClock",
    "TableChanged",
    "TableNotFound",
    "all_event_filters",
    "any_event_filters",
    "connect",
    "cursor_key",
    "diagnose",
    "metadata_event_filter",
    "run",
    "run_forever",
    "shard_name",
    "shard_of",
    "shard_specs",
    "to_json",
]

_logging.getLogger("rscylla").addHandler(_logging.NullHandler())
