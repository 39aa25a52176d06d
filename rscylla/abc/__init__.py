"""The contracts between the parts of rscylla, as Protocols.

Each method documents when and from which threads it is called, what it returns for nothing, and what an error does.
"""

from __future__ import annotations

from .._groups import NOBODY, GroupMember, GroupSlice, GroupView
from ..event import ChangeLike
from ._batches import BatchProgress
from ._consumers import (
    BulkConsumer,
    Committing,
    Consumer,
    Fate,
    Partitioned,
    Resetter,
    Run,
    RunAware,
    Stopper,
    WindowConsumer,
    bulk_of,
)
from ._cursors import (
    BufferingCursorStore,
    CoalescingCursorStore,
    CursorAdmin,
    CursorRecord,
    CursorStore,
    FencedCursorStore,
    FlushableCursorStore,
    LastEvent,
    LazyCursorStore,
    fence_name,
    flush_cursor,
    last_event_of,
    saver_of,
    unsaved_s,
)
from ._deadletters import DeadLetterAdmin, DeadLetters
from ._leases import Fence, Fencing, Lease, Membership
from ._publishing import JointPublisher, Message, Participant, PublishDone, Publisher
from ._streams import (
    BulkStreamClient,
    IterableStreamClient,
    StreamClient,
    StreamFunc,
    StreamStatus,
    Window,
    WindowedStreamClient,
    receiver_of,
)

__all__ = [
    "NOBODY",
    "BatchProgress",
    "BufferingCursorStore",
    "BulkConsumer",
    "BulkStreamClient",
    "ChangeLike",
    "CoalescingCursorStore",
    "Committing",
    "Consumer",
    "CursorAdmin",
    "CursorRecord",
    "CursorStore",
    "DeadLetterAdmin",
    "DeadLetters",
    "Fate",
    "Fence",
    "FencedCursorStore",
    "Fencing",
    "FlushableCursorStore",
    "GroupMember",
    "GroupSlice",
    "GroupView",
    "IterableStreamClient",
    "JointPublisher",
    "LastEvent",
    "LazyCursorStore",
    "Lease",
    "Membership",
    "Message",
    "Participant",
    "Partitioned",
    "PublishDone",
    "Publisher",
    "Resetter",
    "Run",
    "RunAware",
    "Stopper",
    "StreamClient",
    "StreamFunc",
    "StreamStatus",
    "Window",
    "WindowConsumer",
    "WindowedStreamClient",
    "bulk_of",
    "fence_name",
    "flush_cursor",
    "last_event_of",
    "receiver_of",
    "saver_of",
    "unsaved_s",
]
