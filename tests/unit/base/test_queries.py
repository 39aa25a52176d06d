"""The statements that read base tables."""

from __future__ import annotations

from rscylla.base.queries import Selected, equal, select_by_key, select_range, token_of, with_times
from rscylla.cdc.log.table import BaseColumn, Table
from rscylla.types import Type

TABLE = Table(
    "shop",
    "Orders",
    (
        BaseColumn("id", "partition_key", 0, "int"),
        BaseColumn("Place", "partition_key", 1, "text"),
        BaseColumn("line", "clustering", 0, "int"),
        BaseColumn("amount", "regular", -1, "decimal"),
        BaseColumn("tags", "regular", -1, "set<text>"),
    ),
)


def test_columns_that_are_one_cell_are_read_with_their_write_time_and_ttl() -> None:
    selected = list(with_times(TABLE.columns))
    expected = ["id", '"Place"', "line", "amount", "writetime(amount)", "ttl(amount)", "tags"]
    assert [s.cql for s in selected] == expected
    assert [s.type for s in selected[3:6]] == [Type("decimal"), Type("bigint"), Type("int")]


def test_a_range_is_read_by_the_token_of_the_whole_partition_key() -> None:
    token = 'token(id, "Place")'
    assert token_of(TABLE) == token
    assert select_range(TABLE, [token, "line"]) == (
        f'SELECT {token}, line FROM shop."Orders" WHERE {token} > ? AND {token} <= ?'
    )


def test_rows_are_read_by_the_key_that_is_given() -> None:
    amount = Selected(TABLE.columns[3])
    assert select_by_key(TABLE, [amount.cql], TABLE.partition_key) == (
        'SELECT amount FROM shop."Orders" WHERE id = ? AND "Place" = ?'
    )
    assert equal(["line"]) == "line = ?"
