"""Offsets that Kafka Connect itself writes, to a file and to a topic, and how they are read."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from kafka_broker import KafkaBroker

from rscylla.errors import ConfigError
from rscylla.kafka.cursors.offsets import Entries, connectors_of, offsets_of, read_file, read_topic

PARTITION = "keyspace_name=ks,table_name=t,vnode_id={},generation_start=1768471200000"
WINDOW = "window_start=f4385000-f1f8-11f0-8080-808080808080,window_end=911d8fff-0429-11f1-7f7f-7f7f7f7f7f7f"
LATER = "window_start=67cd5000-3abb-11f1-8080-808080808080,window_end=04b28fff-4cec-11f1-7f7f-7f7f7f7f7f7f"
LINES = [
    *(f"{PARTITION.format(vnode)}\t{WINDOW}" for vnode in range(20)),
    f"{PARTITION.format(3)}\t{LATER}",
    f"{PARTITION.format(4)}\t",  # as an offset is deleted
]


def write(broker: KafkaBroker, where: str, lines: Path) -> None:
    broker.java(str(Path(__file__).with_name("WriteOffsets.java")), where, "orders", str(lines))


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines"
    file.write_text("".join(f"{line}\n" for line in LINES))
    return file


def check(entries: Entries) -> None:
    assert connectors_of(entries) == ["orders"]
    found = {offset.task: offset.window_us for offset in offsets_of(entries, "orders")}
    assert sorted(found) == [n for n in range(20) if n != 4]
    assert {task for task, us in found.items() if us != found[0]} == {3}
    assert found[3] > found[0] == 1_768_471_200_000_000


def test_a_file(broker: KafkaBroker, lines: Path, tmp_path: Path) -> None:
    file = tmp_path / "connect.offsets"
    write(broker, str(file), lines)
    check(read_file(file))


def test_a_topic(broker: KafkaBroker, lines: Path) -> None:
    topic = f"connect-{uuid.uuid4().hex[:8]}"
    write(broker, f"{broker.address}/{topic}", lines)
    check(read_topic(topic, {"bootstrap.servers": broker.address}))


def test_a_topic_that_is_not_there(broker: KafkaBroker) -> None:
    with pytest.raises(ConfigError, match="there is no topic 'nowhere'; give the one that"):
        read_topic("nowhere", {"bootstrap.servers": broker.address})


def test_a_property_that_is_not_known(broker: KafkaBroker) -> None:
    with pytest.raises(ConfigError, match=r"are not accepted: .*no\.such"):
        read_topic("t", {"bootstrap.servers": broker.address, "no.such": "1"})
