"""A streaming query as a program of its own, for tests that kill it: copies a table's events to Parquet files.

Arguments: contact point, keyspace, table, windowSpan, startingPosition, endingPosition, output, checkpoint, and, if it
is not 1, maxWindowsPerTrigger.
"""

from __future__ import annotations

import sys

from sparkapps import ALONE

from rscylla.spark import ensure_java


def main(point: str, keyspace: str, table: str, span: str, *rest: str) -> None:
    start, until, output, checkpoint, windows = (*rest, "1")[:5]
    ensure_java()
    from pyspark.sql import SparkSession

    from rscylla.spark.source.versions import PASSES_LIMITS

    spark = SparkSession.builder.master("local[2]").config(map=ALONE).getOrCreate()
    options = {
        "contactPoints": point,
        "keyspace": keyspace,
        "table": table,
        "lag": "0s",
        "mode": "events",
        "windowSpan": span,
        "maxWindowsPerTrigger": windows,
        "startingPosition": start,
        "endingPosition": until,
        "parallelism": "2",
    }
    writer = (
        spark.readStream.format("scylla-cdc")
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("path", output)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    query = writer.start()
    query.awaitTermination()
    while not PASSES_LIMITS and query.recentProgress:  # it ended after one batch
        query = writer.start()
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
