"""``Emitter``: changes to records. A plan for each layout of the log has the schemas, and what each column becomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import attrs

from ..cdc.log import Table
from ..cdc.rows import PARTITION_DELETES, RANGE_STARTS, RANGES, Cells, Change, Layout, ValueColumn
from ..driver import Column
from ..errors import ConfigError, MalformedData, MetadataError, RscyllaError
from ..event import Event
from ..types import Decoder, Field, Schema, connect_for, decoder_for, twice
from .formats.json import JsonConverter
from .java import header_text
from .names import field_name, schema_name
from .outline import Outline, Slot
from .record import Header, Record
from .rows import columns_of, us_of
from .settings import Settings, Snapshot

__all__ = ["Emitter", "RowReader"]

Row = dict[str, Any]

_LEFT_OUT: Final = ("list", "set", "map", "tuple", "udt")
"""Types that the legacy format leaves out."""

_TEXT: Final = Schema("string")
_REQUIRED_TEXT: Final = Schema("string", optional=False)
_LONG: Final = Schema("int64")
_REQUIRED_LONG: Final = Schema("int64", optional=False)
_SNAPSHOT: Final = Schema(
    "string",
    name="io.debezium.data.Enum",
    version=1,
    parameters={"allowed": "true,last,false,incremental"},
    default="false",
)


def _struct(fields: Iterable[tuple[str, Schema]], **more: Any) -> Schema:
    return Schema("struct", fields=tuple([Field(name, schema) for name, schema in fields]), **more)


_SOURCE: Final = _struct(
    (
        ("version", _REQUIRED_TEXT),
        ("connector", _REQUIRED_TEXT),
        ("name", _REQUIRED_TEXT),
        ("ts_ms", _REQUIRED_LONG),
        ("snapshot", _SNAPSHOT),
        ("db", _REQUIRED_TEXT),
        ("sequence", _TEXT),
        ("ts_us", _LONG),
        ("ts_ns", _LONG),
        ("keyspace_name", _REQUIRED_TEXT),
        ("table_name", _REQUIRED_TEXT),
    ),
    optional=False,
    name="com.scylladb.cdc.debezium.connector",
)
_TRANSACTION: Final = _struct(
    (("id", _REQUIRED_TEXT), ("total_order", _REQUIRED_LONG), ("data_collection_order", _REQUIRED_LONG)),
    name="event.block",
    version=1,
)
_HEARTBEAT_KEY: Final = _struct(
    (("serverName", _REQUIRED_TEXT),),
    optional=False,
    name="io.debezium.connector.common.ServerNameKey",
    version=1,
)
_HEARTBEAT: Final = _struct(
    (("ts_ms", _REQUIRED_LONG),), optional=False, name="io.debezium.connector.common.Heartbeat", version=1
)


class Emitter:
    """Makes records of changes, as the Scylla CDC source connector does; see docs/debezium.md.

    Not thread-safe: it keeps a plan for each layout of a table's log.

    >>> emitter = Emitter(Settings(prefix="demo"))
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._plans: dict[int, tuple[Layout, _Plan]] = {}  # by identity, as a stream makes each layout once

    def records(self, change: Change | Event, now_ns: int) -> list[Record]:
        """Return the records of a change: usually one, two for a delete with a tombstone, none if it is skipped.

        Args:
            change: or its event, of a stream with ``granularity="change"``.
            now_ns: the time of processing, which the envelope has: nanoseconds since the epoch.

        Raises:
            ConfigError: the event is not of a stream of ``rscylla``, or a setting is not possible for the table.
            MalformedData: a cell has bytes that are not a value of its type.
            MetadataError: the operation is not known.
        """
        found = change if isinstance(change, Change) else getattr(change, "change", None)
        if not isinstance(found, Change):
            raise ConfigError("records are made of changes; use a stream with granularity='change'")
        layout = found.layout
        try:
            return self._plan(layout).records(found, now_ns)
        except RscyllaError:
            raise
        except ValueError as e:
            raise layout.malformed(found.raw_rows) from e

    def outline(self, layout: Layout) -> Outline | None:
        """Return what records of *layout* have in common; None if they have headers.

        Raises:
            ConfigError: a setting is not possible for the table.
        """
        return self._plan(layout).outline()

    def _plan(self, layout: Layout) -> _Plan:
        known = self._plans.get(id(layout))
        if known is None:
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            known = self._plans[id(layout)] = (layout, _Plan(self.settings, layout))
        return known[1]

    def reader(self, table: Table, columns: Sequence[Column]) -> RowReader:
        """Return what makes records of rows of the base table, for snapshots.

        Args:
            table: the base table.
            columns: what each cell of a row is, as a page has them. Those that are not of the table are left out.

        Raises:
            ConfigError: a setting is not possible for the table.
            MetadataError: a column of the key is not read.
        """
        return RowReader(self.settings, table, columns)

    def heartbeat(self, now_ms: int) -> Record:
        """Return the record that says that the connector runs. *now_ms*: milliseconds since the epoch."""
        settings = self.settings
        topic, key = settings.topic(settings.heartbeat_prefix, settings.prefix), {"serverName": settings.prefix}
        return Record(topic, _HEARTBEAT_KEY, key, _HEARTBEAT, {"ts_ms": now_ms}, (), 0)


_PLANS_KEPT: Final = 256


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


class _Shape:
    """Topic, schemas, and columns of the records of one table."""

    def __init__(
        self, settings: Settings, table: Table, in_key: Iterable[ValueColumn], others: Iterable[ValueColumn]
    ) -> None:
        self._settings = settings
        self._is_legacy = settings.output_format == "legacy"
        names = (settings.prefix, table.keyspace, table.name)
        self._topic = settings.topic(*names)
        self._full_name = ".".join(names)
        adjustment = settings.schema_names
        # Source: the connector adjusts its names with "none", too, but not those of types within columns.
        self._named = partial(schema_name, mode="avro" if adjustment == "none" else adjustment)
        self._adjusts_types = adjustment != "none"
        self._field = partial(field_name, mode=settings.field_names)
        partition = {c.name for c in table.partition_key}
        keys = [self._column(c, "pk" if c.name in partition else "ck") for c in in_key]
        values = [self._column(c, "") for c in others]
        if self._is_legacy:
            keys, values = ([c for c in some if c.log.type.kind not in _LEFT_OUT_OF_LOG] for some in (keys, values))
        # As the log has its columns: sorted by the bytes of their names, those of the key among the others.
        self._columns = sorted([*keys, *values], key=lambda c: c.log.name.encode())
        if (name := twice(c.name for c in self._columns)) is not None:
            raise ConfigError(
                f"two columns of {table.full_name} have the field {name!r}; use field.name.adjustment.mode=avro_unicode"
            )
        self._values = [c for c in self._columns if not c.place]
        self._keys = [c for c in self._columns if c.place]
        if not self._is_legacy:
            self._keys.sort(key=lambda c: c.place != "pk")
        self._in_key = columns_of(self._keys)
        places = frozenset(("kafka-key", "payload-after", "payload-before")) if self._is_legacy else settings.places
        self._key_schema = _struct(
            [(c.name, c.schema) for c in self._keys], optional=False, name=self._named(f"{self._full_name}.Key")
        )
        self._record_key = self._key_schema if "kafka-key" in places else None
        self._headed = [c for c in self._columns if c.place] if "kafka-headers" in places else []
        self._blob_as_object = "blob-headers" in settings.like_connector
        self._payload_key = settings.key_name if "payload-key" in places else None
        in_before = self._columns if "payload-before" in places else self._values
        in_after = self._columns if "payload-after" in places else self._values
        self._before = self._row_schema("Before", in_before)
        self._after = self._row_schema("After", in_after)
        self._before_columns, self._after_columns = in_before, in_after
        self._in_before = columns_of(in_before)
        self._in_after = columns_of(in_after)
        self._in_cells = columns_of(self._columns)
        self._value_schema = self._envelope()
        self._source: Row = dict.fromkeys([f.name for f in _SOURCE.fields])
        self._source |= {"version": settings.version, "connector": "scylla", "name": settings.prefix}
        self._source |= {"snapshot": "false", "db": table.keyspace}
        self._source |= {"keyspace_name": table.keyspace, "table_name": table.name}
        self._clustering = [c for c in keys if c.place == "ck"]  # in the order of the table

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
        return _struct(fields, name=self._named(f"{self._full_name}.{suffix}"))

    def _cell_schema(self, column: _Column) -> Schema:
        if not self._is_legacy or column.place:
            return column.schema
        return _struct((("value", column.schema),), name=self._named(f"{self._full_name}.{column.log.name}.Cell"))

    def _envelope(self) -> Schema:
        fields = [("source", _SOURCE), ("before", self._before), ("after", self._after)]
        if self._payload_key is not None:
            fields.append((self._payload_key, self._key_schema))
        fields += [("op", _TEXT), ("ts_ms", _LONG), ("transaction", _TRANSACTION), ("ts_us", _LONG), ("ts_ns", _LONG)]
        names = [name for name, _ in fields]
        if len(set(names)) < len(names):
            raise ConfigError(
                f"cdc.include.primary-key.payload-key-name is {self._payload_key!r}, which the envelope has already"
            )
        return _struct(fields, optional=False, name=self._named(f"{self._full_name}.Envelope"))

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
        for column in self._headed:
            value = column.value_in(cells) if of_row or column.place == "pk" else None
            if value is not None:
                text = header_text(column.schema, value, blob_as_object=self._blob_as_object)
                found.append(Header(f"{column.place}.{column.log.name}", _REQUIRED_TEXT, text))
        return tuple(found)


class RowReader(_Shape):
    """Makes records of rows of a base table, with the schemas of those of its changes; see ``Emitter.reader``.

    Not thread-safe, as the emitter is not.
    """

    def __init__(self, settings: Settings, table: Table, columns: Sequence[Column]) -> None:
        self._table = table
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


class _Plan(_Shape):
    """What becomes of the changes of one layout."""

    def __init__(self, settings: Settings, layout: Layout) -> None:
        super().__init__(settings, layout.table, layout.keys, layout.values)
        self._layout = layout
        self._codes = self._codes_of(has_clustering=bool(layout.table.clustering_key))
        self._image = self._legacy_images if self._is_legacy else self._advanced_images
        self._record: tuple[bytes | None, bytes | None] | None = None  # the record of _firsts
        self._firsts: dict[Cells, int] = {}

    def records(self, change: Change, now_ns: int) -> list[Record]:
        rows = change.raw_rows
        cells = rows[0]
        known = self._codes.get(cells[self._layout.operation])
        if known is None:
            return self._without_code(change)
        code, of_row = known
        key = self._key_of(cells, of_row)
        preimage = rows[1]
        if preimage is not None and self._is_legacy and not (self._settings.preimages and self._is_first(change)):
            preimage = None
        before, after, has_clock = self._image(code, cells, preimage, rows[2], of_row)
        source = self._source_at(us_of(cells[self._layout.time]))  # type: ignore[arg-type]
        value = self._value(code, key, source, before, after, now_ns, has_clock)
        headers = self._headers(cells, of_row) if self._headed else ()
        if not of_row:
            headers = (*headers, *self._extent(change))
        record = Record(self._topic, self._record_key, self._kept_key(key), self._value_schema, value, headers)
        if code != "d" or not of_row or not self._settings.tombstones:
            return [record]
        delete = record._replace(shared=[])
        return [delete, delete._replace(value_schema=None, value=None)]

    def outline(self) -> Outline | None:
        if self._headed:
            return None
        settings = self._settings
        times = {"ts_ms": Slot.SOURCE_MS, "ts_us": Slot.SOURCE_US, "ts_ns": Slot.SOURCE_NS}
        envelope = self._value("", {}, {**self._source, **times}, None, None, 0, has_clock=True)
        envelope |= {"before": Slot.BEFORE, "after": Slot.AFTER, "op": Slot.CODE}
        envelope |= {"ts_ms": Slot.NOW_MS, "ts_us": Slot.NOW_US, "ts_ns": Slot.NOW_NS}
        if self._payload_key is not None:
            envelope[self._payload_key] = Slot.KEY
        return Outline(
            topic=self._topic,
            key_schema=self._record_key,
            value_schema=self._value_schema,
            envelope=envelope,
            key=self._keys,
            before=self._before_columns,
            after=self._after_columns,
            codes={raw: code for raw, (code, of_row) in self._codes.items() if of_row and raw is not None},
            images=(settings.before, settings.after),
            is_legacy=self._is_legacy,
            has_preimages=settings.preimages,
            has_tombstones=settings.tombstones,
        )

    def _codes_of(self, *, has_clustering: bool) -> dict[bytes | None, tuple[str, bool]]:
        """Return, by the bytes of operations that have records, their code, and whether they are of one row."""
        skipped = self._settings.skipped
        codes = dict.fromkeys(_ROW_DELETES, ("d", True))
        wide = dict.fromkeys(PARTITION_DELETES, ("d", not has_clustering)) | dict.fromkeys(RANGES, ("d", False))
        if "silent-deletes" in self._settings.like_connector:
            wide = {raw: found for raw, found in wide.items() if found[1]}
        codes |= {_INSERT: ("c", True), _UPDATE: ("u", True), **wide}
        return {raw: found for raw, found in codes.items() if found[0] not in skipped}

    def _without_code(self, change: Change) -> list[Record]:
        """Return no records for what is skipped, and for an image without its write, which does not say what happened.

        Raises:
            MetadataError: the operation is not known.
        """
        if change.raw_rows[0][self._layout.operation] is not None and change.operation.name.startswith("UNKNOWN"):
            raise MetadataError(
                f"a change of {self._layout.table.full_name} has the operation {change.operation.value}, which this "
                "rscylla does not know; upgrade rscylla"
            )
        return []

    def _is_first(self, change: Change) -> bool:
        """Return whether the change is the first of its row in its record: only that one has the preimage."""
        if not change.batch_index:
            return True
        layout, cells = self._layout, change.raw_rows[0]
        record = cells[layout.stream_id], cells[layout.time]
        if self._record != record:
            firsts: dict[Cells, int] = {}
            batch = change.batch
            for index in range(batch.size):
                row, preimage, *_ = batch.raw_rows(index)
                if preimage is not None:
                    firsts.setdefault(layout.raw_key(row), index)
            self._record, self._firsts = record, firsts
        return self._firsts.get(layout.raw_key(cells)) == change.batch_index

    def _extent(self, change: Change) -> list[Header]:
        """Return the headers that say what a delete of more than a row deleted."""
        found = [("cdc.delete", "partition")]
        cells, *_, end = change.raw_rows
        if cells[self._layout.operation] in RANGES:
            found = [("cdc.delete", "range")]
            is_start = cells[self._layout.operation] in RANGE_STARTS
            for name, row in (("start", cells if is_start else None), ("end", end if is_start else cells)):
                if row is None:
                    continue
                columns = [c for c in self._clustering if row[c.index] is not None]
                schema = _struct([(c.name, c.schema) for c in columns], optional=False)
                bound = JsonConverter.once(schema, {c.name: c.value_in(row) for c in columns})
                operation = row[self._layout.operation]
                found.append((f"cdc.range.{name}", bound))
                found.append((f"cdc.range.{name}.inclusive", "true" if operation in _INCLUSIVE else "false"))
        return [Header(name, _REQUIRED_TEXT, text) for name, text in found]

    # ------------------------------------------------------------ images

    def _legacy_images(
        self, code: str, cells: Cells, preimage: Cells | None, postimage: Cells | None, of_row: bool
    ) -> tuple[Row | None, Row | None, bool]:
        """Return before, after, and whether the envelope has microseconds and nanoseconds."""
        if code == "d":
            return self._in_cells.cells(cells if preimage is None else preimage, cells, of_row), None, True
        before = None if preimage is None else self._in_cells.cells(preimage, cells, of_row=True)
        return before, self._in_cells.cells(cells, cells, of_row=True), before is None

    def _advanced_images(
        self, code: str, cells: Cells, preimage: Cells | None, postimage: Cells | None, of_row: bool
    ) -> tuple[Row | None, Row | None, bool]:
        settings = self._settings
        is_update = code == "u"
        before = after = None
        if settings.after == "none":
            postimage = None
        if settings.before != "none" and preimage is not None:
            if not is_update:
                before = self._in_before.row(preimage)
            elif settings.before == "only-updated":
                before = self._in_before.updated(preimage, cells)
            elif postimage is not None:
                before = self._in_before.joined(preimage, postimage, cells)
            else:
                before = self._in_before.row(preimage)
        if postimage is not None:
            only_updated = is_update and settings.after == "only-updated"
            after = self._in_after.updated(postimage, cells) if only_updated else self._in_after.row(postimage)
        return before, after, False


_UPDATE: Final = b"\x01"
_INSERT: Final = b"\x02"
_ROW_DELETES: Final = (b"\x03", b"\xfd")
_INCLUSIVE: Final = (b"\x05", b"\x07")
_LEFT_OUT_OF_LOG: Final = (*_LEFT_OUT, "log list")
