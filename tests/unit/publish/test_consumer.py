"""``publishing``: cursors follow acknowledgements, keys keep their order, and room is bounded in events and bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from bulkstream import BulkStream
from prometheus_client import CollectorRegistry
from waiting import eventually

from rscylla._timeuuid import datetime_of
from rscylla.abc import Message, PublishDone
from rscylla.clock import Stop
from rscylla.errors import ConfigError, HeadReached, PublishFailed, PublishRejected, RunError, Stopped
from rscylla.event import Event, SimpleEvent
from rscylla.options import StreamToHead
from rscylla.publish import publishing
from rscylla.reflex import Spec, run
from rscylla.testing import FakeCursorStore, FakeStream

NAME = "publishing"
AT = datetime_of(1_790_000_000_000_000)


def events(count: int) -> list[SimpleEvent]:
    return [SimpleEvent(f"e{n}", 1, f'{{"pk":{n % 7}}}', AT, b"x" * 10) for n in range(1, count + 1)]


def messages(event: Event) -> list[Message]:
    return [Message("t", event.foreign_id.encode(), event.id.encode())]


class Sink:
    """A publisher whose acknowledgements the test gives; ``big`` values are refused at once, ``odd`` ones later."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self.taken: list[Message] = []
        self.calls: list[tuple[Sequence[Message], PublishDone]] = []
        self.abandoned = 0
        self.down = ""
        self.refused_later: set[bytes] = set()

    def publish(self, given: Sequence[Message], done: PublishDone) -> None:
        for index, message in enumerate(given):
            if message.value is not None and message.value.startswith(b"big"):
                if index:
                    self._take(given[:index], done)
                raise PublishRejected("too large", index=index)
        self._take(given, done)

    def _take(self, given: Sequence[Message], done: PublishDone) -> None:
        odd = tuple((n, "odd") for n, m in enumerate(given) if m.value in self.refused_later)
        self.taken += [m for m in given if m.value not in self.refused_later]
        if odd:
            done(PublishRejected("odd records", rejected=odd))
        elif self.at_once:
            done(None)
        else:
            self.calls.append((given, done))

    def settle(self, index: int, error: Exception | None = None) -> None:
        self.calls.pop(index)[1](error)

    def flush(self, timeout_s: float) -> bool:
        return not self.calls

    def abandon(self) -> None:
        self.abandoned += 1
        while self.calls:
            self.settle(0, PublishFailed("abandoned"))

    def trouble(self) -> str:
        return self.down

    def close(self) -> None:
        pass


class Bench:
    """A run in a thread."""

    def __init__(
        self, stream: FakeStream, sink: Sink, make: Callable[[Event], Sequence[Message]] = messages, **more: Any
    ):
        self.store = FakeCursorStore()
        self.stop = Stop()
        self.registry = CollectorRegistry()
        consumer = publishing(NAME, make, sink, registry=self.registry, **more)
        self.spec = Spec(stream, self.store, consumer, StreamToHead())
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            run(self.spec, stop=self.stop)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def start(self) -> Bench:
        self.thread.start()
        return self

    def end(self) -> BaseException | None:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.error

    @property
    def cursor(self) -> str:
        return self.store.get_cursor(NAME)

    def count(self, what: str) -> int:
        return self.spec.series.counts[what]


@pytest.fixture(params=[FakeStream, BulkStream])
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    return request.param


def test_all_records_are_published_and_the_cursor_is_at_the_head(kind: Any) -> None:
    sink = Sink()
    bench = Bench(kind(events(1000)), sink).start()
    assert isinstance(bench.end(), HeadReached)
    assert [m.value for m in sink.taken] == [f"e{n}".encode() for n in range(1, 1001)]
    assert (bench.cursor, bench.count("consumed")) == ("e1000", 1000)


def test_the_cursor_is_the_highest_before_which_all_are_acknowledged() -> None:
    sink = Sink(at_once=False)
    bench = Bench(FakeStream(events(4)), sink).start()
    eventually(lambda: len(sink.calls) == 4)
    sink.settle(1)
    sink.settle(1)
    assert bench.cursor == ""
    sink.settle(0)
    assert bench.cursor == "e3"
    sink.settle(0)
    assert isinstance(bench.end(), HeadReached)
    assert bench.cursor == "e4"


def test_the_stream_waits_while_too_many_events_are_on_their_way() -> None:
    sink = Sink(at_once=False)
    sink.down = "all brokers are down"
    bench = Bench(FakeStream(events(5)), sink, max_unacknowledged=3).start()
    eventually(lambda: bench.spec.series.activity.why() == "all brokers are down")
    assert len(sink.calls) == 3
    sink.settle(0)
    eventually(lambda: len(sink.calls) == 3)
    sink.at_once = True
    sink.abandon()
    assert isinstance(bench.end(), RunError)


def test_the_stream_waits_while_too_many_bytes_are_on_their_way() -> None:
    def make(event: Event) -> list[Message]:
        return [Message("t", b"k", b"x" * (5000 if event.id == "e4" else 900))]

    sink = Sink(at_once=False)
    bench = Bench(FakeStream(events(5)), sink, make, max_bytes=2100).start()
    eventually(lambda: bench.spec.series.activity.why())
    assert len(sink.calls) == 2
    sink.settle(0)
    eventually(lambda: len(sink.calls) == 2)
    sink.settle(0)
    sink.settle(0)
    eventually(lambda: len(sink.calls) == 1)  # e4 is larger than all room, and goes alone
    sink.settle(0)
    eventually(lambda: len(sink.calls) == 1)
    sink.settle(0)
    assert isinstance(bench.end(), HeadReached)


def test_events_without_records_move_the_cursor_once_those_before_are_done(kind: Any) -> None:
    sink = Sink(at_once=False)
    bench = Bench(kind(events(3)), sink, lambda e: messages(e) if e.id == "e1" else []).start()
    eventually(lambda: len(sink.calls) == 1)
    assert bench.cursor == ""
    sink.settle(0)
    assert isinstance(bench.end(), HeadReached)
    assert bench.cursor == "e3"


def test_filtered_events_are_not_published(kind: Any) -> None:
    sink = Sink()
    bench = Bench(kind(events(9)), sink, event_filter=lambda e: e.id == "e5").start()
    assert isinstance(bench.end(), HeadReached)
    assert [m.value for m in sink.taken] == [b"e5"]
    assert (bench.cursor, bench.count("skipped")) == ("e9", 8)


def test_an_error_of_the_sink_ends_the_run_and_the_event_comes_again(kind: Any) -> None:
    sink = Sink(at_once=False)
    bench = Bench(kind(events(2)), sink).start()
    eventually(lambda: sink.calls)
    sink.settle(0, PublishFailed("timed out"))
    while sink.calls:
        sink.settle(0)
    error = bench.end()
    assert isinstance(error, RunError)
    assert (error.stage, error.resumable, str(error.__cause__)) == ("consume", True, "timed out")
    assert bench.cursor == ""


def test_an_event_without_records_because_of_an_error_is_named_and_those_before_it_go_out(kind: Any) -> None:
    def make(event: Event) -> list[Message]:
        if event.id == "e3":
            raise ValueError("no")
        return messages(event)

    sink = Sink()
    bench = Bench(kind(events(5)), sink, make).start()
    error = bench.end()
    assert isinstance(error, RunError)
    assert error.event_id == "e3"
    assert bench.cursor == "e2"


class Closed:
    """Makes records while it is open, as a converter whose registry of schemas answers."""

    def __init__(self, first: str) -> None:
        self.first = first
        self.refuses: str | None = "the registry refuses the credentials"
        self.calls = 0

    def __call__(self, event: Event) -> list[Message]:
        if event.id == self.first and self.refuses is not None:
            self.calls += 1
            raise PublishFailed(self.refuses)
        return messages(event)


def test_records_that_cannot_be_made_yet_are_waited_for_and_those_before_them_go_out(kind: Any) -> None:
    make = Closed("e3")
    sink = Sink()
    bench = Bench(kind(events(5)), sink, make).start()
    eventually(lambda: bench.spec.series.activity.why() == make.refuses)
    eventually(lambda: bench.cursor == "e2")
    make.refuses = "the registry does not answer"
    eventually(lambda: bench.spec.series.activity.why() == "the registry does not answer")
    make.refuses = None
    assert isinstance(bench.end(), HeadReached)
    assert [m.value for m in sink.taken] == [f"e{n}".encode() for n in range(1, 6)]
    assert (bench.cursor, bench.count("errors"), bench.spec.series.activity.why()) == ("e5", 0, "")
    assert make.calls >= 2


def test_a_stop_ends_the_wait_for_records_that_cannot_be_made(kind: Any) -> None:
    bench = Bench(kind(events(3)), Sink(), Closed("e2")).start()
    eventually(lambda: bench.cursor == "e1")
    bench.stop.set()
    assert isinstance(bench.end(), Stopped)
    assert bench.cursor == "e1"


def test_an_error_of_the_event_after_a_wait_ends_the_run(kind: Any) -> None:
    failures: list[Exception] = [PublishFailed("not yet"), ValueError("no")]

    def make(event: Event) -> list[Message]:
        if event.id == "e2":
            raise failures.pop(0)
        return messages(event)

    bench = Bench(kind(events(3)), Sink(), make).start()
    error = bench.end()
    assert isinstance(error, RunError)
    assert (error.event_id, str(error.__cause__), bench.cursor) == ("e2", "no", "e1")


def test_a_refused_record_stops_the_run_and_nothing_after_it_is_published(kind: Any) -> None:
    sink = Sink()
    bench = Bench(
        kind(events(5)), sink, lambda e: [Message("t", b"k", b"big" if e.id == "e3" else e.id.encode())]
    ).start()
    error = bench.end()
    assert isinstance(error, RunError)
    assert isinstance(error.__cause__, PublishRejected)
    assert not error.resumable
    assert [m.value for m in sink.taken] == [b"e1", b"e2"]
    assert bench.cursor in ("", "e2")  # as a bulk, all or nothing of it is done


def dead(message: Message, why: str) -> Message:
    return Message("dead", message.key, why.encode())


def test_a_refused_record_becomes_a_dead_letter_in_its_place(kind: Any) -> None:
    sink = Sink()
    make = lambda e: [Message("t", b"k", b"big" if e.id in ("e1", "e3") else e.id.encode())]  # noqa: E731
    bench = Bench(kind(events(4)), sink, make, dead_letter=dead).start()
    assert isinstance(bench.end(), HeadReached)
    assert [(m.topic, m.value) for m in sink.taken] == [
        ("dead", b"too large"),
        ("t", b"e2"),
        ("dead", b"too large"),
        ("t", b"e4"),
    ]
    assert (bench.cursor, bench.count("dead_lettered")) == ("e4", 2)


def test_a_record_that_is_refused_later_becomes_a_dead_letter_too(kind: Any) -> None:
    sink = Sink()
    sink.refused_later = {b"e2"}
    bench = Bench(kind(events(3)), sink, dead_letter=dead).start()
    assert isinstance(bench.end(), HeadReached)
    assert sorted((m.topic, m.value) for m in sink.taken) == [("dead", b"odd"), ("t", b"e1"), ("t", b"e3")]
    assert bench.cursor == "e3"


def test_a_dead_letter_may_be_nothing_but_not_refused_itself(kind: Any) -> None:
    sink = Sink()
    sink.refused_later = {b"e2"}
    bench = Bench(kind(events(3)), sink, dead_letter=lambda message, why: None).start()
    assert isinstance(bench.end(), HeadReached)
    assert (bench.count("given_up"), bench.count("dead_lettered")) == (1, 0)
    bench = Bench(kind(events(3)), sink, dead_letter=lambda message, why: Message("dead", b"k", b"big")).start()
    error = bench.end()
    assert isinstance(error, RunError)
    assert isinstance(error.__cause__, PublishRejected)
    assert bench.cursor in ("", "e1")


def test_a_stop_waits_for_what_is_on_its_way_and_saves_it() -> None:
    sink = Sink(at_once=False)
    stream = FakeStream(events(2))
    bench = Bench(stream, sink)
    bench.spec = Spec(stream, bench.store, bench.spec.consumer)  # to no head
    bench.start()
    eventually(lambda: len(sink.calls) == 2)
    bench.stop.set()
    eventually(lambda: stream.closed == 0 and bench.thread.is_alive())
    sink.settle(0)
    sink.settle(0)
    assert isinstance(bench.end(), Stopped)
    assert (bench.cursor, sink.abandoned) == ("e2", 0)


def test_a_stop_while_the_sink_is_down_abandons_what_is_on_its_way() -> None:
    sink = Sink(at_once=False)
    stream = FakeStream(events(2))
    bench = Bench(stream, sink, settle_s=0.01)
    bench.spec = Spec(stream, bench.store, bench.spec.consumer)
    bench.start()
    eventually(lambda: len(sink.calls) == 2)
    bench.stop.set()
    bench.end()
    assert (bench.cursor, sink.abandoned) == ("", 1)


def test_late_acknowledgements_move_no_cursor() -> None:
    sink = Sink(at_once=False)
    sink.abandon = lambda: None  # type: ignore[method-assign]
    stream = FakeStream(events(1))
    bench = Bench(stream, sink, settle_s=0.01).start()
    eventually(lambda: sink.calls)
    bench.stop.set()
    bench.end()
    sink.settle(0)
    assert bench.cursor == ""


def test_arguments_are_checked() -> None:
    for wrong in ({"max_bytes": 0}, {"max_unacknowledged": 0}, {"recover": print}, {"dead_letter": 3}):
        with pytest.raises(ConfigError):
            publishing(NAME, messages, Sink(), **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="messages is not callable"):
        publishing(NAME, None, Sink())  # type: ignore[arg-type]


def test_headers_count_as_bytes() -> None:
    def make(event: Event) -> list[Message]:
        return [Message("t", b"k", b"", (("h", b"x" * 900),))]

    sink = Sink(at_once=False)
    bench = Bench(FakeStream(events(3)), sink, make, max_bytes=2300).start()
    eventually(lambda: bench.spec.series.activity.why())
    assert len(sink.calls) == 2
    sink.at_once = True
    sink.settle(0)
    sink.settle(0)
    assert isinstance(bench.end(), HeadReached)


def test_a_stop_does_not_wait_for_room_in_a_sink_that_is_down() -> None:
    class Full(Sink):
        def __init__(self) -> None:
            super().__init__()
            self.entered, self.dropped = threading.Event(), threading.Event()

        def publish(self, given: Sequence[Message], done: PublishDone) -> None:
            self.entered.set()
            assert self.dropped.wait(60)
            raise PublishFailed("there is no room")

        def abandon(self) -> None:
            self.dropped.set()

    sink = Full()
    bench = Bench(FakeStream(events(1)), sink, settle_s=0.01).start()
    assert sink.entered.wait(60)
    bench.stop.set()
    bench.end()
    assert sink.dropped.is_set()
    assert bench.cursor == ""
