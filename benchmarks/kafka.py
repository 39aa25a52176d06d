"""What publishing a change to Kafka costs: records a second, and CPU time of the client a record.

The connector, as ``rscylla kafka run`` runs it, reads a full log of the embedded server and publishes into librdkafka's
mock cluster; each of the three is a process of its own. CPU time is that of the whole connector process: reading,
making records, publishing with librdkafka's threads, the cursor; from a third to nine tenths of the changes, so that
neither the start nor the end of the process is in it. Formats take turns, round by round.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from peers.shapes import KEYSPACE, SHAPES, fill

import rscylla
from cursorstore import MemoryCursorStore
from rscylla.embedded import EmbeddedScyllaProcess
from rscylla.kafka import Connector, KafkaPublisher, Properties, connect_to
from rscylla.kafka.config.client import producer_config
from rscylla.publish import Message, PublishDone

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
REGISTRY = {f"{half}.converter.schema.registry.url": "mock://bench" for half in ("key", "value")}


def converted(name: str) -> dict[str, str]:
    return REGISTRY | {f"{half}.converter": f"io.confluent.connect.{name}" for half in ("key", "value")}


IMAGES = {"cdc.output.format": "advanced", "cdc.include.before": "full", "cdc.include.after": "full"}
LEGACY = {"cdc.output.format": "legacy"}
FORMATS = {
    "legacy JSON": LEGACY | PLAIN,
    "legacy JSON with schemas": LEGACY,
    "legacy Avro": LEGACY | converted("avro.AvroConverter"),
    "legacy JSON Schema": LEGACY | converted("json.JsonSchemaConverter"),
    "advanced JSON": IMAGES | PLAIN,
    "advanced JSON with schemas": IMAGES,
    "advanced Avro": IMAGES | converted("avro.AvroConverter"),
    "advanced JSON Schema": IMAGES | converted("json.JsonSchemaConverter"),
}

MOCK = """
import sys
from confluent_kafka import Producer
cluster = Producer({"test.mock.num.brokers": 1, "log_level": 2})
brokers = cluster.list_topics(timeout=10).brokers.values()
print(",".join(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
sys.stdin.read()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", nargs="+", default=["narrow"], choices=list(SHAPES))
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=list(FORMATS))
    args = parser.parse_args()
    with EmbeddedScyllaProcess(vnodes=4) as scylla, mock() as servers:
        address = f"{scylla.contact_points[0]}:{scylla.port}"
        session = rscylla.connect([address])
        for shape in args.shapes:
            log = fill(session, SHAPES[shape], args.rows)
            passes: dict[str, list[tuple[float, float]]] = {name: [] for name in args.formats}
            for number in range(args.rounds):
                for name in args.formats:
                    config = {"table": log.table, "address": address, "servers": servers, "format": name}
                    passes[name].append(measured(config | {"changes": log.changes, "round": number}))
            print(f"{shape}: {log.changes} changes, median of {args.rounds} rounds")
            for name, found in passes.items():
                cpu_us, wall_us = (median(column) for column in zip(*found, strict=True))
                spread = max(cpu for cpu, _ in found) / min(cpu for cpu, _ in found)
                cost = f"{cpu_us:6.2f} us of CPU a record (spread {spread:.2f})"
                print(f"  {name:26} {cost}, {1e6 / wall_us:9,.0f} records/s")
        session.cluster.shutdown()


@contextmanager
def mock() -> Iterator[str]:
    """Run the mock cluster in a process; yield its addresses."""
    child = subprocess.Popen([sys.executable, "-c", MOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield child.stdout.readline().strip()
    finally:
        child.stdin.close()
        child.wait()


def measured(config: dict[str, Any]) -> tuple[float, float]:
    """Run the connector over the log in a process of its own; return CPU and wall time a record in microseconds."""
    done = subprocess.run(
        [sys.executable, __file__, "--as-connector", json.dumps(config)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    cpu_us, wall_us = json.loads(done.stdout.splitlines()[-1])
    return cpu_us, wall_us


class Timed(KafkaPublisher):
    """Notes CPU and wall time when a third and when nine tenths of *changes* records are acknowledged."""

    def __init__(self, config: dict[str, Any], changes: int) -> None:
        super().__init__(config)
        self.acknowledged = 0
        self.marks = [changes // 3, changes * 9 // 10]
        self.passed: list[tuple[int, float, float]] = []

    def publish(self, messages: Sequence[Message], done: PublishDone) -> None:
        def counted(error: Exception | None) -> None:
            if error is None:
                self.acknowledged += len(messages)
            if self.marks and self.acknowledged >= self.marks[0]:
                self.marks.pop(0)
                self.passed.append((self.acknowledged, time.process_time(), time.perf_counter()))
            done(error)

        super().publish(messages, counted)


def connect_and_publish(config: dict[str, Any]) -> None:
    properties = Properties.of(
        {
            "topic.prefix": f"{config['format'].replace(' ', '_')}_{config['round']}",
            "scylla.cluster.ip.addresses": config["address"],
            "scylla.table.names": f"{KEYSPACE}.{config['table']}",
            "bootstrap.servers": config["servers"],
            "scylla.confidence.window.size": "1",
            "heartbeat.interval.ms": "0",
            **FORMATS[config["format"]],
        }
    )
    session = connect_to(properties)
    publisher = Timed(producer_config(properties)[0], config["changes"])
    stores = {"store_of": lambda keyspace: MemoryCursorStore()}
    Connector(properties, session, publisher=publisher, to_head=True, **stores).run(rscylla.Stop())
    (first, *since), (last, *until) = publisher.passed
    took = [1e6 * (end - start) / (last - first) for start, end in zip(since, until, strict=True)]
    print(json.dumps(took), flush=True)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-connector"]:
        connect_and_publish(json.loads(sys.argv[2]))
    else:
        main()
