"""Version-1 UUIDs as bytes: exact integer arithmetic between their time and microseconds, bounds, and new ones."""

from __future__ import annotations

import secrets
import threading
from typing import Final

from ..errors import InvalidRequest

__all__ = ["EPOCH_TICKS", "TimeUuids", "from_ticks", "max_timeuuid", "micros", "millis", "min_timeuuid", "ticks"]

EPOCH_TICKS: Final = 0x01B21DD213814000  # 100 ns ticks from 1582-10-15 to 1970-01-01
_LOWEST: Final = bytes([0x80] * 8)  # the low half is ordered as signed bytes
_HIGHEST: Final = bytes([0x7F] * 8)


def ticks(data: bytes) -> int:
    """Return the 60-bit time of a UUID in 100 ns ticks since 1582-10-15."""
    high, mid, low = data[6:8], data[4:6], data[:4]
    return int.from_bytes(bytes([high[0] & 0x0F, high[1]]) + mid + low, "big")


def micros(data: bytes) -> int:
    """Return the time of a UUID in whole microseconds since 1970, rounded down."""
    return (ticks(data) - EPOCH_TICKS) // 10


def millis(data: bytes) -> int:
    """Return the time of a UUID in whole milliseconds since 1970, rounded towards 1970 as Scylla does."""
    since = ticks(data) - EPOCH_TICKS
    return since // 10_000 if since >= 0 else -(-since // 10_000)


def from_ticks(ticks_100ns: int, low_half: bytes) -> bytes:
    """Return the UUID of a time in 100 ns ticks since 1582-10-15 and its last eight bytes.

    Raises InvalidRequest if the time does not fit 60 bits.
    """
    if not 0 <= ticks_100ns < 1 << 60:
        raise InvalidRequest("timeuuid: the time is out of range, a timeuuid holds the years 1582 to 5236")
    raw = ticks_100ns.to_bytes(8, "big")
    return raw[4:8] + raw[2:4] + bytes([raw[0] | 0x10, raw[1]]) + low_half


def min_timeuuid(timestamp_ms: int) -> bytes:
    """Return the smallest timeuuid of a millisecond. Raises InvalidRequest out of range."""
    return from_ticks(timestamp_ms * 10_000 + EPOCH_TICKS, _LOWEST)


def max_timeuuid(timestamp_ms: int) -> bytes:
    """Return the largest timeuuid of a millisecond: that of its last tick. Raises InvalidRequest out of range."""
    return from_ticks(timestamp_ms * 10_000 + EPOCH_TICKS + 9_999, _HIGHEST)


class TimeUuids:
    """Gives new timeuuids, each later than the one before even when the clock stands still. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = -1
        # Random, so that two servers never give the same timeuuid.
        # RFC variant, and the multicast bit that marks a node id that is not a hardware address.
        low = bytearray(secrets.token_bytes(8))
        low[0] = low[0] & 0x3F | 0x80
        low[2] |= 0x01
        self._low_half = bytes(low)

    def next(self, now_us: int) -> bytes:
        """Return a timeuuid of *now_us* (microseconds since 1970), or the tick after the last one given."""
        with self._lock:
            self._last = max(now_us * 10 + EPOCH_TICKS, self._last + 1)
            return from_ticks(self._last, self._low_half)
