"""What an operator does to a connector that runs in exactly-once mode, on a real broker."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_broker import KafkaBroker

pytest.importorskip("confluent_kafka")

from forking import Forking
from kafka_load import Reader, Writer, create_orders
from typer.testing import CliRunner

from rscylla.cli.app import app
from rscylla.embedded import EmbeddedScylla

ROWS = 20


def command(*arguments: str) -> list[str]:
    ran = CliRunner().invoke(app, list(arguments))
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.slow
def test_a_snapshot_and_a_reset_reach_the_connector_that_runs(
    broker: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    prefix = topic()
    file, log = tmp_path / "connector.properties", tmp_path / "connector.log"
    consumer = f"{prefix}.shop.orders"
    with EmbeddedScylla() as scylla, Forking() as forking:
        file.write_text(
            f"topic.prefix={prefix}\nscylla.cluster.ip.addresses={scylla.contact_points[0]}:{scylla.port}\n"
            f"scylla.table.names=shop.orders\nscylla.confidence.window.size=1000\nsignal.poll.interval.ms=100\n"
            "exactly.once.support=required\ntransaction.boundary.interval.ms=100\n"
            f"rscylla.store.topic={prefix}.cursors\nworker.maximum.backoff=200\n"
            "topic.creation.default.partitions=1\ntopic.creation.default.replication.factor=1\n"
            "key.converter.schemas.enable=false\nvalue.converter.schemas.enable=false\n"
        )
        session = scylla.connect()
        create_orders(session)
        Writer(session, keys=ROWS, rows=ROWS)
        reader = Reader(broker, consumer, 1, level="read_committed")
        of = ("--properties", str(file), "--bootstrap-servers", broker.address)
        connector = forking.start(log, "kafka", "run", str(file), of[2], of[3])
        try:
            reader.until(lambda: len(reader.records) == ROWS, connector)
            asked = command("kafka", "snapshot", "shop.orders", *of, "--reason", "a new index")
            assert asked == [f"{consumer}/snapshot"]
            reader.until(lambda: len(reader.records) == 2 * ROWS, connector)
            assert sorted(reader.records[ROWS:]) == [(n, "r", n) for n in range(ROWS)]
            command("cursor", "reset", consumer, "oldest", "--reason", "replay", *of)
            reader.until(lambda: len(reader.records) == 3 * ROWS, connector)
            assert sorted(reader.records[2 * ROWS :]) == [(n, "c", n) for n in range(ROWS)]
            connector.send_signal(signal.SIGTERM)
            assert connector.wait() == 0
        finally:
            reader.close()
            connector.kill()
        found = [json.loads(line) for line in command("cursor", "list", "--json", *of)]
        assert [(r["consumer"], r["reason"]) for r in found] == [
            (consumer, "replay"),
            (f"{consumer}/snapshot", "a new index"),
        ]
        assert all(r["cursor"] for r in found)  # both went on
    assert "Traceback" not in log.read_text()
