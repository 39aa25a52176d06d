"""Transactions whose requests are late, lost, carried out twice, or not answered: each record is seen once, in order.

A proxy stands between the producer and a real broker. ``RSCYLLA_KAFKA_ENDS`` says how many seeds are tried, or which
ones, ``FROM:TO``; 3 unless told.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kafka_broker import KafkaBroker

pytest.importorskip("confluent_kafka")

from bulkstream import BulkStream
from kafka_load import read
from kafkaproxy import ADD_PARTITIONS, END_TXN, INIT_PRODUCER, PRODUCE, KafkaProxy, seeded
from prometheus_client import CollectorRegistry

from cursorstore import IntCursorCodec
from rscylla.abc import Message
from rscylla.errors import HeadReached, RscyllaError
from rscylla.event import Event, SimpleEvent
from rscylla.kafka import KafkaCursorStore
from rscylla.options import StreamToHead
from rscylla.publish import publishing
from rscylla.reflex import Spec, run

RECORDS, KEYS, PARTITIONS = 150, 7, 3
OFTEN = {END_TXN: 0.4, ADD_PARTITIONS: 0.2, INIT_PRODUCER: 0.1, PRODUCE: 0.02}
LONG_S = 180

FIRST, _, AFTER = os.environ.get("RSCYLLA_KAFKA_ENDS", "3").rpartition(":")
SEEDS = range(int(FIRST or 0), int(AFTER))


@pytest.fixture(scope="module")
def proxy(broker: KafkaBroker) -> Iterator[KafkaProxy]:
    with KafkaProxy(broker.proxied, broker.behind) as proxy:
        yield proxy


def publish_all(config: dict[str, Any], topic: str) -> int:
    """Publish all records in transactions of some records each; return how often a run failed, and began again."""
    at = datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)
    stream = BulkStream([SimpleEvent(str(n), 1, "{}", at, b"") for n in range(1, RECORDS + 1)])

    def messages(event: Event) -> list[Message]:
        return [Message(topic, b"%d" % (int(event.id) % KEYS), event.id.encode())]

    store = KafkaCursorStore(config, f"{topic}.cursors", codec=IntCursorCodec(), interval=timedelta(milliseconds=50))
    deadline, failed = time.monotonic() + LONG_S, 0
    consumer = publishing("c", messages, store.publisher("c"), max_unacknowledged=5, registry=CollectorRegistry())
    try:
        while True:
            try:
                run(Spec(stream, store, consumer, StreamToHead(), registry=CollectorRegistry()))
            except HeadReached:
                return failed
            except RscyllaError as error:
                if not error.resumable or time.monotonic() > deadline:
                    raise
                failed += 1
    finally:
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_to_requests_of_transactions_each_record_is_seen_once(
    broker: KafkaBroker, proxy: KafkaProxy, seed: int
) -> None:
    topic = f"ends{uuid.uuid4().hex[:8]}"
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.address})
    new = [NewTopic(topic, PARTITIONS, 1), NewTopic(f"{topic}.cursors", 1, 1, config={"cleanup.policy": "compact"})]
    for made in admin.create_topics(new).values():
        made.result(LONG_S)
    proxy.counts.clear()
    proxy.faults = seeded(seed, OFTEN)
    config = {"bootstrap.servers": f"127.0.0.1:{broker.proxied}", "log_level": 0, "reconnect.backoff.ms": 10}
    failed = publish_all(config, topic)
    print(f"seed {seed}: {dict(proxy.counts)}, {failed} runs failed")
    by_key: dict[bytes, list[int]] = {}
    for message in read(broker, topic):
        by_key.setdefault(message.key(), []).append(int(message.value()))
    seen = Counter(number for numbers in by_key.values() for number in numbers)
    assert [n for n in range(1, RECORDS + 1) if not seen[n]] == []
    assert [n for n, times in seen.items() if times > 1] == []
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert proxy.counts.keys() > {"pass"}
