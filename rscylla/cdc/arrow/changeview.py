"""The view of a log as changes, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...event import Operation
from ...types import Type
from ...types.arrow import TIMESTAMP, arrow_type, builder_for
from ..rows import Layout, ValueColumn
from .columnar import ENDS, STARTS, Changes, Part, built, names_of_operations, schema_of, timestamps

__all__ = ["ChangeView"]

_INCLUSIVE = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_END_INCLUSIVE)
_tinyints = builder_for(Type("tinyint"))


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
        self.schema = schema_of(self._fields, f"the changes of {layout.table.full_name}", instead)
        self._bound = pa.struct(
            schema_of(
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
        of = Part(part, self._layout)
        return [self._column(name, of) for name in names]

    def _column(self, name: str, part: Part) -> Any:
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
                return timestamps(part.us)
            case "cdc_sequence":
                return part.sequence()
            case "cdc_operation":
                return part.operation_names(names_of_operations(upper=False))
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

    def _key(self, column: ValueColumn, part: Part) -> Any:
        """Return a key column. The key of a range delete is the partition key."""
        whole = column.name in self._partition or not part.is_range.any()
        numbers = part.changes.delta if whole else np.where(part.is_range, -1, part.changes.delta)
        return built(column.name, self._key_builders[column.name], part.column(column.index, numbers))

    def _values(self, part: Part, numbers: Any, *, whole: bool) -> Any:
        """Return all columns outside the key in the rows *numbers*, as a struct.

        Args:
            whole: the struct of an absent row is null; otherwise, it is a struct of nulls.
        """
        columns = self._layout.values
        fields = [pa.field(c.name, self._value_types[c.name]) for c in columns]
        absent = numbers < 0
        if whole and absent.all():
            return pa.nulls(len(part), pa.struct(fields))
        children = [built(c.name, self._value_builders[c.name], part.column(c.index, numbers)) for c in columns]
        mask = pa.array(absent) if whole and absent.any() else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    def _elements(self, name: str, part: Part) -> Any:
        type_ = self.schema.field(name).type
        children = []
        for column in self._lists if name == "cdc_added" else self._loose:
            cells = part.column(column.index if name == "cdc_added" else column.elements, part.written)
            if name == "cdc_added":
                # A map without entries adds nothing: null, as in ColumnChange.added.
                cells = [None if c is not None and not any(c[:4]) else c for c in cells]
                children.append(built(column.name, self._added[column.name], cells))
            elif column.kind == "udt":
                children.append(pa.array([_field_names(column, c) for c in cells], pa.list_(pa.string())))
            else:
                children.append(built(column.name, self._removed[column.name], cells))
        return pa.StructArray.from_arrays(children, fields=list(type_))

    def _range(self, part: Part) -> Any:
        type_ = self.schema.field("cdc_range").type
        if not part.is_range.any():
            return pa.nulls(len(part), type_)
        delta = part.changes.delta
        start = np.where(part.is_op(*STARTS), delta, -1)
        end = np.where(part.is_op(*ENDS), delta, part.changes.range_end)
        bounds = [self._bounds(part, start), self._bounds(part, end)]
        return pa.StructArray.from_arrays(bounds, fields=list(type_), mask=pa.array(~part.is_range))

    def _bounds(self, part: Part, numbers: Any) -> Any:
        children = [
            built(c.name, self._bound_builders[c.name], part.column(c.index, numbers)) for c in self._clustering
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
