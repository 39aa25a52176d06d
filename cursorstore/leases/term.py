"""How long a holder may rely on a row that expires by TTL, counted by the holder's own clock."""

from __future__ import annotations

from datetime import timedelta

from rscylla.clock import Clock, SystemClock, monotonic_of, wall_ns_of
from rscylla.errors import ConfigError

from ..checks import process_name

__all__ = ["DEFAULT_TTL", "Holder", "Term"]

DEFAULT_TTL = timedelta(seconds=30)

_GRANULARITY_S = 1.0
"""A TTL is counted in whole seconds, so it may end up to one second early."""

_NEVER = float("-inf"), 0


class Term:
    """The time that a row with a TTL gives its holder: from before the request, and *margin* shorter than the TTL.

    Extended and ended by one thread at a time; ``runs`` may be called from any.

    Raises:
        ConfigError: *ttl* or *margin* cannot be used; *what* names whose they are.
    """

    def __init__(self, what: str, ttl: timedelta, margin: timedelta | None, clock: Clock) -> None:
        self.ttl_s, margin_s = _spans(what, ttl, margin)
        self._span_s = self.ttl_s - margin_s
        # A third, so that two renewals in a row may fail. A standby polls about as often.
        self.renew_every = self._span_s / 3
        self.clocks = monotonic_of(clock), wall_ns_of(clock)
        self.until = _NEVER  # monotonic seconds, and nanoseconds of the wall clock

    @property
    def begun(self) -> bool:
        """Whether it was extended since it was last ended, even if it is over by now."""
        return self.until != _NEVER

    def runs(self) -> bool:
        """Return whether the holder may rely on its row now."""
        # The monotonic clock of a machine that slept may not have advanced, so the wall clock counts, too: it can end a
        # term, but not prolong it.
        (monotonic, wall_ns), until = self.clocks, self.until
        return monotonic() < until[0] and wall_ns() < until[1]

    def now(self) -> tuple[float, int]:
        """Return the time to extend from: call it before the request is sent."""
        monotonic, wall_ns = self.clocks
        return monotonic(), wall_ns()

    def extend(self, began: tuple[float, int]) -> None:
        """Let the full time start again, at *began*."""
        monotonic, wall_ns = began
        self.until = monotonic + self._span_s, wall_ns + int(self._span_s * 1_000_000_000)

    def end(self) -> None:
        """End it at once."""
        self.until = _NEVER


class Holder:
    """Who holds rows that expire: of a lease, or of a membership in a group, which has *name*; *what* says which."""

    def __init__(
        self, what: str, name: str, owner: str | None, ttl: timedelta, margin: timedelta | None, clock: Clock | None
    ) -> None:
        self._clock = clock or SystemClock()
        self._term = Term(what, ttl, margin, self._clock)
        self.name = name
        self.owner = owner or process_name()
        """The name of this owner, for people."""
        self.renew_every = self._term.renew_every
        """Seconds between calls of ``renew``: a third of the time that it lasts. Retry a failed renewal sooner."""


def _spans(what: str, ttl: timedelta, margin: timedelta | None) -> tuple[int, float]:
    """Return the TTL in whole seconds and the margin in seconds, checked."""
    ttl_s = ttl.total_seconds()
    if ttl_s < 3 or ttl_s % 1:
        raise ConfigError(f"the ttl of {what} must be a whole number of seconds, at least 3")
    margin_s = max(ttl_s / 4, 1.5 * _GRANULARITY_S) if margin is None else margin.total_seconds()
    if not _GRANULARITY_S < margin_s < ttl_s:
        raise ConfigError(f"the margin of {what} must be longer than one second and shorter than its ttl")
    return int(ttl_s), margin_s
