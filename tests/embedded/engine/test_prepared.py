"""Prepared statements: ids, bind variables, and what a schema change does to them."""

from __future__ import annotations

from typing import Any

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import (
    InvalidRequest,
    Unprepared,
)
from rscylla.embedded.result import QueryParams

CDC = "WITH cdc = {'enabled': true}"


@pytest.fixture
def box() -> EngineBox:
    return EngineBox()


def prepared_ids(box: EngineBox, *texts: str) -> list[bytes]:
    return [box.engine.prepare(text, "ks").id for text in texts]


def test_a_schema_change_makes_clients_prepare_again(box: EngineBox) -> None:
    """Otherwise they would read the new columns with the old ones' names."""
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    box.run("CREATE TABLE other (pk int PRIMARY KEY)")
    base, log, other = prepared_ids(box, "SELECT * FROM t", "SELECT * FROM ks.t_scylla_cdc_log", "SELECT * FROM other")
    box.run("ALTER TABLE t ADD w int")
    for identity in (base, log):
        with pytest.raises(Unprepared):
            box.engine.get(identity)
    assert box.engine.get(other).text == "SELECT * FROM other"
    box.run("DROP KEYSPACE ks")
    with pytest.raises(Unprepared):
        box.engine.get(other)


def test_ids_differ_by_keyspace_and_text(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY)")
    first = box.engine.prepare("SELECT * FROM ks.t", None).id
    assert first != box.engine.prepare("SELECT * FROM ks.t", "ks").id
    assert first == box.engine.prepare("SELECT * FROM ks.t", None).id


def test_bind_variables_are_named_and_typed(box: EngineBox) -> None:
    box.run("CREATE TABLE t (a int, b int, c text, v int, PRIMARY KEY ((a, b), c))")

    def variables(text: str) -> tuple[list[tuple[str, str]], tuple[int, ...]]:
        prepared = box.engine.prepare(text, "ks")
        return [(spec.name, spec.type.name) for spec in prepared.variables], prepared.pk_indexes

    assert variables("INSERT INTO t (v, b, a, c) VALUES (?, ?, ?, :name) USING TTL ? AND TIMESTAMP ?") == (
        [("v", "int"), ("b", "int"), ("a", "int"), ("name", "text"), ("[ttl]", "int"), ("[timestamp]", "bigint")],
        (2, 1),
    )
    assert variables("SELECT * FROM t WHERE a = ? AND b IN ? AND c > ? LIMIT ?") == (
        [("a", "int"), ("IN(b)", "frozen<list<int>>"), ("c", "text"), ("[limit]", "int")],
        (),
    )
    assert variables("SELECT * FROM t WHERE a = ? AND b = ? USING TIMEOUT ?") == (
        [("a", "int"), ("b", "int"), ("[timeout]", "duration")],
        (0, 1),
    )
    assert variables(
        "BEGIN BATCH USING TIMESTAMP ? AND TIMEOUT ? DELETE FROM t USING TIMEOUT ? WHERE a = ? AND b = 1 APPLY BATCH"
    ) == ([("[timestamp]", "bigint"), ("[timeout]", "duration"), ("[timeout]", "duration"), ("a", "int")], ())
    assert variables("SELECT * FROM t WHERE token(a, b) > ?") == ([("partition key token", "bigint")], ())


def test_values_by_name(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, v int)")
    one: dict[str, Any] = {"k": b"\x00\x00\x00\x01", "val": b"\x00\x00\x00\x02"}
    box.engine.query("INSERT INTO t (pk, v) VALUES (:k, :val)", one, QueryParams(keyspace="ks"))
    assert box.rows("SELECT * FROM t") == [{"pk": 1, "v": 2}]
    with pytest.raises(InvalidRequest, match="Missing value for bind variable val"):
        box.engine.query("INSERT INTO t (pk, v) VALUES (:k, :val)", {"k": one["k"]}, QueryParams(keyspace="ks"))


def test_no_keyspace_in_use(box: EngineBox) -> None:
    with pytest.raises(InvalidRequest, match="No keyspace has been specified"):
        box.engine.query("SELECT * FROM t", (), QueryParams())
