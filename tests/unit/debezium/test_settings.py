"""Settings by the connector's names of them."""

from __future__ import annotations

import attrs
import pytest

from rscylla.debezium import PROPERTIES, Settings
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


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"topic.prefix": " "}, "topic.prefix is missing"),
        ({"cdc.output.format": "new"}, "cdc.output.format is 'new'; use one of legacy, advanced"),
        ({"cdc.include.after": "some"}, "cdc.include.after is 'some'"),
        ({"cdc.include.primary-key.placement": "kafka-key,header"}, "placement has 'header'; it is made of kafka-key"),
        ({"tombstones.on.delete": "yes"}, "'yes' is neither true nor false"),
        ({"skipped.operations": "x"}, "skipped.operations has 'x'"),
        ({"rscylla.like.connector": "bugs"}, "rscylla.like.connector has 'bugs'; it is made of blob-headers"),
    ],
)
def test_what_is_not_known_is_refused_by_name(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings.of(MINIMAL | properties)
