"""Names in CQL text."""

from __future__ import annotations

import re

__all__ = ["quote_name"]

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
