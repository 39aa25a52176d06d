"""What publishing a change to Kafka costs: records a second, and CPU time of the client a record.

The connector, as ``rscylla kafka run`` runs it, reads a full log of the embedded server and publishes into librdkafka's
mock cluster; each of the three is a process of its own. CPU time is that of the whole connector process: reading,
making records, librdkafka's threads. Formats take turns, round by round.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from peers.shapes import KEYSPACE, SHAPES, fill

import rscylla
from cursorstore import MemoryCursorStore
from rscylla.embedded import EmbeddedScyllaProcess
from rscylla.kafka import Connector, Properties, connect_to

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
FORMATS = {
    "legacy JSON": {"cdc.output.format": "legacy", **PLAIN},
    "advanced JSON": {"cdc.output.format": "advanced", **PLAIN},
    "legacy JSON with schemas": {"cdc.output.format": "legacy"},
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
    connector = Connector(properties, session, store_of=lambda keyspace: MemoryCursorStore(), to_head=True)
    cpu, wall = time.process_time(), time.perf_counter()
    connector.run(rscylla.Stop())
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps([cpu / config["changes"] * 1e6, wall / config["changes"] * 1e6]), flush=True)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-connector"]:
        connect_and_publish(json.loads(sys.argv[2]))
    else:
        main()
