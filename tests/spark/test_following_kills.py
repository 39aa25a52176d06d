"""``follow`` in an application that is killed, while the table is written to."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import follow_spark
import pytest
import spark_history as h
from sparkapps import SparkApp, at, more_files

import rscylla
from rscylla import spark as rs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning")

KILLS = int(os.environ.get("RSCYLLA_FOLLOW_KILLS", "2"))


@contextmanager
def written_beside(session: Any, statements: Iterator[str]) -> Iterator[None]:
    """Write one after the other during the block."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.02):
            session.execute(next(statements))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            yield
        finally:
            stop.set()
        writing.result()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(int(os.environ.get("RSCYLLA_FOLLOW_SEEDS", "1"))))
def test_a_table_is_the_base_table_over_kills_a_restore_and_a_new_column(
    spark: SparkSession, session: Any, scylla_process: Any, vnodes: str, tmp_path: Path, seed: int
) -> None:
    """Half of the kills; the checkpoint is deleted; the other half; the table goes back to an older version."""
    h.create(session, vnodes)
    dice, times = random.Random(seed), iter(rscylla.SystemClock().now_us, None)
    made = h.writes(dice, vnodes, 10**9, times)
    checkpoint, path = tmp_path / "checkpoint", tmp_path / "t"
    point = f"{scylla_process.contact_points[0]}:{scylla_process.port}"
    arguments = [point, vnodes, "t", str(checkpoint), json.dumps({"path": str(path)})]
    app = SparkApp(follow_spark.__file__, *arguments, evidence=tmp_path / "evidence")
    moments = [at("applied", nth=(1, 2)), more_files(checkpoint / "offsets", by=(1, 2)), at("applying", nth=(1, 3))]

    with written_beside(session, made):
        app.run_until_done(dice, kills=KILLS - KILLS // 2, moments=moments, last=["now"])
    manifest = {file: file.read_bytes() for file in path.iterdir() if "_rscylla.json" in file.name}  # and its checksum
    shutil.rmtree(checkpoint)
    with written_beside(session, made):
        app.run_until_done(dice, kills=KILLS // 2, moments=moments, last=["now"])
    shutil.rmtree(checkpoint)
    for file, content in manifest.items():
        file.write_bytes(content)
    session.execute(f"ALTER TABLE {vnodes}.t ADD late int")
    for i in range(3):
        session.execute(f"INSERT INTO {vnodes}.t (pk, c1, c2, late) VALUES ({i}, 0, 'x', {i})")
    h.passed(rscylla.SystemClock().now_us())
    app.run("now")
    assert len(app.kills) == KILLS
    found = rs.ParquetTable(spark, str(path)).rows()
    assert "late" in found.columns
    assert h.rows_in(found) == h.rows_of(session, vnodes, "t")
