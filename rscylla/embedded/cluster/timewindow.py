"""How far a record's timestamp may be from the server's clock, and how a refusal says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["LEEWAY_US", "moment", "window_message"]

LEEWAY_US: Final = 5_000_000
"""Source: Scylla ``cdc/metadata.cc``, a constant there too."""


def window_message(side: str, timestamp_us: int, now_us: int) -> str:
    """Return the text for a timestamp "from the future" or "from the past"."""
    return (
        f'cdc: attempted to get a stream "from the {side}" ({moment(timestamp_us)}; current server time: '
        f"{moment(now_us)}). Writes to a table with CDC take timestamps close to the server's clock: leave out "
        "USING TIMESTAMP, or bring the client's clock in step."
    )


def moment(timestamp_us: int) -> str:
    """Return a time for a message; what no calendar has is given in microseconds."""
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=timestamp_us)
    except OverflowError:
        return f"{timestamp_us} us"
    return f"{when:%Y/%m/%d %H:%M:%S}"
