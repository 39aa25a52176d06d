"""Services over fakes, on one driven clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from rscylla._timeuuid import datetime_of
from rscylla.clock import Stop
from rscylla.errors import (
    ConnectionFailed,
    LeaseLost,
)
from rscylla.event import SimpleEvent
from rscylla.reflex import Backoff, Spec
from rscylla.service import Service
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer

START_US = 1_790_000_000_000_000
EVENTS = [SimpleEvent(f"e{number}", timestamp=datetime_of(START_US - 1)) for number in range(1, 5)]
DOWN = ConnectionFailed("no node answers; start one")
QUICK = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=8), jitter=0)
PATIENCE_S = 60.0


class Bench:
    """Specs over fakes, on one driven clock and registry."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_US)
        self.registry = CollectorRegistry()
        self.store = FakeCursorStore(buffered=True)
        self.streams: dict[str, FakeStream] = {}
        self.consumers: dict[str, RecordingConsumer] = {}

    def spec(self, name: str = "billing", *options: Any, consumer: Any = None, events: list[Any] | None = None) -> Spec:
        stream = self.streams[name] = FakeStream(EVENTS if events is None else events, clock=self.clock)
        if consumer is None:
            consumer = self.consumers[name] = RecordingConsumer(name)
        return Spec(stream, self.store, consumer, *options, clock=self.clock, registry=self.registry)

    def service(self, *specs: Spec, **more: Any) -> Service:
        return Service(specs, registry=self.registry, **more)

    def scrape(self) -> dict[tuple[str, ...], float]:
        from prometheus_client import generate_latest

        return samples(generate_latest(self.registry).decode())


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return the values by name and label values, in the order of label names."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class FakeLease:
    """A lease that is handed out and taken away by the test."""

    name = "orders"
    owner = "here"
    renew_every = 0.002

    def __init__(self, *, free: bool = True) -> None:
        self.free = free
        self.mine = False
        self.epoch = 0
        self.renewals = 0
        self.released = 0
        self.error: Exception | None = None

    def held(self) -> bool:
        return self.mine

    def try_acquire(self) -> bool:
        if not self.mine and self.free:
            self.mine = True
            self.epoch += 1
        return self.mine

    def acquire(self, stop: Stop | None = None) -> int:
        stop = stop or Stop()
        while not self.try_acquire():
            stop.check()
            if self.error is not None:
                raise self.error
            stop.wait(0.002)
        return self.epoch

    def renew(self) -> None:
        self.renewals += 1
        if not self.mine:
            raise LeaseLost('the lease "orders" is held by another')
        if self.error is not None:
            raise self.error

    def release(self) -> None:
        self.mine = False
        self.released += 1

    def lose(self) -> None:
        """Another owner has it from now on."""
        self.free = self.mine = False
