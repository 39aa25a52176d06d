"""A CDC log as Arrow record batches, in one of three views: the log's own rows, changes, or events.

The views convert undecoded cells straight to columns; no row, change, or event becomes a Python object. docs/spark.md
describes the columns of each view.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Literal, Protocol, Self

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .._timeuuid import FLIP_SIGNS
from ..errors import ConfigError, MalformedData, RscyllaError, SourceError
from ..event import GRID_US, Operation
from ..types import Type
from ..types.arrow import TIMESTAMP, Build, arrow_type, builder_for, times_of
from ..types.json import dumps
from ..types.json_arrow import BuildText, hex_of, joined, json_builder_for, times_text
from .changes import Change
from .records import EventContext
from .rows import Layout, LogRows, ValueColumn

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

ROWS_A_BATCH = 5_000
"""Rows per record batch. Larger batches are not faster; smaller ones are slower."""

_PREIMAGE, _POSTIMAGE = Operation.PREIMAGE, Operation.POSTIMAGE
_WRITES = (Operation.INSERT, Operation.UPDATE)
_STARTS = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_START_EXCLUSIVE)
_ENDS = (Operation.RANGE_END_INCLUSIVE, Operation.RANGE_END_EXCLUSIVE)
_INCLUSIVE = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_END_INCLUSIVE)

_bytes = builder_for(Type("blob"))
_flags = builder_for(Type("boolean"))
_tinyints = builder_for(Type("tinyint"))
_uuids = builder_for(Type("timeuuid"))
_ints = builder_for(Type("int"))

_NAMES = [Operation(n if n < 128 else n - 256).name for n in range(256)]
"""The names of operations by their unsigned byte."""


@cache
def _names(*, upper: bool) -> Any:
    """Return the names as an Arrow array. Not made on import, because the first ``pa.array`` imports pandas."""
    return pa.array([name if upper else name.lower() for name in _NAMES], pa.string())


class BatchView(Protocol):
    """Shows a log as columns. A view is for one layout of pages; another layout needs another view."""

    schema: Any
    """The ``pyarrow.Schema`` of all columns."""
    table: str
    """Keyspace and name of the base table."""

    def columns(self, part: Any, names: Sequence[str]) -> list[Any]:
        """Return the arrays of the columns *names*. *part* is of the kind that the view takes."""


def view_for(mode: Mode, layout: Layout, *, keep_dollar: bool = False) -> LogView | ChangeView | EventView:
    """Return the view of *mode* for pages of *layout*.

    Raises:
        ConfigError: two columns would have the same name.
    """
    if mode == "log":
        return LogView(layout, keep_dollar=keep_dollar)
    return ChangeView(layout) if mode == "changes" else EventView(layout)


def _schema(fields: Iterable[tuple[str, Any]], what: str, instead: str) -> Any:
    """Return the schema of *fields*; raise ``ConfigError`` if two have the same name."""
    pairs = list(fields)
    names = [name for name, _ in pairs]
    double = next((n for n in names if names.count(n) > 1), None)
    if double is not None:
        raise ConfigError(f"{what} has two columns that would both be called {double!r}; {instead}")
    return pa.schema(pairs)


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
        self.schema = _schema(
            [*fields, (self._timestamp, TIMESTAMP)],
            f"the log of {layout.table.full_name}",
            "keep the $ of the log's own columns with the option keepDollar" if not keep_dollar else "use another mode",
        )

    def columns(self, part: LogRows | _Chosen, names: Sequence[str]) -> list[Any]:
        return [
            _times(part.column(self._time))
            if n == self._timestamp
            else _built(n, self._builders[n], part.column(self._index[n]))
            for n in names
        ]


def _times(cells: Any) -> Any:
    return _timestamps(times_of(cells))


def _timestamps(us: Any) -> Any:
    """Return microseconds since the epoch, an int64 array of numpy, as an Arrow array. Does not import pandas."""
    return pa.Array.from_buffers(TIMESTAMP, len(us), [None, pa.py_buffer(np.ascontiguousarray(us))])


def _built(name: str, build: Build, cells: Sequence[bytes | None]) -> Any:
    try:
        return build(cells)
    except (ValueError, pa.ArrowException) as e:
        raise _NoValue(name) from e
    except OverflowError as e:
        raise _BeyondArrow(name) from e


class _NoValue(ValueError):
    """A cell of the column that is named has bytes that are not a value of its type."""


class _BeyondArrow(OverflowError):
    """A key in the column that is named has a timestamp that Arrow cannot hold."""


# ---------------------------------------------------------------- changes by columns


@attrs.frozen(eq=False, slots=False)
class Changes:
    """Some changes of one layout, in their order, by the numbers of their rows; all arrays are parallel.

    ``rows`` has the cells. ``generation`` is that of the window, in milliseconds since the epoch. ``delta``,
    ``before``, ``after``, ``range_end`` are those of ``ChangeRows``. ``first`` and ``last`` are the ends of the record.
    ``index`` is the place of the change in its record, ``size`` the number of changes there.
    """

    rows: LogRows
    generation: int
    delta: Any
    before: Any
    after: Any
    range_end: Any
    first: Any
    last: Any
    index: Any
    size: Any

    @classmethod
    def of(cls, rows: LogRows, generation: int, *, joined: bool = True) -> Self:
        """Return all changes of *rows*: of a sorted window, and of one layout; see ``LogRows.changes``."""
        found = rows.changes(joined=joined)
        names = ("delta", "before", "after", "range_end", "record")
        delta, before, after, range_end, first = (np.asarray(getattr(found, name), "i4") for name in names)
        starts = np.flatnonzero(np.diff(first, prepend=-1))
        sizes = np.diff(starts, append=len(first))
        last: Any = np.append(first[starts][1:], len(rows)) - 1
        index = np.arange(len(first)) - np.repeat(starts, sizes)
        size: Any = np.repeat(sizes, sizes)
        last = np.repeat(last, sizes)
        return cls(rows, generation, delta, before, after, range_end, first, last, index, size)

    def __len__(self) -> int:
        return len(self.delta)

    def at(self, chosen: Any) -> Changes:
        """Return the changes that *chosen*, a slice or a numpy array, takes of the arrays."""
        numbers = (self.delta, self.before, self.after, self.range_end, self.first, self.last, self.index, self.size)
        return Changes(self.rows, self.generation, *(n[chosen] for n in numbers))

    def behind(self, position: bytes) -> Changes:
        """Return the changes whose delta comes after *position*."""
        positions = self.rows.positions
        return self.at(np.array([positions[n] > position for n in self.delta], bool))

    def batches(self) -> Iterator[Changes]:
        """Yield the changes in as many parts as there will be record batches."""
        for start in range(0, len(self), ROWS_A_BATCH):
            yield self.at(slice(start, start + ROWS_A_BATCH))


class _Part:
    """Changes of which a view shows columns; what several columns need is made once."""

    def __init__(self, changes: Changes, layout: Layout) -> None:
        self.changes = changes
        self.layout = layout
        self._nulls: dict[int, Any] = {}
        self._marks: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.changes)

    def column(self, index: int, numbers: Any = None) -> Sequence[bytes | None]:
        """Return the cells of a column in the rows *numbers*, the deltas by default."""
        of = self.changes.delta if numbers is None else numbers
        return self.changes.rows.column(index, array("i", np.asarray(of, "i4").tobytes()))

    @cached_property
    def operations(self) -> Any:
        """The operations, as int8."""
        found = _tinyints(self.column(self.layout.operation))
        # The cell has expired or was deleted manually.
        return (found.fill_null(-128) if found.null_count else found).to_numpy(zero_copy_only=False)

    def operation_names(self, names: Any) -> Any:
        """Return the names of the operations, of which *names* has all."""
        return names.take(pa.array(self.operations.view("u1")))

    def is_op(self, *operations: int) -> Any:
        return np.isin(self.operations, operations)

    @cached_property
    def is_image(self) -> Any:
        return self.is_op(_PREIMAGE, _POSTIMAGE)

    @cached_property
    def is_range(self) -> Any:
        return self.is_op(*_STARTS, *_ENDS)

    @cached_property
    def before(self) -> Any:
        """The rows of the preimages. An image without its delta is a change of its own, whose first row it is."""
        return np.where(self.operations == _PREIMAGE, self.changes.delta, self.changes.before)

    @cached_property
    def after(self) -> Any:
        return np.where(self.operations == _POSTIMAGE, self.changes.delta, self.changes.after)

    @cached_property
    def written(self) -> Any:
        """The deltas, without the images that are changes of their own."""
        return np.where(self.is_image, -1, self.changes.delta)

    @cached_property
    def us(self) -> Any:
        """The times of the changes, in microseconds since the epoch."""
        return times_of(self.column(self.layout.time))

    @cached_property
    def raw_times(self) -> Any:
        """``cdc$time``, as rows of 16 bytes."""
        return _wide(_bytes(self.column(self.layout.time)), 16)

    @cached_property
    def stream_ids(self) -> Any:
        return _bytes(self.column(self.layout.stream_id))

    @cached_property
    def seqs(self) -> Any:
        return _ints(self.column(self.layout.seq))

    def is_null(self, index: int) -> Any:
        """Return where the deltas have no cell in a column."""
        found = self._nulls.get(index)
        if found is None:
            found = self._nulls[index] = _is_null(self.column(index))
        return found

    def marked(self, column: ValueColumn) -> Any:
        """Return where the deltas mark *column* as null or deleted."""
        found = self._marks.get(column.deleted)
        if found is None:
            found = self._marks[column.deleted] = self.marked_in(column, None)
        return found

    def marked_in(self, column: ValueColumn, numbers: Any) -> Any:
        """Return where the rows *numbers* mark *column* as null or deleted."""
        if column.deleted < 0:
            return np.zeros(len(self), bool)
        found = _flags(self.column(column.deleted, numbers))
        if found.null_count == len(found):
            return np.zeros(len(self), bool)
        return found.fill_null(False).to_numpy(zero_copy_only=False)

    def touched(self, column: ValueColumn) -> Any:
        """Return where the changes touch *column*."""
        found = ~self.is_null(column.index) | self.marked(column)
        if column.elements >= 0:
            found |= ~self.is_null(column.elements)
        return found & ~self.is_image

    def sequence(self) -> Any:
        """Return the positions; see ``EventID.position``."""
        made: Any = np.empty((len(self), 36), "u1")
        time = self.raw_times
        made[:, :2] = time[:, 6:8]
        made[:, 0] &= 0x0F
        made[:, 2:4] = time[:, 4:6]
        made[:, 4:8] = time[:, :4]
        made[:, 8:16] = time[:, 8:] ^ FLIP_SIGNS[0]
        made[:, 16:32] = _wide(self.stream_ids, 16)
        made[:, 32:] = self.seqs.to_numpy(zero_copy_only=False).astype(">i4").view("u1").reshape(-1, 4)
        offsets: Any = np.arange(0, 36 * (len(self) + 1), 36, dtype="i4")
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(self), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(made.tobytes())]
        )


def _wide(cells: Any, width: int) -> Any:
    """Return cells of *width* bytes, of which none is null, as rows of a matrix."""
    _, offsets, data = cells.buffers()
    ends = np.frombuffer(offsets, "i4")[: len(cells) + 1]
    if cells.null_count or (np.diff(ends) != width).any():
        raise ValueError(f"a cell does not have the {width} bytes of its type")
    return np.frombuffer(data or b"", "u1")[: width * len(cells)].reshape(-1, width)


def _is_null(cells: Sequence[bytes | None]) -> Any:
    found = _bytes(cells)
    if not found.null_count:
        return np.zeros(len(found), bool)
    return found.is_null().to_numpy(zero_copy_only=False)


# ---------------------------------------------------------------- changes


class ChangeView:
    """One row per change, with its images. Takes ``Changes``.

    Columns that would always be empty are left out: a table without a clustering key has no ``cdc_range``.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.table = layout.table.full_name
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

    def columns(self, part: Changes, names: Sequence[str]) -> list[Any]:
        of = _Part(part, self._layout)
        return [self._column(name, of) for name in names]

    def _column(self, name: str, part: _Part) -> Any:
        key = self._key_columns.get(name)
        if key is not None:
            return self._key(key, part)
        layout = self._layout
        match name:
            case "cdc_stream_id":
                return part.stream_ids
            case "cdc_time":
                return self._time(part.column(layout.time))
            case "cdc_batch_seq_no":
                return part.seqs
            case "cdc_timestamp":
                return _timestamps(part.us)
            case "cdc_sequence":
                return part.sequence()
            case "cdc_operation":
                return part.operation_names(_names(upper=False))
            case "cdc_ttl":
                return self._ttl(part.column(layout.ttl))
            case "cdc_values":
                return self._values(part, part.written, whole=False)
            case "cdc_touched":
                return _names_where({c.name: part.touched(c) for c in layout.values}, len(part))
            case "cdc_deleted":
                return _names_where({c.name: part.marked(c) for c in layout.values}, len(part))
            case "cdc_before":
                return self._values(part, part.before, whole=True)
            case "cdc_after":
                return self._values(part, part.after, whole=True)
            case "cdc_added" | "cdc_removed":
                return self._elements(name, part)
            case "cdc_range":
                return self._range(part)
        raise KeyError(name)

    def _key(self, column: ValueColumn, part: _Part) -> Any:
        """Return a key column. The key of a range delete is the partition key."""
        whole = column.name in self._partition or not part.is_range.any()
        numbers = part.changes.delta if whole else np.where(part.is_range, -1, part.changes.delta)
        return _built(column.name, self._key_builders[column.name], part.column(column.index, numbers))

    def _values(self, part: _Part, numbers: Any, *, whole: bool) -> Any:
        """Return all columns outside the key in the rows *numbers*, as a struct.

        Args:
            whole: the struct of an absent row is null; otherwise, it is a struct of nulls.
        """
        columns = self._layout.values
        fields = [pa.field(c.name, self._value_types[c.name]) for c in columns]
        absent = numbers < 0
        if whole and absent.all():
            return pa.nulls(len(part), pa.struct(fields))
        children = [_built(c.name, self._value_builders[c.name], part.column(c.index, numbers)) for c in columns]
        mask = pa.array(absent) if whole and absent.any() else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    def _elements(self, name: str, part: _Part) -> Any:
        type_ = self.schema.field(name).type
        children = []
        for column in self._lists if name == "cdc_added" else self._loose:
            cells = part.column(column.index if name == "cdc_added" else column.elements, part.written)
            if name == "cdc_added":
                # A map without entries adds nothing: null, as in ColumnChange.added.
                cells = [None if c is not None and not any(c[:4]) else c for c in cells]
                children.append(_built(column.name, self._added[column.name], cells))
            elif column.kind == "udt":
                children.append(pa.array([_field_names(column, c) for c in cells], pa.list_(pa.string())))
            else:
                children.append(_built(column.name, self._removed[column.name], cells))
        return pa.StructArray.from_arrays(children, fields=list(type_))

    def _range(self, part: _Part) -> Any:
        type_ = self.schema.field("cdc_range").type
        if not part.is_range.any():
            return pa.nulls(len(part), type_)
        delta = part.changes.delta
        start = np.where(part.is_op(*_STARTS), delta, -1)
        end = np.where(part.is_op(*_ENDS), delta, part.changes.range_end)
        bounds = [self._bounds(part, start), self._bounds(part, end)]
        return pa.StructArray.from_arrays(bounds, fields=list(type_), mask=pa.array(~part.is_range))

    def _bounds(self, part: _Part, numbers: Any) -> Any:
        children = [
            _built(c.name, self._bound_builders[c.name], part.column(c.index, numbers)) for c in self._clustering
        ]
        operations = _tinyints(part.column(self._layout.operation, numbers))
        children.append(pc.is_in(operations, pa.array(_INCLUSIVE, pa.int8())))
        return pa.StructArray.from_arrays(children, fields=list(self._bound), mask=pa.array(numbers < 0))


def _names_where(marks: Mapping[str, Any], count: int) -> Any:
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
    """Events as a consumer gets them: id, type, foreign id, time, and metadata. Takes ``Changes``."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.table = layout.table.full_name
        self._foreign = {c.name: json_builder_for(c.type, sort_keys=True) for c in layout.keys}
        self._keys = {c.name: json_builder_for(c.type) for c in layout.keys}
        self._values = {c.name: json_builder_for(c.type, loose=c.kind == "udt") for c in layout.values}
        self._split = len(layout.table.partition_key)
        self.schema = pa.schema(
            [
                ("id", pa.string()),
                ("type", pa.string()),
                ("foreign_id", pa.string()),
                ("timestamp", TIMESTAMP),
                ("metadata", pa.string()),
            ]
        )

    def columns(self, part: Changes, names: Sequence[str]) -> list[Any]:
        of = _Texts(part, self._layout)
        return [self._column(name, of) for name in names]

    def _column(self, name: str, part: _Texts) -> Any:
        match name:
            case "id":
                return self._ids(part)
            case "type":
                return part.operation_names(_names(upper=False))
            case "foreign_id":
                return self._key(part, sorted(self._layout.keys, key=lambda c: c.name), self._foreign)
            case "timestamp":
                return _timestamps(part.us)
            case "metadata":
                return self._metadata(part)
        raise KeyError(name)

    def _ids(self, part: _Texts) -> Any:
        seconds = pa.array(part.us // GRID_US, pa.int64()).dictionary_encode()
        prefix = EventContext(part.changes.generation).id_prefix
        prefixes = pa.array([prefix(s.as_py() * GRID_US) for s in seconds.dictionary], pa.string())
        start = prefixes.take(seconds.indices)
        return joined(start, part.streams, '","stream_time":"', part.times, '","stream_seq":', part.numbers, ',"v":2}')

    def _key(self, part: _Texts, columns: Sequence[ValueColumn], builders: Mapping[str, BuildText]) -> Any:
        """Return the primary keys; of a range delete, the partition key. Parts that the change lacks are absent."""
        clustering = {c.name for c in self._layout.keys[self._split :]}
        members = []
        for column in columns:
            text = _built(column.name, builders[column.name], part.column(column.index))
            is_member = ~part.is_range if column.name in clustering else None
            if text.null_count:
                is_cell = text.is_valid().to_numpy(zero_copy_only=False)
                is_member = is_cell if is_member is None else is_cell & is_member
            members.append((column.name, text, is_member))
        return _objects(members, len(part))

    def _metadata(self, part: _Texts) -> Any:
        values = self._layout.values
        described = joined(
            '{"operation":"',
            part.operation_names(_names(upper=True)),
            '","key":',
            self._key(part, self._layout.keys, self._keys),
            ',"before":',
            self._before(part),
            ',"after":',
            self._after(part),
            ',"changed":',
            _name_lists({c.name: part.touched(c) for c in values}, len(part)),
            ',"deleted":',
            _name_lists({c.name: part.marked(c) for c in values}, len(part)),
        )
        special = part.is_range.copy()
        for column in values:
            if column.kind != "value":
                special |= part.touched(column)
        if special.any():
            # Ranges, and edits of collections, are rare and have many forms.
            places = np.flatnonzero(special)
            texts = pa.array([dumps(c.contents())[:-1] for c in _changes_at(part, places)], pa.string())
            described = pc.replace_with_mask(described, pa.array(special), texts)
        complete = part.is_complete
        return joined(
            described,
            ',"ttl":',
            pc.cast(_bigints(part.column(self._layout.ttl)), pa.string()).fill_null("null"),
            ',"timestamp":"',
            times_text(part.us),
            '","batch":{"stream_id":"0x',
            part.streams,
            '","time":"',
            part.times,
            '","size":',
            pc.cast(pa.array(part.changes.size), pa.string()),
            pc.if_else(pa.array(complete), ',"complete":true,"index":', ',"complete":false,"index":'),
            pc.cast(pa.array(part.changes.index), pa.string()),
            "}}",
        )

    def _before(self, part: _Texts) -> Any:
        absent = part.before < 0
        return _or_null(absent, lambda: self._image(part, part.before, whole=False))

    def _after(self, part: _Texts) -> Any:
        """Return the postimages, or what is known of the rows that were written."""
        has_image = part.after >= 0
        is_write = part.is_op(*_WRITES) & ~has_image
        if not has_image.any():
            return _or_null(~is_write, lambda: self._known(part))
        images = _or_null(~has_image, lambda: self._image(part, part.after, whole=True))
        return pc.if_else(pa.array(is_write), self._known(part), images) if is_write.any() else images

    def _known(self, part: _Texts) -> Any:
        """Return the columns that each change set or made null, for columns that are written as a whole."""
        members = []
        for column in self._layout.values:
            if column.kind == "value":
                text = _built(column.name, self._values[column.name], part.column(column.index))
                is_member = None
                if text.null_count:
                    is_member = text.is_valid().to_numpy(zero_copy_only=False) | part.marked(column)
                    text = text.fill_null("null")
                members.append((column.name, text, is_member))
        return _objects(members, len(part))

    def _image(self, part: _Texts, numbers: Any, *, whole: bool) -> Any:
        """Return the images in the rows *numbers*; see ``Change._image``."""
        layout = self._layout
        members = []
        for column in layout.values:
            text = _built(column.name, self._values[column.name], part.column(column.index, numbers))
            is_member = _has_value(text)
            if is_member is not None:
                is_null = part.static_in(numbers) == column.static
                if not whole:
                    is_null &= part.marked_in(column, numbers)
                is_member |= is_null
                text = text.fill_null("null")
            members.append((column.name, text, is_member))
        return _objects(members, len(part))


_bigints = builder_for(Type("bigint"))


class _Texts(_Part):
    """Changes of which the view of events shows columns."""

    @cached_property
    def streams(self) -> Any:
        return hex_of(self.stream_ids)

    @cached_property
    def times(self) -> Any:
        return _uuids(self.column(self.layout.time))

    @cached_property
    def numbers(self) -> Any:
        return pc.cast(self.seqs, pa.string())

    @cached_property
    def is_complete(self) -> Any:
        """Whether all log rows of the record were present."""
        first, last = self.changes.first, self.changes.last
        ends = _flags(self.column(self.layout.end_of_batch, last)).fill_null(False)
        seqs = _ints(self.column(self.layout.seq, last)).to_numpy(zero_copy_only=False)
        return ends.to_numpy(zero_copy_only=False) & (seqs == last - first)

    def static_in(self, numbers: Any) -> Any:
        """Return which of the rows *numbers* concern the static row: their clustering key is null."""
        clustering = self.layout.keys[len(self.layout.table.partition_key) :]
        found = np.full(len(self), bool(clustering))
        for column in clustering:
            found &= _is_null(self.column(column.index, numbers))
        return found


def _has_value(text: Any) -> Any:
    """Return which values of an image are not null; None if all are not."""
    is_null = pc.or_kleene(text.is_null(), pc.equal(text, "null").fill_null(True))
    found = is_null.to_numpy(zero_copy_only=False)
    return ~found if found.any() else None


def _objects(members: Sequence[tuple[str, Any, Any]], count: int) -> Any:
    """Return JSON objects with *members*: name, texts of values, and in which objects it is (None: in all)."""
    if not members:
        return pa.array(["{}"] * count, pa.string())
    if all(is_member is None for _, _, is_member in members):
        pieces = [piece for name, text, _ in members for piece in (f",{dumps(name)}:", text)]
        pieces[0] = pieces[0][1:]
        return joined("{", *pieces, "}")
    pieces = []
    for name, text, is_member in members:
        member = joined(f",{dumps(name)}:", text)
        pieces.append(member if is_member is None else pc.if_else(pa.array(is_member), member, ""))
    inner = joined(*pieces)
    return joined("{", pc.binary_replace_slice(inner, 0, 1, ""), "}")


def _or_null(absent: Any, make: Callable[[], Any]) -> Any:
    """Return what *make* makes, with the text "null" where it is absent."""
    if absent.all():
        return "null"
    return pc.if_else(pa.array(absent), "null", make()) if absent.any() else make()


def _name_lists(marks: Mapping[str, Any], count: int) -> Any:
    """Return, for each row, the JSON of the sorted names of the columns that are marked in it."""
    names = sorted(marks)
    if not any(mark.any() for mark in marks.values()):
        return "[]"
    packed = np.packbits(np.array([marks[n] for n in names], bool).T, axis=1)
    width = packed.shape[1]
    patterns = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, pa.py_buffer(packed.tobytes())])
    known = patterns.dictionary_encode()  # few sets of columns are written together
    bits = [np.unpackbits(np.frombuffer(p.as_py(), "u1")) for p in known.dictionary]
    texts = [dumps([n for n, bit in zip(names, of, strict=False) if bit]) for of in bits]
    return pa.array(texts, pa.string()).take(known.indices)


def _changes_at(part: _Part, places: Any) -> Iterator[Change]:
    """Yield the changes at *places*, without their records."""
    some = part.changes.at(places)
    columns = range(len(part.layout.columns))
    rows = []
    for numbers in (some.delta, some.before, some.after, some.range_end):
        cells = zip(*(part.column(c, numbers) for c in columns), strict=True)
        rows.append([row if n >= 0 else None for row, n in zip(cells, numbers, strict=True)])
    for delta, before, after, range_end in zip(*rows, strict=True):
        assert delta is not None
        yield Change(part.layout, delta, before, after, range_end)


# ---------------------------------------------------------------- batches


def in_batches(view: BatchView, parts: Iterable[Any], names: Sequence[str]) -> Iterator[Any]:
    """Yield a record batch of the columns *names* for each of *parts*, which are of the kind that *view* takes.

    Raises:
        MalformedData: a cell has no value of its type.
        SourceError: a timestamp in a key is beyond what Arrow can hold.
    """
    schema = pa.schema([view.schema.field(n) for n in names])
    for part in parts:
        try:
            arrays = view.columns(part, names)
        except RscyllaError:
            raise
        except ValueError as e:
            raise MalformedData.of_cell(view.table, str(e) if isinstance(e, _NoValue) else "", is_log=True) from e
        except _BeyondArrow as e:
            raise SourceError(
                f"a change of {view.table} has a timestamp in a key, in column {str(e)!r}, that is beyond what Arrow "
                "and Spark can hold (292,000 years); read the table with rscylla.NewStream, or with mode events"
            ) from e
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
