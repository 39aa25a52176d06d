"""Where Spark finds the data source by itself: it imports all modules called ``pyspark_*`` for a ``DefaultSource``."""

from rscylla.spark.source.source import ScyllaCdcDataSource as DefaultSource

__all__ = ["DefaultSource"]
