"""What arguments name: tables, times, lags."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import rscylla

__all__ = ["TableName", "parse_lag", "parse_table", "parse_time", "time_of"]

_NAME = r'"(?:[^"]|"")+"|[A-Za-z][A-Za-z0-9_]*'
_TABLE = re.compile(rf"({_NAME})\.({_NAME})", re.ASCII)
_BARE = re.compile(r"[^\s\".]+\.[^\s\".]+")


class TableName(NamedTuple):
    """The table that the user named: stored names, without quotes."""

    keyspace: str
    table: str


def parse_table(text: str) -> TableName:
    """Return the table that ``KEYSPACE.TABLE`` names, by the rules of CQL: unquoted names are folded to lower case.

    Raises:
        ConfigError: *text* is not such a name; the message says how to quote it.
    """
    match = _TABLE.fullmatch(text)
    if match is None:
        if _BARE.fullmatch(text):
            keyspace, table = text.split(".")
            raise rscylla.ConfigError(
                f'{text!r} has characters that need quotes; write \'"{keyspace}"."{table}"\', '
                "including the single quotes for the shell"
            )
        raise rscylla.ConfigError(
            f"{text!r} does not name a table; write KEYSPACE.TABLE, such as shop.orders; names with capitals need "
            'double quotes, and single quotes for the shell: \'"Shop"."Orders"\''
        )
    return TableName(*map(_unquoted, match.groups()))


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def parse_time(text: str, *, option: str) -> datetime:
    """Return the aware time that *text* gives in ISO 8601.

    Raises:
        ConfigError: *text* is not a time, has no time zone, or is outside the calendar in UTC.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise rscylla.ConfigError(f"{option}: {text!r} is not a time; write it as 2026-11-21T10:00:00Z") from None
    if time.tzinfo is None:
        raise rscylla.ConfigError(f"{option}: {text!r} has no time zone; add Z for UTC, or +01:00")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise rscylla.ConfigError(f"{option}: {text!r} is outside the years 1 to 9999 in UTC") from None


def time_of(us: int) -> datetime:
    """Return the aware UTC time of *us* microseconds since the epoch."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def parse_lag(seconds: float | None, *, command: str) -> timedelta:
    """Return the lag that ``--lag`` gave.

    Raises:
        MissingLag: the option was not given.
        ConfigError: the lag is negative, infinite, or not a number.
    """
    if seconds is None:
        missing = rscylla.errors.MissingLag()
        text = (
            f"{command} needs --lag SECONDS; 30 or more is safe, because rows with timestamps from other clocks "
            "arrive late and a window read too early misses them"
        )
        missing.args = (text,)
        raise missing
    if not math.isfinite(seconds) or not 0 <= seconds <= 10**9:
        raise rscylla.ConfigError(f"--lag {seconds:g}: give a number of seconds, 0 or more")
    return timedelta(seconds=seconds)
