"""Trying again: how long to wait, a few times, and for ever; the only door to ``tenacity``."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import attrs
import tenacity

from .clock import Clock, Stop
from .errors import ConfigError, RscyllaError, Stopped

__all__ = ["Backoff", "retry", "retry_forever"]

log = logging.getLogger("rscylla")

T = TypeVar("T")


@attrs.frozen
class Backoff:
    """How long to wait between attempts.

    The n-th consecutive failure is followed by a pause of ``initial * factor ** (n - 1)``, at most ``maximum``, minus a
    random part of up to ``jitter`` (0 to 1) of that. An attempt that lasted ``reset_after`` or longer was healthy: its
    failure counts as the first again.
    """

    initial: timedelta = timedelta(seconds=1)
    maximum: timedelta = timedelta(minutes=1)
    factor: float = 2.0
    jitter: float = 0.5
    reset_after: timedelta = timedelta(minutes=1)

    def __attrs_post_init__(self) -> None:
        if not timedelta() < self.initial <= self.maximum:
            raise ConfigError("Backoff: initial must be more than zero and not above maximum")
        if not self.factor >= 1:
            raise ConfigError("Backoff: factor must be 1 or more")
        if not 0 <= self.jitter <= 1:
            raise ConfigError("Backoff: jitter must be from 0 to 1")
        if self.reset_after <= timedelta():
            raise ConfigError("Backoff: reset_after must be more than zero")

    def seconds(self, failures: int, chance: float | None = None) -> float:
        """Return the seconds to wait after this many consecutive failures.

        *chance* (0 to 1) determines the jitter; default: random.
        """
        if chance is None:
            chance = random.random()
        longest = self.maximum.total_seconds()
        wait = self.initial.total_seconds()
        for _ in range(failures - 1):
            if wait >= longest or self.factor == 1:
                break
            wait *= self.factor
        return min(wait, longest) * (1 - self.jitter * chance)


def retry(work: Callable[[], T], *, attempts: int, backoff: Backoff, clock: Clock, stop: Stop) -> T:
    """Return what *work* gives, called up to *attempts* times where that may help. Waits in between with *clock*.

    Raises:
        RscyllaError: from *work*, one that is not resumable at once, any other at the last attempt.
        Stopped: *stop* was set during a wait.
    """
    for attempt in range(1, attempts):
        try:
            return work()
        except RscyllaError as error:
            if not error.resumable or isinstance(error, Stopped):
                raise
            log.info("%s (attempt %d of %d)", error, attempt, attempts)
            clock.wait(stop, backoff.seconds(attempt))
            if stop.is_set():
                raise Stopped from error
    return work()


def retry_forever(
    attempt: Callable[[], None],
    *,
    backoff: Backoff,
    clock: Clock,
    stop: Stop,
    again: Callable[[BaseException], bool],
    waiting: Callable[[BaseException, float], None],
) -> None:
    """Call *attempt* until it returns or *stop* is set; waits with *clock*.

    *again* says whether an error is worth another attempt; if not, it is raised. *waiting* is told the error and the
    seconds before each wait; what it raises ends the loop.
    """
    failures = 0
    began = clock.monotonic()

    def timed() -> None:
        nonlocal began
        began = clock.monotonic()
        if not stop.is_set():
            attempt()

    def wait(_: tenacity.RetryCallState) -> float:
        nonlocal failures
        healthy = clock.monotonic() - began >= backoff.reset_after.total_seconds()
        failures = 1 if healthy else failures + 1
        return backoff.seconds(failures)

    def before_sleep(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is not None:
            waiting(error, state.upcoming_sleep)

    def pause(seconds: float) -> None:
        clock.wait(stop, seconds)

    tenacity.Retrying(
        retry=tenacity.retry_if_exception(again),
        wait=wait,
        sleep=pause,
        before_sleep=before_sleep,
        reraise=True,
    )(timed)
