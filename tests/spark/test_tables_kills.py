"""A table of Delta Lake or Iceberg that an application fills from a snapshot and then by windows, and is killed."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import spark_history as h
import tables_spark
from spark_formats import TableFormat
from sparkapps import Moment, SparkApp, at, more_files

import rscylla
from rscylla import spark as rs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe:UserWarning")

KILLS = int(os.environ.get("RSCYLLA_TABLE_KILLS", "2"))
"""Kills while the table is filled, and as many while windows come."""

SEEDS = range(int(os.environ.get("RSCYLLA_TABLE_KILL_SEEDS", "1")))


def data_files(table: Path) -> Moment:
    """In the middle of a commit: it has written a file of rows, which no version of the table names yet."""
    return more_files(table, by=(1, 1), are=lambda p: p.suffix == ".parquet")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_is_the_base_table_over_kills_while_it_is_filled_and_while_windows_come(
    spark: SparkSession,
    session: Any,
    scylla_process: Any,
    vnodes: str,
    tmp_path: Path,
    table_format: TableFormat,
    seed: int,
) -> None:
    dice = random.Random(seed)
    h.create(session, vnodes)
    for pk, c1, c2 in itertools.product(range(3), range(3), "xyz"):  # a snapshot takes every row for inserted
        session.execute(f"INSERT INTO {vnodes}.t (pk, c1, c2, a, m) VALUES ({pk}, {c1}, '{c2}', {c1}, {{{pk}: 'm'}})")
    name = table_format.table()
    table = rs.MergeTable(spark, name, using=table_format.name)
    given = {"name": name, "using": table_format.name, "settings": table_format.settings()}
    point = f"{scylla_process.contact_points[0]}:{scylla_process.port}"
    arguments = [point, vnodes, json.dumps(given)]
    files = data_files(table_format.files_of(name))

    filling = SparkApp(tables_spark.__file__, *arguments, "snapshot", evidence=tmp_path / "filling")
    filling.run_until_done(dice, kills=KILLS, moments=[files, at("starting"), at("started")][:KILLS])
    assert h.rows_in(table.rows()) == h.rows_of(session, vnodes, "t", drop=("l",))
    assert len(table.versions()) == 1
    filled_at = table.cursor

    made = h.writes(dice, vnodes, 10**9, iter(rscylla.SystemClock().now_us, None), lists=False)
    following = SparkApp(tables_spark.__file__, *arguments, "windows", evidence=tmp_path / "following")
    with h.written_beside(session, made):
        following.run_until_done(dice, kills=KILLS, moments=[files, at("applied"), at("applying")])
    h.passed(rscylla.SystemClock().now_us())
    following.run()
    assert h.rows_in(table.rows()) == h.rows_of(session, vnodes, "t", drop=("l",))
    cursors = [v.cursor for v in table.versions()]
    assert cursors[0] == filled_at
    assert len(set(cursors)) == len(cursors), "each window was committed once"
    assert len(filling.kills) == len(following.kills) == KILLS
