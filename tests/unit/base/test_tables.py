"""What the cluster tells of base tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fakelog import type_of

from rscylla.base.tables import dropped_columns, read_columns


class Session:
    """Has one answer."""

    def __init__(self, *rows: tuple[Any, ...]) -> None:
        self._rows = list(rows)

    def rows(self, cql: str, values: Any, *, doing: str) -> list[tuple[Any, ...]]:
        assert "FROM system_schema.dropped_columns" in cql
        assert (values, doing) == (("ks", "t"), "looking up columns of ks.t")
        return self._rows


def test_a_column_was_dropped_by_the_end_of_the_millisecond_that_is_told_or_when_scylla_says_in_microseconds() -> None:
    session = Session(("a", 1_763_719_200_000), ("b", 1_763_719_200_000_123))
    assert dropped_columns(session, "ks", "t") == {  # type: ignore[arg-type]
        "a": 1_763_719_200_000_999,
        "b": 1_763_719_200_000_123,
    }


class Schema:
    """Has the columns of a table, in no order."""

    def __init__(self, *columns: tuple[str, str, int, str, str]) -> None:
        self._columns = list(columns)

    def rows(self, cql: str, values: Any, *, doing: str) -> list[tuple[Any, ...]]:
        assert "FROM system_schema.columns" in cql
        assert values == ("ks", "t")
        return self._columns

    def prepare(self, cql: str, *, page_size: int, doing: str) -> Any:
        return SimpleNamespace(columns=[SimpleNamespace(name=c[0], type=type_of(c[3])) for c in self._columns])


def test_key_columns_come_first_and_in_their_order_whatever_their_names() -> None:
    table = read_columns(
        Schema(  # type: ignore[arg-type]
            ("v", "regular", -1, "int", "none"),
            ("a", "clustering", 1, "int", "desc"),
            ("b", "clustering", 0, "int", "asc"),
            ("s", "static", -1, "int", "none"),
            ("m", "partition_key", 1, "int", "none"),
            ("n", "partition_key", 0, "int", "none"),
        ),
        "ks",
        "t",
    )
    assert table is not None
    assert [c.name for c in table.columns] == ["n", "m", "b", "a", "s", "v"]
    assert [c.name for c in table.key] == ["n", "m", "b", "a"]
    assert [c.name for c in table.columns if c.descending] == ["a"]


def test_a_table_that_is_not_there_is_none() -> None:
    assert read_columns(Schema(), "ks", "t") is None  # type: ignore[arg-type]
