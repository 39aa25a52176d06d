"""Errors and logs name the topics of tables, and none that a router took from a row."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from mockkafka import PRODUCE, MockKafka
from outcomes import Outcome

from rscylla.abc import Message
from rscylla.debezium.record import RowTopic
from rscylla.errors import PublishFailed, PublishRejected
from rscylla.kafka import KafkaPublisher
from rscylla.kafka.producer.answers import error_of
from rscylla.kafka.producer.topics import Topics, TopicSettings
from rscylla.kafka.producer.transactions import TransactionalPublisher

NAME = RowTopic("jane.doe-4711")


class Refusing:
    """A client of brokers that refuse to create topics, and quote their names."""

    def __init__(self, code: int) -> None:
        self._code = code

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={})

    def create_topics(self, new: list[Any], request_timeout: float) -> dict[str, Future[None]]:
        made = Future[None]()
        text = f"Topic '{new[0].topic}' collides with existing topics: jane_doe-4711"
        made.set_exception(KafkaException(KafkaError(self._code, text)))
        return {new[0].topic: made}


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka(partitions=1) as cluster:
        cluster.create(NAME, 1)
        yield cluster


def told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("code", "kind", "why"),
    [
        (KafkaError.TOPIC_EXCEPTION, PublishRejected, "can never be sent: Kafka forbids the name of its topic"),
        (KafkaError.INVALID_REPLICATION_FACTOR, PublishFailed, "partitions=2.*Invalid replication factor"),
        (KafkaError.POLICY_VIOLATION, PublishFailed, "cannot be created"),
    ],
)
@pytest.mark.parametrize("name", [NAME, "demo.shop.orders"])
def test_a_topic_that_cannot_be_created_is_named_unless_by_a_row(
    name: str, code: int, kind: type[PublishFailed], why: str
) -> None:
    topics = Topics(lambda: Refusing(code), TopicSettings(partitions=2))
    with pytest.raises(PublishFailed, match=why) as caught:
        topics.ensure(name)
    assert type(caught.value) is kind
    assert isinstance(caught.value.__cause__, KafkaException)
    assert "jane" not in told(caught.value)
    assert ("demo.shop.orders" in str(caught.value)) is (name is not NAME)


@pytest.mark.parametrize("name", [NAME, "demo.shop.orders"])
@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, None])
def test_so_does_the_log(
    name: str, code: int | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if code is None:
        made = Future[None]()
        made.set_result(None)
        monkeypatch.setattr(Refusing, "create_topics", lambda self, new, request_timeout: {new[0].topic: made})
    caplog.set_level("DEBUG")
    Topics(lambda: Refusing(code or 0), TopicSettings(), required=False).ensure(name)
    assert "the topic of a record" in caplog.text
    assert "jane" not in caplog.text
    assert ("demo.shop.orders" in caplog.text) is (name is not NAME)


def test_a_record_that_can_never_be_sent_does_not_tell_its_topic(kafka: MockKafka) -> None:
    config = {"bootstrap.servers": kafka.servers, "log_level": 2}
    large, refused = Message(NAME, b"k", b"x" * 2_000_000), Message(NAME, b"k", b"v")
    for publisher in (KafkaPublisher(config), TransactionalPublisher(config, "me")):
        with publisher, pytest.raises(PublishRejected, match="can never be sent") as caught:
            publisher.publish([large], Outcome())
        assert "jane" not in told(caught.value)
    with KafkaPublisher(config) as publisher:
        kafka.fail(PRODUCE, *[KafkaError.INVALID_RECORD] * 2)
        first = Outcome()
        publisher.publish([refused], first)
        assert "jane" not in told(first.wait() or AssertionError(NAME))
        with pytest.raises(PublishRejected, match="can never be sent") as caught:
            publisher.publish([refused], Outcome())
        assert "jane" not in told(caught.value)


def test_a_record_without_an_answer_does_not_tell_its_topic() -> None:
    answer = SimpleNamespace(offset=lambda: None, partition=lambda: 3, topic=lambda: NAME)
    error = error_of(None, answer)
    assert error is not None
    assert error.str() == "partition 3 has acknowledged a later record, and not this one"
