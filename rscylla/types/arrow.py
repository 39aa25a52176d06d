"""Cells of a log page as Arrow arrays, column by column; compiled, few values become Python objects on the way.

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
from decimal import Decimal
from functools import partial
from typing import Any, Literal

import attrs
import numpy as np
import pyarrow as pa

from .._decoder import twin
from .._integers import format_int
from ..errors import MetadataError
from .cells import collection_cells, sized_cells, vector_cells
from .natives import digits_reader, has_width, packed_decoder, uuid_text
from .registry import CONTAINERS, decoder_for, native, width_in_vector
from .tree import Type

__all__ = ["FORMS", "Build", "Form", "arrow_type", "builder_for", "check_levels"]

Column = Sequence[bytes | None]
"""The cells of one column, undecoded: ``bytes`` in any sequence, or the ``Cells`` of compiled code where they lie."""

Build = Callable[[Column], Any]
"""Makes an Arrow array of the cells of a column."""

Beyond = Literal["null", "raise", "bound"]

Read = Callable[[bytes], Any]
"""Makes of a cell what Arrow takes for a value of its type."""

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

    ``type`` gives the Arrow type of a CQL type. ``read`` returns what reads a cell of it, given the option *beyond* of
    ``builder_for``: the twin of the compiled builder, which has the same forms.
    """

    type: Callable[[Type], Any]
    read: Callable[[Type, Beyond], Read]


def arrow_type(type_: Type) -> Any:
    """Return the Arrow type of a CQL type."""
    return FORMS[_form_of(type_)].type(type_)


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
    read = _struct_reader(type_, beyond, loose=True) if loose else _reader(type_, beyond)
    return lambda cells: pa.array([None if c is None else read(c) for c in cells], target)


def _form_of(type_: Type) -> str:
    if type_.digits is not None:
        return "decimal"
    row = CONTAINERS.get(type_.kind)
    return native(type_).arrow if row is None else row.arrow


def _reader(type_: Type, beyond: Beyond) -> Read:
    return FORMS[_form_of(type_)].read(type_, beyond)


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


def _plain(arrow: Any, read: Read) -> Form:
    """Return the form of values of which each type that has it becomes the same."""
    return Form(lambda _: arrow, lambda _, __: read)


# ---------------------------------------------------------------- native types


def _number_type(type_: Type) -> Any:
    return pa.from_numpy_dtype(np.dtype(native(type_).packed).newbyteorder("="))


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as e:
        raise ValueError("a text is not UTF-8") from e


_milliseconds = packed_decoder(">q")


def _microseconds(raw: bytes, beyond: Beyond) -> int | None:
    ms: int | None = _milliseconds(raw)
    if ms is None or -_MOST_MS <= ms <= _MOST_MS:
        return ms and ms * 1000
    if beyond == "raise":
        raise OverflowError("a timestamp is beyond what Arrow can hold")
    return None if beyond == "null" else 2**63 - 1 if ms > 0 else -(2**63)


def _days(raw: bytes) -> int | None:
    return int.from_bytes(raw, "big") - _DAY_ZERO if has_width(raw, 4) else None


def _shown_reader(type_: Type, _: Beyond) -> Read:
    """Return what reads values as the text that they are for Python."""
    decode = decoder_for(type_)

    def read(raw: bytes) -> str | None:
        value = decode(raw)
        return None if value is None else format_int(value) if isinstance(value, int) else str(value)

    return read


def _decimal_type(type_: Type) -> Any:
    assert type_.digits is not None
    return pa.decimal128(type_.digits.precision, type_.digits.scale)


def _digits_of(type_: Type) -> Callable[[bytes], bytes | None]:
    """Return what converts a cell to the 16 bytes that Arrow has."""
    parts = native(type_).parts
    assert parts is not None
    assert type_.digits is not None
    return digits_reader(parts, type_.digits)


def _decimal_reader(type_: Type, _: Beyond) -> Read:
    convert, scale = _digits_of(type_), _decimal_type(type_).scale

    def read(raw: bytes) -> Decimal | None:
        found = convert(raw)
        # As text, because arithmetic rounds.
        return None if found is None else Decimal(f"{int.from_bytes(found, 'little', signed=True)}E-{scale}")

    return read


def _duration_reader(type_: Type, _: Beyond) -> Read:
    decode = decoder_for(type_)

    def read(raw: bytes) -> tuple[int, int, int] | None:
        value = decode(raw)
        return None if value is None else (value.months, value.days, value.nanoseconds)

    return read


# ---------------------------------------------------------------- values of values


def _elements_reader(read: Read, split: Callable[[bytes], list[bytes | None]]) -> Read:
    return lambda raw: [None if e is None else read(e) for e in split(raw)]


def _list_reader(type_: Type, beyond: Beyond) -> Read:
    return _elements_reader(_reader(type_.args[0], beyond), collection_cells)


def _log_list_reader(type_: Type, beyond: Beyond) -> Read:
    return _elements_reader(_reader(type_.args[1], beyond), lambda raw: collection_cells(raw, 2)[1::2])


def _vector_reader(type_: Type, beyond: Beyond) -> Read:
    (element,) = type_.args
    return _elements_reader(_reader(element, beyond), vector_cells(width_in_vector(element), type_.size))


def _of_keys(beyond: Beyond) -> Beyond:
    """Return what becomes of a timestamp in a key of a map: a null there would make different keys equal."""
    return "raise" if beyond == "null" else beyond


def _map_reader(type_: Type, beyond: Beyond) -> Read:
    of_key, of_item = type_.args
    keys = _elements_reader(_reader(of_key, _of_keys(beyond)), lambda raw: collection_cells(raw, 2)[::2])
    items = _elements_reader(_reader(of_item, beyond), lambda raw: collection_cells(raw, 2)[1::2])

    def read(raw: bytes) -> list[tuple[Any, Any]]:
        found = keys(raw)
        if None in found:
            raise ValueError("a map has a null as a key, which Arrow does not hold")
        return list(zip(found, items(raw), strict=True))

    return read


def _struct_type(type_: Type) -> Any:
    names = type_.fields or tuple(f"_{i}" for i in range(1, len(type_.args) + 1))
    return pa.struct(list(zip(names, map(arrow_type, type_.args), strict=True)))


def _struct_reader(type_: Type, beyond: Beyond, *, loose: bool = False) -> Read:
    fields = [_reader(part, beyond) for part in type_.args]
    missing = [None] * len(fields)

    def read(raw: bytes) -> tuple[Any, ...] | None:
        cells = [*sized_cells(raw), *missing][: len(fields)]
        if loose and cells == missing:
            return None
        return tuple([None if c is None else field(c) for field, c in zip(fields, cells, strict=True)])

    return read


# ---------------------------------------------------------------- the forms

FORMS = {
    "binary": _plain(pa.binary(), lambda raw: raw),
    "boolean": _plain(pa.bool_(), decoder_for(Type("boolean"))),
    "decimal": Form(_decimal_type, _decimal_reader),
    "date": _plain(pa.date32(), _days),
    "duration": Form(lambda _: _DURATION, _duration_reader),
    "list": Form(lambda type_: pa.list_(arrow_type(type_.args[0])), _list_reader),
    "log list": Form(lambda type_: pa.list_(arrow_type(type_.args[1])), _log_list_reader),
    "map": Form(lambda type_: pa.map_(*map(arrow_type, type_.args)), _map_reader),
    "number": Form(_number_type, lambda type_, _: packed_decoder(native(type_).packed)),
    "shown": Form(lambda _: pa.string(), _shown_reader),
    "struct": Form(_struct_type, _struct_reader),
    "text": _plain(pa.string(), _text),
    "timestamp": Form(lambda _: TIMESTAMP, lambda _, beyond: partial(_microseconds, beyond=beyond)),
    "uuid": _plain(pa.string(), uuid_text),
    "vector": Form(lambda type_: pa.list_(arrow_type(type_.args[0])), _vector_reader),
}
"""By the field ``arrow`` of a row of the registry. The layouts are those that Spark takes from Python."""
