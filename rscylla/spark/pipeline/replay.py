"""Converts a row of a DataFrame of changes back to its log row, for the writer of statements.

Pure. The inverse of ``rscylla.cdc.arrow.ChangeView``: Arrow values become the bytes of their CQL type, and marks of
deletes become the columns of the log.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ...base import ChangeWriter, Write, check_columns, remaining_ttl
from ...cdc.log import LoggedTable, Table, deleted_elements_of, deleted_of, log_columns
from ...cdc.rows import Cells, Layout
from ...driver import Column
from ...errors import CannotReplicate
from ...event import Operation
from ...types import Encoder, encoder_for
from ..source.shape import ColumnShape, Shape

__all__ = ["ArrowChangeWriter", "in_numbers", "numbers_of", "tried"]

_YES = b"\x01"
_ENDS = {True: Operation.RANGE_END_INCLUSIVE, False: Operation.RANGE_END_EXCLUSIVE}
_IMAGES = ("preimage", "postimage")
_NO_LOG = uuid.UUID(int=0)


class ArrowChangeWriter:
    """Builds the statements that apply changes of the columns of *shape* to the table *target*. Immutable.

    Raises (constructor):
        CannotReplicate: the target lacks a column, or has it with another kind or type.
    """

    def __init__(self, shape: Shape, target: Table) -> None:
        self._shape = shape
        self._name = target.full_name
        columns = {c.name: c for c in target.columns}
        # Values are encoded as the target's types.
        sources = [c.base for c in (*shape.keys, *shape.values)]
        check_columns(sources, target, source="the table of these changes", same_types=False)
        self._columns = {c.name: columns[c.name] for c in (*shape.keys, *shape.values)}
        table = LoggedTable(target.keyspace, target.name, self._columns.values(), log_id=_NO_LOG)
        types = log_columns(table)
        self._layout = Layout.of(tuple(Column(*column) for column in types.items()), table)
        self._writer = ChangeWriter(self._layout, target.keyspace, target.name, columns)
        self._encoders = {name: encoder_for(type_, arrow=True) for name, type_ in types.items()}

    def writes(self, change: Mapping[str, Any], now_us: int) -> list[Write]:
        """Return the writes that apply *change*; none for images of rows.

        Args:
            change: a row of the DataFrame by column, from a batch that ``in_numbers`` returned.
            now_us: the time for computing the remaining TTL, in microseconds since the epoch.

        Raises:
            CannotReplicate: the row does not contain the whole change.
        """
        if change["cdc_operation"] in _IMAGES:
            return []
        operation = _operation(change["cdc_operation"], self._name)
        if operation == Operation.UPDATE and not change["cdc_touched"]:
            if change["cdc_timestamp"] <= self._shape.lost_us:
                return []  # the column that it wrote was dropped since
            raise CannotReplicate(
                f"an update for {self._name} has no columns; the log of the source table must have 'delta': 'full'"
            )
        ttl = remaining_ttl(change["cdc_ttl"] or 0, change["cdc_timestamp"], now_us)
        ends = change.get("cdc_range") or {}
        cells = self._cells(change, ends.get("start"))
        end = None if ends.get("end") is None else self._end(ends["end"])
        return self._writer.writes(operation, change["cdc_timestamp"], ttl, cells, end)

    # ------------------------------------------------------------ rows

    def _cells(self, change: Mapping[str, Any], start: Mapping[str, Any] | None) -> Cells:
        found = {c.name: self._raw(c.name, change[c.name]) for c in self._shape.keys}
        if start is not None:
            found |= {c.name: self._raw(c.name, start[c.name]) for c in self._shape.clustering}
        touched, deleted = set(change["cdc_touched"] or ()), set(change["cdc_deleted"] or ())
        for column in self._shape.values:
            if column.name in touched:
                found |= self._value_cells(column, change, marked=column.name in deleted)
        return tuple([found.get(c.name) for c in self._layout.columns])

    def _value_cells(
        self, column: ColumnShape, change: Mapping[str, Any], *, marked: bool
    ) -> Mapping[str, bytes | None]:
        name = column.name
        found: dict[str, bytes | None] = {deleted_of(name): _YES} if marked else {}
        found[name] = self._raw(name, _part(change, "cdc_added" if column.form == "list" else "cdc_values", name))
        if column.form == "value":
            if found[name] is None and not marked:
                found[name] = self._unshown(column)
            return found
        removed = _part(change, "cdc_removed", name) or None
        if removed is not None and column.form == "udt":
            removed = [self._field_index(column, field) for field in removed]
        elements = deleted_elements_of(name)
        found[elements] = self._raw(elements, removed)
        return found

    def _unshown(self, column: ColumnShape) -> bytes:
        """Return the written value of a column that is null in Arrow but was not deleted."""
        if self._columns[column.name].type.kind == "timestamp":
            raise CannotReplicate(
                f"a change for {self._name} writes a timestamp into {column.name!r} that is beyond the range of "
                "Spark (292,000 years); copy the table with rscylla.replicate"
            )
        return b""  # an empty value, which is not null in CQL

    def _field_index(self, column: ColumnShape, field: str) -> int:
        """Return the number of a UDT's field in the target's type; raise ``CannotReplicate`` if it has none."""
        fields = self._columns[column.name].type.fields
        if field in fields:
            return fields.index(field)
        raise CannotReplicate(
            f"a change of {self._name} removes a field of {column.name!r} that the target's type does not have; "
            "alter the type"
        )

    def _end(self, bound: Mapping[str, Any]) -> Cells:
        found = {c.name: self._raw(c.name, bound[c.name]) for c in self._shape.clustering}
        found["cdc$operation"] = _ENDS[bound["inclusive"]].to_bytes(1, "big", signed=True)
        return tuple([found.get(c.name) for c in self._layout.columns])

    def _raw(self, name: str, value: Any) -> bytes | None:
        return None if value is None else tried(self._encoders[name], name, value, self._name)


def _part(change: Mapping[str, Any], where: str, name: str) -> Any:
    return (change.get(where) or {}).get(name)


def _operation(name: str, table: str) -> Operation:
    try:
        return Operation[name.upper()]
    except KeyError:
        raise CannotReplicate(
            f"a change for {table} has the operation {name!r}, which this version of rscylla cannot apply"
        ) from None


# ---------------------------------------------------------------- values


def in_numbers(batch: Any) -> Any:
    """Return a ``pyarrow.RecordBatch`` with times and dates as numbers, whose range exceeds that of Python's types."""
    schema = pa.schema([(f.name, _in_numbers(f.type)) for f in batch.schema])
    return batch.cast(schema)


def numbers_of(array: Any) -> Any:
    """Return a ``pyarrow.Array`` with times and dates as numbers."""
    return array.cast(_in_numbers(array.type))


def _in_numbers(type_: Any) -> Any:
    if pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_date(type_):
        return pa.int32()
    if pa.types.is_list(type_):
        return pa.list_(_in_numbers(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(_in_numbers(type_.key_type), _in_numbers(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([(f.name, _in_numbers(f.type)) for f in type_])
    return type_


def tried(encode: Encoder, name: str, value: Any, table: str) -> bytes:
    """Return the bytes of *value*; raise ``CannotReplicate`` if it has no place in the column *name* of *table*."""
    try:
        return encode(value)
    except (ValueError, TypeError, ArithmeticError, LookupError, struct.error) as e:
        raise CannotReplicate(f"a row has a value of {name!r} that does not fit its type in {table}") from e
