"""What becomes of the columns of a table when a type of the base table gets a field, or a field gets another name.

Fields of a type keep their places, and new ones come last, so fields are matched by their places.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from ...errors import ConfigError
from .cells import quoted

__all__ = ["Added", "Renamed", "evolutions", "evolved"]


@attrs.frozen
class Added:
    """A field that a type got: its path in SQL, and its type. ``in_key``: within the key of a map."""

    path: str
    type: DataType
    in_key: bool


@attrs.frozen
class Renamed:
    """A field that got another name: its path in SQL as it was, and the new name. ``in_key``: as for ``Added``."""

    path: str
    name: str
    in_key: bool


def evolutions(column: str, known: DataType, wanted: DataType, table: str) -> list[Added | Renamed]:
    """Return what makes the type *known* of a column *wanted*; inner fields before those that contain them.

    Args:
        table: the name of the table, for errors.

    Raises:
        ConfigError: the types differ in another way.
    """

    def within(at: str, known: DataType, wanted: DataType, *, in_key: bool) -> Iterator[Added | Renamed]:
        if isinstance(known, StructType) and isinstance(wanted, StructType) and len(known) <= len(wanted):
            for old, new in zip(known.fields, wanted.fields, strict=False):
                yield from within(f"{at}.{quoted(old.name)}", old.dataType, new.dataType, in_key=in_key)
            pairs = [(old.name, new.name) for old, new in zip(known.fields, wanted.fields, strict=False)]
            yield from _renamed(at, [pair for pair in pairs if pair[0] != pair[1]], set(known.names), in_key=in_key)
            for new in wanted.fields[len(known) :]:
                yield Added(f"{at}.{quoted(new.name)}", new.dataType, in_key)
        elif isinstance(known, ArrayType) and isinstance(wanted, ArrayType):
            yield from within(f"{at}.element", known.elementType, wanted.elementType, in_key=in_key)
        elif isinstance(known, MapType) and isinstance(wanted, MapType):
            yield from within(f"{at}.key", known.keyType, wanted.keyType, in_key=True)
            yield from within(f"{at}.value", known.valueType, wanted.valueType, in_key=in_key)
        elif known.simpleString() != wanted.simpleString():
            numbers = isinstance(known, DecimalType) or isinstance(wanted, DecimalType)
            cause = "set the options decimalAs and varintAs as they were before, or " if numbers else ""
            raise ConfigError(
                f"the column {column!r} of the table {table} has values of the type {known.simpleString()}, and not "
                f"{wanted.simpleString()}; {cause}check that it belongs to the same base table, or create it again"
            )

    return list(within(quoted(column), known, wanted, in_key=False))


def _renamed(at: str, pairs: list[tuple[str, str]], names: set[str], *, in_key: bool) -> Iterator[Renamed]:
    """Yield the renames of *pairs* in the struct *at* with fields *names*; by way of others if names change places."""
    if names & {new for _, new in pairs}:
        between = [f"cdc$renamed_{n}" for n in range(len(pairs))]
        yield from (Renamed(f"{at}.{quoted(old)}", new, in_key) for (old, _), new in zip(pairs, between, strict=True))
        pairs = [(old, new) for old, (_, new) in zip(between, pairs, strict=True)]
    yield from (Renamed(f"{at}.{quoted(old)}", new, in_key) for old, new in pairs)


def evolved(value: Column, known: DataType, wanted: DataType) -> Column:
    """Return *value*, of the type *known*, as *wanted*, which ``evolutions`` can make of it; new fields are null."""
    if known.simpleString() == wanted.simpleString():
        return value
    if isinstance(known, StructType) and isinstance(wanted, StructType):
        fields = [
            evolved(value.getField(old.name), old.dataType, new.dataType).alias(new.name)
            for old, new in zip(known.fields, wanted.fields, strict=False)
        ]
        fields += [F.lit(None).cast(new.dataType).alias(new.name) for new in wanted.fields[len(known) :]]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(known, ArrayType) and isinstance(wanted, ArrayType):
        old_item, new_item = known.elementType, wanted.elementType
        return F.transform(value, lambda e: evolved(e, old_item, new_item))
    if isinstance(known, MapType) and isinstance(wanted, MapType):
        old_value, new_value, old_key, new_key = known.valueType, wanted.valueType, known.keyType, wanted.keyType
        found = F.transform_values(value, lambda _, v: evolved(v, old_value, new_value))
        if old_key.simpleString() == new_key.simpleString():
            return found
        return F.transform_keys(found, lambda k, _: evolved(k, old_key, new_key))
    return value.cast(wanted)
