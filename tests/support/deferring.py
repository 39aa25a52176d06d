"""Runs of consumers that finish events later, and such consumers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from bulkstream import BulkStream
from prometheus_client import CollectorRegistry

from rscylla._timeuuid import datetime_of
from rscylla.clock import Stop
from rscylla.errors import RunError
from rscylla.event import Event, Progress, SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import Ack, Spec, ack, batch, run
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer

NAME = "recording"
START_US = 1_790_000_000_000_000
LONG_S = 60
"""Nothing here takes long; what does not come in this time never comes."""


def events(count: int, keys: int = 1000) -> list[SimpleEvent]:
    return [
        SimpleEvent(f"e{n}", 1, f'{{"pk":{n % keys}}}', datetime_of(START_US - 1), b"0123456789")
        for n in range(1, count + 1)
    ]


class Bench:
    """One run in a thread of its own, over a stream that waits at its end unless *to_head*."""

    def __init__(self, items: Sequence[Event | Progress] = (), *, to_head: bool = True, bulk: bool = False) -> None:
        self.clock = ManualClock(START_US)
        self.stream = (BulkStream if bulk else FakeStream)(items, clock=self.clock)
        self.store = FakeCursorStore()
        self.stop = Stop()
        self.options = (StreamToHead(),) if to_head else ()
        self.registry = CollectorRegistry()
        self.error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def run(self, consumer: Any, fate: Any = None) -> BaseException:
        """Run until an error ends the run, and return the error."""
        self.start(consumer, fate)
        return self.end()

    def start(self, consumer: Any, fate: Any = None) -> None:
        spec = Spec(
            self.stream, self.store, consumer, *self.options, clock=self.clock, registry=self.registry, fate=fate
        )

        def work() -> None:
            try:
                run(spec, stop=self.stop)
            except BaseException as error:  # noqa: BLE001 - looked at by the test
                self.error = error

        self.error = None
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def end(self) -> BaseException:
        assert self._thread is not None
        self._thread.join(LONG_S)
        assert not self._thread.is_alive(), "the run did not end"
        assert self.error is not None
        return self.error

    @property
    def cursor(self) -> str:
        return self.store.durable.get(NAME, "")

    def sample(self, name: str) -> float | None:
        return self.registry.get_sample_value(name, {"consumer_name": NAME})


def soon(what: Callable[[], bool]) -> None:
    """Wait until *what* is true."""
    never = threading.Event()
    for _ in range(LONG_S * 200):
        if what():
            return
        never.wait(0.005)
    raise AssertionError("it did not become true")


def failure(error: BaseException) -> tuple[str, str, BaseException | None]:
    assert isinstance(error, RunError), error
    return error.stage, error.event_id, error.__cause__


class Acks:
    """Keeps what acknowledges, by event id."""

    def __init__(self) -> None:
        self.handed: dict[str, Ack] = {}

    def __call__(self, event: Event, fate: Any, done: Ack) -> None:
        self.handed[event.id] = done

    def consumer(self, bench: Bench, **options: Any) -> Any:
        return ack(NAME, self, registry=bench.registry, clock=bench.clock, **options)


class Batches:
    """Keeps the batches it got, and fails at those that hold an event of *fail*. Waits for *gate* if there is one."""

    def __init__(self, *fail: str, gate: threading.Event | None = None) -> None:
        self.got: list[list[str]] = []
        self.threads: set[str] = set()
        self.fail = set(fail)
        self.gate = gate
        self.cause = ValueError("bad batch")

    def __call__(self, batch: Sequence[Event], fate: Any) -> None:
        self.threads.add(threading.current_thread().name)
        if self.gate is not None:
            assert self.gate.wait(LONG_S)
        self.got.append([event.id for event in batch])
        if self.fail & {event.id for event in batch}:
            raise self.cause

    def consumer(self, bench: Bench, **options: Any) -> Any:
        return batch(NAME, self, registry=bench.registry, clock=bench.clock, **{"period": None, **options})


class Pool(RecordingConsumer):
    """Consumes with several threads: events of *slow* wait for the gate of that name."""

    def __init__(self, *slow: str, **options: Any) -> None:
        super().__init__(**options)
        self.gates = {event_id: threading.Event() for event_id in slow}
        self.begun: list[str] = []
        self.most = self.at_once = 0
        self.handed: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def consume(self, event: Event, fate: Any) -> None:
        with self._lock:
            self.begun.append(event.id)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.handed.append((event.id, fate.event.id))
        try:
            if event.id in self.gates:
                assert self.gates[event.id].wait(LONG_S)
            super().consume(event, fate)
        finally:
            with self._lock:
                self.at_once -= 1

    def release(self) -> None:
        for gate in self.gates.values():
            gate.set()
