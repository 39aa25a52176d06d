"""The CQL order of values as Spark expressions: for clustering keys, list elements, and cells with equal times."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StructType,
    TimestampType,
)

from ...types import native
from ..source.shape import ColumnShape

__all__ = ["byte_order", "clustering_order", "differs", "identity", "one_zero", "timeuuid_order"]


def timeuuid_order(text: Column) -> Column:
    """Return text that sorts as the database sorts the timeuuids *text*: by time, then by signed bytes."""
    # From the 16th character: the 15th is the version, which has no part in the order.
    time = F.concat(F.substring(text, 16, 3), F.substring(text, 10, 4), F.substring(text, 1, 8))
    low = F.regexp_replace(F.substring(text, 20, 17), "-", "")
    # The first hex digit of each byte has its sign: the digits below 8 and those from 8 on change places.
    flipped = [
        part
        for at in range(1, 17, 2)
        for part in (
            F.translate(F.substring(low, at, 1), "0123456789abcdef", "89abcdef01234567"),
            F.substring(low, at + 1, 1),
        )
    ]
    return F.concat(time, *flipped)


def identity(value: Column, type_: DataType) -> Column:
    """Return an expression that is equal in Spark if and only if two values are the same for the database.

    Spark treats 0.0 and -0.0 as equal, and neither compares nor groups by maps.
    """
    if isinstance(type_, FloatType | DoubleType):
        return F.struct(value.alias("number"), value.cast("string").alias("text"))
    if not differs(type_):
        return value
    if isinstance(type_, ArrayType):
        return F.transform(value, lambda e: identity(e, type_.elementType))
    if isinstance(type_, MapType):
        key, item = type_.keyType, type_.valueType
        return F.transform(
            F.map_entries(value),
            lambda e: F.struct(identity(e["key"], key).alias("key"), identity(e["value"], item).alias("value")),
        )
    assert isinstance(type_, StructType)
    fields = [identity(value.getField(f.name), f.dataType).alias(f.name) for f in type_.fields]
    return F.when(value.isNotNull(), F.struct(*fields))


def one_zero(value: Column, type_: DataType) -> Column:
    """Return *value*, which contains no maps, with 0.0 for -0.0 at any depth."""
    if isinstance(type_, FloatType | DoubleType):
        return F.when(value == 0, F.lit(0.0).cast(type_)).otherwise(value)
    if not differs(type_):
        return value
    if isinstance(type_, ArrayType):
        return F.transform(value, lambda e: one_zero(e, type_.elementType))
    assert isinstance(type_, StructType)
    fields = [one_zero(value.getField(f.name), f.dataType).alias(f.name) for f in type_.fields]
    return F.when(value.isNotNull(), F.struct(*fields))


def differs(type_: DataType) -> bool:
    """Whether the identity of values of the type differs from the values."""
    if isinstance(type_, ArrayType):
        return differs(type_.elementType)
    if isinstance(type_, StructType):
        return any(differs(f.dataType) for f in type_.fields)
    return isinstance(type_, FloatType | DoubleType | MapType)


def byte_order(value: Column, type_: DataType) -> Column:
    """Return the sort key for two live cells with the same write time, where the greater bytes win.

    The order is exact for types of fixed size and for text; for others (decimal, varint, inet, duration, frozen
    collections, tuples), it is arbitrary but always the same.
    """
    if isinstance(type_, FloatType | DoubleType):
        return F.struct(value.cast("string").startswith("-").alias("negative"), F.abs(value).alias("rest"))
    if isinstance(type_, IntegralType | TimestampType):
        number = F.unix_micros(value) if isinstance(type_, TimestampType) else value
        return F.struct((number < 0).alias("negative"), number.alias("rest"))
    return identity(value, type_)


def clustering_order(value: Column, column: ColumnShape) -> Column | None:
    """Return an expression for the clustering value *value* that Spark orders as CQL does; None if there is none."""
    if isinstance(column.type, DecimalType):
        return value
    match native(column.base.type).sorting:
        case "timeuuid":
            return timeuuid_order(value)
        case "uuid":  # by version, those of version 1 by time, others by bytes
            version = F.substring(value, 15, 1)
            return F.concat(version, F.when(version == "1", timeuuid_order(value)).otherwise(value))
        case "value":
            return identity(value, column.type)
    return None
