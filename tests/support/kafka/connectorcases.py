"""Recorded cases of the Scylla CDC source connector: what it was given and what it produced; and the same through us.

``tests/unit/debezium/connector-records.tar.xz`` has the cases as they were recorded; its README describes them.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import attrs

import rscylla
from rscylla.debezium import Emitter, JsonConverter, Record, Schema, Settings, schema_json, transforms_of
from rscylla.embedded import EmbeddedScylla
from rscylla.testing import ManualClock

ARCHIVE = Path(__file__).parents[2] / "unit" / "debezium" / "connector-records.tar.xz"
NOW_NS = 1_795_311_099_465_123_456
START_US = 1_768_471_200_000_000


class Line(NamedTuple):
    """A record as text, without what differs from run to run."""

    topic: str
    partition: int | None
    key: str | None
    value: str | None
    key_schema: str | None
    value_schema: str | None
    headers: tuple[tuple[str, str, str | None], ...]


@attrs.frozen
class Case:
    name: str
    files: Mapping[str, str] = attrs.field(repr=False)

    @property
    def properties(self) -> dict[str, str]:
        lines = self.files["config.properties"].splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))

    @property
    def is_refused(self) -> bool:
        """Whether the connector refuses the configuration, so that there are no records."""
        return "records.jsonl" not in self.files

    @property
    def is_live(self) -> bool:
        return self.name.startswith("live-")

    def recorded(self, file: str = "records.jsonl") -> list[Line]:
        schemas = json.loads(self.files["schemas.json"])
        found = []
        for text in self.files[file].splitlines():
            r = json.loads(text)
            headers = tuple((h["key"], h["type"], h["value"]) for h in r["headers"])
            key_schema, value_schema = (r[name] and schemas[r[name]] for name in ("key_schema", "value_schema"))
            found.append(
                Line(r["topic"], r["partition"], r["key"], self.masked(r["value"]), key_schema, value_schema, headers)
            )
        return found

    def ours(self, **more: str) -> list[Line]:
        """Return what becomes of the same statements here, with *more* properties."""
        return [self.line(record) for record in self.records(**more)]

    def records(self, **more: str) -> Iterator[Record]:
        properties = self.properties | {name.replace("_", "."): value for name, value in more.items()}
        tables = properties["scylla.table.names"].split(",")
        texts = (self.files[name] for name in ("server.json", "schema.cql", "statements.cql"))
        return records_of([event for table, event in _events(*texts) if table in tables], properties)

    def line(self, record: Record) -> Line:
        converter = _CONVERTER
        key, value = (text and text.decode() for text in (converter.key(record), converter.value(record)))
        schemas = [None if s is None else _text_of(s) for s in (record.key_schema, record.value_schema)]
        headers = tuple((h.key, h.schema.type, h.value) for h in record.headers)
        return Line(record.topic, record.partition, key, self.masked(value), schemas[0], schemas[1], headers)

    def masked(self, value: str | None) -> str | None:
        """Return *value* without the time of processing; in ``live-*`` without any time."""
        if value is None:
            return None
        value = _ADDED.sub(r"\1:0", value)
        return (_TIME if self.is_live else _TIME_OF_ENVELOPE).sub(r"\1:0", value)


def _text_of(schema: Schema) -> str:
    """Return the text of a schema, made once: emitters and transforms share schemas between records."""
    if id(schema) not in _TEXTS:
        _TEXTS[id(schema)] = schema, schema_json(schema)
    return _TEXTS[id(schema)][1]


_TEXTS: dict[int, tuple[Schema, str]] = {}
_CONVERTER = JsonConverter(schemas=False)
_TIME = re.compile(r'("ts_[mun]s"):\d+')
_TIME_OF_ENVELOPE = re.compile(r'("ts_[mun]s"):\d+(?=,"transaction"|,"ts_ns":\d+}$|}$)')
_ADDED = re.compile(r'("(?:__|meta_)ts_[mun]s"):\d+')


@cache
def cases() -> dict[str, Case]:
    """Return the recorded cases by name."""
    files: dict[str, dict[str, str]] = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            parts = member.name.split("/")
            content = archive.extractfile(member) if len(parts) == 3 else None
            if content is not None:
                files.setdefault(parts[1], {})[parts[2]] = content.read().decode()
    return {name: Case(name, texts) for name, texts in sorted(files.items())}


def records_of(events: Iterable[Any], properties: Mapping[str, str]) -> Iterator[Record]:
    """Yield the records of *events* by the properties of a connector, after its transforms."""
    emitter, transform = Emitter(Settings.of(properties)), transforms_of(properties)
    for event in events:
        for record in emitter.records(event, NOW_NS):
            found = transform(record)
            if found is not None:
                yield found


def events_of(schema: str, statements: str) -> list[Any]:
    """Return the events of statements, one a line, which may have the directives of the cases, or ``-- expire``."""
    return [event for _, event in _events("{}", schema, statements)]


def play(
    scylla: EmbeddedScylla,
    session: Any,
    clock: ManualClock,
    statements: str,
    on_wait: Callable[[], None] = lambda: None,
) -> None:
    """Run the statements of a case, one a line, a second apart; *on_wait* is called at each ``-- wait``."""
    for line in statements.splitlines():
        clock.advance(1)
        if line.startswith("-- clock"):
            clock.advance(float(line.split()[2]) - 1)
        elif line.startswith("-- wait"):
            on_wait()
        elif line == "-- new generation":
            scylla.new_generation()
            clock.advance(120)
        elif line == "-- expire":
            scylla.expire_rows()
        else:
            assert not line.startswith("--"), line
            session.execute(line)


@cache
def _events(server: str, schema: str, statements: str) -> list[tuple[str, Any]]:
    """Run statements against an embedded server, and return the events of all tables, each with its table."""
    options = {k: v for k, v in json.loads(server).items() if k in ("shards", "vnodes", "seed")}
    clock = ManualClock(START_US)
    found: list[tuple[str, Any]] = []
    with ExitStack() as stack:
        scylla = stack.enter_context(EmbeddedScylla(clock=clock, **options))
        session = scylla.connect()
        for statement in schema.splitlines():
            session.execute(statement)
        names = [name.replace('"', "") for name in re.findall(r"CREATE TABLE (\S+) ", schema)]
        cursors = dict.fromkeys(names, "")

        def read() -> None:
            clock.advance(60)
            for name in names:
                stream = rscylla.NewStream(session, *name.split("."), clock=clock)
                client = stream(cursors[name], rscylla.StreamLag(seconds=30), rscylla.StreamToHead())
                try:
                    while True:
                        event = client.recv()
                        if not isinstance(event, rscylla.Progress):
                            found.append((name, event))
                            cursors[name] = event.id
                except rscylla.HeadReached:
                    pass
                finally:
                    client.close()

        play(scylla, session, clock, statements, read)
        if not statements.rstrip().splitlines()[-1].startswith("-- wait"):
            read()
    return found
