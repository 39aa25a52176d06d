"""CQL's own order of values, as Spark expressions: of clustering keys, list elements, and cells of one time."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ..shape import ColumnShape

__all__ = ["byte_order", "clustering_order", "comparable", "timeuuid_order"]

_SIGNED = frozenset(("tinyint", "smallint", "int", "bigint", "time", "timestamp", "float", "double"))
_ORDERED = _SIGNED | {"ascii", "text", "varchar", "blob", "boolean", "date", "uuid", "timeuuid"}


def timeuuid_order(text: Column) -> Column:
    """Return text that sorts as the database sorts the timeuuids *text*: by time, then by signed bytes."""
    time = F.concat(F.substring(text, 16, 3), F.substring(text, 10, 4), F.substring(text, 1, 8))
    low = F.regexp_replace(F.substring(text, 20, 17), "-", "")
    flipped = [
        part
        for at in range(1, 17, 2)
        for part in (
            F.translate(F.substring(low, at, 1), "0123456789abcdef", "89abcdef01234567"),
            F.substring(low, at + 1, 1),
        )
    ]
    return F.concat(time, *flipped)


def byte_order(value: Column, cql: str, type_: DataType) -> Column:
    """Return what decides between two live cells of one write time, where the greater bytes win.

    Exact for the types that are fixed in size or text; for others (decimal, varint, inet, duration, frozen
    collections, tuples) it is some order that is always the same.
    """
    if cql in _SIGNED:
        return F.struct(value < 0, F.abs(value) if cql in ("float", "double") else value)
    if cql in _ORDERED:
        return value
    return value if comparable(type_) else F.to_json(F.struct(value.alias("v")))


def clustering_order(value: Column, column: ColumnShape) -> Column | None:
    """Return *value*, of a clustering column, as something that Spark orders as CQL does; None if it has no such."""
    if column.cql == "timeuuid":
        return timeuuid_order(value)
    if column.cql == "uuid":  # by version, those of version 1 by time, others by bytes
        version = F.substring(value, 15, 1)
        return F.concat(version, F.when(version == "1", timeuuid_order(value)).otherwise(value))
    return value if column.cql in _ORDERED else None


def comparable(type_: DataType) -> bool:
    """Whether Spark can order and group by values of the type."""
    if isinstance(type_, MapType):
        return False
    if isinstance(type_, ArrayType):
        return comparable(type_.elementType)
    if isinstance(type_, StructType):
        return all(comparable(f.dataType) for f in type_.fields)
    return True
