"""From pages to events: cells, log rows, columns, changes, and events.

layout      what the columns of a page mean
rows        the bytes of a page as log rows; ``LogRows.sort`` makes the order of events
grouping    which rows form a record, and which form a change
columns     what a change did to one column
changes     a change as typed values, with its images
events      changes as events: identity, key, metadata
compiled    the same in C, which runs where it was built; what everything means is said in its twins above
"""

from .changes import Bound, Change, KeyRange, Record
from .columns import ColumnChange, ColumnState
from .events import NO_EVENTS, ChangeEvent, Counters, EventContext, Events, changes_of, lowest_position, rows_as_events
from .grouping import RANGE_STARTS, RANGES
from .layout import PARTITION_DELETES, Cells, Layout, Layouts, ValueColumn
from .rows import LogRows, leave_out_lost_keys, new_rows, token_of_key

__all__ = [
    "NO_EVENTS",
    "PARTITION_DELETES",
    "RANGES",
    "RANGE_STARTS",
    "Bound",
    "Cells",
    "Change",
    "ChangeEvent",
    "ColumnChange",
    "ColumnState",
    "Counters",
    "EventContext",
    "Events",
    "KeyRange",
    "Layout",
    "Layouts",
    "LogRows",
    "Record",
    "ValueColumn",
    "changes_of",
    "leave_out_lost_keys",
    "lowest_position",
    "new_rows",
    "rows_as_events",
    "token_of_key",
]
