"""What the cluster tells of base tables."""

from __future__ import annotations

from typing import Any

from rscylla.base.tables import dropped_columns


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
