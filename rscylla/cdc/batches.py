"""A CDC log as Arrow record batches, in one of three views: the log's own rows, changes, or events.

The views convert undecoded cells straight to columns, without the objects of ``rscylla.cdc.changes``; they share only
its definition of a record. docs/spark.md describes the columns of each view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, Protocol

import attrs
import numpy as np
import pyarrow as pa

from ..errors import ConfigError, SourceError
from ..event import Operation
from ..types.arrow import TIMESTAMP, Build, arrow_type, builder_for, times_of
from .changes import operation_of
from .records import ChangeEvent
from .rows import Cells, Layout, ValueColumn

__all__ = ["ROWS_A_BATCH", "BatchView", "ChangeView", "EventView", "LogView", "Mode", "table_of", "view_for"]

Mode = Literal["log", "changes", "events"]

ROWS_A_BATCH = 5_000
"""Rows per record batch. Larger batches are not faster; smaller ones are slower."""

_RANGES = frozenset((b"\x05", b"\x06", b"\x07", b"\x08"))
_RANGE_ENDS = frozenset((b"\x07", b"\x08"))
_PREIMAGE, _POSTIMAGE = b"\x00", b"\x09"
_IMAGES = frozenset((_PREIMAGE, _POSTIMAGE))
_INCLUSIVE = frozenset((b"\x05", b"\x07"))


class BatchView(Protocol):
    """Shows a log as columns. A view is for one layout of pages; another layout needs another view."""

    schema: Any
    """The ``pyarrow.Schema`` of all columns."""

    def columns(self, rows: Any, names: Sequence[str]) -> list[Any]:
        """Return the arrays of the columns *names*. *rows* are of the kind that the view takes."""


def view_for(mode: Mode, layout: Layout, *, keep_dollar: bool = False) -> LogView | ChangeView | EventView:
    """Return the view of *mode* for pages of *layout*.

    Raises:
        ConfigError: two columns would have the same name.
    """
    if mode == "log":
        return LogView(layout, keep_dollar=keep_dollar)
    return ChangeView(layout) if mode == "changes" else EventView()


def _schema(fields: Iterable[tuple[str, Any]], what: str, instead: str) -> Any:
    """Return the schema of *fields*; raise ``ConfigError`` if two have the same name."""
    pairs = list(fields)
    names = [name for name, _ in pairs]
    double = next((n for n in names if names.count(n) > 1), None)
    if double is not None:
        raise ConfigError(f"{what} has two columns that would both be called {double!r}; {instead}")
    return pa.schema(pairs)


# ---------------------------------------------------------------- log


class LogView:
    """The raw rows of the log, in no order. Takes rows of cells. ``cdc$x`` is called ``cdc_x``."""

    def __init__(self, layout: Layout, *, keep_dollar: bool = False) -> None:
        mark = "cdc$" if keep_dollar else "cdc_"
        named = [mark + c.name[4:] if c.name.startswith("cdc$") else c.name for c in layout.columns]
        self._time = layout.time
        self._timestamp = f"{mark}timestamp"
        self._index = {name: i for i, name in enumerate(named)}
        self._builders = dict(zip(named, (builder_for(c.type) for c in layout.columns), strict=True))
        fields = [(n, arrow_type(c.type)) for n, c in zip(named, layout.columns, strict=True)]
        self.schema = _schema(
            [*fields, (self._timestamp, TIMESTAMP)],
            f"the log of {layout.table.full_name}",
            "keep the $ of the log's own columns with the option keepDollar" if not keep_dollar else "use another mode",
        )

    def columns(self, rows: Sequence[Cells], names: Sequence[str]) -> list[Any]:
        cells = list(zip(*rows, strict=True))
        return [
            _times(cells[self._time]) if n == self._timestamp else _built(n, self._builders[n], cells[self._index[n]])
            for n in names
        ]


def _times(cells: Any) -> Any:
    return pa.array(times_of(cells), pa.int64()).view(TIMESTAMP)


def _built(name: str, build: Build, cells: Sequence[bytes | None]) -> Any:
    try:
        return build(cells)
    except (ValueError, pa.ArrowException) as e:
        raise ValueError(f"column {name!r} contains bytes that are not a value of its type ({type(e).__name__})") from e


# ---------------------------------------------------------------- changes


@attrs.frozen
class _Rows:
    """The log rows of some changes as parallel lists: the delta row of each change, and its other rows or None."""

    events: Sequence[ChangeEvent]
    delta: Sequence[Cells]
    before: Sequence[Cells | None]
    after: Sequence[Cells | None]
    range_end: Sequence[Cells | None]
    operations: Sequence[bytes | None]

    @classmethod
    def of(cls, events: Sequence[ChangeEvent], operation: int) -> _Rows:
        rows = [e.raw_rows() for e in events]
        ops = [r[0][operation] for r in rows]
        # An image without its delta is a change of its own, whose first row it is.
        before = [r[0] if op == _PREIMAGE else r[1] for r, op in zip(rows, ops, strict=True)]
        after = [r[0] if op == _POSTIMAGE else r[2] for r, op in zip(rows, ops, strict=True)]
        return cls(events, [r[0] for r in rows], before, after, [r[3] for r in rows], ops)


class ChangeView:
    """One row per change, with its images. Takes ``ChangeEvent``s, in their order.

    Columns that would always be empty are left out: a table without a clustering key has no ``cdc_range``.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        split = len(layout.table.partition_key)
        self._clustering = layout.keys[split:]
        self._loose = [c for c in layout.values if c.kind != "value"]
        self._lists = [c for c in self._loose if c.kind == "list"]
        types = [c.type for c in layout.columns]
        # By column name: the Arrow type of its values, and the builder that converts its cells.
        self._value_types = {c.name: arrow_type(c.type) for c in (*layout.keys, *layout.values)}
        self._value_builders = {c.name: builder_for(c.type, loose=c.kind == "udt") for c in layout.values}
        # A timestamp beyond Arrow's range must not become null: different keys would become equal, and the bound of a
        # deleted range would become the end of the partition.
        self._key_builders = {c.name: builder_for(c.type, beyond="raise") for c in layout.keys}
        self._bound_builders = {c.name: builder_for(c.type, beyond="bound") for c in self._clustering}
        self._added = {c.name: builder_for(types[c.index]) for c in self._lists}
        self._removed = {c.name: builder_for(types[c.elements]) for c in self._loose if c.kind != "udt"}
        self._ttl = builder_for(types[layout.ttl])
        self._seq = builder_for(types[layout.seq])
        self._time = builder_for(types[layout.time])
        self._fields = self._all_fields(types)
        self._partition = frozenset(c.name for c in layout.keys[:split])
        self._key_columns = {c.name: c for c in layout.keys}
        instead = "use the mode log or events"
        self.schema = _schema(self._fields, f"the changes of {layout.table.full_name}", instead)
        self._bound = pa.struct(
            _schema(
                [(c.name, self._value_types[c.name]) for c in self._clustering] + [("inclusive", pa.bool_())],
                f"the range of {layout.table.full_name}",
                instead,
            )
        )

    def _all_fields(self, types: list[Any]) -> list[tuple[str, Any]]:
        layout = self._layout
        values = pa.struct([(c.name, self._value_types[c.name]) for c in layout.values])
        added = pa.struct([(c.name, arrow_type(types[c.index])) for c in self._lists])
        removed = pa.struct(
            [(c.name, pa.list_(pa.string()) if c.kind == "udt" else arrow_type(types[c.elements])) for c in self._loose]
        )
        bound = pa.struct([(c.name, self._value_types[c.name]) for c in self._clustering] + [("inclusive", pa.bool_())])
        fields = [
            ("cdc_stream_id", pa.binary()),
            ("cdc_time", pa.string()),
            ("cdc_batch_seq_no", pa.int32()),
            ("cdc_timestamp", TIMESTAMP),
            ("cdc_sequence", pa.binary()),
            ("cdc_operation", pa.string()),
            ("cdc_ttl", pa.int64()),
            *((c.name, self._value_types[c.name]) for c in layout.keys),
            ("cdc_values", values),
            ("cdc_touched", pa.list_(pa.string())),
            ("cdc_deleted", pa.list_(pa.string())),
            ("cdc_added", added),
            ("cdc_removed", removed),
            ("cdc_before", values),
            ("cdc_after", values),
            ("cdc_range", pa.struct([("start", bound), ("end", bound)])),
        ]
        absent = set()
        if not layout.values:
            absent |= {"cdc_values", "cdc_before", "cdc_after"}
        if not self._lists:
            absent.add("cdc_added")
        if not self._loose:
            absent.add("cdc_removed")
        if not self._clustering:
            absent.add("cdc_range")
        return [(name, type_) for name, type_ in fields if name not in absent]

    def columns(self, events: Sequence[ChangeEvent], names: Sequence[str]) -> list[Any]:
        rows = _Rows.of(events, self._layout.operation)
        return [self._column(name, rows) for name in names]

    def _column(self, name: str, rows: _Rows) -> Any:
        key = self._key_columns.get(name)
        if key is not None:
            return self._key(key, rows)
        layout, delta = self._layout, rows.delta
        match name:
            case "cdc_stream_id":
                return pa.array([r[layout.stream_id] for r in delta], pa.binary())
            case "cdc_time":
                return self._time([r[layout.time] for r in delta])
            case "cdc_batch_seq_no":
                return self._seq([r[layout.seq] for r in delta])
            case "cdc_timestamp":
                return _times([r[layout.time] for r in delta])
            case "cdc_sequence":
                return pa.array([e.position for e in rows.events], pa.binary())
            case "cdc_operation":
                return pa.array([operation_name(op) for op in rows.operations], pa.string())
            case "cdc_ttl":
                return self._ttl([r[layout.ttl] for r in delta])
            case "cdc_values":
                of = zip(delta, rows.operations, strict=True)
                return self._values([None if op in _IMAGES else r for r, op in of], whole=False)
            case "cdc_touched":
                return self._touched(rows)
            case "cdc_deleted":
                return _names_where({c.name: [c.marked_in(r) for r in delta] for c in layout.values}, len(delta))
            case "cdc_before":
                return self._values(rows.before, whole=True)
            case "cdc_after":
                return self._values(rows.after, whole=True)
            case "cdc_added" | "cdc_removed":
                return self._elements(name, rows)
            case "cdc_range":
                return self._range(rows)
        raise KeyError(name)

    def _key(self, column: ValueColumn, rows: _Rows) -> Any:
        """Return a key column. The key of a range delete is the partition key."""
        i = column.index
        if column.name in self._partition:
            cells = [r[i] for r in rows.delta]
        else:
            cells = [None if op in _RANGES else r[i] for r, op in zip(rows.delta, rows.operations, strict=True)]
        try:
            return _built(column.name, self._key_builders[column.name], cells)
        except OverflowError as e:
            raise SourceError(
                f"a change of {self._layout.table.full_name} has a timestamp in its key column {column.name!r} that is "
                "beyond what Arrow and Spark can hold (292,000 years); read the table with rscylla.NewStream, or with "
                "mode events"
            ) from e

    def _values(self, rows: Sequence[Cells | None], *, whole: bool) -> Any:
        """Return all columns outside the key, as a struct.

        Args:
            whole: the struct of an absent row is null; otherwise, it is a struct of nulls.
        """
        columns = self._layout.values
        children = [
            _built(c.name, self._value_builders[c.name], [None if r is None else r[c.index] for r in rows])
            for c in columns
        ]
        mask = pa.array([r is None for r in rows], pa.bool_()) if whole and None in rows else None
        return pa.StructArray.from_arrays(
            children, fields=[pa.field(c.name, self._value_types[c.name]) for c in columns], mask=mask
        )

    def _touched(self, rows: _Rows) -> Any:
        is_delta = [op not in _IMAGES for op in rows.operations]
        marks = {}
        for column in self._layout.values:
            found = [column.touched_in(r) for r in rows.delta]
            marks[column.name] = [t and d for t, d in zip(found, is_delta, strict=True)]
        return _names_where(marks, len(rows.delta))

    def _elements(self, name: str, rows: _Rows) -> Any:
        type_ = self.schema.field(name).type
        children = []
        deltas = [None if op in _IMAGES else r for r, op in zip(rows.delta, rows.operations, strict=True)]
        for column in self._lists if name == "cdc_added" else self._loose:
            at = column.index if name == "cdc_added" else column.elements
            cells = [None if r is None else r[at] for r in deltas]
            if name == "cdc_added":
                # A map without entries adds nothing: null, as in ColumnChange.added.
                cells = [None if c is not None and not any(c[:4]) else c for c in cells]
                children.append(_built(column.name, self._added[column.name], cells))
            elif column.kind == "udt":
                children.append(pa.array([_field_names(column, c) for c in cells], pa.list_(pa.string())))
            else:
                children.append(_built(column.name, self._removed[column.name], cells))
        return pa.StructArray.from_arrays(children, fields=list(type_))

    def _range(self, rows: _Rows) -> Any:
        type_ = self.schema.field("cdc_range").type
        if not any(op in _RANGES for op in rows.operations):
            return pa.nulls(len(rows.delta), type_)
        pairs = list(zip(rows.delta, rows.operations, strict=True))
        start = [r if op in _RANGES and op not in _RANGE_ENDS else None for r, op in pairs]
        end = [r if op in _RANGE_ENDS else e for (r, op), e in zip(pairs, rows.range_end, strict=True)]
        mask = pa.array([op not in _RANGES for op in rows.operations], pa.bool_())
        return pa.StructArray.from_arrays([self._bounds(start), self._bounds(end)], fields=list(type_), mask=mask)

    def _bounds(self, rows: Sequence[Cells | None]) -> Any:
        at = self._layout.operation
        children = [
            self._bound_builders[c.name]([None if r is None else r[c.index] for r in rows]) for c in self._clustering
        ]
        children.append(pa.array([None if r is None else r[at] in _INCLUSIVE for r in rows], pa.bool_()))
        mask = pa.array([r is None for r in rows], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(self._bound), mask=mask)


_NAMES: dict[bytes | None, str] = {}


def operation_name(cell: bytes | None) -> str:
    """Return the name of the operation in lower case, such as ``insert``."""
    name = _NAMES.get(cell)
    if name is None:
        name = _NAMES[cell] = Operation(operation_of(cell)).name.lower()
    return name


def _names_where(marks: dict[str, list[bool]], count: int) -> Any:
    """Return, for each row, the sorted names of the columns that are marked in it."""
    names = sorted(marks)
    table = np.array([marks[n] for n in names], bool).reshape(len(names), count).T
    offsets: Any = np.zeros(count + 1, "i4")
    np.cumsum(table.sum(axis=1), out=offsets[1:])
    chosen = pa.array(np.nonzero(table)[1], pa.int64())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(names, pa.string()).take(chosen))


def _field_names(column: ValueColumn, cell: bytes | None) -> list[str] | None:
    """Return the removed fields of a UDT by name, or by number if a field was added to the type later."""
    if cell is None or column.decode_elements is None:
        return None
    numbers = column.decode_elements(cell)
    return [column.fields[n] if 0 <= n < len(column.fields) else str(n) for n in numbers]


# ---------------------------------------------------------------- events


class EventView:
    """Events as a consumer gets them: id, type, foreign id, time, and metadata. Takes ``ChangeEvent``s, in order."""

    def __init__(self) -> None:
        self.schema = pa.schema(
            [
                ("id", pa.string()),
                ("type", pa.string()),
                ("foreign_id", pa.string()),
                ("timestamp", TIMESTAMP),
                ("metadata", pa.string()),
            ]
        )

    def columns(self, events: Sequence[ChangeEvent], names: Sequence[str]) -> list[Any]:
        made = {
            "id": lambda e: e.id,
            "type": lambda e: e.operation.name.lower(),
            "foreign_id": lambda e: e.foreign_id,
            "timestamp": lambda e: e.timestamp_us,
            "metadata": lambda e: e.metadata.decode(),
        }
        return [pa.array([made[n](e) for e in events], self.schema.field(n).type) for n in names]


# ---------------------------------------------------------------- batches


def in_batches(view: BatchView, rows: Iterable[Any], names: Sequence[str]) -> Iterator[Any]:
    """Yield record batches of the columns *names*. *rows* are of the kind that *view* takes."""
    schema = pa.schema([view.schema.field(n) for n in names])
    taken = iter(rows)
    while part := list(islice(taken, ROWS_A_BATCH)):
        yield pa.RecordBatch.from_arrays(view.columns(part, names), schema=schema)


def table_of(mode: Mode, parts: Iterable[tuple[Layout, Iterable[Any]]]) -> Any:
    """Return the rows of a window as a ``pyarrow.Table``: parts of one layout each, of what the view of *mode* takes.

    If the layouts differ, because the table was altered, a column that a part lacks is null in its rows.
    """
    tables = []
    for layout, rows in parts:
        view = view_for(mode, layout)
        tables.append(pa.Table.from_batches(in_batches(view, rows, view.schema.names), view.schema))
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
