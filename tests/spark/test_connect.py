"""Spark Connect: what works there as in a classic session, and what is answered in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import spark_connect
import spark_connect_merge
from spark_formats import runs_here
from sparkapps import quick_environment

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
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False, env=quick_environment())
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


@pytest.mark.parametrize(
    "using", [pytest.param("delta", marks=pytest.mark.delta), pytest.param("iceberg", marks=pytest.mark.iceberg)]
)
def test_a_table_with_merge_is_kept_up_to_date_on_spark_connect(
    scylla_process: EmbeddedScyllaProcess, session: rscylla.Session, vnodes: str, tmp_path: Path, using: str
) -> None:
    if not runs_here(using):
        pytest.skip(f"{using} has no release for the installed PySpark")
    session.execute(f"CREATE TABLE {vnodes}.t (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    for i in range(3):
        session.execute(f"INSERT INTO {vnodes}.t (id, v) VALUES ({i}, {i * i})")
    point = f"{scylla_process.contact_points[0]}:{scylla_process.port}"
    command = [sys.executable, spark_connect_merge.__file__, point, vnodes, str(tmp_path), using]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False, env=quick_environment())
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = [[0, 0], [1, 1], [2, 4]], [[0, 0], [1, 7]]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "applied": [True, True],
        "again": False,
        "is at the window": True,
        "rows": second,
        "versions": [first, second],
        "compacted": second,
    }
