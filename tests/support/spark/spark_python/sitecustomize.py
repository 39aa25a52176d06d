"""Runs when Python starts with this directory on its path: Spark's daemons import what their workers need.

Spark starts a worker for each schema and each plan of a data source, forked from a daemon of that kind, and the imports
are most of what these do. The option ``spark.python.daemon.module`` replaces the daemon of tasks alone.
"""

import gc
import sys

if "pyspark.daemon" in sys.orig_argv:
    import cassandra.cluster  # noqa: F401
    import pandas as pd  # noqa: F401
    import pyarrow.compute  # noqa: F401
    import pyspark.sql.worker.create_data_source
    import pyspark.sql.worker.lookup_data_sources
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker  # noqa: F401

    import rscylla.spark.source.source  # noqa: F401

    gc.freeze()
