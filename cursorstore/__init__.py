"""Cursor stores for consumers, in a Scylla table or in memory, with or without a buffer; leases; and dead letters."""

import logging

from ._grouptable import ScyllaGroupTable
from ._memorygroups import MemoryGroupTable
from .buffered import BufferedCursorStore
from .codec import CursorCodec, EventCursorCodec, IntCursorCodec
from .deadletters import MemoryDeadLetters, ScyllaDeadLetters
from .group import MemoryMembership, ScyllaMembership
from .groupadmin import abort_reslice, drain_member, find_group, list_groups, reslice_group
from .lease import LeaseRecord, MemoryLease, MemoryLeaseTable, ScyllaLease, list_leases
from .memory import MemoryCursorStore
from .readthrough import ReadThroughCursorStore
from .reslice import reslice_cursors
from .schema import (
    DEFAULT_GROUP_TABLE,
    DEFAULT_LEASE_TABLE,
    DEFAULT_LETTER_TABLE,
    DEFAULT_TABLE,
    group_schema_cql,
    lease_schema_cql,
    letter_schema_cql,
    schema_cql,
)
from .scylla import ScyllaCursorStore

__all__ = [
    "DEFAULT_GROUP_TABLE",
    "DEFAULT_LEASE_TABLE",
    "DEFAULT_LETTER_TABLE",
    "DEFAULT_TABLE",
    "BufferedCursorStore",
    "CursorCodec",
    "EventCursorCodec",
    "IntCursorCodec",
    "LeaseRecord",
    "MemoryCursorStore",
    "MemoryDeadLetters",
    "MemoryGroupTable",
    "MemoryLease",
    "MemoryLeaseTable",
    "MemoryMembership",
    "ReadThroughCursorStore",
    "ScyllaCursorStore",
    "ScyllaDeadLetters",
    "ScyllaGroupTable",
    "ScyllaLease",
    "ScyllaMembership",
    "abort_reslice",
    "drain_member",
    "find_group",
    "group_schema_cql",
    "lease_schema_cql",
    "letter_schema_cql",
    "list_groups",
    "list_leases",
    "reslice_cursors",
    "reslice_group",
    "schema_cql",
]

logging.getLogger("rscylla.cursorstore").addHandler(logging.NullHandler())
