"""The tables of Paxos rounds: made by the first conditional write on a table with tablets, and gone with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from enginebox import EngineBox, decoded
from keptbox import Kept

from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.result import QueryParams, RowsResult, SchemaChange

KEYSPACE = (
    "CREATE KEYSPACE tk WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    " AND tablets = {'enabled': true}"
)
WRITE = "INSERT INTO tk.t (a, b, v) VALUES (1, 'x', 2) IF NOT EXISTS"
OF_TABLE = "WHERE keyspace_name = 'tk' AND table_name = 't$paxos'"
TABLES = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'tk'"


@pytest.fixture
def box() -> EngineBox:
    made = EngineBox()
    made.run(KEYSPACE)
    made.run("CREATE TABLE tk.t (a int, b text, v int, PRIMARY KEY ((a, b))) WITH paxos_grace_seconds = 60")
    made.events.clear()
    return made


def test_the_first_conditional_write_makes_the_table_and_says_so(box: EngineBox) -> None:
    box.run("INSERT INTO tk.t (a, b, v) VALUES (1, 'x', 1)")
    assert box.column(TABLES) == ["t"]
    version = box.engine.schema.version
    assert box.row(WRITE)["[applied]"] is False
    assert box.events == [SchemaChange("CREATED", "TABLE", "tk", "t$paxos")]
    assert box.engine.schema.version != version
    box.run("BEGIN BATCH UPDATE tk.t SET v = 3 WHERE a = 1 AND b = 'x' IF v = 1; APPLY BATCH")
    assert len(box.events) == 1
    assert box.column(TABLES) == ["t", "t$paxos"]
    columns = box.rows(f"SELECT column_name, kind, type FROM system_schema.columns {OF_TABLE}")
    assert {row["column_name"]: (row["kind"], row["type"]) for row in columns} == {
        "row_key": ("partition_key", "blob"),
        "most_recent_commit": ("regular", "blob"),
        "most_recent_commit_at": ("regular", "timeuuid"),
        "promise": ("regular", "timeuuid"),
        "proposal": ("regular", "blob"),
        "proposal_ballot": ("regular", "timeuuid"),
    }
    options = box.row(f"SELECT gc_grace_seconds, comment FROM system_schema.tables {OF_TABLE}")
    assert options == {"gc_grace_seconds": 0, "comment": "Paxos state for tk.t"}


@pytest.mark.parametrize("applied", [True, False])
def test_a_round_leaves_its_ballot_until_its_grace_is_over(box: EngineBox, applied: bool) -> None:
    if not applied:
        box.run("INSERT INTO tk.t (a, b, v) VALUES (1, 'x', 1)")
    assert box.row(WRITE)["[applied]"] is applied
    row = box.row('SELECT * FROM tk."t$paxos"')
    assert row.pop("row_key") == b"\x00\x04\x00\x00\x00\x01\x00\x00\x01x\x00"
    ballot = row["promise"]
    assert row == {
        "most_recent_commit": None,
        "most_recent_commit_at": ballot,
        "promise": ballot,
        "proposal": None,
        "proposal_ballot": None,
    }
    if applied:
        time = box.row("SELECT writetime(v) AS at FROM tk.t")["at"]
        assert (ballot.time - 0x01B21DD213814000) // 10 == time
    box.run("UPDATE tk.t SET v = 4 WHERE a = 1 AND b = 'x' IF EXISTS")
    later = box.row('SELECT promise FROM tk."t$paxos"')["promise"]
    assert later.time > ballot.time
    box.clock.advance(61)
    assert box.rows('SELECT * FROM tk."t$paxos"') == []


def test_a_write_that_is_refused_makes_no_table_and_leaves_no_round(box: EngineBox) -> None:
    version = box.engine.schema.version
    prepared = box.engine.prepare("INSERT INTO tk.t (a, b, v) VALUES (1, 'x', ?) IF NOT EXISTS", None)
    with pytest.raises(InvalidRequest, match="binding column v"):
        box.engine.execute(prepared, [b"\x01"], QueryParams())
    assert (box.events, box.engine.schema.version) == ([], version)
    assert box.column(TABLES) == ["t"]


def test_a_keyspace_without_tablets_has_no_such_table(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, v int)")
    box.events.clear()
    box.run("INSERT INTO t (pk, v) VALUES (1, 1) IF NOT EXISTS")
    assert box.events == []


def test_the_table_goes_with_its_base_and_comes_again(box: EngineBox) -> None:
    box.run(WRITE)
    box.events.clear()
    box.run("DROP TABLE tk.t")
    assert [(event.change, event.name) for event in box.events] == [("DROPPED", "t"), ("DROPPED", "t$paxos")]
    box.run("CREATE TABLE tk.t (a int, b text, v int, PRIMARY KEY ((a, b)))")
    assert box.column(TABLES) == ["t"]
    box.run(WRITE)
    assert len(box.rows('SELECT * FROM tk."t$paxos"')) == 1


def test_the_table_is_described_by_its_name_alone_and_in_a_comment(box: EngineBox) -> None:
    box.run(WRITE)
    for text in ("DESCRIBE KEYSPACE tk", "DESCRIBE SCHEMA", "DESCRIBE TABLES", "DESCRIBE TABLE tk.t"):
        found = box.engine.query(text, [], QueryParams(keyspace="tk"))
        assert isinstance(found, RowsResult)
        rows = decoded(found)
        assert "t" in [row["name"] for row in rows]
        assert [row for row in rows if "$paxos" in str(row)] == []
    described = box.row('DESCRIBE TABLE tk."t$paxos"')
    assert described["create_statement"].startswith(
        "/* Do NOT execute this statement! It's only for informational purposes.\n"
        "   A paxos state table is created automatically when enabling LWT on a base table.\n\n"
        'CREATE TABLE tk."t$paxos" (\n    row_key blob,\n    most_recent_commit blob,\n'
    )
    assert described["create_statement"].endswith("\n*/")
    assert "gc_grace_seconds = 0\n" in described["create_statement"]


def test_a_data_directory_keeps_table_and_rounds(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.run(KEYSPACE)
    kept.run("CREATE TABLE tk.t (a int, b text, v int, PRIMARY KEY ((a, b)))")
    kept.run(WRITE)
    rounds = kept.run('SELECT * FROM tk."t$paxos"')
    assert len(rounds) == 1
    state = kept.state()
    again = kept.reopened()
    assert again.run('SELECT * FROM tk."t$paxos"') == rounds
    assert again.state() == state
    again.durable.close()
