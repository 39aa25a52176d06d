"""Log rows to changes: which preimage, delta and postimage belong together, and what they say in typed values."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

import attrs

from .. import _timeuuid as tu
from .._json import dumps
from ..event import GRID_US, Event, Operation
from .rows import Cells, KeyedRow, Layout

__all__ = ["Bound", "Change", "ChangeEvent", "Context", "changes_of", "rows_as_events"]

T = TypeVar("T")

_RECORD = 32
"""Length of the part of a position that the rows of one record share: ticks, low half, stream id."""

_OPERATIONS: dict[bytes | None, Operation] = {
    bytes((n & 0xFF,)): Operation(n if n < 128 else n - 256) for n in range(256)
}
_OPERATIONS[None] = Operation(-128)  # the cell has expired or was deleted by hand

_PREIMAGE = b"\x00"
_POSTIMAGE = b"\x09"
_RANGE_STARTS = frozenset((b"\x05", b"\x06"))
_RANGE_ENDS = frozenset((b"\x07", b"\x08"))
_WITHOUT_IMAGES = _RANGE_STARTS | _RANGE_ENDS
_PARTITION_DELETES = frozenset((b"\x04", b"\xfc"))
_NOT_ALONE = _WITHOUT_IMAGES | {_PREIMAGE, _POSTIMAGE}
"""Operations of rows that belong to another row of their record."""

_WRITES = frozenset((Operation.INSERT, Operation.UPDATE))


class _Lazy(Generic[T]):
    """A property that is worked out once. Unlike ``functools.cached_property`` of Python 3.11 it takes no lock.

    Two threads may both work it out; they get equal values.
    """

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return cast("T", self)
        value = instance.__dict__[self._name] = self._work(instance)
        return value


@attrs.frozen
class Bound:
    """An end of a deleted range: the clustering columns it names, by name; none at all means unbounded."""

    key: Mapping[str, Any]
    inclusive: bool


@attrs.frozen(eq=False, slots=False)
class Change:
    """What one write did to one row, or to a range of rows. Immutable; values are decoded when asked for.

    Values are as the table in ``rscylla.cdc.rows`` tells.
    """

    _layout: Layout = attrs.field(repr=False)
    _cells: Cells = attrs.field(repr=False)
    _preimage: Cells | None = attrs.field(repr=False, default=None)
    _postimage: Cells | None = attrs.field(repr=False, default=None)
    _range_end: Cells | None = attrs.field(repr=False, default=None)

    @_Lazy
    def operation(self) -> Operation:
        return _OPERATIONS[self._cells[self._layout.operation]]

    @_Lazy
    def key(self) -> Mapping[str, Any]:
        """The primary key by column; of a range delete the partition key. Parts that the change lacks are absent."""
        key = self._layout.key_of(self._cells)
        if self._cells[self._layout.operation] in _WITHOUT_IMAGES:
            return {c.name: key[c.name] for c in self._layout.table.partition_key if c.name in key}
        return key

    @_Lazy
    def before(self) -> Mapping[str, Any] | None:
        """The preimage by column, keys left out; None when the table logs none or the row did not exist.

        Unless the table logs full preimages, it has only the columns that the write touched.
        """
        image = self._cells if self.operation == Operation.PREIMAGE else self._preimage
        return None if image is None else self._image(image, whole=False)

    @_Lazy
    def after(self) -> Mapping[str, Any] | None:
        """The postimage by column if there is one; else, for inserts and updates, what this change wrote and nulled."""
        image = self._cells if self.operation == Operation.POSTIMAGE else self._postimage
        if image is not None:
            return self._image(image, whole=True)
        if self.operation not in _WRITES:
            return None
        return {**self.values, **dict.fromkeys(self.deleted - self.values.keys())}

    @_Lazy
    def values(self) -> Mapping[str, Any]:
        """What this change wrote, by column: whole values; of a collection the elements it added or replaced."""
        return {c.name: value for c in self._layout.values if (value := c.value_in(self._cells)) is not None}

    @_Lazy
    def deleted(self) -> frozenset[str]:
        """The columns that were set to null; a collection that was overwritten is here and in ``values``."""
        return frozenset(c.name for c in self._layout.values if c.marked_in(self._cells))

    @_Lazy
    def deleted_elements(self) -> Mapping[str, Any]:
        """By collection column, what was removed from it: set elements, map keys, list cells or UDT field numbers."""
        found = {}
        for column in self._layout.values:
            raw = self._cells[column.elements] if column.elements >= 0 else None
            if raw is not None and column.decode_elements is not None:
                found[column.name] = column.decode_elements(raw)
        return found

    @_Lazy
    def range(self) -> tuple[Bound | None, Bound | None] | None:
        """The two ends of a deleted range, in clustering order; None for other changes.

        An end is None when its log row is gone, which happens when a record is read while it expires.
        """
        if self.operation in _BOUND_INCLUSIVE:
            end = None if self._range_end is None else self._bound(self._range_end)
            here = self._bound(self._cells)
            return (here, end) if self._cells[self._layout.operation] in _RANGE_STARTS else (None, here)
        return None

    @property
    def ttl(self) -> int | None:
        """Seconds after which the written values expire; None when they do not."""
        raw = self._cells[self._layout.ttl]
        return None if raw is None else int.from_bytes(raw, "big", signed=True)

    @property
    def timestamp_us(self) -> int:
        """The write timestamp, microseconds since the epoch."""
        return tu.ticks_to_us(tu.ticks_of(self._cells[self._layout.time]))  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, Any]:
        """Return the change as a dict of typed values: what ``Event.metadata`` holds as JSON."""
        out: dict[str, Any] = {"operation": self.operation.name, "key": dict(self.key)}
        if self.range is not None:
            out["range"] = [None if b is None else {"key": dict(b.key), "inclusive": b.inclusive} for b in self.range]
        out |= {"before": self.before, "after": self.after, "deleted": sorted(self.deleted)}
        if self.deleted_elements:
            out["deleted_elements"] = dict(self.deleted_elements)
        return out | {"ttl": self.ttl, "timestamp": tu.datetime_of(self.timestamp_us)}

    def _image(self, cells: Cells, *, whole: bool) -> Mapping[str, Any]:
        """Return an image by column. A row's image does not speak of static columns, nor theirs of others.

        Args:
            whole: null columns are null; otherwise only if they are marked, and unknown, so left out, if not.
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

    def _bound(self, cells: Cells) -> Bound:
        clustering = {c.name for c in self._layout.table.clustering_key}
        key = {n: v for n, v in self._layout.key_of(cells).items() if n in clustering}
        return Bound(key, _BOUND_INCLUSIVE.get(_OPERATIONS[cells[self._layout.operation]], True))


_BOUND_INCLUSIVE = {
    Operation.RANGE_START_INCLUSIVE: True,
    Operation.RANGE_START_EXCLUSIVE: False,
    Operation.RANGE_END_INCLUSIVE: True,
    Operation.RANGE_END_EXCLUSIVE: False,
}


@attrs.define(eq=False)
class Context:
    """What the events of one generation share. ``event_type`` maps a change to a number of the user's own."""

    generation: int
    event_type: Callable[[Change], int] | None = None
    _last: tuple[int, str] = (-1, "")

    def id_prefix(self, us: int) -> str:
        """Return the part of an event id that the rows of one second share. The last one is kept."""
        second = us // GRID_US
        last, prefix = self._last  # one read and one write of a pair: events may be used by several threads
        if second != last:
            start = tu.format_time(second * GRID_US)
            prefix = f'{{"cursor_gen":"{tu.format_time(self.generation * 1000)}","cursor_time":"{start}","stream_id":"'
            self._last = (second, prefix)
        return prefix


class ChangeEvent(Event):
    """An event of a CDC log: a thin wrapper of undecoded cells. What is asked for is made then, and kept if costly."""

    __slots__ = ("_cells", "_change", "_context", "_foreign_id", "_layout", "_parts", "position")

    def __init__(
        self,
        context: Context,
        position: bytes,
        cells: Cells,
        layout: Layout,
        parts: tuple[Cells | None, Cells | None, Cells | None] = (None, None, None),
    ) -> None:
        self.position = position
        self._context = context
        self._cells = cells
        self._layout = layout
        self._parts = parts
        self._change: Change | None = None
        self._foreign_id: str | None = None

    @property
    def id(self) -> str:
        layout, cells = self._layout, self._cells
        time: bytes = cells[layout.time]  # type: ignore[assignment]
        t = time.hex()
        return (
            f"{self._context.id_prefix(self.timestamp_us)}{cells[layout.stream_id].hex()}"  # type: ignore[union-attr]
            f'","stream_time":"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}",'
            f'"stream_seq":{int.from_bytes(cells[layout.seq], "big")},"v":2}}'  # type: ignore[arg-type]
        )

    @property
    def type(self) -> int:
        if self._context.event_type is not None:
            return self._context.event_type(self.change)
        return _OPERATIONS[self._cells[self._layout.operation]]

    @property
    def operation(self) -> Operation:
        """The operation of the delta row, whatever ``type`` is."""
        return _OPERATIONS[self._cells[self._layout.operation]]

    @property
    def foreign_id(self) -> str:
        if self._foreign_id is None:
            self._foreign_id = dumps(self.key, sort_keys=True)
        return self._foreign_id

    @property
    def timestamp(self) -> datetime:
        return tu.datetime_of(self.timestamp_us)

    @property
    def timestamp_us(self) -> int:
        return (int.from_bytes(self.position[:8], "big") - tu.EPOCH_TICKS) // 10

    @property
    def metadata(self) -> bytes:
        return dumps(self.change.as_dict()).encode()

    @property
    def key(self) -> Mapping[str, Any]:
        return self.change.key

    @property
    def change(self) -> Change:
        if self._change is None:
            self._change = Change(self._layout, self._cells, *self._parts)
        return self._change

    @property
    def row(self) -> Mapping[str, Any]:
        """The raw delta row by column of the log, decoded, null columns left out."""
        layout, cells = self._layout, self._cells
        out: dict[str, Any] = {
            "cdc$stream_id": cells[layout.stream_id],
            "cdc$time": uuid.UUID(bytes=cells[layout.time]),
            "cdc$batch_seq_no": int.from_bytes(cells[layout.seq], "big"),  # type: ignore[arg-type]
            "cdc$operation": int(self.operation),
            "cdc$ttl": self.change.ttl,
            "cdc$end_of_batch": cells[layout.end_of_batch] == b"\x01" or None,
            **layout.key_of(cells),
            **self.change.values,
            **{f"cdc$deleted_{name}": True for name in sorted(self.change.deleted)},
            **{f"cdc$deleted_elements_{name}": v for name, v in self.change.deleted_elements.items()},
        }
        return {name: value for name, value in out.items() if value is not None}


def rows_as_events(rows: Sequence[KeyedRow], context: Context) -> list[ChangeEvent]:
    """Return one event a log row, whatever its operation."""
    return [ChangeEvent(context, position, cells, layout) for position, cells, layout in rows]


def changes_of(rows: Sequence[KeyedRow], context: Context) -> list[ChangeEvent]:
    """Return the events of *rows*, one a change, in the order of their positions.

    Args:
        rows: sorted by position, records whole: those of one stream and time together.
    """
    events: list[ChangeEvent] = []
    last = len(rows)
    at = 0
    while at < last:
        position, cells, layout = rows[at]
        record = position[:_RECORD]
        end = at + 1
        while end < last and rows[end][0].startswith(record):
            end += 1
        if end == at + 1 and cells[layout.operation] not in _NOT_ALONE:
            events.append(ChangeEvent(context, position, cells, layout))
        else:
            events += _record(rows[at:end], context)
        at = end
    return events


def _record(rows: Sequence[KeyedRow], context: Context) -> list[ChangeEvent]:
    """Return the events of one record.

    Images belong to the deltas of the same row, wherever in the record they are. Deletes of ranges and of whole
    partitions have none, though their keys may look like the static row's. An image whose delta is gone, and a range
    end whose start is, become events of their own, so that nothing is dropped without a trace.
    """
    if not any(cells[layout.operation] in _NOT_ALONE for _, cells, layout in rows):
        return rows_as_events(rows, context)
    preimages: dict[Cells, KeyedRow] = {}
    postimages: dict[Cells, KeyedRow] = {}
    for row in rows:
        _, cells, layout = row
        if cells[layout.operation] == _PREIMAGE:
            preimages[layout.raw_key(cells)] = row
        elif cells[layout.operation] == _POSTIMAGE:
            postimages[layout.raw_key(cells)] = row
    events: list[ChangeEvent] = []
    used: set[Cells] = set()
    skip = -1
    for i, (position, cells, layout) in enumerate(rows):
        operation = cells[layout.operation]
        if i == skip or operation in (_PREIMAGE, _POSTIMAGE):
            continue
        range_end = None
        if operation in _RANGE_STARTS and i + 1 < len(rows):
            following = rows[i + 1][1]
            if following[layout.operation] in _RANGE_ENDS:
                range_end, skip = following, i + 1
        before = after = None
        if operation not in _WITHOUT_IMAGES and (
            operation not in _PARTITION_DELETES or not layout.table.clustering_key
        ):
            key = layout.raw_key(cells)
            used.add(key)
            before, after = preimages.get(key), postimages.get(key)
        parts = (before and before[1], after and after[1], range_end)
        events.append(ChangeEvent(context, position, cells, layout, parts))
    orphans = [r for images in (preimages, postimages) for key, r in images.items() if key not in used]
    if orphans:
        events += [ChangeEvent(context, *row) for row in orphans]
        events.sort(key=lambda e: e.position)
    return events
