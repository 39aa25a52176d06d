"""What is wrong with properties, for rscylla and for the connector, which refuses more."""

from __future__ import annotations

import pytest
from connectorcases import events_of

import rscylla
from rscylla.debezium import Emitter, Settings
from rscylla.kafka import PROPERTIES, Finding, Properties, verdicts
from rscylla.kafka.config.verdicts import RUNS

NEEDED = {"topic.prefix": "demo", "scylla.cluster.ip.addresses": "127.0.0.1:9042", "scylla.table.names": "shop.items"}
ADVANCED = {"cdc.output.format": "advanced"}


def errors(given: dict[str, str]) -> list[Finding]:
    return [finding for finding in verdicts(Properties.of(NEEDED | given), None) if finding.level == "error"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("heartbeat.interval.ms", "-1"),
        ("heartbeat.interval.ms", "2147483648"),
        ("scylla.query.time.window.size", "1.5"),
        ("scylla.query.time.window.size", "2147483648"),
        ("worker.jitter.percentage", "0"),
        ("cdc.incomplete.task.timeout.ms", "0"),
        ("retriable.restart.connector.wait.ms", "-1"),
        ("poll.interval.ms", "2147483648"),
        ("max.queue.size.in.bytes", "-1"),
        ("max.batch.size", "0"),
        ("max.queue.size", "0"),
        ("errors.max.retries", "x"),
        ("tombstones.on.delete", "yes"),
        ("scylla.ssl.provider", "boring"),
        ("cdc.output.format", "modern"),
        ("cdc.include.before", "x"),
        ("event.processing.failure.handling.mode", "stop"),
        ("skipped.operations", "C"),
        ("incremental.snapshot.watermarking.strategy", "x"),
        ("snapshot.mode.configuration.based.snapshot.data", "maybe"),
        ("scylla.cluster.ip.addresses", "localhost"),
        ("scylla.cluster.ip.addresses", "h:65536"),
        ("scylla.table.names", "a-b.c"),
        ("cdc.include.primary-key.placement", "kafka-key,header"),
    ],
)
def test_a_wrong_value_is_an_error_of_its_property_with_which_nothing_runs(name: str, value: str) -> None:
    (error,) = errors({name: value})
    assert (error.property, error.note) == (name, "")
    assert value.split(",")[-1] in error.message
    properties = Properties.of(NEEDED | {name: value})
    with pytest.raises(rscylla.ConfigError):
        properties.require() or Settings.of(properties)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("heartbeat.interval.ms", "+5"),
        ("scylla.confidence.window.size", "0"),
        ("cdc.incomplete.task.timeout.ms", "99999999999"),
        ("errors.max.retries", "-1"),
        ("tombstones.on.delete", "TRUE"),
        ("scylla.ssl.provider", "OPENSSL"),
        ("skipped.operations", "c, u"),
        ("skipped.operations", "c,u,"),
        ("skipped.operations", "none"),
        ("topic.naming.strategy", "io.debezium.schema.DefaultTopicNamingStrategy"),
        ("custom.metric.tags", "k1=v1,k2=v2"),
        ("cdc.include.primary-key.placement", "payload-before, kafka-key,payload-after"),
    ],
)
def test_a_value_that_the_connector_takes_is_no_error(name: str, value: str) -> None:
    assert errors({name: value}) == []


@pytest.mark.parametrize(
    ("given", "name", "allowed"),
    [
        ({"topic.prefix": "demo prefix"}, "topic.prefix", "letters, digits"),
        ({"heartbeat.interval.ms": "0"}, "heartbeat.interval.ms", "at least 1"),
        ({"scylla.table.names": "shop.*"}, "scylla.table.names", "whole names"),
        ({"topic.naming.strategy": "1x"}, "topic.naming.strategy", "Java class"),
        ({"custom.metric.tags": "abc"}, "custom.metric.tags", "NAME=VALUE"),
        ({"max.queue.size": "2048"}, "max.queue.size", "more than max.batch.size, which is 2048"),
        ({"max.batch.size": "9000"}, "max.queue.size", "more than max.batch.size, which is 9000"),
        ({"cdc.include.before": "full"}, "cdc.include.before", "none with cdc.output.format=legacy"),
        ({"cdc.include.after": "only-updated"}, "cdc.include.after", "none with cdc.output.format=legacy"),
        ({"cdc.include.primary-key.placement": "kafka-headers"}, "cdc.include.primary-key.placement", "legacy"),
        ({"cdc.include.primary-key.placement": " "}, "cdc.include.primary-key.placement", "must not be blank"),
        (ADVANCED | {"cdc.include.primary-key.placement": ""}, "cdc.include.primary-key.placement", "not be blank"),
        (ADVANCED | {"experimental.preimages.enabled": "true"}, "experimental.preimages.enabled", "must be false"),
        ({"skipped.operations": "none,c"}, "skipped.operations", "none alone"),
        ({"skipped.operations": "c, none"}, "skipped.operations", "none alone"),
        ({"skipped.operations": "c,,u"}, "skipped.operations", "without empty parts"),
        ({"skipped.operations": ",c"}, "skipped.operations", "without empty parts"),
        ({"skipped.operations": " "}, "skipped.operations", "without empty parts"),
    ],
)
def test_a_note_says_that_rscylla_runs_where_the_connector_does_not(
    given: dict[str, str], name: str, allowed: str
) -> None:
    Properties.of(NEEDED | given).require()
    (error,) = errors(given)
    assert (error.property, error.note) == (name, RUNS)
    assert allowed in error.message


@pytest.mark.parametrize(
    "given",
    [
        {"cdc.include.before": "full"},
        {"cdc.include.after": "only-updated"},
        {"cdc.include.primary-key.placement": "kafka-headers"},
        ADVANCED | {"experimental.preimages.enabled": "true"},
        {"heartbeat.interval.ms": "0"},
    ],
)
def test_what_has_no_effect_changes_no_record(given: dict[str, str]) -> None:
    bare = {name: value for name, value in given.items() if name == "cdc.output.format"}
    (change,) = events_of(
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}\n"
        "CREATE TABLE shop.items (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'preimage': true}",
        "INSERT INTO shop.items (pk, v) VALUES (1, 2)",
    )
    with_it, without = (Emitter(Settings.of(NEEDED | more)).records(change, 0) for more in (given, bare))
    assert with_it == without


@pytest.mark.parametrize("name", ["cdc.include.before", "cdc.include.after", "cdc.include.primary-key.placement"])
def test_an_option_of_the_advanced_format_is_no_error_there(name: str) -> None:
    assert errors(ADVANCED | {name: "kafka-headers" if name.endswith("placement") else "full"}) == []


@pytest.mark.parametrize("missing", NEEDED)
def test_what_is_missing_is_named(missing: str) -> None:
    (error,) = verdicts(Properties.of({name: value for name, value in NEEDED.items() if name != missing}), None)
    assert (error.property, error.note) == (missing, "")
    assert error.message.startswith("is missing")


def test_the_defaults_are_what_the_connector_takes() -> None:
    assert errors({p.name: p.default for p in PROPERTIES if p.default is not None and p.status != "unsupported"}) == []
