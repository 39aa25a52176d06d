"""What is wrong with properties: as rscylla takes them, and as the Java connector does, which refuses more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ...cdc.log import read_table
from ...debezium import Settings, keys_only, words
from ...driver import ReadSession, Session, consistency_named
from ...errors import CDCDisabled, ConfigError, TableNotFound
from ...publish import DebeziumMessages
from ..producer.topics import Topics
from .client import producer_findings
from .properties import Finding, Properties

__all__ = ["verdicts"]

RUNS: Final = "rscylla runs with it"

_IMAGES: Final = {"cdc.include.before": "preimage", "cdc.include.after": "postimage"}
_USUAL_PLACES: Final = {"kafka-key", "payload-after", "payload-before"}


def verdicts(properties: Properties, session: Session | None) -> list[Finding]:
    """Return what is to say about *properties*, of which some may be wrong.

    Errors are what the connector or rscylla refuses to start with. Where rscylla runs, the note of an error says so.

    Args:
        session: to the cluster, to look at the tables; None: only the properties are looked at.
    """
    found = [*properties.findings, *producer_findings(properties)]
    if not properties.errors:
        try:
            Settings.of(properties)
            DebeziumMessages(properties)
            Topics.of(properties, {})
        except ConfigError as error:
            name, _, wrong = str(error).partition(" ")
            found.append(Finding(name, wrong))
    refused = {finding.property for finding in found if finding.level == "error"}
    found += [Finding(name, why, note=RUNS) for name, why in _refused(properties) if name not in refused]
    if session is not None and not refused:
        reading = ReadSession(session, consistency=consistency_named("LOCAL_ONE"))
        for name in words(properties.text("scylla.table.names")):
            if not set("*?") & set(name):
                found += _of_table(properties, reading, name)
    return found


def _refused(properties: Properties) -> Iterator[tuple[str, str]]:
    """Yield what the connector alone refuses, before it looks at the cluster: the property, and what is wrong."""

    def said(name: str) -> str:
        return properties.text(name).lower()

    if not re.fullmatch(r"[\w.-]*", properties.text("topic.prefix"), re.ASCII):
        yield "topic.prefix", "must be made of letters, digits, and _ - ."
    if re.fullmatch(r"[+-]?0+", said("heartbeat.interval.ms")):
        yield "heartbeat.interval.ms", "must be at least 1, not 0"
    if set("*?") & set(properties.text("scylla.table.names")):
        yield "scylla.table.names", "must be whole names, without * and ?"
    if not re.fullmatch(r"([A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*)?", properties.text("topic.naming.strategy")):
        yield "topic.naming.strategy", "must be the name of a Java class"
    if not all(re.fullmatch(r"[^=]+=[^=]+", tag) for tag in properties.parts("custom.metric.tags")):
        yield "custom.metric.tags", "must be made of NAME=VALUE, with commas between"
    batch, queue = (said(f"max.{what}.size") for what in ("batch", "queue"))
    if batch.isdigit() and queue.isdigit() and int(queue) <= int(batch):
        yield "max.queue.size", f"must be more than max.batch.size, which is {batch}"
    skipped = [one.strip() for one in re.sub(",+$", "", properties.get("skipped.operations", "t")).split(",")]
    if "" in skipped:
        yield "skipped.operations", "must be operations without empty parts between commas"
    if "none" in skipped and len(set(skipped)) > 1:
        yield "skipped.operations", "must be none alone, or operations"
    places = "cdc.include.primary-key.placement"
    if not properties.get(places, "kafka-key").strip():
        yield places, "must not be blank"
    if said("cdc.output.format") == "advanced":
        if said("experimental.preimages.enabled") == "true":
            yield (
                "experimental.preimages.enabled",
                "must be false with cdc.output.format=advanced; see cdc.include.before",
            )
        return
    for name, instead in (("before", "; see experimental.preimages.enabled"), ("after", "")):
        if said(f"cdc.include.{name}") in ("full", "only-updated"):
            yield f"cdc.include.{name}", f"must be none with cdc.output.format=legacy{instead}"
    if set(words(said(places))) != _USUAL_PLACES:
        yield places, f"must be {', '.join(sorted(_USUAL_PLACES))} with cdc.output.format=legacy"


def _of_table(properties: Properties, reading: ReadSession, name: str) -> Iterator[Finding]:
    """Yield what is wrong with the table *name*, which may lack."""
    keyspace, table_name = name.split(".", 1)
    off = f"has {name}, whose CDC is off; ALTER TABLE {name} WITH cdc = {{'enabled': true}}"
    try:
        table = read_table(reading, keyspace, table_name)
    except TableNotFound:
        yield Finding("scylla.table.names", f"has {name}, which is no table of the cluster")
        return
    except CDCDisabled:
        yield Finding("scylla.table.names", off)
        return
    if not table.enabled:
        yield Finding("scylla.table.names", off, note=f"{RUNS}: it reads what was logged before CDC was off")
    if name != name.lower():
        wrong = f"has {name}; names must be in lower case"
        yield Finding("scylla.table.names", wrong, note=f"{RUNS}: it finds names with capitals")
    if properties.text("cdc.output.format").lower() != "advanced":
        if table.delta == "keys":
            yield Finding("cdc.output.format", f"is legacy, but {keys_only(table)}")
        return
    for prop, image in _IMAGES.items():
        wanted, has = properties.text(prop).lower(), getattr(table, image)
        if wanted != "none" and has != "true":
            yield Finding(
                prop,
                f"is {wanted}, but {name} has '{image}': {has}; ALTER TABLE {name} WITH cdc = {{'{image}': true}}",
                note=f"{RUNS}: images are null, or as the log has them",
            )
