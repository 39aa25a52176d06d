"""From pages to events: log rows, columns, changes and events, compiled or in Python."""

from .changes import Bound, Change, ChangeBatch, KeyRange
from .columns import ColumnChange, ColumnState
from .events import NO_EVENTS, ChangeEvent, Counters, EventContext, Events, changes_of, lowest_position, rows_as_events
from .grouping import PARTITION_DELETES, RANGE_STARTS, RANGES
from .rows import Cells, Layout, Layouts, LogRows, ValueColumn, new_rows, token_of_key

__all__ = [
    "NO_EVENTS",
    "PARTITION_DELETES",
    "RANGES",
    "RANGE_STARTS",
    "Bound",
    "Cells",
    "Change",
    "ChangeBatch",
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
    "ValueColumn",
    "changes_of",
    "lowest_position",
    "new_rows",
    "rows_as_events",
    "token_of_key",
]
