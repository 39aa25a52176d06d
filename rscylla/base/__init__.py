"""Base tables, for whatever reads or writes them beside their logs: their columns, their rows, and their statements."""

from .queries import select_by_key, select_range, token_of, with_times
from .reading import ATTEMPTS, BACKOFF, pages
from .scanning import TableScan
from .statements import ChangeWriter, RowWriter, Write, remaining_ttl
from .targets import check_columns
from .writing import TableWriter

__all__ = [
    "ATTEMPTS",
    "BACKOFF",
    "ChangeWriter",
    "RowWriter",
    "TableScan",
    "TableWriter",
    "Write",
    "check_columns",
    "pages",
    "remaining_ttl",
    "select_by_key",
    "select_range",
    "token_of",
    "with_times",
]
