"""The CDC log follows its table through schema statements."""

from __future__ import annotations

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import (
    InvalidRequest,
    Unauthorized,
)

CDC = "WITH cdc = {'enabled': true}"


@pytest.fixture
def box() -> EngineBox:
    return EngineBox()


def log_names(box: EngineBox, table: str = "t") -> set[str]:
    found = box.engine.schema.keyspaces["ks"].tables[f"{table}_scylla_cdc_log"]
    return {column.name for column in found.regular_columns}


def events(box: EngineBox) -> list[tuple[str, str]]:
    found = [(event.change, event.name) for event in box.events]
    box.events.clear()
    return found


def test_the_log_follows_its_table(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    first = box.engine.schema.keyspaces["ks"].tables["t_scylla_cdc_log"]
    box.run("INSERT INTO t (pk, v) VALUES (1, 1)")
    box.run("ALTER TABLE t ADD w int")
    assert log_names(box) >= {"w", "cdc$deleted_w"}
    box.run("ALTER TABLE t DROP v")
    assert not log_names(box) & {"v", "cdc$deleted_v"}
    after = box.engine.schema.keyspaces["ks"].tables["t_scylla_cdc_log"]
    assert (after.id, after.options) == (first.id, first.options)
    assert box.log() == [{"operation": 2, "end_of_batch": True, "pk": 1}]


def test_a_dropped_log_column_cannot_come_back_at_once(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    box.run("INSERT INTO t (pk, v) VALUES (1, 1)")
    box.run("ALTER TABLE t DROP v")
    box.clock.advance(2)
    message = "with the same name was dropped too recently. Please retry after 3 seconds"
    with pytest.raises(InvalidRequest, match=message):
        box.run("ALTER TABLE t ADD v int")
    assert "v" not in box.engine.schema.keyspaces["ks"].tables["t"].by_name
    box.clock.advance(3)
    box.run("ALTER TABLE t ADD v int")
    assert box.log() == [{"operation": 2, "end_of_batch": True, "pk": 1}]
    box.run("INSERT INTO t (pk, v) VALUES (1, 2)")
    assert box.log()[1]["v"] == 2


def test_switching_off_keeps_the_log_and_on_again_takes_it_back(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    identity = box.engine.schema.keyspaces["ks"].tables["t_scylla_cdc_log"].id
    box.run("INSERT INTO t (pk, v) VALUES (1, 1)")
    box.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    box.run("INSERT INTO t (pk, v) VALUES (1, 2)")
    box.run("ALTER TABLE t ADD w int")
    assert [row["v"] for row in box.log()] == [1]
    assert "w" not in log_names(box)
    box.run("ALTER TABLE t WITH cdc = {'enabled': true}")
    assert "w" in log_names(box)
    assert box.engine.schema.keyspaces["ks"].tables["t_scylla_cdc_log"].id == identity
    box.run("INSERT INTO t (pk, w) VALUES (1, 3)")
    assert [row.get("w") for row in box.log()] == [None, 3]


def test_dropping_a_detached_log_by_hand(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    with pytest.raises(Unauthorized, match="Cannot DROP cdc log table t_scylla_cdc_log"):
        box.run("DROP TABLE t_scylla_cdc_log")
    box.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    box.run("DROP TABLE t_scylla_cdc_log")
    events(box)
    box.run("ALTER TABLE t WITH cdc = {'enabled': true}")
    assert events(box) == [("UPDATED", "t"), ("CREATED", "t_scylla_cdc_log")]


def test_dropping_the_base_takes_a_detached_log_along(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    box.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    box.run("DROP TABLE t")
    assert box.engine.schema.keyspaces["ks"].tables == {}


@pytest.mark.parametrize(
    ("statements", "error", "message"),
    [
        (["ALTER TABLE t WITH cdc = {'ttl': 1}"], InvalidRequest, 'requires specifying "enabled" flag'),
        (
            ["CREATE TABLE u_scylla_cdc_log (a int PRIMARY KEY)", f"CREATE TABLE u (a int PRIMARY KEY) {CDC}"],
            InvalidRequest,
            "Cannot create CDC log table for table ks.u because a table of name ks.u_scylla_cdc_log already exists",
        ),
        (
            [f"ALTER TABLE t_scylla_cdc_log {CDC}"],
            InvalidRequest,
            "creating nested CDC logs is not allowed",
        ),
        (
            ["ALTER TABLE t_scylla_cdc_log ADD x int"],
            InvalidRequest,
            "You cannot modify the set of columns of a CDC log table directly. Modify the base table instead.",
        ),
        (
            ["ALTER TABLE t WITH cdc = {'enabled': false}", "ALTER TABLE t_scylla_cdc_log DROP v"],
            InvalidRequest,
            "Although the base table has deactivated CDC, this table will continue being a CDC log table",
        ),
        (
            ['ALTER TABLE t_scylla_cdc_log RENAME "cdc$stream_id" TO c'],
            InvalidRequest,
            "Cannot rename a column of a CDC log table.",
        ),
        (
            ["ALTER TABLE t_scylla_cdc_log WITH tombstone_gc = {'mode': 'repair'}"],
            InvalidRequest,
            "The 'repair' mode for tombstone_gc is not allowed on CDC log tables.",
        ),
    ],
)
def test_refusals_around_the_log(box: EngineBox, statements: list[str], error: type[Exception], message: str) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    *before, last = statements
    for statement in before:
        box.run(statement)
    known = dict(box.engine.schema.keyspaces["ks"].tables)
    with pytest.raises(error, match=message):
        box.run(last)
    assert box.engine.schema.keyspaces["ks"].tables == known


def test_a_table_that_is_only_named_like_a_log_is_an_ordinary_one(box: EngineBox) -> None:
    box.run("CREATE TABLE t_scylla_cdc_log (a int PRIMARY KEY)")
    box.run("ALTER TABLE t_scylla_cdc_log ADD b int")
    box.run("CREATE TABLE t (pk int PRIMARY KEY)")
    box.run("DROP TABLE t")
    box.run("DROP TABLE t_scylla_cdc_log")


def test_a_log_may_be_edited_and_its_properties_altered(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    box.run("INSERT INTO t (pk, v) VALUES (1, 1)")
    box.run("ALTER TABLE t_scylla_cdc_log WITH comment = 'mine'")
    (row,) = box.rows("SELECT * FROM t_scylla_cdc_log")
    where = '"cdc$stream_id" = ? AND "cdc$time" = ? AND "cdc$batch_seq_no" = 0'
    key = [row["cdc$stream_id"], row["cdc$time"]]
    box.run(f"UPDATE t_scylla_cdc_log SET v = 7 WHERE {where}", key)
    box.run("INSERT INTO t (pk, v) VALUES (1, 2)")
    assert [row["v"] for row in box.log()] == [7, 2]
    box.run(f"DELETE FROM t_scylla_cdc_log WHERE {where}", key)
    assert [row["v"] for row in box.log()] == [2]
    box.run("TRUNCATE t_scylla_cdc_log")
    assert box.log() == []
    box.run("ALTER TABLE t ADD w int")
    assert box.engine.schema.keyspaces["ks"].tables["t_scylla_cdc_log"].options["comment"] == "mine"
