"""A Spark session on this machine, for demos and experiments."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from ...errors import ConfigError
from .java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_spark", "local_spark"]

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The default, 200, is far too many tasks for small data on one machine.
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def check_spark() -> None:
    """Check that Spark can start on this machine.

    Raises:
        ConfigError: a package of the ``spark`` extra or Java is missing.
    """
    for name in ("pyspark", "pyarrow"):
        try:
            import_module(name)
        except ImportError as e:
            raise ConfigError(f"Spark needs the package {e.name or name}: pip install 'rscylla[spark]'") from e
    ensure_java()


@contextmanager
def local_spark(name: str = "rscylla", *, threads: int = 2) -> Iterator[SparkSession]:
    """Start Spark in this process, without its web page and messages, and stop it at the end of the block.

    Spark listens on loopback only, and has the data source. An existing session is used, and also stopped.

    Raises:
        ConfigError: a package of the ``spark`` extra or Java is missing.
    """
    check_spark()
    from pyspark.sql import SparkSession

    from ..source.source import register

    builder = SparkSession.builder.master(f"local[{threads}]").appName(name).config(map=_SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        try:
            register(spark)  # Spark does not find it in an editable install
            yield spark
        finally:
            spark.stop()
