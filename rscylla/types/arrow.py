"""Cells of a log page as Arrow arrays, column by column; hardly any value becomes a Python object on the way.

How CQL types come:

    boolean, tinyint, smallint, int, bigint, float, double, blob    bool, int8 ... int64, float32, float64, binary
    ascii, text, inet, uuid, timeuuid, varint, decimal              string; the last two have no bound that Arrow has
    timestamp                                                       timestamp[us, UTC]; null beyond +-292,000 years
    date, time                                                      date32, int64 nanoseconds of the day
    duration                                                        struct<months, days, nanoseconds>
    list, set, vector                                               list
    map; a non-frozen list as the log keeps it                      map; map<string, T>
    tuple                                                           struct<_1, _2, ...>
    user-defined type                                               struct by field
    anything else                                                   binary, as it came

What is null, and what a value without bytes is, is told in ``rscylla.types``. Fields are all nullable, as nobody
promises more of a log. The layouts are those that Spark takes from Python: no dictionaries, views or large types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from .._timeuuid import EPOCH_TICKS
from .decoding import collection_cells, decoder_for, sized_cells
from .tree import Type

__all__ = ["Build", "arrow_type", "builder_for", "times_of"]

Column = Sequence[bytes | None]
"""The cells of one column, undecoded."""

Build = Callable[[Column], Any]
"""Makes an Arrow array of the cells of a column."""

Beyond = Literal["null", "raise", "bound"]

TIMESTAMP = pa.timestamp("us", tz="UTC")
_DURATION = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])

_MOST_MS = (2**63 - 1) // 1000
_DAY_ZERO = 2**31

_FIXED: dict[str, tuple[str, Any]] = {  # how it comes over the wire, and what it is in Arrow
    "tinyint": ("i1", pa.int8()),
    "smallint": (">i2", pa.int16()),
    "int": (">i4", pa.int32()),
    "bigint": (">i8", pa.int64()),
    "counter": (">i8", pa.int64()),
    "float": (">f4", pa.float32()),
    "double": (">f8", pa.float64()),
    "time": (">i8", pa.int64()),
}
_AS_TEXT = ("inet", "varint", "decimal")

_VECTOR_WIDTHS = {
    "bigint": 8,
    "boolean": 1,
    "double": 8,
    "float": 4,
    "int": 4,
    "timestamp": 8,
    "timeuuid": 16,
    "uuid": 16,
}
"""Elements of a vector that come without their lengths. Source: Scylla and Cassandra, ``vector<T, n>``."""


def arrow_type(type_: Type, *, list_cells: bool = False) -> Any:
    """Return the Arrow type of a CQL type.

    Args:
        list_cells: it is a non-frozen list, which the log keeps as a map from timeuuid to element, and is to be a list.
    """
    kind = type_.kind
    if kind in _FIXED:
        return _FIXED[kind][1]
    if kind == "map" and list_cells:
        return pa.list_(arrow_type(type_.args[1]))
    if kind in ("list", "set", "vector"):
        return pa.list_(arrow_type(type_.args[0]))
    if kind == "map":
        return pa.map_(arrow_type(type_.args[0]), arrow_type(type_.args[1]))
    if kind in ("tuple", "udt"):
        return pa.struct([(n, arrow_type(t)) for n, t in zip(_field_names(type_), type_.args, strict=True)])
    if kind in ("ascii", "text", "varchar", "uuid", "timeuuid", *_AS_TEXT):
        return pa.string()
    named = {"boolean": pa.bool_(), "timestamp": TIMESTAMP, "date": pa.date32(), "duration": _DURATION}
    return named.get(kind, pa.binary())


def builder_for(type_: Type, *, list_cells: bool = False, loose: bool = False, beyond: Beyond = "null") -> Build:
    """Return the function that makes an array of ``arrow_type(type_)`` of cells.

    Args:
        list_cells: see ``arrow_type``.
        loose: of a UDT that is not frozen, one whose fields are all null is null.
        beyond: what becomes of a timestamp that Arrow cannot hold: null, an error, or the last or first moment that it
            can hold, which is no whole millisecond and so no other timestamp.

    Raises (the function):
        ValueError: a cell has no value of the type.
        OverflowError: a timestamp is beyond what Arrow can hold, and *beyond* is "raise".
    """
    target = arrow_type(type_, list_cells=list_cells)
    build = _builder(type_, target, list_cells=list_cells, loose=loose, beyond=beyond)

    def nulls_aside(cells: Column) -> Any:
        # Most columns of most changes are null altogether. An empty cell is nothing, too, for what any() asks.
        if not any(cells) and b"" not in cells:
            return pa.nulls(len(cells), target)
        return build(cells)

    return nulls_aside


def _builder(type_: Type, target: Any, *, list_cells: bool, loose: bool, beyond: Beyond) -> Build:
    kind = type_.kind
    part = partial(builder_for, beyond=beyond)
    if kind in _FIXED:
        wire = np.dtype(_FIXED[kind][0])
        return lambda cells: _numbers(cells, wire, target)
    if kind == "map" and list_cells:
        return _list_builder(part(type_.args[1]), lambda raw: collection_cells(raw)[1::2])
    if kind in ("list", "set"):
        return _list_builder(part(type_.args[0]), collection_cells)
    if kind == "vector":
        return _list_builder(part(type_.args[0]), _vector_split(type_.args[0].kind))
    if kind == "map":
        return _map_builder(part(type_.args[0]), part(type_.args[1]))
    if kind in ("tuple", "udt"):
        return _struct_builder(tuple(part(t) for t in type_.args), target, loose=loose)
    if kind in ("uuid", "timeuuid"):
        return _uuids
    if kind in ("ascii", "text", "varchar"):
        return lambda cells: pa.array(cells, pa.binary()).cast(pa.string())
    if kind in _AS_TEXT:
        read = decoder_for(type_)
        return lambda cells: pa.array([_text(read(c)) if c else None for c in cells], pa.string())
    if kind == "timestamp":
        return partial(_timestamps, how=beyond)
    special = {"boolean": _booleans, "date": _dates, "duration": _durations(type_)}
    return special.get(kind, lambda cells: pa.array(cells, pa.binary()))


def _field_names(type_: Type) -> tuple[str, ...]:
    return type_.fields if type_.kind == "udt" else tuple(f"_{i}" for i in range(1, len(type_.args) + 1))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


# ---------------------------------------------------------------- values of one width


def _fixed(cells: Column, wire: Any) -> tuple[Any, Any]:
    """Return the values as a numpy array of *wire*, and which of them are null (None if none is)."""
    if all(cells):
        data, mask = b"".join(cells), None  # type: ignore[arg-type]
    else:
        zero = bytes(wire.itemsize)
        data = b"".join([c or zero for c in cells])
        mask = np.fromiter((not c for c in cells), bool, len(cells))
    if len(data) != len(cells) * wire.itemsize:
        raise ValueError(f"a cell does not have the {wire.itemsize} bytes of its type")
    return np.frombuffer(data, wire), mask


def _numbers(cells: Column, wire: Any, target: Any) -> Any:
    values, mask = _fixed(cells, wire)
    return pa.array(values.astype(wire.newbyteorder("=")), target, mask=mask)


def _booleans(cells: Column) -> Any:
    values, mask = _fixed(cells, np.dtype("u1"))
    return pa.array(values != 0, pa.bool_(), mask=mask)


def _timestamps(cells: Column, how: Beyond) -> Any:
    values, mask = _fixed(cells, np.dtype(">i8"))
    ms = values.astype("i8")
    beyond = (ms > _MOST_MS) | (ms < -_MOST_MS)
    if not beyond.any():
        return pa.array(ms * 1000, pa.int64(), mask=mask).view(TIMESTAMP)
    if how == "raise":
        raise OverflowError("a timestamp is beyond what Arrow can hold")
    us = np.where(beyond, np.where(ms > 0, 2**63 - 1, -(2**63)), np.where(beyond, 0, ms) * 1000)
    if how == "null":
        mask = beyond if mask is None else mask | beyond
    return pa.array(us, pa.int64(), mask=mask).view(TIMESTAMP)


def _dates(cells: Column) -> Any:
    values, mask = _fixed(cells, np.dtype(">u4"))
    return pa.array((values.astype("i8") - _DAY_ZERO).astype("i4"), pa.int32(), mask=mask).view(pa.date32())


def _durations(type_: Type) -> Build:
    read = decoder_for(type_)

    def build(cells: Column) -> Any:
        found = [read(c) if c else None for c in cells]
        return pa.array([None if d is None else (d.months, d.days, d.nanoseconds) for d in found], _DURATION)

    return build


_HEX = np.frombuffer(bytes(range(256)).hex().encode(), "u1").reshape(256, 2)
_DASHES = (8, 13, 18, 23)
_DIGITS = np.array([i for i in range(36) if i not in _DASHES])


def _uuids(cells: Column) -> Any:
    """Return the usual text of 16-byte cells."""
    values, mask = _fixed(cells, np.dtype("V16"))
    count = len(values)
    text: Any = np.full((count, 36), ord("-"), "u1")
    text[:, _DIGITS] = _HEX[np.frombuffer(values.tobytes(), "u1").reshape(count, 16)].reshape(count, 32)
    offsets: Any = np.arange(0, 36 * (count + 1), 36, dtype="i4")
    valid = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little").tobytes())
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text.tobytes()), valid)


def times_of(cells: Column) -> Any:
    """Return the times of timeuuids as an int64 numpy array of microseconds since the epoch; none is null."""
    raw, _ = _fixed(cells, np.dtype([("low", ">u4"), ("mid", ">u2"), ("high", ">u2"), ("rest", "V8")]))
    ticks = ((raw["high"].astype("i8") & 0x0FFF) << 48) | (raw["mid"].astype("i8") << 32) | raw["low"].astype("i8")
    return (ticks - EPOCH_TICKS) // 10


# ---------------------------------------------------------------- values of values


def _nulls(cells: Column) -> Any:
    """Return which cells are null, as an Arrow array; None if none is."""
    return pa.array([c is None for c in cells], pa.bool_()) if None in cells else None


def _list_builder(element: Build, split: Callable[[bytes], list[bytes | None]]) -> Build:
    def build(cells: Column) -> Any:
        flat, offsets = _flattened(cells, split)
        return pa.ListArray.from_arrays(offsets, element(flat), mask=_nulls(cells))

    return build


def _map_builder(key: Build, item: Build) -> Build:
    def build(cells: Column) -> Any:
        flat, offsets = _flattened(cells, collection_cells)
        offsets = pa.array([o // 2 for o in offsets.tolist()], pa.int32())
        return pa.MapArray.from_arrays(offsets, key(flat[::2]), item(flat[1::2]), mask=_nulls(cells))

    return build


def _flattened(cells: Column, split: Callable[[bytes], list[bytes | None]]) -> tuple[list[bytes | None], Any]:
    """Return the elements of all cells, and where those of each cell begin."""
    flat: list[bytes | None] = []
    offsets = [0]
    for cell in cells:
        if cell is not None:
            flat += split(cell)
        offsets.append(len(flat))
    return flat, pa.array(offsets, pa.int32())


def _struct_builder(fields: tuple[Build, ...], target: Any, *, loose: bool) -> Build:
    width = len(fields)
    missing = (None,) * width

    def build(cells: Column) -> Any:
        rows = [missing if c is None else (*sized_cells(c, 0), *missing)[:width] for c in cells]
        children = [build([row[i] for row in rows]) for i, build in enumerate(fields)]
        nulls = [row == missing for row in rows] if loose else [c is None for c in cells]
        mask = pa.array(nulls, pa.bool_()) if any(nulls) else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)

    return build


def _vector_split(kind: str) -> Callable[[bytes], list[bytes | None]]:
    width = _VECTOR_WIDTHS.get(kind)
    if width is None:
        return _vector_cells
    return lambda raw: [raw[at : at + width] for at in range(0, len(raw), width)]


def _vector_cells(raw: bytes) -> list[bytes | None]:
    """Return the elements of a vector, each led by its length as an unsigned variable-length integer."""
    cells: list[bytes | None] = []
    at = 0
    while at < len(raw):
        more = 8 - (raw[at] ^ 0xFF).bit_length()  # leading ones count the bytes that follow
        size = int.from_bytes(raw[at : at + more + 1], "big") & ((1 << 7 * (more + 1)) - 1)
        at += more + 1
        cells.append(raw[at : at + size])
        at += size
    return cells
