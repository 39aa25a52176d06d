"""Cells of a log page as JSON, column by column, in Arrow strings: the same text as ``rscylla.types.json`` makes.

Values of the types that a registry's row has a form for become no Python objects on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .._timeuuid import format_time
from .arrow import builder_for
from .json import dumps
from .registry import CONTAINERS, decoder_for, native
from .tree import Type

__all__ = ["BuildText", "hex_of", "joined", "json_builder_for", "quoted", "times_text"]

BuildText = Callable[[Sequence[bytes | None]], Any]
"""Makes an Arrow array of strings of the cells of a column."""

_BLOB = Type("blob")
_blobs = builder_for(_BLOB)

_MICROSECONDS = 1_000_000
_FIRST_US = -30_610_224_000 * _MICROSECONDS
_END_US = 253_402_300_800 * _MICROSECONDS
"""The years 1000 to 9999, which Arrow and Python write alike."""


def json_builder_for(type_: Type, *, loose: bool = False, sort_keys: bool = False) -> BuildText:
    """Return the function that makes the JSON of cells: of no cell null, of a cell that is no value the text "null".

    Args:
        loose: of a UDT that is not frozen, one whose fields are all null is null.
        sort_keys: objects inside the values have their keys sorted.

    Raises (the function):
        ValueError: a cell has no value of the type.
    """
    form = "" if type_.kind in CONTAINERS else native(type_).json
    each = _each_builder(type_, loose=loose, sort_keys=sort_keys)
    if not form:
        return each
    build, render = builder_for(type_), FORMS[form]

    def made(cells: Sequence[bytes | None]) -> Any:
        values = build(cells)
        text = render(values)
        if text is None:
            return each(cells)
        if text.null_count:
            is_cell = _blobs(cells).is_valid()
            if pc.sum(is_cell).as_py() != len(text) - text.null_count:
                # A value that Arrow does not have, or no bytes, which for most types is no value.
                return each(cells)
        return text

    return made


def _each_builder(type_: Type, *, loose: bool, sort_keys: bool) -> BuildText:
    """Return the builder that makes the JSON of one value after the other."""
    read = decoder_for(type_)

    def text(cell: bytes | None) -> str | None:
        if cell is None:
            return None
        value = read(cell)
        if loose and all(field is None for field in value.values()):
            value = None
        return dumps(value, sort_keys=sort_keys)

    return lambda cells: pa.array([text(c) for c in cells], pa.string())


# ---------------------------------------------------------------- texts


def joined(*parts: Any) -> Any:
    """Return the texts of *parts*, each an array or one text for all, put together; null where one of them is."""
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, "")


def quoted(texts: Any) -> Any:
    return joined('"', texts, '"')


def hex_of(values: Any) -> Any:
    """Return the digits of an array of binary values."""
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, "i4")[values.offset : values.offset + len(values) + 1]
    digits = b"" if data is None else data[starts[0] : starts[-1]].to_pybytes().hex().encode()
    placed = pa.py_buffer(((starts - starts[0]) * 2).astype("i4").tobytes())
    mask = pa.py_buffer(np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little").tobytes())
    valid = mask if values.null_count else None
    return pa.StringArray.from_buffers(len(values), placed, pa.py_buffer(digits), valid)


def times_text(us: Any) -> Any:
    """Return times, an int64 array of microseconds since the epoch in the years 1000 to 9999, as ``format_time`` does.

    Null stays null.
    """
    at = pa.array(us, pa.int64()) if isinstance(us, np.ndarray) else us
    second = pc.floor_temporal(at.view(pa.timestamp("us")), unit="second").view(pa.int64())
    known = second.dictionary_encode()
    whole = [format_time(s.as_py())[:-1] for s in known.dictionary]
    fraction = pc.cast(pc.add(pc.subtract(at, second), _MICROSECONDS), pa.string())
    shown = pc.utf8_rtrim(pc.binary_replace_slice(fraction, 0, 1, "."), characters=".0")
    return joined(pa.array(whole, pa.string()).take(known.indices), shown, "Z")


# ---------------------------------------------------------------- the forms


def _texts(values: Any) -> Any:
    """Return *values* quoted; None if one of them needs to be escaped."""
    _, offsets, data = values.buffers()
    if data is not None:
        ends = np.frombuffer(offsets, "i4")[[values.offset, values.offset + len(values)]]
        letters = np.frombuffer(data, "u1")[ends[0] : ends[1]]
        if ((letters < 0x20) | (letters == 0x22) | (letters == 0x5C)).any():
            return None
    return quoted(values)


def _times(values: Any) -> Any:
    """Return *values* as quoted times; None if one of them is in no year from 1000 to 9999."""
    us = values.view(pa.int64())
    ends = pc.min_max(us).as_py()
    if ends["min"] is not None and not _FIRST_US <= ends["min"] <= ends["max"] < _END_US:
        return None
    return quoted(times_text(us))


def _floats(values: Any) -> Any:
    """Return floats as Python writes them; Arrow writes other digits. None if one of them is no number of JSON."""
    if not pc.all(pc.is_finite(values)).as_py():
        return None
    return pa.array([None if v is None else repr(v) for v in values.to_pylist()], pa.string())


FORMS: dict[str, Callable[[Any], Any]] = {
    "boolean": lambda values: pc.cast(values, pa.string()),
    "float": _floats,
    "hex": lambda values: joined('"0x', hex_of(values), '"'),
    "integer": lambda values: pc.cast(values, pa.string()),
    "text": _texts,
    "timestamp": _times,
    "uuid": quoted,
}
"""By the field ``json`` of a row of the registry: an array as texts; None if each value must be made by itself."""
