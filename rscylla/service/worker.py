"""``Worker``: a lane of a service, whose thread runs one spec until it is done, stopped, or given up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Literal, get_args

from ..abc import unsaved_s
from ..clock import Stop
from ..errors import RscyllaError, ServiceFailed
from ..reflex import Meters, Run, Spec, log_context, run_forever
from .health import LaneFacts
from .restarts import Budget, Restarts

__all__ = ["STATES", "State", "Worker"]

log = logging.getLogger("rscylla.service")

State = Literal["idle", "standby", "starting", "streaming", "restarting", "stopped", "done", "parked", "failed"]
STATES: tuple[State, ...] = get_args(State)


class Worker:
    """One spec under supervision. Only the supervisor calls ``start`` and ``join``; the rest is thread-safe.

    Args:
        restarts: the policy for failures.
        ended: called with the worker by the lane's thread, right before the thread ends.
        failed: called with the worker and each error, before the pause that follows the error.
        excused: returns whether an error is not the lane's fault and does not count as a restart.
        restarting: called before each restart that counts.
    """

    def __init__(
        self,
        spec: Spec,
        restarts: Restarts,
        *,
        ended: Callable[[Worker], None],
        failed: Callable[[Worker, Exception], None],
        excused: Callable[[Exception], bool],
        restarting: Callable[[], None],
    ) -> None:
        self.spec = spec
        self.restarts = 0
        self.failure: ServiceFailed | None = None
        """Why the service gave up on the lane; None while it has not."""
        self.trouble = ""
        """Why the last run failed, without row values; "" if none has."""
        self._policy = restarts
        self._budget = Budget(restarts)
        self._ended = ended
        self._failed = failed
        self._excused = excused
        self._restarting = restarting
        self._at_rest: State | None = "idle"
        self._retrying = False
        self._thread: threading.Thread | None = None
        self._stop = Stop()

    @property
    def name(self) -> str:
        """The name of the consumer."""
        return self.spec.name

    @property
    def state(self) -> State:
        """The current state of the lane."""
        if self._at_rest is not None:
            return self._at_rest
        if self.spec.series.is_open:
            return "streaming"
        return "restarting" if self._retrying else "starting"

    @property
    def settled(self) -> bool:
        """Whether the lane has ended for good: it does not start again, even with another lease."""
        return self._at_rest in ("done", "parked", "failed")

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def stand_by(self) -> None:
        """Record that the lane waits for the lease."""
        if not self.settled:
            self._at_rest = "standby"

    def start(self, stop: Stop) -> None:
        """Run the spec in a new thread until *stop* is set. The previous thread must have ended."""
        self._stop = stop
        self._retrying = False
        self.trouble = ""
        self.failure = None
        self._at_rest = None
        self._thread = threading.Thread(target=self._work, name=f"rscylla-lane-{self.name}", daemon=True)
        self._thread.start()

    def retry_parked(self, wanted: Callable[[ServiceFailed], bool]) -> None:
        """Run the spec again if the lane is parked with a failure that is *wanted*, unless it is to stop."""
        is_at_rest = self._at_rest == "parked" and self._thread is None  # joined: no message of its end is on its way
        if is_at_rest and not self._stop.is_set() and self.failure is not None and wanted(self.failure):
            self.start(self._stop)

    def join(self, seconds: float) -> bool:
        """Wait until the thread has ended, at most *seconds* of real time; return whether it has."""
        if self._thread is not None:
            self._thread.join(seconds)
            if not self.alive:
                self._thread = None
        return not self.alive

    def facts(self, dead_letters: int | None) -> LaneFacts:
        """Return the current state for health checks, with the number of the consumer's dead letters."""
        series = self.spec.series
        busy_s, event = series.activity.longest()
        status = series.status()
        state, why = self.state, "" if self.failure is None else str(self.failure)
        return LaneFacts(
            consumer=self.name,
            source=self.spec.source,
            state=state,
            restarts=self.restarts,
            watermark_lag_s=series.watermark_lag(),
            last_event_age_s=series.last_event_age(),
            poll_age_s=status.poll_age_s,
            busy_s=busy_s,
            pause=series.activity.why(),
            failing=series.failing()[1],
            event_id="" if event is None else event.id,
            dead_letters=dead_letters,
            why=self.trouble if state == "restarting" else why,
            events=series.counts["consumed"],
            generation_us=status.generation_us,
            last_error=self.trouble,
            unproven=series.is_failing,
            open_s=series.open_s(),
            still_s=series.still_s(),
            unsaved_s=unsaved_s(self.spec.store, self.name),
            cdc_enabled=status.cdc_enabled,
            part_of=self.spec.part_of,
            key_slice=self.spec.key_slice,
        )

    def show(self, meters: Meters) -> None:
        """Show the state among *meters*, computed when it is read."""
        for state in STATES:
            meters.lane_state.labels(self.name, state).set_function(lambda state=state: float(self.state == state))  # type: ignore[misc]

    def hide(self, meters: Meters) -> None:
        """Remove what ``show`` has added."""
        for state in STATES:
            meters.lane_state.remove(self.name, state)

    def _work(self) -> None:
        spec = self.spec
        try:
            with log_context(Run(spec.name, spec.source)):  # for records that are logged between two runs
                self._at_rest = self._run()
        finally:
            self._ended(self)

    def _run(self) -> State:
        """Run the spec and return the state in which the lane ends."""
        try:
            run_forever(self.spec, stop=self._stop, backoff=self._policy.backoff, on_error=self._on_error)
        except ServiceFailed as spent:
            self.failure = spent
            park = self._policy.give_up == "park"
        except BaseException as error:  # noqa: BLE001 - it becomes the cause of ``failure``, which the service raises
            if self._stop.is_set() and isinstance(error, Exception):
                # The stop was requested, so this is not a failure; unsaved events are delivered again.
                log.warning('lane "%s": %s; the lane was being stopped', self.name, error)
                self.spec.series.finished()
                return "stopped"
            self.failure = ServiceFailed(f'lane "{self.name}" cannot continue: {_told(error)}', consumer=self.name)
            self.failure.__cause__ = error
            park = isinstance(error, Exception) and self._policy.when_fatal() == "park"
        else:
            return "stopped" if self._stop.is_set() else "done"
        log.error("%s; it is %s", self.failure, "parked, the others run on" if park else "given up, the service stops")
        return "parked" if park else "failed"

    def _on_error(self, error: Exception) -> None:
        """Count an error. Raises ``ServiceFailed`` if the budget is used up."""
        if self._stop.is_set():
            return
        self._failed(self, error)
        self.trouble = _told(error)
        self._retrying = True
        if self._excused(error):
            return
        if not self._budget.spend(self.spec.clock.monotonic(), got_on=self.spec.series.failed_runs == 1):
            within = self._policy.within.total_seconds()
            raise ServiceFailed(
                f'lane "{self.name}" failed more than {self._policy.most} times in {within:g} s, most recently with: '
                f"{self.trouble}",
                consumer=self.name,
            ) from error
        self.restarts += 1
        self._restarting()


def _told(error: BaseException) -> str:
    """Return the text of *error* if it is ours, else its class: the text may hold row values, and pages show it."""
    return str(error) if isinstance(error, RscyllaError) else type(error).__name__
