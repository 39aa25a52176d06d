"""Schemas in JSON Schema, as Confluent's ``JsonSchemaConverter`` makes them of Connect's.

A value that may be null is ``oneOf`` null and its type; what JSON Schema does not have is in ``connect.type``,
``connect.index``, ``connect.version``, and ``connect.parameters``; the name of a schema is its ``title``. Source: the
public source of Confluent's converter, which no public registry of packages has. Members have no order there; here,
they have one.
"""

from __future__ import annotations

import json
from typing import Any, Final

from ...types import Schema

__all__ = ["json_schema"]

_TYPES: Final = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "integer"),
    **dict.fromkeys(("float32", "float64"), "number"),
    "boolean": "boolean",
    "string": "string",
    "bytes": "string",
    "array": "array",
    "struct": "object",
}
_PLAIN: Final = ("boolean", "string", "array", "struct")


def json_schema(schema: Schema, *, additional: bool = True) -> str:
    """Return the text of the JSON Schema of *schema*.

    Args:
        additional: ``object.additional.properties``: whether objects may have other members.
    """
    return json.dumps(_made(schema, None, additional), separators=(",", ":"), ensure_ascii=False)


def _made(schema: Schema, index: int | None, additional: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"type": _TYPES[schema.type]}
    if schema.name is not None:
        found["title"] = schema.name
    if schema.type not in _PLAIN:
        found["connect.type"] = schema.type
    if schema.version is not None:
        found["connect.version"] = schema.version
    if schema.parameters:
        found["connect.parameters"] = dict(schema.parameters)
    if schema.default is not None:
        found["default"] = schema.default
    if schema.items is not None:
        found["items"] = _made(schema.items, None, additional)
    if schema.type == "struct":
        found["properties"] = {f.name: _made(f.schema, at, additional) for at, f in enumerate(schema.fields)}
        if not additional:
            found["additionalProperties"] = False
    if schema.optional:
        found = {"oneOf": [{"type": "null"}, found]}
    if index is not None:
        found["connect.index"] = index
    return found
