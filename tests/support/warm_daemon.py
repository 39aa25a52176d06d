"""Spark's daemon for Python workers, which has imported what they need before it forks them.

Spark starts a worker for each schema and each plan of a data source, and the imports are most of what these do.
"""

from __future__ import annotations

import gc

import cassandra.cluster  # noqa: F401
import pandas as pd  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.sql.worker.create_data_source
import pyspark.sql.worker.lookup_data_sources
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import rscylla.spark.source  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()
