"""Runs in the executors: reads one span and yields Arrow batches of the schema that Spark has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from ..cdc.batches import ROWS_A_BATCH, Changes, ChangeView, EventView, LogView, Mode, in_batches, view_for
from ..cdc.pages import Page
from ..cdc.rows import Layout, LogRows, new_rows
from ..cdc.scan import Limits
from ..cdc.span import Span, SpanReader
from ..clock import Stop, SystemClock
from ..errors import ConfigError, TableChanged
from .options import Connection
from .session import session_for

__all__ = ["SpanRead", "check_schema"]


@attrs.frozen
class SpanRead:
    """How to read spans. Can be pickled; contains a password only if the user set the option.

    ``schema``: the ``StructType`` of the batches.
    """

    connection: Connection
    mode: Mode
    schema: Any
    page_size: int
    keep_dollar: bool

    def batches(self, span: Span) -> Iterator[Any]:
        """Yield ``pyarrow.RecordBatch``es of all rows of *span*. Blocks while it reads."""
        target = to_arrow_schema(self.schema, timezone="UTC")
        stop = Stop()
        session = session_for(self.connection)
        limits = Limits(page_size=self.page_size)
        reader = SpanReader(session, span, clock=SystemClock(), limits=limits, stop=stop)
        views: dict[int, tuple[Layout, _Fitted]] = {}

        def batches_of(layout: Layout, part: Any) -> Iterator[Any]:
            # The layout is kept with its entry: an id is only unique as long as its object lives.
            known = views.get(id(layout))
            if known is None:
                view = view_for(self.mode, layout, keep_dollar=self.keep_dollar)
                known = views[id(layout)] = (layout, _Fitted(view, target))
            return in_batches(known[1], (part,), target.names)

        try:
            if self.mode == "log":
                for layout, pages in groupby(reader.pages(), key=reader.layout_of):
                    for rows in _unsorted(pages, layout, span.after):
                        yield from batches_of(layout, rows)
                return
            for window in reader.windows():
                yield from _each_of_window(window, span, reader, batches_of)
        finally:
            stop.set()  # Spark may stop reading early


def _unsorted(pages: Iterable[Page], layout: Layout, after: bytes) -> Iterator[LogRows]:
    """Yield the rows of *pages* behind the position *after*, if it is not empty, in parts of the size of a batch."""
    rows = new_rows()
    for page in pages:
        rows.add(page, layout)
        if len(rows) >= ROWS_A_BATCH:
            yield _behind(rows, after)
            rows = new_rows()
    if rows:
        yield _behind(rows, after)


def _each_of_window(
    pages: list[Page], span: Span, reader: SpanReader, batches_of: Callable[[Layout, Changes], Iterator[Any]]
) -> Iterator[Any]:
    """Yield the batches of the changes of a window behind the start of *span*, in order. Empties *pages*.

    The window is in memory until this generator ends, and no longer: its caller then reads the next one.
    """
    rows = new_rows()
    for page in pages:
        rows = rows.add(page, reader.layout_of(page))
    pages.clear()
    table = reader.table
    if rows.leave_out_lost_keys(table, span.window.start_us, span.after):
        raise TableChanged(
            f"{table.lost_keys}; repair the data that the query wrote, then start it again at that time or later"
        )
    rows.sort()
    for part in rows.by_layout():
        if part:
            changes = Changes.of(part, span.window.generation)
            for some in (changes.behind(span.after) if span.after else changes).batches():
                yield from batches_of(part.layouts[0], some)


def _behind(rows: LogRows, after: bytes) -> LogRows:
    if after:
        rows.take([i for i, position in enumerate(rows.positions) if position > after])
    return rows


# ---------------------------------------------------------------- schemas that change


class _Fitted:
    """A view whose columns are converted to a schema: that of the table when the query began."""

    def __init__(self, view: LogView | ChangeView | EventView, target: Any) -> None:
        self._view = view
        self.table = view.table
        self.schema = target

    def columns(self, rows: Any, names: Any) -> list[Any]:
        present = [n for n in names if n in self._view.schema.names]
        arrays = dict(zip(present, self._view.columns(rows, present), strict=True))
        return [
            _fit(arrays[n], self.schema.field(n).type, n)
            if n in arrays
            else pa.nulls(len(rows), self.schema.field(n).type)
            for n in names
        ]


def _fit(array: Any, target: Any, name: str) -> Any:
    """Return *array* as *target*, at any depth: fields of structs that have gone are null, new ones are left out."""
    if array.type.equals(target):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(array.type) and pa.types.is_struct(target):
        present = {f.name for f in array.type}
        children = [
            _fit(array.field(f.name), f.type, f"{name}.{f.name}") if f.name in present else pa.nulls(len(array), f.type)
            for f in target
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if pa.types.is_list(array.type) and pa.types.is_list(target):
        values = _fit(array.values, target.value_type, name)
        return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=mask)
    if pa.types.is_map(array.type) and pa.types.is_map(target):
        keys, items = _fit(array.keys, target.key_type, name), _fit(array.items, target.item_type, name)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=mask)
    raise ConfigError(
        f"column {name!r} is {array.type} in the table but {target} in the schema of the DataFrame; the table "
        "was changed, or .schema(...) does not match it; load the DataFrame again without a schema"
    )


def check_schema(view: LogView | ChangeView | EventView, schema: Any, table: str) -> None:
    """Check that *view* has the columns of *schema*, a ``StructType``.

    Raises:
        ConfigError: a column is missing or has another type.
    """
    for field in to_arrow_schema(schema, timezone="UTC"):
        if field.name not in view.schema.names:
            raise ConfigError(
                f"the schema has a column {field.name!r} that the log of {table} does not have in this mode; use "
                f"columns of {', '.join(view.schema.names)}"
            )
        _fit(pa.nulls(0, view.schema.field(field.name).type), field.type, field.name)
