"""``DebeziumMessages``: records as the Scylla CDC source connector makes them, as bytes."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..abc import Message
from ..clock import Clock, SystemClock
from ..debezium import (
    Emitter,
    Header,
    JsonConverter,
    Record,
    SchemaRegistry,
    Settings,
    converters_of,
    direct,
    double_text,
    float_text,
    transforms_of,
    words,
)
from ..event import Event

__all__ = ["DebeziumMessages"]

log = logging.getLogger("rscylla.publish")


class DebeziumMessages:
    """Makes records of events: emitter, transforms, and converters, as the connector's *properties* say.

    Used by one thread at a time: make one for each lane. *clock*: its time is the time of processing in the envelopes.
    *registry*: where Avro and JSON Schema converters have their schemas, instead of ``schema.registry.url``.

    Raises:
        ConfigError: a property is missing, or has a value that is not possible.
    """

    def __init__(
        self, properties: Mapping[str, str], *, clock: Clock | None = None, registry: SchemaRegistry | None = None
    ) -> None:
        self._emitter = Emitter(Settings.of(properties), partial(log.warning, "%s"))
        self._transform = transforms_of(properties)
        converters = converters_of(properties, registry)
        self._key, self._value = converters.key, converters.value
        self._now_us = (clock or SystemClock()).now_us
        plain = not words(properties.get("transforms", ""))
        self._direct = direct(self._emitter, converters, Message) if plain else None

    def __call__(self, event: Event) -> list[Message]:
        """Return the records of *event*.

        Raises:
            ConfigError, MalformedData, MetadataError: as ``Emitter.records``.
        """
        now_us = self._now_us()
        known = self._direct
        if known is None:
            return self.of_records(self._emitter.records(event, now_us * 1000))
        messages: list[Message] | None = known.messages(event, now_us)
        if messages is None:
            messages = self.of_records(self._emitter.records(event, now_us * 1000))
            if messages and messages[0].value is not None:
                known.learn(event)
        return messages

    def heartbeat(self) -> list[Message]:
        """Return the record that says that the connector runs."""
        return self.of_records([self._emitter.heartbeat(self._now_us() // 1000)])

    def of_records(self, records: list[Record]) -> list[Message]:
        """Return *records* as bytes, without those that a transform drops."""
        transform, key, value = self._transform, self._key, self._value
        made = []
        for given in records:
            record = transform(given)
            if record is not None:
                headers = tuple([(h.key, header_bytes(h)) for h in record.headers]) if record.headers else ()
                made.append(Message(record.topic, key(record), value(record), headers, record.partition))
        return made


def header_bytes(header: Header) -> bytes | None:
    """Return the value of a header as Connect's SimpleHeaderConverter makes it: text, without quotes."""
    value: Any = header.value
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float):
        return (float_text if header.schema.type == "float32" else double_text)(value).encode()
    if isinstance(value, bytes):
        return b64encode(value)
    return str(value).encode() if isinstance(value, int) else JsonConverter.once(header.schema, value).encode()
