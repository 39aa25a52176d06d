"""What is personal in events of any class is nowhere once all subjects are forgotten: all that is written is read."""

from __future__ import annotations

import logging
import traceback
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pytest
from eventmemory import MemoryBuilds
from eventshapes import SUBJECTS, Drawn, drawn_events, found_in, text_of
from everywhere import all_tables
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import ScyllaCursorStore, ScyllaDeadLetters
from rscylla.eventsourcing import (
    Aggregate,
    AggregateID,
    CommandHandler,
    Envelope,
    EventMessages,
    EventTypes,
    PersonalData,
    Processes,
    Projector,
    ScyllaEventStore,
    ScyllaSnapshotStore,
    ScyllaSubjectKeys,
    ScyllaTimers,
    Send,
    record_of,
)
from rscylla.publish import JsonLines, publishing

PATIENCE_S = 120
_numbers = count(1)


def failing(event: Any, number: int) -> None:
    """Raise an error that quotes all of *event*, as code of an application may."""
    text = text_of(event)
    error = [
        ValueError(f"cannot take {text}"),
        KeyError(event),
        LookupError(text.split()),
        OSError(5, text),
        ExceptionGroup("several", [ValueError(text), TypeError(event)]),
        UnicodeError(text.encode()),
    ][number % 6]
    error.add_note(text)
    try:
        raise error
    except LookupError as e:
        raise RuntimeError("it failed") from e


class View:
    """A projection, and a process manager, whose code fails and quotes what it was given."""

    name = "view"

    def prepare(self, build: int, /) -> None: ...

    def version(self, build: int, aggregate: AggregateID, /) -> int:
        return 0

    def apply(self, build: int, envelope: Envelope[Any], /) -> None:
        failing(envelope.event, sum(envelope.aggregate.id.encode()))

    def drop(self, build: int, /) -> None: ...

    def react(self, envelope: Envelope[Any], /) -> Iterator[Send]:
        yield Send(envelope.aggregate, envelope.event)

    def fire(self, timer: Any, /) -> tuple[()]:
        return ()


def send(to: AggregateID, command: Any, **_: str) -> None:
    failing(command, len(to.id))


class Shop:
    """The stores of a keyspace, and handlers of aggregates whose state is their last event."""

    def __init__(self, session: rscylla.Session, keyspace: str, drawn: list[Drawn]) -> None:
        self.keys = ScyllaSubjectKeys(session, keyspace, create=True)
        self.store = ScyllaEventStore(session, keyspace, create=True)
        self.snapshots = ScyllaSnapshotStore(session, keyspace, create=True)
        self.store.create_schema()
        self.types = self.types_of(*(one.cls for one in drawn))
        # The next release has other types in all fields, and forgot to say so.
        self.next = {one.cls: _with_other_types(one.cls) for one in drawn}
        self.wrong = self.types_of(*self.next.values())

    def types_of(self, *classes: type) -> EventTypes:
        types = EventTypes(personal=PersonalData(self.keys))
        for cls in classes:
            types.register(cls)
        return types

    def handler(self, cls: type, types: EventTypes) -> CommandHandler[Any, Any, Any]:
        aggregate = Aggregate(
            "one", None, lambda _, event: [event], lambda _, event: event, types, state_type=cls | None
        )
        return CommandHandler(aggregate, self.store, snapshots=self.snapshots, snapshot_every=1)


def _with_other_types(cls: type) -> type:
    fields = {one.name: attrs.field(type=tuple[bool, bool, bool]) for one in attrs.fields(cls)}
    return attrs.make_class(cls.__name__, fields, frozen=True)


def printed(function: Callable[[], Any]) -> str:
    """Return the traceback of the error of *function*, which has to fail."""
    with pytest.raises(rscylla.RscyllaError) as caught:
        function()
    return "".join(traceback.format_exception(caught.value)) + repr(caught.value)


def misused(shop: Shop, drawn: Drawn) -> Iterator[str]:
    """Yield what errors say when events and states are read and written with the wrong types."""
    yield printed(lambda: shop.handler(shop.next[drawn.cls], shop.wrong).load(drawn.cls.__name__))
    for field in attrs.fields(drawn.cls)[1:]:
        changed = attrs.evolve(drawn.event, **{field.alias: {(drawn.secrets or ["nothing"])[0], b"", 1j}})
        yield printed(lambda changed=changed: shop.handler(drawn.cls, shop.types).handle("other", changed))


def lanes(session: rscylla.Session, keyspace: str, shop: Shop, letters: Any, lines: JsonLines) -> list[rscylla.Spec]:
    registry = CollectorRegistry()
    projector = Projector(View(), shop.store, shop.types.decode, MemoryBuilds())
    timers = ScyllaTimers(session, keyspace, create=True)
    cursors = ScyllaCursorStore(session, keyspace, create=True)

    def misread(event: rscylla.Event, _: Any) -> None:
        if (record := record_of(event)) is not None:
            shop.wrong.decode(record)

    consumers = [
        projector.consumer("view", registry=registry),
        Processes(View(), send, timers, shop.types.decode).consumer("manager", registry=registry),
        rscylla.Consumer("misread", misread, registry=registry),
    ]
    broker = publishing("broker", EventMessages(), lines, registry=registry)
    return [
        rscylla.Spec(
            rscylla.NewStream(session, keyspace, "rscylla_events"),
            cursors,
            consumer,
            rscylla.StreamLag(milliseconds=100),
            registry=registry,
        )
        for consumer in (*(rscylla.dead_letter(one, letters, retries=1) for one in consumers), broker)
    ]


def pages(address: tuple[str, int]) -> Iterator[bytes]:
    for path in ("/", "/facts", "/metrics", "/healthz", "/readyz"):
        try:
            with urllib.request.urlopen(f"http://{address[0]}:{address[1]}{path}", timeout=PATIENCE_S) as answer:
                yield answer.read()
        except urllib.error.HTTPError as error:
            with error:
                yield error.read()


@settings(
    max_examples=4,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(drawn=st.lists(drawn_events(), min_size=6, max_size=6))
def test_no_secret_is_left_in_anything_that_was_written_once_all_are_forgotten(
    session: rscylla.Session, tmp_path: Path, caplog: pytest.LogCaptureFixture, drawn: list[Drawn]
) -> None:
    keyspace, file = f"people_{next(_numbers)}", tmp_path / f"records-{next(_numbers)}"
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    caplog.clear()
    said: list[str] = []
    with caplog.at_level(logging.DEBUG, "rscylla"):
        shop, letters = Shop(session, keyspace, drawn), ScyllaDeadLetters(session, keyspace, create=True)
        lines = JsonLines(file)
        specs = lanes(session, keyspace, shop, letters, lines)
        with closing(lines), rscylla.Service(specs, port=0, dead_letters=letters, show_values=True) as service:
            for one in drawn:
                for _ in range(2):
                    shop.handler(one.cls, shop.types).handle(one.cls.__name__, one.event)
                said += misused(shop, one)
            # The view has none of its events, so a later one of an aggregate may be left to the earlier one.
            least = Counter(view=len(drawn), manager=2 * len(drawn), misread=2 * len(drawn))
            until(lambda: not least - Counter(letters.count_letters()), "letters of all consumers")
            until(lambda: file.exists() and file.read_bytes().count(b"\n") >= 2 * len(drawn), "all records")
            for who in SUBJECTS:
                shop.keys.forget(who)
            shop.types = shop.types_of(*(one.cls for one in drawn))
            for one in drawn:
                handler = shop.handler(one.cls, shop.types)
                assert found_in(text_of(handler.load(one.cls.__name__).state).encode(), one.secrets) == []
            assert service.address is not None
            said += [page.decode() for page in pages(service.address)]
        said += [repr(letter) for letter in letters.list_letters()]
    written = all_tables(session, keyspace) + file.read_bytes() + "\n".join((*said, caplog.text)).encode()
    session.execute(f"DROP KEYSPACE {keyspace}")
    assert found_in(written, [secret for one in drawn for secret in one.secrets]) == []


def until(check: Callable[[], Any], what: str) -> None:
    clock, never = rscylla.SystemClock(), rscylla.Stop()
    deadline = clock.monotonic() + PATIENCE_S
    while not check():
        assert clock.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s"
        clock.wait(never, 0.05)
