"""Spark and Kafka, as docs/spark-pipelines.md shows it, as a program for tests.

``write CONTACT KEYSPACE TABLE SERVERS TOPIC CHECKPOINT [now]`` writes the changes of a table to a topic, with the key
``id``. ``read SERVERS TOPIC OUT`` reads a topic of ``rscylla kafka run`` and writes the newest ``n`` of each ``id``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from follow_spark import Pierced
from spark_formats import FORMAT_CONFIG, one_at_a_time
from sparkapps import ALONE

from rscylla.spark import ensure_java, follow, with_kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class KafkaTopic:
    """A sink: one record for each change, in order for each primary key."""

    def __init__(self, servers: str, topic: str, *keys: str) -> None:
        self._options = {"kafka.bootstrap.servers": servers, "topic": topic}
        self._keys = keys

    def apply(self, changes: DataFrame, window: Any) -> bool:
        from pyspark.sql import functions as F

        # All changes of a key in one task, which sends them one after the other.
        ordered = changes.repartition(*self._keys).sortWithinPartitions("cdc_sequence")
        # As hexadecimal digits, the sequence can be compared by consumers.
        whole = ordered.withColumn("cdc_sequence", F.hex("cdc_sequence"))
        key, value = F.to_json(F.struct(*self._keys)), F.to_json(F.struct("*"))
        whole.select(key.alias("key"), value.alias("value")).write.format("kafka").options(**self._options).save()
        return True


def session() -> SparkSession:
    from pyspark.sql import SparkSession

    ensure_java()
    settings = ALONE | FORMAT_CONFIG | {"spark.sql.shuffle.partitions": "2"}
    builder = with_kafka(SparkSession.builder.master("local[2]")).config(map=settings)
    with one_at_a_time():
        return builder.getOrCreate()


def write(contact: str, keyspace: str, table: str, servers: str, topic: str, checkpoint: str, end: str = "") -> None:
    options = {
        "contactPoints": contact,
        "keyspace": keyspace,
        "table": table,
        "lag": "0s",
        "consistency": "ONE",
        "parallelism": "2",
        "windowSpan": "1s",
    }
    trigger = {"availableNow": True} if end else None
    sink = Pierced(KafkaTopic(servers, topic, "id"))
    follow(session(), options, sink, checkpoint=checkpoint, trigger=trigger).awaitTermination()


def read(servers: str, topic: str, out: str) -> None:
    from pyspark.sql import functions as F

    records = (
        session()
        .read.format("kafka")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": topic})
        .load()
        .where("value IS NOT NULL")  # tombstones
    )
    key = F.from_json(F.col("key").cast("string"), "id int")
    value = F.from_json(
        F.col("value").cast("string"), "after struct<n: struct<value: int>>, source struct<ts_us: bigint>"
    )
    newest = (
        records.select(key["id"].alias("id"), value.alias("value"), "partition", "offset")
        .groupBy("id")
        .agg(F.max_by("value.after.n.value", F.struct("value.source.ts_us", "offset")).alias("n"))
    )
    Path(out).write_text(json.dumps({row["id"]: row["n"] for row in newest.collect()}))


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
