"""Settings by the connector's names of them."""

from __future__ import annotations

import attrs
import pytest

from rscylla.debezium import PROPERTIES, Record, Schema, Settings, converters_of
from rscylla.errors import ConfigError

MINIMAL = {"topic.prefix": "demo"}


def test_defaults_are_those_of_the_connector() -> None:
    settings = Settings.of(MINIMAL)
    assert settings == Settings(prefix="demo")
    assert (settings.output_format, settings.before, settings.after) == ("legacy", "none", "none")
    assert settings.places == {"kafka-key", "payload-after", "payload-before"}


def test_every_setting_has_a_property() -> None:
    assert list(PROPERTIES) == [field.name for field in attrs.fields(Settings)]


def test_properties_are_read_by_the_names_of_the_connector() -> None:
    settings = Settings.of(
        {
            "topic.prefix": " demo ",
            "cdc.output.format": "Advanced",
            "experimental.preimages.enabled": "TRUE",
            "cdc.include.before": "only-updated",
            "cdc.include.after": "full",
            "cdc.include.primary-key.placement": "kafka-key, kafka-headers",
            "cdc.include.primary-key.payload-key-name": "id",
            "tombstones.on.delete": "false",
            "skipped.operations": "u,d",
            "topic.delimiter": "_",
            "topic.heartbeat.prefix": "hb",
            "rscylla.source.version": "2.0.3",
            "rscylla.like.connector": "null-keys,list-order",
            "tasks.max": "7",
        }
    )
    assert settings == Settings(
        prefix="demo",
        output_format="advanced",
        preimages=True,
        before="only-updated",
        after="full",
        placement=("kafka-key", "kafka-headers"),
        key_name="id",
        tombstones=False,
        skipped="ud",
        delimiter="_",
        heartbeat_prefix="hb",
        version="2.0.3",
        like_connector=("null-keys", "list-order"),
    )


def test_the_older_name_of_the_prefix_is_read() -> None:
    """The properties of the older connector, as its README had them, are enough."""
    older = {
        "name": "ScyllaCDCSourceConnector",
        "connector.class": "com.scylladb.cdc.debezium.connector.ScyllaConnector",
        "scylla.name": "MyScyllaCluster",
        "scylla.cluster.ip.addresses": "127.0.0.1:9042,127.0.0.2:9042",
        "scylla.table.names": "ks.my_table",
        "tasks.max": "10",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "true",
        "value.converter.schemas.enable": "true",
        "auto.create.topics.enable": "true",
    }
    assert Settings.of(older) == Settings(prefix="MyScyllaCluster")
    assert Settings.of(older | MINIMAL) == Settings(prefix="demo")
    assert [converters_of(older).of_keys.schemas, converters_of(older).of_values.schemas] == [True, True]


def test_a_place_without_effect_is_accepted() -> None:
    placement = {"cdc.include.primary-key.placement": "kafka-key,payload-diff"}
    assert Settings.of(MINIMAL | placement).places == {"kafka-key", "payload-diff"}


def test_converters_come_with_schemas_unless_they_are_off() -> None:
    found = converters_of({"value.converter.schemas.enable": "FALSE"})
    record = Record("t", Schema("string"), "k", Schema("string"), "v")
    assert found.key(record) == b'{"schema":{"type":"string","optional":true},"payload":"k"}'
    assert found.value(record) == b'"v"'
    with pytest.raises(ConfigError, match=r"key\.converter\.schemas\.enable is 'no', which is neither"):
        converters_of({"key.converter.schemas.enable": "no"})


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"topic.prefix": " "}, "topic.prefix is missing"),
        ({"cdc.output.format": "new"}, "cdc.output.format is 'new'; use one of legacy, advanced"),
        ({"cdc.include.after": "some"}, "cdc.include.after is 'some'"),
        ({"cdc.include.primary-key.placement": "kafka-key,header"}, "placement has 'header'; it is made of kafka-key"),
        ({"tombstones.on.delete": "yes"}, "tombstones.on.delete is 'yes', which is neither"),
        ({"skipped.operations": "x"}, "skipped.operations has 'x'"),
        ({"rscylla.like.connector": "bugs"}, "rscylla.like.connector has 'bugs'; it is made of blob-headers"),
    ],
)
def test_what_is_not_known_is_refused_by_name(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings.of(MINIMAL | properties)
