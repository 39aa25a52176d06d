"""Table formats with MERGE: which PySpark they run on, and what a session needs for them."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

import rscylla
from rscylla import spark as rs
from rscylla.spark.session.formats import FORMATS, KAFKA, missing_format

SETUP = Path(__file__).resolve().parents[2] / "setup.cfg"


@pytest.mark.parametrize(
    ("name", "version", "line"),
    [
        ("delta", "4.3.0", r'Delta Lake has no release for PySpark 4.3, .* "rscylla\[spark-delta\]" .* PySpark 4.2'),
        ("iceberg", "4.2.1", r'Iceberg has no release for PySpark 4.2, .* "rscylla\[spark-iceberg\]" .* PySpark 4.1'),
        ("Hudi", "4.2.1", "unknown table format 'Hudi'; choose delta or iceberg"),
    ],
)
def test_a_pair_that_does_not_fit_is_refused_in_one_line(
    name: str, version: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(rscylla.ConfigError, match=f"^{line}$"):
        rs.with_format(SparkSession.builder, name)


def test_kafka_is_added_where_there_is_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.2.1")
    builder = rs.with_kafka(SparkSession.Builder().config("spark.jars.packages", "org.example:own:1"))
    assert builder._options["spark.jars.packages"] == f"org.example:own:1,{KAFKA['4.2']}"
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    with pytest.raises(rscylla.ConfigError, match=r"^Maven Central has no package for Kafka for PySpark 4.3, .*4\.2\."):
        rs.with_kafka(SparkSession.Builder())


@pytest.mark.parametrize(
    ("name", "version", "line"),
    [
        ("delta", "4.2.1", r"the session was started without Delta Lake; .*with_format\(builder, 'delta'\)"),
        ("iceberg", "4.3.0", r'Iceberg has no release for PySpark 4.3, .* "rscylla\[spark-iceberg\]" .*'),
        ("hudi", "4.3.0", r"Spark does not have the format 'hudi'; start the session .*"),
    ],
)
def test_what_a_session_without_the_format_lacks_is_named(
    name: str, version: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    assert re.fullmatch(line, missing_format(name))


def test_settings_add_to_those_of_the_builder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    builder = SparkSession.Builder()
    builder.config("spark.jars.packages", "org.example:own:1")
    for name in ("delta", "iceberg", "delta"):
        builder = rs.with_format(builder, name, warehouse="/data")
    found: dict[str, Any] = builder._options
    jars = [FORMATS[name].jars["4.1"] for name in ("delta", "iceberg")]
    assert found["spark.jars.packages"].split(",") == ["org.example:own:1", *jars]
    assert found["spark.sql.extensions"].split(",") == [FORMATS[name].extension for name in ("delta", "iceberg")]
    assert found["spark.sql.catalog.iceberg.warehouse"] == found["spark.sql.warehouse.dir"] == "/data"
    assert "spark.jars.packages" not in rs.format_settings("delta", download=False)
    assert rs.format_settings("iceberg", catalog="lake")["spark.sql.catalog.lake.type"] == "hadoop"
    with pytest.raises(rscylla.ConfigError, match="Delta Lake extends the catalog spark_catalog"):
        rs.format_settings("delta", catalog="lake")


def test_what_is_no_builder_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    started = object.__new__(SparkSession)
    for given, named in [(SparkSession, "the class SparkSession"), (started, "a SparkSession object")]:
        for call in (lambda g: rs.with_format(g, "delta"), rs.with_kafka):
            with pytest.raises(rscylla.ConfigError, match=rf"such as SparkSession\.builder, not {named}$"):
                call(given)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_extra_of_a_format_installs_a_pyspark_that_has_it(name: str) -> None:
    setup = configparser.ConfigParser()
    setup.read(SETUP)
    minor = int(FORMATS[name].pyspark.removeprefix("4."))
    assert f"pyspark>=4.{minor},<4.{minor + 1}" in setup["options.extras_require"][FORMATS[name].extra].split()
    assert FORMATS[name].pyspark in FORMATS[name].jars
