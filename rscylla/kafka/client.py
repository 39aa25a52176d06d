"""Settings of Kafka's Java producer as librdkafka names them."""

from __future__ import annotations

import re
from typing import Any, Final

from ..errors import ConfigError
from .properties import Finding, Properties
from .stores import kafka_stores

__all__ = ["producer_config"]

_SAME: Final = frozenset(
    (
        *("acks", "batch.size", "bootstrap.servers", "client.dns.lookup", "client.id", "client.rack"),
        *("compression.type", "compression.level", "connections.max.idle.ms", "delivery.timeout.ms"),
        *("enable.idempotence", "linger.ms", "max.in.flight.requests.per.connection", "metadata.max.age.ms"),
        *("reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retries", "retry.backoff.ms"),
        *("retry.backoff.max.ms", "sasl.kerberos.service.name", "sasl.mechanism", "security.protocol"),
        *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions"),
        *("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.method"),
        *("sasl.username", "sasl.password", "ssl.cipher.suites", "ssl.key.password", "ssl.keystore.password"),
        *("socket.connection.setup.timeout.ms", "transaction.timeout.ms"),
        *("message.timeout.ms", "queue.buffering.max.messages", "queue.buffering.max.kbytes", "partitioner"),
        *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "statistics.interval.ms", "debug"),
    )
)
_RENAMED: Final = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms",
}
_WITHOUT_EFFECT: Final = frozenset(
    (
        *("key.serializer", "value.serializer", "max.block.ms", "metrics.num.samples", "metrics.recording.level"),
        *("metrics.sample.window.ms", "auto.include.jmx.reporter", "metadata.max.idle.ms", "ssl.provider"),
        "transactional.id",
        *("partitioner.adaptive.partitioning.enable", "partitioner.ignore.keys", "ssl.protocol"),
        *("ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.password", "enable.metrics.push"),
        *("ssl.trustmanager.algorithm", "ssl.keymanager.algorithm", "partitioner.availability.timeout.ms"),
    )
)
_STORES: Final = frozenset(("ssl.truststore.location", "ssl.keystore.location"))
_PARTITIONERS: Final = {
    "": "murmur2_random",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "murmur2_random",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "random",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "random",
}
_LOGIN: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_OF_WORKERS: Final = ("bootstrap.servers", "security.protocol", "sasl.", "ssl.", "client.")


def producer_config(properties: Properties) -> tuple[dict[str, Any], list[Finding]]:
    """Return the configuration of librdkafka, and what is to say about it.

    ``producer.override.`` of the connector comes before ``producer.`` of a worker, and that before the worker's own.

    Raises:
        ConfigError: a file of TLS cannot be used.
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
    findings = []
    for name, (full, value) in given.items():
        found = _translated(name, value.strip(), config)
        if found:
            findings.append(Finding(full, found, "warning"))
    _order(config)
    config |= kafka_stores({name: value for name, (_, value) in given.items()})
    return config, findings


def _order(config: dict[str, Any]) -> None:
    """Note where the producer is not idempotent: as in Java's, if less than all replicas are to acknowledge."""
    if config.get("acks", "all") not in ("all", "-1"):
        config.setdefault("enable.idempotence", "false")


def _translated(name: str, value: str, config: dict[str, Any]) -> str:
    """Put a setting into *config*; return what is to say about it, "" if nothing is."""
    if name in _SAME:
        config[name] = value
    elif name in _RENAMED:
        config[_RENAMED[name]] = value
    elif name == "buffer.memory":
        config["queue.buffering.max.kbytes"] = max(1, _whole(name, value) // 1024)
    elif name == "ssl.endpoint.identification.algorithm":
        config[name] = value or "none"
    elif name == "sasl.jaas.config":
        login = {what: re.sub(r"\\(.)", r"\1", text) for what, text in _LOGIN.findall(value)}
        if set(login) != {"username", "password"}:
            return "has no user name and password; librdkafka takes sasl.username and sasl.password"
        config |= {f"sasl.{what}": text for what, text in login.items()}
    elif name == "partitioner.class":
        if value not in _PARTITIONERS:
            return "is a Java class, which has no effect; keys go where Java's default partitioner puts them"
        config["partitioner"] = _PARTITIONERS[value]
    elif name in _WITHOUT_EFFECT:
        return "has no effect in librdkafka"
    elif name not in _STORES:
        return "is not known to librdkafka under this name; it has no effect"
    return ""


def _whole(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"{name} must be a whole number, not {value!r}") from None
