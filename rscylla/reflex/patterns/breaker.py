"""``CircuitBreaker``: a consumer waits while a system that it calls is down, and no event fails or is lost.

The state machine is ``pybreaker``: it counts, and decides when to open and close. This module does the waiting and
reads the clock, because ``pybreaker`` refuses calls where a consumer has to wait, holds its lock during a call, and
uses the wall clock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn, TypeVar, cast

from prometheus_client import CollectorRegistry

from ..._retry import Backoff, retry
from ...abc import Consumer
from ...abc import Run as RunLike
from ...clock import Clock, SystemClock
from ...errors import ConfigError, Stopped, is_expected
from ...event import Event
from ..context import Run
from ..telemetry.meters import BREAKER_STATES, BreakerState, meters_for
from ..wrapper import Wrapper

__all__ = ["CircuitBreaker", "Outage"]

log = logging.getLogger("rscylla.reflex")

T = TypeVar("T")

Outage = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""Which errors mean that the system behind the breaker is down: classes, or a function that decides."""

BETWEEN_PROBES_S = 1.0
"""While the breaker is half-open, consumers that wait check this often whether the probe of another one is back."""


class CircuitBreaker:
    """Guards one system that consumers call, such as a service, a broker, or a database. Thread-safe and shareable.

    ``guard(consumer)`` returns a consumer that handles outages as follows. While the breaker is closed, the event is
    retried in place, with short pauses. After *failures* consecutive outages of all consumers together, the breaker
    opens: all consumers wait for *reset_after*, and the system is not called. Then the breaker is half-open: one
    consumer tries its event, and the others continue to wait. *successes* consecutive successes close the breaker; an
    outage opens it again. A stop of the run ends every wait at once.

    An outage therefore never ends a run and never counts as an attempt of ``dead_letter``; it only delays events. Any
    other error belongs to the event or the consumer: it passes through and does not affect the breaker.

    Args:
        name: Label of the metrics, and the name in health checks.
        outage: Which errors mean that the system is down. Leave out errors about bad requests: an event that causes
            such an error each time blocks its lane forever.
        backoff: The pauses between attempts while the breaker is closed.
        clock: The clock for pauses and *reset_after*.
        registry: Where metrics are registered; default: the default registry.

    Raises:
        ConfigError: an argument is invalid, or ``pybreaker`` is not installed.
    """

    def __init__(
        self,
        name: str,
        *,
        outage: Outage,
        failures: int = 5,
        reset_after: timedelta = timedelta(seconds=30),
        successes: int = 1,
        backoff: Backoff | None = None,
        clock: Clock | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        if not name or not isinstance(name, str):
            raise ConfigError(f"the circuit breaker's name is {name!r}; it must be a non-empty str")
        if failures < 1 or successes < 1 or reset_after <= timedelta():
            raise ConfigError(f'circuit breaker "{name}": failures, successes and reset_after must be more than zero')
        self.name = name
        self._outage = _predicate(outage)
        self._reset_after_s = reset_after.total_seconds()
        self._backoff = backoff or Backoff(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=10))
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._opened_at = 0.0
        self._openings = 0
        self._probing: object | None = None
        self._meters = meters_for(registry)
        self._meters.breaker_state.labels(name).set(0)
        self._machine = _machine(name, failures, successes, self._changed)

    @property
    def state(self) -> BreakerState:
        """The current state. An open breaker becomes half-open when a caller tries to pass after *reset_after*."""
        return cast("BreakerState", self._machine.current_state)

    def guard(self, consumer: Consumer) -> Consumer:
        """Return *consumer* behind this breaker; its name, metrics, ``reset``, and ``stop`` are kept.

        Put it inside ``dead_letter``, ``batch``, and similar wrappers:
        ``dead_letter(breaker.guard(consumer), letters)``.

        Raises:
            ConfigError: *consumer* finishes events later and must be outermost.
        """
        return _Guarded(consumer, self)

    def call(self, function: Callable[[], T], *, run: RunLike | None = None) -> T:
        """Call *function* until no outage occurs, and return its result. Waits while the breaker is open.

        Args:
            run: The run that *function* works for: its stop ends the waits, and its health checks show why it waits.

        Raises:
            Stopped: *run* was stopped.
            Exception: an error of *function* that is not an outage.
        """
        run = run or Run(self.name)
        return retry(
            partial(self._attempt, function, run),
            backoff=self._pause_s,
            clock=self._clock,
            again=self._is_outage,
            waiting=lambda error, failures, seconds: None,
            sleep=partial(self._wait, run, f"{self.name} fails"),
        )

    def _attempt(self, function: Callable[[], T], run: RunLike) -> T:
        me = object()
        openings = self._pass(me, run)
        try:
            result = function()
        except Exception as error:
            if self._is_outage(error):
                self._record(error, openings)
            raise
        else:
            self._record(None, openings)
            return result
        finally:
            with self._lock:
                if self._probing is me:
                    self._probing = None

    def _is_outage(self, error: Exception) -> bool:
        return not is_expected(error) and self._outage(error)

    def _pause_s(self, error: Exception, failures: int) -> float:
        # In any other state, _pass makes the next attempt wait.
        return self._backoff.seconds(failures) if self.state == "closed" else 0.0

    def _pass(self, me: object, run: RunLike) -> int:
        """Wait until *me* may call; return how often the breaker had opened by then."""
        while True:
            with self._lock:
                wait_s = self._to_wait(me)
                openings = self._openings
            if wait_s is None:
                return openings
            self._wait(run, f'circuit breaker "{self.name}" is {self.state}', wait_s)

    def _wait(self, run: RunLike, why: str, seconds: float) -> None:
        if not seconds:
            return
        with run.waiting(why):
            if self._clock.wait(run.stop, seconds):
                raise Stopped  # the next run delivers the event again

    def _to_wait(self, me: object) -> float | None:
        """Return how long to wait before asking again, None if *me* may call."""
        if self.state == "closed":
            return None
        left_s = self._opened_at + self._reset_after_s - self._clock.monotonic()
        if self.state == "open":
            if left_s > 0:
                return left_s
            self._machine.half_open()
        if self._probing is not None:
            return min(BETWEEN_PROBES_S, self._reset_after_s)
        self._probing = me
        return None

    def _record(self, error: Exception | None, openings: int) -> None:
        """Record the outcome of a call that began when the breaker had opened *openings* times; None: success."""
        with self._lock:
            if openings != self._openings:
                return  # the breaker has opened since then, so this outcome says nothing about the system's state now
            if error is None:
                self._machine.call(lambda: None)
                return
            try:
                self._machine.call(_raise, error)
            except Exception as same:
                if same is not error:
                    raise

    def _changed(self, to: BreakerState) -> None:
        """Record a change of state. Called with the lock held."""
        if to == "open":
            self._opened_at = self._clock.monotonic()
            self._openings += 1
        self._meters.breaker_state.labels(self.name).set(BREAKER_STATES[to])
        self._meters.breaker_changes.labels(self.name, to).inc()
        log.log(logging.INFO if to != "open" else logging.WARNING, 'circuit breaker "%s" is %s', self.name, to)

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.name!r} {self.state}>"


class _Guarded(Wrapper):
    """A consumer behind a breaker. May be used by several threads if the consumer may."""

    def __init__(self, inner: Consumer, breaker: CircuitBreaker) -> None:
        super().__init__(inner)
        self._breaker = breaker

    def consume(self, event: Event, run: RunLike) -> None:
        self._breaker.call(lambda: self._inner.consume(event, run), run=run)


def _predicate(outage: Outage) -> Callable[[Exception], bool]:
    """Return a function that says whether an error is an outage."""
    classes = outage if isinstance(outage, tuple) else (outage,)
    if classes and all(isinstance(one, type) and issubclass(one, Exception) for one in classes):
        named = cast("tuple[type[Exception], ...]", classes)
        return lambda error: isinstance(error, named)
    if isinstance(outage, tuple | type) or not callable(outage):
        raise ConfigError("CircuitBreaker: outage must be one or more exception classes, or a function of an error")
    return outage


def _raise(error: Exception) -> NoReturn:
    raise error


def _machine(name: str, failures: int, successes: int, changed: Callable[[BreakerState], None]) -> Any:
    """Return a state machine of ``pybreaker`` that does not use its own clock."""
    try:
        import pybreaker
    except ImportError as e:
        raise ConfigError('a CircuitBreaker requires pybreaker; pip install "rscylla[service]"') from e

    class Listener(pybreaker.CircuitBreakerListener):
        def state_change(self, cb: Any, old_state: Any, new_state: Any) -> None:
            changed(new_state.name)

    # CircuitBreaker never calls the machine while it is open, so reset_timeout, by the wall clock, has no effect.
    return pybreaker.CircuitBreaker(
        fail_max=failures,
        success_threshold=successes,
        listeners=[Listener()],
        name=name,
        throw_new_error_on_trip=False,
    )
