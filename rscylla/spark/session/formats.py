"""Table formats with MERGE, and Kafka: which of them runs on which PySpark, and what a session needs for it.

The one place to change when a format or PySpark has a new release; the extras ``spark-delta`` and ``spark-iceberg`` in
``setup.cfg`` install a PySpark that is named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from ...errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FORMATS", "KAFKA", "Format", "format_settings", "missing_format", "with_format", "with_kafka"]


@attrs.frozen
class Format:
    """A table format.

    ``jars`` has the Maven coordinate for each version of PySpark that has a release of the format. ``pyspark`` is the
    version that the format's extra installs. ``catalog`` is the default name of the catalog with tables of the format.
    """

    name: str
    title: str
    pyspark: str
    jars: Mapping[str, str]
    extension: str
    catalog: str
    catalog_class: str

    @property
    def extra(self) -> str:
        return f"spark-{self.name}"

    def unsupported(self, version: str) -> str:
        """Return what to tell a user of PySpark *version*, which the format has no release for."""
        return (
            f"{self.title} has no release for PySpark {version}, but for {' and '.join(sorted(self.jars))}; "
            f'pip install "rscylla[{self.extra}]" installs PySpark {self.pyspark}'
        )


FORMATS: Mapping[str, Format] = {
    "delta": Format(
        name="delta",
        title="Delta Lake",
        pyspark="4.2",
        jars={version: f"io.delta:delta-spark_{version}_2.13:4.4.0" for version in ("4.1", "4.2")},
        extension="io.delta.sql.DeltaSparkSessionExtension",
        catalog="spark_catalog",
        catalog_class="org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ),
    "iceberg": Format(
        name="iceberg",
        title="Iceberg",
        pyspark="4.1",
        jars={"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"},
        extension="org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog="iceberg",
        catalog_class="org.apache.iceberg.spark.SparkCatalog",
    ),
}


KAFKA: Mapping[str, str] = {
    "4.1": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
    "4.2": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
}
"""The Maven coordinate of Spark's package for Kafka, for each version of PySpark that Maven Central has one for."""


def with_format(
    builder: SparkSession.Builder,
    name: str,
    *,
    warehouse: str | None = None,
    catalog: str | None = None,
    download: bool = True,
) -> SparkSession.Builder:
    """Return *builder* with the settings of ``format_settings``, beside the packages and extensions that it has.

    ::

        spark = with_format(SparkSession.builder, "delta").getOrCreate()
        orders = MergeTable(spark, "orders", using="delta")

    Spark loads jars only when it starts: a session that runs already does not get the format.

    Raises:
        ConfigError: the format is unknown, or has no release for the installed PySpark; or *builder* is not one.
    """
    return _with(builder, format_settings(name, warehouse=warehouse, catalog=catalog, download=download))


def with_kafka(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Return *builder* with Spark's package for ``format("kafka")``, beside the packages that it has.

    Spark gets it from Maven Central when the session starts: a session that runs already does not get it.

    Raises:
        ConfigError: Maven Central has no package for the installed PySpark; or *builder* is not one.
    """
    version = pyspark_version()
    if version not in KAFKA:
        raise ConfigError(
            f"Maven Central has no package for Kafka for PySpark {version}, but for {' and '.join(sorted(KAFKA))}; "
            f'pip install "pyspark=={max(KAFKA)}.*"'
        )
    return _with(builder, {"spark.jars.packages": KAFKA[version]})


def _with(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    """Return *builder* with *settings*; packages and extensions are added to those that it has."""
    if isinstance(builder, type) or not callable(getattr(builder, "config", None)):
        what = f"the class {builder.__name__}" if isinstance(builder, type) else f"a {type(builder).__name__} object"
        raise ConfigError(f"builder must be a builder of sessions, such as SparkSession.builder, not {what}")
    present: Mapping[str, Any] = getattr(builder, "_options", {})  # a builder does not show its settings otherwise
    for key, value in settings.items():
        if key in ("spark.jars.packages", "spark.sql.extensions"):
            listed = [part.strip() for part in str(present.get(key, "")).split(",") if part.strip()]
            value = ",".join([*listed, *([] if value in listed else [value])])
        builder = builder.config(key, value)
    return builder


def format_settings(
    name: str, *, warehouse: str | None = None, catalog: str | None = None, download: bool = True
) -> dict[str, str]:
    """Return the settings by which a session of the installed PySpark has tables of the format *name*.

    Args:
        name: ``delta`` or ``iceberg``.
        warehouse: directory of the tables; default: ``spark-warehouse`` in the current directory.
        catalog: of Iceberg: name of the catalog, as in ``iceberg.db.orders``; a Hadoop catalog, which is its warehouse.
            Delta Lake extends the catalog of the session, ``spark_catalog``.
        download: whether Spark gets the format's jar from Maven Central (``spark.jars.packages``); false if it has it.

    Raises:
        ConfigError: the format is unknown, or has no release for the installed PySpark.
    """
    found = FORMATS.get(name.lower())
    if found is None:
        raise ConfigError(f"unknown table format {name!r}; choose {' or '.join(sorted(FORMATS))}")
    version = pyspark_version()
    if version not in found.jars:
        raise ConfigError(found.unsupported(version))
    settings = {"spark.jars.packages": found.jars[version]} if download else {}
    settings["spark.sql.extensions"] = found.extension
    if found.catalog == "spark_catalog":
        if catalog not in (None, found.catalog):
            raise ConfigError(f"{found.title} extends the catalog {found.catalog}; omit catalog={catalog!r}")
        settings[f"spark.sql.catalog.{found.catalog}"] = found.catalog_class
        if warehouse is not None:
            settings["spark.sql.warehouse.dir"] = warehouse
        return settings
    prefix = f"spark.sql.catalog.{catalog or found.catalog}"
    settings[prefix] = found.catalog_class
    settings[f"{prefix}.type"] = "hadoop"
    settings[f"{prefix}.warehouse"] = warehouse or "spark-warehouse"
    return settings


def missing_format(name: str) -> str:
    """Return what to tell a user whose session lacks the format *name*."""
    found = FORMATS.get(name.lower())
    if found is None:
        return f"Spark does not have the format {name!r}; start the session with its package (spark.jars.packages)"
    version = pyspark_version()
    if version not in found.jars:
        return found.unsupported(version)
    return (
        f"the session was started without {found.title}; stop it, and start it with "
        f"rscylla.spark.with_format(builder, {found.name!r})"
    )


def pyspark_version() -> str:
    """Return the version of the installed PySpark, without its patch number.

    Raises:
        ConfigError: PySpark is not installed.
    """
    try:
        import pyspark
    except ImportError as e:
        raise ConfigError('Spark needs the package pyspark: pip install "rscylla[spark]"') from e
    return ".".join(pyspark.__version__.split(".")[:2])
