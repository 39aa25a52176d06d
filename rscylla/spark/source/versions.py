"""What differs between PySpark 4.1 and later versions, for the data source.

**Arrow schemas**: a parameter has another name.

**Limits of micro-batches**: PySpark 4.2 passes them to a source, with the start of the batch; PySpark 4.1 does not. The
source then keeps the position of its query itself. Spark tells it: before anything else, a query that starts from a
checkpoint asks for the partitions between the end of its last batch and the same point, and each batch asks for its
partitions. A source that was asked for none belongs to a query without a checkpoint, at its initial offset.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema

__all__ = [
    "PASSES_LIMITS",
    "PositionKeeper",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxFiles",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    import attrs

    PASSES_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark runs ``availableNow`` as one batch."""

    class ReadLimit:  # type: ignore[no-redef]
        """The limit of one batch."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef, misc]
        """No limit."""

    @attrs.frozen
    class ReadMaxFiles(ReadLimit):  # type: ignore[no-redef, misc]
        """At most so many files, or what takes their place."""

        max_files: int

    @attrs.frozen
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef, misc]
        """At most so many rows."""

        max_rows: int

else:
    PASSES_LIMITS = True


def arrow_schema(struct: Any) -> Any:
    """Return the ``pyarrow.Schema`` of a ``StructType``, as Spark expects it from a source."""
    return to_arrow_schema(struct, **({"timezone": "UTC"} if PASSES_LIMITS else {"timestamp_utc": True}))


class PositionKeeper:
    """Mixin before a stream reader of PySpark 4.2, which PySpark 4.1 can then use.

    All methods run in the process that plans the query, one after the other.
    """

    _initial: dict[str, Any] | None = None
    _at: dict[str, Any] | None = None
    """The start of the next batch: the end of the last one that Spark asked for the partitions of."""

    def initialOffset(self) -> dict[str, Any]:
        # The first batch was planned with it: Spark asks for it only then.
        if self._initial is None:
            self._initial = super().initialOffset()  # type: ignore[misc]
        return self._initial

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end of the next batch; PySpark 4.1 passes neither *start* nor *limit*."""
        if start is None:
            start = self._at if self._at is not None else self.initialOffset()
        chosen = self.getDefaultReadLimit() if limit is None else limit  # type: ignore[attr-defined]
        end: dict[str, Any] = super().latestOffset(start, chosen)  # type: ignore[misc]
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        found: list[Any] = [] if start == end else super().partitions(start, end)  # type: ignore[misc]
        self._at = end
        return found
