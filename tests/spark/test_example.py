"""The examples of Spark do what they say, on a few orders."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rscylla
from rscylla.spark import ParquetTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE = EXAMPLES / "spark_pipeline" / "__main__.py"
ORDERS = EXAMPLES / "spark_orders.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("spark_pipeline", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(1800)
def test_the_example_makes_tables_and_a_picture(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    module = example()
    with module.embedded_shop(40) as session:
        # The lag as on a cluster: the last half minute is left for the next run.
        assert module.pipeline(spark, session, tmp_path, rscylla.StreamLag(seconds=30)) >= 4
        want = {r.id: r.status for r in session.execute("SELECT id, status FROM shop.orders")}
    rows = ParquetTable(spark, str(tmp_path / "orders")).rows().collect()
    assert {r["id"]: r["status"] for r in rows} == want
    counts = spark.read.schema(module.COUNTS).parquet(str(tmp_path / "per_minute"))
    total = counts.groupBy().sum("created", "cancelled").collect()[0]
    assert (total[0], total[0] - total[1]) == (40, len(want))
    module.picture(spark, tmp_path)
    assert (tmp_path / "orders.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.timeout(1800)
def test_the_orders_end_with_the_same_table_on_both_sides(tmp_path: Path) -> None:
    command = [sys.executable, str(ORDERS), "--events", "100", "--seed", "1", "--json"]
    # Not from the directory of the sources: Spark is to find the data source where the user is, too.
    done = subprocess.run(command, capture_output=True, text=True, timeout=1700, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    verdict = json.loads(last)
    assert (verdict["written"], verdict["applied"], verdict["lost"], verdict["different"]) == (100, 100, 0, 0)
    assert (verdict["nodes"], verdict["generations"]) == (2, 2)
    assert verdict["rows"] > 0
    assert all("progress" in json.loads(line) for line in done.stdout.splitlines()[:-1])
