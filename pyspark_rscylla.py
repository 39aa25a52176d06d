"""Where Spark finds the data source by itself: it imports each module called ``pyspark_*`` for its ``DefaultSource``."""

from rscylla.spark.source import ScyllaCdcDataSource as DefaultSource

__all__ = ["DefaultSource"]
