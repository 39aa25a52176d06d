"""The text of CQL types, as ``system_schema.columns`` and ``system_schema.types`` have it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .registry import CONTAINERS, NATIVES
from .tree import Type

__all__ = ["Fields", "parse_type"]

Fields = Sequence[tuple[str, str]]
"""Name and type text of each field of a user-defined type, as ``system_schema.types`` has them."""

_ALIASES = {"varchar": "text"}

_TOKEN = re.compile(r"""\s*("(?:[^"]|"")+"|'[^']+'|[^\s<>,"']+|[<>,])""")


def parse_type(text: str, udts: Mapping[str, Fields] | None = None) -> Type:
    """Return the type that *text* names.

    Args:
        udts: the user-defined types of the keyspace, by name. A UDT that is not among them has no fields.

    Raises:
        ValueError: *text* is not a CQL type.
    """
    parser = _Parser(text, udts or {})
    found = parser.type(frozen=False)
    parser.end()
    return found


class _Parser:
    """Reads the tokens of one type text from left to right."""

    def __init__(self, text: str, udts: Mapping[str, Fields]) -> None:
        self._text = text
        self._udts = udts
        self._at = 0

    def type(self, *, frozen: bool) -> Type:
        word = self._take()
        if word == "frozen" and self._follows("<"):
            found = self.type(frozen=True)
            self._expect(">")
            return found
        if word[0] in "<>,":
            raise self._error()
        if word[0] == "'":
            return Type(word[1:-1])
        if word in CONTAINERS and self._follows("<"):
            return self._parametrised(word, frozen=frozen)
        kind = _ALIASES.get(word, word)
        if kind in NATIVES:
            return Type(kind)
        name = word[1:-1].replace('""', '"') if word[0] == '"' else word
        fields = self._udts.get(name, ())
        args = tuple(_Parser(text, self._udts).type(frozen=True) for _, text in fields)
        return Type("udt", args, tuple(field for field, _ in fields), name=name, frozen=frozen)

    def _parametrised(self, kind: str, *, frozen: bool) -> Type:
        args = [self.type(frozen=True)]
        size = 0
        while self._follows(","):
            if kind == "vector":
                word = self._take()
                size = int(word) if word.isdecimal() and not size else -1
            else:
                args.append(self.type(frozen=True))
        self._expect(">")
        if CONTAINERS[kind].parameters not in (len(args), None) or (kind == "vector") != (size > 0) or size < 0:
            raise self._error()
        return Type(kind, tuple(args), size=size, frozen=frozen and kind not in ("tuple", "vector"))

    def _take(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._error()
        self._at = match.end()
        return match[1]

    def _follows(self, mark: str) -> bool:
        """Whether *mark* comes next; if so, step over it."""
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[1] != mark:
            return False
        self._at = match.end()
        return True

    def _expect(self, mark: str) -> None:
        if not self._follows(mark):
            raise self._error()

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self._error()

    def _error(self) -> ValueError:
        return ValueError(f"{self._text!r} is not a CQL type")
