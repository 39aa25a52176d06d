"""What is read of a base table, as CQL: cells with their write times and TTLs, by token range or by key. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs

from ..cdc.log import BaseColumn, Table
from ..types import Type, quote_name

__all__ = ["Selected", "equal", "select_by_key", "select_range", "token_of", "with_times"]

_TIMES = {"writetime": Type("bigint"), "ttl": Type("int")}


@attrs.frozen
class Selected:
    """A column in a SELECT: its value, its write time in microseconds, or its remaining TTL in seconds."""

    column: BaseColumn
    what: Literal["value", "writetime", "ttl"] = "value"

    @property
    def cql(self) -> str:
        name = quote_name(self.column.name)
        return name if self.what == "value" else f"{self.what}({name})"

    @property
    def type(self) -> Type:
        return _TIMES.get(self.what, self.column.type)


def with_times(columns: Iterable[BaseColumn]) -> Iterable[Selected]:
    """Yield *columns*, and after each that is one cell its write time and TTL. Others have more than one of each."""
    for column in columns:
        yield Selected(column)
        if column.has_cell:
            yield Selected(column, "writetime")
            yield Selected(column, "ttl")


def token_of(table: Table) -> str:
    """Return the expression for the token of a row."""
    return f"token({', '.join(quote_name(c.name) for c in table.partition_key)})"


def select_range(table: Table, expressions: Iterable[str]) -> str:
    """Return the text that reads the rows of a range of tokens; its values are the ends of a ``TokenRange``."""
    token = token_of(table)
    return f"SELECT {', '.join(expressions)} FROM {table.full_name} WHERE {token} > ? AND {token} <= ?"


def select_by_key(table: Table, expressions: Iterable[str], key: Iterable[BaseColumn]) -> str:
    """Return the text that reads the rows whose *key* columns have the bound values."""
    return f"SELECT {', '.join(expressions)} FROM {table.full_name} WHERE {equal(c.name for c in key)}"


def equal(names: Iterable[str]) -> str:
    """Return the condition that each of the named columns has the bound value."""
    return " AND ".join(f"{quote_name(name)} = ?" for name in names)
