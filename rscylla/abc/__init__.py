"""The contracts between the parts of rscylla, as Protocols.

Each method documents when and from which threads it is called, what it returns for nothing, and what an error does.
"""

from __future__ import annotations

from ..event import ChangeLike
from ._batches import BatchProgress
from ._consumers import (
    ChunkConsumer,
    Committing,
    Consumer,
    Fate,
    Partitioned,
    Resetter,
    Run,
    RunAware,
    Stopper,
)
from ._cursors import (
    CoalescingCursorStore,
    CursorAdmin,
    CursorRecord,
    CursorStore,
    EventSaver,
    FencedCursorStore,
    FlushableCursorStore,
    LastEvent,
    fence_name,
    flush_cursor,
    last_event_of,
    unsaved_s,
)
from ._deadletters import DeadLetterAdmin, DeadLetters
from ._groups import NOBODY, GroupMember, GroupSlice, GroupView
from ._leases import Fence, Fencing, Lease, Membership
from ._publishing import JointPublisher, Message, Participant, PublishDone, Publisher
from ._streams import (
    Chunk,
    ChunkClient,
    EventTuple,
    StreamClient,
    StreamFunc,
    StreamStatus,
    Window,
    taker_of,
)

__all__ = [
    "NOBODY",
    "BatchProgress",
    "ChangeLike",
    "Chunk",
    "ChunkClient",
    "ChunkConsumer",
    "CoalescingCursorStore",
    "Committing",
    "Consumer",
    "CursorAdmin",
    "CursorRecord",
    "CursorStore",
    "DeadLetterAdmin",
    "DeadLetters",
    "EventSaver",
    "EventTuple",
    "Fate",
    "Fence",
    "FencedCursorStore",
    "Fencing",
    "FlushableCursorStore",
    "GroupMember",
    "GroupSlice",
    "GroupView",
    "JointPublisher",
    "LastEvent",
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
    "fence_name",
    "flush_cursor",
    "last_event_of",
    "taker_of",
    "unsaved_s",
]
