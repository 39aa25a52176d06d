"""``KafkaPublisher`` on a real broker: its contract, and what a broker refuses."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
from kafka_broker import KafkaBroker

from rscylla.abc import Message, PublishDone, Publisher
from rscylla.errors import PublishFailed, PublishRejected
from rscylla.testing.contracts import PublisherContract

kafka = pytest.importorskip("confluent_kafka")
kafka_admin = pytest.importorskip("confluent_kafka.admin")

from kafka_load import read  # noqa: E402

from rscylla.kafka import KafkaPublisher, Properties  # noqa: E402
from rscylla.kafka.producer.topics import Topics  # noqa: E402

LONG_S = 60.0


class TestOnABroker(PublisherContract):
    @pytest.fixture(autouse=True)
    def make(self, broker: KafkaBroker) -> Iterator[None]:
        self.broker = broker
        self.opened: list[KafkaPublisher] = []
        yield
        for publisher in self.opened:
            publisher.close()

    def open_publisher(self) -> Publisher:
        config = {"bootstrap.servers": self.broker.address, "log_level": 2}
        properties = Properties.of(
            {"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "1"}
        )
        topics = Topics.of(properties, config)
        assert topics is not None
        self.opened.append(KafkaPublisher(config, prepare=topics.ensure))
        return self.opened[-1]

    def read(self, topic: str) -> Sequence[Message]:
        return [Message(topic, m.key(), m.value(), tuple(m.headers() or ())) for m in read(self.broker, topic)]

    def never(self, topic: str) -> Message:
        return Message(topic, b"k", b"x" * 2_000_000)


class Lane:
    """What a lane does: it publishes in order, and after an error again from the first that is not acknowledged."""

    def __init__(self, publisher: KafkaPublisher, batches: Sequence[Sequence[Message]], *, stops: bool = False) -> None:
        self._publisher = publisher
        self._batches = batches
        self._stops = stops
        self.rejected: dict[bytes, str] = {}
        self.restarts = 0

    def run(self) -> None:
        at = 0
        while at < len(self._batches):
            outcomes: dict[int, Exception | None] = {}
            for index in range(at, len(self._batches)):
                try:
                    if not self._publish(self._batches[index], partial(outcomes.setdefault, index)):
                        return
                except PublishFailed as error:
                    outcomes[index] = error
                    break
            assert self._publisher.flush(LONG_S)
            while at < len(self._batches) and at in outcomes:
                error = outcomes[at]
                if error is not None:
                    assert error.resumable
                    break
                at += 1
            self.restarts += 1
            assert self.restarts < 20

    def _publish(self, batch: Sequence[Message], done: PublishDone) -> bool:
        """Publish what can be; return whether to go on."""
        while True:
            try:
                self._publisher.publish(batch, done)
            except PublishRejected as error:
                at = error.index or 0
                self.rejected[batch[at].value or b""] = str(error)
                if self._stops:
                    return False
                batch = batch[at + 1 :]
            else:
                return True


def test_keys_keep_their_order_over_requests_that_the_broker_refuses(
    broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    name = topic(2, max_message_bytes="20000")
    sizes = [10, 3000, 10, 10, 30_000, 10]  # the fifth is too large for the topic; three of the second, too, together
    values = [b"%06d" % n + b"x" * sizes[n // 100 % len(sizes)] for n in range(1200)]
    batches = [[Message(name, b"%d" % (n % 5), values[n]) for n in range(b, b + 50)] for b in range(0, 1200, 50)]
    config = {"bootstrap.servers": broker.address, "log_level": 2, "linger.ms": 20}
    with KafkaPublisher(config) as publisher:
        lane = Lane(publisher, batches)
        lane.run()
    assert {value[:6] for value in lane.rejected} == {value[:6] for value in values if len(value) > 20_000}
    found = [(m.key(), int(m.value()[:6])) for m in read(broker, name)]
    assert {n for _, n in found} == {n for n, value in enumerate(values) if len(value) <= 20_000}
    for key in {key for key, _ in found}:
        numbers = [n for k, n in found if k == key]
        assert numbers[-1] == max(numbers)
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first)


def test_nothing_comes_after_what_the_broker_refuses(broker: KafkaBroker, topic: Callable[..., str]) -> None:
    name = topic(1, max_message_bytes="20000")
    batches = [[Message(name, b"k", b"%06d" % n + b"x" * (30_000 if n == 150 else 10))] for n in range(300)]
    # Each batch is a request, and some follow the refused one before it is answered.
    config = {"bootstrap.servers": broker.address, "log_level": 0, "linger.ms": 0, "batch.num.messages": 1}
    with KafkaPublisher(config) as publisher:
        lane = Lane(publisher, batches, stops=True)
        lane.run()
        assert publisher.flush(LONG_S)
    assert [value[:6] for value in lane.rejected] == [b"000150"]
    numbers = [int(m.value()[:6]) for m in read(broker, name)]
    assert sorted(set(numbers)) == list(range(150))
    first = list(dict.fromkeys(numbers))
    assert first == sorted(first)


def test_a_topic_that_is_deleted_is_created_again(broker: KafkaBroker) -> None:
    config = {"bootstrap.servers": broker.address, "log_level": 0, "topic.metadata.refresh.interval.ms": 200}
    config["topic.metadata.propagation.max.ms"] = 500
    given = {"topic.creation.default.partitions": "2", "topic.creation.default.replication.factor": "1"}
    topics = Topics.of(Properties.of(given), config)
    assert topics is not None
    name = f"deleted-{uuid.uuid4().hex}"
    admin = kafka_admin.AdminClient(config)
    with KafkaPublisher(config, prepare=topics.ensure) as publisher:
        Lane(publisher, [[Message(name, b"k", b"1")]]).run()
        [gone] = admin.delete_topics([name]).values()
        gone.result(LONG_S)
        lane = Lane(publisher, [[Message(name, b"k", b"%d" % n)] for n in range(2, 5)])
        lane.run()
    assert len(admin.list_topics(timeout=LONG_S).topics[name].partitions) == 2
    assert [m.value() for m in read(broker, name)] == [b"2", b"3", b"4"]


def test_a_topic_is_created_with_its_settings(broker: KafkaBroker) -> None:
    config = {"bootstrap.servers": broker.address, "log_level": 2}
    name = f"created-{uuid.uuid4().hex}"
    given = {
        "topic.creation.groups": "compacted",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "-1",
        "topic.creation.compacted.include": r"created-.*",
        "topic.creation.compacted.partitions": "5",
        "topic.creation.compacted.cleanup.policy": "compact",
        "topic.creation.compacted.max.message.bytes": "2000000",
    }
    topics = Topics.of(Properties.of(given), config)
    assert topics is not None
    with KafkaPublisher(config, prepare=topics.ensure) as publisher:
        done: list[Exception | None] = []
        publisher.publish([Message(name, b"k", b"v"), Message(f"other-{name}", b"k", b"v")], done.append)
        assert publisher.flush(LONG_S)
        assert done == [None]
    topics.ensure(name)  # is there: left as it is
    admin = kafka_admin.AdminClient(config)
    known = admin.list_topics(timeout=LONG_S).topics
    assert (len(known[name].partitions), len(known[f"other-{name}"].partitions)) == (5, 1)
    resource = kafka_admin.ConfigResource(kafka_admin.ResourceType.TOPIC, name)
    [settings] = admin.describe_configs([resource]).values()
    found = settings.result(LONG_S)
    assert (found["cleanup.policy"].value, found["max.message.bytes"].value) == ("compact", "2000000")


def test_settings_that_the_broker_refuses_are_said(broker: KafkaBroker) -> None:
    config = {"bootstrap.servers": broker.address, "log_level": 2}
    given = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "3"}
    topics = Topics.of(Properties.of(given), config)
    assert topics is not None
    with pytest.raises(PublishFailed, match=r"the topic of a record, .*, cannot be created .*replication factor"):
        topics.ensure(f"refused-{uuid.uuid4().hex}")
