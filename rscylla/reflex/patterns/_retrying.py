"""Trying an event again in place: what ``best_effort`` and ``dead_letter`` share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from ..._retry import Backoff, retry
from ...abc import Consumer, Run
from ...errors import ConfigError, ConnectionFailed, FateError, Stopped, is_expected
from ...event import Event
from .._wrapper import Wrapper

__all__ = ["IN_PLACE", "Retrying", "is_the_events_fault"]

IN_PLACE = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=10))
"""Pauses between attempts at one event: 0.1, 0.2, 0.4 ... 10 s, each less up to a half."""


def is_the_events_fault(error: Exception) -> bool:
    """Return whether *error* may be due to the event: all but lost connections and errors injected by fate.

    While a service behind the consumer cannot be reached, no event is at fault; else an outage would let go of all.
    """
    return not isinstance(error, FateError | ConnectionFailed | ConnectionError)


class Retrying(Wrapper):
    """Tries an event again, with pauses that a stop ends at once; what comes after the last attempt is up to heirs.

    May be used by several threads if *inner* may. Nothing is kept between events.
    """

    def __init__(
        self,
        inner: Consumer,
        *,
        retries: int,
        backoff: Backoff | None,
        counts: Callable[[Exception], bool] | None,
    ) -> None:
        super().__init__(inner)
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ConfigError(f'consumer "{inner.name}": retries is {retries!r}; it must be 0 or more')
        self._retries = retries
        self._backoff = backoff or IN_PLACE
        self._counts = counts or is_the_events_fault

    def consume(self, event: Event, run: Run) -> None:
        try:
            self._attempt(event, run)
        except Exception as error:
            if not self._again(error):
                raise
            self._retry(event, run, error)

    def _attempt(self, event: Event, run: Run) -> bool:
        try:
            self._inner.consume(event, run)
        except Exception as error:
            if run.stop.is_set() and self._again(error):
                # What the consumer uses may be closed already, such as a pool of threads: that would be no fault of the
                # event's, and letting go of it on the last attempt would lose it.
                raise Stopped from error
            raise
        return True

    def _again(self, error: Exception) -> bool:
        return not is_expected(error) and self._counts(error)

    def _retry(self, event: Event, run: Run, error: Exception) -> None:
        """Try until it works or the retries are used up."""
        known = self._known(event)
        tries = max(known, self._retries) + 1

        def waiting(error: Exception, failures: int, seconds: float) -> None:
            self._failed(event, known + failures)
            run.attempt_failed(event)

        def give_up(error: Exception) -> bool:
            self._give_up(event, run, error, tries)
            return False

        if retry(
            partial(self._attempt, event, run),
            attempts=tries - known,
            backoff=lambda error, failures: self._backoff.seconds(known + failures),
            clock=run.clock,
            again=self._again,
            waiting=waiting,
            sleep=run.pause,
            exhausted=give_up,
            failed=error,
        ):
            self._succeeded(event)

    def _known(self, event: Event) -> int:
        """Return how often the event has failed before this run."""
        return 0

    def _failed(self, event: Event, tries: int) -> None:
        """Note a failure that is followed by another attempt."""

    def _succeeded(self, event: Event) -> None:
        """Note that the event was consumed after all."""

    def _give_up(self, event: Event, run: Run, error: Exception, tries: int) -> None:
        """Do what is to be done after the last attempt. If it returns, the cursor moves over the event."""
        raise error
