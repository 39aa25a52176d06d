"""``Restarts``: how often a lane may fail before its service gives up on it, and what happens then."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import Literal

import attrs

from .._retry import Backoff
from ..errors import ConfigError

__all__ = ["Budget", "GiveUp", "Restarts"]

GiveUp = Literal["escalate", "park"]


@attrs.frozen
class Restarts:
    """How a lane of a ``Service`` is restarted after an error.

    A failed lane runs again after a pause. The service gives up on it after more than ``most`` failures ``within`` a
    time span (``most=None``: never) with no move of its cursor in between, or at once after an error that a retry
    cannot fix, such as an expired cursor or a missing option. ``give_up`` defines what happens then; ``fatal``
    overrides it for the second case:

    - ``"escalate"``: all lanes stop and save, and the service ends with exit code 1 and the cause, for the process
      supervisor to handle;
    - ``"park"``: this lane stays down, the others continue, and ``/readyz`` names it.
    """

    most: int | None = 10
    within: timedelta = timedelta(minutes=10)
    backoff: Backoff = attrs.field(factory=Backoff)
    give_up: GiveUp = "escalate"
    fatal: GiveUp | None = None

    def __attrs_post_init__(self) -> None:
        if self.most is not None and self.most < 0:
            raise ConfigError("Restarts: most must not be negative; None is for no limit")
        if self.within <= timedelta():
            raise ConfigError("Restarts: within must be more than zero")
        for name, value in (("give_up", self.give_up), ("fatal", self.fatal or self.give_up)):
            if value not in ("escalate", "park"):
                raise ConfigError(f'Restarts: {name} must be "escalate" or "park", not {value!r}')

    def when_fatal(self) -> GiveUp:
        """Return what happens after an error that a retry cannot fix."""
        return self.fatal or self.give_up


class Budget:
    """Counts the failures of one lane against its ``Restarts``. Used by the lane's thread alone."""

    def __init__(self, restarts: Restarts) -> None:
        self._restarts = restarts
        self._times: deque[float] = deque()

    def spend(self, now: float, *, got_on: bool = False) -> bool:
        """Count a failure at *now*, in monotonic seconds; return whether the lane may run again.

        *got_on*: the cursor has moved since the failure before, so this is the first one.
        """
        if got_on:
            self._times.clear()
        most = self._restarts.most
        if most is None:  # without a limit, the times need not be kept
            return True
        oldest = now - self._restarts.within.total_seconds()
        while self._times and self._times[0] <= oldest:
            self._times.popleft()
        self._times.append(now)
        return len(self._times) <= most
