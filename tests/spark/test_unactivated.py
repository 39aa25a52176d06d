"""A script of an environment that is not activated: ``python3`` of the PATH is another, without rscylla."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rscylla

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
from rscylla.spark import ensure_java, register, spark_errors
import rscylla

builder = SparkSession.builder.master("local[1]")
for name, value in {"ui.enabled": "false", "driver.bindAddress": "127.0.0.1", "driver.host": "127.0.0.1"}.items():
    builder = builder.config("spark." + name, value)
spark = builder.getOrCreate()
try:
    with spark_errors():
        spark.read.format("scylla-cdc").options(**json.loads(sys.argv[1])).load()
except rscylla.ConfigError as e:
    print("before:", e)
eval(sys.argv[2])
print("after:", spark.read.format("scylla-cdc").options(**json.loads(sys.argv[1])).load().count())
spark.stop()
"""


@pytest.mark.parametrize("call", ["register(spark)", "ensure_java()"])
def test_a_call_has_the_workers_of_a_local_session_run_the_interpreter_of_the_script(
    session: rscylla.Session, options: Callable[..., dict[str, str]], vnodes: str, tmp_path: Path, call: str
) -> None:
    from rscylla.spark import ensure_java

    session.execute(f"CREATE TABLE {vnodes}.t (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    session.execute(f"INSERT INTO {vnodes}.t (id) VALUES (1)")
    other = tmp_path / "python3"
    # The interpreter of another environment: it has Spark, but none of what this one has installed besides.
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    other.chmod(0o755)
    ensure_java()
    environment: dict[str, Any] = {n: v for n, v in os.environ.items() if n not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(options(vnodes, "t")), call],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "after: 1" in done.stdout, done.stderr[-3000:]
    assert "before: " in done.stdout
