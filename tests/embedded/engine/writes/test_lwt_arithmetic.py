"""``SET r = r + 1`` of a number under an IF clause. Source: Scylla ``test/cqlpy/test_lwt.py``."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from enginebox import EngineBox

from rscylla.embedded import EmbeddedScylla
from rscylla.embedded.errors import InvalidRequest, SyntaxException
from rscylla.embedded.result import UNSET

NUMBERS = ("tinyint", "smallint", "int", "bigint", "varint", "float", "double", "decimal")
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


@pytest.fixture
def box() -> EngineBox:
    made = EngineBox()
    made.run("CREATE TABLE t (p int, c int, r int, s int static, w text, PRIMARY KEY (p, c))")
    made.run("INSERT INTO t (p, c, r, s) VALUES (1, 1, 4, 10)")
    return made


def applied(box: EngineBox, statement: str, values: list[Any] | None = None) -> bool:
    return bool(box.rows(statement, values or [])[0]["[applied]"])


def test_the_sum_is_of_the_row_as_the_condition_saw_it(box: EngineBox) -> None:
    assert applied(box, "UPDATE t SET r = r - 2 WHERE p = 1 AND c = 1 IF r = 4")
    assert not applied(box, "UPDATE t SET r = r - 3 WHERE p = 1 AND c = 1 IF r >= 3")
    assert applied(box, "UPDATE t SET r = r -1 WHERE p = 1 AND c = 1 IF EXISTS")
    assert applied(box, "UPDATE t SET r = r + ?, s = s - ? WHERE p = 1 AND c = 1 IF r = 1 AND s = 10", [7, 4])
    assert box.row("SELECT r, s FROM t") == {"r": 8, "s": 6}
    assert applied(box, "UPDATE t SET s = s + 1 WHERE p = 1 IF s = 6")
    assert not applied(box, "UPDATE t SET r = r + 1 WHERE p = 1 AND c = 2 IF EXISTS")
    assert box.row("SELECT r, s FROM t") == {"r": 8, "s": 7}


@pytest.mark.parametrize("cql_type", NUMBERS)
def test_every_type_of_number_has_sums(cql_type: str) -> None:
    box = EngineBox()
    box.run(f"CREATE TABLE n (p int PRIMARY KEY, v {cql_type})")
    box.run("INSERT INTO n (p, v) VALUES (1, 0)")
    assert applied(box, "UPDATE n SET v = v + 3 WHERE p = 1 IF EXISTS")
    assert applied(box, "UPDATE n SET v = v - 5 WHERE p = 1 IF v = 3")
    assert box.column("SELECT v FROM n") == [-2]


@pytest.mark.parametrize(("cql_type", "bits"), BITS.items())
def test_an_integer_does_not_wrap_around(cql_type: str, bits: int) -> None:
    box = EngineBox()
    most, least = 2 ** (bits - 1) - 1, -(2 ** (bits - 1))
    box.run(f"CREATE TABLE n (p int PRIMARY KEY, v {cql_type})")
    box.run("INSERT INTO n (p, v) VALUES (1, ?)", [most])
    with pytest.raises(InvalidRequest, match=f"overflow: .* column v is out of the range of {cql_type}"):
        box.run("UPDATE n SET v = v + 1 WHERE p = 1 IF EXISTS")
    assert box.column("SELECT v FROM n") == [most]
    box.run("INSERT INTO n (p, v) VALUES (1, ?)", [-1])
    assert applied(box, "UPDATE n SET v = v - ? WHERE p = 1 IF v = -1", [least])
    assert box.column("SELECT v FROM n") == [most]


def test_decimals_are_added_exactly_or_not_at_all() -> None:
    box = EngineBox()
    box.run("CREATE TABLE n (p int PRIMARY KEY, v decimal)")
    box.run("INSERT INTO n (p, v) VALUES (1, 12345678901234567890123456789012345.10)")
    assert applied(box, "UPDATE n SET v = v + 0.9 WHERE p = 1 IF EXISTS")
    assert box.column("SELECT v FROM n") == [Decimal("12345678901234567890123456789012346.00")]
    box.run("INSERT INTO n (p, v) VALUES (1, 1e100000000)")
    with pytest.raises(InvalidRequest, match="decimal column v has more than 10000 digits"):
        box.run("UPDATE n SET v = v + 1 WHERE p = 1 IF EXISTS")


def test_nothing_comes_of_null_and_unset_leaves_the_column_alone(box: EngineBox) -> None:
    box.run("INSERT INTO t (p, c) VALUES (1, 2)")
    assert applied(box, "UPDATE t SET r = r + 1 WHERE p = 1 AND c = 2 IF EXISTS")
    assert not applied(box, "UPDATE t SET r = r + 1 WHERE p = 1 AND c = 2 IF r != null")
    assert applied(box, "UPDATE t SET r = r + ? WHERE p = 1 AND c = 1 IF EXISTS", [UNSET])
    assert box.column("SELECT r FROM t") == [4, None]
    box.run("UPDATE t USING TTL 10 SET r = 5 WHERE p = 1 AND c = 2")
    box.clock.advance(11)
    assert applied(box, "UPDATE t SET r = r + 1 WHERE p = 1 AND c = 2 IF EXISTS")
    assert box.column("SELECT r FROM t") == [4, None]


def test_the_statements_of_a_batch_add_to_what_was_there_before_it(box: EngineBox) -> None:
    box.run("INSERT INTO t (p, c, r) VALUES (1, 2, 20)")
    batch = """BEGIN BATCH
        UPDATE t SET r = r + 1 WHERE p = 1 AND c = 1 IF r = 4;
        UPDATE t SET r = r - 1 WHERE p = 1 AND c = 2 IF EXISTS;
        UPDATE t SET s = s + 5 WHERE p = 1 IF s = 10;
        APPLY BATCH"""
    assert applied(box, batch)
    assert [tuple(row.values()) for row in box.rows("SELECT c, r, s FROM t")] == [(1, 5, 15), (2, 19, 15)]
    assert not applied(box, batch)


@pytest.mark.parametrize(
    ("assignment", "condition", "error", "message"),
    [
        ("r = r + 1", "", InvalidRequest, r"Invalid operation \(r = r \+ 1\) for non counter column r"),
        ("w = w + 'x'", "IF EXISTS", InvalidRequest, r"Invalid operation \(w = w \+ 'x'\) for non counter column w"),
        ("r = 1 + r", "IF EXISTS", InvalidRequest, r"Invalid operation \(r = 1 \+ r\) for non list column r"),
        ("r = r + 3.5", "IF EXISTS", InvalidRequest, "of type int"),
        ("c = c + 1", "IF EXISTS", InvalidRequest, "PRIMARY KEY part c found in SET part"),
        ("r = p + 1", "IF EXISTS", SyntaxException, "Only expressions of the form X = X"),
        ("r = r + 1, r = 5", "IF EXISTS", SyntaxException, "Multiple incompatible setting of column r"),
        ("r = 5, r = r + 1", "IF EXISTS", SyntaxException, "Multiple incompatible setting of column r"),
    ],
)
def test_what_has_no_sum_is_refused_when_prepared(
    box: EngineBox, assignment: str, condition: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        box.engine.prepare(f"UPDATE t SET {assignment} WHERE p = 1 AND c = 1 {condition}", "ks")


def test_the_log_and_the_journal_have_the_sum(tmp_path: Path) -> None:
    with EmbeddedScylla(data_dir=tmp_path) as server:
        session = server.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.t (p int PRIMARY KEY, r int) WITH cdc = {'enabled': true, 'preimage': true}")
        session.execute("INSERT INTO ks.t (p, r) VALUES (1, 1)")
        add = session.prepare("UPDATE ks.t SET r = r + ? WHERE p = 1 IF r < 10")
        assert session.execute(add, (5,)).one().applied
        assert session.execute(add, (5,)).one().applied
        assert not session.execute(add, (5,)).one().applied
    with EmbeddedScylla(data_dir=tmp_path) as server:
        session = server.connect()
        assert session.execute("SELECT r FROM ks.t").one().r == 11
        logged = session.execute('SELECT "cdc$operation", r FROM ks.t_scylla_cdc_log')
        assert sorted(tuple(row) for row in logged) == [(0, 1), (0, 6), (1, 6), (1, 11), (2, 1)]
