"""How a stream is opened: small values that each set one field of a frozen ``StreamOptions``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

import attrs

from ._timeuuid import us_of
from .errors import ConfigError

__all__ = [
    "SAFE_LAG",
    "StreamFromHead",
    "StreamLag",
    "StreamOption",
    "StreamOptions",
    "StreamToHead",
    "StreamUntil",
    "aware_us",
    "resolve",
]

SAFE_LAG = timedelta(seconds=30)
"""With a shorter lag, rows delayed by other clocks, hints, or slow replicas may arrive too late and be missed."""


@attrs.frozen
class StreamOptions:
    """All options of one stream.

    ``lag``: the age at which a row is delivered; None if it was not given, which a CDC stream rejects.
    ``from_head``: ignore the cursor and start at the head. ``to_head``: raise ``HeadReached`` there instead of waiting.
    ``until``: raise ``HeadReached`` after everything before this aware time is delivered.
    """

    lag: timedelta | None = None
    from_head: bool = False
    to_head: bool = False
    until: datetime | None = None


class StreamOption(Protocol):
    """Anything that sets a field of ``StreamOptions``."""

    def apply(self, options: StreamOptions) -> StreamOptions:
        """Return *options* with this one's field set."""


@attrs.frozen(init=False)
class StreamLag:
    """Deliver a row only when it is this old. Required for CDC streams; 30 seconds or more is safe.

    >>> StreamLag(seconds=30) == StreamLag(timedelta(seconds=30))
    True
    """

    lag: timedelta

    def __init__(
        self,
        lag: timedelta | None = None,
        *,
        minutes: float | None = None,
        seconds: float | None = None,
        milliseconds: float | None = None,
    ) -> None:
        if lag is not None and not isinstance(lag, timedelta):
            raise ConfigError("StreamLag requires a timedelta, or seconds=, minutes=, or milliseconds=")
        if lag is None and minutes is None and seconds is None and milliseconds is None:
            raise ConfigError("StreamLag requires a duration, such as StreamLag(seconds=30)")
        try:
            total = (lag or timedelta()) + timedelta(
                minutes=minutes or 0, seconds=seconds or 0, milliseconds=milliseconds or 0
            )
        except (TypeError, ValueError, OverflowError) as e:
            raise ConfigError(f"StreamLag: {e}; its parts must be numbers, and their sum at most some years") from e
        if total < timedelta():
            raise ConfigError("StreamLag must not be negative")
        self.__attrs_init__(total)

    def apply(self, options: StreamOptions) -> StreamOptions:
        return attrs.evolve(options, lag=self.lag)


@attrs.frozen
class StreamFromHead:
    """Start at the head (now minus the lag), whatever the cursor is."""

    def apply(self, options: StreamOptions) -> StreamOptions:
        return attrs.evolve(options, from_head=True)


@attrs.frozen
class StreamToHead:
    """Raise ``HeadReached`` after everything up to now minus the lag is delivered, instead of waiting for more."""

    def apply(self, options: StreamOptions) -> StreamOptions:
        return attrs.evolve(options, to_head=True)


@attrs.frozen
class StreamUntil:
    """Raise ``HeadReached`` after everything before *time* (aware) is delivered."""

    time: datetime

    def __attrs_post_init__(self) -> None:
        aware_us("StreamUntil", self.time)

    def apply(self, options: StreamOptions) -> StreamOptions:
        return attrs.evolve(options, until=self.time)


def aware_us(name: str, time: datetime) -> int:
    """Return the microseconds since the epoch of *time*, the argument *name*.

    Raises:
        ConfigError: *time* is no datetime, or has no time zone: its meaning would be a guess.
    """
    if not isinstance(time, datetime):
        raise ConfigError(f"{name} requires an aware datetime, such as datetime.now(timezone.utc), not {time!r}")
    try:
        return us_of(time)
    except ValueError as e:
        raise ConfigError(f"{name}: {e}") from e


def resolve(options: Iterable[StreamOption]) -> StreamOptions:
    """Return the options folded from left to right; a later one of a kind wins."""
    folded = StreamOptions()
    for option in options:
        if not callable(getattr(option, "apply", None)):
            raise ConfigError(
                f"{option!r} is not a stream option; use StreamLag, StreamFromHead, StreamToHead, or StreamUntil"
            )
        folded = option.apply(folded)
    return folded
