"""Changes as the records of the Scylla CDC source connector: envelopes, keys, headers, schemas, and transforms.

    settings     what decides about records, from the connector's properties
    emitter      changes to records; shape: their schemas, and the records of rows; rows: cells as rows
    outline      what compiled code needs to make bytes at once; direct: has it do so
    record       what a record is; java: texts as Java makes them; names: those of Avro
    formats/     records to bytes: JSON, Avro, JSON Schema, and the registry of their schemas
    transforms/  the connector's two transforms, Debezium's under them, and chains of them

All of it is pure but ``formats.registry``: nothing else here connects, waits, or logs. See docs/debezium.md.
"""

from ..types import Field, Schema
from .direct import direct
from .emitter import Emitter, RowReader, keys_only
from .formats.avro import avro_encoder, avro_schema
from .formats.converters import AvroConverter, Converter, Converters, JsonSchemaConverter, converters_of
from .formats.json import JsonConverter, schema_json
from .formats.jsonschema import json_schema
from .formats.registry import ConfluentRegistry, Registered, SchemaRegistry
from .java import double_text, float_text
from .record import Header, Record, told
from .settings import CONNECTOR_VERSION, DIFFERENCES, PROPERTIES, Settings, Snapshot, options_of, words
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
    "keys_only",
    "options_of",
    "schema_json",
    "told",
    "transforms_of",
    "unknown_options",
    "words",
]
