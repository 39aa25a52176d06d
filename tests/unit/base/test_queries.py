"""The statements that read base tables."""

from __future__ import annotations

import pytest

from rscylla.base.queries import Selected, equal, select_by_key, select_range, token_of, token_range, with_times
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


@pytest.mark.parametrize("ranges", [1, 2, 3, 7, 64, 1000])
def test_token_ranges_cover_the_ring_without_overlap(ranges: int) -> None:
    found = [token_range(number, ranges) for number in range(ranges)]
    assert (found[0][0], found[-1][1]) == (-(2**63), 2**63 - 1)
    assert all(low < high for low, high in found)
    assert [high for _, high in found[:-1]] == [low for low, _ in found[1:]]


def test_token_ranges_are_of_equal_size() -> None:
    sizes = {high - low for low, high in (token_range(number, 3) for number in range(3))}
    assert max(sizes) - min(sizes) <= 1
