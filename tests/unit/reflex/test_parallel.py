"""``parallel``: when it returns, what it raises, and that it waits for all."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from rscylla._timeuuid import datetime_of
from rscylla.clock import Stop
from rscylla.errors import ConfigError, ConnectionFailed, InvalidCursor, RunError
from rscylla.event import SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import Backoff, Spec, parallel
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock, RecordingConsumer

LONG_S = 60
EVENTS = [SimpleEvent(f"e{n}", timestamp=datetime_of(0)) for n in range(1, 4)]
EVEN = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=1), jitter=0)


def spec(name: str, store: FakeCursorStore, *, to_head: bool = True, stream: FakeStream | None = None) -> Spec:
    options = (StreamToHead(),) if to_head else ()
    consumer = RecordingConsumer(name)
    stream = stream or FakeStream(EVENTS)
    return Spec(stream, store, consumer, *options, clock=ManualClock(), registry=CollectorRegistry())


def broken(error: BaseException, times: int = 1) -> FakeStream:
    stream = FakeStream(EVENTS)
    stream.fail("open", error, times=times)
    return stream


class Started:
    """A ``parallel`` in a thread of its own."""

    def __init__(self, *specs: Spec, **options: Any) -> None:
        self.error: BaseException | None = None
        self.stop = Stop()

        def work() -> None:
            try:
                parallel(specs, stop=self.stop, backoff=EVEN, **options)
            except BaseException as error:  # noqa: BLE001 - looked at by the test
                self.error = error

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def end(self) -> BaseException | None:
        self.thread.join(LONG_S)
        assert not self.thread.is_alive(), "it did not return"
        return self.error


def test_it_returns_when_all_are_at_their_heads() -> None:
    store = FakeCursorStore()
    parallel([spec("a", store), spec("b", store), spec("c", store)])
    assert store.durable == {"a": "e3", "b": "e3", "c": "e3"}


def test_a_stop_ends_all() -> None:
    store = FakeCursorStore()
    started = Started(spec("a", store, to_head=False), spec("b", store, to_head=False))
    started.stop.set()
    assert started.end() is None


def test_what_may_pass_is_tried_again_alone() -> None:
    store = FakeCursorStore()
    errors: list[Exception] = []
    down = broken(ConnectionFailed("no node answers; start one"), times=2)
    parallel([spec("a", store, stream=down), spec("b", store)], backoff=EVEN, on_error=errors.append)
    assert len(errors) == 2
    assert store.durable == {"a": "e3", "b": "e3"}


def test_a_permanent_error_stops_the_others_and_is_raised() -> None:
    store = FakeCursorStore()
    waiting = spec("b", store, to_head=False)
    with pytest.raises(RunError, match='consumer "a"') as caught:
        parallel([spec("a", store, stream=broken(InvalidCursor("not one"))), waiting])
    assert isinstance(caught.value.__cause__, InvalidCursor)
    assert waiting.stream.closed == len(waiting.stream.opened)  # type: ignore[attr-defined]


def test_with_keep_going_the_others_end_by_themselves_first() -> None:
    store = FakeCursorStore()
    specs = [spec("a", store, stream=broken(InvalidCursor("not one"))), spec("b", store)]
    with pytest.raises(RunError, match='consumer "a"'):
        parallel(specs, keep_going=True)
    assert store.durable == {"b": "e3"}


def test_more_errors_are_notes_of_the_first() -> None:
    store = FakeCursorStore()
    specs = [spec(name, store, stream=broken(InvalidCursor("not one"))) for name in "ab"]
    with pytest.raises(RunError) as caught:
        parallel(specs, keep_going=True)
    [note] = caught.value.__notes__
    assert {caught.value.consumer, note.split('"')[1]} == {"a", "b"}


def test_specs_that_would_share_a_cursor_are_refused() -> None:
    store = FakeCursorStore()
    with pytest.raises(ConfigError, match='several specs are named "a"'):
        parallel([spec("a", store), spec("b", store), spec("a", store)])
    with pytest.raises(ConfigError, match="at least one Spec"):
        parallel([])


def test_an_interrupt_stops_and_waits_for_all() -> None:
    store = FakeCursorStore()
    specs = [spec("a", store, stream=broken(KeyboardInterrupt())), spec("b", store, to_head=False)]
    started = Started(*specs)
    assert isinstance(started.end(), KeyboardInterrupt)
