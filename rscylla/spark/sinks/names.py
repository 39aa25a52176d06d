"""The name of a table in a Spark catalog, as a session understands it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from ...errors import ConfigError
from ..pipeline.cells import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TableName"]

_SESSION_CATALOG = "spark_catalog"

_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


@attrs.frozen
class TableName:
    """A table: its catalog, the database, or several that are nested, and its own name, all without quotes.

    ``given`` is what the user wrote, and ``str`` of this.
    """

    given: str
    catalog: str
    namespace: tuple[str, ...]
    table: str

    @classmethod
    def of(cls, spark: SparkSession, given: str) -> TableName:
        """Return the table that *given* names now: a later ``USE`` of the session does not make it another one.

        As in Spark, the first of several parts is a catalog if one of that name is configured.

        Raises:
            ConfigError: *given* is not a name.
        """
        *before, table = _parts(given)
        conf = spark.conf
        if before and before[0].lower() == _SESSION_CATALOG:
            catalog, namespace = _SESSION_CATALOG, before[1:]
        elif before and conf.get(f"spark.sql.catalog.{before[0]}", None) is not None:
            catalog, namespace = before[0], before[1:]
        else:
            catalog, namespace = spark.catalog.currentCatalog(), before or _parts(spark.catalog.currentDatabase())
        if catalog == _SESSION_CATALOG:
            if len(namespace) != 1:
                raise ConfigError(f"{given!r} does not name a table of {_SESSION_CATALOG}: write database.table")
            if str(conf.get("spark.sql.caseSensitive", "false")).strip().lower() != "true":
                namespace, table = [part.lower() for part in namespace], table.lower()
        return cls(given, catalog, tuple(namespace), table)

    @property
    def sql(self) -> str:
        """The whole name, in quotes."""
        return ".".join(map(quoted, (self.catalog, *self.namespace, self.table)))

    @property
    def sql_in_catalog(self) -> str:
        """The name in its catalog, in quotes."""
        return ".".join(map(quoted, (*self.namespace, self.table)))

    @property
    def database(self) -> str:
        """The database with its catalog, in quotes."""
        return ".".join(map(quoted, (self.catalog, *self.namespace)))

    def __str__(self) -> str:
        return self.given


def _parts(name: str) -> list[str]:
    """Return the parts of *name* without their quotes."""
    found, at = [], 0
    while (match := _PART.match(name, at)) is not None:
        found.append(match[1].replace("``", "`") if match[1] else match[2].strip())
        at = match.end()
        if at == len(name):
            return found
        if name[at] != ".":
            break
        at += 1
    raise ConfigError(
        f"{name!r} is not the name of a table; write table, database.table, or catalog.database.table, "
        "and names with other characters in backticks"
    )
