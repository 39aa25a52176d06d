"""Rows, changes and events of a log as Arrow record batches; importing it imports ``pyarrow``."""

from .batches import ChangeView, EventView, LogView, Mode, table_of, view_for
from .columnar import built, naming
from .spanbatches import check_schema, columns_of, span_batches, statement_of

__all__ = [
    "ChangeView",
    "EventView",
    "LogView",
    "Mode",
    "built",
    "check_schema",
    "columns_of",
    "naming",
    "span_batches",
    "statement_of",
    "table_of",
    "view_for",
]
