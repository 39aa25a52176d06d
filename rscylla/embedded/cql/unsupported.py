"""What ScyllaDB's grammar has and the embedded server has not, told by its words, so that it can be refused by name."""

from __future__ import annotations

import itertools
from typing import Final

from . import ast
from .lexer import Word

__all__ = ["CLAUSES", "STATEMENTS", "unsupported_clause", "unsupported_statement"]

STATEMENTS: Final = (
    *("CREATE MATERIALIZED VIEW", "ALTER MATERIALIZED VIEW", "DROP MATERIALIZED VIEW", "PRUNE MATERIALIZED VIEW"),
    *("CREATE INDEX", "CREATE CUSTOM INDEX", "DROP INDEX"),
    *("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", "DROP FUNCTION"),
    *("CREATE AGGREGATE", "CREATE OR REPLACE AGGREGATE", "DROP AGGREGATE"),
    *("CREATE ROLE", "ALTER ROLE", "DROP ROLE", "CREATE USER", "ALTER USER", "DROP USER", "GRANT", "REVOKE"),
    *("LIST ALL SERVICE LEVELS", "LIST ALL ATTACHED SERVICE LEVELS", "LIST"),
    *("LIST SERVICE LEVEL", "LIST ATTACHED SERVICE LEVEL", "LIST EFFECTIVE SERVICE LEVEL"),
    *("CREATE SERVICE LEVEL", "ALTER SERVICE LEVEL", "DROP SERVICE LEVEL"),
    *("ATTACH SERVICE LEVEL", "DETACH SERVICE LEVEL"),
)
"""First words of the statements; the longest match gives the name. A service level may have an underscore."""
_BY_FIRST_WORDS: Final = {tuple(name.split()): name for name in STATEMENTS}
_MOST_WORDS: Final = max(map(len, _BY_FIRST_WORDS))

CLAUSES: Final = {
    ("FROM", "MUTATION_FRAGMENTS", "("): "SELECT FROM MUTATION_FRAGMENTS",
    ("ANN", "OF"): "ORDER BY ... ANN OF",
    ("ORDER", "BY", "", "("): "ORDER BY a function",
    ("USING", "SERVICE", "LEVEL"): "USING SERVICE LEVEL",
    ("USING", "SERVICE_LEVEL"): "USING SERVICE LEVEL",
    ("=", "SCYLLA_COUNTER_SHARD_LIST", "("): "SCYLLA_COUNTER_SHARD_LIST",
}
"""Words inside a statement that make it one of the unsupported; "" stands for any word."""
_BY_OPENING: Final = {clause[0]: [c for c in CLAUSES.items() if c[0][0] == clause[0]] for clause in CLAUSES}


def unsupported_statement(words: list[Word]) -> ast.Unsupported | None:
    """Return the statement if its first words say that it is unsupported."""
    spoken = [word.upper() for _, word, _ in words[:_MOST_WORDS]]
    first = tuple(part for word in spoken for part in (word.split("_") if word.startswith("SERVICE_") else [word]))
    if first[:2] in (("LIST", "ROLES"), ("LIST", "USERS")):
        return None
    for size in range(len(first), 0, -1):
        if (name := _BY_FIRST_WORDS.get(first[:size])) is not None:
            return _view(name, words) if name == "CREATE MATERIALIZED VIEW" else ast.Unsupported(name)
    return None


def unsupported_clause(words: list[Word]) -> ast.Unsupported | None:
    """Return the statement, which cannot be parsed, if that is because of an unsupported clause."""
    for at, (_, word, _) in enumerate(words):
        for clause, name in _BY_OPENING.get(word.upper(), ()):
            here = [part.upper() for _, part, _ in words[at : at + len(clause)]]
            if len(here) == len(clause) and all(part in ("", word) for part, word in zip(clause, here, strict=True)):
                return ast.Unsupported(name)
    return None


def _view(name: str, words: list[Word]) -> ast.Unsupported:
    """Return the refused view with what decides on the reason: the table it is of, and whether it asks for a log."""
    spoken = [word.lower() if kind == "IDENT" else word for kind, word, _ in words]
    cdc = ("cdc", "=") in itertools.pairwise(spoken)
    if "from" not in spoken[:-1]:
        return ast.Unsupported(name, cdc=cdc)
    at = spoken.index("from") + 1
    parts = [spoken[at], spoken[at + 2]] if spoken[at + 1 : at + 2] == ["."] and len(spoken) > at + 2 else [spoken[at]]
    plain = [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]
    return ast.Unsupported(name, ast.TableName(plain[0] if len(plain) > 1 else None, plain[-1]), cdc)
