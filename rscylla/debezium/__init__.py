"""Changes as the records of the Scylla CDC source connector: envelopes, keys, headers, schemas, and transforms.

    settings     what decides about records, from the connector's properties
    emitter      changes to records
    converters   records to bytes, as the properties configure it
    json         ... as Connect's JsonConverter makes them; avro, jsonschema: as Confluent's; registry: of their schemas
    transforms   the connector's two transforms, and Debezium's under them; chains: of them, and of Connect's
    record       what a record is; java: texts as Java makes them; regex: its regular expressions; names: those of Avro

All of it is pure but ``registry``: nothing else here connects, waits, or logs. See docs/debezium.md.
"""

from ..types import Field, Schema
from .direct import direct
from .emitter import Emitter, RowReader
from .formats.avro import avro_encoder, avro_schema
from .formats.converters import AvroConverter, Converter, Converters, JsonSchemaConverter, converters_of
from .formats.json import JsonConverter, schema_json
from .formats.jsonschema import json_schema
from .formats.registry import ConfluentRegistry, Registered, SchemaRegistry
from .java import double_text, float_text
from .record import Header, Record
from .settings import CONNECTOR_VERSION, DIFFERENCES, PROPERTIES, Settings, Snapshot, words
from .transforms.chains import RegexRouter, transforms_of, unknown_options
from .transforms.regex import java_pattern
from .transforms.transforms import ExtractChangedRecordState, ExtractNewRecordState, FlattenColumns, Transform

__all__ = [
    "CONNECTOR_VERSION",
    "DIFFERENCES",
    "PROPERTIES",
    "AvroConverter",
    "ConfluentRegistry",
    "Converter",
    "Converters",
    "Emitter",
    "ExtractChangedRecordState",
    "ExtractNewRecordState",
    "Field",
    "FlattenColumns",
    "Header",
    "JsonConverter",
    "JsonSchemaConverter",
    "Record",
    "RegexRouter",
    "Registered",
    "RowReader",
    "Schema",
    "SchemaRegistry",
    "Settings",
    "Snapshot",
    "Transform",
    "avro_encoder",
    "avro_schema",
    "converters_of",
    "direct",
    "double_text",
    "float_text",
    "java_pattern",
    "json_schema",
    "schema_json",
    "transforms_of",
    "unknown_options",
    "words",
]
