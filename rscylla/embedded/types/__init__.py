"""CQL types and values in one place: the types themselves, type text, and terms made into encoded values.

A native type takes an object in ``natives.py``, and a line wherever its values have another form: in constants
(``terms.py``), in JSON (``jsontext.py``), in CAST (``casts.py``).
"""

from __future__ import annotations

from ..cql.names import quote_name
from .composed import ListType, MapType, SetType, TupleType, UdtType, VectorType
from .cqltype import CqlType
from .fitting import default_type, has_grown_from, has_spellings, is_assignable, is_compatible, term_text
from .natives import (
    ASCII,
    BIGINT,
    BLOB,
    BOOLEAN,
    COUNTER,
    DATE,
    DECIMAL,
    DOUBLE,
    DURATION,
    FLOAT,
    INET,
    INT,
    NATIVE_TYPES,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMEUUID,
    TINYINT,
    UUID,
    VARINT,
    Duration,
    NativeType,
)
from .terms import UNSET, Unset, resolve, term_bytes
from .typetext import parse_type

__all__ = [
    "ASCII",
    "BIGINT",
    "BLOB",
    "BOOLEAN",
    "COUNTER",
    "DATE",
    "DECIMAL",
    "DOUBLE",
    "DURATION",
    "FLOAT",
    "INET",
    "INT",
    "NATIVE_TYPES",
    "SMALLINT",
    "TEXT",
    "TIME",
    "TIMESTAMP",
    "TIMEUUID",
    "TINYINT",
    "UNSET",
    "UUID",
    "VARINT",
    "CqlType",
    "Duration",
    "ListType",
    "MapType",
    "NativeType",
    "SetType",
    "TupleType",
    "UdtType",
    "Unset",
    "VectorType",
    "default_type",
    "has_grown_from",
    "has_spellings",
    "is_assignable",
    "is_compatible",
    "parse_type",
    "quote_name",
    "resolve",
    "term_bytes",
    "term_text",
]
