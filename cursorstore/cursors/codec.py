"""Converts cursors to positions: text that sorts like the cursors, for comparisons by the stores and the database.

A position is ASCII text of fixed width. The empty text is the position of the empty cursor, below all others. Cursors
themselves do not sort as text: their JSON has the stream id before the time of the row, times written by Go omit
trailing zeros, and "10" sorts before "9".
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

from rscylla import _timeuuid as tu
from rscylla.errors import InvalidCursor
from rscylla.event import EventID, LogMark

__all__ = ["CursorCodec", "EventCursorCodec", "IntCursorCodec", "format_us", "moment", "parse_us"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER = re.compile(r"\d{1,20}", re.ASCII)  # as many digits as 64 bits need


class CursorCodec(Protocol):
    """Converts the cursors of one kind of stream to positions and back. Pure, and therefore thread-safe.

    For all cursors a and b: a comes before b exactly when ``sort_key(encode(a)) < sort_key(encode(b))``, and then
    ``encode(a) < encode(b)`` too. All positions are ASCII, so the database, which compares bytes, uses the same order.
    """

    def encode(self, cursor: str) -> str:
        """Return the position of *cursor*; "" for "".

        Raises:
            InvalidCursor: *cursor* is not a cursor of this kind.
        """

    def decode(self, position: str) -> str:
        """Return the canonical cursor of a position that ``encode`` returned; "" for "".

        Raises:
            InvalidCursor: *position* was not created by this codec.
        """

    def sort_key(self, position: str) -> str:
        """Return the part of *position* that decides the order, because equal cursors may have different positions."""


class EventCursorCodec:
    """Positions of event ids: generation, ticks, low half of the timeuuid, stream id, sequence number.

    They are readable: ``2026-11-21T09:00:00.000Z 2026-11-21T10:00:05.2500000Z 4196...7a ced0...a1 0000000000``. The
    low half has its sign bits flipped, because the database orders rows of the same time by signed bytes. A cursor
    without a row part has only the first two fields, so it sorts before the rows of its tick. The log that it names
    follows after two spaces, which sort before any row, and does not affect the order. Cursors of Go rscylla, which
    mean "replay the window", become the start of their window.
    """

    def encode(self, cursor: str) -> str:
        if not cursor:
            return ""
        eid = EventID.parse(cursor)
        ticks = tu.ticks_of(eid.stream_time) if eid.is_row else tu.us_to_ticks(eid.time)
        try:
            head = f"{_format(eid.generation * 1000, 0, 3)} {_format(*divmod(ticks - tu.EPOCH_TICKS, 10), 7)}"
        except OverflowError as e:
            raise InvalidCursor("the cursor contains a time outside the years 1 to 9999") from e
        if not eid.is_row:
            return f"{head}  {_marked(eid.mark)}" if eid.mark else head
        return f"{head} {tu.order_low(eid.stream_time).hex()} {eid.stream_id.hex()} {eid.seq:010d}"

    def decode(self, position: str) -> str:
        if not position:
            return ""
        fields = position.split(" ")
        try:
            generation = tu.parse_time(fields[0]) // 1000
            # Two spaces before the log leave an empty third field.
            if len(fields) == 2 or not fields[2]:
                return str(EventID(generation, tu.parse_time(fields[1]), mark=_mark(fields[3:])))
            # The seventh digit of the fraction is the tick within the microsecond, which parse_time ignores.
            ticks = tu.us_to_ticks(tu.parse_time(fields[1])) + int(fields[1][26])
            low, stream_id, seq = fields[2:]
            raw = _timeuuid(ticks, bytes.fromhex(low).translate(tu.FLIP_SIGNS))
            return str(EventID.row(generation, bytes.fromhex(stream_id), raw, int(seq)))
        except (ValueError, IndexError, OverflowError) as e:
            raise InvalidCursor("the saved position is not that of an event id; check the codec of the store") from e

    def sort_key(self, position: str) -> str:
        return position.partition("  ")[0]


class IntCursorCodec:
    """Positions of cursors that are whole numbers, such as the ids of an event table: 20 digits."""

    def encode(self, cursor: str) -> str:
        if not cursor:
            return ""
        if not _INTEGER.fullmatch(cursor):
            raise InvalidCursor("the cursor is not a whole number of at most 20 digits")
        return cursor.zfill(20)

    def decode(self, position: str) -> str:
        if not position:
            return ""
        if len(position) != 20 or not _INTEGER.fullmatch(position):
            raise InvalidCursor("the saved position is not that of a whole number; check the codec of the store")
        return str(int(position))

    def sort_key(self, position: str) -> str:
        return position


def format_us(us: int) -> str:
    """Return a time as text of fixed width, with all six digits of the fraction, so that it sorts."""
    return _format(us, 0, 6)


def moment(text: str) -> datetime | None:
    """Return the time that ``format_us`` formatted; None for ""."""
    return tu.datetime_of(parse_us(text)) if text else None


def parse_us(text: str) -> int:
    """Return the microseconds since the epoch that ``format_us`` formatted."""
    return tu.parse_time(text)


def _format(us: int, tenth: int, digits: int) -> str:
    """Return RFC 3339 text with *digits* digits of fraction; *tenth* is the digit below the microsecond."""
    seconds, fraction = divmod(us, 1_000_000)
    return f"{_second(seconds)}.{f'{fraction:06d}{tenth}'[:digits]}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


_START, _UNKNOWN = "start", "?"


def _marked(mark: LogMark) -> str:
    """Return what a cursor without a row part says of its log, as text."""
    life = _START if mark.is_start else _UNKNOWN if mark.ttl_s is None else str(mark.ttl_s)
    return f"{mark.log.hex()} {life} {mark.seen}".rstrip()


def _mark(fields: list[str]) -> LogMark | None:
    """Return the mark that ``_marked`` wrote, from its parts; None if there are none."""
    if not fields:
        return None
    log, life, *seen = fields
    return LogMark(bytes.fromhex(log), life == _START, int(life) if life.isdigit() else None, *seen[:1])


def _timeuuid(ticks: int, low: bytes) -> bytes:
    """Return the 16 raw bytes of the timeuuid with these ticks and this low half."""
    if not 0 <= ticks < 1 << 60 or len(low) != 8:
        raise ValueError("these parts do not form a timeuuid")
    # A UUID stores the low part of its time first.
    head = (ticks & 0xFFFFFFFF) << 32 | (ticks >> 32 & 0xFFFF) << 16 | 0x1000 | ticks >> 48
    return head.to_bytes(8, "big") + low
