"""Text of CQL constants read as values: timestamps, dates, times, durations."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Final

from .natives import DATE_EPOCH, Duration

__all__ = ["parse_date", "parse_duration", "parse_time", "parse_timestamp", "parse_varint"]

_DATE: Final = r"(?P<year>[+-]?\d{1,9})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
_CLOCK: Final = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d+))?)?"
_ZONE: Final = r"(?P<zone>Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)"
_TIMESTAMP: Final = re.compile(rf"{_DATE}(?:[T ]{_CLOCK})?\s*{_ZONE}?", re.IGNORECASE)
_DAY: Final = re.compile(_DATE)
_TIME: Final = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?")
_DURATION_PART: Final = re.compile(r"(\d+)(y|mo|w|d|h|ms|m|s|us|µs|μs|ns)", re.IGNORECASE)
_DURATION_ISO: Final = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.IGNORECASE
)
_DURATION_WEEKS: Final = re.compile(r"P(\d+)W", re.IGNORECASE)
_DURATION_ALTERNATIVE: Final = re.compile(r"P(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)", re.IGNORECASE)

_SECOND: Final = 1_000_000_000
# (what a unit adds to: months, days or nanoseconds, and how much of it), in the order that units must be written.
_UNITS: Final[dict[str, tuple[int, int]]] = {
    "y": (0, 12),
    "mo": (0, 1),
    "w": (1, 7),
    "d": (1, 1),
    "h": (2, 3600 * _SECOND),
    "m": (2, 60 * _SECOND),
    "s": (2, _SECOND),
    "ms": (2, 1_000_000),
    "us": (2, 1_000),
    "ns": (2, 1),
}
_UNIT_ORDER: Final = list(_UNITS)
_EPOCH_ORDINAL: Final = dt.date(1970, 1, 1).toordinal()


def parse_varint(text: str) -> int:
    """Return the whole number that *text* is, of any length. Raises ValueError."""
    try:
        return int(text)
    except ValueError:
        # Python refuses to read more than 4300 digits.
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise
        return int(Decimal(text))


def parse_timestamp(text: str) -> int:
    """Return milliseconds since the epoch.

    *text* is an integer (milliseconds) or a date, optionally with a time of day (three digits of a fraction at most)
    and a zone (``Z``, ``+01:00``, ``+0100``, ``+01``; none means UTC, as in Scylla). ``now`` is not accepted.

    Raises ValueError.
    """
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"unable to parse date '{text}', write it as 2026-11-21 10:00:05.123+0000")
    part = match.groupdict()
    if (digits := len(part["fraction"] or "")) > 3:
        raise ValueError(f"unable to parse date '{text}': Milliseconds length exceeds expected ({digits})")
    days = _days(part["year"], part["month"], part["day"])
    nanos = _nanos(part["hour"] or "0", part["minute"] or "0", part["second"], part["fraction"])
    return days * 86_400_000 + nanos // 1_000_000 - _zone_minutes(part["zone"]) * 60_000


def parse_date(text: str) -> int:
    """Return days since the epoch from ``yyyy-mm-dd`` or from the stored unsigned number. Raises ValueError."""
    if re.fullmatch(r"-?\d+", text):
        # Python refuses to read more than 4300 digits.
        number = int(text) if len(text) < 20 else -1
        if not 0 <= number < 1 << 32:
            raise ValueError(f"Unable to make unsigned int (for date) from: '{text}'")
        return number - DATE_EPOCH
    match = _DAY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"Unable to coerce '{text}' to a formatted date (long), write it as 2026-11-21")
    days = _days(match["year"], match["month"], match["day"])
    if not -DATE_EPOCH <= days < DATE_EPOCH:
        raise ValueError("date out of range")
    return days


def parse_time(text: str) -> int:
    """Return nanoseconds since midnight from ``hh:mm:ss[.fffffffff]``. Raises ValueError."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError("Timestamp format must be hh:mm:ss[.fffffffff]")
    return _nanos(*match.groups())


def _days(year: str, month: str, day: str) -> int:
    """Return days since the epoch in the proleptic Gregorian calendar, for any year."""
    # Python's calendar has years 1 to 9999; 400 years are a whole number of days, so other years are moved into it.
    cycles, inside = divmod(int(year) - 2000, 400)
    return dt.date(2000 + inside, int(month), int(day)).toordinal() - _EPOCH_ORDINAL + cycles * 146_097


def _nanos(hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    hours, minutes, seconds = int(hour), int(minute), int(second or 0)
    for name, number, limit in (("Hour", hours, 24), ("Minute", minutes, 60), ("Second", seconds, 60)):
        if number >= limit:
            raise ValueError(f"{name} out of bounds ({number}).")
    return ((hours * 60 + minutes) * 60 + seconds) * _SECOND + int((fraction or "").ljust(9, "0"))


def _zone_minutes(zone: str | None) -> int:
    """Return how many minutes the zone is ahead of UTC."""
    if zone is None or zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 18 or minutes > 59:
        raise ValueError("zone offset out of range")
    return (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)


_MOST_OF_DURATION: Final = ((1 << 31) - 1, (1 << 31) - 1, (1 << 63) - 1)


def parse_duration(text: str) -> Duration:
    """Return the duration written as ``1y2mo3d4h5m6s7ms8us9ns``, ``P1Y2M3DT4H5M6S``, ``P4W``, ``P0001-02-03T04:05:06``.

    A leading minus negates all parts. Raises ValueError.
    """
    negative = text.startswith("-")
    body = text[1:] if negative else text
    totals = [0, 0, 0]
    for amount, unit in _duration_parts(body):
        slot, factor = _UNITS[unit]
        totals[slot] += amount * factor
    for total, what, most in zip(totals, ("months", "days", "nanoseconds"), _MOST_OF_DURATION, strict=True):
        if total > most:
            raise ValueError(f"Invalid duration. The total number of {what} must be less or equal to {most}")
    months, days, nanos = (-part if negative else part for part in totals)
    return Duration(months, days, nanos)


def _duration_parts(body: str) -> list[tuple[int, str]]:
    if body[:1] in ("P", "p"):
        return _iso_parts(body)
    parts, end = [], 0
    for match in _DURATION_PART.finditer(body):
        if match.start() != end:
            break
        end = match.end()
        unit = match[2].lower()
        # The micro sign and the Greek mu look alike and are two characters.
        parts.append((int(match[1]), "us" if unit[1:] == "s" and unit[0] in "µμ" else unit))
    order = [_UNIT_ORDER.index(unit) for _, unit in parts]
    if not parts or end != len(body):
        raise ValueError("unable to read the duration, write it as 1h30m")
    if order != sorted(set(order)):
        raise ValueError("the units of a duration must come once each, from the largest to the smallest")
    return parts


def _iso_parts(body: str) -> list[tuple[int, str]]:
    if match := _DURATION_WEEKS.fullmatch(body):
        return [(int(match[1]), "w")]
    match = _DURATION_ALTERNATIVE.fullmatch(body) or _DURATION_ISO.fullmatch(body)
    if match is None or not any(match.groups()):
        raise ValueError("unable to read the duration, write it as P1DT2H")
    return [
        (int(amount or 0), unit) for amount, unit in zip(match.groups(), ("y", "mo", "d", "h", "m", "s"), strict=True)
    ]
