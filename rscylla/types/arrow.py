"""Cells of a log page as Arrow arrays, column by column; few values become Python objects on the way.

The Arrow types of CQL types:

    boolean, tinyint, smallint, int, bigint, float, double, blob    bool, int8 ... int64, float32, float64, binary
    ascii, text, inet, uuid, timeuuid, varint, decimal              string; the last two have no bound that Arrow has;
                                                                    decimal128 if ``registry.with_digits`` gave one
    timestamp                                                       timestamp[us, UTC]; null beyond +-292,000 years
    date, time                                                      date32, int64 nanoseconds of the day
    duration                                                        struct<months, days, nanoseconds>
    list, set, vector                                               list
    map; a non-frozen list as the log keeps it                      map; map<string, T>
    tuple                                                           struct<_1, _2, ...>
    user-defined type                                               struct by field
    anything else                                                   binary, as it came

``rscylla.types`` defines which values are null, and what a value without bytes is. All fields are nullable, because a
log makes no guarantees. The layouts are those that Spark accepts from Python: no dictionaries, views, or large types.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import attrs
import numpy as np
import pyarrow as pa

from .._decoder import twin
from .._integers import format_int
from .._timeuuid import EPOCH_TICKS
from ..errors import MetadataError
from .cells import collection_cells, sized_cells, vector_cells
from .natives import digits_reader
from .registry import CONTAINERS, decoder_for, native, width_in_vector
from .tree import Type

__all__ = ["FORMS", "Build", "Form", "arrow_type", "builder_for", "check_levels", "times_of"]

Column = Sequence[bytes | None]
"""The cells of one column, undecoded: ``bytes`` in any sequence, or the ``Cells`` of compiled code where they lie."""

Build = Callable[[Column], Any]
"""Makes an Arrow array of the cells of a column."""

Beyond = Literal["null", "raise", "bound"]

TIMESTAMP = pa.timestamp("us", tz="UTC")
_DURATION = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])

_compiled_builder: Any = twin("types.ArrowBuilder", None)

_MOST_MS = (2**63 - 1) // 1000
_DAY_ZERO = 2**31

MOST_LEVELS = 64
"""Source: Arrow's ``kMaxNestingDepth``."""


@attrs.frozen
class Form:
    """A way in which values become Arrow, by its key in ``FORMS`` the field ``arrow`` of the registry's rows.

    ``type`` gives the Arrow type of a CQL type. ``build`` makes the builder, given the options of ``builder_for``.
    """

    type: Callable[[Type], Any]
    build: Callable[[Type, Beyond], Build]


def arrow_type(type_: Type) -> Any:
    """Return the Arrow type of a CQL type."""
    return _form_of(type_).type(type_)


def check_levels(fields: Iterable[tuple[str, Any]], what: str) -> None:
    """Check that Arrow can hold columns of the given names and Arrow types.

    Raises:
        MetadataError: a type is nested too deeply.
    """
    for name, arrow in fields:
        if (levels := _levels(arrow)) > MOST_LEVELS:
            raise MetadataError(
                f"{what} cannot be in Arrow: the type of column {name!r} has {levels} levels of nesting there, and "
                f"Arrow takes {MOST_LEVELS}; use the mode events, or a stream"
            )


def _levels(arrow: Any) -> int:
    parts = [arrow.field(i).type for i in range(arrow.num_fields)]
    if pa.types.is_map(arrow):  # its entries are a struct
        return 2 + max(_levels(arrow.key_type), _levels(arrow.item_type))
    return 1 + max(map(_levels, parts), default=0)


def builder_for(type_: Type, *, loose: bool = False, beyond: Beyond = "null") -> Build:
    """Return the function that makes an array of ``arrow_type(type_)`` of cells.

    Args:
        loose: of a UDT that is not frozen, one whose fields are all null is null.
        beyond: what becomes of a timestamp that Arrow cannot hold: null, an error, or the last or first moment that it
            can hold, which is no whole millisecond and so no other timestamp. In a key of a map, null is an error, too.

    Raises (the function):
        ValueError: a cell has no value of the type.
        OverflowError: a timestamp is beyond what Arrow can hold, and *beyond* is "raise", or it is in a key of a map
            and *beyond* is "null".
        TooManyDigits: an ``OverflowError``, too: a number does not fit the digits of its type, whatever *beyond* is.
    """
    target = arrow_type(type_)
    if _compiled_builder is not None:
        columns = _compiled_columns(_compiled_builder, type_, beyond, loose=loose)

        def compiled_build(cells: Column) -> Any:
            column = columns.build(cells, target)
            return pa.nulls(len(cells), target) if column is None else pa.array(column)

        return compiled_build
    build = _struct_builder(type_, beyond, loose=True) if loose else _form_of(type_).build(type_, beyond)

    def nulls_aside(cells: Column) -> Any:
        # Most columns of most changes are null altogether. An empty cell is nothing, too, for what any() asks.
        if not any(cells) and b"" not in cells:
            return pa.nulls(len(cells), target)
        return build(cells)

    return nulls_aside


def _form_of(type_: Type) -> Form:
    return FORMS[_form_name(type_)]


def _form_name(type_: Type) -> str:
    if type_.digits is not None:
        return "decimal"
    row = CONTAINERS.get(type_.kind)
    return native(type_).arrow if row is None else row.arrow


def _compiled_columns(builder: Any, type_: Type, beyond: Beyond, *, loose: bool = False) -> Any:
    """Return the compiled twin of a builder, which has the forms of ``FORMS`` by their names."""
    row = CONTAINERS.get(type_.kind)
    if row is None:
        if type_.digits is not None:
            return builder("decimal", 16, 0, (), beyond, False, _digits_of(type_))
        leaf = native(type_)
        width = struct.calcsize(leaf.packed) if leaf.packed else 0
        return builder(leaf.arrow, width, 0, (), beyond, False, decoder_for(type_))
    width = (width_in_vector(type_.args[0]) or 0) if row.arrow == "vector" else 0
    args = type_.args[1:] if row.arrow == "log list" else type_.args
    limits = (_of_keys(beyond), beyond) if row.arrow == "map" else (beyond,) * len(args)
    parts = [_compiled_columns(builder, part, limit) for part, limit in zip(args, limits, strict=True)]
    return builder(row.arrow, width, type_.size, parts, beyond, loose, None)


def _plain(arrow: Any, build: Build) -> Form:
    """Return the form of values of which each type that has it becomes the same."""
    return Form(lambda _: arrow, lambda _, __: build)


# ---------------------------------------------------------------- values of one width


def _fixed(cells: Column, wire: Any) -> tuple[Any, Any]:
    """Return the values as a numpy array of *wire*, and which of them are null (None if none is)."""
    if all(cells):
        data, mask = b"".join(cells), None  # type: ignore[arg-type]
    else:
        zero = bytes(wire.itemsize)
        data = b"".join([c or zero for c in cells])
        mask = np.fromiter((not c for c in cells), bool, len(cells))
    if not set(map(len, filter(None, cells))) <= {wire.itemsize}:
        raise ValueError(f"a cell does not have the {wire.itemsize} bytes of its type")
    return np.frombuffer(data, wire), mask


def _native_width(type_: Type) -> Any:
    return np.dtype(native(type_).packed).newbyteorder("=")


def _number_builder(type_: Type, _: Beyond) -> Build:
    wire, ours = np.dtype(native(type_).packed), _native_width(type_)

    def build(cells: Column) -> Any:
        values, mask = _fixed(cells, wire)
        return pa.array(values.astype(ours), mask=mask)

    return build


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


def _shown_builder(type_: Type, _: Beyond) -> Build:
    """Return the builder of values as the text that they are for Python."""
    read = decoder_for(type_)
    return lambda cells: pa.array([None if c is None else _text(read(c)) for c in cells], pa.string())


def _text(value: Any) -> str | None:
    return None if value is None else format_int(value) if isinstance(value, int) else str(value)


def _decimal_type(type_: Type) -> Any:
    assert type_.digits is not None
    return pa.decimal128(type_.digits.precision, type_.digits.scale)


def _digits_of(type_: Type) -> Callable[[bytes], bytes | None]:
    """Return what converts a cell to the 16 bytes that Arrow has."""
    parts = native(type_).parts
    assert parts is not None
    assert type_.digits is not None
    return digits_reader(parts, type_.digits)


def _decimal_builder(type_: Type, _: Beyond) -> Build:
    read, target = _digits_of(type_), _decimal_type(type_)

    def build(cells: Column) -> Any:
        found = [None if c is None else read(c) for c in cells]
        nulls = np.array([value is None for value in found], bool)
        valid = pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes()) if nulls.any() else None
        data = pa.py_buffer(b"".join([value or bytes(16) for value in found]))
        return pa.Array.from_buffers(target, len(found), [valid, data])

    return build


def _duration_builder(type_: Type, _: Beyond) -> Build:
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
    return np.frombuffer(_times_of(cells), "i8")


def _times_in_python(cells: Column) -> Any:
    raw, _ = _fixed(cells, np.dtype([("low", ">u4"), ("mid", ">u2"), ("high", ">u2"), ("rest", "V8")]))
    ticks = ((raw["high"].astype("i8") & 0x0FFF) << 48) | (raw["mid"].astype("i8") << 32) | raw["low"].astype("i8")
    return (ticks - EPOCH_TICKS) // 10


_times_of = twin("types.times_of", _times_in_python)


# ---------------------------------------------------------------- values of values


def _nulls(cells: Column) -> Any:
    """Return which cells are null, as an Arrow array; None if none is."""
    return pa.array([c is None for c in cells], pa.bool_()) if None in cells else None


def _texts(cells: Column) -> Any:
    try:
        return pa.array(cells, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid as e:
        raise ValueError("a text is not UTF-8") from e


def _list_builder(type_: Type, beyond: Beyond) -> Build:
    return _elements_builder(type_.args[0], beyond, collection_cells)


def _log_list_builder(type_: Type, beyond: Beyond) -> Build:
    return _elements_builder(type_.args[1], beyond, lambda raw: collection_cells(raw, 2)[1::2])


def _vector_builder(type_: Type, beyond: Beyond) -> Build:
    return _elements_builder(type_.args[0], beyond, vector_cells(width_in_vector(type_.args[0]), type_.size))


def _elements_builder(type_: Type, beyond: Beyond, split: Callable[[bytes], list[bytes | None]]) -> Build:
    element = builder_for(type_, beyond=beyond)

    def build(cells: Column) -> Any:
        flat, offsets = _flattened(cells, split)
        return pa.ListArray.from_arrays(offsets, element(flat), mask=_nulls(cells))

    return build


def _map_type(type_: Type) -> Any:
    return pa.map_(*map(arrow_type, type_.args))


def _of_keys(beyond: Beyond) -> Beyond:
    """Return what becomes of a timestamp in a key of a map: a null there would make different keys equal."""
    return "raise" if beyond == "null" else beyond


def _map_builder(type_: Type, beyond: Beyond) -> Build:
    of_key, of_item = type_.args
    key, item = builder_for(of_key, beyond=_of_keys(beyond)), builder_for(of_item, beyond=beyond)

    def build(cells: Column) -> Any:
        flat, offsets = _flattened(cells, partial(collection_cells, parts=2))
        offsets = pa.array([o // 2 for o in offsets.tolist()], pa.int32())
        keys = key(flat[::2])
        if keys.null_count:
            raise ValueError("a map has a null as a key, which Arrow does not hold")
        return pa.MapArray.from_arrays(offsets, keys, item(flat[1::2]), mask=_nulls(cells))

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


def _struct_type(type_: Type) -> Any:
    names = type_.fields or tuple(f"_{i}" for i in range(1, len(type_.args) + 1))
    return pa.struct(list(zip(names, map(arrow_type, type_.args), strict=True)))


def _struct_builder(type_: Type, beyond: Beyond, *, loose: bool = False) -> Build:
    fields, target = [builder_for(t, beyond=beyond) for t in type_.args], _struct_type(type_)
    width = len(fields)
    missing = (None,) * width

    def build(cells: Column) -> Any:
        rows = [missing if c is None else (*sized_cells(c), *missing)[:width] for c in cells]
        children = [build([row[i] for row in rows]) for i, build in enumerate(fields)]
        nulls = [row == missing for row in rows] if loose else [c is None for c in cells]
        mask = pa.array(nulls, pa.bool_()) if any(nulls) else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)

    return build


# ---------------------------------------------------------------- the forms

FORMS = {
    "binary": _plain(pa.binary(), lambda cells: pa.array(cells, pa.binary())),
    "boolean": _plain(pa.bool_(), _booleans),
    "decimal": Form(_decimal_type, _decimal_builder),
    "date": _plain(pa.date32(), _dates),
    "duration": Form(lambda _: _DURATION, _duration_builder),
    "list": Form(lambda type_: pa.list_(arrow_type(type_.args[0])), _list_builder),
    "log list": Form(lambda type_: pa.list_(arrow_type(type_.args[1])), _log_list_builder),
    "map": Form(_map_type, _map_builder),
    "number": Form(lambda type_: pa.from_numpy_dtype(_native_width(type_)), _number_builder),
    "shown": Form(lambda _: pa.string(), _shown_builder),
    "struct": Form(_struct_type, _struct_builder),
    "text": _plain(pa.string(), _texts),
    "timestamp": Form(lambda _: TIMESTAMP, lambda _, beyond: partial(_timestamps, how=beyond)),
    "uuid": _plain(pa.string(), _uuids),
    "vector": Form(lambda type_: pa.list_(arrow_type(type_.args[0])), _vector_builder),
}
"""By the field ``arrow`` of a row of the registry. The layouts are those that Spark takes from Python."""
