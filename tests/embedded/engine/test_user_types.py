"""CREATE, ALTER and DROP TYPE, and the columns that are made of them."""

from __future__ import annotations

import re

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import (
    InvalidRequest,
)

CDC = "WITH cdc = {'enabled': true}"


@pytest.fixture
def box() -> EngineBox:
    return EngineBox()


def test_user_types_change_the_columns_made_of_them(box: EngineBox) -> None:
    box.run("CREATE TYPE inner_type (a int)")
    box.run("CREATE TYPE outer_type (i frozen<inner_type>)")
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, u inner_type, f frozen<outer_type>) {CDC}")
    box.run("INSERT INTO t (pk, u, f) VALUES (1, {a: 1}, {i: {a: 2}})")
    box.run("ALTER TYPE inner_type ADD b text")
    assert box.row("SELECT u, f FROM t") == {"u": {"a": 1, "b": None}, "f": {"i": {"a": 2, "b": None}}}
    box.run("UPDATE t SET u.b = 'x' WHERE pk = 1")
    assert box.row("SELECT u.b FROM t") == {"u.b": "x"}
    assert [row.get("u") for row in box.log()] == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    box.run("ALTER TYPE inner_type RENAME a TO c")
    assert box.row("SELECT u.c FROM t") == {"u.c": 1}
    with pytest.raises(InvalidRequest, match="still used by user type outer_type"):
        box.run("DROP TYPE inner_type")
    with pytest.raises(InvalidRequest, match=r"still used by table ks\.t"):
        box.run("DROP TYPE outer_type")
    box.run("DROP TABLE t")
    box.run("DROP TYPE outer_type")
    box.run("DROP TYPE inner_type")
    with pytest.raises(InvalidRequest, match=r"No user type named ks\.inner_type exists"):
        box.run("DROP TYPE inner_type")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TYPE x (a u)", "A user type cannot contain non-frozen user type fields"),
        ("CREATE TYPE x (a counter)", "A user type cannot contain counters"),
        ("CREATE TYPE x (a int, a text)", "Duplicate field name a in type x"),
        ("CREATE TYPE u (a int)", "A user type of name ks.u already exists"),
        ("CREATE TYPE x (a frozen<other.w>)", "Statement on keyspace ks cannot refer to a user type in keyspace other"),
        ("CREATE TABLE x (a int PRIMARY KEY, b frozen<other.w>)", "cannot refer to a user type in keyspace other"),
        ("CREATE TABLE x (a int PRIMARY KEY, b open)", "Non-frozen UDTs with nested non-frozen collections"),
        ("ALTER TABLE t ADD b open", "Non-frozen UDTs with nested non-frozen collections"),
        ("CREATE TABLE x (a u PRIMARY KEY)", "Invalid non-frozen user-defined type for PRIMARY KEY component a"),
        ("ALTER TYPE nothere ADD b int", "No user type named ks.nothere exists."),
        ("ALTER TYPE u ADD a int", "Cannot add new field a to type ks.u: a field of the same name already exists"),
        ("ALTER TYPE u ADD b frozen<outer>", "to type ks.u as this would create a circular reference"),
        ("ALTER TYPE u RENAME z TO y", "Unknown field z in type ks.u"),
        ("ALTER TYPE two RENAME a TO b", "Duplicate field name b in type two"),
        (
            "ALTER TYPE pk ADD b int",
            "Cannot add new field to type ks.pk because it is used in the partition key column p of",
        ),
        ("ALTER TYPE pk RENAME a TO b", "because it is used in the partition key column p of table ks.keyed"),
        ("ALTER TYPE ck ADD b duration", "clustering key column c of table ks.keyed where durations are not allowed"),
        ("ALTER TYPE ck ADD b frozen<list<duration>>", "where durations are not allowed"),
        ("DROP TYPE u", "Cannot drop user type ks.u as it is still used by"),
        ("ALTER TABLE keyed ADD p int", "because it conflicts with a PRIMARY KEY part"),
        ("ALTER TABLE keyed ADD c int", "because it conflicts with an existing column"),
    ],
)
def test_refused_types(box: EngineBox, statement: str, message: str) -> None:
    box.run("CREATE KEYSPACE other")
    for name in (
        "u (a int)",
        "open (l list<int>)",
        "two (a int, b int)",
        "pk (a int)",
        "ck (a int)",
        "other.w (a int)",
    ):
        box.run(f"CREATE TYPE {name}")
    box.run("CREATE TYPE outer (a frozen<u>)")
    box.run("CREATE TABLE t (a int PRIMARY KEY)")
    box.run("CREATE TABLE keyed (p frozen<list<frozen<pk>>>, c frozen<ck>, v u, PRIMARY KEY (p, c))")
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        box.run(statement)


def test_fields_swap_their_names(box: EngineBox) -> None:
    box.run("CREATE TYPE u (a int, b text)")
    box.run("ALTER TYPE u RENAME a TO b AND b TO a")
    row = box.row("SELECT field_names, field_types FROM system_schema.types WHERE keyspace_name = 'ks'")
    assert row == {"field_names": ["b", "a"], "field_types": ["int", "text"]}
