"""``Retrying``: retries an event in place; the base class of ``best_effort`` and ``dead_letter``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from ...._retry import Backoff, retry
from ....abc import Consumer, Run
from ....errors import ConfigError, ConnectionFailed, FateError, Stopped, is_expected
from ....event import Event
from ...wrapper import Wrapper

__all__ = ["IN_PLACE", "Retrying", "is_the_events_fault"]

IN_PLACE = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=10))
"""Pauses between attempts at one event: 0.1, 0.2, 0.4 ... 10 s, each shortened at random by up to half."""


def is_the_events_fault(error: Exception) -> bool:
    """Return whether *error* may be due to the event: true except for lost connections and errors of ``Fate``.

    While a service that the consumer calls cannot be reached, no event is at fault: if such errors counted, an outage
    would use up the attempts of every event.
    """
    return not isinstance(error, FateError | ConnectionFailed | ConnectionError)


class Retrying(Wrapper):
    """Retries an event, with pauses that a stop ends at once. Subclasses decide what follows the last attempt.

    Thread-safe if *inner* is: it keeps no state between events.
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
                # The consumer may have failed because of the stop, for example because its pool is closed already. If
                # this was the last attempt, giving up on the event would lose it.
                raise Stopped from error
            raise
        return True

    def _again(self, error: Exception) -> bool:
        return not is_expected(error) and self._counts(error)

    def _retry(self, event: Event, run: Run, error: Exception) -> None:
        """Retry until the consumer succeeds or the retries are used up."""
        known = self._known(event, run)
        tries = max(known, self._retries) + 1

        def waiting(error: Exception, failures: int, seconds: float) -> None:
            self._failed(event, run, known + failures)
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
            self._succeeded(event, run)

    def _known(self, event: Event, run: Run) -> int:
        """Return how often the event has failed before this run."""
        return 0

    def _failed(self, event: Event, run: Run, tries: int) -> None:
        """Called after a failure that is followed by another attempt."""

    def _succeeded(self, event: Event, run: Run) -> None:
        """Called when a retry succeeded."""

    def _give_up(self, event: Event, run: Run, error: Exception, tries: int) -> None:
        """Called after the last attempt. If it returns, the cursor moves past the event."""
        raise error
