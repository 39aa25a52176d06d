"""The broker of these tests: it keeps what it confirmed through kill -9, and ends with the process that started it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_broker import KafkaBroker
from waiting import eventually

kafka = pytest.importorskip("confluent_kafka")


def test_what_was_confirmed_outlives_kill_9(broker: KafkaBroker, topic: Callable[..., str]) -> None:
    name = topic(3)
    producer = kafka.Producer({"bootstrap.servers": broker.address, "acks": "all"})
    for number in range(30):
        producer.produce(name, key=str(number % 5), value=str(number))
    assert producer.flush(60) == 0

    broker.kill()
    broker.start()

    found = read_all(broker, name, 3)
    assert sorted(int(value) for _, value in found) == list(range(30))
    for key in range(5):
        assert [int(v) for k, v in found if k == str(key)] == list(range(key, 30, 5))


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv, which ties processes to another")
def test_the_broker_ends_with_a_process_that_is_killed(broker: KafkaBroker) -> None:
    file = Path(__file__).with_name("kafka_broker.py")
    with subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        address, pid = owner.stdout.readline().split()
        assert address != broker.address
        os.kill(int(pid), 0)
        owner.send_signal(signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes())


def read_all(broker: KafkaBroker, name: str, partitions: int) -> list[tuple[str, str]]:
    """Return keys and values of a topic, partition after partition, as a read_committed consumer sees them."""
    consumer = kafka.Consumer(
        {"bootstrap.servers": broker.address, "group.id": "none", "enable.partition.eof": True}
        | {"auto.offset.reset": "earliest", "enable.auto.commit": False, "isolation.level": "read_committed"}
    )
    found = []
    try:
        consumer.assign([kafka.TopicPartition(name, p, kafka.OFFSET_BEGINNING) for p in range(partitions)])
        ended: set[int] = set()
        while len(ended) < partitions:
            message = consumer.poll(60)
            assert message is not None, f"{name} is not read within a minute"
            if message.error() is None:
                found.append((message.key().decode(), message.value().decode()))
            elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    finally:
        consumer.close()
    return found
