"""CQL text cut into tokens. Whether a word is a keyword or a name depends on what the parser can take at that place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lark import Token
from lark.common import LexerConf
from lark.lexer import Lexer, LexerState, PatternStr
from lark.parsers.lalr_analysis import Shift

from ..errors import SyntaxException
from .names import RESERVED_WORDS

__all__ = ["CqlLexer", "Word", "scan", "syntax_error"]

_SPACE: Final = re.compile(r"(?:\s+|--[^\r\n]*|//[^\r\n]*|/\*.*?\*/)+", re.DOTALL)
_MAX_DEPTH: Final = 100  # open brackets; those of terms have a lower limit of their own

# Terminals with a pattern of their own, longest or most special first: a UUID may begin like a number or a name.
_PATTERNS: Final = (
    *("STRING", "QUOTED", "UUID", "BLOB", "DURATION", "FLOAT", "INTEGER", "SPECIAL_FLOAT", "BOOLEAN", "IDENT"),
    "OPERATOR",
)
_ISO_DURATION: Final = re.compile(
    r"-?P(?=\d|T\d)(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|\d+W|(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)"
    r"(?![A-Za-z0-9_])"
)
_ALIASES: Final = {"columnfamily": "table", "columnfamilies": "tables", "schema": "keyspace"}

States = Mapping[Any, Mapping[str, tuple[Any, Any]]]
Word = tuple[str, str, int]
"""A token before the parser has its say: kind, text, position. Kind is a terminal, or MARK for punctuation."""


def syntax_error(text: str, position: int, found: str) -> SyntaxException:
    """Return the error for *found* at *position*, in the form of Scylla's messages."""
    if not text.strip():
        # Where ANTLR, which Scylla uses, places the end of a text without tokens.
        return SyntaxException("line 0:-1 no viable alternative at input '<EOF>'")
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1)
    return SyntaxException(f"line {line}:{column} no viable alternative at input '{found}'")


def scan(pattern: re.Pattern[str], text: str) -> list[Word]:
    """Return the words of *text*. Raises SyntaxException at a character that begins none, or when nested too deeply."""
    words: list[Word] = []
    at, end, depth = 0, len(text), 0
    match_space, match_word = _SPACE.match, pattern.match
    while at < end:
        if space := match_space(text, at):
            at = space.end()
            if at == end:
                break
        found = match_word(text, at)
        if found is None:
            raise syntax_error(text, at, text[at])
        kind, word = found.lastgroup or "", found[0]
        words.append((kind, word, at))
        at = found.end()
        if kind == "MARK":
            depth += (word in "([{") - (word in ")]}")
            if depth > _MAX_DEPTH:
                raise SyntaxException("expression nested too deeply")
    return words


class CqlLexer(Lexer):
    """Hands the parser its tokens; takes patterns and keywords from the grammar. Keeps no state between texts."""

    # lark hands the parser's state to lexers that say this; it decides whether a word is a keyword.
    __future_interface__ = 2

    def __init__(self, lexer_conf: LexerConf) -> None:
        by_name = {terminal.name: terminal.pattern for terminal in lexer_conf.terminals}
        self._keywords: dict[str, str] = {}
        self._marks: dict[str, str] = {}
        for name, pattern in by_name.items():
            if isinstance(pattern, PatternStr):
                words = self._keywords if pattern.value[0].isalpha() else self._marks
                words[pattern.value] = name
        groups = [f"(?P<{name}>{_with_flags(by_name[name])})" for name in _PATTERNS]
        # Not a terminal of the grammar: the parser's state decides in lex() whether P1D is a duration or a name.
        groups.insert(_PATTERNS.index("INTEGER") + 1, f"(?P<ISO>{_ISO_DURATION.pattern})")
        marks = "|".join(re.escape(mark) for mark in sorted(self._marks, key=len, reverse=True))
        # OPERATOR comes before the marks, of which <= and >= begin with one.
        self.pattern = re.compile("|".join([*groups, f"(?P<MARK>{marks})"]))

    @property
    def keywords(self) -> frozenset[str]:
        """The words that the grammar uses as keywords, in lower case."""
        return frozenset(self._keywords)

    def lex(self, lexer_state: LexerState, parser_state: Any) -> Iterator[Token]:
        words: list[Word] = lexer_state.text  # type: ignore[assignment]  # we are given scanned words, not text
        states = parser_state.parse_conf.states
        stack = parser_state.state_stack
        for index, (kind, word, at) in enumerate(words):
            if kind == "IDENT":
                kind = self._word(word.lower(), states, stack, words, index)
            elif kind == "MARK":
                kind = self._marks[word]
            elif kind == "ISO":
                # P1D can be a name, too.
                kind = "DURATION" if word[0] == "-" or _takes(states, stack, "DURATION") else "IDENT"
            yield Token(kind, word, at)

    def _word(self, word: str, states: States, stack: list[Any], words: list[Word], index: int) -> str:
        """Return the terminal for a word: a keyword where the parser can take that one, else a name."""
        terminal = self._keywords.get(word)
        reserved = word in RESERVED_WORDS
        if terminal is None or not _takes(states, stack, terminal):
            alias = _ALIASES.get(word)
            if alias is not None and _takes(states, stack, self._keywords[alias]):
                return self._keywords[alias]
            # A reserved word out of place is handed on as such, for the parser to refuse.
            return "RESERVED" if reserved else "IDENT"
        if reserved or not _takes(states, stack, "IDENT"):
            return terminal
        return "IDENT" if _reads_as_name(word, words, index) else terminal


def _takes(states: States, stack: list[Any], terminal: str) -> bool:
    """Tell whether the parser, standing at *stack*, can take *terminal* next.

    The tables of an LALR parser promise too much: a state that several places share lists what may follow in any of
    them. So the reductions are walked through here, without values, until the terminal is shifted or refused.
    """
    action = states[stack[-1]].get(terminal)
    if action is None or action[0] is Shift:
        return action is not None
    # The parser goes on with its own stack; this walk is only a question.
    stack = stack.copy()
    while action is not None and action[0] is not Shift:
        rule = action[1]
        if rule.expansion:
            del stack[-len(rule.expansion) :]
        stack.append(states[stack[-1]][rule.origin.name][1])
        action = states[stack[-1]].get(terminal)
    return action is not None


def _with_flags(pattern: Any) -> str:
    """Return the regular expression of a terminal with its flags inside."""
    return str(pattern.to_regexp())


def _reads_as_name(word: str, words: list[Word], index: int) -> bool:
    """Whether *word* is a name though it could be a keyword here too; the next word tells."""
    following = words[index + 1][1].lower() if index + 1 < len(words) else ""
    match word:
        case "json" | "distinct":  # SELECT json FROM t, SELECT distinct, a FROM t
            return following in ("", ",", ".", "[", "from", "as", ";") or (following == "(" and word == "json")
        case "exists":  # IF exists = 1
            return following in ("=", "<", ">", "<=", ">=", "!=", "in", "not", "[", ".", "contains", "like", "is")
        case "clustering" | "compact":  # WITH compact = 1
            return following == "="
        case "type" | "function" | "aggregate" | "only":  # DESCRIBE type
            return following in ("", ";", ".", "with")
        case "cluster" | "keyspaces" | "tables" | "types" | "functions" | "aggregates":  # DESCRIBE tables.a
            return following == "."
    return False
