"""The elements that collections have at each moment of a history: a fold over the changes of each row, in executors.

Spark could collect them over a window, but a window's array grows with each change, so the work would grow with the
square of the changes. The fold forgets elements as soon as they are removed, so its work is that of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from .replay import numbers_of

__all__ = ["FIRST", "Elements", "Fold"]

FIRST = "cdc$first"
"""The column that says whether a moment is the first of its row."""


@attrs.frozen
class Elements:
    """A column with the elements that a change writes. ``floors``: columns with the times up to which all are gone."""

    name: str
    floors: tuple[str, ...]


@attrs.frozen
class Fold:
    """Replaces what each change writes by what the collection has then; a function for ``mapInArrow``. Can be pickled.

    Takes the moments of each row one after the other, in order of ``cdc$at``, at most one for each time.
    """

    columns: tuple[Elements, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        states: dict[str, _State] = {}
        for batch in batches:
            firsts = batch.column(FIRST).to_pylist()
            seconds = [us // 1_000_000 for us in batch.column("cdc$at").to_pylist()]
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            for column in self.columns:
                given = arrays[column.name]
                newest = pc.max_element_wise(*(arrays[n] for n in column.floors))
                floors = newest.fill_null(_NEVER).to_pylist()
                state = states.setdefault(column.name, _State(given.type))
                arrays[column.name] = state.after(given, firsts, floors, seconds)
            yield pa.RecordBatch.from_arrays(list(arrays.values()), schema=batch.schema)


_NEVER = -(2**63)


class _State:
    """The elements of one collection of one row, by their keys, as numbers in ``pool``."""

    def __init__(self, type_: Any) -> None:
        self._type = type_
        self._pool = pa.array([], type_.value_type)
        self._live: dict[Any, int] = {}

    def after(self, given: Any, firsts: list[bool], floors: list[int], seconds: list[int]) -> Any:
        """Return the elements after each change of a batch; *given* has those that the changes write."""
        self._pool = pa.concat_arrays([self._pool.take(pa.array(self._live.values(), pa.int64())), given.flatten()])
        self._live = {key: number for number, key in enumerate(self._live)}
        pool = self._pool
        keys = _hashable(pool.field("key"))
        times, dead, expires = (pool.field(name).to_pylist() for name in ("t", "dead", "expires"))
        sizes = given.value_lengths().fill_null(0).to_pylist()
        at, floor = len(self._live), _NEVER
        chosen: list[int] = []
        ends = [0]
        for count, first, now_floor, second in zip(sizes, firsts, floors, seconds, strict=True):
            if first:
                self._live.clear()
            if first or now_floor != floor:
                floor = now_floor
                self._live = {key: n for key, n in self._live.items() if times[n] > floor}
            for n in range(at, at + count):
                self._live.pop(keys[n], None)
                if not dead[n] and times[n] > floor:
                    self._live[keys[n]] = n
            at += count
            gone = [key for key, n in self._live.items() if expires[n] is not None and expires[n] <= second]
            for key in gone:
                del self._live[key]
            chosen += self._live.values()
            ends.append(len(chosen))
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), pool.take(pa.array(chosen, pa.int64())), type=self._type
        )


def _hashable(keys: Any) -> list[Any]:
    """Return *keys* as values that are equal if the keys are the same for the database: 0.0 and -0.0 are not."""
    numbers = numbers_of(keys)
    values = numbers.to_pylist()
    plain = pa.types.is_integer(numbers.type) or pa.types.is_string(numbers.type) or pa.types.is_binary(numbers.type)
    return values if plain else [repr(value) for value in values]
