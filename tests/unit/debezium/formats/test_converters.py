"""Converters with a schema registry: Avro and JSON Schema, as properties configure them."""

from __future__ import annotations

import json
import math
import threading
import traceback
from typing import Any

import attrs
import jsonschema
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from connectorcases import cases
from connectschemas import schema_of, tables, value_of
from hypothesis import given, settings

from rscylla.debezium import (
    AvroConverter,
    ConfluentRegistry,
    Converters,
    Field,
    JsonConverter,
    JsonSchemaConverter,
    Record,
    Registered,
    Schema,
    converters_of,
    json_schema,
)
from rscylla.debezium.formats import registry as registry_module
from rscylla.debezium.record import RowTopic
from rscylla.errors import ConfigError, PublishFailed

AVRO = "io.confluent.connect.avro.AvroConverter"
JSON_SCHEMA = "io.confluent.connect.json.JsonSchemaConverter"
MOCK = {"schema.registry.url": "mock://here"}
ROW = Schema("struct", fields=(Field("a", Schema("int32")),), name="demo.t.Row", optional=False)
WIDER = attrs.evolve(ROW, fields=(*ROW.fields, Field("b", Schema("string"))))


def configured(kind: str, **more: str) -> Converters:
    options = MOCK | {name.replace("_", "."): value for name, value in more.items()}
    halves = ("key.converter", "value.converter")
    properties = dict.fromkeys(halves, kind)
    return converters_of(properties | {f"{half}.{name}": text for half in halves for name, text in options.items()})


def registry_of(converters: Converters) -> Any:
    """Return the client of the registry that both converters use."""
    assert converters.of_keys.registry is converters.of_values.registry  # type: ignore[attr-defined]
    return converters.of_keys.registry._opened()[0]  # type: ignore[attr-defined]


def record_of(schema: Schema, value: Any, topic: str = "demo.t") -> Record:
    return Record(topic, schema, value, schema, value)


def is_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal; NaN is as NaN."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def as_numbers(schema: Schema) -> Schema:
    """Return *schema* without dates and timestamps, which readers of Avro make objects of."""
    name = None if schema.type in ("int32", "int64") else schema.name
    items = None if schema.items is None else as_numbers(schema.items)
    fields = tuple(Field(f.name, as_numbers(f.schema)) for f in schema.fields)
    return attrs.evolve(schema, name=name, items=items, fields=fields)


def test_avro_of_the_recorded_cases_reads_as_the_records() -> None:
    for name in ("scalars-advanced-full", "collections-advanced-full", "scalars-legacy", "smt-unwrap-advanced"):
        converters = configured(AVRO)
        read = AvroDeserializer(registry_of(converters))
        for record in cases()[name].records():
            for schema, value, field in (
                (record.key_schema, record.key, MessageField.KEY),
                (record.value_schema, record.value, MessageField.VALUE),
            ):
                if schema is None:
                    continue
                plain = record._replace(key_schema=as_numbers(schema), value_schema=as_numbers(schema))
                raw = getattr(converters, field)(plain)
                assert is_equal(read(raw, SerializationContext(record.topic, field)), value)


@given(tables())
@settings(max_examples=20, deadline=None)
def test_confluents_deserializers_read_the_records(table: tuple[Schema, list[Any]]) -> None:
    schema, values = as_numbers(table[0]), [value for value in table[1] if value is not None]
    context = SerializationContext("demo.t", MessageField.VALUE)
    avro, in_json = configured(AVRO), configured(JSON_SCHEMA)
    read_avro = AvroDeserializer(registry_of(avro))
    read_json = JSONDeserializer(None, schema_registry_client=registry_of(in_json))
    for value in values:
        record = record_of(schema, value)
        assert is_equal(read_avro(avro.value(record), context), value)
        assert is_equal(value_of(schema, read_json(in_json.value(record), context)), value)


@pytest.mark.parametrize("kind", [AVRO, JSON_SCHEMA])
def test_bytes_begin_with_the_id_of_their_schema(kind: str) -> None:
    converters = configured(kind)
    record = record_of(ROW, {"a": 7})
    key, value = converters.key(record), converters.value(record)
    client = registry_of(converters)
    assert client.get_subjects() == ["demo.t-key", "demo.t-value"]
    for raw, subject in ((key, "demo.t-key"), (value, "demo.t-value")):
        assert raw is not None
        assert raw[0] == 0
        assert int.from_bytes(raw[1:5], "big") == client.get_latest_version(subject).schema_id
    assert (value or b"")[5:] == (b"\x02\x0e" if kind == AVRO else b'{"a":7}')


@pytest.mark.parametrize("kind", [AVRO, JSON_SCHEMA])
def test_an_altered_table_registers_its_next_schema(kind: str) -> None:
    converters = configured(kind)
    for schema, value in ((ROW, {"a": 1}), (WIDER, {"a": 1, "b": None}), (ROW, {"a": 2})):
        assert converters.value(record_of(schema, value)) is not None
    assert sorted(registry_of(converters).get_versions("demo.t-value")) == [1, 2]


class Counting:
    """A registry that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def registered(self, subject: str, form: str, text: str) -> Registered:
        self.asked.append(subject)
        return Registered(1, text)


def test_a_registry_is_asked_once_for_each_schema_and_subject() -> None:
    registry = Counting()
    converter = AvroConverter(registry)
    for topic in ("one", "two"):
        for n in range(3):
            converter.value(record_of(ROW, {"a": n}, topic))
    assert registry.asked == ["one-value", "two-value"]


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "demo.t-value"),
        ("RecordNameStrategy", "demo.t.Row"),
        ("TopicRecordNameStrategy", "demo.t-demo.t.Row"),
    ],
)
def test_strategies_of_subjects(strategy: str, subject: str) -> None:
    name = f"io.confluent.kafka.serializers.subject.{strategy}"
    converters = configured(AVRO, value_subject_name_strategy=name)
    converters.value(record_of(ROW, {"a": 7}))
    assert registry_of(converters).get_subjects() == [subject]


def test_a_schema_without_a_name_has_no_subject_of_records() -> None:
    converter = AvroConverter(Counting(), subjects="record")
    with pytest.raises(ConfigError, match=r"the value of records of demo\.t has no name"):
        converter.value(record_of(attrs.evolve(ROW, name=None), {"a": 1}))


def test_without_registering_a_schema_has_to_be_there() -> None:
    converters = configured(AVRO, auto_register_schemas="false")
    with pytest.raises(PublishFailed, match=r"no such schema under 'demo\.t-value'; register it"):
        converters.value(record_of(ROW, {"a": 1}))


def test_the_latest_schema_is_used_on_request() -> None:
    first = configured(AVRO)
    first.value(record_of(ROW, {"a": 1}))
    client = registry_of(first)
    registry = ConfluentRegistry({"url": "mock://here"}, auto_register=False, use_latest=True)
    registry._client = client
    latest = AvroConverter(registry)
    assert latest.value(record_of(WIDER, {"a": 1, "b": "x"})) == b"\x00" + (1).to_bytes(4, "big") + b"\x02\x02"
    text = attrs.evolve(ROW, fields=(Field("a", Schema("string")),))
    with pytest.raises(PublishFailed, match=r"does not fit into the latest schema of 'demo\.t-value'"):
        latest.value(record_of(text, {"a": "x"}))
    first.value(record_of(text, {"a": "x"}))
    assert latest.value(record_of(text, {"a": "x"})) == b"\x00" + (2).to_bytes(4, "big") + b"\x02\x02x"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SchemaRegistryError(401, 40101, "no"), "http://r,https://r refuses the credentials"),
        (SchemaRegistryError(403, 40301, "no"), "http://r,https://r refuses the credentials"),
        (SchemaRegistryError(404, 40401, "none"), "no such schema under 's'; register it"),
        (SchemaRegistryError(409, 409, "bad"), "not compatible with those before it"),
        (SchemaRegistryError(422, 42201, "bad"), "it is not valid there"),
        (SchemaRegistryError(302, -1, "x" * 100_000), "does not answer for 's': x{400}"),
        (SchemaRegistryError(503, 50003, "later"), "http://r,https://r does not answer for 's'"),
        (ConnectionError("gone"), "does not answer for 's': gone"),
        (ValueError("no JSON"), "does not answer for 's': no JSON"),
    ],
)
def test_whatever_a_registry_refuses_can_be_tried_again(error: Exception, message: str) -> None:
    class Failing:
        def register_schema(self, *_: Any, **__: Any) -> int:
            raise error

    registry = ConfluentRegistry({"url": "http://user:secret@r,https://other:secret@r"})
    registry._client = Failing()
    with pytest.raises(PublishFailed, match=message) as raised:
        registry.registered("s", "AVRO", "{}")
    assert raised.value.__cause__ is error
    assert raised.value.resumable
    assert "secret" not in str(raised.value)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("answer", [None, "7", -1, 1 << 31])
def test_an_answer_without_an_id_can_be_tried_again(answer: Any) -> None:
    class Odd:
        def register_schema(self, *_: Any, **__: Any) -> Any:
            return answer

    registry = ConfluentRegistry({"url": "http://r"})
    registry._client = Odd()
    with pytest.raises(PublishFailed, match="http://r answers for 's' without the id of a schema"):
        registry.registered("s", "AVRO", "{}")


def test_a_call_that_is_never_answered_ends_and_the_next_one_has_another_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry_module, "ANSWER_S", 0.05)
    closed = threading.Event()

    class Silent:
        def register_schema(self, *_: Any, **__: Any) -> int:
            closed.wait()  # as a socket from which nothing comes, or a byte now and then
            raise OSError("closed")

    registry = ConfluentRegistry({"url": "http://user:secret@r,http://s"})
    registry._client, registry._close = Silent(), closed.set
    with pytest.raises(PublishFailed, match=r"http://r,http://s does not answer for 's': no answer within 0\.1 s"):
        registry.registered("s", "AVRO", "{}")
    assert registry._client is None
    assert closed.is_set()


def test_no_step_of_a_call_is_waited_for_without_end() -> None:
    registry = ConfluentRegistry({"url": "http://localhost:1"})
    client = registry._opened()[0]._rest_client
    assert (client.timeout, client.max_retries) == (registry_module.ANSWER_S, 0)


def test_tombstones_have_no_bytes_and_nulls_are_json() -> None:
    tombstone = Record("t", ROW, {"a": 1}, None, None)
    null = Record("t", ROW, {"a": 1}, attrs.evolve(ROW, optional=True), None)
    avro, schema = AvroConverter(Counting()), JsonSchemaConverter(Counting())
    assert [avro.value(tombstone), schema.value(tombstone), avro.value(null)] == [None] * 3
    assert (schema.value(null) or b"")[5:] == b"null"


def test_json_schema_has_what_connect_knows() -> None:
    schema = schema_of(
        json.loads(
            '{"type":"struct","fields":[{"type":"int8","optional":false,"field":"n"},'
            '{"type":"string","optional":true,"name":"E","version":1,"parameters":{"allowed":"x"},"default":"x","field":"e"},'
            '{"type":"array","items":{"type":"bytes","optional":true},"optional":true,"field":"l"}],'
            '"optional":false,"name":"demo.Row"}'
        )
    )
    expected = {
        "type": "object",
        "title": "demo.Row",
        "properties": {
            "n": {"type": "integer", "connect.type": "int8", "connect.index": 0},
            "e": {
                "oneOf": [
                    {"type": "null"},
                    {
                        "type": "string",
                        "title": "E",
                        "connect.version": 1,
                        "connect.parameters": {"allowed": "x"},
                        "default": "x",
                    },
                ],
                "connect.index": 1,
            },
            "l": {
                "oneOf": [
                    {"type": "null"},
                    {
                        "type": "array",
                        "items": {"oneOf": [{"type": "null"}, {"type": "string", "connect.type": "bytes"}]},
                    },
                ],
                "connect.index": 2,
            },
        },
    }
    assert json.loads(json_schema(schema)) == expected
    closed = json.loads(json_schema(schema, additional=False))
    assert closed == expected | {"additionalProperties": False}


@given(tables())
@settings(max_examples=20, deadline=None)
def test_json_is_valid_by_its_schema(table: tuple[Schema, list[Any]]) -> None:
    schema, values = table
    found = json.loads(json_schema(schema, additional=False))
    jsonschema.Draft7Validator.check_schema(found)
    for value in values:
        text = JsonConverter(schemas=False).bytes_of(schema, value)
        jsonschema.validate(json.loads(text or b""), found, jsonschema.Draft7Validator)


OPTIONS = {
    "basic.auth.credentials.source": "USER_INFO",
    "basic.auth.user.info": "me:secret",
    "schema.registry.ssl.truststore.type": "PEM",
    "schema.registry.ssl.truststore.location": "/ca.pem",
    "schema.registry.ssl.keystore.type": "PEM",
    "schema.registry.ssl.keystore.location": "/me.pem",
    "schema.registry.ssl.key.password": "p",
    "auto.register.schemas": "false",
    "use.latest.version": "true",
    "normalize.schemas": "true",
}


def test_options_of_the_client_have_the_names_of_connect() -> None:
    converters = configured(AVRO, **OPTIONS)
    registry = converters.of_values.registry  # type: ignore[attr-defined]
    assert registry.options == {
        "url": "mock://here",
        "basic.auth.user.info": "me:secret",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "p",
    }
    assert (registry.auto_register, registry.use_latest, registry.normalize) == (False, True, True)
    assert "secret" not in repr(registry)


def test_a_token_is_passed_on() -> None:
    more = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "t"}
    options = configured(AVRO, **more).of_values.registry.options  # type: ignore[attr-defined]
    assert SchemaRegistryClient.new_client(options | {"url": "http://localhost:1"})


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"value.converter": AVRO}, r"value\.converter\.schema\.registry\.url is missing"),
        ({"value.converter": "org.apache.kafka.connect.storage.StringConverter"}, "the text of a Java object"),
        ({"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"}, "takes bytes only"),
        ({"value.converter": "io.apicurio.registry.utils.converter.AvroConverter"}, "ccompat"),
        ({"value.converter": "x.Y"}, r"value\.converter is x\.Y; rscylla has"),
    ],
)
def test_converters_that_are_not_possible(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        converters_of(properties)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"auto.register.schemas": "yes"}, r"key\.converter\.auto\.register\.schemas is 'yes'"),
        ({"key.subject.name.strategy": "x.Mine"}, r"key\.subject\.name\.strategy is x\.Mine; rscylla has"),
        ({"connect.meta.data": "false"}, "connect.meta.data=false is not supported"),
        ({"schema.registry.ssl.truststore.location": "/t.jks"}, "is no PEM file: convert it"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "is SASL_INHERIT; rscylla has URL and USER_INFO"),
        ({"basic.auth.credentials.source": "USER_INFO"}, "basic.auth.user.info is missing"),
        ({"bearer.auth.credentials.source": "OAUTHBEARER"}, "rscylla has STATIC_TOKEN"),
    ],
)
def test_options_that_are_not_possible(option: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(AVRO, **option)


def test_options_of_the_client_that_are_not_possible() -> None:
    registry = ConfluentRegistry({"url": "http://localhost", "basic.auth.user.info": "no password"})
    with pytest.raises(ConfigError, match="the options of the schema registry are not possible"):
        registry.registered("s", "AVRO", "{}")


class Refusing:
    def registered(self, subject: str, form: str, text: str) -> Registered:
        raise PublishFailed(f"the schema registry refuses a schema under {subject!r}") from OSError(subject)


class Other:
    def registered(self, subject: str, form: str, text: str) -> Registered:
        return Registered(1, '{"type":"record","name":"r","fields":[{"name":"other","type":"int"}]}')


@pytest.mark.parametrize("registry", [Refusing(), Other()])
def test_no_error_of_a_schema_tells_a_topic_that_is_named_by_a_row(registry: Any) -> None:
    converter, name = AvroConverter(registry), "".join(("jane", ".doe"))  # a traceback shows lines of code
    with pytest.raises(PublishFailed, match="of a topic that is named by a row") as raised:
        converter.value(record_of(ROW, {"a": 1}, RowTopic(name)))
    assert name not in "".join(traceback.format_exception(raised.value))
    with pytest.raises(PublishFailed, match=r"demo\.shop\.items-value"):
        converter.value(record_of(ROW, {"a": 1}, "demo.shop.items"))
