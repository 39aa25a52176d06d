"""``Shape``: topic, schemas, and columns of the records of one table; and the records of its rows, for snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import attrs

from ..cdc.log import Table
from ..cdc.rows import Cells, ValueColumn
from ..driver import Column
from ..errors import ConfigError, MalformedData, MetadataError
from ..types import Decoder, Field, Schema, connect_for, decoder_for, twice
from .java import header_text
from .names import field_name, schema_name
from .record import Header, Record
from .rows import Columns
from .settings import Settings, Snapshot

__all__ = ["REQUIRED_LONG", "REQUIRED_TEXT", "Row", "RowReader", "Shape", "struct_of"]

Row = dict[str, Any]

_NOT_IN_LEGACY: Final = ("list", "set", "map", "tuple", "udt", "log list")
"""Types that the legacy format leaves out."""

_PLACES_OF_LEGACY: Final = frozenset(("kafka-key", "payload-after", "payload-before"))

_TEXT: Final = Schema("string")
REQUIRED_TEXT: Final = Schema("string", optional=False)
_LONG: Final = Schema("int64")
REQUIRED_LONG: Final = Schema("int64", optional=False)
_SNAPSHOT: Final = Schema(
    "string",
    name="io.debezium.data.Enum",
    version=1,
    parameters={"allowed": "true,last,false,incremental"},
    default="false",
)


def struct_of(fields: Iterable[tuple[str, Schema]], **more: Any) -> Schema:
    return Schema("struct", fields=tuple([Field(name, schema) for name, schema in fields]), **more)


_SOURCE: Final = struct_of(
    (
        ("version", REQUIRED_TEXT),
        ("connector", REQUIRED_TEXT),
        ("name", REQUIRED_TEXT),
        ("ts_ms", REQUIRED_LONG),
        ("snapshot", _SNAPSHOT),
        ("db", REQUIRED_TEXT),
        ("sequence", _TEXT),
        ("ts_us", _LONG),
        ("ts_ns", _LONG),
        ("keyspace_name", REQUIRED_TEXT),
        ("table_name", REQUIRED_TEXT),
    ),
    optional=False,
    name="com.scylladb.cdc.debezium.connector",
)
_TRANSACTION: Final = struct_of(
    (("id", REQUIRED_TEXT), ("total_order", REQUIRED_LONG), ("data_collection_order", REQUIRED_LONG)),
    name="event.block",
    version=1,
)


@attrs.frozen(eq=False)
class _Column:
    """A column of the base table in a row, and what makes its value in Connect. ``name``: that of its field."""

    name: str
    index: int
    schema: Schema
    decode: Decoder
    log: ValueColumn
    place: str  # "pk", "ck", or "" for a column outside of the key

    def value_in(self, cells: Cells) -> Any:
        raw = cells[self.index]
        return None if raw is None else self.decode(raw)


class Shape:
    """Topic, schemas, and columns of the records of one table."""

    def __init__(
        self, settings: Settings, table: Table, in_key: Iterable[ValueColumn], others: Iterable[ValueColumn]
    ) -> None:
        self._settings = settings
        self._table = table
        self._is_legacy = settings.output_format == "legacy"
        names = (settings.prefix, table.keyspace, table.name)
        self._topic = settings.topic(*names)
        self._full_name = ".".join(names)
        # Source: the connector adjusts its names with "none", too, but not those of types within columns.
        self._adjusts_types = settings.schema_names != "none"
        self._named = partial(schema_name, mode=settings.schema_names if self._adjusts_types else "avro")
        self._field = partial(field_name, mode=settings.field_names)
        columns = self._columns_of(in_key, others)
        self._clustering = [c for c in columns if c.place == "ck"]
        # As the log has its columns: sorted by the bytes of their names, those of the key among the others.
        self._columns = sorted(columns, key=lambda c: c.log.name.encode())
        self._keys = [c for c in self._columns if c.place]
        if not self._is_legacy:
            self._keys.sort(key=lambda c: c.place != "pk")
        self._place(_PLACES_OF_LEGACY if self._is_legacy else settings.places)
        self._value_schema = self._envelope()
        self._source: Row = dict.fromkeys([f.name for f in _SOURCE.fields])
        self._source |= {"version": settings.version, "connector": "scylla", "name": settings.prefix}
        self._source |= {"snapshot": "false", "db": table.keyspace}
        self._source |= {"keyspace_name": table.keyspace, "table_name": table.name}

    def _columns_of(self, in_key: Iterable[ValueColumn], others: Iterable[ValueColumn]) -> list[_Column]:
        partition = {c.name for c in self._table.partition_key}
        columns = [self._column(c, "pk" if c.name in partition else "ck") for c in in_key]
        columns += [self._column(c, "") for c in others]
        if self._is_legacy:
            columns = [c for c in columns if c.log.type.kind not in _NOT_IN_LEGACY]
        if (name := twice(c.name for c in columns)) is not None:
            raise ConfigError(
                f"two columns of {self._table.full_name} have the field {name!r}; use "
                "field.name.adjustment.mode=avro_unicode"
            )
        return columns

    def _place(self, places: frozenset[str]) -> None:
        """Decide where the key is."""
        self._key_schema = struct_of(
            [(c.name, c.schema) for c in self._keys], optional=False, name=self._named(f"{self._full_name}.Key")
        )
        self._record_key = self._key_schema if "kafka-key" in places else None
        self._headed = [c for c in self._columns if c.place] if "kafka-headers" in places else []
        self._payload_key = self._settings.key_name if "payload-key" in places else None
        values = [c for c in self._columns if not c.place]
        self._before_columns = self._columns if "payload-before" in places else values
        self._after_columns = self._columns if "payload-after" in places else values
        self._in_key = Columns(self._keys)
        self._in_before = Columns(self._before_columns)
        self._in_after = Columns(self._after_columns)

    def _column(self, column: ValueColumn, place: str) -> _Column:
        lists = "list-order" in self._settings.like_connector
        made = connect_for(column.type, self._type_name, field=self._field, java_lists=lists)
        return _Column(self._field(column.name), column.index, *made, column, place)

    def _type_name(self, word: str) -> str:
        """Return the name of the schema of a type within a column, such as that of a UDT."""
        if self._adjusts_types:
            return self._named(f"{self._full_name}.{word}")
        # Source: the connector replaces no other characters of the names of UDTs.
        return f"{self._named(self._full_name)}.{word.replace('.', '_').replace('-', '_')}"

    def _row_schema(self, suffix: str, columns: Sequence[_Column]) -> Schema:
        fields = [(c.name, self._cell_schema(c)) for c in columns]
        return struct_of(fields, name=self._named(f"{self._full_name}.{suffix}"))

    def _cell_schema(self, column: _Column) -> Schema:
        if not self._is_legacy or column.place:
            return column.schema
        return struct_of((("value", column.schema),), name=self._named(f"{self._full_name}.{column.log.name}.Cell"))

    def _envelope(self) -> Schema:
        before = self._row_schema("Before", self._before_columns)
        after = self._row_schema("After", self._after_columns)
        fields = [("source", _SOURCE), ("before", before), ("after", after)]
        if self._payload_key is not None:
            fields.append((self._payload_key, self._key_schema))
        fields += [("op", _TEXT), ("ts_ms", _LONG), ("transaction", _TRANSACTION), ("ts_us", _LONG), ("ts_ns", _LONG)]
        names = [name for name, _ in fields]
        if len(set(names)) < len(names):
            raise ConfigError(
                f"cdc.include.primary-key.payload-key-name is {self._payload_key!r}, which the envelope has already"
            )
        return struct_of(fields, optional=False, name=self._named(f"{self._full_name}.Envelope"))

    # ------------------------------------------------------------ one record

    def _key_of(self, cells: Cells, of_row: bool) -> Row:
        key = self._in_key.row(cells)
        if not of_row:
            key.update(dict.fromkeys([c.name for c in self._clustering]))
        return key

    def _kept_key(self, key: Row) -> Row | None:
        """Return the key of the record; None where keys are elsewhere."""
        return key if self._record_key is not None else None

    def _source_at(self, us: int) -> Row:
        ms = us // 1000
        # A copy keeps the order of the fields.
        return {**self._source, "ts_ms": ms, "ts_us": us, "ts_ns": ms * 1_000_000}

    def _value(
        self, code: str, key: Row, source: Row, before: Row | None, after: Row | None, now_ns: int, has_clock: bool
    ) -> Row:
        value: Row = {"source": source, "before": before, "after": after}
        if self._payload_key is not None:
            value[self._payload_key] = key
        value["op"] = code
        value["ts_ms"] = now_ns // 1_000_000
        value["transaction"] = None
        value["ts_us"] = now_ns // 1000 if has_clock else None
        value["ts_ns"] = now_ns if has_clock else None
        return value

    def _headers(self, cells: Cells, of_row: bool) -> tuple[Header, ...]:
        found = []
        is_object = "blob-headers" in self._settings.like_connector
        for column in self._headed:
            value = column.value_in(cells) if of_row or column.place == "pk" else None
            if value is not None:
                text = header_text(column.schema, value, blob_as_object=is_object)
                found.append(Header(f"{column.place}.{column.log.name}", REQUIRED_TEXT, text))
        return tuple(found)


class RowReader(Shape):
    """Makes records of rows of a base table, with the schemas of those of its changes; see ``Emitter.reader``.

    Not thread-safe, as the emitter is not.
    """

    def __init__(self, settings: Settings, table: Table, columns: Sequence[Column]) -> None:
        known = {c.name: c for c in table.columns}
        read = {
            c.name: ValueColumn(c.name, at, c.type, decoder_for(c.type), known[c.name].type_text)
            for at, c in enumerate(columns)
            if c.name in known
        }
        missing = [c.name for c in table.key if c.name not in read]
        if missing:
            raise MetadataError(f"rows of {table.full_name} were read without {missing[0]!r}, which is of their key")
        keys = {c.name for c in table.key}
        super().__init__(
            settings, table, [read[c.name] for c in table.key], [c for c in read.values() if c.name not in keys]
        )
        self._static = frozenset(c.name for c in table.of_kind("static"))

    def record(
        self, cells: Cells, *, at_us: int, now_ns: int, snapshot: Snapshot = "true", static: bool = False
    ) -> Record | None:
        """Return the record of a row with ``op`` ``r``; None where the settings skip ``r``.

        ``before`` is null, and ``after`` has the whole row, whatever the settings say of images. The static row of a
        partition is a record of its own, as in a log: the rows have no static columns.

        Args:
            cells: the row as the page has it.
            at_us: ``source.ts_us``: when the row was read, microseconds since the epoch.
            now_ns: the time of processing, nanoseconds since the epoch.
            snapshot: ``source.snapshot``, as Debezium marks rows.
            static: the record is of the static row of the partition, which each of its rows has.

        Raises:
            MalformedData: a cell has bytes that are not a value of its type.
        """
        if "r" in self._settings.skipped:
            return None
        of_row = not static
        try:
            key = self._key_of(cells, of_row)
            after = self._row_of(cells, static=static)
            headers = self._headers(cells, of_row) if self._headed else ()
        except ValueError as e:
            raise MalformedData.of_cell(self._table.full_name, self._undecodable(cells), is_log=False) from e
        source = self._source_at(at_us) | {"snapshot": snapshot}
        value = self._value("r", key, source, None, after, now_ns, self._is_legacy)
        return Record(self._topic, self._record_key, self._kept_key(key), self._value_schema, value, headers)

    def _row_of(self, cells: Cells, *, static: bool) -> Row:
        found: Row = {}
        for column in self._after_columns:
            raw, place = cells[column.index], column.place
            is_there = place == "pk" or (not static if place else (column.log.name in self._static) is static)
            value = column.decode(raw) if is_there and raw is not None else None
            # In the legacy format, {"value": null} is a column that is null, and null one that is not known.
            found[column.name] = {"value": value} if self._is_legacy and not place and is_there else value
        return found

    def _undecodable(self, cells: Cells) -> str:
        """Return the name of a column that cannot be decoded."""
        for column in self._columns:
            try:
                column.value_in(cells)
            except ValueError:
                return column.log.name
        return ""
