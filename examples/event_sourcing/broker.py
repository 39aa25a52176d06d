"""Where events go for the rest of the company: Kafka at an address, or a mock of it in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

__all__ = ["mock_broker"]


@contextmanager
def mock_broker(brokers: int = 1) -> Iterator[str]:
    """Run the mock cluster of librdkafka on loopback, and yield its addresses. It forgets all when it ends.

    Any client of this machine can produce to it and consume from it; topics come into being when they are used.
    """
    # The client that has the cluster, and does nothing else: it must outlive all others.
    owner = Producer({"test.mock.num.brokers": brokers, "log_level": 2})
    found = owner.list_topics(timeout=10.0).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in found)
    owner.flush(0)
