"""The contract of a sink, and ``apply_changes``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...cdc import PlannedWindow
from ...errors import ConfigError
from ..session.failures import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Sink", "apply_changes", "check_sink"]


class Sink(Protocol):
    """Applies windows of changes, in the order of ``windows``, from one thread."""

    def apply(self, changes: DataFrame, window: PlannedWindow) -> bool:
        """Apply *changes*, the changes of *window*; return False if the sink already has them.

        The changes are durable when this returns. After a crash, the changes arrive again, and must change nothing
        then. The window has the same start, but may end elsewhere: leave out the changes before the end of what was
        applied last, replace what the sink has of the same ``window.start_name``, or write so that a repetition has no
        effect.

        Args:
            changes: a DataFrame of the source with mode ``changes``; its columns:
                ``rscylla.spark.source.shape.Shape.of``.

        Raises:
            ConfigError: the sink cannot take these changes; trying again does not help.
        """
        ...


def apply_changes(changes: DataFrame, sink: Sink, *, window: PlannedWindow) -> bool:
    """Bring *sink* up to the end of *window*; return False if it already has the window.

    The same as ``sink.apply(changes, window)``, but errors of Spark are raised as errors of rscylla.

    Raises:
        ConfigError: *sink* has no ``apply``.
        RscyllaError: see ``apply`` of the sink, and ``spark_errors``.
    """
    check_sink(sink)
    with spark_errors():
        return sink.apply(changes, window)


def check_sink(sink: object, name: str = "sink=") -> None:
    """Raise ``ConfigError`` unless *sink*, which is called *name*, is an object with ``apply``."""
    if isinstance(sink, type) or not callable(getattr(sink, "apply", None)):
        raise ConfigError(f"{name} must have apply(changes, window), such as ParquetTable(spark, path)")
