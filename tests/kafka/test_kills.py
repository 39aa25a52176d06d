"""The connector and the broker are killed with SIGKILL under load: no record is lost, and each key keeps its order."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_broker import KafkaBroker

import rscylla
from rscylla.embedded import EmbeddedScylla

kafka = pytest.importorskip("confluent_kafka")

KEYS, ROWS, PARTITIONS, KILLS = 40, 100, 3, 5
LONG_S = 120

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Writer(threading.Thread):
    """Writes numbered changes of some orders until its stop is set."""

    def __init__(self, session: rscylla.Session) -> None:
        super().__init__(daemon=True)
        self.stop = rscylla.Stop()
        self.written = ROWS
        self._session = session
        self._insert = session.prepare("INSERT INTO shop.orders (id, n) VALUES (?, ?)")
        for n in range(ROWS):  # found by the snapshot; those of the same keys that follow are changes
            session.execute(self._insert, (n, n))

    def run(self) -> None:
        while not self.stop.wait(0.005):
            self._session.execute(self._insert, (self.written % KEYS, self.written))
            self.written += 1

    def end(self) -> None:
        self.stop.set()
        if self.ident is not None:
            self.join()


class Reader:
    """What a topic has, as a consumer sees it that stays while the broker comes and goes: (key, op, number)."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self.records: list[tuple[int, str, int]] = []
        self._consumer = kafka.Consumer(
            {"bootstrap.servers": broker.address, "group.id": topic, "enable.auto.commit": False, "log_level": 0}
            | {"reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 200}
        )
        self._consumer.assign([kafka.TopicPartition(topic, p, kafka.OFFSET_BEGINNING) for p in range(PARTITIONS)])

    def until(self, condition: Callable[[], bool], connector: subprocess.Popen[str]) -> None:
        """Read until *condition* holds."""
        deadline = time.monotonic() + LONG_S
        while not condition():
            assert connector.poll() is None, "the connector ended by itself"
            assert time.monotonic() < deadline, f"not within {LONG_S} s, with {len(self.records)} records"
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    value = json.loads(message.value())
                    given = json.loads(message.key())["id"], value["op"], value["after"]["n"]["value"]
                    self.records.append(given)

    def close(self) -> None:
        self._consumer.close()


def test_nothing_is_lost_over_kills_of_connector_and_broker(
    broker: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    prefix = topic()  # a name that no other test has
    dice = random.Random(3)
    name = f"{prefix}.shop.orders"
    file = tmp_path / "connector.properties"
    log = tmp_path / "connector.log"
    with EmbeddedScylla() as scylla:
        file.write_text(
            f"topic.prefix={prefix}\nscylla.cluster.ip.addresses={scylla.contact_points[0]}:{scylla.port}\n"
            f"scylla.table.names=shop.orders\nbootstrap.servers={broker.address}\nscylla.confidence.window.size=200\n"
            "snapshot.mode=initial\nrscylla.snapshot.rows.per.second=100\n"
            f"topic.creation.default.partitions={PARTITIONS}\ntopic.creation.default.replication.factor=1\n"
            "key.converter.schemas.enable=false\nvalue.converter.schemas.enable=false\n"
        )
        session = scylla.connect()
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, n int) WITH cdc = {'enabled': true}")
        writer = Writer(session)
        reader = Reader(broker, name)
        records = reader.records
        command = [sys.executable, "-c", "from rscylla.cli import main; main()", "kafka", "run", str(file)]
        try:
            for turn in range(KILLS + 1):
                with log.open("a") as err:
                    connector = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, text=True)
                try:
                    if not turn:  # while the snapshot is taken; its cursor is before all that is written from now on
                        reader.until(lambda: bool(records), connector)
                        writer.start()
                    more = len(records) + dice.randrange(20, 60)
                    reader.until(lambda more=more: len(records) >= more, connector)  # type: ignore[misc]
                    if turn % 3 == 1:  # in the middle of it, with records on their way
                        broker.kill()
                        broker.start()
                        more = len(records) + 50
                        reader.until(lambda more=more: len(records) >= more, connector)  # type: ignore[misc]
                    if turn == KILLS:
                        writer.end()
                        reader.until(
                            lambda: set(range(ROWS, writer.written)) <= {number for *_, number in records}, connector
                        )
                        connector.send_signal(signal.SIGTERM)
                        assert connector.wait(60) == 0
                finally:
                    connector.kill()
                    connector.wait()
        finally:
            writer.end()
            reader.close()
        rows = {row.id: row.n for row in session.execute("SELECT id, n FROM shop.orders")}
    assert "Traceback" not in log.read_text()
    assert {
        key: number for key, _, number in records
    } == rows  # the last of each; those without changes by the snapshot
    changes: dict[int, list[int]] = {}
    for key, op, number in records:
        if op != "r" and number not in changes.setdefault(key, []):  # a repeat; what follows it is, too
            changes[key].append(number)
    assert all(each == sorted(each) for each in changes.values())
