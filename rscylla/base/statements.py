"""Changes of a log as CQL that repeats them elsewhere, and rows: texts, and bytes as values. Pure.

Nothing is decoded on the way, so nothing is lost. Every statement carries the timestamp of the change, and what it
writes the TTL; to apply it twice, or after its successors, is the same as to apply it once.

    log row (operation)            statements
    insert (2)                     INSERT of all columns, those that were not touched UNSET; it makes the row's marker
    update (1)                     UPDATE of all columns, those that were not touched UNSET
    overwritten set, map, UDT      part of these; the database clears a microsecond before, as it did at the source
    overwritten or emptied list    null in these, and each element under its own timeuuid
    elements added, removed        an UPDATE of the column: ``+``, ``-``, field by field, element by element
    delete of a row, a partition   DELETE by the key (3, 4, -3, -4)
    delete of a range (5 to 8)     DELETE between the bounds; of all rows, but not the static ones, two that meet

Source: Scylla ``cdc/log.cc`` for what rows say; ``SCYLLA_TIMEUUID_LIST_INDEX`` and ``SCYLLA_CLUSTERING_BOUND`` from
Scylla's extensions of CQL.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Container, Iterator, Sequence
from typing import Final

import attrs

from .. import _timeuuid as tu
from ..cdc.log import Table
from ..cdc.rows import Cells, Layout, ValueColumn
from ..errors import CannotReplicate
from ..event import Operation
from ..types import collection_cells, quote_name, sample_of, sized_cells
from .queries import equal

__all__ = ["UNSET", "ChangeWriter", "RowWriter", "Unset", "Value", "Write", "remaining_ttl"]


class Unset(enum.Enum):
    """The value of a marker whose column is left alone."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET

Value = bytes | None | Unset


@attrs.frozen
class Write:
    """A statement and the bytes for its markers; None is null."""

    cql: str
    values: tuple[Value, ...] = attrs.field(repr=lambda values: f"<{len(values)}>")


def remaining_ttl(ttl_s: int, timestamp_us: int, now_us: int) -> int:
    """Return what is left at *now_us* of a TTL that began at *timestamp_us*, in seconds; 0 stays 0, which is no TTL.

    At least one second is left, because what has expired still hides what it replaced; and no more than the whole,
    because timestamps may be ahead of the clock.
    """
    age_s = max(0, (now_us - timestamp_us) // 1_000_000)
    return ttl_s and max(1, ttl_s - age_s)


_BIGINT = struct.Struct(">q")
_INT = struct.Struct(">i")

_USING = "USING TIMESTAMP ? AND TTL ?"
_ROW_DELETES = (Operation.ROW_DELETE, Operation.SERVICE_ROW_DELETE)
_PARTITION_DELETES = (Operation.PARTITION_DELETE, Operation.SERVICE_PARTITION_DELETE)
_STARTS = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_START_EXCLUSIVE)
_INCLUSIVE = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_END_INCLUSIVE)


@attrs.frozen
class _Bound:
    """One end of a range, in clustering order: a prefix of the clustering key, as bytes."""

    prefix: tuple[bytes, ...]
    inclusive: bool


class ChangeWriter:
    """Makes the statements for the changes of one layout of a log. Immutable; any thread may use it.

    Args:
        layout: what the columns of the log mean.
        keyspace, table: where the statements write; names as stored.
        columns: the columns of the target. Others in the log are left out, because they were dropped since.
    """

    def __init__(self, layout: Layout, keyspace: str, table: str, columns: Container[str]) -> None:
        info = layout.table
        self._layout = layout
        self._table = f"{quote_name(keyspace)}.{quote_name(table)}"
        self._partition = layout.keys[: len(info.partition_key)]
        self._clustering = layout.keys[len(info.partition_key) :]
        self._descending = [c.descending for c in info.clustering_key]
        values = [c for c in layout.values if c.name in columns]
        self._regular = tuple(c for c in values if not c.static)
        self._static = tuple(c for c in values if c.static)
        self._insert = self._insert_cql()
        self._update = self._update_cql(self._regular, layout.keys)
        self._update_static = self._update_cql(self._static, self._partition)

    def writes(
        self, operation: Operation, timestamp_us: int, ttl_s: int, cells: Cells, range_end: Cells | None = None
    ) -> list[Write]:
        """Return the statements that repeat the change, none if it changed nothing.

        Args:
            ttl_s: of what it writes, 0 for none.
            cells: the delta row; for the delete of a range that of its start, and *range_end* of its end.

        Raises:
            CannotReplicate: the log does not say enough, or says what this version does not know.
        """
        at = _BIGINT.pack(timestamp_us)
        if operation in (Operation.INSERT, Operation.UPDATE):
            using = (at, _INT.pack(ttl_s))
            self._check_values(operation, timestamp_us, cells)
            return list(self._upsert(cells, using, is_insert=operation == Operation.INSERT))
        if operation in _ROW_DELETES:
            return [self._delete(self._layout.keys, at, cells)]
        if operation in _PARTITION_DELETES:
            return [self._delete(self._partition, at, cells)]
        if operation in _STARTS and range_end is not None:
            return self._delete_range(at, operation, cells, range_end)
        if operation in _STARTS or operation in (Operation.RANGE_END_INCLUSIVE, Operation.RANGE_END_EXCLUSIVE):
            raise CannotReplicate(
                f"one end of a deleted range of {self._layout.table.full_name} is not in the log, probably because "
                "it has expired; copy the table again (with granularity='row', the ends are separate: use 'change')"
            )
        raise CannotReplicate(
            f"a change of {self._layout.table.full_name} has the operation {operation.name}, which cannot be "
            "applied to another table"
        )

    def _check_values(self, operation: Operation, timestamp_us: int, cells: Cells) -> None:
        table = self._layout.table
        if operation == Operation.INSERT or any(c.touched_in(cells) for c in self._layout.values):
            return
        if table.lacks_values(timestamp_us):
            raise CannotReplicate(
                f"an update of {table.full_name} has no columns, because its log had only keys ('delta': 'keys') when "
                "it was written; copy the table again"
            )

    # ------------------------------------------------------------ writes

    def _insert_cql(self) -> str:
        columns = (*self._layout.keys, *self._regular)
        return f"{_insert_into(self._table, [c.name for c in columns])} {_USING}"

    def _update_cql(self, columns: Sequence[ValueColumn], keys: Sequence[ValueColumn]) -> str:
        return self._set(", ".join(f"{quote_name(c.name)} = ?" for c in columns), keys)

    def _set(self, what: str, keys: Sequence[ValueColumn]) -> str:
        return f"UPDATE {self._table} {_USING} SET {what} WHERE {equal(c.name for c in keys)}"

    def _upsert(self, cells: Cells, using: tuple[bytes, bytes], *, is_insert: bool) -> Iterator[Write]:
        static = self._layout.is_static(cells)
        columns = self._static if static else self._regular
        keys = self._partition if static else self._layout.keys
        key = _values_of(keys, cells)
        whole = [_whole(column, cells) for column in columns]
        if is_insert:
            yield Write(self._insert, (*key, *whole, *using))
        elif any(value is not UNSET for value in whole):
            yield Write(self._update_static if static else self._update, (*using, *whole, *key))
        for column in columns:
            if column.kind != "value":
                for what, values in _edits(column, cells):
                    yield Write(self._set(what, keys), (*using, *values, *key))

    # ------------------------------------------------------------ deletes

    def _delete(self, keys: Sequence[ValueColumn], at: bytes, cells: Cells) -> Write:
        cql = f"DELETE FROM {self._table} USING TIMESTAMP ? WHERE {equal(c.name for c in keys)}"
        return Write(cql, (at, *_values_of(keys, cells)))

    def _delete_range(self, at: bytes, operation: Operation, start: Cells, end: Cells) -> list[Write]:
        ending = Operation(int.from_bytes(end[self._layout.operation] or b"\x80", "big", signed=True))
        opened = _Bound(self._prefix(start), operation in _INCLUSIVE)
        closed = _Bound(self._prefix(end), ending in _INCLUSIVE)
        if opened.prefix or closed.prefix:
            ranges = [self._between(opened, closed)]
        else:  # deletes at one time merge to this; without bounds in CQL it would be the partition, static row and all
            first = self._clustering[0]
            name, some = quote_name(first.name), sample_of(self._layout.columns[first.index].type)
            ranges = [([f"{name} <= ?"], [some]), ([f"{name} > ?"], [some])]
        partition = equal(c.name for c in self._partition)
        key = _values_of(self._partition, start)
        return [
            Write(
                f"DELETE FROM {self._table} USING TIMESTAMP ? WHERE {' AND '.join([partition, *where])}",
                (at, *key, *values),
            )
            for where, values in ranges
        ]

    def _prefix(self, cells: Cells) -> tuple[bytes, ...]:
        found = []
        for column in self._clustering:
            raw = cells[column.index]
            if raw is None:
                break
            found.append(raw)
        return tuple(found)

    def _between(self, start: _Bound, end: _Bound) -> tuple[list[str], list[bytes]]:
        """Return conditions on the clustering key, and their values."""
        shared = 0
        for one, other in zip(start.prefix, end.prefix, strict=False):
            if one != other:
                break
            shared += 1
        longest = max(len(start.prefix), len(end.prefix))
        ends_with_prefix = all(b.inclusive for b in (start, end) if len(b.prefix) == shared)
        if longest > shared + 1 or not ends_with_prefix:
            return self._between_tuples(start, end)
        where = [f"{quote_name(c.name)} = ?" for c in self._clustering[:shared]]
        values = list(start.prefix[:shared])
        for bound, opens in ((start, True), (end, False)):
            if len(bound.prefix) > shared:
                greater = opens != self._descending[shared]
                sign = (">" if greater else "<") + "=" * bound.inclusive
                where.append(f"{quote_name(self._clustering[shared].name)} {sign} ?")
                values.append(bound.prefix[shared])
        return where, values

    def _between_tuples(self, start: _Bound, end: _Bound) -> tuple[list[str], list[bytes]]:
        """Return bounds over several columns, which compare in the declared order of each."""
        where: list[str] = []
        values: list[bytes] = []
        for bound, sign in ((start, ">"), (end, "<")):
            if bound.prefix:
                names = ", ".join(quote_name(c.name) for c in self._clustering[: len(bound.prefix)])
                marks = ", ".join("?" * len(bound.prefix))
                where.append(f"({names}) {sign}{'=' * bound.inclusive} SCYLLA_CLUSTERING_BOUND ({marks})")
                values += bound.prefix
        return where, values


class RowWriter:
    """Makes the statements that insert whole rows, all with one write time. Immutable; any thread may use it.

    To write a row again is to write it once, also from another process: each element of a list that is not frozen has
    an id that is made of the write time and its index, where the database would make a new one each time.

    Args:
        table: where the statements write.
        names: columns whose values are given, among them those of the primary key.
        timestamp_us: the write time.
    """

    def __init__(self, table: Table, names: Sequence[str], timestamp_us: int) -> None:
        columns = {c.name: c for c in table.columns}
        self._at = _BIGINT.pack(timestamp_us)
        self._ticks = tu.us_to_ticks(timestamp_us).to_bytes(8, "big")
        self._insert = f"{_insert_into(table.full_name, names)} USING TIMESTAMP ?"
        self._lists: list[tuple[int, str, list[int]]] = []
        for index, name in enumerate(names):
            column = columns[name]
            if column.is_multicell and column.type.kind == "list":
                keys = [c.name for c in (table.partition_key if column.kind == "static" else table.key)]
                what = f"UPDATE {table.full_name} USING TIMESTAMP ? SET {_element_of(name)} WHERE {equal(keys)}"
                self._lists.append((index, what, [names.index(key) for key in keys]))

    def writes(self, values: Sequence[bytes | None]) -> list[Write]:
        """Return the statements that insert a row, whose *values* are in the order of the names; None deletes."""
        whole = list(values)
        elements = []
        for index, what, keys in self._lists:
            raw = whole[index]
            whole[index] = None  # the database clears a microsecond before the write time
            key = [values[i] for i in keys]
            for number, item in enumerate([] if raw is None else collection_cells(raw)):
                id_ = tu.of_order_key(self._ticks + number.to_bytes(8, "big"))
                elements.append(Write(what, (self._at, id_, item, *key)))
        return [Write(self._insert, (*whole, self._at)), *elements]


def _insert_into(table: str, names: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(map(quote_name, names))}) VALUES ({', '.join('?' * len(names))})"


def _element_of(name: str) -> str:
    """Return the assignment of an element of the list *name*: markers for its timeuuid, and for its value."""
    return f"{quote_name(name)}[SCYLLA_TIMEUUID_LIST_INDEX(?)] = ?"


def _values_of(keys: Sequence[ValueColumn], cells: Cells) -> list[bytes | None]:
    return [cells[c.index] for c in keys]


def _whole(column: ValueColumn, cells: Cells) -> Value:
    """Return what the whole column is set to: bytes, null, or UNSET if it is not written as a whole."""
    raw, marked = cells[column.index], column.marked_in(cells)
    if column.kind == "value":
        return raw if raw is not None or marked else UNSET
    if not marked:
        return UNSET
    if column.kind == "list" or raw is None or (column.kind == "udt" and not any(_has_bytes(raw))):
        return None
    return raw


def _has_bytes(raw: bytes) -> Iterator[bool]:
    return (field is not None for field in sized_cells(raw, 0))


def _edits(column: ValueColumn, cells: Cells) -> Iterator[tuple[str, tuple[Value, ...]]]:
    """Yield assignments to parts of a collection or UDT, with their values."""
    name = quote_name(column.name)
    raw = cells[column.index]
    gone = None if column.elements < 0 else cells[column.elements]
    overwritten = column.marked_in(cells)
    match column.kind:
        case "set" | "map":
            if raw is not None and not overwritten:
                yield f"{name} = {name} + ?", (raw,)
            if gone is not None:
                yield f"{name} = {name} - ?", (gone,)
        case "list":
            element = _element_of(column.name)
            items = [] if raw is None else collection_cells(raw, 2)
            for key, value in zip(items[::2], items[1::2], strict=True):
                yield element, (key, value)
            for key in [] if gone is None else collection_cells(gone):
                yield element, (key, None)
        case "udt":
            if raw is not None and not overwritten:
                for number, value in enumerate(sized_cells(raw, 0)):
                    if value is not None:
                        yield f"{name}.{quote_name(_field(column, number))} = ?", (value,)
            for cell in [] if gone is None else collection_cells(gone):
                number = -1 if cell is None else int.from_bytes(cell, "big", signed=True)
                yield f"{name}.{quote_name(_field(column, number))} = ?", (None,)


def _field(column: ValueColumn, number: int) -> str:
    if not 0 <= number < len(column.fields):
        raise CannotReplicate(
            f"a change has a field of the column {column.name!r} that its type did not have when it was read; "
            "start again to read the type again"
        )
    return column.fields[number]
