"""Three processes of a group on a real broker are killed, and the broker is: nothing is lost, keys keep their order."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_broker import KafkaBroker

pytest.importorskip("confluent_kafka")

from forking import Fork, Forking
from kafka_load import Reader, Writer, create_orders

from rscylla.embedded import EmbeddedScylla

KEYS, PARTITIONS, SLICES, KILLS = 40, 3, 6, 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("mode", ["requested", "required"])
def test_processes_that_share_the_keys_are_killed(
    broker: KafkaBroker, topic: Callable[..., str], tmp_path: Path, mode: str
) -> None:
    prefix = topic()  # a name that no other test has
    dice = random.Random(7)
    file, worker, log = (tmp_path / name for name in ("connector.properties", "worker.properties", "log.txt"))
    with EmbeddedScylla() as scylla, Forking() as forking:
        file.write_text(
            f"topic.prefix={prefix}\nscylla.cluster.ip.addresses={scylla.contact_points[0]}:{scylla.port}\n"
            "scylla.table.names=shop.orders\nscylla.confidence.window.size=2000\n"
            f"exactly.once.support={mode}\ntransaction.boundary.interval.ms=200\nrscylla.store.topic={prefix}.cursors\n"
            f"rscylla.group={prefix}\nrscylla.group.slices={SLICES}\nrscylla.store.keyspace=shop\n"
            "worker.max.retries=-1\nworker.maximum.backoff=200\n"
            f"topic.creation.default.partitions={PARTITIONS}\ntopic.creation.default.replication.factor=1\n"
        )
        worker.write_text(
            f"bootstrap.servers={broker.address}\nkey.converter=org.apache.kafka.connect.json.JsonConverter\n"
            "value.converter=org.apache.kafka.connect.json.JsonConverter\nkey.converter.schemas.enable=false\n"
            "value.converter.schemas.enable=false\n"
        )

        def start() -> Fork:
            return forking.start(log, "kafka", "run", str(file), "--worker", str(worker))

        session = scylla.connect()
        create_orders(session)
        writer = Writer(session, keys=KEYS, pause_s=0.02)
        reader = Reader(
            broker, f"{prefix}.shop.orders", PARTITIONS, level="read_committed" if mode == "required" else None
        )
        writer.start()
        processes = [start() for _ in range(3)]
        try:
            for turn in range(KILLS):
                reader.more(100, *processes)
                killed = dice.randrange(3)
                processes[killed].kill()
                if turn % 2:
                    broker.kill()
                    broker.start()
                # Its slices go to the others once its membership is over, and back when it is there again.
                seen = writer.written
                reader.until(lambda seen=seen: reader.has_all_keys_from(seen, KEYS))  # type: ignore[misc]
                processes[killed] = start()
            reader.until(lambda: log.read_text().count("has joined") == 3 + KILLS, *processes)
            writer.end()
            reader.until(lambda: set(range(writer.written)) <= reader.numbers, *processes)
            for process in processes:
                process.terminate()
            assert [process.wait() for process in processes] == [0, 0, 0]
            for _ in range(20):
                reader.read()
        finally:
            writer.end()
            reader.close()
            for process in processes:
                process.kill()
    numbers = [number for *_, number in reader.records]
    if mode == "required":
        assert sorted(numbers) == list(range(writer.written))
    # Of one key, each change has a time of its own: with the key, it tells repeats.
    assert len(set(reader.sources)) == len(set(numbers)) == writer.written
    assert len(set(zip(reader.sources, numbers, strict=True))) == writer.written
    assert all(first == sorted(first) for first in map(list, map(dict.fromkeys, reader.by_key().values())))
    assert "Traceback" not in log.read_text()
