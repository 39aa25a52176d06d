"""How a stream reads: the keyword arguments of ``NewStream``, in one place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import attrs

from ..._tokens import Slice
from ...clock import Clock, SystemClock
from ...errors import ConfigError
from ..log import OnExpired, group_streams
from ..rows import Change
from .scan import Limits

__all__ = ["Granularity", "StreamSettings"]

Granularity = Literal["change", "row"]


@attrs.define(kw_only=True, eq=False, repr=False, slots=False)
class StreamSettings:
    """How a stream reads; ``Stream`` documents the arguments. Treat it as immutable.

    Raises:
        ConfigError: an argument is invalid.
    """

    consistency: str = "QUORUM"
    event_type: Callable[[Change], int] | None = None
    granularity: Granularity = "change"
    on_expired: OnExpired = "raise"
    limits: Limits = attrs.field(factory=Limits)
    streams_per_query: int = 100
    poll: timedelta = timedelta(seconds=1)
    progress_every: timedelta = timedelta(seconds=10)
    prefetch: int = 1
    clock: Clock = attrs.field(factory=SystemClock)
    key_slice: tuple[int, int] = (0, 1)

    def __attrs_post_init__(self) -> None:
        if self.granularity not in ("change", "row"):
            raise ConfigError(f"granularity must be 'change' or 'row', not {self.granularity!r}")
        if self.on_expired not in ("raise", "oldest"):
            raise ConfigError(f"on_expired must be 'raise' or 'oldest', not {self.on_expired!r}")
        if self.poll <= timedelta() or self.progress_every < timedelta() or self.prefetch < 0:
            raise ConfigError("poll must be positive, progress_every and prefetch not negative")
        group_streams((), limit=self.streams_per_query)
        Slice.of(self.key_slice)
