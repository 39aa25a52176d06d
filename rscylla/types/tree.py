"""A CQL type as a tree, and names in CQL text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import attrs

__all__ = ["NO_DIGITS", "Digits", "Type", "quote_name"]

_FREEZABLE = ("list", "set", "map", "udt")


@attrs.frozen
class Digits:
    """How many digits a decimal number has at most, as ``decimal(precision,scale)`` of SQL.

    ``exact``: values of another scale do not fit, even if they are equal: in a partition key they are other keys.
    """

    precision: int
    scale: int
    exact: bool = False

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


NO_DIGITS: Mapping[str, Digits] = MappingProxyType({})
"""No numbers of limited digits: Arrow has varints and decimals as text."""


@attrs.frozen
class Type:
    """A CQL type.

    ``kind``: list, set, map, tuple, udt, vector, or the name of a native type (``text`` for varchar); types that
    rscylla does not know have the name that the server gives them. ``args``: the types of elements, key and value, or
    fields. ``fields``: of a UDT. ``name``: of a UDT. ``size``: of a vector. ``frozen``: declared so; what
    a collection or UDT contains always is. ``digits``: of a varint or decimal that is a number in Arrow, see
    ``registry.with_digits``; otherwise it is text there.
    """

    kind: str
    args: tuple[Type, ...] = ()
    fields: tuple[str, ...] = ()
    name: str = ""
    size: int = 0
    frozen: bool = False
    digits: Digits | None = None

    @property
    def is_multicell(self) -> bool:
        """Whether a column of the type has many cells, which are written one by one, each with its time and TTL.

        A column of the primary key is one cell whatever its type.
        """
        return self.kind in _FREEZABLE and not self.frozen

    @property
    def is_hashable(self) -> bool:
        """Whether decoded values can be elements of a set or keys of a dict."""
        return self.kind not in ("list", "vector", "set", "map", "udt") and all(t.is_hashable for t in self.args)

    @property
    def has_udt(self) -> bool:
        """Whether the type is, or contains, a user-defined one."""
        return self.kind == "udt" or any(t.has_udt for t in self.args)

    def same_bytes(self, other: Type) -> bool:
        """Whether the values of both have the same bytes: names of UDTs do not matter, nor does what is frozen."""
        mine, theirs = ((t.kind, t.fields, t.size, len(t.args)) for t in (self, other))
        return mine == theirs and all(a.same_bytes(b) for a, b in zip(self.args, other.args, strict=True))

    def __str__(self) -> str:
        """Return the type in CQL, as ``system_schema.columns`` has it."""
        parts = [str(arg) for arg in self.args]
        if self.kind == "udt":
            text = quote_name(self.name)
        elif self.kind == "vector":
            text = f"vector<{parts[0]}, {self.size}>"
        else:
            text = f"{self.kind}<{', '.join(parts)}>" if parts else self.kind
        return f"frozen<{text}>" if self.kind == "tuple" or (self.frozen and self.kind in _FREEZABLE) else text


_PLAIN = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)

_RESERVED = frozenset(  # Source: Scylla's CQL grammar, reserved keywords
    [
        "add",
        "allow",
        "alter",
        "and",
        "apply",
        "asc",
        "authorize",
        "batch",
        "begin",
        "by",
        "columnfamily",
        "create",
        "default",
        "delete",
        "desc",
        "describe",
        "drop",
        "entries",
        "execute",
        "from",
        "full",
        "grant",
        "if",
        "in",
        "index",
        "infinity",
        "insert",
        "into",
        "is",
        "keyspace",
        "limit",
        "materialized",
        "mbean",
        "mbeans",
        "modify",
        "nan",
        "norecursive",
        "not",
        "null",
        "of",
        "on",
        "or",
        "order",
        "primary",
        "rename",
        "replace",
        "revoke",
        "schema",
        "select",
        "set",
        "table",
        "to",
        "token",
        "truncate",
        "unlogged",
        "unset",
        "update",
        "use",
        "using",
        "view",
        "where",
        "with",
    ]
)


def quote_name(name: str) -> str:
    """Return *name* as CQL needs it: quoted unless it is a plain lower-case word that is not reserved.

    >>> quote_name("orders"), quote_name("Orders"), quote_name("order"), quote_name('a"b')
    ('orders', '"Orders"', '"order"', '"a""b"')
    """
    if _PLAIN.fullmatch(name) and name not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'
