"""The CDC log of a table: its columns and properties, and the rows that a write puts into it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import attrs

from ..errors import InvalidRequest
from ..schema.properties import DEFAULTS
from ..schema.tables import CdcOptions, Column, TableSchema
from ..storage.mutation import CollectionCells, Key, PartitionMutation, PlainRow, RowMutation, Shape
from ..storage.positions import position_maker
from ..types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    INT,
    SMALLINT,
    TIMEUUID,
    TINYINT,
    CqlType,
    ListType,
    MapType,
    SetType,
    UdtType,
)
from ..types.timeuuid import EPOCH_TICKS
from ..versions import NEWEST, Release
from .images import ImageReader, ImageState, element_encoder
from .options import altered_cdc_options, cdc_options, extension_bytes, option_map
from .split import Change, Record, plain_rows, records_of

__all__ = [
    "ImageReader",
    "LogRecord",
    "LogWriter",
    "altered_cdc_options",
    "cdc_options",
    "extension_bytes",
    "log_columns",
    "log_options",
    "option_map",
    "record_time",
]

PREIMAGE: Final = 0
UPDATE: Final = 1
INSERT: Final = 2
ROW_DELETE: Final = 3
PARTITION_DELETE: Final = 4
RANGE_START_INCLUSIVE: Final = 5
RANGE_START_EXCLUSIVE: Final = 6
RANGE_END_INCLUSIVE: Final = 7
RANGE_END_EXCLUSIVE: Final = 8
POSTIMAGE: Final = 9
SERVICE_ROW_DELETE: Final = -3
SERVICE_PARTITION_DELETE: Final = -4

_OPERATION: Final = "cdc$operation"
_TTL: Final = "cdc$ttl"
_END_OF_BATCH: Final = "cdc$end_of_batch"
_DELETED: Final = "cdc$deleted_"
_DELETED_ELEMENTS: Final = "cdc$deleted_elements_"

_LONG: Final = struct.Struct(">q")
_TIME: Final = struct.Struct(">IHHQ")
_pack_int: Final = struct.Struct(">i").pack
_pack_seq: Final = struct.Struct(">ii").pack

# Cells as they are sent, each behind its length.
_NULL: Final = _pack_int(-1)
_TRUE: Final = b"\0\0\0\1\x01"
_OPERATION_CELLS: Final = {
    operation: b"\0\0\0\1" + bytes([operation & 0xFF]) for operation in (*range(POSTIMAGE + 1), -3, -4)
}


# What rows of one shape are made by: the cell of the operation, and for each value the place of its column and that of
# its mark of deletion, -1 where the log has none.
_Layout = tuple[bytes, list[tuple[int, int]]]


# ---------------------------------------------------------------- the log table


def log_columns(base: TableSchema) -> tuple[Column, ...]:
    """Return the columns of the log of ``base`` in ``SELECT *`` order.

    Raises InvalidRequest when a base column has the name of a column that the log needs for itself.
    Source: Scylla ``cdc/log.cc`` create_log_schema.
    """
    keys = (
        Column("cdc$stream_id", BLOB, "partition_key", 0),
        Column("cdc$time", TIMEUUID, "clustering", 0),
        Column("cdc$batch_seq_no", INT, "clustering", 1),
    )
    regular: list[tuple[str, CqlType]] = [(_OPERATION, TINYINT), (_TTL, BIGINT), (_END_OF_BATCH, BOOLEAN)]
    for column in base.columns:
        regular.append((column.name, _value_type(column.type)))
        if column.kind in ("static", "regular"):
            regular.append((_DELETED + column.name, BOOLEAN))
            if column.type.is_multicell:
                regular.append((_DELETED_ELEMENTS + column.name, SetType(_element_key_type(column.type), frozen=True)))
    names = [column.name for column in keys] + [name for name, _ in regular]
    for column in base.columns:
        if names.count(column.name) > 1:
            raise InvalidRequest(
                f"Cannot create CDC log for table {base.keyspace}.{base.name}: its column {column.name} has the name "
                "of a column of the log"
            )
    return (*keys, *(Column(name, kind, "regular") for name, kind in sorted(regular, key=lambda r: r[0].encode())))


def _value_type(cql_type: CqlType) -> CqlType:
    if not cql_type.is_multicell:
        return cql_type
    if isinstance(cql_type, ListType):
        return MapType(TIMEUUID, cql_type.element, frozen=True)
    return cql_type.freeze()


def _element_key_type(cql_type: CqlType) -> CqlType:
    if isinstance(cql_type, SetType):
        return cql_type.element
    if isinstance(cql_type, MapType):
        return cql_type.key
    return TIMEUUID if isinstance(cql_type, ListType) else SMALLINT


def log_options(base: TableSchema) -> dict[str, Any]:
    """Return the properties of a new log of ``base``; they follow its CDC ``ttl`` as it is now.

    Source: Scylla ``cdc/log.cc`` set_default_properties_log_table.
    """
    ttl = base.cdc.ttl if base.cdc is not None else CdcOptions().ttl
    compaction = {"class": "TimeWindowCompactionStrategy"}
    if ttl > 0:
        window = -(-ttl // 24)  # seconds; 24 windows over the life of a row
        compaction |= {
            "compaction_window_size": str(-(-window // 60)),
            "compaction_window_unit": "MINUTES",
            "expired_sstable_check_frequency_seconds": str(max(1, window // 2)),
        }
    return DEFAULTS | {
        "caching": {"enabled": "false", "keys": "NONE", "rows_per_partition": "NONE"},
        "comment": f"CDC log for {base.keyspace}.{base.name}",
        "compaction": compaction,
        "gc_grace_seconds": 0 if ttl > 0 else 864000,
    }


# ---------------------------------------------------------------- the rows of a write


@attrs.define
class LogRecord:
    """The log rows that share one ``cdc$time``, as they are kept and sent; ``cdc$batch_seq_no`` counts from 0.

    ``timestamp`` is the write timestamp of every cell (us).
    """

    stream_id: bytes
    time: bytes
    timestamp: int
    wires: list[bytes]


def record_time(timestamp_us: int, random_bits: int) -> bytes:
    """Return the ``cdc$time`` of a record: a version 1 UUID of exactly that time with random low bits.

    Source: Scylla ``utils/UUID_gen.hh`` get_random_time_UUID_from_micros.
    """
    ticks = timestamp_us * 10 + EPOCH_TICKS
    # The two top bits are the RFC's variant; the others keep apart records of the same time.
    low = (random_bits & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000
    return _TIME.pack(ticks & 0xFFFF_FFFF, (ticks >> 32) & 0xFFFF, ((ticks >> 48) & 0x0FFF) | 0x1000, low)


class LogWriter:
    """Makes the log rows of writes to one table, as long as neither the table nor its log changes.

    A row in the making is a list of its cells as they are sent, each behind its length, by place in the log. ``ttl`` is
    the life of the rows (s, 0 for ever). Raises ValueError for a table without CDC.
    """

    def __init__(self, table: TableSchema, log: TableSchema, release: Release = NEWEST) -> None:
        options = table.cdc
        if options is None or not options.enabled:
            raise ValueError(f"table {table.keyspace}.{table.name} has no CDC enabled")
        self.table = table
        self.log = log
        self.ttl = options.ttl
        self.has_images = options.preimage != "false" or options.postimage
        """Whether a reader of the partition before the write is needed."""
        self._options = options
        self._marks_null = release.has("preimages mark null columns")
        self._shows_deleted = release.has("preimage of a partition delete") and not table.clustering_key
        self._position = position_maker(table)
        # What has no place is left out: a compact table's unnamed value column has none in the log.
        self._places = {column.name: at for at, column in enumerate(log.columns)}
        self._written = self._places if options.delta == "full" else {}
        names = table.by_name
        self._deleted = {name: at for name in names if (at := self._places.get(_DELETED + name)) is not None}
        self._partition = [self._places[column.name] for column in table.partition_key]
        self._clustering = [self._places[column.name] for column in table.clustering_key]
        self._keys = [self._places[name] for name in ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no")]
        self._operation, self._ttl, self._end = (self._places[name] for name in (_OPERATION, _TTL, _END_OF_BATCH))
        self._nothing = [_NULL] * len(log.columns)
        self._encoders = {c.name: element_encoder(c.type) for c in table.columns if c.type.is_multicell}
        self._keys_of = {name: SetType(_element_key_type(names[name].type), frozen=True) for name in self._encoders}
        self._layouts: dict[Shape, _Layout] = {}

    def records(
        self,
        mutation: PartitionMutation,
        stream_for: Callable[[int], bytes],
        random_bits: Callable[[int], int],
        images: ImageReader | None,
    ) -> list[LogRecord]:
        """Return what a write to one partition puts into the log, by ascending timestamp.

        Args:
            mutation: All that the request does to the partition.
            stream_for: The stream id for a record with this timestamp (us); called once for each record. What it raises
                refuses the write.
            random_bits: Gives this many random bits; called once for each record.
            images: The partition before the write; needed only if ``has_images``.
        """
        if not self.has_images:
            rows = plain_rows(mutation)
            if rows is not None:
                return [self._plain_record(mutation.key, rows, stream_for, random_bits)]
        records = records_of(mutation, self._position)
        if not records:
            return []
        state: ImageState | None = None
        if self.has_images:
            if images is None:
                raise ValueError("preimages and postimages need a reader of the partition before the write")
            state = ImageState(
                mutation, self._options, images, self._position, self._encoders, shows_deleted=self._shows_deleted
            )
        blank = self._blank(mutation.key)
        at_stream, at_time, at_seq = self._keys
        out: list[LogRecord] = []
        for record in records:
            stream = stream_for(record.timestamp)
            time = record_time(record.timestamp, random_bits(64))
            blank[at_stream], blank[at_time] = _cell(stream), _cell(time)
            made = self._rows(mutation, record, blank, state, is_last=record is records[-1])
            # The others stay null: Scylla never writes false.
            made[-1][self._end] = _TRUE
            wires: list[bytes] = []
            for seq, cells in enumerate(made):
                cells[at_seq] = _pack_seq(4, seq)
                wires.append(b"".join(cells))
            out.append(LogRecord(stream, time, record.timestamp, wires))
        return out

    def _blank(self, key: Key) -> list[bytes]:
        """Return a row that has the partition key and no more."""
        blank = self._nothing.copy()
        for place, part in zip(self._partition, key, strict=True):
            blank[place] = _pack_int(len(part)) + part
        return blank

    def _plain_record(
        self,
        partition: Key,
        rows: dict[Key, PlainRow],
        stream_for: Callable[[int], bytes],
        random_bits: Callable[[int], int],
    ) -> LogRecord:
        """Return what the general way makes of such rows, in a third of its time."""
        row = next(iter(rows.values()))
        timestamp = row.timestamp
        stream = stream_for(timestamp)
        time = record_time(timestamp, random_bits(64))
        blank = self._blank(partition)
        at_stream, at_time, at_seq = self._keys
        blank[at_stream], blank[at_time] = _cell(stream), _cell(time)
        wires: list[bytes] = []
        for key in sorted(rows, key=self._position) if len(rows) > 1 else rows:
            cells = self._plain_cells(blank, key, rows[key])
            cells[at_seq] = _pack_seq(4, len(wires))
            if len(wires) == len(rows) - 1:
                # The others stay null: Scylla never writes false.
                cells[self._end] = _TRUE
            wires.append(b"".join(cells))
        return LogRecord(stream, time, timestamp, wires)

    def _plain_cells(self, blank: list[bytes], key: Key, row: PlainRow) -> list[bytes]:
        assert row.shape is not None
        layout = self._layouts.get(row.shape)
        if layout is None:
            layout = self._layouts[row.shape] = self._layout(row.shape)
        cells = blank.copy()
        cells[self._operation], places = layout
        for place, part in zip(self._clustering, key, strict=True):
            cells[place] = _pack_int(len(part)) + part
        for (place, deleted), value in zip(places, row.values, strict=True):
            if value is None:
                if deleted >= 0:
                    cells[deleted] = _TRUE
            elif place >= 0:
                cells[place] = _pack_int(len(value)) + value
        if row.ttl:
            cells[self._ttl] = _cell(_LONG.pack(row.ttl))
        return cells

    def _layout(self, shape: Shape) -> _Layout:
        has_marker, names = shape
        places = [(self._written.get(name, -1), self._deleted.get(name, -1) if self._written else -1) for name in names]
        return _OPERATION_CELLS[INSERT if has_marker else UPDATE], places

    def _rows(
        self,
        mutation: PartitionMutation,
        record: Record,
        blank: list[bytes],
        state: ImageState | None,
        *,
        is_last: bool,
    ) -> list[list[bytes]]:
        rows: list[list[bytes]] = []
        options = self._options
        if state is not None and options.preimage != "false":
            rows += [self._image(blank, PREIMAGE, key, cells) for key, cells in state.preimages(record)]
        # After the last record only postimages look at the state.
        follows = state is not None and (options.postimage or not is_last)
        for change in record.changes:
            if change.row is not None:
                rows.append(self._upsert(blank, change.key, change.row))
            else:
                rows += self._deletes(blank, change, is_service=mutation.is_service)
            if state is not None and follows:
                state.follow(change)
        if state is not None and options.postimage:
            rows += [self._image(blank, POSTIMAGE, key, cells) for key, cells in state.postimages(record)]
        return rows

    def _row(self, blank: list[bytes], operation: int, prefix: Key = ()) -> list[bytes]:
        """Return a row with operation and keys; clustering columns beyond ``prefix`` stay null."""
        cells = blank.copy()
        cells[self._operation] = _OPERATION_CELLS[operation]
        for place, part in zip(self._clustering, prefix, strict=False):
            cells[place] = _cell(part)
        return cells

    def _deletes(self, blank: list[bytes], change: Change, *, is_service: bool) -> list[list[bytes]]:
        """Return the row of a delete, two for one of a range."""
        if change.range is not None:
            start, end = change.range.start, change.range.end
            return [
                self._row(blank, RANGE_START_INCLUSIVE if start.inclusive else RANGE_START_EXCLUSIVE, start.prefix),
                self._row(blank, RANGE_END_INCLUSIVE if end.inclusive else RANGE_END_EXCLUSIVE, end.prefix),
            ]
        if change.kind == "row_delete":
            return [self._row(blank, SERVICE_ROW_DELETE if is_service else ROW_DELETE, change.key)]
        return [self._row(blank, SERVICE_PARTITION_DELETE if is_service else PARTITION_DELETE)]

    def _upsert(self, blank: list[bytes], key: Key, row: RowMutation) -> list[bytes]:
        if isinstance(row, PlainRow) and row.shape is not None:
            return self._plain_cells(blank, key, row)
        cells = self._row(blank, UPDATE if row.marker is None else INSERT, key)
        ttl = 0 if row.marker is None else row.marker.ttl
        for name, cell in row.cells.items():
            if isinstance(cell, CollectionCells):
                ttl = self._collection(cells, name, cell) or ttl
            elif cell.value is None:
                self._mark_deleted(cells, name)
            else:
                ttl = cell.ttl
                place = self._written.get(name)
                if place is not None:
                    cells[place] = _cell(cell.value)
        if ttl:
            cells[self._ttl] = _cell(_LONG.pack(ttl))
        return cells

    def _collection(self, cells: list[bytes], name: str, edit: CollectionCells) -> int:
        """Put the columns of a non-frozen collection or UDT; return the TTL of its new elements, 0 for none."""
        if edit.tombstone is None and not edit.cells:
            return 0
        cql_type = self.table.by_name[name].type
        live = {key: cell for key, cell in edit.cells.items() if cell.value is not None}
        if edit.tombstone is not None:
            self._mark_deleted(cells, name)
        if len(live) < len(edit.cells):
            gone = [key for key in edit.cells if key not in live]
            self._put(cells, _DELETED_ELEMENTS + name, self._keys_of[name].join(gone))
        # A UDT that is touched has a value even when nothing of it is set: all fields null.
        if live or isinstance(cql_type, UdtType):
            elements = {key: cell.value for key, cell in live.items() if cell.value is not None}
            self._put(cells, name, self._encoders[name](elements))
        # split.py has seen to it that all live cells of a change have one TTL.
        return next(iter(live.values())).ttl if live else 0

    def _mark_deleted(self, cells: list[bytes], name: str) -> None:
        if self._written and name in self._deleted:
            cells[self._deleted[name]] = _TRUE

    def _put(self, cells: list[bytes], name: str, value: bytes) -> None:
        place = self._written.get(name)
        if place is not None:
            cells[place] = _cell(value)

    def _image(
        self, blank: list[bytes], operation: int, key: Key | None, values: dict[str, bytes | None]
    ) -> list[bytes]:
        """Return an image row; a null column is marked as deleted in a preimage only."""
        cells = self._row(blank, operation, key or ())
        for name, value in values.items():
            if value is not None:
                place = self._places.get(name)
                if place is not None:
                    cells[place] = _cell(value)
            elif operation == PREIMAGE and self._marks_null and name in self._deleted:
                cells[self._deleted[name]] = _TRUE
        return cells


def _cell(value: bytes) -> bytes:
    """Return a cell as it is sent."""
    return _pack_int(len(value)) + value
