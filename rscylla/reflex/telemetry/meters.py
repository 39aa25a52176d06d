"""The metrics of services and circuit breakers, created on a registry on first use."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

from .collector import PerRegistry

__all__ = ["BREAKER_STATES", "BreakerState", "Meters", "meters_for"]

BreakerState = Literal["closed", "open", "half-open"]

BREAKER_STATES: dict[BreakerState, int] = {"closed": 0, "open": 1, "half-open": 2}
"""The states of a circuit breaker, and the numbers that stand for them in metrics."""


class Meters:
    """The metric families on one registry. Use ``meters_for`` to get them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = weakref.ref(registry)
        self._lock = threading.Lock()
        self._ready: Gauge | None = None
        self._asked: list[Callable[[], bool]] = []
        lane = ("consumer_name",)
        self.lane_state: Final = Gauge(
            "rscylla_lane_state", "1 for the state that the lane is in", (*lane, "state"), registry=registry
        )
        self.restarts: Final = Counter(
            "rscylla_lane_restarts", "restarts of the lane after an error", lane, registry=registry
        )
        self.dead_letters: Final = Gauge(
            "rscylla_dead_letters", "events of the consumer that are dead letters", lane, registry=registry
        )
        self.lease_held: Final = Gauge(
            "rscylla_lease_held", "1 if the service holds its lease, 0 if it stands by", ("lease",), registry=registry
        )
        self.lease_epoch: Final = Gauge(
            "rscylla_lease_epoch", "fencing epoch of the service's last tenure", ("lease",), registry=registry
        )
        self.snapshot_done: Final = Gauge(
            "rscylla_snapshot_done_ratio",
            "part of the tokens whose rows a snapshot has read, 0 to 1",
            lane,
            registry=registry,
        )
        group = ("group",)
        self.group_members: Final = Gauge(
            "rscylla_group_members", "members of the group at this member's last look", group, registry=registry
        )
        self.group_slices: Final = Gauge(
            "rscylla_group_slices", "slices of the group, of all members", group, registry=registry
        )
        self.group_slices_held: Final = Gauge(
            "rscylla_group_slices_held", "slices that this member holds", group, registry=registry
        )
        self.group_joined: Final = Gauge(
            "rscylla_group_joined_timestamp_seconds",
            "when this process became a member of the group; 0 while it is none",
            group,
            registry=registry,
        )
        self.group_moves: Final = Counter(
            "rscylla_group_moves", "slices that came or went, by reason", (*group, "reason"), registry=registry
        )
        self.group_renewals_failed: Final = Counter(
            "rscylla_group_renewals_failed", "renewals of the membership without an answer", group, registry=registry
        )
        self.breaker_state: Final = Gauge(
            "rscylla_circuit_breaker_state", "0 closed, 1 open, 2 half-open", ("breaker",), registry=registry
        )
        self.breaker_changes: Final = Counter(
            "rscylla_circuit_breaker_changes", "changes of state", ("breaker", "to"), registry=registry
        )

    def show_ready(self, ask: Callable[[], bool]) -> None:
        """Show 1 while *ask* returns true, and so do those of other services, until ``hide_ready``."""
        with self._lock:
            self._asked = [*self._asked, ask]
            if self._ready is None:  # only where there is a service: without one, 0 would be a false alarm
                about = "1 while somebody reads all that the services of the process should read"
                self._ready = Gauge("rscylla_service_ready", about, registry=self._registry())
                self._ready.set_function(lambda: float(bool(self._asked) and all(ask() for ask in self._asked)))

    def hide_ready(self, ask: Callable[[], bool]) -> None:
        """Ask no more. After the last service, the gauge stays at 0."""
        with self._lock:
            self._asked = [one for one in self._asked if one != ask]

    def breakers(self) -> dict[str, BreakerState]:
        """Return the state of each circuit breaker of the registry by name."""
        names = {number: state for state, number in BREAKER_STATES.items()}
        return {
            sample.labels["breaker"]: names[int(sample.value)]
            for family in self.breaker_state.collect()
            for sample in family.samples
        }


_METERS = PerRegistry(Meters)


def meters_for(registry: CollectorRegistry | None = None) -> Meters:
    """Return the families on *registry*, or on the default one."""
    return _METERS.of(registry)
