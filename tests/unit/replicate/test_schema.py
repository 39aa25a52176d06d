"""The table that is created for a copy, and the error for a missing target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rscylla.cdc.log.table import BaseColumn, Table, type_named
from rscylla.driver.session import ReadSession
from rscylla.errors import CannotReplicate, TableNotFound
from rscylla.replicate.schema import check_target, create_target

TYPES: dict[str, list[tuple[str, str]]] = {
    "Inner": [("X", "int")],
    "outer": [("inner", 'frozen<"Inner">'), ("y", "text")],
    "other": [("z", "int")],
}


class Log(ReadSession):
    """A session on a cluster whose keyspace has some types; it keeps what is executed."""

    def __init__(self, types: dict[str, list[tuple[str, str]]] | None = None) -> None:
        self.types = types or {}
        self.executed: list[str] = []

    def rows(self, cql: str, values: Any = (), **_: Any) -> list[tuple[Any, ...]]:
        if "system_schema.types" not in cql:
            assert not values
            self.executed.append(cql)
            return []
        assert tuple(values) == ("Shop",), "types belong to the keyspace of the source"
        self.executed.append("types")
        return [(name, [f for f, _ in fields], [t for _, t in fields]) for name, fields in self.types.items()]


def column(name: str, kind: str, position: int, text: str, *, descending: bool = False) -> BaseColumn:
    return BaseColumn(name, kind, position, text, descending, type_named(text, TYPES))


def created(columns: Sequence[BaseColumn], types: dict[str, list[tuple[str, str]]] | None = None) -> list[str]:
    source, target = Log(types), Log()
    create_target(source, Table("Shop", "orders", tuple(columns)), target, "Copy", "Of orders")
    assert source.executed == ["types"] * bool(types), "nothing is created at the source"
    return target.executed


def test_a_table_is_created_with_its_key_its_order_and_its_static_columns() -> None:
    columns = [
        column("Id", "partition_key", 0, "int"),
        column("day", "partition_key", 1, "date"),
        column("At", "clustering", 0, "timestamp", descending=True),
        column("line", "clustering", 1, "int"),
        column("Seen", "static", -1, "set<int>"),
        column("amount", "regular", -1, "decimal"),
    ]
    [cql] = created(columns)
    assert cql == (
        'CREATE TABLE IF NOT EXISTS "Copy"."Of orders" ("Id" int, day date, "At" timestamp, line int, '
        '"Seen" set<int> STATIC, amount decimal, PRIMARY KEY (("Id", day), "At", line)) '
        'WITH CLUSTERING ORDER BY ("At" DESC, line ASC)'
    )


def test_a_table_without_clustering_key_has_no_clustering_order() -> None:
    assert created([column("pk", "partition_key", 0, "int"), column("v", "regular", -1, "int")]) == [
        'CREATE TABLE IF NOT EXISTS "Copy"."Of orders" (pk int, v int, PRIMARY KEY ((pk)))'
    ]


def test_types_are_created_before_those_that_contain_them_and_only_where_they_are_needed() -> None:
    columns = [column("pk", "partition_key", 0, "int"), column("v", "regular", -1, "list<frozen<outer>>")]
    assert created(columns, TYPES) == [
        'CREATE TYPE IF NOT EXISTS "Copy"."Inner" ("X" int)',
        'CREATE TYPE IF NOT EXISTS "Copy".outer (inner frozen<"Inner">, y text)',
        'CREATE TABLE IF NOT EXISTS "Copy"."Of orders" (pk int, v list<frozen<outer>>, PRIMARY KEY ((pk)))',
    ]


def test_a_target_is_checked_by_its_columns() -> None:
    pk, v = column("pk", "partition_key", 0, "int"), column("v", "regular", -1, "int")
    source, target = Table("shop", "orders", (pk, v)), Table("copy", "orders", (pk, v))
    assert check_target(source, target, names=("copy", "orders")) is target
    with pytest.raises(CannotReplicate, match=r"copy\.orders lacks the column 'v'"):
        check_target(source, Table("copy", "orders", (pk,)), names=("copy", "orders"))
    with pytest.raises(TableNotFound, match=r'the target table copy\."Of orders" does not exist'):
        check_target(source, None, names=("copy", "Of orders"))
