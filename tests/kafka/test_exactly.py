"""Exactly-once mode on a real broker: a consumer in read_committed sees each change once, whatever is killed.

``RSCYLLA_KAFKA_KILLS`` says how often the connector is killed, 50 times unless told.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_broker import KafkaBroker

pytest.importorskip("confluent_kafka")

from forking import Forking
from kafka_load import Reader, Writer, create_orders

from rscylla.embedded import EmbeddedScylla

KEYS, PARTITIONS = 40, 3
KILLS = int(os.environ.get("RSCYLLA_KAFKA_KILLS", "50"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_change_is_seen_once_over_kills(broker: KafkaBroker, topic: Callable[..., str], tmp_path: Path) -> None:
    prefix = topic()  # a name that no other test has
    dice = random.Random(14)
    file, log = tmp_path / "connector.properties", tmp_path / "connector.log"
    paused = None
    with EmbeddedScylla() as scylla, Forking() as forking:
        file.write_text(
            f"topic.prefix={prefix}\nscylla.cluster.ip.addresses={scylla.contact_points[0]}:{scylla.port}\n"
            f"scylla.table.names=shop.orders\nbootstrap.servers={broker.address}\nscylla.confidence.window.size=1000\n"
            "exactly.once.support=required\ntransaction.boundary.interval.ms=100\n"
            f"rscylla.store.topic={prefix}.cursors\nworker.max.retries=-1\nworker.maximum.backoff=200\n"
            f"topic.creation.default.partitions={PARTITIONS}\ntopic.creation.default.replication.factor=1\n"
            "key.converter.schemas.enable=false\nvalue.converter.schemas.enable=false\n"
        )
        session = scylla.connect()
        create_orders(session)
        writer = Writer(session, keys=KEYS, pause_s=0.01)
        reader = Reader(broker, f"{prefix}.shop.orders", PARTITIONS, level="read_committed")
        writer.start()
        connector = forking.start(log, "kafka", "run", str(file))
        try:
            for turn in range(KILLS):
                reader.more(dice.randrange(1, 60), connector)
                if turn % 17 == 8:  # its transaction is open, or about to be committed
                    broker.kill()
                    broker.start()
                    reader.more(20, connector)
                if turn % 7 == 3:  # one that has stopped, and goes on while its successor publishes
                    connector.send_signal(signal.SIGSTOP)
                    paused, connector = connector, forking.start(log, "kafka", "run", str(file))
                    reader.more(20, connector)
                    paused.send_signal(signal.SIGCONT)
                    reader.more(20, connector, paused)
                    paused.kill()
                connector.kill()
                connector = forking.start(log, "kafka", "run", str(file))
            writer.end()
            reader.until(lambda: len(reader.records) >= writer.written, connector)
            connector.send_signal(signal.SIGTERM)
            assert connector.wait() == 0
            connector = forking.start(log, "kafka", "run", str(file))  # and what the last one left is no change more
            for _ in range(20):
                reader.read()
        finally:
            writer.end()
            reader.close()
            connector.kill()
            if paused is not None:
                paused.kill()
    assert sorted(number for *_, number in reader.records) == list(range(writer.written))
    assert all(list(numbers) == sorted(numbers) for numbers in reader.by_key().values())
    assert "Traceback" not in log.read_text()
