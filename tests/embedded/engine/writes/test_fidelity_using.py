"""USING TIMESTAMP, TTL and TIMEOUT, keys of any length, and the limits of batches, as ScyllaDB has them."""

from __future__ import annotations

from typing import Any

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import CqlError, InvalidRequest, ReadTimeout, TruncateError, WriteTimeout
from rscylla.embedded.result import UNSET, RowsResult
from rscylla.embedded.types.literals import Duration

DAY_US = 24 * 60 * 60 * 1_000_000


@pytest.fixture
def box() -> EngineBox:
    made = EngineBox()
    made.run("CREATE TABLE k (pk int PRIMARY KEY, v int)")
    made.run("CREATE TABLE one (p text, c text, v int, PRIMARY KEY (p, c))")
    made.run("CREATE TABLE two (p1 text, p2 text, c1 text, c2 text, PRIMARY KEY ((p1, p2), c1, c2))")
    return made


@pytest.mark.parametrize("timestamp", [-(2**63) + 1, -1, 0])
def test_any_timestamp_may_be_used(box: EngineBox, timestamp: int) -> None:
    box.run("INSERT INTO k (pk, v) VALUES (1, 1) USING TIMESTAMP ?", [timestamp])
    assert box.column("SELECT writetime(v) FROM k") == [timestamp]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO k (pk, v) VALUES (1, 1) USING TIMESTAMP ?",
        "UPDATE k USING TIMESTAMP ? SET v = 1 WHERE pk = 1",
        "DELETE FROM k USING TIMESTAMP ? WHERE pk = 1",
        "BEGIN BATCH USING TIMESTAMP ? INSERT INTO k (pk, v) VALUES (1, 1); APPLY BATCH",
    ],
)
def test_but_for_the_smallest_and_the_future(box: EngineBox, statement: str) -> None:
    with pytest.raises(InvalidRequest, match="Out of bound timestamp"):
        box.run(statement, [-(2**63)])
    box.run(statement, [box.clock.now_us() + 3 * DAY_US])
    with pytest.raises(InvalidRequest, match="more than 3 days into the future"):
        box.run(statement, [box.clock.now_us() + 3 * DAY_US + 1])
    with pytest.raises(InvalidRequest, match="Invalid null value of timestamp"):
        box.run(statement, [None])
    box.run(statement, [UNSET])


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT * FROM k USING TIMEOUT {}", ReadTimeout),
        ("INSERT INTO k (pk, v) VALUES (2, 1) USING TIMEOUT {}", WriteTimeout),
        ("UPDATE k USING TIMEOUT {} AND TTL 5 SET v = 5 WHERE pk = 1", WriteTimeout),
        ("DELETE FROM k USING TIMESTAMP 5 AND TIMEOUT {} WHERE pk = 1", WriteTimeout),
        ("BEGIN BATCH USING TIMEOUT {} INSERT INTO k (pk, v) VALUES (2, 1); APPLY BATCH", WriteTimeout),
    ],
)
def test_timeouts(box: EngineBox, statement: str, error: type[CqlError]) -> None:
    box.run("INSERT INTO k (pk, v) VALUES (1, 1)")
    with pytest.raises(error):
        box.run(statement.format("0ms"))
    with pytest.raises(error):
        box.run(statement.format("?"), [Duration(0, 0, 0)])
    assert box.rows("SELECT * FROM k") == [{"pk": 1, "v": 1}]
    for text, message in (
        ("null", "Timeout value cannot be null"),
        ("3mo", "cannot be expressed in days/months"),
        ("40y", "cannot be expressed in days/months"),
        ("60s5ns", "granularity finer than milliseconds"),
        ("-10ms", "must be non-negative"),
        ("'hey'", "duration"),
        ("917", "duration"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            box.run(statement.format(text))
    with pytest.raises(InvalidRequest, match="unset value"):
        box.run(statement.format("?"), [UNSET])
    assert box.rows("SELECT * FROM k") == [{"pk": 1, "v": 1}]
    box.run(statement.format("48h"))


def test_an_empty_batch_takes_a_timeout_and_a_timestamp_that_are_bound(box: EngineBox) -> None:
    statement = "BEGIN BATCH USING TIMESTAMP ? AND TIMEOUT ? APPLY BATCH"
    variables = box.engine.prepare(statement, "ks").variables
    assert [(v.keyspace, v.table, v.name, v.type.name) for v in variables] == [
        ("[batch]", "[batch]", "[timestamp]", "bigint"),
        ("[batch]", "[batch]", "[timeout]", "duration"),
    ]
    assert not isinstance(box.run(statement, [5, Duration(0, 0, 10**9)]), RowsResult)
    with pytest.raises(WriteTimeout):
        box.run(statement, [5, Duration(0, 0, 0)])
    with pytest.raises(InvalidRequest, match="Out of bound timestamp"):
        box.run(statement, [-(2**63), Duration(0, 0, 10**9)])


def test_truncate_takes_a_timeout(box: EngineBox) -> None:
    box.run("INSERT INTO k (pk, v) VALUES (1, 1)")
    with pytest.raises(TruncateError):
        box.run("TRUNCATE TABLE k USING TIMEOUT 0s")
    with pytest.raises(InvalidRequest, match="must be non-negative"):
        box.run("TRUNCATE k USING TIMEOUT -5s")
    assert box.rows("SELECT * FROM k") == [{"pk": 1, "v": 1}]
    box.run("TRUNCATE k USING TIMEOUT 1000s")
    assert box.rows("SELECT * FROM k") == []


@pytest.mark.parametrize("marker", ["?", ":most", "(duration)?"])
def test_truncate_takes_a_timeout_that_is_bound(box: EngineBox, marker: str) -> None:
    statement = f"TRUNCATE TABLE k USING TIMEOUT {marker}"
    (variable,) = box.engine.prepare(statement, "ks").variables
    assert (variable.name, variable.type.name) == ("most" if marker == ":most" else "[timeout]", "duration")
    box.run("INSERT INTO k (pk, v) VALUES (1, 1)")
    with pytest.raises(TruncateError):
        box.run(statement, [Duration(0, 0, 0)])
    for value, message in (
        (None, "Timeout value cannot be null"),
        (UNSET, "unset value"),
        (Duration(1, 0, 0), "cannot be expressed in days/months"),
        (Duration(0, 0, -1_000_000), "must be non-negative"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            box.run(statement, [value])
    assert box.rows("SELECT * FROM k") == [{"pk": 1, "v": 1}]
    box.run(statement, [Duration(0, 0, 10**15)])
    assert box.rows("SELECT * FROM k") == []


def test_conditional_writes_have_time_limits_of_their_own(box: EngineBox) -> None:
    assert box.row("INSERT INTO k (pk) VALUES (1) IF NOT EXISTS USING TIMEOUT 0ms")["[applied]"] is True


ONE = "INSERT INTO one (p, c) VALUES (?, ?)"
TWO = "INSERT INTO two (p1, p2, c1, c2) VALUES (?, ?, ?, ?)"


@pytest.mark.parametrize(
    ("statement", "lengths"),
    [(ONE, (65535, 1)), (ONE, (1, 65535)), (TWO, (100, 65431, 1, 1)), (TWO, (1, 1, 65431, 100))],
)
def test_the_longest_keys(box: EngineBox, statement: str, lengths: tuple[int, ...]) -> None:
    box.run(statement, ["x" * length for length in lengths])
    for at, length in enumerate(lengths):
        if length > 60_000:
            values = ["x" * (size + (at == where)) for where, size in enumerate(lengths)]
            with pytest.raises(InvalidRequest, match="Key length of 65536 is longer than maximum of 65535"):
                box.run(statement, values)


def test_large_batches_of_several_partitions_are_refused(box: EngineBox) -> None:
    box.run("CREATE TABLE b (k int PRIMARY KEY, t text)")
    insert = "INSERT INTO b (k, t) VALUES ({}, '{}');"

    def batch(rows: int, key: Any) -> str:
        # With what a row takes beside its value, a KiB.
        return "BEGIN BATCH " + "".join(insert.format(key(at), "x" * 743) for at in range(rows)) + " APPLY BATCH"

    box.run(batch(1025, lambda at: 1))
    box.run(batch(1000, lambda at: at))
    with pytest.raises(InvalidRequest, match="Batch too large"):
        box.run(batch(1025, lambda at: at))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE n SET v = v + 1 WHERE k = 1", r"Invalid operation \(v = v \+ 1\) for non counter column v"),
        ("UPDATE n SET v = v - ? WHERE k = 1", r"Invalid operation \(v = v - \?\) for non counter column v"),
        ("UPDATE n SET s = {1} + s WHERE k = 1", "Invalid operation .* for non list column s"),
        ("UPDATE n SET fl = [1] + fl WHERE k = 1", "Invalid operation .* for frozen list column fl"),
        ("UPDATE n SET fs = fs + {1} WHERE k = 1", "Invalid operation .* for frozen collection column fs"),
        ("UPDATE n SET fs = fs - {1} WHERE k = 1 IF EXISTS", "Invalid operation .* for frozen collection column fs"),
    ],
)
def test_arithmetic_on_what_has_none(box: EngineBox, statement: str, message: str) -> None:
    box.run("CREATE TABLE n (k int PRIMARY KEY, v int, s set<int>, fl frozen<list<int>>, fs frozen<set<int>>)")
    with pytest.raises(InvalidRequest, match=message):
        box.run(statement)


ALL_KEYS = "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM w WHERE p = 1 IF EXISTS", f"{ALL_KEYS} delete non static columns"),
        ("DELETE FROM w WHERE p = 1 IF s = 1", f"{ALL_KEYS} delete non static columns"),
        ("DELETE FROM w WHERE p = 1 AND c > 0 IF v = 1", f"{ALL_KEYS} delete non static columns"),
        ("DELETE v FROM w WHERE p = 1 AND c > 0 IF v = 1", f"{ALL_KEYS} delete non static columns"),
        ("DELETE v FROM w WHERE p = 1 AND c > 0", "Range deletions are not supported for specific columns"),
        ("DELETE s FROM w WHERE p = 1 IF v = 1", f"{ALL_KEYS} use IF condition on non static columns"),
        ("DELETE s FROM w WHERE p = 1 IF v = 1 AND s = 1", f"{ALL_KEYS} use IF condition on non static columns"),
        ("DELETE s, v FROM w WHERE p = 1 IF s = 1", "Primary key column 'c' must be specified in order to modify"),
        ("DELETE s FROM w WHERE p = 1 AND c = 1 IF s = 1", "since the DELETE statement modifies only static columns"),
        (
            "UPDATE w SET s = 1 WHERE p = 1 AND c = 1 IF EXISTS",
            "since the UPDATE statement modifies only static columns",
        ),
        ("UPDATE w SET s = 1 WHERE p = 1 IF v = 1", "Missing mandatory PRIMARY KEY part c"),
        ("UPDATE w SET v = 1 WHERE p = 1 AND c IN () IF v = 1", "IN on the clustering key columns is not supported"),
        ("UPDATE w SET v = 1 WHERE p = 1 AND (c) IN ((1), (2)) IF v = 1", "IN on the clustering key columns is not"),
        ("UPDATE w SET v = 1 WHERE p IN () AND c = 1 IF v = 1", "IN on the partition key is not supported"),
    ],
)
def test_what_conditional_statements_must_name(box: EngineBox, statement: str, message: str) -> None:
    box.run("CREATE TABLE w (p int, c int, s int static, v int, PRIMARY KEY (p, c))")
    with pytest.raises(InvalidRequest, match=message):
        box.run(statement)


@pytest.mark.parametrize(
    "where", ["p = 1 AND c IN (1)", "p IN (1) AND c = 1", "p = 1 AND (c) IN ((1))", "p IN (1) AND c IN (1)"]
)
def test_in_of_one_value_is_an_equality(box: EngineBox, where: str) -> None:
    box.run("CREATE TABLE w (p int, c int, s int static, v int, PRIMARY KEY (p, c))")
    assert box.row(f"UPDATE w SET v = 1 WHERE {where} IF v = null") == {"[applied]": True, "v": None}
    assert box.row(f"DELETE FROM w WHERE {where} IF v = 1") == {"[applied]": True, "v": 1}


@pytest.mark.parametrize(
    ("statement", "values", "message"),
    [
        (
            "INSERT INTO z (a, b, d) VALUES (1, 1, {})",
            [],
            'column "d" cannot be restricted as preceding column "c" is not',
        ),
        ("UPDATE z SET l = [] WHERE a = 1 AND b = 1 AND d = {}", [], 'as preceding column "c" is not restricted'),
        ("DELETE l FROM z WHERE a = 1 AND b = 1 AND d = {}", [], 'as preceding column "c" is not restricted'),
        ("DELETE FROM z WHERE a = 1 AND b = 1 AND c = 1 AND d CONTAINS KEY 1", [], "by a CONTAINS relation without"),
        ("UPDATE z SET l = [] WHERE a = 1 AND b > 1 AND c = 1", [], r"or ALLOW FILTERING\)"),
        ("UPDATE z SET v[1] = 1 WHERE a = 1 AND b = 1 AND c = 1 AND d = {}", [], "for non collection column v"),
        ("UPDATE z SET s[1] = 1 WHERE a = 1 AND b = 1 AND c = 1 AND d = {}", [], "for set column s"),
        (
            "DELETE v[1] FROM z WHERE a = 1 AND b = 1 AND c = 1 AND d = {}",
            [],
            "Invalid deletion operation for non collection column v",
        ),
        (
            "DELETE v.x FROM z WHERE a = 1 AND b = 1 AND c = 1 AND d = {}",
            [],
            "Invalid field deletion operation for non-UDT column v",
        ),
        (
            "DELETE l[1] FROM z WHERE a = 1 AND b = 1 AND c = 1 AND d = {}",
            [],
            "to delete an element from a list which is",
        ),
        (
            "UPDATE z SET l[1] = 1 WHERE a = 1 AND b = 1 AND c = 1 AND d = {}",
            [],
            "to set an element on a list which is null",
        ),
        ("UPDATE z SET m[?] = 1 WHERE a = 1 AND b = 1 AND c = 1 AND d = {}", [None], "Invalid null map key"),
        ("UPDATE z SET m[?] = 1 WHERE a = 1 AND b = 1 AND c = 1 AND d = {}", [UNSET], "Invalid unset map key"),
        (
            "UPDATE z SET l[?] = 1 WHERE a = 1 AND b = 1 AND c = 1 AND d = {}",
            [UNSET],
            "Invalid unset value for list index",
        ),
        ("DELETE m[?] FROM z WHERE a = 1 AND b = 1 AND c = 1 AND d = {}", [UNSET], "Invalid unset map key"),
        ("SELECT * FROM one WHERE p = ?", ["x" * 66560], "Key length of 66560 is longer than maximum of 65535"),
        ("SELECT * FROM one WHERE p IN ('a', ?)", ["x" * 66560], "Key length of 66560 is longer than"),
    ],
)
def test_what_writes_say_they_lack(box: EngineBox, statement: str, values: list[Any], message: str) -> None:
    box.run(
        "CREATE TABLE z (a int, b int, c int, d frozen<map<int, int>>, v int, l list<int>, m map<int, int>, s set<int>,"
        " PRIMARY KEY ((a, b), c, d))"
    )
    with pytest.raises(InvalidRequest, match=message):
        box.run(statement, values)


def test_a_clustering_key_that_is_too_long_selects_nothing(box: EngineBox) -> None:
    assert box.rows("SELECT * FROM one WHERE p = 'a' AND c = ?", ["x" * 66560]) == []


def test_an_unset_index_leaves_a_list_as_it_is(box: EngineBox) -> None:
    box.run("CREATE TABLE li (k int PRIMARY KEY, l list<text>, d list<decimal>) WITH cdc = {'enabled': true}")
    box.run("INSERT INTO li (k, l, d) VALUES (1, ['a', 'b'], [1.0, 2])")
    box.run("DELETE l[?] FROM li WHERE k = 1", [UNSET])
    box.run("DELETE l[?] FROM li WHERE k = 2", [UNSET])
    box.run("UPDATE li SET l = l - ? WHERE k = 1", [UNSET])
    assert box.column('SELECT "cdc$operation" FROM li_scylla_cdc_log') == [2]
    with pytest.raises(InvalidRequest, match="Invalid null value for list index"):
        box.run("DELETE l[?] FROM li WHERE k = 1", [None])
    with pytest.raises(InvalidRequest, match="Invalid unset value for list index"):
        box.run("UPDATE li SET l[?] = 'x' WHERE k = 1", [UNSET])
    box.run("UPDATE li SET d = d - [1.00] WHERE k = 1")
    assert box.row("SELECT l, d FROM li") == {"l": ["a", "b"], "d": [2]}
