"""Reads a span as Arrow record batches of a schema that was fixed before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import attrs
import pyarrow as pa

from ...clock import Clock, Stop
from ...driver import Page, ReadSession, ReadStatement
from ...errors import ConfigError, SchemaChanged
from ...types import NO_DIGITS, Digits
from ..log import BaseColumn, LoggedTable, scan_cql, type_named
from ..read import Limits, Span, SpanReader
from ..rows import Layout, LogRows, leave_out_lost_keys, new_rows
from .batches import ROWS_A_BATCH, Changes, ChangeView, EventView, LogView, Mode, in_batches, view_for

__all__ = ["check_schema", "columns_of", "span_batches", "statement_of"]


def statement_of(session: ReadSession, table: LoggedTable, page_size: int) -> ReadStatement:
    """Return the statement that reads the log of *table*, with the columns that it has now. Blocks."""
    return session.prepare(
        scan_cql(table.keyspace, table.name),
        page_size=page_size,
        doing=f"preparing to read the log of {table.full_name}",
    )


def span_batches(
    session: ReadSession,
    span: Span,
    mode: Mode,
    schema: Any,
    *,
    clock: Clock,
    limits: Limits,
    keep_dollar: bool = False,
    digits: Mapping[str, Digits] = NO_DIGITS,
    misfit: str,
    strict: bool = False,
    columns: Iterable[BaseColumn] = (),
    on_lost_keys: Callable[[LoggedTable], None],
    on_read: Callable[[SpanReader], None],
) -> Iterator[Any]:
    """Yield ``pyarrow.RecordBatch``es of all rows of *span*. Blocks while it reads.

    In mode ``log``, the rows are in no order, and as many pages are in memory as queries are in flight. In the other
    modes, they are in the order of events, and as much as *limits* allow for a window is in memory.

    Args:
        schema: the columns. Those that the table no longer has are null; those that it has got since are left out.
        digits: see ``view_for``.
        misfit: what to do if a column now has another type; part of the error.
        strict: in mode ``changes``, a change that touches a column which *schema* lacks is an error, and so is any
            change after a column of *schema* was dropped.
        columns: what is known of the columns of the base table that *schema* shows; see ``columns_of``.
        on_lost_keys: called if rows are left out because the log no longer has their keys.
        on_read: called when all rows were read, to check that the log had kept them.

    Raises:
        SchemaChanged: a column has another type than in *schema*, or is another one than in *columns*; a column of the
            key, or a field of a type, was renamed; or see *strict*.
        MalformedData: a cell has no value of its type.
        Stopped, SourceError: as for ``SpanReader``.
    """
    views: dict[int, tuple[Layout, _Fitted]] = {}

    def batches_of(layout: Layout, part: Any) -> Iterator[Any]:
        # The layout is kept with its entry: an id is only unique as long as its object lives.
        known = views.get(id(layout))
        if known is None:
            view = view_for(mode, layout, keep_dollar=keep_dollar, digits=digits)
            _check_columns(layout, set(schema.names) - set(view.schema.names), columns, misfit)
            known = views[id(layout)] = (layout, _Fitted(view, schema, misfit, strict=strict))
        return in_batches(known[1], (part,), schema.names)

    stop = Stop()
    reader = SpanReader(session, span, clock=clock, limits=limits, stop=stop)
    try:
        if mode == "log":
            for layout, pages in groupby(reader.pages(), key=reader.layout_of):
                for rows in _unsorted(pages, layout, span.after):
                    yield from batches_of(layout, rows)
        else:
            for window in reader.windows():
                yield from _each_of_window(window, span, reader, batches_of, on_lost_keys)
        on_read(reader)
    finally:
        stop.set()  # the batches may not be taken to the end


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
    reader.confirm()  # after the pages were read
    rows = new_rows()
    for page in pages:
        rows = rows.add(page, reader.layout_of(page))
    pages.clear()
    table = reader.table
    if leave_out_lost_keys(rows, table, span.window.start_us, span.after):
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


def columns_of(layout: Layout) -> list[BaseColumn]:
    """Return the columns of the base table behind the pages of *layout*."""
    values = [BaseColumn(c.name, "static" if c.static else "regular", 0, c.cql_type) for c in layout.values]
    return [*layout.table.key, *values]


def _check_columns(layout: Layout, gone: Collection[str], columns: Iterable[BaseColumn], misfit: str) -> None:
    """Check that pages of *layout* have the columns of a schema, unless they were dropped.

    The names and the Arrow types alone do not tell: a list and a set, or a text and a uuid, look the same.

    Args:
        gone: the names of the schema that the view of *layout* does not have.
        columns: what is known of the columns of the schema.

    Raises:
        SchemaChanged: a column of the key is not there under its name, or another column has the name.
    """
    table = layout.table.full_name
    now = {c.name: c for c in columns_of(layout)}
    known = {c.name: c for c in columns}
    for name, column in known.items():
        found = now.get(name)
        if found is None and column.in_key:
            raise _changed(table, f"has a key without the column {name!r}, which was renamed")
        if found is not None and _role(found) != _role(column):
            raise SchemaChanged(f"column {name!r} of {table} is {_told(found)}, but {_told(column)} in {misfit}")
    # Without knowledge of the columns, a name that is gone, although no column of it was dropped, is that of a key.
    lost = sorted({*gone} - known.keys() - {name for name, _ in layout.table.dropped})
    if lost := [name for name in lost if not name.startswith(("cdc_", "cdc$"))]:
        raise _changed(table, f"has no column {lost[0]!r} any more, which was renamed")


def _role(column: BaseColumn) -> tuple[str, int, str]:
    return column.kind, column.position if column.in_key else 0, str(type_named(column.type_text))


def _told(column: BaseColumn) -> str:
    place = f" number {column.position + 1}" if column.in_key else ""
    return f"a {column.kind} column{place} of the type {column.type_text}"


class _Fitted:
    """A view whose columns are converted to a schema: that of the table when the read was planned.

    *strict*: see ``span_batches``.
    """

    def __init__(self, view: LogView | ChangeView | EventView, target: Any, misfit: str, *, strict: bool) -> None:
        self._view = view
        self.table = view.table
        self.schema = target
        self._strict = strict
        self._fit = _Fit(misfit, _levels_of(view), strict)

    def columns(self, rows: Any, names: Any) -> list[Any]:
        present = [n for n in names if n in self._view.schema.names]
        arrays = dict(zip(present, self._view.columns(rows, present), strict=True))
        if self._strict and "cdc_touched" in arrays:
            self._check_touched(arrays["cdc_touched"])
        return [
            self._fit.column(arrays[n], self.schema.field(n))
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


_LEVELS = {"cdc_range": 2, **dict.fromkeys(("cdc_values", "cdc_added", "cdc_removed", "cdc_before", "cdc_after"), 1)}


def _levels_of(view: LogView | ChangeView | EventView) -> Mapping[str, int]:
    """Return how many levels of structs around columns of the base table the columns of *view* have, if any."""
    return _LEVELS if isinstance(view, ChangeView) else {}


@attrs.frozen
class _Fit:
    """Converts arrays to the types of a schema, at any depth. *misfit*, *strict*: see ``span_batches``.

    *levels*: of ``_levels_of``. Columns come and go: those that have gone are null, new ones are left out, or an error
    if *strict* and they have a value. Fields of a type are only added, and keep their places: another name in a place
    means that the field was renamed.
    """

    misfit: str
    levels: Mapping[str, int]
    strict: bool = False

    def column(self, array: Any, field: Any) -> Any:
        return self._fitted(array, field.type, field.name, self.levels.get(field.name, 0))

    def _fitted(self, array: Any, target: Any, name: str, levels: int = 0) -> Any:
        if array.type.equals(target):
            return array
        mask = array.is_null() if array.null_count else None
        if pa.types.is_struct(array.type) and pa.types.is_struct(target):
            if not levels:
                self._check_same_fields(array.type, target, name)
            children = self._children(array, target, name, levels - 1 if levels else 0)
            return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
        if pa.types.is_list(array.type) and pa.types.is_list(target):
            values = self._fitted(array.values, target.value_type, name)
            return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=mask)
        if pa.types.is_map(array.type) and pa.types.is_map(target):
            keys = self._fitted(array.keys, target.key_type, name)
            items = self._fitted(array.items, target.item_type, name)
            return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=mask)
        raise SchemaChanged(f"column {name!r} is {array.type} in the table but {target} in {self.misfit}")

    def _check_same_fields(self, now: Any, known: Any, name: str) -> None:
        for here, there in zip(now, known, strict=False):
            if here.name != there.name:
                raise SchemaChanged(
                    f"field {there.name!r} of {name!r} is called {here.name!r} in the table, but not in {self.misfit}"
                )

    def _children(self, array: Any, target: Any, name: str, levels: int) -> list[Any]:
        present = {f.name for f in array.type}
        if self.strict:
            for added in sorted(present - {f.name for f in target}):
                if array.field(added).null_count < len(array):
                    raise SchemaChanged(f"{name}.{added} has values, but is not in {self.misfit}")
        return [
            self._fitted(array.field(f.name), f.type, f"{name}.{f.name}", levels)
            if f.name in present
            else pa.nulls(len(array), f.type)
            for f in target
        ]


def check_schema(
    layout: Layout,
    view: LogView | ChangeView | EventView,
    schema: Any,
    misfit: str,
    columns: Iterable[BaseColumn] = (),
) -> None:
    """Check that *view*, of *layout*, has the columns of *schema*, of which *columns* is what is known; see above.

    Raises:
        ConfigError: a column is missing, is another one, or has another type.
    """
    table, fit = layout.table.full_name, _Fit(misfit, _levels_of(view))
    for field in schema:
        if field.name not in view.schema.names:
            raise ConfigError(
                f"the schema has a column {field.name!r} that the log of {table} does not have in this mode; use "
                f"columns of {', '.join(view.schema.names)}"
            )
        try:
            fit.column(pa.nulls(0, view.schema.field(field.name).type), field)
        except SchemaChanged as e:
            raise ConfigError(str(e)) from None
    try:
        _check_columns(layout, (), columns, misfit)
    except SchemaChanged as e:
        raise ConfigError(str(e)) from None
