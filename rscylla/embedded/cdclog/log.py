"""The CDC log of a table: its columns and properties, and the rows that a write puts into it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import attrs

from ..errors import InvalidRequest
from ..schema.tables import CdcOptions, Column, TableSchema
from ..storage.mutation import CollectionCells, Key, PartitionMutation, RowMutation
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
from .images import ImageReader, ImageState, encode_elements
from .options import altered_cdc_options, cdc_options, extension_bytes, option_map
from .split import Change, records_of

__all__ = [
    "ImageReader",
    "LogRow",
    "altered_cdc_options",
    "cdc_options",
    "extension_bytes",
    "log_columns",
    "log_options",
    "log_rows",
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

_TRUE: Final = b"\x01"
_LONG: Final = struct.Struct(">q")
_TIME: Final = struct.Struct(">IHHQ")
_OPERATION_BYTES: Final = {operation: bytes([operation & 0xFF]) for operation in (*range(POSTIMAGE + 1), -3, -4)}


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
    return {
        "bloom_filter_fp_chance": 0.01,
        "caching": {"enabled": "false", "keys": "NONE", "rows_per_partition": "NONE"},
        "comment": f"CDC log for {base.keyspace}.{base.name}",
        "compaction": compaction,
        "compression": {"sstable_compression": "LZ4WithDictsCompressor"},
        "crc_check_chance": 1.0,
        "default_time_to_live": 0,
        "gc_grace_seconds": 0 if ttl > 0 else 864000,
        "max_index_interval": 2048,
        "memtable_flush_period_in_ms": 0,
        "min_index_interval": 128,
        "speculative_retry": "99.0PERCENTILE",
        "tombstone_gc": {"mode": "timeout", "propagation_delay_in_seconds": "3600"},
    }


# ---------------------------------------------------------------- the rows of a write


@attrs.define
class LogRow:
    """A row of the log: key columns, the non-null other cells by name, and how they are written.

    ``timestamp`` is the write timestamp of every cell (us) and ``ttl`` its life (s, 0 for ever).
    """

    stream_id: bytes
    time: bytes
    seq: int
    values: dict[str, bytes]
    ttl: int
    timestamp: int


def record_time(timestamp_us: int, random_bits: int) -> bytes:
    """Return the ``cdc$time`` of a record: a version 1 UUID of exactly that time with random low bits.

    Source: Scylla ``utils/UUID_gen.hh`` get_random_time_UUID_from_micros.
    """
    ticks = timestamp_us * 10 + EPOCH_TICKS
    # The two top bits are the RFC's variant; the others keep apart records of the same time.
    low = (random_bits & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000
    return _TIME.pack(ticks & 0xFFFF_FFFF, (ticks >> 32) & 0xFFFF, ((ticks >> 48) & 0x0FFF) | 0x1000, low)


def log_rows(
    mutation: PartitionMutation,
    log: TableSchema,
    stream_for: Callable[[int], bytes],
    random_bits: Callable[[], int],
    images: ImageReader | None,
) -> list[LogRow]:
    """Return what a write to one partition puts into its table's log, in the order of the log.

    Args:
        mutation: All that the request does to the partition; its table has CDC enabled.
        log: The log table.
        stream_for: The stream id for a record with this timestamp (us); called once for each record. What it raises
            refuses the write.
        random_bits: 64 random bits; called once for each record.
        images: The partition before the write; needed only when preimages or postimages are on.
    """
    options = mutation.table.cdc
    if options is None or not options.enabled:
        raise ValueError(f"table {mutation.table.keyspace}.{mutation.table.name} has no CDC enabled")
    records = records_of(mutation)
    state: ImageState | None = None
    preimage = options.preimage != "false"
    if records and (preimage or options.postimage):
        if images is None:
            raise ValueError("preimages and postimages need a reader of the partition before the write")
        state = ImageState(mutation, options, images)
    out: list[LogRow] = []
    writer = _RecordWriter(mutation, log, options)
    for record in records:
        rows: list[dict[str, bytes]] = []
        stream = stream_for(record.timestamp)
        time = record_time(record.timestamp, random_bits())
        if state is not None and preimage:
            rows += [writer.image(PREIMAGE, key, cells) for key, cells in state.preimages(record)]
        # After the last record only postimages look at the state.
        follows = state is not None and (options.postimage or record is not records[-1])
        for change in record.changes:
            rows += writer.delta(change)
            if state is not None and follows:
                state.follow(change)
        if state is not None and options.postimage:
            rows += [writer.image(POSTIMAGE, key, cells) for key, cells in state.postimages(record)]
        # The others stay null: Scylla never writes false.
        rows[-1][_END_OF_BATCH] = _TRUE
        for seq, values in enumerate(rows):
            out.append(LogRow(stream, time, seq, values, options.ttl, record.timestamp))
    return out


class _RecordWriter:
    """Turns changes and images of one partition into the cells of log rows."""

    def __init__(self, mutation: PartitionMutation, log: TableSchema, options: CdcOptions) -> None:
        table = mutation.table
        self._columns = table.by_name
        self._clustering = [column.name for column in table.clustering_key]
        self._partition = {c.name: part for c, part in zip(table.partition_key, mutation.key, strict=True)}
        self._logged = log.by_name
        self._full = options.delta == "full"
        self._is_service = mutation.is_service

    def _row(self, operation: int, prefix: Key = ()) -> dict[str, bytes]:
        """Return a row with operation and keys; clustering columns beyond ``prefix`` stay null."""
        values = self._partition.copy()
        values[_OPERATION] = _OPERATION_BYTES[operation]
        values.update(zip(self._clustering, prefix, strict=False))
        return values

    def delta(self, change: Change) -> list[dict[str, bytes]]:
        """Return the row of a change, two for a range delete."""
        if change.row is not None:
            return [self._upsert(change, change.row)]
        if change.range is not None:
            start, end = change.range.start, change.range.end
            return [
                self._row(RANGE_START_INCLUSIVE if start.inclusive else RANGE_START_EXCLUSIVE, start.prefix),
                self._row(RANGE_END_INCLUSIVE if end.inclusive else RANGE_END_EXCLUSIVE, end.prefix),
            ]
        if change.kind == "row_delete":
            return [self._row(SERVICE_ROW_DELETE if self._is_service else ROW_DELETE, change.key)]
        return [self._row(SERVICE_PARTITION_DELETE if self._is_service else PARTITION_DELETE)]

    def _upsert(self, change: Change, row: RowMutation) -> dict[str, bytes]:
        values = self._row(UPDATE if row.marker is None else INSERT, change.key)
        ttl = 0 if row.marker is None else row.marker.ttl
        for name, cell in row.cells.items():
            if isinstance(cell, CollectionCells):
                # split.py has seen to it that all live cells of a change have one TTL.
                ttl = self._collection(values, name, cell) or ttl
            elif cell.value is not None:
                ttl = cell.ttl
                self._put(values, name, cell.value)
            else:
                self._put(values, _DELETED + name, _TRUE)
        if ttl:
            values[_TTL] = _LONG.pack(ttl)
        return values

    def _collection(self, values: dict[str, bytes], name: str, edit: CollectionCells) -> int:
        """Put the columns of a non-frozen collection or UDT; return the TTL of its new elements, 0 for none."""
        if edit.tombstone is None and not edit.cells:
            return 0
        cql_type = self._columns[name].type
        live = {key: cell for key, cell in edit.cells.items() if cell.value is not None}
        if edit.tombstone is not None:
            self._put(values, _DELETED + name, _TRUE)
        if len(live) < len(edit.cells):
            gone = [key for key in edit.cells if key not in live]
            self._put(values, _DELETED_ELEMENTS + name, SetType(_element_key_type(cql_type), frozen=True).join(gone))
        # A UDT that is touched has a value even when nothing of it is set: all fields null.
        if live or isinstance(cql_type, UdtType):
            elements = {key: cell.value for key, cell in live.items() if cell.value is not None}
            self._put(values, name, encode_elements(cql_type, elements))
        return max((cell.ttl for cell in live.values()), default=0)

    def _put(self, values: dict[str, bytes], name: str, value: bytes) -> None:
        # A compact table's unnamed value column has no column in the log.
        if self._full and name in self._logged:
            values[name] = value

    def image(self, operation: int, key: Key | None, cells: dict[str, bytes | None]) -> dict[str, bytes]:
        """Return an image row; a null column is marked as deleted in a preimage only."""
        values = self._row(operation, key or ())
        for name, value in cells.items():
            if value is not None:
                # As in _put: a column may have no place in the log.
                if name in self._logged:
                    values[name] = value
            elif operation == PREIMAGE:
                values[_DELETED + name] = _TRUE
        return values
