"""``Shown``: what a service shows of itself, as pages over HTTP and as metrics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry

from ..abc import DeadLetterAdmin, Lease
from ..clock import Clock
from ..reflex import Meters
from . import health
from .http import Answer, Endpoint, Page, json_answer, metrics_page
from .letter_counts import LetterCounts
from .page.page import page
from .page.status import Watch
from .readiness import Readiness, ready
from .worker import Worker

__all__ = ["Shown"]

log = logging.getLogger("rscylla.service")


class Shown:
    """The pages and the metrics of a service; see ``Service`` for the arguments. Thread-safe but for ``tell``.

    Args:
        facts: returns the current state of the service, without a query.
        lanes: returns the workers of all current lanes.
        where: host and port of the pages; None for no pages.
    """

    def __init__(
        self,
        facts: Callable[[], health.Facts],
        lanes: Callable[[], Iterable[Worker]],
        limits: health.Limits,
        meters: Meters,
        registry: CollectorRegistry,
        clock: Clock,
        *,
        where: tuple[str, int] | None,
        lease: Lease | None,
        dead_letters: DeadLetterAdmin | None,
        show_values: bool,
    ) -> None:
        self._facts = facts
        self._lanes = lanes
        self._limits = limits
        self._meters = meters
        self._registry = registry
        self._where = where
        self._lease = lease
        self._letters = None
        if dead_letters is not None:
            self._letters = LetterCounts(dead_letters, clock, self._counted, self._is_shown)
        self._letters_shown = frozenset[str]()  # whose letters are among the metrics
        self._readiness = Readiness(facts, limits, clock)
        self._endpoint: Endpoint | None = None
        self._lanes_lock = threading.Lock()  # so that no metric of a lane is set after the lane has moved away
        self.watch = Watch(facts, meters.breakers, limits, self._letters, clock, show_values=show_values)

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the pages; None without them, and before ``listen``."""
        return None if self._endpoint is None else self._endpoint.address

    def listen(self) -> None:
        """Take the port, and answer nothing yet.

        Raises:
            ConfigError: the system refuses to listen there.
        """
        if self._where is not None:
            pages = {
                "/": page,
                "/status": self.watch.answer,
                "/metrics": metrics_page(self._registry),
                "/healthz": _answering(self.alive),
                "/readyz": _answering(self.ready),
            }
            self._endpoint = Endpoint(pages, *self._where)

    def start(self) -> None:
        """Answer requests, register the metrics of states, which are computed when they are read, and count letters."""
        if self._endpoint is not None:
            self._endpoint.start()
            self.watch.start()
            log.info("status, metrics and health on http://%s:%d", *self._endpoint.address)
        self._meters.show_ready(self._readiness.holds)
        for worker in self._lanes():
            worker.show(self._meters)
        if (lease := self._lease) is not None:
            self._meters.lease_held.labels(lease.name).set_function(lambda: float(lease.held()))
            self._meters.lease_epoch.labels(lease.name).set_function(lambda: float(lease.epoch))
        if self._letters is not None:
            self._letters.start()

    def stop(self) -> None:
        """Show nothing more."""
        self.watch.stop()
        if self._letters is not None:
            self._letters.stop()
        with suppress(KeyError):  # another Service with the same names has removed the metrics
            self._meters.hide_ready(self._readiness.holds)
            for worker in self._lanes():
                worker.hide(self._meters)
            if self._lease is not None:
                self._meters.lease_held.remove(self._lease.name)
                self._meters.lease_epoch.remove(self._lease.name)
        if self._endpoint is not None:
            self._endpoint.close()

    # ------------------------------------------------------------ lanes that come and go

    def came(self, worker: Worker) -> None:
        """Add the metrics of a lane that has come."""
        worker.spec.series.collected(True)
        worker.show(self._meters)

    def went(self, worker: Worker) -> None:
        """Remove the metrics of a lane that has moved away."""
        with self._lanes_lock:
            worker.spec.series.collected(False)
            with suppress(KeyError):  # another Service with the same names has removed them
                worker.hide(self._meters)
            for meter in (self._meters.restarts, self._meters.dead_letters):
                with suppress(KeyError):
                    meter.remove(worker.name)

    # ------------------------------------------------------------ dead letters

    def letters_of(self, worker: Worker) -> int | None:
        """Return how many letters of the lane's consumer are dead; None if that is not known."""
        return None if self._letters is None else self._letters.of(worker.spec.whole)

    def _counted(self, counts: Mapping[str, int]) -> None:
        with self._lanes_lock:
            shown = {name: counts.get(name, 0) for name in self._consumers()}
            for name in self._letters_shown - shown.keys():
                with suppress(KeyError):
                    self._meters.dead_letters.remove(name)
            for name, dead in shown.items():
                self._meters.dead_letters.labels(name).set(dead)
            self._letters_shown = frozenset(shown)

    def _is_shown(self, name: str) -> bool:
        """Return whether the page shows dead letters of *name*: it is a consumer of this service."""
        return self._where is not None and name in self._consumers()

    def _consumers(self) -> set[str]:
        """Return the names of the consumers of all lanes, without slices: those of their letters."""
        return {worker.spec.whole for worker in self._lanes()}

    # ------------------------------------------------------------ health

    def alive(self) -> dict[str, Any]:
        """Return the body of ``/healthz``."""
        return health.report(health.alive(self._facts(), self._limits))

    def ready(self) -> dict[str, Any]:
        """Return the body of ``/readyz``."""
        return health.report(ready(self._facts(), self._limits))

    def tell(self) -> None:
        """Log what is not read, if it is time for that. Called again and again by one thread."""
        self._readiness.tell()


def _answering(body: Callable[[], dict[str, Any]]) -> Page:
    """Return the page of a health check that *body* describes."""

    def page(headers: Mapping[str, str]) -> Answer:
        found = body()
        return json_answer(200 if found["status"] == "ok" else 503, found)

    return page
