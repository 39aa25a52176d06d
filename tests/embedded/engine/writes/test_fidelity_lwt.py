"""What conditional statements answer, statement by statement. Source: Scylla ``cas_request.cc``, ``test/cql/lwt_*``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.result import QueryParams

WIDE = "CREATE TABLE t (p int, c int, s int static, v int, PRIMARY KEY (p, c))"
LISTS = "CREATE TABLE t (p int, c int, i int, l list<int>, PRIMARY KEY (p, c))"
SHARED = "CREATE TABLE t (p int, c int, s list<int> static, l list<int>, PRIMARY KEY (p, c))"

Step = tuple[str, Sequence[tuple[Any, ...]]]


def batch(*statements: str) -> str:
    return f"BEGIN BATCH {'; '.join(statements)}; APPLY BATCH"


def answers(box: EngineBox, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in box.rows(statement)]


@pytest.mark.parametrize(
    ("table", "given", "steps"),
    [
        pytest.param(
            WIDE,
            ["INSERT INTO t (p, c, v) VALUES (1, 1, 1)"],
            [
                # p is shown: the partition is there, though it has no static row.
                ("UPDATE t SET s = 2 WHERE p = 1 IF EXISTS", [(False, 1, None, None, None)]),
                ("DELETE s FROM t WHERE p = 1 IF EXISTS", [(False, 1, None, None, None)]),
                ("UPDATE t SET s = 2 WHERE p = 2 IF EXISTS", [(False, None, None, None, None)]),
                ("INSERT INTO t (p, c, s) VALUES (1, 1, 9) IF NOT EXISTS", [(False, 1, 1, None, 1)]),
                ("INSERT INTO t (p, s) VALUES (1, 1) IF NOT EXISTS", [(True, 1, None, None, None)]),
                ("INSERT INTO t (p, s) VALUES (1, 2) IF NOT EXISTS", [(False, 1, None, 1, None)]),
                ("SELECT * FROM t", [(1, 1, 1, 1)]),
            ],
            id="static rows exist by themselves",
        ),
        pytest.param(
            WIDE,
            ["INSERT INTO t (p, s) VALUES (1, 1)"],
            [
                ("UPDATE t SET v = 5 WHERE p = 1 AND c = 1 IF EXISTS", [(False, None, None, None, None)]),
                ("UPDATE t SET v = 5 WHERE p = 1 AND c = 1 IF s = 1 AND v = 1", [(False, 1, None)]),
                ("DELETE s FROM t WHERE p = 1 AND c = 1 IF v = 1", [(False, None)]),
                ("DELETE s FROM t WHERE p = 1 AND c = 1 IF s = 1 AND v = 1", [(False, 1, None)]),
                ("UPDATE t SET v = 5, s = 2 WHERE p = 1 AND c = 1 IF s = 1 AND v = null", [(True, 1, None)]),
                ("DELETE s FROM t WHERE p = 1 AND c = 1 IF v = 5", [(True, 5)]),
                ("SELECT * FROM t", [(1, 1, None, 5)]),
            ],
            id="a missing row shows the static columns",
        ),
        pytest.param(
            WIDE,
            ["INSERT INTO t (p, s) VALUES (1, 1)"],
            [
                (
                    batch(
                        "INSERT INTO t (p, c) VALUES (1, 1) IF NOT EXISTS", "UPDATE t SET s = 2 WHERE p = 1 IF s = 1"
                    ),
                    [(True, None, None, None, None), (True, 1, None, 1, None)],
                ),
                (
                    batch(
                        "UPDATE t SET v = 1 WHERE p = 1 AND c = 1 IF s = 2 AND v = null",
                        "UPDATE t SET v = 2 WHERE p = 1 AND c = 2 IF s = 2 AND v = null",
                    ),
                    [(True, 1, 1, 2, None), (True, 1, None, 2, None)],
                ),
                ("SELECT c, v FROM t", [(1, 1), (2, 2)]),
            ],
            id="each statement of a batch sees its row or the static one",
        ),
        pytest.param(
            WIDE,
            [f"INSERT INTO t (p, c, s, v) VALUES (1, {c}, 2, {c})" for c in (1, 2)],
            [
                # With conditions on static columns alone, the first row of the partition is read and no other one.
                (
                    batch(
                        "UPDATE t SET v = 8 WHERE p = 1 AND c = 1",
                        "UPDATE t SET v = 9 WHERE p = 1 AND c = 2",
                        "UPDATE t SET s = 3 WHERE p = 1 IF s = 1",
                    ),
                    [(False, 1, 1, 2), (False, 1, None, 2), (False, 1, None, 2)],
                ),
                (
                    batch(
                        "UPDATE t SET s = 3 WHERE p = 1 IF s = 2", "UPDATE t SET v = 7 WHERE p = 1 AND c = 2 IF v = 2"
                    ),
                    [(True, 1, None, 2, None), (True, 1, 2, 2, 2)],
                ),
            ],
            id="what is read depends on all statements",
        ),
        pytest.param(
            LISTS,
            ["INSERT INTO t (p, c, i, l) VALUES (1, 1, 1, [1])", "INSERT INTO t (p, c, i, l) VALUES (1, 2, 2, [1, 2])"],
            [
                # A statement without a condition has a row in the answer: a full one if it reads its list.
                (
                    batch(
                        "UPDATE t SET i = 3 WHERE p = 1 AND c = 1 IF i = 5", "UPDATE t SET i = 4 WHERE p = 1 AND c = 2"
                    ),
                    [(False, 1, 1, 1), (False, None, None, None)],
                ),
                (
                    batch(
                        "DELETE l FROM t WHERE p = 1 AND c = 1 IF EXISTS",
                        "UPDATE t SET l = l - [2] WHERE p = 1 AND c = 2",
                    ),
                    [(True, 1, 1, 1, [1]), (True, 1, 2, 2, [1, 2])],
                ),
                (
                    batch(
                        "UPDATE t SET i = 7 WHERE p = 1 AND c = 1 IF i = 1",
                        "UPDATE t SET i = 7 WHERE p = 1 AND c IN (1, 2)",
                    ),
                    [(True, 1, 1, 1), (True, 1, 1, 1)],
                ),
                ("SELECT c, i, l FROM t", [(1, 7, None), (2, 7, [1])]),
            ],
            id="a row a statement",
        ),
        pytest.param(
            LISTS,
            ["INSERT INTO t (p, c, i) VALUES (1, 1, 1)"],
            [
                (
                    batch(
                        "UPDATE t SET i = 2 WHERE p = 1 AND c = 1 IF i = 1",
                        "UPDATE t SET i = 3 WHERE p = 1 AND c = 1 IF i = 1",
                    ),
                    [(True, 1, 1, 1), (True, 1, 1, 1)],
                ),
                (
                    batch("DELETE FROM t WHERE p = 1 AND c = 1 IF EXISTS", "INSERT INTO t (p, c, i) VALUES (1, 1, 5)"),
                    [(True, 1, 1, 3, None), (True, 1, 1, 3, None)],
                ),
                # At one time, the deletion wins.
                ("SELECT * FROM t", []),
                (
                    batch("INSERT INTO t (p, c) VALUES (1, 1) IF NOT EXISTS", "DELETE FROM t WHERE p = 1 AND c > 5"),
                    [(True, None, None, None, None), (True, None, None, None, None)],
                ),
                # The time of a statement without a condition is the batch's.
                (
                    batch(
                        "UPDATE t SET i = 1 WHERE p = 1 AND c = 1 IF EXISTS",
                        "INSERT INTO t (p, c, i) VALUES (1, 2, 2) USING TIMESTAMP 5",
                    ),
                    [(True, 1, 1, None, None), (True, None, None, None, None)],
                ),
            ],
            id="all statements see the row before the batch",
        ),
        pytest.param(
            SHARED,
            ["INSERT INTO t (p, c, l) VALUES (1, 1, [1])", "INSERT INTO t (p, s) VALUES (1, [5])"],
            [
                ("UPDATE t SET s = s - [5] WHERE p = 1 IF s = [5]", [(True, [5])]),
                ("UPDATE t SET l = l + [2], s = s + [6] WHERE p = 1 AND c = 1 IF l[0] = 1", [(True, [1])]),
                ("SELECT s, l FROM t", [([6], [1, 2])]),
            ],
            id="lists",
        ),
    ],
)
def test_answers(table: str, given: Sequence[str], steps: Sequence[Step]) -> None:
    box = EngineBox()
    for statement in (table, *given):
        box.run(statement)
    for statement, expected in steps:
        assert answers(box, statement) == expected, statement


def test_a_refused_batch_writes_nothing_to_the_log_and_an_applied_one_a_record() -> None:
    box = EngineBox()
    box.run(WIDE + " WITH cdc = {'enabled': true}")
    statements = ("UPDATE t SET v = 1 WHERE p = 1 AND c = 1 IF v = {}", "INSERT INTO t (p, c, s) VALUES (1, 2, 3)")
    assert [row[0] for row in answers(box, batch(*statements).format("7"))] == [False, False]
    assert box.log() == []
    assert [row[0] for row in answers(box, batch(*statements).format("null"))] == [True, True]
    assert [(row["operation"], row.get("c")) for row in box.log()] == [(1, None), (2, 2), (1, 1)]


def test_a_prepared_batch_describes_its_answer() -> None:
    box = EngineBox()
    box.run(WIDE)
    text = batch("UPDATE t SET v = ? WHERE p = 1 AND c = 1 IF s = ?", "INSERT INTO t (p, c) VALUES (?, 2)")
    columns = box.engine.prepare(text, "ks").columns
    assert columns is not None
    assert [spec.name for spec in columns] == ["[applied]", "p", "c", "s"]
    assert box.engine.prepare(batch("INSERT INTO t (p, c) VALUES (?, 2)"), "ks").columns is None


@pytest.mark.parametrize(
    ("statement", "level", "message"),
    [
        ("UPDATE t SET v = 1 WHERE p = 1 AND c = 1", 8, "You must use conditional updates for serializable writes"),
        (
            "UPDATE t SET v = 1 WHERE p = 1 AND c = 1 IF EXISTS",
            9,
            "LOCAL_SERIAL is not supported as conditional update",
        ),
    ],
)
def test_serial_levels_are_levels_of_the_read(statement: str, level: int, message: str) -> None:
    box = EngineBox()
    box.run(WIDE)
    with pytest.raises(InvalidRequest, match=message):
        box.engine.query(statement, (), QueryParams(keyspace="ks", consistency=level))
