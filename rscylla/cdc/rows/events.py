"""Converts the rows of a window to events: groups them into records, and wraps each change in a thin event."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Protocol, cast

import attrs

from ... import _timeuuid as tu
from ..._decoder import twin
from ...errors import EventTypeError, is_resumable
from ...event import GRID_US, Event, Operation
from ...types import dumps, dumps_key
from .changes import Change, Record, operation_of
from .grouping import NOT_ALONE, parts_of, records_in
from .layout import Cells, Layout
from .rows import LogRows

__all__ = [
    "NO_EVENTS",
    "ChangeEvent",
    "Counters",
    "EventContext",
    "Events",
    "changes_of",
    "lowest_position",
    "rows_as_events",
]

_TICKS = struct.Struct(">Q").unpack_from
"""The ticks at the beginning of a position."""

_EPOCH_TICKS = tu.EPOCH_TICKS

_FIRST = b"\x00\x00\x00\x00"


@attrs.define(eq=False)
class Counters:
    """Counters of one open stream. Written by the thread that takes its events, read by any thread.

    ``incomplete_records``: records that were read with rows missing, usually because the rows were expiring.
    """

    incomplete_records: int = 0


@attrs.define(eq=False)
class EventContext:
    """Shared by the events of one generation. ``event_type`` is the user's function from a change to a type."""

    generation: int
    event_type: Callable[[Change], int] | None = None
    counters: Counters = attrs.field(factory=Counters)
    _last: tuple[int, str] = (-1, "")

    def id_prefix(self, us: int) -> str:
        """Return the part of an event id that the rows of one second share. Keeps the last result."""
        second = us // GRID_US
        last, prefix = self._last  # a single attribute, because several threads may use the events
        if second != last:
            start = tu.format_time(second * GRID_US)
            prefix = f'{{"cursor_gen":"{tu.format_time(self.generation * 1000)}","cursor_time":"{start}","stream_id":"'
            self._last = (second, prefix)
        return prefix

    def type_of(self, event: ChangeEvent) -> int:
        """Return the result of the user's function for *event*.

        Raises:
            EventTypeError: the function failed, or did not return an int.
        """
        assert self.event_type is not None
        try:
            found = self.event_type(event.change)
        except Exception as e:
            what = f"event_type= failed for event {event.id}: {type(e).__name__}"
            raise EventTypeError(what, resumable=is_resumable(e)) from e
        if not isinstance(found, int) or isinstance(found, bool):
            raise EventTypeError(f"event_type= must return an int, not {type(found).__name__}, for event {event.id}")
        return found


class ChangeEvent(Event):
    """An event of a CDC log: a thin wrapper around undecoded cells. Parts are decoded on access, and kept if costly."""

    __slots__ = ("_cells", "_change", "_context", "_foreign_id", "_index", "_layout", "_record", "position")

    def __init__(
        self,
        context: EventContext,
        position: bytes,
        cells: Cells,
        layout: Layout,
        record: Record | None = None,
        index: int = 0,
    ) -> None:
        self.position = position
        self._context = context
        self._cells = cells
        self._layout = layout
        self._record = record  # None: the row is a record of its own
        self._index = index
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
    def order_key(self) -> tuple[int, bytes]:
        return self._context.generation, self.position

    @property
    def type(self) -> int:
        if self._context.event_type is not None:
            return self._context.type_of(self)
        return operation_of(self._cells[self._layout.operation])

    @property
    def operation(self) -> Operation:
        """The operation of the delta row, whatever ``type`` is."""
        return operation_of(self._cells[self._layout.operation])

    @property
    def foreign_id(self) -> str:
        if self._foreign_id is None:
            self._foreign_id = dumps_key(self.key)
        return self._foreign_id

    @property
    def timestamp(self) -> datetime:
        return tu.datetime_of(self.timestamp_us)

    @property
    def timestamp_us(self) -> int:
        return (_TICKS(self.position)[0] - _EPOCH_TICKS) // 10  # type: ignore[no-any-return]

    @property
    def metadata(self) -> bytes:
        return dumps(self.change.as_dict()).encode()

    @property
    def key(self) -> Mapping[str, Any]:
        return self.change.key

    @property
    def change(self) -> Change:
        if self._change is None:
            record = self._record
            self._change = Change(self._layout, self._cells) if record is None else record.change(self._index)
        return self._change

    def as_late(self) -> ChangeEvent:
        return _LateChangeEvent(self._context, self.position, self._cells, self._layout, self._record, self._index)

    @property
    def row(self) -> Mapping[str, Any]:
        """The decoded delta row by column of the log, without null columns."""
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

    def raw_key(self) -> Mapping[str, bytes] | None:
        """Return the undecoded primary key by column; None if the change does not concern a single row."""
        if self._cells[self._layout.operation] in NOT_ALONE and self.change.range is not None:
            return None
        raw = {c.name: cell for c in self._layout.keys if (cell := self._cells[c.index]) is not None}
        return raw if len(raw) == len(self._layout.keys) else None

    def raw_partition_key(self) -> Mapping[str, bytes]:
        """Return the undecoded partition key by column."""
        keys = self._layout.keys[: len(self._layout.table.partition_key)]
        return {c.name: cell for c in keys if (cell := self._cells[c.index]) is not None}

    def raw_rows(self) -> tuple[Cells, Cells | None, Cells | None, Cells | None]:
        """Return the undecoded log rows of the change: the delta's, preimage, postimage, and the range's end."""
        if self._record is None:
            return self._cells, None, None, None
        return self._record.raw_rows(self._index)

    @property
    def layout(self) -> Layout:
        """The layout of the cells of ``raw_rows``. Usually the same object as long as the table does not change."""
        return self._layout

    @property
    def table(self) -> tuple[str, str]:
        """Keyspace and name of the base table."""
        return self._layout.table.keyspace, self._layout.table.name


class _LateChangeEvent(ChangeEvent):
    """A change that a sweep found."""

    __slots__ = ()

    late = True


ChangeEvent.register(twin("cdc.rows.ChangeEvent", ChangeEvent))  # the events of pages with the same columns


class Events(Protocol):
    """The events of a window, in order, made one at a time. Iterating goes on where it was left.

    An event that could not be made raises its error each time, so nothing after it is taken for the next. The iterator
    is the same each time, except after an interrupt.
    """

    @property
    def position(self) -> bytes:
        """The position of the last event that was returned; empty before the first one. Any thread may ask."""

    def __iter__(self) -> Iterator[ChangeEvent]: ...


class _NoEvents:
    position = b""

    def __iter__(self) -> Iterator[ChangeEvent]:
        return self

    def __next__(self) -> ChangeEvent:
        raise StopIteration


NO_EVENTS: Events = _NoEvents()


@attrs.define(eq=False)
class _Taken:
    """How far events were taken, why one could not be made, and whether all were."""

    position: bytes = b""
    error: BaseException | None = None
    is_over: bool = False


class EventsInPython:
    """``Events`` of rows in Python. Its iterator is a generator: a method for each event would cost more."""

    def __init__(self, rows: LogRows, context: EventContext, after: bytes, *, joined: bool) -> None:
        # The generator must not refer to this object: a cycle would keep the window until the collector looks for one.
        self._taken = _Taken()
        self._make = partial(made_in_python, self._taken, rows, context, after, joined)
        self._events: Any = self._make()  # a generator, with its frame

    @property
    def position(self) -> bytes:
        return self._taken.position

    def __iter__(self) -> Iterator[ChangeEvent]:
        taken = self._taken
        if taken.error is not None:
            raise taken.error
        if self._events.gi_frame is None and not taken.is_over:  # interrupted as it began
            self._events = self._make()
        return cast("Iterator[ChangeEvent]", self._events)


def made_in_python(
    taken: _Taken, rows: LogRows, context: EventContext, after: bytes, joined: bool
) -> Generator[ChangeEvent, None, None]:
    """Make the events of *rows* one at a time, and note in *taken* how far it went."""
    try:
        positions, cells = rows.positions, rows.cells
        if not positions:
            taken.is_over = True
            return
        mixed = rows.is_mixed
        layout = rows.layout_at(0)
        operation, end_of_batch, seq = layout.operation, layout.end_of_batch, layout.seq
        not_alone = NOT_ALONE if joined else frozenset[bytes]()
        counters = context.counters
        for at, end in records_in(positions):
            position, row = positions[at], cells[at]
            if mixed and rows.layout_at(at) is not layout:
                layout = rows.layout_at(at)
                operation, end_of_batch, seq = layout.operation, layout.end_of_batch, layout.seq
            if end - at == 1 and row[operation] not in not_alone:
                if row[end_of_batch] is None or row[seq] != _FIRST:
                    counters.incomplete_records += 1
                if position > after:
                    taken.position = position
                    yield ChangeEvent(context, position, row, layout)
                continue
            layout, of_record = rows.record(at, end)
            operation, end_of_batch, seq = layout.operation, layout.end_of_batch, layout.seq
            parts = parts_of(of_record, layout) if any(r[operation] in not_alone for r in of_record) else None
            record = Record(layout, of_record, parts)
            if not record.complete:
                counters.incomplete_records += 1
            for index, delta in enumerate(range(end - at) if parts is None else [p[0] for p in parts]):
                position = positions[at + delta]
                if position > after:
                    taken.position = position
                    yield ChangeEvent(context, position, of_record[delta], layout, record, index)
        taken.is_over = True
    except GeneratorExit:
        raise
    except BaseException as e:
        taken.error = e
        raise


def lowest_position(us: int) -> bytes:
    """Return a position after all rows before a time, and before all others."""
    return (us * 10 + _EPOCH_TICKS).to_bytes(8, "big") + bytes(28)


def rows_as_events(rows: LogRows, context: EventContext, *, after: bytes = b"") -> Events:
    """Return one event per log row, whatever its operation; for the arguments see ``changes_of``."""
    return rows.events(context, joined=False, after=after)


def changes_of(rows: LogRows, context: EventContext, *, after: bytes = b"") -> Events:
    """Return the events of *rows*, one per change, in the order of their positions.

    Events are created one at a time, so that memory holds the bytes of a window but not its events.

    Args:
        rows: sorted by position, with whole records: all rows of one stream and time.
        after: a position; events at or before it are left out.
    """
    return rows.events(context, joined=True, after=after)
