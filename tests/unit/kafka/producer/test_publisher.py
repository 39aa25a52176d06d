"""``KafkaPublisher`` on librdkafka's mock cluster: its contract, brokers that go away, and errors that they return."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError
from mockkafka import INIT_PRODUCER_ID, PRODUCE, MockKafka
from outcomes import Outcome
from waiting import eventually

from rscylla.abc import Message, Publisher
from rscylla.errors import ConfigError, PublishFailed, PublishRejected
from rscylla.kafka import KafkaPublisher
from rscylla.kafka.producer.transactions import TransactionalPublisher
from rscylla.testing.contracts import PublisherContract

LONG_S = 60.0


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka(partitions=4) as cluster:
        yield cluster


@pytest.fixture
def publisher(kafka: MockKafka) -> Iterator[KafkaPublisher]:
    with KafkaPublisher({"bootstrap.servers": kafka.servers, "log_level": 2, "retry.backoff.ms": 10}) as publisher:
        yield publisher


class TestOnTheMockCluster(PublisherContract):
    @pytest.fixture(autouse=True)
    def make(self, kafka: MockKafka) -> Any:
        self.kafka = kafka
        self.opened: list[KafkaPublisher] = []
        yield
        for publisher in self.opened:
            publisher.close()

    def open_publisher(self) -> Publisher:
        self.opened.append(KafkaPublisher({"bootstrap.servers": self.kafka.servers, "log_level": 2}))
        return self.opened[-1]

    def read(self, topic: str) -> Sequence[Message]:
        return self.kafka.read(topic)

    def never(self, topic: str) -> Message:
        return Message(topic, b"k", b"x" * 2_000_000)


def test_a_key_is_in_the_partition_where_the_java_producer_puts_it(kafka: MockKafka, publisher: KafkaPublisher) -> None:
    # By murmur2 of org.apache.kafka.common.utils.Utils; the hashes are those of Kafka's own tests.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    publisher.publish([Message("t", key, b"v") for key in known], Outcome())
    assert publisher.flush(LONG_S)
    found = {m.key(): m.partition() for m in kafka.messages("t")}
    assert found == {key: (number & 0x7FFFFFFF) % 4 for key, number in known.items()}


def test_brokers_that_are_down_are_waited_for(kafka: MockKafka, publisher: KafkaPublisher) -> None:
    first, second = Outcome(), Outcome()
    publisher.publish([Message("t", b"k", b"1")], first)
    assert first.wait() is None
    kafka.down()
    publisher.publish([Message("t", b"k", b"2")], second)
    eventually(publisher.trouble, LONG_S)
    assert "Kafka does not answer" in publisher.trouble()
    assert second.errors == []
    assert not publisher.flush(0.01)
    kafka.up()
    assert second.wait() is None
    eventually(lambda: publisher.trouble() == "")
    assert [m.value for m in kafka.read("t")] == [b"1", b"2"]


def test_brokers_that_answer_again_are_no_trouble_although_no_record_is_published(
    kafka: MockKafka, publisher: KafkaPublisher
) -> None:
    kafka.down()
    eventually(publisher.trouble, LONG_S)
    kafka.up()
    eventually(lambda: publisher.trouble() == "", LONG_S)


def test_what_passes_is_retried_in_order(kafka: MockKafka, publisher: KafkaPublisher) -> None:
    passing = [KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_LEADER_FOR_PARTITION]
    kafka.create("t", 1)
    kafka.fail(PRODUCE, *passing)
    outcomes = [Outcome() for _ in range(100)]
    for n, outcome in enumerate(outcomes):
        publisher.publish([Message("t", b"k", b"%d" % n)], outcome)
    assert publisher.flush(LONG_S)
    assert [outcome.wait() for outcome in outcomes] == [None] * 100
    assert [m.value for m in kafka.read("t")] == [b"%d" % n for n in range(100)]


NOT_READY = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_ENOUGH_REPLICAS)


def publish_each(publisher: KafkaPublisher, count: int) -> list[Exception | None]:
    """Publish *count* records of a key, each in a request of its own; return what is said of each."""
    outcomes = [Outcome() for _ in range(count)]
    for n, outcome in enumerate(outcomes):
        publisher.publish([Message("t", b"k", b"%d" % n)], outcome)
    assert publisher.flush(LONG_S)
    return [outcome.wait() for outcome in outcomes]


@pytest.mark.parametrize("why", NOT_READY)
@pytest.mark.slow
def test_what_a_partition_refuses_that_is_not_ready_keeps_its_place(kafka: MockKafka, why: int) -> None:
    """The mock cluster, as Kafka does for a producer that is new to a partition, takes whatever number comes first."""
    kafka.create("t", 1)
    kafka.slow(2)
    kafka.fail(PRODUCE, why, why, KafkaError.NO_ERROR, why)
    config = {"bootstrap.servers": kafka.servers, "log_level": 0, "retry.backoff.ms": 10, "batch.num.messages": 1}
    with KafkaPublisher(config) as publisher:
        assert publish_each(publisher, 20) == [None] * 20
    assert [m.value for m in kafka.read("t")] == [b"%d" % n for n in range(20)]


@pytest.mark.slow
def test_what_only_librdkafka_calls_delivered_is_published_again(kafka: MockKafka) -> None:
    kafka.create("t", 1)
    kafka.slow(2)
    config = {"bootstrap.servers": kafka.servers, "log_level": 0, "retry.backoff.ms": 10, "batch.num.messages": 1}
    with KafkaPublisher(config | {"max.in.flight.requests.per.connection": 5}) as publisher:
        publisher._producer.list_topics("t", LONG_S)  # so that requests are on their way at the same time
        kafka.fail(PRODUCE, KafkaError.NOT_LEADER_FOR_PARTITION)
        told = publish_each(publisher, 20)
        there = {m.value for m in kafka.read("t")}
        assert b"0" not in there
        assert {b"%d" % n for n, error in enumerate(told) if error is None} <= there
        assert type(told[0]) is PublishFailed
        assert "partition 0 has acknowledged a later record" in str(told[0])
        assert publish_each(publisher, 20) == [None] * 20
    assert [m.value for m in kafka.read("t")][-20:] == [b"%d" % n for n in range(20)]


def publish(publisher: KafkaPublisher, *messages: Message) -> Exception | None:
    outcome = Outcome()
    publisher.publish(messages, outcome)
    return outcome.wait()


def test_what_the_broker_refuses_in_company_is_published_again_alone(
    kafka: MockKafka, publisher: KafkaPublisher
) -> None:
    kafka.create("t", 1)
    kafka.fail(PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE)
    given = [Message("t", b"k", b"%d" % n) for n in range(3)]
    error = publish(publisher, *given)
    assert type(error) is PublishFailed
    assert error.resumable
    assert publish(publisher, *given) is None
    assert [m.value for m in kafka.read("t")] == [b"0", b"1", b"2"]


def test_what_the_broker_refuses_alone_can_never_be_published(kafka: MockKafka, publisher: KafkaPublisher) -> None:
    kafka.create("t", 1)
    kafka.fail(PRODUCE, *[KafkaError.INVALID_RECORD] * 2)
    assert type(publish(publisher, Message("t", b"k", b"v"))) is PublishFailed
    with pytest.raises(PublishRejected, match="can never be sent") as caught:
        publisher.publish([Message("t", b"k", b"v")], Outcome())
    assert caught.value.index == 0
    assert publish(publisher, Message("t", b"k", b"w")) is None


def test_nothing_is_sent_after_what_the_broker_refuses_alone(kafka: MockKafka, publisher: KafkaPublisher) -> None:
    kafka.create("t", 1)
    given = [Message("t", b"k", b"%d" % n) for n in range(5)]
    kafka.fail(PRODUCE, KafkaError.INVALID_RECORD)
    assert type(publish(publisher, *given)) is PublishFailed
    kafka.fail(PRODUCE, KafkaError.NO_ERROR, KafkaError.INVALID_RECORD)
    before = Outcome()
    with pytest.raises(PublishRejected) as caught:
        publisher.publish(given, before)
    assert caught.value.index == 1
    assert before.wait() is None
    assert [m.value for m in kafka.read("t")] == [b"0"]


def test_a_topic_that_was_deleted_is_prepared_again(kafka: MockKafka) -> None:
    kafka.create("t", 1)
    prepared: list[str] = []
    config = {"bootstrap.servers": kafka.servers, "log_level": 0, "topic.metadata.refresh.interval.ms": 50}
    config["topic.metadata.propagation.max.ms"] = 100
    with KafkaPublisher(config, prepare=prepared.append) as publisher:
        assert publish(publisher, Message("t", b"k", b"1")) is None
        kafka.gone("t")

        def fails() -> bool:
            outcome = Outcome()
            try:
                publisher.publish([Message("t", b"k", b"2")], outcome)
            except PublishFailed as error:
                return error.resumable
            return isinstance(outcome.wait(), PublishFailed)

        eventually(fails, LONG_S)
        kafka.gone("t", is_gone=False)
        eventually(lambda: not fails(), LONG_S)
    assert prepared[:2] == ["t", "t"]


def test_records_are_together_again_after_a_while_without_a_refusal(
    kafka: MockKafka, publisher: KafkaPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rscylla.kafka.producer.publisher.APART_S", 0.0)
    kafka.create("t", 1)
    kafka.fail(PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE)
    assert type(publish(publisher, Message("t", b"k", b"0"))) is PublishFailed
    assert publish(publisher, Message("t", b"k", b"1")) is None
    eventually(lambda: publisher._apart_until is None, LONG_S)
    assert publish(publisher, Message("t", b"k", b"2")) is None
    assert [m.value for m in kafka.read("t")] == [b"1", b"2"]


def test_a_call_that_waits_for_room_ends_when_what_waits_is_abandoned(kafka: MockKafka) -> None:
    kafka.create("t", 1)
    config = {"bootstrap.servers": kafka.servers, "queue.buffering.max.messages": 5, "log_level": 0}
    with KafkaPublisher(config) as publisher:
        assert publish(publisher, Message("t", b"k", b"0")) is None
        kafka.down()
        failed: list[Exception] = []

        def fill() -> None:
            try:
                publisher.publish([Message("t", b"k", b"%d" % n) for n in range(20)], Outcome())
            except PublishFailed as error:
                failed.append(error)

        thread = threading.Thread(target=fill, daemon=True)
        thread.start()

        def ends() -> bool:
            publisher.abandon()
            return not thread.is_alive()

        eventually(ends, LONG_S)
        assert "full" in str(failed[0])
        kafka.up()


def test_a_callback_does_not_wait_for_room_that_only_callbacks_make(kafka: MockKafka) -> None:
    kafka.create("t", 1)
    config = {"bootstrap.servers": kafka.servers, "queue.buffering.max.messages": 5, "log_level": 0}
    with KafkaPublisher(config) as publisher:
        outcome, failed = Outcome(), Outcome()

        def done(error: Exception | None) -> None:
            try:
                publisher.publish([Message("t", b"k", b"%d" % n) for n in range(20)], Outcome())
            except PublishFailed as full:
                failed(full)
            outcome(error)

        publisher.publish([Message("t", b"k", b"first")], done)
        assert outcome.wait() is None
        assert "full" in str(failed.wait())


def test_what_someone_can_allow_is_no_verdict_on_the_record(kafka: MockKafka, publisher: KafkaPublisher) -> None:
    kafka.create("t", 1)
    kafka.fail(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    outcome = Outcome()
    publisher.publish([Message("t", b"k", b"v")], outcome)
    error = outcome.wait()
    assert type(error) is PublishFailed
    assert error.resumable


def test_abandoned_records_are_reported_and_do_not_come_later(kafka: MockKafka, publisher: KafkaPublisher) -> None:
    kafka.create("t", 1)
    kafka.down()
    outcome, after = Outcome(), Outcome()
    publisher.publish([Message("t", b"k", b"old")], outcome)
    publisher.abandon()
    assert isinstance(outcome.wait(), PublishFailed)
    kafka.up()
    publisher.publish([Message("t", b"k", b"new")], after)
    assert after.wait() is None
    assert [m.value for m in kafka.read("t")] == [b"new"]


def test_after_a_fatal_error_another_producer_begins(kafka: MockKafka) -> None:
    kafka.fail(INIT_PRODUCER_ID, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    with KafkaPublisher({"bootstrap.servers": kafka.servers, "log_level": 0}) as publisher:
        outcome, after = Outcome(), Outcome()
        publisher.publish([Message("t", b"k", b"1")], outcome)
        assert type(outcome.wait()) is PublishFailed
        publisher.publish([Message("t", b"k", b"2")], after)
        assert after.wait() is None
    assert [m.value for m in kafka.read("t")] == [b"2"]


def test_a_full_queue_is_waited_for(kafka: MockKafka) -> None:
    config = {"bootstrap.servers": kafka.servers, "queue.buffering.max.messages": 5, "log_level": 2}
    outcome = Outcome()
    with KafkaPublisher(config) as publisher:
        publisher.publish([Message("t", b"k", b"%d" % n) for n in range(50)], outcome)
        assert publisher.flush(LONG_S)
    assert outcome.wait() is None
    assert [m.value for m in kafka.read("t")] == [b"%d" % n for n in range(50)]


def test_topics_are_prepared_once_before_their_first_record(kafka: MockKafka) -> None:
    prepared: list[str] = []
    with KafkaPublisher({"bootstrap.servers": kafka.servers, "log_level": 2}, prepare=prepared.append) as publisher:
        for topic in ("a", "b", "a"):
            publisher.publish([Message(topic, b"k", b"v")] * 2, Outcome())
        assert publisher.flush(LONG_S)
    assert prepared == ["a", "b"]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "x", "no.such": 1}, "no.such"),
        ({"bootstrap.servers": "x", "partitioner": "mine"}, "partitioner"),
    ],
)
def test_a_wrong_configuration_is_refused(config: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace(".", r"\.")):
        KafkaPublisher(config)


# ---------------------------------------------------------------- what Kafka does not take


def publishers(kafka: MockKafka, prepare: Any) -> list[KafkaPublisher]:
    config = {"bootstrap.servers": kafka.servers, "log_level": 2}
    return [KafkaPublisher(config, prepare=prepare), TransactionalPublisher(config, "me", prepare=prepare)]


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ä", "a/b", "a\n", "a\0b", "x" * 250])
@pytest.mark.slow
def test_a_topic_whose_name_kafka_forbids_refuses_its_record_alone(kafka: MockKafka, topic: str) -> None:
    prepared: list[str] = []
    for publisher in publishers(kafka, prepared.append):
        with publisher:
            before, after = Outcome(), Outcome()
            given = [Message("t", b"k", b"1"), Message(topic, b"k", b"2"), Message("u", b"k", b"3")]
            with pytest.raises(PublishRejected, match="the name of its topic") as caught:
                publisher.publish(given, before)
            assert caught.value.index == 1
            with pytest.raises(PublishRejected) as caught:
                publisher.publish(given[1:], Outcome())
            assert caught.value.index == 0
            assert not topic or len(topic) < 3 or topic not in str(caught.value)  # it may be a value of a row
            publisher.publish(given[2:], after)
            assert publisher.flush(LONG_S)
            assert (before.wait(), after.wait()) == (None, None)
    assert prepared == ["t", "u"] * 2
    assert [m.value for m in kafka.read("t")] == [b"1"] * 2


def test_a_topic_that_cannot_be_created_by_its_name_refuses_its_record_alone(kafka: MockKafka) -> None:
    def prepare(topic: str) -> None:
        if topic == "a_b":
            raise PublishRejected("a record can never be sent: topic a_b: it collides with a.b")

    for publisher in publishers(kafka, prepare):
        with publisher, pytest.raises(PublishRejected, match=r"collides with a\.b") as caught:
            publisher.publish([Message("a.b", b"k", b"1"), Message("a_b", b"k", b"2")], Outcome())
        assert caught.value.index == 1


@pytest.mark.parametrize("size", [999_900, 1_000_000, 1_048_494])
def test_a_record_that_the_java_producer_takes_is_taken(kafka: MockKafka, size: int) -> None:
    """It takes 1,048,576 bytes with key, headers, and 82 bytes of its own."""
    message = Message("large", b"k" * 10, b"x" * (size - 20), (("h" * 5, b"y" * 5),))
    for publisher in publishers(kafka, None):
        with publisher:
            outcome = Outcome()
            publisher.publish([message], outcome)
            assert publisher.flush(LONG_S)
            assert outcome.wait() is None
