"""Bytes of a page to log rows, in two stages: look at the columns once, then do next to nothing per row.

How a value is represented, everywhere in rscylla:

    null, or a column that was not touched   None; ``Change.columns`` tells the two apart
    int, bigint, varint, counter, ...        int
    float, double / decimal                  float / decimal.Decimal
    text, ascii, inet                        str
    blob                                     bytes
    boolean, uuid, timeuuid                  bool, uuid.UUID, uuid.UUID
    timestamp                                aware UTC datetime; int milliseconds beyond the years 1 to 9999
    date, time, duration                     the driver's Date, Time, Duration, which lose nothing
    list, vector                             list
    set                                      set, or list where elements cannot be hashed (order of the database)
    map                                      dict
    tuple                                    tuple
    user-defined type                        dict by field

A value that has no bytes, which CQL allows for most types, is ``""`` for text, ``b""`` for blobs and else None. Empty
is not null: a frozen collection may be empty, and an image may show a non-frozen one as empty where the database,
which cannot tell the two apart, gives null. A non-frozen UDT whose fields are all null is null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

import attrs

from .._timeuuid import FLIP_SIGNS, datetime_of
from ..errors import MetadataError
from .pages import Column, Page, Type
from .topology import TableInfo

__all__ = [
    "Cells",
    "ColumnKind",
    "Layout",
    "LogRows",
    "ValueColumn",
    "collection_cells",
    "decoder_for",
    "sized_cells",
]

Cells = tuple[bytes | None, ...]

_INT = struct.Struct(">i")
_NO_VERSION = bytes(b & 0x0F for b in range(256))

Decoder = Callable[[bytes], Any]

ColumnKind = Literal["value", "list", "set", "map", "udt"]
"""What can happen to a column: all but "value" are not frozen, so their parts can be written one by one."""


@attrs.frozen
class ValueColumn:
    """A base column in the log: where its value and deletion marks are in a row (-1 for none), and how to read them."""

    name: str
    index: int
    decode: Decoder
    deleted: int = -1
    elements: int = -1
    decode_elements: Decoder | None = None
    static: bool = False
    kind: ColumnKind = "value"
    decode_cells: Decoder | None = None  # of a non-frozen list: its elements by their timeuuids
    fields: tuple[str, ...] = ()

    def marked_in(self, cells: Cells) -> bool:
        """Whether the row says that the column is, or was made, null."""
        return self.deleted >= 0 and cells[self.deleted] == b"\x01"

    def touched_in(self, cells: Cells) -> bool:
        """Whether the delta row does anything to the column."""
        if cells[self.index] is not None or self.marked_in(cells):
            return True
        return self.elements >= 0 and cells[self.elements] is not None

    def value_in(self, cells: Cells) -> Any:
        """Return the decoded value, or None.

        A non-frozen UDT without any field is null, which the log writes as one whose fields are all null.
        """
        raw = cells[self.index]
        if raw is None:
            return None
        value = self.decode(raw)
        if self.kind == "udt" and all(field is None for field in value.values()):
            return None
        return value


@attrs.frozen(eq=False)
class Layout:
    """What the columns of a page mean. Made once for each result metadata."""

    columns: tuple[Column, ...] = attrs.field(repr=False)
    table: TableInfo
    stream_id: int
    time: int
    seq: int
    operation: int
    ttl: int
    end_of_batch: int
    keys: tuple[ValueColumn, ...]
    values: tuple[ValueColumn, ...]

    @classmethod
    def of(cls, columns: tuple[Column, ...], table: TableInfo) -> Layout:
        """Return the layout of a ``SELECT *`` from the log of *table*.

        Raises:
            MetadataError: a column that every log has, or a key column, is not there.
        """
        index = {c.name: i for i, c in enumerate(columns)}
        types = {c.name: c.type for c in columns}
        key_names = [c.name for c in (*table.partition_key, *table.clustering_key)]
        missing = [n for n in (*_FIXED, *key_names) if n not in index]
        if missing:
            raise MetadataError(
                f"the log of {table.full_name} has no column {missing[0]!r}; was a key column "
                "renamed? open the stream again"
            )
        base = {c.name: c for c in table.columns}

        def column(name: str) -> ValueColumn:
            elements = f"cdc$deleted_elements_{name}"
            known = base.get(name)
            is_list = known is not None and known.type_text.startswith("list<")
            kind = _kind_of(types[name], is_list=is_list) if elements in types else "value"
            return ValueColumn(
                name,
                index[name],
                decoder_for(types[name], list_cells=is_list),
                deleted=index.get(f"cdc$deleted_{name}", -1),
                elements=index.get(elements, -1),
                decode_elements=decoder_for(types[elements]) if elements in types else None,
                static=known is not None and known.kind == "static",
                kind=kind,
                decode_cells=decoder_for(types[name]) if kind == "list" else None,
                fields=types[name].fields,
            )

        # A base column may itself be called cdc$something; only those with a deletion mark, or in the key, are values.
        names = [n for n in index if n not in _FIXED and n not in key_names and f"cdc$deleted_{n}" in index]
        return cls(  # type: ignore[misc]
            columns,
            table,
            *(index[n] for n in _FIXED),  # type: ignore[arg-type]
            keys=tuple(column(n) for n in key_names),
            values=tuple(column(n) for n in names),
        )

    def key_of(self, cells: Cells) -> Mapping[str, Any]:
        """Return the primary key's typed values by name; parts that are null in the log row are absent."""
        key = {}
        for column in self.keys:
            raw = cells[column.index]
            if raw is not None:
                key[column.name] = column.decode(raw)
        return key

    def is_static(self, cells: Cells) -> bool:
        """Whether an image or write is of the partition's static row: its clustering key is null."""
        clustering = self.keys[len(self.table.partition_key) :]
        return bool(clustering) and all(cells[c.index] is None for c in clustering)

    def raw_key(self, cells: Cells) -> Cells:
        """Return the undecoded primary key: equal for the rows of one base row."""
        return tuple([cells[c.index] for c in self.keys])


_FIXED = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", "cdc$ttl", "cdc$end_of_batch")


class LogRows:
    """The rows of a window, undecoded: ``cells[i]`` lie at ``positions[i]``; all of one ``layout``.

    Positions order rows as ``EventID.position`` does. Both lists hold nothing but bytes and tuples of bytes, which the
    garbage collector need not walk: with an object a row it takes a third of the time of reading.
    """

    def __init__(self) -> None:
        self.layout: Layout | None = None
        self.positions: list[bytes] = []
        self.cells: list[Cells] = []

    def __len__(self) -> int:
        return len(self.positions)

    def add(self, page: Page, layout: Layout) -> None:
        """Add the rows of *page*. A layout unlike that of earlier pages means that the table was changed meanwhile."""
        cells = page.cells()
        if self.layout is None:
            self.layout = layout
        elif layout is not self.layout:
            both = _united(self.layout, layout)
            self.cells = _moved(self.cells, self.layout, both)
            cells = _moved(cells, layout, both)
            self.layout = layout = both
        time, stream_id, seq = layout.time, layout.stream_id, layout.seq
        flip = FLIP_SIGNS
        append = self.positions.append
        slow = head = b""
        for row in cells:
            t: Any = row[time]
            # Same as order_key(t), spelled out because it runs once a row. Its first half is worked out again only when
            # it changes, which is every seven minutes of time.
            if t[4:8] != slow:
                slow = t[4:8]
                head = t[6:7].translate(_NO_VERSION) + t[7:8] + t[4:6]
            append(head + t[:4] + t[8:].translate(flip) + row[stream_id] + row[seq])
        self.cells += cells

    def sort(self) -> None:
        """Put the rows in the order of their positions."""
        positions, cells = self.positions, self.cells
        order = sorted(range(len(positions)), key=positions.__getitem__)
        self.positions = [positions[i] for i in order]
        self.cells = [cells[i] for i in order]


def _kind_of(type_: Type, *, is_list: bool) -> ColumnKind:
    """Return the kind of a non-frozen column by its type in the log, where lists are maps."""
    if is_list:
        return "list"
    return type_.kind if type_.kind in ("set", "map", "udt") else "value"  # type: ignore[return-value]


def _united(old: Layout, new: Layout) -> Layout:
    """Return a layout with the columns of both; where one was dropped and made again with another type, the new."""
    names = {c.name for c in new.columns}
    return Layout.of(new.columns + tuple(c for c in old.columns if c.name not in names), new.table)


def _moved(rows: list[Cells], layout: Layout, target: Layout) -> list[Cells]:
    """Return *rows* with their cells where *target* has the columns; those it has and *layout* has not are null."""
    if target.columns == layout.columns:
        return rows
    index = {c: i for i, c in enumerate(layout.columns)}
    width = len(layout.columns)
    places = [index.get(c, width) for c in target.columns]
    return [tuple([padded[i] for i in places]) for row in rows for padded in [(*row, None)]]


# ---------------------------------------------------------------- values


def decoder_for(type_: Type, *, list_cells: bool = False) -> Decoder:
    """Return a function from a cell's bytes to its value.

    Collections, tuples and UDTs are cut here and not by the driver: its containers put sets in another order, refuse
    some elements, and depend on the classes that the application registered for UDTs.

    Args:
        list_cells: the column is a non-frozen list, which the log keeps as a map from timeuuid to element.
    """
    if list_cells and type_.kind == "map":
        element = decoder_for(type_.args[1])
        return lambda raw: [_or_none(element, v) for v in collection_cells(raw)[1::2]]
    kind, parts = type_.kind, tuple(decoder_for(t) for t in type_.args)
    if kind == "timestamp":
        return _timestamp
    if kind == "list":
        return lambda raw: [_or_none(parts[0], e) for e in collection_cells(raw)]
    if kind == "set":
        return _set_decoder(parts[0], hashable=_hashable(type_.args[0]))
    if kind == "map":
        return _map_decoder(*parts, hashable=_hashable(type_.args[0]))
    if kind == "tuple":
        return lambda raw: tuple(_fields(raw, parts))
    if kind == "vector" and type_.args[0].kind == "timestamp":
        return lambda raw: [_timestamp(raw[at : at + 8]) for at in range(0, len(raw), 8)]
    if kind == "udt":
        names = type_.fields
        return lambda raw: dict(zip(names, _fields(raw, parts), strict=True))
    return _NATIVE.get(kind, type_.read)


def _packed(format_: str) -> Decoder:
    unpack = struct.Struct(format_).unpack
    return lambda raw: unpack(raw)[0] if raw else None


_NATIVE: dict[str, Decoder] = {  # what most columns are: the driver's own decoders take several calls for each
    "bigint": _packed(">q"),
    "double": _packed(">d"),
    "int": _packed(">i"),
    "smallint": _packed(">h"),
    "text": bytes.decode,
    "tinyint": _packed(">b"),
    "varchar": bytes.decode,
}


def _set_decoder(element: Decoder, *, hashable: bool) -> Decoder:
    if hashable:
        return lambda raw: {_or_none(element, e) for e in collection_cells(raw)}
    return lambda raw: [_or_none(element, e) for e in collection_cells(raw)]


def _map_decoder(key: Decoder, value: Decoder, *, hashable: bool) -> Decoder:
    def decode(raw: bytes) -> dict[Any, Any]:
        cells = collection_cells(raw)
        pairs = zip(cells[::2], cells[1::2], strict=True)
        found = ((_or_none(key, k), _or_none(value, v)) for k, v in pairs)
        return dict(found) if hashable else {_frozen(k): v for k, v in found}

    return decode


def collection_cells(raw: bytes) -> list[bytes | None]:
    """Return the cells of a collection; those of a map are keys and values in turn. Empty bytes are an empty one."""
    cells = sized_cells(raw, 4)
    if raw and len(cells) not in (count := _INT.unpack_from(raw)[0], 2 * count):
        raise ValueError("a collection holds another number of elements than it says")
    return cells


def _fields(raw: bytes, decoders: tuple[Decoder, ...]) -> list[Any]:
    """Return the fields of a tuple or UDT; those at the end that were added after it was written are None."""
    cells = sized_cells(raw, 0)
    found = [_or_none(decode, cell) for decode, cell in zip(decoders, cells, strict=False)]
    return found + [None] * (len(decoders) - len(found))


def sized_cells(raw: bytes, at: int) -> list[bytes | None]:
    """Return what follows in *raw* from *at* on, each piece led by its size; a negative size is null."""
    cells: list[bytes | None] = []
    end = len(raw)
    while at < end:
        (size,) = _INT.unpack_from(raw, at)
        at += 4
        if size < 0:
            cells.append(None)
            continue
        if at + size > end:
            raise ValueError("a value is longer than the cell that holds it")
        cells.append(raw[at : at + size])
        at += size
    return cells


def _timestamp(raw: bytes) -> datetime | int | None:
    if not raw:
        return None
    ms = int.from_bytes(raw, "big", signed=True)
    try:
        return datetime_of(ms * 1000)
    except OverflowError:
        return ms


def _or_none(decode: Decoder, raw: bytes | None) -> Any:
    return None if raw is None else decode(raw)


def _hashable(type_: Type) -> bool:
    """Whether values of the type, as decoded here, can be elements of a set or keys of a dict."""
    return type_.kind not in ("list", "vector", "set", "map", "udt") and all(_hashable(t) for t in type_.args)


def _frozen(value: Any) -> Any:
    """Return a hashable form of a list, set or dict, for use as a key of a dict."""
    if isinstance(value, dict):
        return tuple((_frozen(k), _frozen(v)) for k, v in value.items())
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, list | tuple):
        return tuple(_frozen(v) for v in value)
    return value
