"""Changes of the event table as events, and events as records for a broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from eventcounters import NOON, TYPES, Shop, change_of, counter

import rscylla
from cursorstore import MemoryDeadLetters
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import ConfigError, ConnectionFailed, UnreadableEvent
from rscylla.event import Event, Operation, SimpleEvent
from rscylla.eventsourcing import (
    EventMessages,
    EventRecord,
    ScyllaEventStore,
    aggregate_of,
    parking_key,
    parking_messages,
    record_of,
)
from rscylla.testing import FakeCursorStore, FakeStream


@pytest.fixture
def record() -> EventRecord:
    shop = Shop()
    shop.add("a", 7)
    return next(iter(shop.store.read(counter("a"))))


def test_what_the_store_wrote_is_read_from_the_log(record: EventRecord) -> None:
    with EmbeddedScylla() as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        store = ScyllaEventStore(session, "shop", create=True)
        store.append([record])
        events: list[Event] = []
        client = rscylla.NewStream(session, "shop", "rscylla_events")("", rscylla.StreamLag(seconds=0))
        while len(events) < 2:
            item = client.recv()
            if isinstance(item, Event):
                events.append(item)
        client.close()
        assert [record_of(event) for event in events if record_of(event) is not None] == [record]
        kept = [rscylla.DeadLetter.of("c", e, ValueError(), attempts=1, failed_at=NOON).event for e in events]
        assert [record_of(event) for event in kept] == [record_of(event) for event in events]
        assert {aggregate_of(event) for event in [*events, *kept]} == {record.aggregate}
        assert {parking_key(event) for event in [*events, *kept]} == {record.aggregate, None}


@pytest.mark.parametrize("operation", [Operation.UPDATE, Operation.ROW_DELETE, Operation.PARTITION_DELETE])
def test_what_is_not_an_insert_is_refused(record: EventRecord, operation: Operation) -> None:
    with pytest.raises(UnreadableEvent, match=f"{operation.name} of a row of counter/a"):
        record_of(change_of(record, operation=operation.name))


def test_rows_that_lack_a_value_and_other_tables_are_refused(record: EventRecord) -> None:
    with pytest.raises(UnreadableEvent, match="lacks a value"):
        record_of(change_of(record, after={"data": "{}"}))
    with pytest.raises(UnreadableEvent, match="another table"):
        aggregate_of(SimpleEvent("id", foreign_id='{"id":1}'))
    with pytest.raises(UnreadableEvent, match="without a change"):
        record_of(SimpleEvent("id", foreign_id='{"id":1}'))


def test_a_record_has_the_envelope_and_its_key_keeps_the_order(record: EventRecord) -> None:
    [message] = EventMessages(lambda found: f"shop.{found.aggregate.type}")(change_of(record))
    assert (message.topic, message.key) == ("shop.counter", b"a")
    assert json.loads(message.value or b"") == {
        "aggregate_type": "counter",
        "aggregate_id": "a",
        "version": 1,
        "event_id": str(record.event_id),
        "type": "Added",
        "schema": 1,
        "at": "2026-11-21T12:00:00.000+00:00",
        "correlation_id": "c",
        "causation_id": "cause",
        "user": "me",
        "metadata": {"k": "v"},
        "data": {"amount": 7},
    }
    assert dict(message.headers) == {
        "event_id": str(record.event_id).encode(),
        "version": b"1",
        "type": b"Added",
        "schema": b"1",
        "correlation_id": b"c",
        "causation_id": b"cause",
    }
    assert EventMessages()(change_of(record, head=True)) == ()
    assert datetime.fromisoformat(json.loads(message.value or b"")["at"]) == record.at.astimezone(UTC)


def letters_of(letters: MemoryDeadLetters) -> list[tuple[str, int]]:
    found = ((one.error.rpartition(".")[2], record_of(one.event)) for one in letters.list_letters("broker"))
    return [(error, record.version) for error, record in found if record is not None]


def test_what_can_never_be_published_is_parked_with_its_aggregate_and_replayed_in_order() -> None:
    shop, letters = Shop(), MemoryDeadLetters()
    shop.add("a", 1)
    shop.add("a", 2, data="{broken")
    shop.add("a", 3)
    shop.add("b", 4, kind="Unknown")
    shop.add("c", 5)
    for messages, parked in (
        (EventMessages(decode=TYPES.decode), [("UnreadableEvent", 2), ("KeyParked", 3), ("UnreadableEvent", 1)]),
        (EventMessages(), [("UnreadableEvent", 2), ("KeyParked", 3)]),
    ):
        letters = MemoryDeadLetters()
        publish = parking_messages("broker", messages, letters)
        sent = [m for event in shop.stream.items for m in publish(event)]  # type: ignore[arg-type]
        assert letters_of(letters) == parked
        assert [m.key for m in sent] == [b"a", b"c"] if len(parked) == 3 else [b"a", b"b", b"c"]

    replayed: list[int] = []

    def handle(event: Any) -> None:
        record = record_of(event)
        assert record is not None
        if not replayed and len(tries) < 1:
            tries.append(record.version)
            raise ValueError("not mended yet")
        replayed.append(record.version)

    tries: list[int] = []
    assert rscylla.replay_letters(letters, "broker", handle, key=aggregate_of) == (0, 2)
    assert rscylla.replay_letters(letters, "broker", handle, key=aggregate_of) == (2, 0)
    assert (tries, replayed) == ([2], [2, 3])
    shop.add("a", 6)
    assert [m.key for m in publish(shop.stream.items[-1])] == [b"a"]  # type: ignore[arg-type]


def test_a_restart_knows_which_aggregates_are_parked() -> None:
    shop, letters = Shop(), MemoryDeadLetters()
    shop.add("a", 1, data="{broken")
    shop.add("a", 2)
    first, second = shop.stream.items[1], shop.stream.items[3]
    assert parking_messages("broker", EventMessages(), letters)(first) == ()  # type: ignore[arg-type]
    assert parking_messages("broker", EventMessages(), letters)(second) == ()  # type: ignore[arg-type]
    assert letters_of(letters) == [("UnreadableEvent", 1), ("KeyParked", 2)]


def test_an_aggregate_stays_parked_when_the_broker_is_read_in_other_slices() -> None:
    shop, letters, sent = Shop(), MemoryDeadLetters(), list[Any]()
    shop.add("a", 1, data="{broken")
    shop.add("a", 2)
    shop.add("b", 3)
    for items, part in ((shop.stream.items[:2], (0, 2)), (shop.stream.items[2:], (1, 3))):
        name = rscylla.slice_name("broker", *part)
        publish = parking_messages(name, EventMessages(), letters)
        consumer = rscylla.Consumer(name, lambda e, r, publish=publish: sent.extend(publish(e)))  # type: ignore[misc]
        spec = rscylla.Spec(FakeStream(items), FakeCursorStore(), consumer, rscylla.StreamToHead(), key_slice=part)
        with pytest.raises(rscylla.HeadReached):
            rscylla.run(spec)
    assert [m.key for m in sent] == [b"b"]
    assert letters_of(letters) == [("UnreadableEvent", 1), ("KeyParked", 2)]


def test_without_parking_later_events_go_on() -> None:
    shop, letters = Shop(), MemoryDeadLetters()
    shop.add("a", 1, data="{broken")
    shop.add("a", 2)
    publish = parking_messages("broker", EventMessages(), letters, park=False)
    assert [m.key for event in shop.stream.items for m in publish(event)] == [b"a"]  # type: ignore[arg-type]
    assert letters_of(letters) == [("UnreadableEvent", 1)]


def test_an_outage_is_no_fault_of_the_event(record: EventRecord) -> None:
    letters = MemoryDeadLetters()

    def down(_: Event) -> Any:
        raise ConnectionFailed("the keys cannot be reached")

    with pytest.raises(ConnectionFailed):
        parking_messages("broker", down, letters)(change_of(record))
    assert letters_of(letters) == []


def test_parking_needs_letters_that_can_be_listed() -> None:
    class Blind:
        def tries(self, consumer: str, event: Event) -> int:
            return 0

        set_tries = put = tries

    with pytest.raises(ConfigError, match="listed"):
        parking_messages("broker", EventMessages(), Blind())  # type: ignore[arg-type]
