"""Equal values that differ in bytes, as the decimals 1.0 and 1.00. Source: Scylla ``test/cqlpy/test_type_decimal.py``.

In a partition key they are different, anywhere else the same. A row keeps its key as it was first written.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from enginebox import EngineBox

from rscylla.embedded import EmbeddedScylla

TABLE = "CREATE TABLE t (p decimal, c decimal, v int, l list<int>, PRIMARY KEY (p, c))"


@pytest.fixture
def box() -> EngineBox:
    made = EngineBox()
    made.run(TABLE)
    return made


def texts(box: EngineBox, statement: str, values: list[Any] | None = None) -> list[tuple[str, ...]]:
    """Return rows as text, for decimals of two spellings are equal in Python, too."""
    return [tuple(map(str, row.values())) for row in box.rows(statement, values or [])]


@pytest.mark.parametrize("later", ["1230", "1230.00", "1.23E+3"])
@pytest.mark.parametrize(
    "write",
    [
        "INSERT INTO t (p, c, v) VALUES (1, {}, 2)",
        "UPDATE t SET v = 2 WHERE p = 1 AND c = {}",
        "UPDATE t SET v = 2, l = [1] WHERE p = 1 AND c = {}",
        "UPDATE t USING TTL 100 SET v = 2 WHERE p = 1 AND c = {}",
        "UPDATE t SET v = 2 WHERE p = 1 AND c = {} IF EXISTS",
        'INSERT INTO t JSON \'{{"p": 1, "c": {}, "v": 2}}\' DEFAULT UNSET',
    ],
)
def test_a_row_keeps_the_key_it_was_first_written_with(box: EngineBox, write: str, later: str) -> None:
    box.run("INSERT INTO t (p, c, v) VALUES (1, 1230.0, 1)")
    box.run(write.format(later))
    assert texts(box, "SELECT c, v FROM t") == [("1230.0", "2")]
    assert texts(box, f"SELECT c FROM t WHERE p = 1 AND c = {later}") == [("1230.0",)]
    box.run(f"DELETE FROM t WHERE p = 1 AND c = {later}")
    assert texts(box, "SELECT c, v FROM t") == []


def test_partition_keys_are_different(box: EngineBox) -> None:
    box.run("INSERT INTO t (p, c, v) VALUES (1.0, 1, 1)")
    box.run("INSERT INTO t (p, c, v) VALUES (1.00, 1, 2)")
    assert sorted(texts(box, "SELECT p, v FROM t")) == [("1.0", "1"), ("1.00", "2")]
    assert texts(box, "SELECT v FROM t WHERE p = 1.000") == []


@pytest.mark.parametrize(
    ("cql_type", "first", "later"),
    [
        ("frozen<tuple<int, decimal>>", "(1, 1.0)", "(1, 1.00)"),
        ("frozen<set<decimal>>", "{1.0, 2}", "{2.0, 1}"),
        ("frozen<map<int, decimal>>", "{1: 1.0}", "{1: 1.00}"),
        ("frozen<list<decimal>>", "[1.0]", "[1.00]"),
        ("varint", "(int)5", "5"),
    ],
)
@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_keys_with_decimals_inside(cql_type: str, first: str, later: str, order: str) -> None:
    box = EngineBox()
    box.run(f"CREATE TABLE n (p int, c {cql_type}, v int, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c {order})")
    box.run(f"INSERT INTO n (p, c, v) VALUES (1, {first}, 1)")
    before = texts(box, "SELECT c FROM n")
    box.run(f"INSERT INTO n (p, c, v) VALUES (1, {later}, 2)")
    assert texts(box, "SELECT c FROM n") == before
    assert box.column("SELECT v FROM n") == [2]


def test_a_batch_that_names_a_row_twice_edits_one_row() -> None:
    box = EngineBox()
    box.run(f"{TABLE} WITH cdc = {{'enabled': true}}")
    box.run(
        """BEGIN BATCH
        INSERT INTO t (p, c, v) VALUES (1, 1.0, 1);
        UPDATE t SET l = [1] WHERE p = 1 AND c = 2;
        UPDATE t SET v = 2, l = l + [7] WHERE p = 1 AND c = 1.00;
        APPLY BATCH"""
    )
    assert texts(box, "SELECT c, v, l FROM t") == [("1.0", "2", "[7]"), ("2", "None", "[1]")]
    logged = texts(box, 'SELECT c, v FROM t_scylla_cdc_log WHERE "cdc$operation" = 2 ALLOW FILTERING')
    assert ("1.00", "2") not in logged
    assert ("1.0", "2") in logged


@pytest.mark.parametrize(
    "condition",
    [
        "c = 1.000 AND v = 1",
        "d = 1.000",
        "d IN (7, 1.000)",
        "c IN (7, 1.000) AND v = 1",
        "s CONTAINS 1.000",
        "m CONTAINS KEY 1.000",
        "m CONTAINS 2.00",
        "m[1.00] = 2",
        "p = 1.000 AND v = 1",
        "p IN (7, 1.000) AND v = 1",
    ],
)
def test_filters_compare_values(condition: str) -> None:
    box = EngineBox()
    box.run(
        """CREATE TABLE f (p decimal, q int, b int, c decimal, v int, d decimal, s set<decimal>,
        m map<decimal, decimal>, PRIMARY KEY ((p, q), b, c))"""
    )
    box.run("INSERT INTO f (p, q, b, c, v, d, s, m) VALUES (1.0, 1, 1, 1.0, 1, 1.0, {1.0}, {1.0: 2.0})")
    assert box.column(f"SELECT v FROM f WHERE {condition} ALLOW FILTERING") == [1]


def test_filters_leave_out_equal_values() -> None:
    box = EngineBox()
    box.run("CREATE TABLE f (p int PRIMARY KEY, d decimal)")
    box.run("INSERT INTO f (p, d) VALUES (1, 1.0)")
    assert box.column("SELECT p FROM f WHERE d NOT IN (7, 1.00) ALLOW FILTERING") == []
    assert box.column("SELECT p FROM f WHERE d NOT IN (7, 1.01) ALLOW FILTERING") == [1]


def test_a_collection_has_one_of_equal_elements(box: EngineBox) -> None:
    box.run("CREATE TABLE e (p int PRIMARY KEY, s frozen<set<decimal>>, m frozen<map<decimal, int>>)")
    box.run("INSERT INTO e (p, s, m) VALUES (1, {1.0, 2, 1.00}, {1.0: 1, 1.00: 2})")
    assert box.row("SELECT s, m FROM e") == {"s": frozenset({Decimal("1.0"), Decimal(2)}), "m": {Decimal("1.0"): 2}}


def test_elements_of_collections_are_found_by_value(box: EngineBox) -> None:
    box.run("CREATE TABLE m (p int PRIMARY KEY, s set<decimal>, m map<decimal, int>)")
    box.run("INSERT INTO m (p, s, m) VALUES (1, {1.0, 2}, {1.0: 1, 2: 2})")
    box.run("UPDATE m SET s = s + {1.00, 3}, m = m + {2.00: 4}, m[1.00] = 5 WHERE p = 1")
    assert box.row("SELECT s, m FROM m") == {"s": {1, 2, 3}, "m": {1: 5, 2: 4}}
    assert str(box.column("SELECT m FROM m")) == "[{Decimal('1.0'): 5, Decimal('2'): 4}]"
    assert box.row("SELECT m[1.0000] AS m, s[1.0000] AS s FROM m") == {"m": 5, "s": 1}
    assert box.row("UPDATE m SET s = s + {4} WHERE p = 1 IF m[1.0000] = 6")["[applied]"] is False
    assert box.row("UPDATE m SET s = s + {3.0} WHERE p = 1 IF m[1.0000] = 5")["[applied]"] is True
    box.run("UPDATE m SET s = s - {1.000}, m = m - {1.000} WHERE p = 1")
    box.run("DELETE s[2.0], m[2.0] FROM m WHERE p = 1")
    assert box.row("SELECT s, m FROM m") == {"s": {3}, "m": None}


def test_the_key_is_the_first_one_after_a_restart_and_the_log_has_each_as_it_was_written(tmp_path: Path) -> None:
    with EmbeddedScylla(data_dir=tmp_path) as server:
        session = server.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.t (p int, c decimal, v int, PRIMARY KEY (p, c)) WITH cdc = {'enabled': true}")
        insert = session.prepare("INSERT INTO ks.t (p, c, v) VALUES (1, ?, ?)")
        session.execute(insert, (Decimal("1.0"), 1))
        session.execute(insert, (Decimal("1.00"), 2))
    for _ in range(2):
        with EmbeddedScylla(data_dir=tmp_path) as server:
            session = server.connect()
            assert [(str(row.c), row.v) for row in session.execute("SELECT c, v FROM ks.t")] == [("1.0", 2)]
            logged = session.execute("SELECT c, v FROM ks.t_scylla_cdc_log")
            assert sorted((str(row.c), row.v) for row in logged) == [("1.0", 1), ("1.00", 2)]
