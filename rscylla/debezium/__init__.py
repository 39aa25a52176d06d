"""Changes as the records of the Scylla CDC source connector: envelopes, keys, headers, schemas, and transforms.

    settings     what decides about records, from the connector's properties
    emitter      changes to records
    converters   records to bytes, as the properties configure it
    json         ... as Connect's JsonConverter makes them; avro, jsonschema: as Confluent's; registry: of their schemas
    transforms   the connector's two transforms, and Debezium's under them; chains: of them, and of Connect's
    record       what a record is; java: texts as Java makes them; regex: its regular expressions; names: those of Avro

All of it is pure but ``registry``: nothing else here connects, waits, or logs. See docs/debezium.md.
"""

from ..types.connect import Field, Schema
from .avro import avro_encoder, avro_schema
from .chains import RegexRouter, transforms_of, unknown_options
from .converters import AvroConverter, Converter, Converters, JsonSchemaConverter, converters_of
from .emitter import Emitter, RowReader
from .json import JsonConverter, schema_json
from .jsonschema import json_schema
from .record import Header, Record
from .regex import java_pattern
from .registry import ConfluentRegistry, Registered, SchemaRegistry
from .settings import CONNECTOR_VERSION, DIFFERENCES, PROPERTIES, Settings
from .transforms import ExtractChangedRecordState, ExtractNewRecordState, FlattenColumns, Transform

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
    "Transform",
    "avro_encoder",
    "avro_schema",
    "converters_of",
    "java_pattern",
    "json_schema",
    "schema_json",
    "transforms_of",
    "unknown_options",
]
