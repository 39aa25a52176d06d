"""SELECT: which rows, in which order, in which pages, with which functions; and what is refused."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import pytest
from enginebox import EngineBox
from hypothesis import given, settings
from hypothesis import strategies as st

from rscylla.embedded.errors import InvalidRequest, ProtocolError, ServerError
from rscylla.embedded.result import UNSET, QueryParams, RowsResult
from rscylla.embedded.storage.tokens import murmur3_token

ROWS = [(pk, c1, c2) for pk in range(5) for c1 in range(3) for c2 in range(3)]


def by_token(pks: Any) -> list[int]:
    return sorted(set(pks), key=lambda pk: murmur3_token(pk.to_bytes(4, "big")))


@pytest.fixture(scope="module")
def box() -> EngineBox:
    made = EngineBox()
    made.run(
        "CREATE TABLE t (pk int, c1 int, c2 int, s int static, v int, w text, PRIMARY KEY (pk, c1, c2))"
        " WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC)"
    )
    made.run("CREATE TABLE two (a int, b int, v int, PRIMARY KEY ((a, b)))")
    for pk, c1, c2 in ROWS:
        made.run(
            "INSERT INTO t (pk, c1, c2, v, w) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP 1000",
            [pk, c1, c2, 100 * pk + 10 * c1 + c2, f"w{c1}"],
        )
    made.run("UPDATE t USING TIMESTAMP 1000 SET s = 4 WHERE pk = 4")
    made.run("INSERT INTO t (pk, s) VALUES (9, 9)")
    for a, b in itertools.product(range(3), range(3)):
        made.run("INSERT INTO two (a, b, v) VALUES (?, ?, ?)", [a, b, 10 * a + b])
    return made


# ---------------------------------------------------------------- which rows


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        # IN of exactly one value is =.
        ("pk IN (0) ORDER BY c1 DESC", [20, 21, 22, 10, 11, 12, 0, 1, 2]),
        ("pk IN (0) AND c1 IN (1) ORDER BY c2 ASC", [10, 11, 12]),
        ("pk = 0 AND (c1, c2) IN ((1, 2)) ORDER BY c2 ASC", [12]),
        ("pk = 0 AND c1 IN (null)", []),
        ("pk = 0", [2, 1, 0, 12, 11, 10, 22, 21, 20]),
        ("pk = 0 ORDER BY c1 DESC", [20, 21, 22, 10, 11, 12, 0, 1, 2]),
        ("pk = 0 ORDER BY c1 ASC, c2 DESC", [2, 1, 0, 12, 11, 10, 22, 21, 20]),
        ("pk = 0 AND c1 = 1", [12, 11, 10]),
        ("pk = 0 AND c1 = 1 ORDER BY c1 DESC, c2 ASC", [10, 11, 12]),
        ("pk = 0 AND c1 = 1 AND c2 = 2", [12]),
        ("pk = 0 AND c1 = 1 AND c2 > 0", [12, 11]),
        ("pk = 0 AND c1 = 1 AND c2 >= 0 AND c2 < 2", [11, 10]),
        ("pk = 0 AND c1 > 1", [22, 21, 20]),
        ("pk = 0 AND c1 >= 1 AND c1 < 2", [12, 11, 10]),
        ("pk = 0 AND c1 IN (2, 0) AND c2 = 1", [1, 21]),
        ("pk = 0 AND c1 = 0 AND c2 IN (0, 2, 7)", [2, 0]),
        ("pk = 0 AND c1 IN ()", []),
        ("pk = 0 AND (c1, c2) = (1, 1)", [11]),
        ("pk = 0 AND (c1, c2) IN ((2, 2), (0, 0))", [0, 22]),
        ("pk = 0 AND (c1, c2) > (1, 1)", [12, 22, 21, 20]),
        ("pk = 0 AND (c1, c2) >= (1, 1) AND (c1, c2) < (2, 1)", [12, 11, 20]),
        ("pk = 0 AND (c1) > (1)", [22, 21, 20]),
        ("pk = 0 LIMIT 2", [2, 1]),
        ("pk = 7", []),
        ("pk = null", []),
        ("pk = 0 AND c1 = 1 AND c2 = 2 AND v = 12 ALLOW FILTERING", [12]),
        ("pk = 0 AND v > 20 ALLOW FILTERING", [22, 21]),
        ("pk = 0 AND c2 = 1 ALLOW FILTERING", [1, 11, 21]),
        ("pk = 0 AND w = 'w1' AND c2 > 0 ALLOW FILTERING", [12, 11]),
        ("pk = 0 AND v IN (1, 22) ALLOW FILTERING", [1, 22]),
        ("pk = 0 BYPASS CACHE", [2, 1, 0, 12, 11, 10, 22, 21, 20]),
        ("pk = 0 AND c1 = 1 USING TIMEOUT 5s", [12, 11, 10]),
    ],
)
def test_rows_of_one_partition(box: EngineBox, where: str, expected: list[int]) -> None:
    assert box.column(f"SELECT v FROM t WHERE {where}") == expected


def test_partitions_come_in_token_order(box: EngineBox) -> None:
    everything = box.column("SELECT pk FROM t WHERE c1 = 0 AND c2 = 0 ALLOW FILTERING")
    assert everything == by_token(range(5))
    assert box.column("SELECT DISTINCT pk FROM t") == by_token([*range(5), 9])
    assert box.column("SELECT DISTINCT pk FROM t WHERE pk IN (3, 1, 2, 3)") == by_token([1, 2, 3])


def test_token_ranges(box: EngineBox) -> None:
    order = by_token([*range(5), 9])
    tokens = [murmur3_token(pk.to_bytes(4, "big")) for pk in order]
    query = "SELECT DISTINCT pk FROM t WHERE token(pk) > ? AND token(pk) <= ?"
    assert box.column(query, [tokens[0], tokens[3]]) == order[1:4]
    assert box.column("SELECT DISTINCT pk FROM t WHERE token(pk) >= token(?)", [order[2]]) == order[2:]
    assert box.column("SELECT DISTINCT pk FROM t WHERE token(pk) = ?", [tokens[4]]) == [order[4]]
    assert box.column(query, [tokens[3], tokens[1]]) == []
    assert box.column("SELECT DISTINCT token(pk) FROM t WHERE pk = ?", [order[1]]) == [tokens[1]]


def test_composite_partition_keys(box: EngineBox) -> None:
    assert box.column("SELECT v FROM two WHERE a = 1 AND b = 2") == [12]
    assert sorted(box.column("SELECT v FROM two WHERE a IN (0, 1) AND b IN (1, 2)")) == [1, 2, 11, 12]
    assert sorted(box.column("SELECT v FROM two WHERE a = 1 ALLOW FILTERING")) == [10, 11, 12]
    assert sorted(box.column("SELECT v FROM two WHERE b > 1 ALLOW FILTERING")) == [2, 12, 22]
    token = box.column("SELECT token(a, b) FROM two WHERE a = 1 AND b = 2")[0]
    assert box.column("SELECT v FROM two WHERE token(a, b) = ?", [token]) == [12]


def test_a_partition_with_only_static_values_gives_one_row(box: EngineBox) -> None:
    assert box.rows("SELECT pk, c1, s, v FROM t WHERE pk = 9") == [{"pk": 9, "c1": None, "s": 9, "v": None}]
    assert box.rows("SELECT pk FROM t WHERE pk = 9 AND c1 = 0") == []
    assert box.row("SELECT count(*) FROM t WHERE pk = 9") == {"count": 1}


def test_in_with_order_by_merges_partitions(box: EngineBox) -> None:
    query = "SELECT v FROM t WHERE pk IN (0, 1) AND c1 IN (0, 2) AND c2 = 0 ORDER BY c1 DESC"
    assert sorted(box.column(query)[:2]) == [20, 120]
    with pytest.raises(InvalidRequest, match="Cannot page queries with both ORDER BY and a IN restriction"):
        box.run(query, page_size=10)


def test_per_partition_limit(box: EngineBox) -> None:
    assert box.column("SELECT v FROM t WHERE pk IN (0, 1) PER PARTITION LIMIT ?", [2]) == [
        100 * pk + c2 for pk in (0, 1) for c2 in (2, 1)
    ]
    assert len(box.rows("SELECT v FROM t PER PARTITION LIMIT 4 LIMIT 6")) == 6


# ---------------------------------------------------------------- what is computed


def test_aggregates(box: EngineBox) -> None:
    row = box.row("SELECT count(*), count(s), min(v), max(c2), sum(v), avg(v), min(w) FROM t WHERE pk = 1")
    assert list(row.values()) == [9, 0, 100, 2, 999, 111, "w0"]
    assert box.row("SELECT count(*), max(v) FROM t WHERE pk = 77") == {"count": 0, "system.max(v)": None}
    assert box.column("SELECT count(1) FROM t") == [len(ROWS) + 1]


def test_sums_pass_over_empty_values(box: EngineBox) -> None:
    box.run("CREATE TABLE n (pk int, ck int, v int, PRIMARY KEY (pk, ck))")
    box.run("INSERT INTO n (pk, ck, v) VALUES (1, 1, blobAsInt(0x))")
    assert list(box.row("SELECT sum(v), avg(v), count(v) FROM n").values()) == [0, 0, 1]
    box.run("INSERT INTO n (pk, ck, v) VALUES (1, 2, 7)")
    assert list(box.row("SELECT sum(v), avg(v), count(v) FROM n").values()) == [7, 7, 2]


def test_decimals_are_summed_exactly(box: EngineBox) -> None:
    box.run("CREATE TABLE d (pk int, ck int, v decimal, PRIMARY KEY (pk, ck))")
    long = "123456789012345678901234567890.25"
    for ck, v in enumerate([long, "0.05", "-0.01"]):
        box.run(f"INSERT INTO d (pk, ck, v) VALUES (1, {ck}, {v})")
    assert box.column("SELECT sum(v) FROM d") == [Decimal("123456789012345678901234567890.29")]
    # The mean keeps the scale of the sum: 25 / 2 is 12, and 35 / 2 is 18.
    for first, mean in [("0.20", "0.12"), ("0.30", "0.18"), ("-0.40", "-0.18")]:
        box.run("DELETE FROM d WHERE pk = 1")
        box.run(f"BEGIN BATCH INSERT INTO d (pk, ck, v) VALUES (1, 1, {first});"
                " INSERT INTO d (pk, ck, v) VALUES (1, 2, 0.05); APPLY BATCH")  # fmt: skip
        assert [str(v) for v in box.column("SELECT avg(v) FROM d")] == [mean]
    box.run("INSERT INTO d (pk, ck, v) VALUES (1, 3, 1e1000000000)")
    with pytest.raises(InvalidRequest, match="more than 10000 digits"):
        box.run("SELECT sum(v) FROM d")


@pytest.mark.parametrize(
    ("cql_type", "values"),
    [
        ("int", ["2", "1", "-1", "blobAsInt(0x)"]),
        ("varint", ["2", "-9", "blobAsVarint(0x)"]),
        ("double", ["NaN", "Infinity", "1.5", "0.0", "-0.0", "-Infinity", "blobAsDouble(0x)"]),
        ("decimal", ["1.5", "-7", "blobAsDecimal(0x)"]),
        ("boolean", ["true", "false", "blobAsBoolean(0x)"]),
    ],
)
def test_empty_values_and_nan_in_descending_order(box: EngineBox, cql_type: str, values: list[str]) -> None:
    box.run(
        f"CREATE TABLE k_{cql_type} (pk int, ck {cql_type}, v int, PRIMARY KEY (pk, ck))"
        " WITH CLUSTERING ORDER BY (ck DESC)"
    )
    for v, value in enumerate(values):
        box.run(f"INSERT INTO k_{cql_type} (pk, ck, v) VALUES (1, {value}, {v})")
    assert box.column(f"SELECT v FROM k_{cql_type} WHERE pk = 1") == list(range(len(values)))
    assert box.column(f"SELECT v FROM k_{cql_type} WHERE pk = 1 ORDER BY ck ASC") == list(reversed(range(len(values))))
    box.run(f"DELETE FROM k_{cql_type} WHERE pk = 1 AND ck < {values[0]}")
    assert box.column(f"SELECT v FROM k_{cql_type}") == [0]


def test_group_by(box: EngineBox) -> None:
    assert box.rows("SELECT c1, count(*) AS n, max(v) AS top FROM t WHERE pk = 0 GROUP BY c1") == [
        {"c1": c1, "n": 3, "top": 10 * c1 + 2} for c1 in range(3)
    ]
    assert box.column("SELECT pk FROM t WHERE pk IN (1, 2) GROUP BY pk") == by_token([1, 2])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT pk, c1, v FROM t WHERE pk IN (1, 0) GROUP BY pk, c1 PER PARTITION LIMIT 2",
            [(0, 0, 2), (0, 1, 12), (1, 0, 102), (1, 1, 112)],
        ),
        (
            "SELECT pk, c1, max(v) FROM t WHERE pk IN (1, 0) GROUP BY pk, c1 PER PARTITION LIMIT 2 LIMIT 3",
            [(0, 0, 2), (0, 1, 12), (1, 0, 102)],
        ),
        ("SELECT c1, count(*) FROM t WHERE pk = 0 GROUP BY c1 PER PARTITION LIMIT 1", [(0, 3)]),
        ("SELECT c2, v FROM t WHERE pk = 0 AND c1 = 1 GROUP BY c2", [(2, 12), (1, 11), (0, 10)]),
        ("SELECT DISTINCT pk, s FROM t WHERE pk IN (4, 3) GROUP BY pk", [(3, None), (4, 4)]),
        ("SELECT v, c2 FROM t WHERE pk = 0 AND c1 = 1 ORDER BY c2 ASC", [(10, 0), (11, 1), (12, 2)]),
        ("SELECT v, c2 FROM t WHERE pk = 0 AND (c1) = (1) ORDER BY c2 DESC", [(12, 2), (11, 1), (10, 0)]),
        ("SELECT v, pk FROM t WHERE pk IN (1, 0) AND c1 = 1 ORDER BY c2 LIMIT 3", [(110, 1), (10, 0), (111, 1)]),
    ],
)
def test_groups_and_order_after_an_equality(box: EngineBox, query: str, expected: list[tuple[Any, ...]]) -> None:
    assert [tuple(row.values()) for row in box.rows(query)] == expected


def test_order_by_with_in_is_paged_only_if_one_page_holds_it(box: EngineBox) -> None:
    query = "SELECT v FROM t WHERE pk IN (0, 1) AND c2 = 1 ORDER BY c1"
    with pytest.raises(InvalidRequest, match="Cannot page queries with both ORDER BY and a IN restriction"):
        box.run("SELECT v FROM t WHERE pk IN (0, 1) ORDER BY c1 LIMIT 3", page_size=2)
    assert box.column("SELECT v FROM t WHERE pk IN (0, 1) ORDER BY c1 LIMIT 2", page_size=2) == [2, 1]
    with pytest.raises(InvalidRequest, match="Cannot page queries"):
        box.run(f"{query} LIMIT 1 ALLOW FILTERING", page_size=2)
    assert box.column(f"{query} ALLOW FILTERING") == [1, 101, 11, 111, 21, 121]


@pytest.mark.parametrize(
    ("query", "level", "message"),
    [
        ("SELECT * FROM t WHERE pk = 1", 0, "ANY ConsistencyLevel is only supported for writes"),
        ("SELECT * FROM t WHERE pk = 1", 7, "EACH_QUORUM ConsistencyLevel is only supported for writes"),
        ("SELECT * FROM t", 8, "SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time"),
        ("SELECT * FROM t WHERE pk IN (1, 2)", 9, "may only be requested for one partition at a time"),
        ("SELECT * FROM t WHERE pk IN (1, 1) AND c1 = 0", 9, None),
    ],
)
def test_levels_of_consistency(box: EngineBox, query: str, level: int, message: str | None) -> None:
    if message is None:
        assert len(box.rows(query, consistency=level)) == 3
    else:
        with pytest.raises(InvalidRequest, match=message):
            box.run(query, consistency=level)


def test_functions_and_aliases(box: EngineBox) -> None:
    row = box.row(
        'SELECT v AS "V", writetime(v) AS at, ttl(v), CAST(v AS text) AS text, intAsBlob(v), toTimestamp(now()) AS now'
        " FROM t WHERE pk = 0 AND c1 = 0 AND c2 = 1"
    )
    assert row["V"] == 1
    assert row["at"] == 1000
    assert row["ttl(v)"] is None
    assert row["text"] == "1"
    assert row["system.intasblob(v)"] == b"\x00\x00\x00\x01"
    assert row["now"] == box.clock.now_us() // 1000


# ---------------------------------------------------------------- pages


@pytest.mark.parametrize("page_size", [1, 2, 4, 5, 9, 10, 100])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "SELECT v FROM t WHERE pk IN (0, 1, 2)",
        "SELECT v FROM t WHERE pk = 0 ORDER BY c1 DESC",
        "SELECT v FROM t WHERE pk = 0 AND c1 IN (0, 2) ORDER BY c1 DESC",
        "SELECT v FROM t WHERE pk IN (0) ORDER BY c1 DESC",
        "SELECT v FROM t LIMIT 11",
        "SELECT v FROM t PER PARTITION LIMIT 4",
        "SELECT v FROM t PER PARTITION LIMIT 4 LIMIT 7",
        "SELECT DISTINCT pk, s FROM t",
        "SELECT v FROM t WHERE v > 15 ALLOW FILTERING",
        "SELECT writetime(v) FROM t",
        "SELECT table_name, column_name FROM system_schema.columns",
    ],
)
def test_pages_put_together_are_the_whole(box: EngineBox, query: str, page_size: int) -> None:
    pages = box.pages(query, page_size=page_size)
    assert [row for page in pages for row in page] == box.rows(query)
    assert all(len(page) == page_size for page in pages[:-1])
    assert 0 < len(pages[-1]) <= page_size


def test_a_page_ends_at_about_one_megabyte() -> None:
    box = EngineBox()
    box.run("CREATE TABLE big (pk int, ck int, v blob, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    for ck in range(12):
        box.run("INSERT INTO big (pk, ck, v) VALUES (0, ?, ?)", [ck, bytes(200_000)])
    for table in ("big", "big_scylla_cdc_log"):
        pages = box.pages(f"SELECT * FROM {table}", page_size=5000)
        assert sum(map(len, pages)) == 12
        assert 2 <= len(pages) <= 4
    assert len(box.rows("SELECT * FROM big")) == 12


def test_one_long_log_row_does_not_make_all_pages_short() -> None:
    box = EngineBox()
    box.run("CREATE TABLE big (pk int, ck int, v blob, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    for ck in range(40):
        box.run("INSERT INTO big (pk, ck, v) VALUES (0, ?, ?)", [ck, bytes(2_000_000 if ck == 7 else 10)])
    pages = box.pages("SELECT ck FROM big_scylla_cdc_log", page_size=5000)
    assert [row["ck"] for page in pages for row in page] == list(range(40))
    assert len(pages) <= 3


def test_rows_that_come_and_go_between_pages() -> None:
    box = EngineBox()
    box.run("CREATE TABLE t (pk int, ck int, PRIMARY KEY (pk, ck))")
    for ck in range(0, 10, 2):
        box.run("INSERT INTO t (pk, ck) VALUES (0, ?)", [ck])
    first = box.run("SELECT ck FROM t WHERE pk = 0", page_size=3)
    assert isinstance(first, RowsResult)
    box.run("DELETE FROM t WHERE pk = 0 AND ck = 4")
    box.run("INSERT INTO t (pk, ck) VALUES (0, 5)")
    box.run("INSERT INTO t (pk, ck) VALUES (0, 1)")
    assert box.column("SELECT ck FROM t WHERE pk = 0", page_size=9, paging_state=first.paging_state) == [5, 6, 8]


@given(state=st.binary(max_size=80))
@settings(max_examples=50)
def test_rubbish_paging_states_are_refused(state: bytes) -> None:
    with pytest.raises(ProtocolError, match="paging state"):
        SHARED.run("SELECT * FROM system.local", page_size=1, paging_state=state)


def test_a_paging_state_of_another_table_is_refused(box: EngineBox) -> None:
    result = box.run("SELECT * FROM t", page_size=1)
    assert isinstance(result, RowsResult)
    with pytest.raises(ProtocolError, match="another table"):
        box.run("SELECT * FROM two", page_size=1, paging_state=result.paging_state)


SHARED = EngineBox()


# ---------------------------------------------------------------- what is refused

FILTERING = "use ALLOW FILTERING"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM t WHERE v = 1", FILTERING),
        ("SELECT * FROM t WHERE pk = 1 AND v = 1", FILTERING),
        ("SELECT * FROM t WHERE c1 = 1", FILTERING),
        ("SELECT * FROM two WHERE a = 1", FILTERING),
        ("SELECT * FROM t WHERE pk > 1", "Only EQ and IN relation are supported on the partition key"),
        ("SELECT * FROM t WHERE pk = 1 AND c2 = 1", 'PRIMARY KEY column "c2" cannot be restricted'),
        ("SELECT * FROM t WHERE pk = 1 AND c1 > 1 AND c2 = 1", 'Clustering column "c2" cannot be restricted'),
        ("SELECT * FROM t WHERE pk = 1 AND (c2, c1) > (1, 1)", "should appear in the PRIMARY KEY order"),
        ("SELECT * FROM t WHERE pk = 1 AND c1 = 1 AND (c1, c2) > (1, 1)", "Mixing single column relations and multi"),
        ("SELECT * FROM t WHERE token(c1) > 1", "token function arguments must be in the partition key order: pk"),
        ("SELECT * FROM t WHERE token(pk) > 1 AND pk = 1", "both a normal relation and a token relation"),
        ("SELECT x FROM t", "Unrecognized name x"),
        ("SELECT * FROM t WHERE x = 1", "Unrecognized name x"),
        ("SELECT * FROM t ORDER BY c1", "ORDER BY is only supported when the partition key is restricted"),
        ("SELECT * FROM t WHERE pk = 1 ORDER BY v", "only supported on the clustered columns"),
        ("SELECT * FROM t WHERE pk = 1 ORDER BY c2", "column c1 doesn't have an ordering or EQ relation"),
        ("SELECT * FROM t WHERE pk = 1 ORDER BY c2, c1", "following their declared order"),
        ("SELECT * FROM t WHERE pk IN (1) AND c1 IN (1, 2) ORDER BY c2", "column c1 doesn't have an ordering or EQ"),
        ("SELECT * FROM t WHERE pk = 1 AND c1 IN ? ORDER BY c2", "column c1 doesn't have an ordering or EQ"),
        ("SELECT * FROM t WHERE pk = 1 AND (c1, c2) IN ((1, 1), (1, 2)) ORDER BY c2", "column c1 doesn't have"),
        ("SELECT * FROM t WHERE pk = 1 ORDER BY c1 ASC, c2 ASC", "Unsupported order by relation"),
        ("SELECT DISTINCT v FROM t", "must only request partition key columns and/or static columns"),
        ("SELECT DISTINCT s FROM t", "must request all the partition key columns"),
        ("SELECT DISTINCT pk FROM t PER PARTITION LIMIT 1", "PER PARTITION LIMIT is not allowed with SELECT DISTINCT"),
        ("SELECT DISTINCT pk FROM t WHERE pk = 1 AND c1 = 1", "only supports restriction by partition key"),
        ("SELECT DISTINCT pk FROM t WHERE s = 1 ALLOW FILTERING", "only supports restriction by partition key"),
        ("SELECT DISTINCT pk, count(c1) FROM t", "must only request partition key columns"),
        ("SELECT DISTINCT pk FROM t WHERE pk = 1 GROUP BY pk, c1", "Grouping on clustering columns is not allowed"),
        ("SELECT s FROM t WHERE pk = 1 AND c1 = 1", "Cannot restrict clustering columns when selecting only static"),
        ("SELECT count(*) FROM t PER PARTITION LIMIT 1", "PER PARTITION LIMIT is not allowed with aggregate queries"),
        ("SELECT * FROM t GROUP BY c1", "Group by column c1 is out of order"),
        ("SELECT * FROM t GROUP BY pk, c2", "Group by column c2 is out of order"),
        ("SELECT * FROM t GROUP BY pk, pk", "Group by column pk is out of order"),
        ("SELECT * FROM t GROUP BY x", "Group by unknown column x"),
        ("SELECT * FROM two GROUP BY a", "GROUP BY must include the entire partition key"),
        ("SELECT * FROM t WHERE pk IN () LIMIT 0", "LIMIT must be strictly positive"),
        ("SELECT * FROM t LIMIT 0", "LIMIT must be strictly positive"),
        ("SELECT * FROM t PER PARTITION LIMIT -1", "PER PARTITION LIMIT must be strictly positive"),
        ("SELECT writetime(pk) FROM t", "WRITETIME is not legal on primary key component pk"),
        ("SELECT * FROM t WHERE pk = token(1)", "cannot assign result of function system.token"),
        ("SELECT ? FROM t", r"Could not infer type of \?"),
        ("SELECT nosuch(v) FROM t", "Unknown function 'nosuch'"),
        ("SELECT sum(w) FROM t", "Invalid call to function sum, none of its type signatures match"),
        ("SELECT count(*) FROM t GROUP BY v", "Group by non-primary-key column v"),
        (
            "SELECT * FROM t WHERE pk = 1 AND v CONTAINS 1 ALLOW FILTERING",
            "Cannot use CONTAINS on non-collection column",
        ),
        ("SELECT * FROM system.peers_v2", "unconfigured table peers_v2"),
    ],
)
def test_refusals(box: EngineBox, query: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        box.run(query)


def test_unset_in_where_is_refused_and_unset_limit_is_none(box: EngineBox) -> None:
    with pytest.raises(InvalidRequest, match="Invalid unset value for column pk"):
        box.run("SELECT * FROM t WHERE pk = ?", [UNSET])
    assert len(box.rows("SELECT * FROM t WHERE pk = 0 LIMIT ?", [UNSET])) == 9


def test_in_lists_are_bounded_as_in_scylla(box: EngineBox) -> None:
    assert len(box.rows("SELECT * FROM t WHERE pk IN ?", [[0] * 200])) == 9
    assert box.rows("SELECT * FROM two WHERE a IN ? AND b IN ?", [list(range(10, 20)), list(range(10))]) == []
    for query, values in (
        ("SELECT * FROM t WHERE pk IN ?", [list(range(101))]),
        ("SELECT * FROM two WHERE a IN ? AND b IN ?", [list(range(11)), list(range(10))]),
    ):
        with pytest.raises(ServerError, match=r"is greater than maximum 100\. Use --max-partition-key-restrictions"):
            box.run(query, values)
    with pytest.raises(ServerError, match="size of clustering-key IN list"):
        box.run("SELECT * FROM t WHERE pk = 0 AND c1 IN ? AND c2 IN ?", [list(range(26)), list(range(4))])


def test_a_wrong_number_of_values_is_refused(box: EngineBox) -> None:
    prepared = box.engine.prepare("SELECT * FROM t WHERE pk = ?", "ks")
    with pytest.raises(InvalidRequest, match="expected 1 but got 0 bind variables"):
        box.engine.execute(prepared, [], QueryParams(keyspace="ks"))
    with pytest.raises(InvalidRequest, match="binding column pk: marshaling error: Validation failed"):
        box.engine.execute(prepared, [b"\x00"], QueryParams(keyspace="ks"))


def test_durations_have_no_order() -> None:
    box = EngineBox()
    box.run("CREATE TABLE d (pk int PRIMARY KEY, d duration, l frozen<list<duration>>, n list<duration>)")
    box.run("INSERT INTO d (pk, d) VALUES (1, 1h)")
    assert box.column("SELECT pk FROM d WHERE d = 60m ALLOW FILTERING") == [1]
    with pytest.raises(InvalidRequest, match="Slice restrictions are not supported on duration columns"):
        box.run("SELECT pk FROM d WHERE d > 30m ALLOW FILTERING")
    with pytest.raises(InvalidRequest, match="not supported on collections containing durations"):
        box.run("SELECT pk FROM d WHERE l > [] ALLOW FILTERING")
    with pytest.raises(InvalidRequest, match="Duration type is unordered for n"):
        box.run("SELECT pk FROM d WHERE n > [] ALLOW FILTERING")
    with pytest.raises(InvalidRequest, match="Slice conditions are not supported on duration columns"):
        box.run("UPDATE d SET l = null WHERE pk = 1 IF d > 30m")


def test_filters_on_collections() -> None:
    box = EngineBox()
    box.run("CREATE TABLE c (pk int PRIMARY KEY, m map<text, int>, l list<int>, f frozen<set<int>>)")
    box.run("INSERT INTO c (pk, m, l, f) VALUES (1, {'a': 1}, [5, 6], {7})")
    box.run("INSERT INTO c (pk, m) VALUES (2, {'b': 2})")
    for where in ("m CONTAINS 1", "m CONTAINS KEY 'a'", "m['a'] = 1", "l CONTAINS 6", "f CONTAINS 7", "f = {7}"):
        assert box.column(f"SELECT pk FROM c WHERE {where} ALLOW FILTERING") == [1], where
    assert box.row("SELECT m['a'], l[1] FROM c WHERE pk = 1") == {"m['a']": 1, "l[1]": 6}


# ---------------------------------------------------------------- the log


def test_log_reads_in_the_shapes_of_the_client_libraries() -> None:
    box = EngineBox()
    box.run("CREATE TABLE t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    for v in range(20):
        box.run("INSERT INTO t (pk, v) VALUES (?, ?)", [v % 3, v])
        box.clock.advance(1)
    ids = sorted({row["cdc$stream_id"] for row in box.rows("SELECT * FROM t_scylla_cdc_log")})
    start, end = box.clock.now_us() // 1000 - 15_000, box.clock.now_us() // 1000 - 5_000
    window = '"cdc$time" >= minTimeuuid(?) AND "cdc$time" < minTimeuuid(?)'
    query = f'SELECT * FROM t_scylla_cdc_log WHERE "cdc$stream_id" IN ? AND {window} BYPASS CACHE'
    assert sorted(row["v"] for row in box.rows(query, [ids, start, end])) == list(range(5, 15))
    single = f'SELECT v, "cdc$time" FROM t_scylla_cdc_log WHERE "cdc$stream_id" = ? AND {window}'
    assert sorted(v for i in ids for v in box.column(single, [i, start, end])) == list(range(5, 15))
    for page_size in (1, 3, 50):
        pages = box.pages(query, [ids, start, end], page_size=page_size)
        assert [row for page in pages for row in page] == box.rows(query, [ids, start, end])
    newest = 'SELECT v FROM t_scylla_cdc_log WHERE "cdc$stream_id" = ? ORDER BY "cdc$time" DESC LIMIT 1'
    assert max(box.column(newest, [i])[0] for i in ids) == 19
    assert sorted(box.column('SELECT DISTINCT "cdc$stream_id" FROM t_scylla_cdc_log')) == ids
    assert len(box.rows("SELECT v FROM t_scylla_cdc_log PER PARTITION LIMIT 1")) == len(ids)
    for short in ("0x00", "0x"):
        assert box.rows(f'SELECT * FROM t_scylla_cdc_log WHERE "cdc$stream_id" = {short}') == []


def test_log_rows_expire_with_the_option_ttl() -> None:
    box = EngineBox()
    box.run("CREATE TABLE t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 10}")
    box.run("INSERT INTO t (pk, v) VALUES (1, 1)")
    box.clock.advance(5)
    box.run("INSERT INTO t (pk, v) VALUES (1, 2)")
    assert box.column('SELECT ttl("cdc$operation") FROM t_scylla_cdc_log') == [5, 10]
    box.clock.advance(5)
    assert [row["v"] for row in box.log()] == [2]
    assert box.pages("SELECT v FROM t_scylla_cdc_log", page_size=1) == [[{"v": 2}]]
    box.clock.advance(5)
    assert box.log() == []
    box.engine.writer.sweep()
    box.run("INSERT INTO t (pk, v) VALUES (1, 3)")
    assert [row["v"] for row in box.log()] == [3]


def test_rows_are_counted_as_they_are_read() -> None:
    box = EngineBox()
    box.run(
        "CREATE TABLE t (pk int, ck int, s int static, v int, w int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}"
    )

    def check(expected: int) -> None:
        for where in ("", " WHERE pk = 1", " WHERE pk = 1 AND ck > 1", " WHERE v = 1 ALLOW FILTERING"):
            rows = box.rows(f"SELECT * FROM t{where}")
            assert box.row(f"SELECT COUNT(*), COUNT(1) AS n FROM t{where}") == {"count": len(rows), "n": len(rows)}
        counts = [row["count"] for row in box.rows("SELECT pk, COUNT(*) FROM t GROUP BY pk")]
        assert sum(counts) == len(box.rows("SELECT * FROM t")) == expected
        log = box.rows("SELECT * FROM t_scylla_cdc_log")
        assert box.column("SELECT COUNT(*) FROM t_scylla_cdc_log") == [len(log)]

    check(0)
    for pk, ck in itertools.product((1, 2), range(4)):
        box.run("INSERT INTO t (pk, ck, v) VALUES (?, ?, ?)", [pk, ck, ck % 2])
    box.run("INSERT INTO t (pk, s) VALUES (3, 1)")
    check(9)
    box.run("UPDATE t SET w = 1 WHERE pk = 1 AND ck = 9")
    check(10)
    box.clock.advance(1)  # the drop is later than what it drops
    box.run("ALTER TABLE t DROP w")
    check(9)
    box.run("DELETE FROM t WHERE pk = 2 AND ck > 1")
    check(7)
    box.run("INSERT INTO t (pk, ck, v) VALUES (1, 7, 1) USING TTL 10")
    check(8)
    box.clock.advance(11)
    check(7)
    box.run("UPDATE t SET v = null WHERE pk = 2 AND ck = 8")
    check(7)
    box.run("DELETE FROM t WHERE pk = 1")
    check(3)
    box.engine.writer.sweep()
    check(3)


def test_what_is_refused_by_name_is_so_with_whatever_values(box: EngineBox) -> None:
    with pytest.raises(InvalidRequest, match="SELECT without FROM is not supported"):
        box.engine.query("SELECT v WHERE v = ?", [b"", b""], QueryParams(keyspace="ks"))
