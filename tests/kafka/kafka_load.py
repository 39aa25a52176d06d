"""What tests put on a connector: writes of numbered changes, and what a consumer of the topic sees of them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka as kafka
from kafka_broker import KafkaBroker

import rscylla

__all__ = ["Reader", "Running", "Writer", "create_orders", "read"]

LONG_S = 180
POLL_S = 60.0


class Running:
    """What ``Reader`` needs to know of a process."""

    def poll(self) -> int | None: ...


def create_orders(session: rscylla.Session) -> None:
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, n int) WITH cdc = {'enabled': true}")


class Writer(threading.Thread):
    """Writes numbered changes of some orders until its stop is set. The first *rows* are written at once, one a key."""

    def __init__(self, session: rscylla.Session, *, keys: int, rows: int = 0, pause_s: float = 0.005) -> None:
        super().__init__(daemon=True)
        self.stop = rscylla.Stop()
        self.written = rows
        self._keys = keys
        self._pause_s = pause_s
        self._session = session
        self._insert = session.prepare("INSERT INTO shop.orders (id, n) VALUES (?, ?)")
        for n in range(rows):
            session.execute(self._insert, (n, n))

    def run(self) -> None:
        while not self.stop.wait(self._pause_s):
            self._session.execute(self._insert, (self.written % self._keys, self.written))
            self.written += 1

    def end(self) -> None:
        self.stop.set()
        if self.ident is not None:
            self.join()


class Reader:
    """What a topic has, as a consumer sees it that stays while the broker comes and goes.

    ``records`` are (key, op, number), ``sources`` the key and the time of the change in each of them.
    """

    def __init__(self, broker: KafkaBroker, topic: str, partitions: int, *, level: str | None = None) -> None:
        self.records: list[tuple[int, str, int]] = []
        self.sources: list[tuple[int, int]] = []
        self.numbers: set[int] = set()
        config = {"bootstrap.servers": broker.address, "group.id": topic, "enable.auto.commit": False, "log_level": 0}
        config |= {"reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 200, "fetch.wait.max.ms": 50}
        self._consumer = kafka.Consumer({**config, "isolation.level": level or "read_uncommitted"})
        self._consumer.assign([kafka.TopicPartition(topic, p, kafka.OFFSET_BEGINNING) for p in range(partitions)])

    def until(self, condition: Callable[[], bool], *connectors: Running) -> None:
        """Read until *condition* holds, while *connectors* run."""
        deadline = time.monotonic() + LONG_S
        while not condition():
            assert all(each.poll() is None for each in connectors), "a connector ended by itself"
            missing = sorted(set(range(max(self.numbers, default=0))) - self.numbers)
            told = f"{len(self.records)} records to {max(self.numbers, default=0)} without {missing[:20]}"
            assert time.monotonic() < deadline, f"not within {LONG_S} s: {told}"
            self.read()

    def more(self, count: int, *connectors: Running) -> None:
        """Read *count* records more."""
        wanted = len(self.records) + count
        self.until(lambda: len(self.records) >= wanted, *connectors)

    def read(self) -> None:
        for message in self._consumer.consume(1000, 0.1):
            if message.error() is None:
                value = json.loads(message.value() or b"")
                key, number = json.loads(message.key() or b"")["id"], value["after"]["n"]["value"]
                self.records.append((key, value["op"], number))
                self.sources.append((key, value["source"]["ts_us"]))
                self.numbers.add(number)

    def has_all_keys_from(self, number: int, keys: int) -> bool:
        """Return whether each key has a record of a change from *number* on."""
        return len({key for key, _, found in self.records if found >= number}) == keys

    def by_key(self) -> dict[int, Sequence[int]]:
        """Return the numbers of each key, as they came."""
        found: dict[int, list[int]] = {}
        for key, _, number in self.records:
            found.setdefault(key, []).append(number)
        return {**found}

    def close(self) -> None:
        self._consumer.close()


def read(broker: KafkaBroker, topic: str) -> list[Any]:
    """Return the records of a topic, partition after partition."""
    consumer = kafka.Consumer(
        {"bootstrap.servers": broker.address, "group.id": "none", "enable.partition.eof": True, "log_level": 2}
        | {"enable.auto.commit": False, "isolation.level": "read_committed"}
    )
    found = []
    try:
        left = set(consumer.list_topics(topic, POLL_S).topics[topic].partitions)
        consumer.assign([kafka.TopicPartition(topic, p, kafka.OFFSET_BEGINNING) for p in left])
        while left:
            message = consumer.poll(POLL_S)
            assert message is not None, f"{topic} is not read within a minute"
            if message.error() is None:
                found.append(message)
            elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    finally:
        consumer.close()
    return found
