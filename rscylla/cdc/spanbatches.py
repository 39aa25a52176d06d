"""Reads a span as Arrow record batches of a schema that was fixed before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import pyarrow as pa

from ..errors import ConfigError, SchemaChanged
from ..types import NO_DIGITS, Digits
from .batches import ROWS_A_BATCH, Changes, ChangeView, EventView, LogView, Mode, in_batches, view_for
from .driver import ReadSession, ReadStatement
from .pages import Page
from .query import scan_cql
from .rows import Layout, LogRows, new_rows
from .span import Span, SpanReader
from .table import LoggedTable

__all__ = ["check_schema", "span_batches", "statement_of"]


def statement_of(session: ReadSession, table: LoggedTable, page_size: int) -> ReadStatement:
    """Return the statement that reads the log of *table*, with the columns that it has now. Blocks."""
    return session.prepare(
        scan_cql(table.keyspace, table.name),
        page_size=page_size,
        doing=f"preparing to read the log of {table.full_name}",
    )


def span_batches(
    reader: SpanReader,
    span: Span,
    mode: Mode,
    schema: Any,
    *,
    keep_dollar: bool = False,
    digits: Mapping[str, Digits] = NO_DIGITS,
    misfit: str,
    strict: bool = False,
    on_lost_keys: Callable[[LoggedTable], None],
) -> Iterator[Any]:
    """Yield ``pyarrow.RecordBatch``es of all rows of *span*, which *reader* reads. Blocks while it reads.

    In mode ``log``, the rows are in no order, and as many pages are in memory as queries are in flight. In the other
    modes, they are in the order of events, and a window of *reader* is in memory.

    Args:
        schema: the columns. Those that the table no longer has are null; those that it has got since are left out.
        digits: see ``view_for``.
        misfit: what to do if a column now has another type; part of the error.
        strict: in mode ``changes``, a change that touches a column which *schema* lacks is an error, and so is any
            change after a column of *schema* was dropped.
        on_lost_keys: called if rows are left out because the log no longer has their keys.

    Raises:
        SchemaChanged: a column has another type than in *schema*, or see *strict*.
        MalformedData: a cell has no value of its type.
        Stopped, SourceError: as for ``SpanReader``.
    """
    views: dict[int, tuple[Layout, _Fitted]] = {}

    def batches_of(layout: Layout, part: Any) -> Iterator[Any]:
        # The layout is kept with its entry: an id is only unique as long as its object lives.
        known = views.get(id(layout))
        if known is None:
            view = view_for(mode, layout, keep_dollar=keep_dollar, digits=digits)
            known = views[id(layout)] = (layout, _Fitted(view, schema, misfit, strict=strict))
        return in_batches(known[1], (part,), schema.names)

    if mode == "log":
        for layout, pages in groupby(reader.pages(), key=reader.layout_of):
            for rows in _unsorted(pages, layout, span.after):
                yield from batches_of(layout, rows)
        return
    for window in reader.windows():
        yield from _each_of_window(window, span, reader, batches_of, on_lost_keys)


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
    pages: list[Page],
    span: Span,
    reader: SpanReader,
    batches_of: Callable[[Layout, Changes], Iterator[Any]],
    on_lost_keys: Callable[[LoggedTable], None],
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
        on_lost_keys(table)
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
    """A view whose columns are converted to a schema: that of the table when the read was planned.

    *strict*: see ``span_batches``.
    """

    def __init__(self, view: LogView | ChangeView | EventView, target: Any, misfit: str, *, strict: bool) -> None:
        self._view = view
        self._misfit = misfit
        self.table = view.table
        self.schema = target
        self._strict = strict

    def columns(self, rows: Any, names: Any) -> list[Any]:
        present = [n for n in names if n in self._view.schema.names]
        arrays = dict(zip(present, self._view.columns(rows, present), strict=True))
        if self._strict and "cdc_touched" in arrays:
            self._check_touched(arrays["cdc_touched"])
        return [
            _fit(arrays[n], self.schema.field(n).type, n, self._misfit, strict=self._strict)
            if n in arrays
            else pa.nulls(len(rows), self.schema.field(n).type)
            for n in names
        ]

    def _check_touched(self, touched: Any) -> None:
        """Raise ``SchemaChanged`` if the schema lacks a column that a change touched, or has one that was dropped."""
        known, now = (
            {field.name for field in schema.field("cdc_values").type} if "cdc_values" in schema.names else set()
            for schema in (self.schema, self._view.schema)
        )
        if known == now:
            return
        if dropped := sorted(known - now):
            raise _changed(self.table, f"no longer has the column {dropped[0]!r}")
        if added := sorted(set(touched.flatten().unique().to_pylist()) - known):
            raise _changed(self.table, f"has a new column {added[0]!r}")


def _changed(table: str, what: str) -> SchemaChanged:
    return SchemaChanged(f"{table} {what}; start the query again, and it continues with the columns that there are now")


def _fit(array: Any, target: Any, name: str, misfit: str, *, strict: bool = False) -> Any:
    """Return *array* as *target*, at any depth: fields of structs that have gone are null, new ones are left out.

    With *strict*, a new one that has a value is an error.
    """
    if array.type.equals(target):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(array.type) and pa.types.is_struct(target):
        present = {f.name for f in array.type}
        if strict:
            for added in sorted(present - {f.name for f in target}):
                if array.field(added).null_count < len(array):
                    raise SchemaChanged(f"{name}.{added} has values, but is not in {misfit}")
        children = [
            _fit(array.field(f.name), f.type, f"{name}.{f.name}", misfit, strict=strict)
            if f.name in present
            else pa.nulls(len(array), f.type)
            for f in target
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if pa.types.is_list(array.type) and pa.types.is_list(target):
        values = _fit(array.values, target.value_type, name, misfit, strict=strict)
        return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=mask)
    if pa.types.is_map(array.type) and pa.types.is_map(target):
        keys = _fit(array.keys, target.key_type, name, misfit, strict=strict)
        items = _fit(array.items, target.item_type, name, misfit, strict=strict)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=mask)
    raise SchemaChanged(f"column {name!r} is {array.type} in the table but {target} in {misfit}")


def check_schema(view: LogView | ChangeView | EventView, schema: Any, table: str, misfit: str) -> None:
    """Check that *view* has the columns of *schema*.

    Raises:
        ConfigError: a column is missing or has another type.
    """
    for field in schema:
        if field.name not in view.schema.names:
            raise ConfigError(
                f"the schema has a column {field.name!r} that the log of {table} does not have in this mode; use "
                f"columns of {', '.join(view.schema.names)}"
            )
        try:
            _fit(pa.nulls(0, view.schema.field(field.name).type), field.type, field.name, misfit)
        except SchemaChanged as e:
            raise ConfigError(str(e)) from None
