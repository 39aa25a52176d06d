"""Schemas and values in Avro, as Confluent's ``AvroConverter`` and Apicurio's make them of Connect's.

A field that may be null is a union with null; what Avro does not have is in properties such as ``connect.name``.
Source: runs of ``AvroData`` of Apicurio 3.0, which is Confluent's; ``tests/unit/debezium`` has what it made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import IO, Any, Final, cast

import attrs

from ..._decoder import twin
from ...errors import ConfigError
from ...types import Schema
from .json import Form

__all__ = ["FORM", "avro_encoder", "avro_schema"]

Named = dict[str, Schema]

_TYPES: Final = {
    **dict.fromkeys(("int8", "int16", "int32"), "int"),
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_LOGICAL: Final = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
_UNNAMED: Final = "io.confluent.connect.avro.ConnectDefault"


def avro_schema(schema: Schema) -> str:
    """Return the text of the Avro schema of *schema*, as Avro's Java library writes it.

    Raises:
        ConfigError: a field has a name that Avro does not take, or two structs share a name.
    """
    return json.dumps(_Maker().made(schema, ""), separators=(",", ":"), ensure_ascii=False)


class _Maker:
    """Makes one Avro schema. A struct that has been described is then referred to by its name."""

    def __init__(self) -> None:
        self._described: Named = {}
        self._unnamed: dict[Schema, str] = {}

    def made(self, schema: Schema, space: str) -> Any:
        """Return the schema; *space* is the namespace that it stands in."""
        made = self._required(schema, space)
        if not schema.optional:
            return made
        return ["null", made] if schema.default is None else [made, "null"]

    def _required(self, schema: Schema, space: str) -> Any:
        if schema.type == "struct":
            return self._record(schema, space)
        if schema.type == "array":
            assert schema.items is not None
            found: dict[str, Any] = {"type": "array", "items": self.made(schema.items, space)}
        else:
            found = {"type": _TYPES[schema.type]}
            if schema.type in ("int8", "int16"):
                found["connect.type"] = schema.type
        found |= _properties(schema)
        if schema.name in _LOGICAL:
            found["logicalType"] = _LOGICAL[schema.name]
        return found["type"] if len(found) == 1 else found

    def _record(self, schema: Schema, space: str) -> Any:
        full = schema.name or self._name_of(schema)
        own, _, name = full.rpartition(".")
        if (known := self._described.get(full)) is not None:
            if known.fields != schema.fields:
                raise ConfigError(
                    f"two structs have the name {full}, and other fields; Avro tells them by their names. Names that "
                    "are one only by their adjustment differ with schema.name.adjustment.mode=avro_unicode"
                )
            return name if own == space else full
        _check(name, f"the schema {full}", "schema")
        self._described[full] = schema
        found: dict[str, Any] = {"type": "record", "name": name}
        if own and own != space:
            found["namespace"] = own
        found["fields"] = fields = []
        for field in schema.fields:
            _check(field.name, f"a field of {full}", "field")
            one: dict[str, Any] = {"name": field.name, "type": self.made(field.schema, own)}
            if field.schema.optional or field.schema.default is not None:
                one["default"] = field.schema.default
            fields.append(one)
        return found | _properties(schema)

    def _name_of(self, schema: Schema) -> str:
        """Return the name of a struct without one: a number counts them; equal ones share theirs."""
        number = len(self._unnamed) + 1
        known = attrs.evolve(schema, optional=True)
        return self._unnamed.setdefault(known, _UNNAMED + ("" if number == 1 else str(number)))


def _properties(schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if schema.version is not None:
        found["connect.version"] = schema.version
    if schema.parameters:
        found["connect.parameters"] = dict(schema.parameters)
    if schema.default is not None:
        found["connect.default"] = schema.default
    if schema.name is not None:
        found["connect.name"] = schema.name
    return found


def _check(name: str, what: str, kind: str) -> None:
    if not (name.isascii() and name.isidentifier()):
        raise ConfigError(
            f"{what} has the name {name!r}, which Avro does not take; {kind}.name.adjustment.mode=avro adjusts names"
        )


def _by_fastavro(schema: Schema, head: bytes = b"") -> Callable[[Any], bytes]:
    encode = avro_encoder(avro_schema(schema))
    return lambda value: head + encode(value)


payload_encoder = twin("debezium.avro_payload", _by_fastavro)
"""Returns the function that makes the Avro of values of a schema, after a head, by its own Avro schema.

It takes values as emitters make them, and does not check that they are of the schema, as ``avro_encoder`` does.
"""


def _struct(schema: Schema) -> tuple[bytes, bytes, list[bytes], bytes]:
    leads = [b""] * len(schema.fields)
    if not schema.optional:
        return b"", b"", leads, b""
    null, struct = (b"\x00", b"\x02") if schema.default is None else (b"\x02", b"\x00")  # of the union
    return null, struct, leads, b""


FORM: Final = Form(lambda fast, schema: fast.avro_encoder(schema), _struct)
"""Avro."""


def avro_encoder(text: str) -> Callable[[Any], bytes]:
    """Return the function that makes the bytes, without a header, of values by the Avro schema *text*.

    Raises:
        ConfigError: it is no Avro schema that ``fastavro`` reads, or ``fastavro`` is not installed.
    """
    try:
        from fastavro import parse_schema, schemaless_writer
    except ImportError as e:
        raise ConfigError("Avro needs fastavro; install rscylla[kafka]") from e
    try:
        # Connect's dates and timestamps are numbers already.
        parsed = parse_schema(json.loads(text, object_hook=_without_logical_type))
    except Exception as e:
        raise ConfigError(f"fastavro cannot read an Avro schema: {e}") from e

    def encode(value: Any) -> bytes:
        out = _Written()
        schemaless_writer(cast("IO[Any]", out), parsed, value)
        return b"".join(out)

    return encode


class _Written(list[bytes]):
    """What ``fastavro`` writes to."""

    write = list.append


def _without_logical_type(found: dict[str, Any]) -> dict[str, Any]:
    found.pop("logicalType", None)
    return found
