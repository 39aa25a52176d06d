"""Functions, terms and select lists as a driver sees them: error classes, names and types of columns, nesting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cassandra import FunctionFailure, InvalidRequest
from cassandra.protocol import SyntaxException

from rscylla.embedded import EmbeddedScylla


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with EmbeddedScylla() as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}")
        session.set_keyspace("ks")
        session.execute("CREATE TYPE pair (a int, b text)")
        session.execute(
            "CREATE TABLE t (p int, c int, v int, x text, ts timestamp, m map<int, int>, s set<int>, l list<int>,"
            " u pair, f frozen<pair>, fm frozen<map<int, frozen<pair>>>, tup tuple<int, text>, d double, dec decimal,"
            " b blob, PRIMARY KEY (p, c))"
        )
        yield session


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("v", "dog"),
        ("v", '"dog"'),
        ("v", "1.2"),
        ("v", "2147483648"),
        ("x", "3"),
        ("l", "[1, null]"),
        ("m", "{17: 3}"),
        ("ts", '"2014-01-01 12:15:45.0000000Z"'),
    ],
)
def test_from_json_fails_as_a_function(session: Any, column: str, text: str) -> None:
    prepared = session.prepare(f"INSERT INTO t (p, c, {column}) VALUES (1, 1, fromJson(?))")
    for statement, values in (
        (f"INSERT INTO t (p, c, {column}) VALUES (1, 1, fromJson('{text}'))", None),
        (prepared, [text]),
    ):
        with pytest.raises(FunctionFailure, match="execution of fromJson failed") as failure:
            session.execute(statement, values)
        assert (failure.value.keyspace, failure.value.function) == ("ks", "fromJson")
        assert len(failure.value.arg_types) == 1


def test_a_timestamp_in_json_has_a_space(session: Any) -> None:
    session.execute("INSERT INTO t (p, c, ts) VALUES (2, 1, '2014-01-01 12:15:45+0000')")
    row = session.execute("SELECT toJson(ts) AS one, CAST(ts AS text) AS two FROM t WHERE p = 2").one()
    assert row == ('"2014-01-01 12:15:45.000Z"', "2014-01-01T12:15:45.000Z")
    assert session.execute("SELECT JSON ts FROM t WHERE p = 2").one() == ('{"ts": "2014-01-01 12:15:45.000Z"}',)


# ---------------------------------------------------------------- nesting


def inner(opening: str, depth: int, core: str, closing: str) -> str:
    return opening * depth + core + closing * depth


@pytest.mark.parametrize(
    "term",
    [
        ("(int)", "1", ""),
        ("[", "1", "]"),
        ("{", "1", "}"),
        ("{1: ", "1", "}"),
        ("{a: ", "1", "}"),
        ("(", "1", ")"),
        ("blobAsInt(intAsBlob(", "1", "))"),
    ],
)
def test_expressions_nested_beyond_twelve_levels_are_refused(session: Any, term: tuple[str, str, str]) -> None:
    opening, core, closing = term
    for depth in (12, 50, 2000):
        with pytest.raises(SyntaxException, match="expression nested too deeply"):
            session.execute(f"INSERT INTO t (p, c, v) VALUES (1, 1, {inner(opening, depth, core, closing)})")


def test_expressions_of_twelve_levels_are_read(session: Any) -> None:
    session.execute(f"INSERT INTO t (p, c, v) VALUES (3, 1, {inner('(int)', 11, '5', '')})")
    nested = inner("blobAsInt(intAsBlob(", 5, "v", "))")
    assert session.execute(f"SELECT {nested} FROM t WHERE p = 3").one() == (5,)
    with pytest.raises(SyntaxException, match="expression nested too deeply"):
        session.execute(f"SELECT {inner('blobAsInt(intAsBlob(', 6, 'v', '))')} FROM t WHERE p = 3")
    with pytest.raises(SyntaxException, match="expression nested too deeply"):
        session.execute(f"SELECT v FROM t WHERE {inner('(', 13, 'p = 3', ')')}")


# ---------------------------------------------------------------- bound values


def test_bound_bytes_of_another_type_name_their_column(session: Any) -> None:
    bound = session.prepare("INSERT INTO t (p, c, v) VALUES (1, 1, ?)").bind([1])
    bound.values = [b"123"]
    with pytest.raises(InvalidRequest, match="Exception while binding column v: marshaling error: Validation failed"):
        session.execute(bound)
