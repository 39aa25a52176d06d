"""CQL text made into statements: lark's LALR parser over ``cql.lark``, and a cache of what was parsed lately."""

from __future__ import annotations

import functools
import itertools
import threading
from collections import OrderedDict
from typing import Any, Final

from lark import Lark, UnexpectedToken

from ..errors import SyntaxException
from . import ast
from .building import Builder
from .lexer import CqlLexer, Word, scan, syntax_error

__all__ = ["parse"]

_CACHED_STATEMENTS: Final = 2048
_CACHED_LENGTH: Final = 8192  # characters; longer texts are batches or blobs that hardly come twice

# Held while parsing, too: the one builder counts the markers of the statement at hand.
_lock = threading.Lock()
_cache: OrderedDict[str, ast.Statement] = OrderedDict()

# Statements that are recognised by their first words and refused by name; the longest match gives the name.
_UNSUPPORTED: Final = (
    *("CREATE MATERIALIZED VIEW", "ALTER MATERIALIZED VIEW", "DROP MATERIALIZED VIEW", "PRUNE MATERIALIZED VIEW"),
    *("CREATE INDEX", "CREATE CUSTOM INDEX", "DROP INDEX"),
    *("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", "DROP FUNCTION"),
    *("CREATE AGGREGATE", "CREATE OR REPLACE AGGREGATE", "DROP AGGREGATE"),
    *("CREATE ROLE", "ALTER ROLE", "DROP ROLE", "CREATE USER", "ALTER USER", "DROP USER", "GRANT", "REVOKE", "LIST"),
    *("CREATE SERVICE LEVEL", "ALTER SERVICE LEVEL", "DROP SERVICE LEVEL", "ATTACH SERVICE LEVEL"),
    *("CREATE SERVICE_LEVEL", "ALTER SERVICE_LEVEL", "DROP SERVICE_LEVEL", "ATTACH SERVICE_LEVEL"),
    *("DETACH SERVICE LEVEL", "DETACH SERVICE_LEVEL"),
)
_BY_FIRST_WORDS: Final = {tuple(name.split()): name for name in _UNSUPPORTED}


def parse(text: str) -> ast.Statement:
    """Return the statement that *text* holds.

    One statement, with or without a semicolon. Reads and writes are kept for later calls with the same text, so a
    returned value must not be changed. Safe to call from any thread.

    Raises:
        SyntaxException: Not CQL; the message has line and column as Scylla's has.
        InvalidRequest: Well-formed, but the parts do not fit (columns and values of INSERT).
    """
    with _lock:
        if (known := _cache.get(text)) is not None:
            _cache.move_to_end(text)
            return known
        statement = _parse(text)
        # Schema statements hold dicts that a caller might keep; they are rare, so each is parsed anew.
        if len(text) <= _CACHED_LENGTH and isinstance(statement, (ast.Select, ast.Insert, ast.Update, ast.Delete)):
            _cache[text] = statement
            if len(_cache) > _CACHED_STATEMENTS:
                _cache.popitem(last=False)
        return statement


def _parse(text: str) -> ast.Statement:
    lark, lexer, builder = _machine()
    words = scan(lexer.pattern, text)
    refused = _unsupported(words)
    if refused is not None:
        return refused
    # Here, not after: a statement that failed half-way has left its markers behind.
    builder.reset()
    try:
        statement: ast.Statement = lark.parse(words)  # type: ignore[assignment]  # words, see CqlLexer.lex
    except UnexpectedToken as error:
        token = error.token
        if token.type == "$END":
            raise syntax_error(text, len(text.rstrip()), "<EOF>") from None
        # The parser's own error lists terminals of our grammar, which mean nothing to a user of CQL.
        raise syntax_error(text, token.start_pos or 0, str(token)) from None
    return statement


def _unsupported(words: list[Word]) -> ast.Unsupported | None:
    # No refused statement needs more than four words to be told from the others.
    first = tuple(word.upper() for _, word, _ in words[:4])
    # The longest name first, so that CREATE OR REPLACE FUNCTION is not looked up as something shorter.
    for size in range(len(first), 0, -1):
        if (name := _BY_FIRST_WORDS.get(first[:size])) is not None:
            return _view(name, words) if name == "CREATE MATERIALIZED VIEW" else ast.Unsupported(name)
    if first[:1] == ("SELECT",):
        spoken = [word.upper() if kind == "IDENT" else word for kind, word, _ in words]
        for here, name in zip(zip(spoken, spoken[1:], spoken[2:], strict=False), spoken[1:], strict=False):
            if here == ("FROM", "MUTATION_FRAGMENTS", "("):
                return ast.Unsupported("SELECT FROM MUTATION_FRAGMENTS")
            if name == "ANN" and here[2] == "OF":
                return ast.Unsupported("ORDER BY ... ANN OF")
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


@functools.cache
def _machine() -> tuple[Lark, CqlLexer, Builder]:
    """Return the parser and its parts, made at the first call: reading the grammar takes some tenths of a second."""
    builder = Builder()
    lark = Lark.open_from_package(
        __package__ or "rscylla.embedded",
        "cql.lark",
        parser="lalr",
        lexer=CqlLexer,
        transformer=builder,
        maybe_placeholders=False,
    )
    lexer: Any = lark.parser.lexer
    if not isinstance(lexer, CqlLexer):
        raise SyntaxException("the CQL grammar has no lexer")
    return lark, lexer, builder
