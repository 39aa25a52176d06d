"""Spark Connect: what works there as in a classic session, and what is answered in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import spark_connect

import rscylla

if TYPE_CHECKING:
    from rscylla.embedded import EmbeddedScyllaProcess

pytest.importorskip("grpc", reason="Spark Connect needs the extra spark-connect")


def test_batches_streams_windows_and_sinks_on_spark_connect(
    scylla_process: EmbeddedScyllaProcess, session: rscylla.Session, vnodes: str, tmp_path: Path
) -> None:
    for table in ("t", "copy"):
        session.execute(f"CREATE TABLE {vnodes}.{table} (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    for i in range(5):
        session.execute(f"INSERT INTO {vnodes}.t (id, v) VALUES ({i}, {i * i})")
    session.execute(f"DELETE FROM {vnodes}.t WHERE id = 2")
    point = f"{scylla_process.contact_points[0]}:{scylla_process.port}"
    command = [sys.executable, spark_connect.__file__, point, vnodes, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    rows = [[0, 0], [1, 1], [3, 9], [4, 16]]
    assert found == {
        "session": "pyspark.sql.connect.session",
        "counts": {"changes": 6, "log": 6, "events": 6},
        "latest": rows,
        "history": 5,
        "snapshot": rows,
        "stream": [0, 1, 2, 2, 3, 4],
        "foreachBatch": [0, 1, 2, 2, 3, 4],
        "scylla": "applied",
        "copy": rows,
        "parquet": found["parquet"],
        "merge": found["merge"],
        "no table": f"TableNotFound: keyspace {vnodes} has no table nothing; check the name",
    }
    assert found["parquet"].startswith("ConfigError: tables in files require a classic Spark session")
    assert found["merge"].startswith("ConfigError: the table merged does not support MERGE")
