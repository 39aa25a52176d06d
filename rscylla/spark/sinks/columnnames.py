"""The names of columns, and of fields of their types, that tables can hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ...errors import ConfigError
from ..pipeline.cells import quoted
from ..pipeline.merging import table_schema
from ..source.shape import ignores_case, names_within

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType

    from ..source.shape import Shape

__all__ = ["MAPPING", "check_columns", "needs_mapping", "parsed_again"]

_MAPPED_NAMES = frozenset(" ,;{}()\n\t=")
"""Characters in names of columns for which Delta Lake must map them."""

MAPPING = ("delta.columnMapping.mode", "name")
"""The property of a table of Delta Lake that maps names of columns."""

_OWN = {
    "parquet": frozenset(("_tmp_metadata_row_index",)),
    "delta": frozenset(
        (
            *("_row_id_", "_file_name_", "_source_row_present_", "_target_row_present_", "_row_dropped_"),
            *("_incr_row_count_", "_tmp_metadata_row_index", "__delta_internal_is_row_deleted"),
        )
    ),
    "iceberg": frozenset(
        (
            *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
            *("__row_operation", "__row_from_source", "__row_from_target", "__row_id"),
        )
    ),
}
"""The columns that a format, or Spark, adds to each table, to its files, or to the rows of a MERGE."""

_TITLES = {"parquet": "Parquet", "delta": "Delta Lake", "iceberg": "Iceberg"}


def check_columns(spark: SparkSession, shape: Shape, of_format: str) -> None:
    """Check that a table in the format *of_format* can hold the names of *shape*.

    Raises:
        ConfigError: it has a name for itself, or two names are one for it.
    """
    if of_format == "delta":
        shape.check_names(stored=True, advice="Delta Lake ignores; use a ParquetTable")
    elif ignores_case(spark):
        shape.check_names(stored=True)
    own = _OWN.get(of_format, frozenset())
    taken = next((c.name for c in (*shape.keys, *shape.values) if c.name.lower() in own), None)
    if taken is not None:
        raise ConfigError(
            f"the column {taken!r} cannot be in a table of {_TITLES[of_format]}, which has one of this name itself; "
            "use another format, or rename the column"
        )
    if of_format != "iceberg":
        return
    for names in names_within(table_schema(shape)):
        known: dict[str, str] = {}
        for name in names:
            other = known.setdefault(_in_files_of_iceberg(name), name)
            if other != name:
                raise ConfigError(
                    f"the names {other!r} and {name!r} are both {_in_files_of_iceberg(name)!r} in files of Iceberg; "
                    "use a ParquetTable, or rename one of them"
                )


def _in_files_of_iceberg(name: str) -> str:
    """Return the name by which files of Iceberg have *name*: as Avro allows it."""

    def units() -> Iterator[str]:
        utf_16 = name.encode("utf-16-be", "surrogatepass")
        for n in range(0, len(utf_16), 2):
            unit = chr(int.from_bytes(utf_16[n : n + 2], "big"))
            if unit == "_" or unit.isalpha() or (n > 0 and unit.isdecimal()):
                yield unit
            else:
                yield f"_{unit}" if unit.isdecimal() else f"_x{ord(unit):X}"

    return "".join(units())


def parsed_again(name: str) -> Column:
    """Return the column *name* for ``partitionedBy``, which parses names again, those with dots in backticks."""
    return F.col(quoted(name.replace("`", "``") if "." in name else quoted(name)))


def needs_mapping(name: str, type_: DataType) -> bool:
    """Whether Delta Lake must map the column *name*, or a field of its type at any depth."""
    return any(_MAPPED_NAMES & set(n) for names in ([name], *names_within(type_)) for n in names)
