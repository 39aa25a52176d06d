"""docs/embedded.md is true about what the embedded server refuses: each statement it lists is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from enginebox import EngineBox

from rscylla.embedded.cql.parser import _UNSUPPORTED
from rscylla.embedded.errors import InvalidRequest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "embedded.md").read_text()
SECTION = PAGE[PAGE.index("## What it refuses") : PAGE.index("The server rejects every statement that Scylla rejects")]
STATEMENTS = re.findall(r"\| `([^`]+)` \|$", SECTION, re.MULTILINE)


@pytest.fixture(scope="module")
def box() -> EngineBox:
    box = EngineBox()
    box.run("CREATE TYPE pair (x int, y text)")
    box.run("CREATE TABLE t (pk int, ck int, v int, w text, m map<int, int>, u frozen<pair>, PRIMARY KEY (pk, ck))")
    return box


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_listed_statement_is_refused_by_name(box: EngineBox, statement: str) -> None:
    with pytest.raises(InvalidRequest, match=r"not supported (in IF conditions )?by the embedded server"):
        box.run(statement)


def test_each_kind_of_unsupported_statement_is_listed() -> None:
    """By its object: CREATE INDEX stands for DROP INDEX."""
    listed = " ".join(STATEMENTS).upper().replace("_", " ")
    objects = {name.replace("_", " ").split(" ", 1)[-1] for name in _UNSUPPORTED}
    missing = {name for name in objects if name.removeprefix("OR REPLACE ") not in listed}
    # USER is the old word for ROLE; REVOKE goes with GRANT.
    assert missing == {"USER", "REVOKE"}
