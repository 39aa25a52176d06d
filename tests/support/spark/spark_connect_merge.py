"""Keeps a ``MergeTable`` up to date on Spark Connect, in a process of its own, and prints what came of it as JSON.

Arguments: contact point, keyspace, directory, format. The keyspace has a table ``t`` (id, v) with the log. The server
of Spark Connect runs in this process; it starts with the settings of the builder, so it loads the format's jar.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import spark_history as h
from spark_connect import CONFIG, builder_of
from spark_formats import FORMAT_CONFIG, NOT_COMPILED, one_at_a_time

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import StreamLag, StreamToHead
from rscylla import spark as rs
from rscylla.spark.session.formats import FORMATS

LAG = StreamLag(seconds=0)


def main(point: str, keyspace: str, place: str, using: str) -> None:
    rs.ensure_java()
    settings = CONFIG | FORMAT_CONFIG | NOT_COMPILED | {"spark.sql.warehouse.dir": f"{place}/warehouse"}
    builder = rs.with_format(builder_of(settings), using, warehouse=f"{place}/warehouse")
    session = rscylla.connect([point])
    with one_at_a_time():
        spark = builder.getOrCreate()
    rs.register(spark)
    found: dict[str, Any] = {"session": type(spark).__module__}
    table = rs.MergeTable(spark, f"{FORMATS[using].catalog}.default.merged", using=using)
    stream = rscylla.NewStream(session, keyspace, "t", consistency="ONE")
    store, read = MemoryCursorStore(), {"consistency": "ONE", "parallelism": "2"}

    def rows(**version: Any) -> list[list[int]]:
        return sorted([row["id"], row["v"]] for row in table.rows(**version).select("id", "v").collect())

    windows: list[tuple[rs.PlannedWindow, Any]] = []
    applied = []
    with rs.spark_errors():
        for written in ((), ("UPDATE {}.t SET v = 7 WHERE id = 1", "DELETE FROM {}.t WHERE id = 2")):
            for cql in written:
                session.execute(cql.format(keyspace))
            h.passed(rscylla.SystemClock().now_us())
            for window, changes in rs.windows(spark, stream, store, "lake", LAG, StreamToHead(), read=read):
                applied.append(rs.apply_changes(changes, table, window=window))
                windows.append((window, changes))
        window, changes = windows[-1]
        found |= {
            "applied": applied,
            "again": rs.apply_changes(changes, table, window=window),
            "is at the window": table.cursor == window.end,
            "rows": rows(),
            "versions": [rows(version=version.version) for version in table.versions()],
        }
        table.compact()
        table.vacuum()
        found["compacted"] = rows()
    print(json.dumps(found))
    session.cluster.shutdown()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
