"""Changes of ScyllaDB in Kafka: what the Scylla CDC source connector does, without Kafka Connect.

    connector    ``Connector``: tables to topics, as the connector's properties say; lanes: each table's, or slice's
    config/      ``Properties``: what they say, checked, and as librdkafka has it
    producer/    ``KafkaPublisher``: records to brokers; ``TransactionalPublisher``: with their cursors, in transactions
    cursors/     ``KafkaCursorStore``; positions of snapshots; the offsets of the Java connector
    snapshots/   ``Snapshots``: the rows of base tables, before their changes or beside them
    heartbeats   records that say that a connector runs; letters: those that can never be sent

The order of records is that of the stream (``rscylla.cdc.rows``): nothing here changes it.
Needs the extra ``kafka``. See docs/kafka.md.
"""

from .config.client import producer_config
from .config.properties import PROPERTIES, Finding, Properties, Property
from .config.verdicts import verdicts
from .connector import Connector, connect_to, cursors_in_kafka
from .cursors.offsets import Takeover, offsets_of, read_file, read_topic, take_over
from .cursors.store import KafkaCursorStore
from .lanes import consumer_name
from .producer.publisher import KafkaPublisher
from .producer.topics import Topics
from .snapshots.snapshot import Snapshots, request

__all__ = [
    "PROPERTIES",
    "Connector",
    "Finding",
    "KafkaCursorStore",
    "KafkaPublisher",
    "Properties",
    "Property",
    "Snapshots",
    "Takeover",
    "Topics",
    "connect_to",
    "consumer_name",
    "cursors_in_kafka",
    "offsets_of",
    "producer_config",
    "read_file",
    "read_topic",
    "request",
    "take_over",
    "verdicts",
]
