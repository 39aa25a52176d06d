"""The changes of a window by the numbers of their rows, and what all views of a log make of its cells."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, Self

import attrs
import numpy as np
import pyarrow as pa

from ..._timeuuid import EPOCH_TICKS, FLIP_SIGNS
from ...errors import ConfigError, MalformedData, RscyllaError, SourceError
from ...event import Operation
from ...types import TooManyDigits, Type
from ...types.arrow import TIMESTAMP, Build, builder_for, check_levels
from ..rows import Layout, LogRows, ValueColumn

__all__ = [
    "ENDS",
    "ROWS_A_BATCH",
    "STARTS",
    "Changes",
    "Part",
    "built",
    "names_of_operations",
    "naming",
    "nulls_in",
    "schema_of",
    "times_of",
    "timestamps",
]

ROWS_A_BATCH = 5_000
"""Rows per record batch. Larger batches are not faster; smaller ones are slower."""

_PREIMAGE, _POSTIMAGE = Operation.PREIMAGE, Operation.POSTIMAGE
STARTS = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_START_EXCLUSIVE)
ENDS = (Operation.RANGE_END_INCLUSIVE, Operation.RANGE_END_EXCLUSIVE)

_bytes = builder_for(Type("blob"))
_flags = builder_for(Type("boolean"))
_tinyints = builder_for(Type("tinyint"))
_ints = builder_for(Type("int"))

_NAMES = [Operation(n if n < 128 else n - 256).name for n in range(256)]
"""The names of operations by their unsigned byte."""


@cache
def names_of_operations(*, upper: bool) -> Any:
    """Return the names as an Arrow array. Not made on import, because the first ``pa.array`` imports pandas."""
    return pa.array([name if upper else name.lower() for name in _NAMES], pa.string())


def schema_of(fields: Iterable[tuple[str, Any]], what: str, instead: str) -> Any:
    """Return the schema of *fields*.

    Raises:
        ConfigError: two have the same name.
        MetadataError: the type of one is nested too deeply for Arrow.
    """
    pairs = list(fields)
    names = [name for name, _ in pairs]
    double = next((n for n in names if names.count(n) > 1), None)
    if double is not None:
        raise ConfigError(f"{what} has two columns that would both be called {double!r}; {instead}")
    check_levels(pairs, what)
    return pa.schema(pairs)


def timestamps(us: Any) -> Any:
    """Return microseconds since the epoch, an int64 array of numpy, as an Arrow array. Does not import pandas."""
    return pa.Array.from_buffers(TIMESTAMP, len(us), [None, pa.py_buffer(np.ascontiguousarray(us))])


def built(name: str, build: Build, cells: Sequence[bytes | None]) -> Any:
    """Return what *build* makes of the *cells* of the column *name*, within ``naming``, whose errors name it."""
    try:
        return build(cells)
    except (ValueError, pa.ArrowException) as e:
        raise _NoValue(name) from e
    except TooManyDigits as e:
        raise _NoRoom(f"{e}, in column {name!r}") from e
    except OverflowError as e:
        raise _BeyondArrow(name) from e


class _NoValue(ValueError):
    """A cell of the column that is named has bytes that are not a value of its type."""


class _NoRoom(OverflowError):
    """A number does not fit the digits that were asked for; the message says which column has it, and why."""


class _BeyondArrow(OverflowError):
    """A key in the column that is named has a timestamp that Arrow cannot hold."""


@contextmanager
def naming(table: str, *, is_log: bool, instead: str) -> Iterator[None]:
    """Raise the errors of cells of *table*, or of its log, that have no Arrow; *instead* is what to do about time.

    Raises:
        MalformedData: a cell has no value of its type.
        SourceError: a timestamp in a key is beyond what Arrow can hold, or a number has too many digits.
    """
    try:
        yield
    except RscyllaError:
        raise
    except ValueError as e:
        raise MalformedData.of_cell(table, str(e) if isinstance(e, _NoValue) else "", is_log=is_log) from e
    except _NoRoom as e:
        raise SourceError(
            f"a {'change' if is_log else 'row'} of {table} has {e}; read such numbers with more digits, or as text "
            "(string), which holds all of them"
        ) from e
    except _BeyondArrow as e:
        raise SourceError(
            f"a {'change' if is_log else 'row'} of {table} has a timestamp in a key, in column {str(e)!r}, that is "
            f"beyond what Arrow and Spark can hold (292,000 years); {instead}"
        ) from e


# ---------------------------------------------------------------- changes by columns


@attrs.frozen(eq=False, slots=False)
class Changes:
    """Some changes of one layout, in their order, by the numbers of their rows; all arrays are parallel.

    ``rows`` has the cells. ``generation`` is that of the window, in milliseconds since the epoch. ``delta``,
    ``before``, ``after``, ``range_end`` are those of ``ChangeRows``. ``first`` and ``last`` are the ends of the record.
    ``index`` is the place of the change in its record, ``size`` the number of changes there.
    """

    rows: LogRows
    generation: int
    delta: Any
    before: Any
    after: Any
    range_end: Any
    first: Any
    last: Any
    index: Any
    size: Any

    @classmethod
    def of(cls, rows: LogRows, generation: int, *, joined: bool = True) -> Self:
        """Return all changes of *rows*: of a sorted window, and of one layout; see ``LogRows.changes``."""
        found = rows.changes(joined=joined)
        names = ("delta", "before", "after", "range_end", "record")
        delta, before, after, range_end, first = (np.asarray(getattr(found, name), "i4") for name in names)
        starts = np.flatnonzero(np.diff(first, prepend=-1))
        sizes = np.diff(starts, append=len(first))
        last: Any = np.append(first[starts][1:], len(rows)) - 1
        index = np.arange(len(first)) - np.repeat(starts, sizes)
        size: Any = np.repeat(sizes, sizes)
        last = np.repeat(last, sizes)
        return cls(rows, generation, delta, before, after, range_end, first, last, index, size)

    def __len__(self) -> int:
        return len(self.delta)

    def at(self, chosen: Any) -> Changes:
        """Return the changes that *chosen*, a slice or a numpy array, takes of the arrays."""
        numbers = (self.delta, self.before, self.after, self.range_end, self.first, self.last, self.index, self.size)
        return Changes(self.rows, self.generation, *(n[chosen] for n in numbers))

    def behind(self, position: bytes) -> Changes:
        """Return the changes whose delta comes after *position*."""
        positions = self.rows.positions
        return self.at(np.array([positions[n] > position for n in self.delta], bool))

    def batches(self) -> Iterator[Changes]:
        """Yield the changes in as many parts as there will be record batches."""
        for start in range(0, len(self), ROWS_A_BATCH):
            yield self.at(slice(start, start + ROWS_A_BATCH))


class Part:
    """Changes of which a view shows columns; what several columns need is made once."""

    def __init__(self, changes: Changes, layout: Layout) -> None:
        self.changes = changes
        self.layout = layout
        self._nulls: dict[int, Any] = {}
        self._marks: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.changes)

    def column(self, index: int, numbers: Any = None) -> Sequence[bytes | None]:
        """Return the cells of a column in the rows *numbers*, the deltas by default."""
        of = self.changes.delta if numbers is None else numbers
        return self.changes.rows.column(index, array("i", np.asarray(of, "i4").tobytes()))

    @cached_property
    def operations(self) -> Any:
        """The operations, as int8."""
        found = _tinyints(self.column(self.layout.operation))
        # The cell has expired or was deleted manually.
        return (found.fill_null(-128) if found.null_count else found).to_numpy(zero_copy_only=False)

    def operation_names(self, names: Any) -> Any:
        """Return the names of the operations, of which *names* has all."""
        return names.take(pa.array(self.operations.view("u1")))

    def is_op(self, *operations: int) -> Any:
        return np.isin(self.operations, operations)

    @cached_property
    def is_image(self) -> Any:
        return self.is_op(_PREIMAGE, _POSTIMAGE)

    @cached_property
    def is_range(self) -> Any:
        return self.is_op(*STARTS, *ENDS)

    @cached_property
    def before(self) -> Any:
        """The rows of the preimages. An image without its delta is a change of its own, whose first row it is."""
        return np.where(self.operations == _PREIMAGE, self.changes.delta, self.changes.before)

    @cached_property
    def after(self) -> Any:
        return np.where(self.operations == _POSTIMAGE, self.changes.delta, self.changes.after)

    @cached_property
    def written(self) -> Any:
        """The deltas, without the images that are changes of their own."""
        return np.where(self.is_image, -1, self.changes.delta)

    @cached_property
    def us(self) -> Any:
        """The times of the changes, in microseconds since the epoch."""
        return _us_of(self.raw_times)

    @cached_property
    def raw_times(self) -> Any:
        """``cdc$time``, as rows of 16 bytes."""
        return _wide(_bytes(self.column(self.layout.time)), 16)

    @cached_property
    def stream_ids(self) -> Any:
        return _bytes(self.column(self.layout.stream_id))

    @cached_property
    def seqs(self) -> Any:
        return _ints(self.column(self.layout.seq))

    def is_null(self, index: int) -> Any:
        """Return where the deltas have no cell in a column."""
        found = self._nulls.get(index)
        if found is None:
            found = self._nulls[index] = nulls_in(self.column(index))
        return found

    def marked(self, column: ValueColumn) -> Any:
        """Return where the deltas mark *column* as null or deleted."""
        found = self._marks.get(column.deleted)
        if found is None:
            found = self._marks[column.deleted] = self.marked_in(column, None)
        return found

    def marked_in(self, column: ValueColumn, numbers: Any) -> Any:
        """Return where the rows *numbers* mark *column* as null or deleted."""
        if column.deleted < 0:
            return np.zeros(len(self), bool)
        found = _flags(self.column(column.deleted, numbers))
        if found.null_count == len(found):
            return np.zeros(len(self), bool)
        return found.fill_null(False).to_numpy(zero_copy_only=False)

    def touched(self, column: ValueColumn) -> Any:
        """Return where the changes touch *column*."""
        found = ~self.is_null(column.index) | self.marked(column)
        if column.elements >= 0:
            found |= ~self.is_null(column.elements)
        return found & ~self.is_image

    def sequence(self) -> Any:
        """Return the positions; see ``EventID.position``."""
        made: Any = np.empty((len(self), 36), "u1")
        time = self.raw_times
        made[:, :2] = time[:, 6:8]
        made[:, 0] &= 0x0F
        made[:, 2:4] = time[:, 4:6]
        made[:, 4:8] = time[:, :4]
        made[:, 8:16] = time[:, 8:] ^ FLIP_SIGNS[0]
        made[:, 16:32] = _wide(self.stream_ids, 16)
        made[:, 32:] = self.seqs.to_numpy(zero_copy_only=False).astype(">i4").view("u1").reshape(-1, 4)
        offsets: Any = np.arange(0, 36 * (len(self) + 1), 36, dtype="i4")
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(self), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(made.tobytes())]
        )


def times_of(cells: Sequence[bytes | None]) -> Any:
    """Return the times of timeuuids, of which none is null, in microseconds since the epoch."""
    return _us_of(_wide(_bytes(cells), 16))


_FIELDS = np.dtype([("low", ">u4"), ("mid", ">u2"), ("high", ">u2"), ("rest", "V8")])


def _us_of(times: Any) -> Any:
    """Return the times of timeuuids, given as rows of 16 bytes, in microseconds since the epoch."""
    raw = times.view(_FIELDS)[:, 0]
    ticks = ((raw["high"].astype("i8") & 0x0FFF) << 48) | (raw["mid"].astype("i8") << 32) | raw["low"]
    return (ticks - EPOCH_TICKS) // 10


def _wide(cells: Any, width: int) -> Any:
    """Return cells of *width* bytes, of which none is null, as rows of a matrix."""
    _, offsets, data = cells.buffers()
    ends = np.frombuffer(offsets, "i4")[: len(cells) + 1]
    if cells.null_count or (np.diff(ends) != width).any():
        raise ValueError(f"a cell does not have the {width} bytes of its type")
    return np.frombuffer(data or b"", "u1")[: width * len(cells)].reshape(-1, width)


def nulls_in(cells: Sequence[bytes | None]) -> Any:
    found = _bytes(cells)
    if not found.null_count:
        return np.zeros(len(found), bool)
    return found.is_null().to_numpy(zero_copy_only=False)
