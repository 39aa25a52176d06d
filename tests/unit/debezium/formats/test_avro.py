"""Avro equals what the converters in Java make, byte for byte, and reads as what was written.

``avro-data.jsonl.xz`` has a line for each schema: ``schema`` and ``payloads``, as JsonConverter has them; ``avro``: the
text of the schema that ``AvroData`` of Apicurio 3.0.9 made, which is Confluent's; ``bytes``: the payloads as Avro's
library for Java, 1.11.4, wrote them, in base64; or ``error``. 99 of the schemas are those of the recorded cases, the
others are made at random.
``tests/support/kafka/AvroOfConnect.java`` is the program that made it.
"""

from __future__ import annotations

import json
import lzma
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from connectorcases import cases
from connectschemas import schema_of, tables, value_of
from fastavro import parse_schema, schemaless_reader
from hypothesis import given, settings

from rscylla.debezium import Field, Schema, avro_encoder, avro_schema, schema_json
from rscylla.debezium.formats.avro import payload_encoder
from rscylla.errors import ConfigError

DATA = Path(__file__).parent / "avro-data.jsonl.xz"
POINT = Schema("struct", fields=(Field("x", Schema("int32", optional=False)),), name="demo.t.Point")


def lines() -> Iterator[dict[str, Any]]:
    with lzma.open(DATA, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def test_schemas_and_values_are_those_of_the_converter_in_java() -> None:
    schemas = values = 0
    for line in lines():
        schema = schema_of(line["schema"])
        if "error" in line:
            with pytest.raises(ConfigError, match=r"Avro does not take; (field|schema)\.name\.adjustment"):
                avro_schema(schema)
            continue
        assert avro_schema(schema) == line["avro"]
        encode, fast = avro_encoder(line["avro"]), payload_encoder(schema, b"head")
        for payload, raw in zip(line["payloads"], line["bytes"], strict=True):
            value = value_of(schema, payload)
            assert encode(value) == b64decode(raw)
            assert fast(value) == b"head" + b64decode(raw)
            values += 1
        schemas += 1
    assert (schemas, values) == (153, 1186)


@pytest.mark.slow
def test_all_schemas_of_the_recorded_cases_are_compared() -> None:
    known = {schema_json(schema_of(line["schema"])) for line in lines()}
    for case in cases().values():
        for record in case.records():
            for schema in (record.key_schema, record.value_schema):
                assert schema is None or schema_json(schema) in known


@given(tables())
@settings(max_examples=50, deadline=None)
def test_values_read_as_they_were_written(table: tuple[Schema, list[Any]]) -> None:
    schema, values = table
    text = avro_schema(schema)
    encode, fast = avro_encoder(text), payload_encoder(schema)
    parsed = parse_schema(json.loads(text.replace('"logicalType":', '"as":')))
    for value in values:
        assert encode(value) == fast(value)
        assert schemaless_reader(Bytes(encode(value)), parsed, None) == value


class Bytes:
    """A file of bytes."""

    def __init__(self, raw: bytes) -> None:
        self.left = raw

    def read(self, size: int) -> bytes:
        found, self.left = self.left[:size], self.left[size:]
        return found


def test_a_struct_is_described_once() -> None:
    schema = Schema(
        "struct",
        fields=(Field("a", POINT), Field("b", POINT), Field("c", Schema("array", items=POINT))),
        name="demo.t.Row",
        optional=False,
    )
    found = json.loads(avro_schema(schema))
    assert [f["type"][1] for f in found["fields"][1:]] == ["Point", {"type": "array", "items": ["null", "Point"]}]


def test_two_structs_with_one_name_are_refused() -> None:
    other = Schema("struct", fields=(Field("y", Schema("string")),), name=POINT.name)
    with pytest.raises(ConfigError, match=r"two structs have the name demo\.t\.Point"):
        avro_schema(Schema("struct", fields=(Field("a", POINT), Field("b", other)), name="demo.t.Row"))


def test_what_is_no_avro_schema_is_an_error() -> None:
    with pytest.raises(ConfigError, match="fastavro cannot read an Avro schema"):
        avro_encoder('{"type":"nothing"}')
