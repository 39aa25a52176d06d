"""Avro and JSON Schema with a real schema registry: registered, evolved, refused, and waited for."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from maven import NoJars, fetch_archive, lacking_tools
from mockkafka import MockKafka
from prometheus_client import CollectorRegistry
from schema_registry import ARCHIVE, ApicurioRegistry
from waiting import eventually

from cursorstore import MemoryCursorStore
from rscylla.clock import Stop
from rscylla.debezium import Field, Record, Schema, converters_of
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import PublishFailed
from rscylla.kafka import Connector, Properties

LONG_S = 120.0
FORMS = {"AVRO": "avro.AvroConverter", "JSON": "json.JsonSchemaConverter"}
NUMBER, TEXT = Schema("int64"), Schema("string")


@pytest.fixture(scope="module")
def app(request: pytest.FixtureRequest) -> Path:
    if os.environ.get("RSCYLLA_KAFKA") != "start":
        pytest.skip("no registry: set RSCYLLA_KAFKA=start to start one")
    if reason := lacking_tools():
        pytest.skip(f"the registry cannot be started: {reason}")
    try:
        return fetch_archive(Path(request.config.cache.mkdir("kafka")), ARCHIVE)
    except NoJars as e:
        pytest.skip(str(e))


@pytest.fixture(scope="module")
def registry(app: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApicurioRegistry]:
    with ApicurioRegistry(app, tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


def properties(form: str, url: str) -> dict[str, str]:
    halves = ("key.converter", "value.converter")
    classes = dict.fromkeys(halves, f"io.confluent.connect.{FORMS[form]}")
    return classes | {f"{half}.schema.registry.url": url for half in halves}


def record(topic: str, **columns: tuple[Schema, Any]) -> Record:
    key = Schema("struct", name=f"{topic}.Key", fields=(Field("id", Schema("int64", optional=False)),), optional=False)
    fields = tuple(Field(name, schema) for name, (schema, _) in columns.items())
    value = Schema("struct", name=f"{topic}.Value", fields=fields, optional=False)
    return Record(topic, key, {"id": 1}, value, {name: given for name, (_, given) in columns.items()})


def client_of(registry: ApicurioRegistry) -> Any:
    """Return Confluent's client, a context manager."""
    return pytest.importorskip("confluent_kafka.schema_registry").SchemaRegistryClient({"url": registry.url})


@pytest.fixture
def client(registry: ApicurioRegistry) -> Iterator[Any]:
    with client_of(registry) as client:
        yield client


def read(form: str, client: Any, topic: str, data: bytes | None) -> Any:
    """Return a value as Confluent's own deserializer reads it, by the schema that the registry has."""
    context = pytest.importorskip("confluent_kafka.serialization").SerializationContext(topic, "value")
    if form == "AVRO":
        return pytest.importorskip("confluent_kafka.schema_registry.avro").AvroDeserializer(client)(data, context)
    kind = pytest.importorskip("confluent_kafka.schema_registry.json_schema").JSONDeserializer
    return kind(None, schema_registry_client=client)(data, context)


@pytest.mark.parametrize("form", FORMS)
def test_schemas_are_registered_and_a_column_that_comes_is_another_version(
    registry: ApicurioRegistry, client: Any, topic: str, form: str
) -> None:
    made = converters_of(properties(form, registry.url))
    old, new = record(topic, a=(NUMBER, 5)), record(topic, a=(NUMBER, 6), b=(TEXT, "naïve"))
    first, second = made.value(old), made.value(new)
    assert read(form, client, topic, first) == {"a": 5}
    assert read(form, client, topic, second) == {"a": 6, "b": "naïve"}
    assert len(client.get_versions(f"{topic}-value")) == 2
    made.key(old)
    assert {f"{topic}-key", f"{topic}-value"} <= set(client.get_subjects())
    again = converters_of(properties(form, registry.url))  # another process
    assert (again.value(old), again.value(new)) == (first, second)
    assert len(client.get_versions(f"{topic}-value")) == 2


def test_what_is_not_compatible_is_refused_by_name(registry: ApicurioRegistry, client: Any, topic: str) -> None:
    made = converters_of(properties("AVRO", registry.url))
    made.value(record(topic, a=(NUMBER, 5)))
    client.set_compatibility(f"{topic}-value", "BACKWARD")
    made.value(record(topic, a=(NUMBER, 5), b=(NUMBER, 6)))
    with pytest.raises(PublishFailed, match=f"refuses a schema under '{topic}-value': it is not compatible"):
        made.value(record(topic, a=(TEXT, "five")))


def test_a_schema_that_must_be_there_already_is_named(registry: ApicurioRegistry, topic: str) -> None:
    options = {f"{half}.converter.auto.register.schemas": "false" for half in ("key", "value")}
    made = converters_of(properties("AVRO", registry.url) | options)
    with pytest.raises(PublishFailed, match=f"no such schema under '{topic}-value'"):
        made.value(record(topic, a=(NUMBER, 5)))
    expected = converters_of(properties("AVRO", registry.url)).value(record(topic, a=(NUMBER, 5)))
    assert made.value(record(topic, a=(NUMBER, 5))) == expected


def test_a_registry_that_is_down_is_waited_for_and_nothing_is_lost(
    app: Path, tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = ApicurioRegistry(app, tmp_path)
    with pytest.raises(PublishFailed, match="does not answer"):
        converters_of(properties("AVRO", registry.url)).value(record(topic, a=(NUMBER, 5)))
    with EmbeddedScylla(vnodes=2, shards=1) as scylla, MockKafka(partitions=1) as kafka:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE shop.a (id int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        insert = session.prepare("INSERT INTO shop.a (id, v) VALUES (?, 0)")
        for i in range(20):
            session.execute(insert, (i,))
        given = {
            "topic.prefix": topic,
            "scylla.cluster.ip.addresses": "127.0.0.1:9042",
            "scylla.table.names": "shop.a",
            "bootstrap.servers": kafka.servers,
            "scylla.confidence.window.size": "50",
            "worker.retry.backoff.base": "10",
            "heartbeat.interval.ms": "0",
        }
        made = Properties.of(given | properties("AVRO", registry.url))
        stop, store = Stop(), MemoryCursorStore()
        connector = Connector(made, session, store_of=lambda keyspace: store, registry=CollectorRegistry())
        thread = threading.Thread(target=connector.run, args=(stop,))
        thread.start()
        try:
            eventually(lambda: "does not answer for" in caplog.text, LONG_S)
            assert store.get_cursor(f"{topic}.shop.a") == ""
            registry.start()
            eventually(lambda: len(list(kafka.read(f"{topic}.shop.a"))) == 20, LONG_S)
            for i in range(20, 25):
                session.execute(insert, (i,))
            eventually(lambda: len(list(kafka.read(f"{topic}.shop.a"))) == 25, LONG_S)
            with client_of(registry) as client:
                values = [read("AVRO", client, topic, m.value) for m in kafka.read(f"{topic}.shop.a")]
            assert sorted(value["after"]["id"] for value in values) == list(range(25))
        finally:
            stop.set()
            thread.join(LONG_S)
            registry.stop()
            session.cluster.shutdown()
    assert not thread.is_alive()
