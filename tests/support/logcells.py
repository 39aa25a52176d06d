"""Rows of the log of a table with columns of every kind, as cells: for tests of records, changes and decoders."""

from __future__ import annotations

import uuid
from typing import Any

from cassandra.cqltypes import Int32Type, UserType, UTF8Type
from fakelog import columns_of, integer, log_time, stream_id, type_of

from rscylla.cdc.log.table import BaseColumn, LoggedTable
from rscylla.cdc.rows import Layout
from rscylla.driver import pages
from rscylla.driver.pages import Column

T = 1_700_000_000_123_456
MARSHAL = "org.apache.cassandra.db.marshal."
END = {"cdc$end_of_batch": b"\x01"}

BASE = (
    ("pk", "partition_key", "int"),
    ("ck", "clustering", "int"),
    ("v", "regular", "int"),
    ("w", "regular", "text"),
    ("s", "static", "int"),
    ("tags", "regular", "set<int>"),
    ("notes", "regular", "map<int, int>"),
    ("steps", "regular", "list<int>"),
)
TYPES = {
    "set<int>": MARSHAL + f"SetType({MARSHAL}Int32Type)",
    "elements:set<int>": MARSHAL + f"SetType({MARSHAL}Int32Type)",
    "map<int, int>": MARSHAL + f"MapType({MARSHAL}Int32Type,{MARSHAL}Int32Type)",
    "elements:map<int, int>": MARSHAL + f"SetType({MARSHAL}Int32Type)",
    "list<int>": MARSHAL + f"MapType({MARSHAL}TimeUUIDType,{MARSHAL}Int32Type)",
    "elements:list<int>": MARSHAL + f"SetType({MARSHAL}TimeUUIDType)",
    "frozen<map<timestamp, int>>": MARSHAL + f"FrozenType({MARSHAL}MapType({MARSHAL}TimestampType,{MARSHAL}Int32Type))",
}
UDT = UserType.make_udt_class("ks", "person", ("name", "age"), (UTF8Type, Int32Type))


def columns(base: Any = BASE) -> tuple[Column, ...]:
    shorts = f"{MARSHAL}SetType({MARSHAL}ShortType)"
    own = [Column("u", pages.type_of(UDT)), Column("cdc$deleted_u", type_of("boolean"))]
    return (*columns_of(base, TYPES), *own, Column("cdc$deleted_elements_u", type_of(shorts)))


def layout_of(base: Any = BASE) -> Layout:
    info = tuple(
        BaseColumn(n, kind, at, text) for at, (n, kind, text) in enumerate((*base, ("u", "regular", "person")))
    )
    return Layout.of(columns(base), LoggedTable("ks", "t", info, uuid.UUID(int=1)))


LAYOUT = layout_of()


def cells(values: dict[str, Any], of: tuple[Column, ...]) -> list[bytes | None]:
    own = {"cdc$stream_id": stream_id(5), "cdc$time": log_time(T, 7), "pk": 1, **values}
    own.setdefault("cdc$operation", bytes((values.get("op", 1) & 0xFF,)))
    own |= {f"cdc$deleted_{n}": b"\x01" for n in values.get("gone", ())}
    return [integer(v) if isinstance(v, int) else v for v in (own.get(c.name) for c in of)]


def packed(*parts: bytes, count: int | None = None) -> bytes:
    """Return a collection of elements."""
    body = b"".join(len(p).to_bytes(4, "big") + p for p in parts)
    return (len(parts) if count is None else count).to_bytes(4, "big") + body


def ints(*values: int, count: int | None = None) -> bytes:
    return packed(*(v.to_bytes(4, "big") for v in values), count=count)


def person(name: str | None, age: int | None) -> bytes:
    raw = [None if name is None else name.encode(), integer(age)]
    return b"".join(b"\xff" * 4 if r is None else len(r).to_bytes(4, "big") + r for r in raw)
