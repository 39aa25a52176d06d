"""``Topics``: topics that do not exist are created, with the settings of ``topic.creation``."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import attrs
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ...clock import Stop, bounded
from ...debezium import java_pattern, told, words
from ...errors import ConfigError, PublishFailed, PublishRejected
from ..config.properties import Properties

__all__ = ["NO_TOPIC", "TopicSettings", "Topics", "is_topic"]

log = logging.getLogger("rscylla.kafka")

TIMEOUT_S: Final = 30.0
OPTIONAL_TIMEOUT_S: Final = 5.0


NO_TOPIC: Final = (
    "a record can never be sent: the name of its topic has more than ASCII letters, digits, '.', '_' and '-', or is "
    "empty, '.', '..', or longer than 249"
)


def is_topic(name: str) -> bool:
    """Return whether Kafka takes *name* as that of a topic."""
    return re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is not None and name not in (".", "..")


@attrs.frozen
class TopicSettings:
    """How a topic is created. −1: as the broker does by default. ``config``: other settings by their names."""

    partitions: int = -1
    replication: int = -1
    config: Mapping[str, str] = attrs.field(factory=dict)


_LEFT_TO_BROKERS: Final = (
    *(KafkaError._TIMED_OUT, KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION),  # noqa: SLF001
    *(KafkaError.REQUEST_TIMED_OUT, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED),
)


@attrs.define(eq=False)
class Topics:
    """Creates topics before their first record. Thread-safe.

    ``groups`` are tried in order: patterns to include and to exclude, and the settings. ``default`` is for the others.
    ``required``: what brokers do not create on request is an error; otherwise, they may create it themselves. ``stop``
    ends waits for Kafka.
    """

    client: Callable[[], Any]
    default: TopicSettings
    groups: tuple[tuple[re.Pattern[str], re.Pattern[str], TopicSettings], ...] = ()
    required: bool = True
    stop: Stop = attrs.field(factory=Stop)

    @classmethod
    def of(cls, properties: Properties, config: Mapping[str, Any], stop: Stop | None = None) -> Self | None:
        """Return what *properties* say; None if topics are left to the broker.

        Args:
            config: of librdkafka.
            stop: ends waits for Kafka.

        Raises:
            ConfigError: a setting is wrong, or missing as Connect demands it.
        """
        given = properties.under("topic.creation.")
        if properties.text("topic.creation.enable").lower() == "false":
            return None
        if not any(name.startswith("default.") for name in given):
            if properties.parts("topic.creation.groups"):
                raise ConfigError(
                    "topic.creation.groups needs topic.creation.default.partitions and .replication.factor"
                )
            if not properties.flag("auto.create.topics.enable"):
                return None
        default = _settings("default", given)
        groups = []
        for name in properties.parts("topic.creation.groups"):
            include, exclude = (
                _patterns(name, given.get(f"{name}.{what}", ""), what) for what in ("include", "exclude")
            )
            groups.append((include, exclude, _settings(name, given, default)))
        required = any(name.startswith("default.") for name in given)
        return cls(lambda: AdminClient(dict(config)), default, tuple(groups), required, stop or Stop())

    def settings_of(self, topic: str) -> TopicSettings:
        """Return how *topic* is created: as the first group that includes and does not exclude it."""
        for include, exclude, settings in self.groups:
            if include.fullmatch(topic) and not exclude.fullmatch(topic):
                return settings
        return self.default

    def ensure(self, topic: str) -> None:
        """Create *topic* unless it exists. Blocks.

        Where it is not *required*, brokers that do not answer such a request, or do not allow it, may create the topic
        themselves when the first record comes.

        Raises:
            PublishRejected: Kafka forbids the name, such as one that differs from another by ``.`` and ``_`` only.
            PublishFailed: Kafka does not answer, or refuses.
            Stopped: *stop* was set.
        """
        settings, name = self.settings_of(topic), told(topic)
        try:
            client = self.client()
            if topic in bounded(lambda: client.list_topics(timeout=TIMEOUT_S), stop=self.stop).topics:
                return
            new = NewTopic(topic, settings.partitions, settings.replication, config=dict(settings.config))
            timeout_s = TIMEOUT_S if self.required else OPTIONAL_TIMEOUT_S
            made = client.create_topics([new], request_timeout=timeout_s)[topic]
            bounded(lambda: made.result(timeout_s), stop=self.stop)
        except (KafkaException, TimeoutError) as error:
            # The future's own error, if the broker leaves the request without an answer.
            found = error.args[0] if isinstance(error, KafkaException) else KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001
            if found.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            cause = KafkaError(found.code())  # brokers quote names of topics, which may be values of rows
            if found.code() == KafkaError.TOPIC_EXCEPTION:
                raise PublishRejected(
                    f"a record can never be sent: Kafka forbids the name of its topic, {name}, such as one that "
                    "differs from that of another topic by '.' and '_' only"
                ) from KafkaException(cause)
            if self.required or found.code() not in _LEFT_TO_BROKERS:
                raise PublishFailed(
                    f"the topic of a record, {name}, cannot be created with {settings}: {cause.str()}; change "
                    "topic.creation, or create the topic"
                ) from KafkaException(cause)
            log.warning("the topic of a record, %s, is left to the brokers to create: %s", name, cause.str())
        else:
            log.info("the topic of a record, %s, is created with %s", name, settings)


def _settings(group: str, given: Mapping[str, str], default: TopicSettings | None = None) -> TopicSettings:
    of_group = {n.removeprefix(f"{group}."): value.strip() for n, value in given.items() if n.startswith(f"{group}.")}
    for other in ("include", "exclude"):
        of_group.pop(other, None)
    numbers = []
    for name, attribute in (("partitions", "partitions"), ("replication.factor", "replication")):
        text = of_group.pop(name, str(-1 if default is None else getattr(default, attribute)))
        if not re.fullmatch(r"-1|[1-9]\d{0,5}", text):
            raise ConfigError(f"topic.creation.{group}.{name} is {text!r}; it is a number of at least 1, or -1")
        numbers.append(int(text))
    return TopicSettings(numbers[0], numbers[1], of_group)


def _patterns(group: str, text: str, what: str) -> re.Pattern[str]:
    parts = words(text)  # as in Connect, one expression after commas are gone
    return java_pattern("|".join(parts) if parts else "(?!)", f"topic.creation.{group}.{what}")
