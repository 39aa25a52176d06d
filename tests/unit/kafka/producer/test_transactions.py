"""Transactions on librdkafka's mock cluster: what goes together, and what a failure ends. tests/kafka has the rest."""

from __future__ import annotations

import contextlib
import json
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from bulkstream import BulkStream
from confluent_kafka import KafkaError, Producer
from memoryleases import MemoryLease
from mockkafka import END_TRANSACTION, PRODUCE, MockKafka
from outcomes import Outcome
from prometheus_client import CollectorRegistry
from waiting import eventually

import rscylla
from cursorstore import IntCursorCodec, ScyllaCursorStore
from rscylla.abc import CursorRecord, JointPublisher, Message, Publisher
from rscylla.clock import Stop
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import (
    ConfigError,
    CursorConflict,
    CursorRegression,
    HeadReached,
    LeaseLost,
    PublishFailed,
    PublishRejected,
    RunError,
)
from rscylla.event import Event, SimpleEvent
from rscylla.kafka import Connector, KafkaCursorStore, Properties
from rscylla.kafka.producer.transactions import TransactionalPublisher
from rscylla.options import StreamToHead
from rscylla.publish import publishing
from rscylla.reflex import Spec, run
from rscylla.testing.contracts import PublisherContract

LONG_S = 60.0
LATE = timedelta(minutes=10)


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka(partitions=2) as cluster:
        cluster.create("rscylla_cursors", 2)
        cluster.create("t", 1)
        yield cluster


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaCursorStore, "_check_policy", lambda self, admin: None)  # the mock cluster knows none


class Stores:
    """Stores of processes on one cluster, and what their consumers publish with."""

    def __init__(self, kafka: MockKafka) -> None:
        self.config = {"bootstrap.servers": kafka.servers, "log_level": 0}
        self.opened: list[KafkaCursorStore] = []

    def open(self, **options: Any) -> KafkaCursorStore:
        options = {"codec": IntCursorCodec(), "interval": LATE, **options}
        self.opened.append(KafkaCursorStore(self.config, **options))
        return self.opened[-1]

    def close(self) -> None:
        for store in self.opened:
            with contextlib.suppress(PublishFailed, LeaseLost):  # of a session that a test ended
                store.close()


@pytest.fixture
def stores(kafka: MockKafka) -> Iterator[Stores]:
    stores = Stores(kafka)
    yield stores
    stores.close()


def given(*numbers: int) -> list[Message]:
    return [Message("t", b"k", b"%d" % n) for n in numbers]


@pytest.mark.slow
class TestOnTheMockCluster(PublisherContract):
    @pytest.fixture(autouse=True)
    def make(self, kafka: MockKafka) -> Any:
        self.kafka = kafka
        self.opened: list[TransactionalPublisher] = []
        yield
        for publisher in self.opened:
            publisher.close()

    def open_publisher(self) -> Publisher:
        config = {"bootstrap.servers": self.kafka.servers, "log_level": 0}
        self.opened.append(TransactionalPublisher(config, f"contract-{len(self.opened)}"))
        return self.opened[-1]

    def read(self, topic: str) -> Sequence[Message]:
        return self.kafka.read(topic)

    def never(self, topic: str) -> Message:
        return Message(topic, b"k", b"x" * 2_000_000)


@pytest.mark.slow
def test_the_cursor_is_the_last_record_of_the_transaction(kafka: MockKafka, stores: Stores) -> None:
    store = stores.open()
    publisher = store.publisher("c")
    assert isinstance(publisher, JointPublisher)
    assert store.get_cursor("c") == ""
    settled: list[int] = []

    def settle() -> bool:  # as a run does: after all records are acknowledged, and before the commit
        settled.append(len(outcome.errors))
        store.set_cursor("c", "3")
        return True

    outcome = Outcome()
    party = publisher.join(settle)
    with party:
        publisher.publish(given(1, 2), outcome)
    assert stores.open().list_cursors() == []
    store.flush_cursor("c")
    assert settled == [1]
    [cursor] = kafka.read("rscylla_cursors")
    assert (json.loads(cursor.key or b""), json.loads(cursor.value or b"")["cursor"]) == (
        {"consumer": "c", "epoch": 0},
        "3",
    )
    [at] = [m.timestamp()[1] for m in kafka.messages("rscylla_cursors")]
    assert at >= max(m.timestamp()[1] for m in kafka.messages("t"))
    assert stores.open().get_cursor("c") == "3"
    party.leave()


@pytest.mark.slow
def test_a_transaction_is_committed_when_it_is_time_or_full(
    kafka: MockKafka, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon, full = stores.open(interval=timedelta(milliseconds=1)), stores.open()
    for name, store in (("soon", soon), ("full", full)):
        publisher = store.publisher(name)
        store.get_cursor(name)
        with publisher.join(lambda: True):
            publisher.publish(given(1), Outcome())
        store.set_cursor(name, "1")
    other = stores.open()
    eventually(lambda: [record.consumer for record in other.list_cursors()] == ["soon"], LONG_S)
    monkeypatch.setattr("rscylla.kafka.producer.transactions.MOST_RECORDS", 2)
    full.publisher("full").publish(given(2), Outcome())
    eventually(lambda: [record.consumer for record in other.list_cursors()] == ["full", "soon"], LONG_S)


@pytest.mark.slow
def test_no_commit_comes_between_the_records_of_an_event(stores: Stores) -> None:
    store = stores.open()
    publisher = store.publisher("c")
    store.get_cursor("c")
    party = publisher.join(lambda: True)
    committed = threading.Event()

    def commit() -> None:
        store.flush()
        committed.set()

    with party:
        publisher.publish(given(1), Outcome())
        thread = threading.Thread(target=commit)
        thread.start()
        eventually(lambda: publisher._gate.is_shut == 1, LONG_S)
        publisher.publish(given(2), Outcome())
        assert not committed.is_set()
    assert committed.wait(LONG_S)
    thread.join()


class Beside:
    """Work in a thread of its own, which must end."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told by end()
            self._failed.append(error)

    def end(self) -> None:
        self._thread.join(LONG_S)
        assert not self._thread.is_alive(), "it waits for ever"
        assert not self._failed


@pytest.fixture
def alone(kafka: MockKafka) -> Iterator[TransactionalPublisher]:
    config = {"bootstrap.servers": kafka.servers, "log_level": 0}
    publisher = TransactionalPublisher(config, "alone", interval=LATE)
    yield publisher
    publisher.close()


@pytest.mark.slow
@pytest.mark.parametrize("joined", [False, True])
def test_a_flush_while_the_first_record_is_published_waits_for_it(
    kafka: MockKafka, alone: TransactionalPublisher, monkeypatch: pytest.MonkeyPatch, joined: bool
) -> None:
    inside, ready = threading.Event(), alone._ready

    def while_another_thread_flushes() -> None:
        inside.set()
        eventually(lambda: alone._gate.is_shut == 1, LONG_S)
        ready()

    monkeypatch.setattr(alone, "_ready", while_another_thread_flushes)
    party = alone.join(lambda: True) if joined else contextlib.nullcontext()

    def publish() -> None:
        with party:
            alone.publish(given(1), outcome)

    outcome = Outcome()
    publishing_ = Beside(publish)
    assert inside.wait(LONG_S)
    flushing = Beside(lambda: alone.flush(LONG_S))
    publishing_.end()
    flushing.end()
    assert outcome.wait() is None
    assert [message.value for message in kafka.read("t")] == [b"1"]


@pytest.mark.slow
def test_first_records_of_two_threads_are_of_one_session(kafka: MockKafka, alone: TransactionalPublisher) -> None:
    both = threading.Barrier(2)

    def publish(number: int, outcome: Outcome) -> None:
        both.wait(LONG_S)  # not within the gate, which the publisher's own thread may shut to look for an idle session
        alone.publish(given(number), outcome)

    outcomes = [Outcome(), Outcome()]
    threads = [Beside(partial(publish, number, outcome)) for number, outcome in enumerate(outcomes)]
    for thread in threads:
        thread.end()
    assert alone.flush(LONG_S)
    assert [outcome.wait() for outcome in outcomes] == [None, None]
    assert alone.session == 1
    assert sorted(message.value or b"" for message in kafka.read("t")) == [b"0", b"1"]


@pytest.mark.slow
def test_a_session_that_ended_before_its_first_record_begins_again(
    kafka: MockKafka, alone: TransactionalPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = alone.begin

    def begin_and_end() -> int:
        number = begin()
        if number == 1:
            with monkeypatch.context() as meanwhile:
                meanwhile.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", 0.0)
                alone._tend()
        return number

    monkeypatch.setattr(alone, "begin", begin_and_end)
    outcome = Outcome()
    alone.publish(given(1), outcome)
    assert alone.flush(LONG_S)
    assert outcome.wait() is None
    assert alone.session == 2


@pytest.mark.slow
def test_records_that_were_not_all_published_end_the_session(stores: Stores) -> None:
    store = stores.open(together=lambda name: ("c", "c/other"))
    publisher = store.publisher("c")
    assert (store.get_cursor("c"), store.get_cursor("c/other")) == ("", "")
    party, other = publisher.join(lambda: True), publisher.join(lambda: True)
    with other:
        publisher.publish(given(1), Outcome())
    with contextlib.suppress(ZeroDivisionError), party:
        publisher.publish(given(2), Outcome())
        raise ZeroDivisionError
    with pytest.raises(PublishFailed, match="published again"):
        store.set_cursor("c", "2")
    assert store.get_cursor("c") == ""  # begins another one
    with pytest.raises(PublishFailed, match="aborted"), other:
        pass
    with pytest.raises(CursorConflict, match="read the cursor again"):
        store.set_cursor("c/other", "1")
    assert store.get_cursor("c/other") == ""
    store.set_cursor("c/other", "1")
    store.flush()
    assert [(r.consumer, r.cursor) for r in stores.open().list_cursors()] == [("c/other", "1")]


@pytest.mark.slow
def test_what_the_broker_refuses_is_known_from_the_third_session_on(kafka: MockKafka, stores: Stores) -> None:
    store = stores.open()
    publisher = store.publisher("c")
    kafka.fail(PRODUCE, KafkaError.INVALID_RECORD)
    store.get_cursor("c")
    outcome = Outcome()
    publisher.publish(given(1, 2), outcome)
    assert isinstance(outcome.wait(), PublishFailed)  # nobody knows which of the two it is
    store.get_cursor("c")
    kafka.fail(PRODUCE, KafkaError.NO_ERROR, KafkaError.INVALID_RECORD)
    with pytest.raises(PublishFailed) as failed:
        publisher.publish(given(1, 2), Outcome())
    assert failed.value.resumable
    store.get_cursor("c")
    before = Outcome()
    with pytest.raises(PublishRejected) as caught:
        publisher.publish(given(1, 2, 3), before)
    assert caught.value.index == 1
    assert before.wait() is None
    publisher.publish(given(3), Outcome())
    store.set_cursor("c", "3")
    store.flush()


@pytest.mark.slow
def test_a_commit_that_may_pass_is_tried_again(kafka: MockKafka, stores: Stores) -> None:
    store = stores.open()
    store.get_cursor("c")
    store.set_cursor("c", "1")
    kafka.fail(END_TRANSACTION, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)
    store.flush()
    assert stores.open().get_cursor("c") == "1"


@pytest.mark.slow
def test_after_an_end_that_may_have_been_sent_twice_another_producer_begins(kafka: MockKafka, stores: Stores) -> None:
    """What is still on its way would end the next transaction."""
    store = stores.open()
    publisher = store.publisher("c")
    party = publisher.join(lambda: True)
    store.get_cursor("c")
    with party:
        publisher.publish(given(1), Outcome())
    store.set_cursor("c", "1")
    session, first = publisher.session, publisher._producer
    kafka.fail(END_TRANSACTION, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    store.flush()
    second = publisher._producer
    assert second is not first
    assert publisher.session == session  # the run goes on
    with party:
        publisher.publish(given(2), Outcome())
    store.set_cursor("c", "2")
    publisher._once_s = LONG_S
    store.flush()
    assert publisher._producer is second
    assert stores.open().get_cursor("c") == "2"
    party.leave()


@pytest.mark.slow
def test_after_an_end_in_doubt_the_cursors_are_those_of_this_process_or_the_session_ends(stores: Stores) -> None:
    store, other = stores.open(), stores.open()
    store.set_cursor("c", "1")
    publisher = store.publisher("c")
    end, publisher._once_s = publisher._end, 0.0

    def while_another_process_works(what: str, deadline: float) -> None:
        end(what, deadline)
        other.set_cursor("c", "5")
        other.flush()

    publisher._end = while_another_process_works  # type: ignore[method-assign]
    with pytest.raises(LeaseLost, match="another process has published"):
        store.flush()
    with pytest.raises(LeaseLost):
        store.set_cursor("c", "2")
    assert store.get_cursor("c") == "5"


@pytest.mark.slow
def test_an_end_in_doubt_when_all_stops_is_no_failure(stores: Stores) -> None:
    stop = Stop()
    store = stores.open(stop=stop)
    store.set_cursor("c", "1")
    store.publisher("c")._once_s = 0.0
    stop.set()
    store.flush()
    assert store.publisher("c").session == 0
    store.close()
    assert stores.open().get_cursor("c") == "1"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 0.4),
        ({"retry.backoff.ms": "100"}, 0.08),
        ({"retry.backoff.ms": "2000", "retry.backoff.max.ms": "300"}, 0.3),
        ({"retry.backoff.ms": "0x64"}, 0.0),
        ({"retry.backoff.ms": "100ms"}, 0.0),
    ],
)
def test_what_takes_less_than_librdkafka_waits_before_it_tries_again_was_sent_once(
    stores: Stores, given: dict[str, str], seconds: float
) -> None:
    stores.config |= given
    assert stores.open().publisher("c")._once_s == pytest.approx(seconds)


@pytest.mark.slow
def test_a_process_without_its_lease_fences_nobody_after_an_end_in_doubt(stores: Stores) -> None:
    lease = MemoryLease("team")
    assert lease.try_acquire()
    store = stores.open(lease=lease)
    store.set_cursor("c", "1")
    publisher = store.publisher("c")
    publisher._once_s, first = 0.0, publisher._producer
    lease.release()
    with pytest.raises(LeaseLost, match="not held"):
        store.flush()
    assert publisher._producer is first
    assert stores.open().get_cursor("c") == "1"


@pytest.mark.slow
def test_a_process_that_is_fenced_has_lost_its_lease(kafka: MockKafka, stores: Stores) -> None:
    store = stores.open()
    store.get_cursor("c")
    store.set_cursor("c", "1")
    kafka.fail(END_TRANSACTION, KafkaError.PRODUCER_FENCED)
    with pytest.raises(LeaseLost, match="another process publishes"):
        store.flush_cursor("c")
    with pytest.raises(LeaseLost):
        store.set_cursor("c", "2")
    with pytest.raises(LeaseLost):
        store.publisher("c").publish(given(1), Outcome())
    store.flush_cursor("c")  # told once
    store.get_cursor("c")
    store.set_cursor("c", "2")
    store.flush()


def test_consumers_of_two_topics_of_cursors_never_fence_each_other(stores: Stores) -> None:
    ids = set()
    for topic, consumer in (("cursors", "eu-demo.shop.a"), ("cursors-eu", "demo.shop.a")):
        stores.opened.append(KafkaCursorStore(stores.config, topic))
        ids.add(stores.opened[-1].publisher(consumer)._id)
    assert len(ids) == 2


def test_without_its_lease_a_process_begins_no_session(stores: Stores) -> None:
    lease = MemoryLease("team")
    store = stores.open(lease=lease)
    with pytest.raises(LeaseLost, match="not held"):
        store.get_cursor("c")
    assert lease.try_acquire()
    store.get_cursor("c")
    store.set_cursor("c", "1")
    lease.release()
    with pytest.raises(LeaseLost, match="not held"):
        store.set_cursor("c", "2")


@pytest.mark.slow
def test_resets_are_kept_with_their_reasons(stores: Stores) -> None:
    store = stores.open()
    store.get_cursor("c")
    store.set_cursor("c", "5")
    with pytest.raises(CursorRegression):
        store.set_cursor("c", "4")
    store.reset_cursor("c", "2", reason="replay")
    with pytest.raises(CursorConflict):
        store.set_cursor("c", "6")
    assert store.get_cursor("c") == "2"

    def told(records: Sequence[CursorRecord]) -> list[tuple[int, str, str]]:
        return [(r.epoch, r.cursor, r.reason) for r in records]

    expected = [(1, "2", "replay"), (0, "5", "")]
    assert told(store.cursor_history("c")) == expected
    other = stores.open()
    assert told(other.cursor_history("c")) == expected
    found = other.find_cursor("c")
    assert found is not None
    assert told([found]) == expected[:1]
    assert other.find_cursor("d") is None


@pytest.mark.slow
def test_partitions_without_a_leader_are_waited_for(
    kafka: MockKafka, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they are for a moment when the topic was just created, and when the controller has lost a broker."""
    store = stores.open()
    store.set_cursor("c", "1")
    store.flush()
    other = stores.open()
    ends, pause = other._ends, other._pause
    waited: list[bool] = []

    def end_without(partitions: Iterable[int]) -> dict[int, int]:
        kafka.gone("rscylla_cursors")
        return ends(partitions)

    def wait() -> None:
        waited.append(True)
        kafka.gone("rscylla_cursors", is_gone=False)
        pause()

    monkeypatch.setattr(other, "_ends", end_without)
    monkeypatch.setattr(other, "_pause", wait)
    assert other.get_cursor("c") == "1"
    assert waited


@pytest.mark.slow
def test_a_cursor_is_not_overlooked_after_partitions_were_added(stores: Stores) -> None:
    name = next(name for name in "abcdefgh" if zlib.crc32(name.encode()) % 2 == 1)
    before, now = stores.open(), stores.open()
    before._ensure()
    before._partitions = 1  # as it was then
    before.get_cursor(name)
    before.set_cursor(name, "7")
    before.flush()
    with pytest.raises(ConfigError, match="partition 1 of topic rscylla_cursors"):
        now.get_cursor(name)
    assert [record.cursor for record in now.list_cursors()] == ["7"]


def test_a_transaction_ends_before_kafka_aborts_it(stores: Stores) -> None:
    """Otherwise, nothing would ever be committed."""
    stores.config["transaction.timeout.ms"] = "5000"
    stores.open(interval=timedelta(seconds=4)).publisher("c")
    with pytest.raises(ConfigError, match=r"transaction\.boundary\.interval\.ms"):
        stores.open(interval=timedelta(seconds=5)).publisher("c")
    del stores.config["transaction.timeout.ms"]
    minute = stores.open(interval=timedelta(minutes=1)).publisher("c")
    assert minute._config["transaction.timeout.ms"] == 120_000
    assert stores.open(interval=timedelta(seconds=1)).publisher("c")._config["transaction.timeout.ms"] == 10_000


@pytest.mark.slow
def test_a_session_that_nobody_uses_ends(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.open()
    publisher = store.publisher("c")
    store.get_cursor("c")
    store.set_cursor("c", "1")
    store.flush()
    monkeypatch.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", 0.0)
    eventually(lambda: publisher.session == 0, LONG_S)
    monkeypatch.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", LONG_S)
    assert store.get_cursor("c") == "1"
    party = publisher.join(lambda: True)  # while someone takes part, it lasts
    with party:
        publisher.publish(given(1), Outcome())
    store.flush()
    monkeypatch.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", 0.0)
    publisher._tend()
    assert publisher.session == 2
    party.leave()


def test_a_session_is_in_use_while_its_cursor_moves(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", float("inf"))
    store = stores.open()
    store.get_cursor("c")
    publisher = store.publisher("c")
    publisher._used = 0.0
    store.set_cursor("c", "1")
    assert publisher._used > 0


def test_a_session_is_in_use_until_its_commit_ends(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", float("inf"))
    store = stores.open()
    store.set_cursor("c", "1")
    publisher = store.publisher("c")
    publisher._used = 0.0
    store.flush()
    assert publisher._used > 0


@pytest.mark.slow
def test_a_cursor_that_moves_during_a_commit_is_in_the_next(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", LONG_S)
    store = stores.open()
    store.set_cursor("c", "1")
    publisher, end = store.publisher("c"), store.publisher("c")._end

    def while_it_moves(what: str, deadline: float) -> None:
        store.set_cursor("c", "2")
        end(what, deadline)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(publisher, "_end", while_it_moves)
        store.flush()
    with monkeypatch.context() as later:
        later.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", 0.0)
        publisher._tend()
    store.close()
    assert [record.cursor for record in stores.open().list_cursors()] == ["2"]


def read_slowly(monkeypatch: pytest.MonkeyPatch, store: KafkaCursorStore, consumer: str) -> None:
    """Let reading the cursors take longer than a session of *consumer* lasts that nobody uses."""
    publisher, read = store.publisher(consumer), store._read

    def slowly(*args: Any, **options: Any) -> list[CursorRecord]:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", 0.0)
            publisher._tend()
        return read(*args, **options)

    monkeypatch.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", LONG_S)
    monkeypatch.setattr(store, "_read", slowly)


@pytest.mark.slow
def test_a_session_is_in_use_while_its_cursors_are_read(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.open()
    read_slowly(monkeypatch, store, "c")
    assert store.get_cursor("c") == ""
    store.set_cursor("c", "1")
    store.flush()
    assert [record.cursor for record in stores.open().list_cursors()] == ["1"]


@pytest.mark.slow
def test_cursors_are_read_and_saved_in_a_session_that_began_without_them(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", LONG_S)
    saved = stores.open()
    saved.set_cursor("c", "5")
    saved.close()
    store = stores.open()
    publisher = store.publisher("c")
    publisher.begin()
    assert store.get_cursor("c") == "5"
    store.flush()
    with monkeypatch.context() as later:
        later.setattr("rscylla.kafka.producer.transactions.IDLE_SESSION_S", 0.0)
        publisher._tend()
    publisher.begin()  # as the first record does
    with pytest.raises(CursorConflict, match="read the cursor again"):
        store.set_cursor("c", "6")
    assert store.get_cursor("c") == "5"
    store.set_cursor("c", "7")
    store.close()
    assert [record.cursor for record in stores.open().list_cursors()] == ["7"]


@pytest.mark.slow
def test_a_record_of_an_earlier_session_does_not_end_the_next_one(stores: Stores) -> None:
    store = stores.open()
    publisher = store.publisher("c")
    told: list[Exception | None] = []
    publisher.publish(given(1), told.append)  # in a session that began without cursors
    with publisher._serving:  # answers come late
        assert store.get_cursor("c") == ""
    session = publisher.session
    eventually(lambda: told)
    store.set_cursor("c", "1")
    store.flush()
    assert publisher.session == session
    assert [record.cursor for record in store.list_cursors()] == ["1"]


def test_a_fatal_error_of_the_producer_of_an_earlier_session_does_not_end_the_next_one(stores: Stores) -> None:
    """It may be noted while the thread that noted it has not acted on it, and another one begins a session."""
    store = stores.open()
    assert store.get_cursor("c") == ""
    publisher, fatal = store.publisher("c"), KafkaError(KafkaError._FATAL)
    former = Producer(stores.config)
    publisher._fatal = fatal, former
    publisher._serve(former, 0)
    publisher.check()
    publisher._fatal = fatal, publisher._producer
    publisher._serve(publisher._producer, 0)
    with pytest.raises(PublishFailed, match="the Kafka producer ended"):
        publisher.check()


@pytest.mark.slow
def test_what_an_earlier_session_did_not_save_is_not_committed_while_cursors_are_read(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    store.set_cursor("c", "1")
    store.publisher("c").spoil(PublishFailed("a record was lost"))
    with pytest.raises(PublishFailed, match="a record was lost"):
        store.flush()
    read = store._read

    def read_while_another_thread_flushes(*args: Any, **options: Any) -> list[CursorRecord]:
        store.flush()
        return read(*args, **options)

    monkeypatch.setattr(store, "_read", read_while_another_thread_flushes)
    assert store.get_cursor("c") == ""
    store.close()
    assert stores.open().list_cursors() == []


@pytest.mark.slow
def test_a_reset_is_saved_however_long_reading_the_cursors_takes(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    read_slowly(monkeypatch, store, "c")
    store.reset_cursor("c", "3", reason="replay")
    assert [record.cursor for record in stores.open().list_cursors()] == ["3"]


@pytest.mark.slow
def test_a_reset_that_is_not_saved_is_an_error_even_if_another_thread_has_told_why(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    publisher, moved = store.publisher("c"), store.publisher("c").moved

    def lost() -> bool:
        publisher.spoil(PublishFailed("a record was lost"))
        with pytest.raises(PublishFailed, match="a record was lost"):
            store.flush()
        return moved()

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(publisher, "moved", lost)
        with pytest.raises(PublishFailed, match="a record was lost"):
            store.reset_cursor("c", "3", reason="replay")
    assert store.get_cursor("c") == ""


# ---------------------------------------------------------------- runs


def numbered(count: int) -> BulkStream:
    at = datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)
    return BulkStream([SimpleEvent(str(n), 1, "{}", at, b"") for n in range(1, count + 1)])


def spec(store: KafkaCursorStore, stream: BulkStream, **options: Any) -> Spec:
    def messages(event: Event) -> list[Message]:
        return given(int(event.id)) if int(event.id) % 2 else []

    consumer = publishing("c", messages, store.publisher("c"), registry=CollectorRegistry())
    return Spec(stream, store, consumer, StreamToHead(), registry=CollectorRegistry(), **options)


def test_a_run_commits_its_records_and_its_cursor(kafka: MockKafka, stores: Stores) -> None:
    store = stores.open()
    with pytest.raises(HeadReached):
        run(spec(store, numbered(499)))
    assert [m.value for m in kafka.read("t")] == [b"%d" % n for n in range(1, 500, 2)]
    assert stores.open().get_cursor("c") == "499"


class AtTheCursor:
    def tempt(self, point: str = "") -> None:
        if point == "before_set_cursor":
            raise rscylla.errors.FateError("now")


@pytest.mark.slow
def test_records_whose_cursor_is_not_saved_are_aborted(stores: Stores) -> None:
    store = stores.open()
    with pytest.raises(RunError) as caught:
        run(spec(store, numbered(4), fate=AtTheCursor()))
    assert caught.value.stage == "set_cursor"
    assert store.publisher("c").session == 0


@pytest.mark.slow
def test_a_run_whose_commit_fails_ends_with_that(kafka: MockKafka, stores: Stores) -> None:
    store = stores.open()
    kafka.fail(END_TRANSACTION, KafkaError.PRODUCER_FENCED)
    with pytest.raises(RunError, match="transactional id") as caught:
        run(spec(store, numbered(4)))
    assert caught.value.stage == "flush"
    with pytest.raises(HeadReached):
        run(spec(store, numbered(4)))
    assert stores.open().get_cursor("c") == "4"


# ---------------------------------------------------------------- the connector


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(vnodes=2, shards=1) as server:
        yield server


@pytest.fixture
def session(scylla: EmbeddedScylla) -> Iterator[rscylla.Session]:
    session = scylla.connect()
    session.execute("DROP KEYSPACE IF EXISTS shop")
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, v text) WITH cdc = {'enabled': true}")
    yield session
    session.cluster.shutdown()


def properties_of(kafka: MockKafka, **more: str) -> Properties:
    given = {
        "topic.prefix": "demo",
        "scylla.cluster.ip.addresses": "127.0.0.1:9042",
        "scylla.table.names": "shop.*",
        "bootstrap.servers": kafka.servers,
        "scylla.confidence.window.size": "50",
        "worker.retry.backoff.base": "10",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "exactly.once.support": "required",
    }
    return Properties.of(given | {name.replace("_", "."): value for name, value in more.items()})


def insert(session: rscylla.Session, *ids: int, size: int = 1) -> None:
    for number in ids:
        session.execute(f"INSERT INTO shop.items (id, v) VALUES ({number}, '{'v' * size}')")


def publish_to_head(session: rscylla.Session, properties: Properties) -> None:
    assert Connector(properties, session, to_head=True, registry=CollectorRegistry()).run(Stop()) == 0


def keys(kafka: MockKafka, topic: str = "demo.shop.items") -> list[int]:
    return sorted(json.loads(message.key or b"")["id"] for message in kafka.read(topic))


@pytest.mark.slow
def test_the_connector_continues_at_its_cursor_in_kafka(session: rscylla.Session, kafka: MockKafka) -> None:
    properties = properties_of(kafka)
    insert(session, 1, 2)
    publish_to_head(session, properties)
    insert(session, 3)
    publish_to_head(session, properties)
    assert keys(kafka) == [1, 2, 3]
    assert "rscylla_cursors" not in session.cluster.metadata.keyspaces["shop"].tables


@pytest.mark.slow
def test_it_continues_where_at_least_once_mode_was(session: rscylla.Session, kafka: MockKafka) -> None:
    insert(session, 1, 2)
    publish_to_head(session, properties_of(kafka, exactly_once_support="requested"))
    insert(session, 3)
    publish_to_head(session, properties_of(kafka))
    assert keys(kafka) == [1, 2, 3]
    assert ScyllaCursorStore(session, "shop").find_cursor("demo.shop.items") is not None


@pytest.mark.slow
def test_it_begins_where_it_is_told(session: rscylla.Session, kafka: MockKafka) -> None:
    kafka.create("demo.shop.items")
    insert(session, 1)
    properties = properties_of(kafka, rscylla_start="head")
    publish_to_head(session, properties)
    insert(session, 2)
    publish_to_head(session, properties)
    assert keys(kafka) == [2]


@pytest.mark.slow
def test_a_snapshot_is_in_transactions_too(session: rscylla.Session, kafka: MockKafka) -> None:
    insert(session, *range(20))
    properties = properties_of(kafka, snapshot_mode="initial")
    publish_to_head(session, properties)
    insert(session, 20)
    publish_to_head(session, properties)
    assert keys(kafka) == [*range(21)]
    found = [json.loads(m.key or b"")["consumer"] for m in kafka.read("rscylla_cursors")]
    assert {"demo.shop.items", "demo.shop.items/snapshot"} <= set(found)


@pytest.mark.slow
def test_dead_letters_are_in_the_transaction(session: rscylla.Session, kafka: MockKafka) -> None:
    insert(session, 1)
    insert(session, 2, size=1_100_000)
    insert(session, 3)
    dead = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "dead"}
    publish_to_head(session, properties_of(kafka, **dead))
    assert keys(kafka) == [1, 3]
    assert keys(kafka, "dead") == [2]


def test_publishers_and_stores_of_others_do_not_go_with_it(session: rscylla.Session, kafka: MockKafka) -> None:
    with pytest.raises(ConfigError, match="of its own"):
        Connector(properties_of(kafka), session, store_of=lambda keyspace: rscylla.testing.FakeCursorStore())
