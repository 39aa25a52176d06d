"""``windows`` into a ``MergeTable`` as a program of its own, for tests that kill it.

Arguments: contact point, keyspace, the table as JSON ``{"name": ..., "using": ..., "settings": {...}}``, and
"snapshot" to fill it from a snapshot of ``t`` and end, or "windows" to bring it to the head. ``ScyllaCursorStore`` has
the cursor of the windows.
"""

from __future__ import annotations

import json
import sys

from spark_formats import NOT_COMPILED
from sparkapps import ALONE, point

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.spark import ensure_java

COLUMNS = ("s", "sm", "a", "b", "m", "st", "u", "f")
"""All but the list, which a snapshot cannot be continued with."""


def main(contact: str, keyspace: str, given: str, what: str) -> None:
    ensure_java()
    from pyspark.sql import SparkSession

    from rscylla.spark import MergeTable, apply_changes, snapshot, windows

    sink = json.loads(given)
    settings = ALONE | NOT_COMPILED | {"spark.sql.shuffle.partitions": "1"} | sink["settings"]
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    session = rscylla.connect([contact])
    table = MergeTable(spark, sink["name"], using=sink["using"])
    stream = rscylla.NewStream(session, keyspace, "t", consistency="ONE")
    lag, read = rscylla.StreamLag(milliseconds=0), {"consistency": "ONE", "parallelism": "1"}
    if what == "snapshot":
        if not table.cursor:
            rows = snapshot(spark, stream, rscylla.StreamLag(seconds=1), read=read, ranges=1, columns=COLUMNS)
            point("starting")
            table.start_from(rows)
            point("started")
    else:
        store = ScyllaCursorStore(session, keyspace)
        store.create_schema()
        if not store.get_cursor("lake"):
            store.set_cursor("lake", table.cursor)
        for window, changes in windows(spark, stream, store, "lake", lag, rscylla.StreamToHead(), read=read):
            point("applying")
            apply_changes(changes, table, window=window)
            point("applied")
    session.cluster.shutdown()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
