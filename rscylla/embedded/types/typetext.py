"""CQL type text such as ``frozen<map<text, int>>`` made into a type."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn

from ..errors import InvalidRequest
from .composed import ListType, MapType, SetType, TupleType, UdtType, VectorType
from .cqltype import CqlType
from .natives import COUNTER, DURATION, NATIVE_TYPES, NativeType

__all__ = ["parse_type"]

_TOKEN: Final = re.compile(r'\s*(?:([A-Za-z][A-Za-z0-9_]*)|"((?:[^"]|"")+)"|([0-9]+)|([<>,.]))')
_MAX_DEPTH: Final = 32  # levels; bounds the recursion, for the text comes from a client
_MAX_DIMENSION: Final = 16000  # Scylla's limit for vectors


def parse_type(text: str, lookup_udt: Callable[[str], UdtType]) -> CqlType:
    """Return the type that *text* names.

    Args:
        text: CQL type text; case does not matter outside double quotes.
        lookup_udt: Called with the name of a user-defined type (``keyspace.name`` when written so, folded, without
            quotes); returns the non-frozen type or raises InvalidRequest.

    Raises:
        InvalidRequest: Unknown or badly nested type.
    """
    tokens = _TypeTokens(text, lookup_udt)
    result = tokens.read(0, frozen=False)
    tokens.expect_end()
    return result


class _TypeTokens:
    """A cursor over the tokens of one type text."""

    def __init__(self, text: str, lookup_udt: Callable[[str], UdtType]) -> None:
        self._text = text
        self._lookup_udt = lookup_udt
        self._at = 0
        self._tokens: list[tuple[str, str]] = []
        end = 0
        while match := _TOKEN.match(text, end):
            word, quoted, number, mark = match.groups()
            end = match.end()
            if word is not None:
                self._tokens.append(("name", word.lower()))
            elif quoted is not None:
                self._tokens.append(("quoted", quoted.replace('""', '"')))
            else:
                self._tokens.append(("number", number) if number else ("mark", mark))
        if text[end:].strip():
            self._bad()

    def _bad(self) -> NoReturn:
        raise InvalidRequest(f"Unable to read the type {self._text!r}")

    def _take(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            self._bad()
        self._at += 1
        return self._tokens[self._at - 1]

    def _follows(self, mark: str) -> bool:
        """Step over *mark* if it comes next."""
        found = self._at < len(self._tokens) and self._tokens[self._at] == ("mark", mark)
        self._at += found
        return found

    def _expect(self, mark: str) -> None:
        if not self._follows(mark):
            self._bad()

    def expect_end(self) -> None:
        if self._at != len(self._tokens):
            self._bad()

    def read(self, depth: int, *, frozen: bool) -> CqlType:
        """Return the next type. Inside a *frozen* one, collections and UDTs need not say so again."""
        if depth > _MAX_DEPTH:
            raise InvalidRequest(f"Type nested deeper than {_MAX_DEPTH} levels")
        kind, word = self._take()
        if kind not in ("name", "quoted"):
            self._bad()
        if self._follows("<"):
            if kind == "quoted":
                self._bad()
            result = self._parametrised(word, depth + 1, frozen)
            self._expect(">")
            return result
        if self._follows("."):
            kind, name = self._take()
            if kind not in ("name", "quoted"):
                self._bad()
            return self._lookup_udt(f"{word}.{name}")
        if kind == "name" and word in NATIVE_TYPES:
            return NATIVE_TYPES[word]
        return self._lookup_udt(word)

    def _parametrised(self, word: str, depth: int, frozen: bool) -> CqlType:
        match word:
            case "frozen":
                inner = self.read(depth, frozen=True)
                if isinstance(inner, NativeType):
                    raise InvalidRequest(
                        f"frozen<> is only allowed on collections, tuples, and user-defined types (got {inner.name})"
                    )
                return inner.freeze()
            case "list":
                return ListType(self._element(word, depth, frozen))
            case "set":
                return SetType(self._key(word, depth, frozen))
            case "map":
                key = self._key(word, depth, frozen)
                self._expect(",")
                return MapType(key, self._element(word, depth, frozen))
            case "tuple":
                return self._tuple(depth)
            case "vector":
                return self._vector(depth)
        raise InvalidRequest(f"Unknown type {word} in {self._text!r}: it takes no parameters")

    def _element(self, outer: str, depth: int, frozen: bool) -> CqlType:
        """Return an inner type, which must be one cell."""
        element = self.read(depth, frozen=frozen)
        if element is COUNTER:
            raise InvalidRequest(f"Counters are not allowed inside collections: {self._text}")
        if element.is_multicell and not frozen:
            raise InvalidRequest(
                f"Non-frozen user types or collections are not allowed inside collections: {self._text}"
            )
        return element

    def _key(self, outer: str, depth: int, frozen: bool) -> CqlType:
        key = self._element(outer, depth, frozen)
        # Sets and maps are sorted by their keys, and durations have no order.
        if key is DURATION:
            place = "as map keys" if outer == "map" else "inside sets"
            raise InvalidRequest(f"Durations are not allowed {place}: {self._text}")
        return key

    def _tuple(self, depth: int) -> TupleType:
        items = [self.read(depth, frozen=True)]
        while self._follows(","):
            items.append(self.read(depth, frozen=True))
        if COUNTER in items:
            raise InvalidRequest("Counters are not allowed inside tuples")
        return TupleType(tuple(item.freeze() for item in items))

    def _vector(self, depth: int) -> VectorType:
        element = self.read(depth, frozen=True).freeze()
        self._expect(",")
        kind, digits = self._take()
        if kind != "number":
            self._bad()
        if element is COUNTER:
            raise InvalidRequest("Counters are not allowed inside vectors")
        if not digits.strip("0"):
            raise InvalidRequest("Vectors must have a dimension greater than 0")
        if len(digits) > 9 or int(digits) > _MAX_DIMENSION:
            raise InvalidRequest(f"Vectors must have a dimension less than or equal to {_MAX_DIMENSION}")
        return VectorType(element, int(digits))
