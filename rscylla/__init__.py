"""Change data capture for ScyllaDB, as cursor streams of events.

Open a stream over a table's CDC log, give it to a consumer, and keep its cursor in a store::

    stream = rscylla.NewStream(session, "shop", "orders")
    spec = rscylla.Spec(stream, store, rscylla.Consumer("billing", on_order), rscylla.StreamLag(seconds=30))
    rscylla.run_forever(spec)
"""

from .cdc.changes import Bound, Change, ChangeEvent
from .cdc.driver import connect
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
    FateError,
    HeadReached,
    InvalidCursor,
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
from .event import Event, EventID, Operation, Progress
from .options import StreamFromHead, StreamLag, StreamToHead, StreamUntil
