"""librdkafka's mock cluster, with what Python's client does not hand out: errors, brokers that go away, topics.

Transactions have no effect in it: what is aborted is seen, and nobody is fenced. The cluster lives in a process's
memory and listens on loopback. It is made through the library that confluent_kafka brings. See rdkafka_mock.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, TopicPartition

from rscylla.abc import Message

PRODUCE, METADATA, INIT_PRODUCER_ID, END_TRANSACTION = 0, 3, 22, 26


def _library() -> ctypes.CDLL:
    """Return librdkafka as the client has loaded it."""
    confluent_kafka.libversion()
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "librdkafka" in path:
            return ctypes.CDLL(path)
    raise OSError("librdkafka is not loaded")


def _functions() -> ctypes.CDLL:
    lib = _library()
    pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    for name, result, *arguments in (
        ("rd_kafka_conf_new", pointer),
        ("rd_kafka_conf_set", number, pointer, text, text, text, ctypes.c_size_t),
        ("rd_kafka_new", pointer, number, pointer, text, ctypes.c_size_t),
        ("rd_kafka_destroy", None, pointer),
        ("rd_kafka_mock_cluster_new", pointer, pointer, number),
        ("rd_kafka_mock_cluster_destroy", None, pointer),
        ("rd_kafka_mock_cluster_bootstraps", text, pointer),
        ("rd_kafka_mock_topic_create", number, pointer, text, number, number),
        ("rd_kafka_mock_topic_set_error", None, pointer, text, number),
        ("rd_kafka_mock_broker_set_down", number, pointer, ctypes.c_int32),
        ("rd_kafka_mock_broker_set_up", number, pointer, ctypes.c_int32),
        ("rd_kafka_mock_broker_set_rtt", number, pointer, ctypes.c_int32, number),
        (
            *("rd_kafka_mock_push_request_errors_array", None),
            *(pointer, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(number)),
        ),
    ):
        function: Any = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class MockKafka:
    """A mock cluster. Topics that are asked for are created with *partitions* partitions."""

    def __init__(self, brokers: int = 1, partitions: int = 4) -> None:
        self._lib = _functions()
        self.brokers = brokers
        self._partitions = partitions
        self._consumer: Consumer | None = None
        conf = self._lib.rd_kafka_conf_new()
        self._lib.rd_kafka_conf_set(conf, b"log_level", b"2", None, 0)
        self._client = self._lib.rd_kafka_new(0, conf, None, 0)
        self._cluster = self._lib.rd_kafka_mock_cluster_new(self._client, brokers)
        self.servers: str = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create(self, topic: str, partitions: int | None = None) -> None:
        self._lib.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions or self._partitions, 1)

    def fail(self, api: int, *errors: int) -> None:
        """Answer the next requests of the kind *api* with *errors*, one each."""
        codes = (ctypes.c_int * len(errors))(*errors)
        self._lib.rd_kafka_mock_push_request_errors_array(self._cluster, api, len(errors), codes)

    def gone(self, topic: str, *, is_gone: bool = True) -> None:
        """Answer requests for *topic* as if it did not exist."""
        code = KafkaError.UNKNOWN_TOPIC_OR_PART if is_gone else KafkaError.NO_ERROR
        self._lib.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), code)

    def down(self) -> None:
        for broker in range(1, self.brokers + 1):
            self._lib.rd_kafka_mock_broker_set_down(self._cluster, broker)

    def up(self) -> None:
        for broker in range(1, self.brokers + 1):
            self._lib.rd_kafka_mock_broker_set_up(self._cluster, broker)

    def slow(self, ms: int) -> None:
        for broker in range(1, self.brokers + 1):
            self._lib.rd_kafka_mock_broker_set_rtt(self._cluster, broker, ms)

    def read(self, topic: str, timeout_s: float = 10.0) -> Sequence[Message]:
        """Return all records of *topic*, partition by partition, each in order."""
        return [message_of(found) for found in self.messages(topic, timeout_s)]

    def messages(self, topic: str, timeout_s: float = 10.0) -> Iterator[Any]:
        if self._consumer is None:
            self._consumer = Consumer(
                {"bootstrap.servers": self.servers, "group.id": "tests", "enable.auto.commit": False, "log_level": 2}
                | {"enable.partition.eof": True}
            )
        consumer = self._consumer
        for partition in sorted(consumer.list_topics(topic, timeout_s).topics[topic].partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout_s)
            if low == high:
                continue
            consumer.assign([TopicPartition(topic, partition, low)])
            while True:
                found = consumer.poll(timeout_s)
                assert found is not None, "the mock cluster does not answer"
                if found.error() is None:
                    yield found
                else:
                    assert found.error().code() == KafkaError._PARTITION_EOF, found.error()
                if found.offset() >= high - 1:  # the last one may be the mark of a transaction's end
                    break
            consumer.unassign()

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        if self._cluster:
            self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
            self._lib.rd_kafka_destroy(self._client)
            self._cluster = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def message_of(found: Any) -> Message:
    return Message(found.topic(), found.key(), found.value(), tuple(found.headers() or ()))
