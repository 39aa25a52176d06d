"""Changes as typed values: a ``Change`` is a delta row with its images, a ``Record`` a record of changes."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

import attrs

from ... import _timeuuid as tu
from ..._decoder import twin
from ...errors import MalformedData
from ...event import Operation
from .columns import ColumnChange, column_change, untouched
from .grouping import IMAGES, POSTIMAGE, PREIMAGE, RANGE_STARTS, RANGES, Parts
from .layout import PARTITION_DELETES, Cells, Layout

__all__ = ["Bound", "Change", "KeyRange", "Record", "operation_of"]

T = TypeVar("T")

_OPERATIONS: dict[bytes | None, Operation] = {
    bytes((n & 0xFF,)): Operation(n if n < 128 else n - 256) for n in range(256)
}
_OPERATIONS[None] = Operation(-128)  # the cell has expired or was deleted manually

operation_of = _OPERATIONS.__getitem__
"""The ``Operation`` of the bytes of ``cdc$operation``."""

_WRITES = frozenset((Operation.INSERT, Operation.UPDATE))
_EXPIRIES = frozenset((Operation.SERVICE_ROW_DELETE, Operation.SERVICE_PARTITION_DELETE))
_DELETES = _EXPIRIES | {
    Operation.ROW_DELETE,
    Operation.PARTITION_DELETE,
    Operation.RANGE_START_INCLUSIVE,
    Operation.RANGE_START_EXCLUSIVE,
    Operation.RANGE_END_INCLUSIVE,
    Operation.RANGE_END_EXCLUSIVE,
}
_BOUND_INCLUSIVE = {
    Operation.RANGE_START_INCLUSIVE: True,
    Operation.RANGE_START_EXCLUSIVE: False,
    Operation.RANGE_END_INCLUSIVE: True,
    Operation.RANGE_END_EXCLUSIVE: False,
}


def _malformed(change: PartsInPython) -> MalformedData:
    """Return the error of a change of which a cell could not be decoded."""
    rows = (change._cells, change._preimage, change._postimage, change._range_end)  # noqa: SLF001 - of a property of it
    return change._layout.malformed(rows)  # noqa: SLF001


class _Kept(Generic[T]):
    """A property that returns a new value at each access, so that modifying the value does not affect other users.

    An event passes through filters, retries, and dead letters, and each of them must get the content of the log. Most
    parts are read once, so the first access keeps no value. The second one keeps a value, and returns copies of it.
    """

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_kept_{name}"

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return cast("T", self)
        known = instance.__dict__
        try:
            if self._name not in known:
                known[self._name] = ...
                return self._work(instance)
            if known[self._name] is ...:
                known[self._name] = self._work(instance)
        except ValueError as e:
            raise _malformed(instance) from e
        return cast("T", _copied(known[self._name]))


def _copied(value: Any) -> Any:
    """Return *value* with new containers. Keys of dicts and elements of sets are immutable and need no copy."""
    kind = type(value)
    if kind is dict:
        return {name: one if type(one) in _SCALARS else _copied(one) for name, one in value.items()}
    if kind is list:
        return [one if type(one) in _SCALARS else _copied(one) for one in value]
    if kind is set:
        return set(value)
    if kind is tuple:
        return tuple([_copied(one) for one in value])
    if kind is KeyRange:
        return KeyRange(*map(_copied, value))
    if kind is Bound:
        return Bound(_copied(value.key), value.inclusive)
    if kind is ColumnChange and not (type(value.value) in _SCALARS and value.added is None and value.removed is None):
        parts = {"value": _copied(value.value), "added": _copied(value.added), "removed": _copied(value.removed)}
        return attrs.evolve(value, **parts)
    return value


_SCALARS = frozenset((type(None), bool, int, float, str, bytes, Decimal, uuid.UUID, datetime))


@attrs.frozen
class Bound:
    """One end of a deleted range: the clustering columns that it contains, by name; without any, it is unbounded."""

    key: Mapping[str, Any]
    inclusive: bool


class KeyRange(NamedTuple):
    """The two ends of a deleted range, in clustering order: with ``ck`` declared DESC, ``start`` is the greater one.

    An end is None if its log row is missing, which happens when a record is read while it expires.
    """

    start: Bound | None
    end: Bound | None


@attrs.frozen(eq=False, slots=False, repr=False)
class PartsInPython:
    """What a change is made of, and those of its parts that are read most: the twin of ``compiled.ChangeParts``."""

    _layout: Layout
    _cells: Cells
    _preimage: Cells | None = None
    _postimage: Cells | None = None
    _range_end: Cells | None = None
    _batch: Record | None = None
    batch_index: int = 0
    """Position of this change in its record, from 0."""

    @_Kept
    def key(self) -> Mapping[str, Any]:
        """The primary key by column; for a range delete, the partition key. Parts that the change lacks are absent."""
        key = self._layout.key_of(self._cells)
        if self._cells[self._layout.operation] in RANGES:
            return {c.name: key[c.name] for c in self._layout.table.partition_key if c.name in key}
        return key

    @_Kept
    def before(self) -> Mapping[str, Any] | None:
        """The preimage by column, without keys; None if the table logs none or the row did not exist.

        Unless the table logs full preimages, it has only the columns that the write touched. Several changes of one
        row in one record share their images.
        """
        is_preimage = self._cells[self._layout.operation] == PREIMAGE
        image = self._cells if is_preimage else self._preimage
        return None if image is None else self._image(image, whole=False)

    @_Kept
    def after(self) -> Mapping[str, Any] | None:
        """The postimage by column if there is one; otherwise, for inserts and updates, the known part of the new row.

        The known part has the columns that were set, made null, or overwritten. The whole value of a collection that
        was only edited is not known, so such a column is absent; see ``columns``. With ``delta = 'keys'``, no column is
        known.
        """
        operation = self._cells[self._layout.operation]
        image = self._cells if operation == POSTIMAGE else self._postimage
        if image is not None:
            return self._image(image, whole=True)
        if operation_of(operation) not in _WRITES:
            return None
        cells = self._cells
        known: dict[str, Any] = {}
        for column in self._layout.values:  # the same as from ``columns``, without an object for each column
            if column.kind != "value":
                found = column_change(column, cells)
                if found is not None and found.known:
                    known[column.name] = found.value
            elif (raw := cells[column.index]) is not None:
                known[column.name] = column.decode(raw)
            elif column.marked_in(cells):
                known[column.name] = None
        return known

    def _image(self, cells: Cells, *, whole: bool) -> Mapping[str, Any]:
        """Return an image by column. The image of a row says nothing about static columns, and vice versa.

        Args:
            whole: the image has all columns, so an absent cell is null. Otherwise, it is null only if it is marked as
                deleted; if not, it is unknown, and the column is left out.
        """
        layout = self._layout
        static = layout.is_static(cells)
        image = {}
        for column in layout.values:
            value = column.value_in(cells)
            if value is not None:
                image[column.name] = value
            elif column.static == static and (whole or column.marked_in(cells)):
                image[column.name] = None
        return image


if TYPE_CHECKING:
    _Parts = PartsInPython
else:
    _Parts = twin("cdc.rows.ChangeParts", PartsInPython)


class Change(_Parts):
    """What one write did to one row, or to a range of rows. Values are decoded when they are read.

    Immutable: each access returns new dicts, lists, and sets, so modifying them does not affect the change. To read
    many columns, access the part once: ``after = change.after``.

    The table in ``rscylla.types`` defines the Python types of values, and the table in ``rscylla.cdc.rows.columns`` the
    parts of columns.
    """

    @property
    def operation(self) -> Operation:
        return _OPERATIONS[self._cells[self._layout.operation]]

    @_Kept
    def columns(self) -> Mapping[str, ColumnChange]:
        """By name, what the change did to each column that it touched; empty for images and deletes of rows."""
        if self._cells[self._layout.operation] in IMAGES:
            return {}
        cells = self._cells
        return {c.name: found for c in self._layout.values if (found := column_change(c, cells)) is not None}

    def column(self, name: str) -> ColumnChange:
        """Return what the change did to the column *name*, which may be nothing.

        Raises:
            KeyError: the table has no such column, or it belongs to the primary key.
        """
        found = self.columns.get(name)
        if found is not None:
            return found
        for column in self._layout.values:
            if column.name == name:
                return untouched(column)
        raise KeyError(f"{self._layout.table.full_name} has no column {name!r} outside of its primary key")

    @_Kept
    def values(self) -> Mapping[str, Any]:
        """The values that this change wrote, by column; for a collection, the elements that it added or replaced."""
        return {c.name: value for c in self._layout.values if (value := c.value_in(self._cells)) is not None}

    @_Kept
    def deleted(self) -> frozenset[str]:
        """The columns that were set to null. A collection that was overwritten is both here and in ``values``."""
        return frozenset(c.name for c in self._layout.values if c.marked_in(self._cells))

    @_Kept
    def deleted_elements(self) -> Mapping[str, Any]:
        """By collection column, the removed set elements, map keys, list cells, or UDT field numbers."""
        found = {}
        for column in self._layout.values:
            raw = self._cells[column.elements] if column.elements >= 0 else None
            if raw is not None and column.decode_elements is not None:
                found[column.name] = column.decode_elements(raw)
        return found

    @_Kept
    def range(self) -> KeyRange | None:
        """The two ends of a deleted range, in clustering order; None for other changes."""
        if self.operation in _BOUND_INCLUSIVE:
            end = None if self._range_end is None else self._bound(self._range_end)
            here = self._bound(self._cells)
            return KeyRange(here, end) if self._cells[self._layout.operation] in RANGE_STARTS else KeyRange(None, here)
        return None

    @_Kept
    def cql_types(self) -> Mapping[str, str]:
        """The CQL type of each column of the base table when the log row was read, such as ``frozen<list<int>>``.

        The columns of the primary key come first, in their order.
        """
        return {c.name: c.cql_type for c in (*self._layout.keys, *self._layout.values)}

    @property
    def layout(self) -> Layout:
        """The meaning of the columns of ``raw_rows``."""
        return self._layout

    @property
    def raw_rows(self) -> tuple[Cells, Cells | None, Cells | None, Cells | None]:
        """The undecoded log rows of the change: the delta's, preimage, postimage, and the range's end."""
        return self._cells, self._preimage, self._postimage, self._range_end

    @property
    def static(self) -> bool:
        """Whether the change is a write to the partition's static row, whose key is the partition key."""
        operation = self._cells[self._layout.operation]
        return operation not in _NEVER_STATIC and self._layout.is_static(self._cells)

    @property
    def is_delete(self) -> bool:
        """Whether a row, a range, or a partition was deleted, by a statement or because it expired."""
        return self.operation in _DELETES

    @property
    def expired(self) -> bool:
        """Whether the database deleted the row or partition because it expired (operations -3, -4)."""
        return self.operation in _EXPIRIES

    @property
    def ttl(self) -> int | None:
        """Seconds after which the written values expire; None if they do not expire."""
        raw = self._cells[self._layout.ttl]
        return None if raw is None else int.from_bytes(raw, "big", signed=True)

    @property
    def timestamp_us(self) -> int:
        """The write timestamp, microseconds since the epoch."""
        return tu.ticks_to_us(tu.ticks_of(self._cells[self._layout.time]))  # type: ignore[arg-type]

    @property
    def timestamp(self) -> datetime:
        """The write timestamp, aware UTC."""
        return tu.datetime_of(self.timestamp_us)

    @property
    def batch(self) -> Record:
        """The record that contains the change: what one statement or batch wrote to one partition at one time."""
        return self._batch if self._batch is not None else Record(self._layout, [self._cells], None)

    @property
    def batch_end(self) -> bool:
        """Whether this is the last change of its record."""
        return self.batch_index == self.batch.size - 1

    def as_dict(self) -> dict[str, Any]:
        """Return the change as a dict of typed values: the content of ``Event.metadata``; see docs/events.md.

        Raises:
            MalformedData: a cell has no value of its type.
        """
        batch = {**self.batch.as_dict(), "index": self.batch_index}
        return {**self.contents(), "ttl": self.ttl, "timestamp": self.timestamp, "batch": batch}

    def contents(self) -> dict[str, Any]:
        """Return the first part of ``as_dict``: what was done to which row.

        Raises:
            MalformedData: a cell has no value of its type.
        """
        try:
            return self._contents()
        except ValueError as e:
            raise _malformed(self) from e

    def _contents(self) -> dict[str, Any]:
        out: dict[str, Any] = {"operation": self.operation.name, "key": dict(self.key)}
        if self.range is not None:
            out["range"] = [None if b is None else {"key": dict(b.key), "inclusive": b.inclusive} for b in self.range]
        out |= {"before": self.before, "after": self.after}
        cells = self._cells
        touched = (
            [] if cells[self._layout.operation] in IMAGES else [c for c in self._layout.values if c.touched_in(cells)]
        )
        out |= {"changed": sorted([c.name for c in touched]), "deleted": sorted(self.deleted)}
        loose = [found for c in touched if c.kind != "value" and (found := column_change(c, cells)) is not None]
        if edits := {c.name: c.as_dict() for c in loose if c.added or c.removed}:
            out["collections"] = edits
        return out

    def __repr__(self) -> str:
        return f"Change(batch_index={self.batch_index})"

    def _bound(self, cells: Cells) -> Bound:
        clustering = {c.name for c in self._layout.table.clustering_key}
        key = {n: v for n, v in self._layout.key_of(cells).items() if n in clustering}
        return Bound(key, _BOUND_INCLUSIVE.get(_OPERATIONS[cells[self._layout.operation]], True))


_NEVER_STATIC = RANGES | PARTITION_DELETES | {b"\xfd", b"\x03"}


class Record:
    """A record of the log: the changes of one write to one partition at one time. Shared by their events.

    A record is not ``complete`` if rows of it are missing, because it was read while it expired or because somebody
    deleted rows from the log. Its remaining changes are still delivered, and the stream counts it.
    """

    __slots__ = ("_layout", "_parts", "_rows")

    def __init__(self, layout: Layout, rows: Sequence[Cells], parts: Sequence[Parts] | None) -> None:
        self._layout = layout
        self._rows = rows  # sorted; never empty
        self._parts = parts  # None: each row is a change

    @property
    def size(self) -> int:
        """The number of changes."""
        return len(self._rows if self._parts is None else self._parts)

    @property
    def stream_id(self) -> bytes:
        return cast("bytes", self._rows[0][self._layout.stream_id])

    @property
    def time(self) -> uuid.UUID:
        """``cdc$time``, which is unique in the stream."""
        return uuid.UUID(bytes=self._rows[0][self._layout.time])

    @property
    def timestamp_us(self) -> int:
        """The write timestamp of the whole record, microseconds since the epoch."""
        return tu.ticks_to_us(tu.ticks_of(self._rows[0][self._layout.time]))  # type: ignore[arg-type]

    @property
    def complete(self) -> bool:
        """Whether all log rows of the record were present, including its last one."""
        last = self._rows[-1]
        return last[self._layout.end_of_batch] == b"\x01" and last[self._layout.seq] == _SEQ.pack(len(self._rows) - 1)

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes of the record, in order. Each access creates new objects."""
        return tuple(self.change(i) for i in range(self.size))

    def change(self, index: int) -> Change:
        """Return the change at *index*, as a new object."""
        return Change(self._layout, *self.raw_rows(index), self, index)

    def raw_rows(self, index: int) -> tuple[Cells, Cells | None, Cells | None, Cells | None]:
        """Return the undecoded rows of the change at *index*: the delta's, preimage, postimage, and the range's end."""
        if self._parts is None:
            return self._rows[index], None, None, None
        rows = self._rows
        at, before, after, end = self._parts[index]
        return (
            rows[at],
            rows[before] if before >= 0 else None,
            rows[after] if after >= 0 else None,
            rows[end] if end >= 0 else None,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the members that identify the record, and its size."""
        named = {"stream_id": self.stream_id, "time": self.time}
        return {**named, "size": self.size, "complete": self.complete}

    def __repr__(self) -> str:
        return f"<Record of {self.size} at {self.time}{'' if self.complete else ', incomplete'}>"


_SEQ = struct.Struct(">i")
