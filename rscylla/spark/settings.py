"""Settings of a Spark session for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["planned_quickly", "with_setting"]


@contextmanager
def with_setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """The session *spark* has the setting *name* in the block, and at its end what it had before."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def planned_quickly(spark: SparkSession) -> AbstractContextManager[None]:
    """Queries of *spark* in the block are planned without Spark's search for what columns say about each other.

    It takes time and memory by the square of the columns, finds nothing in a merge of cells, and a MERGE of Delta Lake
    into a table of fifty columns runs out of memory in it.
    """
    return with_setting(spark, "spark.sql.constraintPropagation.enabled", "false")
