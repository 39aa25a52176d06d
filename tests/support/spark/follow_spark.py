"""``follow`` as a program of its own, for tests that kill it: keeps a table up to date with a table of Scylla.

Arguments: contact point, keyspace, table, checkpoint, the sink as JSON, and, if the query is to end at the head, "now".
The sink is ``{"path": ...}`` for a ``ParquetTable``, or for a ``MergeTable``
``{"name": ..., "using": ..., "settings": {...}}``. Several tables, as ``a,b``, are followed by ``follow_tables``: each
has its ``ParquetTable`` and its checkpoint in a directory of the paths.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from spark_formats import NOT_COMPILED
from sparkapps import ALONE, point

from rscylla.spark import ensure_java


class Pierced:
    """A sink that can be killed right before and right after it applies a window."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    @property
    def cursor(self) -> str:
        return str(self._sink.cursor)

    def apply(self, changes: Any, window: Any) -> bool:
        point("applying")
        applied = bool(self._sink.apply(changes, window))
        point("applied")
        return applied


def main(contact: str, keyspace: str, table: str, checkpoint: str, given: str, end: str = "") -> None:
    ensure_java()
    from pyspark.sql import SparkSession

    from rscylla.spark import MergeTable, ParquetTable, follow, follow_tables

    sink = json.loads(given)
    settings = ALONE | NOT_COMPILED | {"spark.sql.shuffle.partitions": "1"} | sink.get("settings", {})
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    options = {
        "contactPoints": contact,
        "keyspace": keyspace,
        "table": table,
        "lag": "0s",
        "consistency": "ONE",
        "parallelism": "1",
        "windowSpan": "1s",
        "maxWindowsPerTrigger": "5",
    }
    trigger = {"availableNow": True} if end else None
    if end:
        del options["maxWindowsPerTrigger"]
    if "," in table:
        del options["keyspace"], options["table"]
        tables = [f"{keyspace}.{name}" for name in table.split(",")]

        def sink_of(name: str) -> Pierced:
            return Pierced(ParquetTable(spark, f"{sink['path']}/{name}", keep=1000))

        code = follow_tables(spark, options, tables, sink_of, checkpoints=checkpoint, trigger=trigger).run()
        spark.stop()
        sys.exit(code)
    if "path" in sink:
        kept: Any = ParquetTable(spark, sink["path"], keep=1000)
    else:
        kept = MergeTable(spark, sink["name"], using=sink["using"])
    query = follow(spark, options, Pierced(kept), checkpoint=checkpoint, trigger=trigger)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
