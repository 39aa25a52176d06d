"""``JsonConverter``: keys and values as the JSON bytes of Connect's converter of the same name."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

from ...types import Schema
from ..java import double_text, float_text
from ..record import Record

__all__ = ["FORM", "Form", "Framed", "JsonConverter", "schema_json"]

Encode = Callable[[Any], Any]
"""Makes of a value its JSON, or an int, which is its own."""


class JsonConverter:
    """Makes bytes of the keys and values of records, as ``org.apache.kafka.connect.json.JsonConverter`` does.

    Not thread-safe; keeps the encoders of the schemas that it has seen.

    Args:
        schemas: ``schemas.enable``: each key and value comes with its schema.
    """

    def __init__(self, *, schemas: bool = True) -> None:
        self.schemas = schemas
        # By identity: emitters and transforms make a schema once. Kept with the schema, so that no other has its id.
        self._known: dict[int, tuple[Schema, Callable[[Any], bytes]]] = {}

    def key(self, record: Record) -> bytes | None:
        """Return the bytes of the key; None if there is none."""
        return self.bytes_of(record.key_schema, record.key)

    def value(self, record: Record) -> bytes | None:
        """Return the bytes of the value; None for a tombstone."""
        return self.bytes_of(record.value_schema, record.value)

    def bytes_of(self, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of *value*. Without a schema there is none; null with a schema is JSON's null."""
        if schema is None:
            return None
        known = self._known.get(id(schema))
        if known is None:
            if len(self._known) >= _SCHEMAS_KEPT:
                self._known.clear()
            known = self._known[id(schema)] = (schema, self._encoder(schema))
        return known[1](value)

    @staticmethod
    def once(schema: Schema, value: Any) -> str:
        """Return the payload of *value* by a schema that is used once."""
        return str(_encoder_of(schema)(value))

    def framed(self, schema: Schema) -> Framed:
        """Return what the bytes of values of *schema* are made of."""
        if not self.schemas:
            return Framed(b"", FORM, b"")
        return Framed(f'{{"schema":{schema_json(schema)},"payload":'.encode(), FORM, b"}")

    def _encoder(self, schema: Schema) -> Callable[[Any], bytes]:
        head, _, tail = self.framed(schema)
        return payload_encoder(schema, head, tail)


_SCHEMAS_KEPT = 1024


class Form(NamedTuple):
    """How values become bytes in compiled code.

    ``encoder``: returns the compiled encoder of a schema, given the compiled module. ``struct``: returns what stands
    for null instead of a struct, what opens it, what precedes each field, and what closes it.
    """

    encoder: Callable[[Any, Schema], Any]
    struct: Callable[[Schema], tuple[bytes, bytes, list[bytes], bytes]]


class Framed(NamedTuple):
    """What bytes are made of: a head, the value in a form, and a tail."""

    head: bytes
    form: Form
    tail: bytes


def payload_encoder(schema: Schema, head: bytes = b"", tail: bytes = b"") -> Callable[[Any], bytes]:
    """Return the function that makes the JSON of values of *schema*, between *head* and *tail*."""
    encode = _encoder_of(schema)
    return lambda value: b"%b%b%b" % (head, str(encode(value)).encode(), tail)


def _compiled(fast: Any, schema: Schema) -> Any:
    """Return the compiled twin of ``_encoder_of(schema)``."""
    if schema.type.startswith("int"):
        return fast.JsonInteger()
    return fast.JsonText(_text) if schema.type == "string" else fast.JsonOther(_encoder_of(schema))


def _leads(schema: Schema) -> list[bytes]:
    return [f"{',' * (at > 0)}{_text(f.name)}:".encode() for at, f in enumerate(schema.fields)]


FORM = Form(_compiled, lambda schema: (b"null", b"{", _leads(schema), b"}"))
"""JSON."""


def schema_json(schema: Schema, field: str | None = None) -> str:
    """Return the JSON text of a schema, as Connect writes it; *field*: the name of the field that has it."""
    parts = [f'"type":{_text(_TYPE_NAMES.get(schema.type, schema.type))}']
    if schema.type == "struct":
        parts.append(f'"fields":[{",".join([schema_json(f.schema, f.name) for f in schema.fields])}]')
    if schema.items is not None:
        parts.append(f'"items":{schema_json(schema.items)}')
    parts.append(f'"optional":{"true" if schema.optional else "false"}')
    if schema.name is not None:
        parts.append(f'"name":{_text(schema.name)}')
    if schema.version is not None:
        parts.append(f'"version":{schema.version}')
    if schema.parameters:
        parameters = ",".join([f"{_text(name)}:{_text(value)}" for name, value in schema.parameters.items()])
        parts.append(f'"parameters":{{{parameters}}}')
    if schema.default is not None:
        parts.append(f'"default":{_encoder_of(schema)(schema.default)}')
    if field is not None:
        parts.append(f'"field":{_text(field)}')
    return f"{{{','.join(parts)}}}"


_TYPE_NAMES = {"float32": "float", "float64": "double"}

# ---------------------------------------------------------------- payloads

_NEEDS_ESCAPE = re.compile('[\x00-\x1f"\\\\\U00010000-\U0010ffff]')
_needs_escape = _NEEDS_ESCAPE.search
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def _text(value: str) -> str:
    """Return a JSON string with the escapes of Jackson: characters beyond 16 bits as two, digits in capitals."""
    return f'"{_NEEDS_ESCAPE.sub(_escape, value)}"'


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char in _SHORT:
        return _SHORT[char]
    units = char.encode("utf-16-be")
    return "".join([f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2)])


def _encoder_of(schema: Schema) -> Encode:
    """Return the function that makes JSON of values of *schema*."""
    return _ENCODERS[schema.type](schema)


def _struct(schema: Schema) -> Encode:
    fields = [(f.name, _encoder_of(f.schema)) for f in schema.fields]
    form = "{" + ",".join([_text(f.name).replace("%", "%%") + ":%s" for f in schema.fields]) + "}"

    def encode(value: Any) -> Any:
        return "null" if value is None else form % tuple([encode(value[name]) for name, encode in fields])

    return encode


def _array(schema: Schema) -> Encode:
    assert schema.items is not None
    encode = _encoder_of(schema.items)
    return lambda value: "null" if value is None else f"[{','.join([str(encode(v)) for v in value])}]"


def _number(text: Callable[[float], str]) -> Encode:
    def encode(value: Any) -> str:
        if value is None:
            return "null"
        found = text(value)
        return found if found[-1].isdigit() else f'"{found}"'

    return encode


def _integer(value: Any) -> Any:
    return "null" if value is None else value


def _boolean(value: Any) -> str:
    return "null" if value is None else "true" if value else "false"


def _string(value: Any) -> str:
    if value is None:
        return "null"
    return f'"{value}"' if _needs_escape(value) is None else _text(value)


def _bytes(value: Any) -> str:
    return "null" if value is None else f'"{b64encode(value).decode()}"'


_ENCODERS: dict[str, Callable[[Schema], Encode]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), lambda _: _integer),
    "float32": lambda _: _number(float_text),
    "float64": lambda _: _number(double_text),
    "boolean": lambda _: _boolean,
    "string": lambda _: _string,
    "bytes": lambda _: _bytes,
    "array": _array,
    "struct": _struct,
}
