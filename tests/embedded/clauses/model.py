"""A clause of a CQL statement, a statement that tries it, and what the embedded server must answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs

from rscylla.embedded.result import UNSET

__all__ = ["SCHEMA", "UNSET", "Clause", "done", "refused", "rejected", "statement"]

SCHEMA = (
    "CREATE TYPE pair (x int, y text)",
    (
        "CREATE TABLE t (pk int, ck int, s int static, v int, w text, m map<int, text>, st set<int>, l list<int>, "
        "u frozen<pair>, n pair, PRIMARY KEY (pk, ck))"
    ),
    (
        "INSERT INTO t (pk, ck, s, v, w, m, st, l, u, n) VALUES (1, 1, 100, 10, 'a', {1: 'one', 2: 'two'}, {1, 2}, "
        "[1, 2, 3], {x: 1, y: 'a'}, {x: 1, y: 'a'})"
    ),
    "INSERT INTO t (pk, ck, v, w) VALUES (1, 2, 20, 'b')",
    "INSERT INTO t (pk, ck, v) VALUES (2, 1, 30)",
    "CREATE TABLE kv (k int PRIMARY KEY, v int)",
    "INSERT INTO kv (k, v) VALUES (1, 10)",
    "CREATE TABLE logged (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}",
)
"""What is in keyspace ``ks`` before each clause is tried. The token of key 1 is less than that of key 2."""


@attrs.frozen
class Clause:
    """One line of the table in ``docs/embedded.md``."""

    outcome: Literal["done", "rejected", "refused"]
    clause: str
    cql: str
    rows: Sequence[tuple[Any, ...]] = ()
    shown: str | None = None
    columns: Sequence[str] | None = None
    error: str = ""
    words: str = ""
    given: Sequence[str] = ()
    values: Sequence[Any] = ()
    after: float = 0
    statement: str = ""

    def __str__(self) -> str:
        return f"{self.statement}: {self.clause}"


def done(
    clause: str,
    cql: str,
    rows: Sequence[tuple[Any, ...]],
    *,
    shown: str | None = None,
    columns: Sequence[str] | None = None,
    given: Sequence[str] = (),
    values: Sequence[Any] = (),
    after: float = 0,
) -> Clause:
    """Return a clause that the server carries out.

    Args:
        clause: The clause, in a few words of ScyllaDB's documentation, without Markdown.
        cql: The statement that has it.
        rows: The rows that prove it, at least one: of *cql*, or of *shown* if that is given.
        shown: A query for the effect of *cql*.
        columns: Names of the columns of these rows, if they matter.
        given: Statements before *cql*.
        values: Values of the markers in *cql*.
        after: Seconds that pass between *cql* and *shown*.
    """
    if not rows:
        raise ValueError(f"{clause}: what proves it is a row; select count(*) where all rows must be gone")
    return Clause("done", clause, cql, rows, shown, columns, given=given, values=values, after=after)


def rejected(
    clause: str, cql: str, error: str, words: str, *, given: Sequence[str] = (), values: Sequence[Any] = ()
) -> Clause:
    """Return a clause that ScyllaDB itself rejects: *error* is the class in ``rscylla.embedded.errors``."""
    return Clause("rejected", clause, cql, error=error, words=words, given=given, values=values)


def refused(clause: str, cql: str, words: str, *, given: Sequence[str] = ()) -> Clause:
    """Return a clause that ScyllaDB has and the embedded server refuses by name; *words* are in its message."""
    return Clause("refused", clause, cql, error="InvalidRequest", words=words, given=given)


def statement(name: str, *clauses: Clause) -> Iterator[Clause]:
    """Yield the clauses of the statement *name*."""
    return (attrs.evolve(clause, statement=name) for clause in clauses)
