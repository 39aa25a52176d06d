"""``mapInArrow`` for columns of any name: PySpark parses the names, and refuses dots and backticks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["map_in_arrow"]


@attrs.frozen
class _Named:
    """Calls *function* with batches whose columns have *names*. Can be pickled."""

    function: Callable[[Iterator[Any]], Iterator[Any]]
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        names = list(self.names)
        return self.function(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)


def map_in_arrow(frame: DataFrame, function: Callable[[Iterator[Any]], Iterator[Any]], schema: Any) -> DataFrame:
    """Return what *function* makes of the record batches of *frame*, a DataFrame of *schema*."""
    plain = frame.toDF(*(f"c{n}" for n in range(len(frame.columns))))
    return plain.mapInArrow(_Named(function, tuple(frame.columns)), schema)
