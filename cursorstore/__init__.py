"""Cursor stores for consumers, in a Scylla table or in memory, with or without a buffer; leases; and dead letters."""

import logging

from .checks import process_name
from .cursors.buffered import BufferedCursorStore
from .cursors.codec import CursorCodec, EventCursorCodec, IntCursorCodec
from .cursors.memory import MemoryCursorStore
from .cursors.reslice import reslice_cursors
from .cursors.scylla import ScyllaCursorStore
from .cursors.table import DEFAULT_TABLE, schema_cql
from .groups.admin import abort_reslice, drain_member, find_group, list_groups, reslice_group
from .groups.scylla import ScyllaMembership
from .groups.table import DEFAULT_GROUP_TABLE, ScyllaGroupTable, group_schema_cql
from .leases.lease import ScyllaLease, list_leases
from .leases.table import DEFAULT_LEASE_TABLE, LeaseRecord, lease_schema_cql
from .letters.deadletters import MemoryDeadLetters, ScyllaDeadLetters
from .letters.table import DEFAULT_LETTER_TABLE, letter_schema_cql

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
    "process_name",
    "reslice_cursors",
    "reslice_group",
    "schema_cql",
]

logging.getLogger("rscylla.cursorstore").addHandler(logging.NullHandler())
