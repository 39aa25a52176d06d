"""Small files of tables, which are replaced while others read them, and at whose replacement a writer may be killed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rscylla.errors import ConfigError
from rscylla.spark.pipeline.files import Directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_file_is_there_and_whole_at_each_moment_of_its_replacement(spark: SparkSession, tmp_path: Path) -> None:
    directory, file = Directory(spark, str(tmp_path)), tmp_path / "state.json"
    directory.write_json("state.json", {"n": 0})
    done = threading.Event()

    def missing() -> int:
        found = 0
        while not done.is_set():
            found += not file.exists()
        return found

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(missing)
        try:
            for n in range(300):
                directory.write_json("state.json", {"n": n})
        finally:
            done.set()
        assert looking.result() == 0
    assert directory.read_json("state.json") == {"n": 299}


def test_a_writer_that_is_killed_between_a_file_and_its_checksum_does_no_harm(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory, checksum = Directory(spark, str(tmp_path)), tmp_path / ".state.json.crc"
    directory.write_json("state.json", {"n": 1})
    before = checksum.read_bytes() if checksum.exists() else b"crc\0\0\0\2\0\0\0\0\0"
    directory.write_json("state.json", {"n": 1_000})
    checksum.write_bytes(before)
    assert directory.read_json("state.json") == {"n": 1_000}
    assert directory.names() == [".state.json.crc", "state.json"]


def test_a_file_is_there_where_a_file_system_deletes_it_before_the_new_one_gets_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As object stores do; a writer may be killed in between."""
    directory, file = Directory(spark, str(tmp_path)), tmp_path / "state.json"
    (tmp_path / "state.json.new").write_text('{"n": ')
    assert directory.read_json("state.json") is None, "the first one was not written to its end"
    directory.write_json("state.json", {"n": 1})
    file.rename(tmp_path / "state.json.new")
    assert directory.read_json("state.json") == {"n": 1}
    directory.write_json("state.json", {"n": 2})
    assert directory.read_json("state.json") == {"n": 2}


@pytest.mark.parametrize("path", ["nowhere://bucket/orders", "a:b:c//", ""])
def test_a_path_that_spark_cannot_use_is_an_error_that_says_so(spark: SparkSession, path: str) -> None:
    with pytest.raises(ConfigError, match=f"^Spark cannot use the path {path!r}: .*, such as hadoop-aws for s3a$"):
        Directory(spark, path)
