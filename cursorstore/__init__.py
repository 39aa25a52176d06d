"""Where consumers keep their cursors: in a Scylla table, in memory, buffered, and on the way from one to another."""

import logging

from .buffered import BufferedCursorStore
from .codec import CursorCodec, EventCursorCodec, IntCursorCodec
from .memory import MemoryCursorStore
from .readthrough import ReadThroughCursorStore
from .reshard import reshard_cursors
from .schema import DEFAULT_TABLE, schema_cql
from .scylla import ScyllaCursorStore

__all__ = [
    "DEFAULT_TABLE",
    "BufferedCursorStore",
    "CursorCodec",
    "EventCursorCodec",
    "IntCursorCodec",
    "MemoryCursorStore",
    "ReadThroughCursorStore",
    "ScyllaCursorStore",
    "reshard_cursors",
    "schema_cql",
]

logging.getLogger("rscylla.cursorstore").addHandler(logging.NullHandler())
