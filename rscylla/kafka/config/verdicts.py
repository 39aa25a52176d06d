"""What the Java connector says of properties when it validates them, in its own words, and what rscylla adds.

Source: Debezium 2.7.4, whose fields and validators were run in Java over all of its properties; the connector's own
validators, and recorded validations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from ...cdc.log import read_table
from ...debezium import Settings
from ...driver import ReadSession, Session, consistency_named
from ...errors import CDCDisabled, ConfigError, TableNotFound
from ...publish import DebeziumMessages
from ..producer.topics import Topics
from .client import producer_findings
from .properties import Finding, Properties, words

__all__ = ["refusals", "verdicts"]

Values = Mapping[str, str]
Problems = Callable[[str, Values], Iterable[str]]
"""Returns what is wrong with a value, given all properties."""

RUNS: Final = "rscylla runs with it"

# ---------------------------------------------------------------- fields of Debezium

_INT: Final = ("An integer is expected", 32)
_LONG: Final = ("A long value is expected", 64)


def _parsed(value: str, bits: int) -> int | None:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", value):
        return None
    number = int(value)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _number(kind: tuple[str, int], *bounds: tuple[str, int, int]) -> Problems:
    """Return the check of a number: *bounds* are what is said, the least, and how many bits are read for that."""

    def check(value: str, _: Values) -> Iterable[str]:
        expected, bits = kind
        if _parsed(value, bits) is None:
            yield expected
        for said, least, within in bounds:
            number = _parsed(value, within)
            if number is None or number < least:
                yield said

    return check


def _choice(*choices: str) -> Problems:
    def check(value: str, _: Values) -> Iterable[str]:
        if value.strip().lower() not in choices:
            yield f"Value must be one of {', '.join(choices)}"

    return check


def _boolean(value: str, _: Values) -> Iterable[str]:
    if value.strip().lower() not in ("true", "false"):
        yield "Either 'true' or 'false' is expected"


def _twice(check: Problems) -> Problems:
    """Return a check that a field has by its type and as validator."""
    return lambda value, values: [*check(value, values), *check(value, values)]


def _both(*checks: Problems) -> Problems:
    return lambda value, values: [said for check in checks for said in check(value, values)]


def _prefix(value: str, _: Values) -> Iterable[str]:
    if not value.strip():
        yield "A value is required"
    if not re.fullmatch(r"[\w.-]+", value, re.ASCII):
        yield (f"{value} has invalid format (only the underscore, hyphen, dot and alphanumeric characters are allowed)")


def _operations(value: str, _: Values) -> Iterable[str]:
    given = [part.strip() for part in value.rstrip(",").split(",")] if value.strip(",") else []
    if "none" in given and len(given) > 1:
        yield "'none' cannot be specified with other skipped operation types"
    elif any(part not in ("c", "r", "u", "d", "t", "none") for part in given):
        yield "Invalid operation"


def _class_name(value: str, _: Values) -> Iterable[str]:
    if not re.fullmatch(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*", value):
        yield "A Java class name is expected"


def _tags(value: str, _: Values) -> Iterable[str]:
    if value.strip() and not all(re.fullmatch(r"[^=]+=[^=]+", part) for part in value.split(",")):
        yield "A equivalent-separated map of valid key/value pairs is expected, for example: k1=v1,k2=v2"


def _queue(value: str, values: Values) -> Iterable[str]:
    size, batch = _parsed(value, 32), _parsed(values.get("max.batch.size", "2048"), 32)
    if size is None:
        yield _INT[0]
        return
    if size <= 0:
        yield "A positive queue size is required"
    if batch is not None and size <= batch:
        yield "Must be larger than the maximum batch size"


# ---------------------------------------------------------------- fields of the connector

_HOSTS: Final = "Expected host specification as a comma-separated list of pairs <IP>:<PORT>, but got invalid"
_NAME: Final = re.compile(r"[a-zA-Z_0-9]{1,48}")
_PLACES: Final = ("kafka-key", "payload-after", "payload-before", "payload-diff", "payload-key", "kafka-headers")
_USUAL_PLACES: Final = frozenset(("kafka-key", "payload-after", "payload-before"))
_COMMAS: Final = re.compile(r"\s*,\s*")


def _hosts(value: str, _: Values) -> Iterable[str]:
    for host in _COMMAS.split(value):
        name, *port = host.split(":")
        if len(port) != 1 or not port[0]:
            yield f"{_HOSTS}: {host}"
        elif not port[0].isdigit() or len(port[0]) > 5:
            yield f"{_HOSTS} port number: {host}"
        elif int(port[0]) > 65535 or not name:
            yield f"{_HOSTS} <IP>:<PORT> pair: {host}"


def _tables(value: str, _: Values) -> Iterable[str]:
    for name in _COMMAS.split(value):
        keyspace, *table = name.split(".")
        if len(table) != 1 or not table[0]:
            yield f"Expected a comma-separated list of pairs <keyspace name>.<table name>, but got invalid: {name}"
            continue
        if not _NAME.fullmatch(keyspace):
            yield f"Got invalid keyspace name in table specification: {keyspace}"
        if not _NAME.fullmatch(table[0]):
            yield f"Got invalid table name in table specification : {table[0]}"


def _is_legacy(values: Values) -> bool:
    return values.get("cdc.output.format", "legacy").strip().lower() != "advanced"


def _preimages(value: str, values: Values) -> Iterable[str]:
    if value.strip().lower() == "true" and not _is_legacy(values):
        yield (
            "experimental.preimages.enabled=true is not compatible with cdc.output.format=advanced. For advanced mode, "
            "use cdc.include.before and cdc.include.after instead."
        )


def _image(name: str, instead: str) -> Problems:
    def check(value: str, values: Values) -> Iterable[str]:
        if value.strip().lower() in ("full", "only-updated") and _is_legacy(values):
            yield f"{name} must be 'none' (default) when using cdc.output.format=legacy. {instead}"

    return _both(_choice("only-updated", "none", "full"), check)


def _placement(value: str, values: Values) -> Iterable[str]:
    if not value.strip():
        yield "A value is required"
    places = [place.strip().lower() for place in value.split(",") if place.strip()]
    if _is_legacy(values):
        if places and frozenset(places).intersection(_PLACES) != _USUAL_PLACES:
            yield (
                "cdc.include.primary-key.placement must be at default value ('kafka-key,payload-after,payload-before') "
                "when using cdc.output.format=legacy."
            )
        return
    if not value.strip():
        yield "cdc.include.primary-key.placement must be specified"
    for place in places:
        if place not in _PLACES:
            yield (
                f"Invalid cdc.include.primary-key.placement location: '{place}'. Valid values are: kafka-key, "
                "payload-after, payload-before, payload-diff (reserved), payload-key, kafka-headers"
            )


_NATURAL_SAID: Final = "An non-negative integer is expected"
_POSITIVE_SAID: Final = "A positive, non-zero integer value is expected"
_NATURAL: Final = _number(_INT, (_NATURAL_SAID, 0, 32))
_POSITIVE: Final = _number(_INT, (_POSITIVE_SAID, 1, 32))
_POSITIVE_LONG: Final = _number(_LONG, ("A positive, non-zero long value is expected", 1, 64))
_NATURAL_LONG: Final = _number(_LONG, ("A non-negative long value is expected", 0, 64))
_PERIOD: Final = _number(_LONG, (_POSITIVE_SAID, 1, 32))
_LEVELS: Final = (
    *("all", "local_quorum", "each_quorum", "serial", "one", "quorum", "local_serial", "any", "two", "three"),
    "local_one",
)

_FIELDS: Final[dict[str, Problems]] = {
    "topic.prefix": _prefix,
    "scylla.cluster.ip.addresses": _hosts,
    "scylla.table.names": _tables,
    **dict.fromkeys(("scylla.ssl.enabled", "worker.shared.session.enabled"), _boolean),
    "scylla.ssl.provider": _choice("jdk", "openssl", "openssl_refcnt"),
    "scylla.consistency.level": _choice(*_LEVELS),
    **dict.fromkeys(
        (
            *("scylla.query.time.window.size", "scylla.confidence.window.size", "scylla.minimal.wait.for.window.time"),
            *("scylla.query.options.fetch.size", "worker.retry.backoff.base", "worker.maximum.backoff"),
            *("worker.pooling.core.pool.local", "worker.pooling.max.pool.local", "worker.pooling.pool.timeout.ms"),
            *("worker.pooling.max.requests.per.connection", "worker.pooling.max.queue.size"),
        ),
        _NATURAL,
    ),
    "worker.jitter.percentage": _POSITIVE,
    "cdc.output.format": _choice("legacy", "advanced"),
    "experimental.preimages.enabled": _both(_boolean, _preimages),
    "cdc.include.before": _image(
        "cdc.include.before", "For preimage support in legacy mode, use experimental.preimages.enabled instead."
    ),
    "cdc.include.after": _image("cdc.include.after", "Legacy mode does not support postimages."),
    "cdc.include.primary-key.placement": _placement,
    "cdc.incomplete.task.timeout.ms": _POSITIVE_LONG,
    "heartbeat.interval.ms": _number(_INT, (_POSITIVE_SAID, 1, 32), (_NATURAL_SAID, 0, 32)),
    "event.processing.failure.handling.mode": _choice("warn", "fail", "ignore", "skip"),
    "max.batch.size": _POSITIVE,
    "max.queue.size": _queue,
    **dict.fromkeys(("max.queue.size.in.bytes", "streaming.delay.ms"), _NATURAL_LONG),
    **dict.fromkeys(("poll.interval.ms", "signal.poll.interval.ms"), _PERIOD),
    "skipped.operations": _operations,
    "retriable.restart.connector.wait.ms": _POSITIVE_LONG,
    "errors.max.retries": _twice(_number(_INT)),
    "tombstones.on.delete": _twice(_boolean),
    "topic.naming.strategy": _class_name,
    "custom.metric.tags": _tags,
    "incremental.snapshot.watermarking.strategy": _choice("insert_delete", "insert_insert"),
    **dict.fromkeys(
        (f"snapshot.mode.configuration.based.{part}" for part in ("snapshot.data", "snapshot.schema", "start.stream")),
        _boolean,
    ),
}
_REQUIRED: Final = {
    "topic.prefix": "The 'topic.prefix' value is invalid: A value is required",
    "scylla.cluster.ip.addresses": "The 'scylla.cluster.ip.addresses' value is invalid: Host specification is required",
    "scylla.table.names": (
        "The 'scylla.table.names' value is invalid: A table specification with at least one table is required"
    ),
}


def refusals(values: Values) -> list[Finding]:
    """Return why the connector refuses properties, before it looks at the cluster; an empty list if it does not."""
    found = [Finding(name, said) for name, said in _REQUIRED.items() if name not in values]
    for name, check in _FIELDS.items():
        if name in values:
            found += [Finding(name, f"The '{name}' value is invalid: {said}") for said in check(values[name], values)]
    if "max.queue.size" not in values and "max.batch.size" in values:
        said = _queue("8192", values)
        found += [Finding("max.queue.size", f"The 'max.queue.size' value is invalid: {each}") for each in said]
    if found:
        return found
    user, password = (name in values for name in ("scylla.user", "scylla.password"))
    if password and not user:
        found.append(Finding("scylla.user", "Username is not set while password was set."))
    if user and not password:
        found.append(Finding("scylla.password", "Password is not set while username was set."))
    return found


# ---------------------------------------------------------------- the whole


def verdicts(properties: Properties, session: Session | None) -> Sequence[Finding]:
    """Return what the connector itself would say about *properties*, and what rscylla adds.

    Errors are what the connector refuses to start with, in its words, and what rscylla refuses. Where rscylla runs, the
    note of an error says so.

    Args:
        session: to the cluster, to look at the tables; None: only the properties are looked at.
    """
    refused = refusals(properties)
    own = [*properties.findings, *producer_findings(properties)]
    if not properties.errors:
        try:
            Settings.of(properties)
            DebeziumMessages(properties)
            Topics.of(properties, {})
        except ConfigError as error:
            own.append(Finding(str(error).split(" ", 1)[0], str(error)))
    wrong = {finding.property for finding in own if finding.level == "error"}
    found = [one if one.property in wrong else Finding(one.property, one.message, note=RUNS) for one in refused]
    known = {finding.property for finding in refused}
    found += [one for one in own if one.level == "warning" or one.property not in known]
    if session is not None and not wrong:
        reading = ReadSession(session, consistency=consistency_named("LOCAL_ONE"))
        for name in words(properties.text("scylla.table.names")):
            if not set("*?") & set(name):
                found += _of_table(properties, reading, name)
    return found


def _of_table(properties: Properties, reading: ReadSession, name: str) -> list[Finding]:
    keyspace, table_name = name.split(".", 1)
    of_cluster = partial(Finding, "scylla.cluster.ip.addresses")
    off = of_cluster(f"The table '{name}' does not have Scylla CDC enabled.")
    try:
        table = read_table(reading, keyspace, table_name)
    except TableNotFound:
        rows = reading.rows("SELECT keyspace_name FROM system_schema.keyspaces", doing="reading the names of keyspaces")
        return [of_cluster(_missing(keyspace, table_name, is_keyspace=keyspace not in {row[0] for row in rows}))]
    except CDCDisabled:
        return [off]
    found = [] if table.enabled else [attrs.evolve(off, note=f"{RUNS}: it reads what was logged before CDC was off")]
    if name != name.lower():  # it looks for names in lower case
        said = _missing(keyspace, table_name, is_keyspace=keyspace != keyspace.lower())
        found.append(of_cluster(said, note=f"{RUNS}: it finds names with capitals"))
    if _is_legacy(properties):
        return found
    for prop, image, has in (
        ("cdc.include.before", "preimage", table.preimage),
        ("cdc.include.after", "postimage", table.postimage),
    ):
        wanted = properties.text(prop).lower()
        if wanted != "none" and has != "true":
            said = (
                f"Table '{name}' requires {image} for '{prop}={wanted}' but table has '{image}'={has}. "
                f"Enable with: ALTER TABLE {name} WITH cdc = {{'{image}': true}}"
            )
            note = f"{RUNS}: images are null, or as the log has them"
            found.append(Finding(prop if wanted == "full" else "scylla.table.names", said, note=note))
    return found


def _missing(keyspace: str, table: str, *, is_keyspace: bool) -> str:
    found = f"Did not find table '{keyspace}.{table}' in Scylla cluster"
    return f"{found} - missing keyspace '{keyspace}'." if is_keyspace else f"{found}."
