"""A base table, the mutations that CQL statements make of it, and log rows as readable text: shared by CDC log tests.

The statements follow the rules by which Scylla builds mutations; they are written here by hand, apart from the
engine, so that an error there does not hide one in the log.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import attrs

from rscylla.embedded.cdclog import log as cdclog
from rscylla.embedded.schema.tables import CdcOptions, Column, TableSchema
from rscylla.embedded.storage.mutation import (
    Bound,
    Cell,
    CollectionCells,
    Key,
    Marker,
    PartitionMutation,
    RangeTombstone,
    RowMutation,
)
from rscylla.embedded.storage.packed import cut_row
from rscylla.embedded.types import INT, SMALLINT, TEXT, TIMEUUID, CqlType, ListType, MapType, SetType, UdtType

T = 1_800_000_000_000_000
PK = 7
UDT = UdtType("ks", "pair", ("x", "y"), (INT, TEXT))

STREAM = bytes(range(16))


def table(*columns: Column, **cdc: Any) -> TableSchema:
    ordered = [c for kind in ("partition_key", "clustering") for c in columns if c.kind == kind]
    ordered += sorted((c for c in columns if c.kind in ("static", "regular")), key=lambda c: c.name)
    ident = uuid.UUID(int=1)
    return TableSchema("ks", "t", ident, ident, tuple(ordered), cdc=CdcOptions(enabled=True, **cdc))


def log_of(base: TableSchema) -> TableSchema:
    ident = uuid.UUID(int=2)
    return TableSchema("ks", "t_scylla_cdc_log", ident, ident, cdclog.log_columns(base), is_cdc_log=True, cdc_base="t")


def wide(*, descending: bool = False, **cdc: Any) -> TableSchema:
    """A table with every sort of column: atomic, static, map, set, list and UDT."""
    return table(
        Column("pk", INT, "partition_key", 0),
        Column("ck", INT, "clustering", 0, descending=descending),
        Column("a", INT, "regular"),
        Column("b", INT, "regular"),
        Column("l", ListType(INT), "regular"),
        Column("m", MapType(INT, INT), "regular"),
        Column("n", MapType(INT, INT), "regular"),
        Column("s", INT, "static"),
        Column("sm", MapType(INT, INT), "static"),
        Column("st", SetType(INT), "regular"),
        Column("u", UDT, "regular"),
        Column("v", INT, "regular"),
        **cdc,
    )


def compound() -> TableSchema:
    return table(
        Column("pk", INT, "partition_key", 0),
        Column("ck1", INT, "clustering", 0),
        Column("ck2", INT, "clustering", 1),
        Column("v", INT, "regular"),
    )


def single(**cdc: Any) -> TableSchema:
    """A table without clustering columns."""
    return table(Column("pk", INT, "partition_key", 0), Column("v", INT, "regular"), **cdc)


def i(value: int) -> bytes:
    return INT.encode(value)


def cks(*values: int) -> Key:
    return tuple(map(i, values))


def list_key(number: int) -> bytes:
    """A timeuuid that sorts by number."""
    return cdclog.record_time(T + number, 0)


# ---------------------------------------------------------------- statements as mutations


@attrs.define
class Write:
    """One partition's mutation, built statement by statement."""

    base: TableSchema
    timestamp: int = T
    ttl: int = 0
    mutation: PartitionMutation = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.mutation = PartitionMutation(self.base, (i(PK),))

    def using(self, timestamp: int | None = None, ttl: int = 0) -> Write:
        self.timestamp = self.timestamp if timestamp is None else timestamp
        self.ttl = ttl
        return self

    def _cell(self, value: bytes | None) -> Cell:
        ttl = self.ttl if value is not None else 0
        return Cell(value, self.timestamp, ttl, self.timestamp // 1_000_000 + ttl if ttl else None)

    def _row(self, key: tuple[int, ...]) -> RowMutation:
        return self.mutation.rows.setdefault(cks(*key), RowMutation())

    def _assign(self, row: RowMutation, values: dict[str, Any]) -> None:
        for name, value in values.items():
            cql_type = self.base.by_name[name].type
            if not cql_type.is_multicell:
                row.cells[name] = self._cell(None if value is None else i(value))
                continue
            entry = CollectionCells(tombstone=self.timestamp - 1)
            for key, element in elements(cql_type, value):
                entry.cells[key] = self._cell(element)
            row.cells[name] = entry

    def static(self, **values: Any) -> Write:
        self.mutation.static_row = self.mutation.static_row or RowMutation()
        self._assign(self.mutation.static_row, values)
        return self

    def insert(self, *key: int, **values: Any) -> Write:
        row = self._row(key)
        marker = Marker(self.timestamp, self.ttl, self.timestamp // 1_000_000 + self.ttl if self.ttl else None)
        if row.marker is None or row.marker.timestamp < self.timestamp:
            row.marker = marker
        self._assign(row, values)
        return self

    def update(self, *key: int, **values: Any) -> Write:
        self._assign(self._row(key), values)
        return self

    def edit(self, *key: int, column: str, add: Any = None, remove: Any = ()) -> Write:
        """``c = c + add`` and removal of the elements with the given keys."""
        cql_type = self.base.by_name[column].type
        if self.base.by_name[column].kind == "static":
            row = self.mutation.static_row = self.mutation.static_row or RowMutation()
        else:
            row = self._row(key)
        entry = row.cells.setdefault(column, CollectionCells())
        assert isinstance(entry, CollectionCells)
        for element_key, element in elements(cql_type, add):
            entry.cells[element_key] = self._cell(element)
        for element_key in remove:
            entry.cells[encoded_key(cql_type, element_key)] = self._cell(None)
        return self

    def delete_collection(self, *key: int, column: str) -> Write:
        self._row(key).cells[column] = CollectionCells(tombstone=self.timestamp)
        return self

    def delete_row(self, *key: int) -> Write:
        self._row(key).tombstone = self.timestamp
        return self

    def delete_range(self, start: Bound, end: Bound) -> Write:
        self.mutation.range_tombstones.append(RangeTombstone(start, end, self.timestamp))
        return self

    def delete_partition(self) -> Write:
        self.mutation.partition_tombstone = self.timestamp
        return self


def encoded_key(cql_type: CqlType, key: Any) -> bytes:
    if isinstance(cql_type, UdtType):
        return SMALLINT.encode(cql_type.field_names.index(key))
    return list_key(key) if isinstance(cql_type, ListType) else i(key)


def elements(cql_type: CqlType, value: Any) -> list[tuple[bytes, bytes | None]]:
    """Encoded (key, value) of what a literal adds; lists are given as {number of the key: value}."""
    if not value:
        return []
    if isinstance(cql_type, SetType):
        return [(i(element), b"") for element in value]
    if isinstance(cql_type, UdtType):
        types = dict(zip(cql_type.field_names, cql_type.field_types, strict=True))
        return [
            (encoded_key(cql_type, name), None if field is None else types[name].encode(field))
            for name, field in value.items()
        ]
    return [(encoded_key(cql_type, key), i(element)) for key, element in value.items()]


# ---------------------------------------------------------------- log rows as values

_OPERATIONS = {"cdc$operation": "op", "cdc$ttl": "ttl"}


@attrs.frozen
class LogRow:
    """A log row with its non-null cells by name, but for the log's keys."""

    stream_id: bytes
    time: bytes
    seq: int
    timestamp: int
    values: dict[str, bytes]


def log_rows(
    mutation: PartitionMutation,
    log: TableSchema,
    stream_for: Callable[[int], bytes],
    random_bits: Callable[[], int],
    images: cdclog.ImageReader | None,
) -> list[LogRow]:
    """The rows that a write puts into the log, cut out of what the writer makes of them."""

    def random(bits: int) -> int:
        assert bits == 64
        return random_bits()

    rows: list[LogRow] = []
    for record in cdclog.LogWriter(mutation.table, log).records(mutation, stream_for, random, images):
        for seq, wire in enumerate(record.wires):
            stream, time, number, *cells = cut_row(wire)
            assert (stream, time, number) == (record.stream_id, record.time, seq.to_bytes(4, "big"))
            values = {c.name: v for c, v in zip(log.regular_columns, cells, strict=True) if v is not None}
            rows.append(LogRow(record.stream_id, record.time, seq, record.timestamp, values))
    return rows


def shown(row: LogRow, log: TableSchema) -> dict[str, Any]:
    """The row's non-null cells by short name, without the partition key and the end-of-batch mark."""
    out: dict[str, Any] = {}
    for name, value in row.values.items():
        cql_type = log.by_name[name].type
        decoded = cql_type.decode(value)
        if isinstance(cql_type, MapType) and cql_type.key == TIMEUUID:
            decoded = {_list_number(key): item for key, item in decoded.items()}
        elif isinstance(cql_type, SetType) and cql_type.element == TIMEUUID:
            decoded = frozenset(map(_list_number, decoded))
        short = _OPERATIONS.get(name, name.removeprefix("cdc$"))
        if short == "pk":
            assert decoded == PK
        elif short == "end_of_batch":
            assert decoded is True
        else:
            out[short] = decoded
    assert "pk" in row.values
    return out


def _list_number(key: uuid.UUID) -> int:
    return (key.time - 0x01B21DD213814000) // 10 - T


def logged(
    write: Write, images: cdclog.ImageReader | None = None, stream_for: Callable[[int], bytes] = lambda _: STREAM
) -> list[tuple[int, list[dict[str, Any]]]]:
    """The records of a write as (timestamp - T, rows); checks what holds for every record on the way."""
    log = log_of(write.base)
    seeds = iter(range(1, 1000))
    rows = log_rows(write.mutation, log, stream_for, lambda: next(seeds), images)
    records: dict[bytes, list[LogRow]] = {}
    for row in rows:
        records.setdefault(row.time, []).append(row)
    assert [row for record in records.values() for row in record] == rows, "rows of a record stand together"
    out = []
    for record in records.values():
        [timestamp] = {row.timestamp for row in record}
        when = uuid.UUID(bytes=record[0].time)
        assert (when.time - 0x01B21DD213814000, when.version, when.variant) == (timestamp * 10, 1, uuid.RFC_4122)
        assert {row.stream_id for row in record} == {stream_for(timestamp)}
        assert [row.seq for row in record] == list(range(len(record)))
        assert ["cdc$end_of_batch" in row.values for row in record] == [False] * (len(record) - 1) + [True]
        out.append((timestamp - T, [shown(row, log) for row in record]))
    assert out == sorted(out, key=lambda item: item[0])
    return out
