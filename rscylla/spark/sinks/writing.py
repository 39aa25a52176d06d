"""``df.write.format("scylla-cdc")``: the executors write a DataFrame to a base table.

Rows with the columns of the table are inserted; changes, which have ``cdc_operation``, are applied as ``ScyllaTable``
does. Changes carry their write times, and rows that of their job, so a task that Spark runs again, or gives up while it
still writes, does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StructType,
)

from ...base import RowWriter, Write
from ...cdc.log import Table
from ...clock import Clock, SystemClock
from ...errors import CannotReplicate, ConfigError
from ...types import Type, encoder_for, native
from ...types.arrow import arrow_type, check_levels
from ..pipeline.replay import tried
from ..source.optionnames import nearest
from ..source.shape import Shape
from .scylla import ChangesWriter, ExecutorWriter, sink_options

__all__ = ["RowsWriter", "ScyllaWriter", "writer_for"]


def writer_for(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> ScyllaWriter:
    """Return the writer of a DataFrame with *schema*. Queries the cluster; nothing is written.

    Raises:
        ConfigError: an option is wrong, *overwrite* is set, or the table has no place for the columns.
        CannotReplicate: the table cannot take these changes.
        TableNotFound: the table does not exist.
    """
    if overwrite:
        raise ConfigError(
            "format('scylla-cdc') does not overwrite tables; use mode('append'), which replaces rows of the same key, "
            "and TRUNCATE the table before if it must be empty"
        )
    if not options:
        raise ConfigError(
            "Spark passes no options to INSERT INTO or CREATE TABLE AS; use "
            "df.write.format('scylla-cdc').options(…).mode('append').save()"
        )
    parsed = sink_options(options)
    place = parsed.connection, parsed.keyspace, parsed.table
    if "cdc_operation" in schema.names:
        changes = ChangesWriter(*place, Shape.of_schema(schema))
        changes.check()
        return ScyllaWriter(changes)
    rows = RowsWriter(*place, tuple(schema.names), SystemClock().now_us())
    rows.check(schema)
    return ScyllaWriter(rows)


class ScyllaWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes the partitions of a DataFrame; what is written is visible at once, also if the job fails later."""

    def __init__(self, writer: ExecutorWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in self._writer.written(iterator):
            pass
        return WriterCommitMessage()


@attrs.frozen
class RowsWriter(ExecutorWriter):
    """Inserts rows with the columns *names*. A null is written, too: it deletes the value that was there.

    ``written_us`` is the write time of all of them, whichever task writes them, and however often.
    """

    names: tuple[str, ...]
    written_us: int

    def check(self, schema: StructType) -> None:
        """Check that the table can take rows of *schema*.

        Raises:
            ConfigError: a column of the key is missing, the table lacks a column, or has it with another type.
            TableNotFound: the table does not exist.
        """
        target = self.target()
        columns = {c.name: c for c in target.columns}
        table = target.full_name
        for name in self.names:
            if name not in columns:
                raise ConfigError(f"{table} has no column {name!r}; {nearest(name, list(columns), 'columns')}")
        missing = [c.name for c in target.columns if c.in_key and c.name not in self.names]
        if missing:
            raise ConfigError(f"the DataFrame lacks the key column {missing[0]!r} of {table}; add it")
        wanted = from_arrow_schema(self._arrow(target), prefer_timestamp_ntz=False)
        for field in schema.fields:
            want = wanted[field.name].dataType
            if not _fits(field.dataType, want, columns[field.name].type):
                raise ConfigError(
                    f"the column {field.name!r} is {field.dataType.simpleString()} in the DataFrame, but {table} "
                    f"({columns[field.name].type_text}) takes {_taken(want, columns[field.name].type)}; cast it"
                )

    def _arrow(self, target: Table) -> Any:
        types = {c.name: c.type for c in target.columns}
        fields = [(name, arrow_type(types[name])) for name in self.names]
        check_levels(fields, target.full_name)
        return pa.schema(fields)

    def writes_to(self, target: Table, clock: Clock) -> Callable[[Mapping[str, Any]], list[Write]]:
        types = {c.name: c.type for c in target.columns}
        encoders = [(name, encoder_for(types[name], arrow=True)) for name in self.names]
        keys = {c.name: c.type.kind for c in target.columns if c.in_key}
        table = target.full_name
        writer = RowWriter(target, self.names, self.written_us)

        def value(name: str, encode: Any, of: Any) -> bytes | None:
            if name in keys:
                _check_key(name, keys[name], of, table)
            if _holds_null(of, types[name]):
                hint = f", such as by array_compact({name})" if isinstance(of, list) and None in of else ""
                raise CannotReplicate(
                    f"a row for {table} has a null inside a collection of the column {name!r}, where CQL has none; "
                    f"remove it{hint}"
                )
            return None if of is None else tried(encode, name, of, table)

        return lambda row: writer.writes([value(name, encode, row[name]) for name, encode in encoders])


def _check_key(name: str, kind: str, value: Any, table: str) -> None:
    """Raise ``CannotReplicate`` if *value* cannot be in the key column *name*, or would be that of another row."""
    if value is None:
        raise CannotReplicate(f"a row for {table} has no value in the key column {name!r}; filter it")
    if kind == "timestamp" and value % 1000 and abs(value) < _ENDS_US:
        raise CannotReplicate(
            f"a row for {table} has microseconds in the key column {name!r}, which has milliseconds in CQL, so that "
            f"rows would become one; use date_trunc('MILLISECOND', {name})"
        )


def _holds_null(value: Any, type_: Type) -> bool:
    """Whether *value*, as pyarrow returns it, has a null for an element of a collection, however deep."""
    if value is None or not type_.args:
        return False
    match type_.kind:
        case "list" | "set" | "vector":
            [of] = type_.args
            return any(element is None or _holds_null(element, of) for element in value)
        case "map":
            return any(
                part is None or _holds_null(part, of)
                for pair in value
                for part, of in zip(pair, type_.args, strict=True)
            )
        case _:
            return any(_holds_null(part, of) for part, of in zip(value.values(), type_.args, strict=True))


_ENDS_US = 2**63 - 1
"""The ends of Spark's time stand for whatever lies beyond; see ``rscylla.types.arrow``."""


def _taken(want: DataType, type_: Type) -> str:
    """Return the name of *want*, with the decimals that also fit where the table has varints and decimals."""
    if native(type_).parts is not None:
        return f"{want.simpleString()} or decimal(p,{'0' if type_.kind == 'varint' else 's'})"
    if isinstance(want, ArrayType):
        return f"array<{_taken(want.elementType, type_.args[0])}>"
    if isinstance(want, MapType):
        of_key, of_item = type_.args
        return f"map<{_taken(want.keyType, of_key)},{_taken(want.valueType, of_item)}>"
    if isinstance(want, StructType) and len(want.fields) == len(type_.args):
        fields = zip(want.fields, type_.args, strict=True)
        return f"struct<{','.join(f'{field.name}:{_taken(field.dataType, part)}' for field, part in fields)}>"
    return str(want.simpleString())


def _fits(given: DataType, want: DataType, type_: Type) -> bool:
    """Whether values of the Spark type *given* can be written where the table takes *want*; integers are checked.

    *type_* is what the table has. Its varints and decimals can be text or decimals, also inside other types.
    """
    if isinstance(given, NullType) or given.simpleString() == want.simpleString():
        return True
    if isinstance(given, DecimalType):
        return native(type_).parts is not None and (type_.kind != "varint" or given.scale == 0)
    if isinstance(given, ArrayType) and isinstance(want, ArrayType):
        return _fits(given.elementType, want.elementType, type_.args[0])
    if isinstance(given, MapType) and isinstance(want, MapType):
        of_key, of_item = type_.args
        return _fits(given.keyType, want.keyType, of_key) and _fits(given.valueType, want.valueType, of_item)
    if isinstance(given, StructType) and isinstance(want, StructType):
        pairs = zip(given.fields, want.fields, type_.args, strict=False)
        return given.names == want.names and all(_fits(g.dataType, w.dataType, t) for g, w, t in pairs)
    if isinstance(given, IntegralType) and isinstance(want, IntegralType):
        return True
    return isinstance(given, FloatType) and isinstance(want, DoubleType)
