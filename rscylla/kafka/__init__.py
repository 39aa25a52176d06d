"""Changes of ScyllaDB in Kafka: what the Scylla CDC source connector does, without Kafka Connect.

    publisher    ``KafkaPublisher``: records to brokers

Needs the extra ``kafka``. See docs/kafka.md.
"""

from .publisher import KafkaPublisher

__all__ = ["KafkaPublisher"]
