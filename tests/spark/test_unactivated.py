"""A script of an environment that is not activated: ``python3`` of the PATH is another, without rscylla.

Or it is, and the program of the driver is another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

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
    environment = {n: v for n, v in os.environ.items() if n not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    before, after = printed(environment, options(vnodes, "t"), call)
    assert before.startswith("before: ")
    assert after == "after: 1"


def test_registering_is_the_cure_where_the_driver_is_another_program(
    session: rscylla.Session, options: Callable[..., dict[str, str]], vnodes: str, tmp_path: Path
) -> None:
    from rscylla.spark import ensure_java

    session.execute(f"CREATE TABLE {vnodes}.t (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    session.execute(f"INSERT INTO {vnodes}.t (id) VALUES (1)")
    jupyter = tmp_path / "jupyter"
    jupyter.write_text("#!/bin/sh\nexit 1\n")
    jupyter.chmod(0o755)
    ensure_java()
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path(rscylla.__file__).parents[1])}
    environment = {**os.environ, **python, "PYSPARK_DRIVER_PYTHON": str(jupyter)}
    before, after = printed(environment, options(vnodes, "t"), "register(spark)")
    assert "PYSPARK_DRIVER_PYTHON" in before
    assert after == "after: 1"


def printed(environment: Mapping[str, str], options: dict[str, str], call: str) -> list[str]:
    """Return the lines that the script prints."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(options), call],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()
