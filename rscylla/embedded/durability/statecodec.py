"""Schema and mutations as plain tuples, lists and dicts, which is how a data directory keeps them, and back again.

The plain form is pickled with nothing but built-in values in it, and read by an unpickler that refuses all else: a
data directory from elsewhere cannot run code.
"""

from __future__ import annotations

import io
import pickle
import uuid
from typing import Any, NoReturn

import attrs

from ..schema.tables import CdcOptions, Column, Keyspace, TableSchema
from ..storage.mutation import Bound, PartitionMutation, RangeTombstone
from ..storage.rowpacking import row_of, row_state
from ..types import NATIVE_TYPES, CqlType, ListType, MapType, NativeType, SetType, TupleType, UdtType, VectorType

__all__ = [
    "keyspace_of",
    "keyspace_state",
    "mutation_of",
    "mutation_state",
    "pack",
    "table_of",
    "table_state",
    "type_of",
    "type_state",
    "unpack",
]

State = Any  # plain values: None, bool, int, float, str, bytes and tuples, lists, dicts of them

_PROTOCOL = 5


def pack(state: State) -> bytes:
    """Return plain values as bytes."""
    return pickle.dumps(state, _PROTOCOL)


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"a record names {module}.{name}, but may hold built-in values only")


def unpack(data: bytes) -> State:
    """Return what ``pack`` was given. Raises ``pickle.UnpicklingError`` for anything but plain values."""
    return _Plain(io.BytesIO(data)).load()


# ---------------------------------------------------------------- types


def type_state(cql_type: CqlType) -> State:
    """Return a type with all that it is made of: user-defined types too, which may be dropped or altered later."""
    match cql_type:
        case NativeType():
            return cql_type.name
        case ListType(element, frozen):
            return ("list", type_state(element), frozen)
        case SetType(element, frozen):
            return ("set", type_state(element), frozen)
        case MapType(key, value, frozen):
            return ("map", type_state(key), type_state(value), frozen)
        case TupleType(items):
            return ("tuple", [type_state(item) for item in items])
        case UdtType(keyspace, name, names, types, frozen):
            return ("udt", keyspace, name, names, [type_state(item) for item in types], frozen)
        case VectorType(element, dimension):
            return ("vector", type_state(element), dimension)
        case _:
            raise TypeError(f"the type {cql_type.name} has no form for a data directory")


def type_of(state: State) -> CqlType:
    """Return the type that ``type_state`` was given."""
    match state:
        case str():
            return NATIVE_TYPES[state]
        case ("list", element, frozen):
            return ListType(type_of(element), frozen)
        case ("set", element, frozen):
            return SetType(type_of(element), frozen)
        case ("map", key, value, frozen):
            return MapType(type_of(key), type_of(value), frozen)
        case ("tuple", items):
            return TupleType(tuple(type_of(item) for item in items))
        case ("udt", keyspace, name, names, types, frozen):
            return UdtType(keyspace, name, names, tuple(type_of(item) for item in types), frozen)
        case ("vector", element, dimension):
            return VectorType(type_of(element), dimension)
        case _:
            raise ValueError(f"a data directory holds a type of an unknown kind: {state!r:.80}")


# ---------------------------------------------------------------- schema


def _fields(value: attrs.AttrsInstance) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in attrs.fields(type(value)) if field.init}


def keyspace_state(keyspace: Keyspace) -> State:
    """Return a keyspace without its tables and types."""
    return {name: value for name, value in _fields(keyspace).items() if name not in ("tables", "types")}


def keyspace_of(state: State) -> Keyspace:
    """Return the keyspace that ``keyspace_state`` was given, with no tables and types in it."""
    return Keyspace(**state)


def table_state(table: TableSchema) -> State:
    """Return a table's definition."""
    return _fields(table) | {
        "id": table.id.bytes,
        "version": table.version.bytes,
        "columns": [_fields(column) | {"type": type_state(column.type)} for column in table.columns],
        "cdc": None if table.cdc is None else _fields(table.cdc),
        "dropped": {name: (type_state(kind), when) for name, (kind, when) in table.dropped.items()},
    }


def table_of(state: State) -> TableSchema:
    """Return the table that ``table_state`` was given."""
    columns = tuple(Column(**(column | {"type": type_of(column["type"])})) for column in state["columns"])
    return TableSchema(
        **state
        | {
            "id": uuid.UUID(bytes=state["id"]),
            "version": uuid.UUID(bytes=state["version"]),
            "columns": columns,
            "cdc": None if state["cdc"] is None else CdcOptions(**state["cdc"]),
            "dropped": {name: (type_of(kind), when) for name, (kind, when) in state["dropped"].items()},
        }
    )


# ---------------------------------------------------------------- mutations


def _range_state(deleted: RangeTombstone) -> State:
    start, end = deleted.start, deleted.end
    return (start.prefix, start.inclusive, end.prefix, end.inclusive, deleted.timestamp)


def mutation_state(mutation: PartitionMutation) -> State:
    """Return a mutation; its table by keyspace and name, at the first two places."""
    return (
        mutation.table.keyspace,
        mutation.table.name,
        mutation.key,
        mutation.partition_tombstone,
        None if mutation.static_row is None else row_state(mutation.static_row),
        {key: row_state(row) for key, row in mutation.rows.items()},
        [_range_state(deleted) for deleted in mutation.range_tombstones],
    )


def mutation_of(state: State, table: TableSchema) -> PartitionMutation:
    """Return the mutation that ``mutation_state`` was given, for ``table`` as it was then."""
    _, _, key, tombstone, static, rows, ranges = state
    return PartitionMutation(
        table,
        key,
        tombstone,
        None if static is None else row_of(static),
        {clustering: row_of(row) for clustering, row in rows.items()},
        [
            RangeTombstone(Bound(start, starts_in), Bound(end, ends_in), when)
            for start, starts_in, end, ends_in, when in ranges
        ],
    )
