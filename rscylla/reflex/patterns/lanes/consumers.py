"""The consumer of two lanes, and what each lane shows of it."""

from __future__ import annotations

import threading

from ....abc import Consumer, Resetter, Run, RunAware, Stopper
from ....event import Event
from ...telemetry.series import ConsumerSeries

__all__ = ["FastConsumer", "LaneConsumer", "SharedConsumer"]


class SharedConsumer:
    """The consumer of two lanes. It gets one event at a time; the first run resets it, and the last one stops it."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._lock = threading.RLock()
        self._lanes = set[str]()

    def consume(self, event: Event, run: Run) -> None:
        if not self._lock.acquire(blocking=False):
            with run.waiting():  # the event of the other lane may wait for a circuit breaker, which is not hanging
                self._lock.acquire()
        try:
            self.consumer.consume(event, run)
        finally:
            self._lock.release()

    def enter(self, lane: str) -> None:
        with self._lock:
            if not self._lanes and isinstance(self.consumer, Resetter):
                self.consumer.reset()
            self._lanes.add(lane)

    def leave(self, lane: str) -> None:
        with self._lock:
            if lane in self._lanes:
                self._lanes.discard(lane)
                if not self._lanes and isinstance(self.consumer, Stopper):
                    self.consumer.stop()


class LaneConsumer:
    """The shared consumer under the name and metrics of one lane."""

    def __init__(self, name: str, shared: SharedConsumer, series: ConsumerSeries) -> None:
        self._name = name
        self._shared = shared
        self.series = series

    @property
    def name(self) -> str:
        return self._name

    def run_begins(self, run: Run) -> None:
        if isinstance(self._shared.consumer, RunAware):
            self._shared.consumer.run_begins(run)

    @property
    def lane_of(self) -> str:
        """The name of the shared consumer."""
        return self._shared.consumer.name

    def reset(self) -> None:
        self._shared.enter(self._name)
        self.series.started()

    def stop(self) -> None:
        self._shared.leave(self._name)

    def consume(self, event: Event, run: Run) -> None:
        self._shared.consume(event, run)


class FastConsumer(LaneConsumer):
    """The shared consumer in the fast lane, which measures the ages of its events."""

    def consume(self, event: Event, run: Run) -> None:
        with self.series.consuming(event) as consuming:
            super().consume(event, run)
            consuming.outcome = "consumed"
