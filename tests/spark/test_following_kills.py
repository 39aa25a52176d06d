"""``follow`` in an application that is killed, while the table is written to."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import follow_spark
import pytest
import spark_history as h
from spark_formats import TableFormat
from sparkapps import SparkApp, at, more_files

import rscylla
from rscylla import spark as rs
from rscylla.event import cursor_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning")

KILLS = int(os.environ.get("RSCYLLA_FOLLOW_KILLS", "2"))
SEEDS = range(int(os.environ.get("RSCYLLA_FOLLOW_SEEDS", "1")))


class Files:
    """A ``ParquetTable``. ``go_back`` takes it to where it was at ``remember``."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.path = path
        self.given: dict[str, Any] = {"path": str(path)}
        self.table = rs.ParquetTable(spark, str(path))
        self._manifest: dict[Path, bytes] = {}

    def remember(self) -> None:
        self._manifest = {file: file.read_bytes() for file in self.path.iterdir() if "_rscylla.json" in file.name}

    def go_back(self) -> None:
        for file, content in self._manifest.items():
            file.write_bytes(content)


class Merged:
    """A ``MergeTable``, in the same way."""

    def __init__(self, spark: SparkSession, table_format: TableFormat) -> None:
        name = table_format.table()
        self._spark, self._format = spark, table_format
        self.given = {
            "name": name,
            "using": table_format.name,
            "settings": table_format.settings(),
        }
        self.table = rs.MergeTable(spark, name, using=table_format.name)
        self._version = 0

    def remember(self) -> None:
        versions = self.table.versions()
        assert len({v.cursor for v in versions}) == len(versions), "each window was committed once"
        self._version = versions[-1].version

    def go_back(self) -> None:
        self._format.restore(self._spark, self.table.name, self._version)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_files_are_the_base_table_over_kills_a_restore_and_a_new_column(
    spark: SparkSession, session: Any, scylla_process: Any, vnodes: str, tmp_path: Path, seed: int
) -> None:
    _follow_and_kill(spark, Files(spark, tmp_path / "t"), session, scylla_process, vnodes, tmp_path, seed)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_with_merge_is_the_base_table_over_kills_a_restore_and_a_new_column(
    spark: SparkSession,
    session: Any,
    scylla_process: Any,
    vnodes: str,
    tmp_path: Path,
    table_format: TableFormat,
    seed: int,
) -> None:
    _follow_and_kill(spark, Merged(spark, table_format), session, scylla_process, vnodes, tmp_path, seed)


def _follow_and_kill(
    spark: SparkSession, sink: Files | Merged, session: Any, scylla_process: Any, vnodes: str, tmp_path: Path, seed: int
) -> None:
    """Half of the kills; the checkpoint is deleted; the other half; the table goes back to an older version."""
    h.create(session, vnodes)
    dice, times = random.Random(seed), iter(rscylla.SystemClock().now_us, None)
    made = h.writes(dice, vnodes, 10**9, times)
    checkpoint = tmp_path / "checkpoint"
    point = f"{scylla_process.contact_points[0]}:{scylla_process.port}"
    arguments = [point, vnodes, "t", str(checkpoint), json.dumps(sink.given)]
    app = SparkApp(follow_spark.__file__, *arguments, evidence=tmp_path / "evidence")
    moments = [at("applied", nth=(1, 2)), more_files(checkpoint / "offsets", by=(1, 2)), at("applying", nth=(1, 3))]
    first = KILLS - KILLS // 2

    with h.written_beside(session, made):
        app.run_until_done(dice, kills=first, moments=moments, last=["now"])
    sink.remember()
    shutil.rmtree(checkpoint)
    with h.written_beside(session, made):
        others = [moments[(first + n) % len(moments)] for n in range(len(moments))]
        app.run_until_done(dice, kills=KILLS // 2, moments=others, last=["now"])
    shutil.rmtree(checkpoint)
    sink.go_back()
    session.execute(f"ALTER TABLE {vnodes}.t ADD late int")
    for i in range(3):
        session.execute(f"INSERT INTO {vnodes}.t (pk, c1, c2, late) VALUES ({i}, 0, 'x', {i})")
    h.passed(rscylla.SystemClock().now_us())
    app.run("now")
    assert len(app.kills) == KILLS
    assert cursor_key(rs.checkpoint_cursor(spark, str(checkpoint))) == cursor_key(sink.table.cursor)
    found = sink.table.rows()
    assert "late" in found.columns
    assert h.rows_in(found) == h.rows_of(session, vnodes, "t")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_several_tables_of_one_application_are_their_base_tables_over_kills(
    spark: SparkSession, session: Any, scylla_process: Any, vnodes: str, tmp_path: Path, seed: int
) -> None:
    h.create(session, vnodes)
    dice = random.Random(seed)
    made = h.writes(dice, vnodes, 10**9, iter(rscylla.SystemClock().now_us, None))
    point = f"{scylla_process.contact_points[0]}:{scylla_process.port}"
    path, checkpoints = tmp_path / "lake", tmp_path / "checkpoints"
    arguments = [point, vnodes, ",".join(h.TABLES), str(checkpoints), json.dumps({"path": str(path)})]
    app = SparkApp(follow_spark.__file__, *arguments, evidence=tmp_path / "evidence")
    moments = [at("applied", nth=(2, 6)), more_files(checkpoints / f"{vnodes}.t" / "offsets", by=(1, 2))]
    with h.written_beside(session, made):
        app.run_until_done(dice, kills=KILLS, moments=moments, last=["now"])
    h.passed(rscylla.SystemClock().now_us())
    app.run("now")
    assert len(app.kills) == KILLS
    for name in h.TABLES:
        table = rs.ParquetTable(spark, str(path / f"{vnodes}.{name}"))
        assert h.rows_in(table.rows()) == h.rows_of(session, vnodes, name)
        cursor = rs.checkpoint_cursor(spark, str(checkpoints / f"{vnodes}.{name}"))
        assert cursor_key(cursor) == cursor_key(table.cursor)
