"""Words and terms: names, types, constants, markers, calls and collections."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from ...errors import SyntaxException
from .. import ast
from ..names import quote_name
from .parts import Parts, as_tuple, word

__all__ = ["Terms", "Words"]

_Node = TypeVar("_Node")
_MAX_NESTING: Final = 12  # Scylla's max_expression_nesting


def _constant(kind: Any, *, folded: bool = False, start: int = 0) -> Any:
    """Return what makes a constant of a token, from one of its characters on, in lower case if *folded*."""

    def build(_: Words, token: str) -> ast.Constant:
        # A slice of lark's Token is a plain str: the tree outlives the parse and needs no positions.
        text = token[start:]
        return ast.Constant(kind, text.lower() if folded else text)

    return build


def _collection(cls: Any) -> Any:
    """Return what builds a literal of terms."""

    def build(self: Terms, parts: Parts) -> Any:
        items = parts[0] if parts else ()
        return self.nested(cls(items), *items) if items else cls(())

    return build


class Words:
    """Tokens with text, names and types."""

    def IDENT(self, token: str) -> str:
        return str.lower(token)

    def QUOTED(self, token: str) -> str:
        return str.replace(token[1:-1], '""', '"')

    def STRING(self, token: str) -> ast.Constant:
        text = token[2:-2] if token[0] == "$" else str.replace(token[1:-1], "''", "'")
        return ast.Constant("string", text)

    INTEGER = _constant("integer")
    FLOAT = _constant("float")
    SPECIAL_FLOAT = _constant("float", folded=True)
    BOOLEAN = _constant("boolean", folded=True)
    UUID = _constant("uuid", folded=True)
    BLOB = _constant("blob", folded=True, start=2)
    DURATION = _constant("duration")

    def OPERATOR(self, token: str) -> str:
        return token[:]

    names = staticmethod(as_tuple)

    def table(self, parts: Parts) -> ast.TableName:
        return ast.TableName(parts[0] if len(parts) > 1 else None, parts[-1])

    # Type text is rebuilt in one spelling, so that it reads the same wherever it came from.
    def type_plain(self, parts: Parts) -> str:
        return str(parts[0])

    def type_quoted(self, parts: Parts) -> str:
        return f'"{str.replace(parts[0], chr(34), chr(34) * 2)}"'

    def type_qualified(self, parts: Parts) -> str:
        return ".".join(map(quote_name, parts))

    def type_of(self, parts: Parts) -> str:
        inner = [part.text if isinstance(part, ast.Constant) else part for part in parts[1:]]
        return f"{parts[0]}<{', '.join(inner)}>"

    def type_set(self, parts: Parts) -> str:
        return f"set<{parts[0]}>"


class Terms:
    """Constants, markers, calls and collections."""

    def __init__(self) -> None:
        self.markers = 0
        self.named: dict[str, ast.Marker] = {}
        self.levels: dict[int, int] = {}

    def nested(self, node: _Node, *inner: Any) -> _Node:
        """Return *node*, one level above its deepest part. Raises SyntaxException beyond the limit."""
        # By identity, of nodes that the tree keeps alive. Nodes without parts are left out: they have one level.
        level = 1 + max([self.levels.get(id(part), 1) for part in inner], default=0)
        if level > _MAX_NESTING:
            raise SyntaxException("expression nested too deeply")
        self.levels[id(node)] = level
        return node

    null = staticmethod(word(ast.Constant("null", "")))

    def marker(self, _: Parts) -> ast.Marker:
        self.markers += 1
        return ast.Marker(self.markers - 1, None)

    def named_marker(self, parts: Parts) -> ast.Marker:
        # A name used twice is one variable, as in Scylla (Cassandra makes two of it).
        known = self.named.get(parts[0])
        if known is None:
            self.markers += 1
            known = self.named[parts[0]] = ast.Marker(self.markers - 1, parts[0])
        return known

    def function(self, parts: Parts) -> tuple[str | None, str]:
        return (parts[0] if len(parts) > 1 else None, parts[-1])

    token_function = staticmethod(word((None, "token")))

    def call(self, parts: Parts) -> ast.Call:
        keyspace, name = parts[0]
        arguments = parts[1] if len(parts) > 1 else ()
        return self.nested(ast.Call(keyspace, name, arguments), *arguments)

    def hint(self, parts: Parts) -> ast.Cast:
        return self.nested(ast.Cast(parts[0], parts[1]), parts[1])

    terms = staticmethod(as_tuple)

    tuple_term = _collection(ast.TupleTerm)
    list_term = empty_list = _collection(ast.ListTerm)
    set_term = empty_set = _collection(ast.SetTerm)
    map_entry = staticmethod(as_tuple)
    udt_field = staticmethod(as_tuple)

    def map_term(self, parts: Parts) -> ast.MapTerm:
        return self.nested(ast.MapTerm(as_tuple(parts)), *(part for entry in parts for part in entry))

    def udt_term(self, parts: Parts) -> ast.UdtTerm:
        return self.nested(ast.UdtTerm(as_tuple(parts)), *(value for _, value in parts))
