"""Schemas of Connect and values of them: from the JSON that ``rscylla.debezium`` writes, and at random."""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode
from typing import Any

from hypothesis import strategies as st

from rscylla.debezium import Field, Schema

_FLOAT = struct.Struct(">f")
_TYPES = {"float": "float32", "double": "float64"}


def schema_of(found: dict[str, Any]) -> Schema:
    """Return the schema that JsonConverter described."""
    return Schema(
        _TYPES.get(found["type"], found["type"]),
        optional=found["optional"],
        name=found.get("name"),
        version=found.get("version"),
        parameters=found.get("parameters", {}),
        default=found.get("default"),
        items=schema_of(found["items"]) if "items" in found else None,
        fields=tuple(Field(f["field"], schema_of(f)) for f in found.get("fields", ())),
    )


def value_of(schema: Schema, found: Any) -> Any:
    """Return the value of a payload that JSON has."""
    if found is None:
        return None
    if schema.type == "struct":
        return {f.name: value_of(f.schema, found[f.name]) for f in schema.fields}
    if schema.items is not None:
        return [value_of(schema.items, one) for one in found]
    if schema.type == "bytes":
        return b64decode(found)
    if schema.type == "float32":
        return _FLOAT.unpack(_FLOAT.pack(float(found)))[0]
    return float(found) if schema.type == "float64" else found


_DATE = "org.apache.kafka.connect.data.Date"
_TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
_INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def tables() -> st.SearchStrategy[tuple[Schema, list[Any]]]:
    """Return schemas of structs, with structs, arrays, and all native types in them, and values of each."""
    return _structs(_rows(2)).flatmap(lambda s: st.tuples(st.just(s), st.lists(values_of(s), min_size=1, max_size=3)))


def values_of(schema: Schema) -> st.SearchStrategy[Any]:
    """Return the values of a schema."""
    required = _required(schema)
    return required | st.none() if schema.optional and schema.default is None else required


def _required(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.type in _INTEGERS:
        most = 2 ** _INTEGERS[schema.type]
        return st.integers(-most, most - 1)
    if schema.items is not None:
        return st.lists(values_of(schema.items), max_size=3)
    if schema.type == "struct":
        return st.fixed_dictionaries({f.name: values_of(f.schema) for f in schema.fields})
    return _OTHERS[schema.type]


_OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "float32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": st.text(),
    "bytes": st.binary(),
}


def _leaves() -> st.SearchStrategy[Schema]:
    plain = st.builds(Schema, st.sampled_from([*_INTEGERS, *_OTHERS]), optional=st.booleans())
    date = st.builds(Schema, st.just("int32"), optional=st.booleans(), name=st.just(_DATE), version=st.just(1))
    timestamp = st.builds(
        Schema, st.just("int64"), optional=st.booleans(), name=st.just(_TIMESTAMP), version=st.just(1)
    )
    marked = st.just(Schema("string", name="io.debezium.data.Enum", parameters={"allowed": "a,b"}, default="a"))
    return plain | date | timestamp | marked


def _rows(depth: int) -> st.SearchStrategy[Schema]:
    if depth == 0:
        return _leaves()
    inner = _rows(depth - 1)
    arrays = st.builds(lambda items, optional: Schema("array", items=items, optional=optional), inner, st.booleans())
    return _leaves() | arrays | _structs(inner)


def _structs(parts: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    def made(schemas: list[Schema], optional: bool) -> Schema:
        fields = tuple(Field(f"f{at}", schema) for at, schema in enumerate(schemas))
        # Structs of the same fields have the same name, and others have others.
        name = f"demo.shop.S{zlib.crc32(repr(fields).encode())}"
        return Schema("struct", fields=fields, name=name, optional=optional)

    return st.builds(made, st.lists(parts, min_size=1, max_size=4), st.booleans())
