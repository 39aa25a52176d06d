"""The connector's two transforms, and those of Debezium under them.

A transform is a function from a record to a record, or to None, which drops it. Source of what they do: Debezium 2.7,
``io.debezium.transforms.ExtractNewRecordState``; the connector's two classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Self, get_args

import attrs

from ...errors import ConfigError
from ...types import Field, Schema
from ..record import Header, Record, RowTopic, told
from ..settings import flag, words

__all__ = [
    "Deletes",
    "ExtractChangedRecordState",
    "ExtractNewRecordState",
    "FlattenColumns",
    "Transform",
]

Transform = Callable[[Record], Record | None]
Deletes = Literal["drop", "tombstone", "rewrite", "rewrite-with-tombstone"]

_TEXT: Final = Schema("string")
_REQUIRED_TEXT: Final = Schema("string", optional=False)
_DELETED: Final = "__deleted"
_IMAGES: Final = ("before", "after")
_SCHEMAS_KEPT: Final = 256


class _Made(NamedTuple):
    """What a transform makes of a schema; the schema is kept so that no other one gets its identity."""

    of: Schema
    schema: Schema
    cells: frozenset[str]


class _Schemas:
    """What is made of schemas, by their identity: emitters make each once."""

    def __init__(self, make: Callable[[Schema], tuple[Schema, frozenset[str]]]) -> None:
        self._make = make
        self._known: dict[int, _Made] = {}

    def of(self, schema: Schema) -> _Made:
        made = self._known.get(id(schema))
        if made is None:
            if len(self._known) >= _SCHEMAS_KEPT:
                self._known.clear()
            made = self._known[id(schema)] = _Made(schema, *self._make(schema))
        return made


# ---------------------------------------------------------------- cells


def _without_cells(schema: Schema, is_cell: Callable[[Schema], bool]) -> tuple[Schema, frozenset[str]]:
    """Return the schema of a row with the values of its cells, and the names of the cells."""
    cells = frozenset(f.name for f in schema.fields if is_cell(f.schema))
    fields = tuple([Field(f.name, f.schema.fields[0].schema) if f.name in cells else f for f in schema.fields])
    return attrs.evolve(schema, fields=fields), cells


def _is_like_cell(schema: Schema) -> bool:
    """Return whether the schema has the form of a cell of the legacy format, as a UDT may have it, too."""
    return schema.type == "struct" and [f.name for f in schema.fields] == ["value"]


def _is_cell(schema: Schema) -> bool:
    """Return whether the schema is of a cell of the legacy format."""
    return _is_like_cell(schema) and schema.name is not None and schema.name.endswith(".Cell")


def _opened(row: Mapping[str, Any], cells: frozenset[str]) -> dict[str, Any]:
    return {name: value["value"] if name in cells and value is not None else value for name, value in row.items()}


class FlattenColumns:
    """``ScyllaFlattenColumns``: opens the cells within ``before`` and ``after``; the envelope stays.

    Columns that were set to null and columns that were not touched then look the same. In the advanced format, which
    has no cells, only a UDT whose one field is ``value`` is opened.

    Not thread-safe: it keeps what becomes of each schema.
    """

    def __init__(self) -> None:
        self._schemas = _Schemas(_flattened)
        self._rows = _Schemas(_flat)

    def __call__(self, record: Record) -> Record:
        if record.value is None or record.value_schema is None or record.value_schema.type != "struct":
            return record
        made = self._schemas.of(record.value_schema)
        value = dict(record.value)
        for name in made.cells:
            if value[name] is not None:
                value[name] = _opened(value[name], self._rows.of(_field(made.of, name)).cells)
        return record._replace(value_schema=made.schema, value=value, shared=None)


def _flat(schema: Schema) -> tuple[Schema, frozenset[str]]:
    """Return the schema of a row for ``FlattenColumns``, which goes by the form of cells, not by their names."""
    return _without_cells(schema, _is_like_cell)


def _flattened(schema: Schema) -> tuple[Schema, frozenset[str]]:
    """Return the schema of an envelope with flat rows, and the fields that have rows."""
    rows = frozenset(f.name for f in schema.fields if f.name in _IMAGES and f.schema.type == "struct")
    fields = tuple([Field(f.name, _flat(f.schema)[0]) if f.name in rows else f for f in schema.fields])
    return attrs.evolve(schema, fields=fields), rows


def _field(schema: Schema, name: str) -> Schema:
    found = schema.field(name)
    if found is None:
        raise ConfigError(f"records of {schema.name} have no field {name!r}")
    return found


# ---------------------------------------------------------------- unwrapping


class _Reference(NamedTuple):
    """A field of the envelope that is added to a row or to headers: ``op``, ``source.ts_us``, ``db:database``."""

    struct: str | None
    field: str
    name: str

    @classmethod
    def parse(cls, text: str, prefix: str) -> Self:
        path, *names = text.rstrip(":").split(":")  # as Java splits
        parts = path.rstrip(".").split(".")[:2]
        if len(names) > 1 or not all((*parts, *names)):
            raise ConfigError(f"{text!r} is not a field; use op, source.ts_us, or source.ts_us:name")
        field = parts[-1]
        struct = parts[0] if len(parts) == 2 else _STRUCTS.get(field, "source")
        return cls(struct, field, prefix + (names[0] if names else "_".join(parts)))

    def find(self, schema: Schema, value: Mapping[str, Any]) -> tuple[Schema, Any] | None:
        """Return the schema and the value in an envelope; None if it has no such field."""
        inner = schema if self.struct is None else schema.field(self.struct)
        found = None if inner is None else inner.field(self.field)
        if found is not None:
            holder = value if self.struct is None else value[self.struct]
            return found, None if holder is None else holder[self.field]
        found = schema.field(self.field)
        return None if found is None else (found, value[self.field])


_STRUCTS: Final[dict[str, str | None]] = {
    **dict.fromkeys(("op", "ts_ms", "ts_us", "ts_ns")),
    **dict.fromkeys(("id", "total_order", "data_collection_order"), "transaction"),
}


@attrs.define(eq=False, kw_only=True)
class ExtractNewRecordState:
    """
    ``ScyllaExtractNewRecordState``: the value becomes the row after the change, without the envelope.

    A record whose ``after`` is null counts as a delete; one whose ``before`` is null, too, is dropped.

    Args:
        deletes: what becomes of a delete: ``"drop"``, and its tombstone; ``"tombstone"``: a null with a schema, without
            the tombstone; ``"rewrite"``: the row before it, with ``__deleted`` in all rows;
            ``"rewrite-with-tombstone"``: so, and its tombstone stays.
        keep_tombstones: whether tombstones stay whatever *deletes* says; None: as it says.
        open_cells: cells of the legacy format become their values.
        add_fields, add_headers: fields of the envelope that are added: ``op``, ``source.ts_us``, ``db:database``.
        fields_prefix, headers_prefix: what their names start with.
        route_by_field: the column, of text, that has the topic of a record.
        drop_header: the header that has a list of the fields that are left out, as ``ExtractChangedRecordState`` makes
            it. They stay in a record without it.
        drop_from_key: they are left out of the key, too.
        drop_optional: only those that are optional are left out.

    Not thread-safe: it keeps what becomes of each schema.

    Raises:
        ConfigError: a value is not one of those that are known; or, when it is called, records do not have the column
            *route_by_field*, or it is no text; the header *drop_header* has no list; two fields have one name.
    """

    deletes: Deletes = "drop"
    keep_tombstones: bool | None = None
    open_cells: bool = True
    add_fields: Sequence[str] = ()
    add_headers: Sequence[str] = ()
    fields_prefix: str = "__"
    headers_prefix: str = "__"
    route_by_field: str = ""
    drop_header: str = ""
    drop_from_key: bool = False
    drop_optional: bool = True
    _fields: tuple[_Reference, ...] = attrs.field(init=False)
    _headers: tuple[_Reference, ...] = attrs.field(init=False)
    _schemas: dict[tuple[int, bool], tuple[Schema, Schema, Schema]] = attrs.field(init=False, factory=dict)
    _rows: _Schemas = attrs.field(init=False, factory=lambda: _Schemas(_unwrapped))
    _less: dict[tuple[int, frozenset[str]], tuple[Schema, Schema]] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        if self.deletes not in get_args(Deletes):
            raise ConfigError(f"the mode of deletes is {self.deletes!r}; use one of {', '.join(get_args(Deletes))}")
        if self.keep_tombstones is None:
            self.keep_tombstones = self.deletes == "rewrite-with-tombstone"
        self._fields = tuple(_Reference.parse(text, self.fields_prefix) for text in self.add_fields)
        self._headers = tuple(_Reference.parse(text, self.headers_prefix) for text in self.add_headers)

    @classmethod
    def of(cls, options: Mapping[str, str], *, open_cells: bool = True) -> Self:
        """Return the transform that *options* configure, by the names that follow ``transforms.NAME.``.

        Other names have no effect, as in Connect; see ``unknown_options``.

        Raises:
            ConfigError: an option has no possible value.
        """
        mode = options.get("delete.tombstone.handling.mode", "").strip().lower()
        keep = None
        if not mode:  # the older pair of options
            mode = _OLD_MODES.get(options.get("delete.handling.mode", "drop").strip().lower(), "")
            keep = not flag(options.get("drop.tombstones", "true").strip(), "drop.tombstones")
        if mode not in get_args(Deletes):
            raise ConfigError(
                "delete.tombstone.handling.mode is one of drop, tombstone, rewrite, rewrite-with-tombstone; "
                "delete.handling.mode is one of drop, none, rewrite"
            )
        is_legacy = options.get("cdc.output.format", "legacy").strip().lower() != "advanced"
        return cls(
            deletes=mode,  # type: ignore[arg-type]
            keep_tombstones=keep,
            open_cells=open_cells and is_legacy,
            add_fields=words(options.get("add.fields", "")),
            add_headers=words(options.get("add.headers", "")),
            fields_prefix=options.get("add.fields.prefix", "__"),
            headers_prefix=options.get("add.headers.prefix", "__"),
            route_by_field=options.get("route.by.field", "").strip(),
            drop_header=options.get("drop.fields.header.name", "").strip(),
            drop_from_key=flag(options.get("drop.fields.from.key", "false").strip(), "drop.fields.from.key"),
            drop_optional=flag(
                options.get("drop.fields.keep.schema.compatible", "true").strip(), "drop.fields.keep.schema.compatible"
            ),
        )

    def __call__(self, record: Record) -> Record | None:
        found = self._extracted(record)
        if found is None or not self.open_cells or found.value is None:
            return found
        if found.value_schema is None or found.value_schema.type != "struct":
            return found
        made = self._rows.of(found.value_schema)
        return found._replace(value_schema=made.schema, value=_opened(found.value, made.cells))

    def _extracted(self, record: Record) -> Record | None:
        envelope, schema = record.value, record.value_schema
        if envelope is None or schema is None:
            return self._tombstone(record)
        if schema.name is None or not schema.name.endswith(".Envelope"):
            return record
        headers = [
            Header(r.name, _added(found[0]), found[1])
            for r in self._headers
            if (found := r.find(schema, envelope)) is not None
        ]
        if record.shared is not None:
            record.shared[:] = headers
        is_delete = envelope["after"] is None
        image = "before" if is_delete else "after"
        row = envelope[image]
        if row is None or (is_delete and self.deletes == "drop"):
            return None
        topic = self._topic(record.topic, schema, image, row)
        record = record._replace(topic=topic, headers=(*record.headers, *headers), shared=None)
        dropped = self._dropped(record) if self.drop_header else frozenset()
        if self.drop_from_key:
            record = self._without(record, dropped, of_key=True)
        if is_delete and self.deletes == "tombstone":
            return record._replace(value_schema=_field(schema, "after"), value=None)
        if is_delete:  # Debezium adds fields after it has left out those of a delete
            dropped -= {reference.name for reference in self._fields}
        return self._without(self._unwrapped(record, envelope, schema, image), dropped, of_key=False)

    def _tombstone(self, record: Record) -> Record | None:
        if not self.keep_tombstones:
            return None
        record = record.with_shared()
        of_delete = [Header(r.name, _REQUIRED_TEXT, "d") for r in self._headers if r.field == "op"]
        return record._replace(headers=(*record.headers, *of_delete))

    def _unwrapped(self, record: Record, envelope: Mapping[str, Any], schema: Schema, image: str) -> Record:
        """Return the record with the row *image* of the envelope, and the fields that are added to it."""
        is_delete = image == "before"
        rewrites = self.deletes in ("rewrite", "rewrite-with-tombstone")
        value = dict(envelope[image])
        if rewrites:
            value[_DELETED] = "true" if is_delete else "false"
        for reference in self._fields:
            if (found := reference.find(schema, envelope)) is not None:
                value[reference.name] = found[1]
        return record._replace(value_schema=self._schema(schema, is_delete, rewrites), value=value)

    def _dropped(self, record: Record) -> frozenset[str]:
        """Return the names that the header lists."""
        header = next((h for h in record.headers if h.key == self.drop_header), None)
        if header is None or header.value is None:
            return frozenset()
        if not isinstance(header.value, list):
            raise ConfigError(f"drop.fields.header.name is {self.drop_header!r}, a header that has no list of fields")
        return frozenset(header.value)

    def _without(self, record: Record, names: frozenset[str], *, of_key: bool) -> Record:
        """Return the record without the fields *names* of its key or value."""
        schema, struct = (record.key_schema, record.key) if of_key else (record.value_schema, record.value)
        if schema is None or struct is None:
            return record
        may_go = (f.name for f in schema.fields if f.schema.optional or not self.drop_optional)
        names = names.intersection(may_go)
        if not names:
            return record
        known = self._less.get((id(schema), names))
        if known is None:
            if len(self._less) >= _SCHEMAS_KEPT:
                self._less.clear()
            fields = tuple([f for f in schema.fields if f.name not in names])
            known = self._less[id(schema), names] = (schema, attrs.evolve(schema, fields=fields, optional=False))
        less = {name: value for name, value in struct.items() if name not in names}
        if of_key:
            return record._replace(key_schema=known[1], key=less)
        return record._replace(value_schema=known[1], value=less)

    def _topic(self, topic: str, envelope: Schema, image: str, row: Mapping[str, Any]) -> str:
        if not self.route_by_field:
            return topic
        column = _field(envelope, image).field(self.route_by_field)
        if column is None:
            raise ConfigError(f"route.by.field is {self.route_by_field!r}, which records of {told(topic)} lack")
        if column.type != "string":
            raise ConfigError(f"route.by.field is {self.route_by_field!r}, no text in records of {told(topic)}")
        found = row[self.route_by_field]
        return RowTopic(found) if found and found.strip() else topic

    def _schema(self, envelope: Schema, is_delete: bool, rewrites: bool) -> Schema:
        known = self._schemas.get((id(envelope), is_delete))
        if known is None:
            row = _field(envelope, "before" if is_delete else "after")
            fields = {f.name: f for f in row.fields}
            if rewrites:
                if _DELETED in fields:
                    raise ConfigError(f"records of {envelope.name} have a column {_DELETED!r} already; drop deletes")
                fields[_DELETED] = Field(_DELETED, _TEXT)
            for reference in self._fields:
                if (found := _schema_of(reference, envelope)) is not None:
                    if reference.name in fields:
                        raise ConfigError(f"add.fields makes a second field {reference.name!r}; give one another name")
                    fields[reference.name] = Field(reference.name, _added(found))
            schema = attrs.evolve(row, fields=tuple(fields.values()), optional=False)
            if len(self._schemas) >= _SCHEMAS_KEPT:
                self._schemas.clear()
            known = self._schemas[id(envelope), is_delete] = (envelope, row, schema)
        return known[2]


def _added(schema: Schema) -> Schema:
    """Return the schema of an added field: optional, and without a default, which the transform does not copy.

    It does not copy the fields of a struct, either, so it refuses all structs but null. The transaction, which is
    always null, is without fields as there; others are whole.
    """
    fields = () if schema.name == _TRANSACTION_NAME else schema.fields
    return attrs.evolve(schema, optional=True, default=None, fields=fields)


def _schema_of(reference: _Reference, envelope: Schema) -> Schema | None:
    inner = envelope if reference.struct is None else envelope.field(reference.struct)
    found = None if inner is None else inner.field(reference.field)
    return found or envelope.field(reference.field)


def _unwrapped(schema: Schema) -> tuple[Schema, frozenset[str]]:
    opened, cells = _without_cells(schema, _is_cell)
    return attrs.evolve(opened, optional=False), cells


_TRANSACTION_NAME: Final = "event.block"
_OLD_MODES: Final = {"drop": "drop", "rewrite": "rewrite", "none": "tombstone"}
OPTIONS: Final = frozenset(
    (
        "delete.tombstone.handling.mode",
        "delete.handling.mode",
        "drop.tombstones",
        "add.fields",
        "add.headers",
        "add.fields.prefix",
        "add.headers.prefix",
        "route.by.field",
        "drop.fields.header.name",
        "drop.fields.from.key",
        "drop.fields.keep.schema.compatible",
        "replace.null.with.default",  # no column has a default
    )
)

# ---------------------------------------------------------------- what changed


@attrs.frozen(kw_only=True)
class ExtractChangedRecordState:
    """
    Debezium's transform of this name: headers with the lists of fields that differ between ``before`` and ``after``,
    and of those that do not, for ``drop.fields.header.name`` of another transform.

    Records without both images pass as they are.

    Args:
        changed, unchanged: the names of the headers; "" for none.
    """

    changed: str = ""
    unchanged: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Return the transform that *options* configure, by the names that follow ``transforms.NAME.``."""
        return cls(changed=options.get("header.changed.name", ""), unchanged=options.get("header.unchanged.name", ""))

    def __call__(self, record: Record) -> Record:
        schema = record.value_schema
        if record.value is None or schema is None or not (schema.name or "").endswith(".Envelope"):
            return record
        before, after = record.value["before"], record.value["after"]
        if before is None or after is None:
            return record
        headers = list(record.headers)
        # By their texts, as Java compares numbers: NaN is NaN, and 0.0 is not -0.0.
        differ = {name: repr(value) != repr(before[name]) for name, value in after.items() if name in before}
        for header, is_wanted in ((self.changed, True), (self.unchanged, False)):
            if header.strip():
                names = [name for name, differs in differ.items() if differs is is_wanted]
                headers.append(Header(header, Schema("array", items=_TEXT, name=header), names))
        return record._replace(headers=tuple(headers))
