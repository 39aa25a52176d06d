"""Changes of ScyllaDB in Kafka: what the Scylla CDC source connector does, without Kafka Connect.

    connector    ``Connector``: tables to topics, as the connector's properties say
    properties   ``Properties``: what they say, checked; reading: files; redaction: texts without their secrets
    publisher    ``KafkaPublisher``: records to brokers
    exactly      ``TransactionalPublisher``: records, and cursors, in transactions; cursors: ``KafkaCursorStore``
    verdicts     what is wrong with properties, for rscylla and for the Java connector
    snapshot     ``Snapshots``: the rows of base tables, before their changes or beside them
    positions    how far snapshots are; beside: how rows keep their place among changes
    offsets      the offsets of the Java connector, as cursors
    client       names of Java's producer as those of librdkafka; stores: files of TLS; topics: topics are created

Needs the extra ``kafka``. See docs/kafka.md.
"""

from .config.client import producer_config
from .config.properties import PROPERTIES, Finding, Properties, Property
from .config.verdicts import verdicts
from .connector import Connector, connect_to, consumer_name, cursors_in_kafka
from .cursors.offsets import Takeover, offsets_of, read_file, read_topic, take_over
from .cursors.store import KafkaCursorStore
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
