"""The connector is killed with SIGKILL under load again and again: no record is lost, and each key keeps its order."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mockkafka import MockKafka
from orderwriter import OrderWriter

import rscylla
from rscylla.embedded import EmbeddedScylla

KEYS = 40
KILLS = 10


@pytest.fixture
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla() as server:
        yield server


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka(partitions=3) as cluster:
        cluster.create("demo.shop.orders")
        yield cluster


class Reader:
    """What is in the topic: numbers by key, in the order of the partitions."""

    def __init__(self, kafka: MockKafka) -> None:
        self._kafka = kafka

    def numbers(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for message in self._kafka.read("demo.shop.orders"):
            key, value = json.loads(message.key or b""), json.loads(message.value or b"")
            found.setdefault(key["id"], []).append(value["after"]["n"]["value"])
        return found

    def await_more(self, connector: subprocess.Popen[Any], than: int) -> int:
        """Wait until there are more than so many records, and return how many."""
        for _ in range(1200):
            count = sum(map(len, self.numbers().values()))
            if count > than:
                return count
            assert connector.poll() is None, "it ended by itself"
            rscylla.Stop().wait(0.05)
        raise AssertionError("nothing came for a minute")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_nothing_is_lost_and_keys_keep_their_order_over_kills(
    scylla: EmbeddedScylla, kafka: MockKafka, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = tmp_path / "connector.properties"
    file.write_text(
        f"topic.prefix=demo\nscylla.cluster.ip.addresses={scylla.contact_points[0]}:{scylla.port}\n"
        f"scylla.table.names=shop.orders\nbootstrap.servers={kafka.servers}\nscylla.confidence.window.size=100\n"
        "key.converter.schemas.enable=false\nvalue.converter.schemas.enable=false\n"
    )
    command = [sys.executable, "-c", "from rscylla.cli import main; main()", "kafka", "run", str(file)]
    writer, reader, dice = OrderWriter(scylla, keys=KEYS, pause_s=0.002), Reader(kafka), random.Random(7)
    writer.start()
    request.addfinalizer(writer.end)
    count = 0
    for kill in range(KILLS + 1):
        connector = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            count = reader.await_more(connector, count + dice.randrange(300))
            if kill < KILLS:
                connector.send_signal(signal.SIGKILL)
                continue
            writer.end()
            while sum(len(set(numbers)) for numbers in reader.numbers().values()) < writer.written:
                assert connector.poll() is None, "it ended by itself"
                rscylla.Stop().wait(0.05)
            connector.send_signal(signal.SIGTERM)
            assert connector.wait(60) == 0
        finally:
            connector.kill()
            _, err = connector.communicate()
            assert "Traceback" not in err
    found = reader.numbers()
    assert set().union(*found.values()) == set(range(writer.written))
    for key, numbers in found.items():
        firsts = list(dict.fromkeys(numbers))
        assert firsts == sorted(firsts), f"key {key} is out of order"
