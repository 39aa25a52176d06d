"""Transforms of Kafka Connect and Debezium as Java runs them (``tests/kafka/Transform.java``), and the same by us."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from connectorcases import cases
from maven import tied_to_us

from rscylla.debezium import JsonConverter, Record, transforms_of
from rscylla.debezium.formats.json import schema_json
from rscylla.errors import ConfigError

__all__ = ["ARTIFACTS", "JavaTransforms", "ours", "sample"]

ARTIFACTS = (
    "io.debezium:debezium-core:2.7.4.Final",
    "org.apache.kafka:connect-json:4.1.1",
    "org.apache.kafka:connect-transforms:4.1.1",
    "org.slf4j:slf4j-nop:1.7.36",
)
SOURCE = Path(__file__).parents[2] / "kafka" / "Transform.java"

Answer = list[Any]
"""What became of each record: its parts as text, None where it was dropped, "error" where it was refused."""


class JavaTransforms:
    """Java, asked line by line; a context manager."""

    def __init__(self, jars: Path) -> None:
        command = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]
        self._process = subprocess.Popen(
            tied_to_us([*command, "-cp", f"{jars}/*", str(SOURCE)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)

    def answers(self, options: Mapping[str, str], records: Sequence[Record]) -> Answer:
        """Return what becomes of *records*, one after the other, by the transform that *options* configure."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pairs = zip([None, *records], records, strict=False)
        json.dump({"options": dict(options), "records": [_described(r, of=p) for p, r in pairs]}, self._process.stdin)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        if len(found) == 1 and len(records) > 1:  # the options are refused
            return found * len(records)
        return [
            one and ("error" if "error" in one else (one["topic"], one["key"], one["value"], _pairs(one["headers"])))
            for one in found
        ]


def ours(options: Mapping[str, str], records: Sequence[Record]) -> Answer:
    """Return the same of ``rscylla.debezium``."""
    properties = {"transforms": "t"} | {f"transforms.t.{name}": value for name, value in options.items()}
    try:
        transform = transforms_of(properties)
    except ConfigError:
        return [{"error": ""}] * len(records)
    found: Answer = []
    for record in records:
        try:
            made = transform(record)
        except ConfigError:
            found.append("error")
        else:
            found.append(made and _shown(made))
    return found


def sample(*names: str) -> list[Record]:
    """Return the records of recorded cases before their transforms."""
    return [record for name in names for record in cases()[name].records(transforms="")]


def _shown(record: Record) -> tuple[Any, ...]:
    converter = JsonConverter(schemas=True)
    key, value = (text and text.decode() for text in (converter.key(record), converter.value(record)))
    return record.topic, key, value, [(h.key, _text(h.schema, h.value)) for h in record.headers]


def _text(schema: Any, value: Any) -> str | None:
    found = JsonConverter(schemas=True).bytes_of(schema, value)
    return found and found.decode()


def _pairs(headers: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(header["key"], header["value"]) for header in headers]


def _described(record: Record, *, of: Record | None) -> dict[str, Any]:
    if of is not None and record.shared is not None and record.shared is of.shared:
        return {"of previous": True}
    converter = JsonConverter(schemas=False)

    def part(schema: Any, value: Any) -> Any:
        if schema is None:
            return None
        payload = json.loads(converter.bytes_of(schema, value) or b"")
        return {"schema": json.loads(schema_json(schema)), "payload": payload}

    headers = [{"key": h.key, "value": part(h.schema, h.value)} for h in record.headers]
    key, value = part(record.key_schema, record.key), part(record.value_schema, record.value)
    return {"topic": record.topic, "key": key, "value": value, "headers": headers}
