"""Records of changes, published to a sink: a broker, files, the standard output, or a class of yours.

    consumer     ``publishing``: makes records of events, publishes them, and commits what is acknowledged
    records      ``DebeziumMessages``: makes records as the Scylla CDC source connector does
    lines        ``JsonLines``: the publisher to files of JSON lines
    avrofiles    ``AvroFiles``: the publisher to Avro object container files
    redisstreams  ``RedisStreams``: the publisher to streams of Redis

``rscylla.abc.Publisher`` is what a sink implements, and ``rscylla.testing.contracts.PublisherContract`` tests it. See
docs/kafka.md.
"""

from ..abc import Message, PublishDone, Publisher
from .avrofiles import AvroFiles
from .consumer import DeadLetter, Messages, publishing
from .lines import JsonLines
from .records import DebeziumMessages
from .redisstreams import RedisStreams

__all__ = [
    "AvroFiles",
    "DeadLetter",
    "DebeziumMessages",
    "JsonLines",
    "Message",
    "Messages",
    "PublishDone",
    "Publisher",
    "RedisStreams",
    "publishing",
]
