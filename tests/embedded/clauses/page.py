"""The table in ``docs/embedded.md``, between two comments that do not show."""

from __future__ import annotations

from pathlib import Path

from . import GROUPS
from .model import Clause

__all__ = ["COMMAND", "PAGE", "rewritten"]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "embedded.md"
COMMAND = "python -m tests.embedded.clauses"
_BEGIN = f"<!-- clauses: written by {COMMAND} -->\n"
_END = "<!-- /clauses -->\n"


def rewritten(text: str) -> str:
    """Return the page *text* with the table as the clauses are now."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return (
        before + _BEGIN + "\n" + "\n".join(_group(title, clauses) for title, clauses in GROUPS.items()) + _END + after
    )


def _group(title: str, clauses: tuple[Clause, ...]) -> str:
    lines = [f"### {title}", "", "| statement | clause | |", "|---|---|---|"]
    lines += [f"| {_plain(clause.statement)} | {_plain(clause.clause)} | {_outcome(clause)} |" for clause in clauses]
    return "\n".join(lines) + "\n"


def _outcome(clause: Clause) -> str:
    match clause.outcome:
        case "done":
            return "done"
        case "rejected":
            return "rejected, as in ScyllaDB"
        case "refused":
            return f"**refused**: {_plain(clause.words)}"


def _plain(text: str) -> str:
    """Return *text* so that Markdown shows it as it is."""
    for mark in "\\|<*[":
        text = text.replace(mark, f"\\{mark}")
    return text
