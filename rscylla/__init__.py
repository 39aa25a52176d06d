"""Change data capture for ScyllaDB, as cursor streams of events.

Open a stream over a table's CDC log, give it to a consumer, and keep its cursor in a store::

    stream = rscylla.NewStream(session, "shop", "orders")
    spec = rscylla.Spec(stream, store, rscylla.Consumer("billing", on_order), rscylla.StreamLag(seconds=30))
    rscylla.run_forever(spec)
"""

import logging as _logging
import typing as _typing

from ._letters import DeadLetter, KeptChange, KeptEvent
from .cdc import GetCursor, NewStream, Stream, windows_as_arrow
from .cdc.read import Limits
from .cdc.rows import Change, ChangeEvent
from .clock import Clock, Stop, SystemClock
from .doctor import diagnose
from .driver import Session, connect
from .errors import (
    ConfigError,
    ConnectionFailed,
    CursorConflict,
    CursorExpired,
    HeadReached,
    QueryTimeout,
    RscyllaError,
    RunError,
    Stopped,
    TableChanged,
    TableNotFound,
)
from .event import Event, EventID, Operation, Progress, SimpleEvent, cursor_key
from .options import StreamFromHead, StreamLag, StreamToHead, StreamUntil
from .reflex import (
    Backoff,
    CircuitBreaker,
    Consumer,
    Fate,
    Run,
    Spec,
    ack,
    batch,
    concurrent,
    dead_letter,
    fast_and_sweep,
    parallel,
    replay_letters,
    run,
    run_forever,
    slice_name,
    slice_specs,
    traced,
    windows,
)
from .service import Group, Restarts, Service, group_lanes
from .types import dumps as to_json

__all__ = [
    "Backoff",
    "Change",
    "ChangeEvent",
    "CircuitBreaker",
    "Clock",
    "ConfigError",
    "ConnectionFailed",
    "Consumer",
    "CursorConflict",
    "CursorExpired",
    "DeadLetter",
    "Event",
    "EventID",
    "Fate",
    "GetCursor",
    "Group",
    "HeadReached",
    "KeptChange",
    "KeptEvent",
    "Limits",
    "NewStream",
    "Operation",
    "Progress",
    "QueryTimeout",
    "Restarts",
    "RscyllaError",
    "Run",
    "RunError",
    "Service",
    "Session",
    "SimpleEvent",
    "Spec",
    "Stop",
    "Stopped",
    "Stream",
    "StreamFromHead",
    "StreamLag",
    "StreamToHead",
    "StreamUntil",
    "SystemClock",
    "TableChanged",
    "TableNotFound",
    "ack",
    "batch",
    "concurrent",
    "connect",
    "cursor_key",
    "dead_letter",
    "diagnose",
    "fast_and_sweep",
    "group_lanes",
    "parallel",
    "replay_letters",
    "run",
    "run_forever",
    "slice_name",
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
