"""Gives a table of a format with MERGE the columns, and the types, that the base table has got."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ..pipeline.cells import added_again, quoted
from ..pipeline.evolving import Added, Renamed, evolutions, evolved
from ..pipeline.merging import stored_type, table_schema
from ..source.shape import Shape
from .columnnames import MAPPING, check_columns, needs_mapping
from .commits import CommitLog, text
from .names import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["widen"]

_NEW = "cdc$new_"
"""How the name of a column begins that is to replace another one."""


def widen(spark: SparkSession, name: TableName, shape: Shape, log: CommitLog) -> None:
    """Give the table *name* the columns of *shape*; those dropped from the base table stay, and become null.

    A column that was dropped from the base table, and added again with another type, or with a name that differs in
    case only, is a new one here, too.

    Raises:
        ConfigError: a column has another type than in the table, though it was not dropped.
    """
    _Widening(spark, name, log).to(shape)


class _Widening:
    def __init__(self, spark: SparkSession, name: TableName, log: CommitLog) -> None:
        self._spark = spark
        self._name = name
        self._log = log

    def to(self, shape: Shape) -> None:
        of_format = self._log.properties.get("rscylla.format", "")
        check_columns(self._spark, shape, of_format)
        self._end_replacing()
        known = {f.name: f.dataType for f in self._spark.table(self._name.sql).schema.fields}
        wanted = {f.name: stored_type(f.dataType, of_format) for f in table_schema(shape).fields}
        other = [n for n in wanted if n in known and known[n].simpleString() != wanted[n].simpleString()]
        again = added_again(shape)
        grown = {n: evolutions(n, known[n], wanted[n], str(self._name)) for n in other if n not in again}
        in_other_case = {n.lower(): n for n in known.keys() - wanted.keys()}
        renamed = [in_other_case[n.lower()] for n in wanted if n not in known and n.lower() in in_other_case]
        dropped = [n for n in other if n in again] + renamed
        added = [(quoted(n), t) for n, t in wanted.items() if n not in known or n in dropped]
        steps = [step for found in grown.values() for step in found]
        is_odd = any(needs_mapping(n, t) for n, t in wanted.items() if n not in known or n in other)
        if of_format == "delta" and (dropped or is_odd or any(isinstance(step, Renamed) for step in steps)):
            self._alter("SET TBLPROPERTIES ({} = {})".format(*map(text, MAPPING)))
        if dropped:
            self._alter(f"DROP COLUMNS ({', '.join(map(quoted, dropped))})")
        if of_format == "iceberg":  # it does not alter the keys of maps
            replaced = [n for n, found in grown.items() if any(step.in_key for step in found)]
            for name in replaced:
                self._replace(name, known[name], wanted[name])
            steps = [step for name, found in grown.items() if name not in replaced for step in found]
        for step in steps:
            if isinstance(step, Renamed):
                self._alter(f"RENAME COLUMN {step.path} TO {quoted(step.name)}")
        added += [(step.path, step.type) for step in steps if isinstance(step, Added)]
        if added:
            self._alter(f"ADD COLUMNS ({', '.join(f'{name} {ddl(type_)}' for name, type_ in added)})")

    def _alter(self, what: str) -> None:
        self._spark.sql(f"ALTER TABLE {self._name.sql} {what}")

    def _replace(self, name: str, known: DataType, wanted: DataType) -> None:
        """Replace the column *name* by one of the type *wanted*, with the same values.

        Until the values are in the new column, which a commit with the cursor of now fills, the old one is as it was.
        """
        new = _NEW + name
        self._alter(f"ADD COLUMNS ({quoted(new)} {ddl(wanted)})")
        table = self._spark.table(self._name.sql)
        values = table.withColumn(new, evolved(F.col(quoted(name)), known, wanted))
        state = self._log.state()
        with nullcontext() if state is None else self._log.committing(self._spark, state):
            values.writeTo(self._name.sql).overwrite(F.lit(True))
        self._alter(f"DROP COLUMNS ({quoted(name)})")
        self._alter(f"RENAME COLUMN {quoted(new)} TO {quoted(name)}")

    def _end_replacing(self) -> None:
        """End what a run that was killed has begun to replace: it begins again unless only the name is missing."""
        names = self._spark.table(self._name.sql).columns
        for new in [n for n in names if n.startswith(_NEW)]:
            name = new.removeprefix(_NEW)
            what = (
                f"DROP COLUMNS ({quoted(new)})" if name in names else f"RENAME COLUMN {quoted(new)} TO {quoted(name)}"
            )
            self._alter(what)


def ddl(type_: DataType) -> str:
    """Return *type_* as SQL, with the names of fields in quotes."""
    match type_:
        case StructType():
            return f"struct<{', '.join(f'{quoted(f.name)}: {ddl(f.dataType)}' for f in type_.fields)}>"
        case ArrayType():
            return f"array<{ddl(type_.elementType)}>"
        case MapType():
            return f"map<{ddl(type_.keyType)}, {ddl(type_.valueType)}>"
        case _:
            return str(type_.simpleString())
