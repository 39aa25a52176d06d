"""``LeaseKeeper``: acquires and renews a lease, or a membership of a group; when it is lost, the lanes stop at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from .._retry import Backoff, may_help, retry
from ..abc import NOBODY, Membership
from ..clock import Clock, InnerStop, Stop
from ..errors import LeaseLost, RscyllaError, Stopped

__all__ = ["JoinedGroup", "Keepable", "LeaseKeeper", "LeasedStop", "is_unanswered"]

log = logging.getLogger("rscylla.service")


RETRY = 0.25
"""After a failed renewal, the next one follows after this fraction of the usual time."""


class Held(Protocol):
    """A fence, or a lease: tells without a query whether this process may act."""

    def held(self) -> bool: ...


class Keepable(Held, Protocol):
    """What a ``LeaseKeeper`` keeps: a ``Lease``, or something that is acquired, renewed, and released like one."""

    @property
    def name(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def renew_every(self) -> float: ...

    def acquire(self, stop: Stop | None = None) -> int: ...

    def renew(self) -> None: ...

    def release(self) -> None: ...


class JoinedGroup:
    """A membership of a group, to be kept like a lease. ``epoch`` is how often this process has joined."""

    def __init__(self, membership: Membership, clock: Clock) -> None:
        self._membership = membership
        self._clock = clock
        self.name = membership.name
        self.epoch = 0
        self.release = membership.leave
        self.trouble = ""
        """Why the last attempt to join or to renew failed; "" if it did not."""

    @property
    def renew_every(self) -> float:
        return self._membership.renew_every

    def held(self) -> bool:
        return self._membership.token != NOBODY

    def acquire(self, stop: Stop | None = None) -> int:
        """Join the group. Retries after errors that may be temporary, and when the answer came too late."""
        if stop is not None:
            stop.check()
        every = timedelta(seconds=self.renew_every * RETRY)
        retry(
            self._membership.join,
            backoff=Backoff(initial=every, maximum=timedelta(seconds=self.renew_every), jitter=0.2),
            clock=self._clock,
            stop=stop,
            again=may_help,
            waiting=self._not_joined,
        )
        self.epoch += 1
        self.trouble = ""
        return self.epoch

    def renew(self) -> None:
        try:
            self._membership.renew()
        except RscyllaError as error:
            self.trouble = str(error)
            raise
        self.trouble = ""

    def _not_joined(self, error: Exception, failures: int, seconds: float) -> None:
        self.trouble = str(error)
        log.warning('group "%s" cannot be joined yet: %s', self.name, error)


class LeasedStop(Stop):
    """The stop signal of lanes that run under a lease, for one acquisition. Each check also checks the lease.

    A process that was paused therefore stops before its next event, even if the thread that renews has not noticed yet
    that the lease expired. ``lapsed`` then stays true even if a renewal in progress extends the lease, because lanes
    may already have ended. The keeper wakes the threads that wait.
    """

    def __init__(self, lease: Held) -> None:
        super().__init__()
        self._held = lease.held
        self.lapsed = False

    def is_set(self) -> bool:
        return super().is_set() or self.is_over()

    def is_over(self) -> bool:
        """Return whether the lease has lapsed, even if the signal was set before."""
        if not self.lapsed and not self._held():
            self.lapsed = True
        return self.lapsed

    def wait(self, seconds: float | None = None) -> bool:
        return super().wait(seconds) or self.is_set()

    def check(self) -> None:
        self.checker()()

    def checker(self, inner: Stop | None = None) -> Callable[[], None]:
        outer, held, inner = self, self._held, inner or self

        def check() -> None:
            if inner._set or outer._set or outer.lapsed or not held():  # noqa: SLF001 - see ``InnerStop.check``
                inner.check_flag()
                outer.check_flag()
                outer.lapsed = True
                raise Stopped("the lease is over")

        return check


class LeaseKeeper:
    """Acquires a lease, and again each time that it is lost, in a thread of its own.

    Args:
        what: what it is called in logs.
        begun: called with a new stop signal when the lease is acquired. The keeper then renews the lease.
        over: called when the lease is lost and the signal is set. The keeper then waits for ``resume``.
        failed: called with an error that a retry cannot fix, which ends the keeper.
        missed: called when a renewal failed that can be tried again.
    """

    def __init__(
        self,
        lease: Keepable,
        clock: Clock,
        *,
        what: str = "lease",
        begun: Callable[[LeasedStop], None],
        over: Callable[[], None],
        failed: Callable[[Exception], None],
        missed: Callable[[], None] = lambda: None,
    ) -> None:
        self._lease = lease
        self._what = f'{what} "{lease.name}"'
        self._clock = clock
        self._begun = begun
        self._over = over
        self._failed = failed
        self._missed = missed
        self._stop = Stop()
        self._wake = InnerStop(self._stop)
        self._release = False
        self._resume = threading.Event()
        self._thread = threading.Thread(target=self._work, name="rscylla-lease", daemon=True)

    def start(self) -> None:
        """Begin to stand by."""
        self._thread.start()

    def resume(self) -> None:
        """Let the keeper stand by again. Call it once no lane runs under the lost lease."""
        self._resume.set()

    def renew_now(self) -> None:
        """Renew at once, which finds out whether the lease is still held."""
        self._wake.set()

    def stop(self, *, release: bool) -> None:
        """End the keeper; with *release*, release the lease if it is held. ``join`` waits for that."""
        self._release = release
        self._stop.set()
        self._resume.set()

    def join(self, seconds: float) -> bool:
        """Wait until the keeper has ended, at most *seconds* of real time; return whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        try:
            while True:
                epoch = self._lease.acquire(self._stop)
                log.info("%s is held, epoch %d", self._what, epoch)
                signal = LeasedStop(self._lease)
                self._resume.clear()
                self._begun(signal)
                self._keep(signal)
                signal.set()
                self._over()
                self._resume.wait()
                self._stop.check()
        except Stopped:
            if self._release:
                self._let_go()
        except Exception as error:  # noqa: BLE001 - handed to the supervisor, which ends the service with it
            self._failed(error)

    def _let_go(self) -> None:
        try:
            self._lease.release()
        except RscyllaError as error:
            log.warning("%s was not released and will expire: %s", self._what, error)

    def _keep(self, signal: LeasedStop) -> None:
        """Renew until the lease is lost, also while the lanes of a stopping service save their cursors.

        Raises:
            Stopped: ``stop`` was called.
        """
        lease, clock = self._lease, self._clock
        pause_s = lease.renew_every
        soon = timedelta(seconds=lease.renew_every * RETRY)
        while not self._stops_within(pause_s):
            began = clock.monotonic()
            try:
                retry(
                    lease.renew,
                    backoff=Backoff(initial=soon, maximum=soon, factor=1, jitter=0),
                    clock=clock,
                    stop=self._stop,
                    again=lambda error: is_unanswered(error) and self._goes_on(signal),
                    waiting=self._not_renewed,
                )
            except LeaseLost as lost:
                log.warning("%s; the lanes stop", lost)
                return
            except RscyllaError as error:
                if not is_unanswered(error):
                    raise
                self._not_renewed(error, 1, 0.0)
            if not self._goes_on(signal):
                log.warning("%s ended, at least for a moment; the lanes stop", self._what)
                return
            # The lease counts from the start of a renewal, so after a slow one the pause is shorter.
            pause_s = max(0.0, lease.renew_every - (clock.monotonic() - began))
        raise Stopped

    def _stops_within(self, seconds: float) -> bool:
        """Wait until the keeper is stopped, which this returns, or is to renew."""
        self._clock.wait(self._wake, seconds)
        self._wake.forget()
        self._wake = InnerStop(self._stop)
        return self._stop.is_set()

    def _goes_on(self, signal: LeasedStop) -> bool:
        return not signal.lapsed and self._lease.held()

    def _not_renewed(self, error: Exception, failures: int, seconds: float) -> None:
        log.warning("%s was not renewed: %s", self._what, error)
        self._missed()


def is_unanswered(error: Exception) -> bool:
    """Return whether *error* says nothing about whether the lease is held."""
    return isinstance(error, RscyllaError) and not isinstance(error, LeaseLost | Stopped)
