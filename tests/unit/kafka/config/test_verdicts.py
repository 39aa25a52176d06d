"""The connector's verdicts in its own words: Debezium 2.7.4 was run in Java on these values."""

from __future__ import annotations

import pytest
from connectorcases import events_of

from rscylla.debezium import Emitter, Settings
from rscylla.kafka import PROPERTIES, Properties, verdicts
from rscylla.kafka.config.verdicts import _FIELDS, RUNS, refusals

NEEDED = {"topic.prefix": "demo", "scylla.cluster.ip.addresses": "127.0.0.1:9042", "scylla.table.names": "shop.items"}
POSITIVE = "A positive, non-zero integer value is expected"
NATURAL = "An non-negative integer is expected"
INT = "An integer is expected"
LONG = "A long value is expected"
FLAG = "Either 'true' or 'false' is expected"
HOSTS = "Expected host specification as a comma-separated list of pairs <IP>:<PORT>, but got invalid"
ADVANCED = {"cdc.output.format": "advanced"}
PLACES = "kafka-key, payload-after, payload-before, payload-diff (reserved), payload-key, kafka-headers"

FORMAT = "has invalid format (only the underscore, hyphen, dot and alphanumeric characters are allowed)"
NO_BEFORE = (
    "cdc.include.before must be 'none' (default) when using cdc.output.format=legacy. "
    "For preimage support in legacy mode, use experimental.preimages.enabled instead."
)
NO_AFTER = (
    "cdc.include.after must be 'none' (default) when using cdc.output.format=legacy. "
    "Legacy mode does not support postimages."
)
NO_PLACEMENT = (
    "cdc.include.primary-key.placement must be at default value ('kafka-key,payload-after,payload-before') "
    "when using cdc.output.format=legacy."
)
NO_PREIMAGES = (
    "experimental.preimages.enabled=true is not compatible with cdc.output.format=advanced. "
    "For advanced mode, use cdc.include.before and cdc.include.after instead."
)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("heartbeat.interval.ms", "0", [POSITIVE]),
        ("heartbeat.interval.ms", "-1", [POSITIVE, NATURAL]),
        ("heartbeat.interval.ms", "abc", [INT, POSITIVE, NATURAL]),
        ("heartbeat.interval.ms", "2147483648", [INT, POSITIVE, NATURAL]),
        ("heartbeat.interval.ms", "+5", []),
        ("scylla.query.time.window.size", "-1", [NATURAL]),
        ("scylla.query.time.window.size", "1.5", [INT, NATURAL]),
        ("scylla.confidence.window.size", "0", []),
        ("worker.jitter.percentage", "0", [POSITIVE]),
        ("cdc.incomplete.task.timeout.ms", "0", ["A positive, non-zero long value is expected"]),
        ("cdc.incomplete.task.timeout.ms", "99999999999", []),
        ("cdc.incomplete.task.timeout.ms", "x", [LONG, "A positive, non-zero long value is expected"]),
        ("retriable.restart.connector.wait.ms", "-1", ["A positive, non-zero long value is expected"]),
        ("poll.interval.ms", "2147483648", [POSITIVE]),
        ("poll.interval.ms", "x", [LONG, POSITIVE]),
        ("signal.poll.interval.ms", "0", [POSITIVE]),
        ("max.queue.size.in.bytes", "-1", ["A non-negative long value is expected"]),
        ("streaming.delay.ms", "x", [LONG, "A non-negative long value is expected"]),
        ("max.batch.size", "0", [POSITIVE]),
        ("max.batch.size", "9000", []),
        ("max.queue.size", "0", ["A positive queue size is required", "Must be larger than the maximum batch size"]),
        ("max.queue.size", "2048", ["Must be larger than the maximum batch size"]),
        ("max.queue.size", "x", [INT]),
        ("errors.max.retries", "x", [INT, INT]),
        ("errors.max.retries", "-1", []),
        ("tombstones.on.delete", "yes", [FLAG, FLAG]),
        ("tombstones.on.delete", "TRUE", []),
        ("experimental.preimages.enabled", "1", [FLAG]),
        ("scylla.ssl.enabled", "yes", [FLAG]),
        ("scylla.ssl.provider", "boring", ["Value must be one of jdk, openssl, openssl_refcnt"]),
        ("scylla.ssl.provider", "OPENSSL", []),
        ("cdc.output.format", "modern", ["Value must be one of legacy, advanced"]),
        ("cdc.include.before", "x", ["Value must be one of only-updated, none, full"]),
        ("event.processing.failure.handling.mode", "stop", ["Value must be one of warn, fail, ignore, skip"]),
        ("skipped.operations", "c, u", []),
        ("skipped.operations", "C", ["Invalid operation"]),
        ("skipped.operations", "c,,u", ["Invalid operation"]),
        ("skipped.operations", ",", []),
        ("skipped.operations", "d,none", ["'none' cannot be specified with other skipped operation types"]),
        ("topic.naming.strategy", "1x", ["A Java class name is expected"]),
        ("topic.naming.strategy", "io.debezium.schema.DefaultTopicNamingStrategy", []),
        (
            "custom.metric.tags",
            "abc",
            ["A equivalent-separated map of valid key/value pairs is expected, for example: k1=v1,k2=v2"],
        ),
        ("custom.metric.tags", "k1=v1,k2=v2", []),
        ("incremental.snapshot.watermarking.strategy", "x", ["Value must be one of insert_delete, insert_insert"]),
        (
            "topic.prefix",
            "demo prefix",
            [f"demo prefix {FORMAT}"],
        ),
        ("scylla.cluster.ip.addresses", "localhost", [f"{HOSTS}: localhost"]),
        ("scylla.cluster.ip.addresses", "h:1 , h:x", [f"{HOSTS} port number: h:x"]),
        ("scylla.cluster.ip.addresses", "h:65536", [f"{HOSTS} <IP>:<PORT> pair: h:65536"]),
        ("scylla.table.names", "shop.*", ["Got invalid table name in table specification : *"]),
        (
            "scylla.table.names",
            "shop,a-b.c",
            [
                "Expected a comma-separated list of pairs <keyspace name>.<table name>, but got invalid: shop",
                "Got invalid keyspace name in table specification: a-b",
            ],
        ),
        (
            "cdc.include.before",
            "full",
            [NO_BEFORE],
        ),
        (
            "cdc.include.after",
            "only-updated",
            [NO_AFTER],
        ),
        (
            "cdc.include.primary-key.placement",
            "kafka-key",
            [NO_PLACEMENT],
        ),
        ("cdc.include.primary-key.placement", "payload-before, kafka-key,payload-after", []),
    ],
)
def test_a_value_has_the_verdict_of_the_connector(name: str, value: str, said: list[str]) -> None:
    found = [one for one in refusals(NEEDED | {name: value}) if one.property == name]
    assert [one.message for one in found] == [f"The '{name}' value is invalid: {each}" for each in said]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "experimental.preimages.enabled",
            "true",
            NO_PREIMAGES,
        ),
        (
            "cdc.include.primary-key.placement",
            "kafka-key,header",
            f"Invalid cdc.include.primary-key.placement location: 'header'. Valid values are: {PLACES}",
        ),
        ("cdc.include.primary-key.placement", "kafka-headers", None),
        ("cdc.include.before", "full", None),
    ],
)
def test_a_value_of_the_advanced_format(name: str, value: str, said: str | None) -> None:
    found = [one.message for one in refusals(NEEDED | ADVANCED | {name: value})]
    assert found == ([] if said is None else [f"The '{name}' value is invalid: {said}"])


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("topic.prefix", "A value is required"),
        ("scylla.cluster.ip.addresses", "Host specification is required"),
        ("scylla.table.names", "A table specification with at least one table is required"),
    ],
)
def test_what_is_missing(missing: str, said: str) -> None:
    (finding,) = refusals({name: value for name, value in NEEDED.items() if name != missing})
    assert (finding.property, finding.message) == (missing, f"The '{missing}' value is invalid: {said}")


def test_user_and_password_belong_together() -> None:
    assert [one.message for one in refusals(NEEDED | {"scylla.user": "u"})] == [
        "Password is not set while username was set."
    ]
    assert [one.message for one in refusals(NEEDED | {"scylla.password": "p"})] == [
        "Username is not set while password was set."
    ]


def test_a_batch_that_is_larger_than_the_queue_is_named_at_the_queue() -> None:
    (finding,) = refusals(NEEDED | {"max.batch.size": "9000"})
    assert finding.property == "max.queue.size"


def test_a_note_says_that_rscylla_runs_where_the_connector_does_not() -> None:
    (finding,) = verdicts(Properties.of(NEEDED | {"heartbeat.interval.ms": "0"}), None)
    assert (finding.level, finding.note) == ("error", RUNS)
    found = verdicts(Properties.of(NEEDED | {"heartbeat.interval.ms": "often"}), None)
    assert {(one.property, one.level, one.note) for one in found} == {("heartbeat.interval.ms", "error", "")}


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
def test_rscylla_runs_with_what_has_no_effect(given: dict[str, str]) -> None:
    properties = Properties.of(NEEDED | given)
    properties.require()
    assert [one.note for one in verdicts(properties, None) if one.level == "error"] == [RUNS]
    bare = {name: value for name, value in given.items() if name == "cdc.output.format"}
    (change,) = events_of(
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}\n"
        "CREATE TABLE shop.items (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'preimage': true}",
        "INSERT INTO shop.items (pk, v) VALUES (1, 2)",
    )
    with_it, without = (Emitter(Settings.of(NEEDED | more)).records(change, 0) for more in (given, bare))
    assert with_it == without


def test_the_defaults_are_what_the_connector_takes() -> None:
    defaults = {p.name: p.default for p in PROPERTIES if p.default is not None and p.name in _FIELDS}
    assert refusals(NEEDED | {k: v for k, v in defaults.items() if k != "cdc.output.format"}) == []
    assert {name for name in _FIELDS if not any(p.matches(name) for p in PROPERTIES)} == set()
