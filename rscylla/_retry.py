"""Trying a call again: which errors, how often, and after which pauses; the only door to ``tenacity``."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

import attrs
import tenacity

from .clock import Clock, Stop, SystemClock
from .errors import ConfigError, RscyllaError, Stopped

__all__ = ["Backoff", "may_help", "retry"]

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


def may_help(error: Exception) -> bool:
    """Return whether *error* is an error of rscylla that another attempt may resolve."""
    return isinstance(error, RscyllaError) and error.resumable and not isinstance(error, Stopped)


def retry(
    work: Callable[[], T],
    *,
    attempts: int | None = None,
    backoff: Backoff | Callable[[Exception, int], float] | None = None,
    clock: Clock | None = None,
    stop: Stop | None = None,
    again: Callable[[Exception], bool] = may_help,
    waiting: Callable[[Exception, int, float], None] | None = None,
    sleep: Callable[[float], None] | None = None,
    exhausted: Callable[[Exception], T] | None = None,
    failed: Exception | None = None,
    got_on: Callable[[], bool] = lambda: False,
) -> T:
    """Return the result of *work*; call it again while it raises errors that another attempt may resolve.

    Args:
        attempts: How often *work* is called at most; None: until it returns, or *stop* is set.
        backoff: The pauses, or a function of the error and of how many attempts have failed; None: no pauses.
        clock: The clock of the pauses, and of the attempts' duration.
        stop: Ends a pause.
        again: Whether an error is worth another attempt.
        waiting: Called before each pause with the error, how many attempts have failed, and the seconds. What it raises
            ends the attempts. Default: a line in the log.
        sleep: Called instead of the pause on *clock*; an error that it raises ends the attempts.
        exhausted: Called with the last error when the attempts are used up; what it returns is returned. Default: the
            error is raised.
        failed: The error of a first attempt, which was made before and counts.
        got_on: Called after each failed attempt: whether it got something done, so that a ``Backoff`` begins anew.

    Raises:
        Exception: the error of *work* that is not worth another attempt, or the last one.
        Stopped: *stop* was set during a pause.
    """
    clock = clock or SystemClock()
    began = clock.monotonic()
    if failed is None:
        try:
            return work()  # most calls succeed at once, and need nothing else
        except Exception as error:  # noqa: BLE001 - judged below
            failed = error
    calls = _Calls(work, backoff, clock, stop or Stop(), attempts, waiting, sleep, exhausted, got_on, failed, began)
    return calls.made(again)


@attrs.define
class _Calls(Generic[T]):
    """The attempts at one call, and the callbacks of tenacity between them."""

    work: Callable[[], T]
    backoff: Backoff | Callable[[Exception, int], float] | None
    clock: Clock
    stop: Stop
    attempts: int | None
    waiting: Callable[[Exception, int, float], None] | None
    sleep: Callable[[float], None] | None
    exhausted: Callable[[Exception], T] | None
    got_on: Callable[[], bool]
    first: Exception | None
    began: float
    failures: int = 0

    def made(self, again: Callable[[Exception], bool]) -> T:
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, Exception) and again(error)),
            stop=tenacity.stop_never if self.attempts is None else tenacity.stop_after_attempt(self.attempts),
            wait=self._seconds,
            before_sleep=self._before_pause,
            sleep=self.sleep or self._pause,
            retry_error_callback=None if self.exhausted is None else self._exhausted,
            reraise=True,
        )(self._attempt)

    def _attempt(self) -> T:
        if self.first is not None:
            first, self.first = self.first, None
            raise first
        self.began = self.clock.monotonic()
        return self.work()

    def _seconds(self, state: tenacity.RetryCallState) -> float:
        self.failures += 1
        if self.backoff is None:
            return 0.0
        if not isinstance(self.backoff, Backoff):
            return self.backoff(_error(state), self.failures)
        if self.got_on() or self.clock.monotonic() - self.began >= self.backoff.reset_after.total_seconds():
            self.failures = 1
        return self.backoff.seconds(self.failures)

    def _before_pause(self, state: tenacity.RetryCallState) -> None:
        if self.waiting is not None:
            self.waiting(_error(state), state.attempt_number, state.upcoming_sleep)
        else:
            log.info("%s (attempt %d of %s)", _error(state), state.attempt_number, self.attempts or "any number")

    def _pause(self, seconds: float) -> None:
        # The stop is checked even if there is no time to wait.
        if self.stop.is_set() or (seconds and self.clock.wait(self.stop, seconds)):
            raise Stopped

    def _exhausted(self, state: tenacity.RetryCallState) -> T:
        assert self.exhausted is not None
        return self.exhausted(_error(state))


def _error(state: tenacity.RetryCallState) -> Exception:
    assert state.outcome is not None
    error = state.outcome.exception()
    assert isinstance(error, Exception)
    return error
