"""Converters of keys and values as a connector's properties configure them: JSON, Avro, and JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol

import attrs

from ...errors import ConfigError, PublishFailed
from ...types import Schema
from ..record import Record, RowTopic, told
from ..settings import flag, options_of
from . import avro, json
from .json import Form, Framed, JsonConverter
from .jsonschema import json_schema
from .registry import ConfluentRegistry, SchemaRegistry, client_options
from .registry import Form as RegisteredAs

__all__ = ["AvroConverter", "Converter", "Converters", "JsonSchemaConverter", "Subjects", "converters_of"]

Encode = Callable[[Any], bytes]
Subjects = Literal["topic", "record", "topic-record"]
"""The subject of a schema: ``TOPIC-key`` and ``TOPIC-value``, the name of the record, or ``TOPIC-NAME``."""

_MAGIC: Final = b"\x00"
_SCHEMAS_KEPT: Final = 1024


class Converter(Protocol):
    """Makes the bytes of records. For one thread at a time."""

    def key(self, record: Record) -> bytes | None:
        """Return the bytes of the key; None if there is none."""

    def value(self, record: Record) -> bytes | None:
        """Return the bytes of the value; None for a tombstone."""


class _WithRegistry:
    """Makes bytes that begin with the id of their schema in a registry: a zero, and the id in four bytes.

    A registry is asked once for each schema and subject; when a table is altered, its new schema is registered.
    """

    _registered_as: RegisteredAs
    _form: Form

    def __init__(self, registry: SchemaRegistry, *, subjects: Subjects = "topic") -> None:
        self.registry = registry
        self.subjects = subjects
        # By the identity of schemas, which emitters and transforms make once; kept, so that no other has its id.
        # The head is None if values are encoded by another text than that of their schema.
        self._known: dict[tuple[int, str], tuple[Schema, Encode, bytes | None]] = {}

    def key(self, record: Record) -> bytes | None:
        """Return the bytes of the key; None if there is none."""
        return self.bytes_of(record.key_schema, record.key, record.topic, "key")

    def value(self, record: Record) -> bytes | None:
        """Return the bytes of the value; None for a tombstone."""
        return self.bytes_of(record.value_schema, record.value, record.topic, "value")

    def bytes_of(self, schema: Schema | None, value: Any, topic: str, half: str) -> bytes | None:
        """Return the bytes of *value*, the *half* (``key`` or ``value``) of a record of *topic*."""
        if schema is None or self._is_nothing(value):
            return None
        place = id(schema), f"{topic}-{half}"
        known = self._known.get(place)
        if known is None:
            made = schema, *self._encoder(schema, topic, half, lambda: self._known.pop(place, None))
            if len(self._known) >= _SCHEMAS_KEPT:
                self._known.clear()
            known = self._known[place] = made
        return known[1](value)

    def framed(self, schema: Schema, topic: str, half: str) -> Framed | None:
        """Return what the bytes of a value are made of that was encoded before; None if it has another schema there."""
        _, _, head = self._known.get((id(schema), f"{topic}-{half}"), (None, None, None))
        return None if head is None else Framed(head, self._form, b"")

    def _encoder(
        self, schema: Schema, topic: str, half: str, forget: Callable[[], object]
    ) -> tuple[Encode, bytes | None]:
        subject = self._subject(schema, topic, half)
        text = self._text(schema)
        is_told = self.subjects == "record" or not isinstance(topic, RowTopic)
        try:
            found = self.registry.registered(subject, self._registered_as, text)
        except PublishFailed as error:
            if is_told:
                raise
            why = type(error.__cause__ or error).__name__  # the texts have the subject
            raise PublishFailed(
                f"the schema registry gives no schema for records of {told(topic)}: {why}; look at what it logs"
            ) from None
        head = _MAGIC + found.id.to_bytes(4, "big")
        if found.text == text:
            return self._own(schema, head), head
        encode = self._latest(schema, found.text)

        def by_latest(value: Any) -> bytes:
            try:
                return head + encode(value)
            except (ValueError, TypeError, KeyError) as e:
                forget()  # the next attempt asks for the latest schema again
                raise PublishFailed(
                    f"a record of {told(topic)} does not fit into the latest schema of "
                    f"{repr(subject) if is_told else 'its subject'}; register its schema, or set "
                    "auto.register.schemas=true"
                ) from e

        return by_latest, None

    def _subject(self, schema: Schema, topic: str, half: str) -> str:
        if self.subjects == "topic":
            return f"{topic}-{half}"
        if schema.name is None:
            raise ConfigError(
                f"the {half} of records of {told(topic)} has no name for a subject; use TopicNameStrategy"
            )
        return schema.name if self.subjects == "record" else f"{topic}-{schema.name}"

    def _is_nothing(self, value: Any) -> bool:
        raise NotImplementedError

    def _text(self, schema: Schema) -> str:
        raise NotImplementedError

    def _own(self, schema: Schema, head: bytes) -> Encode:
        """Return what makes bytes by the text of the schema itself, after *head*."""
        raise NotImplementedError

    def _latest(self, schema: Schema, text: str) -> Encode:
        """Return what makes bytes by another *text*."""
        raise NotImplementedError


class AvroConverter(_WithRegistry):
    """Makes Avro, as ``io.confluent.connect.avro.AvroConverter`` does.

    Args:
        registry: where the schemas are, see ``ConfluentRegistry``.
        subjects: under which names.

    When it makes bytes, it raises PublishFailed if the registry does not answer, or refuses the credentials or the
    schema, or if the value does not fit into its latest schema: a later call asks again.
    """

    _registered_as = "AVRO"
    _form = avro.FORM

    def _is_nothing(self, value: Any) -> bool:
        return value is None

    def _text(self, schema: Schema) -> str:
        return avro.avro_schema(schema)

    def _own(self, schema: Schema, head: bytes) -> Encode:
        return avro.payload_encoder(schema, head)

    def _latest(self, schema: Schema, text: str) -> Encode:
        return avro.avro_encoder(text)


class JsonSchemaConverter(_WithRegistry):
    """Makes JSON with a JSON Schema, as ``io.confluent.connect.json.JsonSchemaConverter`` does.

    Args:
        registry, subjects: as of ``AvroConverter``.
        additional: ``object.additional.properties``: whether the schemas let objects have other members.
    """

    _registered_as = "JSON"
    _form = json.FORM

    def __init__(self, registry: SchemaRegistry, *, subjects: Subjects = "topic", additional: bool = True) -> None:
        super().__init__(registry, subjects=subjects)
        self.additional = additional

    def _is_nothing(self, value: Any) -> bool:
        return False  # a null with a schema is JSON's

    def _text(self, schema: Schema) -> str:
        return json_schema(schema, additional=self.additional)

    def _own(self, schema: Schema, head: bytes) -> Encode:
        return json.payload_encoder(schema, head)

    def _latest(self, schema: Schema, text: str) -> Encode:
        return json.payload_encoder(schema)


@attrs.frozen
class Converters:
    """A converter of keys and another one of values, as one. Not thread-safe, as they are not."""

    of_keys: Converter
    of_values: Converter

    def key(self, record: Record) -> bytes | None:
        """Return the bytes of the key; None if there is none."""
        return self.of_keys.key(record)

    def value(self, record: Record) -> bytes | None:
        """Return the bytes of the value; None for a tombstone."""
        return self.of_values.value(record)

    def framed(self, half: Literal["key", "value"], schema: Schema, topic: str) -> Framed | None:
        """Return what bytes of the *half* are made of, of which one was made before; None if that is not known."""
        converter = self.of_keys if half == "key" else self.of_values
        if isinstance(converter, JsonConverter):
            return converter.framed(schema)
        return converter.framed(schema, topic, half) if isinstance(converter, _WithRegistry) else None


# ---------------------------------------------------------------- properties

_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_AVRO: Final = "io.confluent.connect.avro.AvroConverter"
_JSON_SCHEMA: Final = "io.confluent.connect.json.JsonSchemaConverter"
_STRATEGIES: Final[dict[str, Subjects]] = {
    "TopicNameStrategy": "topic",
    "RecordNameStrategy": "record",
    "TopicRecordNameStrategy": "topic-record",
}
_STRATEGY_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
_OTHERS: Final = {
    "org.apache.kafka.connect.storage.StringConverter": "it would make the text of a Java object of a record",
    "org.apache.kafka.connect.converters.ByteArrayConverter": "it takes bytes only, and records are no bytes",
    "io.apicurio.registry.utils.converter.AvroConverter": (
        f"use {_AVRO}, with the address of Apicurio's API for Confluent's clients, .../apis/ccompat/v7"
    ),
    "io.confluent.connect.protobuf.ProtobufConverter": "rscylla makes no Protobuf",
}
_DIFFERENT: Final = {
    # What would change the bytes, unless it has this value.
    "connect.meta.data": "true",
    "scrub.invalid.names": "false",
    "flatten.unions": "true",
    "generalized.sum.type.support": "false",
    "use.schema.id": "-1",
}


def converters_of(properties: Mapping[str, str], registry: SchemaRegistry | None = None) -> Converters:
    """Return the converters that *properties* configure. As in Connect, JSON comes with schemas unless they are off.

    Nothing is connected before the first record. *registry*: used instead of that of ``schema.registry.url``.

    Raises:
        ConfigError: a converter has another class, or an option that is not possible.
    """
    registries: list[ConfluentRegistry] = []  # one for both converters, if it is the same
    names = ("key.converter", "value.converter")
    return Converters(*(_converter_of(properties, name, registries, registry) for name in names))


def _converter_of(
    properties: Mapping[str, str],
    name: str,
    registries: list[ConfluentRegistry],
    own: SchemaRegistry | None,
) -> Converter:
    kind = properties.get(name, _JSON).strip()
    if kind == _JSON:
        option = f"{name}.schemas.enable"
        return JsonConverter(schemas=flag(properties.get(option, "true").strip(), option))
    if kind not in (_AVRO, _JSON_SCHEMA):
        why = f": {_OTHERS[kind]}" if kind in _OTHERS else ""
        raise ConfigError(f"{name} is {kind}{why}; rscylla has {_JSON}, {_AVRO}, and {_JSON_SCHEMA}")
    given = {option: text.strip() for option, text in options_of(properties, f"{name}.").items()}
    for option, expected in _DIFFERENT.items():
        if given.get(option, expected).lower() != expected:
            raise ConfigError(f"{name}.{option}={given[option]} is not supported; leave it out")

    def is_on(option: str, default: str) -> bool:
        return flag(given.get(option, default), f"{name}.{option}")

    registry: SchemaRegistry
    if own is not None:
        registry = own
    else:
        made = ConfluentRegistry(
            client_options(given, name),
            auto_register=is_on("auto.register.schemas", "true"),
            use_latest=is_on("use.latest.version", "false"),
            normalize=is_on("normalize.schemas", "false"),
        )
        registry = made = next((known for known in registries if known.is_like(made)), made)
        registries.append(made)
    half = name.partition(".")[0]
    strategy = given.get(f"{half}.subject.name.strategy", f"{_STRATEGY_PACKAGE}TopicNameStrategy")
    subjects = _STRATEGIES.get(strategy.removeprefix(_STRATEGY_PACKAGE))
    if subjects is None:
        raise ConfigError(
            f"{name}.{half}.subject.name.strategy is {strategy}; rscylla has those of {_STRATEGY_PACKAGE}: "
            f"{', '.join(_STRATEGIES)}"
        )
    if kind == _AVRO:
        return AvroConverter(registry, subjects=subjects)
    return JsonSchemaConverter(registry, subjects=subjects, additional=is_on("object.additional.properties", "true"))
