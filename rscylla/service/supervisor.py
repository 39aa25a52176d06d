"""``Service``: runs many specs in one process, restarts them, stops on signals, and reports health over HTTP."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from prometheus_client import REGISTRY, CollectorRegistry

from ..abc import DeadLetterAdmin, Lease
from ..clock import LOOK_S, Clock, Stop, SystemClock
from ..errors import ConfigError, LeaseLost, ServiceFailed
from ..reflex import Spec, checked_specs, flat_specs, meters_for
from . import health
from .groups.group import Group
from .groups.work import GroupWork
from .lease import LeaseKeeper
from .restarts import Restarts
from .shown import Shown
from .signals import signals
from .worker import Worker

__all__ = ["Service"]

log = logging.getLogger("rscylla.service")

HUNG = 3
"""Exit code if a consumer did not end in time, so that some cursors may not be saved."""

RELEASE_S = 1.0
"""How long the release of the lease may take even after *stop_timeout*; otherwise, the lease expires by itself."""

OnError = Callable[[str, Exception], None]


class Service:
    """Runs specs side by side, each in a thread, until all are done, a stop is requested, or it gives up on one.

    ``sys.exit(service.run())`` is a complete program. ``with service: ...`` runs the service in the background. A
    service runs once.

    - A lane (a spec) that fails runs again after a pause, as its ``Restarts`` define. A lane is done when it reaches
      the head that it runs to; when all lanes are done, the service ends.
    - On SIGTERM, SIGINT, and ``stop``, the service stops reading, finishes the current events, saves, and ends, within
      *stop_timeout*. It logs the name of a consumer that has not finished by then, and ends without it. A second signal
      ends the service at once.
    - With a *lease*, the service stands by until it holds the lease. When it loses the lease, it stops its lanes at
      once and stands by again.
    - With a *group*, the lanes of the slices that this process holds come and go beside those of *specs*. Such a
      service runs until it is stopped or gives up. It hands its slices over to other members before it ends.
    - With a *port*, it serves ``/metrics``, ``/healthz``, ``/readyz``, ``/status``, and ``/``, a page for people.

    Exit codes: 0: done or stopped; if a cursor could not be saved, the log says so. 1: the service gave up on a lane;
    ``failure`` has the cause. 3: a consumer hung, and the service ended without it. 128 plus the number of the signal:
    a second signal arrived. Events whose cursor was not saved are delivered again.

    Args:
        specs: The specs to run, with different consumer names. Several specs, as ``slice_specs`` and
            ``fast_and_sweep`` return them, can be one item.
        restarts: For all lanes, or by consumer name (the other lanes use the default). The name of a consumer whose
            slices are lanes of a group is that without the slice.
        group: Shares the slices of consumers with other processes; not with *lease*.
        lease: Guards all lanes. Give it to the cursor store, too, so that a paused process cannot write.
        port, host: The HTTP address. Port 0 lets the system choose; None: no HTTP. The default host is loopback,
            because there is no login.
        dead_letters: Where to count dead letters, every half minute, for metrics, health checks, and the page.
        show_values: Whether the page and ``/status`` may show row values: the keys of dead letters, and their errors
            with tracebacks. Without it, they show the classes of these errors.
        stop_timeout: How long a stop may take; keep it below the time after which your platform kills the process.
        stuck_after: A consumer that works on one event for longer than this fails ``/healthz``.
        poll_timeout: A source that does not answer for longer than this fails ``/readyz``.
        on_error: Called with the consumer's name and each error of a run, by the lane's thread. It must not raise.
        unread: Returns what should be read, too, and is not, by name, with the reason, for ``/readyz``. Called by any
            thread; must not block. With it, *specs* may be empty: the service then runs until it is stopped.
        registry: The registry that ``/metrics`` shows and that has the service's own metrics; default: the default
            registry.
        clock: The clock for lease renewals and for counting; lanes use the clocks of their specs.

    Raises:
        ConfigError: an argument is invalid, or a consumer is a coroutine function.
    """

    def __init__(
        self,
        specs: Iterable[Spec | Iterable[Spec]] = (),
        *,
        group: Group | None = None,
        restarts: Restarts | Mapping[str, Restarts] | None = None,
        lease: Lease | None = None,
        port: int | None = None,
        host: str = "127.0.0.1",
        dead_letters: DeadLetterAdmin | None = None,
        show_values: bool = False,
        stop_timeout: timedelta = timedelta(seconds=25),
        stuck_after: timedelta = timedelta(minutes=15),
        poll_timeout: timedelta = timedelta(minutes=2),
        on_error: OnError | None = None,
        unread: Callable[[], Mapping[str, str]] | None = None,
        registry: CollectorRegistry | None = None,
        clock: Clock | None = None,
    ) -> None:
        if group is not None and lease is not None:
            raise ConfigError("Service: group= and lease= exclude each other; a member of a group needs no lease")
        chosen = flat_specs(specs)
        if chosen or (group is None and unread is None):
            checked_specs("Service", chosen)
        for name, span in (
            ("stop_timeout", stop_timeout),
            ("stuck_after", stuck_after),
            ("poll_timeout", poll_timeout),
        ):
            if span <= timedelta():
                raise ConfigError(f"Service: {name} must be more than zero")
        registry = registry if registry is not None else REGISTRY
        self._meters = meters_for(registry)
        self._on_error = on_error
        self._lease = lease
        self._stop_timeout_s = stop_timeout.total_seconds()
        self._clock = clock or SystemClock()
        self._real = SystemClock()  # joining threads takes real time
        self._policy_of = _policies(restarts, None if group is not None else chosen)
        self._fixed = tuple(self._worker(spec, self._is_the_lease) for spec in chosen)
        self._shown = Shown(
            self.facts,
            lambda: self._workers,
            health.Limits(stuck_after.total_seconds(), poll_timeout.total_seconds()),
            self._meters,
            registry,
            self._clock,
            where=None if port is None else (host, port),
            lease=lease,
            dead_letters=dead_letters,
            show_values=show_values,
        )
        self._lease_keeper: LeaseKeeper | None = None
        # What lanes, keepers, and signal handlers, which can use a SimpleQueue, have the supervisor's thread do.
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._group_work: GroupWork | None = None
        if group is not None:
            self._group_work = GroupWork(
                group,
                self._clock,
                self._meters,
                hire=self._hired,
                retire=self._shown.went,
                call=self._inbox.put,
                fixed=(spec.name for spec in chosen),
                patience_s=self._stop_timeout_s,
            )
        self._term = Stop()
        self._begin_lock = threading.Lock()
        self._begun = False
        self._supervised = False
        self._stopping = False
        self._done = False
        self._signals: list[int] = []
        self._deadline: float | None = None
        self._looked_at = self._real.monotonic()
        self._unread = unread or dict
        self._ended = Stop()
        self._thread: threading.Thread | None = None
        self.failure: ServiceFailed | None = None
        """Why the service gave up, with the cause chained; None while it has not."""
        self.exit_code = 0
        """The exit code for the process; final once the service has ended."""

    @property
    def _workers(self) -> tuple[Worker, ...]:
        return self._fixed if self._group_work is None else self._fixed + self._group_work.workers

    def _hired(self, spec: Spec, excused: Callable[[Exception], bool]) -> Worker:
        """Return the worker of a lane that has come, with its metrics."""
        worker = self._worker(spec, excused)
        self._shown.came(worker)
        return worker

    def _worker(self, spec: Spec, excused: Callable[[Exception], bool]) -> Worker:
        return Worker(
            spec,
            self._policy_of(spec),
            ended=lambda worker: self._inbox.put(lambda: self._lane_ended(worker)),
            failed=self._lane_failed,
            excused=excused,
            restarting=self._meters.restarts.labels(spec.name).inc,
        )

    def _lane_failed(self, worker: Worker, error: Exception) -> None:
        if self._on_error is not None:
            self._on_error(worker.name, error)

    def _is_the_lease(self, error: Exception) -> bool:
        """Return whether a lane failed because the lease is lost; the service is about to stop such a lane."""
        return isinstance(error.__cause__, LeaseLost) and self._lease is not None and not self._lease.held()

    # ------------------------------------------------------------ running

    def run(self) -> int:
        """Run until the end and return the exit code. In the main thread, SIGTERM and SIGINT stop the service.

        Raises:
            ConfigError: the service ran before, or cannot listen on its port.
        """
        self._open()
        with signals(lambda number: self._inbox.put(lambda: self._halted(number))):
            self._supervise()
        return self.exit_code

    def start(self) -> None:
        """Run in the background; use ``wait`` and ``stop`` with it. Installs no signal handlers.

        Raises:
            ConfigError: the service ran before, or cannot listen on its port.
        """
        self._open()
        self._thread = threading.Thread(target=self._supervise, name="rscylla-service", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Request a stop and return at once. Can be called repeatedly, by any thread, consumer, or signal handler."""
        self._inbox.put(lambda: self._halted(None))

    def retry_parked(self, wanted: Callable[[ServiceFailed], bool]) -> None:
        """Run parked lanes again whose failures are *wanted*, and return at once. Thread-safe."""

        def retry() -> None:
            for worker in self._workers:
                worker.retry_parked(wanted)

        self._inbox.put(retry)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the service has ended, at most *timeout* of real time; return whether it has."""
        return self._ended.wait(None if timeout is None else timeout.total_seconds())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Stop the service and wait until it has ended.

        Raises:
            ServiceFailed: the service gave up on a lane, and the block raised no error.
        """
        self.stop()
        self._ended.wait()
        if kind is None and self.failure is not None:
            raise self.failure

    def _open(self) -> None:
        """Listen in the caller's thread, not in the background, so that the caller gets the error of a port in use."""
        with self._begin_lock:
            if self._begun:
                raise ConfigError("this Service has already run; create another one")
            self._begun = True
        self._shown.listen()
        self._supervised = True
        self._shown.start()
        if self._group_work is not None:
            self._group_work.show()

    # ------------------------------------------------------------ supervision

    def _supervise(self) -> None:
        try:
            self._watch()
        except ServiceFailed as failure:
            self.failure = failure
            log.error("%s; the service stops", failure)
        except Exception as error:
            log.exception("the supervisor failed")
            self._fail(f"the supervisor failed: {error}", error)
        finally:
            self._wind_down()

    def _watch(self) -> None:
        """Start the lanes, and do what the inbox says until the service ends."""
        if self._lease is None:
            self._start_lanes(Stop())
        else:
            self._stand_by(self._lease)
        if self._group_work is not None:
            self._group_work.start()
        while not (self._stopping or self._done or self.failure is not None):
            self._looked_at = self._real.monotonic()
            self._shown.tell()
            if self._group_work is not None:
                self._group_work.check()
            self._do_next(LOOK_S)

    def _do_next(self, seconds: float) -> bool:
        """Do what the inbox says next; wait for that at most *seconds*, and return whether there was something."""
        try:
            self._inbox.get(timeout=seconds)()
        except Empty:
            return False
        except ServiceFailed as failure:
            if not self._stopping:
                raise
            log.warning("%s; the service was being stopped", failure)
        return True

    def _lane_ended(self, worker: Worker) -> None:
        worker.join(self._stop_timeout_s)  # short: the thread sent this as its last action
        if self._group_work is not None:
            self._group_work.ended(worker)
        if not self._stopping:
            self._done = self._is_the_end(worker)

    def _stand_by(self, lease: Lease) -> None:
        for worker in self._workers:
            worker.stand_by()
        self._lease_keeper = LeaseKeeper(
            lease,
            self._clock,
            begun=lambda term: self._inbox.put(lambda: self._start_lanes(term)),
            over=lambda: self._inbox.put(self._lease_over),
            failed=lambda error: self._inbox.put(lambda: self._lease_failed(error)),
        )
        self._lease_keeper.start()

    def _start_lanes(self, term: Stop) -> None:
        if self._stopping:
            return
        self._term = term
        for worker in self._workers:
            if not worker.settled:
                worker.start(term)

    def _lease_over(self) -> None:
        """Wait for the lanes, then stand by again, unless the service ends."""
        if self._stopping:
            return
        left = self._await_lanes()
        if left and len(self._signals) < 2:
            # The lane may still act without the lease, which only the end of the process can prevent.
            names = ", ".join(f'lane "{worker.name}"' for worker in left)
            self._fail(f"{names} went on for {self._stop_timeout_s:g} s after the lease was lost", None)
        self._done = bool(left) or self._is_the_end()
        if self._done or self._stopping:
            return
        for worker in self._workers:
            worker.stand_by()
        if self._lease_keeper is not None:
            self._lease_keeper.resume()

    def _lease_failed(self, error: Exception) -> None:
        if not self._stopping:
            self._fail(f"the lease cannot be held: {error}", error)

    def _is_the_end(self, ended: Worker | None = None) -> bool:
        """Return whether the service ends: it gave up on a lane, or every lane has ended, and no other can come.

        *ended*: a lane that has ended now, which may be one of a group.
        """
        failed = [worker for worker in (ended, *self._fixed) if worker is not None and worker.state == "failed"]
        if failed:
            self.failure = failed[0].failure
            return True
        if self._group_work is not None or not all(worker.settled for worker in self._fixed):
            return False
        self.failure = next((worker.failure for worker in self._fixed if worker.state == "parked"), None)
        return True

    def _halted(self, number: int | None) -> None:
        self._stopping = True
        if number is not None:
            self._signals.append(number)

    def _fail(self, why: str, cause: BaseException | None) -> None:
        self.failure = ServiceFailed(why)
        self.failure.__cause__ = cause
        log.error("%s; the service stops", why)

    def _await_lanes(self) -> list[Worker]:
        """Wait until all lanes have ended; return those that have not when the time is up or a second signal comes.

        The time is granted once: a second call for the returned lanes does not wait.
        """
        if self._deadline is None:
            self._deadline = self._real.monotonic() + self._stop_timeout_s
        deadline = self._deadline
        while alive := [worker for worker in self._workers if worker.alive]:
            left_s = deadline - self._real.monotonic()
            if left_s <= 0 or len(self._signals) > 1:
                return alive
            self._do_next(min(left_s, LOOK_S))
        self._deadline = None
        return []

    def _wind_down(self) -> None:
        self._stopping = True
        try:
            self._term.set()
            if self._group_work is not None:
                self._group_work.leave()
            ends_at = self._deadline or self._real.monotonic() + self._stop_timeout_s
            left = self._await_lanes()
            for worker in left:
                event = worker.spec.series.activity.longest()[1]
                log.error(
                    'lane "%s" did not end in time and is left behind%s; its unsaved events are delivered again',
                    worker.name,
                    "" if event is None else f", at event {event.id}",
                )
            if self._lease_keeper is not None:
                # While a lane may still act under the lease, the lease is not released; it expires by itself.
                self._lease_keeper.stop(release=not left)
                if not left:
                    self._await(self._lease_keeper.join, max(ends_at, self._real.monotonic() + RELEASE_S))
            if self._group_work is not None:
                if any(worker.alive for worker in self._group_work.workers):
                    self._group_work.give_up()
                self._await(self._group_work.has_left, max(ends_at, self._real.monotonic() + RELEASE_S))
            self.exit_code = self._code(left)
        finally:
            self._supervised = False
            if self._group_work is not None:
                with suppress(KeyError):  # another Service with the same names has removed the metrics
                    self._group_work.hide()
            self._shown.stop()
            self._ended.set()

    def _await(self, done: Callable[[float], bool], ends_at: float) -> None:
        """Wait until the lease is released, but not beyond *ends_at* or a second signal.

        Args:
            done: waits for at most the given seconds, and returns whether it is.
        """
        while len(self._signals) < 2 and (left_s := ends_at - self._real.monotonic()) > 0:
            if done(min(left_s, LOOK_S)):
                return
            while self._do_next(0):
                pass

    def _code(self, left: list[Worker]) -> int:
        if len(self._signals) > 1 and left:
            return 128 + self._signals[-1]
        if self.failure is not None:
            return self.failure.exit_code
        return HUNG if left else 0

    # ------------------------------------------------------------ health and metrics

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the HTTP endpoint; None before the service starts and without a port."""
        return self._shown.address

    def facts(self) -> health.Facts:
        """Return the current state of the service. Sends no queries. Any thread."""
        failure = self.failure
        return health.Facts(
            supervised=self._supervised,
            stopping=self._stopping,
            lanes=tuple(worker.facts(self._shown.letters_of(worker)) for worker in self._workers),
            lease=None if self._lease is None else self._lease.name,
            held=None if self._lease is None else self._lease.held(),
            epoch=0 if self._lease is None else self._lease.epoch,
            failure="" if failure is None else str(failure),
            group=None if self._group_work is None else self._group_work.facts(),
            # What is not told is not doubted.
            lease_trouble=str(getattr(self._lease, "trouble", "")),
            unread=self._unread(),
            supervisor_age_s=self._real.monotonic() - self._looked_at,
        )

    def alive(self) -> dict[str, Any]:
        """Return what ``/healthz`` shows: ``status`` is "failed" if only a new process would help."""
        return self._shown.alive()

    def ready(self) -> dict[str, Any]:
        """Return what ``/readyz`` shows: ``status`` is "ok" while somebody reads all that this service should read."""
        return self._shown.ready()


def _policies(
    restarts: Restarts | Mapping[str, Restarts] | None, specs: tuple[Spec, ...] | None
) -> Callable[[Spec], Restarts]:
    """Return a function from a lane to its policy. *specs*: all lanes, None if others may come."""
    if restarts is None or isinstance(restarts, Restarts):
        policy = restarts or Restarts()
        return lambda spec: policy
    by_name = dict(restarts)
    if specs is not None and (unknown := sorted(set(by_name) - {spec.name for spec in specs})):
        raise ConfigError(f"restarts= names lanes that the Service does not have: {', '.join(unknown)}")

    def policy_of(spec: Spec) -> Restarts:
        return by_name.get(spec.name) or by_name.get(spec.whole) or Restarts()

    return policy_of
