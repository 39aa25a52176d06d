"""Conditional writes: when they apply, and what they answer."""

from __future__ import annotations

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.result import QueryParams


@pytest.fixture
def box() -> EngineBox:
    made = EngineBox()
    made.run("CREATE TABLE t (pk int, ck int, s int static, v int, m map<text, int>, PRIMARY KEY (pk, ck))")
    made.run("CREATE TABLE k (pk int PRIMARY KEY, v int, w int)")
    return made


def test_insert_if_not_exists_once(box: EngineBox) -> None:
    assert box.row("INSERT INTO k (pk, v) VALUES (1, 2) IF NOT EXISTS") == {
        "[applied]": True,
        "pk": None,
        "v": None,
        "w": None,
    }
    assert box.row("INSERT INTO k (pk, v) VALUES (1, 3) IF NOT EXISTS") == {
        "[applied]": False,
        "pk": 1,
        "v": 2,
        "w": None,
    }
    assert box.column("SELECT v FROM k") == [2]


def test_update_and_delete_if_exists(box: EngineBox) -> None:
    assert box.row("UPDATE k SET v = 1 WHERE pk = 1 IF EXISTS")["[applied]"] is False
    assert box.rows("SELECT * FROM k") == []
    box.run("INSERT INTO k (pk, v) VALUES (1, 2)")
    assert box.row("UPDATE k SET v = 3 WHERE pk = 1 IF EXISTS") == {"[applied]": True, "pk": 1, "v": 2, "w": None}
    assert box.row("DELETE FROM k WHERE pk = 1 IF EXISTS")["v"] == 3
    assert box.rows("SELECT * FROM k") == []


@pytest.mark.parametrize(
    ("condition", "applied"),
    [
        ("v = 2", True),
        ("v = 3", False),
        ("v != 3", True),
        ("v > 1 AND v < 3", True),
        ("v >= 3", False),
        ("v IN (1, 2)", True),
        ("v IN (3)", False),
        ("w = null", True),
        ("w != null", False),
        ("w != 5", True),
        ("w < 5", False),
        ("v = 2 AND w = 1", False),
    ],
)
def test_conditions_on_values(box: EngineBox, condition: str, applied: bool) -> None:
    box.run("INSERT INTO k (pk, v) VALUES (1, 2)")
    answer = box.row(f"UPDATE k SET v = 9 WHERE pk = 1 IF {condition}")
    assert answer["[applied]"] is applied
    assert box.column("SELECT v FROM k") == [9 if applied else 2]


def test_the_answer_holds_the_columns_of_the_conditions(box: EngineBox) -> None:
    box.run("INSERT INTO k (pk, v) VALUES (1, 2)")
    assert box.row("UPDATE k SET w = 9 WHERE pk = 1 IF v = ?", [3]) == {"[applied]": False, "v": 2}


def test_condition_on_a_missing_row(box: EngineBox) -> None:
    assert box.row("UPDATE k SET w = 9 WHERE pk = 1 IF v = 1") == {"[applied]": False, "v": None}
    assert box.row("UPDATE k SET w = 9 WHERE pk = 1 IF v = null") == {"[applied]": True, "v": None}
    assert box.column("SELECT w FROM k") == [9]


def test_conditions_on_static_columns_and_elements(box: EngineBox) -> None:
    box.run("INSERT INTO t (pk, ck, s, m) VALUES (1, 1, 5, {'a': 1})")
    assert box.row("UPDATE t SET v = 1 WHERE pk = 1 AND ck = 2 IF s = 5") == {"[applied]": True, "s": 5}
    assert box.row("UPDATE t SET s = 6 WHERE pk = 1 IF s = 4") == {"[applied]": False, "s": 5}
    assert box.row("UPDATE t SET v = 2 WHERE pk = 1 AND ck = 1 IF m['a'] = 1")["[applied]"] is True
    assert box.row("DELETE FROM t WHERE pk = 1 AND ck = 1 IF m['a'] = 2")["[applied]"] is False


def test_expired_rows_do_not_exist(box: EngineBox) -> None:
    box.run("INSERT INTO k (pk, v) VALUES (1, 2) USING TTL 5")
    box.clock.advance(5)
    assert box.row("INSERT INTO k (pk, v) VALUES (1, 3) IF NOT EXISTS")["[applied]"] is True


def test_conditional_batch_is_all_or_nothing(box: EngineBox) -> None:
    box.run("INSERT INTO t (pk, ck, v) VALUES (1, 1, 1)")
    batch = (
        "BEGIN BATCH UPDATE t SET v = 5 WHERE pk = 1 AND ck = 1 IF v = {};"
        " INSERT INTO t (pk, ck, v) VALUES (1, 2, 2) IF NOT EXISTS;"
        " INSERT INTO t (pk, ck, v) VALUES (1, 3, 3) APPLY BATCH"
    )
    refused = box.rows(batch.format(2))
    assert [(r["[applied]"], r["ck"], r["v"]) for r in refused] == [
        (False, 1, 1),
        (False, None, None),
        (False, None, None),
    ]
    assert box.column("SELECT v FROM t") == [1]
    assert [r["[applied]"] for r in box.rows(batch.format(1))] == [True, True, True]
    assert box.column("SELECT v FROM t") == [5, 2, 3]


def test_time_of_a_conditional_write_is_the_servers(box: EngineBox) -> None:
    box.run("INSERT INTO k (pk, v) VALUES (1, 2) IF NOT EXISTS", default_timestamp=5)
    assert box.column("SELECT writetime(v) FROM k")[0] >= box.clock.now_us()


def test_times_of_conditional_writes_grow_in_a_partition_whatever_the_nodes_clocks() -> None:
    box = EngineBox(nodes=2)
    box.run("CREATE TABLE t (pk int, ck int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    box.cluster.nodes[0].clock.skew_us = 2_000_000
    for ck in range(4):
        box.run("INSERT INTO t (pk, ck) VALUES (1, ?) IF NOT EXISTS", [ck], node=box.cluster.nodes[ck % 2].index)
    assert [row["ck"] for row in box.log()] == [0, 1, 2, 3]
    # Another partition knows nothing of it.
    box.run("INSERT INTO t (pk, ck) VALUES (2, 9) IF NOT EXISTS", node=box.cluster.nodes[1].index)
    assert box.log()[0]["ck"] == 9


def test_prepared_conditional_statement_describes_its_columns(box: EngineBox) -> None:
    prepared = box.engine.prepare("UPDATE k SET v = ? WHERE pk = ? IF w = ?", "ks")
    assert prepared.columns is not None
    assert [spec.name for spec in prepared.columns] == ["[applied]", "w"]
    assert [spec.name for spec in prepared.variables] == ["v", "pk", "w"]
    assert prepared.pk_indexes == (1,)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "INSERT INTO k (pk) VALUES (1) IF NOT EXISTS USING TIMESTAMP 1",
            "Cannot provide custom timestamp for conditional updates",
        ),
        ("UPDATE k SET v = 1 WHERE pk IN (1, 2) IF v = 1", "IN on the partition key is not supported with conditional"),
        (
            "DELETE FROM t WHERE pk = 1 AND ck IN (1, 2) IF EXISTS",
            "IN on the clustering key columns is not supported with conditional deletions",
        ),
        ("DELETE FROM t WHERE pk = 1 IF EXISTS", "must restrict all PRIMARY KEY columns"),
        ("DELETE FROM t WHERE pk = 1 IF v = 1", "must restrict all PRIMARY KEY columns"),
        ("UPDATE k SET v = 1 WHERE pk = 1 IF pk = 1", "PRIMARY KEY column 'pk' cannot have IF conditions"),
        (
            "BEGIN BATCH INSERT INTO k (pk) VALUES (1) IF NOT EXISTS; INSERT INTO k (pk) VALUES (2) APPLY BATCH",
            "BATCH with conditions cannot span multiple partitions",
        ),
        (
            "BEGIN BATCH INSERT INTO k (pk) VALUES (1) IF NOT EXISTS; INSERT INTO t (pk, ck) VALUES (1, 1) APPLY BATCH",
            "BATCH with conditions cannot span multiple tables",
        ),
        (
            "BEGIN BATCH USING TIMESTAMP 5 INSERT INTO k (pk) VALUES (1) IF NOT EXISTS APPLY BATCH",
            "Cannot provide custom timestamp for conditional BATCH",
        ),
    ],
)
def test_refusals(box: EngineBox, statement: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        box.engine.query(statement, (), QueryParams(keyspace="ks"))


def test_a_key_in_another_spelling_finds_the_row_and_is_answered_as_the_statement_spells_it(box: EngineBox) -> None:
    box.run("CREATE TABLE d (pk int, ck decimal, s int static, v int, PRIMARY KEY (pk, ck))")
    box.run("INSERT INTO d (pk, ck, s, v) VALUES (1, 1.0, 5, 7)")
    refused = box.row("INSERT INTO d (pk, ck, v) VALUES (1, 1.00, 9) IF NOT EXISTS")
    assert (refused["[applied]"], str(refused["ck"]), refused["v"]) == (False, "1.00", 7)
    # With a condition on a static column alone, the first row of the partition stands for all.
    first = "UPDATE d SET s = 6 WHERE pk = 1 IF s = 4"
    for spelled in ("1.0", "1.00"):
        _, second = box.rows(f"BEGIN BATCH {first}; UPDATE d SET v = 8 WHERE pk = 1 AND ck = {spelled}; APPLY BATCH")
        assert (second["[applied]"], str(second["ck"]), second["s"]) == (False, spelled, 5)
