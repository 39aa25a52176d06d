"""The connector and the broker are killed with SIGKILL under load: no record is lost, and each key keeps its order."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_broker import KafkaBroker

pytest.importorskip("confluent_kafka")

from kafka_load import Reader, Writer, create_orders

from rscylla.embedded import EmbeddedScylla

KEYS, ROWS, PARTITIONS, KILLS = 40, 100, 3, 5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


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
        create_orders(session)
        writer = Writer(session, keys=KEYS, rows=ROWS)
        reader = Reader(broker, name, PARTITIONS)
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
                    reader.more(dice.randrange(20, 60), connector)
                    if turn % 3 == 1:  # in the middle of it, with records on their way
                        broker.kill()
                        broker.start()
                        reader.more(50, connector)
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
