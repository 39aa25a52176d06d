"""Change data capture for ScyllaDB, as cursor streams of events.

Open a stream over a table's CDC log, give it to a consumer, and keep its cursor in a store::

    stream = rscylla.NewStream(session, "shop", "orders")
    spec = rscylla.Spec(stream, store, rscylla.Consumer("billing", on_order), rscylla.StreamLag(seconds=30))
    rscylla.run_forever(spec)
"""

import logging as _logging
import typing as _typing

from ._letters import DeadLetter, KeptChange, KeptEvent
from .cdc import ArrowRows, ArrowWindows, GetCursor, NewStream, Stream, windows_as_arrow
from .cdc.read import Limits
from .cdc.rows import Bound, Change, ChangeBatch, ChangeEvent, ColumnChange, ColumnState, KeyRange
from .clock import Clock, Stop, SystemClock
from .doctor import Finding, diagnose
from .driver import Session, connect
from .errors import (
    AuthenticationFailed,
    CannotReplicate,
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
    MalformedData,
    MetadataError,
    MissingLag,
    NoStreams,
    QueryFailed,
    QueryTimeout,
    RscyllaError,
    RunError,
    SchemaChanged,
    ServiceFailed,
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
    Ack,
    Backoff,
    CircuitBreaker,
    Consumer,
    Fate,
    JsonFormatter,
    LaneFilter,
    Lanes,
    Run,
    Spec,
    ack,
    all_event_filters,
    any_event_filters,
    await_event,
    batch,
    best_effort,
    bootstrap,
    concurrent,
    dead_letter,
    fast_and_sweep,
    fast_lane_name,
    metadata_event_filter,
    parallel,
    partition_of,
    replay_letters,
    run,
    run_forever,
    slice_name,
    slice_of,
    slice_specs,
    traced,
    windows,
)
from .service import Group, Restarts, Service, group_lanes
from .types import dumps as to_json

__all__ = [
    "NO_FATE",
    "OFFICE_HOURS",
    "Ack",
    "ArrowRows",
    "ArrowWindows",
    "AuthenticationFailed",
    "Backoff",
    "Bound",
    "CDCDisabled",
    "CannotReplicate",
    "Change",
    "ChangeBatch",
    "ChangeEvent",
    "CircuitBreaker",
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
    "DeadLetter",
    "Event",
    "EventID",
    "EventTypeError",
    "Fate",
    "FateError",
    "FilterError",
    "Finding",
    "GetCursor",
    "Group",
    "HeadReached",
    "IncompleteKey",
    "InvalidCursor",
    "JsonFormatter",
    "KeptChange",
    "KeptEvent",
    "KeyRange",
    "LaneFilter",
    "Lanes",
    "LeaseLost",
    "Limits",
    "MalformedData",
    "MetadataError",
    "MissingLag",
    "NewStream",
    "NoStreams",
    "Operation",
    "Progress",
    "QueryFailed",
    "QueryTimeout",
    "Restarts",
    "RscyllaError",
    "Run",
    "RunError",
    "SchemaChanged",
    "Service",
    "ServiceFailed",
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
    "ack",
    "all_event_filters",
    "any_event_filters",
    "await_event",
    "batch",
    "best_effort",
    "bootstrap",
    "concurrent",
    "connect",
    "cursor_key",
    "dead_letter",
    "diagnose",
    "fast_and_sweep",
    "fast_lane_name",
    "group_lanes",
    "metadata_event_filter",
    "parallel",
    "partition_of",
    "replay_letters",
    "run",
    "run_forever",
    "slice_name",
    "slice_of",
    "slice_specs",
    "to_json",
    "traced",
    "windows",
    "windows_as_arrow",
]

__version__: str
"""Version of the installed distribution."""

__decoder__: str
"""The decoder of log pages that runs: "compiled", or its twin in Python, "pure"."""

if not _typing.TYPE_CHECKING:  # with a module __getattr__, a type checker accepts any name

    def __getattr__(name: str) -> str:
        """Return what is looked up on first use: reading the version from the metadata would slow the import."""
        if name == "__decoder__":
            from ._decoder import decoder

            return decoder()
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib.metadata

        try:
            version = importlib.metadata.version(__name__)
        except importlib.metadata.PackageNotFoundError:
            version = "0+unknown"  # a source tree on the path
        return globals().setdefault(name, version)


_logging.getLogger("rscylla").addHandler(_logging.NullHandler())
