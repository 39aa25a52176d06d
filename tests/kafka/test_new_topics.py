"""A new topic whose partitions are not ready: no row of a snapshot is lost, in either mode, on a real broker.

A proxy refuses the first request for each partition, when the second one is on its way, if the producer sends one.
"""

from __future__ import annotations

import json
import uuid

import pytest
from kafka_broker import KafkaBroker

pytest.importorskip("confluent_kafka")

from kafka_load import create_orders, read
from kafkaproxy import PRODUCE, Fault, KafkaProxy, Request
from prometheus_client import CollectorRegistry

from rscylla.clock import Stop
from rscylla.embedded import EmbeddedScylla
from rscylla.kafka import Connector, Properties

ROWS, PARTITIONS = 60, 2
WAIT_S = 0.5


class NotReady:
    """Faults: the first request for each partition of *topic* is refused."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.refused: set[int] = set()

    def __call__(self, request: Request) -> Fault:
        if request.api == PRODUCE:
            [(topic, partition)] = request.partitions()
            if topic == self._topic and partition not in self.refused:
                self.refused.add(partition)
                return Fault("refuse", WAIT_S)
        return Fault()


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize("support", ["required", "requested"])
def test_no_row_is_lost_while_partitions_are_not_ready(broker: KafkaBroker, support: str, in_flight: int) -> None:
    prefix = f"new{uuid.uuid4().hex[:8]}"
    topic = f"{prefix}.shop.orders"
    with EmbeddedScylla() as scylla, KafkaProxy(broker.proxied, broker.behind, NotReady(topic)) as proxy:
        session = scylla.connect()
        create_orders(session)
        for n in range(ROWS):
            session.execute("INSERT INTO shop.orders (id, n) VALUES (%s, %s)", (n, n))
        given = {
            "topic.prefix": prefix,
            "scylla.cluster.ip.addresses": f"{scylla.contact_points[0]}:{scylla.port}",
            "scylla.table.names": "shop.orders",
            "bootstrap.servers": f"127.0.0.1:{broker.proxied}",
            "scylla.confidence.window.size": "1",
            "snapshot.mode": "initial_only",
            "exactly.once.support": support,
            "rscylla.store.topic": f"{prefix}.cursors",
            "rscylla.store.keyspace": "shop",
            "topic.creation.default.partitions": str(PARTITIONS),
            "topic.creation.default.replication.factor": "1",
            "producer.override.batch.size": "300",  # so that rows are in many requests
            "producer.override.max.in.flight.requests.per.connection": str(in_flight),
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        }
        connector = Connector(Properties.of(given), session, to_head=True, registry=CollectorRegistry())
        assert connector.run(Stop()) == 0
        session.cluster.shutdown()
    assert proxy.counts["refuse"] == PARTITIONS
    rows = [json.loads(message.key())["id"] for message in read(broker, topic)]
    assert set(rows) == set(range(ROWS))
    if support == "required" or in_flight == 1:
        assert len(rows) == ROWS
