"""Exact integer arithmetic of version-1 UUIDs (CQL ``timeuuid``) and of UTC times.

Times are whole microseconds since the epoch (``us``) or 100 ns ticks since 1582-10-15 (``ticks``). Floats never take
part: a float of today's ticks is wrong by up to 200 ns. UUIDs are handled as their 16 raw bytes, because only the raw
bytes order the way the database orders them.
"""

from __future__ import annotations

import re
import struct
import uuid
from datetime import UTC, datetime, timedelta
from functools import lru_cache

__all__ = [
    "EPOCH_TICKS",
    "FLIP_SIGNS",
    "datetime_of",
    "format_time",
    "min_timeuuid",
    "of_order_key",
    "order_key",
    "order_low",
    "parse_time",
    "ticks_of",
    "ticks_to_us",
    "us_of",
    "us_to_ticks",
]

EPOCH_TICKS = 0x01B21DD213814000
"""Ticks from 1582-10-15 to 1970-01-01."""

FLIP_SIGNS = bytes(b ^ 0x80 for b in range(256))
"""Translation that lets bytes compared unsigned stand in the order of signed ones; it is its own inverse."""

_FIELDS = struct.Struct(">IHH")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII)


def ticks_of(raw: bytes) -> int:
    """Return the 60-bit time of a timeuuid, in ticks. The version nibble is ignored, as the database does."""
    low, mid, high = _FIELDS.unpack_from(raw)
    return ((high & 0x0FFF) << 48) | (mid << 32) | low  # type: ignore[no-any-return]


def order_low(raw: bytes) -> bytes:
    """Return the last 8 bytes with each sign bit flipped: comparing the result unsigned is comparing them signed.

    Source: Scylla ``utils/UUID.hh``; ties of time are ordered by signed bytes.
    """
    return raw[8:].translate(FLIP_SIGNS)


def order_key(raw: bytes) -> bytes:
    """Return 16 bytes whose plain comparison is the database's order of timeuuids."""
    return ticks_of(raw).to_bytes(8, "big") + raw[8:].translate(FLIP_SIGNS)


def of_order_key(key: bytes) -> bytes:
    """Return the timeuuid, 16 bytes of version 1, of which ``order_key`` returned *key*."""
    ticks = int.from_bytes(key[:8], "big")
    high = (ticks >> 48) | 0x1000
    return _FIELDS.pack(ticks & 0xFFFFFFFF, (ticks >> 32) & 0xFFFF, high) + key[8:].translate(FLIP_SIGNS)


def us_to_ticks(us: int) -> int:
    """Return the ticks of a time given in microseconds since the epoch."""
    return us * 10 + EPOCH_TICKS


def ticks_to_us(ticks: int) -> int:
    """Return microseconds since the epoch, rounded down."""
    return (ticks - EPOCH_TICKS) // 10


def min_timeuuid(us: int) -> uuid.UUID:
    """Return the smallest timeuuid, in the database's order, of the microsecond *us*.

    The driver's helper of a similar name goes through floats and forces the variant bits, so it is neither exact nor
    the smallest.
    """
    ticks = us_to_ticks(us)
    head = _FIELDS.pack(ticks & 0xFFFFFFFF, (ticks >> 32) & 0xFFFF, ((ticks >> 48) & 0x0FFF) | 0x1000)
    return uuid.UUID(bytes=head + b"\x80" * 8)


def datetime_of(us: int) -> datetime:
    """Return the aware UTC datetime of *us* microseconds since the epoch."""
    return _EPOCH + timedelta(microseconds=us)


def us_of(moment: datetime) -> int:
    """Return microseconds since the epoch. A datetime without a zone is refused: its meaning would be a guess."""
    if moment.tzinfo is None:
        raise ValueError("a datetime without time zone; pass an aware one, such as datetime.now(timezone.utc)")
    return (moment - _EPOCH) // _MICROSECOND


def format_time(us: int) -> str:
    """Return RFC 3339 text in UTC, as Go writes it: no trailing zeros in the fraction, none at all when it is zero.

    >>> format_time(1_612_000_000_500_000)
    '2021-01-30T09:46:40.5Z'
    """
    seconds, fraction = divmod(us, 1_000_000)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    if seconds < -30_610_224_000:  # years below 1000, which strftime does not pad everywhere
        text = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    return f"{text}.{fraction:06d}".rstrip("0") + "Z" if fraction else text + "Z"


@lru_cache(maxsize=4096)  # cursors of one window share their times
def parse_time(text: str) -> int:
    """Return microseconds since the epoch for RFC 3339 text; digits below the microsecond are cut off.

    Raises:
        ValueError: *text* is not such a time.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("not an RFC 3339 time such as 2026-11-21T10:00:05Z")
    whole, fraction, zone = match.groups()
    moment = datetime.fromisoformat(whole + ("+00:00" if zone == "Z" else zone))
    return us_of(moment) + int((fraction or "0")[:6].ljust(6, "0"))
