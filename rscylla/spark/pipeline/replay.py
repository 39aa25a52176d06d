"""A row of a DataFrame of changes as the log row that it was read from, which the one writer of statements takes.

Pure. The way back of ``rscylla.cdc.batches.ChangeShape``: values that Arrow gave become the bytes of their CQL type,
and marks of what was deleted become the log's own columns again.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...base.statements import Replay, Write, remaining_ttl
from ...base.tables import Column, Table
from ...cdc import pages
from ...cdc.rows import Cells, Layout
from ...cdc.table import BaseColumn, TableInfo
from ...errors import CannotReplicate
from ...event import Operation
from ...types import Encoder, Type, encoder_for, quote_name
from ..shape import ColumnShape, Shape

__all__ = ["Replaying", "in_numbers"]

_YES = b"\x01"
_ENDS = {True: Operation.RANGE_END_INCLUSIVE, False: Operation.RANGE_END_EXCLUSIVE}
_IMAGES = ("preimage", "postimage")
_BLOB, _TIMEUUID, _SMALLINT = Type("blob"), Type("timeuuid"), Type("smallint")
_FIXED = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", "cdc$ttl", "cdc$end_of_batch")


class Replaying:
    """Makes the statements that repeat changes of the columns of *shape* in the table *target*. Immutable.

    Raises (constructor):
        CannotReplicate: the target lacks a column, or has it as another kind or form.
    """

    def __init__(self, shape: Shape, target: Table) -> None:
        self._shape = shape
        self._name = target.full_name
        columns = {c.name: c for c in target.columns}
        for column in (*shape.keys, *shape.values):
            _check(column, columns.get(column.name), target)
        if [c.name for c in target.key] != shape.key_names:
            raise CannotReplicate(f"{target.full_name} has another primary key than the table of these changes")
        self._types = {c.name: columns[c.name].type for c in (*shape.keys, *shape.values)}
        self._layout = Layout.of(self._log_columns(), self._info(target))
        self._replay = Replay(self._layout, target.keyspace, target.name, columns)
        self._encoders = {name: encoder_for(type_, arrow=True) for name, type_ in self._types.items()}

    def writes(self, change: Mapping[str, Any], now_us: int) -> list[Write]:
        """Return what repeats *change*; nothing for images of rows.

        Args:
            change: a row of the DataFrame by column, of a batch that ``in_numbers`` gave.
            now_us: the time, in microseconds since the epoch, from which the TTL that is left is counted.

        Raises:
            CannotReplicate: the change does not say all that it did.
        """
        if change["cdc_operation"] in _IMAGES:
            return []
        operation = _operation(change["cdc_operation"], self._name)
        if operation == Operation.UPDATE and not change["cdc_touched"]:
            raise CannotReplicate(
                f"an update for {self._name} names no column; the log of its table must have 'delta': 'full'"
            )
        ttl = remaining_ttl(change["cdc_ttl"] or 0, change["cdc_timestamp"], now_us)
        ends = change.get("cdc_range") or {}
        cells = self._cells(change, ends.get("start"))
        end = None if ends.get("end") is None else self._end(ends["end"])
        return self._replay.writes(operation, change["cdc_timestamp"], ttl, cells, end)

    # ------------------------------------------------------------ the log

    def _log_columns(self) -> tuple[pages.Column, ...]:
        columns = [(name, _BLOB) for name in _FIXED] + [(c.name, self._types[c.name]) for c in self._shape.keys]
        for column in self._shape.values:
            type_ = self._types[column.name]
            if column.form == "list":
                type_ = Type("map", (_TIMEUUID, *type_.args))
            columns += [(column.name, type_), (f"cdc$deleted_{column.name}", _BLOB)]
            if column.form != "value":
                columns.append((f"cdc$deleted_elements_{column.name}", _BLOB))
        return tuple(pages.Column(name, type_) for name, type_ in columns)

    def _info(self, target: Table) -> TableInfo:
        places = {c.name: at for part in (self._shape.partition, self._shape.clustering) for at, c in enumerate(part)}
        return TableInfo(
            target.keyspace,
            target.name,
            log_id=None,  # type: ignore[arg-type]  # there is no such log
            ttl_s=0,
            enabled=False,
            preimage="false",
            postimage="false",
            columns=tuple(
                BaseColumn(c.name, c.kind, places.get(c.name, 0), c.cql, c.descending)
                for c in (*self._shape.keys, *self._shape.values)
            ),
        )

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
        name, type_ = column.name, self._types[column.name]
        found: dict[str, bytes | None] = {f"cdc$deleted_{name}": _YES} if marked else {}
        value = _part(change, "cdc_added" if column.form == "list" else "cdc_values", name)
        removed = _part(change, "cdc_removed", name)
        if column.form == "list":
            found[name] = _encoded(Type("map", (_TIMEUUID, *type_.args)), name, value, self._name)
            removed_type = Type("set", (_TIMEUUID,))
        else:
            found[name] = self._raw(name, value)
            removed_type = Type("set", type_.args[:1])
        if column.form == "value":
            if value is None and not marked:
                found[name] = self._unshown(column)
        elif column.form == "udt":
            places = [self._place(column, field) for field in removed or ()]
            removed_type = Type("set", (_SMALLINT,))
            found[f"cdc$deleted_elements_{name}"] = _encoded(removed_type, name, places or None, self._name)
        else:
            found[f"cdc$deleted_elements_{name}"] = _encoded(removed_type, name, removed or None, self._name)
        return found

    def _unshown(self, column: ColumnShape) -> bytes:
        """Return what was written where Arrow has null, though the column was not deleted."""
        if self._types[column.name].kind == "timestamp":
            raise CannotReplicate(
                f"a change for {self._name} writes a timestamp into {column.name!r} that is beyond what Spark can hold "
                "(292,000 years); copy the table with rscylla.replicate"
            )
        return b""  # a value without bytes, which is not null in CQL

    def _place(self, column: ColumnShape, field: str) -> int:
        fields = self._types[column.name].fields
        if field in fields:
            return fields.index(field)
        raise CannotReplicate(
            f"a change of {self._name} removes a field of {column.name!r} that its type does not have"
        )

    def _end(self, bound: Mapping[str, Any]) -> Cells:
        found = {c.name: self._raw(c.name, bound[c.name]) for c in self._shape.clustering}
        found["cdc$operation"] = _ENDS[bound["inclusive"]].to_bytes(1, "big", signed=True)
        return tuple([found.get(c.name) for c in self._layout.columns])

    def _raw(self, name: str, value: Any) -> bytes | None:
        return None if value is None else _tried(self._encoders[name], name, value, self._name)


def _part(change: Mapping[str, Any], where: str, name: str) -> Any:
    return (change.get(where) or {}).get(name)


def _operation(name: str, table: str) -> Operation:
    try:
        return Operation[name.upper()]
    except KeyError:
        raise CannotReplicate(f"a change for {table} is of a kind, {name!r}, that this rscylla cannot repeat") from None


def _check(column: ColumnShape, theirs: Column | None, target: Table) -> None:
    if theirs is None:
        kind = " STATIC" if column.kind == "static" else ""
        raise CannotReplicate(
            f"{target.full_name} lacks the column {column.name!r}; ALTER TABLE {target.full_name} "
            f"ADD {quote_name(column.name)} {column.cql}{kind}"
        )
    if (theirs.kind, theirs.descending, theirs.multicell) != (column.kind, column.descending, column.form != "value"):
        raise CannotReplicate(
            f"the column {column.name!r} is {theirs.type_text} ({theirs.kind}) in {target.full_name}, but {column.cql} "
            f"({column.kind}) in the table of these changes; they have to be the same"
        )


# ---------------------------------------------------------------- values


def in_numbers(batch: Any) -> Any:
    """Return a ``pyarrow.RecordBatch`` with times and dates as numbers, which reach beyond those of Python."""
    schema = pa.schema([(f.name, _in_numbers(f.type)) for f in batch.schema])
    return batch.cast(schema)


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


def _encoded(type_: Type, name: str, value: Sequence[Any] | None, table: str) -> bytes | None:
    return None if value is None else _tried(encoder_for(type_, arrow=True), name, value, table)


def _tried(encode: Encoder, name: str, value: Any, table: str) -> bytes:
    try:
        return encode(value)
    except (ValueError, TypeError, ArithmeticError, LookupError, struct.error) as e:
        raise CannotReplicate(f"a change has a value of {name!r} that is none of its type in {table}") from e
