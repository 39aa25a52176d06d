"""A CDC log as Arrow record batches, in one of three views: the log's own rows, changes, or events.

The views convert undecoded cells straight to columns; no row, change, or event becomes a Python object. docs/spark.md
describes the columns of each view.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

import attrs
import pyarrow as pa

from ...errors import ConfigError
from ...types import NO_DIGITS, Digits
from ...types.arrow import TIMESTAMP, arrow_type, builder_for
from ..rows import Layout, LogRows
from .changeview import ChangeView
from .columnar import ROWS_A_BATCH, Changes, built, naming, schema_of, times_of, timestamps
from .eventview import EventView

__all__ = [
    "ROWS_A_BATCH",
    "BatchView",
    "ChangeView",
    "Changes",
    "EventView",
    "LogView",
    "Mode",
    "in_batches",
    "table_of",
    "view_for",
]

Mode = Literal["log", "changes", "events"]


class BatchView(Protocol):
    """Shows a log as columns. A view is for one layout of pages; another layout needs another view."""

    schema: Any
    """The ``pyarrow.Schema`` of all columns."""
    table: str
    """Keyspace and name of the base table."""

    def columns(self, part: Any, names: Sequence[str]) -> list[Any]:
        """Return the arrays of the columns *names*. *part* is of the kind that the view takes."""


def view_for(
    mode: Mode, layout: Layout, *, keep_dollar: bool = False, digits: Mapping[str, Digits] = NO_DIGITS
) -> LogView | ChangeView | EventView:
    """Return the view of *mode* for pages of *layout*.

    Args:
        digits: of the numbers that are not shown as text, by "varint" and "decimal". Events have all as JSON.

    Raises:
        ConfigError: there is no such mode, or two columns would have the same name.
    """
    if mode not in get_args(Mode):
        raise ConfigError(f"mode must be 'changes', 'log' or 'events', not {mode!r}")
    layout = layout.with_digits(digits)
    if mode == "log":
        return LogView(layout, keep_dollar=keep_dollar)
    return ChangeView(layout) if mode == "changes" else EventView(layout)


# ---------------------------------------------------------------- log


@attrs.frozen(eq=False)
class _Chosen:
    """Some rows of a window, by their numbers, as far as the view of the log looks at them."""

    rows: LogRows
    numbers: array[int]

    def column(self, index: int) -> Sequence[bytes | None]:
        return self.rows.column(index, self.numbers)


class LogView:
    """The raw rows of the log. Takes ``LogRows`` of its layout, in any order. ``cdc$x`` is called ``cdc_x``."""

    def __init__(self, layout: Layout, *, keep_dollar: bool = False) -> None:
        mark = "cdc$" if keep_dollar else "cdc_"
        named = [mark + c.name[4:] if c.name.startswith("cdc$") else c.name for c in layout.columns]
        self.table = layout.table.full_name
        self._time = layout.time
        self._timestamp = f"{mark}timestamp"
        self._index = {name: i for i, name in enumerate(named)}
        self._builders = dict(zip(named, (builder_for(c.type) for c in layout.columns), strict=True))
        fields = [(n, arrow_type(c.type)) for n, c in zip(named, layout.columns, strict=True)]
        self.schema = schema_of(
            [*fields, (self._timestamp, TIMESTAMP)],
            f"the log of {layout.table.full_name}",
            "keep the $ of the log's own columns with the option keepDollar" if not keep_dollar else "use another mode",
        )

    def columns(self, part: LogRows | _Chosen, names: Sequence[str]) -> list[Any]:
        return [
            timestamps(times_of(part.column(self._time)))
            if n == self._timestamp
            else built(n, self._builders[n], part.column(self._index[n]))
            for n in names
        ]


# ---------------------------------------------------------------- batches


def in_batches(view: BatchView, parts: Iterable[Any], names: Sequence[str]) -> Iterator[Any]:
    """Yield a record batch of the columns *names* for each of *parts*, which are of the kind that *view* takes.

    Raises:
        MalformedData: a cell has no value of its type.
        SourceError: a timestamp in a key is beyond what Arrow can hold, or a number has too many digits.
    """
    schema = pa.schema([view.schema.field(n) for n in names])
    for part in parts:
        with naming(view.table, is_log=True, instead="read the table with rscylla.NewStream, or with mode events"):
            arrays = view.columns(part, names)
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def table_of(mode: Mode, rows: LogRows, generation: int, after: bytes, *, joined: bool = True) -> Any:
    """Return the *rows* of a sorted window behind the position *after*, b"" for all, as a ``pyarrow.Table``.

    If the layouts differ, because the table was altered, a column that a part lacks is null in its rows.

    Args:
        joined: see ``LogRows.changes``.
    """
    tables = []
    for part in rows.by_layout():
        if not part:
            continue
        layout = part.layouts[0]
        view = view_for(mode, layout)
        if mode == "log":
            numbers = [n for n, position in enumerate(part.positions) if position > after]
            shown: Any = [_Chosen(part, array("i", numbers)) if after else part]
        else:
            changes = Changes.of(part, generation, joined=joined)
            shown = (changes.behind(after) if after else changes).batches()
        tables.append(pa.Table.from_batches(in_batches(view, shown, view.schema.names), view.schema))
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
