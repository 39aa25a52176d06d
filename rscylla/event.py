"""Events, their identity, and cursors.

An event id is also a cursor: JSON with a fixed key order that names the log row, its generation and the aligned window
that holds it. It depends on the row alone, so it is the same for every lag, window width, restart and reader.
"""

from __future__ import annotations

import enum
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol, Self, cast

import attrs

from . import _timeuuid as tu
from ._integers import parse_int
from .errors import InvalidCursor

__all__ = ["ChangeLike", "Event", "EventID", "LogMark", "Operation", "Progress", "SimpleEvent", "cursor_key"]

GRID_US = 1_000_000
"""Width of the aligned windows that event ids name: one second, on the grid of the epoch."""


_TIME = r"(\d{4}-\d\d-\d\dT[\d:]{8}(?:\.\d{1,6})?Z)"
_CANONICAL = re.compile(
    rf'{{"cursor_gen":"{_TIME}","cursor_time":"{_TIME}","stream_id":"([0-9a-f]{{32}})",'
    r'"stream_time":"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})","stream_seq":(\d{1,9}),"v":2}',
    re.ASCII,
)


class Operation(enum.IntEnum):
    """The operation of a log row, ``cdc$operation``. An unknown number becomes a new member, ``UNKNOWN_<n>``."""

    SERVICE_PARTITION_DELETE = -4
    SERVICE_ROW_DELETE = -3
    PREIMAGE = 0
    UPDATE = 1
    INSERT = 2
    ROW_DELETE = 3
    PARTITION_DELETE = 4
    RANGE_START_INCLUSIVE = 5
    RANGE_START_EXCLUSIVE = 6
    RANGE_END_INCLUSIVE = 7
    RANGE_END_EXCLUSIVE = 8
    POSTIMAGE = 9

    @classmethod
    def _missing_(cls, value: object) -> Operation | None:
        # A newer Scylla may log operations that are not known here; they must not end a stream.
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        return member


@attrs.frozen
class LogMark:
    """The log of a cursor without a row part, and what was known of its table at that point.

    ``log`` is the id of the log table, 16 bytes. ``is_start``: the point was chosen as a start, so nothing was read
    before it; otherwise, the log was read up to it. ``ttl_s`` is the TTL of its rows in seconds, 0 for none, None if
    not known. ``seen``: when the table was last altered, and a digest of how it was then; "" if not known.
    """

    log: bytes
    is_start: bool = False
    ttl_s: int | None = None
    seen: str = ""

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self | None:
        """Return what the JSON of a point holds of it, None if nothing. Raises ``ValueError`` for anything else."""
        if "log" not in fields:
            return None
        log, is_start, ttl_s = bytes.fromhex(fields["log"]), fields.get("start", False), fields.get("ttl")
        seen = fields.get("seen", "")
        if (
            len(log) != 16
            or not isinstance(is_start, bool)
            or not (ttl_s is None or (type(ttl_s) is int and ttl_s >= 0))
            or not (isinstance(seen, str) and SEEN.fullmatch(seen))
        ):
            raise ValueError("log, start, ttl and seen of a point are 32 hex digits, true, seconds, and a digest")
        return cls(log, is_start, ttl_s, seen)

    def __str__(self) -> str:
        """Return the end of the JSON of a point."""
        start = ',"start":true' if self.is_start else ""
        ttl = "" if self.ttl_s is None else f',"ttl":{self.ttl_s}'
        return f',"log":"{self.log.hex()}"{start}{ttl}' + (f',"seen":"{self.seen}"' if self.seen else "")


SEEN = re.compile(r"(?:(?:off\.)?[0-9a-f]{1,16}\.[0-9a-f]*)?")
"""What ``LogMark.seen`` may be."""


@attrs.frozen(order=False)
class EventID:
    """A row of a CDC log, or the point before which everything is done.

    ``generation`` is in milliseconds since the epoch, ``time`` in microseconds: the start of the aligned window, or
    the exact point. ``stream_time`` holds the raw bytes of ``cdc$time``, ``seq`` is ``cdc$batch_seq_no``.

    A point has an empty row part. Its ``mark`` distinguishes it from a point of a log that is created later under the
    same name; it does not affect the order.
    """

    generation: int
    time: int
    stream_id: bytes = b""
    stream_time: bytes = b""
    seq: int = 0
    mark: LogMark | None = None

    @classmethod
    def row(cls, generation: int, stream_id: bytes, stream_time: bytes, seq: int) -> Self:
        """Return the id of one log row."""
        us = tu.ticks_to_us(tu.ticks_of(stream_time))
        return cls(generation, us - us % GRID_US, stream_id, stream_time, seq)

    @classmethod
    def at(cls, generation: int, position: bytes) -> Self:
        """Return the id of the row whose ``position`` in *generation* is *position*."""
        return cls.row(
            generation, position[16:32], tu.of_order_key(position[:16]), int.from_bytes(position[32:], "big")
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse *text* and return the id.

        Ids without ``"v"`` were written by Go rscylla, whose cursor means "replay the window": their row part is
        dropped.

        Raises:
            InvalidCursor: *text* is not such an id.
        """
        try:
            match = _CANONICAL.fullmatch(text)
            if match is not None:  # what __str__ writes; about all there is to parse where cursors are saved
                generation, time, sid, stime, number = match.groups()
                raw = bytes.fromhex(stime.replace("-", ""))
                return cls(tu.parse_time(generation) // 1000, tu.parse_time(time), bytes.fromhex(sid), raw, int(number))
            fields = json.loads(text)
            generation_us = tu.parse_time(fields["cursor_gen"])
            time_us = tu.parse_time(fields["cursor_time"])
            version = fields.get("v", 1)
            stream_id = bytes.fromhex(fields["stream_id"])
            stream_time = bytes.fromhex(fields["stream_time"].replace("-", ""))
            seq = fields["stream_seq"]
            mark = LogMark.parse(fields)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
            raise InvalidCursor(
                "the text is not a cursor of rscylla; pass an event id: JSON with cursor_gen, cursor_time, "
                "stream_id, stream_time, and stream_seq"
            ) from e
        # In Python, true equals 1.
        if version not in (1, 2) or isinstance(version, bool):
            raise InvalidCursor(f"the cursor has version {version!r}, this rscylla reads 1 and 2; upgrade rscylla")
        if version == 1:
            return cls(generation_us // 1000, time_us)
        # A point, not a row: "" for both is what __str__ writes.
        if not stream_id and not stream_time and type(seq) is int and seq == 0:
            return cls(generation_us // 1000, time_us, mark=mark)
        # cdc$batch_seq_no is an int of CQL, below 2**31.
        if len(stream_id) != 16 or len(stream_time) != 16 or type(seq) is not int or not 0 <= seq < 2**31:
            raise InvalidCursor("the cursor names only part of a row; stream_id and stream_time are 16 bytes each")
        return cls(generation_us // 1000, time_us, stream_id, stream_time, seq)

    @property
    def is_row(self) -> bool:
        """Whether this is the id of a row; otherwise it is the point before which everything is done."""
        return bool(self.stream_id)

    @property
    def exact_us(self) -> int:
        """The time of the row, or of the point, in microseconds since the epoch."""
        return tu.ticks_to_us(tu.ticks_of(self.stream_time)) if self.stream_id else self.time

    @property
    def position(self) -> bytes:
        """Bytes that sort in the order of delivery inside one generation.

        Order: ticks, low half of the timeuuid as signed bytes, stream id, sequence number.
        """
        if not self.stream_id:
            # Times before 1582 have no ticks; Go's zero time is one, and it is below all rows.
            return max(0, tu.us_to_ticks(self.time)).to_bytes(8, "big")
        return tu.order_key(self.stream_time) + self.stream_id + self.seq.to_bytes(4, "big")

    @property
    def key(self) -> tuple[int, bytes]:
        """A key that orders ids of all generations."""
        return self.generation, self.position

    def __str__(self) -> str:
        """Return the compact JSON."""
        if not self.stream_id:
            sid, stime = "", ""
        else:
            sid, raw = self.stream_id.hex(), self.stream_time.hex()
            stime = f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
        return (
            f'{{"cursor_gen":"{tu.format_time(self.generation * 1000)}","cursor_time":"{tu.format_time(self.time)}",'
            f'"stream_id":"{sid}","stream_time":"{stime}","stream_seq":{self.seq},"v":2{self.mark or ""}}}'
        )


def cursor_key(cursor: str) -> tuple[int, bytes]:
    """Return a key that orders cursors; the empty cursor is below all others.

    Raises:
        InvalidCursor: *cursor* is neither empty nor an event id.
    """
    # No generation is as early as the time of the empty cursor.
    return EventID.parse(cursor).key if cursor else (-(2**63), b"")


class ChangeLike(Protocol):
    """What a change of a base row offers to consumers. Values are natural Python values, None for null."""

    @property
    def operation(self) -> int: ...
    @property
    def key(self) -> Mapping[str, Any]: ...
    @property
    def before(self) -> Mapping[str, Any] | None:
        """The preimage's values by column; None when the table logs none or the row did not exist."""

    @property
    def after(self) -> Mapping[str, Any] | None:
        """The values of the postimage if there is one, else of the columns that the change wrote; None for deletes."""

    @property
    def ttl(self) -> int | None: ...


class Event(ABC):
    """Something that happened, at one position of an ordered stream.

    Events are immutable and can be passed to other threads. Costly parts are computed when they are read.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def id(self) -> str:
        """The identity of the event, and the cursor that continues right after it."""

    @property
    def order_key(self) -> tuple[int, bytes]:
        """The ``cursor_key`` of the id, for events whose ids are cursors of that form."""
        return cursor_key(self.id)

    @property
    @abstractmethod
    def type(self) -> int:
        """An ``Operation``, or the result of the stream's ``event_type=`` function."""

    @property
    @abstractmethod
    def foreign_id(self) -> str:
        """JSON of the primary key of the base row, keys sorted. Parts that the change does not have are absent."""

    @property
    @abstractmethod
    def timestamp(self) -> datetime:
        """The time of the write: aware UTC, microseconds."""

    @property
    def timestamp_us(self) -> int:
        """The time of the write, in microseconds since the epoch."""
        return tu.us_of(self.timestamp)

    @property
    def metadata(self) -> bytes:
        """The change as JSON bytes; empty if the stream has none."""
        return b""

    @property
    def trace(self) -> bytes:
        """Trace context of the writer; empty if there is none."""
        return b""

    @property
    def key(self) -> Mapping[str, Any]:
        """Typed values of the primary key, by column name, in key order."""
        return cast("Mapping[str, Any]", json.loads(self.foreign_id, parse_int=parse_int)) if self.foreign_id else {}

    @property
    def change(self) -> ChangeLike | None:
        """The whole change, for events of a CDC log; None for other streams."""
        return None

    @property
    def late(self) -> bool:
        """Whether a sweep delivered the event after the fast lane had passed it, so that newer events came first."""
        return False

    def as_late(self) -> Event:
        """Return the same event with ``late`` set."""
        return _LateEvent(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


@attrs.frozen(repr=False)
class SimpleEvent(Event):
    """An event whose parts are all given: for streams other than CDC, and for tests."""

    id: str
    type: int = 0
    foreign_id: str = ""
    timestamp: datetime = attrs.field(factory=lambda: tu.datetime_of(0))
    metadata: bytes = b""
    trace: bytes = b""


class _LateEvent(Event):
    """Another event, whatever its class, that a sweep found. What is asked of it is asked of that one."""

    __slots__ = ("_event",)

    def __init__(self, event: Event) -> None:
        self._event = event

    late = True
    id = property(lambda self: self._event.id)
    type = property(lambda self: self._event.type)
    foreign_id = property(lambda self: self._event.foreign_id)
    timestamp = property(lambda self: self._event.timestamp)
    timestamp_us = property(lambda self: self._event.timestamp_us)
    metadata = property(lambda self: self._event.metadata)
    trace = property(lambda self: self._event.trace)
    key = property(lambda self: self._event.key)
    change = property(lambda self: self._event.change)

    def as_late(self) -> Event:
        return self

    def __getattr__(self, name: str) -> Any:
        if name == "_event":  # not there yet while it is unpickled or copied
            raise AttributeError(name)
        return getattr(self._event, name)


@attrs.frozen
class Progress:
    """A point worth saving without an event: everything before ``cursor`` is done. ``time_us`` is the watermark."""

    cursor: str
    time_us: int
