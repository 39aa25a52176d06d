"""Trying an event again in place: what ``best_effort`` and ``dead_letter`` share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from ..._retry import Backoff
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
            self._inner.consume(event, run)
        except Exception as error:  # noqa: BLE001 - raised again where it is not the event's fault
            self._check(error, run)
            self._again(event, run, error)

    def _again(self, event: Event, run: Run, error: Exception) -> None:
        """Try until it works or the retries are used up."""
        tries = self._known(event) + 1
        while tries <= self._retries:
            self._failed(event, tries)
            run.attempt_failed(event)
            run.pause(self._backoff.seconds(tries))
            try:
                self._inner.consume(event, run)
            except Exception as next_error:  # noqa: BLE001 - the same
                self._check(next_error, run)
                error = next_error
            else:
                self._succeeded(event)
                return
            tries += 1
        self._give_up(event, run, error, tries)

    def _check(self, error: Exception, run: Run) -> None:
        """Raise *error* again if it is not the event's, and ``Stopped`` if it may be due to a stop."""
        if is_expected(error) or not self._counts(error):
            raise error
        if run.stop.is_set():
            # What the consumer uses may be closed already, such as a pool of threads: that would be no fault of the
            # event's, and letting go of it on the last attempt would lose it.
            raise Stopped from error

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
