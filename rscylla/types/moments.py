"""Dates and times in the years that Python's calendar lacks: the text that ISO 8601 and Java have for them.

A year beyond 9999 has a plus in front, one before 0 a minus, and each at least four digits: ``+10000-01-01``,
``0000-12-31``, ``-5877641-06-23T00:00:00Z``.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Final

__all__ = ["FarTime", "date_text", "parse_days", "parse_far_time"]

_ERA: Final = 146_097
"""Days of 400 years, after which the calendar begins anew."""

_FIRST: Final = date(2000, 1, 1)
_FIRST_DAY: Final = _FIRST.toordinal() - date(1970, 1, 1).toordinal()
_DAY_MS: Final = 86_400_000

_DATE = re.compile(r"([+-]?\d{1,9})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(r"([+-]?\d{4,9}-\d\d-\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,3}))?Z", re.ASCII)


class FarTime(int):
    """Milliseconds since 1970 of a timestamp beyond the years 1 to 9999, which no datetime can be; an int otherwise."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The time as text, in UTC, without trailing zeros in the fraction."""
        days, rest = divmod(int(self), _DAY_MS)
        seconds, ms = divmod(rest, 1000)
        fraction = f".{ms:03d}".rstrip("0") if ms else ""
        hours, seconds = divmod(seconds, 3600)
        return f"{date_text(days)}T{hours:02d}:{seconds // 60:02d}:{seconds % 60:02d}{fraction}Z"

    def utctimetuple(self) -> tuple[int, int, int, int, int, int]:
        """As the driver asks a datetime, so that it binds this one, too; with ``microsecond``."""
        return 1970, 1, 1, 0, 0, int(self) // 1000

    @property
    def microsecond(self) -> int:
        return int(self) % 1000 * 1000


def date_text(days: int) -> str:
    """Return the date that is *days* after 1970-01-01.

    >>> date_text(0), date_text(2_932_897), date_text(-719_529), date_text(-(2**31))
    ('1970-01-01', '+10000-01-01', '-0001-12-31', '-5877641-06-23')
    """
    era, rest = divmod(days - _FIRST_DAY, _ERA)
    found = _FIRST + timedelta(days=rest)
    year = found.year + 400 * era
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{found:%m-%d}"


def parse_days(text: str) -> int:
    """Return the days from 1970-01-01 to a date. Raises ``ValueError`` if *text* is none."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("not a date")
    year, month, day = (int(part) for part in match.groups())
    era, of_era = divmod(year - 2000, 400)
    return date(2000 + of_era, month, day).toordinal() - _FIRST.toordinal() + _FIRST_DAY + era * _ERA


def parse_far_time(text: str) -> int | None:
    """Return the milliseconds from 1970 to a time that ``FarTime`` has; None if *text* has another form."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = (int(part) for part in match.groups()[1:4])
    of_day = (hours * 60 + minutes) * 60 + seconds
    return parse_days(match[1]) * _DAY_MS + of_day * 1000 + int((match[5] or "0").ljust(3, "0"))
