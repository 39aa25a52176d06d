"""CQL text made into statements: lark's LALR parser over ``cql.lark``, and a cache of what was parsed lately."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from typing import Any, Final

from lark import Lark, UnexpectedToken

from ..errors import SyntaxException
from . import ast
from .building import Builder
from .lexer import CqlLexer, scan, syntax_error
from .unsupported import unsupported_clause, unsupported_statement

__all__ = ["parse"]

_CACHED_STATEMENTS: Final = 2048
_CACHED_LENGTH: Final = 8192  # characters; longer texts are batches or blobs that hardly come twice

# Held while parsing, too: the one builder counts the markers of the statement at hand.
_lock = threading.Lock()
_cache: OrderedDict[str, ast.Statement] = OrderedDict()


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
    refused = unsupported_statement(words)
    if refused is not None:
        return refused
    # Here, not after: a statement that failed half-way has left its markers behind.
    builder.reset()
    try:
        statement: ast.Statement = lark.parse(words)  # type: ignore[assignment]  # words, see CqlLexer.lex
    except UnexpectedToken as error:
        if (clause := unsupported_clause(words)) is not None:
            return clause
        token = error.token
        if token.type == "$END":
            raise syntax_error(text, len(text.rstrip()), "<EOF>") from None
        # The parser's own error lists terminals of our grammar, which mean nothing to a user of CQL.
        raise syntax_error(text, token.start_pos or 0, str(token)) from None
    return statement


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
