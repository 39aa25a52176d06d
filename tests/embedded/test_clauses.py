"""Each clause of the table in docs/embedded.md is tried: it is done, rejected as in ScyllaDB, or refused by name."""

from __future__ import annotations

import itertools
import re

import pytest
from clauses import GROUPS, SCHEMA, Clause
from clauses.page import COMMAND, PAGE, rewritten
from enginebox import EngineBox, decoded

from rscylla.embedded import errors
from rscylla.embedded.cql.unsupported import CLAUSES as CLAUSE_NAMES
from rscylla.embedded.cql.unsupported import STATEMENTS
from rscylla.embedded.result import RowsResult

CLAUSES = [*itertools.chain(*GROUPS.values())]


@pytest.fixture
def box() -> EngineBox:
    box = EngineBox()
    for text in SCHEMA:
        box.run(text)
    return box


@pytest.mark.parametrize("clause", CLAUSES, ids=str)
def test_clause(box: EngineBox, clause: Clause) -> None:
    for text in clause.given:
        box.run(text)
    if clause.outcome != "done":
        with pytest.raises(errors.CqlError, match=re.escape(clause.words)) as caught:
            box.run(clause.cql, clause.values)
        assert type(caught.value).__name__ == clause.error
        assert ("by the embedded server" in caught.value.message) == (clause.outcome == "refused")
        return
    result = box.run(clause.cql, clause.values)
    box.clock.advance(clause.after)
    if clause.shown is not None:
        result = box.run(clause.shown)
    assert isinstance(result, RowsResult)
    assert [tuple(row.values()) for row in decoded(result)] == [*clause.rows]
    if clause.columns is not None:
        assert [column.name for column in result.columns] == [*clause.columns]


def test_each_clause_is_listed_once() -> None:
    names = [*map(str, CLAUSES)]
    assert [name for name in names if names.count(name) > 1] == []


def test_the_page_has_the_table_of_clauses() -> None:
    text = PAGE.read_text()
    assert rewritten(text) == text, f"run: {COMMAND}"


def test_all_that_the_parser_refuses_is_listed() -> None:
    listed = {clause.words.removesuffix(" is not supported") for clause in CLAUSES if clause.outcome == "refused"}
    assert [name for name in [*STATEMENTS, *CLAUSE_NAMES.values()] if name not in listed] == []
