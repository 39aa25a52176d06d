"""``Settings``: what decides about records, and the connector's properties that say it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, Literal, Self, get_args

import attrs

from ..errors import ConfigError
from .names import ADJUSTMENTS, Adjustment

__all__ = [
    "CONNECTOR_VERSION",
    "DIFFERENCES",
    "Difference",
    "Image",
    "OutputFormat",
    "Placement",
    "Settings",
    "Snapshot",
]

CONNECTOR_VERSION: Final = "2.0.4-SNAPSHOT"
"""The version of the connector whose records these are."""

OutputFormat = Literal["legacy", "advanced"]
Image = Literal["none", "full", "only-updated"]
Placement = Literal["kafka-key", "payload-after", "payload-before", "payload-key", "kafka-headers", "payload-diff"]
Difference = Literal["blob-headers", "list-order", "null-keys", "silent-deletes"]

Snapshot = Literal["true", "first", "first_in_data_collection", "last_in_data_collection", "last", "incremental"]
"""How Debezium 2.7 marks a row of a snapshot in ``source.snapshot``; changes have ``false``."""

DIFFERENCES: Final[tuple[Difference, ...]] = get_args(Difference)
"""What the connector does in another way, and can be had in its way."""

_PLACEMENTS: Final[tuple[Placement, ...]] = get_args(Placement)
_DEFAULT_PLACEMENT: Final[tuple[Placement, ...]] = ("kafka-key", "payload-after", "payload-before")
_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]")
_OPERATIONS: Final = ("c", "u", "d", "r", "t", "none")


def _one_of(choices: tuple[str, ...]) -> Any:
    def check(_: Any, attribute: Any, value: Any) -> None:
        if value not in choices:
            raise ConfigError(f"{_property_of(attribute.name)} is {value!r}; use one of {', '.join(choices)}")

    return check


def _some_of(choices: tuple[str, ...]) -> Any:
    def check(_: Any, attribute: Any, value: frozenset[str]) -> None:
        if unknown := sorted(value - set(choices)):
            raise ConfigError(f"{_property_of(attribute.name)} has {unknown[0]!r}; it is made of {', '.join(choices)}")

    return check


def _placement(value: Iterable[str] | None) -> frozenset[str] | None:
    return None if value is None else frozenset(value)


@attrs.frozen(kw_only=True)
class Settings:
    """
    What decides about records; the connector's names and defaults of all are in ``PROPERTIES``.

    Args:
        prefix: the logical name of the cluster, with which topics and names of schemas start.
        output_format: ``"legacy"``: cells in structs, without collections; ``"advanced"``: all types.
        preimages: legacy only: ``before`` has the preimage.
        before, after: advanced only: whether they have all columns of the row, only the updated ones, or nothing.
        placement: advanced only: where the primary key is; None: the default, which the connector documents. The place
            ``payload-diff`` is accepted and has no effect, as in the connector.
        key_name: the field of the primary key for the placement ``payload-key``.
        tombstones: whether a delete of a row is followed by a record without a value.
        skipped: operations without records, such as ``"d"``.
        delimiter: what is between the parts of a topic's name.
        heartbeat_prefix: the first part of the name of the heartbeats' topic.
        version: ``source.version`` of records.
        schema_names: how names of schemas are adjusted for Avro: ``"none"`` and ``"avro"`` are the same, as in the
            connector; or ``"avro_unicode"``.
        field_names: the same of fields; the connector leaves them as the columns are, whatever the property says.
        like_connector: what is done as the connector does it, although it is wrong; see docs/debezium.md.

    Raises:
        ConfigError: a value is not one of those that are known.
    """

    prefix: str
    output_format: OutputFormat = attrs.field(default="legacy", validator=_one_of(get_args(OutputFormat)))
    preimages: bool = False
    before: Image = attrs.field(default="none", validator=_one_of(get_args(Image)))
    after: Image = attrs.field(default="none", validator=_one_of(get_args(Image)))
    placement: frozenset[str] | None = attrs.field(
        default=None, converter=_placement, validator=attrs.validators.optional(_some_of(_PLACEMENTS))
    )
    key_name: str = "key"
    tombstones: bool = True
    skipped: frozenset[str] = attrs.field(default=frozenset("t"), converter=frozenset, validator=_some_of(_OPERATIONS))
    delimiter: str = "."
    heartbeat_prefix: str = "__debezium-heartbeat"
    version: str = CONNECTOR_VERSION
    schema_names: Adjustment = attrs.field(default="none", validator=_one_of(ADJUSTMENTS))
    field_names: Adjustment = attrs.field(default="none", validator=_one_of(ADJUSTMENTS))
    like_connector: frozenset[str] = attrs.field(
        default=frozenset(), converter=frozenset, validator=_some_of(DIFFERENCES)
    )

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Return the settings that *properties* of the connector say; others of its properties are not read.

        The connector before version 2 had ``scylla.name`` in the place of ``topic.prefix``; it is read if the newer
        name is missing.

        Raises:
            ConfigError: ``topic.prefix`` is missing, or a value is not one of those that are known.
        """
        if not properties.get("topic.prefix", "").strip():
            properties = {**properties, "topic.prefix": properties.get("scylla.name", "")}
        if not properties["topic.prefix"].strip():
            raise ConfigError("topic.prefix is missing; it is the logical name of the cluster, such as demo")
        given = {
            field: _READ[field](properties[name].strip())
            for field, name in PROPERTIES.items()
            if name in properties and (properties[name].strip() or field not in _READ)
        }
        return cls(**given)

    def topic(self, *parts: str) -> str:
        """Return the name of the topic of these parts, such as those of a table: prefix, keyspace, and name.

        A character that topics of Kafka do not have is ``_``.
        """
        return _NOT_IN_TOPICS.sub("_", self.delimiter.join(parts))

    @property
    def places(self) -> frozenset[str]:
        """Where the primary key is, in the advanced format."""
        if self.placement is not None:
            return self.placement
        return frozenset() if "null-keys" in self.like_connector else frozenset(_DEFAULT_PLACEMENT)


PROPERTIES: Final[dict[str, str]] = {
    "prefix": "topic.prefix",
    "output_format": "cdc.output.format",
    "preimages": "experimental.preimages.enabled",
    "before": "cdc.include.before",
    "after": "cdc.include.after",
    "placement": "cdc.include.primary-key.placement",
    "key_name": "cdc.include.primary-key.payload-key-name",
    "tombstones": "tombstones.on.delete",
    "skipped": "skipped.operations",
    "delimiter": "topic.delimiter",
    "heartbeat_prefix": "topic.heartbeat.prefix",
    "version": "rscylla.source.version",
    "schema_names": "schema.name.adjustment.mode",
    "field_names": "field.name.adjustment.mode",
    "like_connector": "rscylla.like.connector",
}
"""The names of settings as properties: the connector's, and ``rscylla.``... where it has none."""


def _property_of(field: str) -> str:
    return PROPERTIES[field]


def words(text: str) -> tuple[str, ...]:
    """Return the parts of a list with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def options_of(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the properties whose names begin with *prefix*, by what follows it."""
    return {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}


def flag(text: str, name: str) -> bool:
    """Return whether *text*, the property *name*, is true. Raises ConfigError unless it is true or false."""
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name} is {text!r}, which is neither true nor false")
    return text.lower() == "true"


_READ: Final[dict[str, Any]] = {
    **dict.fromkeys(PROPERTIES, str),
    **dict.fromkeys(("output_format", "before", "after", "schema_names", "field_names"), str.lower),
    **dict.fromkeys(("placement", "like_connector"), lambda text: words(text.lower())),
    **{field: partial(flag, name=PROPERTIES[field]) for field in ("preimages", "tombstones")},
    "skipped": lambda text: words(text),
}
