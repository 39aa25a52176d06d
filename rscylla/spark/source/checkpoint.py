"""What Spark has noted of a streaming query in its checkpoint: which batches it planned, and which it has done.

Before a batch runs, Spark writes its end to ``offsets/N``; after it, ``commits/N``. A batch that was planned but not
done runs again after a restart, with the same end. A batch starts where the one before it ended. Spark keeps at least
the two newest batches.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs

from ...cdc import PlannedWindow
from ...errors import ConfigError
from ..pipeline.files import Directory, has_files
from .offsets import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Batch", "Checkpoint"]


@attrs.frozen
class Batch:
    """A micro-batch: the rows between two offsets. ``is_first``: of the query, so that it chose its start itself."""

    number: int
    start: Offset
    end: Offset
    is_first: bool
    is_done: bool

    def window(self) -> PlannedWindow:
        """Return the batch as a window, which may span several generations; it has the generation of its end."""
        first, last = self.start.cursor(), self.end.cursor()
        return PlannedWindow(last.generation, self.start.time_us, self.end.time_us, str(first), str(last))


class Checkpoint:
    """The checkpoint of a query with one source, ``scylla-cdc``. Reads small files in the caller's thread.

    Raises (constructor):
        ConfigError: the session is a Spark Connect session, which has no access to files.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        if not has_files(spark):
            raise ConfigError(
                "follow needs a classic Spark session, because Spark Connect gives no access to the checkpoint; use "
                "windows() on Spark Connect"
            )
        self.path = path.rstrip("/")
        self._offsets = Directory(spark, f"{self.path}/offsets")
        self._commits = Directory(spark, f"{self.path}/commits")

    def last(self) -> Batch | None:
        """Return the last batch that was planned, None before the first one.

        Raises:
            ConfigError: the checkpoint is not of a query of this source alone.
        """
        numbers = [int(name) for name in self._offsets.names() if name.isdigit()]
        return self.batch(max(numbers)) if numbers else None

    def batch(self, number: int) -> Batch:
        """Return the batch with this number, which was planned.

        Raises:
            ConfigError: the checkpoint is not of a query of this source alone, or the batch is not in it.
        """
        end = self._offset(number)
        start = end.begin or self._offset(number - 1)
        is_done = self._commits.read_text(str(number)) is not None
        return Batch(number, start, end, end.begin is not None, is_done)

    def _offset(self, number: int) -> Offset:
        text = self._offsets.read_text(str(number))
        if text is None:
            raise ConfigError(f"the checkpoint {self.path} lacks offsets/{number}; start with a new checkpoint")
        # A version, the settings of the query, and one line for each of its sources.
        version, *lines = text.splitlines() or [""]
        sources = lines[1:]
        if version != "v1" or len(sources) != 1:
            raise ConfigError(
                f"the checkpoint {self.path} is not of a query that reads one table: it has offsets of "
                f"{len(sources)} sources, in format {version!r}; use another checkpoint"
            )
        try:
            return Offset.of(json.loads(sources[0]))
        except json.JSONDecodeError as e:
            raise ConfigError(f"the checkpoint {self.path} is not of a query of scylla-cdc; use another one") from e
