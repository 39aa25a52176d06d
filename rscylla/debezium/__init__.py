"""Changes as the records of the Scylla CDC source connector: envelopes, keys, headers, schemas, and transforms.

    settings     what decides about records, from the connector's properties
    emitter      changes to records
    json         records to bytes, as Connect's JsonConverter makes them
    transforms   the connector's two transforms, and chains of them
    record       what a record is; java: texts as Java makes them

All of it is pure: nothing here connects, waits, or logs. See docs/debezium.md.
"""

from ..types.connect import Field, Schema
from .emitter import Emitter, RowReader
from .json import Converters, JsonConverter, converters_of, schema_json
from .record import Header, Record
from .settings import CONNECTOR_VERSION, DIFFERENCES, PROPERTIES, Settings
from .transforms import ExtractNewRecordState, FlattenColumns, Transform, transforms_of

__all__ = [
    "CONNECTOR_VERSION",
    "DIFFERENCES",
    "PROPERTIES",
    "Converters",
    "Emitter",
    "ExtractNewRecordState",
    "Field",
    "FlattenColumns",
    "Header",
    "JsonConverter",
    "Record",
    "RowReader",
    "Schema",
    "Settings",
    "Transform",
    "converters_of",
    "schema_json",
    "transforms_of",
]
