"""Settings of Kafka's Java producer as librdkafka names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException, Producer

from ...debezium import words
from ...errors import ConfigError
from .keystores import kafka_stores
from .properties import Finding, Properties

__all__ = ["producer_config", "producer_findings"]

_SAME: Final = frozenset(
    (
        *("acks", "bootstrap.servers", "client.dns.lookup", "client.id", "client.rack", "compression.type"),
        *("enable.idempotence", "metadata.recovery.strategy", "partitioner", "debug"),
        *("sasl.kerberos.service.name", "sasl.mechanism", "security.protocol"),
        *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions"),
        *("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.method"),
        *("sasl.username", "sasl.password", "ssl.key.password", "ssl.keystore.password"),
        *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"),
    )
)
_RENAMED: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_INT: Final = 2**31 - 1


class _Number(NamedTuple):
    """A number of Java's producer: its name in librdkafka, the bounds there, and what is written in another way."""

    name: str
    least: int
    most: int
    instead: Mapping[int, int] = {}


_OFF: Final = {-1: 0}
_NUMBERS: Final = {
    "batch.size": _Number("batch.size", 1, _INT, {0: 1}),
    "connections.max.idle.ms": _Number("connections.max.idle.ms", 0, _INT, {0: 1, **_OFF}),
    "delivery.timeout.ms": _Number("delivery.timeout.ms", 0, _INT),
    "linger.ms": _Number("linger.ms", 0, 900_000),
    "max.in.flight.requests.per.connection": _Number("max.in.flight.requests.per.connection", 1, 1_000_000),
    "max.request.size": _Number("message.max.bytes", 1000, 1_000_000_000),
    "metadata.max.age.ms": _Number("metadata.max.age.ms", 1000, 86_400_000),
    "metadata.recovery.rebootstrap.trigger.ms": _Number("metadata.recovery.rebootstrap.trigger.ms", 0, _INT),
    "receive.buffer.bytes": _Number("socket.receive.buffer.bytes", 0, 100_000_000, _OFF),
    "reconnect.backoff.max.ms": _Number("reconnect.backoff.max.ms", 0, 3_600_000),
    "reconnect.backoff.ms": _Number("reconnect.backoff.ms", 0, 3_600_000),
    "request.timeout.ms": _Number("request.timeout.ms", 1, 900_000),
    "retries": _Number("retries", 0, _INT),
    "retry.backoff.max.ms": _Number("retry.backoff.max.ms", 1, 300_000, {0: 1}),
    "retry.backoff.ms": _Number("retry.backoff.ms", 1, 300_000, {0: 1}),
    "send.buffer.bytes": _Number("socket.send.buffer.bytes", 0, 100_000_000, _OFF),
    "socket.connection.setup.timeout.max.ms": _Number("socket.connection.setup.timeout.ms", 1000, _INT),
    "socket.connection.setup.timeout.ms": _Number("socket.connection.setup.timeout.ms", 1000, _INT),
    "transaction.timeout.ms": _Number("transaction.timeout.ms", 1000, _INT),
    # Of librdkafka alone.
    "compression.level": _Number("compression.level", -1, 12),
    "message.timeout.ms": _Number("message.timeout.ms", 0, _INT),
    "queue.buffering.max.kbytes": _Number("queue.buffering.max.kbytes", 1, _INT),
    "queue.buffering.max.messages": _Number("queue.buffering.max.messages", 0, _INT),
    "statistics.interval.ms": _Number("statistics.interval.ms", 0, 86_400_000),
}
_LEVELS: Final = {"gzip": 9, "lz4": 12, "zstd": 12}
"""The highest levels of compression that librdkafka has."""
_IN_ORDER: Final = 5
"""Requests on their way, at most, whose records an idempotent producer keeps in order."""
_STORES: Final = frozenset(("ssl.truststore.location", "ssl.keystore.location"))
_PARTITIONERS: Final = {
    "": "murmur2_random",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "murmur2_random",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "random",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "random",
}
_LOGIN: Final = re.compile(
    r"\b(username|password|clientId|clientSecret|scope)\s*=\s*"
    r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
_OF_WORKERS: Final = ("bootstrap.servers", "security.protocol", "sasl.", "ssl.", "client.")


def producer_config(properties: Properties) -> tuple[dict[str, Any], list[Finding]]:
    """Return the configuration of librdkafka, and what is to say about it.

    ``producer.override.`` of the connector comes before ``producer.`` of a worker, and that before the worker's own.

    Values that Java's producer takes and librdkafka does not become the nearest that it does; findings say so.

    Raises:
        ConfigError: a file of TLS cannot be used, or a number is none.
    """
    given: dict[str, tuple[str, str]] = {}
    for name, value in properties.items():
        if name in _OF_WORKERS or name.startswith(tuple(p for p in _OF_WORKERS if p.endswith("."))):
            given[name] = name, value
    overrides = properties.under("producer.override.")
    for name, value in properties.under("producer.").items():
        if not name.startswith("override."):
            given[name] = f"producer.{name}", value
    for name, value in overrides.items():
        given[name] = f"producer.override.{name}", value
    config: dict[str, Any] = {}
    named: dict[str, str] = {}
    said: list[tuple[str, str]] = []
    for name, (full, value) in sorted(given.items(), reverse=True):  # so that max.ms does not override ms
        before = set(config)
        said.append((full, _translated(name, full, value.strip(), config)))
        named |= dict.fromkeys(set(config) - before, full)
    said += [(named.get(name, name), why) for name, why in _fitting(config, exactly_once=properties.exactly_once)]
    kind = config.get("compression.type", "")
    if kind in _LEVELS and (name := f"compression.{kind}.level") in given:
        full, value = given[name]
        config["compression.level"] = str(max(-1, min(_whole(full, value), _LEVELS[kind])))
    config |= kafka_stores({name: value for name, (_, value) in given.items()})
    return config, [Finding(full, why, "warning") for full, why in said if why]


def producer_findings(properties: Properties) -> list[Finding]:
    """Return what is to say about the settings of the producer, as ``producer_config``, with errors of librdkafka.

    Nothing is connected.
    """
    try:
        config, findings = producer_config(properties)
        alone = {name: value for name, value in config.items() if name not in ("bootstrap.servers", "debug")}
        Producer({"enable.idempotence": True, **alone, "log_level": 0})
    except ConfigError as error:
        name, _, why = str(error).partition(" ")
        return [Finding(name, why)]
    except KafkaException as error:
        return [*findings, Finding("producer.override", f"is not possible: {error.args[0].str().strip()}")]
    return findings


def _fitting(config: dict[str, Any], *, exactly_once: bool) -> Iterator[tuple[str, str]]:
    """Make settings fit together that do so in Java, and keep records in order; yield names, and what is to say.

    As in Java's producer, acknowledgements by less than all replicas are enough to say that it is not idempotent.
    """
    if exactly_once:
        for name, needed in (("acks", ("all", "-1")), ("enable.idempotence", ("true",))):
            if config.get(name, needed[0]).lower() not in needed:
                del config[name]
                yield name, f"has no effect in exactly-once mode, which is {needed[0]}"
    if config.get("acks", "all") not in ("all", "-1"):
        config.setdefault("enable.idempotence", "false")
    if config.get("enable.idempotence", "true").lower() != "false":
        if int(config.get("retries", 1)) < 1:
            del config["retries"]
            yield "retries", "has no effect: an idempotent producer sends again what is not acknowledged"
        if int(config.get("max.in.flight.requests.per.connection", 1)) > _IN_ORDER:
            config["max.in.flight.requests.per.connection"] = str(_IN_ORDER)
            yield "max.in.flight.requests.per.connection", f"is {_IN_ORDER}, with which records stay in order"
    first = int(config.get("reconnect.backoff.ms", 100))
    if first > int(config.get("reconnect.backoff.max.ms", 10_000)):
        config["reconnect.backoff.max.ms"] = str(first)  # as in Java, where the longer one counts


def _translated(name: str, full: str, value: str, config: dict[str, Any]) -> str:
    """Put a setting into *config*; return what is to say about it, "" if nothing is."""
    if name in _NUMBERS:
        return _number(_NUMBERS[name], full, value, config)
    if name in _SAME:
        config[name] = value
    elif name in _RENAMED:
        config[_RENAMED[name]] = value
    elif name == "buffer.memory":
        config["queue.buffering.max.kbytes"] = min(max(1, _whole(full, value) // 1024), _INT)
    elif name == "ssl.endpoint.identification.algorithm":
        config[name] = value or "none"
    elif name == "ssl.cipher.suites":
        # OpenSSL takes Java's names of TLS 1.2; those of 1.3 are all on.
        if suites := [suite for suite in words(value) if not _OF_TLS_1_3.fullmatch(suite)]:
            config[name] = ":".join(suites)
    elif name == "sasl.jaas.config":
        return _login(value, config)
    elif name == "partitioner.class":
        if value not in _PARTITIONERS:
            return "is a Java class, which has no effect; keys go where Java's default partitioner puts them"
        config["partitioner"] = _PARTITIONERS[value]
    elif name not in _STORES and name not in _OF_COMPRESSION:
        return "has no effect in librdkafka"
    return ""


_OF_TLS_1_3: Final = re.compile(r"TLS_(?!.*_WITH_)\w+")
_OF_COMPRESSION: Final = frozenset(f"compression.{kind}.level" for kind in _LEVELS)


def _number(number: _Number, full: str, value: str, config: dict[str, Any]) -> str:
    given = _whole(full, value)
    wanted = number.instead.get(given, 0 if given < 0 and -1 in number.instead else given)
    used = max(number.least, min(wanted, number.most))
    config[number.name] = str(used)
    return "" if used == wanted else f"is {used} in librdkafka, which has {number.least} to {number.most}"


def _login(value: str, config: dict[str, Any]) -> str:
    """Put the login of a JAAS configuration into *config*; return what is to say about it."""
    login = {what: re.sub(r"\\(.)", r"\1", a or b) or bare for what, a, b, bare in _LOGIN.findall(value)}
    if {"username", "password"} <= login.keys():
        config |= {"sasl.username": login["username"], "sasl.password": login["password"]}
    elif {"clientId", "clientSecret"} <= login.keys():
        config |= {f"sasl.oauthbearer.client.{what}": login[f"client{what.capitalize()}"] for what in ("id", "secret")}
        config |= {"sasl.oauthbearer.method": "oidc"}
        config |= {"sasl.oauthbearer.scope": login["scope"]} if "scope" in login else {}
    else:
        return "has no user name and password; librdkafka takes sasl.username and sasl.password"
    return ""


def _whole(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"{name} must be a whole number, not {value!r}") from None
