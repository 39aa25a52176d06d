"""Records of changes, published to a sink: a broker, JSON lines, or a class of yours.

    consumer     ``publishing``: makes records of events, publishes them, and commits what is acknowledged
    records      ``DebeziumMessages``: makes records as the Scylla CDC source connector does
    lines        ``JsonLines``: the publisher to files of JSON lines

``rscylla.abc.Publisher`` is what a sink implements, and ``rscylla.testing.contracts.PublisherContract`` tests it;
``examples/avro_files.py`` and ``examples/redis_streams.py`` are two. See docs/kafka.md.
"""

from ..abc import Message, PublishDone, Publisher
from .consumer import DeadLetter, Messages, publishing
from .lines import JsonLines
from .records import DebeziumMessages

__all__ = [
    "DeadLetter",
    "DebeziumMessages",
    "JsonLines",
    "Message",
    "Messages",
    "PublishDone",
    "Publisher",
    "publishing",
]
